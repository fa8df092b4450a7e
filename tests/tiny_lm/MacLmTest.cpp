//===- MacLmTest.cpp - a softmax model by Ladle ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/MacScore.h"
#include "tests/tiny_lm/RandomModel.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace tinylm;
using namespace tinylm::test;
using ladle::AttentionSettings;

TEST_CASE("prompts and steps without a match are exact attention") {
  Weights weights = makeWeights();
  MacLmOptions options;
  options.storage = "f32";
  options.slots = 2;
  options.longest = 80;
  options.window = 16;
  MacLm model(weights, options);
  std::vector<uint8_t> texts[] = {makeText(70, 1), makeText(70, 2)};
  std::vector<Vector> stepped(2);
  for (int32_t slot : {0, 1}) {
    Vector wanted = referenceLogits(weights, texts[slot]);
    CHECK(distance(model.prefill(slot, texts[slot]), wanted) < 1e-4);
    model.refill(slot, std::span(texts[slot]).first(50));
    CHECK(model.length(slot) == 50);
  }
  const int32_t slots[] = {0, 1};
  for (size_t at = 50; at < 70; ++at) {
    Vector logits =
        model.step(slots, std::vector<uint8_t>{texts[0][at], texts[1][at]});
    for (int32_t slot : slots) {
      auto row = rowOf(logits, slot, 40);
      stepped[slot].insert(stepped[slot].end(), row.begin(), row.end());
    }
  }
  for (int32_t slot : slots) {
    Vector wanted = referenceLogits(weights, texts[slot]);
    wanted.erase(wanted.begin(), wanted.begin() + 50 * 40);
    CHECK(distance(stepped[slot], wanted) < 1e-4);
  }
}

TEST_CASE("scores: no match costs nothing, matches at a price") {
  Weights weights = makeWeights();
  MacLmOptions options;
  options.storage = "f32";
  options.slots = 2;
  options.longest = 96;
  options.window = 24;
  MacLm model(weights, options);
  std::vector<uint8_t> texts[] = {makeText(96, 5), makeText(96, 6)};
  Scorer scorer(model, {{texts[0], texts[1]}, 30});
  for (size_t i = 0; i < 2; ++i) {
    Vector logits = referenceLogits(weights, texts[i]);
    double bits = 0;
    for (int64_t at = 47; at < 77; ++at) {
      auto row = rowOf(logits, at, 40);
      double sum = 0;
      for (float logit : row)
        sum += std::exp(static_cast<double>(logit));
      bits += (std::log(sum) - row[texts[i][at + 1]]) / std::log(2.0) / 30;
    }
    CHECK(std::abs(scorer.exact()[i] - bits) < 1e-4);
  }
  Score exact = scorer.score({AttentionSettings{.tau = 1, .window = 24}});
  CHECK(exact.hits == 0);
  Score reuse = scorer.score({AttentionSettings{.tau = 0, .window = 24},
                              AttentionSettings{.tau = 1, .window = 24}});
  CHECK(reuse.layerHits[0] > 0.5);
  CHECK(reuse.layerHits[1] == 0);
  CHECK(reuse.layerSkipped[0] > 0.2);
  Score again = scorer.score({AttentionSettings{.tau = 1, .window = 24}});
  for (size_t i = 0; i < 2; ++i) {
    CHECK(std::abs(exact.bits[i] - scorer.exact()[i]) < 1e-4);
    CHECK(std::abs(reuse.bits[i] - scorer.exact()[i]) > 1e-4);
    CHECK(again.bits[i] == exact.bits[i]);
  }
}
