//===- VerifyKernel.h - a verify step as a GPU kernel -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes one row of the batch, one head and a tile of dv, like a block
// that decodes, and all drafts of the row. How many they are, and their tree,
// is data; loops go as far as there may be drafts, and what a row has fewer of
// is computed for nothing and not stored.
//
// A stack has a value of each draft. It is on one of two sides, or on both:
//
// - teams: numbers and vectors over dk, in shared memory, a row a draft. Teams
//   of lanes take the drafts in turn, or all threads one draft after the other
//   where drafts take the carries of their parents.
// - rows: vectors over dv, in registers: a thread has its row of all drafts, so
//   that the triangular solve is a substitution in each thread alone.
//
// What is computed of tokens and paths comes before anything is waited for, and
// what is written to memory, which waits for the kernel ahead, behind it all.
// Then one pass over the rows of the state multiplies all vectors by tensor
// cores. Of an f32 they take 11 significant bits, so that it is split into two
// parts; what is left out is below 2^-20 of a product. Vectors that are sums of
// tokens of 16 bits, each times a number, are multiplied as they came, which is
// exact, and the numbers with what comes out.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_VERIFYKERNEL_H
#define LADLE_PASSES_GPU_VERIFYKERNEL_H

#include "passes/gpu/ChunkForms.h"
#include "passes/gpu/Kernel.h"
#include "llvm/ADT/SetVector.h"

namespace ladle {

class GpuVerifyKernel : public GpuKernel {
public:
  GpuVerifyKernel(StepOp step, StepOp fold, const GpuSchedule &schedule,
                  const GpuSlots &slots, mlir::OpBuilder &builder);

  //===--- OtherRows.cpp --------------------------------------------------===//
  /// What a kernel is made of.
  struct Source {
    StepOp step, fold;
    GpuSlots slots;
  };
  /// Builds a kernel that answers the rows with a state as `one` does, and
  /// those without as `other` does, of kv_only in pages.
  static mlir::FailureOr<mlir::gpu::GPUFuncOp>
  buildForAllRows(const Source &one, const Source &other, GpuSchedule schedule,
                  mlir::OpBuilder &builder);

private:
  void takeRowsOf(GpuVerifyKernel &other);
  /// Blocks have the threads of another kernel, whatever they had better have.
  bool hasShapeOfOther = false;

  /// Tokens are a vector as it came, in 16 bits.
  enum : unsigned { Teams = 1, Rows = 2, Tokens = 4 };
  /// Rows of shared memory, of which every draft has as many as it has
  /// components.
  struct Stack {
    mlir::Value memory;
    int64_t first = 0;
    int64_t components = 1, size = 1;
    bool isVector = false; ///< if it has one element, too
  };
  /// A vector times numbers, which are multiplied after it was used.
  struct Scaled {
    mlir::Value stack;
    llvm::SmallVector<mlir::Value> factors; ///< stacks, or one of all drafts
  };
  /// A stack of vectors times the numbers of another; null for 1.
  struct Term {
    Stack stack;
    mlir::Value scale;
  };
  /// What one read multiplies: a sum of vectors times numbers of all drafts.
  struct Query {
    mlir::Value result;
    llvm::SmallVector<Term, 2> terms;
    llvm::SmallVector<mlir::Value> factors;
  };
  /// What was read with the vectors of queries, not yet times any number.
  struct Read {
    llvm::SmallVector<Query> queries;
    llvm::SmallVector<Stack> stacks;
    Components components;
  };

  /// What tensor cores have of a tile: sums of four.
  struct TileSums {
    Components sums;
    bool areOfTokens = false;
  };
  /// What was read of a tile while entries were on their way, if not yet where
  /// threads find it, and where that is.
  struct EarlyRead {
    mlir::Value products;
    TileSums sums;
  };

  /// A field that a stack of a team is appended to.
  struct Appended {
    FieldAttr field;
    unsigned argument;
    size_t index;
  };
  //===--- VerifyChecks.cpp -----------------------------------------------===//
  mlir::LogicalResult check() override;

  //===--- VerifySides.cpp: where stacks are needed -----------------------===//
  void findRowValues(StepOp of) override;
  void findSameValues() override;
  void chooseSizes() override;
  int64_t countRanks() override { return 1; }
  bool readsMaterialisedState() override { return false; }
  bool mayMultiplyReads() override { return false; }
  bool approximates() override { return true; }
  int64_t costOfKeyValues() override;
  int64_t tileBytes() override;
  int64_t fewestThreads(int64_t rows, bool areMany) override;
  int64_t blocksAtOnce() override;
  /// Where decays are vectors, drafts leave more behind, and what is left last
  /// waits longest; of pages, where they are waits as well.
  int64_t bytesToSpill() const override {
    return !decayedKeys.empty() ? 32 : slots.arePaged() ? 16 : 0;
  }
  /// Whether the rows of a state can be put where they were copied to.
  bool keepsRows() const { return !hasSpareRows(); }
  int64_t mostEntries() override {
    return fold && !isStateless() && capacity() > drafts ? capacity() - drafts
                                                         : capacity();
  }
  bool isStateless() override {
    return step.getRoute() == Route::KvOnly && slots.arePaged();
  }
  bool dividesEntries() const override { return turns == 1; }
  /// Two blocks fill a multiprocessor of Hopper: all rows of a head share what
  /// is computed of drafts.
  int64_t wantedShared() const override {
    return std::min<int64_t>(111 << 10, mostShared());
  }
  mlir::Value canonical(mlir::Value value) const;
  bool demand(mlir::Value value, unsigned side);
  void findPairs(StepOp form);
  void findScaled(StepOp form);
  void findTerms();
  mlir::Value vectorOf(mlir::Value query) const;
  void findSides(StepOp form);
  void findSidesOf(EachDraftOp op);
  bool findSidesOf(mlir::Operation *op, EachDraftOp region);
  unsigned naturalSide(mlir::RankedTensorType ofOneDraft,
                       mlir::Value value) const;

  //===--- VerifyLayout.cpp: where vectors lie ----------------------------===//
  void layOutStacks();
  void placeHeldPaths();
  Components loadTaken(const Stack &stack, mlir::Value draft,
                       mlir::Value isThere, const Place &place);
  int64_t sharedBytes(int64_t rows) override;

  //===--- VerifyKernel.cpp: the step -------------------------------------===//
  void addArguments(llvm::SmallVectorImpl<mlir::Type> &types,
                    llvm::SmallVectorImpl<std::string> &names) override;
  void takeArguments(unsigned &next) override;
  void emitRowStart() override;
  bool findsTokens() override { return true; }
  mlir::Value emitCursor() override;
  mlir::Value isForStateless() override;
  /// Whether `count` entries are folded before the drafts.
  mlir::Value foldsAt(mlir::Value count, mlir::Value m);
  void allowWrites() override;
  void storeWaiting();
  void emitPaddedRow() override;
  bool storesZeros() override { return true; }
  mlir::LogicalResult emitRow() override;
  void loadParents();
  void emitTree();
  mlir::LogicalResult emitTeamOp(mlir::Operation *op);
  mlir::LogicalResult emitBranch(StepOp form);
  /// What others wrote to shared memory is there after it: all, or these.
  void sync();
  void sync(llvm::ArrayRef<mlir::Value> memories);
  void barrier() override;
  mlir::Value isDraft(int64_t draft);
  mlir::Value sharesHead(int64_t count);

  //===--- VerifyTurns.cpp: heads that a block takes in turn --------------===//
  /// What is emitted of drafts: all, or what the heads of a block have in
  /// common, or what only one of them has.
  enum class Phase { All, Common, OfTurn };
  int64_t headsOfGroup();
  mlir::LogicalResult chooseTurns(int64_t rows) override;
  bool isOfTurn(int64_t count) const;
  bool isOfTurn(mlir::Value value) const;
  bool isStagedNow(FieldAttr field) const override;
  int64_t headsToStage(FieldAttr field) const override;
  bool mayStageAllTurns();
  bool isNow(mlir::Value value) const;
  mlir::Value rowsFrom(mlir::Value memory, mlir::Value first, int64_t rows);
  void copyTileOfTurn(mlir::Value which, bool isWritten);
  void stageStates() override;
  void waitForStates() override;
  mlir::LogicalResult emitCommon(llvm::ArrayRef<mlir::Operation *> ops);
  mlir::Value doesNotFold();
  void takeEntriesOfTurn();
  void beginTurn(mlir::Value which);
  void releaseTile(bool isStored);
  bool releaseStoredTile(ReadOp last, mlir::Value tile);
  void endTurn();
  mlir::LogicalResult emitTurn(llvm::ArrayRef<mlir::Operation *> ops);

  //===--- VerifyDrafts.cpp: the arithmetic of drafts ---------------------===//
  int64_t scopeOf(mlir::Value value) const override;
  mlir::Value tokenRow() override;
  mlir::Operation *tokenLoads() override;
  Components loadArgument(mlir::BlockArgument argument,
                          const Place &place) override;
  mlir::FailureOr<Components> emit(mlir::Value value,
                                   const Place &place) override;
  Components loadCarry(mlir::BlockArgument carry, EachDraftOp region,
                       const Place &place);
  Components loadStack(const Stack &stack, mlir::Value draft,
                       const Place &place);
  void syncFor(EachDraftOp op, bool byAll);
  mlir::LogicalResult emitDrafts(EachDraftOp op);
  /// What lanes of a team store of a draft.
  struct Kept {
    Components components;
    Place place;
    mlir::Value guard;
    mlir::Value memory; ///< in shared memory; null for global memory
    /// Of a component, from an element on, or a number.
    std::function<void(int64_t, mlir::Value, mlir::Value)> store;
    bool ofThread = false; ///< every lane has a draft of its own
    /// Where the components are, too, for who has no registers for them.
    std::optional<Stack> held = std::nullopt;
    mlir::Value draft{};
  };
  mlir::LogicalResult emitDraftOfTeam(EachDraftOp op, mlir::Value valid,
                                      bool byAll,
                                      llvm::SmallVectorImpl<Kept> &kept);
  void storeLateEntries();
  mlir::LogicalResult emitRowCarries(EachDraftOp op);
  mlir::Value carryVersion(mlir::Value draft);
  Stack teamOf(mlir::Value stack);
  mlir::FailureOr<Components> rowsOf(mlir::Value stack);

  //===--- VerifyNumbers.cpp: numbers of drafts, a thread each ------------===//
  /// A number of a draft that a thread computes.
  struct ThreadNumber {
    mlir::Value number;
    mlir::Value stack; ///< that has it; null if none does
    llvm::ArrayRef<Appended> fields;
  };
  bool isOfTeams(mlir::Value value) const;
  bool findLate(mlir::Value number, EachDraftOp op,
                llvm::SetVector<mlir::Value> &early);
  llvm::SmallVector<ThreadNumber> findNumbers(EachDraftOp op);
  mlir::LogicalResult emitNumbersOfDrafts(EachDraftOp op);
  mlir::LogicalResult
  emitNumbers(EachDraftOp op, llvm::ArrayRef<ThreadNumber> wanted, bool isLate);
  mlir::LogicalResult emitLateNumbers();
  void keepNumber(mlir::Value memory, const Components &number,
                  mlir::Value guard, mlir::Value at,
                  llvm::SmallVectorImpl<Kept> &kept);
  void appendNumber(const ThreadNumber &of, mlir::Value number,
                    mlir::Value guard, const EntryPlace &place,
                    llvm::SmallVectorImpl<Kept> &kept, mlir::Value at = {});

  //===--- VerifyGrams.cpp: decays and products along paths ---------------===//
  mlir::Value isAncestor(mlir::Value mask, mlir::Value ancestor);
  mlir::Value maskOf(mlir::Value draft);
  mlir::Value parentOf(mlir::Value draft);
  void emitPathDecay(PathDecayOp op);
  mlir::Value multiplyAlong(mlir::Value mask, const Stack &numbers,
                            int64_t count, mlir::Value first = {});
  mlir::LogicalResult emitPathGram(PathGramOp op);
  void emitGram(const Stack &queries, const Stack &keys,
                std::optional<Stack> decays, mlir::Value gram);
  /// Gram products of tokens, and what they are the sums of.
  struct TokenGrams {
    llvm::SmallVector<PathGramOp> ops;
    llvm::SmallVector<Query> queries;
    llvm::SmallVector<Term> keys;
    llvm::SmallVector<mlir::Value> memories; ///< of the numbers
  };
  TokenGrams tokenGramsOf(llvm::ArrayRef<PathGramOp> ops);
  void emitTokenGrams(llvm::ArrayRef<PathGramOp> ops);
  void storeGrams(const TokenGrams &grams, const Stack &key, mlir::Value draft,
                  mlir::Value ancestor, mlir::Value valid,
                  llvm::function_ref<mlir::Value(const Stack &)> dotOf);
  void scaleGrams(llvm::ArrayRef<PathGramOp> ops);

  //===--- VerifyDecays.cpp: decays by elements along paths ---------------===//
  llvm::SmallVector<PathGramOp> gramsAlong(mlir::Operation *op,
                                           mlir::Value decays);
  void walkPaths(PathDecayOp path, llvm::ArrayRef<PathGramOp> ops);

  //===--- VerifySums.cpp: sums that drafts take together -----------------===//
  std::pair<mlir::Value, mlir::Value>
  sumsOverLanes(llvm::SmallVector<mlir::Value> values, int64_t count,
                mlir::Value of);
  bool isSumOfRows(mlir::Value value) const;
  mlir::FailureOr<Components> sumRowsOfDrafts(SumOp op);

  //===--- VerifyPaths.cpp: sums along ancestors --------------------------===//
  /// A Gram product and the values that it weighs.
  struct Weighed {
    mlir::Value gram, values;
    int64_t ranks, keys; // R and K
  };
  Weighed weigh(mlir::Value gram, mlir::Value values);
  /// `initial` and the weighed values of the ancestors of a draft.
  mlir::Value addPath(int64_t row, mlir::Value initial,
                      llvm::ArrayRef<Weighed> terms,
                      llvm::function_ref<mlir::Value(mlir::Value, int64_t)> at);
  /// `initial`, or zero, and the weighed values of the ancestors, for `into`.
  struct TeamSum {
    llvm::SmallVector<Weighed> terms;
    std::optional<Stack> initial;
    Stack into;
  };
  /// Sums of one size that may take each other's drafts.
  void addPathsOfTeam(llvm::ArrayRef<TeamSum> all);
  void addPathOfTeam(const TeamSum &one, mlir::Value draft, mlir::Value mask,
                     mlir::Value column);
  mlir::LogicalResult emitPathSolve(PathSolveOp op, bool ofRows);
  mlir::LogicalResult emitPathProduct(PathProductOp op, bool ofRows);

  //===--- VerifyQueries.cpp: what states and entries are read with -------===//
  llvm::SmallVector<Term, 2> termsOf(mlir::Value vector);
  Query queryOf(mlir::Value query, mlir::Value result);
  static llvm::SmallVector<Stack> stacksOf(llvm::ArrayRef<Query> queries);
  int64_t countVectors(llvm::ArrayRef<Stack> stacks) const;
  mlir::Value vectorRow(mlir::Value column, llvm::ArrayRef<Stack> stacks);
  mlir::Value numberOf(mlir::Value factor, int64_t draft);
  void keepRead(const Read &read);
  Components columnsOf(const Read &read, const Stack &wanted) const;
  Components scaleRead(const Read &read, const Query &query);
  std::optional<Components> addPair(const Read &read, const Query &query);

  //===--- VerifyProducts.cpp: rows times vectors of drafts ---------------===//
  /// Rows over dk that vectors are multiplied with.
  struct Matrix {
    mlir::Value rows;
    int64_t mostRows;
    mlir::Type element;
    /// `count` elements of a row, as they are.
    llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value from,
                                   int64_t count)>
        load;
    /// A warp stores its products where its rows are.
    bool isOverwritten = false;
    int64_t firstWarp = 0; ///< that takes rows, if not all do
  };
  using StoreProduct = llvm::function_ref<void(
      mlir::Value row, mlir::Value column, mlir::Value value)>;
  static bool areTokens(llvm::ArrayRef<Stack> stacks, mlir::Type element);
  void multiply(llvm::ArrayRef<Stack> stacks, const Matrix &matrix,
                StoreProduct store);
  void multiplyOneByOne(llvm::ArrayRef<Stack> stacks, const Matrix &matrix,
                        StoreProduct store);
  Components sumFloats(mlir::Value memory,
                       llvm::ArrayRef<mlir::Value> vectorRows,
                       const Matrix &matrix, llvm::ArrayRef<mlir::Value> rows);
  Components sumTokens(llvm::ArrayRef<mlir::Value> vectorRows,
                       const Matrix &matrix, llvm::ArrayRef<mlir::Value> rows);
  void multiplyFloats(llvm::ArrayRef<Stack> stacks, const Matrix &matrix,
                      StoreProduct store);
  void multiplyTokens(llvm::ArrayRef<Stack> stacks, const Matrix &matrix,
                      StoreProduct store);
  int64_t tokenPart() const;
  Components loadTokens(llvm::ArrayRef<mlir::Value> rows, mlir::Value from);
  static bool isShort(mlir::Type element) {
    return element.isBF16() || element.isF16();
  }

  //===--- VerifyReads.cpp: states ----------------------------------------===//
  llvm::SmallVector<Query> queriesOfState(ReadOp wanted);
  void multiplyTile(llvm::ArrayRef<Stack> stacks, mlir::Value tile,
                    bool isOverwritten, StoreProduct store);
  void emitEarlyReads();
  mlir::Value placeOfEarlyReads(llvm::ArrayRef<Stack> stacks);
  void keepSums(ReadOp wanted, Read read, TileSums sums, mlir::Value products);
  mlir::LogicalResult emitStackReads(ReadOp wanted);
  mlir::Value placeOfStateProducts(int64_t columns);
  mlir::Value productsInTile(ReadOp wanted, mlir::Value tile, int64_t columns);
  mlir::FailureOr<mlir::Value> tileOf(mlir::Value state);
  mlir::Value rebuiltInPlace(mlir::Value state);
  mlir::LogicalResult storeState(StoreStateOp op);

  //===--- VerifyEntries.cpp: entries -------------------------------------===//
  mlir::Value entryWeightsOf(ReadBufferOp op);
  mlir::Value weightsOfTurns(llvm::function_ref<Components()> weigh);
  mlir::Value dotsInKeys(ReadBufferOp op, llvm::ArrayRef<Stack> stacks);
  mlir::LogicalResult emitStackEntries(ReadBufferOp op);
  void multiplyEntries(ReadBufferOp op, llvm::ArrayRef<Stack> stacks,
                       mlir::Value scratch, mlir::Value weightOf, bool isInKeys,
                       int64_t firstWarp = 0);
  llvm::SmallVector<ReadBufferOp> readsBeside(ReadBufferOp op);
  void emitEntryDots(ReadBufferOp op);
  mlir::LogicalResult emitStackTransport(TransportOp op);
  mlir::Value placeOfDots(llvm::ArrayRef<Stack> stacks, int64_t ranks);

  //===--- VerifyStores.cpp: what drafts leave ----------------------------===//
  /// A stack that drafts leave, and where it goes.
  struct StoredStack {
    mlir::Value value, target;
    bool asEntries;
  };
  void storeKept(llvm::ArrayRef<Kept> all);
  void emitDraftPlaces();
  /// Where the entry of a draft is put.
  EntryPlace placeOfDraft(mlir::Value draft);
  llvm::SmallVector<mlir::Value> placeOfStack(const StoredStack &stack,
                                              mlir::Value draft);
  mlir::LogicalResult storeStacks(StepOp form);
  mlir::LogicalResult storeStack(const StoredStack &stack);
  mlir::Value tileToPackIn();
  int64_t bitsOf(mlir::Value memory) const;
  bool isOfThreadRows(const StoredStack &stack);
  bool mayPack(const StoredStack &stack);
  int64_t rowsToPack(const StoredStack &stack);
  using Stacks = llvm::ArrayRef<StoredStack>;
  llvm::FailureOr<llvm::SmallVector<Components>> rowsOfStacks(Stacks stacks);
  mlir::LogicalResult packStacks(Stacks stacks, mlir::Value tile,
                                 llvm::SmallVectorImpl<mlir::Value> &memories);
  int64_t partsOfRow() const;
  void storePacked(const StoredStack &stack, mlir::Value memory, int64_t first,
                   int64_t from = 0);
  bool mayLeave(llvm::ArrayRef<StoredStack> all);
  mlir::Value placeToLeave(int64_t rows, mlir::Type element, bool isOnly);
  mlir::LogicalResult leaveStacks(llvm::ArrayRef<StoredStack> all);
  void storeLeft();

  //===--- VerifyHeld.cpp: what a warp adds up for its rows ---------------===//
  void warpBarrier();
  bool hasRowsOfThreads() const;
  std::pair<mlir::Value, mlir::Value> groupOfLane();
  mlir::Value firstHeldRow();
  TileSums sumTile(llvm::ArrayRef<Stack> stacks, mlir::Value tile);
  TileSums sumTileEarly(llvm::ArrayRef<Stack> stacks, mlir::Value tile);
  llvm::SmallVector<mlir::Value> placeOfProducts(mlir::Value column,
                                                 mlir::Value inWarp);
  Components exchangeSums(llvm::ArrayRef<Stack> stacks, const TileSums &of,
                          mlir::Value products);
  ReadBufferOp entriesOfState();
  mlir::Value queryOfEntries(ReadBufferOp op, mlir::Value result);
  bool mayHoldValues();
  void holdValues();
  mlir::Value heldValue(int64_t entry, mlir::Value offset,
                        int64_t row) override;
  bool holdsRows() const override { return holdsValues; }
  int64_t eightsOfEntries() { return llvm::divideCeil(mostEntries(), 8); }
  int64_t floatsOfEight(llvm::ArrayRef<Stack> stacks) const;
  mlir::Value placeOfDot(mlir::Value entry, mlir::Value column);
  Components loadDots(mlir::Value column, int64_t tile);
  Components addHeldTile(llvm::ArrayRef<Stack> stacks, const TileSums &before,
                         int64_t tile);
  TileSums addHeldValues(llvm::ArrayRef<Stack> stacks, const Query &query,
                         TileSums all);

  int64_t most() const { return drafts; }
  int64_t teamLanes() const { return hasWarpValues ? 32 : lanes; }
  int64_t teams() const { return schedule.threads / teamLanes(); }

  // The drafts of the row.
  mlir::Value cuSeqlens, parentArgument, hasParents;
  /// Of the draft of a thread.
  mlir::Value ownParent;
  mlir::Value firstDraft, draftCount;
  mlir::Value team, teamLane;
  mlir::Value parents, ancestors; ///< [drafts] in shared memory
  mlir::Value version;            ///< of the carries of the history
  /// Of pages: which drafts' entries are put into, and where in them, [drafts]
  /// in shared memory, so that no registers have them.
  mlir::Value draftPages, draftEntries;

  // Where stacks are.
  llvm::DenseMap<mlir::Value, unsigned> sides;
  llvm::SetVector<mlir::Value> crossing; ///< of drafts, that rows take
  llvm::MapVector<mlir::Value, Scaled> scaled;
  /// By what is read of a state, what is read of entries and added to it, as it
  /// was read.
  llvm::DenseMap<mlir::Value, mlir::Value> pairs;
  llvm::DenseMap<mlir::Value, Read> unscaledReads;
  llvm::MapVector<mlir::Value, llvm::SmallVector<Appended>> appended;
  llvm::MapVector<mlir::Value, int64_t> vectorRows, tokenRows;
  int64_t vectorCount = 0, vectorPitch = 0;
  int64_t tokenCount = 0, tokenPitch = 0;
  mlir::Value vectors; ///< all stacks of vectors over dk
  mlir::Value tokens;  ///< those that are as they came, in 16 bits
  /// By stack, what it is the sum of. Of all that is multiplied, or of nothing.
  ChunkForms terms;
  llvm::DenseMap<mlir::Value, Stack> stacks;
  llvm::DenseMap<mlir::Value, Components> rowStacks;
  llvm::DenseMap<mlir::Value, mlir::Value> grams; ///< [drafts · R, drafts · K]
  /// Decays of paths that teams have of their drafts, by the stack.
  llvm::DenseMap<mlir::Value, Components> pathsOfTeams;
  /// Paths that have no rows; stacks in whose rows others are put; and who puts
  /// them where all teams have read.
  llvm::DenseSet<mlir::Value> heldPaths, takenStacks;
  llvm::DenseSet<mlir::Operation *> fillsFreed;
  /// Where teams walked along paths, if no barrier came since.
  mlir::Block *readByOthers = nullptr;
  llvm::DenseMap<mlir::Value, Stack> teamCarries, rowCarries;
  /// What entries weigh, by the buffer and the fields that they are weighed
  /// by: [entries] in shared memory.
  std::map<
      std::tuple<unsigned, std::string, std::string, std::string, std::string>,
      mlir::Value>
      entryWeights;
  llvm::DenseMap<unsigned, mlir::Value> storedTiles;
  llvm::DenseMap<mlir::Value, mlir::Value> rebuiltTiles;
  llvm::SmallVector<mlir::Value> stateProducts;
  llvm::DenseMap<mlir::Value, mlir::Value> productsInTiles; ///< by the tile
  /// By tile and type, where rows of drafts lie before they are stored.
  llvm::DenseMap<std::pair<mlir::Value, mlir::Type>, mlir::Value> packedRows;
  llvm::DenseSet<mlir::Value> usedProducts; ///< of the form at hand
  llvm::DenseSet<mlir::Value> readTiles;    ///< of that form, by all threads
  llvm::SmallSetVector<mlir::Value, 8> written; ///< behind no barrier yet
  bool waited = false;
  bool isInBranch = false; ///< what is emitted is of one form alone
  /// Whether threads have the values of entries, which then take no shared
  /// memory; those, four rows of an entry each; and what they are weighed by,
  /// where it lies, and the elements of eight entries of it.
  bool holdsValues = false;
  bool isStoredReleased = false; ///< by rows that fold, when they have read it
  Components heldValues;
  struct Dots {
    mlir::Value memory;
    int64_t pitch = 0;
  } heldDots;
  /// What is stored when something may be written: whether it may be, vectors
  /// that threads have meanwhile, and numbers that shared memory has.
  bool mayWrite = false;
  llvm::SmallVector<Kept> lateEntries, commonEntries;
  llvm::SmallVector<std::function<void()>> waitingNumbers;
  llvm::DenseSet<mlir::Operation *> emittedDrafts;
  llvm::DenseSet<mlir::Value> ofThreads; ///< numbers that threads compute
  /// Those that come after the sums that teams store, and, by the number,
  /// where these sums and the numbers before them are.
  llvm::SmallVector<std::pair<EachDraftOp, llvm::SmallVector<ThreadNumber>>>
      lateNumbers;
  llvm::SetVector<mlir::Value> sumsOfTeams;
  llvm::DenseMap<mlir::Value, mlir::Value> stacksOfNumbers;
  llvm::DenseSet<mlir::Value> lateMemories; ///< of such numbers
  /// Gram products of tokens that wait for the numbers they are multiplied by.
  llvm::SmallVector<PathGramOp> unscaledGrams;
  /// Before it, what tokens are converted to is not waited for.
  mlir::Operation *startOfTokens = nullptr;

  /// The draft whose values are emitted.
  struct Current {
    EachDraftOp region;
    mlir::Value draft;
    int64_t number = 0; ///< if rows are
    bool ofRows = false, inLoop = false;
    int64_t scope = 0;
    bool ofThread = false, isLate = false;
    mlir::Value inAllTurns{};        ///< of a thread, among those of all turns
    mlir::Value isThere{}, wanted{}; ///< of a team; the draft, if it is there
  } current;
  int64_t scopes = 1000;

  Phase phase = Phase::All;    ///< of heads that a block takes in turn
  mlir::Value firstHead, turn; ///< the turn null before the first
  mlir::Value poolOfTurns;
  bool stagesAllTurns = false; ///< entries of all, before the first turn
  /// What turns have put into shared memory, [turns · rows of a turn, dv], and
  /// which of these are a stack's first.
  struct LeftStack {
    StoredStack stack;
    mlir::Value memory;
    int64_t first, ofTurn;
  };
  llvm::SmallVector<LeftStack> leftStacks;
  llvm::SetVector<mlir::Value> ofAllTurns; ///< stacks that all turns have
  llvm::DenseSet<mlir::Operation *> commonDrafts, draftsOfTurn;
  /// Products of keys of drafts, the first row of theirs, with queries; and of
  /// those of entries, by what reads them.
  std::map<std::pair<int64_t, int64_t>, mlir::Value> tokenProducts;
  llvm::DenseMap<mlir::Value, mlir::Value> entryDots;
  /// What a form has already multiplied, by what reads it.
  llvm::DenseMap<mlir::Value, mlir::Value> dotsOfForm;
  /// Of the tile that is there, by the state.
  llvm::DenseMap<mlir::Value, EarlyRead> earlyReads;
  llvm::SmallVector<mlir::Operation *> pastAnchors;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_VERIFYKERNEL_H
