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

/// One read of a linear combination: of the state that `read` takes, with
/// `query`. That is the query of `read`, or what has become of it where the
/// read is repeated over a rank, summed over one or multiplied by a number a
/// rank: a read is linear in its query. `coefficient` is f32 of shape [h],
/// where h divides the heads of the state; `scale` is one number a channel, of
/// the shape of the read, which that of the whole is; null stands for 1.
struct AffineTerm {
  ReadOp read;
  mlir::Value query;
  mlir::Value coefficient;
  mlir::Value scale;
};

/// Σ scale ∘ (coefficient · read) + remainder. Scales and the remainder are
/// token-only; null stands for 0.
struct AffineForm {
  llvm::SmallVector<AffineTerm> terms;
  mlir::Value remainder;
};

/// What a read may be multiplied by: numbers that are the same for all its
/// channels, or any.
enum class AffineScale { None, Channels };

/// Writes `value`, a value of a recurrence's body, as a linear combination of
/// reads. What it is made of is built at the insertion point of `builder`.
/// Fails, and builds nothing, if there is no such form; prints no diagnostic.
mlir::FailureOr<AffineForm>
decomposeAffine(mlir::Value value, mlir::OpBuilder &builder, AffineScale scale);

/// Why a value has no affine form. `op` may be null.
struct AffineObstacle {
  mlir::Operation *op = nullptr;
  std::string reason;
};

/// The reads of the affine form of `value`, which is not built. A failure is
/// explained by `obstacle`.
mlir::FailureOr<llvm::SmallVector<ReadOp>>
findAffineReads(mlir::Value value, const OperandClasses &classes,
                AffineScale scale, AffineObstacle &obstacle);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_AFFINEFORM_H
