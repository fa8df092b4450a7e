//===- BoundedPrompts.h - prompts of a cache that evicts --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Candidates are what a head of the cache holds, in the order of the sequence,
// and then the tokens of the prompt. A call is up to five kernels:
//
// - `_attend`: tiles of queries, as of other attentions, by all that is held,
//   the memory, and the prompt up to each; it leaves the logarithm of each
//   query's sum;
// - `_score`, 64 candidates of a head: their salience, by the last queries;
// - `_select`, a head of a row: which of them stay and where, who leaves before
//   the next token, and cursors;
// - `_fold`, some rows of a head's memory: the products of all that leave;
// - `_keep`, 64 of those that stay: keys, values, and weights of the last
//   queries into the cache.
//
// Where preferences are asked for, two more stand before `_select`: `_mark`, a
// head of a row, and `_prefer`, 16 of its last queries.
//
// A lower budget is three: `_lower`, a head of a row, which chooses like
// `_select`; `_fold`; and `_pack`, 64 of those that stay.
//
// What is kept of the cache keeps its entry; what is kept of the prompt takes
// the entries of those that leave, and those behind the last. So blocks of the
// last kernel write nothing that others of it read.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BOUNDEDPROMPTS_H
#define LADLE_PASSES_GPU_BOUNDEDPROMPTS_H

#include "passes/gpu/BoundedPromptCache.h"

namespace ladle {

/// What a prompt's step does, if GPUs can do it.
struct BoundedPromptPlan : BoundedPromptTokens {
  TaylorOp taylor; ///< null without a memory
  EvictOp evict;   ///< of the declaration
  bool notes = false;

  static std::optional<BoundedPromptPlan> of(AttentionStepOp step);
};

class GpuBoundedPrompts final : public GpuBoundedPromptCache {
public:
  GpuBoundedPrompts(AttentionStepOp step, const BoundedPromptPlan &given,
                    int64_t shared, mlir::OpBuilder &builder)
      : GpuBoundedPromptCache(step, given, shared, builder,
                              AttentionForm::PrefillSelect),
        given(given) {}

  mlir::LogicalResult build() override;

protected:
  mlir::Value rowOfKey(mlir::Value slot, mlir::Value key,
                       mlir::Value cacheHead) override;
  void openPrompt(mlir::Value row) override;
  void storeAnswers(mlir::ValueRange carried) override;

private:
  /// Candidates of a tile, and those of a lane; queries, and the warps that
  /// take these in turn.
  static constexpr int64_t kTileKeys = kPromptTileKeys,
                           kQueries = kPromptTileQueries,
                           kLaneKeys = kTileKeys / 4, kScoreWarps = 8;
  static constexpr int64_t kSelectThreads = 512,
                           kSelectWarps = kSelectThreads / kWarp;

  //===--- BoundedPrompts.cpp: where things are ---------------------------===//
  mlir::Value heldOf(mlir::Value row);
  /// Places of a candidate among those of all, and in the cache; ~i is token i
  /// of the call.
  mlir::Value placeOf(mlir::Value candidate);
  mlir::Value entryInOrder(mlir::Value candidate);
  /// What `_select` has noted of a row and a head.
  void openHead(mlir::Value which);

  //===--- BoundedPromptAnswers.cpp ---------------------------------------===//
  Values addTaylor(mlir::ValueRange carried);
  Values addMemory(mlir::ValueRange totals,
                   llvm::ArrayRef<mlir::Value> factors);

  //===--- BoundedPromptScores.cpp: weights of the last queries -----------===//
  int64_t queriesOfToken() const;
  void buildScore();
  void copyKeys(llvm::function_ref<mlir::Value(mlir::Value)> placeOfKey);
  Values
  candidatesOfLane(llvm::function_ref<mlir::Value(mlir::Value)> candidateOfKey);
  Values openQueries(mlir::Value firstLocal, int64_t firstHead);
  /// Of the tokens of a tile of queries, for the keys of a lane: those of the
  /// first 8 queries, and of the others if they are of other tokens.
  Values weighTokens(mlir::Value firstLocal,
                     llvm::ArrayRef<mlir::Value> candidates);
  void scoreTile(mlir::Value tile);
  void storeSalience(mlir::Value candidate, mlir::Value key);
  mlir::Value firstOfWindow();

  //===--- BoundedPromptKeep.cpp: what stays ------------------------------===//
  void buildKeep();
  void keepTile(mlir::Value first);
  void keepWeights(mlir::Value first, mlir::Value entries, mlir::Value tokens);
  void sumWeights(mlir::Value first, mlir::Value entries);
  void keepSpread();

  //===--- BoundedPromptSelect.cpp: who stays -----------------------------===//
  void buildSelect();
  void openChoosing();
  void skipHead();
  void answerPadding();
  void openChoice(mlir::Value most);
  mlir::Value rankAndFind();
  void chooseKept();
  std::pair<mlir::Value, mlir::Value> sumBefore(mlir::Value count);
  void
  judgeCandidates(mlir::Value threshold,
                  llvm::function_ref<void(mlir::Value at, mlir::Value stays,
                                          mlir::Value before)>
                      judged);
  void listCandidates(mlir::Value threshold);
  mlir::Value entryOf(mlir::Value place);
  mlir::Value nextPlace();
  void keepCursor(mlir::Value place, mlir::Value victim);

  //===--- BoundedPromptBudgets.cpp: budgets that are lowered -------------===//
  void buildLower();
  void lowerHead(mlir::Value wanted);
  void weighHeld();
  void moveInside();
  void buildPack();
  void packTile(mlir::Value first);

  //===--- BoundedPromptPreference.cpp: what a cut would cost -------------===//
  /// Of a query: Σ |Ã − A|, the same by the norms of values, the sum of these,
  /// Σ a, Σ a log₂ a. Of queries: disturbance, entropy, and how many they are.
  static constexpr int64_t kChanges = 5, kResults = kPreferenceNumbers;
  struct Judged {
    mlir::Value isVisible, stays, logWeight, norm;
  };
  void buildMark();
  bool needsSpread();
  void measureSpread();
  mlir::Value partOf(bool isKey, mlir::Value candidate, mlir::Value element,
                     int64_t width);
  void buildPrefer();
  Values visitCandidates(
      mlir::ValueRange inits, bool takesNorms,
      llvm::ArrayRef<mlir::Value> logSum,
      llvm::function_ref<void(Values &sums, int64_t query, const Judged &key)>
          visited);
  void measureValues(mlir::Value first);
  Values sumQueries(Values mine);
  mlir::Value orderOf(int64_t query);
  Values preferTile(mlir::Value firstLocal, int64_t firstHead);
  Values judge(int64_t query, mlir::ValueRange changes);

  //===--- BoundedPromptRanks.cpp: the least salient that stays -----------===//
  mlir::Value pooled(mlir::Value at, mlir::Value size,
                     llvm::function_ref<mlir::Value(mlir::Value)> candidate,
                     int64_t weightless = 0);
  void rankCandidates();
  mlir::Value findThreshold();

  //===--- BoundedPromptFold.cpp: what leaves -----------------------------===//
  void buildFold();
  void foldHead(mlir::Value part);
  Values loadChunk(mlir::Value from, mlir::Value part);
  void takeChunk(mlir::ValueRange loaded, mlir::Value from);
  Values countTokens(mlir::ValueRange before, mlir::Value from,
                     mlir::Value column, mlir::Value columns);
  Values mergeMoments(mlir::ValueRange one, mlir::ValueRange other);
  mlir::Value finishSums(mlir::ValueRange mine, llvm::StringRef name,
                         mlir::Value column, int64_t size);

  BoundedPromptPlan given;
  int64_t stride = 0, budgetOfProgram = 0, sinks = 0, recent = 0, window = 0,
          pool = 1;
  bool inOrder = false; ///< keys are candidates, not entries

  // Of a row and a head.
  mlir::Value planRow, before, evicted, kept, all, leaving;
  // Of the choice: candidates among whom there is one, and room for.
  mlir::Value budget, isFull, firstChoice, lastChoice, room, keptCached, counts,
      sharedKept, warpBest, warpBestAt;
  mlir::Value tileSums, windowSums, windowSquares;
  int64_t chunk = 0; ///< tokens that are folded at once
  mlir::Value foldKeys, foldValues, partSums, norms;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDPROMPTS_H
