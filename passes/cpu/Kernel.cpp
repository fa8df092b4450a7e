//===- Kernel.cpp - arguments, loop nest and phases of a kernel -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/ScheduleInfo.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// What says where the entries of a slot lie, which all buffers share: their
/// order, if they are indexed, and their pages, if they have any.
static SmallVector<MemRefType, 2> tablesOf(BufferType buffer) {
  Type integer = IntegerType::get(buffer.getContext(), 32);
  SmallVector<MemRefType, 2> types;
  if (buffer.getOrder() == BufferOrder::Indexed)
    types.push_back(MemRefType::get({buffer.getCapacity()}, integer));
  if (buffer.isPaged())
    types.push_back(MemRefType::get({buffer.countPages()}, integer));
  return types;
}

void Kernel::createFunction() {
  Type index = b.getIndexType();
  SmallVector<Type> types(11, index);
  BufferType first;
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (auto buffer = dyn_cast<BufferType>(argument.getType());
        buffer && !first) {
      first = buffer;
      llvm::append_range(types, tablesOf(buffer));
    }
    llvm::append_range(types, memoryTypesOf(step, argument));
  }
  for (Type type : step.getOutputTypes().getAsValueRange<TypeAttr>())
    types.push_back(memoryTypeOfOutput(cast<RankedTensorType>(type)));

  b.setInsertionPoint(step);
  function =
      func::FuncOp::create(b, step.getSymName(), b.getFunctionType(types, {}));
  function->setAttr("llvm.emit_c_interface", b.getUnitAttr());
  function->setAttr(kHeadGroupAttr, step->getAttr(kHeadGroupAttr));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);

  unsigned next = 0;
  for (Value *scalar :
       {&row, &readSlot, &writeSlot, &base, &length, &headBegin, &headEnd,
        &readCarry, &writeCarry, &entrySlot, &draftCount})
    *scalar = entry->getArgument(next++);
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (isa<BufferType>(argument.getType()) && fields.empty()) {
      if (first.getOrder() == BufferOrder::Indexed)
        entryOrder = entry->getArgument(next++);
      if (first.isPaged())
        pageTable = entry->getArgument(next++);
    }
    if (auto drafts = dyn_cast<DraftsType>(argument.getType()))
      (drafts.getIsChain() ? workspace : parents) = entry->getArgument(next++);
    else if (auto buffer = dyn_cast<BufferType>(argument.getType()))
      for (size_t i = 0; i < buffer.getFields().size(); ++i)
        fields[argument].push_back(entry->getArgument(next++));
    else
      memory[argument] = entry->getArgument(next++);
  }
  for (size_t i = 0; i < step.getOutputTypes().size(); ++i)
    outputs.push_back(entry->getArgument(next++));
  scratchEnd = func::ReturnOp::create(b);
}

//===----------------------------------------------------------------------===//
// What must be in memory
//===----------------------------------------------------------------------===//

void Kernel::collectSinks() {
  for (auto [value, output] : llvm::zip(step.getYieldedOutputs(), outputs))
    sinks.push_back({value, output, {row}, {}});
  for (auto [value, carry] :
       llvm::zip(step.getYieldedCarries(),
                 step.getArgumentsOfKind(ArgumentKind::Carry)))
    sinks.push_back({value, memory[carry], {writeCarry}, {}});
  step.walk([&](AppendOp append) {
    EntryPlace place = placeOf(length);
    for (auto [value, field] :
         llvm::zip(append.getValues(), fields[append.getBuffer()]))
      sinks.push_back({value, field, {place.outer}, place.entry});
  });
}

void Kernel::collectSpills() {
  auto isVector = [](Value value) {
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    return tensor && tensor.getRank() > 1;
  };
  // rowOperand repeats these where they are used.
  auto isRepeated = [](Value value) {
    auto broadcast = value.getDefiningOp<BroadcastOp>();
    return value.getDefiningOp<arith::ConstantOp>() ||
           (broadcast && broadcast.getInput().getType().getRank() == 1);
  };
  step.walk([&](Operation *op) {
    if (auto write = dyn_cast<WriteOp>(op))
      needsSpill.insert(write.getValue());
    if (isa<YieldOp, AppendOp, WriteOp, DecayOp, ReadOp>(op))
      return;
    int64_t at = phaseOf(op);
    for (Value operand : op->getOperands())
      if (isVector(operand) && !isRepeated(operand) && phaseOf(operand) != at &&
          ((at & 1) || (phaseOf(operand) & 1)))
        needsSpill.insert(operand);
  });
  // A key, a query or a decay is used whole.
  step.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (isVector(operand) && (phaseOf(operand) & 1) &&
          isa<ReadOp, DecayOp, WriteOp>(op))
        needsSpill.insert(operand);
  });
}

void Kernel::emitSinks(function_ref<bool(const Sink &)> when, bool alongRows) {
  for (const Sink &sink : sinks) {
    if (!when(sink))
      continue;
    auto memoryType = cast<MemRefType>(sink.memory.getType());
    int64_t heads = memoryType.getDimSize(sink.outer.size());
    SmallVector<Value> prefix(sink.outer);
    prefix.push_back(headIndex(heads));
    if (sink.entry)
      prefix.push_back(sink.entry);
    const Components &components =
        alongRows ? rowValues[sink.value] : headValues[sink.value];
    storeTo(sink.memory, prefix, components,
            alongRows ? tileStart : constantIndex(0));
  }
}

/// Asks for the lines that the rows of this head will write. Stores retire in
/// order: one that waits for memory would hold up those of the tile after it.
void Kernel::prefetchSinks() {
  for (const Sink &sink : sinks) {
    auto type = cast<RankedTensorType>(sink.value.getType());
    if (phaseOf(sink.value) % 2 == 0 || type.getRank() < 2)
      continue;
    SmallVector<Value> prefix(sink.outer);
    prefix.push_back(headIndex(type.getDimSize(0)));
    if (sink.entry)
      prefix.push_back(sink.entry);
    for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
      SmallVector<Value> at(prefix);
      if (type.getRank() == 3)
        at.push_back(constantIndex(i));
      prefetch(sink.memory, at, type.getShape().back(), /*isWrite=*/true);
    }
  }
  for (Value token : step.getArgumentsOfKind(ArgumentKind::Token)) {
    auto type = cast<RankedTensorType>(token.getType());
    if (type.getRank() != 2 || token.use_empty())
      continue;
    Value next = arith::AddIOp::create(b, headIndex(type.getDimSize(0)),
                                       constantIndex(1));
    prefetch(memory[token], {row, next}, type.getShape().back(), false);
  }
}

//===----------------------------------------------------------------------===//
// Loop nest and phases
//===----------------------------------------------------------------------===//

void Kernel::openLevel(unsigned level) {
  int64_t heads = levels.back();
  int64_t size = levels[level];
  if (size == 1) {
    levelIndex.push_back(constantIndex(0));
    return;
  }
  // The part of this level below the level above, clipped to the task.
  int64_t ratio = size / (level ? levels[level - 1] : 1);
  Value parent = level ? levelIndex[level - 1] : constantIndex(0);
  Value span = constantIndex(heads / size);
  Value first = arith::MulIOp::create(b, parent, constantIndex(ratio));
  Value last = arith::AddIOp::create(b, first, constantIndex(ratio));
  Value lower = arith::MaxUIOp::create(
      b, first, arith::DivUIOp::create(b, headBegin, span));
  Value upper = arith::MinUIOp::create(
      b, last, arith::CeilDivUIOp::create(b, headEnd, span));
  auto loop = scf::ForOp::create(b, lower, upper, constantIndex(1));
  b.setInsertionPointToStart(loop.getBody());
  levelIndex.push_back(loop.getInductionVar());
}

LogicalResult Kernel::emitLevel(unsigned level) {
  OpBuilder::InsertionGuard guard(b);
  openLevel(level);
  currentPhase = 0;
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (!isa<RankedTensorType>(argument.getType()) ||
        levelOf(argument.getType()) != level || (argument.use_empty()))
      continue;
    setHeadValue(argument, loadArgument(argument, outerIndex(argument)));
  }
  if (failed(emitHeadOps(0, level)))
    return failure();
  emitSinks(
      [&](const Sink &sink) {
        return phaseOf(sink.value) == 0 &&
               levelOf(sink.value.getType()) == level;
      },
      /*alongRows=*/false);
  return level + 1 < levels.size() ? emitLevel(level + 1) : emitPhases();
}

LogicalResult Kernel::emitHeadOps(int64_t phase,
                                  std::optional<unsigned> level) {
  for (Operation &op : step.getBody().front().without_terminator()) {
    if (phaseOf(&op) != phase)
      continue;
    // State operations without a token result belong to the heads of the
    // state, the innermost level.
    unsigned opLevel = levels.size() - 1;
    if (op.getNumResults() && isa<RankedTensorType>(op.getResult(0).getType()))
      opLevel = levelOf(op.getResult(0).getType());
    if (level && opLevel != *level)
      continue;
    b.setLoc(op.getLoc());
    if (failed(emitHead(&op)))
      return failure();
  }
  return success();
}

LogicalResult Kernel::emitPhases() {
  prefetchSinks();
  auto lastAttr = step->getAttrOfType<IntegerAttr>(kLastPhaseAttr);
  for (int64_t phase = 0; phase <= lastAttr.getInt(); phase += 2) {
    currentPhase = phase;
    if (phase > 0) {
      if (failed(emitHeadOps(phase, std::nullopt)))
        return failure();
      emitSinks([&](const Sink &sink) { return phaseOf(sink.value) == phase; },
                /*alongRows=*/false);
    }
    currentPhase = phase + 1;
    if (failed(emitRowPhase(phase + 1)))
      return failure();
  }
  return success();
}

/// The extent along which the tiles of an operation run.
static int64_t rowExtent(Operation *op) {
  if (auto store = dyn_cast<StoreStateOp>(op))
    return store.getState().getType().getValueSize();
  return cast<RankedTensorType>(op->getResult(0).getType()).getShape().back();
}

LogicalResult Kernel::emitRowPhase(int64_t phase) {
  llvm::SmallSetVector<int64_t, 2> extents;
  for (Operation &op : step.getBody().front().without_terminator())
    if (phaseOf(&op) == phase)
      extents.insert(rowExtent(&op));
  for (int64_t extent : extents) {
    int64_t tile = std::min(
        extent, step->getAttrOfType<IntegerAttr>(kTileRowsAttr).getInt());
    int64_t whole = extent / tile * tile;
    // A rest of one row would be a vector of one element, which LLVM takes
    // apart into numbers that it cannot convert in every type.
    if (extent - whole == 1)
      whole -= tile;
    if (whole > 0) {
      OpBuilder::InsertionGuard guard(b);
      auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(whole),
                                     constantIndex(tile));
      b.setInsertionPointToStart(loop.getBody());
      if (failed(emitTile(phase, extent, loop.getInductionVar(), tile)))
        return failure();
    }
    if (whole < extent &&
        failed(emitTile(phase, extent, constantIndex(whole), extent - whole)))
      return failure();
  }
  return success();
}

LogicalResult Kernel::emitTile(int64_t phase, int64_t size, Value start,
                               int64_t width) {
  tileStart = start;
  tileWidth = width;
  rowValues.clear();
  stashed.clear();
  SmallVector<ReadOp> reads;
  SmallVector<Operation *> others;
  SmallVector<StoreStateOp> stores;
  for (Operation &op : step.getBody().front().without_terminator()) {
    if (phaseOf(&op) != phase || rowExtent(&op) != size)
      continue;
    if (auto read = dyn_cast<ReadOp>(op))
      reads.push_back(read);
    else if (auto store = dyn_cast<StoreStateOp>(op))
      stores.push_back(store);
    else
      others.push_back(&op);
  }
  if (!reads.empty())
    prefetchEntries(size);
  for (ReadOp read : reads)
    gatherTile(read.getState(), width);
  for (StoreStateOp store : stores)
    gatherTile(store.getState(), width);
  if (failed(emitReads(reads, width, !stores.empty())))
    return failure();
  for (Operation *op : others) {
    b.setLoc(op->getLoc());
    if (failed(emitRow(op)))
      return failure();
  }
  emitSinks(
      [&](const Sink &sink) {
        return phaseOf(sink.value) == phase && rowValues.count(sink.value);
      },
      /*alongRows=*/true);
  for (StoreStateOp store : stores) {
    b.setLoc(store.getLoc());
    if (failed(emitStore(store, width)))
      return failure();
  }
  return success();
}

LogicalResult Kernel::checkSchedule() {
  auto levelsAttr = step->getAttrOfType<DenseI64ArrayAttr>(kLevelsAttr);
  if (!levelsAttr || !step->hasAttr(kLastPhaseAttr) ||
      !step->hasAttr(kTileRowsAttr) || !step->hasAttr(kHeadGroupAttr)) {
    step.emitError("step has no schedule").attachNote()
        << "run ladle-schedule first";
    return failure();
  }
  levels.assign(levelsAttr.asArrayRef().begin(), levelsAttr.asArrayRef().end());
  return success();
}

FailureOr<func::FuncOp> Kernel::build() {
  if (failed(checkSchedule()))
    return failure();
  createFunction();
  b.setInsertionPoint(scratchEnd);
  collectSinks();
  collectSpills();
  if (failed(emitLevel(0))) {
    function.erase();
    return failure();
  }
  return function;
}
