//===- BoundedEviction.cpp - the least salient token leaves ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tokens that are held lie side by side in entries [0, held), in any order; a
// list says which comes after which in the sequence. A token that comes goes
// behind the last; when one leaves, the last entry takes its place.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/BoundedKernel.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Small things
//===----------------------------------------------------------------------===//

/// A loop over blocks of entries below `end`, of which the last begins early
/// enough not to leave a row of C numbers: what is done with an entry is done
/// twice, or with one that nobody holds.
scf::ForOp BoundedKernel::openEntries(Value end, Value &block) {
  auto loop = scf::ForOp::create(b, index(0), end, index(entryWidth()));
  b.setInsertionPointToStart(loop.getBody());
  block = minimum(loop.getInductionVar(), index(capacity - entryWidth()));
  return loop;
}

/// Several lines of a row of weights at a time, because rows lie far apart.
int64_t BoundedKernel::entryWidth() const {
  int64_t wide = 4 * kBlock;
  return capacity < wide ? std::min(kBlock, capacity) : wide;
}

Value BoundedKernel::toFloat(Value value) {
  Type type = b.getF32Type();
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(type);
  return arith::SIToFPOp::create(b, type, value);
}

void BoundedKernel::storeIndex(Value value, Value memory, ValueRange indices) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  memref::StoreOp::create(b, arith::IndexCastOp::create(b, element, value),
                          memory, indices);
}

//===----------------------------------------------------------------------===//
// A token comes
//===----------------------------------------------------------------------===//

/// Where the token goes. It has not been seen by any query.
void BoundedKernel::takeEntry() {
  entry = loadIndex(counts, {slot, head});
  storeIndex(entry, order, {slot, head, entry});
  storeIndex(position, positions, {slot, head, entry});
  storeIndex(arith::AddIOp::create(b, entry, index(1)), counts, {slot, head});
  if (weightSums)
    memref::StoreOp::create(b, number(0), weightSums,
                            ValueRange{slot, head, entry});
  if (!weights)
    return;
  auto loop = scf::ForOp::create(b, index(0), index(queries), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  memref::StoreOp::create(
      b, number(0), weights,
      ValueRange{slot, head, loop.getInductionVar(), entry});
}

//===----------------------------------------------------------------------===//
// Salience
//===----------------------------------------------------------------------===//

/// mean w + variance · var w of the entries of a block.
Value BoundedKernel::salienceOf(Value block, Value noted, double variance) {
  int64_t width = entryWidth();
  if (weightSums)
    return load(weightSums, {slot, head, block}, width);
  Value zero = splat(number(0), width);
  if (!weights)
    return zero;
  auto loop =
      scf::ForOp::create(b, index(0), noted, index(1), ValueRange{zero, zero});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value query = loop.getInductionVar();
    Value weight = load(weights, {slot, head, query, block}, width);
    prefetch(weights, {slot, head, query, plus(block, width)}, width);
    Value sum = arith::AddFOp::create(b, loop.getRegionIterArg(0), weight);
    Value squares =
        vector::FMAOp::create(b, weight, weight, loop.getRegionIterArg(1));
    scf::YieldOp::create(b, ValueRange{sum, squares});
  }
  // The queries since the token came. This token's own is none of them yet.
  auto wide = VectorType::get({width}, b.getI64Type());
  auto wideSplat = [&](Value value) {
    return splat(arith::IndexCastOp::create(b, b.getI64Type(), value), width);
  };
  Value age = arith::SubIOp::create(
      b, wideSplat(position),
      vector::LoadOp::create(b, wide, positions,
                             ValueRange{slot, head, block}));
  age = arith::MinSIOp::create(b, age, wideSplat(noted));
  age = arith::MaxSIOp::create(b, age, wideSplat(index(1)));
  Value share = arith::DivFOp::create(b, splat(number(1), width), toFloat(age));
  Value mean = arith::MulFOp::create(b, loop.getResult(0), share);
  if (variance == 0)
    return mean;
  Value spread = arith::SubFOp::create(
      b, arith::MulFOp::create(b, loop.getResult(1), share),
      arith::MulFOp::create(b, mean, mean));
  spread = arith::MaximumFOp::create(b, spread, zero);
  return vector::FMAOp::create(b, spread, splat(number(variance), width), mean);
}

/// The means over `pool` neighbours in the order of the sequence, of which the
/// first and the last have fewer.
Value BoundedKernel::pooledSaliences(EvictFromOp op, Value held) {
  int64_t half = static_cast<int64_t>(op.getPool()) / 2;
  auto aligned = static_cast<int64_t>(llvm::alignTo(capacity, kBlock));
  Value raw = scratch({aligned});
  // Zeros before and behind, so that all sums have the same terms.
  int64_t room = aligned + 2 * half + kBlock;
  Value ordered = scratch({room});
  Value pooled = scratch({room});
  Value noted = index(0);
  if (weights)
    noted = minimum(loadIndex(seen, {slot, head}), index(queries));

  Value block;
  scf::ForOp entries = openEntries(held, block);
  store(salienceOf(block, noted, op.getVariance().convertToDouble()), raw,
        {block});
  b.setInsertionPointAfter(entries);

  auto clear = scf::ForOp::create(b, index(0), index(half), index(1));
  b.setInsertionPointToStart(clear.getBody());
  memref::StoreOp::create(b, number(0), ordered, clear.getInductionVar());
  b.setInsertionPointAfter(clear);
  Value end = arith::AddIOp::create(b, held, index(half));
  auto rest = scf::ForOp::create(b, end, index(room), index(1));
  b.setInsertionPointToStart(rest.getBody());
  memref::StoreOp::create(b, number(0), ordered, rest.getInductionVar());
  b.setInsertionPointAfter(rest);
  auto gather = scf::ForOp::create(b, index(0), held, index(1));
  b.setInsertionPointToStart(gather.getBody());
  Value j = gather.getInductionVar();
  Value salience = memref::LoadOp::create(
      b, raw, ValueRange{loadIndex(order, {slot, head, j})});
  memref::StoreOp::create(b, salience, ordered,
                          ValueRange{arith::AddIOp::create(b, j, index(half))});
  b.setInsertionPointAfter(gather);

  auto blocks = scf::ForOp::create(b, index(0), held, index(kBlock));
  b.setInsertionPointToStart(blocks.getBody());
  Value from = blocks.getInductionVar();
  Value sum = splat(number(0), kBlock);
  for (int64_t offset = 0; offset <= 2 * half; ++offset)
    sum = arith::AddFOp::create(
        b, sum,
        load(ordered, {arith::AddIOp::create(b, from, index(offset))}, kBlock));
  auto narrow = [&](Value value) {
    return splat(arith::IndexCastOp::create(b, b.getI32Type(), value), kBlock);
  };
  SmallVector<int32_t> numbers(kBlock);
  for (int32_t lane = 0; lane < kBlock; ++lane)
    numbers[lane] = lane;
  Value place = arith::AddIOp::create(
      b, arith::ConstantOp::create(b, b.getI32VectorAttr(numbers)),
      narrow(from));
  Value behind = arith::SubIOp::create(
      b, narrow(arith::SubIOp::create(b, held, index(1))), place);
  Value most = narrow(index(half));
  Value terms = arith::AddIOp::create(
      b, arith::AddIOp::create(b, minimum(place, most), minimum(behind, most)),
      narrow(index(1)));
  store(arith::DivFOp::create(b, sum, toFloat(terms)), pooled, {from});
  b.setInsertionPointAfter(blocks);
  return pooled;
}

//===----------------------------------------------------------------------===//
// A token leaves
//===----------------------------------------------------------------------===//

/// The first of those in [first, last) that are least: what is not less, NaN
/// among it, stays. Each lane looks at every 16th.
Value BoundedKernel::placeOfLeast(Value pooled, Value first, Value last) {
  auto narrow = [&](Value value) {
    return splat(arith::IndexCastOp::create(b, b.getI32Type(), value), kBlock);
  };
  SmallVector<int32_t> numbers(kBlock);
  for (int32_t lane = 0; lane < kBlock; ++lane)
    numbers[lane] = lane;
  Value lanes = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  Value end = narrow(last);
  auto less = [&](Value lhs, Value rhs) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, lhs, rhs);
  };
  auto scan = scf::ForOp::create(
      b, first, last, index(kBlock),
      ValueRange{splat(number(INFINITY), kBlock), narrow(first)});
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(scan.getBody());
    Value j = scan.getInductionVar(), least = scan.getRegionIterArg(0);
    Value places = arith::AddIOp::create(b, lanes, narrow(j));
    Value salience = load(pooled, j, kBlock);
    Value isLeast = arith::AndIOp::create(
        b, less(salience, least),
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, places, end));
    scf::YieldOp::create(
        b, ValueRange{arith::SelectOp::create(b, isLeast, salience, least),
                      arith::SelectOp::create(b, isLeast, places,
                                              scan.getRegionIterArg(1))});
  }
  Value least = scan.getResult(0), place = scan.getResult(1);
  for (int64_t half = kBlock / 2; half; half /= 2) {
    SmallVector<int64_t> others;
    for (int64_t lane = 0; lane < kBlock; ++lane)
      others.push_back(lane ^ half);
    Value other = vector::ShuffleOp::create(b, least, least, others);
    Value at = vector::ShuffleOp::create(b, place, place, others);
    Value isSame =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, other, least);
    Value isBefore =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, at, place);
    Value takes = arith::OrIOp::create(
        b, less(other, least), arith::AndIOp::create(b, isSame, isBefore));
    least = arith::SelectOp::create(b, takes, other, least);
    place = arith::SelectOp::create(b, takes, at, place);
  }
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    vector::ExtractOp::create(b, place, 0));
}

LogicalResult BoundedKernel::emitEvict(EvictFromOp op) {
  Value held = loadIndex(counts, {slot, head});
  auto full = scf::IfOp::create(b, isLess(budget, held));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(full.thenBlock());
  Value pooled = pooledSaliences(op, held);
  Value first = index(static_cast<int64_t>(op.getSinks()));
  Value last = arith::SubIOp::create(
      b, held, index(static_cast<int64_t>(op.getRecent())));
  Value place = placeOfLeast(pooled, first, last);
  Value victim = loadIndex(order, {slot, head, place});
  if (memoryType)
    foldEntry(victim);
  removeEntry(held, place, victim);
  return success();
}

/// The newest token has the last entry, and the last place in the list.
void BoundedKernel::removeEntry(Value held, Value place, Value victim) {
  Value last = arith::SubIOp::create(b, held, index(1));
  auto shift = scf::ForOp::create(b, place, last, index(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(shift.getBody());
    Value j = shift.getInductionVar();
    storeIndex(
        loadIndex(order, {slot, head, arith::AddIOp::create(b, j, index(1))}),
        order, {slot, head, j});
  }
  storeIndex(victim, order,
             {slot, head, arith::SubIOp::create(b, last, index(1))});
  storeIndex(last, counts, {slot, head});
  store(load(keys, {slot, head, last, index(0)}, keySize), keys,
        {slot, head, victim, index(0)});
  store(load(values, {slot, head, last, index(0)}, valueSize), values,
        {slot, head, victim, index(0)});
  storeIndex(loadIndex(positions, {slot, head, last}), positions,
             {slot, head, victim});
  auto move = [&](Value memory, SmallVector<Value> from) {
    SmallVector<Value> to(from);
    from.push_back(last);
    to.push_back(victim);
    memref::StoreOp::create(b, memref::LoadOp::create(b, memory, from), memory,
                            to);
  };
  if (weightSums)
    move(weightSums, {slot, head});
  if (!weights)
    return;
  auto loop = scf::ForOp::create(b, index(0), index(queries), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  move(weights, {slot, head, loop.getInductionVar()});
}

//===----------------------------------------------------------------------===//
// What queries gave
//===----------------------------------------------------------------------===//

/// The softmax over what is kept, summed over the heads of the group, of the
/// `width` tokens from `at` on.
Value BoundedKernel::sharedWeights(const Found &attended, Value at,
                                   int64_t width) {
  Value sum = splat(number(0), width);
  for (int64_t g = 0, size = heads / cacheHeads; g < size; ++g) {
    auto number = [&](int64_t which) -> Value {
      return memref::LoadOp::create(b, attended.sums,
                                    ValueRange{index(g), index(which)});
    };
    Value share = arith::DivFOp::create(b, this->number(1), number(1));
    Value weight = exp(
        arith::SubFOp::create(b, load(attended.scores, {index(g), at}, width),
                              splat(finite(number(0)), width)));
    sum = vector::FMAOp::create(b, weight, splat(share, width), sum);
  }
  return sum;
}

LogicalResult BoundedKernel::emitNote(NoteWeightsOp op) {
  const Found *attended = nullptr;
  for (auto attend : step.getBody().front().getOps<AttendOp>())
    if (attend.getQuery() == op.getQuery() &&
        attend.getScale() == op.getScale() && attend->isBeforeInBlock(op))
      attended = &found.at(attend.getResult());
  if (!attended)
    return op.emitError("cannot be lowered for the CPU: the weights that are "
                        "noted have to be those of an attend before");
  int64_t width = entryWidth();
  Value held = loadIndex(counts, {slot, head});
  Value count, row, noted;
  if (weights) {
    count = loadIndex(seen, {slot, head});
    row = arith::RemUIOp::create(b, count, index(queries));
  } else {
    // Blocks may overlap: all are added before any is stored.
    noted = scratch({static_cast<int64_t>(llvm::alignTo(capacity, kBlock))});
  }
  Value block;
  scf::ForOp entries = openEntries(held, block);
  Value weight = sharedWeights(*attended, block, width);
  if (weights)
    store(weight, weights, {slot, head, row, block});
  else
    store(arith::AddFOp::create(b, load(weightSums, {slot, head, block}, width),
                                weight),
          noted, {block});
  b.setInsertionPointAfter(entries);
  if (weights) {
    storeIndex(arith::AddIOp::create(b, count, index(1)), seen, {slot, head});
    return success();
  }
  scf::ForOp copies = openEntries(held, block);
  store(load(noted, {block}, width), weightSums, {slot, head, block});
  b.setInsertionPointAfter(copies);
  return success();
}
