//===- Values.cpp - token values in a GPU kernel --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Values are emitted when they are first asked for. A value that is used both
// along dk and along dv is emitted for each.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/Kernel.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

void GpuKernel::remember(Value value, const Place &place,
                         Components components) {
  values[{value.getAsOpaquePointer(), place.key(), scopeOf(value)}] =
      std::move(components);
}

FailureOr<GpuKernel::Components> GpuKernel::get(Value value,
                                                const Place &wanted) {
  if (auto same = sameValues.find(value); same != sameValues.end())
    value = same->second;
  bool isNumber = cast<RankedTensorType>(value.getType()).getRank() == 1;
  Place place = isNumber ? Place() : wanted;
  if (place.start) {
    Value memory = wholeValues.at(value);
    Components result;
    for (int64_t i = 0;
         i < componentCount(cast<RankedTensorType>(value.getType())); ++i)
      llvm::append_range(result, loadVector(memory, {constantIndex(i)}, place));
    return result;
  }
  ValueKey key{value.getAsOpaquePointer(), place.key(), scopeOf(value)};
  if (auto found = values.find(key); found != values.end())
    return found->second;
  Location outer = b.getLoc();
  b.setLoc(value.getLoc());
  FailureOr<Components> result = emit(value, place);
  b.setLoc(outer);
  if (succeeded(result))
    values[key] = *result;
  return result;
}

GpuKernel::Components GpuKernel::loadArgument(BlockArgument argument,
                                              const Place &place) {
  auto type = cast<RankedTensorType>(argument.getType());
  ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
  bool isToken = kind == ArgumentKind::Token;
  Components &result =
      loadedArguments[{argument.getArgNumber(), place.key(),
                       isToken ? scopeOf(argument) : headScope}];
  if (!result.empty())
    return result;
  OpBuilder::InsertionGuard guard(b);
  if (Operation *anchor = kind == ArgumentKind::Carry ? endOfSlotLoads
                          : isToken                   ? tokenLoads()
                                                      : endOfTokenLoads)
    b.setInsertionPoint(anchor);
  Value from = memory[argument.getArgNumber()];
  SmallVector<Value> indices;
  if (isToken)
    indices.push_back(tokenRow());
  else if (kind == ArgumentKind::Carry)
    indices.push_back(readCarry);
  indices.push_back(headIndex(type.getDimSize(0)));
  if (type.getRank() == 1)
    return result = {loadElement(from, indices)};
  for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
    SmallVector<Value> at(indices);
    if (type.getRank() == 3)
      at.push_back(constantIndex(i));
    if (!place.isRow) {
      int64_t bits = type.getElementType().getIntOrFloatBitWidth();
      int64_t &bytes = alignments[cast<BlockArgument>(from).getArgNumber()];
      // Wider loads are several of 16 bytes.
      bytes = std::max(bytes, std::min<int64_t>(place.width * bits / 8, 16));
      llvm::append_range(result, loadVector(from, at, place));
      continue;
    }
    at.push_back(rowIn(type.getShape().back()));
    result.push_back(loadElement(from, at));
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emitBroadcast(BroadcastOp op,
                                                          const Place &place) {
  int64_t rank = op.getInput().getType().getRank();
  RankedTensorType type = op.getResult().getType();
  if (rank == type.getRank()) // over heads only
    return get(op.getInput(), place);
  bool keepsLast = keepsLastDimension(op);
  bool isIndexed = rank > 1 && !keepsLast;
  // What stands for one component of the input.
  int64_t each = keepsLast && !place.isRow ? place.chunks : 1;
  Components input;
  Value scratch;
  if (isIndexed) {
    bool alongRows = dependsOnRows(op.getInput());
    FailureOr<Value> all =
        whole(op.getInput(), placeOf(op.getInput().getType(), alongRows));
    if (failed(all))
      return failure();
    scratch = *all;
  } else {
    FailureOr<Components> all = get(op.getInput(), place);
    if (failed(all))
      return failure();
    input = *all;
  }
  auto fill = [&](Value number) {
    if (place.isRow) {
      return Components{number};
    }
    return Components(place.chunks, splat(number, place.width));
  };
  Components result;
  for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
    BroadcastSource source = sourceOf(op, i);
    if (isIndexed) {
      Value number =
          memref::LoadOp::create(b, scratch,
                                 ValueRange{constantIndex(source.component),
                                            constantIndex(source.element)});
      llvm::append_range(result, fill(number));
    } else if (keepsLast) {
      llvm::append_range(result,
                         ArrayRef(input).slice(source.component * each, each));
    } else {
      llvm::append_range(result, fill(input[source.component]));
    }
  }
  return result;
}

FailureOr<GpuKernel::Components>
GpuKernel::emitElementwise(Operation *op, const Place &place) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  bool isVector = type.getRank() > 1 && !place.isRow;
  int64_t each = isVector ? place.chunks : 1;
  int64_t count = componentCount(type) * each;
  auto typeOf = [&](Type element) -> Type {
    return isVector ? VectorType::get({place.width}, element) : element;
  };
  SmallVector<Components> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<Components> components = get(operand, place);
    if (failed(components))
      return failure();
    operands.push_back(*components);
  }
  return TypeSwitch<Operation *, FailureOr<Components>>(op)
      .Case([&](arith::ConstantOp constant) -> FailureOr<Components> {
        auto all = dyn_cast<SplatElementsAttr>(constant.getValue());
        if (!all)
          return op->emitError("only constants with one value are supported");
        TypedAttr value = all.getSplatValue<TypedAttr>();
        if (isVector)
          value = SplatElementsAttr::get(
              cast<ShapedType>(typeOf(type.getElementType())), value);
        return Components(count, arith::ConstantOp::create(b, value));
      })
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *) -> FailureOr<Components> { return operands[0]; })
      .Case([&](ShiftOp) -> FailureOr<Components> {
        Components result(llvm::drop_begin(operands[0], each));
        llvm::append_range(result, ArrayRef(operands[1]).take_front(each));
        return result;
      })
      .Case([&](ConvOp) -> FailureOr<Components> {
        Components inputs(operands[0]);
        llvm::append_range(inputs, ArrayRef(operands[1]).take_front(each));
        Components totals(each);
        for (auto [i, pair] : llvm::enumerate(llvm::zip(inputs, operands[2]))) {
          auto [input, weight] = pair;
          Value &total = totals[i % each];
          Value term = arith::MulFOp::create(b, input, weight);
          total = total ? Value(arith::AddFOp::create(b, total, term)) : term;
        }
        return totals;
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
          state.addTypes(typeOf(type.getElementType()));
          state.propertiesAttr = each->getPropertiesAsAttribute();
          Operation *made = b.create(state);
          if (auto exponential = dyn_cast<math::ExpOp>(made);
              exponential && !approximates())
            exponential.setFastmath(arith::FastMathFlags::none);
          result.push_back(made->getResult(0));
        }
        return result;
      });
}

FailureOr<GpuKernel::Components> GpuKernel::emit(Value value,
                                                 const Place &place) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return loadArgument(argument, place);
  Operation *op = value.getDefiningOp();
  auto type = cast<RankedTensorType>(value.getType());
  // What depends on rows is there where rows are.
  if (type.getRank() > 1 && !place.isRow && dependsOnRows(value))
    return exchange(value, rowPlace(), place);
  // These fill `values` for all of their results.
  auto emitted = [&](LogicalResult result,
                     const Place &at) -> FailureOr<Components> {
    if (failed(result))
      return failure();
    auto found =
        values.find({value.getAsOpaquePointer(), at.key(), scopeOf(value)});
    if (found != values.end())
      return at.key() == place.key() ? FailureOr(found->second)
                                     : exchange(value, at, place);
    return failure();
  };
  if (auto read = dyn_cast<ReadOp>(op))
    return emitted(emitReads(read), rowPlace());
  if (auto read = dyn_cast<ReadBufferOp>(op))
    return emitted(emitReadBuffer(read), rowPlace());
  if (auto transport = dyn_cast<TransportOp>(op))
    return emitted(emitTransport(transport),
                   dependsOnRows(value) ? rowPlace() : keyPlace(keySize));
  if (auto product = dyn_cast<DecayProductOp>(op)) {
    const Decays &all = decaysOf(product.getBuffer(), product.getDecay());
    if (all.product)
      return Components{all.product};
    if (place.isRow)
      return exchange(value, keyPlace(keySize), place);
    return loadVector(all.productMemory, {}, place);
  }
  if (auto sum = dyn_cast<SumOp>(op))
    return emitSum(sum, place);
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return emitBroadcast(broadcast, place);
  if (auto rotate = dyn_cast<RotateOp>(op))
    return emitRotate(rotate, place);
  return emitElementwise(op, place);
}
