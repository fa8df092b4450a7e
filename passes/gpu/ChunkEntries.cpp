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
// Where folds are by chunks, a prompt has two parts, each a launch. The first
// is what fills up the chunk that the slot has begun: it adds to the entries,
// or folds them if the chunk ends. The second folds all whole chunks, and
// leaves the rest as entries, in the ring that is empty by then. They are apart
// because blocks read what a slot holds where others would leave the rest.
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
  if (foldsByChunk)
    return choosePart();
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

/// Which tokens this launch takes of the prompt, and how many of them fold.
void GpuChunkKernel::choosePart() {
  Value zero = constantIndex(0), size = constantIndex(chunk);
  Value isFirst =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, part, constantInt(0));
  // What is left of the chunk that the slot has begun.
  Value isOpen = compare(arith::CmpIPredicate::sgt, length, zero);
  Value left = arith::SubIOp::create(b, size, length);
  Value first = arith::SelectOp::create(
      b, isOpen, arith::MinSIOp::create(b, left, tokenCount), zero);
  Value rest = arith::SubIOp::create(b, tokenCount, first);
  Value isFull = both(isOpen, compare(arith::CmpIPredicate::eq, first, left));
  endOfFold = arith::SelectOp::create(
      b, isFirst, arith::SelectOp::create(b, isFull, first, zero),
      times(over(rest, chunk), chunk));
  firstToken = arith::AddIOp::create(
      b, firstToken, arith::SelectOp::create(b, isFirst, zero, first));
  tokenCount = arith::SelectOp::create(b, isFirst, first, rest);
  length = arith::SelectOp::create(b, isFirst, length, zero);
  emitPlaces();
}

/// Stores the states if the chunk at hand ends where the last fold is.
void GpuChunkKernel::storeFolded() {
  Value end = arith::AddIOp::create(b, firstInChunk, inChunk);
  guarded(compare(arith::CmpIPredicate::eq, end, endOfFold), [&] {
    for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
      moveState(pool, /*isLoad=*/false);
  });
}

/// Whether a token at hand is behind the last fold.
Value GpuChunkKernel::isKept(Value token) {
  return compare(arith::CmpIPredicate::sge,
                 arith::AddIOp::create(b, firstInChunk, token), endOfFold);
}

/// Puts the state before the prompt into shared memory.
void GpuChunkKernel::beginState(BlockArgument pool) {
  SmallVector<FoldBufferOp> folds;
  ReplayOp replay;
  for (Operation *user : pool.getUsers()) {
    auto store = dyn_cast<StoreStateOp>(user);
    if (!store)
      continue;
    Value state = store.getState().getDefiningOp<FoldDraftsOp>().getState();
    replay = state.getDefiningOp<ReplayOp>();
    if (replay)
      break;
    while (auto fold = state.getDefiningOp<FoldBufferOp>()) {
      folds.push_back(fold);
      state = fold.getState();
    }
    if (!state.getDefiningOp<ZeroStateOp>())
      continue;
    // Shared memory is zero at first.
    return foldHeldEntries(folds, heldState(pool.getArgNumber()));
  }
  Value held = heldState(pool.getArgNumber()), hasTokens;
  if (foldsByChunk)
    hasTokens =
        compare(arith::CmpIPredicate::sgt, tokenCount, constantIndex(0));
  guarded(hasTokens, [&] { moveState(pool, /*isLoad=*/true); });
  if (replay)
    replayHeldEntries(replay, held);
  foldHeldEntries(folds, held);
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

/// Applies the raw entries that the slot holds to a state, the oldest first. A
/// team takes a row of the tile, a lane elements of its own.
void GpuChunkKernel::replayHeldEntries(ReplayOp op, Value held) {
  syncAll();
  willWrite(held);
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  Place place = keyPlace(keySize);
  SmallVector<Value> mine;
  for (int64_t c = 0; c < chunks; ++c)
    for (int64_t e = 0; e < width; ++e)
      mine.push_back(add(chunkStart(place, c), e));
  int64_t teams = schedule.threads / lanes;
  auto rows = scf::ForOp::create(
      b, constantIndex(0),
      constantIndex(llvm::divideCeil(schedule.tileRows, teams)),
      constantIndex(1));
  OpBuilder::InsertionGuard ofRows(b);
  b.setInsertionPointToStart(rows.getBody());
  Value v =
      arith::AddIOp::create(b, team, times(rows.getInductionVar(), teams));
  // Lanes add up what they have, also those without a row, which is another
  // team's to read.
  Value isInside = isBelow(v, schedule.tileRows);
  SmallVector<Type> types(mine.size(), b.getF32Type());
  auto loaded = scf::IfOp::create(b, types, isInside, /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard ofBranch(b);
    SmallVector<Value> row;
    b.setInsertionPointToStart(loaded.thenBlock());
    for (Value c : mine)
      row.push_back(memref::LoadOp::create(b, held, ValueRange{v, c}));
    scf::YieldOp::create(b, row);
    b.setInsertionPointToStart(loaded.elseBlock());
    scf::YieldOp::create(b, SmallVector<Value>(mine.size(), constantFloat(0)));
  }
  SmallVector<Value> row(loaded.getResults());
  // Values of the last row are there for all.
  Value inTile =
      arith::MinUIOp::create(b, v, constantIndex(schedule.tileRows - 1));
  auto entries = scf::ForOp::create(b, constantIndex(0), length,
                                    constantIndex(1), ValueRange(row));
  {
    OpBuilder::InsertionGuard ofEntries(b);
    b.setInsertionPointToStart(entries.getBody());
    EntryPlace at = placeOf(entries.getInductionVar());
    auto field = [&](StringAttr name, int64_t r, Value element) {
      return fieldAt(buffer, name.getValue(), r, at, element);
    };
    auto scaled = [&](StringAttr name, StringAttr scale, int64_t r,
                      Value element) -> Value {
      Value value = field(name, r, element);
      return scale.empty() ? value
                           : Value(arith::MulFOp::create(
                                 b, value, field(scale, 0, element)));
    };
    auto ranksOf = [&](StringAttr name) {
      return componentCount(type.getField(name.getValue()));
    };
    SmallVector<Value> old(entries.getRegionIterArgs()), next(old);
    if (StringRef decay = transition.getDecay(); !decay.empty())
      for (auto [part, c] : llvm::zip(next, mine))
        part = arith::MulFOp::create(b, part, fieldAt(buffer, decay, 0, at, c));
    SmallVector<Value> decayed(next);
    SmallVector<SmallVector<Value>> inputs;
    for (auto [name, scale, key] :
         llvm::zip(transition.getValues(), transition.getValueScales(),
                   transition.getKeys())) {
      auto &list = inputs.emplace_back(ranksOf(key), constantFloat(0));
      for (int64_t r = 0; !name.empty() && r < ranksOf(name); ++r)
        list[r] = scaled(name, scale, r, inTile);
    }
    for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
      for (int64_t r = 0; r < ranksOf(transition.getVectors()[m]); ++r) {
        Value read = constantFloat(0);
        for (auto [part, c] :
             llvm::zip(transition.getAfterDecay()[m] ? decayed : old, mine))
          read =
              math::FmaOp::create(b, part,
                                  scaled(transition.getVectors()[m],
                                         transition.getVectorScales()[m], r, c),
                                  read);
        inputs[owner][r] = math::FmaOp::create(
            b, field(transition.getCoefficients()[m], 0, inTile),
            sumOverGroup(read), inputs[owner][r]);
      }
    for (auto [list, key, scale] :
         llvm::zip(inputs, transition.getKeys(), transition.getKeyScales()))
      for (auto [r, value] : llvm::enumerate(list))
        for (auto [part, c] : llvm::zip(next, mine))
          part = math::FmaOp::create(
              b, scaled(key, scale, static_cast<int64_t>(r), c), value, part);
    scf::YieldOp::create(b, next);
  }
  guarded(isInside, [&] {
    for (auto [part, c] : llvm::zip(entries.getResults(), mine))
      memref::StoreOp::create(b, part, held, ValueRange{v, c});
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
