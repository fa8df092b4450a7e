//===- BoundedWeights.cpp - weights that queries gave tokens --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block notes the weights of the tokens that it attended to: those of the
// last queries, each in a row, and exact sums of these, so that a step reads
// the row that leaves the window and not all of them.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace ladle;

/// Entries of a thread whose loads are on their way together.
static constexpr int64_t kEntries = 8;

Value GpuBounded::integer(int64_t value, int64_t width) {
  return arith::ConstantIntOp::create(b, value, static_cast<unsigned>(width));
}

int64_t GpuBounded::unitBits() const {
  return windowBits(plan.group(), queriesKept);
}

/// A weight, and its square, in units.
std::pair<Value, Value> GpuBounded::inUnits(Value weight) {
  Value scaled = product(weight, number(std::ldexp(1.0, unitBits())));
  Value units = arith::FPToSIOp::create(b, b.getI32Type(), scaled);
  Value wide = arith::ExtUIOp::create(b, b.getI64Type(), units);
  return {units, arith::MulIOp::create(b, wide, wide)};
}

/// What is known of the tokens of this block: their sums over the window of the
/// query before; when they came; and the weights that leave the window, where
/// those of this query will be.
GpuAttention::Ahead GpuBounded::loadEarlierWeights() {
  Value keysHere = sub(end, begin);
  if (!queriesKept)
    return startLoop(
        thread, keysHere, index(threads), 4, [this](Value at) -> Values {
          return {loadFloat(array("weight_sums", b.getF32Type(), stride),
                            {cursorRow, add(begin, at)})};
        });
  return startLoop(
      thread, keysHere, index(threads), kEntries, [this](Value at) -> Values {
        Value entry = add(begin, at);
        auto its = [&](StringRef name, Type type, Value row) -> Value {
          return memref::LoadOp::create(b, array(name, type, stride),
                                        ValueRange{row, entry});
        };
        Type integer = b.getI32Type();
        return {its("window_sums", integer, cursorRow),
                its("window_squares", b.getI64Type(), cursorRow),
                its("token_positions", integer, cursorRow),
                its("weights", b.getF16Type(), rowOfQuery())};
      });
}

/// Of the weights of this query, and before it of the oldest.
Value GpuBounded::rowOfQuery() {
  return add(mul(cursorRow, queriesKept), rem(seen, queriesKept));
}

/// Sums of the weights of earlier queries that a token has seen and that are
/// still in the window, and of their squares, with the number of all of them.
void GpuBounded::addEarlierWeights(const Ahead &weights) {
  if (!queriesKept) {
    finishLoop(weights, {}, [&](Value at, ValueRange loaded, ValueRange) {
      Value isNew = equal(add(begin, at), newEntry);
      store(select(isNew, number(0), loaded[0]), salience, {index(0), at});
      return Values();
    });
    return;
  }
  finishLoop(weights, {}, [&](Value at, ValueRange loaded, ValueRange) {
    Value isNew = equal(add(begin, at), newEntry);
    Value came = arith::IndexCastOp::create(b, b.getIndexType(), loaded[2]);
    Value age = select(isNew, index(1), add(sub(position, came), 1));
    age = minimum(age, add(seen, 1));
    Value leavesWindow = less(index(queriesKept), age);
    auto [units, square] =
        inUnits(arith::ExtFOp::create(b, b.getF32Type(), loaded[3]));
    auto without = [&](Value all, Value its, int64_t width) {
      Value none = integer(0, width);
      Value rest =
          arith::SubIOp::create(b, all, select(leavesWindow, its, none));
      return select(isNew, none, rest);
    };
    store(without(loaded[0], units, 32), windowSums, {index(0), at});
    Value squares = without(loaded[1], square, 64);
    Value queries = arith::IndexCastOp::create(
        b, b.getI64Type(), minimum(age, index(queriesKept)));
    Value packed =
        arith::ShLIOp::create(b, squares, integer(bitsOfQueries(), 64));
    packed = arith::OrIOp::create(b, packed, queries);
    memref::StoreOp::create(b, packed, windowSquares, ValueRange{index(0), at});
    return Values();
  });
}

int64_t GpuBounded::bitsOfQueries() const {
  return llvm::Log2_64_Ceil(static_cast<uint64_t>(queriesKept) + 1);
}

/// The weight that this query gives a token, summed over the heads that share
/// keys; 0 for the token that is not there any more.
Value GpuBounded::weightOf(Value at) {
  Value all = number(0);
  for (int64_t h = 0; h < plan.group(); ++h) {
    bool isOfLanes = ofLanes.weight != nullptr;
    Value most =
        finite(isOfLanes ? ofLanes.mosts[h] : loadFloat(sharedMosts, index(h)));
    Value part = exp(arith::SubFOp::create(
        b, loadFloat(scoresOfBlock, {index(h), at}), most));
    Value inverse =
        isOfLanes ? ofLanes.inverses[h] : loadFloat(inverses, index(h));
    all = sum(all, product(part, inverse));
  }
  return all;
}

/// Leaves the salience of a token, the mean and the variance over the last
/// queries that it has seen, and returns what is stored of it.
GpuAttention::Values GpuBounded::noteToken(Value at) {
  Type f16 = b.getF16Type(), f32 = b.getF32Type();
  if (!queriesKept) {
    Value all = sum(loadFloat(salience, {index(0), at}), weightOf(at));
    store(all, salience, {index(0), at});
    return {all};
  }
  Value stored = arith::TruncFOp::create(b, f16, weightOf(at));
  auto [units, square] = inUnits(arith::ExtFOp::create(b, f32, stored));
  Value sums = arith::AddIOp::create(
      b, memref::LoadOp::create(b, windowSums, ValueRange{index(0), at}),
      units);
  Value packed =
      memref::LoadOp::create(b, windowSquares, ValueRange{index(0), at});
  Value squares = arith::AddIOp::create(
      b, arith::ShRUIOp::create(b, packed, integer(bitsOfQueries(), 64)),
      square);
  Value mask = integer((int64_t(1) << bitsOfQueries()) - 1, 64);
  Value queries = arith::TruncIOp::create(
      b, b.getI32Type(), arith::AndIOp::create(b, packed, mask));
  Value ofOne = arith::DivFOp::create(b, number(1),
                                      arith::SIToFPOp::create(b, f32, queries));
  auto fromUnits = [&](Value all, int64_t bits) {
    Value whole = arith::UIToFPOp::create(b, f32, all);
    return product(product(whole, number(std::ldexp(1.0, -bits))), ofOne);
  };
  Value mean = fromUnits(sums, unitBits());
  Value square2 = fromUnits(squares, 2 * unitBits());
  Value variance = arith::SubFOp::create(b, square2, product(mean, mean));
  double share = evict.getVariance().convertToDouble();
  store(sum(mean, product(number(share), larger(variance, number(0)))),
        salience, {index(0), at});
  return {stored, sums, squares};
}

void GpuBounded::storeNoted(Value at, ValueRange noted) {
  auto keep = [&](Value value, StringRef name, Value row) {
    memref::StoreOp::create(b, value, array(name, value.getType(), stride),
                            ValueRange{row, add(begin, at)});
  };
  if (!queriesKept)
    return keep(noted[0], "weight_sums", cursorRow);
  keep(noted[0], "weights", rowOfQuery());
  keep(noted[1], "window_sums", cursorRow);
  keep(noted[2], "window_squares", cursorRow);
}

/// Of all tokens of this block, however many they are.
void GpuBounded::noteWeights() {
  waitForPrevious();
  auto noteOne = [&](Value at) { storeNoted(at, noteToken(at)); };
  loop(thread, sub(end, begin), index(threads), noteOne,
       /*unrolls=*/queriesKept > 0);
}

/// Whether no thread has more than one.
Value GpuBounded::notesOne() { return notLess(index(threads), keysOfRank); }

GpuAttention::Values GpuBounded::noteOwn() {
  return ifElse(
      less(thread, sub(end, begin)), [&] { return noteToken(thread); },
      [&] { return nothingNoted(); });
}

GpuAttention::Values GpuBounded::nothingNoted() {
  if (!queriesKept)
    return {number(0)};
  Value none =
      arith::ConstantOp::create(b, b.getFloatAttr(b.getF16Type(), 0.0));
  return {none, integer(0, 32), integer(0, 64)};
}

/// When it may be written.
void GpuBounded::keepNoted(ValueRange noted) {
  if (noted.empty())
    return;
  Value isOne = both(notesOne(), less(index(1), ranks));
  ifThen(both(isOne, less(thread, sub(end, begin))),
         [&] { storeNoted(thread, noted); });
}
