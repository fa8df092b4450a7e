//===- VerifyNumbers.cpp - numbers of drafts in a GPU kernel --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Numbers of a draft, gates and norms, take many instructions that depend on
// each other. A thread computes those of a draft, and only the warps that have
// such threads: in teams, every lane would compute the same.
//
// What is made of numbers alone comes with the tokens. What is made of sums
// along dk, too, comes late: teams store the sums, and after the barrier that
// waits for their tokens anyway, threads go on from there. Gram products, which
// are multiplied with such numbers, are made of tokens meanwhile.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/VerifyKernel.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Which
//===----------------------------------------------------------------------===//

/// Whether a number of a draft is made of numbers alone.
static bool isOfNumbers(Value value, EachDraftOp region) {
  if (isa<RankedTensorType>(value.getType()) && typeOf(value).getRank() != 1)
    return false;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getOwner() != &region.getBody().front();
  Operation *op = value.getDefiningOp();
  if (isa<arith::ConstantOp>(op))
    return true;
  if (op->getParentOp() != region)
    return false;
  if (!isa<BroadcastOp>(op) && !op->hasTrait<OpTrait::Elementwise>())
    return false;
  return llvm::all_of(op->getOperands(),
                      [&](Value each) { return isOfNumbers(each, region); });
}

/// Whether a number is made of numbers and of sums along dk. `before` takes
/// these sums, and the numbers that are made of numbers alone.
bool GpuVerifyKernel::findLate(Value number, EachDraftOp op,
                               llvm::SetVector<Value> &before) {
  if (typeOf(number).getRank() != 1 || dependsOnRows(number))
    return false;
  if (isOfNumbers(number, op)) {
    // Conditions have no memory; they are computed anew.
    if (number.getDefiningOp() && !number.getDefiningOp<arith::ConstantOp>() &&
        typeOf(number).getElementType().isF32())
      before.insert(number);
    return true;
  }
  Operation *def = number.getDefiningOp();
  if (!def || def->getParentOp() != op)
    return false;
  if (isa<SumOp>(def)) {
    // Where heads take turns, sums are of all of them.
    before.insert(number);
    return !isOfTurn(number);
  }
  if (!isa<BroadcastOp>(def) && !def->hasTrait<OpTrait::Elementwise>())
    return false;
  return llvm::all_of(def->getOperands(),
                      [&](Value each) { return findLate(each, op, before); });
}

/// Whether teams store a value of a draft that is no result.
bool GpuVerifyKernel::isOfTeams(Value value) const {
  return sumsOfTeams.contains(value) ||
         (crossing.contains(value) && !ofThreads.contains(value));
}

/// The numbers that threads compute; those that come late are kept for later.
SmallVector<GpuVerifyKernel::ThreadNumber>
GpuVerifyKernel::findNumbers(EachDraftOp op) {
  SmallVector<ThreadNumber> early, late;
  bool mayBeLate = !terms.empty() && !isInBranch && op.getStacks().empty();
  llvm::SetVector<Value> before;
  auto take = [&](Value number, Value key, Value stack,
                  ArrayRef<Appended> fields) {
    if (typeOf(number).getRank() != 1 || dependsOnRows(number))
      return;
    bool isWanted = stack || !fields.empty();
    if (isOfNumbers(number, op)) {
      ofThreads.insert(key);
      if (stack)
        stacksOfNumbers[number] = stack;
      if (isWanted)
        early.push_back({number, stack, fields});
      return;
    }
    llvm::SetVector<Value> mine;
    if (!mayBeLate || !isWanted || number.getDefiningOp<SumOp>() ||
        !findLate(number, op, mine))
      return;
    before.insert(mine.begin(), mine.end());
    ofThreads.insert(key);
    late.push_back({number, stack, fields});
  };
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  for (auto [i, number] : llvm::enumerate(op.getYield().getValues())) {
    if (i >= carriesFrom)
      break;
    Value result = op.getResult(i);
    if (scaled.contains(result))
      continue;
    ArrayRef<Appended> fields;
    if (auto found = appended.find(result); found != appended.end())
      fields = found->second;
    bool isAsked = (sides.lookup(result) & Teams) != 0;
    take(number, result, isAsked ? result : Value(), fields);
  }
  for (Operation &each : op.getBody().front().without_terminator())
    if (Value number = each.getResult(0); crossing.contains(number))
      take(number, number, number, {});
  for (Value number : before) {
    if (number.getDefiningOp<SumOp>()) {
      sumsOfTeams.insert(number);
    } else if (!stacksOfNumbers.contains(number)) {
      early.push_back({number, number, {}});
    } else {
      continue;
    }
    stacksOfNumbers[number] = number;
  }
  if (!late.empty())
    lateNumbers.emplace_back(op, std::move(late));
  return early;
}

//===----------------------------------------------------------------------===//
// Their arithmetic
//===----------------------------------------------------------------------===//

LogicalResult GpuVerifyKernel::emitNumbersOfDrafts(EachDraftOp op) {
  SmallVector<ThreadNumber> wanted = findNumbers(op);
  return wanted.empty() ? success() : emitNumbers(op, wanted, /*isLate=*/false);
}

/// Those that wait for what teams have stored. A barrier follows.
LogicalResult GpuVerifyKernel::emitLateNumbers() {
  if (lateNumbers.empty())
    return success();
  sync();
  for (auto &[op, wanted] : lateNumbers)
    if (failed(emitNumbers(op, wanted, /*isLate=*/true)))
      return failure();
  lateNumbers.clear();
  return success();
}

LogicalResult GpuVerifyKernel::emitNumbers(EachDraftOp op,
                                           ArrayRef<ThreadNumber> wanted,
                                           bool isLate) {
  Current outer = current;
  Value outerHead = head;
  int64_t outerScope = headScope, count = turns * most();
  llvm::scope_exit restore([&] {
    current = outer;
    head = outerHead;
    headScope = outerScope;
  });
  LogicalResult result = success();
  for (int64_t from = 0; from < count; from += schedule.threads) {
    Value mine, ofTurn, draft, valid;
    {
      // Where tokens are loaded.
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(endOfTokenLoads);
      mine = add(thread, from);
      draft = mine;
      if (turns > 1) {
        ofTurn = arith::DivUIOp::create(b, mine, constantIndex(most()));
        draft = arith::RemUIOp::create(b, mine, constantIndex(most()));
        head = arith::AddIOp::create(b, outerHead, ofTurn);
        if (from + schedule.threads > count)
          head = arith::MinUIOp::create(b, head, constantIndex(heads - 1));
      }
      valid = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, draft,
                                    draftCount);
      if (turns > 1 && from + schedule.threads > count)
        valid = both(valid, isBelow(mine, count));
      headScope = ++scopes;
      Value last = arith::SubIOp::create(b, draftCount, constantIndex(1));
      current = {op,
                 arith::MinSIOp::create(b, draft, last),
                 0,
                 /*ofRows=*/false,
                 /*inLoop=*/false,
                 ++scopes,
                 /*ofThread=*/true,
                 isLate,
                 {}};
      current.inAllTurns = current.draft;
      if (turns > 1) {
        Value held =
            arith::MinUIOp::create(b, ofTurn, constantIndex(turns - 1));
        current.inAllTurns = arith::AddIOp::create(
            b, current.draft,
            arith::MulIOp::create(b, held, constantIndex(most())));
      }
    }
    Value isFirstTurn;
    if (turns > 1)
      isFirstTurn = isBelow(mine, most());
    for (const ThreadNumber &each : wanted)
      if (each.stack && isOfTurn(each.number) &&
          ofAllTurns.insert(canonical(each.stack)))
        stacks[canonical(each.stack)] = {shared({count, 1}, "draft_values")};
    // Warps without drafts go on.
    int64_t ofWarps =
        llvm::alignTo(std::min(count - from, schedule.threads), kWarp);
    auto byWarps = [=, this](llvm::function_ref<void()> body) {
      guarded(ofWarps < schedule.threads ? isBelow(thread, ofWarps) : Value(),
              body);
    };
    // Until something may be written, entries wait in shared memory.
    bool isAppended =
        llvm::any_of(wanted, [](auto &each) { return !each.fields.empty(); });
    bool waits = isAppended && !mayWrite;
    SmallVector<ThreadNumber> later;
    SmallVector<Value> memories, guards;
    byWarps([&] {
      EntryPlace place;
      if (isAppended && !waits)
        place = placeOfDraft(current.draft);
      SmallVector<Kept> kept;
      for (const ThreadNumber &each : wanted) {
        FailureOr<Components> all = get(each.number, Place());
        if (failed(all)) {
          result = failure();
          return;
        }
        Value guard = isOfTurn(each.number) ? valid : both(valid, isFirstTurn);
        Value memory;
        if (each.stack)
          memory = teamOf(each.stack).memory;
        else if (waits && !each.fields.empty())
          memory = shared({count, 1}, "draft_values");
        if (memory)
          keepNumber(memory, *all, guard, mine, kept);
        if (each.fields.empty())
          continue;
        if (!waits) {
          appendNumber(each, all->front(), guard, place, kept);
          continue;
        }
        later.push_back(each);
        memories.push_back(memory);
      }
      storeKept(kept);
    });
    if (!waits)
      continue;
    for (const ThreadNumber &each : later)
      guards.push_back(isOfTurn(each.number) ? valid
                                             : both(valid, isFirstTurn));
    waitingNumbers.push_back([=, this, at = current.draft, of = head] {
      // As where they were computed.
      Value headBefore = std::exchange(head, of);
      Value turnBefore = std::exchange(turn, Value());
      int64_t scopeBefore = std::exchange(headScope, ++scopes);
      byWarps([&] {
        EntryPlace place = placeOfDraft(at);
        SmallVector<Kept> kept;
        for (auto [i, each] : llvm::enumerate(later))
          appendNumber(each, memories[i], guards[i], place, kept, mine);
        storeKept(kept);
      });
      head = headBefore;
      turn = turnBefore;
      headScope = scopeBefore;
    });
  }
  return result;
}

/// Where a number is stored: in shared memory.
void GpuVerifyKernel::keepNumber(Value memory, const Components &number,
                                 Value guard, Value at,
                                 SmallVectorImpl<Kept> &kept) {
  if (current.isLate)
    lateMemories.insert(memory);
  kept.push_back({number, Place(), guard, memory,
                  [=, this](int64_t, Value, Value part) {
                    memref::StoreOp::create(b, part, memory,
                                            ValueRange{at, constantIndex(0)});
                  },
                  /*ofThread=*/true});
}

/// And as an entry: a number, or what shared memory has of a thread, `at` in
/// it, which only those who store it may look at.
void GpuVerifyKernel::appendNumber(const ThreadNumber &of, Value number,
                                   Value guard, const EntryPlace &place,
                                   SmallVectorImpl<Kept> &kept, Value at) {
  int64_t ofField = typeOf(of.number).getDimSize(0);
  for (const Appended &field : of.fields) {
    Value target = fields[field.argument][field.index];
    Type element = cast<MemRefType>(target.getType()).getElementType();
    SmallVector<Value> indices{place.outer, headIndex(ofField), place.entry};
    Value far = both(guard, sharesHead(ofField));
    if (tiles > 1)
      far = both(far, isFirstTile);
    kept.push_back({{number},
                    Place(),
                    far,
                    {},
                    [=, this](int64_t, Value, Value part) {
                      if (at)
                        part = memref::LoadOp::create(
                            b, part, ValueRange{at, constantIndex(0)});
                      memref::StoreOp::create(b, convertTo(part, element),
                                              target, indices);
                    },
                    /*ofThread=*/true});
  }
}
