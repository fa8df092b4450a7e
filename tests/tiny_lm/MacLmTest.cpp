//===- MacLmTest.cpp - a softmax model by Ladle ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Attention.h"
#include "examples/tiny_lm/MacScore.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace tinylm;
using ladle::AttentionSettings;

/// Two layers of random weights: no model of text, but one that is quick.
static Weights makeWeights() {
  std::mt19937 random(3);
  auto vector = [&](int64_t count, float scale) {
    std::normal_distribution<float> normal(0, scale);
    Vector values(static_cast<size_t>(count));
    for (float &value : values)
      value = normal(random);
    return values;
  };
  auto matrix = [&](int64_t out, int64_t in) {
    return Matrix{out, in,
                  vector(out * in, 1 / std::sqrt(static_cast<float>(in)))};
  };
  Weights weights;
  weights.config = {.vocabulary = 40,
                    .width = 32,
                    .hidden = 48,
                    .queryHeads = 4,
                    .keyValueHeads = 2,
                    .headSize = 16,
                    .ropeBase = 1000,
                    .epsilon = 1e-6F,
                    .isAttention = {true, true}};
  weights.embedding = matrix(40, 32);
  weights.norm = Vector(32, 1);
  for (int layer = 0; layer < 2; ++layer)
    weights.layers.push_back({Vector(32, 1), Vector(32, 1),
                              AttentionWeights{matrix(64, 32), matrix(32, 32),
                                               matrix(32, 32), matrix(32, 64)},
                              matrix(48, 32), matrix(48, 32), matrix(32, 48)});
  return weights;
}

static std::vector<uint8_t> makeText(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> text(bytes);
  for (uint8_t &byte : text)
    byte = static_cast<uint8_t>(random() % 40);
  return text;
}

/// Logits by the attention of tiny_lm, which is written without Ladle.
static Vector referenceLogits(const Weights &weights,
                              std::span<const uint8_t> text) {
  const Config &config = weights.config;
  auto longest = static_cast<int64_t>(text.size());
  Batch batch;
  batch.addRow(0);
  Vector x;
  for (size_t i = 0; i < text.size(); ++i) {
    batch.addToken(text[i], static_cast<int32_t>(i) - 1);
    auto row = rowOf(weights.embedding.values, text[i], config.width);
    x.insert(x.end(), row.begin(), row.end());
  }
  for (const LayerWeights &layer : weights.layers) {
    Attention attention(std::get<AttentionWeights>(layer.mixer), config, 1,
                        longest, Order::Fixed);
    add(x, attention.forward(batch, {0},
                             rmsNorm(x, layer.normBefore, config.epsilon)));
    add(x, feedForward(layer, rmsNorm(x, layer.normBetween, config.epsilon),
                       Order::Fixed));
  }
  return multiply(weights.embedding, rmsNorm(x, weights.norm, config.epsilon),
                  Order::Fixed);
}

static double distance(const Vector &a, const Vector &b) {
  double worst = a.size() == b.size() ? 0 : HUGE_VAL;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
  return worst;
}

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
