//===- Attention.cpp - softmax attention with a cache ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Attention.h"

#include <algorithm>
#include <cblas.h>
#include <cmath>

using namespace tinylm;

Attention::Attention(const AttentionWeights &weights, const Config &config,
                     int64_t slots, int64_t longest, Order order)
    : weights(weights), config(config), longest(longest), order(order) {
  auto size = static_cast<size_t>(slots * config.keyValueHeads * longest *
                                  config.headSize);
  keyCache.resize(size);
  valueCache.resize(size);
  scores.resize(static_cast<size_t>(longest));
}

void tinylm::rotate(const Config &config, std::span<float> heads,
                    int64_t position) {
  int64_t half = config.headSize / 2;
  for (int64_t i = 0; i < half; ++i) {
    double angle = static_cast<double>(position) *
                   std::pow(config.ropeBase, -static_cast<double>(i) /
                                                 static_cast<double>(half));
    auto cosine = static_cast<float>(std::cos(angle));
    auto sine = static_cast<float>(std::sin(angle));
    for (size_t head = 0; head < heads.size(); head += config.headSize) {
      float first = heads[head + i], second = heads[head + i + half];
      heads[head + i] = first * cosine - second * sine;
      heads[head + i + half] = second * cosine + first * sine;
    }
  }
}

/// Puts the keys and values of a token of the batch into the cache.
void Attention::store(int32_t slot, int64_t position, int64_t token) {
  int64_t size = config.headSize;
  for (int64_t head = 0; head < config.keyValueHeads; ++head) {
    int64_t from = (token * config.keyValueHeads + head) * size;
    std::copy_n(keys.data() + from, size,
                cacheRow(keyCache, slot, head, position));
    std::copy_n(values.data() + from, size,
                cacheRow(valueCache, slot, head, position));
  }
}

/// Attends to the first `length` rows of the cache.
void Attention::answer(int32_t slot, int64_t length,
                       std::span<const float> query, std::span<float> result) {
  int64_t size = config.headSize,
          group = config.queryHeads / config.keyValueHeads;
  auto rows = static_cast<blasint>(length),
       columns = static_cast<blasint>(size);
  float scale = 1 / std::sqrt(static_cast<float>(size));
  for (int64_t head = 0; head < config.queryHeads; ++head) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, rows, columns, scale,
                cacheRow(keyCache, slot, head / group, 0), columns,
                query.data() + head * size, 1, 0.0f, scores.data(), 1);
    auto end = scores.begin() + length;
    float highest = *std::max_element(scores.begin(), end), sum = 0;
    for (auto score = scores.begin(); score != end; ++score)
      sum += *score = std::exp(*score - highest);
    cblas_sgemv(CblasRowMajor, CblasTrans, rows, columns, 1 / sum,
                cacheRow(valueCache, slot, head / group, 0), columns,
                scores.data(), 1, 0.0f, result.data() + head * size, 1);
  }
}

Vector Attention::forward(const Batch &batch,
                          const std::vector<int64_t> &lengths,
                          std::span<const float> input) {
  Vector queries = multiply(weights.query, input, order);
  keys = multiply(weights.key, input, order);
  values = multiply(weights.value, input, order);
  int64_t queryWidth = weights.query.out, keyWidth = weights.key.out;
  Vector answers(queries.size());
  std::vector<int64_t> depths, cached;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    int32_t slot = batch.slots[row], first = batch.starts[row];
    int64_t committed = lengths[slot];
    depths.clear();
    cached.clear(); // which token of the row lies at each depth
    for (int32_t token = first; token < batch.starts[row + 1]; ++token) {
      int32_t parent = batch.parents[token];
      int64_t depth = parent < 0 ? 0 : depths[parent] + 1;
      depths.push_back(depth);
      rotate(config, rowOf(queries, token, queryWidth), committed + depth);
      rotate(config, rowOf(keys, token, keyWidth), committed + depth);
      cached.resize(static_cast<size_t>(depth + 1), -1);
      int32_t each = token - first;
      for (int64_t at = depth; at >= 0 && cached[at] != each; --at) {
        cached[at] = each;
        store(slot, committed + at, first + each);
        each = batch.parents[first + each];
      }
      answer(slot, committed + depth + 1, rowOf(queries, token, queryWidth),
             rowOf(answers, token, queryWidth));
    }
  }
  return multiply(weights.output, answers, order);
}

void Attention::commit(const Batch &batch, const Acceptance &accepted,
                       const std::vector<int64_t> &lengths) {
  size_t next = 0;
  for (int64_t row = 0; row < batch.rows(); ++row)
    for (int32_t depth = 0; depth < accepted.counts[row]; ++depth)
      store(batch.slots[row], lengths[batch.slots[row]] + depth,
            batch.starts[row] + accepted.path[next++]);
}
