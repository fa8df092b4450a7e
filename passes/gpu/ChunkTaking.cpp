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

/// Copies rows of the tokens of a step to a place of theirs.
void GpuChunkKernel::copyRowTokens(Value ofRound,
                                   const DenseMap<Value, Value> &places) {
  Value begin = times(ofRound, tokensAtOnce());
  Value last = arith::SubIOp::create(b, tokenCount, constantIndex(1));
  for (BlockArgument argument : rowTokens) {
    RankedTensorType type = cast<RankedTensorType>(argument.getType());
    int64_t wide =
        GpuPreparedSteps::kCopyBytes * 8 / type.getElementTypeBitWidth();
    int64_t parts = schedule.tileRows / wide, all = parts * tokensAtOnce();
    Value to = places.lookup(stagedRows.lookup(argument));
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
        nvgpu::DeviceAsyncCopyOp::create(
            b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), to,
            ValueRange{token, column}, memory[argument.getArgNumber()],
            ValueRange{row, headIndex(type.getDimSize(0)),
                       arith::AddIOp::create(b, tileStart, column)},
            b.getIndexAttr(wide), /*srcElements=*/Value(),
            /*bypassL1=*/b.getUnitAttr());
      });
    }
  }
}

void GpuChunkKernel::makeTaking() {
  OpBuilder::InsertionGuard guard(b);
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  thread = blockThread;
  b.setInsertionPoint(prepared.parts);
  Value ofRow = firstStepOf(row);
  Value begin = arith::SubIOp::create(b, firstAtOnce(prepared.firstRun), ofRow);
  Value end = arith::MinSIOp::create(
      b, over(add(tokenCount, tokensAtOnce() - 1), tokensAtOnce()),
      add(begin, stepsOfRun() * runsAtOnce()));
  Value first = arith::MaxSIOp::create(b, begin, constantIndex(0));
  auto active =
      scf::IfOp::create(b, compare(arith::CmpIPredicate::slt, first, end));
  prepared.parts->moveBefore(active.thenBlock()->getTerminator());
  prepared.ofRows.getLowerBoundMutable().assign(first);
  prepared.ofRows.getUpperBoundMutable().assign(end);

  SmallVector<Value> memories;
  for (auto &each : prepared.passed)
    memories.push_back(each.first);
  for (BlockArgument argument : rowTokens)
    memories.push_back(stagedRows.lookup(argument));
  llvm::DenseMap<Value, MemRefType> types;
  for (Value memory : memories) {
    auto type = cast<MemRefType>(memory.getType());
    types[memory] = type;
    SmallVector<int64_t> dims(type.getShape());
    dims.front() *= kPlaces;
    memory.setType(MemRefType::get(dims, type.getElementType(),
                                   type.getLayout(), type.getMemorySpace()));
  }
  auto placeOfStep = [&](Value memory, Value turn) -> Value {
    MemRefType type = types[memory];
    SmallVector<OpFoldResult> offsets(2, b.getIndexAttr(0)), sizes,
        strides(2, b.getIndexAttr(1));
    offsets.front() = times(turn, type.getDimSize(0));
    for (int64_t size : type.getShape())
      sizes.push_back(b.getIndexAttr(size));
    return memref::SubViewOp::create(b, memory, offsets, sizes, strides);
  };
  auto turnOf = [&](Value ofRound) -> Value {
    return arith::RemUIOp::create(b, ofRound, constantIndex(kPlaces));
  };
  // Those with rows have one place while others are on their way.
  b.setInsertionPointToStart(prepared.ofRows.getBody());
  Value turn = turnOf(prepared.ofRows.getInductionVar());
  for (Value memory : memories) {
    Value mine = placeOfStep(memory, turn);
    memory.replaceUsesWithIf(mine, [&](OpOperand &use) {
      return prepared.ofRows->isProperAncestor(use.getOwner()) &&
             use.getOwner() != mine.getDefiningOp();
    });
  }
  Block *copying = prepared.parts.elseBlock();
  while (copying->getOperations().size() > 1)
    std::prev(copying->end(), 2)->erase();
  b.setInsertionPoint(prepared.parts);
  clearMemories(function, shape.threadsOfBlock(), [&](Value memory) {
    return !llvm::is_contained(memories, memory);
  });
  b.setInsertionPointToStart(copying);
  thread = arith::SubIOp::create(b, blockThread,
                                 constantIndex(shape.threadsOfRows()));
  auto loop = scf::ForOp::create(b, first, add(end, 1), constantIndex(1));
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  b.setInsertionPointToStart(loop.getBody());
  Value ofRound = loop.getInductionVar();
  auto none = nvgpu::DeviceAsyncTokenType::get(b.getContext());
  guarded(compare(arith::CmpIPredicate::slt, ofRound, end), [&] {
    Value ofStep = arith::SubIOp::create(b, ofRound, begin);
    Value isFirst =
        compare(arith::CmpIPredicate::eq,
                arith::RemUIOp::create(b, ofRound, constantIndex(stepsOfRun())),
                constantIndex(0));
    guarded(isFirst, [&] {
      Value counter = counterOf(ofStep);
      memref::DmaWaitOp::create(b, prepared.ready, ValueRange{counter},
                                constantIndex(1));
    });
    Value next = turnOf(ofRound);
    SmallVector<Value> places;
    llvm::DenseMap<Value, Value> all;
    for (Value memory : memories)
      all[memory] = placeOfStep(memory, next);
    for (auto &each : prepared.passed)
      places.push_back(all[each.first]);
    copyRowTokens(ofRound, all);
    forPassed(ofStep, Shape::kCopying, places,
              [&](Value held, Value ofAll, Value element, int64_t wide) {
                nvgpu::DeviceAsyncCopyOp::create(
                    b, none, held, ValueRange{element}, ofAll,
                    ValueRange{element}, b.getIndexAttr(wide),
                    /*srcElements=*/Value(), /*bypassL1=*/b.getUnitAttr());
              });
  });
  Value group = nvgpu::DeviceAsyncCreateGroupOp::create(b, none, ValueRange());
  nvgpu::DeviceAsyncWaitOp::create(b, TypeRange(), group,
                                   b.getI32IntegerAttr(1))
      ->setAttr(kOfWarpAttr, b.getUnitAttr());
  // What was asked for a step ago is there; at first, nothing is.
  auto meet = [&] { meetAt(b, kBarrierOfAll, shape.threadsOfBlock()); };
  meet();
  b.setInsertionPoint(prepared.ofRows);
  meet();
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
