//===- BoundedEviction.cpp - the order of tokens, and who leaves ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Who leaves before the next token is known when this one has been answered. A
// block notes the weights of the tokens that it attended to, and knows their
// salience; and it takes a stretch of the sequence, for which it gathers that
// of its tokens from the blocks that have it.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

Value GpuBounded::arrayOfKeys(StringRef name, Type element, int64_t rows) {
  bytesOfKey += rows * element.getIntOrFloatBitWidth() / 8;
  return sharedArray(name, element, {rows, keysOfBlock});
}

void GpuBounded::declareEviction() {
  Type f32 = b.getF32Type(), integer = b.getI32Type();
  order = arrayOfKeys("order", integer, 1);
  if (!note)
    return;
  inverses = sharedArray("inverses", f32, {plan.group()});
  scoresOfBlock = arrayOfKeys("scores", f32, plan.group());
  if (!queriesKept) {
    salience = arrayOfKeys("salience", f32, 1);
    saliences = arrayOfKeys("saliences", f32, 1);
  } else {
    // When these are known, salience takes their place: of entries, and in the
    // order of tokens.
    windowSums = arrayOfKeys("sums_of_window", integer, 1);
    windowSquares = arrayOfKeys("squares_of_window", b.getI64Type(), 1);
    salience = sharedInPlaceOf(windowSums, "salience", f32, {1, keysOfBlock});
    saliences =
        sharedInPlaceOf(windowSquares, "saliences", f32, {1, keysOfBlock});
  }
  warpBest = sharedArray("warp_best", f32, {kAnswering});
  warpBestAt = sharedArray("warp_best_at", integer, {kAnswering});
  bests = sharedArray("bests", f32, {mostBlocks});
  bestPlaces = sharedArray("best_places", integer, {2, mostBlocks});
}

/// The entry at a place of the sequence when the token that leaves is out of it
/// and the new one behind it.
Value GpuBounded::entryAt(Value place) {
  Value from = add(place, select(less(place, victimPlace), index(0), index(1)));
  Value old = load(array("sequence", b.getI32Type(), stride),
                   {cursorRow, minimum(from, index(stride - 1))});
  return select(equal(place, sub(kept, index(1))), newEntry, old);
}

/// This block's stretch of the sequence, and what stands next to it.
GpuAttention::Ahead GpuBounded::loadOrder() {
  Value places = div(sub(add(kept, ranks), index(1)), ranks);
  firstPlace = named("first_place", mul(rank, places));
  lastPlace = named("last_place", minimum(add(firstPlace, places), kept));
  oldestPlace = minimum(index(sinks), sub(kept, index(1)));
  oldest = named("oldest", entryAt(oldestPlace));
  int64_t half = pool / 2;
  return startLoop(thread, add(places, 2 * half), index(threads),
                   /*together=*/4, [this, half](Value at) -> Values {
                     Value place = sub(add(firstPlace, at), index(half));
                     return {entryAt(minimum(maximum(place, index(0)),
                                             sub(kept, index(1))))};
                   });
}

void GpuBounded::takeOrder(const Ahead &places) {
  finishLoop(places, {}, [&](Value at, ValueRange loaded, ValueRange) {
    store(loaded[0], order, {index(0), at});
    return Values();
  });
}

void GpuBounded::keepOrder() {
  Type integer = b.getI32Type();
  loop(add(firstPlace, thread), lastPlace, index(threads), [&](Value place) {
    Value at = add(sub(place, firstPlace), pool / 2);
    store(load(order, {index(0), at}), array("sequence", integer, stride),
          {cursorRow, place});
  });
  byFirst([&] {
    store(position, array("token_positions", integer, stride),
          {cursorRow, newEntry});
  });
}

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

/// Of several as low, the oldest.
void GpuBounded::lower(Values &mine, Value value, Value at) {
  Value isLess =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, value, mine[0]);
  Value isEqual =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, value, mine[0]);
  Value isTaken = either(isLess, both(isEqual, less(at, mine[1])));
  mine = {select(isTaken, value, mine[0]), select(isTaken, at, mine[1])};
}

void GpuBounded::chooseNext() {
  // All blocks know the salience of theirs.
  int64_t half = pool / 2;
  Value places = add(sub(lastPlace, firstPlace), 2 * half);
  loop(thread, places, index(threads), [&](Value at) {
    Value entry = load(order, {index(0), at});
    Value owner = minimum(div(entry, keysOfRank), sub(ranks, index(1)));
    Value its = sub(entry, mul(owner, keysOfRank));
    store(loadFloat(inBlock(owner, salience), {index(0), its}), saliences,
          {index(0), at});
  });
  barrier();
  auto recent = static_cast<int64_t>(evict.getRecent());
  Value last = minimum(sub(kept, index(recent - 1)), lastPlace);
  Values best =
      loop(add(maximum(oldestPlace, firstPlace), thread), last, index(threads),
           {number(INFINITY), index(capacity)},
           [&](Value place, ValueRange carried) -> Values {
             Value all = number(0), n = number(0);
             for (int64_t offset = -half; offset <= half; ++offset) {
               Value near = sub(add(place, half), index(half - offset));
               Value isThere = both(notLess(near, index(0)), less(near, kept));
               Value at = sub(add(place, half + offset), firstPlace);
               Value value = loadFloat(saliences, {index(0), at});
               all = sum(all, select(isThere, value, number(0)));
               // The token that comes is a neighbour without a weight.
               Value isCounted =
                   both(notLess(near, index(0)), notLess(kept, near));
               n = sum(n, select(isCounted, number(1), number(0)));
             }
             Value mean = arith::DivFOp::create(b, all, n);
             Value isLess = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                                  mean, carried[0]);
             return {select(isLess, mean, carried[0]),
                     select(isLess, place, carried[1])};
           });
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    lower(best, exchange(best[0], mask), exchange(best[1], mask));
  ifThen(equal(lane, index(0)), [&] {
    store(best[0], warpBest, warp);
    store(best[1], warpBestAt, warp);
  });
  barrier();
  ifThen(equal(thread, index(0)), [&] { offerBest(); });
}

/// The best of this block, to the first one.
void GpuBounded::offerBest() {
  Values all{loadFloat(warpBest, index(0)), load(warpBestAt, index(0))};
  for (int64_t other = 1; other < warps; ++other)
    lower(all, loadFloat(warpBest, index(other)),
          load(warpBestAt, index(other)));
  // A block may have no token that can leave.
  Value inside = maximum(minimum(all[1], sub(lastPlace, index(1))), firstPlace);
  Value at = add(sub(inside, firstPlace), pool / 2);
  store(all[0], inBlock(index(0), bests), rank);
  store(all[1], inBlock(index(0), bestPlaces), {index(0), rank});
  store(load(order, {index(0), at}), inBlock(index(0), bestPlaces),
        {index(1), rank});
}

/// The entry that leaves, and its place in the sequence.
std::pair<Value, Value> GpuBounded::bestOfBlocks() {
  // Where there is no choice, or no number to choose by, it is the oldest.
  if (!note)
    return {oldest, oldestPlace};
  Values best{number(INFINITY), index(capacity)};
  Value entry = index(0);
  for (int64_t block = 0; block < mostBlocks; ++block) {
    Value isThere = less(index(block), ranks);
    Value value =
        select(isThere, loadFloat(bests, index(block)), number(INFINITY));
    Value place = select(isThere, load(bestPlaces, {index(0), index(block)}),
                         index(capacity));
    lower(best, value, place);
    entry = select(equal(best[1], place),
                   load(bestPlaces, {index(1), index(block)}), entry);
  }
  Value isNone = equal(best[1], index(capacity));
  return {select(isNone, oldest, entry), select(isNone, oldestPlace, best[1])};
}
