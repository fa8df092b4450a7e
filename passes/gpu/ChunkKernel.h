//===- ChunkKernel.h - a prefill step as a GPU kernel -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes the prompt of one row, one head and a tile of dv, and walks
// through the prompt, so many tokens at a time. The tile of the state is in
// shared memory, in f32, from the first token to the last: it is read and
// written once. Where sizes are multiples of tiles it is in registers instead,
// and all that lies along dv as well: see ChunkRows.cpp.
//
// A stack has a value of each token and lies in shared memory, a row a token.
// Teams of lanes compute what tokens give, a token each, and tensor cores
// multiply stacks: states with queries, queries with keys, Gram products with
// values. Of vectors over dv a block needs its tile alone, unless they are
// summed.
//
// Sums need no ends: rows that have no token are zero, and so are elements
// between the size of a vector and the next multiple of a tile.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CHUNKKERNEL_H
#define LADLE_PASSES_GPU_CHUNKKERNEL_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/ChunkForms.h"
#include "passes/gpu/ChunkPrepared.h"
#include "passes/gpu/ChunkProducts.h"
#include "passes/gpu/ChunkShapes.h"
#include "passes/gpu/ChunkStacks.h"
#include "passes/gpu/Kernel.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallBitVector.h"

namespace ladle {

class GpuChunkKernel final : public GpuKernel {
public:
  /// Tokens whose decays are vectors: each doubling takes another product.
  static constexpr int64_t kMostVectorTokens = 16;
  /// Elements of rows of all states that a warp has in registers: a thread has
  /// half as many.
  static constexpr int64_t kMostKeys = 128;
  static constexpr int64_t kBarrierOfAll = 3; ///< of those ahead and with rows
  /// Parts of bf16 that an f32 is the sum of.
  static constexpr int64_t kParts = 3;
  using Shape = GpuChunkShape;
  GpuChunkKernel(StepOp step, const GpuSchedule &schedule,
                 const GpuSlots &slots, const Shape &shape,
                 const ChunkForms &forms, mlir::OpBuilder &builder)
      : GpuKernel(step, StepOp(), schedule, slots, builder), shape(shape),
        forms(forms), foldsByChunk(step.getForm() == Form::PrefillEntries &&
                                   step.getRoute() != Route::KvOnly) {}

  /// The kernel of a prefill_fold step, in the best shape that has room in
  /// shared memory.
  static mlir::FailureOr<mlir::gpu::GPUFuncOp>
  buildBest(StepOp step, const GpuSchedule &schedule, const GpuSlots &slots,
            mlir::OpBuilder &builder);

private:
  enum : unsigned { Full = 1, Tile = 2 };
  using Stack = GpuChunkStack;
  using Term = GpuChunkTerm;
  /// Two terms of a product of f32, and what it cuts off; null for nothing.
  using Right = std::pair<mlir::Value, mlir::Value>;
  using Sink = GpuChunkSink;
  using Operand = GpuChunkOperand;
  using Factor = GpuChunkFactor;
  using Product = GpuChunkProduct;
  using Together = GpuChunkTogether;
  using StackProduct = GpuChunkStackProduct;
  /// Of memory its rows, their elements and bits.
  using Size = std::tuple<int64_t, int64_t, unsigned>;

  //===--- ChunkShapes.cpp: what a block takes at once --------------------===//
  static llvm::SmallVector<Shape>
  shapesOf(StepOp step, const GpuSchedule &schedule, bool ownsAllRows);
  llvm::SmallVector<Shape> shapesOfRows();
  bool isIdle(int64_t ofTiles) const;
  bool mayPrepare(const Shape &of);
  bool decaysChannels();

  //===--- ChunkRoom.cpp: memory and registers of a block -----------------===//
  int64_t mostBytes() const;
  int64_t blocksOfShape();
  std::optional<int64_t> registersOfPart(bool ofAhead);

  //===--- ChunkKernel.cpp: the step --------------------------------------===//
  mlir::FailureOr<mlir::gpu::GPUFuncOp> buildPrefill();
  mlir::LogicalResult check() override;
  void findRowValues(StepOp of) override;
  void chooseSizes() override;
  void chooseLanes();
  void addArguments(llvm::SmallVectorImpl<mlir::Type> &types,
                    llvm::SmallVectorImpl<std::string> &names) override;
  void takeArguments(unsigned &next) override;
  void emitRowStart() override;
  bool startsEarly() override { return false; }
  bool approximates() override { return true; }
  /// With others ahead, a block has no more registers for being alone, and
  /// those that parts were given are of as many blocks as there are.
  int64_t bytesToSpill() const override {
    return shape.blocks > 1 ? 256 : shape.ahead ? 112 : 0;
  }
  void emitPaddedRow() override;
  mlir::LogicalResult emitRow() override;
  mlir::Value countRounds();
  void beginRound(mlir::Value round);
  mlir::FailureOr<mlir::scf::ForOp>
  emitRounds(llvm::function_ref<mlir::LogicalResult()> body,
             mlir::Value first = {}, int64_t stride = 1);
  void storeStates();
  mlir::LogicalResult emitChunk();
  mlir::LogicalResult emitOp(mlir::Operation *op);
  void clearMemories(mlir::gpu::GPUFuncOp of, int64_t threads,
                     llvm::function_ref<bool(mlir::Value)> isCleared);
  void clearShared();

  //===--- ChunkAhead.cpp: what needs no state, a step ahead --------------===//
  void barrier() override;
  mlir::Value barrierOf(mlir::Value ofCrew, int64_t first);
  void meetAll(mlir::Value ofCrew);
  void enterPart(bool ofAhead);
  void shareRegisters(bool ofAhead);
  mlir::LogicalResult emitParts();
  mlir::LogicalResult emitAheadOf(mlir::Operation *op);
  llvm::SmallVector<FoldDraftsOp>
  foldsBeside(PathGramOp op, llvm::ArrayRef<PathGramOp> over = {});
  mlir::LogicalResult emitRowsOfChunk();
  bool isForRows(mlir::Value stack) const;
  void takeTurns(mlir::scf::ForOp ahead, mlir::scf::ForOp ofRows);
  //===--- ChunkPrepared.cpp: steps that another kernel prepares ----------===//
  void findPassed();
  int64_t stepsOfRun() const;
  int64_t runsAtOnce() const;
  mlir::Value firstStepOf(mlir::Value ofRow);
  mlir::Value counterOf(mlir::Value ofStep);
  using CopyPart =
      llvm::function_ref<void(mlir::Value, mlir::Value, mlir::Value, int64_t)>;
  void forPassed(mlir::Value ofStep, int64_t threads,
                 llvm::ArrayRef<mlir::Value> places, CopyPart copy);
  void makePreparing(mlir::IRMapping &mapping); // ChunkPreparing.cpp
  mlir::Value placeInTurn(mlir::Value memory, mlir::Value turn);
  void copyRowTokens(mlir::Value ofRound, mlir::Value turn);
  void emitCopying(mlir::Value begin, mlir::Value first, mlir::Value end);
  void makeTaking();
  void takeApart();
  //===--- ChunkClusters.cpp: blocks that make steps for one another ------===//
  mlir::Value rankInCluster();
  void meetCluster(bool publishes = true);
  void beginRowsOfCluster();
  mlir::Value endOfRounds();
  mlir::LogicalResult emitRoundOfCluster();
  bool dependsOnTile(mlir::scf::ForOp ahead);
  void takeAgain(mlir::Value memory);
  void storeForOthers(mlir::Value memory, mlir::Value own,
                      mlir::scf::ForOp ahead);

  //===--- ChunkStates.cpp: states and carries in memory ------------------===//
  mlir::Value heldState(unsigned argument);
  unsigned poolOf(mlir::Value state);
  void moveState(mlir::BlockArgument pool, bool isLoad);
  void loadCarries();
  void keepCarries();
  void storeCarries();
  void forElements(mlir::Value count, int64_t inner,
                   llvm::function_ref<void(mlir::Value, mlir::Value)> body);

  //===--- ChunkEntries.cpp: prompts that stay entries --------------------===//
  void loadRow();
  void choosePart();
  void storeFolded();
  mlir::Value isKept(mlir::Value token);
  void beginState(mlir::BlockArgument pool);
  void foldHeldEntries(llvm::ArrayRef<FoldBufferOp> folds, mlir::Value held);
  void replayHeldEntries(ReplayOp op, mlir::Value held);
  mlir::Value fieldAt(mlir::Value buffer, llvm::StringRef name, int64_t rank,
                      const EntryPlace &place, mlir::Value element);
  void addEntrySinks(mlir::OpResult result, mlir::Value value,
                     llvm::SmallVectorImpl<Sink> &sinks);

  //===--- ChunkStacks.cpp: stacks, and who needs them --------------------===//
  int64_t tokensAtOnce() const { return shape.tokens; }
  static int64_t rowsFor(int64_t rows) { return llvm::alignTo(rows, 16); }
  /// Of a stack with so many components.
  int64_t rowsOf(int64_t components) const {
    int64_t tokens = isNarrow() ? tokensAtOnce() : rowsFor(tokensAtOnce());
    return rowsFor(tokens * components);
  }
  /// Whether rows of several tokens are beside each other in a tile.
  bool isNarrow() const { return shape.tokens < 16 && !hasBlocks; }
  static int64_t pitchOf(int64_t size);
  static int64_t pitchIn(mlir::Value memory);
  mlir::Value unknown(mlir::Value place);
  /// Terms of a product over dk: a multiple of those of two tiles, unless there
  /// are no zeros as far as that.
  int64_t depthOfKeys() const {
    return std::min<int64_t>(llvm::alignTo(keySize, 16), pitchOf(keySize));
  }
  mlir::Value allocate(int64_t rows, int64_t size, mlir::Type element = {});
  void release(mlir::Value stack);
  void releaseAfter(mlir::Operation *op);
  Stack makeStack(mlir::RankedTensorType ofOneToken, bool isTile,
                  mlir::Type element = {});
  void willRead(mlir::Value memory);
  void willWrite(mlir::Value memory);
  void syncAll();
  void beginOp();
  void syncBeforeOp();
  void findDemands();
  void findDemandsOf(EachDraftOp op);
  bool demand(mlir::Value value, unsigned form);
  bool isTileOf(mlir::RankedTensorType type, const Place &place) const;
  Place tilePlace() const { return keyPlace(schedule.tileRows); }
  const Stack *find(mlir::Value value, bool isTile) const;
  /// The stack of a product or of a value over dk; all are there.
  const Stack &stackOf(mlir::Value value, bool isTile = false) const;
  llvm::SmallVector<Term, 2> termsOf(mlir::Value value) const;
  void demandTerms(mlir::Value value);
  bool hasStack(mlir::Value value) const;
  bool isTerm(mlir::Value value) const;
  mlir::Type shortElementOf(mlir::OpResult result) const;
  mlir::Value scaleAt(const Stack &scale, mlir::Value token);

  //===--- ChunkParts.cpp: stacks of f32 as sums of bf16 ------------------===//
  static bool isRounded(mlir::Value value);
  bool isShortState(mlir::Value state);
  void findParts();
  Stack makeProductStack(mlir::RankedTensorType ofOneToken, mlir::OpResult of);
  int64_t rowOfPart(int64_t part) const { return part * rowsOf(1); }
  static int64_t mostOrder(int64_t left, int64_t right, bool isRounded);
  bool keepsRests() const { return shape.rests && holdsRows; }
  mlir::Value allocateForReads();
  mlir::Value allocateForFold(int64_t rows);
  mlir::Value allocateMarked(const Size &size,
                             llvm::DenseSet<mlir::Value> &marked,
                             mlir::Type element = {});
  void storeForReads(mlir::Value value, mlir::Value memory, int64_t row,
                     mlir::Value channel);
  void storeForFold(llvm::ArrayRef<mlir::Value> values, mlir::Value memory,
                    mlir::Value channel);
  Right loadWithRests(mlir::Value memory, mlir::Value at);
  Right keysOfFold(const Stack &keys, int64_t token, int64_t channel);

  //===--- ChunkWarpgroups.cpp: warps that multiply together --------------===//
  bool mayMultiplyTogether(const Shape &of, bool ofChannels) const;
  bool multipliesHalvesAlone();
  mlir::Value allocateMatrix(int64_t terms, int64_t columns);
  mlir::Value allocateHalves(int64_t rows);
  std::array<mlir::Value, 2> placeIn(mlir::Value memory, mlir::Value row,
                                     mlir::Value column);
  void storeInMatrix(mlir::Value terms, mlir::Value memory, mlir::Value term,
                     mlir::Value column);
  void storeTermsInMatrix(llvm::ArrayRef<mlir::Value> terms, mlir::Value memory,
                          mlir::Value column);
  void multiplyMatrix(llvm::ArrayRef<mlir::Value> lefts, mlir::Value memory,
                      int64_t column, llvm::MutableArrayRef<mlir::Value> sums);
  void multiplyMatrices(llvm::ArrayRef<mlir::Value> rows,
                        llvm::ArrayRef<Operand> stacks,
                        llvm::MutableArrayRef<Components> sums);
  mlir::Value keysInPieces(mlir::Value memory);
  void multiplyStacks(llvm::ArrayRef<mlir::Value> lefts, bool isFold,
                      llvm::MutableArrayRef<StackProduct> products);

  //===--- ChunkTokens.cpp: the arithmetic of tokens ----------------------===//
  int64_t scopeOf(mlir::Value value) const override;
  mlir::Value tokenRow() override;
  mlir::Operation *tokenLoads() override { return current.loads; }
  Components loadArgument(mlir::BlockArgument argument,
                          const Place &place) override;
  mlir::FailureOr<Components> emit(mlir::Value value,
                                   const Place &place) override;
  Components loadStack(const Stack &stack, mlir::Value token,
                       const Place &place, bool isTile);
  Components loadValid(mlir::Value memory, llvm::ArrayRef<mlir::Value> outer,
                       const Place &place);
  Components loadTile(mlir::Value memory, llvm::ArrayRef<mlir::Value> outer,
                      const Place &place);
  mlir::LogicalResult emitDrafts(EachDraftOp op);
  mlir::LogicalResult emitPass(EachDraftOp op, llvm::ArrayRef<Sink> sinks);
  mlir::LogicalResult emitSink(const Sink &sink, mlir::Value valid);
  bool isDecay(const Sink &sink);
  mlir::Value fillOf(const Sink &sink);
  void
  storeParts(llvm::ArrayRef<mlir::Value> components, const Place &place,
             mlir::Value guard,
             llvm::function_ref<void(int64_t, mlir::Value, mlir::Value)> store);
  mlir::FailureOr<Stack> materialise(mlir::Value value);
  mlir::Value sharesHead(int64_t count);

  //===--- ChunkTurns.cpp -------------------------------------------------===//
  mlir::FailureOr<Components> emitTurned(RotateOp op, const Place &place);

  //===--- ChunkCarries.cpp: what tokens leave behind ---------------------===//
  mlir::LogicalResult emitCarries(EachDraftOp op);
  mlir::LogicalResult emitScan(EachDraftOp op,
                               llvm::ArrayRef<unsigned> carries);
  llvm::SmallBitVector carriesOf(mlir::Value value, EachDraftOp op);
  /// What a window takes in, if a carry is one; or null.
  static mlir::Value enteringWindow(EachDraftOp op, unsigned carry);
  void makeVersions(EachDraftOp op);

  //===--- ChunkProducts.cpp: tensor cores --------------------------------===//
  Together tilesTogether(const Product &product) const;
  void emitProduct(const Product &product);
  void multiplyTerms(const Factor &factor, const Together &together,
                     mlir::Value row, mlir::Value column,
                     llvm::SmallVectorImpl<mlir::Value> &sums);
  /// Where a lane's terms of an operand begin, in its memory.
  mlir::Value firstTerm(const Operand &operand, mlir::Value row, mlir::Value k);
  mlir::Value loadTerms(const Operand &operand, mlir::Value at, int64_t row,
                        bool isPaired);
  bool takesHalves(const Factor &factor) const;
  void multiplyHalves(const Factor &factor, const Together &together,
                      mlir::Value row, mlir::Value column,
                      llvm::SmallVectorImpl<mlir::Value> &sums);
  mlir::Value loadTwo(mlir::Value memory, mlir::Value row, mlir::Value column);
  void storeTwo(mlir::Value memory, mlir::Value row, mlir::Value column,
                mlir::Value value);
  mlir::Value times(mlir::Value value, int64_t factor);
  mlir::Value over(mlir::Value value, int64_t divisor);
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value lhs,
                      mlir::Value rhs);

  //===--- ChunkDecays.cpp: decays along the chain ------------------------===//
  /// Products of the decays of a chunk, if they are numbers.
  struct Weights {
    mlir::Value between; ///< [tokens, tokens], 0 unless the second is earlier
    mlir::Value after;   ///< [tokens + 1], the last of all tokens
  };
  const Weights &weightsOf(mlir::Value decays);
  void forThreads(mlir::Value count, llvm::function_ref<void(mlir::Value)> body,
                  int64_t firstWarp = 0);
  mlir::Value forDecays(
      const Stack &decays, mlir::Value column, mlir::Value first,
      llvm::function_ref<mlir::Value(mlir::Value, mlir::Value, mlir::Value)>
          body);
  mlir::Value decayOfLane(const Stack &decays);
  mlir::Value productsOverLanes(mlir::Value number, bool ofBefore);
  void inWarp(int64_t warp, llvm::function_ref<void()> body);
  void weighInWarps(const Stack &decays, const Weights &result);
  void emitPathDecay(PathDecayOp op);
  //===--- ChunkDoublings.cpp: those of channels, with rows in registers --===//
  bool findDecayedQueries(PathDecayOp op);
  bool isBesideGrams(mlir::Operation *op);
  bool areApart() const;
  bool givesWay(mlir::Value stack);
  void multiplyDoublings(llvm::ArrayRef<PathGramOp> ops);
  void multiplyPairs(mlir::Value level,
                     std::array<std::pair<mlir::Value, mlir::Value>, 2> lefts,
                     const std::pair<mlir::Value, mlir::Value> &right,
                     llvm::ArrayRef<mlir::Value> grams);
  void emitVectorGrams(llvm::ArrayRef<PathGramOp> ops);

  //===--- ChunkPaths.cpp: sums along the chain; ChunkFolds.cpp: states ---===//
  mlir::LogicalResult emitPathGram(PathGramOp op);
  llvm::SmallVector<PathGramOp> gramsBeside(PathGramOp op);
  void beginGrams(llvm::ArrayRef<PathGramOp> ops);
  void finishGrams(llvm::ArrayRef<PathGramOp> ops, const Product &product);
  void emitGrams(llvm::ArrayRef<PathGramOp> ops);
  mlir::LogicalResult emitPathProduct(PathProductOp op);
  mlir::LogicalResult emitPathSolve(PathSolveOp op);
  void solveColumn(PathSolveOp op, llvm::ArrayRef<size_t> open,
                   llvm::ArrayRef<llvm::SmallVector<size_t>> terms,
                   mlir::Value first, mlir::Value column);
  void emitRead(ReadOp op);
  void emitFold(FoldDraftsOp op);
  /// What is folded: keys with the numbers that they are multiplied by, and
  /// what comes after a token and after all, as numbers or for the state as a
  /// vector.
  struct FoldKeys {
    llvm::SmallVector<Stack> keys;
    llvm::SmallVector<std::optional<Stack>> scales;
    mlir::Value after, total;
  };
  void decayKeys(llvm::ArrayRef<std::pair<Stack, Stack>> keys,
                 const Stack &decays, mlir::Value total, mlir::Value channel);
  FoldKeys foldKeysOf(FoldDraftsOp op,
                      std::function<void(mlir::Value)> *ofChannel = nullptr);
  mlir::Value columnsBefore(mlir::Value row, int64_t ranks, int64_t keys);
  Factor pathFactor(mlir::Value gram, mlir::Value values);
  /// The left sides of products, and of each value the sides that it is the sum
  /// of, with the numbers by which these are multiplied.
  struct Sides {
    llvm::SmallVector<Operand, 2> lefts;
    llvm::SmallVector<
        llvm::SmallVector<std::pair<size_t, std::optional<Stack>>, 2>>
        terms;
  };
  Sides sidesOf(llvm::ArrayRef<mlir::Value> values, bool readsScales = true);
  mlir::Value sumOf(const Sides &sides, size_t value, mlir::Value token,
                    mlir::ValueRange sums);

  //===--- ChunkRows.cpp: rows that stay with warps -----------------------===//
  bool mayHoldRows(const Shape &of);
  bool findRowStacks();
  bool isRowStack(mlir::Value stack) const { return rowStacks.contains(stack); }
  void demandRows(mlir::Value stack);
  void demandRowsOf(mlir::Value value, EachDraftOp region);
  /// Tiles of tokens, of which a lane has a vector of four each.
  int64_t tokenTiles() const;
  mlir::Value rowOfLane();
  mlir::Value pairOfLane();
  mlir::Value twice(mlir::Value first, mlir::Value second);
  mlir::Value numbersOfTile(const Stack &stack, int64_t tile);
  void prefetchTokens();
  llvm::SmallVector<std::function<void()>> stageRows();
  Components loadRowsOf(mlir::BlockArgument argument);
  void combineReads();
  mlir::FailureOr<Components> rowsOfStack(mlir::Value stack);
  mlir::FailureOr<Components> rowsOfValue(mlir::Value value,
                                          EachDraftOp region);
  bool isRowOp(mlir::Operation *op) const;
  mlir::LogicalResult emitRowOp(mlir::Operation *op);
  mlir::LogicalResult emitRowDrafts(EachDraftOp op);
  void storeOutputRows(llvm::ArrayRef<mlir::Value> all, mlir::Value memory,
                       int64_t count);
  void storeOwnRows(llvm::ArrayRef<mlir::Value> all, mlir::Value memory,
                    int64_t count);
  void packOutputRows(llvm::ArrayRef<mlir::Value> all, mlir::Value memory,
                      int64_t count);
  void loadStateRows(mlir::BlockArgument pool);
  void storeStateRows(mlir::BlockArgument pool);

  //===--- ChunkRowProducts.cpp: their products ---------------------------===//
  /// Two parts, or one and null.
  using Split = llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>;
  mlir::Value loadTiles(mlir::Value memory, mlir::Value row, mlir::Value column,
                        bool isAcross, bool isTransposed = false);
  Components halvesOf(mlir::Value first, mlir::Value second, int64_t parts);
  std::pair<mlir::Value, mlir::Value> termsOfSums(mlir::Value sums);
  Right splitRight(mlir::Value two, bool isShort);
  struct SplitProduct {
    std::pair<mlir::Value, mlir::Value> left;
    Right right;
    mlir::Value *sum;
    mlir::Value *small = nullptr; ///< of parts that are, unless the same sum
  };
  void multiplySplit(llvm::ArrayRef<SplitProduct> products);
  Right rightAlong(mlir::Value memory, int64_t row, int64_t column);
  llvm::SmallVector<Components> multiplyState(llvm::ArrayRef<mlir::Value> rows,
                                              llvm::ArrayRef<Operand> stacks);
  void beginReads();
  void emitRowRead(ReadOp op);
  void multiplyTriangle(llvm::ArrayRef<mlir::Value> values, mlir::Value memory,
                        Split &split, llvm::MutableArrayRef<mlir::Value> sums);
  mlir::LogicalResult addPath(mlir::Value gram, mlir::Value values,
                              llvm::MutableArrayRef<mlir::Value> sums);
  mlir::LogicalResult emitRowProduct(PathProductOp op);
  int64_t tokensOfInverse() const;
  mlir::Value invertBlocks(mlir::Value gram);
  mlir::LogicalResult emitRowSolve(PathSolveOp op);
  mlir::LogicalResult emitRowFold(FoldDraftsOp op);

  //===--- ChunkShares.cpp: warps with the same rows ----------------------===//
  int64_t keysOfWarp() const { return keySize / shape.keyParts; }
  int64_t warpsBeside() const;
  mlir::Value keyPart();
  mlir::Value rowTileOfWarp();
  int64_t tokenParts() const { return std::min(shape.keyParts, tokenTiles()); }
  mlir::Value tokenPart();
  mlir::Value isFirstOfTokens();
  mlir::Value firstKey();
  mlir::Value firstRowOfWarp();
  void findDividedStacks();
  /// Tiles of tokens that a warp computes: all, or its part of them.
  int64_t tilesAtHand() const {
    return isDivided ? tokenTiles() / tokenParts() : tokenTiles();
  }
  mlir::Value tokenOfTile(int64_t tile);
  Components ownTilesOf(llvm::ArrayRef<mlir::Value> all);
  const Components *rowsAtHand(mlir::Value value);
  void meetWithSameRows();
  void sumOverKeyParts(llvm::MutableArrayRef<Components> sums,
                       const llvm::SmallBitVector &areDivided);
  void multiplyDividedTriangle(llvm::ArrayRef<mlir::Value> values,
                               mlir::Value memory, const Split &split,
                               llvm::MutableArrayRef<mlir::Value> sums);

  Shape shape;
  const ChunkForms &forms;
  int64_t chunk = 0;
  bool hasBlocks = false; ///< tokens are taken 16 at a time

  // The prompt of the row, and the tokens at hand.
  mlir::Value cuSeqlens, firstToken, tokenCount;
  mlir::Value firstInChunk, inChunk; ///< of the prompt's tokens, how many
  mlir::Value keepsPrompt; ///< whether it stays entries; null for never

  // Of a kernel that folds where chunks end.
  bool foldsByChunk = false;
  mlir::Value part;      ///< which tokens of the prompt: see ChunkEntries.cpp
  mlir::Value endOfFold; ///< tokens of the part that go into the state
  mlir::Value team;

  // What is in shared memory.
  llvm::DenseMap<mlir::Value, unsigned> demands;
  llvm::DenseMap<mlir::Value, Stack> fullStacks, tileStacks;
  llvm::DenseMap<mlir::Value, Weights> weights;
  llvm::DenseMap<unsigned, mlir::Value> heldStates; ///< by argument, [dv, dk]
  /// Memory that is free, and how large it is.
  std::map<Size, llvm::SmallVector<mlir::Value>> unused;
  llvm::DenseMap<mlir::Value, Size> sizes;
  /// Of a cluster, where what others had has become another stack's at last.
  llvm::DenseMap<mlir::Value, mlir::Operation *> takenAgain;
  llvm::DenseSet<mlir::Value> isRead, isWritten;     ///< since the last barrier
  llvm::DenseSet<mlir::Value> readByOp, writtenByOp; ///< by the one at hand
  llvm::DenseSet<mlir::Value> decayStacks;
  llvm::DenseMap<mlir::Value, int64_t> partCounts; ///< of stacks of parts
  /// Memory of elements and of what products cut off of them, of those of two
  /// tokens beside each other, and of those that warps multiply together.
  llvm::DenseSet<mlir::Value> withRests, inPairs, matrices;
  bool areHalvesInPieces = false; ///< stacks of bf16 are matrices
  mlir::Operation *endOfClearing = nullptr;

  // Of threads that are a step ahead of those with rows.
  enum class Part { All, Ahead, Rows } blockPart = Part::All;
  mlir::Value blockThread, crew, round, rounds;
  bool isRefused = false; ///< what it is made of does not come apart
  GpuPreparedSteps prepared;
  llvm::DenseMap<mlir::Operation *, mlir::Value> inverses;
  llvm::DenseMap<mlir::Value, mlir::Value> packedOutputs; ///< of an output
  llvm::DenseMap<mlir::Operation *, FoldKeys> foldKeys;

  // Of rows that stay with warps.
  bool holdsRows = false;
  mlir::Operation *startOfChunk = nullptr;
  llvm::DenseSet<mlir::Value> rowStacks;  ///< what depends on reads
  llvm::DenseSet<mlir::Value> lazyStacks; ///< computed where they are needed
  /// Tokens that warps take rows of, and where they are in shared memory.
  llvm::SetVector<mlir::BlockArgument> rowTokens;
  llvm::DenseMap<mlir::Value, mlir::Value> stagedRows;
  /// By region, the numbers that rows are made of.
  llvm::DenseMap<mlir::Operation *, llvm::SetVector<mlir::Value>> rowNumbers;
  llvm::DenseMap<unsigned, Components> heldRows; ///< by argument
  /// All tiles of them, and a warp's part of these.
  llvm::DenseMap<mlir::Value, Components> loadedRows[2], rowsOfStacks[2];
  llvm::DenseSet<mlir::Value> dividedStacks;
  bool isDivided = false;
  /// By result, the sums that it is made of, and their numbers.
  llvm::MapVector<
      mlir::Value,
      llvm::SmallVector<std::pair<Components, std::optional<Stack>>, 2>>
      rowReads;
  llvm::DenseMap<mlir::Value, Split> splitStacks;
  /// Gram products with decays of channels, [16, 16].
  llvm::DenseMap<mlir::Operation *, mlir::Value> pairGrams;
  /// Memories of stacks that give way to what doublings multiply.
  llvm::DenseSet<mlir::Value> hasRoom;
  /// Of queries of Gram products, what is made of them beside these.
  llvm::DenseMap<mlir::Value, mlir::Value> decayedQueries;
  /// Gram products whose sums are there, without decays and numbers.
  struct BegunGrams {
    struct Square {
      mlir::Value row, column, isInside;
      Components sums; ///< of each left side two tiles beside each other
    };
    llvm::SmallVector<PathGramOp> ops;
    llvm::SmallVector<Square> squares;
  };
  llvm::SmallVector<BegunGrams> begunGrams;

  // Carries: version 0 is that before the chunk.
  llvm::SmallVector<mlir::Value> nextCarries; ///< arguments of the kernel
  llvm::DenseMap<unsigned, Stack> versions;   ///< by the step's argument
  llvm::DenseSet<unsigned> knownCarries;      ///< of this region, all versions
  llvm::SmallBitVector scanned;               ///< carries of the region

  /// The token whose values are emitted.
  struct Current {
    EachDraftOp region;
    mlir::Value token;
    mlir::Value isInside; ///< of the stacks; null if all tokens are
    mlir::Value valid;    ///< whether there is one; null if that is not asked
    int64_t scope = 0, pass = 0;
    mlir::Operation *loads = nullptr; ///< where loads of tokens go
    mlir::Operation *start = nullptr; ///< of the pass
  } current;
  //===--- ChunkNumbers.cpp: numbers of tokens ----------------------------===//
  Current beginNumbers(EachDraftOp op);
  mlir::LogicalResult emitEarly(EachDraftOp op, llvm::SmallVector<Sink> early);
  static bool isFiniteOfZero(mlir::Value value, EachDraftOp region);
  Components withoutMissing(llvm::ArrayRef<mlir::Value> tiles);
  mlir::LogicalResult emitNumbers(const Current &ofNumbers,
                                  llvm::ArrayRef<Sink> sinks);
  /// Where tokens of a region may be loaded, before it.
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> earlyLoads;
  int64_t scopes = 1000;
  llvm::SmallVector<mlir::Operation *> anchors;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_CHUNKKERNEL_H
