//===- VerifyPaths.cpp - sums along the ancestors of a draft --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A draft walks up to its ancestors with the product of the decays passed so
// far, as a token walks the entries: no logarithm, nothing that overflows.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

/// The columns of scratch memory.
static int64_t columnsOf(Value scratch) {
  return cast<MemRefType>(scratch.getType()).getDimSize(1);
}

SmallVector<Value> VerifyKernel::walkAncestors(
    Value draft, ValueRange initial,
    function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  SmallVector<Value> start{parentOf(draft)};
  llvm::append_range(start, initial);
  SmallVector<Type> types(ValueRange(start).getTypes());
  auto loop = scf::WhileOp::create(
      b, types, start,
      [&](OpBuilder &nested, Location loc, ValueRange arguments) {
        Value zero = constantIndex(0);
        Value goesOn = arith::CmpIOp::create(
            nested, loc, arith::CmpIPredicate::sge, arguments.front(), zero);
        scf::ConditionOp::create(nested, loc, goesOn, arguments);
      },
      [&](OpBuilder &nested, Location loc, ValueRange arguments) {
        OpBuilder::InsertionGuard guard(b);
        b.restoreInsertionPoint(nested.saveInsertionPoint());
        Value ancestor = arguments.front();
        SmallVector<Value> next = body(ancestor, arguments.drop_front());
        next.insert(next.begin(), parentOf(ancestor));
        scf::YieldOp::create(b, loc, next);
      });
  return llvm::to_vector_of<Value>(loop.getResults().drop_front());
}

LogicalResult VerifyKernel::emitPathDecay(PathDecayOp op) {
  FailureOr<Value> decays = findStack(op.getDecays());
  if (failed(decays))
    return failure();
  Value result = scratchOf(op.getResult());
  int64_t width = columnsOf(*decays);
  OpBuilder::InsertionGuard guard(b);
  Value draft = openDrafts().getInductionVar();
  // Ancestors come first, so that the parent's product is there.
  Value one = arith::ConstantOp::create(
      b,
      DenseElementsAttr::get(VectorType::get({width}, b.getF32Type()), 1.0f));
  Value parent = parentOf(draft);
  Value zero = constantIndex(0);
  Value hasParent =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, parent, zero);
  Value from = arith::MaxSIOp::create(b, parent, zero);
  Value before = loadVector(result, {from, zero}, width);
  Value decay = loadVector(*decays, {from, zero}, width);
  Value product = arith::MulFOp::create(b, before, decay);
  vector::StoreOp::create(b,
                          arith::SelectOp::create(b, hasParent, product, one),
                          result, ArrayRef<Value>{draft, zero});
  return success();
}

LogicalResult VerifyKernel::emitPathGram(PathGramOp op) {
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
  int64_t most = shape[1], ranks = shape[2], rankKeys = shape[4];
  int64_t keySize = columnsOf(*keys);
  bool isVector = decays && columnsOf(decays) > 1;
  Value &result = stacks[op.getResult()];
  if (!result)
    result = allocateScratch({most * ranks, most * rankKeys});

  OpBuilder::InsertionGuard guard(b);
  Value draft = openDrafts().getInductionVar(), zero = constantIndex(0);
  SmallVector<Value> vectors, initial;
  for (int64_t r = 0; r < ranks; ++r)
    vectors.push_back(
        loadVector(*queries, {rowOf(draft, ranks, r), zero}, keySize));
  if (isVector)
    initial = vectors;
  else if (decays)
    initial.push_back(arith::ConstantOp::create(b, b.getF32FloatAttr(1.0f)));
  walkAncestors(draft, initial, [&](Value ancestor, ValueRange passed) {
    SmallVector<Value> next;
    for (int64_t k = 0; k < rankKeys; ++k) {
      Value column = rowOf(ancestor, rankKeys, k);
      Value key = loadVector(*keys, {column, zero}, keySize);
      for (int64_t r = 0; r < ranks; ++r) {
        Value weight = dot(isVector ? passed[r] : vectors[r], key);
        if (decays && !isVector)
          weight = arith::MulFOp::create(b, weight, passed[0]);
        memref::StoreOp::create(b, weight, result,
                                ValueRange{rowOf(draft, ranks, r), column});
      }
    }
    if (!decays)
      return next;
    Value decay = isVector ? loadVector(decays, {ancestor, zero}, keySize)
                           : Value(memref::LoadOp::create(
                                 b, decays, ValueRange{ancestor, zero}));
    for (Value value : passed)
      next.push_back(arith::MulFOp::create(b, value, decay));
    return next;
  });
  return success();
}

FailureOr<VerifyKernel::Weighed> VerifyKernel::weigh(Value gram, Value values) {
  FailureOr<Value> weights = findStack(gram), from = findStack(values);
  if (failed(weights) || failed(from))
    return failure();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(gram.getType()).getShape();
  return Weighed{*weights, *from, shape[2], shape[4]};
}

Value VerifyKernel::accumulate(Value draft, int64_t component, Value initial,
                               ArrayRef<Weighed> terms) {
  int64_t width = cast<VectorType>(initial.getType()).getShape().back();
  return walkAncestors(
             draft, initial,
             [&](Value ancestor, ValueRange sums) {
               Value sum = sums.front();
               for (const Weighed &term : terms)
                 for (int64_t k = 0; k < term.keys; ++k) {
                   Value column = rowOf(ancestor, term.keys, k);
                   Value weight = memref::LoadOp::create(
                       b, term.gram,
                       ValueRange{rowOf(draft, term.ranks, component), column});
                   Value value = loadVector(term.values,
                                            {column, constantIndex(0)}, width);
                   sum = vector::FMAOp::create(b, splat(weight, width), value,
                                               sum);
                 }
               return SmallVector<Value>{sum};
             })
      .front();
}

LogicalResult VerifyKernel::emitPathProduct(PathProductOp op) {
  SmallVector<Weighed> terms;
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues())) {
    FailureOr<Weighed> term = weigh(gram, values);
    if (failed(term))
      return failure();
    terms.push_back(*term);
  }
  Value result = scratchOf(op.getResult());
  int64_t rows = rowsOf(op.getResult().getType());
  OpBuilder::InsertionGuard guard(b);
  Value draft = openDrafts().getInductionVar();
  for (int64_t r = 0; r < rows; ++r) {
    Value sum = accumulate(draft, r, zeros(columnsOf(result)), terms);
    vector::StoreOp::create(
        b, sum, result,
        ArrayRef<Value>{rowOf(draft, rows, r), constantIndex(0)});
  }
  return success();
}

LogicalResult VerifyKernel::emitPathSolve(PathSolveOp op) {
  SmallVector<SmallVector<int64_t>> gramsOf(op.getRhs().size());
  for (auto [g, row] : llvm::enumerate(op.getRows()))
    gramsOf[row].push_back(g);
  for (auto [rhs, result, grams] :
       llvm::zip(op.getRhs(), op.getResults(), gramsOf)) {
    FailureOr<Value> from = findStack(rhs);
    if (failed(from))
      return failure();
    // What depends on no other is known.
    if (grams.empty())
      stacks[result] = *from;
    else
      scratchOf(result);
  }
  OpBuilder::InsertionGuard guard(b);
  Value draft = openDrafts().getInductionVar();
  for (auto [rhs, result, grams] :
       llvm::zip(op.getRhs(), op.getResults(), gramsOf)) {
    if (grams.empty())
      continue;
    SmallVector<Weighed> terms;
    for (int64_t g : grams) {
      FailureOr<Weighed> term =
          weigh(op.getGrams()[g], op.getResults()[op.getColumns()[g]]);
      if (failed(term))
        return failure();
      terms.push_back(*term);
    }
    Value into = stacks[result];
    Value scale;
    if (Value of = op.getScale(result.getResultNumber())) {
      FailureOr<Value> known = findStack(of);
      if (failed(known))
        return failure();
      scale = *known;
    }
    int64_t rows = rowsOf(result.getType()), width = columnsOf(into);
    for (int64_t r = 0; r < rows; ++r) {
      SmallVector<Value> at{rowOf(draft, rows, r), constantIndex(0)};
      Value known = loadVector(stacks[rhs], at, width), sum;
      if (scale)
        sum = vector::FMAOp::create(b, loadVector(scale, at, width),
                                    accumulate(draft, r, zeros(width), terms),
                                    known);
      else
        sum = accumulate(draft, r, known, terms);
      vector::StoreOp::create(b, sum, into, at);
    }
  }
  return success();
}
