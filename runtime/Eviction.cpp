//===- Eviction.cpp - which tokens of a prompt are kept -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Eviction.h"

#include <algorithm>
#include <cmath>

using namespace ladle;

std::vector<double> ladle::saliences(const EvictionNumbers &numbers,
                                     const Candidates &candidates) {
  size_t count = candidates.count();
  std::vector<double> raw(count, 0), squares(count, 0);
  for (size_t at = 0; at < candidates.weights.size(); ++at) {
    double weight = candidates.weights[at];
    raw[at % count] += weight;
    squares[at % count] += weight * weight;
  }
  for (size_t i = 0; i < count && numbers.queries > 0; ++i) {
    auto seen = static_cast<double>(std::max<int64_t>(1, candidates.seen[i]));
    double mean = raw[i] / seen;
    raw[i] = mean +
             numbers.variance * std::max(0.0, squares[i] / seen - mean * mean);
  }
  std::vector<double> pooled;
  size_t half = static_cast<size_t>(numbers.pool) / 2;
  for (size_t i = 0; i < count; ++i) {
    size_t begin = i - std::min(i, half), end = std::min(count, i + half + 1);
    double sum = 0;
    for (size_t j = begin; j < end; ++j)
      sum += raw[j];
    pooled.push_back(sum / static_cast<double>(end - begin));
    if (std::isnan(pooled.back()))
      pooled.back() = INFINITY;
  }
  return pooled;
}

std::vector<int32_t> ladle::chooseKept(const EvictionNumbers &numbers,
                                       const Candidates &candidates,
                                       std::span<const double> salience,
                                       int64_t length, int64_t budget) {
  std::vector<int32_t> kept, others;
  for (size_t i = 0; i < candidates.count(); ++i) {
    int64_t position = candidates.positions[i];
    bool stays =
        position < numbers.sinks || position >= length - numbers.recent;
    (stays ? kept : others).push_back(static_cast<int32_t>(i));
  }
  size_t room =
      std::max<int64_t>(0, budget - static_cast<int64_t>(kept.size()));
  if (room < others.size()) {
    std::nth_element(others.begin(), others.begin() + room, others.end(),
                     [&](int32_t a, int32_t b) {
                       return salience[a] != salience[b]
                                  ? salience[a] > salience[b]
                                  : a > b;
                     });
    others.resize(room);
  }
  kept.insert(kept.end(), others.begin(), others.end());
  std::sort(kept.begin(), kept.end());
  return kept;
}

LayerPreference ladle::preferenceOf(const PreferenceInputs &inputs) {
  std::span<const float> scores = inputs.scores.first(inputs.tokens);
  double most = -INFINITY, mean = 0;
  size_t evicted = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    most = std::max<double>(most, scores[i]);
    if (!inputs.isKept[i]) {
      mean += scores[i];
      ++evicted;
    }
  }
  if (evicted)
    mean /= static_cast<double>(evicted);
  std::vector<double> exact, approximate;
  double exactSum = 0, sum = 0, norms = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    exact.push_back(std::exp(scores[i] - most));
    // e^μ (1 + s − μ): what L, Σ v and n say about this token alone.
    double series = inputs.remembers
                        ? std::exp(mean - most) *
                              (inputs.isFirstOrder ? 1 + scores[i] - mean : 1)
                        : 0;
    approximate.push_back(inputs.isKept[i] ? exact.back() : series);
    exactSum += exact.back();
    sum += approximate.back();
    norms += inputs.valueNorms[i];
  }
  double distance = 0, valueAware = 0, positive = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    exact[i] /= exactSum;
    // Of a query that sees nothing of what is kept nothing is left.
    if (sum > 0)
      approximate[i] /= sum;
    double change = std::fabs(approximate[i] - exact[i]);
    distance += change / 2;
    if (norms > 0)
      valueAware += inputs.valueNorms[i] / norms * change;
    if (!inputs.entropyOfExact)
      exact[i] = std::max(approximate[i], 0.0);
    positive += exact[i];
  }
  LayerPreference result;
  if (distance > negligibleDistance)
    result.disturbance = distance * std::pow(valueAware, inputs.valueExponent);
  for (double weight : exact)
    if (weight > 0)
      result.entropy -= weight / positive * std::log(weight / positive);
  return result;
}
