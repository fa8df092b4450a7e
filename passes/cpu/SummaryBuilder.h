//===- SummaryBuilder.h - vectors and summaries on the CPU ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the kernels of all attentions are written with.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_SUMMARYBUILDER_H
#define LADLE_PASSES_CPU_SUMMARYBUILDER_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

class SummaryBuilder {
protected:
  SummaryBuilder(mlir::Location loc, mlir::OpBuilder &builder)
      : b(loc, builder) {}

  /// Tokens that are attended to together.
  static constexpr int64_t kBlock = 16;

  /// (m, Z, A) of one head: two numbers and a vector.
  struct Summary {
    mlir::Value most, sum, values;
  };
  Summary emptySummary();
  Summary merge(const Summary &lhs, const Summary &rhs);
  /// A / Z, or 0 for an empty summary.
  mlir::Value normalize(const Summary &summary);

  mlir::Value index(int64_t value);
  mlir::Value number(double value);
  mlir::Value splat(mlir::Value scalar, int64_t width);
  /// In f32, whatever the memory holds.
  mlir::Value load(mlir::Value memory, mlir::ValueRange indices, int64_t width);
  void store(mlir::Value vector, mlir::Value memory, mlir::ValueRange indices);
  mlir::Value loadIndex(mlir::Value memory, mlir::ValueRange indices);
  mlir::Value dot(mlir::Value lhs, mlir::Value rhs);
  mlir::Value exp(mlir::Value value);
  /// 0 for −∞, so that a difference is never NaN.
  mlir::Value finite(mlir::Value most);
  mlir::Value maximum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value minimum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value isLess(mlir::Value lhs, mlir::Value rhs);

  mlir::ImplicitLocOpBuilder b;
  int64_t keySize = 0, valueSize = 0;
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_SUMMARYBUILDER_H
