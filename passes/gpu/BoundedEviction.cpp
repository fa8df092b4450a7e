//===- BoundedEviction.cpp - weights of tokens, and who leaves ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Who leaves before the next token is known when this one has been answered:
// a thread has the weights of some entries, the salience of all stands in
// shared memory, and so does the order of the entries in the sequence.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = 256, kWarps = 8;
/// Weights of an entry whose loads are on their way together.
static constexpr int64_t kLoads = 8;

/// Of all queries since the token came.
Value GpuBounded::addedWeight(Value entry, Value weight) {
  Value sums = array("weight_sums", b.getF32Type(), stride);
  Value before = loadFloat(sums, {cursorRow, entry});
  Value all = select(equal(entry, newEntry), weight, sum(before, weight));
  store(all, sums, {cursorRow, entry});
  return all;
}

/// Mean and variance over the last queries that the token has seen, this one
/// among them.
Value GpuBounded::salienceOf(Value entry, Value weight) {
  Type f16 = b.getF16Type(), f32 = b.getF32Type();
  Value memoryOfWeights = array("weights", f16, stride);
  Value first = mul(cursorRow, queriesKept);
  Value newest = rem(seen, queriesKept);
  Value stored = arith::TruncFOp::create(b, f16, weight);
  store(stored, memoryOfWeights, {add(first, newest), entry});
  Value rounded = arith::ExtFOp::create(b, f32, stored);
  Value came = load(array("token_positions", b.getI32Type(), stride),
                    {cursorRow, entry});
  Value age =
      select(equal(entry, newEntry), index(1), add(sub(position, came), 1));
  Value those = minimum(minimum(age, add(seen, 1)), index(queriesKept));
  Values sums = loop(
      index(0), index(queriesKept), index(kLoads),
      {rounded, product(rounded, rounded)},
      [&](Value base, ValueRange carried) -> Values {
        Values loaded, counts;
        for (int64_t i = 0; i < kLoads; ++i) {
          Value row = minimum(add(base, i), index(queriesKept - 1));
          loaded.push_back(
              loadFloat(memoryOfWeights, {add(first, row), entry}));
          Value ago = rem(sub(add(newest, queriesKept), row), queriesKept);
          counts.push_back(both(less(add(base, i), index(queriesKept)),
                                both(less(index(0), ago), less(ago, those))));
        }
        Value all = carried[0], squares = carried[1];
        for (int64_t i = 0; i < kLoads; ++i) {
          Value one = select(counts[i], loaded[i], number(0));
          all = sum(all, one);
          squares = sum(squares, product(one, one));
        }
        return {all, squares};
      });
  Value narrow = arith::IndexCastOp::create(b, b.getI32Type(), those);
  Value n = arith::SIToFPOp::create(b, f32, narrow);
  Value mean = arith::DivFOp::create(b, sums[0], n);
  Value square = arith::DivFOp::create(b, sums[1], n);
  Value variance = arith::SubFOp::create(b, square, product(mean, mean));
  variance = larger(variance, number(0));
  return sum(mean,
             product(number(evict.getVariance().convertToDouble()), variance));
}

void GpuBounded::noteWeights() {
  int64_t group = plan.group();
  Value scores = array("scores", b.getF32Type(), stride);
  Value first = add(mul(rowNumber, heads), mul(cacheHead, group));
  loop(thread, attended, index(kThreads), [&](Value entry) {
    Value weight = number(0);
    for (int64_t h = 0; h < group; ++h) {
      Value score = loadFloat(scores, {add(first, h), entry});
      Value most = finite(loadFloat(sharedMosts, index(h)));
      Value share = exp(arith::SubFOp::create(b, score, most));
      weight =
          sum(weight,
              arith::DivFOp::create(b, share, loadFloat(sharedSums, index(h))));
    }
    Value value =
        queriesKept ? salienceOf(entry, weight) : addedWeight(entry, weight);
    store(value, salience, entry);
  });
}

/// Takes the token that leaves out of the sequence, and puts the new one
/// behind it.
void GpuBounded::reorder() {
  Type integer = b.getI32Type();
  Value sequence = array("sequence", integer, stride);
  // Until it is found, it is behind all others.
  loop(thread, count, index(kThreads),
       [&](Value at) { store(load(sequence, {cursorRow, at}), before, at); });
  ifThen(equal(thread, index(0)),
         [&] { store(index(capacity), warpBestAt, index(0)); });
  barrier();
  loop(thread, count, index(kThreads), [&](Value at) {
    ifThen(equal(load(before, at), victim),
           [&] { store(at, warpBestAt, index(0)); });
  });
  barrier();
  Value place = load(warpBestAt, index(0));
  loop(thread, kept, index(kThreads), [&](Value at) {
    Value from = add(at, select(less(at, place), index(0), index(1)));
    Value isNew = equal(at, sub(kept, index(1)));
    Value old = load(before, minimum(from, index(stride - 1)));
    Value entry = select(isNew, newEntry, old);
    store(entry, after, at);
    store(entry, sequence, {cursorRow, at});
  });
  barrier();
}

void GpuBounded::chooseNext() {
  if (note)
    noteWeights();
  reorder();
  auto recent = static_cast<int64_t>(evict.getRecent());
  int64_t half = static_cast<int64_t>(evict.getPool()) / 2;
  Value first = minimum(index(sinks), sub(kept, index(1)));
  Value last = sub(kept, index(recent - 1));
  Value isFull = notLess(kept, budget);
  // Where there is no choice, it is the oldest.
  if (!note) {
    nextVictim = select(isFull, load(after, first), index(-1));
    return;
  }
  Values best = loop(
      add(first, thread), last, index(kThreads), {number(INFINITY), first},
      [&](Value at, ValueRange carried) -> Values {
        Value all = number(0), n = number(0);
        for (int64_t offset = -half; offset <= half; ++offset) {
          Value place = sub(add(at, half), index(half - offset));
          Value isThere = both(notLess(place, index(0)), less(place, kept));
          Value inside = minimum(maximum(place, index(0)), sub(kept, index(1)));
          Value value = loadFloat(salience, load(after, inside));
          all = sum(all, select(isThere, value, number(0)));
          n = sum(n, select(isThere, number(1), number(0)));
        }
        Value mean = arith::DivFOp::create(b, all, n);
        Value isLess = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, mean,
                                             carried[0]);
        return {select(isLess, mean, carried[0]),
                select(isLess, at, carried[1])};
      });
  // Of several as low, the oldest.
  auto lower = [&](Values &mine, Value value, Value at) {
    Value isLess =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, value, mine[0]);
    Value isEqual =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, value, mine[0]);
    Value isTaken = either(isLess, both(isEqual, less(at, mine[1])));
    mine = {select(isTaken, value, mine[0]), select(isTaken, at, mine[1])};
  };
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    lower(best, exchange(best[0], mask), exchange(best[1], mask));
  ifThen(equal(lane, index(0)), [&] {
    store(best[0], warpBest, warp);
    store(best[1], warpBestAt, warp);
  });
  barrier();
  Values all{loadFloat(warpBest, index(0)), load(warpBestAt, index(0))};
  for (int64_t other = 1; other < kWarps; ++other)
    lower(all, loadFloat(warpBest, index(other)),
          load(warpBestAt, index(other)));
  nextVictim = select(isFull, load(after, all[1]), index(-1));
}
