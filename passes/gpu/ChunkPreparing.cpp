//===- ChunkPreparing.cpp - the kernel that prepares steps ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// See ChunkPrepared.cpp.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

/// A block prepares runs of heads, a run of all heads before the next.
void GpuChunkKernel::makePreparing(IRMapping &mapping) {
  OpBuilder::InsertionGuard guard(b);
  llvm::SaveAndRestore ofFunction(function, prepared.kernel);
  llvm::SaveAndRestore ofConstants(constants, decltype(constants)());
  auto at = [&](Value value) { return mapping.lookupOrDefault(value); };
  prepared.kernel.setName(prepareNameOf(step));
  prepared.kernel.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(shape.ahead), 1, 1}));
  prepared.kernel->setAttr(kGridBlocksAttr, b.getIndexAttr(heads));
  prepared.kernel->setAttr(kRunsAttr, b.getIndexAttr(runsAtOnce()));
  prepared.kernel->setAttr(kTokensOfRunAttr,
                           b.getIndexAttr(stepsOfRun() * tokensAtOnce()));
  prepared.kernel->setAttr(
      kBytesOfRunAttr,
      b.getIndexAttr(stepsOfRun() * heads * prepared.bytesOfStep));

  // Which step of which row.
  Block &entry = prepared.kernel.getBody().front();
  SmallVector<gpu::BlockIdOp> ids(entry.getOps<gpu::BlockIdOp>());
  b.setInsertionPointToStart(&entry);
  letNextStart();
  auto index = [&](Value argument) -> Value {
    return arith::IndexCastOp::create(b, b.getIndexType(), at(argument));
  };
  Value ofLaunch = index(prepared.headCount), rows = index(prepared.rowCount);
  auto items =
      scf::ForOp::create(b, gpu::BlockIdOp::create(b, gpu::Dimension::x),
                         times(ofLaunch, runsAtOnce()),
                         gpu::GridDimOp::create(b, gpu::Dimension::x));
  items->setAttr("ladle.rolled", b.getUnitAttr());
  Block *body = items.getBody();
  body->getOperations().splice(
      body->getTerminator()->getIterator(), entry.getOperations(),
      std::next(items->getIterator()), entry.getTerminator()->getIterator());
  b.setInsertionPointToStart(body);
  llvm::SaveAndRestore ofThis(cuSeqlens, at(cuSeqlens));
  Value begin = times(index(prepared.firstRun), stepsOfRun());
  Value ofItem =
      times(arith::DivUIOp::create(b, items.getInductionVar(), ofLaunch),
            stepsOfRun());
  Value number = arith::AddIOp::create(b, begin, ofItem);
  auto search = scf::ForOp::create(b, constantIndex(1), rows, constantIndex(1),
                                   ValueRange{constantIndex(0)});
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(search.getBody());
    Value isBefore = compare(arith::CmpIPredicate::sle,
                             firstStepOf(search.getInductionVar()), number);
    scf::YieldOp::create(b, ValueRange{arith::SelectOp::create(
                                b, isBefore, search.getInductionVar(),
                                search.getRegionIterArg(0))});
  }
  Value mine = search.getResult(0);
  Value first = arith::SubIOp::create(b, number, firstStepOf(mine));
  Value tile = times(
      arith::RemUIOp::create(b, items.getInductionVar(), ofLaunch), tiles);
  Value mineOfHeads = at(head);
  for (gpu::BlockIdOp id : ids) {
    Value instead = id.getDimension() == gpu::Dimension::x ? tile : mine;
    if (mineOfHeads == id.getResult())
      mineOfHeads = instead;
    id.getResult().replaceAllUsesWith(instead);
    id.erase();
  }

  auto branch = cast<scf::IfOp>(mapping.lookup(prepared.parts.getOperation()));
  auto loop = cast<scf::ForOp>(mapping.lookup(prepared.ahead.getOperation()));
  // Padded rows are the others'.
  for (auto outer = branch->getParentOfType<scf::IfOp>(); outer;
       outer = outer->getParentOfType<scf::IfOp>())
    outer.getElseRegion().getBlocks().clear();
  for (Operation &op :
       llvm::make_early_inc_range(branch.elseBlock()->without_terminator()))
    op.moveBefore(branch);
  branch.erase();
  b.setInsertionPoint(loop);
  Value last =
      arith::MinSIOp::create(b, loop.getUpperBound(), add(first, stepsOfRun()));
  loop.getLowerBoundMutable().assign(first);
  loop.getUpperBoundMutable().assign(last);

  llvm::SaveAndRestore ofHead(head, mineOfHeads);
  llvm::SaveAndRestore ofThread(thread, at(blockThread));
  llvm::SaveAndRestore ofSteps(prepared.memory, at(prepared.memory));
  b.setInsertionPoint(loop.getBody()->getTerminator());
  SmallVector<Value> places;
  for (auto &each : prepared.passed)
    places.push_back(at(each.first));
  Value ofRun = arith::SubIOp::create(b, loop.getInductionVar(), first);
  forPassed(arith::AddIOp::create(b, ofItem, ofRun), shape.ahead, places,
            [&](Value held, Value ofAll, Value element, int64_t wide) {
              auto type = VectorType::get(
                  {wide}, cast<MemRefType>(held.getType()).getElementType());
              Value some =
                  vector::LoadOp::create(b, type, held, ValueRange{element});
              vector::StoreOp::create(b, some, ofAll, ValueRange{element});
            });
  // Then the next may be written, or taken.
  barrier();
  b.setInsertionPointAfter(loop);
  Value isAny = compare(arith::CmpIPredicate::slt, first, last);
  guarded(both(isAny, isBelow(thread, 1)), [&] {
    memref::AtomicRMWOp::create(
        b, arith::AtomicRMWKind::addi, constantInt(static_cast<int32_t>(tiles)),
        at(prepared.ready), ValueRange{counterOf(ofItem)});
  });
  eraseUnusedShared(prepared.kernel);
  // Once for all runs: what is zero stays so.
  b.setInsertionPoint(items);
  thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  clearMemories(prepared.kernel, shape.ahead, [](Value) { return true; });
  prepared.kernel->setAttr(kBlocksAttr,
                           b.getIndexAttr(GpuPreparedSteps::kRegisters /
                                          GpuPreparedSteps::kMostRegisters /
                                          shape.ahead));
  prepared.bytesOfBlock = bytesOfShared();
  isRefused |= prepared.bytesOfBlock > mostShared();
}
