//===- LadleTokenOps.cpp - arithmetic of one token ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "llvm/ADT/SmallVectorExtras.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// BroadcastOp
//===----------------------------------------------------------------------===//

LogicalResult BroadcastOp::verify() {
  ArrayRef<int64_t> from = getInput().getType().getShape();
  ArrayRef<int64_t> to = getResult().getType().getShape();
  ArrayRef<int64_t> dims = getDims();
  if (dims.size() != from.size())
    return emitOpError("needs one entry of dims for each of ")
           << from.size() << " dimensions, got " << dims.size();
  if (dims.front() != 0)
    return emitOpError("must map heads to heads: dims starts with ")
           << dims.front();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i && dims[i] <= dims[i - 1])
      return emitOpError("dims must increase");
    if (dims[i] < 0 || dims[i] >= static_cast<int64_t>(to.size()))
      return emitOpError("dims entry ")
             << dims[i] << " is outside of a result of rank " << to.size();
    if (i && to[dims[i]] != from[i])
      return emitOpError("dimension ")
             << i << " of size " << from[i] << " becomes dimension " << dims[i]
             << " of size " << to[dims[i]];
  }
  if (to[0] % from[0] != 0)
    return emitOpError() << from[0] << " heads do not divide " << to[0];
  return success();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  if (auto splat = dyn_cast_if_present<SplatElementsAttr>(adaptor.getInput()))
    return splat.resizeSplat(getResult().getType());
  // Repeating what was repeated is repeating once.
  if (auto inner = getInput().getDefiningOp<BroadcastOp>()) {
    SmallVector<int64_t> dims = llvm::map_to_vector(
        inner.getDims(), [&](int64_t dim) { return getDims()[dim]; });
    getInputMutable().assign(inner.getInput());
    setDims(dims);
    return getResult();
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Reductions and functions along a dimension
//===----------------------------------------------------------------------===//

LogicalResult SumOp::verify() {
  SmallVector<int64_t> shape(getInput().getType().getShape());
  int64_t dim = getDim();
  if (dim < 1 || dim >= static_cast<int64_t>(shape.size()))
    return emitOpError("cannot sum over dimension ")
           << dim << " of " << getInput().getType()
           << ": heads are never summed";
  shape.erase(shape.begin() + dim);
  if (getResult().getType().getShape() != ArrayRef(shape))
    return emitOpError("result must drop dimension ")
           << dim << ", got " << getResult().getType();
  return success();
}

LogicalResult L2NormOp::verify() {
  if (getInput().getType().getRank() < 2)
    return emitOpError("needs a dimension besides heads, got ")
           << getInput().getType();
  if (getEps().convertToDouble() < 0)
    return emitOpError("eps must not be negative, got ")
           << getEps().convertToDouble();
  return success();
}

LogicalResult RotateOp::verify() {
  ArrayRef<int64_t> input = getInput().getType().getShape();
  ArrayRef<int64_t> angle = getAngle().getType().getShape();
  if (input.size() < 2 || input.drop_back() != angle.drop_back() ||
      2 * angle.back() > input.back())
    return emitOpError("angle ")
           << getAngle().getType()
           << " must have the shape of the input but for its last dimension, "
              "which is at most half of the input's, "
           << getInput().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

static LogicalResult verifyWindow(Operation *op, RankedTensorType window,
                                  RankedTensorType input) {
  if (window.getRank() != 3 || input.getRank() != 2 ||
      window.getDimSize(0) != input.getDimSize(0) ||
      window.getDimSize(2) != input.getDimSize(1))
    return op->emitOpError("window ")
           << window << " must be [heads, W, D] for an input [heads, D], got "
           << input;
  return success();
}

LogicalResult ShiftOp::verify() {
  return verifyWindow(*this, getWindow().getType(), getInput().getType());
}

LogicalResult ConvOp::verify() {
  RankedTensorType window = getWindow().getType();
  RankedTensorType weight = getWeight().getType();
  if (failed(verifyWindow(*this, window, getInput().getType())))
    return failure();
  if (weight.getRank() != 3 || weight.getDimSize(0) != window.getDimSize(0) ||
      weight.getDimSize(1) != window.getDimSize(1) + 1 ||
      weight.getDimSize(2) != window.getDimSize(2))
    return emitOpError("weight ")
           << weight << " must be [heads, W + 1, D] for a window " << window;
  return success();
}
