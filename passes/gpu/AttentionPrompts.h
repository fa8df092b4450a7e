//===- AttentionPrompts.h - prompts of an attention as kernels --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The prompts of a batch become three kernels, however long they are:
//
// - `_append`, a warp a token: puts tokens into their pages, answers padding by
//   zeros, and notes where each row stands;
// - `_attend`: a block takes a tile of a prompt's queries for a head of the
//   cache, all heads of the query that share it among them, and goes through
//   the keys before them once. Where the prompt ends, tiles leave summaries for
//   later tokens, too;
// - `_finish`, a row, or a row and a head: what is left of the last tokens
//   beside their summaries, and cursors.
//
// Blocks find their tile by the lengths of prompts, which the device knows
// alone. A query's answer does not depend on its tile.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_ATTENTIONPROMPTS_H
#define LADLE_PASSES_GPU_ATTENTIONPROMPTS_H

#include "passes/gpu/AttentionKernels.h"

namespace ladle {

class GpuPrompts : public GpuAttention {
public:
  /// Of a step without a match. Blocks take `shared` bytes of shared memory at
  /// most; 0 is as on Hopper.
  GpuPrompts(AttentionStepOp step, int64_t shared, mlir::OpBuilder &builder,
             AttentionForm form = AttentionForm::PrefillAmend)
      : GpuAttention(step, form, shared, /*mostBlocks=*/1, builder) {}

  mlir::LogicalResult build() override;

protected:
  //===--- AttentionPrompts.cpp: tiles of queries -------------------------===//
  void choosePromptTiles();
  void declarePromptTiles();
  void buildPromptAttend();
  /// Which tile this block takes: the row + 1, or 0, and the tile of the row.
  /// `unitsOf` says of a row and its tokens how much there is in tiles of
  /// `unitsOfTile`.
  std::pair<mlir::Value, mlir::Value>
  findTile(mlir::Value wanted, int64_t unitsOfTile,
           llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value tokens)>
               unitsOf);
  /// The first token of a row that is answered, and how many there are; fewer
  /// than none is none.
  virtual std::pair<mlir::Value, mlir::Value> tokensOf(mlir::Value row);
  /// Where the row of a prompt stands, which is another's before it is noted.
  virtual void openPrompt(mlir::Value row);
  void openTile(mlir::Value row, mlir::Value tile);
  void answerTile();
  /// Goes through the keys of a segment.
  Values attendSegment(mlir::ValueRange carried);
  /// Before a tile of keys: may say anew what queries attend to.
  virtual void enterTile(mlir::Value tile) {}
  /// Where a key of a tile is, which all threads copy together.
  mlir::Value lookUpKey(mlir::Value tile);
  mlir::Value copyTile(mlir::Value tile);
  /// Copies 16 bytes of a key or a value from where it was looked up.
  virtual void copyChunk(bool isKey, mlir::Value place, mlir::Value element,
                         mlir::ValueRange into);
  void copyChunk(mlir::Value from, mlir::ValueRange at, mlir::Value to,
                 mlir::ValueRange into);

  //===--- AttentionPromptRanges.cpp: segments, and what they leave -------===//
  /// Keys that are attended to one after another. First come those of a stored
  /// summary, from its last part on, each of which is left by itself; with what
  /// the first part holds all others are summed up.
  struct Segment {
    Bound begin, end;
  };
  mlir::LogicalResult listSegments();
  virtual void openSegment(mlir::Value which);
  void leavePart(mlir::Value part, mlir::ValueRange carried);
  /// What a lane has of a query's sums, as vectors of what lies side by side.
  Values elementsOf(mlir::ValueRange totals, int64_t which);
  /// The sum of a query's weights, and its answer.
  std::pair<mlir::Value, Values> answerOf(mlir::ValueRange carried,
                                          int64_t which);
  void storeAnswer(llvm::ArrayRef<mlir::Value> answer, mlir::Value memory,
                   llvm::ArrayRef<mlir::Value> place);
  virtual void storeAnswers(mlir::ValueRange carried);

  //===--- AttentionPromptProducts.cpp: a tile of keys --------------------===//
  void loadTileQueries();
  void keepPlaces();
  /// Loads anew where the queries of a lane are, in place of registers.
  void findPlaces();
  Values operandsOf(mlir::Value low, mlir::Value high);
  Values queryOperands(int64_t which);
  virtual Values addKeys(mlir::Value tile, mlir::ValueRange before);
  Values scoresOfTile(mlir::Value tileRow);
  Values plainScores(mlir::Value tileRow);
  void addValuesOfTile(mlir::Value tileRow, llvm::ArrayRef<mlir::Value> weights,
                       Values &totals);
  void addPlainValues(mlir::Value tileRow, llvm::ArrayRef<mlir::Value> weights,
                      Values &totals);
  mlir::Value exp2(mlir::Value value);

  //===--- AttentionPromptRows.cpp: tokens and cursors --------------------===//
  void buildPromptAppend();
  mlir::Value rowOfToken(mlir::Value token);
  void appendToken(mlir::Value row, mlir::Value token);
  /// Copies a token into the rows of the cache that it has for each head.
  void storePrompt(AppendOp op, mlir::Value token,
                   llvm::function_ref<mlir::Value(mlir::Value head)> placeOf);
  void answerByZeros(mlir::Value token);
  void noteRow(mlir::Value row);
  void buildPromptFinish();
  void leaveTokens(mlir::Value plans);
  void movePromptCursor(mlir::Value plans);

  /// Warps of a block, with 16 queries each; `warps` has those that a tile of
  /// keys would have 16 of.
  int64_t queryWarps = 8;
  /// Keeps them in shared memory; and where they are, numbers of a lane.
  bool sharesQueries = false, sharesPlaces = false;
  static constexpr int64_t kPlacesOfQueries = 8;
  llvm::SmallVector<Segment> segments; ///< the last one is all keys
  bool skipsKeys = false; ///< queries do not attend from the first key on
  /// Of the tile: its row, tokens and position before the prompt.
  mlir::Value row, count, firstToken, position, firstOfTile, lastOfTile;
  mlir::Value firstOfWarp, lastOfWarp;
  /// Of the two queries of a lane.
  mlir::Value tokenOf[2], headOf[2], placeOf[2], isQuery[2], to[2];
  mlir::Value placesOfQueries;           ///< these, in shared memory
  mlir::Value tiles, warpBegin, warpEnd; ///< of the segment
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_ATTENTIONPROMPTS_H
