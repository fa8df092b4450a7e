//===- VerifyReads.cpp - states and entries read with stacks --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/ScheduleInfo.h"
#include "passes/cpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

LogicalResult VerifyKernel::emitRead(ReadOp op) {
  Value state = op.getState();
  if (!passed.insert(state).second)
    return success();
  // A state that is stored and loaded again is passed over once.
  if (auto load = state.getDefiningOp<LoadStateOp>())
    for (Operation *user : load.getPool().getUsers())
      if (auto store = dyn_cast<StoreStateOp>(user);
          store && store->isBeforeInBlock(load))
        return passOver(state, store);
  return passOver(state, {});
}

/// Reads the rows of a state with all vectors that any operation reads it with.
/// If there is a `store`, the rows are those that it stores, rounded as the
/// pool keeps them.
LogicalResult VerifyKernel::passOver(Value state, StoreStateOp store) {
  Value source = store ? store.getState() : state;
  auto type = cast<StateType>(state.getType());
  int64_t tileRows = step->getAttrOfType<IntegerAttr>(kTileRowsAttr).getInt();
  tileRows = std::min(tileRows, type.getValueSize());
  bool inLanes = sumsInLanes(type.getKeySize());
  int64_t lanes = inLanes ? kPartialSums : 1;
  struct Product {
    Value queries, partials, result, count;
  };
  SmallVector<Product> products;
  for (Operation &op : step.getBody().front()) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read || read.getState() != state)
      continue;
    FailureOr<Value> queries = findStack(read.getQuery());
    if (failed(queries))
      return failure();
    int64_t rows = rowsOf(read.getQuery().getType());
    int64_t most = read.getQuery().getType().getDimSize(1);
    products.push_back(
        {*queries, allocateScratch({most * rows * tileRows, lanes}),
         scratchOf(read.getResult()), rowOf(draftCount, rows, 0)});
  }

  auto emitTileOf = [&](Value start, int64_t width) -> LogicalResult {
    tileStart = start;
    tileWidth = width;
    Value zero = constantIndex(0);
    stashed.clear();
    gatherTile(source, width);
    Value tile = store ? tileToScatter(store, width) : Value();
    auto multiply = [&](Value local, int64_t count) -> LogicalResult {
      FailureOr<Rows> rows = emitStateRows(source, local, count);
      if (failed(rows))
        return failure();
      for (auto [i, each] : llvm::enumerate(*rows)) {
        if (!store)
          break;
        auto [place, at] =
            storeRow(store, tile, each, local, static_cast<int64_t>(i));
        if (!type.getElementType().isF32())
          each = loadVector(place, at, type.getKeySize());
      }
      for (const Product &product : products) {
        OpBuilder::InsertionGuard guard(b);
        auto loop =
            scf::ForOp::create(b, zero, product.count, constantIndex(1));
        b.setInsertionPointToStart(loop.getBody());
        Value n = loop.getInductionVar();
        Value query = loadVector(product.queries, {n, zero}, type.getKeySize());
        Value first = arith::AddIOp::create(
            b, arith::MulIOp::create(b, n, constantIndex(width)), local);
        for (auto [i, each] : llvm::enumerate(*rows)) {
          SmallVector<Value> at{
              arith::AddIOp::create(b, first, constantIndex(i)), zero};
          if (inLanes)
            vector::StoreOp::create(b, partialDot(each, query),
                                    product.partials, at);
          else
            memref::StoreOp::create(b, dot(each, query), product.partials, at);
        }
      }
      return success();
    };
    if (failed(forRows(source, width, multiply, /*severalAtOnce=*/true)))
      return failure();
    if (tile)
      scatterTile(store, tile, width);
    for (const Product &product : products) {
      OpBuilder::InsertionGuard guard(b);
      auto loop = scf::ForOp::create(b, zero, product.count, constantIndex(1));
      b.setInsertionPointToStart(loop.getBody());
      Value n = loop.getInductionVar();
      Value first = arith::MulIOp::create(b, n, constantIndex(width));
      vector::StoreOp::create(b, sumRows(product.partials, first, width),
                              product.result, ArrayRef<Value>{n, start});
    }
    return success();
  };
  int64_t whole = type.getValueSize() / tileRows * tileRows;
  {
    OpBuilder::InsertionGuard guard(b);
    auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(whole),
                                   constantIndex(tileRows));
    b.setInsertionPointToStart(loop.getBody());
    if (failed(emitTileOf(loop.getInductionVar(), tileRows)))
      return failure();
  }
  if (whole == type.getValueSize())
    return success();
  return emitTileOf(constantIndex(whole), type.getValueSize() - whole);
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

LogicalResult VerifyKernel::emitStackedReads(ReadBufferOp op) {
  Gathered entries = gatherEntries(op);
  int64_t keySize = cast<MemRefType>(entries.keys.getType()).getDimSize(1);
  int64_t valueSize = cast<MemRefType>(entries.values.getType()).getDimSize(1);
  Value zero = constantIndex(0), one = constantIndex(1);
  for (auto [query, result] : llvm::zip(op.getQueries(), op.getResults())) {
    FailureOr<Value> queries = findStack(query);
    if (failed(queries))
      return failure();
    Value into = scratchOf(result);
    OpBuilder::InsertionGuard guard(b);
    auto loop = scf::ForOp::create(
        b, zero, rowOf(draftCount, rowsOf(query.getType()), 0), one);
    b.setInsertionPointToStart(loop.getBody());
    Value n = loop.getInductionVar();
    Value vector = loadVector(*queries, {n, zero}, keySize);
    auto sum = scf::ForOp::create(b, zero, entries.count, one,
                                  ValueRange{zeros(valueSize)});
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(sum.getBody());
      Value at = sum.getInductionVar();
      Value weight = dot(vector, loadVector(entries.keys, {at, zero}, keySize));
      Value value = loadVector(entries.values, {at, zero}, valueSize);
      scf::YieldOp::create(
          b, Value(vector::FMAOp::create(b, splat(weight, valueSize), value,
                                         sum.getRegionIterArg(0))));
    }
    vector::StoreOp::create(b, sum.getResult(0), into,
                            ArrayRef<Value>{n, zero});
  }
  return success();
}
