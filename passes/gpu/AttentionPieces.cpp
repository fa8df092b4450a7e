//===- AttentionPieces.cpp - the list of pieces ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// One block sees all rows, heads by heads. A thread first takes a head, which
// it decides about; then the first of the threads whose heads attend together
// says what these attend to, and sums over the threads before say where that
// is among all. Then warps cut it into pieces:
//
// - evenly: all that is attended to is tiles of keys one behind another, of
//   which each warp of `_attend` gets as many, its portion. A piece is what a
//   portion has of a range;
// - or each row by itself: a piece has so many keys as the length of the row
//   says, and warps take them in turns. An answer then does not depend on the
//   rows around it.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = 512;
/// Keys of a piece that a row cuts by itself, at least.
static constexpr int64_t kPieceKeys = 64;
/// Of a range: begin, end, twice the slot and one more after a match, keys of
/// an amount; how many of these, and of ranges that are not empty, are before.
static constexpr int64_t kFields = 8;
/// Ranges that are noted in shared memory.
static constexpr int64_t kNearRanges = 256;

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

/// Of each count.
SmallVector<std::pair<Value, Value>>
GpuAttention::sumsBefore(ArrayRef<Value> counts) {
  int64_t warpCount = threads / kWarp;
  Type integer = b.getI32Type();
  auto kinds = static_cast<int64_t>(counts.size());
  Value ofLane = rem(thread, kWarp), ofWarp = div(thread, kWarp);
  Value warpCounts = sharedArray("warp_counts", integer, {kinds, warpCount});
  Values before;
  for (auto [kind, count] : llvm::enumerate(counts)) {
    Value all = arith::IndexCastOp::create(b, integer, count);
    for (int64_t delta = 1; delta < kWarp; delta *= 2) {
      Value below = shuffle(all, index(delta), gpu::ShuffleMode::UP);
      Value more = arith::AddIOp::create(b, all, below);
      all = select(notLess(ofLane, index(delta)), more, all);
    }
    ifThen(equal(ofLane, index(kWarp - 1)), [&] {
      store(all, warpCounts, {index(static_cast<int64_t>(kind)), ofWarp});
    });
    before.push_back(
        sub(arith::IndexCastOp::create(b, b.getIndexType(), all), count));
  }
  barrier();
  SmallVector<std::pair<Value, Value>> all;
  for (auto [kind, ofThread] : llvm::enumerate(before)) {
    Value place = index(static_cast<int64_t>(kind));
    Values sums = loop(
        index(0), index(warpCount), index(1), {ofThread, index(0)},
        [&](Value each, ValueRange carried) -> Values {
          Value ofThose = load(warpCounts, {place, each});
          Value isBefore = less(each, ofWarp);
          return {add(carried[0], select(isBefore, ofThose, index(0))),
                  add(carried[1], ofThose)};
        },
        /*unrolls=*/true);
    all.push_back({sums[0], sums[1]});
  }
  return all;
}

//===----------------------------------------------------------------------===//
// What is attended to
//===----------------------------------------------------------------------===//

Value GpuAttention::isEven() { return less(index(0), scalar("even")); }

/// From the least start of the heads of a task on, the first of which has one.
Value GpuAttention::leastStart(Value starts, Value first) {
  Value start = index(0);
  for (int64_t i = 0; plan.find && i < share; ++i) {
    Value each = load(starts, add(first, i));
    start = i ? minimum(start, each) : each;
  }
  return start;
}

/// The ranges of a task at a position, and their keys.
std::pair<GpuAttention::History, Value> GpuAttention::openRanges(Value position,
                                                                 Value start) {
  History history;
  Value all = index(0);
  for (AttendOp attend : plan.attends) {
    Value from = boundOf(attend.getBegin(), position);
    Value end = boundOf(attend.getEnd(), position);
    if (attend.getAfter())
      from = maximum(from, start);
    end = maximum(from, end);
    all = add(all, sub(end, from));
    history.ranges.append({from, end});
  }
  return {history, all};
}

GpuAttention::History GpuAttention::openHistory(const Row &row, Value starts) {
  auto [history, all] = openRanges(row.position, leastStart(starts, thread));
  int64_t unit = attentionPieces(tasksOfRow) * kTileKeys;
  Value keysOfPiece =
      maximum(mul(div(add(all, unit - 1), unit), kTileKeys), index(kPieceKeys));
  history.unit = select(isEven(), index(kTileKeys), keysOfPiece);
  countAmounts(history);
  return history;
}

void GpuAttention::countAmounts(History &history) {
  history.amount = history.filled = index(0);
  for (size_t i = 0; i < plan.attends.size(); ++i) {
    Value length = sub(history.ranges[2 * i + 1], history.ranges[2 * i]);
    Value amount = div(sub(add(length, history.unit), index(1)), history.unit);
    history.amounts.push_back(amount);
    history.amount = add(history.amount, amount);
    history.filled =
        add(history.filled, select(less(index(0), amount), index(1), index(0)));
  }
}

/// The ranges of a task, by one thread.
void GpuAttention::keepRanges(Value task, Value slot, const History &history,
                              Value amount, Value filled) {
  Type integer = b.getI32Type();
  auto attends = static_cast<int64_t>(plan.attends.size());
  for (auto [i, attend] : llvm::enumerate(plan.attends)) {
    auto which = static_cast<int64_t>(i);
    Value ofMatch = add(mul(slot, 2), attend.getAfter() ? 1 : 0);
    Values fields{history.ranges[2 * i],
                  history.ranges[2 * i + 1],
                  ofMatch,
                  history.unit,
                  amount,
                  filled,
                  history.amounts[i],
                  task};
    for (Value &field : fields)
      field = arith::IndexCastOp::create(b, integer, field);
    Value range = add(mul(task, attends), which);
    auto note = [&](Value records) {
      for (int64_t half = 0; half < kFields; half += 4)
        storeVector(fromElements(ArrayRef<Value>(fields).slice(half, 4)),
                    records, {range, index(half)});
    };
    Value isNear = less(range, index(kNearRanges));
    ifThen(isNear, [&] { note(nearRanges); });
    ifThen(negate(isNear), [&] { note(array("ranges", integer, kFields)); });
    amount = add(amount, history.amounts[i]);
    filled = add(
        filled, select(less(index(0), history.amounts[i]), index(1), index(0)));
  }
}

/// Of heads from one on, a thread each, behind such sums.
GpuAttention::Values GpuAttention::planHeads(Value base, Value count,
                                             ValueRange already) {
  Type integer = b.getI32Type();
  int64_t chunk = kThreads / share * share;
  Value isHeadThread = less(thread, index(chunk));
  Value at = named("head_of_all", add(base, thread));
  Value isHead = both(isHeadThread, less(at, count));
  at = select(isHead, at, index(0));
  Value number = named("row", div(at, heads));
  Value ofHead = named("head", rem(at, heads));
  Row row = openRow(number);
  Value isAnswered = both(isHead, row.isAnswered);
  if (plan.find) {
    // Where rows stand is known before what has been found.
    Value moment = momentOf(maximum(row.slot, index(0)), ofHead);
    startInOrder();
    Values found = nearest(number, ofHead);
    Values decided = ifElse(
        isAnswered,
        [&]() -> Values {
          auto [offset, start] = decide(found, row, ofHead, moment);
          store(offset, array("hits", integer, heads), {number, ofHead});
          store(start, array("starts", integer, heads), {number, ofHead});
          return {start};
        },
        [&]() -> Values { return {index(0)}; });
    store(decided[0], headStarts, thread);
    barrier();
  }
  ifThen(both(isHead, equal(ofHead, index(0))), [&] { keepRow(number, row); });

  Value isFirst = both(isHead, equal(rem(thread, share), index(0)));
  size_t ranges = 2 * plan.attends.size();
  Values opened = ifElse(
      both(isAnswered, isFirst),
      [&]() -> Values {
        History history = openHistory(row, headStarts);
        Values all{history.unit, history.amount, history.filled};
        all.append(history.ranges);
        all.append(history.amounts);
        return all;
      },
      [&]() -> Values {
        Values all(3 + ranges + plan.attends.size(), index(0));
        all[0] = index(1);
        return all;
      });
  History history{opened[0], opened[1], opened[2],
                  Values(ArrayRef(opened).slice(3, ranges)),
                  Values(ArrayRef(opened).drop_front(3 + ranges))};
  auto sums = sumsBefore({history.amount, history.filled});
  ifThen(isFirst, [&] {
    keepRanges(div(at, share), row.slot, history,
               add(already[0], sums[0].first), add(already[1], sums[1].first));
  });
  barrier();
  return {add(already[0], sums[0].second), add(already[1], sums[1].second)};
}

//===----------------------------------------------------------------------===//
// The list
//===----------------------------------------------------------------------===//

/// The pieces of a range, from one on and so many apart, where portions have
/// so many amounts.
void GpuAttention::listPieces(Value range, Value each, Value apart,
                              Value portion, Value total) {
  Type integer = b.getI32Type();
  auto attends = static_cast<int64_t>(plan.attends.size());
  auto noted = [&](Value records) -> Values {
    return {loadVector(records, {range, index(0)}, 4),
            loadVector(records, {range, index(4)}, 4)};
  };
  Values record = ifElse(
      less(range, index(kNearRanges)), [&] { return noted(nearRanges); },
      [&] { return noted(array("ranges", integer, kFields)); });
  auto field = [&](int64_t which) -> Value {
    return arith::IndexCastOp::create(b, b.getIndexType(),
                                      extract(record[which / 4], which % 4));
  };
  Value begin = field(0), end = field(1), unit = field(3), before = field(4);
  Value amount = field(6), even = isEven();
  Value firstPortion = div(before, portion);
  Value offset = sub(before, mul(firstPortion, portion));
  Value firstPiece = add(firstPortion, select(even, field(5), index(0)));
  Value all = div(add(add(offset, amount), sub(portion, index(1))), portion);
  Value count = select(less(index(0), amount), all, index(0));
  ifThen(equal(each, index(0)), [&] {
    Value bounds = array("piece_bounds", integer, 2 * attends);
    Value task = div(range, attends), which = mul(rem(range, attends), 2);
    store(firstPiece, bounds, {task, which});
    store(add(firstPiece, count), bounds, {task, add(which, 1)});
  });
  loop(each, count, apart, [&](Value which) {
    Value from = sub(mul(which, portion), offset), to = add(from, portion);
    Value first = add(begin, mul(maximum(from, index(0)), unit));
    Value last = minimum(add(begin, mul(to, unit)), end);
    Value piece = fromElements(
        {extract(record[1], 3), arith::IndexCastOp::create(b, integer, first),
         arith::IndexCastOp::create(b, integer, last), extract(record[0], 2)});
    Value number = add(firstPiece, which);
    storeVector(piece, pieces, {number, index(0)});
    // A portion that begins or ends with the piece.
    Value portions = array("portions", integer, kFields);
    Value ofWarp = add(firstPortion, which);
    Value isBegin = select(even, notLess(from, index(0)),
                           less(number, scalar("portion_count")));
    ifThen(isBegin, [&] {
      store(number, portions, {ofWarp, index(0)});
      storeVector(piece, portions, {ofWarp, index(4)});
    });
    Value isEnd =
        either(notLess(amount, to), equal(add(before, amount), total));
    ifThen(both(even, isEnd),
           [&] { store(add(number, 1), portions, {ofWarp, index(1)}); });
  });
}

/// All pieces, by as many threads of each range as there are.
void GpuAttention::listRanges(Value ranges, Value portion, Value total) {
  Value mine = thread, each = index(0);
  Value together = index(1), stride = index(kThreads);
  for (int64_t i = 2; i <= kWarp; i *= 2) {
    Value isMore = notLess(index(kThreads / i), ranges);
    mine = select(isMore, div(thread, i), mine);
    each = select(isMore, rem(thread, i), each);
    together = select(isMore, index(i), together);
    stride = select(isMore, index(kThreads / i), stride);
  }
  loop(mine, ranges, stride,
       [&](Value range) { listPieces(range, each, together, portion, total); });
  // Warps that have nothing; where rows cut by themselves, behind all pieces.
  Value even = isEven(), warpCount = scalar("portion_count");
  Value used =
      select(even, div(add(total, sub(portion, index(1))), portion), index(0));
  Value portions = array("portions", b.getI32Type(), kFields);
  loop(add(used, thread), warpCount, index(kThreads), [&](Value which) {
    Value isNone = either(even, notLess(which, total));
    ifThen(isNone, [&] { store(index(0), portions, {which, index(0)}); });
    store(select(isNone, index(0), total), portions, {which, index(1)});
  });
}

void GpuAttention::planRows() {
  int64_t chunk = kThreads / share * share;
  pieces = array("pieces", b.getI32Type(), 4);
  nearRanges =
      sharedArray("near_ranges", b.getI32Type(), {kNearRanges, kFields});
  if (plan.find)
    headStarts = sharedArray("head_starts", b.getI32Type(), {kThreads});
  Value count = mul(scalar("rows"), heads);
  Value total = loop(index(0), count, index(chunk), {index(0), index(0)},
                     [&](Value base, ValueRange before) -> Values {
                       return planHeads(base, count, before);
                     })
                    .front();
  Value warpCount = scalar("portion_count");
  Value even = maximum(div(add(total, sub(warpCount, index(1))), warpCount),
                       index(kPortionTiles));
  auto attends = static_cast<int64_t>(plan.attends.size());
  listRanges(mul(div(count, share), attends),
             named("portion", select(isEven(), even, index(1))), total);
}

/// Without a match the list does not wait for anything, and other blocks put
/// tokens into their pages meanwhile.
void GpuAttention::buildPlan() {
  createKernel("_plan", kThreads, /*blocks=*/1);
  if (plan.find)
    return planRows();
  startInOrder();
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
