//===- MacFigures.h - what reuse saves and costs ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MACFIGURES_H
#define LADLE_TOOLS_LADLE_MACFIGURES_H

#include "tools/ladle/AttentionBytes.h"
#include "tools/ladle/MacReplay.h"

namespace ladle::tool {

/// Mean errors of the hits whose gap, or depth of chain, is in a range.
struct MacRange {
  int64_t from = 0, to = 0;
  double count = 0;              ///< hits of the closed loop
  double single = 0, closed = 0; ///< mean ‖o − exact‖ / ‖exact‖
};

/// One choice of numbers over what follows the prompt. Shares are of all heads
/// of tokens, errors their means, where a miss has none.
struct MacFigure {
  double tau = 0;
  int64_t window = 0, band = 0, maxChain = 0;
  double hits = 0;       ///< share that matched
  double skipped = 0;    ///< share of the cache that stood in what was reused
  double cache = 0;      ///< bytes of the cache that were read, of all
  double bytes = 0;      ///< all bytes of a step, of those of exact attention
  double single = 0;     ///< error if what is reused was exact
  double singleHits = 0; ///< with E‖q‖² of the whole trace
  double closed = 0;     ///< error of the closed loop
  bool isKnee = false;   ///< of its curve over tau
  std::vector<MacRange> gaps;   ///< tokens between a match and its query
  std::vector<MacRange> chains; ///< summaries that were made one from another
  std::vector<AttentionHeadDiagnostics> heads; ///< where they are asked for
};

/// `single` is a run at tau = 0 with the same window and band: how near each
/// match is decides what would have been taken at the tau of `settings`.
MacFigure figureOf(const MacTrace &trace, const MacReplay &replay,
                   const AttentionBytes &bytes,
                   const AttentionSettings &settings, const MacRun &single,
                   const MacRun &closed);

/// Bytes of all steps of a run, and of exact attention.
struct MacBytes {
  double bytes = 0, cache = 0, exact = 0;
};
MacBytes bytesOfRun(const MacReplay &replay, const AttentionBytes &bytes,
                    const AttentionSettings &settings, const MacRun &run);

/// Of several traces with the same choices in the same order.
std::vector<MacFigure>
meanOf(const std::vector<std::vector<MacFigure>> &figures);

/// Marks the tau of each window and band that is farthest below the line
/// between the ends of its curve of the error over the cache that is read, both
/// from 0 to 1. Less than three points, or no curve: none.
void markKnees(std::vector<MacFigure> &figures);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MACFIGURES_H
