//===- AttentionSummaries.cpp - what is done with summaries ---------------===//
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
#include "passes/cpu/AttentionKernel.h"

using namespace mlir;
using namespace ladle;

/// The pieces in their order, whoever computed them.
AttentionKernel::Summary AttentionKernel::loadPieces(Value first, Value last,
                                                     Value group) {
  Summary empty = emptySummary();
  auto loop =
      scf::ForOp::create(b, first, last, index(1),
                         ValueRange{empty.most, empty.sum, empty.values});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value at = loop.getInductionVar();
  auto number = [&](int64_t which) -> Value {
    return memref::LoadOp::create(b, pieceSums,
                                  ValueRange{at, group, index(which)});
  };
  Summary next{number(0), number(1),
               load(pieceValues, {at, group, index(0)}, valueSize)};
  Summary all = merge({loop.getRegionIterArg(0), loop.getRegionIterArg(1),
                       loop.getRegionIterArg(2)},
                      next);
  scf::YieldOp::create(b, ValueRange{all.most, all.sum, all.values});
  return {loop.getResult(0), loop.getResult(1), loop.getResult(2)};
}

//===----------------------------------------------------------------------===//
// Stored summaries
//===----------------------------------------------------------------------===//

/// What the match of the head is, and how its parts are taken.
void AttentionKernel::openMatch() {
  hit = loadIndex(hits, {row, head});
  isHit = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, hit, index(0));
  hitEntry = ringEntry(maximum(hit, index(0)));
  if (ring.getParts() == 1)
    return;
  isFar = isLess(wideGap, arith::AddIOp::create(b, hit, index(1)));
  isInside = isLess(wideBound, loadIndex(starts, {row, head}));
}

AttentionKernel::Summary AttentionKernel::loadStored(Value condition,
                                                     int64_t part) {
  Summary empty = emptySummary();
  auto taken = scf::IfOp::create(
      b, TypeRange{b.getF32Type(), b.getF32Type(), empty.values.getType()},
      condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(taken.thenBlock());
  Value logSum = memref::LoadOp::create(
      b, ringSums, ValueRange{slot, head, index(part), hitEntry});
  Value values = load(ringValues, {slot, head, index(part), hitEntry, index(0)},
                      valueSize);
  scf::YieldOp::create(b, ValueRange{logSum, number(1), values});
  b.setInsertionPointToStart(taken.elseBlock());
  scf::YieldOp::create(b, ValueRange{empty.most, empty.sum, empty.values});
  return {taken.getResult(0), taken.getResult(1), taken.getResult(2)};
}

AttentionKernel::Summary AttentionKernel::reuse(ReuseOp op) {
  if (ring.getParts() == 1)
    return loadStored(isHit, 0);
  Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
  Value isNear =
      arith::AndIOp::create(b, isHit, arith::XOrIOp::create(b, isFar, yes));
  if (op.getPart() == 1)
    return loadStored(arith::AndIOp::create(b, isNear, isInside), 1);
  Value isOutside =
      arith::AndIOp::create(b, isNear, arith::XOrIOp::create(b, isInside, yes));
  return merge(loadStored(isHit, 0), loadStored(isOutside, 1));
}

/// The mean of the squares so far and of how many they are, with this token's
/// among them if it is a number. Where the ring begins anew both are 0,
/// whatever stands there.
void AttentionKernel::updateMoment(Value square, Value isNumber) {
  Value isFirst =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sle, amended, index(1));
  auto so = [&](int64_t which) -> Value {
    Value loaded = memref::LoadOp::create(b, ringMoments,
                                          ValueRange{slot, head, index(which)});
    return arith::SelectOp::create(b, isFirst, number(0), loaded);
  };
  Value before = so(0), tokens = so(1);
  Value more = arith::AddFOp::create(b, tokens, number(1));
  Value change =
      arith::DivFOp::create(b, arith::SubFOp::create(b, square, before), more);
  auto keep = [&](Value changed, Value same, int64_t which) {
    memref::StoreOp::create(b,
                            arith::SelectOp::create(b, isNumber, changed, same),
                            ringMoments, ValueRange{slot, head, index(which)});
  };
  keep(arith::AddFOp::create(b, before, change), before, 0);
  keep(more, tokens, 1);
}

void AttentionKernel::store(StoreSummaryOp op, ArrayRef<Summary> parts) {
  auto wanted = scf::IfOp::create(b, isLess(index(0), storesEntry));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(wanted.thenBlock());

  // The entry that is replaced may be the one that was matched: it is read
  // first.
  Value depth = index(0), outerEnd = wideBound;
  if (op.getAfter()) {
    Value next = arith::AddIOp::create(
        b, loadIndex(ringDepths, {slot, head, hitEntry}), index(1));
    depth = arith::SelectOp::create(b, isHit, next, depth);
    if (ringEnds) {
      Value isKept = arith::AndIOp::create(b, isHit, isInside);
      outerEnd = arith::SelectOp::create(
          b, isKept, loadIndex(ringEnds, {slot, head, hitEntry}), outerEnd);
    }
  }
  memref::StoreOp::create(b,
                          arith::IndexCastOp::create(b, b.getI32Type(), depth),
                          ringDepths, ValueRange{slot, head, entry});
  if (ringEnds)
    memref::StoreOp::create(
        b, arith::IndexCastOp::create(b, b.getI64Type(), outerEnd), ringEnds,
        ValueRange{slot, head, entry});

  auto loadQuery = [&](Value from) {
    return load(memoryOf(from), {row, head, index(0)}, keySize);
  };
  SmallVector<Value> ofEntry{slot, head, entry, index(0)};
  Value query = loadQuery(op.getQuery()), square = dot(query, query);
  // One whose square overflows is as NaN: nothing is near it.
  Value isNumber = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, square,
                                         number(INFINITY));
  Value none = vector::BroadcastOp::create(b, query.getType(), number(NAN));
  store(arith::SelectOp::create(b, isNumber, query, none), ringQueries,
        ofEntry);
  if (op.getRotated())
    store(loadQuery(op.getRotated()), ringRotated, ofEntry);
  if (ringMoments)
    updateMoment(square, isNumber);

  for (auto [part, summary] : llvm::enumerate(parts)) {
    Value at = index(static_cast<int64_t>(part));
    store(normalize(summary), ringValues, {slot, head, at, entry, index(0)});
    Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                          summary.sum, number(0));
    Value logSum = arith::AddFOp::create(b, summary.most,
                                         math::LogOp::create(b, summary.sum));
    memref::StoreOp::create(
        b, arith::SelectOp::create(b, isEmpty, number(-INFINITY), logSum),
        ringSums, ValueRange{slot, head, at, entry});
  }
}

//===----------------------------------------------------------------------===//
// The end of a step
//===----------------------------------------------------------------------===//

void AttentionKernel::buildFinish() {
  int64_t group = heads / cacheHeads;
  auto loop = scf::ForOp::create(b, index(0), index(group), index(1));
  b.setInsertionPointToStart(loop.getBody());
  Value g = loop.getInductionVar();
  head = arith::AddIOp::create(
      b, arith::MulIOp::create(b, headBegin, index(group)), g);
  Value tokens = arith::AddIOp::create(b, position, index(1));
  wideBound =
      maximum(arith::SubIOp::create(b, tokens, wide), minimum(sinks, tokens));

  DenseMap<Value, Summary> summaries;
  for (auto [which, attend] : llvm::enumerate(attends))
    summaries[attend.getResult()] =
        loadPieces(bounds[which], bounds[which + 1], g);
  for (Operation &op : step.getBody().front().without_terminator()) {
    if (isa<FindOp>(op))
      openMatch();
    else if (auto taken = dyn_cast<ReuseOp>(op))
      summaries[taken.getResult()] = reuse(taken);
    else if (auto merged = dyn_cast<MergeOp>(op))
      summaries[merged.getResult()] =
          merge(summaries.at(merged.getLhs()), summaries.at(merged.getRhs()));
    else if (auto stored = dyn_cast<StoreSummaryOp>(op))
      store(stored, llvm::map_to_vector(stored.getParts(), [&](Value part) {
              return summaries.at(part);
            }));
    else if (auto answer = dyn_cast<NormalizeOp>(op))
      store(normalize(summaries.at(answer.getSummary())), output,
            {row, head, index(0)});
  }
}
