//===- ChunkTurns.cpp - vectors of tokens that are turned -----------------===//
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
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

/// (x, y) to (x cos - y sin, x sin + y cos), for elements 2p and 2p + 1.
FailureOr<GpuKernel::Components>
GpuChunkKernel::emitTurned(RotateOp op, const Place &place) {
  FailureOr<Components> input = get(op.getInput(), place);
  FailureOr<Stack> angles = materialise(op.getAngle());
  if (failed(input) || failed(angles))
    return failure();
  RankedTensorType angleType = op.getAngle().getType();
  int64_t pairs = angleType.getShape().back();
  int64_t ofAngles = componentCount(angleType);
  Value first = add(times(current.token, angles->step), angles->first);
  Components result;
  for (auto [i, mine] : llvm::enumerate(*input)) {
    int64_t c = static_cast<int64_t>(i) % place.chunks;
    int64_t component = static_cast<int64_t>(i) / place.chunks;
    Value row = add(first, ofAngles == 1 ? 0 : component);
    Value start = chunkStart(place, c);
    SmallVector<Value> parts, turned;
    for (int64_t e = 0; e < place.width; ++e)
      parts.push_back(vector::ExtractOp::create(b, mine, e));
    for (int64_t e = 0; e < place.width; ++e) {
      Value at = add(start, e);
      Value pair =
          arith::MinUIOp::create(b, over(at, 2), constantIndex(pairs - 1));
      Value angle =
          memref::LoadOp::create(b, angles->memory, ValueRange{row, pair});
      Value cosine = math::CosOp::create(b, angle);
      Value sine = math::SinOp::create(b, angle);
      // A lane has both of a pair, or its neighbour has the other.
      Value other;
      if (place.width > 1)
        other = parts[e ^ 1];
      else if (place.lanes > 1)
        other = shuffleXor(parts[e], 1);
      else
        other = vector::ExtractOp::create(
            b, (*input)[std::min(i ^ 1, input->size() - 1)], 0);
      Value isOdd = compare(arith::CmpIPredicate::eq,
                            arith::RemUIOp::create(b, at, constantIndex(2)),
                            constantIndex(1));
      Value sign = arith::SelectOp::create(b, isOdd, sine,
                                           arith::NegFOp::create(b, sine));
      Value sum =
          arith::AddFOp::create(b, arith::MulFOp::create(b, parts[e], cosine),
                                arith::MulFOp::create(b, other, sign));
      turned.push_back(
          arith::SelectOp::create(b, isBelow(at, 2 * pairs), sum, parts[e]));
    }
    result.push_back(vector::FromElementsOp::create(
        b, cast<VectorType>(mine.getType()), turned));
  }
  return result;
}
