//===- PackedHeads.cpp - heads that share a block -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where a head is a channel, as in Mamba and RWKV-4, its state is a few values:
// a block of its own would keep most of a warp idle, and end before it has
// asked the memory for a line. The rows of heads that lie beside each other are
// then those of one tile, and which head a thread is at depends on its group.
//
//===----------------------------------------------------------------------===//

#include "passes/build/Components.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// Threads of a block of many heads, unless a schedule says otherwise.
static constexpr int64_t kThreads = 128;

/// Whether all that is exchanged stays within the group of a row: shared memory
/// is one head's.
static bool staysInGroups(StepOp form) {
  WalkResult walked = form.walk([](Operation *op) {
    bool leaves = isa<RotateOp>(op);
    if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
      int64_t rank = broadcast.getInput().getType().getRank();
      leaves = rank > 1 && rank != broadcast.getResult().getType().getRank() &&
               !keepsLastDimension(broadcast);
    }
    return leaves ? WalkResult::interrupt() : WalkResult::advance();
  });
  return !walked.wasInterrupted();
}

int64_t GpuKernel::headsToPack() {
  bool isForTokens = step.getForm() == Form::Decode && !fold;
  if ((!isForTokens && step.getForm() != Form::PrefillScan) || headGroup > 1 ||
      hasPieces() || !staysInGroups(step))
    return 1;
  // States in pages or of transposed layout, and entries, are a head's.
  for (BlockArgument argument : step.getBody().getArguments())
    if (isa<BufferType>(argument.getType()) ||
        (isa<PoolType>(argument.getType()) &&
         isTransposed(argument.getArgNumber())))
      return 1;
  bool hasCarries = std::exchange(ownsAllRows, false);
  findRowValues(step);
  bool rowsMeet = std::exchange(ownsAllRows, hasCarries);
  int64_t each = lanes * valueSize;
  if (rowsMeet || each >= 32 || !llvm::isPowerOf2_64(each))
    return 1;
  int64_t threads = schedule.threads ? schedule.threads : kThreads;
  int64_t count =
      llvm::bit_floor<uint64_t>(std::max<int64_t>(1, threads / each));
  while (count * each > 32 && schedule.batch &&
         schedule.batch * heads < count * kBlocksToFill)
    count /= 2;
  while (count > 1 && heads % count != 0)
    count /= 2;
  // Elements of whole warps are whole parts of a bulk copy.
  return count * each % 32 == 0 ? count : 1;
}
