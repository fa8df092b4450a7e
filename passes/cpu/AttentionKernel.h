//===- AttentionKernel.h - a step of an attention as functions --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step becomes three functions, find, attend and finish, of the same
// arguments; runtime/AttentionKernels.h says what these are.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_ATTENTIONKERNEL_H
#define LADLE_PASSES_CPU_ATTENTIONKERNEL_H

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace ladle {

class AttentionKernel {
public:
  AttentionKernel(AttentionStepOp step, mlir::OpBuilder &builder)
      : step(step), b(step.getLoc(), builder) {}

  /// Builds the functions before the step. Diagnostics name what cannot be
  /// lowered.
  mlir::LogicalResult build();

private:
  /// Tokens that are attended to together.
  static constexpr int64_t kBlock = 16;

  //===--- AttentionKernel.cpp: arguments, matches, pieces ----------------===//
  void createFunction(llvm::StringRef suffix);
  void buildFind(FindOp find);
  void buildAttend(AttendOp attend);
  void initializePiece(AttendOp attend, mlir::Value queries, mlir::Value lower);
  void widenBlock(mlir::Value block, mlir::Value keys, mlir::Value values);
  void addBlock(mlir::Value block, mlir::Value head, mlir::Value queries,
                mlir::Value lower, mlir::Value keys, mlir::Value values);

  //===--- AttentionSummaries.cpp: what is done with summaries ------------===//
  /// (m, Z, A) of one head: two numbers and a vector.
  struct Summary {
    mlir::Value most, sum, values;
  };
  void buildFinish();
  Summary emptySummary();
  Summary loadPieces(mlir::Value first, mlir::Value last, mlir::Value group);
  Summary merge(const Summary &lhs, const Summary &rhs);
  Summary reuse(ReuseOp op);
  Summary loadStored(mlir::Value condition, int64_t part);
  mlir::Value normalize(const Summary &summary);
  void store(StoreSummaryOp op, llvm::ArrayRef<Summary> parts);
  void updateMoment(mlir::Value query);
  void openMatch();

  //===--- Small things ---------------------------------------------------===//
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
  mlir::Value ringEntry(mlir::Value offset);
  mlir::Value maximum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value minimum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value isLess(mlir::Value lhs, mlir::Value rhs);
  mlir::Value memoryOf(mlir::Value value) const;

  AttentionStepOp step;
  mlir::ImplicitLocOpBuilder b;
  mlir::func::FuncOp function;
  int64_t heads = 0, cacheHeads = 0, keySize = 0, valueSize = 0;
  RingType ring;
  llvm::SmallVector<AttendOp> attends;

  // The arguments of the function that is being built.
  mlir::Value row, slot, headBegin, headEnd, position, count, newest, begin,
      end, piece, usesStarts, storesEntry, entry, amended, band, sinks, wide,
      wideGap, maxChain, limit, driftLimit;
  llvm::SmallVector<mlir::Value> bounds; // of the pieces of each attend
  llvm::DenseMap<mlir::Value, mlir::Value> memory; // of params and tokens
  mlir::Value output, keyPages, valuePages, table, pieceValues, pieceSums;
  mlir::Value hits, starts, ringQueries, ringRotated, ringValues, ringSums,
      ringDepths, ringEnds, ringMoments;

  // The head whose summaries are finished, and its match.
  mlir::Value head, hit, isHit, hitEntry, isFar, isInside, wideBound;
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_ATTENTIONKERNEL_H
