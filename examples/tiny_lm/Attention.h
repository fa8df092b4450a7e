//===- Attention.h - softmax attention with a cache ----------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_ATTENTION_H
#define LADLE_EXAMPLES_TINY_LM_ATTENTION_H

#include "examples/tiny_lm/Batch.h"
#include "examples/tiny_lm/Linear.h"

namespace tinylm {

/// Rotary positions of the heads of a token: pairs (i, i + headSize / 2) turn
/// by position · base^(−2i / headSize).
void rotate(const Config &config, std::span<float> heads, int64_t position);

/// Causal attention with rotary positions. Its cache holds the committed keys
/// and values of each slot; behind them lies the path of the token that is
/// answered, so that the tokens of a tree read what they would read in a chain.
class Attention {
public:
  /// `weights` must outlive it.
  Attention(const AttentionWeights &weights, const Config &config,
            int64_t slots, int64_t longest, Order order);

  /// [tokens, width] of the normed input; `lengths` counts what each slot has
  /// committed.
  Vector forward(const Batch &batch, const std::vector<int64_t> &lengths,
                 std::span<const float> input);
  /// Before `lengths` move on.
  void commit(const Batch &batch, const Acceptance &accepted,
              const std::vector<int64_t> &lengths);

private:
  void store(int32_t slot, int64_t position, int64_t token);
  void answer(int32_t slot, int64_t length, std::span<const float> query,
              std::span<float> result);
  float *cacheRow(Vector &cache, int32_t slot, int64_t head, int64_t position) {
    return cache.data() +
           ((slot * config.keyValueHeads + head) * longest + position) *
               config.headSize;
  }

  const AttentionWeights &weights;
  const Config &config;
  int64_t longest;
  Order order;
  Vector keyCache, valueCache; ///< [slots, heads, longest, headSize]
  Vector keys, values;         ///< of the last batch, [tokens, heads, headSize]
  Vector scores;
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_ATTENTION_H
