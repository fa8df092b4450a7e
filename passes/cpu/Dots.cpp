//===- Dots.cpp - dot products of many rows -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A dot product ends with a sum over the lanes of a register, which takes as
// many instructions as 128 products. Rows are independent, so the sums of 16
// rows are taken together: each step merges two registers into one, and the
// result is a register of 16 dot products.
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/Dots.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/Kernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kLanes = Kernel::kPartialSums;

static int64_t widthOf(Value vector) {
  return cast<VectorType>(vector.getType()).getShape().back();
}

bool Kernel::sumsInLanes(int64_t keySize) { return keySize % kLanes == 0; }

Value Kernel::partialDot(Value lhs, Value rhs) {
  return ladle::partialDot(b, lhs, rhs);
}

Value ladle::partialDot(ImplicitLocOpBuilder &b, Value lhs, Value rhs) {
  int64_t chunks = widthOf(lhs) / kLanes;
  auto chunk = [&](Value vector, int64_t i) -> Value {
    return chunks == 1 ? vector
                       : vector::ExtractStridedSliceOp::create(
                             b, vector, ArrayRef<int64_t>{i * kLanes},
                             ArrayRef<int64_t>{kLanes}, ArrayRef<int64_t>{1});
  };
  // Two chains, because an addition waits for the one before it.
  SmallVector<Value, 2> sums;
  for (int64_t i = 0; i < chunks; ++i) {
    Value left = chunk(lhs, i), right = chunk(rhs, i);
    if (i < 2)
      sums.push_back(arith::MulFOp::create(b, left, right));
    else
      sums[i & 1] = vector::FMAOp::create(b, left, right, sums[i & 1]);
  }
  return sums.size() == 1 ? sums.front()
                          : arith::AddFOp::create(b, sums[0], sums[1]);
}

Value Kernel::dot(Value lhs, Value rhs) {
  // The order of the sum is free: f32 with many partial sums is closer to
  // float64 than a running sum.
  Value products = sumsInLanes(widthOf(lhs))
                       ? partialDot(lhs, rhs)
                       : Value(arith::MulFOp::create(b, lhs, rhs));
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, products,
                                     arith::FastMathFlags::reassoc);
}

Value ladle::sumLanes(ImplicitLocOpBuilder &b, ArrayRef<Value> rows) {
  SmallVector<Value> group(rows);
  // What the eight merges of the first step do is one blend and one shuffle of
  // any processor only if neighbours of four lanes are exchanged, so 16 rows
  // begin with that. Row i stands where lane i is made.
  SmallVector<int64_t> strides{8, 4, 2, 1};
  if (rows.size() == kLanes) {
    strides = {4, 1, 2, 8};
    for (auto [i, row] : llvm::enumerate(group)) {
      size_t lane = 0;
      for (auto [step, stride] : llvm::enumerate(strides))
        lane |= i & (kLanes / 2 >> step) ? stride : 0;
      row = rows[lane];
    }
  }
  // `group[i]` and `group[i + half]` share a register after a step: the lanes
  // with bit `stride` belong to the second, those without to the first.
  int64_t size = group.size();
  for (int64_t stride : strides) {
    size_t half = std::max<size_t>(group.size() / 2, 1);
    for (size_t i = 0; i < half; ++i) {
      Value first = group[i];
      Value second = group.size() > 1 ? group[i + half] : first;
      // The former is a blend, which costs less than a shuffle.
      SmallVector<int64_t> near, far;
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        bool inSecond = lane & stride;
        near.push_back(inSecond ? kLanes + lane : lane);
        far.push_back(inSecond ? kLanes + lane - stride : lane + stride);
      }
      group[i] = arith::AddFOp::create(
          b, vector::ShuffleOp::create(b, first, second, near),
          vector::ShuffleOp::create(b, first, second, far));
    }
    group.resize(half);
  }
  if (size == kLanes)
    return group.front();
  SmallVector<int64_t> firstLanes;
  for (int64_t i = 0; i < size; ++i)
    firstLanes.push_back(i * (kLanes / size));
  return vector::ShuffleOp::create(b, group.front(), group.front(), firstLanes);
}

Value Kernel::sumRows(Value scratch, Value first, int64_t total) {
  if (cast<MemRefType>(scratch.getType()).getDimSize(1) == 1) {
    // The numbers lie side by side.
    Value flat = memref::CollapseShapeOp::create(
        b, scratch, ArrayRef<ReassociationIndices>{{0, 1}});
    return loadVector(flat, {first}, total);
  }
  SmallVector<Value> partials;
  for (int64_t i = 0; i < total; ++i)
    partials.push_back(loadVector(
        scratch,
        {arith::AddIOp::create(b, first, constantIndex(i)), constantIndex(0)},
        kLanes));
  Value result;
  for (int64_t start = 0; start < total;) {
    int64_t size =
        std::min<int64_t>(kLanes, llvm::bit_floor<uint64_t>(total - start));
    Value sums = sumLanes(b, ArrayRef(partials).slice(start, size));
    if (size == total)
      return sums;
    result = vector::InsertStridedSliceOp::create(
        b, sums, result ? result : zeros(total), ArrayRef<int64_t>{start},
        ArrayRef<int64_t>{1});
    start += size;
  }
  return result;
}
