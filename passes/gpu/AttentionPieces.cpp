//===- AttentionPieces.cpp - matches, and the list of pieces --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// One block sees all rows, heads by heads. A thread first takes a head, which
// it decides about; then the first of the threads whose heads attend together
// says into how many pieces what they attend to is cut, and a sum over the
// threads before where in the list these go. Warps put them there.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = 512;
/// Keys of a piece at least.
static constexpr int64_t kPieceKeys = 64;

//===----------------------------------------------------------------------===//
// Matches
//===----------------------------------------------------------------------===//

/// Of a query of this row to one of a ring; by one thread.
Value GpuAttention::distance(Value value, const Row &row, Value ofHead,
                             Value ring, Value ringAt) {
  Value mine = tensor(value);
  constexpr int64_t width = 8;
  return loop(index(0), index(keySize), index(width), number(0.0),
              [&](Value at, ValueRange carried) -> Values {
                Value difference = arith::SubFOp::create(
                    b, widened(mine, {row.token, ofHead, at}, width),
                    widened(ring, {ringAt, at}, width));
                return {vector::ReductionOp::create(
                    b, vector::CombiningKind::ADD,
                    product(difference, difference), carried[0])};
              })
      .front();
}

std::pair<Value, Value> GpuAttention::decide(Value number, const Row &row,
                                             Value ofHead) {
  Type f32 = b.getF32Type(), integer = b.getI32Type();
  Value nearest = array("nearest", f32);
  Value nearestEntry = array("nearest_entry", integer);
  Value sections = scalar("sections");
  Value first = mul(add(mul(number, heads), ofHead), sections);
  constexpr int64_t together = 8;
  Values found = loop(
      index(0), sections, index(together), {this->number(INFINITY), index(-1)},
      [&](Value section, ValueRange carried) -> Values {
        // The last one is nearer than itself in no case.
        Values squares, entries;
        for (int64_t i = 0; i < together; ++i) {
          Value at =
              add(first, minimum(add(section, i), sub(sections, index(1))));
          squares.push_back(loadFloat(nearest, at));
          entries.push_back(load(nearestEntry, at));
        }
        Value best = carried[0], entry = carried[1];
        for (int64_t i = 0; i < together; ++i) {
          Value isNearer = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                                 squares[i], best);
          best = select(isNearer, squares[i], best);
          entry = select(isNearer, entries[i], entry);
        }
        return {best, entry};
      });
  Value offset = named("nearest_offset", found[1]);
  Value moment;
  if (Value given = plan.find.getMoment())
    moment = loadFloat(tensor(given), ofHead);
  else
    moment = loadFloat(array("ring_moments", f32),
                       add(mul(row.slot, heads), ofHead));
  // What is not less, NaN among it, is no match.
  Value isMatch = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, found[0],
                                        product(floatScalar("limit"), moment));
  isMatch = both(isMatch, notLess(offset, index(0)));
  Values decided = ifElse(
      isMatch,
      [&]() -> Values {
        Value entryAt =
            ringRow(row.slot, ofHead, entryBefore(row.position, offset));
        // A chain that is as long as it may be is refreshed by exact attention.
        Value chain = load(array("ring_depths", integer), entryAt);
        Value most = scalar("max_chain");
        Value isRefused = both(less(index(0), most), notLess(chain, most));
        if (plan.find.getRotated()) {
          Value ring = array("ring_rotated", plan.ring.getQueryType(), keySize);
          Value drifted = arith::CmpFOp::create(
              b, arith::CmpFPredicate::UGE,
              distance(plan.find.getRotated(), row, ofHead, ring, entryAt),
              product(floatScalar("drift_limit"), moment));
          isRefused = either(isRefused, drifted);
        }
        Value start = maximum(sub(sub(row.position, offset), scalar("band")),
                              scalar("sinks"));
        if (plan.ring.getParts() == 2)
          start = select(less(scalar("wide_gap"), add(offset, 1)),
                         load(array("ring_ends", integer), entryAt), start);
        return {select(isRefused, index(-1), offset),
                select(isRefused, index(0), start)};
      },
      [&]() -> Values { return {index(-1), index(0)}; });
  return {decided[0], decided[1]};
}

//===----------------------------------------------------------------------===//
// Rows and bounds
//===----------------------------------------------------------------------===//

void GpuAttention::keepRow(Value number, const Row &row) {
  Value plans = array("row_plans", b.getI32Type(), 8);
  Value slot = select(row.isAnswered, row.slot, index(-1));
  Value kept = row.entries, entry = index(0);
  if (plan.ring) {
    Value capacity = scalar("capacity");
    entry = rem(row.position, capacity);
    kept = minimum(add(row.entries, row.stores), capacity);
  }
  Value amended = add(row.amended, row.stores);
  Value list[] = {slot,       row.token, row.position, entry,
                  row.stores, amended,   kept};
  for (auto [which, value] : llvm::enumerate(list))
    store(value, plans, {number, index(static_cast<int64_t>(which))});
}

Value GpuAttention::boundOf(Bound bound, Value position) {
  Value last = add(position, 1);
  auto before = [&](StringRef name) {
    Value sinks = minimum(scalar("sinks"), last);
    return maximum(sub(last, scalar(name)), sinks);
  };
  switch (bound) {
  case Bound::Start:
    return index(0);
  case Bound::Sinks:
    return minimum(scalar("sinks"), last);
  case Bound::Wide:
    return before("wide");
  case Bound::Band:
    return before("band");
  case Bound::End:
    return last;
  }
  return last;
}

std::pair<Value, Value> GpuAttention::sumBefore(Value count) {
  constexpr int64_t warpCount = kThreads / kWarp;
  Type integer = b.getI32Type();
  Value all = arith::IndexCastOp::create(b, integer, count);
  Value ofLane = rem(thread, kWarp), ofWarp = div(thread, kWarp);
  for (int64_t delta = 1; delta < kWarp; delta *= 2) {
    Value below = shuffle(all, index(delta), gpu::ShuffleMode::UP);
    Value more = arith::AddIOp::create(b, all, below);
    all = select(notLess(ofLane, index(delta)), more, all);
  }
  Value warpCounts = sharedArray("warp_counts", integer, {warpCount});
  ifThen(equal(ofLane, index(kWarp - 1)),
         [&] { store(all, warpCounts, ofWarp); });
  barrier();
  Value before =
      sub(arith::IndexCastOp::create(b, b.getIndexType(), all), count);
  Values sums =
      loop(index(0), index(warpCount), index(1), {before, index(0)},
           [&](Value each, ValueRange carried) -> Values {
             Value ofThose = load(warpCounts, each);
             Value isBefore = less(each, ofWarp);
             return {add(carried[0], select(isBefore, ofThose, index(0))),
                     add(carried[1], ofThose)};
           });
  return {sums[0], sums[1]};
}

//===----------------------------------------------------------------------===//
// The list
//===----------------------------------------------------------------------===//

/// From `first` on, of which so many are of each piece.
GpuAttention::Cut GpuAttention::cutHistory(const Row &row, Value starts) {
  Value start = index(0);
  for (int64_t i = 0; plan.find && i < share; ++i) {
    Value each = load(starts, add(thread, i));
    start = i ? minimum(start, each) : each;
  }
  Cut cut;
  Value all = index(0);
  for (AttendOp attend : plan.attends) {
    Value from = boundOf(attend.getBegin(), row.position);
    Value end = boundOf(attend.getEnd(), row.position);
    if (attend.getAfter())
      from = maximum(from, start);
    end = maximum(from, end);
    all = add(all, sub(end, from));
    cut.ranges.append({from, end});
  }
  // A row cuts its history by what it attends to alone.
  int64_t unit = attentionPieces(tasksOfRow) * kTileKeys;
  cut.keys = mul(div(add(all, unit - 1), unit), kTileKeys);
  cut.keys = maximum(cut.keys, index(kPieceKeys));
  cut.pieces = index(0);
  for (size_t i = 0; i < plan.attends.size(); ++i)
    cut.pieces = add(cut.pieces, cut.piecesOf(*this, i));
  return cut;
}

Value GpuAttention::Cut::piecesOf(GpuAttention &kernel, size_t attend) const {
  Value length = kernel.sub(ranges[2 * attend + 1], ranges[2 * attend]);
  return kernel.div(kernel.sub(kernel.add(length, keys), kernel.index(1)),
                    keys);
}

/// The pieces of a task, by a warp, from a place of the list on.
void GpuAttention::listPieces(Value task, Value slot, Value place,
                              const Cut &cut) {
  Value bounds = array("piece_bounds", b.getI32Type(), 8);
  Value isFirst = equal(lane, index(0));
  for (auto [i, attend] : llvm::enumerate(plan.attends)) {
    auto which = static_cast<int64_t>(i);
    ifThen(isFirst, [&] { store(place, bounds, {task, index(which)}); });
    Value ofMatch = add(mul(slot, 2), attend.getAfter() ? 1 : 0);
    Value begin = cut.ranges[2 * i], end = cut.ranges[2 * i + 1];
    Value count = cut.piecesOf(*this, i);
    loop(lane, count, index(kWarp), [&](Value each) {
      Value from = add(begin, mul(each, cut.keys));
      Values fields{task, from, minimum(add(from, cut.keys), end), ofMatch};
      for (Value &field : fields)
        field = arith::IndexCastOp::create(b, b.getI32Type(), field);
      storeVector(fromElements(fields), pieces, {add(place, each), index(0)});
    });
    place = add(place, count);
  }
  Value last = index(static_cast<int64_t>(plan.attends.size()));
  ifThen(isFirst, [&] { store(place, bounds, {task, last}); });
}

/// Of heads from one on, a thread each; the list has so many pieces already.
Value GpuAttention::planHeads(Value base, Value count, Value already) {
  Type integer = b.getI32Type();
  int64_t chunk = kThreads / share * share;
  auto ranges = static_cast<int64_t>(2 * plan.attends.size());
  Value isHeadThread = less(thread, index(chunk));
  Value at = named("head_of_all", add(base, thread));
  Value isHead = both(isHeadThread, less(at, count));
  at = select(isHead, at, index(0));
  Value number = named("row", div(at, heads));
  Value ofHead = named("head", rem(at, heads));
  Row row = openRow(number);
  Value isAnswered = both(isHead, row.isAnswered);
  if (plan.find) {
    Values decided = ifElse(
        isAnswered,
        [&]() -> Values {
          auto [offset, start] = decide(number, row, ofHead);
          store(offset, array("hits", integer, heads), {number, ofHead});
          store(start, array("starts", integer, heads), {number, ofHead});
          return {start};
        },
        [&]() -> Values { return {index(0)}; });
    store(decided[0], headStarts, thread);
    barrier();
  }
  ifThen(both(isHead, equal(ofHead, index(0))), [&] { keepRow(number, row); });

  Value isFirst = both(isHeadThread, equal(rem(thread, share), index(0)));
  Values cut = ifElse(
      both(isAnswered, isFirst),
      [&]() -> Values {
        Cut made = cutHistory(row, headStarts);
        Values all{made.pieces, made.keys};
        all.append(made.ranges);
        return all;
      },
      [&]() -> Values {
        Values all(static_cast<size_t>(2 + ranges), index(0));
        all[1] = index(1);
        return all;
      });
  auto [before, sum] = sumBefore(cut[0]);
  // Warps share the tasks, and what these have to list.
  ifThen(isFirst, [&] {
    Value task = div(thread, share);
    store(add(already, before), cuts, {task, index(0)});
    store(row.slot, cuts, {task, index(1)});
    for (int64_t i = 0; i <= ranges; ++i)
      store(cut[1 + i], cuts, {task, index(2 + i)});
  });
  barrier();
  Value firstTask = div(base, share);
  Value tasks =
      minimum(sub(div(count, share), firstTask), index(chunk / share));
  loop(div(thread, kWarp), tasks, index(kThreads / kWarp), [&](Value which) {
    auto field = [&](int64_t i) { return load(cuts, {which, index(i)}); };
    Cut own;
    own.keys = field(2);
    for (int64_t i = 0; i < ranges; ++i)
      own.ranges.push_back(field(3 + i));
    listPieces(named("task", add(firstTask, which)), field(1), field(0), own);
  });
  barrier();
  return add(already, sum);
}

void GpuAttention::planRows() {
  Type integer = b.getI32Type();
  int64_t chunk = kThreads / share * share;
  pieces = array("pieces", integer, 4);
  if (plan.find)
    headStarts = sharedArray("head_starts", integer, {kThreads});
  auto fields = static_cast<int64_t>(3 + 2 * plan.attends.size());
  cuts = sharedArray("cuts", integer, {chunk / share, fields});
  lane = named("lane", rem(thread, kWarp));
  Value count = mul(scalar("rows"), heads);
  Values total = loop(index(0), count, index(chunk), index(0),
                      [&](Value base, ValueRange before) -> Values {
                        return {planHeads(base, count, before[0])};
                      });
  ifThen(equal(thread, index(0)),
         [&] { store(total[0], array("piece_count", integer), index(0)); });
}

/// Without a match the list does not wait for anything, and other blocks put
/// tokens into their pages meanwhile.
void GpuAttention::buildPlan() {
  createKernel("_plan", kThreads, /*blocks=*/1);
  startInOrder();
  if (plan.find)
    return planRows();
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value isFirst = equal(block, index(0));
  ifThen(isFirst, [&] { planRows(); });
  ifThen(negate(isFirst), [&] {
    Value token = sub(block, index(1));
    Value kvHead = named("cache_head", rem(token, cacheHeads));
    Row row = openRow(named("row", div(token, cacheHeads)));
    ifThen(row.isAnswered, [&] { append(row, kvHead); });
  });
}
