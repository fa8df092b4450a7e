//===- AttentionKernels.h - an attention as GPU kernels ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step becomes up to four kernels, which one stream runs one after another:
//
// - `_find`: puts the token into its page, and looks for the nearest query in
//   a section of a head's ring;
// - `_plan`, one block: decides about each match, and cuts what all rows and
//   heads attend to anew into pieces, which become one list; without a match,
//   for which there is no `_find`, its other blocks put tokens into pages, and
//   few rows need no plan, and no `_finish` (AttentionFewRows.cpp); with one,
//   `_few` takes the place of both for few rows (AttentionFewTasks.cpp);
// - `_attend`: each warp takes pieces of the list, any number of them, and
//   leaves a summary of each;
// - `_finish`, a row and a head: merges the pieces in their order, completes,
//   answers, and leaves a summary for later tokens. With a match,
//   `_finish_slices` takes its place where rows are so few that several blocks
//   share a head.
//
// Pieces are even portions of all that is attended to, or end where the row
// alone says, so that an answer does not depend on the rows around it.
// passes/gpu/AttentionInfo.h says what kernels take.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_ATTENTIONKERNELS_H
#define LADLE_PASSES_GPU_ATTENTIONKERNELS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/analysis/AttentionPlan.h"
#include "passes/build/Locations.h"
#include "passes/gpu/AttentionInfo.h"
#include <functional>

namespace ladle {

class GpuAttention {
public:
  /// Blocks take `shared` bytes of shared memory at most; 0 is as on Hopper.
  /// Clusters have `mostBlocks` blocks at the most. Prompts are another class's
  /// (passes/gpu/AttentionPrompts.h).
  GpuAttention(AttentionStepOp step, AttentionForm form, int64_t shared,
               int64_t mostBlocks, mlir::OpBuilder &builder)
      : step(step), b(unnamed(step.getLoc()), builder), shared(shared),
        mostBlocks(mostBlocks), decodes(form == AttentionForm::Decode),
        name((step.getAttention() + "_" + stringifyAttentionForm(form)).str()) {
  }

  virtual ~GpuAttention() = default;

  /// Builds the kernels where the builder stands. Diagnostics name what cannot
  /// be lowered.
  virtual mlir::LogicalResult build();

protected:
  using Values = llvm::SmallVector<mlir::Value>;
  static constexpr int64_t kWarp = 32;
  /// Pieces whose loads of a warp are on their way together.
  int64_t piecesAtOnce() const;
  /// Tiles of a portion at least.
  static constexpr int64_t kPortionTiles = 2;
  /// Numbers of a slot, and of a row's plan.
  static constexpr int64_t kSlotNumbers = 8;
  /// Numbers of a range.
  static constexpr int64_t kRangeFields = 8;
  /// Of a list of pieces as it is left: first, count, leading, firstWhole,
  /// whole.
  static constexpr int64_t kListFields = 5;
  /// Blocks that take the elements of a head's values in slices, at the most.
  static constexpr int64_t kMostSlices = 4;

  //===--- AttentionKernels.cpp: kernels, arguments, rows -----------------===//
  /// Looks at the step, and emits what cannot be lowered.
  mlir::LogicalResult openPlan();
  mlir::LogicalResult checkSizes();
  /// Begins a kernel with blocks of so many threads, of which so many fit into
  /// a multiprocessor with the registers that they take.
  void createKernel(llvm::StringRef suffix, int64_t threads, int64_t blocks);
  /// Blocks of the kernel may start before what is ahead has ended, and wait
  /// for it here; those of the next one may start while this one works. Where
  /// there is a match they do when the wait is over: before its own wait, a
  /// kernel then reads what those ahead of the one ahead have left. The first
  /// and the last kernel of an early step let it start at once.
  void startInOrder();
  void waitForPrevious();
  void letNextStart();
  /// The first kernel of a step reads what nobody ahead of an early one writes.
  mlir::Value isEarly();
  /// An argument, which is made when it is first asked for. Arrays are flat
  /// but for rows of `width`.
  mlir::Value array(llvm::StringRef name, mlir::Type element,
                    int64_t width = 0);
  mlir::Value scalar(llvm::StringRef name);
  mlir::Value floatScalar(llvm::StringRef name);
  mlir::Value table();
  /// The memory of a parameter or token, or of the output.
  mlir::Value tensor(mlir::Value value);
  mlir::Value outputMemory();
  mlir::Value addArgument(llvm::StringRef name, mlir::Type type);
  mlir::Value sharedArray(llvm::StringRef name, mlir::Type element,
                          llvm::ArrayRef<int64_t> shape);
  mlir::Value sharedInPlaceOf(mlir::Value other, llvm::StringRef name,
                              mlir::Type element,
                              llvm::ArrayRef<int64_t> shape);

  /// Where the row of a batch stands when a step begins.
  struct Row {
    mlir::Value slot, token; ///< the token among tokens and outputs
    mlir::Value isAnswered;  ///< it is no padding
    mlir::Value position, entries, amended, stores;
  };
  Row openRow(mlir::Value row);
  /// The row of a key or value among those of all.
  virtual mlir::Value rowOfKey(mlir::Value slot, mlir::Value key,
                               mlir::Value cacheHead);
  mlir::Value ringRow(mlir::Value slot, mlir::Value head, mlir::Value entry);
  mlir::Value entryBefore(mlir::Value position, mlir::Value offset);

  //===--- AttentionFind.cpp ----------------------------------------------===//
  void buildFind();
  void askForRing();
  void append(const Row &row, mlir::Value cacheHead,
              mlir::Value waits = nullptr);
  /// What a thread loads at once of what lies side by side.
  static int64_t elementsOfLoad(mlir::Type element) {
    constexpr int64_t bits = 128;
    return bits / element.getIntOrFloatBitWidth();
  }
  /// Copies the key and the value of a token into a row of the cache.
  void storeToken(const Values &parts, mlir::Value place);
  /// What each thread copies of a token's key and of its value.
  Values loadToken(AppendOp op, mlir::Value token, mlir::Value cacheHead);
  //===--- AttentionScan.cpp ----------------------------------------------===//
  friend class AttentionScan;
  void scan(mlir::Value rowNumber, const Row &row, mlir::Value head,
            mlir::Value section);
  mlir::Value countEntries(const Row &row);

  //===--- AttentionMatches.cpp -------------------------------------------===//
  /// How many entries before the newest the match is, or −1, and from where
  /// the head attends anew.
  std::pair<mlir::Value, mlir::Value> decide(mlir::ValueRange found,
                                             const Row &row, mlir::Value head,
                                             mlir::Value moment);
  mlir::Value momentsMemory();
  mlir::Value momentOf(mlir::Value slot, mlir::Value head);
  /// The least distance that sections have found, and how many entries before
  /// the newest that was.
  Values nearest(mlir::Value rowNumber, mlir::Value head);
  static constexpr int64_t kSectionsAtOnce = 2 * kAttentionSections;
  Values loadFound(mlir::Value ofAll, mlir::Value section);
  Values nearestOf(mlir::ValueRange before, mlir::ValueRange found);
  mlir::Value refusedEntry(mlir::Value entry);
  mlir::Value distance(mlir::Value value, const Row &row, mlir::Value head,
                       mlir::Value ring, mlir::Value ringAt);

  //===--- AttentionPieces.cpp --------------------------------------------===//
  /// What a task attends to, in amounts of so many keys: how many, and in how
  /// many ranges that are not empty; [begin, end) and amounts of each attend.
  struct History {
    mlir::Value unit, amount, filled;
    Values ranges, amounts;
  };
  void buildPlan();
  void planRows();
  Values planHeads(mlir::Value base, mlir::Value count,
                   mlir::ValueRange already);
  mlir::Value isEven();
  History openHistory(const Row &row, mlir::Value starts);
  mlir::Value leastStart(mlir::Value starts, mlir::Value first);
  std::pair<History, mlir::Value> openRanges(mlir::Value position,
                                             mlir::Value start);
  void countAmounts(History &history);
  void keepRanges(mlir::Value task, mlir::Value slot, const History &history,
                  mlir::Value amount, mlir::Value filled);
  void listPieces(mlir::Value range, mlir::Value each, mlir::Value apart,
                  mlir::Value portion, mlir::Value total);
  void listRanges(mlir::Value ranges, mlir::Value portion, mlir::Value total);
  mlir::Value boundOf(Bound bound, mlir::Value position);
  void keepRow(mlir::Value rowNumber, const Row &row);
  /// Sums over the threads before this one, and over all.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>
  sumsBefore(llvm::ArrayRef<mlir::Value> counts);

  //===--- AttentionFewRows.cpp -------------------------------------------===//
  /// Of the row of a lane: slot, tokens, tiles of these, tiles up to those of
  /// all its tasks, tasks with any before its own; and tiles of all rows.
  struct FewRows {
    mlir::Value slot, position, tiles, behind, filled, all;
  };
  /// A piece as the list has it, the tile behind it, how many ranges that are
  /// not empty are before its own, and the first tile of that and the one
  /// behind it.
  struct FewPiece {
    mlir::Value record, endTile, rank, firstOfRange, endOfRange;
  };
  /// Values that a warp plans by.
  static constexpr int64_t kFewPlanned = 10;
  /// Pieces of a portion that are listed in shared memory.
  static constexpr int64_t kNearPieces = 4;
  bool takesFewRows() const;
  mlir::Value isFew();
  Values loadFewRows();
  mlir::Value loadIndexAhead(mlir::Value memory, mlir::ValueRange at);
  mlir::Value loadSlotOfLane();
  mlir::Value loadPositionOf(mlir::Value slot);
  FewRows addUpRows(mlir::ValueRange ofLane);
  FewPiece pieceAt(const FewRows &rows, mlir::Value tile,
                   mlir::Value endOfPortion);
  Values planFewRows(mlir::ValueRange ofLane, mlir::Value ofWarp);
  Values startFewRows(mlir::Value ofWarp);
  void waitForCopies();
  Values resumeFewRows(mlir::ValueRange before, mlir::Value ofWarp,
                       mlir::Value isEarly);
  mlir::Value dropUnless(mlir::Value isWanted, mlir::Value started);
  FewRows rowsOfPlan(mlir::ValueRange ofLane, mlir::ValueRange planned);
  mlir::Value tilesBefore(mlir::Value position);
  void listFewPieces(mlir::ValueRange ofLane, mlir::ValueRange planned);
  mlir::Value sumOfLanes(mlir::Value value);

  //===--- AttentionFewTasks.cpp ------------------------------------------===//
  struct Ahead;
  /// A task of a row that may have matches: where its row stands, what it
  /// attends to, its first tile and the one behind the last, and how many
  /// ranges that are not empty are before its own.
  struct FewMatched {
    mlir::Value task, row, slot, position;
    History history;
    mlir::Value first, behind, rank;
  };
  int64_t fewNumbers() const;
  int64_t fewTasks() const { return kAttentionFewHeads / share; }
  void declareFewTasks();
  void keepFewRows();
  Values planFewTasks(mlir::Value ofWarp);
  Values portionOfTasks(mlir::Value ofWarp);
  void matchFewHeads();
  void countFewTasks();
  mlir::Value isLastBlock();
  void leaveRanges(mlir::Value portion, mlir::Value allTiles);
  Values loadRange(mlir::Value range);
  mlir::Value mostTilesOfTask();
  mlir::Value mergesBlocks(mlir::Value portion);
  FewRows addUpTasks();
  FewMatched openTask(mlir::Value task);
  FewPiece pieceOfTasks(mlir::Value tile, mlir::Value endOfPortion);
  mlir::Value fieldOfRow(mlir::Value row, int64_t which);

  //===--- AttentionTiles.cpp, AttentionProducts.cpp ----------------------===//
  /// Keys of a warp, and heads, of a product of tiles.
  static constexpr int64_t kTileKeys = 16, kTileHeads = 8;
  /// Keys and values that are attended to together.
  struct Keys {
    mlir::Value slot, cacheHead, begin, end;
  };
  void chooseTiles();
  int64_t bytesOfTiles() const;
  void declareTiles();
  /// What keys or values of a tile are that memory does not have, when their
  /// copies are there.
  virtual void changeTile(mlir::Value tile, bool isKey) {}
  /// Scores of two keys for the two heads of a lane: key i / 2, head i % 2.
  virtual void keepScores(llvm::ArrayRef<mlir::Value> keysOfLane,
                          llvm::ArrayRef<mlir::Value> score) {}
  /// Tiles are counted from a kernel's first one on, and take places in turn.
  void startTile(mlir::Value tile, mlir::Value isThere, bool isKey);
  void openCopies();
  void ifThenStart(mlir::Value condition, llvm::function_ref<void()> body);
  void waitForTile();
  mlir::Value lookUp(const Keys &keys, mlir::Value firstKey);
  void keepPlace(mlir::Value tile, mlir::Value place);
  /// The largest score and the sum of weights of each head of a lane, and the
  /// weighted values: of nothing, and with a tile more, up to `end`.
  Values emptySums();
  Values addTile(mlir::Value tile, mlir::Value firstKey, mlir::Value hasLater,
                 mlir::ValueRange sums);
  void loadQueries(mlir::Value token, mlir::Value firstHead);
  mlir::Value scores(mlir::Value tileRow);
  mlir::Value baseOf(mlir::Value most, double doubling);
  void addValues(mlir::Value tileRow, llvm::ArrayRef<mlir::Value> weights,
                 Values &totals);
  mlir::Value swizzled(mlir::Value chunk, mlir::Value row, bool isKey);
  mlir::Value multiplyTiles(mlir::Value a, mlir::Value b, mlir::Value c);
  int64_t valuePart() const;

  //===--- AttentionAttend.cpp --------------------------------------------===//
  struct Piece {
    mlir::Value row, firstHead, isAfterMatch;
    Keys keys;
  };
  /// The tile that is copied next: of a piece, whose record is as it is in
  /// memory.
  struct Stream {
    mlir::Value piece, firstKey, record;
  };
  void buildAttend();
  void buildFew();
  mlir::Value startTilesBefore(mlir::Value known, const Piece &piece,
                               mlir::Value isAny, mlir::Value isPatient);
  mlir::Value loadPiece(mlir::Value number);
  Piece openPiece(mlir::Value record);
  mlir::Value lookUp(const Stream &stream);
  Stream advance(const Stream &stream);
  Values loadPortion(mlir::Value ofWarp);
  Values attendPieces(mlir::Value record, mlir::Value started);
  Values loadAhead(mlir::Value record);
  void takeLoaded(const Piece &piece, mlir::ValueRange loaded);
  Values attendPiece(mlir::Value number, mlir::ValueRange before);
  /// Of pieces: values of all heads, and their largest scores and sums.
  struct SumsMemory {
    mlir::Value values, pairs;
  };
  SumsMemory pieceMemory();
  void leaveSums(const SumsMemory &memory, mlir::Value piece,
                 mlir::ValueRange sums);

  //===--- AttentionFinish.cpp --------------------------------------------===//
  /// (m, Z, A) of a head: two numbers, and the elements of a lane.
  struct Summary {
    mlir::Value most, sum, values;
  };
  void buildFinish(int64_t slicesOfHead = 1);
  int64_t mostSlices() const;
  mlir::Value ofFirstSlice(mlir::Value condition);
  int64_t valuesOfLane() const { return valueSize / slices / kWarp; }
  mlir::Value firstValueOfLane();
  void letNextLook(mlir::Value position);
  Summary
  mergePieces(mlir::Value begin, mlir::Value last, mlir::Value local,
              const Summary &before, int64_t together,
              llvm::function_ref<mlir::Value(mlir::Value)> pieceOf = nullptr);
  Values loadBounds(mlir::Value task);
  Values ofFewRows(llvm::function_ref<Values()> found,
                   llvm::function_ref<Values()> planned);
  void openLists(mlir::Value task, mlir::ValueRange planned);
  void gatherPieces(mlir::Value local);
  Summary mergedPieces(int64_t which);
  Summary emptySummary();
  Summary merge(const Summary &lhs, const Summary &rhs);
  Summary loadStored(mlir::Value condition, int64_t part);
  Summary reuse(ReuseOp op);
  mlir::Value normalize(const Summary &summary);
  void openHit(mlir::Value plans, mlir::Value position);
  void completeRow(mlir::Value plans);
  void prepareStore();
  void storeSummary(llvm::ArrayRef<Summary> parts);
  mlir::Value squareOf(mlir::Value &wanted);
  mlir::Value isNumber(mlir::Value square);
  void updateMoment(mlir::Value square);
  void moveCursor(mlir::Value plans);
  void storeOutput(mlir::Value values);

  //===--- AttentionLastBlocks.cpp ----------------------------------------===//
  /// The pieces of a task in their order: so many of warps from the first one
  /// on, of whole blocks, whose first warps are counted, and of warps from the
  /// rest on; and in how many blocks they are.
  struct FewPieces {
    mlir::Value rank, first, leading, firstWhole, whole, rest, count, blocks;
  };
  /// Heads of a row whose pieces are merged together; and key and value of the
  /// token, and queries of the heads of a warp.
  struct FewTask {
    mlir::Value row, slot, firstHead;
    Values loaded;
  };
  FewPieces piecesOfTask(const FewPiece &piece, mlir::Value portion,
                         mlir::Value allTiles);
  mlir::Value pieceOf(const FewPieces &list, mlir::Value which);
  void answerFewRows(mlir::ValueRange found, mlir::ValueRange planned,
                     mlir::ValueRange sums);
  void mergeBlock(mlir::Value piece, mlir::ValueRange sums);
  mlir::Value arrivesLast(mlir::Value counter, mlir::Value all);
  void moveFewCursors(mlir::ValueRange ofLane);
  void answerTask(const FewTask &task, const FewPieces *list);
  void answerHead(const FewTask &task, const FewPieces *list, mlir::Value local,
                  mlir::Value query);
  void loadTokenOfTask(FewTask &task);
  void appendToken(const FewTask &task, mlir::Value position);
  Summary summaryOfToken(mlir::Value key, mlir::Value value, mlir::Value query);

  //===--- AttentionBuilder.cpp: small things -----------------------------===//
  mlir::Value index(int64_t value);
  mlir::Value number(double value);
  mlir::Value named(llvm::StringRef name, mlir::Value value);
  mlir::Value splat(mlir::Value scalar, int64_t width);
  mlir::Value add(mlir::Value lhs, mlir::Value rhs);
  mlir::Value add(mlir::Value lhs, int64_t rhs);
  mlir::Value sub(mlir::Value lhs, mlir::Value rhs);
  mlir::Value mul(mlir::Value lhs, int64_t rhs);
  mlir::Value mul(mlir::Value lhs, mlir::Value rhs);
  mlir::Value div(mlir::Value lhs, int64_t rhs);
  mlir::Value div(mlir::Value lhs, mlir::Value rhs);
  mlir::Value rem(mlir::Value lhs, int64_t rhs);
  mlir::Value rem(mlir::Value lhs, mlir::Value rhs);
  mlir::Value maximum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value minimum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value select(mlir::Value condition, mlir::Value yes, mlir::Value no);
  mlir::Value less(mlir::Value lhs, mlir::Value rhs);
  mlir::Value notLess(mlir::Value lhs, mlir::Value rhs);
  mlir::Value equal(mlir::Value lhs, mlir::Value rhs);
  mlir::Value both(mlir::Value lhs, mlir::Value rhs);
  mlir::Value either(mlir::Value lhs, mlir::Value rhs);
  mlir::Value negate(mlir::Value condition);
  mlir::Value exp(mlir::Value value);
  mlir::Value larger(mlir::Value lhs, mlir::Value rhs);
  mlir::Value sum(mlir::Value lhs, mlir::Value rhs);
  mlir::Value product(mlir::Value lhs, mlir::Value rhs);
  /// 0 for −∞, so that a difference is never NaN.
  mlir::Value finite(mlir::Value most);
  /// An integer of 32 bits as an index, and back.
  mlir::Value load(mlir::Value memory, mlir::ValueRange indices);
  void store(mlir::Value value, mlir::Value memory, mlir::ValueRange indices);
  mlir::Value loadFloat(mlir::Value memory, mlir::ValueRange indices);
  /// A vector as it is stored, and in f32.
  mlir::Value loadVector(mlir::Value memory, mlir::ValueRange indices,
                         int64_t width);
  /// Of what a kernel ahead may be writing.
  mlir::Value loadVectorAhead(mlir::Value memory, mlir::ValueRange indices,
                              int64_t width);
  mlir::Value widen(mlir::Value vector);
  mlir::Value widened(mlir::Value memory, mlir::ValueRange indices,
                      int64_t width) {
    return widen(loadVector(memory, indices, width));
  }
  void storeVector(mlir::Value vector, mlir::Value memory,
                   mlir::ValueRange indices);
  mlir::Value extract(mlir::Value vector, int64_t at);
  mlir::Value pick(mlir::Value from, mlir::Value other,
                   llvm::ArrayRef<int64_t> places);
  mlir::Value fromElements(mlir::ValueRange elements);
  mlir::Value shuffle(mlir::Value value, mlir::Value lane,
                      mlir::gpu::ShuffleMode mode);
  mlir::Value exchange(mlir::Value value, int64_t mask);
  /// What a lane has of an index.
  mlir::Value ofLane(mlir::Value value, mlir::Value which);
  /// A loop some of whose iterations load together what they need, before
  /// anything is done in those ahead of them.
  struct Ahead {
    mlir::Value begin, end, stride;
    int64_t together;
    std::function<Values(mlir::Value)> load;
    Values first;

    Values loadAll(GpuAttention &kernel, mlir::Value from) const;
  };
  Ahead startLoop(mlir::Value begin, mlir::Value end, mlir::Value stride,
                  int64_t together, std::function<Values(mlir::Value)> load);
  Values
  finishLoop(const Ahead &ahead, mlir::ValueRange inits,
             llvm::function_ref<Values(mlir::Value at, mlir::ValueRange loaded,
                                       mlir::ValueRange carried)>
                 body);
  /// Of the threads that do the same work: the block, or a part of it.
  void barrier();
  void warpBarrier();
  /// Of so many threads of the block, who all name it.
  void meet(int64_t which, int64_t count);
  /// Of the cluster: what was written before it is there for its blocks.
  void clusterBarrier();
  /// Its two halves: others are waited for in the second. Who publishes
  /// nothing does not wait for what it has on its way.
  void clusterArrive(bool publishes = true);
  void clusterWait();
  /// Asks for what the second-level cache shall have, whatever it is by then.
  void prefetch(mlir::Value memory, mlir::ValueRange indices);
  /// Shared memory of the block of the cluster with this rank.
  mlir::Value memoryOf(mlir::Value rank, mlir::Value memory);
  void ifThen(mlir::Value condition, llvm::function_ref<void()> body);
  Values ifElse(mlir::Value condition, llvm::function_ref<Values()> yes,
                llvm::function_ref<Values()> no);
  /// The other side is told of what types the results are.
  Values ifElse(mlir::Value condition, llvm::function_ref<Values()> yes,
                llvm::function_ref<Values(mlir::TypeRange)> no);
  Values loop(mlir::Value begin, mlir::Value end, mlir::Value stride,
              mlir::ValueRange inits,
              llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> body,
              bool unrolls = false);
  void loop(mlir::Value begin, mlir::Value end, mlir::Value stride,
            llvm::function_ref<void(mlir::Value)> body, bool unrolls = false);

  AttentionStepOp step;
  mlir::ImplicitLocOpBuilder b;
  int64_t shared, mostBlocks;
  bool decodes;
  std::string name; ///< of the kernels, before their own
  AttentionPlan plan;
  int64_t heads = 0, cacheHeads = 0, keySize = 0, valueSize = 0;
  /// Heads of the query that attend together, and how often there are so many.
  int64_t share = 1, tasksOfRow = 1;

  // The kernel that is being built.
  mlir::gpu::GPUFuncOp function;
  /// Those that do the same work, in a part of the block that meets at a
  /// barrier of its own, or, for 0, in all of it.
  int64_t threads = 0, part = 0;
  mlir::Value thread;
  llvm::StringMap<mlir::Value> arguments;

  // Tiles of keys and values (AttentionAttend.cpp).
  int64_t warps = 4, stages = 3;
  bool multiplies = false; ///< by tensor cores
  int64_t scoreSums = 2;   ///< in which products of a tile are added, 1 or 2
  mlir::Value keys, values, places, queries, copies;
  Values queryParts;
  mlir::Value isWhole; ///< the block's tiles are of one task; may be null
  mlir::Value slot, cacheHead, begin, end, lane, warp, laneRow, lanePart;
  mlir::Value from[2]; ///< of the two heads of a lane; null: with the piece

  // The list of pieces, what of it a warp takes (AttentionAttend.cpp), and
  // what it is made of (AttentionPieces.cpp).
  mlir::Value pieces, count, first, stride, headStarts, nearRanges;
  // Of few rows with matches (AttentionFewTasks.cpp).
  mlir::Value fewRowsAt, taskSums;
  mlir::Value blocksMerge;  ///< what their warps have, once that is planned
  mlir::Value nearPieces;   ///< of few rows; may be null
  bool findsPieces = false; ///< the kernel does, of few rows

  // The head that is finished (AttentionFinish.cpp), whose values other blocks
  // of a cluster may have slices of.
  int64_t slices = 1, mergeWarps = 8;
  mlir::Value slice;
  llvm::SmallVector<FewPieces> pieceLists;
  mlir::Value pieceMosts, pieceTotals, pieceValues;
  mlir::Value rowOfHead, token, head, entry, amended, hit, isHit, hitRow, isFar,
      isInside, wideBound, depth, outerEnd, query, rotated, stores;
  llvm::DenseMap<mlir::Value, Summary> summaries;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_ATTENTIONKERNELS_H
