//===- SegmentPrompts.h - prompts of a segmented cache ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token of a prompt attends to the sinks, and to the tokens of its segment up
// to it; what came before its segment it sees through the memory. A call is
// four kernels for as many tokens as there is memory for, and four more for the
// next ones:
//
// - `_fold`, a segment of a head and some rows of its memory: the sums of what
//   the segment adds, by itself;
// - `_scan`, some elements of a head's memory: segment by segment the memory
//   before it takes the place of what it adds, and the last one is the pool's;
//   notes where each row stands;
// - `_attend`: tiles of queries, as of other attentions; a warp then reads the
//   memories that its queries see, and answers by what the step yields;
// - `_keep`, a warp a token: what stays goes into the cache; moves cursors.
//
// A memory is `segment_memory` [memories, cache heads, dk, dv] and
// `segment_keys` of as many rows. Those of a row begin behind one for each
// segment that fits into the tokens before it, and one for each row.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_SEGMENTPROMPTS_H
#define LADLE_PASSES_GPU_SEGMENTPROMPTS_H

#include "passes/gpu/BoundedPromptCache.h"

namespace ladle {

/// What a step over a segmented cache does, if these kernels can do it.
struct SegmentPromptPlan : BoundedPromptTokens {
  FoldFromOp fold;
  mlir::Value answer; ///< without casts

  static std::optional<SegmentPromptPlan> of(AttentionStepOp step);
};

/// A parameter's matrix, by which a vector of each head is multiplied.
struct SegmentProduct {
  mlir::BlockArgument matrix; ///< [1, rows, columns]
  mlir::Value vector;         ///< [heads, columns]

  static std::optional<SegmentProduct> of(SumOp op);
};

class GpuSegmentPrompts final : public GpuBoundedPromptCache {
public:
  GpuSegmentPrompts(AttentionStepOp step, const SegmentPromptPlan &given,
                    int64_t shared, mlir::OpBuilder &builder)
      : GpuBoundedPromptCache(step, given, shared, builder,
                              AttentionForm::PrefillAmend),
        given(given) {}

  mlir::LogicalResult build() override;

protected:
  std::pair<mlir::Value, mlir::Value> tokensOf(mlir::Value ofRow) override;
  mlir::Value rowOfKey(mlir::Value slot, mlir::Value key,
                       mlir::Value cacheHead) override;
  void openPrompt(mlir::Value row) override;
  void openSegment(mlir::Value which) override;
  void enterTile(mlir::Value tile) override;
  Values addKeys(mlir::Value tile, mlir::ValueRange before) override;
  void storeAnswers(mlir::ValueRange carried) override;

private:
  //===--- SegmentPrompts.cpp: rows, positions and keys -------------------===//
  mlir::Value foldsAt(mlir::Value position);
  mlir::Value bound(mlir::Value which);
  /// Segments that a query of the lane sees.
  mlir::Value foldsOf(int64_t query) { return bound(index(kFolds + query)); }
  mlir::Value firstMemory();

  //===--- SegmentFold.cpp: what segments add to the memory ---------------===//
  void buildFold();
  void foldSegment(mlir::Value which);
  mlir::Value featuresOf(mlir::Value keys);
  Values addTokens(mlir::Value tile, mlir::ValueRange before);
  void buildScan();
  void scanElements(mlir::Value part);
  void scanSums();
  void noteRow();

  //===--- SegmentKeep.cpp: what stays ------------------------------------===//
  void buildKeep();
  void keepToken(mlir::Value token);
  void moveCursors();

  //===--- SegmentAnswers.cpp: an answer, some elements at a time ---------===//
  /// Of a query of the lane, elements that lie side by side; in a block of a
  /// vector they are those of a column that products leave the lane.
  struct Site {
    int64_t query, column, block, width;
    mlir::Value element;
  };
  /// Elements of a lane that lie side by side, of a vector of so many.
  int64_t partOf(int64_t size) const;
  int64_t blocksOf(int64_t size) const;
  mlir::Value elementOf(int64_t size, int64_t block, int64_t column);
  void keepExact();
  void answerAll(bool hasMemory);
  void computeProducts(mlir::Value value, int64_t block);
  mlir::Value vectorAt(mlir::Value value, const Site &site);
  mlir::Value argumentAt(mlir::BlockArgument argument, const Site &site);
  mlir::Value applied(mlir::Operation *op, const Site &site);
  /// Of a block of a vector: queries by columns.
  llvm::ArrayRef<mlir::Value> blockOf(mlir::Value value, int64_t block);

  //===--- SegmentProducts.cpp: memories and matrices ---------------------===//
  /// Numbers of 16 bits that add up to those of f32.
  Values split(mlir::Value vector);
  mlir::Value oneOf(llvm::ArrayRef<mlir::Value> choices, mlir::Value which);
  mlir::Value multiply(llvm::ArrayRef<mlir::Value> lhs,
                       llvm::ArrayRef<mlir::Value> rhs, mlir::Value sum);
  Values columnsOf(llvm::ArrayRef<mlir::Value> fragments);
  Values recall(RecallOp op, int64_t block);
  /// Where a memory is, and how many segments it holds.
  struct Memory {
    mlir::Value matrix, sums, row, folds;
  };
  Values recallFrom(const Memory &from, RecallOp op, int64_t block,
                    mlir::ValueRange before);
  Values multiplyMatrix(const SegmentProduct &product, int64_t rows,
                        int64_t block);

  SegmentPromptPlan given;
  int64_t sinks = 0, window = 0, segment = 1;
  int64_t mostBytes = 0; ///< of shared memory, beside bounds
  bool folding = false;  ///< the kernel that is built goes through a segment

  // Of a row and a head: segments in its memory before and after these tokens.
  mlir::Value folds, nextFolds;
  // Of a tile: tiles of sinks, the first position behind them, keys before it.
  mlir::Value sinkTiles, firstOwn, sinkKeys;
  /// Of each thread: in tiles of sinks and of others, where keys begin and end
  /// for its two queries and for its warp; segments that its queries see, and
  /// the first and the last one of its warp.
  mlir::Value bounds;
  static constexpr int64_t kSinkBounds = 0, kOwnBounds = 6, kFolds = 12,
                           kWarpFolds = 14, kBoundsOfThread = 16;
  // Of a segment that is folded: its first position, and the row of the lane.
  mlir::Value firstOfSegment, featureRow;
  // Of an answer.
  mlir::Value warpFolds[2];
  Values exact[2];
  mlir::Value sharedExact[2];
  bool isRemembered = false;
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, Values> blocks;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_SEGMENTPROMPTS_H
