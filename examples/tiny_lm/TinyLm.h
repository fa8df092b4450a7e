//===- TinyLm.h - the model ----------------------------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_TINYLM_H
#define LADLE_EXAMPLES_TINY_LM_TINYLM_H

#include "examples/tiny_lm/Attention.h"
#include "examples/tiny_lm/GatedDelta.h"

namespace tinylm {

struct ModelOptions {
  /// The recurrence of the Gated DeltaNet layers.
  std::string recurrence = "examples/gated_delta_net.ladle";
  std::string device = "cpu"; ///< "cpu", "cuda", "auto"
  std::string route = "auto";
  /// The most tokens of a row in one pass. 1: a pass is a step.
  int64_t drafts = mostDrafts;
  int64_t slots = 4;
  int64_t longest = 4096; ///< tokens of a sequence, with its drafts
  int threads = 1;        ///< 0: one a processor, which all layers share
  /// The same bits, however a sequence is cut into passes.
  bool isDeterministic = false;

  static constexpr int64_t mostDrafts = 16; ///< that Ladle takes
  static constexpr int64_t promptTokens = 256;
};

/// The layers, and what they keep of each slot's sequence. A pass answers the
/// tokens of a batch, then `commit` says which of them are history.
class TinyLm {
public:
  /// Throws std::runtime_error, as everything here does. `weights` must outlive
  /// it.
  TinyLm(const Weights &weights, const ModelOptions &options);

  /// Logits [tokens, vocabulary]: of what follows each token.
  Vector forward(const Batch &batch);
  /// Prompts, or the next part of them, a chain a row: all of it is history
  /// then. `promptTokens` are the most of all rows.
  void prefill(const Batch &batch);
  /// Whether prompts go through the model so. A sequence that is to be the same
  /// however it is cut is not: chunks are summed in another order.
  bool takesPrompts() const { return !options.isDeterministic; }
  /// Of the last batch. A step, a batch of one token a row, is accepted whole.
  void commit(const Batch &batch, const Acceptance &accepted);
  /// The most tokens that the next pass takes of a slot.
  int64_t room(int32_t slot) const;
  /// Slots that a new sequence begins in.
  void reset(std::span<const int32_t> slots);

  const ladle::Program &getProgram() const { return program; }
  const Config &getConfig() const { return weights.config; }
  const ModelOptions &getOptions() const { return options; }

private:
  /// What the layers make of a batch, [tokens, width].
  Vector runLayers(const Batch &batch);

  const Weights &weights;
  ModelOptions options;
  Order order;
  ladle::Program program;
  ladle::Cursors cursors;
  DeviceBatch held;
  std::vector<std::variant<GatedDelta, Attention>> mixers;
  std::vector<int64_t> lengths; ///< [slots], committed
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_TINYLM_H
