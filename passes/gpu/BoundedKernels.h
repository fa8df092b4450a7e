//===- BoundedKernels.h - a bounded attention as GPU kernels ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step over a cache that gives up tokens becomes two kernels:
//
// - `_attend`: blocks along x take pieces of what a head of the cache holds, as
//   those of GpuAttention do;
// - `_finish`, a row and a head of the cache: merges the pieces, updates and
//   reads the memory in one go, evaluates the outputs, notes weights, and
//   chooses the token that leaves before the next one is answered. A cache that
//   evicts has one entry more than its budget: what the next token takes is
//   what this one left free, so that nobody reads what another block
//   overwrites.
//
// Each waits for the kernel ahead of it and lets the next one start, so that
// launches overlap (programmatic dependent launch). An `_attend` that is told
// to start early waits when its first keys are on their way, before it writes.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BOUNDEDKERNELS_H
#define LADLE_PASSES_GPU_BOUNDEDKERNELS_H

#include "passes/gpu/AttentionKernels.h"

namespace ladle {

class GpuBounded : public GpuAttention {
public:
  using GpuAttention::GpuAttention;

  mlir::LogicalResult build() override;

protected:
  mlir::Value rowOfKey(mlir::Value slot, mlir::Value key,
                       mlir::Value cacheHead) override;
  void keepScores(llvm::ArrayRef<mlir::Value> keysOfLane,
                  llvm::ArrayRef<mlir::Value> score) override;
  void beforeScores() override { waitForPrevious(); }

private:
  using Indices = llvm::ArrayRef<mlir::Value>;

  //===--- BoundedKernels.cpp: what a step is, cursors
  //---------------------===//
  mlir::LogicalResult checkStep();
  mlir::LogicalResult checkSizes();
  /// The token that is answered, and the slot; −1 where there is none.
  mlir::Value openToken();
  void openCursor(mlir::Value ofSlot, mlir::Value ofHead);
  /// Begins a kernel that starts early; `waitForPrevious` comes before it
  /// reads what others write.
  void createEarlyKernel(llvm::StringRef suffix, int64_t threads,
                         int64_t blocks);
  void waitForPrevious();
  void letNextStart();

  mlir::Value entryOfKey(mlir::Value key);

  //===--- BoundedAttend.cpp: pieces
  //---------------------------------------===//
  void buildAttend();
  void attendPieces(mlir::Value block, mlir::Value task);
  void appendToken();

  //===--- BoundedMemory.cpp: its matrix
  //-----------------------------------===//
  void declareMemory();
  mlir::LogicalResult readMemory();
  mlir::LogicalResult gatherFeatures();
  mlir::FailureOr<Values> nextRows(llvm::ArrayRef<mlir::Value> rows);
  mlir::FailureOr<Values> foldSegments(llvm::ArrayRef<mlir::Value> rows,
                                       mlir::ValueRange old);
  /// What was read of it at a place of [group, dv], and divisors behind them.
  mlir::Value partsOfMemory(mlir::Value at);

  //===--- BoundedFinish.cpp: the answer
  //-----------------------------------===//
  mlir::LogicalResult buildFinish();
  void mergePieces();
  void mergeRecalled();
  mlir::LogicalResult updateTaylor();
  void mergeTaylor();
  mlir::LogicalResult
  storeOutput(llvm::function_ref<mlir::FailureOr<mlir::Value>(mlir::Value local,
                                                              mlir::Value at)>
                  element);
  mlir::LogicalResult answer();
  void moveCursor();

  //===--- BoundedEviction.cpp: weights, and who leaves
  //--------------------===//
  void declareEviction();
  mlir::LogicalResult checkEviction();
  void noteWeights();
  void weigh();
  void addEarlierWeights();
  void combineWeights();
  void reorder();
  void chooseNext();

  //===--- BoundedValues.cpp: arithmetic, an element at a time
  //-------------===//
  /// Of the head `head` of the query; `indices` without the heads.
  mlir::FailureOr<mlir::Value> element(mlir::Value value, Indices indices);
  mlir::FailureOr<mlir::Value> argument(mlir::BlockArgument argument,
                                        Indices indices);
  mlir::FailureOr<mlir::Value> elementwise(mlir::Operation *op,
                                           Indices indices);
  /// (m, Z, A) at an element of the values.
  struct Triple {
    mlir::Value most, sum, value;
  };
  mlir::FailureOr<Triple> summaryAt(mlir::Value summary, mlir::Value at);
  /// Sums that `value` needs, into shared memory.
  mlir::LogicalResult materialize(mlir::Value value);

  // What the step is.
  AttendOp attend;
  AppendOp append;
  EvictFromOp evict;
  FoldFromOp fold;
  NoteWeightsOp note;
  TaylorOp taylor;
  RecallOp recall;
  MemoryType memory;
  int64_t capacity = 0, stride = 0; ///< entries, and those of a row of weights
  int64_t sinks = 0, segment = 0, queriesKept = 0;

  // Where a head of a slot stands; folded: whether a segment leaves now.
  mlir::Value rowNumber, of, isToken, remaining, firstHead, cursorRow, position,
      count, newEntry, victim, evicted, budget, seen, folds, foldCount,
      isFolding, nextFolds, attended, kept;

  // Of the head of the cache that is finished, and the head of the query among
  // those that share it.
  mlir::Value local, leaves, held, nextVictim, sharedMosts, sharedSums,
      sharedValues, sharedMemory, sharedNumbers, sharedKeySums, sharedValueSums,
      sharedFeatures, sharedParts, spreadNow, salience, ages, earlier, before,
      after, warpBest, warpBestAt;
  mlir::Value keyRow; ///< of the key whose features are asked for
  llvm::DenseMap<mlir::Value, mlir::Value> materialized;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDKERNELS_H
