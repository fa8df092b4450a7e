//===- VerifyDrafts.cpp - the arithmetic of drafts in a GPU kernel --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle;

/// Drafts of a team that are computed one after the other without a loop, so
/// that none waits for the tokens of another.
static constexpr int64_t kDraftsAtOnce = 4;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool isOfDraft(Value value) {
  return isa_and_present<EachDraftOp>(value.getParentBlock()->getParentOp());
}

//===----------------------------------------------------------------------===//
// The draft at hand
//===----------------------------------------------------------------------===//

int64_t GpuVerifyKernel::scopeOf(Value value) const {
  if (!current.region)
    return headScope;
  // What is loaded once for all drafts is loaded before any of them.
  auto argument = dyn_cast<BlockArgument>(value);
  bool isLoadedOnce = argument && !isOfDraft(value) &&
                      const_cast<StepOp &>(step).getArgumentKind(
                          argument.getArgNumber()) != ArgumentKind::Token;
  return isLoadedOnce ? headScope : current.scope;
}

Value GpuVerifyKernel::tokenRow() {
  // There may be none as far as this; a padded row may have none at all, and
  // then takes that of another row.
  Value last = arith::SubIOp::create(b, draftCount, constantIndex(1));
  Value draft = current.ofRows ? constantIndex(current.number)
                : current.inLoop || current.ofThread
                    ? current.draft
                    : add(team, current.number * teams());
  Value wanted = arith::AddIOp::create(b, firstDraft,
                                       arith::MinSIOp::create(b, draft, last));
  return arith::MaxSIOp::create(b, wanted, constantIndex(0));
}

Operation *GpuVerifyKernel::tokenLoads() {
  return current.inLoop ? nullptr : endOfTokenLoads;
}

GpuKernel::Components GpuVerifyKernel::loadStack(const Stack &stack,
                                                 Value draft,
                                                 const Place &place) {
  Components result;
  Value first = draft;
  if (stack.components > 1)
    first = arith::MulIOp::create(b, draft, constantIndex(stack.components));
  for (int64_t i = 0; i < stack.components; ++i) {
    Value at = add(first, stack.first + i);
    if (stack.size == 1 && !stack.isVector)
      result.push_back(memref::LoadOp::create(
          b, stack.memory, ValueRange{at, constantIndex(0)}));
    else if (place.isRow)
      result.push_back(memref::LoadOp::create(
          b, stack.memory, ValueRange{at, rowIn(stack.size)}));
    else
      llvm::append_range(result, loadVector(stack.memory, {at}, place));
  }
  return result;
}

GpuVerifyKernel::Stack GpuVerifyKernel::teamOf(Value value) {
  value = canonical(value);
  auto [found, isNew] = stacks.try_emplace(value);
  if (!isNew)
    return found->second;
  RankedTensorType type = typeOf(value);
  if (!isOfDraft(value))
    type = unstackType(type);
  Stack stack;
  stack.components = componentCount(type);
  stack.isVector = type.getRank() > 1;
  if (auto row = vectorRows.find(value); row != vectorRows.end()) {
    stack.memory = vectors;
    stack.first = row->second;
    stack.size = keySize;
  } else {
    stack.size = type.getRank() == 1 ? 1 : type.getShape().back();
    stack.memory =
        shared({most() * stack.components, stack.size}, "draft_values");
  }
  return stacks[value] = stack;
}

/// The version of the carries of a draft, −1 for the history.
Value GpuVerifyKernel::carryVersion(Value draft) {
  Value next = arith::AddIOp::create(
      b, version, arith::AddIOp::create(b, draft, constantIndex(1)));
  next = arith::RemUIOp::create(b, next, constantIndex(most() + 1));
  return arith::AddIOp::create(
      b, arith::MulIOp::create(b, readSlot, constantIndex(most() + 1)), next);
}

/// A carry, as the parent of the draft left it behind.
GpuKernel::Components GpuVerifyKernel::loadCarry(BlockArgument carry,
                                                 EachDraftOp region,
                                                 const Place &place) {
  auto argument = cast<BlockArgument>(
      region.getCarries()[carry.getArgNumber() - region.getNumStacks()]);
  Value from = memory[argument.getArgNumber()];
  RankedTensorType type = typeOf(carry);
  bool ofRows = place.isRow;
  const Stack &stack = (ofRows ? rowCarries : teamCarries)[argument];
  Value parent =
      parentOf(current.ofRows ? constantIndex(current.number) : current.draft);
  Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, parent,
                                       constantIndex(0));
  Value held = arith::MaxSIOp::create(b, parent, constantIndex(0));
  Value history = arith::AddIOp::create(
      b, arith::MulIOp::create(b, readSlot, constantIndex(most() + 1)),
      version);
  SmallVector<Value> outer{history, headIndex(type.getDimSize(0))};
  Value first = arith::MulIOp::create(b, held, constantIndex(stack.components));
  Components result;
  if (ofRows) {
    // A thread has its own of all drafts.
    for (int64_t i = 0; i < stack.components; ++i) {
      SmallVector<Value> at(outer);
      if (type.getRank() == 3)
        at.push_back(constantIndex(i));
      at.push_back(rowIn(type.getShape().back()));
      Value ofParent = memref::LoadOp::create(
          b, stack.memory, ValueRange{add(first, i), thread});
      result.push_back(
          arith::SelectOp::create(b, exists, toF32(ofParent),
                                  toF32(memref::LoadOp::create(b, from, at))));
    }
    return result;
  }
  // Not both: the first rows may be about to be written.
  auto load = [&](bool ofParent) {
    Components loaded;
    for (int64_t i = 0; i < stack.components; ++i) {
      SmallVector<Value> at(outer);
      if (type.getRank() == 3)
        at.push_back(constantIndex(i));
      if (ofParent)
        at = {add(first, i)};
      Value memory = ofParent ? stack.memory : from;
      if (type.getRank() > 1) {
        llvm::append_range(loaded, loadVector(memory, at, place));
        continue;
      }
      if (ofParent)
        at.push_back(constantIndex(0));
      loaded.push_back(loadElement(memory, at));
    }
    return loaded;
  };
  Type part = b.getF32Type();
  if (type.getRank() > 1)
    part = VectorType::get({place.width}, part);
  int64_t parts = stack.components * (type.getRank() > 1 ? place.chunks : 1);
  auto branch = scf::IfOp::create(b, SmallVector<Type>(parts, part), exists,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, load(/*ofParent=*/true));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, load(/*ofParent=*/false));
  return Components(branch.getResults());
}

GpuKernel::Components GpuVerifyKernel::loadArgument(BlockArgument argument,
                                                    const Place &place) {
  auto region = dyn_cast<EachDraftOp>(argument.getOwner()->getParentOp());
  if (!region) {
    Components all = GpuKernel::loadArgument(argument, place);
    // Nothing that comes between its load and its use waits for it.
    for (Value each : all)
      if (auto convert = each.getDefiningOp<arith::ExtFOp>();
          convert && convert->getBlock() == endOfTokenLoads->getBlock() &&
          convert->isBeforeInBlock(endOfTokenLoads))
        convert->moveBefore(startOfTokens);
    return all;
  }
  unsigned index = argument.getArgNumber();
  if (index >= region.getNumStacks())
    return loadCarry(argument, region, place);
  Value stack = canonical(region.getStacks()[index]);
  bool isNumber = typeOf(argument).getRank() == 1;
  if (isNumber ? dependsOnRows(argument) : place.isRow) {
    FailureOr<Components> all = rowsOf(stack);
    int64_t each = componentCount(typeOf(argument));
    if (failed(all))
      return Components(each, constantFloat(0)); // reported where it failed
    return Components(ArrayRef(*all).slice(current.number * each, each));
  }
  if (!current.ofRows && !current.inLoop && !current.ofThread && !isInBranch)
    if (auto mine = pathsOfTeams.find(stack); mine != pathsOfTeams.end())
      return mine->second;
  if (current.isThere && takenStacks.contains(stack))
    return loadTaken(teamOf(stack), current.wanted, current.isThere, place);
  return loadStack(
      teamOf(stack),
      current.ofRows ? constantIndex(current.number) : current.draft, place);
}

FailureOr<GpuKernel::Components> GpuVerifyKernel::emit(Value value,
                                                       const Place &place) {
  // What teams or threads have stored before.
  if (current.isLate)
    if (Value stack = stacksOfNumbers.lookup(value))
      return loadStack(teamOf(stack),
                       ofAllTurns.contains(canonical(stack))
                           ? current.inAllTurns
                           : current.draft,
                       place);
  // What rows need of a team is in shared memory.
  if (current.ofRows && isOfDraft(value) && crossing.contains(value) &&
      !(place.isRow && !isa<RotateOp, SumOp>(value.getDefiningOp()) &&
        typeOf(value).getRank() > 1))
    return loadStack(teamOf(value), constantIndex(current.number), place);
  if (isSumOfRows(value))
    return sumRowsOfDrafts(value.getDefiningOp<SumOp>());
  return GpuKernel::emit(value, place);
}

//===----------------------------------------------------------------------===//
// Teams
//===----------------------------------------------------------------------===//

/// All that teams need of the current draft. `byAll`: every team has the same
/// draft, and the first of them stores.
LogicalResult GpuVerifyKernel::emitDraftOfTeam(EachDraftOp op, Value valid,
                                               bool byAll,
                                               SmallVectorImpl<Kept> &kept) {
  OperandRange yielded = op.getYield().getValues();
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  if (byAll)
    valid = both(valid, isBelow(thread, teamLanes()));
  Value draft = current.draft;
  auto placeFor = [&](Value value) {
    RankedTensorType type = typeOf(value);
    return type.getRank() == 1 ? Place() : valuePlace(type.getShape().back());
  };
  /// To the rows of a draft in shared memory.
  auto put = [&](Value value, const Stack &stack) -> LogicalResult {
    Place place = placeFor(value);
    FailureOr<Components> all = get(value, place);
    if (failed(all))
      return failure();
    Type element = cast<MemRefType>(stack.memory.getType()).getElementType();
    Value first =
        add(arith::MulIOp::create(b, draft, constantIndex(stack.components)),
            stack.first);
    kept.push_back(
        {*all, place, valid, stack.memory,
         [=, this, memory = stack.memory](int64_t i, Value at, Value part) {
           Value stored = convertTo(part, element);
           Value row = add(first, i);
           if (at)
             vector::StoreOp::create(b, stored, memory, ValueRange{row, at});
           else
             memref::StoreOp::create(b, stored, memory,
                                     ValueRange{row, constantIndex(0)});
         }});
    return success();
  };
  llvm::DenseMap<int64_t, Value> guards;
  auto putFar = [&](Value value, Value target, SmallVector<Value> outer,
                    Value entry, std::optional<Stack> held) -> LogicalResult {
    RankedTensorType type = typeOf(value);
    Place place = placeFor(value);
    FailureOr<Components> all = get(value, place);
    if (failed(all))
      return failure();
    Type element = cast<MemRefType>(target.getType()).getElementType();
    int64_t count = type.getDimSize(0);
    outer.push_back(headIndex(count));
    if (entry)
      outer.push_back(entry);
    auto [mine, isNew] = guards.try_emplace(count);
    if (isNew) {
      mine->second = both(valid, sharesHead(count));
      if (tiles > 1)
        mine->second = both(mine->second, isFirstTile);
    }
    bool isRanked = type.getRank() == 3;
    kept.push_back({*all,
                    place,
                    mine->second,
                    {},
                    [=, this](int64_t i, Value at, Value part) {
                      SmallVector<Value> indices(outer);
                      if (isRanked)
                        indices.push_back(constantIndex(i));
                      Value stored = convertTo(part, element);
                      if (at) {
                        indices.push_back(at);
                        vector::StoreOp::create(b, stored, target, indices);
                      } else {
                        memref::StoreOp::create(b, stored, target, indices);
                      }
                    },
                    /*ofThread=*/false,
                    held,
                    draft});
    return success();
  };

  // What others wait for comes first.
  for (size_t i = 0; i < carriesFrom; ++i) {
    Value result = op.getResult(i), value = yielded[i];
    if (dependsOnRows(value) || scaled.contains(result) ||
        ofThreads.contains(result) || !isNow(value))
      continue;
    unsigned side = sides.lookup(result);
    if ((side & Tokens) &&
        failed(put(value, {tokens, tokenRows.lookup(result), 1, keySize})))
      return failure();
    if ((side & Teams) && failed(put(value, teamOf(result))))
      return failure();
  }
  for (Operation &each : op.getBody().front().without_terminator())
    if (Value value = each.getResult(0); isOfTeams(value) && isNow(value))
      if (failed(put(value, teamOf(value))))
        return failure();
  EntryPlace place;
  if (llvm::any_of(op.getResults(),
                   [&](Value result) { return appended.contains(result); }))
    place = placeOfDraft(draft);
  for (size_t i = 0; i < carriesFrom; ++i) {
    if (ofThreads.contains(op.getResult(i)) || !isNow(yielded[i]))
      continue;
    // Entries that decay by elements have several vectors, which a team finds
    // where it has put them.
    std::optional<Stack> held;
    Value result = op.getResult(i);
    if (!decayedKeys.empty() && vectorRows.contains(canonical(result)) &&
        !byAll && !current.inLoop && !dependsOnRows(yielded[i]) &&
        !scaled.contains(result) && !takenStacks.contains(canonical(result)))
      held = teamOf(result);
    for (const Appended &each : appended.lookup(result))
      if (failed(putFar(yielded[i], fields[each.argument][each.index],
                        {place.outer}, place.entry, held)))
        return failure();
  }
  for (auto [carry, value] :
       llvm::zip(op.getCarries(), yielded.drop_front(carriesFrom))) {
    auto argument = cast<BlockArgument>(carry);
    auto found = teamCarries.find(argument);
    if (found == teamCarries.end())
      continue;
    if (failed(put(value, found->second)) ||
        failed(putFar(value, memory[argument.getArgNumber()],
                      {carryVersion(draft)}, {}, {})))
      return failure();
  }
  return success();
}

/// What teams take of stacks is there after it.
void GpuVerifyKernel::syncFor(EachDraftOp op, bool byAll) {
  SmallVector<Value> memories;
  bool areKnown = !byAll && op.getCarries().empty() && !isInBranch;
  for (Value each : op.getStacks()) {
    Value stack = canonical(each);
    if (pathsOfTeams.contains(stack)) // A team has its own.
      continue;
    auto found = stacks.find(stack);
    areKnown &= found != stacks.end();
    if (areKnown)
      memories.push_back(found->second.memory);
  }
  if (areKnown)
    sync(memories);
  else if (!op.getStacks().empty() || byAll)
    sync();
}

LogicalResult GpuVerifyKernel::emitDrafts(EachDraftOp op) {
  Block &body = op.getBody().front();
  bool isWanted = false, byAll = false;
  if (draftPages)
    sync({draftPages});
  // What drafts leave to each other they compute one after the other, and what
  // only one form has is computed in a turn, for one head.
  bool isInTurn = turns > 1 && turn;
  if (op.getCarries().empty() && phase != Phase::OfTurn && !isInTurn &&
      failed(emitNumbersOfDrafts(op)))
    return failure();
  for (Value result : op.getResults())
    if (isNow(result) && !ofThreads.contains(result))
      isWanted |= ((sides.lookup(result) & (Teams | Tokens)) &&
                   !scaled.contains(result) && !dependsOnRows(result)) ||
                  appended.contains(result);
  for (Operation &each : body.without_terminator()) {
    Value value = each.getResult(0);
    isWanted |= isOfTeams(value) && isNow(value);
    if (!(sides.lookup(value) & Teams))
      continue;
    // These meet in shared memory that all teams have in common.
    byAll |= isa<RotateOp>(each);
    if (auto broadcast = dyn_cast<BroadcastOp>(each)) {
      int64_t from = broadcast.getInput().getType().getRank();
      int64_t to = broadcast.getResult().getType().getRank();
      byAll |= from != to && from > 1 && broadcast.getDims().back() + 1 != to;
    }
  }
  bool hasRowCarries = false, hasTeamCarries = false;
  for (auto [i, carry] : llvm::enumerate(op.getCarries())) {
    auto argument = cast<BlockArgument>(carry);
    RankedTensorType type = typeOf(carry);
    Type element = cast<MemRefType>(memory[argument.getArgNumber()].getType())
                       .getElementType();
    unsigned side = sides.lookup(body.getArgument(op.getNumStacks() + i));
    int64_t components = componentCount(type);
    int64_t size = type.getRank() == 1 ? 1 : type.getShape().back();
    if ((side & Teams) || type.getRank() == 1) {
      teamCarries[argument] = {
          shared({most() * components, size}, "draft_carries", element), 0,
          components, size};
      hasTeamCarries = true;
    }
    if ((side & Rows) && type.getRank() > 1) {
      rowCarries[argument] = {shared({most() * components, schedule.threads},
                                     "draft_carries", element),
                              0, components, schedule.threads};
      hasRowCarries = true;
    }
  }
  byAll |= hasTeamCarries;
  Current outer = current;
  if (isWanted || hasTeamCarries) {
    syncFor(op, byAll);
    if (readByOthers && fillsFreed.contains(op))
      barrier();
    Value last = arith::SubIOp::create(b, draftCount, constantIndex(1));
    SmallVector<Kept> kept;
    auto each = [&](Value draft, int64_t round, bool inLoop) {
      current = {op,     arith::MinSIOp::create(b, draft, last),
                 round,  /*ofRows=*/false,
                 inLoop, ++scopes};
      Value valid = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, draft,
                                          draftCount);
      current.isThere = byAll ? Value() : valid;
      current.wanted = draft;
      return emitDraftOfTeam(op, byAll ? Value() : valid, byAll, kept);
    };
    int64_t rounds = llvm::divideCeil(most(), teams());
    LogicalResult result = success();
    if (byAll || rounds > kDraftsAtOnce) {
      allowWrites();
      Value end = byAll ? draftCount : constantIndex(rounds);
      auto loop =
          scf::ForOp::create(b, constantIndex(0), end, constantIndex(1));
      loop->setAttr("ladle.rolled", b.getUnitAttr());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value draft = loop.getInductionVar();
      if (!byAll)
        draft = arith::AddIOp::create(
            b, team, arith::MulIOp::create(b, draft, constantIndex(teams())));
      result = each(draft, 0, /*inLoop=*/true);
      storeKept(kept);
      if (byAll)
        barrier();
    } else {
      for (int64_t i = 0; i < rounds && succeeded(result); ++i)
        result = each(add(team, i * teams()), i, /*inLoop=*/false);
      // Nobody in the block waits for entries.
      auto isEntry = [](const Kept &mine) { return !mine.memory; };
      llvm::copy_if(kept, std::back_inserter(lateEntries), isEntry);
      llvm::erase_if(kept, isEntry);
      storeKept(kept);
    }
    current = outer;
    if (failed(result))
      return failure();
  }
  if (hasRowCarries) {
    allowWrites();
    sync();
    if (failed(emitRowCarries(op)))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// The carries along dv, which every thread has its row of.
LogicalResult GpuVerifyKernel::emitRowCarries(EachDraftOp op) {
  OperandRange yielded = op.getYield().getValues();
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  Current outer = current;
  for (int64_t draft = 0; draft < most(); ++draft) {
    current = {op, {}, draft, /*ofRows=*/true, /*inLoop=*/false, draft + 1};
    for (auto [carry, value] :
         llvm::zip(op.getCarries(), yielded.drop_front(carriesFrom))) {
      auto argument = cast<BlockArgument>(carry);
      auto found = rowCarries.find(argument);
      if (found == rowCarries.end())
        continue;
      FailureOr<Components> all = get(value, rowPlace());
      if (failed(all))
        return failure();
      const Stack stack = found->second;
      Value target = memory[argument.getArgNumber()];
      Type element = cast<MemRefType>(target.getType()).getElementType();
      RankedTensorType type = typeOf(value);
      SmallVector<Value> stored;
      for (auto [i, component] : llvm::enumerate(*all)) {
        stored.push_back(convertTo(component, element));
        memref::StoreOp::create(
            b, stored.back(), stack.memory,
            ValueRange{constantIndex(draft * stack.components +
                                     static_cast<int64_t>(i)),
                       thread});
      }
      Value mine = both(isDraft(draft), ownsRowIn(type.getShape().back()));
      mine = both(mine, sharesHead(type.getDimSize(0)));
      guarded(mine, [&] {
        SmallVector<Value> outerAt{carryVersion(constantIndex(draft)),
                                   headIndex(type.getDimSize(0))};
        for (auto [i, component] : llvm::enumerate(stored)) {
          SmallVector<Value> at(outerAt);
          if (type.getRank() == 3)
            at.push_back(constantIndex(static_cast<int64_t>(i)));
          at.push_back(rowIn(type.getShape().back()));
          memref::StoreOp::create(b, component, target, at);
        }
      });
    }
  }
  current = outer;
  return success();
}

/// A stack along dv, or of numbers that come from rows: all drafts.
FailureOr<GpuKernel::Components> GpuVerifyKernel::rowsOf(Value value) {
  value = canonical(value);
  if (auto found = rowStacks.find(value); found != rowStacks.end())
    return found->second;
  sync();
  Operation *op = value.getDefiningOp();
  Current outer = current;
  Location location = b.getLoc();
  llvm::scope_exit restore([&] {
    current = outer;
    b.setLoc(location);
  });
  if (auto region = dyn_cast<EachDraftOp>(op)) {
    Value yielded =
        region.getYield().getValues()[cast<OpResult>(value).getResultNumber()];
    bool isNumber = typeOf(yielded).getRank() == 1;
    Components result;
    for (int64_t draft = 0; draft < most(); ++draft) {
      current = {region,           {},       draft, /*ofRows=*/true,
                 /*inLoop=*/false, draft + 1};
      FailureOr<Components> one = get(yielded, isNumber ? Place() : rowPlace());
      if (failed(one))
        return failure();
      llvm::append_range(result, *one);
    }
    return rowStacks[value] = result;
  }
  LogicalResult made = success();
  if (auto solve = dyn_cast<PathSolveOp>(op))
    made = emitPathSolve(solve, /*ofRows=*/true);
  else if (auto product = dyn_cast<PathProductOp>(op))
    made = emitPathProduct(product, /*ofRows=*/true);
  else if (auto read = dyn_cast<ReadOp>(op))
    made = emitStackReads(read);
  else if (auto read = dyn_cast<ReadBufferOp>(op))
    made = emitStackEntries(read);
  else
    made = emitTeamOp(op);
  auto found = rowStacks.find(value);
  if (failed(made) || found == rowStacks.end())
    return failure();
  return found->second;
}
