//===- AttentionAttend.cpp - pieces of a history --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes pieces of the list, one behind another, and asks for the first
// tiles of the next ones while it multiplies the last ones of a piece: tiles of
// all its pieces are one stream, as many ahead as there is room for.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

void GpuAttention::buildAttend() {
  createKernel("_attend", warps * kWarp, /*blocks=*/2);
  startInOrder();
  declareTiles();
  Type integer = b.getI32Type();
  pieces = array("pieces", integer, 4);
  first = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  stride = gpu::GridDimOp::create(b, gpu::Dimension::x);
  count = named("count", load(array("piece_count", integer), index(0)));
  ifThen(less(first, count), [&] { attendPieces(); });
}

//===----------------------------------------------------------------------===//
// Tiles of all pieces
//===----------------------------------------------------------------------===//

/// A piece as the list has it; behind the last one it is that again.
Value GpuAttention::loadPiece(Value number) {
  return loadVector(pieces, {minimum(number, sub(count, index(1))), index(0)},
                    4);
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
  Value firstKey = add(stream.firstKey, kTileKeys * warps);
  Value isOver = notLess(firstKey, openPiece(stream.record).keys.end);
  Values all = ifElse(
      isOver,
      [&]() -> Values {
        Value later = add(stream.piece, stride);
        return {later, openPiece(stream.next).keys.begin, stream.next,
                loadPiece(add(later, stride))};
      },
      [&]() -> Values {
        return {stream.piece, firstKey, stream.record, stream.next};
      });
  return {all[0], all[1], all[2], all[3]};
}

//===----------------------------------------------------------------------===//
// A piece
//===----------------------------------------------------------------------===//

void GpuAttention::attendPieces() {
  Value record = loadPiece(first);
  Stream stream{first, openPiece(record).keys.begin, record,
                loadPiece(add(first, stride))};
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
  for (int64_t tile = 0; tile < stages; ++tile)
    for (bool isKey : {true, false})
      startTile(index(tile), isThere[tile], isKey);
  Values carried{index(0), isThere.back(), record};
  carried.append({stream.piece, stream.firstKey, stream.record, stream.next});
  carried.append(loadQueryParts(record));
  loop(first, count, stride, carried,
       [&](Value piece, ValueRange before) -> Values {
         named("piece", piece);
         return attendPiece(piece, before);
       });
}

/// Of the heads that a piece is for; what tensor cores multiply is in registers
/// long before.
GpuAttention::Values GpuAttention::loadQueryParts(Value record) {
  if (!multiplies)
    return {};
  Piece piece = openPiece(record);
  loadQueries(piece.row, piece.firstHead);
  return queryParts;
}

/// Of the two heads of a lane: the first key each attends to anew.
void GpuAttention::openHeads(const Piece &piece) {
  for (int64_t i = 0; i < 2; ++i) {
    from[i] = piece.keys.begin;
    if (!plan.find)
      continue;
    Value local = minimum(add(mul(lanePart, 2), i), index(share - 1));
    Value start = load(array("starts", b.getI32Type(), heads),
                       {piece.row, add(piece.firstHead, local)});
    start = select(piece.isAfterMatch, start, piece.keys.begin);
    from[i] = named("from", maximum(start, piece.keys.begin));
  }
}

GpuAttention::Values GpuAttention::attendPiece(Value number,
                                               ValueRange before) {
  int64_t tileKeys = kTileKeys * warps;
  Value firstPlace = named("first_tile", before[0]);
  Piece piece = openPiece(before[2]);
  end = named("end", piece.keys.end);
  Value begin = named("begin", piece.keys.begin);
  Value tiles =
      named("tiles", div(add(sub(end, begin), tileKeys - 1), tileKeys));
  Value next = loadPiece(add(number, stride));
  openHeads(piece);
  queryParts = Values(before.drop_front(7));
  if (!multiplies) {
    loadQueries(piece.row, piece.firstHead);
    barrier();
  }

  // Whether there is a tile to be copied to where this one is, and was before.
  Values inits{before[1], before[1]};
  inits.append(before.begin() + 3, before.begin() + 7);
  Values sums = emptySums();
  inits.append(sums);
  Values carried = loop(
      index(0), tiles, index(1), inits,
      [&](Value tile, ValueRange ahead) -> Values {
        Value place = named("tile", add(firstPlace, tile));
        Stream stream{ahead[2], ahead[3], ahead[4], ahead[5]};
        Value later = named("place", lookUp(stream));
        Value isThere = less(stream.piece, count);
        stream = advance(stream);
        Value firstKey = add(begin, mul(tile, tileKeys));
        Values after = addTile(place, firstKey, ahead[0], ahead.drop_front(6));
        // Summaries take the place of the last ones first.
        Value copied = copies;
        ifThen(less(add(tile, 1), tiles), [&] {
          startTile(add(place, stages), ahead[0], /*isKey=*/false);
        });
        copies = copied;
        keepPlace(add(place, stages + 1), later);
        Values all{isThere, ahead[0]};
        all.append({stream.piece, stream.firstKey, stream.record, stream.next});
        all.append(after);
        return all;
      });

  Values nextQueries = loadQueryParts(next);
  Value lastPlace = add(firstPlace, sub(tiles, index(1)));
  leavePiece(number, ValueRange(carried).drop_front(6), lastPlace);
  startTile(add(lastPlace, stages), carried[1], /*isKey=*/false);
  Values after{add(firstPlace, tiles), carried[0], next};
  after.append(carried.begin() + 2, carried.begin() + 6);
  after.append(nextQueries);
  return after;
}

void GpuAttention::leavePiece(Value piece, ValueRange sums, Value place) {
  Type f32 = b.getF32Type();
  Value memory = array("piece_values", f32, share * valueSize);
  mergeWarps(sums, place, [&](Value ofHead, Value element, Value values) {
    storeVector(values, memory, {piece, add(mul(ofHead, valueSize), element)});
  });
  ifThen(less(thread, index(share)), [&] {
    Value most = mostOfWarps(thread);
    storeVector(fromElements({most, sumOfWarps(thread, most)}),
                array("piece_sums", f32, 2 * share), {piece, mul(thread, 2)});
  });
  barrier();
}
