//===- ShortRows.cpp - blocks that look for rows without a state ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Beside rows with a state, which are another kernel's, those without one are
// few and short. A grid with a block for each row of the batch would be blocks
// that leave, for the most part, and each of them takes the place of one that
// works until it knows. Instead the grid has as many rows of blocks as a GPU
// holds at once, and each looks at the whole batch, a thread a few rows: all
// come to the same list, and row r of the grid takes rows r, r + n, ... of it,
// n being the rows of the grid. Of a batch without other rows, every row has a
// block of its own.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

/// Rows that a thread looks at in one go: it waits for all of them once.
static constexpr int64_t kMostOfThread = 4;
static constexpr int64_t kWarp = 32;

/// Puts those of the `count` rows of each thread, from `first` on, that are for
/// this kernel into `found`, in their order. Returns how many these are. A
/// barrier follows.
Value GpuKernel::findRows(Value first, int64_t count, Value found) {
  Type i32 = b.getI32Type(), index = b.getIndexType();
  Value ofThread = arith::AddIOp::create(
      b, first, arith::MulIOp::create(b, thread, constantIndex(count)));
  Value last = add(rowCount, -1);
  SmallVector<Value> numbers;
  for (int64_t i = 0; i < count; ++i) {
    Value at = add(ofThread, i);
    row = arith::MinSIOp::create(b, at, last);
    emitRowStart();
    Value isPadding = emitSlots();
    // Nothing is asked for by a slot that is none.
    for (Value *slot : {&readSlot, &writeSlot})
      *slot = arith::SelectOp::create(b, isPadding, constantIndex(0), *slot);
    Value isMine = arith::AndIOp::create(
        b, takeStates(),
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, at, last));
    isMine = arith::SelectOp::create(
        b, isPadding, arith::ConstantOp::create(b, b.getBoolAttr(false)),
        isMine);
    numbers.push_back(arith::ExtUIOp::create(b, i32, isMine));
  }

  // Rows ahead of those of a thread: in its warp, and in the warps ahead.
  Value ownCount = numbers.front();
  for (Value number : ArrayRef(numbers).drop_front())
    ownCount = arith::AddIOp::create(b, ownCount, number);
  Value sum = ownCount;
  for (int32_t step = 1; step < kWarp; step *= 2) {
    Value other = shuffle(sum, constantInt(step), kWarp, gpu::ShuffleMode::UP);
    sum = arith::SelectOp::create(b, isBelow(warpLane, step), sum,
                                  arith::AddIOp::create(b, sum, other));
  }
  int64_t warps = schedule.threads / kWarp;
  Value ofWarps = shared({warps}, "rows_of_warps", i32);
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  Value isLast = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warpLane,
                                       constantIndex(kWarp - 1));
  guarded(isLast,
          [&] { memref::StoreOp::create(b, sum, ofWarps, ValueRange{warp}); });
  barrier();
  Value ahead = arith::SubIOp::create(b, sum, ownCount);
  Value total = constantInt(0);
  for (int64_t other = 0; other < warps; ++other) {
    Value number =
        memref::LoadOp::create(b, ofWarps, ValueRange{constantIndex(other)});
    total = arith::AddIOp::create(b, total, number);
    Value isAhead = arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, warp,
                                          constantIndex(other));
    ahead = arith::AddIOp::create(
        b, ahead, arith::SelectOp::create(b, isAhead, number, constantInt(0)));
  }
  for (auto [i, number] : llvm::enumerate(numbers)) {
    Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, number,
                                         constantInt(0));
    guarded(isMine, [&, i = i] {
      Value at = add(ofThread, static_cast<int64_t>(i));
      memref::StoreOp::create(
          b, arith::IndexCastOp::create(b, i32, at), found,
          ValueRange{arith::IndexCastOp::create(b, index, ahead)});
    });
    ahead = arith::AddIOp::create(b, ahead, number);
  }
  return arith::IndexCastOp::create(b, index, total);
}

/// Emits `body` for the rows of a block: the one that it is at, or those of the
/// list that are its own.
void GpuKernel::forRows(function_ref<void()> body) {
  if (!findsRows())
    return body();
  Value own = row;
  Type index = b.getIndexType();
  rowCount = arith::IndexCastOp::create(b, index, rowCount);
  Value zero = constantIndex(0), one = constantIndex(1);
  auto repeat = [&](Value begin, Value end, Value step, ValueRange carried) {
    auto loop = scf::ForOp::create(b, begin, end, step, carried);
    loop->setAttr("ladle.rolled", b.getUnitAttr());
    return loop;
  };
  int64_t count = kMostOfThread;
  if (schedule.batch)
    count = std::clamp<int64_t>(
        llvm::divideCeil(schedule.batch, schedule.threads), 1, count);
  int64_t atOnce = count * schedule.threads;
  Value found = shared({atOnce}, "found_rows", b.getI32Type());
  Value step = gpu::GridDimOp::create(b, gpu::Dimension::y);
  Value areAll = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rowKind,
                                       constantInt(0));
  // Where all rows are this kernel's, there is one to take.
  Value bound = arith::SelectOp::create(b, areAll, one, rowCount);
  Value firstOfBlock = arith::SelectOp::create(b, areAll, zero, own);
  auto chunks = repeat(zero, bound, constantIndex(atOnce), firstOfBlock);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(chunks.getBody());
  Value next = chunks.getRegionIterArg(0);
  auto total = scf::IfOp::create(b, TypeRange{index}, areAll,
                                 /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(total.thenBlock());
    scf::YieldOp::create(b, one);
    b.setInsertionPointToStart(total.elseBlock());
    Value number = findRows(chunks.getInductionVar(), count, found);
    barrier();
    scf::YieldOp::create(b, number);
  }
  Value end = total.getResult(0);
  auto rows = repeat(next, end, step, {});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(rows.getBody());
    auto which = scf::IfOp::create(b, TypeRange{index}, areAll,
                                   /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(which.thenBlock());
      scf::YieldOp::create(b, own);
      b.setInsertionPointToStart(which.elseBlock());
      scf::YieldOp::create(
          b, loadNumber(found, {rows.getInductionVar()}, "found_row"));
    }
    row = which.getResult(0);
    body();
    barrier();
  }
  // Of the next rows, the first that this block takes.
  Value left =
      arith::MaxSIOp::create(b, arith::SubIOp::create(b, end, next), zero);
  Value taken = arith::DivUIOp::create(
      b, arith::SubIOp::create(b, arith::AddIOp::create(b, left, step), one),
      step);
  Value after =
      arith::AddIOp::create(b, next, arith::MulIOp::create(b, taken, step));
  scf::YieldOp::create(b, Value(arith::SubIOp::create(b, after, end)));
}
