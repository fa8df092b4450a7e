//===- VerifyPaths.cpp - sums along ancestors in a GPU kernel -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Ancestors come before their descendants, so that whoever goes from a draft
// backwards meets them in the order of the path. Those that are none are left
// out by a selection: what a sibling has of them may be no number.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

GpuVerifyKernel::Weighed GpuVerifyKernel::weigh(Value gram, Value values) {
  ArrayRef<int64_t> shape = typeOf(gram).getShape();
  return {grams.lookup(canonical(gram)), values, shape[2], shape[4]};
}

/// Row `row` of Gram products times the values of the ancestors.
Value GpuVerifyKernel::addPath(int64_t row, Value initial,
                               ArrayRef<Weighed> terms,
                               function_ref<Value(Value, int64_t)> at) {
  Value sum = initial;
  int64_t draft = row / terms.front().ranks;
  if (draft == 0)
    return sum;
  Value mask = maskOf(constantIndex(draft));
  SmallVector<Value> isMine;
  for (int64_t ancestor = 0; ancestor < draft; ++ancestor)
    isMine.push_back(isAncestor(mask, constantIndex(ancestor)));
  for (const Weighed &term : terms) {
    Value some;
    for (int64_t i = 0; i < draft * term.keys; ++i) {
      // Four at a time, as they lie.
      if (i % 4 == 0)
        some = vector::LoadOp::create(
            b, VectorType::get({4}, b.getF32Type()), term.gram,
            ValueRange{constantIndex(row), constantIndex(i)});
      Value weight = vector::ExtractOp::create(b, some, i % 4);
      Value more = math::FmaOp::create(b, weight, at(term.values, i), sum);
      sum = arith::SelectOp::create(b, isMine[i / term.keys], more, sum);
    }
  }
  return sum;
}

/// The same along dk: a thread takes columns, and each draft its ancestors'.
void GpuVerifyKernel::addPathsOfTeam(ArrayRef<TeamSum> all) {
  for (const TeamSum &one : all)
    written.insert(one.into.memory);
  auto columns =
      scf::ForOp::create(b, thread, constantIndex(all.front().into.size),
                         constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(columns.getBody());
  Value column = columns.getInductionVar();
  auto loop =
      scf::ForOp::create(b, constantIndex(0), draftCount, constantIndex(1));
  b.setInsertionPointToStart(loop.getBody());
  Value draft = loop.getInductionVar(), mask = maskOf(draft);
  for (const TeamSum &one : all)
    addPathOfTeam(one, draft, mask, column);
}

void GpuVerifyKernel::addPathOfTeam(const TeamSum &one, Value draft, Value mask,
                                    Value column) {
  int64_t ranks = one.into.components;
  Value first = arith::MulIOp::create(b, draft, constantIndex(ranks));
  SmallVector<Value> sums;
  for (int64_t r = 0; r < ranks; ++r)
    sums.push_back(
        one.initial
            ? Value(memref::LoadOp::create(
                  b, one.initial->memory,
                  ValueRange{add(first, one.initial->first + r), column}))
            : constantFloat(0));
  auto walk =
      scf::ForOp::create(b, constantIndex(0), draft, constantIndex(1), sums);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(walk.getBody());
    Value ancestor = walk.getInductionVar();
    Value isMine = isAncestor(mask, ancestor);
    SmallVector<Value> next(walk.getRegionIterArgs());
    for (const Weighed &term : one.terms) {
      Stack values = teamOf(term.values);
      for (int64_t k = 0; k < term.keys; ++k) {
        Value at = add(
            arith::MulIOp::create(b, ancestor, constantIndex(term.keys)), k);
        Value value = memref::LoadOp::create(
            b, values.memory, ValueRange{add(at, values.first), column});
        for (int64_t r = 0; r < ranks; ++r) {
          Value weight = memref::LoadOp::create(b, term.gram,
                                                ValueRange{add(first, r), at});
          Value more = math::FmaOp::create(b, weight, value, next[r]);
          next[r] = arith::SelectOp::create(b, isMine, more, next[r]);
        }
      }
    }
    scf::YieldOp::create(b, next);
  }
  for (int64_t r = 0; r < ranks; ++r)
    memref::StoreOp::create(b, walk.getResult(r), one.into.memory,
                            ValueRange{add(first, one.into.first + r), column});
}

LogicalResult GpuVerifyKernel::emitPathSolve(PathSolveOp op, bool ofRows) {
  scaleGrams(std::exchange(unscaledGrams, {}));
  SmallVector<SmallVector<Weighed>> terms(op.getRhs().size());
  for (auto [g, row] : llvm::enumerate(op.getRows())) {
    if (!grams.contains(canonical(op.getGrams()[g])))
      return op.emitError("cannot be lowered for GPUs: its Gram products are "
                          "not those of drafts");
    terms[row].push_back(
        weigh(op.getGrams()[g], op.getResult(op.getColumns()[g])));
  }
  if (!ofRows) {
    assert(op.getScales().empty() && "channels of values are along rows");
    sync();
    SmallVector<TeamSum> sums;
    for (auto [rhs, result, ofResult] :
         llvm::zip(op.getRhs(), op.getResults(), terms))
      sums.push_back({ofResult, teamOf(rhs), teamOf(result)});
    addPathsOfTeam(sums);
    return success();
  }
  SmallVector<Components> known, scales(op.getRhs().size());
  for (Value rhs : op.getRhs()) {
    FailureOr<Components> all = rowsOf(rhs);
    if (failed(all))
      return failure();
    known.push_back(*all);
  }
  for (auto [scale, row] : llvm::zip(op.getScales(), op.getScaled())) {
    FailureOr<Components> all = rowsOf(scale);
    if (failed(all))
      return failure();
    scales[static_cast<size_t>(row)] = *all;
  }
  sync();
  DenseMap<Value, Components> solved;
  for (auto [result, all] : llvm::zip(op.getResults(), known))
    solved[result] = all;
  for (int64_t draft = 0; draft < most(); ++draft)
    for (auto [result, mine, scale] :
         llvm::zip(op.getResults(), terms, scales)) {
      if (mine.empty())
        continue;
      Components &all = solved[result];
      int64_t ranks = static_cast<int64_t>(all.size()) / most();
      auto at = [&](Value values, int64_t i) { return solved[values][i]; };
      for (int64_t r = draft * ranks; r < (draft + 1) * ranks; ++r)
        if (scale.empty())
          all[r] = addPath(r, all[r], mine, at);
        else if (draft > 0)
          all[r] = math::FmaOp::create(
              b, scale[r], addPath(r, constantFloat(0), mine, at), all[r]);
    }
  for (auto &[result, all] : solved)
    rowStacks[canonical(result)] = all;
  return success();
}

LogicalResult GpuVerifyKernel::emitPathProduct(PathProductOp op, bool ofRows) {
  scaleGrams(std::exchange(unscaledGrams, {}));
  SmallVector<Weighed> terms;
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues())) {
    if (!grams.contains(canonical(gram)))
      return op.emitError("cannot be lowered for GPUs: its Gram products are "
                          "not those of drafts");
    terms.push_back(weigh(gram, values));
  }
  if (!ofRows) {
    sync();
    addPathsOfTeam(TeamSum{terms, {}, teamOf(op.getResult())});
    return success();
  }
  DenseMap<Value, Components> known;
  for (Value values : op.getValues()) {
    FailureOr<Components> all = rowsOf(values);
    if (failed(all))
      return failure();
    known[values] = *all;
  }
  sync();
  Components result;
  int64_t rows = most() * componentCount(unstackType(typeOf(op.getResult())));
  for (int64_t row = 0; row < rows; ++row)
    result.push_back(
        addPath(row, constantFloat(0), terms,
                [&](Value values, int64_t i) { return known[values][i]; }));
  rowStacks[canonical(op.getResult())] = result;
  return success();
}
