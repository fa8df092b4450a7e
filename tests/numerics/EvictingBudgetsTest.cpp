//===- EvictingBudgetsTest.cpp - budgets of many slots and layers ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/prompt_budgets.h"
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

/// For layers of 10 tokens each on average.
static PromptBudgets budgetsOf(const EvictingRun &run, int64_t layers) {
  PromptBudgetOptions options;
  options.layers = {layers, 10 * layers, 6, 20};
  Result<PromptBudgets> made = PromptBudgets::create(run.getProgram(), options);
  INFO(made.message());
  REQUIRE(made);
  return std::move(*made);
}

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

TEST_CASE("a layer that is refused can be added again") {
  // The second layer has no slot 1.
  EvictingRun first(layerCase, 2, 1), second(layerCase, 1, 2);
  auto answer = [&] {
    for (int32_t slot : {1, 0}) {
      first.reset(slot);
      first.prefill(slot, 50);
    }
    second.reset(0);
    second.prefill(0, 50);
  };
  PromptBudgets budgets = budgetsOf(first, 2);
  const Slots here{0}, there{1}, nowhere{9};
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    answer();
    CHECK(budgets.add(first.getDecoder(), nowhere).message() ==
          "slots[0] is 9, wanted 1 at most");
    CHECK(budgets.budgets(0).empty());
    REQUIRE(budgets.add(first.getDecoder(), here));
    Budgets alone = budgets.budgets(0);
    CHECK(alone == Budgets{20});
    // The first layer has the slot, and must not evict for it.
    CHECK(budgets.add(second.getDecoder(), there).message() ==
          "slots[0] is 1, wanted 0 at most");
    CHECK(first.getPool().keptTokens(1) == 20);
    CHECK(budgets.budgets(0) == alone);
    CHECK(budgets.budgets(1).empty());
    REQUIRE(budgets.add(second.getDecoder(), here));
    Result<LayerBudgets> wanted = LayerBudgets::create({2, 20, 6, 20});
    REQUIRE(wanted);
    for (EvictingRun *layer : {&first, &second})
      REQUIRE(
          wanted->add(preferenceScore(layer->getDecoder().preferences()[0])));
    for (int64_t layer : {0, 1})
      CHECK(budgets.budgets(layer) == Budgets{wanted->budgets()[layer]});
    CHECK(first.getPool().keptTokens(0) + second.getPool().keptTokens(0) == 20);
    budgets.restart();
  }
}

TEST_CASE("layers that lose nothing have equal budgets") {
  std::vector<std::unique_ptr<EvictingRun>> layers;
  for (unsigned layer = 0; layer < 3; ++layer)
    layers.push_back(std::make_unique<EvictingRun>(layerCase, 1, layer + 1));
  PromptBudgets budgets = budgetsOf(*layers.front(), 3);
  const Slots slots{0};
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    budgets.restart();
    for (auto &layer : layers) {
      layer->reset(0);
      layer->prefill(0, 13); // of which one is evicted, and remembered
      REQUIRE(layer->getDecoder().preferences().size() == 1);
      CHECK(layer->getDecoder().preferences()[0].disturbance == 0);
      CHECK(layer->model(0).preference(12, 8, 0.1, false).disturbance == 0);
      REQUIRE(budgets.add(layer->getDecoder(), slots));
    }
    for (int64_t layer = 0; layer < 3; ++layer)
      CHECK(budgets.budgets(layer) == Budgets{10});
  }
}
