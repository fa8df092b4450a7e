//===- RandomModel.cpp - a model that is quick ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/tiny_lm/RandomModel.h"
#include "examples/tiny_lm/Attention.h"

#include <cmath>
#include <random>

using namespace tinylm;

Weights test::makeWeights() {
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

std::vector<uint8_t> test::makeText(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> text(bytes);
  for (uint8_t &byte : text)
    byte = static_cast<uint8_t>(random() % 40);
  return text;
}

Vector test::referenceLogits(const Weights &weights,
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

double test::distance(const Vector &a, const Vector &b) {
  double worst = a.size() == b.size() ? 0 : HUGE_VAL;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
  return worst;
}
