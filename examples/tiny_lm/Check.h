//===- Check.h - what an answer is compared with -------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_CHECK_H
#define LADLE_EXAMPLES_TINY_LM_CHECK_H

#include "examples/tiny_lm/Engine.h"

#include <optional>

namespace tinylm {

/// The first byte at which two answers differ.
struct Divergence {
  size_t request = 0, byte = 0;
  /// Of the plain answer: how far its best logit is above the second.
  float margin = 0;
  /// Both logits may be rounding.
  bool isNearTie = false;
};

struct Comparison {
  std::vector<Divergence> divergences; ///< one a request at most
  int64_t equalBytes = 0;
  float closest = 0; ///< margin of all plain bytes that were compared
  bool isGood() const;
};

/// Compares each answer up to the first byte that differs. There, a margin of
/// `tolerance` at most is a near tie; 0: every difference counts.
Comparison compare(const std::vector<Answer> &plain,
                   const std::vector<Answer> &speculative, float tolerance);

/// −log2 of what logits [vocabulary] give to `next`.
double bitsOf(std::span<const float> logits, uint8_t next);

/// Bits per byte of a text, which begins with a separator: −log2 of what the
/// model gives to each byte after the first, on average. Slot 0 is used.
double bitsPerByte(TinyLm &model, std::span<const uint8_t> text);

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_CHECK_H
