//===- DeviceBatch.cpp - a batch as Ladle takes it ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/DeviceBatch.h"
#include "examples/tiny_lm/Errors.h"

using namespace tinylm;
using namespace ladle;

DeviceNumbers::DeviceNumbers(DeviceId device, int64_t most)
    : memory(orThrow(DeviceTensor::allocate(device, DType::I32, {most}))) {}

std::span<const int32_t>
DeviceNumbers::hold(const std::vector<int32_t> &numbers) {
  auto count = static_cast<int64_t>(numbers.size());
  // A view is of memory that may be written; this one is only read.
  TensorView from = TensorView::dense(const_cast<int32_t *>(numbers.data()),
                                      DType::I32, {count});
  orThrow(copy(from, memory.view().slice(0, 0, count)));
  return {memory.as<int32_t>(), numbers.size()};
}

DeviceBatch::DeviceBatch(const Options &options)
    : window(options.window), slotNumbers(options.device, options.slots),
      startNumbers(options.device, options.slots + 1),
      parentNumbers(options.device, options.slots * options.rowTokens),
      countNumbers(options.device, options.slots),
      pathNumbers(options.device, options.slots * options.rowTokens) {}

void DeviceBatch::hold(const Batch &batch, const std::vector<int64_t> &lengths,
                       bool isPrompt) {
  std::vector<int32_t> allStarts{0}, allParents;
  before.clear();
  for (int64_t row = 0; row < batch.rows(); ++row) {
    auto repeats =
        window ? static_cast<int32_t>(lengths[batch.slots[row]] % window) : 0;
    before.push_back(repeats);
    for (int32_t i = 0; i < repeats; ++i)
      allParents.push_back(i - 1);
    for (int32_t i = batch.starts[row]; i < batch.starts[row + 1]; ++i)
      allParents.push_back(batch.parents[i] + repeats);
    allStarts.push_back(static_cast<int32_t>(allParents.size()));
  }
  total = allStarts.back();
  isOneEach = !window && total == batch.rows();
  areChains = isPrompt;
  slots = slotNumbers.hold(batch.slots);
  if (isStep())
    return;
  starts = startNumbers.hold(allStarts);
  if (!isPrompt)
    parents = parentNumbers.hold(allParents);
}

void DeviceBatch::commit(const Batch &batch, const Acceptance &accepted,
                         Cursors &cursors) {
  if (isPrompt())
    return orThrow(cursors.advance(slots, slots));
  if (isStep())
    return orThrow(cursors.advance(slots));
  if (!window)
    return orThrow(cursors.commit(slots, countNumbers.hold(accepted.counts),
                                  pathNumbers.hold(accepted.path)));
  std::vector<int32_t> counts, path, full;
  filled.clear();
  size_t next = 0;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    int32_t count = accepted.counts[row];
    filled.push_back(before[row] + count == window);
    if (filled.back()) {
      full.push_back(batch.slots[row]);
      for (int32_t i = 0; i < before[row]; ++i)
        path.push_back(i);
      for (int32_t i = 0; i < count; ++i)
        path.push_back(before[row] + accepted.path[next + i]);
    }
    counts.push_back(filled.back() ? static_cast<int32_t>(window) : 0);
    next += count;
  }
  orThrow(cursors.commit(slots, countNumbers.hold(counts),
                         path.empty() ? std::span<const int32_t>()
                                      : pathNumbers.hold(path)));
  if (!full.empty())
    orThrow(cursors.flush(full));
}
