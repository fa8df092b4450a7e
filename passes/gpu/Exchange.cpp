//===- Exchange.cpp - what crosses the places of a GPU kernel -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Through shared memory
//===----------------------------------------------------------------------===//

FailureOr<Value> GpuKernel::whole(Value value, const Place &place) {
  FailureOr<Value> scratch = putWhole(value, place);
  if (succeeded(scratch))
    barrier();
  return scratch;
}

FailureOr<Value> GpuKernel::putWhole(Value value, const Place &place) {
  FailureOr<Components> components = get(value, place);
  if (failed(components))
    return failure();
  int64_t each = place.isRow ? 1 : place.chunks;
  int64_t count = static_cast<int64_t>(components->size()) / each;
  Value scratch = shared({count, place.size}, "whole");
  if (place.isRow) {
    guarded(ownsRow, [&] {
      for (auto [i, component] : llvm::enumerate(*components))
        memref::StoreOp::create(b, component, scratch,
                                ValueRange{constantIndex(i), ownRow});
    });
  } else {
    guarded(isBelow(thread, place.lanes), [&] {
      for (auto [i, part] : llvm::enumerate(*components)) {
        int64_t c = static_cast<int64_t>(i) % each;
        Value component = constantIndex(static_cast<int64_t>(i) / each);
        Value inside;
        if (isPartial(place, c))
          inside = isBelow(add(lane, c * place.lanes), place.size);
        guarded(inside, [&, part = part] {
          vector::StoreOp::create(b, part, scratch,
                                  ValueRange{component, chunkStart(place, c)});
        });
      }
    });
  }
  return scratch;
}

FailureOr<GpuKernel::Components>
GpuKernel::exchange(Value value, const Place &from, const Place &to) {
  FailureOr<Value> scratch = whole(value, from);
  if (failed(scratch))
    return failure();
  int64_t count = cast<MemRefType>(scratch->getType()).getDimSize(0);
  Components result;
  for (int64_t i = 0; i < count; ++i) {
    if (to.isRow)
      result.push_back(memref::LoadOp::create(
          b, *scratch, ValueRange{constantIndex(i), rowIn(from.size)}));
    else
      llvm::append_range(result, loadVector(*scratch, {constantIndex(i)}, to));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Value GpuKernel::sumOverGroup(Value value) {
  return sumOverLanes(value, lanes);
}

/// The sum over so many neighbours.
Value GpuKernel::sumOverLanes(Value value, int64_t count) {
  for (int64_t mask = 1; mask < count; mask *= 2)
    value = arith::AddFOp::create(b, value, shuffleXor(value, mask));
  return value;
}

/// The sums of as many values as a group has rows: lane i gets that of row i.
/// Each exchange halves what a lane still has to add.
Value GpuKernel::sumOverRows(MutableArrayRef<Value> rows) {
  int64_t count = static_cast<int64_t>(rows.size());
  for (int64_t half = count / 2; half > 0; half /= 2) {
    Value isUpper = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne,
        arith::AndIOp::create(b, lane, constantIndex(half)), constantIndex(0));
    for (int64_t i = 0; i < half; ++i) {
      Value keep = arith::SelectOp::create(b, isUpper, rows[i + half], rows[i]);
      Value give = arith::SelectOp::create(b, isUpper, rows[i], rows[i + half]);
      rows[i] = arith::AddFOp::create(b, keep, shuffleXor(give, half));
    }
  }
  Value sum = rows[0];
  for (int64_t mask = count; mask < lanes; mask *= 2)
    sum = arith::AddFOp::create(b, sum, shuffleXor(sum, mask));
  return sum;
}

Value GpuKernel::sumOverBlock(Value value) {
  value = sumOverLanes(value, 32);
  int64_t warps = schedule.threads / 32;
  if (warps == 1)
    return value;
  Value partial = shared({warps}, "warp_sums");
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(32));
  guarded(isBelow(warpLane, 1), [&] {
    memref::StoreOp::create(b, value, partial, ValueRange{warp});
  });
  barrier();
  Value total;
  for (int64_t i = 0; i < warps; ++i) {
    Value part =
        memref::LoadOp::create(b, partial, ValueRange{constantIndex(i)});
    total = total ? Value(arith::AddFOp::create(b, total, part)) : part;
  }
  return total;
}

/// A vector of numbers that every thread has.
GpuKernel::Components GpuKernel::assemble(ArrayRef<Value> scalars,
                                          const Place &place) {
  Components result;
  for (int64_t c = 0; c < place.chunks; ++c) {
    SmallVector<Value> parts;
    for (int64_t i = 0; i < place.width; ++i) {
      Value at = add(chunkStart(place, c), i);
      Value mine = scalars[0];
      for (size_t k = 1; k < scalars.size(); ++k) {
        Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, at,
                                             constantIndex(k));
        mine = arith::SelectOp::create(b, isMine, scalars[k], mine);
      }
      parts.push_back(mine);
    }
    result.push_back(vector::FromElementsOp::create(
        b, VectorType::get({place.width}, b.getF32Type()), parts));
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emitSum(SumOp op,
                                                    const Place &place) {
  RankedTensorType from = op.getInput().getType();
  RankedTensorType to = op.getResult().getType();
  int64_t dim = op.getDim(), last = from.getRank() - 1;
  if (dim != last) {
    FailureOr<Components> input = get(op.getInput(), place);
    if (failed(input))
      return failure();
    return sumComponents(b, op, *input, place.isRow ? 1 : place.chunks);
  }

  bool alongRows = dependsOnRows(op.getInput());
  Place source = placeOf(from, alongRows);
  FailureOr<Components> input = get(op.getInput(), source);
  if (failed(input))
    return failure();
  SmallVector<Value> sums;
  if (alongRows) {
    for (Value component : *input) {
      if (Value mine = ownsRowIn(from.getShape().back()))
        component =
            arith::SelectOp::create(b, mine, component, constantFloat(0));
      sums.push_back(sumOverBlock(component));
    }
  } else {
    Value zero = arith::ConstantOp::create(
        b, b.getZeroAttr(VectorType::get({source.width}, b.getF32Type())));
    for (size_t i = 0; i < input->size(); i += source.chunks) {
      Value total;
      for (int64_t c = 0; c < source.chunks; ++c) {
        Value part = (*input)[i + c];
        if (isPartial(source, c)) {
          Value at = add(lane, c * source.lanes);
          part =
              arith::SelectOp::create(b, isBelow(at, source.size), part, zero);
        }
        total = total ? Value(arith::AddFOp::create(b, total, part)) : part;
      }
      Value sum =
          vector::ReductionOp::create(b, vector::CombiningKind::ADD, total);
      sums.push_back(sumOverLanes(sum, source.lanes));
    }
  }
  if (to.getRank() == 1)
    return Components(sums);
  // The dimension before becomes the last one.
  int64_t count = to.getShape().back();
  Components result;
  for (int64_t i = 0; i < int64_t(sums.size()); i += count) {
    ArrayRef<Value> mine = ArrayRef(sums).slice(i, count);
    if (!place.isRow) {
      llvm::append_range(result, assemble(mine, place));
      continue;
    }
    Value at = rowIn(count);
    Value chosen = mine[0];
    for (int64_t k = 1; k < count; ++k)
      chosen = arith::SelectOp::create(
          b,
          arith::CmpIOp::create(b, arith::CmpIPredicate::eq, at,
                                constantIndex(k)),
          mine[k], chosen);
    result.push_back(chosen);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Rotations
//===----------------------------------------------------------------------===//

FailureOr<GpuKernel::Components> GpuKernel::emitRotate(RotateOp op,
                                                       const Place &place) {
  if (dependsOnRows(op.getResult())) {
    InFlightDiagnostic error =
        op.emitError("cannot be lowered for GPUs: what is rotated comes from a "
                     "read of a state");
    error.attachNote()
        << "rotate keys and queries before they meet a state, or "
           "decode on the CPU";
    return error;
  }
  Place spread = placeOf(op.getResult().getType(), false);
  if (place.isRow)
    return exchange(op.getResult(), spread, place);
  FailureOr<Components> input = get(op.getInput(), place);
  RankedTensorType angleType = op.getAngle().getType();
  int64_t pairs = angleType.getShape().back();
  FailureOr<Value> angles = whole(op.getAngle(), keyPlace(pairs));
  if (failed(input) || failed(angles))
    return failure();
  // (x, y) to (x cos - y sin, x sin + y cos), for elements 2p and 2p + 1.
  Components result;
  for (auto [i, mine] : llvm::enumerate(*input)) {
    int64_t component = static_cast<int64_t>(i) / place.chunks;
    Value first = chunkStart(place, static_cast<int64_t>(i) % place.chunks);
    SmallVector<Value> parts;
    for (int64_t e = 0; e < place.width; ++e)
      parts.push_back(vector::ExtractOp::create(b, mine, e));
    auto angleOf = [&](Value element) {
      Value pair = arith::DivUIOp::create(b, element, constantIndex(2));
      pair = arith::MinUIOp::create(b, pair, constantIndex(pairs - 1));
      Value angle = memref::LoadOp::create(
          b, *angles, ValueRange{constantIndex(component), pair});
      return std::pair<Value, Value>(math::CosOp::create(b, angle),
                                     math::SinOp::create(b, angle));
    };
    SmallVector<Value> rotated;
    for (int64_t e = 0; e < place.width; ++e) {
      Value at = add(first, e);
      auto [cosine, sine] = angleOf(at);
      // A lane has both of a pair, or its neighbour has the other.
      bool isSecond = e % 2 == 1;
      Value other, sign;
      if (place.width > 1) {
        other = parts[e ^ 1];
        sign = isSecond ? sine : Value(arith::NegFOp::create(b, sine));
      } else {
        other = lanes > 1
                    ? shuffleXor(parts[e], 1)
                    : Value(vector::ExtractOp::create(
                          b, (*input)[std::min(i ^ 1, input->size() - 1)], 0));
        Value odd = arith::CmpIOp::create(
            b, arith::CmpIPredicate::eq,
            arith::RemUIOp::create(b, at, constantIndex(2)), constantIndex(1));
        sign = arith::SelectOp::create(b, odd, sine,
                                       arith::NegFOp::create(b, sine));
      }
      Value turned =
          arith::AddFOp::create(b, arith::MulFOp::create(b, parts[e], cosine),
                                arith::MulFOp::create(b, other, sign));
      rotated.push_back(
          arith::SelectOp::create(b, isBelow(at, 2 * pairs), turned, parts[e]));
    }
    result.push_back(vector::FromElementsOp::create(
        b, cast<VectorType>(mine.getType()), rotated));
  }
  return result;
}
