//===- BoundedSegments.cpp - segments that are folded, and recalled -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/BoundedKernel.h"

using namespace mlir;
using namespace ladle;

/// M ← γ M + Σ f(k) vᵀ and z ← γ z + Σ f(k). The sums are of f32 and rounded
/// once, whatever M is stored in.
LogicalResult BoundedKernel::emitFold(FoldFromOp op) {
  int64_t size = memoryType.getKeySize();
  Value sumScratch = scratch({size});
  Value matrixScratch = scratch({size, valueSize});
  auto wanted = scf::IfOp::create(b, isLess(folded[0], folded[1]));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(wanted.thenBlock());

  auto forRows = [&](auto body) {
    auto loop = scf::ForOp::create(b, index(0), index(size), index(1));
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  };
  // Where nothing has been folded memory may hold anything.
  double decay = op.getDecay().convertToDouble();
  auto decayed = [&](Value vector, int64_t width) {
    return decay == 1 ? vector
                      : Value(arith::MulFOp::create(
                            b, vector, splat(number(decay), width)));
  };
  auto choice = scf::IfOp::create(b, isLess(index(0), isFirst),
                                  /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(choice.thenBlock());
    store(splat(number(0), size), sumScratch, index(0));
    forRows([&](Value c) {
      store(splat(number(0), valueSize), matrixScratch, {c, index(0)});
    });
    b.setInsertionPointToStart(choice.elseBlock());
    store(decayed(load(featureSums, {slot, head, index(0)}, size), size),
          sumScratch, index(0));
    forRows([&](Value c) {
      Value before = load(matrix, {slot, head, c, index(0)}, valueSize);
      store(decayed(before, valueSize), matrixScratch, {c, index(0)});
    });
  }

  Value runs = scratch({2, 2}, b.getIndexType());
  for (auto [i, bound] : llvm::enumerate(folded))
    memref::StoreOp::create(b, bound, runs,
                            ValueRange{index(i / 2), index(i % 2)});
  auto each = scf::ForOp::create(b, index(0), index(2), index(1));
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(each.getBody());
    auto bound = [&](int64_t which) -> Value {
      return memref::LoadOp::create(
          b, runs, ValueRange{each.getInductionVar(), index(which)});
    };
    Value begin = bound(0), end = bound(1);
    auto blocks = scf::ForOp::create(b, begin, end, index(kBlock));
    b.setInsertionPointToStart(blocks.getBody());
    if (failed(foldBlock(op, blocks.getInductionVar(), end, matrixScratch,
                         sumScratch)))
      return failure();
  }
  store(load(sumScratch, index(0), size), featureSums, {slot, head, index(0)});
  forRows([&](Value c) {
    store(load(matrixScratch, {c, index(0)}, valueSize), matrix,
          {slot, head, c, index(0)});
  });
  return success();
}

/// Adds the tokens of a block, one after another.
LogicalResult BoundedKernel::foldBlock(FoldFromOp op, Value block, Value end,
                                       Value matrixScratch, Value sumScratch) {
  int64_t size = memoryType.getKeySize();
  Value features = scratch({kBlock, size});
  Value blockValues = scratch({kBlock, valueSize});
  auto tokens = scf::ForOp::create(b, index(0), index(kBlock), index(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(tokens.getBody());
    Scope scope(*this);
    Value j = tokens.getInductionVar();
    Value at = arith::AddIOp::create(b, block, j);
    Value isThere = isLess(at, end);
    // Behind the last token it is the last again, which then counts for
    // nothing.
    at = minimum(at, arith::SubIOp::create(b, end, index(1)));
    Region &region = op.getFeature();
    evaluated.back()[region.getArgument(0)] =
        load(keys, {slot, head, at, index(0)}, keySize);
    FailureOr<Value> feature =
        element(cast<YieldOp>(region.front().back()).getOperand(0));
    if (failed(feature))
      return failure();
    Value counted =
        arith::SelectOp::create(b, isThere, *feature, splat(number(0), size));
    store(counted, features, {j, index(0)});
    store(arith::AddFOp::create(b, load(sumScratch, index(0), size), counted),
          sumScratch, index(0));
    store(load(values, {slot, head, at, index(0)}, valueSize), blockValues,
          {j, index(0)});
  }
  auto rows = scf::ForOp::create(b, index(0), index(size), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(rows.getBody());
  Value c = rows.getInductionVar();
  Value total = load(matrixScratch, {c, index(0)}, valueSize);
  for (int64_t j = 0; j < kBlock; ++j) {
    Value feature =
        memref::LoadOp::create(b, features, ValueRange{index(j), c});
    total = vector::FMAOp::create(
        b, splat(feature, valueSize),
        load(blockValues, {index(j), index(0)}, valueSize), total);
  }
  store(total, matrixScratch, {c, index(0)});
  return success();
}

/// f Mᵀ / (f·z) for each head of the group; M is read once. Before the first
/// fold there is nothing in it, not even zeros.
LogicalResult BoundedKernel::emitRecall(RecallOp op) {
  int64_t size = memoryType.getKeySize(), count = heads / cacheHeads;
  Value recalled = scratch({count, valueSize});
  found[op.getResult()].values = recalled;
  FailureOr<Value> features = gatherQueries(op.getQuery(), 1);
  if (failed(features))
    return failure();
  auto forGroup = [&](auto body) {
    auto loop = scf::ForOp::create(b, index(0), index(count), index(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  };
  auto wanted = scf::IfOp::create(b, isLess(index(0), holds),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  auto place = [&](Value at) { return SmallVector<Value>{slot, head, at}; };
  TokenRows rows{keys, values, place, {}};
  b.setInsertionPointToStart(wanted.elseBlock());
  prefetchFirst(rows, firstKept());
  forGroup([&](Value g) {
    store(splat(number(0), valueSize), recalled, {g, index(0)});
  });
  b.setInsertionPointToStart(wanted.thenBlock());
  Value first = firstKept();
  multiplyRows(count, size, *features, matrix, {slot, head}, recalled,
               [&](Value c, bool isFirst) {
                 if (isFirst)
                   prefetchRest(c);
                 else
                   prefetchFirst(rows, first, c, size);
               });
  forGroup([&](Value g) {
    Value weight = dot(load(*features, {g, index(0)}, size),
                       load(featureSums, {slot, head, index(0)}, size));
    Value isNothing =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, weight, number(0));
    Value inverse = arith::DivFOp::create(
        b, number(1), arith::SelectOp::create(b, isNothing, number(1), weight));
    store(arith::MulFOp::create(b, load(recalled, {g, index(0)}, valueSize),
                                splat(inverse, valueSize)),
          recalled, {g, index(0)});
  });
  return success();
}
