//===- MixedTimer.h - mixed batches, replayed -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MIXEDTIMER_H
#define LADLE_TOOLS_LADLE_MIXEDTIMER_H

#include "tools/ladle/MixedRows.h"

namespace ladle::tool {

/// Of layers that take turns, in which each row stands elsewhere. Nothing is
/// committed between replays, so that all of them find the same.
class MixedTimer {
public:
  struct Options {
    double batchBytes = 0; ///< that a call of all rows cannot do without
    bool startsEarly = false;
    double restSeconds = 0; ///< before each that is timed
  };
  static Result<std::unique_ptr<MixedTimer>> create(const DraftSpec &spec,
                                                    MixedRows rows,
                                                    const measure::Gpu &gpu,
                                                    const Options &options);
  ~MixedTimer();

  int64_t layerCount() const { return layers->count(); }
  /// Samples of a call of these rows alone, in seconds; it takes `leastSeconds`
  /// at least.
  Result<std::vector<double>> time(const std::vector<size_t> &rows,
                                   double leastSeconds, int64_t samples);
  /// Nodes of a call of all rows in a graph.
  Result<int64_t> countNodes();
  /// Rejects what was verified; Internal if other rows have folded than were
  /// to.
  Status checkFolds();

private:
  /// Numbers in memory of the device.
  struct Call {
    DeviceTensor slots, starts, numAccepted;
    int64_t rows, drafts;
  };
  MixedTimer(DraftSpec spec, MixedRows rows, const measure::Gpu &gpu);
  Status prepare(const Options &options);
  /// So many drafts of each row, all accepted or none; a row without is left
  /// out unless it is padding.
  Result<Call> makeCall(const std::vector<size_t> &rows,
                        const std::vector<int64_t> &drafts, bool accepts) const;
  static VerifyArguments argumentsOf(const Call &call);
  Status commit(const Call &call);
  /// Appends so many entries to each row.
  Status append(std::vector<int64_t> entries);
  Status fillRows();
  Status reserve(const std::vector<int64_t> &entries);
  std::vector<int64_t> draftsOfRows() const;
  std::vector<size_t> allRows() const;

  DraftSpec spec;
  MixedRows rows;
  const measure::Gpu &gpu;
  std::optional<DraftLayers> layers;
  std::vector<int64_t> epochs; ///< of each slot, before anything was timed
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MIXEDTIMER_H
