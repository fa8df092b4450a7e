//===- Components.h - values as kernels have them ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// In a kernel, a [heads, R..., D] value is a list of components: numbers, or
// vectors along D, one for each element of the dimensions between, the last of
// these fastest. What is done with such a list is the same on every target.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_COMPONENTS_H
#define LADLE_PASSES_BUILD_COMPONENTS_H

#include "dialect/LadleOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

/// A number or a vector in another float type, rounded to the nearest.
mlir::Value convertElements(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                            mlir::Type elementType);

/// An elementwise operation on one component.
mlir::Value repeatElementwise(mlir::ImplicitLocOpBuilder &b,
                              mlir::Operation *op,
                              llvm::ArrayRef<mlir::Value> operands,
                              mlir::Type resultType);

/// A vector whose pairs (2i, 2i+1) are rotated by element i of `angle`, as
/// ladle.rotate says.
mlir::Value rotatePairs(mlir::ImplicitLocOpBuilder &b, mlir::Value input,
                        mlir::Value angle);

/// The components of a sum over a dimension between heads and the last. Each is
/// `parts` values, which lie one after the other.
llvm::SmallVector<mlir::Value> sumComponents(mlir::ImplicitLocOpBuilder &b,
                                             SumOp op,
                                             llvm::ArrayRef<mlir::Value> input,
                                             int64_t parts = 1);

/// Where a component of a broadcast comes from: a component of its input and,
/// if the input's last dimension is not the result's, an element of that.
struct BroadcastSource {
  int64_t component, element;
};
/// Of component `index` of the result. The broadcast adds dimensions.
BroadcastSource sourceOf(BroadcastOp op, int64_t index);
/// Whether it keeps vectors along the last dimension as they are.
bool keepsLastDimension(BroadcastOp op);

} // namespace ladle

#endif // LADLE_PASSES_BUILD_COMPONENTS_H
