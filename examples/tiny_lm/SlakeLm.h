//===- SlakeLm.h - a softmax model with bounded caches -------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_SLAKELM_H
#define LADLE_EXAMPLES_TINY_LM_SLAKELM_H

#include "examples/tiny_lm/Linear.h"
#include "ladle/attention.h"

namespace tinylm {

struct SlakeLmOptions {
  std::string attention = "examples/slake.ladle";
  std::map<std::string, double> options; ///< of the declaration
  int64_t budget = 1024;                 ///< tokens that a head keeps
  /// Gives layers budgets of their own, `budget` on average, after each prompt,
  /// from `least` to `room` tokens a head.
  bool sharesBudget = false;
  int64_t least = 0, room = 0;
  ladle::PreferenceExponents exponents;
  int threads = 1;
};

/// One sequence of a model whose layers are softmax attention alone. Throws
/// std::runtime_error, as everything here does.
class SlakeLm {
public:
  /// `weights` must outlive it.
  SlakeLm(const Weights &weights, const SlakeLmOptions &options);

  /// All of a prompt at once. Logits of what follows each token [tokens,
  /// vocabulary], or nothing if they are not wanted.
  Vector prefill(std::span<const uint8_t> tokens, bool wantsLogits = false);
  /// Logits of what follows the token.
  Vector step(uint8_t token);

  int64_t length() const { return pools.front().length(0); }
  /// Tokens that each layer may keep.
  std::vector<int64_t> budgets() const;
  /// Of all caches and memories, as they are allocated.
  int64_t cacheBytes() const;
  const Config &getConfig() const { return weights.config; }

private:
  using Tensors = std::map<std::string, ladle::TensorView, std::less<>>;
  Vector forward(std::span<const uint8_t> tokens, bool isPrompt,
                 bool wantsLogits);
  Vector attend(size_t layer, std::span<const float> normed, int64_t position,
                bool isPrompt);
  void shareBudget(size_t layer);

  const Weights &weights;
  SlakeLmOptions options;
  ladle::AttentionProgram program;
  std::vector<ladle::AttentionPool> pools;
  std::vector<ladle::AttentionDecoder> decoders;
  std::optional<ladle::LayerBudgets> shares;
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_SLAKELM_H
