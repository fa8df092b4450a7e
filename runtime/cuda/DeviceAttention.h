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
/// matches where there are any. Prompts are answered by tiles, without a plan.
struct GpuAttentionForm {
  GpuAttentionKernel first, plan, attend, finish;
  /// With matches, of few rows: in place of `plan` and `attend`.
  GpuAttentionKernel few;
  /// Of so few that clusters of blocks share a head, in place of `finish`.
  GpuAttentionKernel finishSlices;
  /// Of prompts of a cache that evicts (passes/gpu/BoundedPrompts.h), which may
  /// have nothing to score or to fold.
  GpuAttentionKernel score, select, fold;
  /// Of the same: lower budgets, and what a cut would cost.
  GpuAttentionKernel lower, pack, mark, prefer;
  /// Of runtime/jit/Budgets.cuh; a warp a row.
  GpuAttentionKernel share;
  /// With `fold`, of prompts by segments (passes/gpu/SegmentPrompts.h).
  GpuAttentionKernel scan;
  bool finds = false;
  /// Rows of a step that needs no plan, at most.
  int64_t fewRows = 0;
  /// Of a bounded cache: blocks of a cluster of `attend` at the least, and
  /// those that fit into a multiprocessor.
  int64_t leastBlocks = 1, blocksAtOnce = 1;

  bool answersPrompts() const {
    return plan.arguments.empty() && !first.arguments.empty();
  }
  bool hasFew() const { return !few.arguments.empty(); }
  bool hasSlices() const { return !finishSlices.arguments.empty(); }
  bool selects() const { return !select.arguments.empty(); }
  bool scans() const { return !scan.arguments.empty(); }
};

struct GpuAttentionCode {
  explicit GpuAttentionCode(cuda::Device device) : device(std::move(device)) {}

  cuda::Device device;
  GpuAttentionForm decode, prefill;
  /// Heads of the query that attend together, how often a row has so many, and
  /// the pieces of each at the most.
  int64_t share = 1, tasksOfRow = 1, piecesOfTask = 1;
  int64_t section = 1;       ///< entries of a ring that a block looks at
  int64_t findBlocks = 1;    ///< of those that fit into a multiprocessor
  int64_t queriesOfWarp = 1; ///< of prompts
  /// Of a bounded cache (passes/gpu/BoundedInfo.h), whose forms have `attend`
  /// alone: numbers of a row with one for each entry, and blocks of a cluster
  /// at the most.
  int64_t stride = 0, mostBlocks = 1;
  /// Of its prompts: candidates of a block, rows of a memory that one folds
  /// into, and numbers that are left of these.
  int64_t keysOfTile = 1, rowsOfFold = 1, spreadParts = 1;
  /// Of their preferences: tokens of a block, and numbers that it leaves.
  int64_t tokensOfBlock = 1, preferenceNumbers = 1;
  /// The kernel that watches heads (DeviceDiagnostics), which is compiled or
  /// found on disk when a decoder is to have it. Of a cache that keeps all
  /// tokens.
  std::function<Result<cuda::Kernel>()> compileDiagnostics;
  /// Of those by segments: rows of a memory that a warp folds into, and
  /// elements of it that a block sums up.
  int64_t rowsOfSegment = 1, elementsOfScan = 1;
};

/// Places in the cursor of a head of a bounded cache (BoundedNumber of
/// passes/gpu/BoundedInfo.h).
struct BoundedCursor {
  static constexpr size_t length = 0, count = 1, place = 2, victim = 3,
                          seen = 4, evicted = 5, folds = 6, budget = 7;
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
  Status copyParts(std::initializer_list<const cuda::Memory *> memories,
                   int64_t count, int32_t from, int32_t to) const;
  Status copyPage(int32_t from, int32_t to) const;
  /// The rings of a slot, or its bounded cache with the cursors of its heads.
  Status copySlot(int32_t from, int32_t to) const;
  /// Of positions that are not there any more, in all heads of a slot.
  Status clearValues(int32_t slot, int64_t from, int64_t to);
  /// Of a cache that evicts, in their order; empty if the device has failed.
  std::vector<int64_t> keptPositions(int32_t slot, int64_t head) const;

  std::shared_ptr<const GpuAttentionCode> code;
  int64_t pagesOfSlot = 0, sparePage = 0;
  /// Each head of a bounded cache has a cursor (passes/gpu/BoundedInfo.h).
  bool isBounded = false;
  /// Of a segmented cache: tokens that are folded, and those that never are.
  int64_t segment = 0, behindSegments = 0;
  /// Of a bounded cache: entries of a head, of which the first stay where they
  /// are and the others are a ring, and bytes of a value.
  int64_t entries = 0, firstEntries = 0, valueBytes = 0;
  int64_t slots = 0, headsOfSlot = 1;
  cuda::Memory cursors;
  cuda::Memory table; ///< [slots, pagesOfSlot + 1]; unused ones: the spare page
  cuda::Memory keys, values; ///< with the spare page behind the others
  /// As AttentionPoolImpl::rings, ends of 32 bits, or as ::bounded.
  std::map<std::string, cuda::Memory> rings;
  cuda::HostWord fault; ///< not 0 where tokens had no page
};

/// What kernels call the arrays of ringArrays.
std::vector<std::string> ringNames(const AttentionProgramImpl &program);

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEATTENTION_H
