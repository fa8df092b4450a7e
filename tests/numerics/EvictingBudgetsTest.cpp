//===- EvictingBudgetsTest.cpp - budgets of many slots and layers ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/EvictingRun.h"

using namespace ladle;
using Slots = std::vector<int32_t>;
using Budgets = std::vector<int64_t>;

/// 20 tokens at the most and 6 at the least; a cut to 12 is judged.
static const EvictingCase layerCase = [] {
  EvictingCase config{
      {4, 2, 32, 16, 0.2, 20, 1, 5, 8, 200, 5, /*remembers=*/true, 0}};
  config.preference = PreferenceOptions{12, 8};
  return config;
}();

TEST_CASE("budgets of many slots are all taken or none is") {
  EvictingRun run({layerCase.numbers}, 3);
  run.prefill(0, 40);
  run.prefill(1, 40);
  auto set = [&](const Slots &slots, const Slots &budgets) {
    return run.getDecoder().setBudgets(slots, budgets).message();
  };
  auto kept = [&] {
    return Budgets{run.getPool().keptTokens(0), run.getPool().keptTokens(1)};
  };
  CHECK(set({0, 1}, {8, 21}) == "budgets[1] is 21, wanted 6 to 20");
  CHECK(set({0, -1, 1}, {8, 0, 5}) == "budgets[2] is 5, wanted 6 to 20");
  CHECK(set({0, 3}, {8, 8}) == "slots[1] is 3, wanted 2 at most");
  CHECK(set({0, 1, 0}, {8, 8, 9}) ==
        "slots[2] is 0, which is named before, wanted each slot once");
  CHECK(set({0, 1}, {8}) == "budgets has 1 numbers, wanted 2, one for each "
                            "slot");
  CHECK(kept() == Budgets{20, 20});
  CHECK(run.getPool().budget(0) == 20);
  // Padding has neither a slot nor a budget, as often as it is there.
  CHECK(set({-1, 1, -1}, {99, 8, -3}).empty());
  CHECK(kept() == Budgets{20, 8});
  CHECK(set({1, 0}, {7, 9}).empty());
  CHECK(kept() == Budgets{9, 7});
}
