//===- AttentionFewRows.cpp - portions that warps find by themselves ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where all that is before a token is attended to, and a warp has a lane for
// each row, a step has no plan: each warp adds up what rows there are, and
// finds its even portion. It does so before the kernel ahead has ended, and
// copies the first tiles of its portion, which nobody writes any more: those
// of tokens before the last one that it knows of. When it has waited it looks
// again. Where rows do not stand where they stood, it begins anew.
//
// The token of the step itself is attended to by `_finish`, which also puts it
// into its page: who attends to the others need not wait for that.

#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

bool GpuAttention::takesFewRows() {
  static_assert(kAttentionFewRows <= kWarp);
  if (plan.find || plan.ring || plan.attends.size() != 1)
    return false;
  AttendOp attend = plan.attends.front();
  return attend.getBegin() == Bound::Start && attend.getEnd() == Bound::End;
}

Value GpuAttention::isFew() { return less(index(0), scalar("few_rows")); }

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Slot and position of the row of a lane; a slot of −1 has no tokens.
GpuAttention::Values GpuAttention::loadFewRows() {
  Type integer = b.getI32Type();
  auto ahead = [&](Value memory, ValueRange at) -> Value {
    return arith::IndexCastOp::create(
        b, b.getIndexType(), extract(loadVectorAhead(memory, at, 1), 0));
  };
  Value isRow = less(lane, scalar("rows"));
  Value its = ahead(array("slots", integer), {select(isRow, lane, index(0))});
  isRow = both(isRow,
               both(notLess(its, index(0)), less(its, scalar("slot_count"))));
  Value position = ahead(array("cursors", integer, kSlotNumbers),
                         {select(isRow, its, index(0)), index(0)});
  return {select(isRow, its, index(-1)), select(isRow, position, index(0))};
}

Value GpuAttention::sumOfLanes(Value value) {
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    value = add(value, exchange(value, mask));
  return value;
}

/// The piece of a portion that begins with a tile, of those of all rows.
GpuAttention::FewPiece GpuAttention::pieceAt(const FewRows &rows, Value tile,
                                             Value endOfPortion) {
  Value one = index(1), none = index(0);
  Value row = sumOfLanes(select(less(tile, rows.behind), none, one));
  row = minimum(row, index(kWarp - 1));
  auto ofRow = [&](Value value) {
    Value integer = arith::IndexCastOp::create(b, b.getI32Type(), value);
    return Value(arith::IndexCastOp::create(
        b, b.getIndexType(), shuffle(integer, row, gpu::ShuffleMode::IDX)));
  };
  Value tiles = ofRow(rows.tiles), position = ofRow(rows.position);
  Value all = mul(tiles, tasksOfRow);
  Value within = sub(tile, sub(ofRow(rows.behind), all));
  Value task = div(within, maximum(tiles, one));
  Value first = sub(within, mul(task, tiles));
  Value left = minimum(sub(tiles, first), sub(endOfPortion, tile));
  FewPiece piece;
  Value begin = mul(first, kTileKeys);
  Value end = minimum(add(begin, mul(left, kTileKeys)), position);
  Values fields{add(mul(row, tasksOfRow), task), begin, end,
                mul(ofRow(rows.slot), 2)};
  for (Value &field : fields)
    field = arith::IndexCastOp::create(b, b.getI32Type(), field);
  piece.record = fromElements(fields);
  piece.endTile = add(tile, left);
  piece.rank = add(ofRow(rows.filled), task);
  piece.isFirst = equal(first, none);
  piece.isLast = equal(add(first, left), tiles);
  return piece;
}

/// What a warp needs to know of its portion: the number of its first piece and
/// the one behind the last; what that first one is, whether it is the first and
/// the last of its task, and the tile behind it and behind the portion.
GpuAttention::Values GpuAttention::planFewRows(ValueRange ofLane,
                                               Value ofWarp) {
  FewRows rows = addUpRows(ofLane);
  Value warpCount = scalar("portion_count");
  Value all = sub(warpCount, index(1));
  Value portion =
      maximum(div(add(rows.all, all), warpCount), index(kPortionTiles));
  Value first = mul(ofWarp, portion);
  Value last = minimum(add(first, portion), rows.all);
  FewPiece piece = pieceAt(rows, first, last);
  FewPiece behind = pieceAt(rows, sub(last, index(1)), last);
  Value isAny = less(first, rows.all);
  Value number = add(ofWarp, piece.rank);
  Value numberBehind = add(add(ofWarp, behind.rank), index(1));
  return {number,       select(isAny, numberBehind, number),
          piece.record, piece.isFirst,
          piece.isLast, piece.endTile,
          last};
}

/// Tiles of lanes up to this one, and of all; and how many tasks of those
/// before it have any.
GpuAttention::FewRows GpuAttention::addUpRows(ValueRange ofLane) {
  FewRows rows;
  rows.slot = ofLane[0];
  rows.position = ofLane[1];
  rows.tiles = div(add(rows.position, kTileKeys - 1), kTileKeys);
  Value mine = mul(rows.tiles, tasksOfRow);
  Value tasks = select(less(index(0), rows.tiles), index(tasksOfRow), index(0));
  Value sums[2] = {mine, tasks};
  for (Value &value : sums)
    value = arith::IndexCastOp::create(b, b.getI32Type(), value);
  for (int64_t delta = 1; delta < kWarp; delta *= 2)
    for (Value &value : sums) {
      Value below = shuffle(value, index(delta), gpu::ShuffleMode::UP);
      Value more = arith::AddIOp::create(b, value, below);
      value = select(notLess(lane, index(delta)), more, value);
    }
  Value all = shuffle(sums[0], index(kWarp - 1), gpu::ShuffleMode::IDX);
  for (Value *value : {&sums[0], &sums[1], &all})
    *value = arith::IndexCastOp::create(b, b.getIndexType(), *value);
  rows.behind = sums[0];
  rows.filled = sub(sums[1], tasks);
  rows.all = all;
  return rows;
}

//===----------------------------------------------------------------------===//
// Before the kernel ahead has ended
//===----------------------------------------------------------------------===//

/// Rows as they are found, the portion that follows, and whether its first
/// tiles are on their way: of one piece that has them and more, all before the
/// last token, which may be on its way to its page.
GpuAttention::Values GpuAttention::startFewRows(Value ofWarp) {
  Values all = loadFewRows();
  all.append(planFewRows(all, ofWarp));
  Piece piece = openPiece(all[4]);
  Value isAny = less(all[2], all[3]);
  Value safe = add(piece.keys.begin, index(kTileKeys * (stages + 1)));
  Value starts = both(isAny, less(safe, piece.keys.end));
  ifThen(starts, [&] {
    for (int64_t tile = 0; tile < stages; ++tile)
      keepPlace(index(tile),
                lookUp(piece.keys, add(piece.keys.begin, tile * kTileKeys)));
    warpBarrier();
    Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
    for (int64_t tile = 0; tile < stages; ++tile)
      for (bool isKey : {true, false})
        startTile(index(tile), yes, isKey);
  });
  all.push_back(starts);
  return all;
}

/// The portion after the wait, and whether its first tiles are on their way.
GpuAttention::Values GpuAttention::resumeFewRows(ValueRange before,
                                                 Value ofWarp) {
  Values found = loadFewRows();
  Value same = both(equal(found[0], before[0]), equal(found[1], before[1]));
  Value others = sumOfLanes(select(same, index(0), index(1)));
  Value isSame = equal(others, index(0));
  Values planned = ifElse(
      isSame, [&] { return Values(before.slice(2, 7)); },
      [&] { return planFewRows(found, ofWarp); });
  Value isKept = both(isSame, before[9]);
  // What is on its way for nothing comes before what is wanted.
  ifThen(both(before[9], negate(isKept)), [&] {
    Value none = nvgpu::DeviceAsyncCreateGroupOp::create(
        b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange());
    auto wait = nvgpu::DeviceAsyncWaitOp::create(b, TypeRange(), none,
                                                 b.getI32IntegerAttr(0));
    wait->setAttr(kOfWarpAttr, b.getUnitAttr());
  });
  listFewPieces(found, planned, ofWarp);
  return {planned[0], planned[1], planned[2], isKept};
}

/// The pieces of the portion, and what `_finish` reads: which are of which
/// task, and where rows stand.
void GpuAttention::listFewPieces(ValueRange ofLane, ValueRange planned,
                                 Value ofWarp) {
  Value isFirstLane = equal(lane, index(0));
  Value bounds = array("piece_bounds", b.getI32Type(), 2);
  auto keepBounds = [&](Value number, Value record, Value isFirst,
                        Value isLast) {
    Value task =
        arith::IndexCastOp::create(b, b.getIndexType(), extract(record, 0));
    ifThen(both(isFirstLane, isFirst),
           [&] { store(number, bounds, {task, index(0)}); });
    ifThen(both(isFirstLane, isLast),
           [&] { store(add(number, 1), bounds, {task, index(1)}); });
  };
  Value number = planned[0], behind = planned[1];
  auto list = [&](Value its, Value record) {
    ifThen(isFirstLane, [&] { storeVector(record, pieces, {its, index(0)}); });
  };
  ifThen(less(number, behind), [&] {
    list(number, planned[2]);
    keepBounds(number, planned[2], planned[3], planned[4]);
  });
  Value second = add(number, 1);
  ifThen(less(second, behind), [&] {
    FewRows rows = addUpRows(ofLane);
    (void)loop(second, behind, index(1), ValueRange(planned[5]),
               [&](Value each, ValueRange carried) -> Values {
                 FewPiece piece = pieceAt(rows, carried[0], planned[6]);
                 list(each, piece.record);
                 keepBounds(each, piece.record, piece.isFirst, piece.isLast);
                 return {piece.endTile};
               });
  });
  ifThen(both(equal(ofWarp, index(0)), less(lane, scalar("rows"))), [&] {
    Row row;
    row.slot = ofLane[0];
    row.token = lane;
    row.isAnswered = notLess(row.slot, index(0));
    row.position = ofLane[1];
    row.entries = row.amended = row.stores = index(0);
    keepRow(lane, row);
    ifThen(equal(row.position, index(0)), [&] {
      for (int64_t task = 0; task < tasksOfRow; ++task)
        for (int64_t which : {0, 1})
          store(index(0), bounds,
                {add(mul(lane, tasksOfRow), task), index(which)});
    });
  });
  warpBarrier();
}

//===----------------------------------------------------------------------===//
// The token itself
//===----------------------------------------------------------------------===//

/// Of few rows the token into its page, by the first block of a group of heads.
void GpuAttention::appendFew(Value position) {
  Value isFirst = equal(rem(head, plan.group()), index(0));
  ifThen(both(isFew(), isFirst), [&] {
    Row row;
    row.slot = slot;
    row.token = token;
    row.position = position;
    append(row, div(head, plan.group()));
  });
}

/// Key and value of the token itself as the cache has them, and its query: of
/// few rows for the last warp, which are on their way while it merges pieces.
void GpuAttention::loadTokenOfFew() {
  AppendOp op;
  step.walk([&](AppendOp each) { op = each; });
  Value cacheHead = div(head, plan.group());
  AttendOp attend = plan.attends.front();
  auto load = [&](Value value, Value ofHead, int64_t size) {
    return loadVector(tensor(value), {token, ofHead, mul(lane, size / kWarp)},
                      size / kWarp);
  };
  Value isMine = both(isFew(), equal(warp, index(kMergeWarps - 1)));
  tokenParts = ifElse(
      isMine,
      [&]() -> Values {
        return {load(op.getValues()[0], cacheHead, keySize),
                load(op.getValues()[1], cacheHead, valueSize),
                load(attend.getQuery(), head, keySize)};
      },
      [&]() -> Values {
        Values none;
        std::pair<Value, int64_t> parts[] = {{op.getValues()[0], keySize},
                                             {op.getValues()[1], valueSize},
                                             {attend.getQuery(), keySize}};
        for (auto [value, size] : parts) {
          Type element =
              cast<MemRefType>(tensor(value).getType()).getElementType();
          auto vector = VectorType::get({size / kWarp}, element);
          none.push_back(arith::ConstantOp::create(b, b.getZeroAttr(vector)));
        }
        return none;
      });
  tokenParts.push_back(isMine);
}

/// The summary of the token itself for the last warp, of few rows, and else of
/// nothing.
GpuAttention::Summary GpuAttention::summaryOfToken() {
  auto stored = [&](Value loaded, Type type) {
    auto vector = cast<VectorType>(loaded.getType());
    if (vector.getElementType() != type)
      loaded = arith::TruncFOp::create(b, vector.clone(type), loaded);
    return widen(loaded);
  };
  Value score = vector::ReductionOp::create(
      b, vector::CombiningKind::ADD,
      product(stored(tokenParts[0], plan.keyType), widen(tokenParts[2])));
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    score = sum(score, exchange(score, mask));
  double scale = plan.attends.front().getScale().convertToDouble();
  Value isMine = tokenParts[3];
  return {select(isMine, product(score, number(scale)), number(-INFINITY)),
          select(isMine, number(1), number(0)),
          stored(tokenParts[1], plan.valueType)};
}
