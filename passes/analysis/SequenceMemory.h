//===- SequenceMemory.h - what a sequence keeps -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// This header knows nothing of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_SEQUENCEMEMORY_H
#define LADLE_PASSES_ANALYSIS_SEQUENCEMEMORY_H

#include <cstdint>

namespace ladle {

/// Bytes that a sequence keeps in speculation: the state and a ring of entries,
/// into which drafts go as well, and the carries of each draft and of what is
/// committed. Against them what engines keep that write a state for each draft.
struct SequenceMemory {
  double state = 0, entries = 0, carries = 0; ///< of a layer
  double cursors = 0;                         ///< that all layers share
  double stateADraft = 0; ///< T + 1 states and their carries, of a layer

  double bytes(int64_t layers = 1) const {
    return static_cast<double>(layers) * (state + entries + carries) + cursors;
  }
  double bytesOfStates(int64_t layers = 1) const {
    return static_cast<double>(layers) * stateADraft;
  }
  /// How many times as many sequences there is room for.
  double gain(int64_t layers = 1) const {
    return bytesOfStates(layers) / bytes(layers);
  }
  /// Sequences of so many bytes that `memory` holds.
  static int64_t countIn(double memory, double bytes) {
    return static_cast<int64_t>(memory / bytes);
  }
};

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_SEQUENCEMEMORY_H
