//===- Conditional.h - what only some rows compute --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CONDITIONAL_H
#define LADLE_PASSES_GPU_CONDITIONAL_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

/// Makes `values` zero where `condition`, which is the same for all threads of
/// a block, does not hold. Nobody computes them there, once `sinkConditional`
/// has moved what only they need.
void computeIf(mlir::ImplicitLocOpBuilder &b, mlir::Value condition,
               llvm::ArrayRef<mlir::Value *> values);

/// Moves what only values of `computeIf` need to where these are computed.
void sinkConditional(mlir::gpu::GPUFuncOp function);

} // namespace ladle

#endif // LADLE_PASSES_GPU_CONDITIONAL_H
