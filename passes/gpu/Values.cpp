//===- Values.cpp - token values in a GPU kernel --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Values are emitted when they are first asked for. A value that is used both
// along dk and along a tile of dv is emitted for each.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

FailureOr<GpuKernel::Components> GpuKernel::get(Value value, Side side) {
  if (tiles == 1 || cast<RankedTensorType>(value.getType()).getRank() == 1)
    side = Side::Key;
  auto key = std::make_pair(value, static_cast<int>(side));
  if (auto found = values.find(key); found != values.end())
    return found->second;
  Location outer = b.getLoc();
  b.setLoc(value.getLoc());
  FailureOr<Components> result = emit(value, side);
  b.setLoc(outer);
  if (succeeded(result))
    values[key] = *result;
  return result;
}

GpuKernel::Components GpuKernel::loadArgument(BlockArgument argument,
                                              Side side) {
  auto type = cast<RankedTensorType>(argument.getType());
  ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
  SmallVector<Value> indices;
  if (kind == ArgumentKind::Token)
    indices.push_back(row);
  else if (kind == ArgumentKind::Carry)
    indices.push_back(readSlot);
  indices.push_back(headIndex(type.getDimSize(0)));
  if (type.getRank() == 1)
    return {loadElement(memory[argument], indices)};
  Value element = clampedThread(sizeOn(type, side));
  if (side == Side::Row && tiles > 1)
    element = arith::AddIOp::create(b, tileStart, element);
  Components result;
  for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
    SmallVector<Value> at(indices);
    if (type.getRank() == 3)
      at.push_back(constantIndex(i));
    at.push_back(element);
    result.push_back(loadElement(memory[argument], at));
  }
  return result;
}

FailureOr<Value> GpuKernel::whole(Value value, Side side) {
  auto type = cast<RankedTensorType>(value.getType());
  if (tiles == 1)
    side = Side::Key;
  auto key = std::make_pair(value, static_cast<int>(side));
  if (auto found = wholes.find(key); found != wholes.end())
    return found->second;
  FailureOr<Components> components = get(value, side);
  if (failed(components))
    return failure();
  int64_t size = sizeOn(type, side);
  Value scratch =
      shared({static_cast<int64_t>(components->size()), size}, "whole");
  ifThread(size, [&] {
    for (auto [i, component] : llvm::enumerate(*components))
      memref::StoreOp::create(b, component, scratch,
                              ValueRange{constantIndex(i), thread});
  });
  barrier();
  wholes[key] = scratch;
  return scratch;
}

GpuKernel::Components GpuKernel::fragmentOf(Value memory,
                                            ArrayRef<Value> indices) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  Value first = arith::MulIOp::create(b, laneOfGroup, constantIndex(width));
  Components result;
  for (int64_t c = 0; c < chunks; ++c) {
    SmallVector<Value> at(indices);
    at.push_back(add(first, c * lanes * width));
    result.push_back(toF32(vector::LoadOp::create(
        b, VectorType::get({width}, element), memory, at)));
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::fragment(Value value,
                                                     int64_t component) {
  FailureOr<Value> scratch = whole(value, Side::Key);
  if (failed(scratch))
    return failure();
  return fragmentOf(*scratch, {constantIndex(component)});
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

FailureOr<GpuKernel::Components> GpuKernel::emitSum(SumOp op, Side side) {
  RankedTensorType from = op.getInput().getType();
  RankedTensorType to = op.getResult().getType();
  int64_t dim = op.getDim(), last = from.getRank() - 1;
  if (dim != last) {
    FailureOr<Components> input = get(op.getInput(), side);
    if (failed(input))
      return failure();
    int64_t size = from.getDimSize(dim), inner = 1;
    for (int64_t i = dim + 1; i < last; ++i)
      inner *= from.getDimSize(i);
    Components result;
    for (int64_t i = 0, e = componentCount(to); i < e; ++i) {
      int64_t first = i / inner * size * inner + i % inner;
      Value total = (*input)[first];
      for (int64_t k = 1; k < size; ++k)
        total = arith::AddFOp::create(b, total, (*input)[first + k * inner]);
      result.push_back(total);
    }
    return result;
  }
  FailureOr<Components> input = get(op.getInput(), Side::Key);
  if (failed(input))
    return failure();
  int64_t size = from.getShape().back();
  SmallVector<Value> sums;
  for (Value component : *input) {
    if (size < schedule.threads)
      component = arith::SelectOp::create(b, isBelow(thread, size), component,
                                          constantFloat(0));
    sums.push_back(sumOverBlock(component));
  }
  if (to.getRank() == 1)
    return Components(sums);
  // The dimension before becomes the one that threads run along.
  int64_t count = to.getShape().back();
  Components result;
  for (int64_t i = 0; i < int64_t(sums.size()); i += count) {
    Value mine = sums[i];
    for (int64_t k = 1; k < count; ++k) {
      Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, thread,
                                           constantIndex(k));
      mine = arith::SelectOp::create(b, isMine, sums[i + k], mine);
    }
    result.push_back(mine);
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emitBroadcast(BroadcastOp op,
                                                          Side side) {
  ArrayRef<int64_t> from = op.getInput().getType().getShape();
  RankedTensorType type = op.getResult().getType();
  ArrayRef<int64_t> to = type.getShape();
  ArrayRef<int64_t> dims = op.getDims();
  if (from.size() == to.size()) // over heads only
    return get(op.getInput(), side);
  bool keepsLast = from.size() > 1 && dims.back() + 1 == int64_t(to.size());
  bool isIndexed = from.size() > 1 && !keepsLast;
  Components input;
  Value scratch;
  if (isIndexed) {
    FailureOr<Value> all = whole(op.getInput(), Side::Key);
    if (failed(all))
      return failure();
    scratch = *all;
  } else {
    FailureOr<Components> all = get(op.getInput(), side);
    if (failed(all))
      return failure();
    input = *all;
  }
  Components result;
  for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
    // Position of this component in the dimensions between.
    SmallVector<int64_t> position(to.size(), 0);
    for (int64_t rest = i, dim = int64_t(to.size()) - 2; dim > 0; --dim) {
      position[dim] = rest % to[dim];
      rest /= to[dim];
    }
    int64_t source = 0;
    for (size_t dim = 1; dim + 1 < from.size(); ++dim)
      source = source * from[dim] + position[dims[dim]];
    result.push_back(
        isIndexed ? Value(memref::LoadOp::create(
                        b, scratch,
                        ValueRange{constantIndex(source),
                                   constantIndex(position[dims.back()])}))
                  : input[source]);
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emitRotate(RotateOp op, Side side) {
  if (side == Side::Row && tiles > 1)
    return op.emitError("a rotation along a tile of dv cannot be lowered");
  FailureOr<Components> input = get(op.getInput(), side);
  FailureOr<Value> angles = whole(op.getAngle(), Side::Key);
  if (failed(input) || failed(angles))
    return failure();
  int64_t pairs = op.getAngle().getType().getShape().back();
  Value pair = arith::DivUIOp::create(b, thread, constantIndex(2));
  pair = arith::MinUIOp::create(b, pair, constantIndex(pairs - 1));
  Value isSecond = arith::CmpIOp::create(
      b, arith::CmpIPredicate::eq,
      arith::RemUIOp::create(b, thread, constantIndex(2)), constantIndex(1));
  Components result;
  for (auto [i, mine] : llvm::enumerate(*input)) {
    Value angle =
        memref::LoadOp::create(b, *angles, ValueRange{constantIndex(i), pair});
    Value cosine = math::CosOp::create(b, angle);
    Value sine = math::SinOp::create(b, angle);
    Value other = shuffleXor(mine, 1);
    // (x, y) to (x cos - y sin, x sin + y cos).
    Value sign = arith::SelectOp::create(b, isSecond, sine,
                                         arith::NegFOp::create(b, sine));
    Value rotated =
        arith::AddFOp::create(b, arith::MulFOp::create(b, mine, cosine),
                              arith::MulFOp::create(b, other, sign));
    result.push_back(
        arith::SelectOp::create(b, isBelow(thread, 2 * pairs), rotated, mine));
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emit(Value value, Side side) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return loadArgument(argument, side);
  Operation *op = value.getDefiningOp();
  auto type = cast<RankedTensorType>(value.getType());
  int64_t count = componentCount(type);
  if (auto read = dyn_cast<ReadOp>(op))
    return emitRead(read);
  // These fill `values` for all of their results.
  auto findOrEmit = [&](LogicalResult emitted) -> FailureOr<Components> {
    if (failed(emitted))
      return failure();
    for (Side each : {side, Side::Row, Side::Key})
      if (auto found = values.find({value, static_cast<int>(each)});
          found != values.end())
        return found->second;
    return failure();
  };
  if (auto read = dyn_cast<ReadBufferOp>(op))
    return findOrEmit(emitReadBuffer(read));
  if (auto transport = dyn_cast<TransportOp>(op))
    return findOrEmit(emitTransport(transport));
  if (auto product = dyn_cast<DecayProductOp>(op))
    return Components{
        weightsOf(product.getBuffer(), product.getDecay(), {}).product};
  if (auto sum = dyn_cast<SumOp>(op))
    return emitSum(sum, side);
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return emitBroadcast(broadcast, side);
  if (auto rotate = dyn_cast<RotateOp>(op))
    return emitRotate(rotate, side);

  SmallVector<Components> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<Components> components = get(operand, side);
    if (failed(components))
      return failure();
    operands.push_back(*components);
  }
  return TypeSwitch<Operation *, FailureOr<Components>>(op)
      .Case([&](arith::ConstantOp constant) -> FailureOr<Components> {
        auto all = dyn_cast<SplatElementsAttr>(constant.getValue());
        if (!all)
          return op->emitError("only constants with one value are supported");
        return Components(count, arith::ConstantOp::create(
                                     b, all.getSplatValue<TypedAttr>()));
      })
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *) -> FailureOr<Components> { return operands[0]; })
      .Case([&](ShiftOp) -> FailureOr<Components> {
        Components result(llvm::drop_begin(operands[0]));
        result.push_back(operands[1].front());
        return result;
      })
      .Case([&](ConvOp) -> FailureOr<Components> {
        Components inputs(operands[0]);
        inputs.push_back(operands[1].front());
        Value total;
        for (auto [input, weight] : llvm::zip(inputs, operands[2])) {
          Value term = arith::MulFOp::create(b, input, weight);
          total = total ? Value(arith::AddFOp::create(b, total, term)) : term;
        }
        return Components{total};
      })
      .Default([&](Operation *each) -> FailureOr<Components> {
        if (!each->hasTrait<OpTrait::Elementwise>())
          return each->emitError("cannot be lowered for the GPU: '")
                 << each->getName() << "' is neither elementwise nor known";
        Components result;
        for (int64_t i = 0; i < count; ++i) {
          OperationState state(b.getLoc(), each->getName());
          for (const Components &operand : operands)
            state.addOperands(operand[i]);
          state.addTypes(type.getElementType());
          state.propertiesAttr = each->getPropertiesAsAttribute();
          result.push_back(b.create(state)->getResult(0));
        }
        return result;
      });
}
