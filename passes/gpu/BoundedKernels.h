//===- BoundedKernels.h - a bounded attention as a GPU kernel ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step over a cache that gives up tokens is one kernel. A cluster of blocks
// has a head of the cache of a row: each block some of the keys and some rows
// of the memory, and what they find goes through their shared memories.
//
// Half of a block's warps attend: keys and values come to shared memory in
// tiles, as those of GpuAttention. The others do the rest:
//
// - meanwhile rows of the memory are loaded, get the token that leaves, are
//   stored and read, and the weights that earlier queries gave each token are
//   added up; what the blocks read is merged, and what follows from it alone
//   is computed, at a meeting for which nobody waits who attends;
// - then the blocks' summaries are merged, each head of the query by one of
//   them, which answers;
// - weights of this query are noted by those who have its scores, and the token
//   that leaves before the next one is answered is chosen.
//
// A cluster takes one head after another, and those who attend are ahead of the
// others: the tiles of the next head come while this one is answered. The two
// meet twice a head: where its summaries are there, and where they, and its
// scores, are not needed any more.
//
// The token takes the place of the one that leaves: in shared memory at once,
// in the cache when all blocks have read what was there. So it is with cursors
// and the order of tokens: they are written behind the barrier before which all
// of them were read. Without clusters a block is one of its own.
//
// What is written waits for the kernel ahead, so that it comes last: where a
// warp has few rows of a Taylor memory and a thread one token, these as well.
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
  void changeTile(mlir::Value tile, bool isKey) override;
  void keepScores(llvm::ArrayRef<mlir::Value> keysOfLane,
                  llvm::ArrayRef<mlir::Value> score) override;

private:
  using Indices = llvm::ArrayRef<mlir::Value>;
  /// What the second-level cache is asked for at once.
  static constexpr int64_t kLineBits = 128 * 8;
  /// Warps that do not attend.
  static constexpr int64_t kAnswering = 4;
  /// Barriers: of those who attend and of the others; and where both meet.
  enum Meeting : int64_t { Attending = 1, Answering, Found, Merged };

  //===--- BoundedKernels.cpp: what a step is, sizes, cursors -------------===//
  mlir::LogicalResult checkStep();
  mlir::LogicalResult checkSizes();
  mlir::LogicalResult chooseBlocks();
  int64_t bytesOfShared();
  /// The row, the head and the token of a task, and the slot; −1 where there is
  /// none.
  mlir::Value openTask(mlir::Value task);
  void openCursor(mlir::Value ofSlot, bool isAhead = false);

  //===--- BoundedStep.cpp: the kernel ------------------------------------===//
  mlir::LogicalResult buildStep();
  void declare();
  void enterPart(int64_t which, int64_t firstWarp, int64_t count);
  /// Of Hopper and its successors for servers.
  bool sharesRegisters() const {
    return mostBlocks > 1 && (!shared || shared >= 227 << 10);
  }
  void shareRegisters();
  void waitInOrder();
  void prefetchAhead();
  void prefetchKeys(bool isKey);
  void prefetchNextCursor();
  void meetAll(int64_t which);
  void leaveCluster();
  void awaitCluster();
  /// Before what the memory gave is merged: those who attend say that they are
  /// not waited for, and wait for that meeting when it is long over.
  void letOthersMeet();
  void meetOthers();
  mlir::Value forTasks(
      mlir::Value init,
      llvm::function_ref<mlir::Value(mlir::Value ofRow, mlir::Value before)>
          body);
  void attendTasks();
  void answerTasks();
  void leaveHead();
  void prepare();
  void prepareMemory();
  void recallMemory();
  mlir::LogicalResult answer(mlir::ValueRange known, const Ahead &ahead);
  void storeElement(mlir::FailureOr<mlir::Value> value, mlir::Value at);
  void keep(mlir::LogicalResult result) {
    if (failed(result))
      isLowered = result;
  }
  void moveHeadCursor();
  /// By one thread of the first block of the cluster.
  void byFirst(llvm::function_ref<void()> body);

  //===--- BoundedKeys.cpp: what a block attends to -----------------------===//
  void takeKeys();
  void copyNewToken();
  void attendKeys(mlir::Value firstHead);
  void mergeWarps(mlir::ValueRange sums);
  int64_t rowsOfTotals() const;
  mlir::Value mostOfWarps(mlir::Value column);
  mlir::Value sumOfWarps(mlir::Value column, mlir::Value most);
  /// Summaries and scores of the head before are not needed any more.
  void beforeScores();
  void attendOwnKeys();

  //===--- BoundedMerge.cpp: what the blocks found ------------------------===//
  Values mergeBlocks();
  void takeOwn();
  void mergeEach();
  Values mergeNoting();
  Values noteMerged();
  bool fitsWarp() const;
  void mergeInLanes();
  void mergeMemory();
  void mergeRecalled();
  void mergeTaylor();
  /// `memory` of a block of the cluster.
  mlir::Value inBlock(mlir::Value which, mlir::Value memory);
  mlir::Value weightOfBlock(int64_t block, mlir::Value ofHead,
                            mlir::Value most);
  /// The sum over blocks of numbers in their shared memories.
  mlir::Value sumOverBlocks(mlir::Value memory, mlir::ValueRange at);
  /// For each head that this block answers, one after another, and each of so
  /// many elements; `local` is the head among those that share keys.
  mlir::Value ownHeads();
  void openOwnHead(mlir::Value which);
  void forOwnHeads(int64_t size, llvm::function_ref<void(mlir::Value at)> body);

  //===--- BoundedMemory.cpp: its matrix ----------------------------------===//
  void declareMemory();
  Values loadFeatures();
  void takeFeatures(mlir::ValueRange loaded);
  Ahead loadRows();
  void prefetchRows();
  void prefetchLaterRows();
  void takeRows();
  void readMemory(const Ahead &ownRows);
  mlir::Value placeOfRow(mlir::Value at, int64_t which);
  Values nextRows(mlir::Value at, mlir::ValueRange loaded);
  Values oldRows(mlir::ValueRange loaded);
  Values rowsWithLeaving(mlir::Value at, mlir::ValueRange rows);
  void storeRows(mlir::Value at, mlir::ValueRange rows);
  Values loadSomeRows(mlir::Value at);
  mlir::Value loadLeavingValue();
  /// Of heads of 96, ptxas finds no registers for it.
  bool mayKeepRows() const { return valueSize / kWarp % 3 != 0; }
  mlir::Value keepsRows();
  mlir::Value hasRowsToKeep();
  Values loadRowsAgain();
  void keepRows(mlir::ValueRange loaded);

  //===--- BoundedFold.cpp: segments that it takes up ---------------------===//
  void foldSegments();
  void foldByTiles();
  void foldTile(mlir::Value first, mlir::Value column);
  void foldByRows();
  Values addTokens(llvm::ArrayRef<mlir::Value> rows, mlir::Value first,
                   mlir::Value end, mlir::Value newest,
                   mlir::ValueRange before);
  Values
  forSegments(mlir::ValueRange before,
              llvm::function_ref<Values(mlir::Value first, mlir::Value end,
                                        mlir::ValueRange carried)>
                  body);
  mlir::Value featureOf(mlir::Value place, mlir::Value row);
  mlir::Value newValues(mlir::Value column, int64_t width);
  mlir::Value placeOfToken(mlir::Value token);

  //===--- BoundedTaylor.cpp: its sums ------------------------------------===//
  Values loadSums();
  void updateTaylor(mlir::ValueRange loaded);
  /// A number of tokens, at least 1, and its inverse.
  mlir::Value asNumber(mlir::Value count);
  mlir::Value shareOfOne(mlir::Value count);
  mlir::Value updateSpread();
  void scoreMean(mlir::Value spread);
  void keepTaylor();

  //===--- BoundedWeights.cpp: those that queries gave tokens -------------===//
  mlir::Value integer(int64_t value, int64_t width);
  int64_t unitBits() const;
  int64_t bitsOfQueries() const;
  std::pair<mlir::Value, mlir::Value> inUnits(mlir::Value weight);
  mlir::Value rowOfQuery();
  Ahead loadEarlierWeights();
  void addEarlierWeights(const Ahead &weights);
  mlir::Value weightOf(mlir::Value at);
  Values noteToken(mlir::Value at);
  void storeNoted(mlir::Value at, mlir::ValueRange noted);
  void noteWeights();
  mlir::Value notesOne();
  Values noteOwn();
  Values nothingNoted();
  void keepNoted(mlir::ValueRange noted);

  //===--- BoundedEviction.cpp: the order of tokens, and who leaves -------===//
  void declareEviction();
  mlir::Value arrayOfKeys(llvm::StringRef name, mlir::Type element,
                          int64_t rows);
  mlir::Value entryAt(mlir::Value place);
  Ahead loadOrder();
  void takeOrder(const Ahead &places);
  void keepOrder();
  void chooseNext();
  void lower(Values &mine, mlir::Value value, mlir::Value at);
  void offerBest();
  std::pair<mlir::Value, mlir::Value> bestOfBlocks();

  //===--- BoundedValues.cpp: arithmetic, an element at a time ------------===//
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
  void declareSums();
  /// Sums that `value` needs, of the heads that this block answers, into shared
  /// memory; or of them those that no key has to be attended to for.
  mlir::LogicalResult materialize(mlir::Value value, bool beforeKeys = false);
  void prefetchParameters();
  /// What an answer takes that no key is needed for.
  Values valuesBeforeKeys();
  Ahead loadBeforeKeys(mlir::ValueRange known);
  struct SumElement {
    mlir::Value ofHead, at, isThere;
  };
  void sumElements(SumOp op, int64_t howMany,
                   llvm::function_ref<SumElement(mlir::Value)> which,
                   mlir::Value result);

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
  int64_t sinks = 0, segment = 0, queriesKept = 0, pool = 0;
  int64_t leastBlocks = 1;
  int64_t keysOfBlock = 0; ///< at the most
  int64_t bytesOfKey = 0;  ///< that a block holds of each of them
  int64_t firstOfTask = 0; ///< of the heads that attend together
  int64_t attending = 0;   ///< warps that attend

  // Where a head of a slot stands; folded: whether a segment leaves now.
  mlir::Value rank, ranks, task, tasks, clusters, rowNumber, of, isToken,
      remaining, cursorRow, position, count, newEntry, newKey, victim,
      victimPlace, evicted, budget, seen, folds, foldCount, nextFolds, span,
      keysOfRank, hasNewKey, kept, leaves, held;
  Values newToken, newKeyParts;
  mlir::Value startsEarly, blockThread, blockWarp, isBehind, ownsNewKey;
  mlir::LogicalResult isLowered = mlir::success();

  // What a block holds, and of the head that is answered.
  mlir::Value warpMosts, warpSums, warpTotals, totals;
  mlir::Value local, blockMosts, blockSums, blockValues, rankMosts, rankSums,
      sharedMosts, sharedSums, sharedValues, sharedMemory, blockMemory,
      sharedFeatures, sharedNumbers, sharedKeySums, sharedValueSums,
      sharedSpread, sharedLeaving, leavingValue, oldSpread, firstRow, rowsHere,
      newestToken, inverses, scoresOfBlock, salience, saliences, windowSums,
      windowSquares, order, warpBest, warpBestAt, bests, bestPlaces;
  mlir::Value firstPlace, lastPlace, oldest, oldestPlace;
  /// What the blocks of a cluster found, where each warp knows it by itself: of
  /// a lane the weight of its block, and of the heads of the group.
  struct {
    mlir::Value weight;
    Values mosts, inverses;
  } ofLanes;
  mlir::Value keyRow; ///< of the key whose features are asked for; null: new
  llvm::DenseMap<mlir::Value, mlir::Value> sharedSumsOf, materialized;
  llvm::DenseMap<mlir::Value, mlir::Value> knownElements; ///< at one place
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDKERNELS_H
