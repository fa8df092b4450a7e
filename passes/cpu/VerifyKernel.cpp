//===- VerifyKernel.cpp - a verify step as a function ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/VerifyKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/ScheduleInfo.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static int64_t widthOf(RankedTensorType ofOneDraft) {
  return ofOneDraft.getRank() > 1 ? ofOneDraft.getShape().back() : 1;
}

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

int64_t VerifyKernel::rowsOf(Type stack) {
  return componentCount(unstackType(cast<RankedTensorType>(stack)));
}

Value VerifyKernel::scratchOf(Value stack) {
  Value &scratch = stacks[stack];
  if (!scratch) {
    RankedTensorType type = typeOf(stack);
    scratch = allocateScratch({roomFor(type.getDimSize(1)) * rowsOf(type),
                               widthOf(unstackType(type))});
  }
  return scratch;
}

FailureOr<Value> VerifyKernel::findStack(Value stack) {
  if (Value found = stacks.lookup(stack))
    return found;
  return mlir::emitError(stack.getLoc(),
                         "cannot be lowered for the CPU: nothing makes this "
                         "stack before it is used");
}

Value VerifyKernel::rowOf(Value draft, int64_t rows, int64_t component) {
  Value first =
      rows == 1 ? draft : arith::MulIOp::create(b, draft, constantIndex(rows));
  return component ? arith::AddIOp::create(b, first, constantIndex(component))
                   : first;
}

/// One draft's components of a value of type `type`.
Components VerifyKernel::loadRows(Value scratch, RankedTensorType type,
                                  Value draft) {
  Components result;
  int64_t rows = componentCount(type);
  for (int64_t i = 0; i < rows; ++i) {
    SmallVector<Value> at{rowOf(draft, rows, i), constantIndex(0)};
    result.push_back(type.getRank() > 1
                         ? loadVector(scratch, at, widthOf(type))
                         : Value(memref::LoadOp::create(b, scratch, at)));
  }
  return result;
}

scf::ForOp VerifyKernel::openDrafts() {
  auto loop =
      scf::ForOp::create(b, constantIndex(0), draftCount, constantIndex(1));
  b.setInsertionPointToStart(loop.getBody());
  return loop;
}

Value VerifyKernel::parentOf(Value draft) {
  if (cast<DraftsType>(step.getDrafts().getType()).getIsChain())
    return arith::SubIOp::create(b, draft, constantIndex(1));
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    memref::LoadOp::create(b, parents, draft));
}

/// Stores one draft's components of a value of type `type`.
static void storeRows(ImplicitLocOpBuilder &b, const Components &components,
                      Value scratch, function_ref<Value(int64_t)> rowOf,
                      Value zero) {
  for (auto [i, component] : llvm::enumerate(components)) {
    SmallVector<Value> at{rowOf(i), zero};
    if (isa<VectorType>(component.getType()))
      vector::StoreOp::create(b, component, scratch, at);
    else
      memref::StoreOp::create(b, component, scratch, at);
  }
}

//===----------------------------------------------------------------------===//
// Carries: a version for each draft, beside that of the committed history
//===----------------------------------------------------------------------===//

Value VerifyKernel::carryIndex(Value draft) {
  // Draft −1 stands for the committed history.
  int64_t versions = cast<DraftsType>(step.getDrafts().getType()).getMost() + 1;
  Value current = arith::SubIOp::create(b, readCarry, writeCarry);
  Value next = arith::AddIOp::create(
      b, arith::AddIOp::create(b, current, constantIndex(1)), draft);
  return arith::AddIOp::create(
      b, writeCarry, arith::RemUIOp::create(b, next, constantIndex(versions)));
}

Components VerifyKernel::loadCarryOfParent(BlockArgument carry, Value draft) {
  return loadArgument(carry, carryIndex(parentOf(draft)));
}

void VerifyKernel::storeCarry(BlockArgument carry, Value draft,
                              const Components &components) {
  int64_t heads = cast<RankedTensorType>(carry.getType()).getDimSize(0);
  storeTo(memory[carry], {carryIndex(draft), headIndex(heads)}, components,
          constantIndex(0));
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

FailureOr<Components> VerifyKernel::draftOperand(EachDraftOp op, Value value,
                                                 Value draft) {
  if (auto found = headValues.find(value); found != headValues.end())
    return found->second;
  Components result;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    unsigned index = argument.getArgNumber();
    if (argument.getOwner() != &op.getBody().front()) {
      bool isToken = step.getArgumentKind(index) == ArgumentKind::Token;
      result = loadArgument(
          argument,
          isToken ? Value(arith::AddIOp::create(b, row, draft)) : Value());
    } else if (index < op.getNumStacks()) {
      FailureOr<Value> stack = findStack(op.getStacks()[index]);
      if (failed(stack))
        return failure();
      result = loadRows(*stack, typeOf(argument), draft);
    } else {
      auto carry =
          cast<BlockArgument>(op.getCarries()[index - op.getNumStacks()]);
      result = loadCarryOfParent(carry, draft);
    }
  } else if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
    FailureOr<Components> made = emitComponents(constant, {}, std::nullopt);
    if (failed(made))
      return failure();
    result = *made;
  } else {
    // Of a level above.
    FailureOr<Value> stack = findStack(value);
    if (failed(stack))
      return failure();
    result = loadRows(*stack, typeOf(value), draft);
  }
  headValues[value] = result;
  return result;
}

LogicalResult VerifyKernel::emitEachDraft(EachDraftOp op, unsigned level) {
  auto isHere = [&](Value value) { return levelOf(value.getType()) == level; };
  SmallVector<Operation *> ops;
  for (Operation &each : op.getBody().front().without_terminator()) {
    if (each.getNumResults() != 1 ||
        !isa<RankedTensorType>(each.getResult(0).getType()))
      return each.emitError("cannot be lowered for the CPU: '")
             << each.getName() << "' has no token value as its result";
    if (isHere(each.getResult(0)))
      ops.push_back(&each);
  }
  OperandRange yielded = op.getYield().getValues();
  if (ops.empty() && llvm::none_of(yielded, isHere))
    return success();

  OpBuilder::InsertionGuard guard(b);
  llvm::DenseMap<Value, Components> outside = headValues;
  Value draft = openDrafts().getInductionVar();
  for (Operation *each : ops) {
    b.setLoc(each->getLoc());
    SmallVector<Components> operands;
    for (Value operand : each->getOperands()) {
      FailureOr<Components> components = draftOperand(op, operand, draft);
      if (failed(components))
        return failure();
      operands.push_back(*components);
    }
    FailureOr<Components> result = emitComponents(each, operands, std::nullopt);
    if (failed(result))
      return failure();
    Value value = each->getResult(0);
    headValues[value] = *result;
    // Levels below take it from memory.
    bool goesDown = llvm::any_of(value.getUsers(), [&](Operation *user) {
      return user->getNumResults() &&
             levelOf(user->getResult(0).getType()) != level;
    });
    if (!goesDown)
      continue;
    int64_t rows = componentCount(typeOf(value));
    Value &scratch = stacks[value];
    if (!scratch)
      scratch =
          allocateScratch({roomFor(op.getDrafts().getType().getMost()) * rows,
                           widthOf(typeOf(value))});
    storeRows(
        b, *result, scratch, [&](int64_t i) { return rowOf(draft, rows, i); },
        constantIndex(0));
  }
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  for (auto [i, value] : llvm::enumerate(yielded)) {
    if (!isHere(value))
      continue;
    FailureOr<Components> components = draftOperand(op, value, draft);
    if (failed(components))
      return failure();
    if (i >= carriesFrom) {
      storeCarry(cast<BlockArgument>(op.getCarries()[i - carriesFrom]), draft,
                 *components);
      continue;
    }
    int64_t rows = componentCount(typeOf(value));
    storeRows(
        b, *components, scratchOf(op.getResult(i)),
        [&](int64_t row) { return rowOf(draft, rows, row); }, constantIndex(0));
  }
  headValues = std::move(outside);
  return success();
}

//===----------------------------------------------------------------------===//
// Sinks
//===----------------------------------------------------------------------===//

void VerifyKernel::storeDrafts(Value stack, Value memory,
                               function_ref<SmallVector<Value>(Value)> prefix) {
  OpBuilder::InsertionGuard guard(b);
  RankedTensorType type = unstackType(typeOf(stack));
  Value scratch = stacks.lookup(stack);
  Value draft = openDrafts().getInductionVar();
  storeTo(memory, prefix(draft), loadRows(scratch, type, draft),
          constantIndex(0));
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

unsigned VerifyKernel::levelOfOp(Operation *op) const {
  std::optional<unsigned> level;
  for (Type type : op->getResultTypes())
    if (isa<RankedTensorType>(type))
      level = std::max(level.value_or(0), levelOf(type));
  return level.value_or(levels.size() - 1);
}

LogicalResult VerifyKernel::emitOp(Operation *op, unsigned level) {
  b.setLoc(op->getLoc());
  if (auto region = dyn_cast<EachDraftOp>(op))
    return emitEachDraft(region, level);
  if (auto append = dyn_cast<AppendDraftsOp>(op)) {
    for (auto [value, field] :
         llvm::zip(append.getValues(), fields[append.getBuffer()])) {
      if (levelOf(value.getType()) != level)
        continue;
      if (failed(findStack(value)))
        return failure();
      Value head = headIndex(typeOf(value).getDimSize(0));
      storeDrafts(value, field, [&](Value draft) -> SmallVector<Value> {
        EntryPlace place = placeOf(arith::AddIOp::create(b, length, draft));
        return {place.outer, head, place.entry};
      });
    }
    return success();
  }
  // What is read of a constant is repeated where it is used.
  if (levelOfOp(op) != level || isa<arith::ConstantOp>(op))
    return success();
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](PathDecayOp each) { return emitPathDecay(each); })
      .Case([&](PathGramOp each) { return emitPathGram(each); })
      .Case([&](PathProductOp each) { return emitPathProduct(each); })
      .Case([&](PathSolveOp each) { return emitPathSolve(each); })
      .Case([&](DecayProductOp each) { return emitDecayProduct(each); })
      .Case([&](ReadBufferOp each) { return emitStackedReads(each); })
      .Case([&](TransportOp each) { return emitStackedTransport(each); })
      .Case([&](ReadOp each) { return emitRead(each); })
      .Case([&](FoldBufferOp each) {
        gatherFold(each);
        return success();
      })
      .Case([&](ReplayOp each) {
        gatherReplay(each);
        return success();
      })
      .Case([&](StoreStateOp store) {
        // With the pass that reads it, if there is one.
        for (Operation *user : store.getPool().getUsers())
          if (auto load = dyn_cast<LoadStateOp>(user);
              load && store->isBeforeInBlock(load) && !load->use_empty())
            return success();
        return passOver(store.getState(), store);
      })
      .Case<LoadStateOp, ZeroStateOp, DecayOp, ClearOp>(
          [](Operation *) { return success(); })
      .Default([](Operation *each) {
        return each->emitError("cannot be lowered for the CPU: '")
               << each->getName() << "' is not for all drafts of a row";
      });
}

LogicalResult VerifyKernel::emitLevels(unsigned level) {
  OpBuilder::InsertionGuard guard(b);
  openLevel(level);
  for (Operation &op : step.getBody().front().without_terminator())
    if (failed(emitOp(&op, level)))
      return failure();
  for (auto [value, output] : llvm::zip(step.getYieldedOutputs(), outputs)) {
    if (levelOf(value.getType()) != level)
      continue;
    if (failed(findStack(value)))
      return failure();
    Value head = headIndex(typeOf(value).getDimSize(0));
    storeDrafts(value, output, [&](Value draft) -> SmallVector<Value> {
      return {arith::AddIOp::create(b, row, draft), head};
    });
  }
  return level + 1 < levels.size() ? emitLevels(level + 1) : success();
}

FailureOr<func::FuncOp> VerifyKernel::buildVerify() {
  if (failed(checkSchedule()))
    return failure();
  for (Value carry : step.getYieldedCarries())
    if (!carry.getDefiningOp<EachDraftOp>()) {
      step.emitError("cannot be lowered for the CPU: a carry is none that "
                     "ladle.each_draft leaves behind");
      return failure();
    }
  createFunction();
  b.setInsertionPoint(scratchEnd);
  if (failed(emitLevels(0))) {
    function.erase();
    return failure();
  }
  return function;
}
