//===- ChunkCarries.cpp - what tokens leave behind in a GPU's prefill -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Version t of a carry is what token t finds. Carries that tokens, and carries
// that are known, are enough for come first, a team a token; of a window only
// the values that enter it are kept. What is left depends on itself: a scan,
// which a team does token by token, of what the passes before have prepared.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// The carries of a region that a value depends on.
llvm::SmallBitVector GpuChunkKernel::carriesOf(Value value, EachDraftOp op) {
  llvm::SmallBitVector result(op.getCarries().size());
  llvm::SetVector<Value> open;
  open.insert(value);
  for (size_t i = 0; i < open.size(); ++i) {
    if (auto argument = dyn_cast<BlockArgument>(open[i])) {
      if (argument.getOwner() == &op.getBody().front() &&
          argument.getArgNumber() >= op.getNumStacks())
        result.set(argument.getArgNumber() - op.getNumStacks());
      continue;
    }
    Operation *def = open[i].getDefiningOp();
    if (def->getParentOp() == op)
      open.insert(def->operand_begin(), def->operand_end());
  }
  return result;
}

Value GpuChunkKernel::enteringWindow(EachDraftOp op, unsigned carry) {
  Value next =
      op.getYield().getValues().take_back(op.getCarries().size())[carry];
  // It is stored as it was.
  if (auto truncate = next.getDefiningOp<arith::TruncFOp>())
    next = truncate.getIn();
  auto shift = next.getDefiningOp<ShiftOp>();
  if (!shift)
    return {};
  Value window = shift->getOperand(0);
  if (auto extend = window.getDefiningOp<arith::ExtFOp>())
    window = extend.getIn();
  return window == op.getBody().getArgument(op.getNumStacks() + carry)
             ? shift->getOperand(1)
             : Value();
}

/// The memory of the versions of all carries of a region.
void GpuChunkKernel::makeVersions(EachDraftOp op) {
  for (auto [i, value] : llvm::enumerate(op.getCarries())) {
    auto carry = cast<BlockArgument>(value);
    RankedTensorType type = typeOf(carry);
    Stack stack;
    stack.components = stack.step = componentCount(type);
    stack.size = type.getRank() == 1 ? 1 : type.getShape().back();
    int64_t rows = (tokensAtOnce() + 1) * stack.components;
    if (enteringWindow(op, static_cast<unsigned>(i))) {
      stack.step = 1;
      rows = tokensAtOnce() + stack.components;
    }
    int64_t pitch = stack.size == 1 ? 1 : llvm::alignTo(stack.size, 4);
    stack.memory = shared(
        {rows, pitch},
        (step.getArgumentName(carry.getArgNumber()) + "_versions").str());
    versions[carry.getArgNumber()] = stack;
  }
}

LogicalResult GpuChunkKernel::emitCarries(EachDraftOp op) {
  unsigned count = op.getCarries().size();
  OperandRange next = op.getYield().getValues().take_back(count);
  auto argumentOf = [&](unsigned i) {
    return cast<BlockArgument>(op.getCarries()[i]).getArgNumber();
  };
  // A window goes on by itself.
  SmallVector<llvm::SmallBitVector> needs;
  for (unsigned i = 0; i < count; ++i) {
    Value entering = enteringWindow(op, i);
    needs.push_back(carriesOf(entering ? entering : next[i], op));
  }
  llvm::SmallBitVector known(count);
  knownCarries.clear();
  scanned = llvm::SmallBitVector(count);
  auto isKnown = [&](const llvm::SmallBitVector &all) {
    return !all.test(known);
  };
  while (known.count() < count) {
    SmallVector<unsigned> ready;
    for (unsigned i = 0; i < count; ++i)
      if (!known.test(i) && isKnown(needs[i]))
        ready.push_back(i);
    if (!ready.empty()) {
      SmallVector<Sink> sinks;
      for (unsigned i : ready) {
        Stack stack = versions[argumentOf(i)];
        Value entering = enteringWindow(op, i);
        stack.first = entering ? stack.components : stack.step;
        if (entering)
          stack.components = 1;
        willWrite(stack.memory);
        Type element = typeOf(op.getCarries()[i]).getElementType();
        sinks.push_back({entering ? entering : next[i],
                         stack,
                         {},
                         false,
                         element.isF32() ? Type() : element});
      }
      syncAll();
      if (failed(emitPass(op, sinks)))
        return failure();
      for (unsigned i : ready)
        isWritten.insert(versions[argumentOf(i)].memory);
    } else {
      // Those that wait for each other and for nobody else.
      llvm::SmallBitVector best;
      for (unsigned i = 0; i < count; ++i) {
        if (known.test(i))
          continue;
        llvm::SmallBitVector all = needs[i];
        for (bool isNews = true; isNews;) {
          llvm::SmallBitVector before = all;
          for (unsigned each : before.set_bits())
            if (!known.test(each))
              all |= needs[each];
          isNews = all != before;
        }
        all.set(i);
        all.reset(known);
        if (best.empty() || all.count() < best.count())
          best = all;
      }
      for (unsigned i : best.set_bits())
        ready.push_back(i);
      if (failed(emitScan(op, ready)))
        return failure();
    }
    for (unsigned i : ready) {
      known.set(i);
      knownCarries.insert(argumentOf(i));
    }
    syncAll();
  }
  return success();
}

/// Carries that depend on themselves: all teams go from token to token, and the
/// first stores.
LogicalResult GpuChunkKernel::emitScan(EachDraftOp op,
                                       ArrayRef<unsigned> carries) {
  OperandRange next =
      op.getYield().getValues().take_back(op.getCarries().size());
  syncAll();
  Current outer = current;
  Operation *start = anchor();
  anchors.push_back(start);
  int64_t scope = ++scopes;
  current = {op, constantIndex(0), {}, {}, scope, scope, nullptr, start};
  auto placeOf = [&](Value value) {
    RankedTensorType type = typeOf(value);
    return type.getRank() == 1 ? Place() : keyPlace(type.getShape().back());
  };
  auto argumentOf = [&](unsigned i) {
    return cast<BlockArgument>(op.getCarries()[i]);
  };
  SmallVector<Value> initial;
  for (unsigned i : carries) {
    Value argument = op.getBody().getArgument(op.getNumStacks() + i);
    Stack stack = versions[argumentOf(i).getArgNumber()];
    stack.step = stack.components;
    llvm::append_range(initial,
                       loadStack(stack, constantIndex(0), placeOf(argument),
                                 /*isTile=*/false));
  }
  auto loop = scf::ForOp::create(b, constantIndex(0), inChunk, constantIndex(1),
                                 initial);
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    current.token = loop.getInductionVar();
    scanned.reset();
    for (unsigned i : carries)
      scanned.set(i);
    size_t at = 0;
    for (unsigned i : carries) {
      Value argument = op.getBody().getArgument(op.getNumStacks() + i);
      Place place = placeOf(argument);
      size_t parts = componentCount(typeOf(argument)) * place.chunks;
      remember(
          argument, place,
          Components(ValueRange(loop.getRegionIterArgs()).slice(at, parts)));
      at += parts;
    }
    SmallVector<Value> results;
    for (unsigned i : carries) {
      Place place = placeOf(next[i]);
      FailureOr<Components> all = get(next[i], place);
      if (failed(all))
        return failure();
      Type element = typeOf(argumentOf(i)).getElementType();
      // Rounded like those that a decode step leaves in memory.
      Components rounded;
      for (Value part : *all)
        rounded.push_back(element.isF32() ? part
                                          : toF32(convertTo(part, element)));
      Stack stack = versions[argumentOf(i).getArgNumber()];
      Value row = add(times(current.token, stack.components), stack.components);
      storeParts(rounded, place, isBelow(team, 1),
                 [&](int64_t component, Value from, Value part) {
                   Value where = add(row, component);
                   if (from)
                     vector::StoreOp::create(b, part, stack.memory,
                                             ValueRange{where, from});
                   else
                     memref::StoreOp::create(
                         b, part, stack.memory,
                         ValueRange{where, constantIndex(0)});
                 });
      llvm::append_range(results, rounded);
    }
    scf::YieldOp::create(b, results);
  }
  scanned.reset();
  current = outer;
  for (unsigned i : carries)
    isWritten.insert(versions[argumentOf(i).getArgNumber()].memory);
  return success();
}
