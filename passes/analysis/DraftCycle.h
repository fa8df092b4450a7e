//===- DraftCycle.h - steps of drafts from one fold to the next -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_DRAFTCYCLE_H
#define LADLE_PASSES_ANALYSIS_DRAFTCYCLE_H

#include <cstdint>
#include <functional>
#include <vector>

namespace ladle {

/// A step of a row that verifies drafts: the entries that it finds, and whether
/// it folds them.
struct DraftStep {
  int64_t fill = 0;
  bool folds = false;
  DraftStep(int64_t fill, int64_t drafts, int64_t threshold)
      : fill(fill), folds(fill > 0 && fill + drafts > threshold) {}
};
/// The steps from one fold to the next, if each accepts `accepted` of its
/// `drafts`. One without entries if none is ever accepted.
std::vector<DraftStep> draftCycle(int64_t drafts, int64_t accepted,
                                  int64_t threshold);
/// The mean over a cycle. If `accepted` is no whole number, it is that of rows
/// of which some accept one more than others.
double meanOfCycle(int64_t drafts, double accepted, int64_t threshold,
                   const std::function<double(const DraftStep &)> &of);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_DRAFTCYCLE_H
