//===- AttentionAttend.cpp - pieces of a history --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A warp takes pieces of the list, one behind another, and asks for the first
// tiles of the next ones while it multiplies the last ones of a piece: tiles of
// all its pieces are one stream, as many ahead as there is room for. No warp
// waits for another.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

/// The first piece of a warp and the one behind its last as the plan has them,
/// and what that first one is.
GpuAttention::Values GpuAttention::loadPortion(Value ofWarp) {
  Value portions = array("portions", b.getI32Type(), 8);
  Value range = loadVector(portions, {ofWarp, index(0)}, 2);
  Value record = loadVector(portions, {ofWarp, index(4)}, 4);
  auto bound = [&](int64_t which) -> Value {
    return arith::IndexCastOp::create(b, b.getIndexType(),
                                      extract(range, which));
  };
  return {bound(0), bound(1), record};
}

/// Without a match, few rows are a part of the same kernel: its first loads are
/// those of a plan's portion otherwise.
void GpuAttention::buildAttend() {
  createKernel("_attend", warps * kWarp, /*blocks=*/2);
  findsPieces = takesFewRows() && !plan.find;
  isWhole = nearPieces = Value();
  if (!findsPieces)
    startInOrder();
  declareTiles();
  if (findsPieces)
    nearPieces =
        sharedArray("near_pieces", b.getI32Type(), {warps * kNearPieces, 4});
  pieces = array("pieces", b.getI32Type(), 4);
  // Few portions go to as many blocks, but where these are merged.
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value ofWarp = add(mul(warp, blocks), block);
  Value started = index(0);
  Values portion, found;
  if (findsPieces) {
    openCopies();
    Value few = isFew();
    ofWarp = select(few, add(mul(block, warps), warp), ofWarp);
    auto nothing = [&](TypeRange types) {
      Values all;
      for (Type type : types)
        all.push_back(arith::ConstantOp::create(b, b.getZeroAttr(type)));
      return all;
    };
    // Nothing ahead writes what an early step reads, and what blocks leave to
    // one another is of this layer alone: answers wait.
    Value isEarly = both(few, this->isEarly());
    ifThen(isEarly, [&] { letNextStart(); });
    Values before = ifElse(few, [&] { return startFewRows(ofWarp); }, nothing);
    // When the attend of the next step starts, what was put into pages before
    // this step is there.
    ifThen(negate(isEarly), [&] {
      waitForPrevious();
      letNextStart();
    });
    function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
    Values all = ifElse(
        few, [&] { return resumeFewRows(before, ofWarp, isEarly); },
        [&](TypeRange types) {
          Values none = nothing(types), its = loadPortion(ofWarp);
          llvm::copy(its, none.begin() + 3);
          return none;
        });
    started = all[0];
    found = ValueRange(all).slice(1, 2);
    portion = ValueRange(all).drop_front(3);
    isWhole = portion[6];
  } else {
    portion = loadPortion(ofWarp);
  }
  first = named("first", portion[0]);
  count = named("behind", portion[1]);
  stride = select(isEven(), index(1), scalar("portion_count"));
  if (!findsPieces) {
    openCopies();
    ifThen(less(first, count),
           [&] { (void)attendPieces(portion[2], started); });
    return;
  }
  Values sums = ifElse(
      less(first, count), [&] { return attendPieces(portion[2], started); },
      [&](TypeRange) { return emptySums(); });
  ifThen(isFew(), [&] { answerFewRows(found, portion, sums); });
}

/// With a match, few rows have a kernel in place of this one.
void GpuAttention::buildFew() {
  createKernel("_few", warps * kWarp, /*blocks=*/2);
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  findsPieces = true;
  declareTiles();
  nearPieces =
      sharedArray("near_pieces", b.getI32Type(), {warps * kNearPieces, 4});
  declareFewTasks();
  pieces = array("pieces", b.getI32Type(), 4);
  openCopies();
  keepFewRows();
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value ofWarp = add(mul(warp, blocks), block);
  waitForPrevious();
  letNextStart();
  Values portion = portionOfTasks(ofWarp);
  first = named("first", portion[0]);
  count = named("behind", portion[1]);
  stride = index(1);
  isWhole = portion[6];
  Values sums = ifElse(
      less(first, count), [&] { return attendPieces(portion[2], index(0)); },
      [&](TypeRange) { return emptySums(); });
  // Nobody needs tiles any more.
  ifThen(isWhole, [&] {
    barrier();
    mergeBlock(portion[7], sums);
  });
}

//===----------------------------------------------------------------------===//
// Tiles of all pieces
//===----------------------------------------------------------------------===//

/// A piece as the list has it; behind the last one it is that again.
Value GpuAttention::loadPiece(Value number) {
  Value which = minimum(number, sub(count, index(1)));
  if (!nearPieces)
    return loadVector(pieces, {which, index(0)}, 4);
  // The first ones of a warp that has found its portion by itself; others come
  // when they are needed, and no branch waits for them.
  Value ofPortion = sub(which, first);
  Value isNear = less(ofPortion, index(kNearPieces));
  if (!plan.find)
    isNear = both(isFew(), isNear);
  Value place = minimum(ofPortion, index(kNearPieces - 1));
  place = add(mul(warp, kNearPieces), maximum(place, index(0)));
  Value near = loadVector(nearPieces, {place, index(0)}, 4);
  auto type = cast<VectorType>(near.getType());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(type));
  Value far =
      vector::MaskedLoadOp::create(b, type, pieces, ValueRange{which, index(0)},
                                   splat(negate(isNear), 4), zeros);
  Values fields;
  for (int64_t i = 0; i < 4; ++i)
    fields.push_back(select(isNear, extract(near, i), extract(far, i)));
  return fromElements(fields);
}

GpuAttention::Piece GpuAttention::openPiece(Value record) {
  auto field = [&](int64_t which) -> Value {
    return arith::IndexCastOp::create(b, b.getIndexType(),
                                      extract(record, which));
  };
  Piece piece;
  Value task = field(0), last = field(3);
  piece.row = div(task, tasksOfRow);
  piece.firstHead = mul(rem(task, tasksOfRow), share);
  piece.keys = {div(last, 2), div(piece.firstHead, plan.group()), field(1),
                field(2)};
  piece.isAfterMatch = equal(rem(last, 2), index(1));
  return piece;
}

Value GpuAttention::lookUp(const Stream &stream) {
  return lookUp(openPiece(stream.record).keys, stream.firstKey);
}

/// What comes behind the last piece is the last one again, which nobody copies.
GpuAttention::Stream GpuAttention::advance(const Stream &stream) {
  Value firstKey = add(stream.firstKey, kTileKeys);
  Value isOver = notLess(firstKey, openPiece(stream.record).keys.end);
  Values all = ifElse(
      isOver,
      [&]() -> Values {
        Value later = add(stream.piece, stride), record = loadPiece(later);
        return {later, openPiece(record).keys.begin, record};
      },
      [&]() -> Values { return {stream.piece, firstKey, stream.record}; });
  return {all[0], all[1], all[2]};
}

//===----------------------------------------------------------------------===//
// A piece
//===----------------------------------------------------------------------===//

/// Some first tiles may have been started already, as many for all lanes. The
/// sums are those of the last piece.
GpuAttention::Values GpuAttention::attendPieces(Value record, Value started) {
  Stream stream{first, openPiece(record).keys.begin, record};
  // All are looked up before anything waits for one of them.
  Values isThere, found;
  for (int64_t tile = 0; tile <= stages; ++tile) {
    isThere.push_back(less(stream.piece, count));
    found.push_back(lookUp(stream));
    stream = advance(stream);
  }
  for (auto [tile, place] : llvm::enumerate(found))
    keepPlace(index(static_cast<int64_t>(tile)), place);
  warpBarrier();
  // Waits count groups of copies: what has been started has its own, so that a
  // first wait is for one tile and not for all of them.
  for (int64_t tile = 0; tile < stages; ++tile)
    ifThenStart(notLess(index(tile), started), [&] {
      for (bool isKey : {true, false})
        startTile(index(tile), isThere[tile], isKey);
    });
  Values carried{index(0), isThere.back(), record};
  carried.append({stream.piece, stream.firstKey, stream.record});
  Values loaded = loadAhead(record);
  carried.append(loaded);
  if (isWhole)
    carried.append(emptySums());
  Values all =
      loop(first, count, stride, carried,
           [&](Value piece, ValueRange before) -> Values {
             named("piece", piece);
             return attendPiece(piece, before.take_front(6 + loaded.size()));
           });
  return Values(ArrayRef(all).drop_front(6 + loaded.size()));
}

/// Of the heads that a piece is for, long before they are needed: where the two
/// of a lane begin anew, and the queries that tensor cores multiply.
GpuAttention::Values GpuAttention::loadAhead(Value record) {
  Piece piece = openPiece(record);
  Values loaded;
  if (plan.find) {
    Value heads[2];
    for (int64_t i = 0; i < 2; ++i) {
      Value local = minimum(add(mul(lanePart, 2), i), index(share - 1));
      heads[i] = add(piece.firstHead, local);
    }
    auto ofPlan = [&]() -> Values {
      Value starts = array("starts", b.getI32Type(), this->heads);
      return {load(starts, {piece.row, heads[0]}),
              load(starts, {piece.row, heads[1]})};
    };
    auto ofTasks = [&]() -> Values {
      Value first = mul(piece.row, this->heads);
      return {load(headStarts, add(first, heads[0])),
              load(headStarts, add(first, heads[1]))};
    };
    loaded = findsPieces ? ofTasks() : ofPlan();
  }
  if (multiplies) {
    loadQueries(piece.row, piece.firstHead);
    loaded.append(queryParts);
  }
  return loaded;
}

void GpuAttention::takeLoaded(const Piece &piece, ValueRange loaded) {
  for (int64_t i = 0; plan.find && i < 2; ++i) {
    Value start = select(piece.isAfterMatch, loaded[i], piece.keys.begin);
    from[i] = named("from", maximum(start, piece.keys.begin));
  }
  if (multiplies)
    queryParts = Values(loaded.drop_front(plan.find ? 2 : 0));
  else
    loadQueries(piece.row, piece.firstHead);
}

GpuAttention::Values GpuAttention::attendPiece(Value number,
                                               ValueRange before) {
  Value firstPlace = named("first_tile", before[0]);
  Piece piece = openPiece(before[2]);
  end = named("end", piece.keys.end);
  Value begin = named("begin", piece.keys.begin);
  Value tiles =
      named("tiles", div(add(sub(end, begin), kTileKeys - 1), kTileKeys));
  Value next = loadPiece(add(number, stride));
  takeLoaded(piece, before.drop_front(6));

  Values inits(before.slice(3, 3));
  inits.push_back(before[1]);
  inits.append(emptySums());
  Values carried =
      loop(index(0), tiles, index(1), inits,
           [&](Value tile, ValueRange ahead) -> Values {
             Value place = named("tile", add(firstPlace, tile));
             Stream stream{ahead[0], ahead[1], ahead[2]};
             Value hasLater = ahead[3];
             Value later = named("place", lookUp(stream));
             Value isThere = less(stream.piece, count);
             stream = advance(stream);
             Value firstKey = add(begin, mul(tile, kTileKeys));
             Values after =
                 addTile(place, firstKey, hasLater, ahead.drop_front(4));
             startTile(add(place, stages), hasLater, /*isKey=*/false);
             keepPlace(add(place, stages + 1), later);
             Values all{stream.piece, stream.firstKey, stream.record, isThere};
             all.append(after);
             return all;
           });
  Values nextLoaded = loadAhead(next);
  ValueRange sums = ValueRange(carried).drop_front(4);
  auto leave = [&] { leaveSums(pieceMemory(), number, sums); };
  // The block merges the only pieces of its warps.
  if (isWhole)
    ifThen(negate(isWhole), leave);
  else
    leave();
  Values after{add(firstPlace, tiles), carried[3], next};
  after.append(carried.begin(), carried.begin() + 3);
  after.append(nextLoaded);
  if (isWhole)
    after.append(sums.begin(), sums.end());
  return after;
}

GpuAttention::SumsMemory GpuAttention::pieceMemory() {
  Type f32 = b.getF32Type();
  return {array("piece_values", f32, share * valueSize),
          array("piece_sums", f32, 2 * share)};
}

/// What a lane has of a head lies side by side, `part` elements of each block.
void GpuAttention::leaveSums(const SumsMemory &memory, Value piece,
                             ValueRange sums) {
  constexpr int64_t width = 4;
  int64_t part = valuePart(), products = part / 2;
  for (int64_t i = 0; i < 2; ++i) {
    Value column = add(mul(lanePart, 2), i), all = sums[2 + i];
    for (int64_t mask = 4; mask < kWarp; mask *= 2)
      all = sum(all, exchange(all, mask));
    ifThen(less(column, index(share)), [&] {
      ifThen(equal(laneRow, index(0)), [&] {
        storeVector(fromElements({sums[i], all}), memory.pairs,
                    {piece, mul(column, 2)});
      });
      for (int64_t at = 0; at < valueSize / 8; at += width) {
        int64_t block = at / part, first = block * products + at % part / 2;
        Values elements;
        for (int64_t j = 0; j < width; ++j)
          elements.push_back(extract(sums[4 + first + j / 2], j % 2 * 2 + i));
        Value into = add(mul(laneRow, part), block * 8 * part + at % part);
        storeVector(fromElements(elements), memory.values,
                    {piece, add(mul(column, valueSize), into)});
      }
    });
  }
}
