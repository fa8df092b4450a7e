//===- AffineForm.h - values as linear combinations of reads ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_AFFINEFORM_H
#define LADLE_PASSES_ANALYSIS_AFFINEFORM_H

#include "mlir/IR/Builders.h"
#include "passes/analysis/OperandClasses.h"

namespace ladle {

/// One read of a linear combination. `coefficient` is f32 of shape [h], where
/// h divides the heads of the state; null stands for 1.
struct AffineTerm {
  ReadOp read;
  mlir::Value coefficient;
};

/// Σ coefficient · read + remainder. Every read occurs once and has the shape
/// of the whole; the remainder is token-only; null stands for 0.
struct AffineForm {
  llvm::SmallVector<AffineTerm> terms;
  mlir::Value remainder;
};

/// Writes `value`, a value of a recurrence's body, as a linear combination of
/// reads, one number a head. Coefficients and remainder are built at the
/// insertion point of `builder`. Fails, and builds nothing, if there is no
/// such form; prints no diagnostic.
mlir::FailureOr<AffineForm> decomposeAffine(mlir::Value value,
                                            mlir::OpBuilder &builder);

/// Why a value has no affine form. `op` may be null.
struct AffineObstacle {
  mlir::Operation *op = nullptr;
  std::string reason;
};

/// The reads of the affine form of `value`, which is not built. A failure is
/// explained by `obstacle`.
mlir::FailureOr<llvm::SmallVector<ReadOp>>
findAffineReads(mlir::Value value, const OperandClasses &classes,
                AffineObstacle &obstacle);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_AFFINEFORM_H
