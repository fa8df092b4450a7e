//===- MacLm.h - a softmax model by Ladle --------------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_MACLM_H
#define LADLE_EXAMPLES_TINY_LM_MACLM_H

#include "examples/tiny_lm/Linear.h"
#include "ladle/attention.h"

#include <functional>

namespace tinylm {

struct MacLmOptions {
  std::string attention = "examples/mac.ladle";
  std::string storage = "bf16"; ///< of queries, keys and values
  int64_t slots = 1;
  int64_t longest = 4096; ///< tokens of a slot
  int64_t window = 1024;  ///< queries that a ring holds
  int threads = 1;        ///< 0: one a processor
};

/// A model whose layers are softmax attention alone. Prompts are answered
/// exactly; steps match, and reuse what they have matched.
class MacLm {
public:
  /// Throws std::runtime_error, as everything here does. `weights` must outlive
  /// it.
  MacLm(const Weights &weights, const MacLmOptions &options);

  /// From now on: of each layer, or one for all. The rings of slots that hold
  /// tokens are filled again by `refill`.
  void use(const std::vector<ladle::AttentionSettings> &settings,
           bool diagnoses = false);

  /// What comes after what a slot holds. Logits of what follows each token
  /// [tokens, vocabulary], or nothing if they are not wanted.
  Vector prefill(int32_t slot, std::span<const uint8_t> tokens,
                 bool wantsLogits = true);
  /// A token of each slot; logits [slots, vocabulary].
  Vector step(std::span<const int32_t> slots, std::span<const uint8_t> tokens);
  /// Leaves the first `tokens.size()` tokens of a slot, and rings as a prompt
  /// of them would. They are those that the slot holds.
  void refill(int32_t slot, std::span<const uint8_t> tokens);

  int64_t length(int32_t slot) const { return pools.front().length(slot); }
  const Config &getConfig() const { return weights.config; }
  /// Of the steps since `use`, if it asked for them.
  std::vector<ladle::AttentionHeadDiagnostics> diagnostics(size_t layer) const {
    return decoders[layer].diagnostics();
  }

  /// What a layer is given, [tokens, heads, headSize]; of prompts and steps.
  struct Seen {
    const Vector &before, &query, &key, &value;
  };
  std::function<void(size_t layer, const Seen &)> observe;

private:
  using Tensors = std::map<std::string, ladle::TensorView, std::less<>>;
  /// Answers the tokens of a layer.
  using Attend =
      std::function<ladle::Status(ladle::AttentionDecoder &, Tensors &&)>;
  Vector forward(std::span<const uint8_t> tokens,
                 std::span<const int64_t> positions, const Attend &attend,
                 bool wantsLogits);
  Vector attendLayer(size_t layer, std::span<const float> normed,
                     std::span<const int64_t> positions, const Attend &attend);
  ladle::TensorView store(std::vector<std::byte> &memory, Vector &values,
                          int64_t heads) const;

  const Weights &weights;
  MacLmOptions options;
  ladle::DType storage;
  ladle::AttentionProgram program;
  std::vector<ladle::AttentionPool> pools;
  std::vector<ladle::AttentionDecoder> decoders;
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_MACLM_H
