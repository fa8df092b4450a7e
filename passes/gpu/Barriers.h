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
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

/// Where so many threads of a block meet: barrier `which` of its 16, the first
/// of which is that of all.
inline void meetAt(mlir::ImplicitLocOpBuilder &b, mlir::Value which,
                   int64_t threads) {
  mlir::Value count =
      mlir::arith::ConstantIntOp::create(b, threads, /*width=*/32);
  if (std::optional<int64_t> number = mlir::getConstantIntValue(which);
      number && which.getType().isIndex())
    which = mlir::arith::ConstantIntOp::create(b, *number, /*width=*/32);
  if (which.getType().isIndex())
    which = mlir::arith::IndexCastOp::create(b, b.getI32Type(), which);
  mlir::NVVM::BarrierOp::create(b, mlir::TypeRange(), which, count,
                                mlir::NVVM::BarrierReductionAttr(),
                                mlir::Value());
}

inline void meetAt(mlir::ImplicitLocOpBuilder &b, int64_t which,
                   int64_t threads) {
  meetAt(b, mlir::arith::ConstantIntOp::create(b, which, /*width=*/32),
         threads);
}

} // namespace ladle

#endif // LADLE_PASSES_GPU_BARRIERS_H
