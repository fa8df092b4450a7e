//===- AttentionBytes.h - what a step of attention moves --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_ATTENTIONBYTES_H
#define LADLE_TOOLS_LADLE_ATTENTIONBYTES_H

#include "ladle/attention.h"

#include <algorithm>

namespace ladle::tool {

/// The bytes that a step moves for one row, from shapes and types alone.
struct AttentionBytes {
  int64_t heads = 0, cacheHeads = 0;
  bool hasRing = false;
  double token = 0;     ///< of the cache, all its heads
  double candidate = 0; ///< a query of the ring, all heads
  double stored = 0;    ///< the summaries of a match, all heads
  double left = 0;      ///< what a token leaves
  double window = 0, band = 0, sinks = 0;
  double ringBytes = 0; ///< of a slot

  double miss(double tokens) const {
    return tokens * token + (hasRing ? scan(tokens) + left : 0);
  }
  /// Of all heads, whose match lies `gap` tokens back.
  double hit(double tokens, double gap) const {
    return std::min(tokens, gap + band + sinks) * token + scan(tokens) +
           stored + left;
  }
  double scan(double tokens) const {
    return std::min(tokens, window) * candidate;
  }
  /// Tokens that have to be skipped for a hit to move less than a miss without
  /// a ring: the left side of the break-even is p − r.
  double breakEven() const {
    return (window * candidate + stored + left) / token;
  }
  /// Of the token at `position`, whose heads have matched those tokens, −1 for
  /// none. Heads that share keys read from the first that one of them needs.
  /// Nothing is looked for at tau = 1.
  double answer(int64_t position, std::span<const int64_t> matches,
                const AttentionSettings &settings) const;
};

/// The tokens that are attended to anew before a match `gap` tokens back.
int64_t bandOf(const AttentionSettings &settings, int64_t gap);

/// At the settings of a program.
AttentionBytes bytesOf(const AttentionProgram &program);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_ATTENTIONBYTES_H
