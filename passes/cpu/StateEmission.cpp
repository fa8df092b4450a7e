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
// Rows
//===----------------------------------------------------------------------===//

/// The row of the state that is `offset` after row `local` of the tile.
Value Kernel::rowOfTile(Value local, int64_t offset) {
  Value first = arith::AddIOp::create(b, tileStart, local);
  return offset ? arith::AddIOp::create(b, first, constantIndex(offset))
                : first;
}

LogicalResult Kernel::forRows(Value state, int64_t width,
                              function_ref<LogicalResult(Value, int64_t)> body,
                              bool severalAtOnce) {
  int64_t keySize = cast<StateType>(state.getType()).getKeySize();
  int64_t count = 1;
  if (severalAtOnce || isCostly(state))
    // As many rows as half of 32 registers of 16 floats hold: an entry that is
    // folded, or a query, is loaded once for all of them.
    for (count = std::clamp<int64_t>(256 / keySize, 1, 4); width % count;)
      --count;
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(width),
                                 constantIndex(count));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  return body(loop.getInductionVar(), count);
}

FailureOr<Kernel::Rows> Kernel::emitStateRows(Value state, Value local,
                                              int64_t count) {
  auto type = cast<StateType>(state.getType());
  int64_t keySize = type.getKeySize();
  Operation *op = state.getDefiningOp();
  Rows rows;
  if (auto found = stashed.find(state); found != stashed.end()) {
    for (int64_t i = 0; i < count; ++i)
      rows.push_back(loadVector(
          found->second,
          {arith::AddIOp::create(b, local, constantIndex(i)), constantIndex(0)},
          keySize));
    return rows;
  }
  if (auto load = dyn_cast_if_present<LoadStateOp>(op)) {
    for (int64_t i = 0; i < count; ++i)
      rows.push_back(loadVector(memory[load.getPool()],
                                {readSlot, headIndex(type.getHeads()),
                                 rowOfTile(local, i), constantIndex(0)},
                                keySize));
    return rows;
  }
  if (isa_and_present<ZeroStateOp>(op))
    return Rows(count, zeros(keySize));

  if (!op || op->getNumOperands() == 0)
    return mlir::emitError(state.getLoc(), "state does not come from a pool");
  FailureOr<Rows> previous = emitStateRows(op->getOperand(0), local, count);
  if (failed(previous))
    return failure();
  rows = *previous;
  if (auto fold = dyn_cast<FoldBufferOp>(op)) {
    emitFoldRows(fold, rows, local);
    return rows;
  }
  if (auto replay = dyn_cast<ReplayOp>(op)) {
    emitReplayRows(replay, rows, local);
    return rows;
  }
  if (auto decay = dyn_cast<DecayOp>(op)) {
    FailureOr<Components> factor = headOperand(decay.getFactor());
    if (failed(factor))
      return failure();
    Value value = factor->front();
    if (!isa<VectorType>(value.getType()))
      value = splat(value, keySize);
    for (Value &row : rows)
      row = arith::MulFOp::create(b, row, value);
    return rows;
  }
  if (auto write = dyn_cast<WriteOp>(op)) {
    FailureOr<Components> keys = headOperand(write.getKey());
    if (failed(keys))
      return failure();
    Value values = spills.lookup(write.getValue());
    if (!values)
      return op->emitError("value is not available in phase ")
             << currentPhase << " of the schedule";
    for (auto [r, key] : llvm::enumerate(*keys))
      for (auto [i, row] : llvm::enumerate(rows)) {
        Value value = memref::LoadOp::create(
            b, values, ValueRange{constantIndex(r), rowOfTile(local, i)});
        row = vector::FMAOp::create(b, key, splat(value, keySize), row);
      }
    return rows;
  }
  return op->emitError("cannot be lowered for the CPU: '")
         << op->getName() << "' is not an operation on states";
}

void Kernel::emitFoldRows(FoldBufferOp op, Rows &rows, Value local) {
  const Gathered &all = gathered[op];
  int64_t keySize = op.getState().getType().getKeySize();
  auto loop = scf::ForOp::create(b, constantIndex(0), all.count,
                                 constantIndex(1), rows);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value at = loop.getInductionVar();
  Value key = loadVector(all.keys, {at, constantIndex(0)}, keySize);
  SmallVector<Value> next;
  for (auto [i, row] : llvm::enumerate(loop.getRegionIterArgs())) {
    Value value = memref::LoadOp::create(b, all.values,
                                         ValueRange{at, rowOfTile(local, i)});
    next.push_back(vector::FMAOp::create(b, key, splat(value, keySize), row));
  }
  scf::YieldOp::create(b, next);
  rows.assign(loop.getResults().begin(), loop.getResults().end());
}

void Kernel::emitReplayRows(ReplayOp op, Rows &rows, Value local) {
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
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), rows);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  auto at = [&](int64_t count, int64_t offset) -> Value {
    return arith::AddIOp::create(
        b, arith::MulIOp::create(b, position, constantIndex(count)),
        constantIndex(offset));
  };
  Value decay;
  if (all.decays) {
    bool scalar = cast<MemRefType>(all.decays.getType()).getDimSize(1) == 1;
    decay =
        scalar
            ? splat(memref::LoadOp::create(
                        b, all.decays, ValueRange{position, constantIndex(0)}),
                    keySize)
            : loadVector(all.decays, {position, constantIndex(0)}, keySize);
  }
  SmallVector<Value> results;
  for (auto [i, old] : llvm::enumerate(loop.getRegionIterArgs())) {
    Value decayed = decay ? Value(arith::MulFOp::create(b, old, decay)) : old;
    SmallVector<SmallVector<Value>> values;
    int64_t offset = 0;
    for (int64_t rank : writeRanks) {
      auto &list = values.emplace_back();
      for (int64_t r = 0; r < rank; ++r)
        list.push_back(memref::LoadOp::create(
            b, all.values,
            ValueRange{at(writes, offset++), rowOfTile(local, i)}));
    }
    offset = 0;
    for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
      for (int64_t r = 0; r < readRanks[m]; ++r) {
        Value index = at(reads, offset++);
        Value vector =
            loadVector(all.vectors, {index, constantIndex(0)}, keySize);
        Value coefficient = memref::LoadOp::create(
            b, all.coefficients, ValueRange{index, constantIndex(0)});
        Value read =
            dot(transition.getAfterDecay()[m] ? decayed : Value(old), vector);
        values[owner][r] = arith::AddFOp::create(
            b, values[owner][r], arith::MulFOp::create(b, coefficient, read));
      }
    Value result = decayed;
    offset = 0;
    for (auto &list : values)
      for (Value value : list) {
        Value key = loadVector(
            all.keys, {at(writes, offset++), constantIndex(0)}, keySize);
        result = vector::FMAOp::create(b, key, splat(value, keySize), result);
      }
    results.push_back(result);
  }
  scf::YieldOp::create(b, results);
  rows.assign(loop.getResults().begin(), loop.getResults().end());
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
    // What a row leaves of a dot product: partial sums, or the number.
    bool inLanes = sumsInLanes(keySize);
    struct Product {
      ReadOp read;
      Value query, scratch;
    };
    SmallVector<Product> products;
    for (ReadOp read : group) {
      b.setLoc(read.getLoc());
      FailureOr<Components> query = headOperand(read.getQuery());
      if (failed(query))
        return failure();
      for (Value component : *query)
        products.push_back(
            {read, component,
             allocateScratch({width, inLanes ? kPartialSums : 1})});
    }
    Value stash;
    if (stashForStore && isCostly(state))
      stash = allocateScratch({width, keySize});
    LogicalResult emitted =
        forRows(state, width, [&](Value local, int64_t count) {
          FailureOr<Rows> rows = emitStateRows(state, local, count);
          if (failed(rows))
            return failure();
          for (auto [i, row] : llvm::enumerate(*rows)) {
            SmallVector<Value, 2> at{
                arith::AddIOp::create(b, local, constantIndex(i)),
                constantIndex(0)};
            if (stash)
              vector::StoreOp::create(b, row, stash, at);
            for (Product &product : products)
              if (inLanes)
                vector::StoreOp::create(b, partialDot(row, product.query),
                                        product.scratch, at);
              else
                memref::StoreOp::create(b, dot(row, product.query),
                                        product.scratch, at);
          }
          return success();
        });
    if (failed(emitted))
      return failure();
    if (stash)
      stashed[state] = stash;
    llvm::MapVector<Value, Components> results;
    for (Product &product : products)
      results[product.read.getResult()].push_back(
          sumRows(product.scratch, constantIndex(0), width));
    for (auto &[result, components] : results)
      setRowValue(result, components);
  }
  return success();
}

LogicalResult Kernel::emitStore(StoreStateOp store, int64_t width) {
  Value tile = tileToScatter(store, width);
  auto storeRows = [&](Value local, int64_t count) {
    FailureOr<Rows> rows = emitStateRows(store.getState(), local, count);
    if (failed(rows))
      return failure();
    for (auto [i, row] : llvm::enumerate(*rows))
      storeRow(store, tile, row, local, static_cast<int64_t>(i));
    return success();
  };
  if (failed(forRows(store.getState(), width, storeRows)))
    return failure();
  if (tile)
    scatterTile(store, tile, width);
  return success();
}

/// Stores row `local` + `offset` of the tile, and returns where it is.
std::pair<Value, SmallVector<Value>> Kernel::storeRow(StoreStateOp store,
                                                      Value tile, Value row,
                                                      Value local,
                                                      int64_t offset) {
  Value zero = constantIndex(0);
  std::pair<Value, SmallVector<Value>> place;
  if (tile)
    place = {tile,
             {arith::AddIOp::create(b, local, constantIndex(offset)), zero}};
  else
    place = {memory[store.getPool()],
             {writeSlot, headIndex(store.getPool().getType().getHeads()),
              rowOfTile(local, offset), zero}};
  storeVector(row, place.first, place.second);
  return place;
}
