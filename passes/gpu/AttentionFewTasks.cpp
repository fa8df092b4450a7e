//===- AttentionFewTasks.cpp - portions of few rows with matches ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where rows are few, a step with a match has no `_plan`. Blocks of `_find` let
// what they have found through the gates, and note where rows stand. Each block
// of `_few`, which attends, looks at what has been found of all heads, and adds
// up what all tasks attend to; its warps find their portions by these sums.
// That all blocks do the same takes less than a kernel ahead of it. Where tasks
// have many pieces, blocks merge those of their warps. The last block, which
// has the least to attend to, leaves where the pieces are for `_finish`.
//
// All of that waits for `_find`. To look at the matches of the step before, and
// to start the first tiles where there was none, costs steps that have matches
// more than it gives those that have none.

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

/// Of a row: slot or −1, and position.
static constexpr int64_t kRowFields = 2;
/// Heads whose sections a thread asks for together.
static constexpr int64_t kHeadsAtOnce = 2;

/// What a block notes, in numbers of 32 bits.
int64_t GpuAttention::fewNumbers() const {
  return kRowFields * kAttentionFewRows + kAttentionFewHeads + 2 * fewTasks();
}

void GpuAttention::declareFewTasks() {
  Type integer = b.getI32Type();
  fewRowsAt =
      sharedArray("few_rows_at", integer, {kAttentionFewRows, kRowFields});
  headStarts = sharedArray("head_starts", integer, {kAttentionFewHeads});
  taskSums = sharedArray("task_sums", integer, {fewTasks(), 2});
}

Value GpuAttention::fieldOfRow(Value row, int64_t which) {
  return load(fewRowsAt, {row, index(which)});
}

/// Where rows stand, by the first warp.
void GpuAttention::keepFewRows() {
  ifThen(equal(warp, index(0)), [&] {
    Value its = loadSlotOfLane(), at = maximum(its, index(0));
    // Before the first token nothing is attended to.
    Value position = loadIndexAhead(
        array("cursors", b.getI32Type(), kSlotNumbers), {at, index(0)});
    position = select(less(its, index(0)), index(-1), position);
    Values fields{its, position};
    for (Value &each : fields)
      each = arith::IndexCastOp::create(b, b.getI32Type(), each);
    storeVector(fromElements(fields), fewRowsAt, {lane, index(0)});
  });
}

/// Who has the rest of all tiles, or none.
Value GpuAttention::isLastBlock() {
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  return equal(block, sub(blocks, index(1)));
}

/// The match of each head, and from where it attends anew; the last block
/// leaves what callers ask for.
void GpuAttention::matchFewHeads() {
  Value all = mul(scalar("rows"), heads);
  Ahead ahead = startLoop(thread, all, index(threads), kHeadsAtOnce,
                          [&](Value at) { return loadFound(at, index(0)); });
  // Rows are there.
  barrier();
  Type integer = b.getI32Type();
  Value isLeaver = isLastBlock();
  auto match = [&](Value at, ValueRange loaded, ValueRange) -> Values {
    Values found = nearestOf({number(INFINITY), index(-1)}, loaded);
    found =
        loop(index(kSectionsAtOnce), scalar("sections"), index(kSectionsAtOnce),
             found, [&](Value section, ValueRange carried) -> Values {
               return nearestOf(carried, loadFound(at, section));
             });
    // Padding has left nothing.
    Value row = div(at, heads);
    Value isPadding = less(fieldOfRow(row, 0), index(0));
    Value hit = select(isPadding, index(-1), maximum(found[1], index(-1)));
    Value start = sub(sub(fieldOfRow(row, 1), hit), scalar("band"));
    start =
        select(less(hit, index(0)), index(0), maximum(start, scalar("sinks")));
    store(start, headStarts, at);
    ifThen(isLeaver, [&] {
      store(hit, array("hits", integer, heads), {row, rem(at, heads)});
    });
    return {};
  };
  finishLoop(ahead, {}, match);
  barrier();
}

/// What a task attends to, in tiles.
GpuAttention::FewMatched GpuAttention::openTask(Value task) {
  FewMatched its;
  its.task = task;
  its.row = div(task, tasksOfRow);
  its.slot = fieldOfRow(its.row, 0);
  its.position = fieldOfRow(its.row, 1);
  Value start = leastStart(headStarts, mul(task, share));
  its.history = openRanges(its.position, start).first;
  its.history.unit = index(kTileKeys);
  countAmounts(its.history);
  its.behind = load(taskSums, {task, index(0)});
  its.first = sub(its.behind, its.history.amount);
  its.rank = sub(load(taskSums, {task, index(1)}), its.history.filled);
  return its;
}

/// Tiles, and ranges that are not empty, of all tasks up to each.
void GpuAttention::countFewTasks() {
  Value tasks = mul(scalar("rows"), tasksOfRow), none = index(0);
  (void)loop(none, tasks, index(threads), {none, none},
             [&](Value base, ValueRange before) -> Values {
               Value task = add(base, thread), isTask = less(task, tasks);
               History history = openTask(select(isTask, task, none)).history;
               Value amount = select(isTask, history.amount, none);
               Value filled = select(isTask, history.filled, none);
               auto sums = sumsBefore({amount, filled});
               ifThen(isTask, [&] {
                 Value tiles = add(add(before[0], sums[0].first), amount);
                 Value ranges = add(add(before[1], sums[1].first), filled);
                 store(tiles, taskSums, {task, none});
                 store(ranges, taskSums, {task, index(1)});
               });
               barrier();
               return {add(before[0], sums[0].second),
                       add(before[1], sums[1].second)};
             });
}

GpuAttention::FewRows GpuAttention::addUpTasks() {
  Value tasks = mul(scalar("rows"), tasksOfRow), none = index(0);
  FewRows rows{none, none, none, none, none, none};
  rows.all = load(taskSums, {sub(tasks, index(1)), none});
  return rows;
}

GpuAttention::FewPiece GpuAttention::pieceOfTasks(Value tile,
                                                  Value endOfPortion) {
  Value tasks = mul(scalar("rows"), tasksOfRow), none = index(0);
  // Those whose tiles are all before.
  Value task = loop(lane, tasks, index(kWarp), none,
                    [&](Value each, ValueRange carried) -> Values {
                      Value behind = load(taskSums, {each, none});
                      return {select(less(tile, behind), carried[0],
                                     add(carried[0], 1))};
                    })
                   .front();
  task = minimum(sumOfLanes(task), sub(tasks, index(1)));
  FewMatched its = openTask(task);
  FewPiece piece;
  Value begin = none, end = none, after = none;
  Value first = its.first, rank = its.rank;
  piece.firstOfRange = piece.endOfRange = first;
  piece.rank = rank;
  for (auto [i, attend] : llvm::enumerate(plan.attends)) {
    Value amount = its.history.amounts[i], behind = add(first, amount);
    Value isFilled = less(none, amount);
    Value isHere = both(isFilled, notLess(tile, first));
    auto here = [&](Value value, Value other) {
      return select(isHere, value, other);
    };
    begin = here(its.history.ranges[2 * i], begin);
    end = here(its.history.ranges[2 * i + 1], end);
    after = here(index(attend.getAfter() ? 1 : 0), after);
    piece.firstOfRange = here(first, piece.firstOfRange);
    piece.endOfRange = here(behind, piece.endOfRange);
    piece.rank = here(rank, piece.rank);
    first = behind;
    rank = add(rank, select(isFilled, index(1), none));
  }
  Value left = minimum(piece.endOfRange, endOfPortion);
  auto keyOf = [&](Value at) {
    return add(begin, mul(sub(at, piece.firstOfRange), kTileKeys));
  };
  Values fields{task, keyOf(tile), minimum(keyOf(left), end),
                add(mul(its.slot, 2), after)};
  for (Value &field : fields)
    field = arith::IndexCastOp::create(b, b.getI32Type(), field);
  piece.record = fromElements(fields);
  piece.endTile = left;
  return piece;
}

/// Of the task that attends to most.
Value GpuAttention::mostTilesOfTask() {
  Value tasks = mul(scalar("rows"), tasksOfRow), none = index(0);
  Value most = loop(lane, tasks, index(kWarp), none,
                    [&](Value task, ValueRange carried) -> Values {
                      Value before = load(
                          taskSums, {maximum(sub(task, index(1)), none), none});
                      before = select(less(none, task), before, none);
                      Value tiles = sub(load(taskSums, {task, none}), before);
                      return {maximum(carried[0], tiles)};
                    })
                   .front();
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    most = maximum(most, exchange(most, mask));
  return most;
}

/// Whether blocks merge what their warps have of a range: where a task has many
/// pieces, those of more blocks than one in two ranges. With portions of the
/// least size one head that does not match may have a thousand, and one that
/// does has 40, which are not worth it.
Value GpuAttention::mergesBlocks(Value portion) {
  constexpr int64_t blocksOfTask = 4, manyPieces = 48;
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value tasks = mul(scalar("rows"), tasksOfRow * blocksOfTask);
  Value isMany =
      either(less(index(kPortionTiles), portion),
             notLess(mostTilesOfTask(), index(manyPieces * kPortionTiles)));
  return both(isMany, notLess(blocks, tasks));
}

/// Where the pieces of each range are, by the last block.
void GpuAttention::leaveRanges(Value portion, Value allTiles) {
  Value tasks = mul(scalar("rows"), tasksOfRow), none = index(0);
  tasks = select(isLastBlock(), tasks, none);
  loop(thread, tasks, index(threads), [&](Value each) {
    FewMatched task = openTask(each);
    FewPiece piece;
    piece.rank = task.rank;
    piece.endOfRange = task.first;
    for (auto [i, amount] : llvm::enumerate(task.history.amounts)) {
      Value isFilled = less(none, amount);
      piece.firstOfRange = piece.endOfRange;
      piece.endOfRange = add(piece.firstOfRange, amount);
      Values fields = ifElse(
          blocksMerge,
          [&]() -> Values {
            FewPieces list = piecesOfTask(piece, portion, allTiles);
            return {add(list.first, piece.rank), list.count, list.leading,
                    add(list.firstWhole, piece.rank), list.whole};
          },
          [&]() -> Values {
            Value first = div(piece.firstOfRange, portion);
            Value last = div(sub(piece.endOfRange, index(1)), portion);
            Value count = add(sub(last, first), index(1));
            return {add(first, piece.rank), count, count, none, none};
          });
      fields[1] = select(isFilled, fields[1], none);
      fields.append(kRangeFields - fields.size(), none);
      for (Value &field : fields)
        field = arith::IndexCastOp::create(b, b.getI32Type(), field);
      auto attends = static_cast<int64_t>(plan.attends.size());
      Value range = add(mul(each, attends), static_cast<int64_t>(i));
      for (int64_t half = 0; half < kRangeFields; half += 4)
        storeVector(fromElements(ArrayRef<Value>(fields).slice(half, 4)),
                    array("ranges", b.getI32Type(), kRangeFields),
                    {range, index(half)});
      piece.rank = add(piece.rank, select(isFilled, index(1), none));
    }
  });
}

/// As it has been left.
GpuAttention::Values GpuAttention::loadRange(Value range) {
  Value ranges = array("ranges", b.getI32Type(), kRangeFields);
  Value halves[2] = {loadVector(ranges, {range, index(0)}, 4),
                     loadVector(ranges, {range, index(4)}, 4)};
  Values fields;
  for (int64_t i = 0; i < kListFields; ++i)
    fields.push_back(arith::IndexCastOp::create(b, b.getIndexType(),
                                                extract(halves[i / 4], i % 4)));
  return fields;
}

/// As `planFewRows`, with the pieces listed.
GpuAttention::Values GpuAttention::planFewTasks(Value ofWarp) {
  countFewTasks();
  Values none{index(0), index(0)};
  Values all = planFewRows(none, ofWarp);
  listFewPieces(none, all);
  return all;
}

/// The portion of a warp by what has been found.
GpuAttention::Values GpuAttention::portionOfTasks(Value ofWarp) {
  matchFewHeads();
  Values all = planFewTasks(ofWarp);
  leaveRanges(all[5], all[9]);
  return all;
}
