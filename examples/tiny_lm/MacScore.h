//===- MacScore.h - what reuse costs a model ------------------ -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_MACSCORE_H
#define LADLE_EXAMPLES_TINY_LM_MACSCORE_H

#include "examples/tiny_lm/MacLm.h"

namespace tinylm {

/// A mean over streams, with its standard error.
struct Estimate {
  double mean = 0, error = 0;
};
Estimate estimate(const std::vector<double> &values);

/// What is scored: bits per byte of bytes [context / 2, context / 2 +
/// positions) of each stream, after the first half as a prompt.
struct ScoreRequest {
  std::vector<std::span<const uint8_t>> streams; ///< of `context` bytes
  int64_t positions = 0;                         ///< context / 2 at most
};

/// A choice of settings, and what it does in a closed loop: all layers step
/// token by token, and what one reuses goes into the next.
struct Score {
  std::vector<double> bits;     ///< of each stream
  double hits = 0, skipped = 0; ///< shares, of all layers
  /// Of each layer.
  std::vector<double> layerHits, layerSkipped;
};

/// Scores one choice after another; prompts are answered once.
class Scorer {
public:
  /// Prefills the streams, slot i with stream i, and scores exact attention.
  Scorer(MacLm &model, ScoreRequest request);
  const std::vector<double> &exact() const { return exactBits; }
  Score score(const std::vector<ladle::AttentionSettings> &settings);

private:
  size_t half() const { return request.streams.front().size() / 2; }
  MacLm &model;
  ScoreRequest request;
  std::vector<double> exactBits;
};

/// The largest difference of logits from those of a file, which has `tokens` u8
/// [streams, length], `positions` i32 and `logits` f32 [streams, positions,
/// vocabulary]; and the largest of them.
std::pair<double, double> compareLogits(MacLm &model, const std::string &path);

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_MACSCORE_H
