//===- Pages.cpp - pages and states that slots take -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A slot is told by tables which pages its entries lie in, and which state is
// its own, if any. What the tables say may have a mark: others share the block,
// and nobody writes it.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;

/// Whether a slot may write a page or a state: it has it, and alone.
Value GpuKernel::isOwn(Value block) {
  // One that is not there is negative.
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, block,
                               constantInt(static_cast<int32_t>(kSharedBlock)));
}

Value GpuKernel::withoutMark(Value block) {
  return arith::AndIOp::create(
      b, block, constantInt(static_cast<int32_t>(kSharedBlock - 1)));
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

Value GpuKernel::emitBlocks() {
  if (!slots.arePaged())
    return {};
  if (!isStateless())
    return takeStates();
  moves =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, readSlot, writeSlot);
  return {};
}

/// Finds the states of the slots. Returns whether the row is for this kernel.
Value GpuKernel::takeStates() {
  auto indexOf = [&](Value block) -> Value {
    // Whoever has no state reads none, or is told of it by its cursor.
    Value held = arith::MaxSIOp::create(b, block, constantInt(0));
    return arith::IndexCastOp::create(b, b.getIndexType(), withoutMark(held));
  };
  Value read = loadRaw(stateTable, {readSlot}, "read_state");
  Value written = loadRaw(stateTable, {writeSlot}, "write_state");
  Value epoch = loadRaw(epochs, {readSlot}, "epoch");
  readState = indexOf(read);
  writeState = indexOf(written);
  mayFold = isOwn(written);
  moves =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, readSlot, writeSlot);
  // Kind 1 has no state yet, kind 2 has one, and kind 0 is both.
  hasNoState =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, epoch, constantInt(0));
  Value kind = arith::SelectOp::create(b, isForStateless(), constantInt(1),
                                       constantInt(2));
  Value isAny = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rowKind,
                                      constantInt(0));
  return arith::OrIOp::create(
      b, isAny,
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rowKind, kind));
}

//===----------------------------------------------------------------------===//
// Places of entries
//===----------------------------------------------------------------------===//

/// Page `index` of the slot, as the table says it, or what `own` knows of it.
Value GpuKernel::pageAt(Value index, Value own, bool isWritten) {
  auto load = [&](Value at) -> Value {
    return own ? memref::LoadOp::create(b, own, ValueRange{at})
               : memref::LoadOp::create(b, pageTable, ValueRange{readSlot, at});
  };
  Value held = load(index);
  if (isWritten) {
    // Behind the pages of a slot stands the spare one.
    Value spare = load(constantIndex(countPages()));
    held = arith::SelectOp::create(b, isOwn(held), held, spare);
  } else {
    held = withoutMark(held);
  }
  return arith::IndexCastOp::create(b, b.getIndexType(), held);
}

/// The first place behind the pages of a slot, where the spare one stands.
int32_t GpuKernel::placeOfNone() {
  return static_cast<int32_t>(countPages() * page());
}

/// Behind how many entries of all pages place `place` of the slot lies, whose
/// `pages` the first lanes of the warp hold.
Value GpuKernel::rowOfPlace(Value place, Value pages) {
  Value entries = constantInt(static_cast<int32_t>(page()));
  Value held = shuffle(pages, arith::DivUIOp::create(b, place, entries), kWarp,
                       gpu::ShuffleMode::IDX);
  return arith::AddIOp::create(
      b, arith::MulIOp::create(b, withoutMark(held), entries),
      arith::RemUIOp::create(b, place, entries));
}

EntryPlace GpuKernel::placeOf(Value position) {
  if (!entryRows)
    return placeAt(ringSlot(position), ownPages);
  Value row = loadNumber(entryRows, {position}, "entry_row");
  Value entries = constantIndex(page());
  return {arith::DivUIOp::create(b, row, entries),
          arith::RemUIOp::create(b, row, entries)};
}

EntryPlace GpuKernel::placeAt(Value slot, Value own) {
  if (!page())
    return {readSlot, slot};
  Value entries = constantIndex(page());
  return {pageAt(arith::DivUIOp::create(b, slot, entries), own,
                 /*isWritten=*/false),
          arith::RemUIOp::create(b, slot, entries)};
}

EntryPlace GpuKernel::placeToWrite(Value position) {
  if (!page())
    return {writeSlot, ringSlot(position)};
  // A row that moves and cannot fold has no place of its own.
  if (moves)
    position = arith::SelectOp::create(
        b, moves, constantIndex(entryPlaces ? capacity() : placeOfNone()),
        position);
  Value slot = ringSlot(position), entries = constantIndex(page());
  return {pageAt(arith::DivUIOp::create(b, slot, entries), ownPages,
                 /*isWritten=*/true),
          arith::RemUIOp::create(b, slot, entries)};
}
