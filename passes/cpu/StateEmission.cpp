//===- StateEmission.cpp - rows of a state in a kernel --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The passes over the rows of a state. Row v is a vector over dk; everything
// that happens to it happens while its tile is in the nearest cache.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/Kernel.h"
#include "passes/cpu/ScheduleInfo.h"

using namespace mlir;
using namespace ladle;

/// True if forming a row of `state` costs more than loading it.
static bool isCostly(Value state) {
  Operation *op = state.getDefiningOp();
  if (isa<FoldBufferOp, ReplayOp>(op))
    return true;
  return isa<DecayOp, WriteOp>(op) && isCostly(op->getOperand(0));
}

//===----------------------------------------------------------------------===//
// One row
//===----------------------------------------------------------------------===//

FailureOr<Value> Kernel::emitStateRow(Value state, Value row, Value local) {
  if (auto found = stashed.find(state); found != stashed.end())
    return loadVector(found->second, {local, constantIndex(0)},
                      cast<StateType>(state.getType()).getKeySize());
  auto type = cast<StateType>(state.getType());
  Operation *op = state.getDefiningOp();
  if (auto load = dyn_cast_if_present<LoadStateOp>(op))
    return loadVector(
        memory[load.getPool()],
        {readSlot, headIndex(type.getHeads()), row, constantIndex(0)},
        type.getKeySize());
  if (isa_and_present<ZeroStateOp>(op))
    return zeros(type.getKeySize());

  if (!op || op->getNumOperands() == 0)
    return mlir::emitError(state.getLoc(), "state does not come from a pool");
  FailureOr<Value> previous = emitStateRow(op->getOperand(0), row, local);
  if (failed(previous))
    return failure();
  if (auto fold = dyn_cast<FoldBufferOp>(op))
    return emitFoldRow(fold, *previous, row);
  if (auto replay = dyn_cast<ReplayOp>(op))
    return emitReplayRow(replay, *previous, row);
  if (auto decay = dyn_cast<DecayOp>(op)) {
    FailureOr<Components> factor = headOperand(decay.getFactor());
    if (failed(factor))
      return failure();
    Value value = factor->front();
    if (!isa<VectorType>(value.getType()))
      value = splat(value, type.getKeySize());
    return Value(arith::MulFOp::create(b, *previous, value));
  }
  if (auto write = dyn_cast<WriteOp>(op)) {
    FailureOr<Components> keys = headOperand(write.getKey());
    if (failed(keys))
      return failure();
    Value values = spills.lookup(write.getValue());
    if (!values)
      return op->emitError("value is not available in phase ")
             << currentPhase << " of the schedule";
    Value result = *previous;
    for (auto [r, key] : llvm::enumerate(*keys)) {
      Value value =
          memref::LoadOp::create(b, values, ValueRange{constantIndex(r), row});
      result = vector::FMAOp::create(b, key, splat(value, type.getKeySize()),
                                     result);
    }
    return result;
  }
  return op->emitError("cannot be lowered for the CPU: '")
         << op->getName() << "' is not an operation on states";
}

Value Kernel::emitFoldRow(FoldBufferOp op, Value row, Value v) {
  const Gathered &all = gathered[op];
  int64_t keySize = op.getState().getType().getKeySize();
  auto loop =
      scf::ForOp::create(b, constantIndex(0), all.count, constantIndex(1), row);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value at = loop.getInductionVar();
  Value key = loadVector(all.keys, {at, constantIndex(0)}, keySize);
  Value value = memref::LoadOp::create(b, all.values, ValueRange{at, v});
  scf::YieldOp::create(
      b, Value(vector::FMAOp::create(b, key, splat(value, keySize),
                                     loop.getRegionIterArg(0))));
  return loop.getResult(0);
}

Value Kernel::emitReplayRow(ReplayOp op, Value row, Value v) {
  const Gathered &all = gathered[op];
  TransitionAttr transition = op.getTransition();
  BufferType buffer = op.getBuffer().getType();
  int64_t keySize = op.getState().getType().getKeySize();
  auto ranksOf = [&](ArrayRef<StringAttr> names) {
    return llvm::map_to_vector(names, [&](StringAttr name) -> int64_t {
      ArrayRef<int64_t> shape = buffer.getField(name).getShape();
      return shape.size() == 3 ? shape[1] : 1;
    });
  };
  SmallVector<int64_t> writeRanks = ranksOf(transition.getKeys());
  SmallVector<int64_t> readRanks = ranksOf(transition.getVectors());
  int64_t writes = 0, reads = 0;
  for (int64_t rank : writeRanks)
    writes += rank;
  for (int64_t rank : readRanks)
    reads += rank;

  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), row);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  auto at = [&](int64_t count, int64_t offset) -> Value {
    return arith::AddIOp::create(
        b, arith::MulIOp::create(b, position, constantIndex(count)),
        constantIndex(offset));
  };
  Value old = loop.getRegionIterArg(0), decayed = old;
  if (all.decays) {
    bool scalar = cast<MemRefType>(all.decays.getType()).getDimSize(1) == 1;
    Value decay =
        scalar
            ? splat(memref::LoadOp::create(
                        b, all.decays, ValueRange{position, constantIndex(0)}),
                    keySize)
            : loadVector(all.decays, {position, constantIndex(0)}, keySize);
    decayed = arith::MulFOp::create(b, old, decay);
  }
  SmallVector<SmallVector<Value>> values;
  int64_t offset = 0;
  for (int64_t rank : writeRanks) {
    auto &list = values.emplace_back();
    for (int64_t r = 0; r < rank; ++r)
      list.push_back(memref::LoadOp::create(
          b, all.values, ValueRange{at(writes, offset++), v}));
  }
  offset = 0;
  for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
    for (int64_t r = 0; r < readRanks[m]; ++r) {
      Value index = at(reads, offset++);
      Value vector =
          loadVector(all.vectors, {index, constantIndex(0)}, keySize);
      Value coefficient = memref::LoadOp::create(
          b, all.coefficients, ValueRange{index, constantIndex(0)});
      Value read = dot(transition.getAfterDecay()[m] ? decayed : old, vector);
      values[owner][r] = arith::AddFOp::create(
          b, values[owner][r], arith::MulFOp::create(b, coefficient, read));
    }
  Value result = decayed;
  offset = 0;
  for (auto &list : values)
    for (Value value : list) {
      Value key = loadVector(all.keys, {at(writes, offset++), constantIndex(0)},
                             keySize);
      result = vector::FMAOp::create(b, key, splat(value, keySize), result);
    }
  scf::YieldOp::create(b, result);
  return loop.getResult(0);
}

//===----------------------------------------------------------------------===//
// A tile of rows
//===----------------------------------------------------------------------===//

LogicalResult Kernel::emitReads(ArrayRef<ReadOp> reads, int64_t width,
                                bool stashForStore) {
  llvm::MapVector<Value, SmallVector<ReadOp>> byState;
  for (ReadOp read : reads)
    byState[read.getState()].push_back(read);
  for (auto &[state, group] : byState) {
    int64_t keySize = cast<StateType>(state.getType()).getKeySize();
    SmallVector<Components> queries;
    for (ReadOp read : group) {
      b.setLoc(read.getLoc());
      FailureOr<Components> query = headOperand(read.getQuery());
      if (failed(query))
        return failure();
      queries.push_back(*query);
      Value &scratch = spills[read.getResult()];
      if (!scratch)
        scratch =
            allocateScratch({static_cast<int64_t>(query->size()),
                             read.getResult().getType().getShape().back()});
    }
    Value stash;
    if (stashForStore && isCostly(state))
      stash = allocateScratch({width, keySize});
    {
      auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(width),
                                     constantIndex(1));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value local = loop.getInductionVar();
      Value at = arith::AddIOp::create(b, tileStart, local);
      FailureOr<Value> stateRow = emitStateRow(state, at, local);
      if (failed(stateRow))
        return failure();
      if (stash)
        vector::StoreOp::create(b, *stateRow, stash,
                                ArrayRef<Value>{local, constantIndex(0)});
      for (auto [read, query] : llvm::zip(group, queries))
        for (auto [i, component] : llvm::enumerate(query))
          memref::StoreOp::create(b, dot(*stateRow, component),
                                  spills[read.getResult()],
                                  ValueRange{constantIndex(i), at});
    }
    if (stash)
      stashed[state] = stash;
    for (ReadOp read : group) {
      Components components;
      int64_t count =
          cast<MemRefType>(spills[read.getResult()].getType()).getDimSize(0);
      for (int64_t i = 0; i < count; ++i)
        components.push_back(loadVector(spills[read.getResult()],
                                        {constantIndex(i), tileStart}, width));
      rowValues[read.getResult()] = components;
    }
  }
  return success();
}

LogicalResult Kernel::emitStore(StoreStateOp store, int64_t width) {
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(width),
                                 constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value local = loop.getInductionVar();
  Value at = arith::AddIOp::create(b, tileStart, local);
  FailureOr<Value> stateRow = emitStateRow(store.getState(), at, local);
  if (failed(stateRow))
    return failure();
  PoolType pool = store.getPool().getType();
  storeVector(*stateRow, memory[store.getPool()],
              {writeSlot, headIndex(pool.getHeads()), at, constantIndex(0)});
  return success();
}
