//===- BoundedAttend.cpp - what a bounded cache holds, and its memory -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

void GpuBounded::buildAttend() {
  createEarlyKernel("_attend", warps * kWarp, /*blocks=*/2);
  declareTiles();
  Value block = named("block", gpu::BlockIdOp::create(b, gpu::Dimension::x));
  Value task = named("task", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  rowNumber = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::z));
  letNextStart();
  ifThen(equal(scalar("starts_early"), index(0)), [&] { waitForPrevious(); });
  Value ofRow = openToken();
  ifThen(notLess(ofRow, index(0)), [&] {
    openCursor(ofRow, named("cache_head", div(task, plan.group() / share)));
    attendPieces(block, task);
  });
}

/// The key and value of the token, into the entry that it takes.
void GpuBounded::appendToken() {
  waitForPrevious();
  storeToken(append, of, cacheHead, add(mul(cursorRow, capacity), newEntry));
}

void GpuBounded::attendPieces(Value block, Value task) {
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value count =
      named("pieces", div(add(attended, kBoundedPiece - 1), kBoundedPiece));
  // An entry that is behind the others stands where the one that leaves was.
  Value newKey = sub(attended, index(1));
  if (evict)
    newKey = select(less(newEntry, attended), newEntry, victim);
  firstHead = named("first_head", mul(task, share));
  Value firstPiece =
      mul(add(mul(rowNumber, tasksOfRow), task), scalar("pieces_of_task"));
  // Without a window the token itself is folded, and nobody attends to it.
  if (fold)
    ifThen(both(isFolding, equal(block, index(0))), [&] { appendToken(); });
  // Pieces that follow one another, whose keys come in one stream.
  Value each = named("each", div(sub(add(count, blocks), index(1)), blocks));
  Value piece = named("piece", mul(block, each));
  begin = named("begin", mul(piece, kBoundedPiece));
  end = named("end", minimum(add(begin, mul(each, kBoundedPiece)), attended));
  ifThen(less(begin, end), [&] {
    ifThen(both(notLess(newKey, begin), less(newKey, end)),
           [&] { appendToken(); });
    from[0] = from[1] = begin;
    tilesOfPiece = kBoundedPiece / (16 * warps);
    attendKeys(add(firstPiece, piece), of, firstHead);
  });
}

/// Scores are left for who notes their weights.
void GpuBounded::keepScores(ArrayRef<Value> keysOfLane, ArrayRef<Value> score) {
  if (!note)
    return;
  for (int64_t i = 0; i < 4; ++i) {
    Value key = keysOfLane[i / 2];
    Value ofHead = add(mul(lanePart, 2), i % 2);
    ifThen(both(less(key, end), less(ofHead, index(share))), [&] {
      Value at = add(add(mul(rowNumber, heads), firstHead), ofHead);
      store(score[i], array("scores", b.getF32Type(), stride),
            {at, entryOfKey(key)});
    });
  }
}
