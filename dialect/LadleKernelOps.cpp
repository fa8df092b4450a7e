//===- LadleKernelOps.cpp - what kernels of a GPU ask for -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace ladle;

/// Columns that lie together, and bits of a column's terms that do.
static constexpr int64_t kTileColumns = 8, kBitsTogether = 128;
/// Columns of a product.
static constexpr int64_t kFewestColumns = 16, kMostColumns = 128;

LogicalResult WarpgroupProductOp::verify() {
  if (getSums().size() != getNumResults())
    return emitOpError() << "has " << getSums().size() << " tiles of sums and "
                         << getNumResults() << " results";
  int64_t columns = static_cast<int64_t>(getSums().size()) * kTileColumns;
  if (columns < kFewestColumns || columns > kMostColumns ||
      !llvm::isPowerOf2_64(getSums().size()))
    return emitOpError() << "must have " << kFewestColumns << " to "
                         << kMostColumns << " columns, a power of two, got "
                         << columns;
  if (getLefts().size() != getRights().size() || getLefts().empty())
    return emitOpError() << "has " << getLefts().size() << " left sides and "
                         << getRights().size() << " right sides";
  MemRefType type = getMemory().getType();
  if (!type.hasStaticShape() || !type.areTrailingDimsContiguous(type.getRank()))
    return emitOpError() << "takes memory of known size and without gaps, got "
                         << type;
  Type element = type.getElementType();
  for (Type left : getLefts().getTypes())
    if (cast<VectorType>(left).getElementType() != element)
      return emitOpError() << "takes left sides of " << element << ", got "
                           << left;
  if (getTransposed() && element.isF32())
    return emitOpError() << "transposes bf16 alone";
  int64_t terms = kBitsTogether / element.getIntOrFloatBitWidth();
  int64_t across = getAcross(), along = getAlong();
  // From the first element of a right side to behind the last.
  int64_t size =
      across + (columns / kTileColumns - 1) * along + kTileColumns * terms;
  for (int64_t distance : {across, along})
    if (distance < 0 || distance % terms != 0)
      return emitOpError() << "takes " << terms
                           << " elements together, which lie no " << distance
                           << " apart";
  for (int64_t right : getRights())
    if (right < 0 || right % terms != 0 || right + size > type.getNumElements())
      return emitOpError() << "takes " << size << " elements from " << right
                           << " on, a multiple of " << terms << ", of "
                           << type.getNumElements();
  return success();
}
