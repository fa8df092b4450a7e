//===- SlakeLmTest.cpp - a softmax model with bounded caches --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/SlakeLm.h"
#include "tests/tiny_lm/RandomModel.h"

#include <catch2/catch.hpp>
#include <numeric>

using namespace tinylm;
using namespace tinylm::test;

static SlakeLmOptions optionsOf(int64_t budget) {
  SlakeLmOptions options;
  options.budget = budget;
  options.options = {{"recent", 4}, {"queries", 8}};
  return options;
}

/// Logits of a prompt, and of the steps that follow it.
static Vector logitsOf(SlakeLm &model, std::span<const uint8_t> text,
                       size_t prompt) {
  Vector all = model.prefill(text.first(prompt), /*wantsLogits=*/true);
  for (uint8_t token : text.subspan(prompt)) {
    Vector next = model.step(token);
    all.insert(all.end(), next.begin(), next.end());
  }
  return all;
}

TEST_CASE("a model whose budget holds everything is exact") {
  Weights weights = makeWeights();
  std::vector<uint8_t> text = makeText(70, 1);
  Vector wanted = referenceLogits(weights, text);
  SlakeLm model(weights, optionsOf(70)), small(weights, optionsOf(16));
  // Keys and values are stored in bf16.
  CHECK(distance(logitsOf(model, text, 50), wanted) < 0.05);
  CHECK(model.length() == 70);
  CHECK(distance(logitsOf(small, text, 50), wanted) > 0.1);
  CHECK(small.cacheBytes() < model.cacheBytes());
}

TEST_CASE("a prompt is answered exactly, whatever is kept of it") {
  Weights weights = makeWeights();
  std::vector<uint8_t> text = makeText(60, 2);
  SlakeLm small(weights, optionsOf(16));
  CHECK(distance(logitsOf(small, text, 60), referenceLogits(weights, text)) <
        0.05);
}

TEST_CASE("layers share what all of them keep") {
  Weights weights = makeWeights();
  std::vector<uint8_t> text = makeText(80, 3);
  SlakeLmOptions options = optionsOf(20);
  options.sharesBudget = true;
  options.least = 8;
  options.room = 32;
  options.exponents = {20, 20}; // random layers are much alike
  SlakeLm model(weights, options);
  logitsOf(model, text, 60);
  std::vector<int64_t> budgets = model.budgets();
  CHECK(std::accumulate(budgets.begin(), budgets.end(), int64_t(0)) == 40);
  CHECK(budgets[0] != budgets[1]);
}
