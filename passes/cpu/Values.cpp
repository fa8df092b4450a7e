//===- Values.cpp - where the values of a kernel live ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/cpu/Kernel.h"
#include "passes/cpu/ScheduleInfo.h"

using namespace mlir;
using namespace ladle;

int64_t Kernel::phaseOf(Operation *op) const {
  auto phase = op->getAttrOfType<IntegerAttr>(kPhaseAttr);
  return phase ? phase.getInt() : 0;
}

int64_t Kernel::phaseOf(Value value) const {
  Operation *op = value.getDefiningOp();
  return op ? phaseOf(op) : 0;
}

unsigned Kernel::levelOf(Type type) const {
  int64_t heads = cast<RankedTensorType>(type).getDimSize(0);
  return llvm::find(levels, heads) - levels.begin();
}

Value Kernel::headIndex(int64_t heads) {
  return levelIndex[llvm::find(levels, heads) - levels.begin()];
}

Value Kernel::constantIndex(int64_t value) {
  Value &constant = constants[value];
  if (!constant) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&function.getBody().front());
    constant = arith::ConstantIndexOp::create(b, value);
  }
  return constant;
}

Value Kernel::allocateScratch(ArrayRef<int64_t> shape, Type element) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&function.getBody().front());
  return memref::AllocaOp::create(
      b, MemRefType::get(shape, element ? element : b.getF32Type()),
      b.getI64IntegerAttr(64));
}

//===----------------------------------------------------------------------===//
// Arithmetic on components
//===----------------------------------------------------------------------===//

Value Kernel::convertTo(Value value, Type elementType) {
  return convertElements(b, value, elementType);
}

Value Kernel::toF32(Value value) { return convertTo(value, b.getF32Type()); }

Value Kernel::splat(Value scalar, int64_t width) {
  return vector::BroadcastOp::create(
      b, VectorType::get({width}, scalar.getType()), scalar);
}

Value Kernel::zeros(int64_t width) {
  return arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({width}, b.getF32Type())));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// LLVM cannot take a vector of an odd number of 16-bit floats apart: its last
/// element is loaded and stored as a number.
static bool hasLooseEnd(Type elementType, int64_t width) {
  return elementType.getIntOrFloatBitWidth() == 16 && width > 1 && width % 2;
}

Value Kernel::loadVector(Value memory, ArrayRef<Value> indices, int64_t width) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  if (!hasLooseEnd(element, width))
    return toF32(vector::LoadOp::create(b, VectorType::get({width}, element),
                                        memory, indices));
  Value most = loadVector(memory, indices, width - 1);
  SmallVector<Value> last(indices);
  last.back() =
      arith::AddIOp::create(b, indices.back(), constantIndex(width - 1));
  Value end = toF32(memref::LoadOp::create(b, memory, last));
  Value whole = vector::InsertStridedSliceOp::create(
      b, most, zeros(width), ArrayRef<int64_t>{0}, ArrayRef<int64_t>{1});
  return vector::InsertOp::create(b, end, whole, width - 1);
}

void Kernel::storeVector(Value vector, Value memory, ArrayRef<Value> indices) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  int64_t width = cast<VectorType>(vector.getType()).getShape().back();
  if (!hasLooseEnd(element, width)) {
    vector::StoreOp::create(b, convertTo(vector, element), memory, indices);
    return;
  }
  Value most = vector::ExtractStridedSliceOp::create(
      b, vector, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{width - 1},
      ArrayRef<int64_t>{1});
  storeVector(most, memory, indices);
  SmallVector<Value> last(indices);
  last.back() =
      arith::AddIOp::create(b, indices.back(), constantIndex(width - 1));
  Value end = vector::ExtractOp::create(b, vector, width - 1);
  memref::StoreOp::create(b, convertTo(end, element), memory, last);
}

void Kernel::prefetch(Value memory, ArrayRef<Value> prefix, int64_t width,
                      bool isWrite) {
  if (width == 0) {
    memref::PrefetchOp::create(b, memory, prefix, isWrite, /*localityHint=*/3,
                               /*isDataCache=*/true);
    return;
  }
  constexpr int64_t lineBits = 64 * 8;
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  int64_t line = lineBits / element.getIntOrFloatBitWidth();
  for (int64_t at = 0; at < width; at += line) {
    SmallVector<Value> indices(prefix);
    indices.push_back(constantIndex(at));
    memref::PrefetchOp::create(b, memory, indices, isWrite,
                               /*localityHint=*/3, /*isDataCache=*/true);
  }
}

Value Kernel::outerIndex(BlockArgument argument) {
  ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
  if (kind == ArgumentKind::Token)
    return row;
  return kind == ArgumentKind::Carry ? readCarry : Value();
}

Components Kernel::loadArgument(BlockArgument argument, Value outer) {
  auto tensor = cast<RankedTensorType>(argument.getType());
  SmallVector<Value> indices;
  if (outer)
    indices.push_back(outer);
  indices.push_back(headIndex(tensor.getDimSize(0)));
  Value source = memory[argument];
  Components result;
  if (tensor.getRank() == 1)
    return {toF32(memref::LoadOp::create(b, source, indices))};
  int64_t components = tensor.getRank() == 3 ? tensor.getDimSize(1) : 1;
  for (int64_t i = 0; i < components; ++i) {
    SmallVector<Value> at(indices);
    if (tensor.getRank() == 3)
      at.push_back(constantIndex(i));
    at.push_back(constantIndex(0));
    result.push_back(loadVector(source, at, tensor.getShape().back()));
  }
  return result;
}

void Kernel::storeTo(Value memory, ArrayRef<Value> prefix,
                     const Components &components, Value lastIndex) {
  int64_t rank = cast<MemRefType>(memory.getType()).getRank();
  for (auto [i, component] : llvm::enumerate(components)) {
    SmallVector<Value> indices(prefix);
    if (!isa<VectorType>(component.getType())) {
      Type element = cast<MemRefType>(memory.getType()).getElementType();
      memref::StoreOp::create(b, convertTo(component, element), memory,
                              indices);
      continue;
    }
    if (rank == static_cast<int64_t>(prefix.size()) + 2)
      indices.push_back(constantIndex(i));
    indices.push_back(lastIndex);
    storeVector(component, memory, indices);
  }
}

//===----------------------------------------------------------------------===//
// Values of a head and of a tile
//===----------------------------------------------------------------------===//

/// Scratch memory for all components of a value.
static SmallVector<int64_t> scratchShape(Value value) {
  auto tensor = cast<RankedTensorType>(value.getType());
  return {componentCount(tensor),
          tensor.getRank() > 1 ? tensor.getShape().back() : 1};
}

void Kernel::setHeadValue(Value value, Components components) {
  headValues[value] = components;
  if (!needsSpill.count(value))
    return;
  Value &scratch = spills[value];
  if (!scratch)
    scratch = allocateScratch(scratchShape(value));
  for (auto [i, component] : llvm::enumerate(components)) {
    Value f32 = toF32(component);
    if (!isa<VectorType>(f32.getType()))
      f32 = splat(f32, 1);
    vector::StoreOp::create(b, f32, scratch,
                            ValueRange{constantIndex(i), constantIndex(0)});
  }
}

void Kernel::setRowValue(Value value, Components components) {
  rowValues[value] = components;
  if (!needsSpill.count(value))
    return;
  Value &scratch = spills[value];
  if (!scratch)
    scratch = allocateScratch(scratchShape(value));
  for (auto [i, component] : llvm::enumerate(components))
    vector::StoreOp::create(b, toF32(component), scratch,
                            ValueRange{constantIndex(i), tileStart});
}

FailureOr<Components> Kernel::headOperand(Value value) {
  if (phaseOf(value) % 2 == 0) {
    auto found = headValues.find(value);
    if (found != headValues.end())
      return found->second;
  } else if (phaseOf(value) < currentPhase && spills.count(value)) {
    Components components;
    SmallVector<int64_t> shape = scratchShape(value);
    for (int64_t i = 0; i < shape[0]; ++i)
      components.push_back(loadVector(
          spills[value], {constantIndex(i), constantIndex(0)}, shape[1]));
    return components;
  }
  return mlir::emitError(value.getLoc(), "value is not complete in phase ")
         << currentPhase << " of the schedule";
}

FailureOr<Components> Kernel::rowOperand(Value value) {
  if (auto found = rowValues.find(value); found != rowValues.end())
    return found->second;
  auto tensor = cast<RankedTensorType>(value.getType());
  // A splat or a broadcast of a number is cheaper to repeat than to load.
  SplatElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return Components(
        scratchShape(value)[0],
        arith::ConstantOp::create(
            b, DenseElementsAttr::get(
                   VectorType::get({tileWidth}, tensor.getElementType()),
                   constant.getSplatValue<Attribute>())));
  if (auto broadcast = value.getDefiningOp<BroadcastOp>();
      broadcast && broadcast.getInput().getType().getRank() == 1) {
    FailureOr<Components> scalar = headOperand(broadcast.getInput());
    if (failed(scalar))
      return failure();
    return Components(scratchShape(value)[0],
                      splat(scalar->front(), tileWidth));
  }
  if (tensor.getRank() == 1)
    return headOperand(value);
  auto scratch = spills.find(value);
  if (scratch == spills.end() || phaseOf(value) >= currentPhase)
    return mlir::emitError(value.getLoc(), "value is not available in phase ")
           << currentPhase << " of the schedule";
  Components components;
  for (int64_t i = 0, e = scratchShape(value)[0]; i < e; ++i)
    components.push_back(
        loadVector(scratch->second, {constantIndex(i), tileStart}, tileWidth));
  return components;
}
