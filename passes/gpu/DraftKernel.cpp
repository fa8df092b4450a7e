//===- DraftKernel.cpp - one draft of each row as a GPU kernel ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/DraftKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;
using Predicate = arith::CmpIPredicate;

Value GpuDraftKernel::compare(Predicate predicate, Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, predicate, lhs, rhs);
}

std::string ladle::draftNameOf(StepOp step) {
  return (step.getRecurrence() + "_" + stringifyRoute(step.getRoute()) +
          (step.getForm() == Form::Fold ? "_draft_fold" : "_draft"))
      .str();
}

//===----------------------------------------------------------------------===//
// Arguments and the task of a block
//===----------------------------------------------------------------------===//

void GpuDraftKernel::addArguments(SmallVectorImpl<Type> &types,
                                  SmallVectorImpl<std::string> &names) {
  GpuKernel::addArguments(types, names);
  Type i32 = b.getI32Type();
  auto flat = MemRefType::get({ShapedType::kDynamic}, i32);
  types.append({flat, flat, i32, i32, i32});
  for (const char *name :
       {"cu_seqlens", "parents", "has_parents", "draft", "rows_of"})
    names.push_back(name);
}

void GpuDraftKernel::takeArguments(unsigned &next) {
  GpuKernel::takeArguments(next);
  for (Value *each : {&cuSeqlens, &parents, &hasParents, &number, &rowsOf})
    *each = function.getBody().front().getArgument(next++);
}

void GpuDraftKernel::emitRowStart() {
  firstDraft = loadNumber(cuSeqlens, {row}, "first_draft");
  Value end = loadNumber(cuSeqlens, {add(row, 1)}, "end_of_drafts");
  draftCount = arith::SubIOp::create(b, end, firstDraft);
  draft = arith::IndexCastOp::create(b, b.getIndexType(), number);
}

Value GpuDraftKernel::tokenRow() {
  return arith::AddIOp::create(b, firstDraft, draft);
}

void GpuDraftKernel::emitPaddedRow() {
  guarded(compare(Predicate::slt, draft, draftCount),
          [&] { zeroOutputs(tokenRow()); });
}

/// The draft that another follows, -1 if that follows the history or is none of
/// the row.
Value GpuDraftKernel::parentOf(Value of) {
  Value none = constantIndex(-1);
  Value exists = both(compare(Predicate::sge, of, constantIndex(0)),
                      compare(Predicate::slt, of, draftCount));
  Value isGiven = compare(Predicate::ne, hasParents, constantInt(0));
  auto given =
      scf::IfOp::create(b, TypeRange{b.getIndexType()}, both(exists, isGiven),
                        /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(given.thenBlock());
    Value at = arith::AddIOp::create(b, firstDraft, of);
    scf::YieldOp::create(b, loadNumber(parents, {at}, "parent"));
    b.setInsertionPointToStart(given.elseBlock());
    scf::YieldOp::create(b,
                         Value(arith::SubIOp::create(b, of, constantIndex(1))));
  }
  return arith::SelectOp::create(b, exists, given.getResult(0), none);
}

/// The version of the carries after a draft; -1 is that of the history.
Value GpuDraftKernel::versionAfter(Value of, Value version) {
  Value next = arith::AddIOp::create(b, add(version, 1), of);
  return arith::AddIOp::create(
      b, arith::MulIOp::create(b, readSlot, constantIndex(drafts + 1)),
      arith::RemUIOp::create(b, next, constantIndex(drafts + 1)));
}

//===----------------------------------------------------------------------===//
// The row
//===----------------------------------------------------------------------===//

/// The draft goes on from what its parent has left.
void GpuDraftKernel::takeParent() {
  Value version = loadNumber(carryVersions, {readSlot}, "version");
  readCarry = versionAfter(parentOf(draft), version);
  writeCarry = versionAfter(draft, version);
  endOfSlotLoads->erase();
  endOfSlotLoads = anchor();
}

/// Where the row stands. Returns whether this launch has something to do for
/// it.
Value GpuDraftKernel::emitCursor() {
  if (slots.keepStates()) {
    length = base = constantIndex(0);
    takeParent();
    readState = readCarry;
    writeState = writeCarry;
    return compare(Predicate::slt, draft, draftCount);
  }
  base = loadNumber(cursors, {readSlot, constantIndex(0)}, "base");
  length = loadNumber(cursors, {readSlot, constantIndex(1)}, "length");
  Value which = constantIndex(0);
  if (hasNoState)
    which = arith::SelectOp::create(b, hasNoState, constantIndex(1), which);
  Value m = loadNumber(threshold, {which}, "m");
  Value all = arith::AddIOp::create(b, length, draftCount);
  foldsBefore = both(both(compare(Predicate::sgt, all, m),
                          compare(Predicate::sgt, length, constantIndex(0))),
                     mayFold);
  if (!isFold() && !step.getArgumentsOfKind(ArgumentKind::Carry).empty())
    takeParent();

  // Without pages nobody knows: rows of kv_only have none until they fold.
  Value isTrue = arith::ConstantOp::create(b, b.getBoolAttr(true));
  Value isEmpty = hasNoState ? hasNoState : isTrue;
  Value isLong = arith::XOrIOp::create(b, isEmpty, isTrue);
  if (!isFold())
    isLong = arith::OrIOp::create(b, isLong, foldsBefore);
  Value isShort = arith::XOrIOp::create(b, isLong, isTrue);
  auto isKind = [&](int32_t kind) {
    return compare(Predicate::eq, rowsOf, constantInt(kind));
  };
  Value wanted = arith::SelectOp::create(
      b, isKind(1), isShort,
      arith::SelectOp::create(b, isKind(2), isLong, isTrue));
  return both(both(wanted, compare(Predicate::slt, draft, draftCount)),
              isFold() ? foldsBefore : Value());
}

/// What waits in the slot from now on: layers that share a cursor all say the
/// same.
void GpuDraftKernel::storeWaiting() {
  Value count = draftCount;
  if (foldsBefore)
    count = arith::SelectOp::create(b, foldsBefore, add(draftCount, kFolded),
                                    draftCount);
  // With the first draft, by the first block of the row.
  Value isFirst =
      both(both(isBelow(head, 1), isBelow(thread, 1)), isBelow(draft, 1));
  if (tiles > 1)
    isFirst = both(isFirst, isFirstTile);
  guarded(isFirst, [&] {
    memref::StoreOp::create(
        b, arith::IndexCastOp::create(b, b.getI32Type(), count), waiting,
        ValueRange{readSlot});
  });
}

/// Where the entry at a position behind the base lies; in pages those that do
/// not fit are where no page is.
Value GpuDraftKernel::entryAt(Value position) {
  Value all = constantIndex(capacity());
  Value at =
      arith::RemUIOp::create(b, arith::AddIOp::create(b, base, position), all);
  Value place = memref::LoadOp::create(b, entryOrder, ValueRange{readSlot, at});
  if (!page())
    return place;
  return arith::SelectOp::create(b, isBelow(position, capacity()), place,
                                 constantInt(placeOfNone()));
}

/// Puts the entries that the draft sees side by side, the oldest first, and its
/// own behind them. A barrier follows.
void GpuDraftKernel::emitPlaces() {
  if (isFold())
    return GpuKernel::emitPlaces();
  endOfTokenLoads = anchor();
  storeWaiting();
  if (slots.keepStates())
    return;
  Value held = length, none = constantIndex(0);
  Value committed = arith::SelectOp::create(b, foldsBefore, none, held);
  int64_t count = knownPlaces();
  entryPlaces = shared({count}, "entry_places", b.getI32Type());
  for (int64_t first = 0; first < count; first += schedule.threads) {
    Value at = add(thread, first);
    guarded(isBelow(at, count), [&] {
      memref::StoreOp::create(b, entryAt(at), entryPlaces, ValueRange{at});
    });
  }
  barrier();

  // From the draft back to the first of its path.
  SmallVector<Value> path{draft};
  Value ancestors = none;
  for (int64_t i = 1; i < drafts; ++i) {
    path.push_back(parentOf(path.back()));
    Value exists = compare(Predicate::sge, path.back(), none);
    ancestors = arith::AddIOp::create(
        b, ancestors,
        arith::SelectOp::create(b, exists, constantIndex(1), none));
  }
  Value own = arith::AddIOp::create(b, committed, ancestors);
  for (auto [i, each] : llvm::enumerate(path)) {
    Value isThere = both(
        compare(Predicate::eq, thread, constantIndex(static_cast<int64_t>(i))),
        compare(Predicate::sge, each, none));
    guarded(isThere, [&, each = each, i = i] {
      Value at =
          arith::SubIOp::create(b, own, constantIndex(static_cast<int64_t>(i)));
      Value place = entryAt(arith::AddIOp::create(b, held, each));
      memref::StoreOp::create(b, place, entryPlaces, ValueRange{at});
    });
  }
  barrier();
  length = own;
  if (page())
    length = arith::MinUIOp::create(b, own, constantIndex(capacity()));
}
