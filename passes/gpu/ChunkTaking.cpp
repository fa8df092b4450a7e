//===- ChunkTaking.cpp - the kernel that takes prepared steps -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// See ChunkPrepared.cpp.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Barriers.h"
#include "passes/gpu/ChunkKernel.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

/// Places of what is prepared, one of which is read while others are written.
static constexpr int64_t kPlaces = 3;
/// Shared memory of a multiprocessor, and what a block takes besides its own.
static constexpr int64_t kMultiprocessorBytes = 228 << 10, kSystemBytes = 1024;

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// Gives a memory a place for each of several steps.
void GpuPreparedSteps::place(Value memory) {
  auto type = cast<MemRefType>(memory.getType());
  placed[memory] = type;
  SmallVector<int64_t> dims(type.getShape());
  dims.front() *= kPlaces;
  memory.setType(MemRefType::get(dims, type.getElementType(), type.getLayout(),
                                 type.getMemorySpace()));
}

/// Which of its places a step has.
static Value turnOf(ImplicitLocOpBuilder &b, Value ofRound) {
  return arith::RemUIOp::create(b, ofRound,
                                arith::ConstantIndexOp::create(b, kPlaces));
}

Value GpuChunkKernel::placeInTurn(Value memory, Value turn) {
  MemRefType type = prepared.placed.lookup(memory);
  SmallVector<OpFoldResult> offsets(2, b.getIndexAttr(0)), sizes,
      strides(2, b.getIndexAttr(1));
  offsets.front() = times(turn, type.getDimSize(0));
  for (int64_t size : type.getShape())
    sizes.push_back(b.getIndexAttr(size));
  return memref::SubViewOp::create(b, memory, offsets, sizes, strides);
}

//===----------------------------------------------------------------------===//
// Those who copy
//===----------------------------------------------------------------------===//

static void copyAsync(ImplicitLocOpBuilder &b, Value from, ValueRange at,
                      Value to, ValueRange toAt, int64_t wide) {
  nvgpu::DeviceAsyncCopyOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), to, toAt, from, at,
      b.getIndexAttr(wide), /*srcElements=*/Value(),
      /*bypassL1=*/b.getUnitAttr());
}

/// Rows of the tokens of a step.
void GpuChunkKernel::copyRowTokens(Value ofRound, Value turn) {
  Value begin = times(ofRound, tokensAtOnce());
  Value last = arith::SubIOp::create(b, tokenCount, constantIndex(1));
  for (BlockArgument argument : rowTokens) {
    RankedTensorType type = cast<RankedTensorType>(argument.getType());
    int64_t wide =
        GpuPreparedSteps::kCopyBytes * 8 / type.getElementTypeBitWidth();
    int64_t parts = schedule.tileRows / wide, all = parts * tokensAtOnce();
    Value to = placeInTurn(stagedRows.lookup(argument), turn);
    for (int64_t i = 0; i < all; i += Shape::kCopying) {
      Value task = add(thread, i);
      Value token = over(task, parts);
      Value column =
          times(arith::RemUIOp::create(b, task, constantIndex(parts)), wide);
      Value row = arith::AddIOp::create(
          b, firstToken,
          arith::MinSIOp::create(b, arith::AddIOp::create(b, begin, token),
                                 last));
      guarded(i + Shape::kCopying > all ? isBelow(task, all) : Value(), [&] {
        copyAsync(b, memory[argument.getArgNumber()],
                  {row, headIndex(type.getDimSize(0)),
                   arith::AddIOp::create(b, tileStart, column)},
                  to, {token, column}, wide);
      });
    }
  }
}

/// Copies the steps [first, end) of the row, of a launch that has those from
/// `begin` on, two ahead of those with rows.
void GpuChunkKernel::emitCopying(Value begin, Value first, Value end) {
  thread = arith::SubIOp::create(b, blockThread,
                                 constantIndex(shape.threadsOfRows()));
  auto loop = scf::ForOp::create(b, first, add(end, 1), constantIndex(1));
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  b.setInsertionPointToStart(loop.getBody());
  Value ofRound = loop.getInductionVar();
  guarded(compare(arith::CmpIPredicate::slt, ofRound, end), [&] {
    Value ofStep = arith::SubIOp::create(b, ofRound, begin);
    Value isFirst =
        compare(arith::CmpIPredicate::eq,
                arith::RemUIOp::create(b, ofRound, constantIndex(stepsOfRun())),
                constantIndex(0));
    guarded(isFirst, [&] {
      memref::DmaWaitOp::create(
          b, prepared.ready, ValueRange{counterOf(ofStep)}, constantIndex(1));
    });
    Value turn = turnOf(b, ofRound);
    SmallVector<Value> places;
    for (auto &each : prepared.passed)
      places.push_back(placeInTurn(each.first, turn));
    copyRowTokens(ofRound, turn);
    forPassed(ofStep, Shape::kCopying, places,
              [&](Value held, Value ofAll, Value element, int64_t wide) {
                copyAsync(b, ofAll, element, held, element, wide);
              });
  });
  Value group = nvgpu::DeviceAsyncCreateGroupOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange());
  nvgpu::DeviceAsyncWaitOp::create(b, TypeRange(), group,
                                   b.getI32IntegerAttr(1))
      ->setAttr(kOfWarpAttr, b.getUnitAttr());
  // What was asked for a step ago is there; at first, nothing is.
  meetAt(b, kBarrierOfAll, shape.threadsOfBlock());
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

void GpuChunkKernel::makeTaking() {
  OpBuilder::InsertionGuard guard(b);
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  thread = blockThread;
  b.setInsertionPoint(prepared.parts);
  Value ofRow = firstStepOf(row);
  Value firstOfLaunch =
      times(arith::IndexCastOp::create(b, b.getIndexType(), prepared.firstRun),
            stepsOfRun());
  Value begin = arith::SubIOp::create(b, firstOfLaunch, ofRow);
  Value end = arith::MinSIOp::create(
      b, over(add(tokenCount, tokensAtOnce() - 1), tokensAtOnce()),
      add(begin, stepsOfRun() * runsAtOnce()));
  Value first = arith::MaxSIOp::create(b, begin, constantIndex(0));
  auto active =
      scf::IfOp::create(b, compare(arith::CmpIPredicate::slt, first, end));
  prepared.parts->moveBefore(active.thenBlock()->getTerminator());
  prepared.ofRows.getLowerBoundMutable().assign(first);
  prepared.ofRows.getUpperBoundMutable().assign(end);

  // Those with rows have one place while others are on their way.
  for (auto &each : prepared.passed)
    prepared.place(each.first);
  for (BlockArgument argument : rowTokens)
    prepared.place(stagedRows.lookup(argument));
  b.setInsertionPointToStart(prepared.ofRows.getBody());
  Value turn = turnOf(b, prepared.ofRows.getInductionVar());
  for (Value memory : llvm::make_first_range(prepared.placed)) {
    Value mine = placeInTurn(memory, turn);
    memory.replaceUsesWithIf(mine, [&](OpOperand &use) {
      return prepared.ofRows->isProperAncestor(use.getOwner()) &&
             use.getOwner() != mine.getDefiningOp();
    });
  }
  b.setInsertionPoint(prepared.ofRows);
  meetAt(b, kBarrierOfAll, shape.threadsOfBlock());

  Block *copying = prepared.parts.elseBlock();
  while (copying->getOperations().size() > 1)
    std::prev(copying->end(), 2)->erase();
  b.setInsertionPoint(prepared.parts);
  clearMemories(function, shape.threadsOfBlock(), [&](Value memory) {
    return !prepared.placed.contains(memory);
  });
  b.setInsertionPointToStart(copying);
  emitCopying(begin, first, end);
  eraseUnusedShared(function);

  // Half of the registers are for those that prepare.
  function->setAttr(kBlocksAttr, b.getIndexAttr(2));
  int64_t blocks =
      std::min((kMultiprocessorBytes - bytesOfShared() - kSystemBytes) /
                   (prepared.bytesOfBlock + kSystemBytes),
               GpuPreparedSteps::kRegisters / 2 /
                   GpuPreparedSteps::kMostRegisters / shape.ahead);
  isRefused |= blocks < 1;
  prepared.kernel->setAttr(kBlocksBesideAttr,
                           b.getIndexAttr(std::max<int64_t>(1, blocks)));
  // Whoever waits for its end waits for that of the other, too.
  b.setInsertionPoint(function.getBody().front().getTerminator());
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  guarded(both(isBelow(row, 1), isBelow(block, 1)), [&] { waitForPrevious(); });
}
