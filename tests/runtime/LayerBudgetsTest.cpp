//===- LayerBudgetsTest.cpp - a budget for each layer -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/budgets.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

using namespace ladle;
using Shares = std::vector<int64_t>;

static LayerBudgets make(const LayerBudgetOptions &options) {
  Result<LayerBudgets> made = LayerBudgets::create(options);
  REQUIRE(made);
  return std::move(*made);
}

static Shares sharesOf(const LayerBudgetOptions &options,
                       const std::vector<double> &scores) {
  LayerBudgets budgets = make(options);
  for (double score : scores)
    REQUIRE(budgets.add(score));
  return {budgets.budgets().begin(), budgets.budgets().end()};
}

TEST_CASE("budgets are in proportion to scores") {
  CHECK(sharesOf({3, 12}, {1, 2, 3}) == Shares{2, 4, 6});
  // 4.5, 2.25 and 2.25: the largest remainder first.
  CHECK(sharesOf({3, 9}, {2, 1, 1}) == Shares{5, 2, 2});
  CHECK(sharesOf({1, 100}, {0.3}) == Shares{100});
}

TEST_CASE("ties go to the first layers") {
  CHECK(sharesOf({4, 10}, {1, 1, 1, 1}) == Shares{3, 3, 2, 2});
  CHECK(sharesOf({3, 5}, {0, 0, 0}) == Shares{2, 2, 1});
}

TEST_CASE("budgets stay within bounds and what is cut goes to others") {
  CHECK(sharesOf({3, 30, 5, 12}, {10, 1, 1}) == Shares{12, 9, 9});
  CHECK(sharesOf({3, 30, 8, 30}, {10, 0, 0}) == Shares{14, 8, 8});
  CHECK(sharesOf({2, 100, 1, 10}, {1, 2}) == Shares{10, 10});
}

TEST_CASE("cascading budgets add up and never grow") {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int trial = 0; trial < 500; ++trial) {
    LayerBudgetOptions options;
    options.layers = 1 + static_cast<int64_t>(random() % 40);
    options.least = static_cast<int64_t>(random() % 8);
    options.most = options.least + 1 + static_cast<int64_t>(random() % 400);
    options.total =
        options.layers * options.least + static_cast<int64_t>(random() % 3000);
    LayerBudgets budgets = make(options);
    Shares before;
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      REQUIRE(budgets.add(random() % 10 ? std::pow(uniform(random), 3) : 0));
      Shares now(budgets.budgets().begin(), budgets.budgets().end());
      REQUIRE(now.size() == before.size() + 1);
      for (size_t i = 0; i < now.size(); ++i) {
        REQUIRE(now[i] >= options.least);
        REQUIRE(now[i] <= (i < before.size() ? before[i] : options.most));
      }
      int64_t sum = std::accumulate(now.begin(), now.end(), int64_t(0));
      int64_t room = std::accumulate(before.begin(), before.end(), int64_t(0)) +
                     std::min(options.most, options.total);
      REQUIRE(sum == std::min(options.total, room));
      before = now;
    }
  }
}

TEST_CASE("the score of a layer") {
  LayerPreference preference{0.25, 16};
  CHECK(preferenceScore(preference, {0.5, 0.25}) == Approx(0.5 * 2));
  CHECK(preferenceScore(preference) ==
        Approx(std::pow(0.25, 0.4) * std::pow(16, 0.2)));
  CHECK(preferenceScore(preference, {0, 0}) == 1);
}

TEST_CASE("budgets that cannot be are refused") {
  auto refusal = [](const LayerBudgetOptions &options) {
    return LayerBudgets::create(options).message();
  };
  CHECK(refusal({0, 10}) == "layers is 0, wanted 1 at least");
  CHECK(refusal({4, 10, 3}) == "total is 10, wanted 3 at least for 4 layers");
  CHECK(refusal({4, 10, 3, 2}) ==
        "least is 3 and most 2, wanted 0 at least, and as much at the most");
  LayerBudgets budgets = make({1, 10});
  CHECK(budgets.add(-1).message() ==
        "the score of layer 0 is -1, wanted a number of 0 at least");
  CHECK(!budgets.add(NAN));
  CHECK(budgets.budgets().empty());
  CHECK(budgets.add(1));
  CHECK(budgets.add(1).message() == "all 1 layers have a budget");
}
