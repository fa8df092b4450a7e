//===- BoundedKernel.cpp - arguments and order of a bounded step ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/BoundedKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/build/MemoryLayout.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// What the step is
//===----------------------------------------------------------------------===//

LogicalResult BoundedKernel::checkStep() {
  cacheType = cast<BufferType>(step.getCache().getType());
  ArrayRef<FieldAttr> fields = cacheType.getFields();
  if (fields.size() != 2 || fields[0].getShape().size() != 2 ||
      fields[1].getShape().size() != 2)
    return step.emitError("cannot be lowered for the CPU: the cache must hold "
                          "keys and values, got ")
           << cacheType;
  if (step.getRing())
    return step.emitError("cannot be lowered for the CPU: a bounded cache has "
                          "no ring of summaries");
  cacheHeads = fields[0].getShape()[0];
  keySize = fields[0].getShape()[1];
  valueSize = fields[1].getShape()[1];
  capacity = cacheType.getCapacity();
  if (Value argument = step.getMemory())
    memoryType = cast<MemoryType>(argument.getType());
  heads = cacheHeads;
  AttendOp first;
  for (Operation &op : step.getBody().front()) {
    if (auto evict = dyn_cast<EvictFromOp>(op)) {
      isEvicting = true;
      queries = static_cast<int64_t>(evict.getQueries());
    } else if (isa<NoteWeightsOp>(op)) {
      notesWeights = true;
    } else if (auto attend = dyn_cast<AttendOp>(op)) {
      int64_t its = attend.getQuery().getType().getDimSize(0);
      if (first && its != heads)
        return attend.emitError("cannot be lowered for the CPU: all queries "
                                "have the same heads, got ")
               << its << " after " << heads;
      if (attend.getBegin() != Bound::Start || attend.getEnd() != Bound::End ||
          attend.getAfter())
        return attend.emitError("cannot be lowered for the CPU: a bounded "
                                "cache is attended to as a whole, from start "
                                "to end");
      first = attend;
      heads = its;
    }
  }
  if (!first)
    return step.emitError(
        "cannot be lowered for the CPU: nothing attends to the cache");
  isPrompt = step.getForm() == AttentionForm::PrefillSelect;
  if (isPrompt && failed(findEviction()))
    return failure();
  for (Type type : step.getOutputTypes().getAsValueRange<TypeAttr>()) {
    int64_t its = cast<RankedTensorType>(type).getDimSize(0);
    if (its % cacheHeads || heads % its)
      return step.emitError("cannot be lowered for the CPU: heads of outputs "
                            "are those of the query, ")
             << heads << ", got " << its;
  }
  return success();
}

void BoundedKernel::createFunction(StringRef name) {
  Type indexType = b.getIndexType(), f32 = b.getF32Type();
  constexpr int64_t dynamic = ShapedType::kDynamic;
  SmallVector<Type> types;
  SmallVector<Value *> places;
  auto add = [&](Value &place, Type type) {
    types.push_back(type);
    places.push_back(&place);
  };
  // Of each slot and head of the cache.
  auto addPool = [&](Value &place, ArrayRef<int64_t> shape, Type element) {
    SmallVector<int64_t> sizes{dynamic, cacheHeads};
    llvm::append_range(sizes, shape);
    add(place, MemRefType::get(sizes, element));
  };
  kept.assign(6, {});
  folded.assign(4, {});
  for (Value *integer :
       {&row, &slot, &head, &position, &appends, &answers, &entry, &holds})
    add(*integer, indexType);
  for (Value &bound : kept)
    add(bound, indexType);
  for (Value &bound : folded)
    add(bound, indexType);
  add(isFirst, indexType);
  for (Value *integer : {&budget, &firstRow, &listed})
    add(*integer, indexType);

  SmallVector<std::pair<Value, Value>> arguments;
  for (BlockArgument argument : step.getBody().getArguments())
    if (isa<RankedTensorType>(argument.getType()))
      arguments.emplace_back(argument, Value());
  for (auto &[argument, place] : arguments) {
    auto type = cast<RankedTensorType>(argument.getType());
    bool isToken =
        step.getArgumentKind(cast<BlockArgument>(argument).getArgNumber()) ==
        ArgumentKind::Token;
    add(place, ladle::memoryType(type.getShape(), type.getElementType(),
                                 /*denseWithinOuter=*/false,
                                 /*hasOuter=*/isToken));
  }
  outputs.assign(step.getOutputTypes().size(), {});
  for (auto [place, type] :
       llvm::zip(outputs, step.getOutputTypes().getAsValueRange<TypeAttr>()))
    add(place, memoryTypeOfOutput(cast<RankedTensorType>(type)));

  addPool(keys, {capacity, keySize}, cacheType.getFields()[0].getElementType());
  addPool(values, {capacity, valueSize},
          cacheType.getFields()[1].getElementType());
  if (memoryType) {
    int64_t size = memoryType.getKeySize();
    addPool(matrix, {size, valueSize}, memoryType.getElementType());
    if (memoryType.getKind() == MemoryKind::Linear) {
      addPool(featureSums, {size}, f32);
    } else {
      addPool(keySums, {size}, f32);
      addPool(valueSums, {valueSize}, f32);
      addPool(spread, {2}, f32);
    }
  }
  if (isEvicting) {
    addPool(counts, {}, b.getI64Type());
    addPool(order, {capacity}, b.getI32Type());
    addPool(positions, {capacity}, b.getI64Type());
    if (notesWeights && queries) {
      addPool(weights, {queries, capacity}, f32);
      addPool(seen, {}, b.getI64Type());
    } else if (notesWeights) {
      addPool(weightSums, {capacity}, f32);
    }
  }
  if (isPrompt) {
    add(promptScores, MemRefType::get({heads / cacheHeads, dynamic}, f32));
    add(promptSums, MemRefType::get({dynamic}, f32));
    add(list, MemRefType::get({dynamic}, b.getI32Type()));
  }

  b.setInsertionPoint(step);
  function = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  function->setAttr("llvm.emit_c_interface", b.getUnitAttr());
  Block *block = function.addEntryBlock();
  for (auto [place, argument] : llvm::zip_equal(places, block->getArguments()))
    *place = argument;
  for (auto &[argument, place] : arguments)
    memory[argument] = place;
  b.setInsertionPointToStart(block);
  func::ReturnOp::create(b);
  b.setInsertionPointToStart(block);
}

//===----------------------------------------------------------------------===//
// The order of things
//===----------------------------------------------------------------------===//

LogicalResult BoundedKernel::build() {
  if (failed(checkStep()))
    return failure();
  if (isPrompt)
    return buildPrompt();
  createFunction(step.getSymName());
  return emitAll();
}

LogicalResult BoundedKernel::emitAll() {
  Scope scope(*this);
  // The memory is read before the cache, whose first tokens can be asked for
  // meanwhile, so that the gate, which reads nothing, is the last of a head and
  // asks for the memory of the next.
  SmallVector<Operation *> all;
  Block &body = step.getBody().front();
  for (Operation &op : body) {
    if (isa<AttendOp>(op))
      for (auto recall : body.getOps<RecallOp>())
        if (!llvm::is_contained(all, recall))
          all.push_back(recall);
    if (!llvm::is_contained(all, &op))
      all.push_back(&op);
  }
  for (Operation *op : all)
    if (failed(emit(op))) {
      function.erase();
      return failure();
    }
  return success();
}

LogicalResult BoundedKernel::emit(Operation *op) {
  // The cache changes before a token is answered.
  if (isa<AttendOp, RecallOp, TaylorOp, NoteWeightsOp, YieldOp>(op))
    openAnswer();
  else if (isa<AppendOp, EvictFromOp, FoldFromOp>(op) && isAnswering)
    return op->emitError("cannot be lowered for the CPU: the cache changes "
                         "after it has been read");
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](AppendOp append) { return emitAppend(append); })
      .Case([&](FoldFromOp fold) { return emitFold(fold); })
      .Case([&](AttendOp attend) { return emitAttend(attend); })
      .Case([&](RecallOp recall) { return emitRecall(recall); })
      .Case([&](YieldOp yield) { return emitOutputs(yield); })
      .Case([&](EvictFromOp evict) { return emitEvict(evict); })
      .Case([&](TaylorOp taylor) { return emitTaylor(taylor); })
      .Case([&](NoteWeightsOp note) { return emitNote(note); })
      // Arithmetic is emitted where somebody asks for it.
      .Default([](Operation *) { return success(); });
}

void BoundedKernel::openAnswer() {
  if (isAnswering)
    return;
  isAnswering = true;
  auto wanted = scf::IfOp::create(b, isLess(index(0), answers));
  b.setInsertionPointToStart(wanted.thenBlock());
}

scf::ForOp BoundedKernel::openGroup() {
  int64_t size = heads / cacheHeads;
  auto loop = scf::ForOp::create(b, index(0), index(size), index(1));
  b.setInsertionPointToStart(loop.getBody());
  group = loop.getInductionVar();
  queryHead = arith::AddIOp::create(
      b, arith::MulIOp::create(b, head, index(size)), group);
  return loop;
}

void BoundedKernel::closeGroup(scf::ForOp loop) {
  b.setInsertionPointAfter(loop);
  group = queryHead = {};
}

LogicalResult BoundedKernel::emitAppend(AppendOp op) {
  if (isPrompt) // is read where it lies
    return success();
  auto wanted = scf::IfOp::create(b, isLess(index(0), appends));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(wanted.thenBlock());
  Scope scope(*this);
  if (isEvicting)
    takeEntry();
  for (auto [value, to] :
       llvm::zip(op.getValues(), SmallVector<Value>{keys, values})) {
    FailureOr<Value> vector = element(value);
    if (failed(vector))
      return failure();
    store(*vector, to, {slot, head, entry, index(0)});
  }
  return success();
}

LogicalResult BoundedKernel::emitOutputs(YieldOp op) {
  if (failed(emitProducts(op)))
    return failure();
  scf::ForOp loop = openGroup();
  Scope scope(*this);
  for (auto [value, to] : llvm::zip(op.getValues(), outputs)) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() > 2)
      return op.emitError("cannot be lowered for the CPU: outputs are [heads] "
                          "or [heads, D], got ")
             << type;
    FailureOr<Value> result = element(value);
    if (failed(result))
      return failure();
    // Heads that several heads of the query share are stored by each alike.
    Value at =
        arith::DivUIOp::create(b, queryHead, index(heads / type.getDimSize(0)));
    if (type.getRank() == 2) {
      store(*result, to, {row, at, index(0)});
      continue;
    }
    Type stored = cast<MemRefType>(to.getType()).getElementType();
    if (!stored.isF32())
      result = Value(arith::TruncFOp::create(b, stored, *result));
    memref::StoreOp::create(b, *result, to, ValueRange{row, at});
  }
  closeGroup(loop);
  return success();
}
