//===- Components.cpp - values as kernels have them -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/Components.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/MemoryLayout.h"

using namespace mlir;
using namespace ladle;

Value ladle::convertElements(ImplicitLocOpBuilder &b, Value value,
                             Type elementType) {
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

Value ladle::repeatElementwise(ImplicitLocOpBuilder &b, Operation *op,
                               ArrayRef<Value> operands, Type resultType) {
  OperationState state(b.getLoc(), op->getName());
  state.addOperands(operands);
  state.addTypes(resultType);
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return b.create(state)->getResult(0);
}

Value ladle::rotatePairs(ImplicitLocOpBuilder &b, Value input, Value angle) {
  int64_t pairs = cast<VectorType>(angle.getType()).getDimSize(0);
  Value cosine = math::CosOp::create(b, angle);
  Value sine = math::SinOp::create(b, angle);
  Value head = vector::ExtractStridedSliceOp::create(
      b, input, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{2 * pairs},
      ArrayRef<int64_t>{1});
  auto split = vector::DeinterleaveOp::create(b, head);
  Value x = split.getRes1(), y = split.getRes2();
  Value rotatedX = arith::SubFOp::create(b, arith::MulFOp::create(b, x, cosine),
                                         arith::MulFOp::create(b, y, sine));
  Value rotatedY = arith::AddFOp::create(b, arith::MulFOp::create(b, x, sine),
                                         arith::MulFOp::create(b, y, cosine));
  Value rotated = vector::InterleaveOp::create(b, rotatedX, rotatedY);
  return vector::InsertStridedSliceOp::create(
      b, rotated, input, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{1});
}

SmallVector<Value> ladle::sumComponents(ImplicitLocOpBuilder &b, SumOp op,
                                        ArrayRef<Value> input, int64_t parts) {
  RankedTensorType from = op.getInput().getType();
  int64_t dim = op.getDim(), last = from.getRank() - 1;
  // [outer, size, inner] components.
  int64_t size = from.getDimSize(dim), inner = parts;
  for (int64_t i = dim + 1; i < last; ++i)
    inner *= from.getDimSize(i);
  SmallVector<Value> result;
  for (int64_t i = 0, e = componentCount(op.getResult().getType()) * parts;
       i < e; ++i) {
    int64_t first = i / inner * size * inner + i % inner;
    Value total = input[first];
    for (int64_t k = 1; k < size; ++k)
      total = arith::AddFOp::create(b, total, input[first + k * inner]);
    result.push_back(total);
  }
  return result;
}

bool ladle::keepsLastDimension(BroadcastOp op) {
  return op.getInput().getType().getRank() > 1 &&
         op.getDims().back() + 1 == op.getResult().getType().getRank();
}

BroadcastSource ladle::sourceOf(BroadcastOp op, int64_t index) {
  ArrayRef<int64_t> from = op.getInput().getType().getShape();
  ArrayRef<int64_t> to = op.getResult().getType().getShape();
  ArrayRef<int64_t> dims = op.getDims();
  // Its position in the dimensions between.
  SmallVector<int64_t> position(to.size(), 0);
  for (int64_t rest = index, dim = int64_t(to.size()) - 2; dim > 0; --dim) {
    position[dim] = rest % to[dim];
    rest /= to[dim];
  }
  BroadcastSource source{0, position[dims.back()]};
  for (size_t dim = 1; dim + 1 < from.size(); ++dim)
    source.component = source.component * from[dim] + position[dims[dim]];
  return source;
}
