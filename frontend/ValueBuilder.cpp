//===- ValueBuilder.cpp - operations on the values of a token ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/ValueBuilder.h"

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace ladle::frontend;

RankedTensorType ValueBuilder::getTensorType(const Shape &shape) {
  return RankedTensorType::get(shape.getSizes(), builder.getF32Type());
}

Value ValueBuilder::emitAs(const Expr &expr, const Shape &shape) {
  if (expr.constant)
    return constant(*expr.constant, shape);
  return broadcast(emit(expr), expr.shape, shape);
}

Value ValueBuilder::constant(double value, const Shape &shape) {
  return create<arith::ConstantOp>(
      DenseElementsAttr::get(getTensorType(shape), static_cast<float>(value)));
}

Value ValueBuilder::broadcast(Value value, const Shape &from, const Shape &to) {
  RankedTensorType type = getTensorType(to);
  if (value.getType() == type)
    return value;
  // The checker has matched the shapes.
  auto positions = matchSubsequence(from.features, to.features);
  SmallVector<int64_t> dims = {0};
  for (int64_t position : *positions)
    dims.push_back(position + 1);
  return create<ladle::BroadcastOp>(type, value, dims);
}

Value ValueBuilder::sum(Value value, int64_t feature) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> sizes(type.getShape());
  sizes.erase(sizes.begin() + feature + 1);
  return create<ladle::SumOp>(type.clone(sizes), value, feature + 1);
}
