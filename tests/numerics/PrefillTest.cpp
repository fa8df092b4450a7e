//===- PrefillTest.cpp - prompts of every example -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Prompts.h"
#include "tests/numerics/Requests.h"

#include <filesystem>

using namespace ladle;
using namespace ladle::test;

static std::vector<std::string> allExamples() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator("examples"))
    if (entry.path().extension() == ".ladle")
      names.push_back(entry.path().stem());
  REQUIRE(names.size() > 10);
  return names;
}

/// Hundreds of random tokens blow up a state that models keep in bounds.
static check::InputRanges rangesOf(const std::string &model) {
  if (model != "rwkv7_core")
    return {};
  return {{"kk", *check::InputRange::parse("unit")},
          {"a", *check::InputRange::parse("0:1")},
          {"w", *check::InputRange::parse("-1:0")}};
}

TEST_CASE("prompts of any length, on top of anything") {
  for (const std::string &model : allExamples())
    for (RouteKind route : routesOf(requestOf(model))) {
      INFO(model << " by " << toString(route));
      CompileOptions options;
      options.preset = "tiny";
      options.route = toString(route);
      Prompts prompts(readExample(model), options, rangesOf(model));
      prompts.prefill({0, 1, 2, -1, 3, 4}, {1, 63, 64, 2, 65, 200});
      CHECK(prompts.worst < 1e-5);
      // Then decode, and another prompt on what there is.
      for (int step = 0; step < 5; ++step)
        prompts.decode({4, 1, 5, 0});
      CHECK(prompts.worst < 1e-5);
      prompts.prefill({5, 4, 0, 1}, {3, 20, 70, 129});
      CHECK(prompts.worst < 1e-5);
      for (int32_t slot = 0; slot < Prompts::slots; ++slot) {
        bool isShort = route == RouteKind::KvOnly && slot == 5;
        CHECK(prompts.cursor(slot).length == (isShort ? 8 : 0));
        CHECK((prompts.cursor(slot).epoch > 0) == !isShort);
      }
      prompts.compareSlots();
      CHECK(prompts.worst < 1e-5);
    }
}
