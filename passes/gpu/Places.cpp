//===- Places.cpp - threads, memory and arithmetic of a GPU kernel --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

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

Value GpuKernel::shared(ArrayRef<int64_t> shape, StringRef name) {
  auto space =
      gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get(shape, b.getF32Type(),
                              MemRefLayoutAttrInterface(), space);
  return function.addWorkgroupAttribution(
      type, NameLoc::get(b.getStringAttr(name), b.getLoc()));
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

int64_t GpuKernel::sizeOn(RankedTensorType type, Side side) {
  if (type.getRank() == 1)
    return 1;
  int64_t size = type.getShape().back();
  return side == Side::Row && tiles > 1 ? schedule.tileRows : size;
}

/// Where this thread's element lies along the last dimension in memory.
Value GpuKernel::elementOn(Side side) {
  return side == Side::Row && tiles > 1
             ? Value(arith::AddIOp::create(b, tileStart, thread))
             : thread;
}

Value GpuKernel::clampedThread(int64_t size) {
  return size >= schedule.threads ? thread
                                  : Value(arith::MinUIOp::create(
                                        b, thread, constantIndex(size - 1)));
}

Value GpuKernel::isBelow(Value value, int64_t bound) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, value,
                               constantIndex(bound));
}

void GpuKernel::ifThread(int64_t size, function_ref<void()> body) {
  if (size >= schedule.threads)
    return body();
  auto guarded = scf::IfOp::create(b, isBelow(thread, size));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  body();
}

Value GpuKernel::convertTo(Value value, Type elementType) {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == elementType)
    return value;
  Type to = elementType;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    to = vector.clone(elementType);
  if (from.getIntOrFloatBitWidth() < elementType.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, to, value);
  return arith::TruncFOp::create(b, to, value);
}

Value GpuKernel::toF32(Value value) { return convertTo(value, b.getF32Type()); }

Value GpuKernel::loadElement(Value memory, ArrayRef<Value> indices) {
  return toF32(memref::LoadOp::create(b, memory, indices));
}

Value GpuKernel::splat(Value scalar) {
  return vector::BroadcastOp::create(
      b, VectorType::get({width}, scalar.getType()), scalar);
}

Value GpuKernel::shuffleXor(Value value, int64_t mask) {
  return gpu::ShuffleOp::create(b, value, static_cast<int32_t>(mask), 32,
                                gpu::ShuffleMode::XOR)
      .getShuffleResult();
}

void GpuKernel::barrier() { gpu::BarrierOp::create(b); }

/// The sum over the lanes that cover a row.
Value GpuKernel::sumOverGroup(Value value) {
  for (int64_t mask = 1; mask < lanes; mask *= 2)
    value = arith::AddFOp::create(b, value, shuffleXor(value, mask));
  return value;
}

Value GpuKernel::sumOverBlock(Value value) {
  for (int64_t mask = 1; mask < 32; mask *= 2)
    value = arith::AddFOp::create(b, value, shuffleXor(value, mask));
  int64_t warps = schedule.threads / 32;
  if (warps == 1)
    return value;
  Value partial = shared({warps}, "warp_sums");
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(32));
  Value lane = arith::RemUIOp::create(b, thread, constantIndex(32));
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, lane,
                                        constantIndex(0));
  {
    auto guarded = scf::IfOp::create(b, isFirst);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    memref::StoreOp::create(b, value, partial, ValueRange{warp});
  }
  barrier();
  Value total;
  for (int64_t i = 0; i < warps; ++i) {
    Value part =
        memref::LoadOp::create(b, partial, ValueRange{constantIndex(i)});
    total = total ? Value(arith::AddFOp::create(b, total, part)) : part;
  }
  return total;
}
