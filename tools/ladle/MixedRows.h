//===- MixedRows.h - rows of which each does something else -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MIXEDROWS_H
#define LADLE_TOOLS_LADLE_MIXEDROWS_H

#include "tools/ladle/DraftTimer.h"

#include <string>
#include <vector>

namespace ladle::tool {

/// What a row of a mixed batch finds, and what it is asked for.
struct MixedRow {
  size_t part = 0;    ///< of the batch, by number
  int64_t drafts = 0; ///< that it verifies; 0: it is padding
  int64_t fill = 0;   ///< entries that it finds
  bool hasState = true;
  bool folds = false; ///< before its drafts

  bool isPadding() const { return drafts == 0; }
};

/// The rows of a batch, and what the parts are called that they belong to.
struct MixedRows {
  std::vector<std::string> parts;
  std::vector<MixedRow> rows;

  /// Neighbours are of different parts. Without pages there are no rows without
  /// a state.
  static MixedRows of(const DraftSpec &spec);
  std::vector<size_t> rowsOf(size_t part) const;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MIXEDROWS_H
