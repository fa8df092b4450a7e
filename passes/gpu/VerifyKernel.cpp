//===- VerifyKernel.cpp - a verify step as a GPU kernel -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/VerifyKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

GpuVerifyKernel::GpuVerifyKernel(StepOp step, StepOp fold,
                                 const GpuSchedule &schedule,
                                 const GpuSlots &slots, OpBuilder &builder)
    : GpuKernel(step, fold, schedule, slots, builder) {}

//===----------------------------------------------------------------------===//
// Arguments and the task of a block
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::addArguments(SmallVectorImpl<Type> &types,
                                   SmallVectorImpl<std::string> &names) {
  GpuKernel::addArguments(types, names);
  Type i32 = b.getI32Type();
  auto flat = MemRefType::get({ShapedType::kDynamic}, i32);
  types.append({flat, flat, i32});
  for (const char *name : {"cu_seqlens", "parents", "has_parents"})
    names.push_back(name);
}

void GpuVerifyKernel::takeArguments(unsigned &next) {
  GpuKernel::takeArguments(next);
  for (Value *each : {&cuSeqlens, &parentArgument, &hasParents})
    *each = function.getBody().front().getArgument(next++);
  anyCount = hasParents;
}

void GpuVerifyKernel::emitRowStart() {
  team = group;
  teamLane = lane;
  if (hasWarpValues) {
    team = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
    teamLane = warpLane;
  }
  firstDraft = loadNumber(cuSeqlens, {row}, "first_draft");
  Value end = loadNumber(cuSeqlens, {add(row, 1)}, "end_of_drafts");
  draftCount = arith::SubIOp::create(b, end, firstDraft);
}

void GpuVerifyKernel::emitPaddedRow() {
  auto loop =
      scf::ForOp::create(b, constantIndex(0), draftCount, constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  zeroOutputs(arith::AddIOp::create(b, firstDraft, loop.getInductionVar()));
}

/// Where the row stands.
Value GpuVerifyKernel::emitCursor() {
  loadParents();
  Value m = loadCursor();
  endOfTokenLoads = anchor();
  // Small loads that others follow would come behind the whole state. Where
  // other blocks keep the memory busy, it comes when the row knows whether it
  // writes it, too: the L2 cache has to know.
  folds = {};
  bool waits = fold && hasManyBlocks(schedule.tileRows);
  if (turns == 1 && !waits)
    stageStates();
  // More are never there when drafts come: a row folds before, and one that
  // has no state of its own to fold into is given no more
  // (Cursors::Impl::room).
  if (mostEntries() < capacity())
    length = arith::MinSIOp::create(b, length, constantIndex(mostEntries()));
  if (fold)
    folds = foldsAt(length, m);
  if (turns == 1 && waits)
    stageStates();
  return {};
}

Value GpuVerifyKernel::foldsAt(Value count, Value m) {
  Value all = arith::AddIOp::create(b, count, draftCount);
  Value isOver = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, all, m);
  Value isSome = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, count,
                                       constantIndex(0));
  return both(both(isOver, isSome), mayFold);
}

/// A row that folds for the first time has a state, of zeros: where others have
/// one, so that who has none needs no memory for it.
Value GpuVerifyKernel::isForStateless() {
  Value count = loadNumber(cursors, {readSlot, constantIndex(1)}, "entries");
  Value m = loadNumber(threshold, {constantIndex(1)}, "crossover");
  Value stays = arith::XOrIOp::create(
      b, foldsAt(count, m), arith::ConstantOp::create(b, b.getBoolAttr(true)));
  return both(hasNoState, stays);
}

/// Before the first thing that is written: what is ahead has ended. What drafts
/// leave to memory waits for it, and nothing else of a row does.
void GpuVerifyKernel::allowWrites() {
  if (std::exchange(mayWrite, true))
    return storeLateEntries();
  waitForPrevious();
  // Of heads in turn, the first stores what they have in common.
  guarded(turn ? isBelow(turn, 1) : Value(), [&] {
    storeWaiting();
    for (const std::function<void()> &store : waitingNumbers)
      store();
    storeKept(commonEntries);
  });
  storeLateEntries();
}

/// Once something may be written.
void GpuVerifyKernel::storeLateEntries() {
  if (!mayWrite)
    return;
  storeKept(lateEntries);
  lateEntries.clear();
}

/// What waits in the slot from now on: layers that share a cursor all say the
/// same.
void GpuVerifyKernel::storeWaiting() {
  Value number = draftCount;
  if (folds)
    number =
        arith::SelectOp::create(b, folds, add(draftCount, kFolded), draftCount);
  // Of all blocks of a row, that of the first head and tile.
  Value isFirst = both(isBelow(head, 1), isBelow(thread, 1));
  if (tiles > 1)
    isFirst = both(isFirst, isFirstTile);
  guarded(isFirst, [&] {
    memref::StoreOp::create(
        b, arith::IndexCastOp::create(b, b.getI32Type(), number), waiting,
        ValueRange{readSlot});
  });
}

/// The parent of the draft of each thread, as it was given, and the draft ahead
/// otherwise. Asked for with the cursor, so that the tree does not wait once
/// more.
void GpuVerifyKernel::loadParents() {
  Type i32 = b.getI32Type();
  Value isThere =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, thread, draftCount);
  Value isGiven = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, hasParents,
                                        constantInt(0));
  auto given = scf::IfOp::create(b, TypeRange{i32}, both(isThere, isGiven),
                                 /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(given.thenBlock());
  Value at = arith::AddIOp::create(b, firstDraft, thread);
  scf::YieldOp::create(
      b, Value(memref::LoadOp::create(b, parentArgument, ValueRange{at})));
  b.setInsertionPointToStart(given.elseBlock());
  Value number = arith::IndexCastOp::create(b, i32, thread);
  scf::YieldOp::create(b,
                       Value(arith::SubIOp::create(b, number, constantInt(1))));
  ownParent = given.getResult(0);
}

/// The parents of the drafts, and their ancestors as bits. A barrier follows.
void GpuVerifyKernel::emitTree() {
  Type i32 = b.getI32Type();
  parents = shared({most()}, "draft_parents", i32);
  ancestors = shared({most()}, "draft_ancestors", i32);
  auto exists = [&](Value draft) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sge, draft,
                                 constantInt(0));
  };
  auto held = [&](Value draft) -> Value {
    return arith::MaxSIOp::create(b, draft, constantInt(0));
  };
  // Lane d of a warp has draft d. Each round doubles how far a draft sees.
  guarded(schedule.threads > kWarp ? isBelow(thread, kWarp) : Value(), [&] {
    Value isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                          warpLane, draftCount);
    Value none = constantInt(-1);
    Value parent = arith::SelectOp::create(b, isThere, ownParent, none);
    Value mask = arith::SelectOp::create(
        b, exists(parent),
        arith::ShLIOp::create(b, constantInt(1), held(parent)), constantInt(0));
    Value jump = parent;
    for (int64_t reach = 1; reach < most(); reach *= 2) {
      Value more = shuffle(mask, held(jump), kWarp, gpu::ShuffleMode::IDX);
      Value next = shuffle(jump, held(jump), kWarp, gpu::ShuffleMode::IDX);
      mask = arith::SelectOp::create(b, exists(jump),
                                     arith::OrIOp::create(b, mask, more), mask);
      jump = arith::SelectOp::create(b, exists(jump), next, none);
    }
    guarded(isBelow(thread, most()), [&] {
      memref::StoreOp::create(b, parent, parents, ValueRange{thread});
      memref::StoreOp::create(b, mask, ancestors, ValueRange{thread});
    });
  });
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::sync() {
  if (!written.empty())
    barrier();
}

void GpuVerifyKernel::barrier() {
  GpuKernel::barrier();
  written.clear();
  if (b.getInsertionBlock() == readByOthers)
    readByOthers = nullptr;
}

void GpuVerifyKernel::sync(ArrayRef<Value> memories) {
  if (llvm::any_of(memories,
                   [&](Value each) { return written.contains(each); }))
    sync();
}

Value GpuVerifyKernel::isDraft(int64_t draft) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                               constantIndex(draft), draftCount);
}

/// One head of those that share a value stores it. Null for all.
Value GpuVerifyKernel::sharesHead(int64_t count) {
  if (count == heads)
    return {};
  // Of a block that takes several, the last of them stands for all.
  Value last = turns > 1 && !turn ? add(firstHead, turns - 1) : head;
  return arith::CmpIOp::create(
      b, arith::CmpIPredicate::eq,
      arith::RemUIOp::create(b, last, constantIndex(heads / count)),
      constantIndex(heads / count - 1));
}

LogicalResult GpuVerifyKernel::emitRow() {
  llvm::scope_exit forget([&] {
    if (startOfTokens)
      startOfTokens->erase();
    for (Operation *each : pastAnchors)
      each->erase();
  });
  if (turns > 1)
    stageStates();
  endOfSlotLoads = anchor();
  (void)emitCursor();
  if (!step.getArgumentsOfKind(ArgumentKind::Carry).empty())
    version = loadNumber(carryVersions, {readSlot}, "version");
  if (teams() < most())
    placeHeldPaths();
  if (vectorCount)
    vectors = shared({vectorCount, vectorPitch}, "draft_vectors");
  if (tokenCount)
    tokens = shared({tokenCount, tokenPitch}, "draft_tokens", b.getBF16Type());
  emitTree();
  emitPlaces();
  emitDraftPlaces();
  holdsValues = mayHoldValues();
  stagesAllTurns = mayStageAllTurns();
  stageEntries();
  if (turns == 1)
    loadDecayedEntries();
  holdValues();
  endOfEntryNumbers = anchor();
  startOfTokens = anchor();

  // What tokens and paths give, for both forms.
  auto isShared = [&](Operation &op) {
    if (!isa<EachDraftOp, PathDecayOp, PathGramOp, PathSolveOp, PathProductOp>(
            op))
      return false;
    return !fold || llvm::any_of(sameValues, [&](auto &pair) {
      return pair.second == op.getResult(0);
    });
  };
  SmallVector<Operation *> ops;
  for (Operation &op : step.getBody().front())
    if (isShared(op))
      ops.push_back(&op);
  if (turns == 1)
    return emitTurn(ops);
  if (failed(emitCommon(ops)))
    return failure();
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(turns),
                                 constantIndex(1));
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    beginTurn(loop.getInductionVar());
    if (failed(emitTurn(ops)))
      return failure();
    endTurn();
  }
  if (!leftStacks.empty())
    storeLeft();
  return success();
}

/// What is left of a row for one head.
LogicalResult GpuVerifyKernel::emitTurn(ArrayRef<Operation *> ops) {
  for (Operation *op : ops) {
    auto region = dyn_cast<EachDraftOp>(op);
    if (!(region && region.getStacks().empty()) && failed(emitLateNumbers()))
      return failure();
    if (failed(emitTeamOp(op)))
      return failure();
  }
  if (failed(emitLateNumbers()))
    return failure();
  storeLateEntries();
  // Regions of a form of its own are of neither part.
  phase = Phase::All;
  if (!stagesAllTurns)
    for (StepOp form : forms())
      emitWeights(form, /*vectors=*/false);
  for (StepOp form : forms())
    for (auto read : form.getBody().front().getOps<ReadBufferOp>())
      if (!decayedKey(read.getBuffer(), read.getKey(), read.getDecay()))
        (void)entryWeightsOf(read);
  if (turns == 1)
    emitEarlyReads();
  waitForEntries();
  if (gathers)
    written.clear();
  for (StepOp form : forms())
    emitWeights(form, /*vectors=*/true);
  sync();
  scaleGrams(std::exchange(unscaledGrams, {}));

  if (!folds)
    return emitBranch(step);
  auto branch = scf::IfOp::create(b, folds, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  if (failed(emitBranch(fold)))
    return failure();
  b.setInsertionPointToStart(branch.elseBlock());
  return emitBranch(step);
}

/// The part of an operation that is for teams.
LogicalResult GpuVerifyKernel::emitTeamOp(Operation *op) {
  b.setLoc(unnamed(op->getLoc()));
  if (auto each = dyn_cast<EachDraftOp>(op)) {
    bool isLeft = phase == Phase::OfTurn && commonDrafts.contains(op);
    auto &emitted = isLeft ? draftsOfTurn : emittedDrafts;
    bool isKnown = !isLeft && commonDrafts.contains(op);
    return !isKnown && emitted.insert(op).second ? emitDrafts(each) : success();
  }
  if (op->getNumResults() &&
      (stacks.contains(op->getResult(0)) || grams.contains(op->getResult(0))))
    return success();
  if (llvm::is_contained(unscaledGrams, op))
    return success();
  auto isForTeams = [&](Value result) {
    return (sides.lookup(result) & Teams) != 0;
  };
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](PathDecayOp each) {
        if (isForTeams(each.getResult()))
          emitPathDecay(each);
        return success();
      })
      .Case([&](PathGramOp each) { return emitPathGram(each); })
      .Case([&](PathSolveOp each) {
        return isForTeams(each.getResult(0))
                   ? emitPathSolve(each, /*ofRows=*/false)
                   : success();
      })
      .Case([&](PathProductOp each) {
        return isForTeams(each.getResult())
                   ? emitPathProduct(each, /*ofRows=*/false)
                   : success();
      })
      .Case([&](TransportOp each) { return emitStackTransport(each); })
      .Default([](Operation *) { return success(); });
}

LogicalResult GpuVerifyKernel::emitBranch(StepOp form) {
  // Branches see what came before them, not each other.
  auto before = values;
  auto rowsBefore = rowStacks;
  auto stacksBefore = stacks;
  auto gramsBefore = grams;
  auto weightsBefore = entryWeights;
  auto writtenBefore = written;
  auto lateBefore = lateEntries;
  size_t waitingBefore = waitingNumbers.size();
  bool mayWriteBefore = mayWrite;
  Value partDecaysBefore = partDecays;
  Block *readBefore = readByOthers;
  states.clear();
  weightedValues.clear();
  wholeValues.clear();
  storedTiles.clear();
  rebuiltTiles.clear();
  usedProducts.clear();
  readTiles.clear();
  dotsOfForm.clear();
  waited = false;
  isInBranch = true;

  auto isKnown = [&](Operation &op) {
    return op.getNumResults() && sameValues.contains(op.getResult(0));
  };
  // Entries come before the states do.
  LogicalResult result = success();
  Block &body = form.getBody().front();
  for (Operation &op : body) {
    if (failed(result) || isKnown(op))
      continue;
    result = emitTeamOp(&op);
    storeLateEntries();
    if (auto read = dyn_cast<ReadBufferOp>(op); read && succeeded(result))
      result = emitStackEntries(read);
  }
  for (Operation &op : body) {
    if (failed(result))
      break;
    b.setLoc(unnamed(op.getLoc()));
    if (auto store = dyn_cast<StoreStateOp>(op))
      result = storeState(store);
    else if (auto read = dyn_cast<ReadOp>(op))
      result = LogicalResult(rowsOf(read.getResult()));
  }
  // All that is stored is known before anything is.
  auto know = [&](Value value) {
    RankedTensorType type = unstackType(typeOf(value));
    if (succeeded(result) && naturalSide(type, canonical(value)) == Rows)
      result = LogicalResult(rowsOf(value));
  };
  for (Value value : form.getYieldedOutputs())
    know(value);
  if (succeeded(result))
    result = storeStacks(form);
  values = std::move(before);
  rowStacks = std::move(rowsBefore);
  stacks = std::move(stacksBefore);
  grams = std::move(gramsBefore);
  entryWeights = std::move(weightsBefore);
  written = std::move(writtenBefore);
  lateEntries = std::move(lateBefore);
  waitingNumbers.resize(waitingBefore);
  mayWrite = mayWriteBefore;
  partDecays = partDecaysBefore;
  readByOthers = readBefore;
  isInBranch = false;
  return result;
}
