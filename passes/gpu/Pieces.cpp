//===- Pieces.cpp - tiles that are copied in parts ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A tile of a state may be copied by several bulk copies, each with a counter
// of its own: all are in flight from the start, and a warp waits for what it
// reads alone. A piece is what some warps read; a stage is a part of their
// rows, which is read while the stages after it are on their way. Part p ·
// stages + s is stage s of piece p.
//
// A copy is started by a warp that waits for it.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

LogicalResult GpuKernel::checkPieces() {
  if (!hasPieces())
    return success();
  auto refuse = [&](const Twine &what, const Twine &note) -> LogicalResult {
    step.emitError(what).attachNote() << note;
    return failure();
  };
  bool copiesState = false, isInBulk = copiesInBulk && !hasSpareRows();
  for (StepOp form : forms())
    form.walk([&](LoadStateOp load) {
      copiesState = true;
      isInBulk &=
          !isTransposed(cast<BlockArgument>(load.getPool()).getArgNumber());
    });
  int64_t warps = schedule.threads / 32;
  int64_t rows = rowsPerThread / std::max<int64_t>(1, schedule.stages);
  int64_t leastBytes = rows * (32 / lanes) * keySize * stateBits / 8;
  if (!copiesState)
    return refuse("it reads no state that could be copied in pieces or stages",
                  "leave pieces and stages out");
  if (!isInBulk || leastBytes % 16 != 0)
    return refuse("pieces and stages are of states that are copied in bulk",
                  "heads that share a carry, states of which dv is contiguous "
                  "and rows that threads do not divide are copied by threads");
  if (warps % schedule.pieces != 0)
    return refuse("pieces must divide the " + Twine(warps) +
                      " warps of a block, got " + Twine(schedule.pieces),
                  "more threads, or more rows in a block, give more warps");
  if (rowsPerThread % schedule.stages != 0 ||
      (multipliesReads && rows % 2 != 0))
    return refuse("stages must divide the " + Twine(rowsPerThread) +
                      " rows of a thread" +
                      (multipliesReads ? " into pairs" : "") + ", got " +
                      Twine(schedule.stages),
                  "fewer threads, or more rows in a block, give a thread more "
                  "rows");
  return success();
}

void GpuKernel::stagePieces(Value pool, Value tile) {
  int64_t warps = schedule.threads / 32, ofPiece = warps / schedule.pieces;
  int64_t rowsOfWarp = rowsPerThread * (32 / lanes);
  Value zero = constantIndex(0);
  if (!firstPart) {
    Value warp = arith::DivUIOp::create(b, thread, constantIndex(32));
    Value piece = arith::DivUIOp::create(b, warp, constantIndex(ofPiece));
    firstPart = arith::MulIOp::create(b, piece, constantIndex(schedule.stages));
  }
  auto copy = [&](int64_t part, int64_t warp, int64_t row, int64_t rows) {
    auto start = memref::DmaStartOp::create(
        b, pool, ValueRange{readState, head, add(tileStart, row), zero}, tile,
        ValueRange{constantIndex(row), zero}, constantIndex(rows * keySize),
        copies, ValueRange{constantIndex(part)});
    if (warp)
      start->setAttr("ladle.warp", b.getI32IntegerAttr(static_cast<int>(warp)));
  };
  // What is waited for first is started first.
  int64_t rows = rowsOfWarp / schedule.stages;
  for (int64_t stage = 0; stage < schedule.stages; ++stage)
    for (int64_t piece = 0; piece < schedule.pieces; ++piece) {
      int64_t first = piece * ofPiece, part = piece * schedule.stages + stage;
      // Rows of warps beside each other are one piece of memory.
      if (schedule.stages == 1) {
        copy(part, first, first * rowsOfWarp, ofPiece * rowsOfWarp);
        continue;
      }
      for (int64_t warp = first; warp < first + ofPiece; ++warp)
        copy(part, warp, warp * rowsOfWarp + stage * rows, rows);
    }
}

void GpuKernel::waitForStages(int64_t count) {
  for (; hasPieces() && stagesWaited < count; ++stagesWaited)
    memref::DmaWaitOp::create(
        b, copies, ValueRange{add(firstPart, stagesWaited)}, constantIndex(0));
}

void GpuKernel::waitForRow(const Sheet &sheet, int64_t i) {
  bool isOfThread = !sheet.offset && sheet.step == 32 / lanes;
  int64_t rows = rowsPerThread / schedule.stages;
  waitForStages(isOfThread ? i / rows + 1 : schedule.stages);
}
