//===- Places.cpp - threads, memory and arithmetic of a GPU kernel --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Place GpuKernel::keyPlace(int64_t size) const {
  if (size == keySize)
    return {false, size, lanes, width, chunks};
  int64_t wide = 4;
  while (wide > 1 && size % (wide * lanes) != 0)
    wide /= 2;
  int64_t count = llvm::divideCeil(size, wide * lanes);
  return {false, size, lanes, wide, count};
}

/// All lanes of a warp beside each other, if they divide the vector.
std::optional<Place> GpuKernel::warpPlace(int64_t size) const {
  if (size % 32 != 0)
    return std::nullopt;
  int64_t wide = 4;
  while (size % (wide * 32) != 0)
    wide /= 2;
  return Place{false, size, 32, wide, size / (wide * 32)};
}

Place GpuKernel::valuePlace(int64_t size) const {
  std::optional<Place> place;
  if (hasWarpValues)
    place = warpPlace(size);
  return place ? *place : keyPlace(size);
}

/// Where keys of entries meet queries, if tensor cores do not multiply them:
/// groups as small as those of tiles would have too much of a vector.
Place GpuKernel::entryPlace() const {
  constexpr int64_t kLanes = 8, kWidth = 4;
  if (!multipliesReads)
    return keyPlace(keySize);
  return {false, keySize, kLanes, kWidth, keySize / (kLanes * kWidth)};
}

Place GpuKernel::rowPlace() const { return {true, valueSize, 1, 1, 1}; }

Place GpuKernel::placeOf(RankedTensorType type, bool alongRows) const {
  if (type.getRank() == 1)
    return {};
  return alongRows ? rowPlace() : valuePlace(type.getShape().back());
}

bool GpuKernel::isPartial(const Place &place, int64_t c) const {
  return (c + 1) * place.lanes * place.width > place.size;
}

Value GpuKernel::laneOf(const Place &place) {
  if (place.lanes == 32)
    return warpLane;
  if (place.lanes == lanes)
    return lane;
  return arith::RemUIOp::create(b, thread, constantIndex(place.lanes));
}

Value GpuKernel::chunkStart(const Place &place, int64_t c) {
  Value mine = laneOf(place);
  Value first =
      place.width == 1
          ? mine
          : Value(arith::MulIOp::create(b, mine, constantIndex(place.width)));
  first = add(first, c * place.lanes * place.width);
  if (place.start)
    return arith::AddIOp::create(b, place.start, first);
  if (!isPartial(place, c))
    return first;
  return arith::MinUIOp::create(b, first,
                                constantIndex(place.size - place.width));
}

//===----------------------------------------------------------------------===//
// Constants and memory
//===----------------------------------------------------------------------===//

Value GpuKernel::constantIndex(int64_t value) {
  Value &constant = constants[value];
  if (!constant) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&function.getBody().front());
    constant = arith::ConstantIndexOp::create(b, value);
  }
  return constant;
}

Value GpuKernel::constantFloat(double value) {
  return arith::ConstantOp::create(b, b.getF32FloatAttr(value));
}

Value GpuKernel::constantInt(int32_t value) {
  return arith::ConstantOp::create(b, b.getI32IntegerAttr(value));
}

Value GpuKernel::shared(ArrayRef<int64_t> shape, StringRef name, Type element) {
  auto space =
      gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get(shape, element ? element : b.getF32Type(),
                              MemRefLayoutAttrInterface(), space);
  return function.addWorkgroupAttribution(
      type, NameLoc::get(b.getStringAttr(name), b.getLoc()));
}

Value GpuKernel::sharedIn(Value memory, ArrayRef<int64_t> shape, StringRef name,
                          Type element) {
  Value result = shared(shape, name, element);
  auto all = function.getWorkgroupAttributions();
  unsigned number = llvm::find(all, memory) - all.begin();
  function.setWorkgroupAttributionAttr(static_cast<int>(all.size()) - 1,
                                       kSharesAttr, b.getIndexAttr(number));
  return result;
}

Value GpuKernel::named(Value value, StringRef name) {
  if (Operation *op = value.getDefiningOp())
    op->setLoc(
        NameLoc::get(StringAttr::get(op->getContext(), name), op->getLoc()));
  return value;
}

Value GpuKernel::add(Value lhs, int64_t rhs) {
  return rhs == 0 ? lhs : arith::AddIOp::create(b, lhs, constantIndex(rhs));
}

/// The head among `heads` that this head of the state shares.
Value GpuKernel::headIndex(int64_t count) {
  if (count == heads)
    return head;
  if (count == 1)
    return constantIndex(0);
  return arith::DivUIOp::create(b, head, constantIndex(heads / count));
}

bool GpuKernel::dependsOnRows(Value value) const {
  return rowValues.contains(value);
}

Value GpuKernel::rowIn(int64_t size) {
  Value row = arith::AddIOp::create(b, tileStart, ownRow);
  return size < valueSize
             ? arith::MinUIOp::create(b, row, constantIndex(size - 1))
             : row;
}

Value GpuKernel::ownsRowIn(int64_t size) {
  Value inside;
  if (size < valueSize)
    inside = isBelow(arith::AddIOp::create(b, tileStart, ownRow), size);
  return both(ownsRow, inside);
}

Value GpuKernel::isBelow(Value value, int64_t bound) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, value,
                               constantIndex(bound));
}

Value GpuKernel::both(Value lhs, Value rhs) {
  if (!lhs || !rhs)
    return lhs ? lhs : rhs;
  return arith::AndIOp::create(b, lhs, rhs);
}

void GpuKernel::guarded(Value condition, function_ref<void()> body) {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(b, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body();
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value GpuKernel::convertTo(Value value, Type elementType) {
  return convertElements(b, value, elementType);
}

Value GpuKernel::toF32(Value value) { return convertTo(value, b.getF32Type()); }

Value GpuKernel::loadElement(Value memory, ArrayRef<Value> indices) {
  return toF32(memref::LoadOp::create(b, memory, indices));
}

GpuKernel::Components GpuKernel::loadVector(Value memory, ArrayRef<Value> outer,
                                            const Place &place) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  auto type = VectorType::get({place.width}, element);
  Components result;
  for (int64_t c = 0; c < place.chunks; ++c) {
    SmallVector<Value> at(outer);
    at.push_back(chunkStart(place, c));
    result.push_back(vector::LoadOp::create(b, type, memory, at));
  }
  for (Value &chunk : result)
    chunk = toF32(chunk);
  return result;
}

Value GpuKernel::splat(Value scalar, int64_t size) {
  return vector::BroadcastOp::create(
      b, VectorType::get({size}, scalar.getType()), scalar);
}

Value GpuKernel::shuffle(Value value, Value operand, int64_t size,
                         gpu::ShuffleMode mode) {
  Value width = constantInt(static_cast<int32_t>(size));
  return gpu::ShuffleOp::create(b, value, operand, width, mode)
      .getShuffleResult();
}

Value GpuKernel::shuffleXor(Value value, int64_t mask) {
  return shuffle(value, constantInt(static_cast<int32_t>(mask)), 32,
                 gpu::ShuffleMode::XOR);
}

void GpuKernel::letNextStart() {
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::launch_dependents);
}

void GpuKernel::waitForPrevious() {
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
}

void GpuKernel::barrier() {
  gpu::BarrierOp::create(b);
  areQueriesPending = false;
}
