//===- AttentionFewRows.cpp - portions that warps find by themselves ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where all that is before a token is attended to, and a warp has a lane for
// each row, a step is one kernel: each warp adds up what rows there are, and
// finds its even portion. It does so before the kernel ahead has ended, and
// copies the first tiles of its portion, which nobody writes any more: those
// of tokens before the last one that it knows of. When it has waited it looks
// again. Where rows do not stand where they stood, it begins anew. Who answers
// is in AttentionLastBlocks.cpp.

#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

bool GpuAttention::takesFewRows() const {
  static_assert(kAttentionFewRows <= kWarp);
  if (!decodes)
    return false;
  if (plan.find)
    return plan.ring.getParts() == 1 && heads <= kAttentionFewHeads;
  if (plan.ring || plan.attends.size() != 1)
    return false;
  // A block puts a token into its page at once.
  for (auto [type, size] :
       {std::pair(plan.keyType, keySize), std::pair(plan.valueType, valueSize)})
    if (size > warps * kWarp * elementsOfLoad(type))
      return false;
  AttendOp attend = plan.attends.front();
  return attend.getBegin() == Bound::Start && attend.getEnd() == Bound::End;
}

Value GpuAttention::isFew() { return less(index(0), scalar("few_rows")); }

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

Value GpuAttention::loadIndexAhead(Value memory, ValueRange at) {
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    extract(loadVectorAhead(memory, at, 1), 0));
}

/// Of the row of a lane, or −1.
Value GpuAttention::loadSlotOfLane() {
  Value isRow = less(lane, scalar("rows"));
  Value its = loadIndexAhead(array("slots", b.getI32Type()),
                             {select(isRow, lane, index(0))});
  isRow = both(isRow,
               both(notLess(its, index(0)), less(its, scalar("slot_count"))));
  return select(isRow, its, index(-1));
}

/// A slot of −1 has no tokens.
Value GpuAttention::loadPositionOf(Value its) {
  Value position =
      loadIndexAhead(array("cursors", b.getI32Type(), kSlotNumbers),
                     {maximum(its, index(0)), index(0)});
  return select(less(its, index(0)), index(0), position);
}

/// Slot and position of the row of a lane.
GpuAttention::Values GpuAttention::loadFewRows() {
  Value its = loadSlotOfLane();
  return {its, loadPositionOf(its)};
}

Value GpuAttention::sumOfLanes(Value value) {
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    value = add(value, exchange(value, mask));
  return value;
}

/// The piece of a portion that begins with a tile, of those of all rows.
GpuAttention::FewPiece GpuAttention::pieceAt(const FewRows &rows, Value tile,
                                             Value endOfPortion) {
  if (plan.find)
    return pieceOfTasks(tile, endOfPortion);
  Value one = index(1), none = index(0);
  Value row = sumOfLanes(select(less(tile, rows.behind), none, one));
  row = minimum(row, index(kWarp - 1));
  auto ofRow = [&](Value value) { return ofLane(value, row); };
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
  piece.firstOfRange = sub(tile, first);
  piece.endOfRange = add(piece.firstOfRange, tiles);
  return piece;
}

/// What a warp needs to know of its portion: the number of its first piece and
/// the one behind the last; what that first one is, and the tile behind it and
/// behind the portion. Of all: tiles of a portion, whether those of the block
/// are of one task, and sums over rows.
GpuAttention::Values GpuAttention::planFewRows(ValueRange ofLane,
                                               Value ofWarp) {
  FewRows rows = addUpRows(ofLane);
  Value warpCount = scalar("portion_count");
  Value all = sub(warpCount, index(1));
  Value portion =
      maximum(div(add(rows.all, all), warpCount), index(kPortionTiles));
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value ofBlock = mul(block, warps), isWhole;
  if (plan.find) {
    isWhole = blocksMerge = mergesBlocks(portion);
    ofWarp = select(isWhole, add(ofBlock, warp), ofWarp);
  }
  Value first = mul(ofWarp, portion);
  Value last = minimum(add(first, portion), rows.all);
  FewPiece piece = pieceAt(rows, first, last);
  FewPiece behind = pieceAt(rows, sub(last, index(1)), last);
  Value isAny = less(first, rows.all);
  Value number = add(ofWarp, piece.rank);
  Value numberBehind = add(add(ofWarp, behind.rank), index(1));
  Value firstTile = mul(ofBlock, portion);
  Value endTile = minimum(add(firstTile, mul(portion, warps)), rows.all);
  auto ofOne = [&]() -> Values {
    FewPiece its = pieceAt(rows, firstTile, endTile);
    return {both(less(firstTile, rows.all), notLess(its.endOfRange, endTile)),
            add(ofBlock, its.rank)};
  };
  if (plan.find) {
    Values one =
        ifElse(isWhole, ofOne, [&]() -> Values { return {isWhole, index(0)}; });
    isWhole = one[0];
    rows.behind = one[1];
  } else {
    isWhole = ofOne().front();
  }
  return {number,       select(isAny, numberBehind, number),
          piece.record, piece.endTile,
          last,         portion,
          isWhole,      rows.behind,
          rows.filled,  rows.all};
}

/// What a warp has found of rows, and has planned by it.
GpuAttention::FewRows GpuAttention::rowsOfPlan(ValueRange ofLane,
                                               ValueRange planned) {
  return {ofLane[0],  ofLane[1],  tilesBefore(ofLane[1]),
          planned[7], planned[8], planned[9]};
}

Value GpuAttention::tilesBefore(Value position) {
  return div(add(position, kTileKeys - 1), kTileKeys);
}

/// Tiles of lanes up to this one, and of all; and how many tasks of those
/// before it have any.
GpuAttention::FewRows GpuAttention::addUpRows(ValueRange ofLane) {
  if (plan.find)
    return addUpTasks();
  FewRows rows;
  rows.slot = ofLane[0];
  rows.position = ofLane[1];
  rows.tiles = tilesBefore(rows.position);
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

/// Rows as they are found, the portion that follows, and how many of its first
/// tiles are on their way: of its first piece, all before the last token, which
/// may be on its way to its page.
GpuAttention::Values GpuAttention::startFewRows(Value ofWarp) {
  Values all = loadFewRows();
  all.append(planFewRows(all, ofWarp));
  Piece piece = openPiece(all[4]);
  Value known = sub(ofLane(all[1], piece.row), index(1));
  all.push_back(
      startTilesBefore(known, piece, less(all[2], all[3]),
                       /*isPatient=*/equal(scalar("starts_early"), index(0))));
  return all;
}

/// How many first tiles of a piece are on their way: those whose tokens all
/// stand before one, if there are any. Who is patient asks for half a tile at a
/// time: what the kernel ahead reads meanwhile would stand behind all that is
/// asked for at once.
Value GpuAttention::startTilesBefore(Value known, const Piece &piece,
                                     Value isAny, Value isPatient) {
  Value safe = sub(minimum(piece.keys.end, known), piece.keys.begin);
  Value started = minimum(div(safe, kTileKeys), index(stages));
  started = select(both(isAny, less(index(0), safe)), started, index(0));
  ifThenStart(less(index(0), started), [&] {
    for (int64_t tile = 0; tile < stages; ++tile)
      keepPlace(index(tile),
                lookUp(piece.keys, add(piece.keys.begin, tile * kTileKeys)));
    warpBarrier();
    Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
    for (int64_t tile = 0; tile < stages; ++tile)
      ifThenStart(less(index(tile), started), [&] {
        for (bool isKey : {true, false}) {
          startTile(index(tile), yes, isKey);
          if (tile + 1 < stages || isKey)
            ifThen(isPatient, [&] { waitForCopies(); });
        }
      });
  });
  return started;
}

/// For all that the warp has asked for.
void GpuAttention::waitForCopies() {
  auto wait = nvgpu::DeviceAsyncWaitOp::create(b, TypeRange(), copies,
                                               b.getI32IntegerAttr(0));
  wait->setAttr(kOfWarpAttr, b.getUnitAttr());
}

/// The portion after the wait, and how many tiles of it are on their way. An
/// early step's rows stand where they stood.
GpuAttention::Values GpuAttention::resumeFewRows(ValueRange before,
                                                 Value ofWarp, Value isEarly) {
  Value isSame =
      ifElse(
          isEarly, [&]() -> Values { return {isEarly}; },
          [&]() -> Values {
            // Of the same slots, positions come along with them.
            Value its = loadSlotOfLane(), position = loadPositionOf(before[0]);
            Value same =
                both(equal(its, before[0]), equal(position, before[1]));
            Value others = sumOfLanes(select(same, index(0), index(1)));
            return {equal(others, index(0))};
          })
          .front();
  Values all = ifElse(
      isSame, [&] { return Values(before.take_front(2 + kFewPlanned)); },
      [&] {
        Values found = loadFewRows();
        found.append(planFewRows(found, ofWarp));
        return found;
      });
  Value started = dropUnless(isSame, before[2 + kFewPlanned]);
  listFewPieces(ValueRange(all).take_front(2), ValueRange(all).drop_front(2));
  all.insert(all.begin(), started);
  return all;
}

/// Of the tiles on their way, how many are wanted: all or none. What comes for
/// nothing comes before what is wanted.
Value GpuAttention::dropUnless(Value isWanted, Value started) {
  ifThen(both(less(index(0), started), negate(isWanted)),
         [&] { waitForCopies(); });
  return select(isWanted, started, index(0));
}

/// The pieces of the portion.
void GpuAttention::listFewPieces(ValueRange ofLane, ValueRange planned) {
  Value isFirstLane = equal(lane, index(0));
  Value number = planned[0], behind = planned[1];
  auto list = [&](Value its, Value record) {
    Value ofPortion = sub(its, number);
    Value isNear = less(ofPortion, index(kNearPieces));
    Value place = add(mul(warp, kNearPieces), ofPortion);
    ifThen(both(isFirstLane, isNear),
           [&] { storeVector(record, nearPieces, {place, index(0)}); });
    ifThen(both(isFirstLane, negate(isNear)),
           [&] { storeVector(record, pieces, {its, index(0)}); });
  };
  ifThen(less(number, behind), [&] { list(number, planned[2]); });
  FewRows rows = rowsOfPlan(ofLane, planned);
  (void)loop(add(number, 1), behind, index(1), ValueRange(planned[3]),
             [&](Value each, ValueRange carried) -> Values {
               FewPiece piece = pieceAt(rows, carried[0], planned[4]);
               list(each, piece.record);
               return {piece.endTile};
             });
  warpBarrier();
}
