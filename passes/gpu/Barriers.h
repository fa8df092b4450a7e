//===- Barriers.h - barriers of parts of a block ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BARRIERS_H
#define LADLE_PASSES_GPU_BARRIERS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

/// Where so many threads of a block meet: barrier `which` of its 16, the first
/// of which is that of all.
inline void meetAt(mlir::ImplicitLocOpBuilder &b, int64_t which,
                   int64_t threads) {
  auto integer = [&](int64_t value) -> mlir::Value {
    return mlir::arith::ConstantIntOp::create(b, value, /*width=*/32);
  };
  mlir::NVVM::BarrierOp::create(
      b, mlir::TypeRange(), integer(which), integer(threads),
      mlir::NVVM::BarrierReductionAttr(), mlir::Value());
}

} // namespace ladle

#endif // LADLE_PASSES_GPU_BARRIERS_H
