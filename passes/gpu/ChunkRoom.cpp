//===- ChunkRoom.cpp - the first shape of a prefill that has room ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

/// Shared memory with which a multiprocessor of every architecture from sm_80
/// on holds a block, and most of them two.
static constexpr int64_t kSharedBytes = 96 << 10;
/// Of a multiprocessor, and of a thread that holds rows of a state.
static constexpr int64_t kRegisters = 64 << 10, kRegistersOfRows = 168;
/// Of a thread with rows, where it takes some from those ahead: registers are
/// given in such units to groups of threads, here one of each part, or two of
/// each, or two with rows beside one.
static constexpr int64_t kRegistersTaken = 160, kRegistersOfTwo = 144,
                         kRegistersBesideOne = 192, kFewestRegisters = 24,
                         kRegisterUnit = 8;
/// Shared memory of a multiprocessor, and what a block takes besides its own.
static constexpr int64_t kMultiprocessorBytes = 228 << 10, kSystemBytes = 1024;

/// Shared memory that a block may have. Others beside it need none where each
/// has a multiprocessor of its own.
int64_t GpuChunkKernel::mostBytes() const {
  if (!shape.ahead)
    return std::min<int64_t>(kSharedBytes, mostShared());
  return std::min<int64_t>(kMultiprocessorBytes / shape.blocks - kSystemBytes,
                           mostShared());
}

FailureOr<gpu::GPUFuncOp> GpuChunkKernel::buildBest(StepOp step,
                                                    const GpuSchedule &schedule,
                                                    const GpuSlots &slots,
                                                    OpBuilder &builder) {
  ChunkForms forms;
  if (failed(GpuChunkKernel(step, schedule, slots, {}, forms, builder).check()))
    return failure();
  moveTokenValues(step);
  forms = separateScales(step);
  GpuChunkKernel probe(step, schedule, slots, {}, forms, builder);
  probe.chooseSizes();
  SmallVector<Shape> shapes = shapesOf(step, schedule, probe.ownsAllRows);
  SmallVector<Shape> ofWarps = probe.shapesOfRows();
  shapes.insert(shapes.begin(), ofWarps.begin(), ofWarps.end());
  // Of shapes with more, the first that holds rows, or what has least.
  std::optional<Shape> other;
  std::tuple<int, int64_t> rankOfOther;
  int64_t fewest = 0;
  bool isSame = false;
  for (const Shape &shape : shapes) {
    if (std::exchange(isSame, false))
      continue;
    GpuChunkKernel kernel(step, schedule, slots, shape, forms, builder);
    FailureOr<gpu::GPUFuncOp> built = kernel.buildPrefill();
    if (failed(built))
      return failure();
    isSame = (shape.splits && kernel.partCounts.empty()) ||
             (shape.rests && kernel.withRests.empty() &&
              kernel.inPairs.empty() && kernel.matrices.empty());
    int64_t bytes = kernel.bytesOfShared();
    if (bytes <= kernel.mostBytes() && !kernel.isRefused)
      return built;
    built->erase();
    if (shape.prepared)
      kernel.prepared.kernel.erase();
    if (kernel.shape.ahead)
      continue;
    std::tuple<int, int64_t> rank(2, bytes);
    if (bytes <= probe.mostShared())
      rank = {kernel.holdsRows ? 0 : 1, kernel.holdsRows ? 0 : bytes};
    if (!other || rank < rankOfOther) {
      other = shape;
      rankOfOther = rank;
      fewest = bytes;
    }
  }
  if (fewest <= probe.mostShared())
    return GpuChunkKernel(step, schedule, slots, *other, forms, builder)
        .buildPrefill();
  InFlightDiagnostic diag = step.emitError("a chunk of its prompts needs ")
                            << fewest << " bytes of shared memory in a block, "
                            << "but there are " << probe.mostShared();
  diag.attachNote() << "prompts of this shape are decoded by steps, or "
                       "prefilled by the target cpu";
  return failure();
}

/// Registers of a thread of a part, where several blocks of both, or two crews
/// beside two warps with the same rows, find room only if those with rows take
/// some of the others'; and where they multiply together, which takes whole
/// tiles of sums at once, of those who are as many, or if they solve of half as
/// many.
std::optional<int64_t> GpuChunkKernel::registersOfPart(bool ofAhead) {
  int64_t ofRows = shape.threadsOfRows(), threads = shape.threadsOfBlock();
  bool solves = !step.getBody().front().getOps<PathSolveOp>().empty();
  int64_t taken = 0;
  if (shape.blocks > 1)
    taken = kRegistersTaken;
  else if (shape.takesFromCrews() ||
           (shape.warpgroups && ofRows == shape.ahead))
    taken = kRegistersOfTwo;
  else if (shape.warpgroups && ofRows == 2 * shape.ahead && solves)
    taken = kRegistersBesideOne;
  int64_t all = kRegisters / shape.blocks;
  if (taken * threads <= all)
    return std::nullopt;
  // Of those that the block has, each thread as many to begin with: who waits
  // for more than others give back waits forever.
  all = llvm::alignDown(all / threads, kRegisterUnit) * threads;
  int64_t left = (all - taken * ofRows) / shape.ahead;
  if (left < kFewestRegisters)
    return std::nullopt;
  return ofAhead ? llvm::alignDown(left, kRegisterUnit) : taken;
}

/// Blocks that a multiprocessor is to hold at the least.
int64_t GpuChunkKernel::blocksOfShape() {
  int64_t bytes = bytesOfShared();
  if (!holdsRows)
    return bytes <= kSharedBytes ? 2 : 1;
  if (shape.ahead)
    return shape.blocks;
  // Where there are few, one of them may have all registers.
  if (isIdle(tiles))
    return 1;
  return std::max<int64_t>(
      1, std::min(kRegisters / (schedule.threads * kRegistersOfRows),
                  kMultiprocessorBytes / (bytes + kSystemBytes)));
}
