//===- DriftTest.cpp - thousands of tokens in one slot --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Requests.h"

using namespace ladle;

/// The error of a token 10,000 tokens on is bounded like that of the first.
static void decodeFar(const std::string &model, const check::SizeMap &sizes) {
  check::CheckRequest request = test::requestOf(model);
  std::vector<check::CheckCase> cases;
  for (RouteKind route : test::routesOf(request)) {
    check::CheckCase config;
    config.route = route;
    config.rows = 1;
    config.tokens = 10000;
    config.sizes = sizes;
    cases.push_back(config);
  }
  test::requirePassed(request, cases);
}

TEST_CASE("a gated delta net does not drift over 10,000 tokens") {
  decodeFar("gated_delta_net", {});
}

TEST_CASE("a vector decay does not drift over 10,000 tokens") {
  decodeFar("kda", {});
}

TEST_CASE("a delta net that never forgets does not drift") {
  decodeFar("delta_net", {});
}
