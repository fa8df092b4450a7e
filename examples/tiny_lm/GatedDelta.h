//===- GatedDelta.h - linear attention by Ladle --------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_GATEDDELTA_H
#define LADLE_EXAMPLES_TINY_LM_GATEDDELTA_H

#include "examples/tiny_lm/DeviceBatch.h"
#include "examples/tiny_lm/Linear.h"
#include "ladle/decode.h"

namespace tinylm {

struct GatedDeltaOptions {
  int64_t slots = 0, rows = 0, tokens = 0; ///< the most of a batch
  int threads = 0;
  Order order = Order::Fastest;
};

/// Gated DeltaNet whose queries, keys and values also see the token before.
/// Ladle's program normalises, gates, decays, reads and writes; its state lies
/// in a pool, whose cursors the layers share.
class GatedDelta {
public:
  /// `weights` and `config` must outlive it.
  GatedDelta(const GatedDeltaWeights &weights, const Config &config,
             const ladle::Program &program, const ladle::Cursors &cursors,
             const GatedDeltaOptions &options);

  /// [tokens, width] of the normed input. The tokens wait for the commit of
  /// the cursors, or its `advance` after a step.
  Vector forward(const Batch &batch, const DeviceBatch &held, Vector input);
  /// What is not Ladle's: the last input of each slot, and tokens that are
  /// verified again.
  void commit(const Batch &batch, const DeviceBatch &held,
              const Acceptance &accepted);
  void reset(std::span<const int32_t> slots);

private:
  /// x + mu · (the input before x − x).
  Vector mix(const Batch &batch, const Vector &mu) const;
  void send(const std::string &name, Vector values, const Batch &batch,
            const DeviceBatch &held);
  Vector receive(const Batch &batch, const DeviceBatch &held);

  const GatedDeltaWeights &weights;
  const Config &config;
  Order order;
  ladle::Pool pool;
  ladle::Decoder decoder;
  /// Of the parameters, and of the tokens and outputs of the largest batch.
  std::map<std::string, ladle::DeviceTensor> memory;
  std::map<std::string, ladle::TensorView, std::less<>> arguments;
  Vector inputs; ///< of the last batch, [tokens, width]
  /// Of each token of the program: what the last batch had, and what each slot
  /// has accepted of its window.
  std::map<std::string, Vector> latest;
  std::map<std::string, std::vector<Vector>> windows;
  Vector lastInputs; ///< [slots, width]
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_GATEDDELTA_H
