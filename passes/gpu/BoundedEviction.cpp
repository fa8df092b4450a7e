//===- BoundedEviction.cpp - weights of tokens, and who leaves ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Who leaves before the next token is known when this one has been answered.
// The weights of this query are written to their row; then groups of threads
// add up the rows before it, a thread those of a few entries side by side.
// Salience stands in shared memory, and so does the order of entries in the
// sequence.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

#include <algorithm>

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = kBoundedThreads, kWarps = kThreads / 32;
/// Entries of a thread, and rows whose loads are on their way together.
static constexpr int64_t kEntries = 8, kLoads = 3;

/// Threads that take a row of weights, and how many of these there are.
static int64_t threadsOfRow(int64_t stride) {
  constexpr int64_t warp = 32;
  int64_t wanted = (stride / kEntries + warp - 1) / warp * warp;
  return std::min(wanted, kThreads);
}
static int64_t rowsAtOnce(int64_t stride) {
  return kThreads / threadsOfRow(stride);
}

void GpuBounded::declareEviction() {
  Type f32 = b.getF32Type(), integer = b.getI32Type();
  before = sharedArray("before", integer, {stride});
  after = sharedArray("after", integer, {stride});
  warpBest = sharedArray("warp_best", f32, {kWarps});
  warpBestAt = sharedArray("warp_best_at", integer, {kWarps});
  if (!note)
    return;
  salience = sharedArray("salience", f32, {stride});
  if (!queriesKept)
    return;
  ages = sharedArray("ages", integer, {stride});
  earlier = sharedArray("earlier", f32, {2 * rowsAtOnce(stride), stride});
}

LogicalResult GpuBounded::checkEviction() {
  int64_t most = shared ? shared : 227 << 10;
  int64_t arrays = 4 + (queriesKept ? 2 * rowsAtOnce(stride) : 0);
  // Beside them, summaries and the memory.
  constexpr int64_t small = 4096;
  int64_t group = plan.group();
  int64_t others = 4 * group * valueSize + small;
  if (memory)
    others += 4 * group * (5 * valueSize + keySize);
  int64_t entries = (most - others) / 4 / arrays;
  if (capacity <= entries)
    return success();
  auto diagnostic = step.emitError("cannot be lowered for GPUs: a budget of ")
                    << capacity - 1 << " tokens";
  diagnostic.attachNote() << "wanted " << entries / kEntries * kEntries - 1
                          << " at the most: a block has all of a head in "
                             "shared memory";
  return diagnostic;
}

/// Of this query, summed over the heads that share keys; 0 for the token that
/// is not there any more.
void GpuBounded::weigh() {
  constexpr int64_t width = 4;
  int64_t group = plan.group();
  Type f16 = b.getF16Type(), integer = b.getI32Type();
  Value scores = array("scores", b.getF32Type(), stride);
  Value first = add(mul(rowNumber, heads), mul(cacheHead, group));
  Value places = array("token_positions", integer, stride);
  // Full, all entries but one are in use.
  Value last = select(notLess(victim, index(0)), index(capacity), attended);
  loop(mul(thread, width), index(capacity), index(width * kThreads),
       [&](Value entry) {
         Values weights(width, number(0));
         for (int64_t h = 0; h < group; ++h) {
           Value loaded = loadVector(scores, {add(first, h), entry}, width);
           Value most = finite(loadFloat(sharedMosts, index(h)));
           Value inverse = arith::DivFOp::create(
               b, number(1), loadFloat(sharedSums, index(h)));
           for (int64_t i = 0; i < width; ++i) {
             Value part =
                 exp(arith::SubFOp::create(b, extract(loaded, i), most));
             weights[i] = sum(weights[i], product(part, inverse));
           }
         }
         for (int64_t i = 0; i < width; ++i) {
           Value at = add(entry, i);
           Value isThere = both(less(at, last), negate(equal(at, victim)));
           weights[i] = select(isThere, weights[i], number(0));
         }
         Value all = fromElements(weights);
         if (!queriesKept) {
           Value sums = array("weight_sums", b.getF32Type(), stride);
           Value old = loadVector(sums, {cursorRow, entry}, width);
           Values next;
           for (int64_t i = 0; i < width; ++i)
             next.push_back(select(equal(add(entry, i), newEntry), weights[i],
                                   sum(extract(old, i), weights[i])));
           Value added = fromElements(next);
           storeVector(added, sums, {cursorRow, entry});
           storeVector(added, salience, {entry});
           return;
         }
         Value stored =
             arith::TruncFOp::create(b, VectorType::get({width}, f16), all);
         Value row = add(mul(cursorRow, queriesKept), rem(seen, queriesKept));
         storeVector(stored, array("weights", f16, stride), {row, entry});
         storeVector(widen(stored), salience, {entry});
         // Queries that the token has seen, this one among them.
         Value came = loadVector(places, {cursorRow, entry}, width);
         for (int64_t i = 0; i < width; ++i) {
           Value place = arith::IndexCastOp::create(b, b.getIndexType(),
                                                    extract(came, i));
           Value age = select(equal(add(entry, i), newEntry), index(1),
                              add(sub(position, place), 1));
           store(minimum(minimum(age, add(seen, 1)), index(queriesKept)), ages,
                 {add(entry, i)});
         }
       });
  barrier();
}

/// Sums of the weights of earlier queries and of their squares.
void GpuBounded::addEarlierWeights() {
  int64_t ofRow = threadsOfRow(stride), rows = rowsAtOnce(stride);
  Value group = named("group", div(thread, ofRow));
  Value memoryOfWeights = array("weights", b.getF16Type(), stride);
  Value first = mul(cursorRow, queriesKept), newest = rem(seen, queriesKept);
  Value isActive = less(group, index(rows));
  auto fours = VectorType::get({kEntries}, b.getF32Type());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(fours));
  Value begin =
      select(isActive, mul(rem(thread, ofRow), kEntries), index(stride));
  loop(begin, index(stride), index(ofRow * kEntries), [&](Value entry) {
    Values those;
    for (int64_t i = 0; i < kEntries; ++i)
      those.push_back(load(ages, {add(entry, i)}));
    // So many queries ago, of which each group takes every so manieth.
    Values sums = loop(
        add(group, 1), index(queriesKept), index(rows * kLoads), {zero, zero},
        [&](Value base, ValueRange carried) -> Values {
          Values loaded, agos;
          for (int64_t i = 0; i < kLoads; ++i) {
            Value ago = add(base, i * rows);
            Value inside = minimum(ago, index(queriesKept - 1));
            Value row = rem(sub(add(newest, queriesKept), inside), queriesKept);
            agos.push_back(ago);
            loaded.push_back(loadVector(memoryOfWeights,
                                        {add(first, row), entry}, kEntries));
          }
          Value all = carried[0], squares = carried[1];
          for (int64_t i = 0; i < kLoads; ++i) {
            Value wide = widen(loaded[i]);
            Values ones;
            for (int64_t e = 0; e < kEntries; ++e)
              ones.push_back(
                  select(less(agos[i], those[e]), extract(wide, e), number(0)));
            Value one = fromElements(ones);
            all = sum(all, one);
            squares = vector::FMAOp::create(b, one, one, squares);
          }
          return {all, squares};
        });
    storeVector(sums[0], earlier, {mul(group, 2), entry});
    storeVector(sums[1], earlier, {add(mul(group, 2), 1), entry});
  });
  barrier();
}

/// Mean and variance over the last queries that a token has seen.
void GpuBounded::combineWeights() {
  Type f32 = b.getF32Type();
  double share = evict.getVariance().convertToDouble();
  loop(thread, index(capacity), index(kThreads), [&](Value entry) {
    Value weight = loadFloat(salience, {entry});
    Value all = weight, squares = product(weight, weight);
    for (int64_t i = 0; i < rowsAtOnce(stride); ++i) {
      all = sum(all, loadFloat(earlier, {index(2 * i), entry}));
      squares = sum(squares, loadFloat(earlier, {index(2 * i + 1), entry}));
    }
    Value count = arith::IndexCastOp::create(
        b, b.getI32Type(), maximum(load(ages, {entry}), index(1)));
    Value n = arith::SIToFPOp::create(b, f32, count);
    Value mean = arith::DivFOp::create(b, all, n);
    Value square = arith::DivFOp::create(b, squares, n);
    Value variance = arith::SubFOp::create(b, square, product(mean, mean));
    store(sum(mean, product(number(share), larger(variance, number(0)))),
          salience, {entry});
  });
}

void GpuBounded::noteWeights() {
  weigh();
  if (!queriesKept)
    return;
  addEarlierWeights();
  combineWeights();
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
