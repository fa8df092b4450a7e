//===- SummaryBuilder.cpp - vectors and summaries on the CPU --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/SummaryBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/Dots.h"

using namespace mlir;
using namespace ladle;

Value SummaryBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

Value SummaryBuilder::number(double value) {
  return arith::ConstantOp::create(
      b, b.getF32FloatAttr(static_cast<float>(value)));
}

Value SummaryBuilder::splat(Value scalar, int64_t width) {
  return vector::BroadcastOp::create(
      b, VectorType::get({width}, scalar.getType()), scalar);
}

Value SummaryBuilder::load(Value memory, ValueRange indices, int64_t width) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  Value vector = vector::LoadOp::create(b, VectorType::get({width}, element),
                                        memory, indices);
  if (element.isF32())
    return vector;
  return arith::ExtFOp::create(b, VectorType::get({width}, b.getF32Type()),
                               vector);
}

void SummaryBuilder::store(Value vector, Value memory, ValueRange indices) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  if (!element.isF32())
    vector = arith::TruncFOp::create(
        b, cast<VectorType>(vector.getType()).clone(element), vector);
  vector::StoreOp::create(b, vector, memory, indices);
}

Value SummaryBuilder::loadIndex(Value memory, ValueRange indices) {
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    memref::LoadOp::create(b, memory, indices));
}

Value SummaryBuilder::dot(Value lhs, Value rhs) {
  int64_t width = cast<VectorType>(lhs.getType()).getDimSize(0);
  Value products = width % kBlock == 0
                       ? partialDot(b, lhs, rhs)
                       : Value(arith::MulFOp::create(b, lhs, rhs));
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, products,
                                     arith::FastMathFlags::reassoc);
}

Value SummaryBuilder::exp(Value value) { return math::ExpOp::create(b, value); }

Value SummaryBuilder::finite(Value most) {
  Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, most,
                                        number(-INFINITY));
  return arith::SelectOp::create(b, isEmpty, number(0), most);
}

Value SummaryBuilder::maximum(Value lhs, Value rhs) {
  return arith::MaxSIOp::create(b, lhs, rhs);
}

Value SummaryBuilder::minimum(Value lhs, Value rhs) {
  return arith::MinSIOp::create(b, lhs, rhs);
}

Value SummaryBuilder::isLess(Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, lhs, rhs);
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

SummaryBuilder::Summary SummaryBuilder::emptySummary() {
  return {number(-INFINITY), number(0), splat(number(0), valueSize)};
}

SummaryBuilder::Summary SummaryBuilder::merge(const Summary &lhs,
                                              const Summary &rhs) {
  Value most = arith::MaximumFOp::create(b, lhs.most, rhs.most);
  Value base = finite(most);
  auto weigh = [&](const Summary &side) {
    return exp(arith::SubFOp::create(b, side.most, base));
  };
  Value left = weigh(lhs), right = weigh(rhs);
  Value sum = arith::AddFOp::create(b, arith::MulFOp::create(b, lhs.sum, left),
                                    arith::MulFOp::create(b, rhs.sum, right));
  Value values = vector::FMAOp::create(
      b, rhs.values, splat(right, valueSize),
      arith::MulFOp::create(b, lhs.values, splat(left, valueSize)));
  return {most, sum, values};
}

Value SummaryBuilder::normalize(const Summary &summary) {
  Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                        summary.sum, number(0));
  Value divisor = arith::SelectOp::create(b, isEmpty, number(1), summary.sum);
  Value inverse = arith::DivFOp::create(b, number(1), divisor);
  return arith::MulFOp::create(b, summary.values, splat(inverse, valueSize));
}
