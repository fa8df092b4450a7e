//===- AttentionPlan.h - what a step of an attention is made of -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_ATTENTIONPLAN_H
#define LADLE_PASSES_ANALYSIS_ATTENTIONPLAN_H

#include "dialect/LadleOps.h"

namespace ladle {

/// The operations and sizes of a step that can be lowered: one query attends to
/// pieces of the cache, and at most one match and one summary to store.
struct AttentionPlan {
  /// The most pieces of a history that are attended to apart.
  static constexpr size_t mostAttends = 4;

  llvm::SmallVector<AttendOp> attends;
  FindOp find;
  StoreSummaryOp store;
  RingType ring; ///< null without one
  int64_t heads = 0, cacheHeads = 0, keySize = 0, valueSize = 0, pageSize = 0;
  mlir::Type keyType, valueType;
  mlir::RankedTensorType output;

  int64_t group() const { return heads / cacheHeads; }

  /// Emits what cannot be lowered.
  static mlir::FailureOr<AttentionPlan> of(AttentionStepOp step);
};

/// The argument behind a value that is widened at most.
mlir::Value unwidened(mlir::Value value);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_ATTENTIONPLAN_H
