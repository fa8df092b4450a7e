//===- BoundedTaylor.cpp - what is left of evicted tokens -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/BoundedKernel.h"

using namespace mlir;
using namespace ladle;

/// n, Σ k, Σ v and Σ |k − mean|² with one token more (Welford).
void BoundedKernel::countEvicted(Value key, Value value) {
  auto part = [&](int64_t which) {
    return SmallVector<Value>{slot, head, index(which)};
  };
  Value before = memref::LoadOp::create(b, spread, part(0));
  Value after = arith::AddFOp::create(b, before, number(1));
  Value sum = load(keySums, {slot, head, index(0)}, keySize);
  Value next = arith::AddFOp::create(b, sum, key);
  auto awayFrom = [&](Value total, Value count) {
    Value share = arith::DivFOp::create(b, number(1), count);
    return arith::SubFOp::create(
        b, key, arith::MulFOp::create(b, total, splat(share, keySize)));
  };
  // The first is its own mean.
  Value some = arith::MaximumFOp::create(b, before, number(1));
  Value isFirst =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, before, number(0));
  Value distance = arith::SelectOp::create(
      b, isFirst, number(0), dot(awayFrom(sum, some), awayFrom(next, after)));
  Value squares = memref::LoadOp::create(b, spread, part(1));
  memref::StoreOp::create(b, arith::AddFOp::create(b, squares, distance),
                          spread, part(1));
  memref::StoreOp::create(b, after, spread, part(0));
  store(next, keySums, {slot, head, index(0)});
  store(arith::AddFOp::create(
            b, load(valueSums, {slot, head, index(0)}, valueSize), value),
        valueSums, {slot, head, index(0)});
}

/// L += Σ k vᵀ over the tokens of a block of keys and values.
void BoundedKernel::addProducts(Value blockKeys, Value blockValues,
                                int64_t tokens) {
  auto rows = scf::ForOp::create(b, index(0), index(keySize), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(rows.getBody());
  Value d = rows.getInductionVar();
  Value sum = load(matrix, {slot, head, d, index(0)}, valueSize);
  for (int64_t j = 0; j < tokens; ++j) {
    Value factor =
        memref::LoadOp::create(b, blockKeys, ValueRange{index(j), d});
    sum = vector::FMAOp::create(
        b, splat(factor, valueSize),
        load(blockValues, {index(j), index(0)}, valueSize), sum);
  }
  store(sum, matrix, {slot, head, d, index(0)});
}

void BoundedKernel::foldEntry(Value victim) {
  Value keyScratch = scratch({1, keySize}),
        valueScratch = scratch({1, valueSize});
  Value key = load(keys, {slot, head, victim, index(0)}, keySize);
  Value value = load(values, {slot, head, victim, index(0)}, valueSize);
  countEvicted(key, value);
  store(key, keyScratch, {index(0), index(0)});
  store(value, valueScratch, {index(0), index(0)});
  addProducts(keyScratch, valueScratch, 1);
}

/// Folds the tokens of a list: entries of the cache, and ~i for token i of the
/// prompt. 16 at a time, so that the matrix is read and rounded as rarely.
LogicalResult BoundedKernel::emitFoldList(AppendOp append) {
  Value keyScratch = scratch({kBlock, keySize});
  Value valueScratch = scratch({kBlock, valueSize});
  auto blocks = scf::ForOp::create(b, index(0), listed, index(kBlock));
  b.setInsertionPointToStart(blocks.getBody());
  auto tokens = scf::ForOp::create(b, index(0), index(kBlock), index(1));
  b.setInsertionPointToStart(tokens.getBody());
  Value j = tokens.getInductionVar();
  Value at = arith::AddIOp::create(b, blocks.getInductionVar(), j);
  auto store2 = [&](Value key, Value value) {
    store(key, keyScratch, {j, index(0)});
    store(value, valueScratch, {j, index(0)});
  };
  auto isThere = scf::IfOp::create(b, isLess(at, listed), /*withElse=*/true);
  b.setInsertionPointToStart(isThere.elseBlock());
  store2(splat(number(0), keySize), splat(number(0), valueSize));
  b.setInsertionPointToStart(isThere.thenBlock());
  Value which = loadIndex(list, {at});
  auto isCached =
      scf::IfOp::create(b,
                        TypeRange{VectorType::get({keySize}, b.getF32Type()),
                                  VectorType::get({valueSize}, b.getF32Type())},
                        isLess(index(-1), which), /*withElse=*/true);
  b.setInsertionPointToStart(isCached.thenBlock());
  scf::YieldOp::create(
      b, ValueRange{load(keys, {slot, head, which, index(0)}, keySize),
                    load(values, {slot, head, which, index(0)}, valueSize)});
  b.setInsertionPointToStart(isCached.elseBlock());
  Value fromEnd = arith::SubIOp::create(b, index(-1), which);
  FailureOr<std::pair<Value, Value>> token =
      promptToken(append, arith::AddIOp::create(b, firstRow, fromEnd));
  if (failed(token))
    return failure();
  scf::YieldOp::create(b, ValueRange{token->first, token->second});
  b.setInsertionPointAfter(isCached);
  store2(isCached.getResult(0), isCached.getResult(1));
  countEvicted(isCached.getResult(0), isCached.getResult(1));
  b.setInsertionPointAfter(tokens);
  addProducts(keyScratch, valueScratch, kBlock);
  b.setInsertionPointAfter(blocks);
  return success();
}

//===----------------------------------------------------------------------===//
// The summary of the evicted
//===----------------------------------------------------------------------===//

LogicalResult BoundedKernel::emitTaylor(TaylorOp op) {
  int64_t size = heads / cacheHeads;
  double limit = op.getLimit().convertToDouble();
  FailureOr<Value> gathered =
      gatherQueries(op.getQuery(), op.getScale().convertToDouble());
  if (failed(gathered))
    return failure();
  Found &result = found[op.getResult()];
  result.sums = scratch({size, 2});
  result.values = scratch({size, valueSize});
  auto part = [&](int64_t which) -> Value {
    return memref::LoadOp::create(b, spread,
                                  ValueRange{slot, head, index(which)});
  };
  Value count = part(0);
  Value share = arith::DivFOp::create(
      b, number(1), arith::MaximumFOp::create(b, count, number(1)));
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, count, number(0));
  Value squares = arith::MulFOp::create(b, part(1), share); // ρ²

  // Without a limit all heads need L, which is then read once.
  Value products;
  if (limit == 0) {
    products = scratch({size, valueSize});
    multiplyRows(size, keySize, *gathered, matrix, {slot, head}, products);
  }
  auto loop = scf::ForOp::create(b, index(0), index(size), index(1));
  b.setInsertionPointToStart(loop.getBody());
  Value g = loop.getInductionVar();
  Value query = load(*gathered, {g, index(0)}, keySize);
  Value mean = arith::MulFOp::create(
      b, dot(query, load(keySums, {slot, head, index(0)}, keySize)), share);
  Value sum = load(valueSums, {slot, head, index(0)}, valueSize);
  auto firstOrder = [&]() -> Value {
    Value start = arith::MulFOp::create(
        b, sum, splat(arith::SubFOp::create(b, number(1), mean), valueSize));
    if (products)
      return arith::AddFOp::create(b, start,
                                   load(products, {g, index(0)}, valueSize));
    auto rows = scf::ForOp::create(b, index(0), index(keySize), index(1),
                                   ValueRange{start});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(rows.getBody());
    Value d = rows.getInductionVar();
    Value factor = memref::LoadOp::create(b, *gathered, ValueRange{g, d});
    scf::YieldOp::create(b,
                         vector::FMAOp::create(
                             b, splat(factor, valueSize),
                             load(matrix, {slot, head, d, index(0)}, valueSize),
                             rows.getRegionIterArg(0))
                             .getResult());
    return rows.getResult(0);
  };
  Value answer;
  if (limit > 0) {
    // Not so where anything is NaN: then the answer is, too.
    Value reach = arith::MulFOp::create(b, dot(query, query), squares);
    Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, reach,
                                        number(limit * limit));
    auto choice = scf::IfOp::create(b, TypeRange{sum.getType()}, isFar,
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(b, sum);
    b.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(b, firstOrder());
    answer = choice.getResult(0);
  } else {
    answer = firstOrder();
  }
  store(answer, result.values, {g, index(0)});
  memref::StoreOp::create(
      b, arith::SelectOp::create(b, isEmpty, number(-INFINITY), mean),
      result.sums, ValueRange{g, index(0)});
  memref::StoreOp::create(b, count, result.sums, ValueRange{g, index(1)});
  b.setInsertionPointAfter(loop);
  return success();
}
