//===- DeviceBatch.h - a batch as Ladle takes it -------------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_DEVICEBATCH_H
#define LADLE_EXAMPLES_TINY_LM_DEVICEBATCH_H

#include "examples/tiny_lm/Batch.h"
#include "ladle/cursors.h"
#include "ladle/device.h"

namespace tinylm {

/// Numbers that the calls of Ladle take, in the memory of a device.
class DeviceNumbers {
public:
  DeviceNumbers(ladle::DeviceId device, int64_t most);
  /// A copy of `numbers`, which are `most` of them at most.
  std::span<const int32_t> hold(const std::vector<int32_t> &numbers);

private:
  ladle::DeviceTensor memory;
};

/// What a batch is to Ladle, for all layers of the model.
///
/// With a window, tokens are only committed `window` at a time, and folded at
/// once. Until then those that are accepted are verified again, in front of the
/// tokens of the batch. What a draft is answered depends on the state and on
/// the path to it, to the bit; so it depends on the text alone, and not on the
/// batches that the text came in.
class DeviceBatch {
public:
  struct Options {
    ladle::DeviceId device;
    int64_t slots = 0, rowTokens = 0; ///< the most of a row
    int64_t window = 0;               ///< 0: none
  };
  explicit DeviceBatch(const Options &options);

  /// `lengths` counts what each slot has accepted. A prompt's rows are chains
  /// of any length, of which all is accepted.
  void hold(const Batch &batch, const std::vector<int64_t> &lengths,
            bool isPrompt = false);
  /// Lets the cursors know what all layers have decoded, verified or prefilled.
  void commit(const Batch &batch, const Acceptance &accepted,
              ladle::Cursors &cursors);

  /// Each row has one token, which is no draft.
  bool isStep() const { return isOneEach && !areChains; }
  bool isPrompt() const { return areChains; }
  /// Tokens of row `row` that are verified again.
  int32_t repeated(int64_t row) const { return before[row]; }
  bool hasWindow() const { return window != 0; }
  /// Whether the row's window was filled by the last commit.
  bool isFilled(int64_t row) const { return window && filled[row]; }
  int64_t count() const { return total; }
  std::span<const int32_t> slots, starts, parents;

private:
  int64_t window;
  bool isOneEach = false, areChains = false;
  int64_t total = 0;
  std::vector<int32_t> before; ///< [rows]
  std::vector<bool> filled;    ///< [rows]
  DeviceNumbers slotNumbers, startNumbers, parentNumbers, countNumbers,
      pathNumbers;
};

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_DEVICEBATCH_H
