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
//   those of GpuAttention do; the first few of them a part of the memory's
//   rows, which they update and read in one go;
// - `_finish`, a row and a head of the cache: merges the pieces, evaluates the
//   outputs, notes weights, and chooses the token that leaves before the next
//   one is answered. A cache that evicts has one entry more than its budget:
//   what the next token takes is what this one left free, so that nobody reads
//   what another block overwrites.
//
// Each waits for the kernel ahead of it and lets the next one start, so that
// launches overlap (programmatic dependent launch).
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BOUNDEDKERNELS_H
#define LADLE_PASSES_GPU_BOUNDEDKERNELS_H

#include "passes/gpu/AttentionKernels.h"

namespace ladle {

class GpuBounded : public GpuAttention {
public:
  using GpuAttention::GpuAttention;

  mlir::LogicalResult build();

protected:
  mlir::Value rowOfKey(mlir::Value slot, mlir::Value key,
                       mlir::Value cacheHead) override;
  void maskScores(llvm::ArrayRef<mlir::Value> keysOfLane,
                  llvm::MutableArrayRef<mlir::Value> score) override;

private:
  using Indices = llvm::ArrayRef<mlir::Value>;

  //===--- BoundedKernels.cpp: what a step is, cursors
  //---------------------===//
  mlir::LogicalResult checkStep();
  mlir::LogicalResult checkSizes();
  /// The token that is answered, and the slot; −1 where there is none.
  mlir::Value openToken();
  void openCursor(mlir::Value ofSlot, mlir::Value ofHead);
  /// Blocks that take a part of the memory.
  int64_t memoryBlocks() const;
  /// Begins a kernel that starts early; `waitForPrevious` comes before it
  /// reads what others write.
  void createEarlyKernel(llvm::StringRef suffix, int64_t threads);
  void waitForPrevious();
  void letNextStart();

  //===--- BoundedAttend.cpp: pieces and the memory
  //------------------------===//
  mlir::LogicalResult buildAttend();
  void attendPieces(mlir::Value block, mlir::Value task);
  void appendToken();
  mlir::LogicalResult readMemory(mlir::Value block, mlir::Value parts,
                                 mlir::Value features);
  mlir::LogicalResult gatherFeatures(mlir::Value block, mlir::Value into);
  /// Rows of the memory, and their elements of z, after the folds of segments.
  mlir::FailureOr<Values> foldSegments(llvm::ArrayRef<mlir::Value> rows,
                                       mlir::ValueRange old);

  //===--- BoundedFinish.cpp: the answer
  //-----------------------------------===//
  mlir::LogicalResult buildFinish();
  void mergePieces();
  mlir::Value partsOfMemory(mlir::Value at);
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
  mlir::Value addedWeight(mlir::Value entry, mlir::Value weight);
  mlir::Value salienceOf(mlir::Value entry, mlir::Value weight);
  void noteWeights();
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
      spreadNow, salience, before, after, warpBest, warpBestAt;
  mlir::Value keyRow; ///< of the key whose features are asked for
  llvm::DenseMap<mlir::Value, mlir::Value> materialized;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDKERNELS_H
