//===- Dots.h - dot products of many rows -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_DOTS_H
#define LADLE_PASSES_CPU_DOTS_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

/// The sums over the lanes of each of at most 16 registers of 16 f32, a power
/// of two of them, as one vector.
mlir::Value sumLanes(mlir::ImplicitLocOpBuilder &b,
                     llvm::ArrayRef<mlir::Value> rows);

/// The products of two f32 vectors of a multiple of 16 elements, summed into 16
/// lanes.
mlir::Value partialDot(mlir::ImplicitLocOpBuilder &b, mlir::Value lhs,
                       mlir::Value rhs);

} // namespace ladle

#endif // LADLE_PASSES_CPU_DOTS_H
