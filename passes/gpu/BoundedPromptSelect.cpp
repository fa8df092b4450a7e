//===- BoundedPromptSelect.cpp - who of a prompt stays --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block has a head of a row. Pooled saliences become integers that order as
// they do; the lowest that stays is found by its bits, two at a time, as all
// threads count those above. Then each thread lists a stretch of candidates: of
// those as salient as the lowest, the newest stay.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedPrompts.h"

using namespace mlir;
using namespace ladle;

/// A block of a kernel that chooses, with a head of a row.
void GpuBoundedPrompts::openChoosing() {
  Type integer = b.getI32Type();
  counts = sharedArray("counts", integer, {3, kSelectWarps});
  sharedKept = sharedArray("kept_of_cache", integer, {1});
  if (given.notes) {
    warpBest = sharedArray("warp_best", b.getF32Type(), {kSelectWarps});
    warpBestAt = sharedArray("warp_best_at", integer, {kSelectWarps});
  }
  openLanes();
  planRow = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  cacheHead = named("cache_head", rem(planRow, cacheHeads));
}

/// Of a head that later kernels have nothing to do for.
void GpuBoundedPrompts::skipHead() {
  ifThen(equal(thread, index(0)), [&] {
    store(index(-1), array("head_plans", b.getI32Type(), kBoundedNumbers),
          {planRow, index(0)});
  });
}

void GpuBoundedPrompts::buildSelect() {
  createKernel("_select", kSelectThreads, /*blocks=*/1);
  openChoosing();
  openPrompt(div(planRow, cacheHeads));
  Value isPadding = less(slot, index(0));
  ifThen(isPadding, [&] { answerPadding(); });
  Value isThere = both(negate(isPadding), less(index(0), count));
  ifThen(negate(isThere), [&] { skipHead(); });
  ifThen(isThere, [&] { chooseKept(); });
}

/// By zeros.
void GpuBoundedPrompts::answerPadding() {
  constexpr int64_t width = 4;
  int64_t ofToken = plan.group() * valueSize;
  loop(mul(thread, width), mul(count, ofToken), index(threads * width),
       [&](Value at) {
         Value element = rem(at, ofToken);
         Value ofHead =
             add(mul(cacheHead, plan.group()), div(element, valueSize));
         storeVector(splat(number(0), width), outputMemory(),
                     {add(firstToken, div(at, ofToken)), ofHead,
                      rem(element, valueSize)});
       });
}

/// Among how many of the candidates there is a choice, for how many.
void GpuBoundedPrompts::openChoice(Value most) {
  budget = named("budget", most);
  isFull = named("is_full", less(budget, all));
  kept = named("kept", minimum(all, budget));
  leaving = named("leaving", sub(all, kept));
  firstChoice = named("first_choice", select(isFull, index(sinks), all));
  lastChoice =
      named("last_choice",
            select(isFull, maximum(sub(all, index(recent)), firstChoice), all));
  room = named("room",
               maximum(sub(sub(lastChoice, firstChoice), leaving), index(0)));
}

/// The rank of the least salient that stays; nothing counts without weights.
Value GpuBoundedPrompts::rankAndFind() {
  if (!given.notes)
    return arith::ConstantIntOp::create(b, 0, /*width=*/32);
  rankCandidates();
  barrier();
  return findThreshold();
}

void GpuBoundedPrompts::chooseKept() {
  before = named("before", cursor(BoundedNumber::Length));
  evicted = named("evicted", cursor(BoundedNumber::Evicted));
  Value lowered = cursor(BoundedNumber::Budget);
  openChoice(select(less(index(0), lowered), lowered, index(budgetOfProgram)));
  listCandidates(rankAndFind());
  keptCached = named("kept_of_cache", load(sharedKept, index(0)));
  loop(thread, kept, index(threads), [&](Value place) {
    store(entryOf(place), array("kept_entries", b.getI32Type(), stride),
          {planRow, place});
  });
  Value place = nextPlace();
  ifThen(equal(thread, index(0)), [&] {
    keepCursor(place, entryOf(place));
    store(window ? minimum(count, index(window)) : count,
          array("cursors", b.getI32Type(), kBoundedNumbers),
          {cursorRow, index(static_cast<int64_t>(BoundedNumber::Seen))});
  });
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

/// Over the threads before this one, and over all.
std::pair<Value, Value> GpuBoundedPrompts::sumBefore(Value number) {
  Type integer = b.getI32Type();
  Value sums = arith::IndexCastOp::create(b, integer, number);
  for (int64_t delta = 1; delta < kWarp; delta *= 2) {
    Value below = shuffle(sums, index(delta), gpu::ShuffleMode::UP);
    Value more = arith::AddIOp::create(b, sums, below);
    sums = select(notLess(lane, index(delta)), more, sums);
  }
  Value inclusive = arith::IndexCastOp::create(b, b.getIndexType(), sums);
  barrier();
  ifThen(equal(lane, index(kWarp - 1)),
         [&] { store(inclusive, counts, {index(0), warp}); });
  barrier();
  Value ahead = index(0), total = index(0);
  for (int64_t each = 0; each < kSelectWarps; ++each) {
    Value its = load(counts, {index(0), index(each)});
    ahead = add(ahead, select(less(index(each), warp), its, index(0)));
    total = add(total, its);
  }
  return {add(ahead, sub(inclusive, number)), total};
}

/// Tells in their order of those that stay and those that leave, and how many
/// stay before each; a thread has a stretch of them.
void GpuBoundedPrompts::judgeCandidates(
    Value threshold,
    llvm::function_ref<void(Value at, Value stays, Value before)> judged) {
  Type integer = b.getI32Type();
  Value each = div(add(all, kSelectThreads - 1), kSelectThreads);
  Value from = minimum(mul(thread, each), all);
  Value last = minimum(add(from, each), all);
  // Whether it stays in any case, and whether it is as salient as the lowest.
  auto look = [&](Value at) {
    Value isChoice = both(notLess(at, firstChoice), less(at, lastChoice));
    if (!given.notes)
      return std::pair(negate(isChoice), isChoice);
    Value rank = memref::LoadOp::create(b, array("ranks", integer),
                                        ValueRange{placeOf(at)});
    Value isAbove =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, rank, threshold);
    Value isEqual =
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rank, threshold);
    return std::pair(either(negate(isChoice), isAbove),
                     both(isChoice, isEqual));
  };
  auto asNumber = [&](Value condition) {
    return select(condition, index(1), index(0));
  };
  Values mine = loop(from, last, index(1), {index(0), index(0)},
                     [&](Value at, ValueRange sums) -> Values {
                       auto [isSure, isEqual] = look(at);
                       return {add(sums[0], asNumber(isSure)),
                               add(sums[1], asNumber(isEqual))};
                     });
  auto [sureBefore, sure] = sumBefore(mine[0]);
  auto [equalBefore, equals] = sumBefore(mine[1]);
  // Of equals the oldest leave.
  Value skipped = named("skipped", sub(equals, sub(kept, sure)));
  Value first = add(sureBefore, maximum(sub(equalBefore, skipped), index(0)));
  loop(from, last, index(1), {first, equalBefore},
       [&](Value at, ValueRange sums) -> Values {
         auto [isSure, isEqual] = look(at);
         Value stays = either(isSure, both(isEqual, notLess(sums[1], skipped)));
         judged(at, stays, sums[0]);
         return {add(sums[0], asNumber(stays)),
                 add(sums[1], asNumber(isEqual))};
       });
}

/// Those that stay and those that leave, both in order.
void GpuBoundedPrompts::listCandidates(Value threshold) {
  Type integer = b.getI32Type();
  judgeCandidates(threshold, [&](Value at, Value stays, Value ahead) {
    ifThen(equal(at, position), [&] { store(ahead, sharedKept, index(0)); });
    ifThen(stays, [&] {
      store(at, array("kept_tokens", integer, stride), {planRow, ahead});
    });
    ifThen(negate(stays), [&] {
      Value which = select(less(at, position), entryInOrder(at),
                           sub(index(-1), sub(at, position)));
      store(which, array("leaving", integer), placeOf(sub(at, ahead)));
    });
  });
  barrier();
}

/// Of who stays: its own, or one of those that leave, or one behind the last.
Value GpuBoundedPrompts::entryOf(Value place) {
  Type integer = b.getI32Type();
  Value of = load(array("kept_tokens", integer, stride), {planRow, place});
  Value left = sub(position, keptCached), which = sub(place, keptCached);
  Value isFree = less(which, left);
  Value inside =
      select(both(isFree, notLess(which, index(0))), which, index(0));
  Value freed = load(array("leaving", integer), placeOf(inside));
  return select(less(of, position), entryInOrder(of),
                select(isFree, freed, add(position, sub(which, left))));
}

//===----------------------------------------------------------------------===//
// Who leaves next
//===----------------------------------------------------------------------===//

/// As steps choose: of several as low, the oldest; where there is no number to
/// choose by, it is the oldest of all that may leave.
Value GpuBoundedPrompts::nextPlace() {
  Type integer = b.getI32Type();
  Value oldest = minimum(index(sinks), sub(kept, index(1)));
  if (!given.notes)
    return oldest;
  Value last = minimum(sub(kept, index(recent - 1)), kept);
  auto lower = [&](Values &mine, Value value, Value at) {
    Value isLess =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, value, mine[0]);
    Value isEqual =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, value, mine[0]);
    Value isTaken = either(isLess, both(isEqual, less(at, mine[1])));
    mine = {select(isTaken, value, mine[0]), select(isTaken, at, mine[1])};
  };
  Values best = loop(
      add(oldest, thread), last, index(threads),
      {number(INFINITY), index(capacity)},
      [&](Value place, ValueRange carried) -> Values {
        auto candidate = [&](Value near) {
          return load(array("kept_tokens", integer, stride), {planRow, near});
        };
        // The token that comes next has none.
        Value mean = pooled(place, kept, candidate, /*weightless=*/1);
        Value isLess = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, mean,
                                             carried[0]);
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
  for (int64_t each = 0; each < kSelectWarps; ++each)
    lower(best, loadFloat(warpBest, index(each)),
          load(warpBestAt, index(each)));
  return select(equal(best[1], index(capacity)), oldest, best[1]);
}

void GpuBoundedPrompts::keepCursor(Value place, Value victim) {
  Type integer = b.getI32Type();
  Value plans = array("head_plans", integer, kBoundedNumbers);
  Value numbers[] = {slot, firstToken, before, count, position, kept, evicted};
  for (auto [which, value] : llvm::enumerate(numbers))
    store(value, plans, {planRow, index(static_cast<int64_t>(which))});
  Value cursors = array("cursors", integer, kBoundedNumbers);
  auto keep = [&](BoundedNumber which, Value value) {
    store(value, cursors, {cursorRow, index(static_cast<int64_t>(which))});
  };
  Value hasNext = notLess(kept, budget);
  keep(BoundedNumber::Length, add(before, count));
  keep(BoundedNumber::Count, kept);
  keep(BoundedNumber::Victim, select(hasNext, victim, index(-1)));
  keep(BoundedNumber::Place, select(hasNext, place, index(capacity)));
  keep(BoundedNumber::Evicted, add(evicted, leaving));
}
