//===- DeviceAttention.h - attention in the memory of a GPU -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEATTENTION_H
#define LADLE_RUNTIME_CUDA_DEVICEATTENTION_H

#include "runtime/AttentionPool.h"
#include "runtime/cuda/Driver.h"

#include <map>

namespace ladle {

/// A kernel, and the names of its arguments (passes/gpu/AttentionInfo.h).
struct GpuAttentionKernel {
  cuda::Kernel kernel;
  std::vector<std::string> arguments;
};

/// The kernels of a form. The first puts tokens into their pages, and looks for
/// matches where there are any.
struct GpuAttentionForm {
  GpuAttentionKernel first, plan, attend, finish;
  bool finds = false;
};

struct GpuAttentionCode {
  explicit GpuAttentionCode(cuda::Device device) : device(std::move(device)) {}

  cuda::Device device;
  GpuAttentionForm decode, prefill;
  /// Heads of the query that attend together, how often a row has so many, and
  /// the pieces of each at the most.
  int64_t share = 1, tasksOfRow = 1, piecesOfTask = 1;
  int64_t section = 1; ///< entries of a ring that a block looks at
  /// Of a bounded cache (passes/gpu/BoundedInfo.h), whose forms have the last
  /// two kernels alone: numbers of a row with one for each entry.
  int64_t stride = 0;
};

/// Places in the cursor of a head of a bounded cache (BoundedNumber of
/// passes/gpu/BoundedInfo.h).
struct BoundedCursor {
  static constexpr size_t length = 0, count = 1, victim = 3, folds = 6;
};

/// The memory of a pool. A slot has 8 numbers: length, entries, amended, band,
/// sinks and wide band of its cursor.
struct DeviceAttentionPool {
  using Cursor = AttentionPoolImpl::Cursor;
  static constexpr int64_t cursorNumbers = 8;

  /// For the sizes of `pool`.
  static Result<std::unique_ptr<DeviceAttentionPool>>
  create(const AttentionPoolImpl &pool);

  /// Waits for the device. Pages of a cursor are the host's.
  Result<Cursor> read(int32_t slot, const Cursor &host) const;
  /// With the pages of the slot; waits for the device, too.
  Status write(int32_t slot, const Cursor &cursor, const int32_t *pages);
  Status writeHeads(int32_t slot, const Cursor &cursor);
  /// Of a cache that evicts, in their order; empty if the device has failed.
  std::vector<int64_t> keptPositions(int32_t slot, int64_t head) const;
  /// What an earlier step could not do.
  Status takeFault();

  std::shared_ptr<const GpuAttentionCode> code;
  int64_t pagesOfSlot = 0, sparePage = 0;
  /// Each head of a bounded cache has a cursor (passes/gpu/BoundedInfo.h).
  bool isBounded = false;
  /// Of a segmented cache: tokens that are folded, and those that never are.
  int64_t segment = 0, behindSegments = 0;
  int64_t headsOfSlot = 1;
  cuda::Memory cursors;
  cuda::Memory table; ///< [slots, pagesOfSlot + 1]; unused ones: the spare page
  cuda::Memory keys, values; ///< with the spare page behind the others
  /// As AttentionPoolImpl::rings, ends of 32 bits, or as ::bounded.
  std::map<std::string, cuda::Memory> rings;
  cuda::HostWord fault;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEATTENTION_H
