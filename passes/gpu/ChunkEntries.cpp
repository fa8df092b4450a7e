//===- ChunkEntries.cpp - prompts that stay entries on a GPU --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A prompt of kv_only goes through its chunks like any other: what the tokens
// before a chunk have written is a state in shared memory, which begins with
// the entries that the slot holds. A short prompt leaves its entries in pages,
// and the state is forgotten; a long one leaves the state.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Where the row stands, if it may keep entries, and whether it does.
void GpuChunkKernel::loadRow() {
  if (fields.empty())
    return;
  base = loadNumber(cursors, {readSlot, constantIndex(0)}, "base");
  length = loadNumber(cursors, {readSlot, constantIndex(1)}, "length");
  // The row has no state yet.
  Value m =
      loadNumber(threshold, {constantIndex(slots.arePaged() ? 1 : 0)}, "m");
  Value all = arith::AddIOp::create(b, length, tokenCount);
  keepsPrompt = compare(arith::CmpIPredicate::slt, all, m);
  // Who has no state of its own keeps entries for as long as there is room.
  if (mayFold)
    keepsPrompt = arith::OrIOp::create(
        b, keepsPrompt,
        arith::XOrIOp::create(
            b, mayFold, arith::ConstantOp::create(b, b.getBoolAttr(true))));
  emitPlaces();
}

/// Puts the state before the prompt into shared memory.
void GpuChunkKernel::beginState(BlockArgument pool) {
  SmallVector<FoldBufferOp> folds;
  for (Operation *user : pool.getUsers()) {
    auto store = dyn_cast<StoreStateOp>(user);
    if (!store)
      continue;
    Value state = store.getState().getDefiningOp<FoldDraftsOp>().getState();
    while (auto fold = state.getDefiningOp<FoldBufferOp>()) {
      folds.push_back(fold);
      state = fold.getState();
    }
    if (!state.getDefiningOp<ZeroStateOp>())
      continue;
    // Shared memory is zero at first.
    return foldHeldEntries(folds, heldState(pool.getArgNumber()));
  }
  moveState(pool, /*isLoad=*/true);
  foldHeldEntries(folds, heldState(pool.getArgNumber()));
}

/// An element of an entry, of a field along dv one of the tile.
Value GpuChunkKernel::fieldAt(Value buffer, StringRef name, int64_t rank,
                              const EntryPlace &place, Value element) {
  auto type = cast<BufferType>(buffer.getType());
  FieldAttr field = type.getField(name);
  size_t index = llvm::find(type.getFields(), field) - type.getFields().begin();
  SmallVector<Value> at{place.outer, headIndex(field.getShape().front()),
                        place.entry};
  if (field.getShape().size() == 3)
    at.push_back(constantIndex(rank));
  if (field.getShape().size() > 1)
    at.push_back(field.getSide() == Side::Value
                     ? Value(arith::AddIOp::create(b, tileStart, element))
                     : element);
  return loadElement(fields[argumentOf(buffer)][index], at);
}

/// Adds the entries that the slot holds to a state, the oldest first: a thread
/// has elements of its own.
void GpuChunkKernel::foldHeldEntries(ArrayRef<FoldBufferOp> folds, Value held) {
  if (folds.empty())
    return;
  syncAll();
  willWrite(held);
  Value buffer = FoldBufferOp(folds.front()).getBuffer();
  auto type = cast<BufferType>(buffer.getType());
  std::optional<StringRef> decay = FoldBufferOp(folds.front()).getDecay();
  forElements(constantIndex(schedule.tileRows), keySize, [&](Value v, Value c) {
    Value before = memref::LoadOp::create(b, held, ValueRange{v, c});
    auto loop = scf::ForOp::create(b, constantIndex(0), length,
                                   constantIndex(1), ValueRange{before});
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      EntryPlace place = placeOf(loop.getInductionVar());
      Value sum = loop.getRegionIterArg(0);
      if (decay)
        sum =
            arith::MulFOp::create(b, sum, fieldAt(buffer, *decay, 0, place, c));
      for (FoldBufferOp fold : folds)
        for (int64_t r = 0, e = componentCount(type.getField(fold.getKey()));
             r < e; ++r) {
          Value key = fieldAt(buffer, fold.getKey(), r, place, c);
          for (std::optional<StringRef> scale :
               {fold.getKeyScale(), fold.getValueScale()})
            if (scale)
              key = arith::MulFOp::create(b, key,
                                          fieldAt(buffer, *scale, 0, place, c));
          sum = math::FmaOp::create(
              b, key, fieldAt(buffer, fold.getValue(), r, place, v), sum);
        }
      scf::YieldOp::create(b, sum);
    }
    memref::StoreOp::create(b, loop.getResult(0), held, ValueRange{v, c});
  });
}

/// What a result of a region is appended as.
void GpuChunkKernel::addEntrySinks(OpResult result, Value value,
                                   SmallVectorImpl<Sink> &sinks) {
  for (Operation *user : result.getUsers()) {
    auto append = dyn_cast<AppendDraftsOp>(user);
    if (!append)
      continue;
    for (auto [i, appended] : llvm::enumerate(append.getValues())) {
      if (appended != result)
        continue;
      FieldAttr field = append.getBuffer().getType().getFields()[i];
      bool isTile = tiles > 1 && field.getSide() == Side::Value &&
                    typeOf(value).getRank() > 1;
      sinks.push_back({value,
                       std::nullopt,
                       fields[argumentOf(append.getBuffer())][i],
                       isTile,
                       {},
                       /*isEntry=*/true});
    }
  }
}
