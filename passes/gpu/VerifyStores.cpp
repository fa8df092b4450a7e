//===- VerifyStores.cpp - what a verify step leaves behind ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A thread has the row of all drafts, and memory the rows of a draft side by
// side. What has 16 bits goes through the tile, which nobody reads any more, so
// that a warp stores all rows of a draft at once and not 32 of them: of steps
// with states of 16 bits that is 1 to 3 % of the time.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Conditional.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

/// Rows that a thread stores at once.
static constexpr int64_t kTogether = 4;
static constexpr int64_t kWarp = 32;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

void GpuVerifyKernel::emitDraftPlaces() {
  if (!page())
    return;
  Type i32 = b.getI32Type();
  draftPages = shared({most()}, "draft_pages", i32);
  draftEntries = shared({most()}, "draft_entries", i32);
  guarded(isBelow(thread, most()), [&] {
    EntryPlace place = placeToWrite(arith::AddIOp::create(b, length, thread));
    for (auto [value, memory] : {std::pair(place.outer, draftPages),
                                 std::pair(place.entry, draftEntries)})
      memref::StoreOp::create(b, arith::IndexCastOp::create(b, i32, value),
                              memory, ValueRange{thread});
  });
  written.insert(draftPages);
}

EntryPlace GpuVerifyKernel::placeOfDraft(Value draft) {
  if (!page())
    return placeToWrite(arith::AddIOp::create(b, length, draft));
  return {loadNumber(draftPages, {draft}, "page"),
          loadNumber(draftEntries, {draft}, "place")};
}

/// Where a draft of a stack lies, as far as all of its rows have in common.
SmallVector<Value> GpuVerifyKernel::placeOfStack(const StoredStack &stack,
                                                 Value draft) {
  int64_t count = unstackType(typeOf(stack.value)).getDimSize(0);
  if (!stack.asEntries)
    return {arith::AddIOp::create(b, firstDraft, draft), headIndex(count)};
  EntryPlace place = placeOfDraft(draft);
  return {place.outer, headIndex(count), place.entry};
}

/// Stores what lanes of teams have computed. One branch is for all that the
/// same lanes store, so that what is computed is in one piece.
void GpuVerifyKernel::storeKept(ArrayRef<Kept> all) {
  auto isVector = [](const Kept &each) {
    return isa<VectorType>(each.components.front().getType());
  };
  llvm::MapVector<std::pair<Value, int64_t>, SmallVector<const Kept *>> groups;
  for (const Kept &each : all) {
    int64_t among = each.ofThread    ? teamLanes()
                    : isVector(each) ? each.place.lanes
                                     : 1;
    groups[{each.guard, among}].push_back(&each);
    if (each.memory)
      written.insert(each.memory);
  }
  for (auto &[lanesThatStore, group] : groups) {
    auto [guard, among] = lanesThatStore;
    if (among < teamLanes())
      guard = both(guard, isBelow(teamLane, among));
    guarded(guard, [&, group = ArrayRef(group)] {
      for (const Kept *each : group) {
        Components all = each->held
                             ? loadStack(*each->held, each->draft, each->place)
                             : each->components;
        for (auto [i, part] : llvm::enumerate(all)) {
          auto at = static_cast<int64_t>(i);
          if (!isVector(*each)) {
            each->store(at, {}, part);
            continue;
          }
          const Place &place = each->place;
          int64_t c = at % place.chunks;
          Value inside;
          if (isPartial(place, c))
            inside = isBelow(add(laneOf(place), c * place.lanes), place.size);
          guarded(inside, [&, part = part] {
            each->store(at / place.chunks, chunkStart(place, c), part);
          });
        }
      }
    });
  }
}

/// All that a form leaves of its drafts but for states. Values of rows are
/// known.
LogicalResult GpuVerifyKernel::storeStacks(StepOp form) {
  SmallVector<StoredStack> all;
  for (auto [value, output] : llvm::zip(form.getYieldedOutputs(), outputs))
    all.push_back({canonical(value), output, /*asEntries=*/false});
  for (auto append : form.getBody().front().getOps<AppendDraftsOp>())
    for (auto [i, value] : llvm::enumerate(append.getValues())) {
      unsigned argument =
          cast<BlockArgument>(append.getBuffer()).getArgNumber();
      // Those of teams have been stored when they were computed.
      if (append.getBuffer().getType().getFields()[i].getSide() == Side::Value)
        all.push_back(
            {canonical(value), fields[argument][i], /*asEntries=*/true});
    }
  if (mayLeave(all))
    return leaveStacks(all);
  Value tile = tileToPackIn();
  SmallVector<StoredStack> packed, others;
  for (const StoredStack &each : all)
    (tile && mayPack(each) ? packed : others).push_back(each);
  int64_t rows = 0;
  for (const StoredStack &each : packed)
    rows += rowsToPack(each);
  if (rows * schedule.tileRows * 16 > bitsOf(tile)) {
    others = all;
    packed.clear();
  }
  SmallVector<Value> memories;
  if (failed(packStacks(packed, tile, memories)))
    return failure();
  allowWrites();
  for (const StoredStack &each : others)
    if (failed(storeStack(each)))
      return failure();
  if (packed.empty())
    return success();
  barrier();
  int64_t first = 0;
  for (auto [each, memory] : llvm::zip(packed, memories)) {
    // Threads that have nothing of one stack have something of the next.
    int64_t before = first * partsOfRow();
    bool isApart =
        before % kWarp == 0 &&
        (first + rowsToPack(each)) * partsOfRow() <= schedule.threads;
    storePacked(each, memory, first, isApart ? before : 0);
    first += rowsToPack(each);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Through the tile
//===----------------------------------------------------------------------===//

/// The tile that this form has read, in which at the most what it has read
/// lies. Null if there is none: heads in turn gain nothing by it, and two
/// barriers a turn take 2 % of bf16 states.
Value GpuVerifyKernel::tileToPackIn() {
  for (Value tile : llvm::make_second_range(stagedStates))
    if (productsInTiles.contains(tile) || readTiles.contains(tile))
      return tile;
  return {};
}

int64_t GpuVerifyKernel::bitsOf(Value memory) const {
  if (!memory)
    return 0;
  auto type = cast<MemRefType>(memory.getType());
  return type.getNumElements() * type.getElementTypeBitWidth();
}

/// Whether a stack is a row of each thread, some of which another may store.
bool GpuVerifyKernel::isOfThreadRows(const StoredStack &stack) {
  RankedTensorType type = unstackType(typeOf(stack.value));
  bool isOfRows = stack.asEntries || naturalSide(type, stack.value) == Rows;
  return isOfRows && type.getRank() > 1 && !hasSpareRows() &&
         type.getShape().back() == valueSize &&
         schedule.tileRows % kTogether == 0;
}

bool GpuVerifyKernel::mayPack(const StoredStack &stack) {
  auto target = cast<MemRefType>(stack.target.getType());
  return isOfThreadRows(stack) && target.getElementTypeBitWidth() == 16;
}

/// Vectors over the rows of a tile.
int64_t GpuVerifyKernel::rowsToPack(const StoredStack &stack) {
  return most() * componentCount(unstackType(typeOf(stack.value)));
}

/// The row of each thread of all drafts, as they are stored.
FailureOr<SmallVector<GpuKernel::Components>>
GpuVerifyKernel::rowsOfStacks(ArrayRef<StoredStack> stacks) {
  SmallVector<Components> result;
  for (const StoredStack &stack : stacks) {
    b.setLoc(stack.value.getLoc());
    FailureOr<Components> rows = rowsOf(stack.value);
    if (failed(rows))
      return failure();
    Type element = cast<MemRefType>(stack.target.getType()).getElementType();
    for (Value &row : *rows)
      row = convertTo(row, element);
    result.push_back(std::move(*rows));
  }
  SmallVector<Value *> ofOtherDrafts;
  for (auto [stack, rows] : llvm::zip(stacks, result))
    for (size_t i = rowsToPack(stack) / most(); i < rows.size(); ++i)
      ofOtherDrafts.push_back(&rows[i]);
  computeIf(b, isDraft(1), ofOtherDrafts);
  return result;
}

/// Puts the row of each thread where it is found by others. A barrier follows.
LogicalResult GpuVerifyKernel::packStacks(ArrayRef<StoredStack> stacks,
                                          Value tile,
                                          SmallVectorImpl<Value> &memories) {
  FailureOr<SmallVector<Components>> computed = rowsOfStacks(stacks);
  if (failed(computed))
    return failure();
  if (!stacks.empty() && productsInTiles.contains(tile))
    barrier();
  int64_t first = 0;
  for (auto [stack, all] : llvm::zip(stacks, *computed)) {
    b.setLoc(stack.value.getLoc());
    Type element = cast<MemRefType>(stack.target.getType()).getElementType();
    int64_t rows = rowsToPack(stack);
    Value &memory = packedRows[{tile, element}];
    if (!memory)
      memory = sharedIn(
          tile, {bitsOf(tile) / 16 / schedule.tileRows, schedule.tileRows},
          "packed_rows", element);
    guarded(ownsRow, [&, all = ArrayRef(all)] {
      for (int64_t i = 0; i < rows; ++i)
        memref::StoreOp::create(b, all[i], memory,
                                ValueRange{constantIndex(first + i), ownRow});
    });
    memories.push_back(memory);
    first += rows;
  }
  return success();
}

/// Vectors that a row of the packed is stored in.
int64_t GpuVerifyKernel::partsOfRow() const {
  return schedule.tileRows / kTogether;
}

/// Stores what all threads have put there, some rows a thread, the first of
/// them by the thread `from`.
void GpuVerifyKernel::storePacked(const StoredStack &stack, Value memory,
                                  int64_t first, int64_t from) {
  b.setLoc(stack.value.getLoc());
  RankedTensorType type = unstackType(typeOf(stack.value));
  int64_t components = componentCount(type), ofDraft = partsOfRow();
  auto part = VectorType::get(
      {kTogether}, cast<MemRefType>(memory.getType()).getElementType());
  int64_t &bytes = alignments[cast<BlockArgument>(stack.target).getArgNumber()];
  bytes =
      std::max<int64_t>(bytes, kTogether * part.getElementTypeBitWidth() / 8);
  int64_t parts = rowsToPack(stack) * ofDraft;
  for (int64_t start = 0; start < parts; start += schedule.threads) {
    Value number = add(thread, start - from);
    Value row = arith::DivUIOp::create(b, number, constantIndex(ofDraft));
    Value column = arith::MulIOp::create(
        b, arith::RemUIOp::create(b, number, constantIndex(ofDraft)),
        constantIndex(kTogether));
    Value draft = row;
    if (components > 1)
      draft = arith::DivUIOp::create(b, row, constantIndex(components));
    // There are no more drafts than there are rows.
    Value isThere =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, draft, draftCount);
    if (from > 0)
      isThere =
          both(isThere, arith::CmpIOp::create(b, arith::CmpIPredicate::uge,
                                              thread, constantIndex(from)));
    guarded(both(isThere, sharesHead(type.getDimSize(0))), [&] {
      SmallVector<Value> at = placeOfStack(stack, draft);
      if (type.getRank() == 3)
        at.push_back(arith::RemUIOp::create(b, row, constantIndex(components)));
      at.push_back(arith::AddIOp::create(b, tileStart, column));
      Value loaded = vector::LoadOp::create(
          b, part, memory, ValueRange{add(row, first), column});
      auto store = vector::StoreOp::create(b, loaded, stack.target, at);
      // The next kernel reads it.
      if (!stack.asEntries)
        store->setAttr(kKeptAttr, b.getUnitAttr());
    });
  }
}

//===----------------------------------------------------------------------===//
// After all turns
//===----------------------------------------------------------------------===//

/// Whether what a turn leaves has room until all turns are over, so that none
/// of them waits for the kernel ahead.
bool GpuVerifyKernel::mayLeave(ArrayRef<StoredStack> all) {
  constexpr int64_t mostBytes = 8 << 10;
  if (!stagesAllTurns || mayWrite || !lateEntries.empty())
    return false;
  int64_t bits = 0;
  for (const StoredStack &each : all) {
    if (!isOfThreadRows(each))
      return false;
    bits += turns * rowsToPack(each) * schedule.tileRows *
            cast<MemRefType>(each.target.getType()).getElementTypeBitWidth();
  }
  return bits <= mostBytes * 8;
}

/// Memory for `rows` rows that turns leave: where keys were that all turns have
/// multiplied before the first, if there is room.
Value GpuVerifyKernel::placeToLeave(int64_t rows, Type element, bool isOnly) {
  SmallVector<int64_t> shape{rows, schedule.tileRows};
  int64_t bits = rows * schedule.tileRows * element.getIntOrFloatBitWidth();
  for (auto read : step.getBody().front().getOps<ReadBufferOp>()) {
    auto keys =
        stagedFields.find({argumentOf(read.getBuffer()), read.getKey().str()});
    if (isOnly && entryDots.contains(read.getResult(0)) &&
        keys != stagedFields.end() && bits <= bitsOf(keys->second))
      return sharedIn(keys->second, shape, "left_rows", element);
  }
  return shared(shape, "left_rows", element);
}

/// Puts what a turn leaves into shared memory, behind what others have.
LogicalResult GpuVerifyKernel::leaveStacks(ArrayRef<StoredStack> all) {
  llvm::MapVector<Type, int64_t> rowsOfTurn;
  auto elementOf = [](const StoredStack &stack) {
    return cast<MemRefType>(stack.target.getType()).getElementType();
  };
  for (const StoredStack &stack : all) {
    int64_t &rows = rowsOfTurn[elementOf(stack)];
    leftStacks.push_back({stack, {}, rows, 0});
    rows += rowsToPack(stack);
  }
  llvm::DenseMap<Type, Value> memories;
  for (auto [element, rows] : rowsOfTurn)
    memories[element] = placeToLeave(turns * rows, element,
                                     /*isOnly=*/rowsOfTurn.size() == 1);
  FailureOr<SmallVector<Components>> computed = rowsOfStacks(all);
  if (failed(computed))
    return failure();
  for (auto [left, rows] : llvm::zip(leftStacks, *computed)) {
    b.setLoc(left.stack.value.getLoc());
    Type element = elementOf(left.stack);
    left.memory = memories.lookup(element);
    left.ofTurn = rowsOfTurn[element];
    Value first = add(
        arith::MulIOp::create(b, turn, constantIndex(left.ofTurn)), left.first);
    guarded(ownsRow, [&, all = ArrayRef(rows), memory = left.memory] {
      for (auto [i, row] : llvm::enumerate(all))
        memref::StoreOp::create(
            b, row, memory,
            ValueRange{add(first, static_cast<int64_t>(i)), ownRow});
    });
  }
  return success();
}

/// Stores what all turns have left.
void GpuVerifyKernel::storeLeft() {
  turn = {};
  head = firstHead;
  headScope = ++scopes;
  allowWrites();
  for (int64_t which = 0; which < turns; ++which) {
    turn = constantIndex(which);
    head = add(firstHead, which);
    for (const LeftStack &left : leftStacks)
      storePacked(left.stack, left.memory, which * left.ofTurn + left.first);
  }
}

//===----------------------------------------------------------------------===//
// By each thread
//===----------------------------------------------------------------------===//

/// Stores the drafts of a stack as outputs, or as entries after the others.
LogicalResult GpuVerifyKernel::storeStack(const StoredStack &stack) {
  auto [value, target, asEntries] = stack;
  b.setLoc(value.getLoc());
  RankedTensorType type = unstackType(typeOf(value));
  int64_t count = type.getDimSize(0), components = componentCount(type);
  Type element = cast<MemRefType>(target.getType()).getElementType();
  bool ofRows = asEntries || naturalSide(type, value) == Rows;
  Components all;
  if (ofRows) {
    FailureOr<Components> found = rowsOf(value);
    if (failed(found))
      return failure();
    all = *found;
  } else {
    sync();
  }
  for (int64_t draft = 0; draft < most(); ++draft)
    guarded(isDraft(draft), [&] {
      SmallVector<Value> indices = placeOfStack(stack, constantIndex(draft));
      if (type.getRank() == 1) {
        Value number =
            ofRows ? all[draft]
                   : loadStack(teamOf(value), constantIndex(draft), Place())[0];
        Value mine = both(sharesHead(count), isBelow(thread, 1));
        if (tiles > 1)
          mine = both(mine, isFirstTile);
        guarded(mine, [&] {
          memref::StoreOp::create(b, convertTo(number, element), target,
                                  indices);
        });
        return;
      }
      for (int64_t i = 0; i < components; ++i) {
        SmallVector<Value> at(indices);
        if (type.getRank() == 3)
          at.push_back(constantIndex(i));
        if (ofRows) {
          int64_t size = type.getShape().back();
          guarded(both(sharesHead(count), ownsRowIn(size)), [&] {
            at.push_back(rowIn(size));
            auto store = memref::StoreOp::create(
                b, convertTo(all[draft * components + i], element), target, at);
            // The next kernel reads it.
            if (!asEntries)
              store->setAttr(kKeptAttr, b.getUnitAttr());
          });
          continue;
        }
        Stack ofTeam = teamOf(value);
        Value mine = sharesHead(count);
        if (tiles > 1)
          mine = both(mine, isFirstTile);
        guarded(mine, [&] {
          auto loop = scf::ForOp::create(b, thread, constantIndex(ofTeam.size),
                                         constantIndex(schedule.threads));
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToStart(loop.getBody());
          Value number = memref::LoadOp::create(
              b, ofTeam.memory,
              ValueRange{constantIndex(ofTeam.first + draft * components + i),
                         loop.getInductionVar()});
          at.push_back(loop.getInductionVar());
          memref::StoreOp::create(b, convertTo(number, element), target, at);
        });
      }
    });
  return success();
}
