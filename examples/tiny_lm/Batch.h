//===- Batch.h - the tokens of one pass through the model ----- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_BATCH_H
#define LADLE_EXAMPLES_TINY_LM_BATCH_H

#include <cstdint>
#include <vector>

namespace tinylm {

/// Tokens of several sequences, side by side: those of row r, which belong to
/// the sequence in slots[r], are starts[r] to starts[r + 1] − 1. They form a
/// tree: a token follows its parent, or what the sequence has committed.
struct Batch {
  std::vector<int32_t> slots;     ///< [rows]
  std::vector<int32_t> starts{0}; ///< [rows + 1]
  std::vector<int32_t> parents; ///< [tokens]: a token of the row before it, −1
  std::vector<uint8_t> tokens;  ///< [tokens]

  int64_t rows() const { return static_cast<int64_t>(slots.size()); }
  int64_t count() const { return static_cast<int64_t>(tokens.size()); }
  /// A row with no token yet.
  void addRow(int32_t slot) {
    slots.push_back(slot);
    starts.push_back(starts.back());
  }
  /// A token of the last row; returns its number in the row.
  int32_t addToken(uint8_t token, int32_t parent) {
    tokens.push_back(token);
    parents.push_back(parent);
    return starts.back()++ - starts[starts.size() - 2];
  }
};

/// What becomes of a batch: of each row, so many tokens, which are a path of
/// its tree, are committed. `path` holds them one row after another.
struct Acceptance {
  std::vector<int32_t> counts; ///< [rows]
  std::vector<int32_t> path;   ///< [sum of counts], tokens of their rows
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_BATCH_H
