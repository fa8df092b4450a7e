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
#include "passes/cpu/TokenBlocks.h"

namespace ladle {

class AttentionKernel : TokenBlocks {
public:
  AttentionKernel(AttentionStepOp step, mlir::OpBuilder &builder,
                  const CpuVectors &vectors)
      : TokenBlocks(step.getLoc(), builder, vectors), step(step) {}

  /// Builds the functions before the step. Diagnostics name what cannot be
  /// lowered.
  mlir::LogicalResult build();

private:
  //===--- AttentionKernel.cpp: arguments, matches, pieces ----------------===//
  void createFunction(llvm::StringRef suffix);
  void buildFind(FindOp find);
  void buildAttend(AttendOp attend);
  mlir::Value firstOf(mlir::Value head);

  //===--- AttentionSummaries.cpp: what is done with summaries ------------===//
  void buildFinish();
  Summary loadPieces(mlir::Value first, mlir::Value last, mlir::Value group);
  Summary reuse(ReuseOp op);
  Summary loadStored(mlir::Value condition, int64_t part);
  using SummaryBuilder::store;
  void store(StoreSummaryOp op, llvm::ArrayRef<Summary> parts);
  void updateMoment(mlir::Value square, mlir::Value isNumber);
  void openMatch();

  //===--- Small things ---------------------------------------------------===//
  mlir::Value ringEntry(mlir::Value offset);
  mlir::Value memoryOf(mlir::Value value) const;

  AttentionStepOp step;
  mlir::func::FuncOp function;
  int64_t heads = 0, cacheHeads = 0;
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
