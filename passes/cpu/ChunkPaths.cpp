//===- ChunkPaths.cpp - sums along the chain of a chunk -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What a token takes from those before it is a product of matrices that are
// lower triangular. Decays between two tokens are products, of which none is
// larger than the decays themselves: no logarithm and no quotient, so that
// nothing overflows and a decay of 0 needs no special case. Numbers fill a
// matrix row by row. Vectors are split at the first token of each sub-block:
// the queries of the sub-block take what follows its start, the keys before it
// what precedes.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static int64_t columnsOf(Value scratch) {
  return cast<MemRefType>(scratch.getType()).getDimSize(1);
}

static int64_t rowCountOf(Value scratch) {
  return cast<MemRefType>(scratch.getType()).getDimSize(0);
}

static Value ones(ImplicitLocOpBuilder &b, int64_t width) {
  return arith::ConstantOp::create(
      b,
      DenseElementsAttr::get(VectorType::get({width}, b.getF32Type()), 1.0f));
}

//===----------------------------------------------------------------------===//
// Gram products
//===----------------------------------------------------------------------===//

/// A row of `from` becomes a column of `into`.
void ChunkKernel::transposeInto(Value from, Value fromRow, Value into,
                                Value intoColumn) {
  OpBuilder::InsertionGuard guard(b);
  Value c = openLoop(constantIndex(0), constantIndex(columnsOf(from)));
  Value element = memref::LoadOp::create(b, from, ValueRange{fromRow, c});
  memref::StoreOp::create(b, element, into, ValueRange{c, intoColumn});
}

Value ChunkKernel::transposeKeys(Value keys) {
  Value scratch = stacks.lookup(keys);
  Value &result = transposed[keys];
  if (result)
    return result;
  result = allocateScratch({columnsOf(scratch), rowCountOf(scratch)});
  OpBuilder::InsertionGuard guard(b);
  Value row = openLoop(constantIndex(0), times(roundUp(draftCount, kStackRows),
                                               rowsOf(keys.getType())));
  transposeInto(scratch, row, result, row);
  return result;
}

Value ChunkKernel::maskOf(Value decays, int64_t rankKeys) {
  Value &mask = masks[{decays, rankKeys}];
  if (mask)
    return mask;
  int64_t most =
      roomFor(cast<DraftsType>(step.getDrafts().getType()).getMost());
  int64_t width = most * rankKeys;
  mask = allocateScratch({most, width});
  Value from = decays ? stacks.lookup(decays) : Value();
  Value zero = constantIndex(0), one = constantIndex(1);
  // Row s is row s − 1 times the decay of s − 1, and 1 for s − 1 itself.
  auto loop = scf::ForOp::create(b, zero, roundUp(draftCount, kStackRows), one,
                                 zeros(width));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value token = loop.getInductionVar(), current = loop.getRegionIterArg(0);
  vector::StoreOp::create(b, current, mask, ArrayRef<Value>{token, zero});
  if (from)
    current = arith::MulFOp::create(
        b, current,
        splat(memref::LoadOp::create(b, from, ValueRange{token, zero}), width));
  Value line = allocateScratch({1, width});
  vector::StoreOp::create(b, current, line, ArrayRef<Value>{zero, zero});
  vector::StoreOp::create(b, ones(b, rankKeys), line,
                          ArrayRef<Value>{zero, times(token, rankKeys)});
  scf::YieldOp::create(b, loadVector(line, {zero, zero}, width));
  return mask;
}

LogicalResult ChunkKernel::emitPathGram(PathGramOp op) {
  FailureOr<Value> queries = findStack(op.getQueries());
  FailureOr<Value> keys = findStack(op.getKeys());
  if (failed(queries) || failed(keys))
    return failure();
  Value decays;
  if (op.getDecays()) {
    FailureOr<Value> found = findStack(op.getDecays());
    if (failed(found))
      return failure();
    decays = *found;
  }
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  int64_t room = roomFor(shape[1]), ranks = shape[2], rankKeys = shape[4];
  Value &result = stacks[op.getResult()];
  if (!result)
    result = allocateScratch({room * ranks, room * rankKeys});
  if (decays &&
      cast<RankedTensorType>(op.getDecays().getType()).getRank() > 2) {
    emitVectorGram(op, *queries, *keys, decays, result);
    return success();
  }
  Value mask = maskOf(op.getDecays(), rankKeys);
  Value right = transposeKeys(op.getKeys());
  Value into = result;
  Product product;
  product.firstRow = constantIndex(0);
  product.endRow = rowsOfTokens(ranks);
  auto tokenOf = [&](Value row) -> Value {
    return ranks == 1
               ? row
               : Value(arith::DivUIOp::create(b, row, constantIndex(ranks)));
  };
  product.columns = [&](Value row) {
    Value last = tokenOf(plus(row, kBlockRows - 1));
    return roundUp(times(plus(last, 1), rankKeys), kBlockColumns);
  };
  product.factors = [&](Value) -> SmallVector<Factor> {
    return {{elementsOf(*queries), right, constantIndex(columnsOf(*keys))}};
  };
  product.finish = [&](Value row, Value column, Value sums) {
    Value weights = loadVector(mask, {tokenOf(row), column}, kBlockColumns);
    storesInto(into)(row, column, arith::MulFOp::create(b, sums, weights));
  };
  emitProduct(product);
  return success();
}

/// Pairs of tokens from `first` to `last`, one by one.
void ChunkKernel::emitPairs(Value first, Value last, int64_t ranks,
                            int64_t rankKeys, Value queries, Value keys,
                            Value decays, Value result) {
  Value zero = constantIndex(0);
  int64_t keySize = columnsOf(keys);
  OpBuilder::InsertionGuard guard(b);
  {
    OpBuilder::InsertionGuard inner(b);
    Value row =
        openLoop(times(first, ranks), times(plus(first, kSubBlock), ranks));
    vector::StoreOp::create(b, zeros(kSubBlock * rankKeys), result,
                            ArrayRef<Value>{row, times(first, rankKeys)});
  }
  Value token = openLoop(first, last);
  SmallVector<Value> vectors;
  for (int64_t r = 0; r < ranks; ++r)
    vectors.push_back(
        loadVector(queries, {rowOf(token, ranks, r), zero}, keySize));
  auto walk =
      scf::ForOp::create(b, zero, arith::SubIOp::create(b, token, first),
                         constantIndex(1), vectors);
  b.setInsertionPointToStart(walk.getBody());
  Value back = plus(walk.getInductionVar(), 1);
  Value ancestor = arith::SubIOp::create(b, token, back);
  Value decay = loadVector(decays, {ancestor, zero}, keySize);
  SmallVector<Value> next;
  for (int64_t k = 0; k < rankKeys; ++k) {
    Value column = rowOf(ancestor, rankKeys, k);
    Value key = loadVector(keys, {column, zero}, keySize);
    for (auto [r, vector] : llvm::enumerate(walk.getRegionIterArgs()))
      memref::StoreOp::create(
          b, dot(vector, key), result,
          ValueRange{rowOf(token, ranks, static_cast<int64_t>(r)), column});
  }
  for (Value vector : walk.getRegionIterArgs())
    next.push_back(arith::MulFOp::create(b, vector, decay));
  scf::YieldOp::create(b, next);
}

/// A decay for each channel. With f the first token of a sub-block,
///   w[s, a] = (Π_{f ≤ j < s} γ_j) (Π_{a < j < f} γ_j)
/// for a before the sub-block: the queries take the first part, the keys carry
/// the second along from one sub-block to the next.
void ChunkKernel::emitVectorGram(PathGramOp op, Value queries, Value keys,
                                 Value decays, Value result) {
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  int64_t ranks = shape[2], rankKeys = shape[4], keySize = columnsOf(keys);
  Value zero = constantIndex(0), one = constantIndex(1);
  Value scaled = allocateScratch({kSubBlock * ranks, keySize});
  Value earlier = allocateScratch({keySize, rowCountOf(keys)});
  Value line = allocateScratch({1, keySize});
  OpBuilder::InsertionGuard guard(b);
  Value first = openLoop(zero, draftCount, kSubBlock);
  Value last = smaller(plus(first, kSubBlock), draftCount);

  auto walk = scf::ForOp::create(b, zero, constantIndex(kSubBlock), one,
                                 ones(b, keySize));
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(walk.getBody());
    Value i = walk.getInductionVar(), path = walk.getRegionIterArg(0);
    Value token = arith::AddIOp::create(b, first, i);
    for (int64_t r = 0; r < ranks; ++r) {
      Value query =
          loadVector(queries, {rowOf(token, ranks, r), zero}, keySize);
      vector::StoreOp::create(b, arith::MulFOp::create(b, query, path), scaled,
                              ArrayRef<Value>{rowOf(i, ranks, r), zero});
    }
    Value decay = loadVector(decays, {token, zero}, keySize);
    scf::YieldOp::create(b, Value(arith::MulFOp::create(b, path, decay)));
  }
  Product product;
  product.firstRow = zero;
  product.endRow = constantIndex(kSubBlock * ranks);
  product.columns = [&](Value) {
    return roundUp(times(first, rankKeys), kBlockColumns);
  };
  product.factors = [&](Value) -> SmallVector<Factor> {
    return {{elementsOf(scaled), earlier, constantIndex(keySize)}};
  };
  product.finish = [&](Value row, Value column, Value sums) {
    Value into = arith::AddIOp::create(b, times(first, ranks), row);
    storesInto(result)(into, column, sums);
  };
  emitProduct(product);
  emitPairs(first, last, ranks, rankKeys, queries, keys, decays, result);

  // Keys before the sub-block pass it; those of it wait for the next.
  vector::StoreOp::create(b, walk.getResult(0), line,
                          ArrayRef<Value>{zero, zero});
  {
    OpBuilder::InsertionGuard inner(b);
    Value c = openLoop(zero, constantIndex(keySize));
    Value decay =
        splat(memref::LoadOp::create(b, line, ValueRange{zero, c}), kSubBlock);
    Value column = openLoop(zero, times(first, rankKeys), kSubBlock);
    Value before = loadVector(earlier, {c, column}, kSubBlock);
    vector::StoreOp::create(b, arith::MulFOp::create(b, before, decay), earlier,
                            ArrayRef<Value>{c, column});
  }
  auto back = scf::ForOp::create(b, zero, arith::SubIOp::create(b, last, first),
                                 one, ones(b, keySize));
  b.setInsertionPointToStart(back.getBody());
  Value after = back.getRegionIterArg(0);
  Value token = arith::SubIOp::create(b, last, plus(back.getInductionVar(), 1));
  for (int64_t k = 0; k < rankKeys; ++k) {
    Value row = rowOf(token, rankKeys, k);
    Value key = loadVector(keys, {row, zero}, keySize);
    vector::StoreOp::create(b, arith::MulFOp::create(b, key, after), line,
                            ArrayRef<Value>{zero, zero});
    transposeInto(line, zero, earlier, row);
  }
  Value decay = loadVector(decays, {token, zero}, keySize);
  scf::YieldOp::create(b, Value(arith::MulFOp::create(b, after, decay)));
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

LogicalResult ChunkKernel::emitPathProduct(PathProductOp op) {
  SmallVector<Weighed> terms;
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues())) {
    FailureOr<Weighed> term = weigh(gram, values);
    if (failed(term))
      return failure();
    terms.push_back(*term);
  }
  Value result = scratchOf(op.getResult());
  int64_t ranks = rowsOf(op.getResult().getType());
  Product product;
  product.firstRow = constantIndex(0);
  product.endRow = rowsOfTokens(ranks);
  product.width = columnsOf(result);
  product.factors = [&](Value row) {
    Value last = plus(row, kBlockRows - 1);
    if (ranks > 1)
      last = arith::DivUIOp::create(b, last, constantIndex(ranks));
    SmallVector<Factor> factors;
    for (const Weighed &term : terms)
      factors.push_back(
          {elementsOf(term.gram), term.values, times(last, term.keys)});
    return factors;
  };
  product.finish = storesInto(result);
  emitProduct(product);
  return success();
}

/// Substitution within a sub-block, whose rows hold what the tokens before it
/// give.
void ChunkKernel::solveBlock(PathSolveOp op,
                             ArrayRef<SmallVector<Weighed>> terms, Value first,
                             Value last) {
  OpBuilder::InsertionGuard guard(b);
  Value token = openLoop(first, last);
  for (auto [result, list] : llvm::zip(op.getResults(), terms)) {
    if (list.empty())
      continue;
    Value into = stacks[result];
    int64_t rows = rowsOf(result.getType()), width = columnsOf(into);
    for (int64_t r = 0; r < rows; ++r) {
      Value row = rowOf(token, rows, r);
      SmallVector<Value> at{row, constantIndex(0)};
      // What the ancestors give is scaled as a whole, and so lies there alone.
      Value scale = op.getScale(result.getResultNumber());
      auto sum = scf::ForOp::create(b, first, token, constantIndex(1),
                                    ValueRange{loadVector(into, at, width)});
      {
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPointToStart(sum.getBody());
        Value total = sum.getRegionIterArg(0);
        for (const Weighed &term : list)
          for (int64_t k = 0; k < term.keys; ++k) {
            Value column = rowOf(sum.getInductionVar(), term.keys, k);
            Value weight =
                memref::LoadOp::create(b, term.gram, ValueRange{row, column});
            Value value =
                loadVector(term.values, {column, constantIndex(0)}, width);
            total =
                vector::FMAOp::create(b, splat(weight, width), value, total);
          }
        scf::YieldOp::create(b, total);
      }
      Value solved = sum.getResult(0);
      if (scale)
        solved = vector::FMAOp::create(
            b, loadVector(stacks[scale], at, width), solved,
            loadVector(stacks[op.getRhs()[result.getResultNumber()]], at,
                       width));
      vector::StoreOp::create(b, solved, into, at);
    }
  }
}

LogicalResult ChunkKernel::emitPathSolve(PathSolveOp op) {
  for (auto [i, pair] :
       llvm::enumerate(llvm::zip(op.getRhs(), op.getResults()))) {
    auto [rhs, result] = pair;
    FailureOr<Value> from = findStack(rhs);
    Value scale = op.getScale(i);
    if (failed(from) || (scale && failed(findStack(scale))))
      return failure();
    // What depends on no other is known.
    if (!llvm::is_contained(op.getRows(), static_cast<int64_t>(i)))
      stacks[result] = *from;
    else
      scratchOf(result);
  }
  SmallVector<SmallVector<Weighed>> terms(op.getRhs().size());
  for (auto [g, row] : llvm::enumerate(op.getRows())) {
    FailureOr<Weighed> term =
        weigh(op.getGrams()[g], op.getResults()[op.getColumns()[g]]);
    if (failed(term))
      return failure();
    terms[row].push_back(*term);
  }
  OpBuilder::InsertionGuard guard(b);
  Value first = openLoop(constantIndex(0), draftCount, kSubBlock);
  for (auto [rhs, result, list] :
       llvm::zip(op.getRhs(), op.getResults(), terms)) {
    if (list.empty())
      continue;
    Value from = stacks[rhs], into = stacks[result];
    int64_t rows = rowsOf(result.getType());
    Product product;
    product.firstRow = times(first, rows);
    product.endRow = times(plus(first, kSubBlock), rows);
    product.width = columnsOf(into);
    if (!op.getScale(result.getResultNumber()))
      product.start = [&](Value row, Value column, int64_t width) {
        return loadVector(from, {row, column}, width);
      };
    product.factors = [&](Value) {
      SmallVector<Factor> factors;
      for (const Weighed &term : list)
        factors.push_back(
            {elementsOf(term.gram), term.values, times(first, term.keys)});
      return factors;
    };
    product.finish = storesInto(into);
    emitProduct(product);
  }
  solveBlock(op, terms, first, smaller(plus(first, kSubBlock), draftCount));
  return success();
}
