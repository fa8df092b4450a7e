//===- Requests.h - checks of the examples ----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_REQUESTS_H
#define LADLE_TESTS_NUMERICS_REQUESTS_H

#include "runtime/check/Check.h"
#include "tests/numerics/Examples.h"

#include <cstdlib>

namespace ladle::test {

inline check::CheckRequest requestOf(const std::string &model,
                                     const std::string &preset = "tiny") {
  check::CheckRequest request;
  request.path = examplePath(model);
  request.source = readExample(model);
  request.elaboration.preset = preset;
  return request;
}

inline std::vector<RouteKind> routesOf(const check::CheckRequest &request) {
  Result<std::vector<RouteKind>> routes = check::findRoutes(request);
  INFO(routes.message());
  REQUIRE(routes.ok());
  return *routes;
}

inline void requirePassed(const check::CheckRequest &request,
                          const std::vector<check::CheckCase> &cases) {
  Result<check::CheckReport> report = check::checkCases(request, cases);
  INFO(report.message());
  REQUIRE(report.ok());
  INFO(report->table());
  REQUIRE(report->cases.size() == cases.size());
  CHECK(report->passed());
}

/// A case on a GPU, as a report names it.
inline void checkOnGpu(check::CheckRequest request, const std::string &text) {
  CAPTURE(request.path, text);
  request.target = "cuda";
  Result<check::CheckCase> parsed = check::CheckCase::parse(text);
  INFO(parsed.message());
  REQUIRE(parsed.ok());
  requirePassed(request, {*parsed});
}

inline void checkOnGpu(const std::string &model, const std::string &text) {
  checkOnGpu(requestOf(model), text);
}

/// `LADLE_FULL=1` runs what does not fit into the budget of every change.
inline bool isFull() {
  const char *full = std::getenv("LADLE_FULL");
  return full && std::string(full) != "0";
}

} // namespace ladle::test

#endif // LADLE_TESTS_NUMERICS_REQUESTS_H
