//===- Kernel.cpp - arguments, task and results of a GPU kernel -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

/// Registers of a thread that may hold a state.
static constexpr int64_t kStateRegisters = 64;
static constexpr int64_t kMaxThreads = 512;

//===----------------------------------------------------------------------===//
// Geometry
//===----------------------------------------------------------------------===//

/// True if something that depends on rows of the state is reduced over dv or
/// used along dk: then a block has to hold all of dv. Carries are read by all
/// and written by one, so that a head must have one block, too.
bool GpuKernel::needsAllRows() {
  if (!step.getArgumentsOfKind(ArgumentKind::Carry).empty())
    return true;
  DenseSet<Value> alongRows;
  WalkResult result = step.walk([&](Operation *op) {
    if (isa<ReadOp, ReadBufferOp>(op))
      alongRows.insert(op->result_begin(), op->result_end());
    if (auto transport = dyn_cast<TransportOp>(op))
      alongRows.insert(transport.getPartials().begin(),
                       transport.getPartials().end());
    auto depends = [&](Value value) { return alongRows.contains(value); };
    if (llvm::none_of(op->getOperands(), depends))
      return WalkResult::advance();
    if (isa<RotateOp, DecayOp, ReadOp, ReadBufferOp, TransportOp>(op))
      return WalkResult::interrupt();
    if (auto write = dyn_cast<WriteOp>(op); write && depends(write.getKey()))
      return WalkResult::interrupt();
    if (auto sum = dyn_cast<SumOp>(op);
        sum && int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank())
      return WalkResult::interrupt();
    if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
      int64_t from = broadcast.getInput().getType().getRank();
      int64_t to = broadcast.getResult().getType().getRank();
      if (from != to && from > 1 && broadcast.getDims().back() + 1 != to)
        return WalkResult::interrupt();
    }
    if (!isa<WriteOp, AppendOp, YieldOp, StoreStateOp>(op))
      alongRows.insert(op->result_begin(), op->result_end());
    return WalkResult::advance();
  });
  return result.wasInterrupted();
}

void GpuKernel::chooseGeometry() {
  int64_t fewest = 0, elementBits = 32;
  auto count = [&](int64_t value) { heads = std::max(heads, value); };
  int64_t longest = 1;
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (auto pool = dyn_cast<PoolType>(argument.getType())) {
      count(pool.getHeads());
      keySize = pool.getKeySize();
      valueSize = pool.getValueSize();
      elementBits = pool.getElementType().getIntOrFloatBitWidth();
    }
    if (auto tensor = dyn_cast<RankedTensorType>(argument.getType())) {
      count(tensor.getDimSize(0));
      if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Carry)
        fewest = fewest ? std::min(fewest, tensor.getDimSize(0))
                        : tensor.getDimSize(0);
    }
  }
  headGroup = fewest ? heads / fewest : 1;
  step.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type);
          tensor && tensor.getRank() > 1 &&
          (tensor.getShape().back() != valueSize || valueSize == keySize))
        longest = std::max(longest, tensor.getShape().back());
  });
  longest = std::max(longest, keySize);

  bool isWhole = needsAllRows();
  int64_t wanted = isWhole ? std::max(longest, valueSize) : longest;
  schedule.threads =
      std::max<int64_t>(schedule.threads, llvm::alignTo(wanted, 32));
  int64_t rows =
      schedule.tileRows ? std::min(schedule.tileRows, valueSize) : valueSize;
  if (isWhole || valueSize % rows != 0)
    rows = valueSize;
  auto perThread = [&] {
    return llvm::divideCeil(rows * keySize, schedule.threads);
  };
  // Fewer rows a block before more threads: rows need nothing from each other.
  while (!isWhole && rows % 2 == 0 &&
         (perThread() > kStateRegisters || rows > schedule.threads))
    rows /= 2;
  while (perThread() > kStateRegisters && schedule.threads < kMaxThreads)
    schedule.threads *= 2;
  schedule.tileRows = rows;
  tiles = valueSize / rows;

  // A lane loads 16 bytes at a time if a row divides so.
  int64_t widest = 128 / elementBits;
  width = 1;
  while (width < widest && keySize % (width * 2) == 0)
    width *= 2;
  lanes = 1;
  while (lanes < 8 && keySize % (width * lanes * 2) == 0)
    lanes *= 2;
  chunks = keySize / (width * lanes);
  groups = schedule.threads / lanes;
  rowsPerThread = llvm::divideCeil(rows, groups);
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

void GpuKernel::createFunction() {
  Type i32 = b.getI32Type();
  auto flat = MemRefType::get({ShapedType::kDynamic}, i32);
  SmallVector<Type> types{flat, flat,
                          MemRefType::get({ShapedType::kDynamic, 2}, i32),
                          MemRefType::get({1}, i32), i32};
  SmallVector<std::string> names{"read_slots", "write_slots", "cursors",
                                 "fold_threshold", "pad_slot"};
  for (BlockArgument argument : step.getBody().getArguments()) {
    SmallVector<MemRefType> memories = memoryTypesOf(step, argument);
    std::string name = step.getArgumentName(argument.getArgNumber()).str();
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (auto [i, type] : llvm::enumerate(memories)) {
      types.push_back(type);
      names.push_back(
          buffer ? name + "_" + buffer.getFields()[i].getName().str() : name);
    }
  }
  for (auto [name, type] :
       llvm::zip(step.getOutputNames().getAsValueRange<StringAttr>(),
                 step.getOutputTypes().getAsValueRange<TypeAttr>())) {
    types.push_back(memoryTypeOfOutput(cast<RankedTensorType>(type)));
    names.push_back(name.str());
  }

  function = gpu::GPUFuncOp::create(b, step.getSymName(),
                                    b.getFunctionType(types, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(schedule.threads), 1, 1}));
  function->setAttr(kGridBlocksAttr, b.getIndexAttr(heads / headGroup * tiles));
  Block &entry = function.getBody().front();
  for (auto [i, name] : llvm::enumerate(names))
    function.setArgAttr(i, kNameAttr, b.getStringAttr(name));
  b.setInsertionPointToStart(&entry);

  unsigned next = 0;
  for (Value *each : {&readSlots, &writeSlots, &cursors, &threshold, &padSlot})
    *each = entry.getArgument(next++);
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (auto buffer = dyn_cast<BufferType>(argument.getType()))
      for (size_t i = 0; i < buffer.getFields().size(); ++i)
        fields[argument].push_back(entry.getArgument(next++));
    else
      memory[argument] = entry.getArgument(next++);
  }
  for (size_t i = 0; i < step.getOutputTypes().size(); ++i)
    outputs.push_back(entry.getArgument(next++));
}

/// Gives a value a name in what is printed.
static Value named(Value value, StringRef name) {
  if (Operation *op = value.getDefiningOp())
    op->setLoc(
        NameLoc::get(StringAttr::get(op->getContext(), name), op->getLoc()));
  return value;
}

/// Reads what this block has to do, and returns whether the row is padding.
Value GpuKernel::emitTask() {
  thread = named(gpu::ThreadIdOp::create(b, gpu::Dimension::x), "thread");
  row = named(gpu::BlockIdOp::create(b, gpu::Dimension::y), "row");
  Value block = named(gpu::BlockIdOp::create(b, gpu::Dimension::x),
                      tiles > 1 ? "block" : "head");
  Value tile = constantIndex(0);
  head = block;
  if (tiles > 1) {
    head =
        named(arith::DivUIOp::create(b, block, constantIndex(tiles)), "head");
    tile =
        named(arith::RemUIOp::create(b, block, constantIndex(tiles)), "tile");
  }
  tileStart = tiles > 1 ? Value(arith::MulIOp::create(
                              b, tile, constantIndex(schedule.tileRows)))
                        : constantIndex(0);
  isFirstTile = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, tile,
                                      constantIndex(0));
  laneOfGroup =
      named(arith::RemUIOp::create(b, thread, constantIndex(lanes)), "lane");
  group =
      named(arith::DivUIOp::create(b, thread, constantIndex(lanes)), "group");

  Value slot =
      named(memref::LoadOp::create(b, readSlots, ValueRange{row}), "read_slot");
  Value other = named(memref::LoadOp::create(b, writeSlots, ValueRange{row}),
                      "write_slot");
  Value zero = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
  auto either = [&](Value lhs, Value rhs) -> Value {
    return arith::OrIOp::create(b, lhs, rhs);
  };
  auto isPad = [&](Value value) {
    return either(
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, value, zero),
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq, value, padSlot));
  };
  Value padded = named(isPad(slot), "is_padding");
  readSlot = arith::IndexCastOp::create(b, b.getIndexType(), slot);
  writeSlot = arith::IndexCastOp::create(b, b.getIndexType(), other);
  return padded;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void GpuKernel::emitPaddedRow() {
  for (Value output : outputs) {
    auto type = cast<MemRefType>(output.getType());
    Value zero =
        arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
    int64_t count = type.getDimSize(1), inner = 1;
    for (int64_t dim = 2; dim < type.getRank(); ++dim)
      inner *= type.getDimSize(dim);
    // The blocks of a row share its outputs; block x takes heads x, x + n, ...
    Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
    Value blocks = constantIndex(heads / headGroup * tiles);
    auto loop = scf::ForOp::create(b, block, constantIndex(count), blocks);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    auto elements = scf::ForOp::create(b, thread, constantIndex(inner),
                                       constantIndex(schedule.threads));
    b.setInsertionPointToStart(elements.getBody());
    SmallVector<Value> indices{row, loop.getInductionVar()};
    Value rest = elements.getInductionVar();
    if (type.getRank() == 4) {
      Value last = constantIndex(type.getDimSize(3));
      indices.push_back(arith::DivUIOp::create(b, rest, last));
      rest = arith::RemUIOp::create(b, rest, last);
    }
    if (type.getRank() > 2)
      indices.push_back(rest);
    memref::StoreOp::create(b, zero, output, indices);
  }
}

/// Stores a value at [outer..., head, (entry,) ...] of memory.
LogicalResult GpuKernel::storeValue(Value value, Value target,
                                    ArrayRef<Value> outer, Value entry) {
  auto type = cast<RankedTensorType>(value.getType());
  Type element = cast<MemRefType>(target.getType()).getElementType();
  int64_t count = type.getDimSize(0);
  bool isRow =
      type.getRank() > 1 && type.getShape().back() == valueSize && (tiles > 1);
  // dk = dv leaves open which it is: what rows depend on is along rows, and
  // everything else can be had either way.
  Side side = isRow ? Side::Row : Side::Key;
  FailureOr<Components> components = get(value, side);
  if (failed(components))
    return failure();
  SmallVector<Value> indices(outer);
  indices.push_back(headIndex(count));
  if (entry)
    indices.push_back(entry);

  // One head of those that share the value stores it, and one tile.
  Value mine;
  auto also = [&](Value condition) {
    mine = mine ? Value(arith::AndIOp::create(b, mine, condition)) : condition;
  };
  if (count < heads)
    also(arith::CmpIOp::create(
        b, arith::CmpIPredicate::eq,
        arith::RemUIOp::create(b, head, constantIndex(heads / count)),
        constantIndex(heads / count - 1)));
  if (!isRow && tiles > 1)
    also(isFirstTile);
  int64_t size = sizeOn(type, side);
  if (size < schedule.threads)
    also(isBelow(thread, size));
  std::optional<OpBuilder::InsertionGuard> guard;
  if (mine) {
    auto guarded = scf::IfOp::create(b, mine);
    guard.emplace(b);
    b.setInsertionPointToStart(guarded.thenBlock());
  }
  for (auto [i, component] : llvm::enumerate(*components)) {
    SmallVector<Value> at(indices);
    if (type.getRank() == 3)
      at.push_back(constantIndex(i));
    if (type.getRank() > 1)
      at.push_back(elementOn(side));
    memref::StoreOp::create(b, convertTo(component, element), target, at);
  }
  return success();
}

LogicalResult GpuKernel::emitBody() {
  // Loads that depend on nothing come first.
  LogicalResult result = success();
  step.walk([&](Operation *op) {
    b.setLoc(op->getLoc());
    if (auto load = dyn_cast<LoadStateOp>(op)) {
      preloaded[op] = loadState(load);
    } else if (auto read = dyn_cast<ReadBufferOp>(op)) {
      preloadValues(op, read.getBuffer(), {read.getValue()});
    } else if (auto transport = dyn_cast<TransportOp>(op)) {
      SmallVector<StringRef> names;
      for (StringAttr name : transport.getTransition().getValues())
        if (!name.empty())
          names.push_back(name.getValue());
      preloadValues(op, transport.getBuffer(), names);
    }
  });
  for (auto [value, output] : llvm::zip(step.getYieldedOutputs(), outputs)) {
    b.setLoc(value.getLoc());
    if (failed(storeValue(value, output, {row}, {})))
      return failure();
  }
  step.walk([&](AppendOp append) {
    b.setLoc(append.getLoc());
    Value entry = ringSlot(length);
    for (auto [value, field] :
         llvm::zip(append.getValues(), fields[append.getBuffer()]))
      if (failed(storeValue(value, field, {writeSlot}, entry)))
        result = failure();
  });
  step.walk([&](StoreStateOp store) {
    b.setLoc(store.getLoc());
    if (failed(emitStore(store)))
      result = failure();
  });
  for (auto [value, carry] :
       llvm::zip(step.getYieldedCarries(),
                 step.getArgumentsOfKind(ArgumentKind::Carry)))
    if (failed(storeValue(value, memory[carry], {writeSlot}, {})))
      result = failure();
  return result;
}

FailureOr<gpu::GPUFuncOp> GpuKernel::build() {
  chooseGeometry();
  if (llvm::divideCeil(schedule.tileRows * keySize, schedule.threads) >
      kStateRegisters) {
    InFlightDiagnostic diag = step.emitError("a head of the state has ")
                              << valueSize << " × " << keySize
                              << " elements that one block must hold, but "
                              << schedule.threads << " threads hold "
                              << kStateRegisters << " each";
    diag.attachNote() << "what is summed over dv, or goes from dv to dk, keeps "
                         "rows together";
    return failure();
  }
  createFunction();
  Value padded = emitTask();
  Value zeroIndex = constantIndex(0);
  // The row's cursor, and whether this form is for it.
  Value active = arith::XOrIOp::create(
      b, padded, arith::ConstantOp::create(b, b.getBoolAttr(true)));
  length = base = zeroIndex;
  {
    auto guarded = scf::IfOp::create(b, active, /*withElseRegion=*/
                                     step.getForm() == Form::Decode);
    OpBuilder::InsertionGuard guard(b);
    if (step.getForm() == Form::Decode) {
      b.setInsertionPointToStart(guarded.elseBlock());
      emitPaddedRow();
    }
    b.setInsertionPointToStart(guarded.thenBlock());
    std::optional<OpBuilder::InsertionGuard> formGuard;
    if (!fields.empty()) {
      auto load = [&](int64_t i, StringRef name) -> Value {
        Value number = memref::LoadOp::create(
            b, cursors, ValueRange{readSlot, constantIndex(i)});
        return arith::IndexCastOp::create(b, b.getIndexType(),
                                          named(number, name));
      };
      base = load(0, "base");
      length = load(1, "length");
      Value wanted;
      if (step.getForm() == Form::Fold) {
        wanted = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, length,
                                       zeroIndex);
      } else if (hasFold) {
        Value m = arith::IndexCastOp::create(
            b, b.getIndexType(),
            memref::LoadOp::create(b, threshold, ValueRange{zeroIndex}));
        Value folds = arith::OrIOp::create(
            b,
            arith::CmpIOp::create(b, arith::CmpIPredicate::sge, add(length, 1),
                                  m),
            arith::CmpIOp::create(b, arith::CmpIPredicate::ne, readSlot,
                                  writeSlot));
        wanted = step.getForm() == Form::DecodeFold
                     ? folds
                     : Value(arith::XOrIOp::create(
                           b, folds,
                           arith::ConstantOp::create(b, b.getBoolAttr(true))));
      }
      if (wanted) {
        auto forForm = scf::IfOp::create(b, wanted);
        formGuard.emplace(b);
        b.setInsertionPointToStart(forForm.thenBlock());
      }
    }
    std::optional<OpBuilder::InsertionGuard> groupGuard;
    if (headGroup > 1) {
      // Heads that share a carry take turns, and the last one replaces it.
      auto loop = scf::ForOp::create(b, zeroIndex, constantIndex(headGroup),
                                     constantIndex(1));
      groupGuard.emplace(b);
      b.setInsertionPointToStart(loop.getBody());
      head = arith::AddIOp::create(
          b, arith::MulIOp::create(b, head, constantIndex(headGroup)),
          loop.getInductionVar());
    }
    if (failed(emitBody())) {
      function.erase();
      return failure();
    }
    if (headGroup > 1)
      barrier();
  }
  b.setLoc(step.getLoc());
  b.setInsertionPointToEnd(&function.getBody().front());
  gpu::ReturnOp::create(b);
  return function;
}
