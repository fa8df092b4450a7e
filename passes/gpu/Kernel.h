//===- Kernel.h - a step as a GPU kernel ------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes one row of the batch, one head of the state and a tile of dv.
// What it needs of the state and of the entries is copied to shared memory by
// asynchronous bulk copies, all started before anything waits; what rows of the
// state do with each other is nothing, so that a block needs few barriers.
//
// Where values are (a Place):
//
// - a number of a head is in every thread;
// - a vector over dk is spread over the lanes of a group, 16 bytes of a state
//   wide each, and the same in every group: sums over dk are butterflies of
//   few lanes, and a row of the state meets it without any exchange;
// - of a vector over dv, a thread owns one row of the tile: a group reads as
//   many rows as it has lanes, and its butterfly leaves row i with lane i.
//
// Rows that fold and rows that do not take two branches of one kernel.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_KERNEL_H
#define LADLE_PASSES_GPU_KERNEL_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/build/Locations.h"
#include "passes/build/MemoryLayout.h"
#include "passes/gpu/KernelLayout.h"
#include <map>

namespace ladle {

/// Tiles and lanes are of one size for all states of a kernel.
mlir::LogicalResult checkStates(StepOp step);

class GpuKernel {
public:
  /// `fold` is the form of the rows that fold, or null if there is none.
  GpuKernel(StepOp step, StepOp fold, const GpuSchedule &schedule,
            const GpuSlots &slots, mlir::OpBuilder &builder)
      : step(step), fold(fold), schedule(schedule), drafts(slots.drafts),
        slots(slots), b(unnamed(step.getLoc()), builder) {}
  virtual ~GpuKernel() = default;

  /// Builds the kernel at the builder's place. Diagnostics name what cannot be
  /// lowered.
  mlir::FailureOr<mlir::gpu::GPUFuncOp> build();

protected:
  /// All components of a value; of a vector over dk its chunks one after the
  /// other.
  using Components = llvm::SmallVector<mlir::Value>;
  using Values = llvm::ArrayRef<mlir::Value>;

  /// Diagnostics of what no kernel is made of.
  virtual mlir::LogicalResult check();

  //===--- Geometry.cpp ---------------------------------------------------===//
  virtual void findSameValues();
  virtual void findRowValues(StepOp of);
  void findRowValuesOf(mlir::Operation *op);
  virtual bool readsMaterialisedState();
  virtual int64_t costOfKeyValues();
  /// Bytes of a state in a block, unless a schedule says otherwise.
  virtual int64_t tileBytes();
  /// Bytes of shared memory that a block asks for.
  int64_t bytesOfShared();
  /// Blocks that shared memory leaves on a multiprocessor of Hopper.
  int64_t blocksInShared();
  /// Blocks that a multiprocessor is to hold; 0 is left to ptxas.
  virtual int64_t blocksAtOnce();
  virtual int64_t bytesToSpill() const { return 0; } ///< for as many blocks
  /// Of a block with so many rows, one of few or of many.
  virtual int64_t fewestThreads(int64_t rows, bool areMany);
  virtual int64_t fewestLanes();
  int64_t headsToPack(); ///< PackedHeads.cpp
  /// Whether approximate exponentials are a gain.
  virtual bool approximates() { return packed > 1; }
  virtual void chooseSizes();
  /// How many heads a block with so many rows takes in turn.
  virtual mlir::LogicalResult chooseTurns(int64_t /*rows*/) {
    return mlir::success();
  }
  /// Vectors that rows meet at a time.
  virtual int64_t countRanks();
  virtual int64_t sharedBytes(int64_t rows);
  /// Bytes of shared memory that a block may have, and what it is to do with.
  int64_t mostShared() const;
  virtual int64_t wantedShared() const;
  mlir::LogicalResult chooseShared(int64_t rows);
  mlir::LogicalResult chooseGeometry();

  //===--- Kernel.cpp: arguments, the task of a block, forms --------------===//
  llvm::SmallVector<StepOp, 2> forms();
  void createFunction();
  /// Arguments of what kernels of drafts take besides, by their types.
  virtual void addArguments(llvm::SmallVectorImpl<mlir::Type> &types,
                            llvm::SmallVectorImpl<std::string> &names);
  virtual void takeArguments(unsigned &next);
  mlir::Operation *anchor();
  void emitTask();
  mlir::Value emitSlots();
  /// Whether it may start before kernels ahead have ended, and writes after it.
  virtual bool startsEarly() { return step.getForm() != Form::Fold; }
  void letNextStart();
  void waitForPrevious();
  virtual void allowWrites() {} ///< of kernels that put off their wait
  /// What tokens are found by, before any is loaded.
  virtual void emitRowStart() {}
  /// Whether what is loaded first finds tokens: loads of a slot do not wait.
  virtual bool findsTokens() { return false; }
  /// Stores zeros to `outputs` of one row of tokens.
  void zeroOutputs(mlir::Value tokenRow);
  virtual void emitPaddedRow() { zeroOutputs(row); }
  virtual bool storesZeros() { return step.getForm() != Form::Fold; }
  virtual mlir::Value emitCursor();
  /// Loads where the row stands. Returns from which fill on it folds, or null.
  mlir::Value loadCursor();
  mlir::Value loadRaw(mlir::Value from, Values at, llvm::StringRef name);
  mlir::Value loadNumber(mlir::Value from, Values at, llvm::StringRef name);
  /// Entries that a place is known of: those of drafts may be more than fit.
  int64_t knownPlaces();
  virtual void emitPlaces();
  void emitActive(mlir::Value padded, bool storesZeros,
                  llvm::function_ref<mlir::LogicalResult()> body,
                  mlir::LogicalResult &result);
  mlir::LogicalResult emitForm(StepOp form);
  virtual mlir::LogicalResult emitRow();
  void takeVersions();

  //===--- Prologue.cpp ---------------------------------------------------===//
  mlir::LogicalResult handToGroups(Values roots, const Place &place);
  mlir::LogicalResult emitKeyValues();
  mlir::LogicalResult emitLateQueries();
  mlir::LogicalResult emitNumbers();
  mlir::LogicalResult emitSharedReads(bool ofStates);
  mlir::LogicalResult emitPrologue();

  //===--- Pages.cpp ------------------------------------------------------===//
  mlir::Value isOwn(mlir::Value block);
  mlir::Value withoutMark(mlir::Value block);
  /// Whether the row is for this kernel: null for always. Finds its states.
  mlir::Value emitBlocks();
  mlir::Value takeStates();
  /// Whether it is for the kernel of rows without a state.
  virtual mlir::Value isForStateless() { return hasNoState; }
  /// Whether no row of its own has a state.
  virtual bool isStateless() { return false; }
  /// Threads share what they load of entries whose keys decay.
  virtual bool dividesEntries() const { return false; }
  /// Where entry `position` of the row lies.
  EntryPlace placeOf(mlir::Value position);
  mlir::Value rowOfPlace(mlir::Value place, mlir::Value pages);
  /// The same of place `slot` of the ring, by the slot's pages if it has them.
  EntryPlace placeAt(mlir::Value slot, mlir::Value own = {});
  /// Where an entry is put: without a page of its own in the spare one.
  EntryPlace placeToWrite(mlir::Value position);
  int32_t placeOfNone();
  mlir::Value pageAt(mlir::Value index, mlir::Value own, bool isWritten);

  //===--- Sinks.cpp ------------------------------------------------------===//
  mlir::LogicalResult storeValue(mlir::Value value, mlir::Value memory,
                                 Values outer, mlir::Value entry,
                                 bool alongRows);
  mlir::LogicalResult emitOutputs(StepOp form);
  mlir::LogicalResult emitSinks(StepOp form);

  //===--- Staging.cpp: copies to shared memory ---------------------------===//
  virtual void stageStates();
  bool hasManyBlocks(int64_t rows) const;
  void stageEntries();
  void stageField(mlir::Value buffer, size_t index);
  /// Whether a field is staged now, or in another turn of the block.
  virtual bool isStagedNow(FieldAttr) const { return true; }
  /// How many heads' entries of it.
  virtual int64_t headsToStage(FieldAttr) const { return 1; }
  bool isStaged(unsigned argument, FieldAttr field) const;
  void gatherFields();
  mlir::memref::DmaStartOp startCopy(mlir::Value from, Values at,
                                     mlir::Value to, mlir::Value toRow,
                                     mlir::Value count, mlir::Value counter,
                                     int64_t stride, int64_t each);
  void copyByThreads(mlir::Value count, int64_t each,
                     llvm::function_ref<void(mlir::Value, mlir::Value)> copy);
  void waitForEntries();
  virtual void waitForStates();

  //===--- Pieces.cpp: tiles that are copied and waited for in parts ------===//
  bool hasPieces() const { return schedule.pieces * schedule.stages > 1; }
  mlir::LogicalResult checkPieces();
  void stagePieces(mlir::Value pool, mlir::Value tile);
  /// Until the rows of the first `count` stages are there for this warp.
  void waitForStages(int64_t count);

  //===--- TransposedStates.cpp: states of the layout dk_dv ---------------===//
  bool isTransposed(unsigned argument);
  bool isTransposed(StoreStateOp op) {
    return isTransposed(
        llvm::cast<mlir::BlockArgument>(op.getPool()).getArgNumber());
  }
  int64_t tileRowsWithSpare() const {
    return schedule.threads / lanes * rowsPerThread;
  }
  int64_t rowsAcross(mlir::Type element);
  void stageTransposed(unsigned argument, bool isLoaded);
  void storeTransposed(unsigned argument);
  void forSquares(llvm::function_ref<
                      void(llvm::ArrayRef<std::pair<mlir::Value, mlir::Value>>)>
                      body,
                  int64_t rows, int64_t across);

  //===--- Values.cpp: token values ---------------------------------------===//
  mlir::FailureOr<Components> get(mlir::Value value, const Place &place);
  virtual mlir::FailureOr<Components> emit(mlir::Value value,
                                           const Place &place);
  mlir::FailureOr<Components> emitElementwise(mlir::Operation *op,
                                              const Place &place);
  mlir::FailureOr<Components> emitBroadcast(BroadcastOp op, const Place &place);
  virtual Components loadArgument(mlir::BlockArgument argument,
                                  const Place &place);
  /// What values differ by besides their place: drafts, where there are any.
  virtual int64_t scopeOf(mlir::Value) const { return 0; }
  /// The row that tokens are loaded of, and where their loads go.
  virtual mlir::Value tokenRow() { return row; }
  virtual mlir::Operation *tokenLoads() { return endOfTokenLoads; }
  void remember(mlir::Value value, const Place &place, Components components);

  //===--- Exchange.cpp: what crosses places ------------------------------===//
  mlir::FailureOr<Components> emitSum(SumOp op, const Place &place);
  mlir::FailureOr<Components> emitRotate(RotateOp op, const Place &place);
  mlir::FailureOr<Components> exchange(mlir::Value value, const Place &from,
                                       const Place &to);
  /// All of a value in shared memory, [components, size].
  mlir::FailureOr<mlir::Value> whole(mlir::Value value, const Place &place);
  /// The same before a barrier that is the caller's.
  mlir::FailureOr<mlir::Value> putWhole(mlir::Value value, const Place &place);
  Components assemble(Values scalars, const Place &place);
  mlir::Value sumOverBlock(mlir::Value value);
  mlir::Value sumOverLanes(mlir::Value value, int64_t count);
  mlir::Value sumOverGroup(mlir::Value value);
  mlir::Value sumOverRows(llvm::MutableArrayRef<mlir::Value> rows);

  //===--- Places.cpp: threads, memory, arithmetic ------------------------===//
  Place keyPlace(int64_t size) const;
  /// Which of a place's lanes a thread is.
  mlir::Value laneOf(const Place &place);
  std::optional<Place> warpPlace(int64_t size) const;
  /// Where values of tokens are computed.
  Place valuePlace(int64_t size) const;
  Place entryPlace() const;
  Place rowPlace() const;
  Place placeOf(mlir::RankedTensorType type, bool alongRows) const;
  bool dependsOnRows(mlir::Value value) const;
  /// The row of a thread in a dimension of `size`; the last one, if it has
  /// none.
  mlir::Value rowIn(int64_t size);
  mlir::Value ownsRowIn(int64_t size); ///< null if every thread has one
  mlir::Value constantIndex(int64_t value);
  mlir::Value constantFloat(double value);
  mlir::Value constantInt(int32_t value);
  mlir::Value shared(llvm::ArrayRef<int64_t> shape, llvm::StringRef name,
                     mlir::Type element = {});
  /// The same in the bytes of `memory`, which nobody needs any more.
  mlir::Value sharedIn(mlir::Value memory, llvm::ArrayRef<int64_t> shape,
                       llvm::StringRef name, mlir::Type element = {});
  mlir::Value add(mlir::Value lhs, int64_t rhs);
  /// Gives a value a name in what is printed.
  static mlir::Value named(mlir::Value value, llvm::StringRef name);
  mlir::Value headIndex(int64_t heads);
  /// Of chunk c of a place: its first element, held within the size.
  mlir::Value chunkStart(const Place &place, int64_t c);
  bool isPartial(const Place &place, int64_t c) const;
  mlir::Value isBelow(mlir::Value value, int64_t bound);
  mlir::Value both(mlir::Value lhs, mlir::Value rhs);
  void guarded(mlir::Value condition, llvm::function_ref<void()> body);
  mlir::Value toF32(mlir::Value value);
  mlir::Value convertTo(mlir::Value value, mlir::Type elementType);
  mlir::Value loadElement(mlir::Value memory, Values indices);
  Components loadVector(mlir::Value memory, Values outer, const Place &place);
  mlir::Value splat(mlir::Value scalar, int64_t width);
  mlir::Value shuffle(mlir::Value value, mlir::Value operand, int64_t width,
                      mlir::gpu::ShuffleMode mode);
  mlir::Value shuffleXor(mlir::Value value, int64_t mask);
  virtual void barrier();

  //===--- States.cpp: rows -----------------------------------------------===//
  /// How the rows of a state are spread: a thread has parts of rows first,
  /// first + step, ... of which so many are in registers at a time.
  struct Sheet {
    Place place;
    mlir::Value first;
    mlir::Value offset; ///< rows that are behind; null for none
    int64_t step = 1, rows = 1, atOnce = 1;
    /// What operations of the rows have of them, if chunks are gone through.
    llvm::DenseMap<mlir::Operation *, Components> prepared{};
  };
  /// Until row i of the sheet is there.
  void waitForRow(const Sheet &sheet, int64_t i);
  /// For reads: a row a group. For stores: a row a warp, if one divides so.
  Sheet readSheet();
  Sheet storeSheet();
  /// Rows [first, first + count) of a thread: row i, chunk c at i·chunks + c.
  mlir::FailureOr<Components> stateRows(mlir::Value state, const Sheet &sheet,
                                        int64_t first);
  mlir::FailureOr<Components> emitRows(mlir::Value state, const Sheet &sheet,
                                       int64_t first);
  mlir::LogicalResult prepareRows(mlir::Value state, const Place &place);
  mlir::LogicalResult emitReads(ReadOp wanted);
  /// Where the rows of a state go: to a pool, to shared memory, or both. In
  /// place is where they were copied to, from where they leave in one piece.
  struct Target {
    mlir::Value state;
    mlir::Value pool; ///< of the step; null for shared memory alone
    mlir::Value tile; ///< [rows of the tile, dk], or null
    bool inPlace = false;
    bool isTransposed = false; ///< the pool is [dk, dv]: by way of the tile
  };
  Target targetOf(StoreStateOp op);
  mlir::LogicalResult emitStore(const Target &target);
  mlir::LogicalResult storeSheets(const Target &target);
  mlir::LogicalResult storeInTurns(const Target &target, const Sheet &sheet);
  mlir::Value rowInWarp(const Sheet &sheet, int64_t i);
  mlir::LogicalResult storeRows(const Target &target, const Sheet &sheet,
                                int64_t first);
  mlir::Value rowOf(const Sheet &sheet, int64_t i);
  mlir::Value valueOfRow(mlir::Value value, const Sheet &sheet, int64_t i);
  bool hasSpareRows() const {
    return schedule.threads / lanes * rowsPerThread > schedule.tileRows;
  }
  mlir::Value clampedRow(mlir::Value local);
  mlir::Value dotChunks(Values lhs, Values rhs);

  //===--- Tiles.cpp: products of tiles by tensor cores -------------------===//
  virtual bool mayMultiplyReads();
  bool mayMultiplyFolds();
  mlir::Value multiplyTiles(mlir::Value a, mlir::Value b, mlir::Value c);
  mlir::Value multiplyShortTiles(mlir::Value a, mlir::Value b, mlir::Value c);
  Components partsOf(mlir::Value value, int64_t count);
  mlir::Value upperBits();
  std::pair<mlir::Value, mlir::Value> splitTerms(mlir::Value value);
  int64_t numberQueries();
  int64_t queryPartBytes();
  mlir::LogicalResult putQueries(Values queries);
  mlir::FailureOr<Components>
  multiplyQueries(llvm::ArrayRef<int64_t> queries, int64_t tileCount,
                  llvm::function_ref<mlir::Value(int64_t, mlir::Value)> load);
  mlir::FailureOr<llvm::SmallVector<int64_t>> queriesOf(Values values);
  mlir::LogicalResult multiplyReads(llvm::ArrayRef<ReadOp> reads);
  mlir::LogicalResult multiplyEntries(ReadBufferOp op, mlir::Value scratch,
                                      Values weights);
  Sheet tileSheet();
  mlir::LogicalResult putRowOperands(mlir::Value state);
  mlir::LogicalResult prepareTile(mlir::Value state, Sheet &sheet,
                                  mlir::Value later);
  mlir::LogicalResult storeTiles(const Target &target);
  bool storesInPlace(StoreStateOp op);
  void copyTileBack(const Target &target);
  mlir::LogicalResult emitTileRows(const Target &target, const Sheet &sheet);
  /// Lanes have values of entries for rows side by side: one, of two rows.
  virtual bool holdsRows() const { return false; }
  virtual mlir::Value heldValue(int64_t, mlir::Value, int64_t) { return {}; }
  bool takesShortTiles(FoldBufferOp op);
  void multiplyShortFold(Values values, llvm::ArrayRef<Components> keys,
                         llvm::MutableArrayRef<mlir::Value> sums);
  Components weightedTiles(FoldBufferOp op, const Sheet &sheet,
                           mlir::Value later);
  Components multiplyFold(FoldBufferOp op, const Sheet &sheet);
  mlir::Value entryOfTile(int64_t tile, int64_t i);
  int64_t partCount(mlir::Type type) const;

  //===--- Buffers.cpp: entries -------------------------------------------===//
  int64_t capacity();
  /// Entries that are read at once: drafts of a row that folds find room beside
  /// them.
  virtual int64_t mostEntries() { return capacity(); }
  int64_t tilesOfEntries(FoldBufferOp op);
  static unsigned argumentOf(mlir::Value buffer) {
    return llvm::cast<mlir::BlockArgument>(buffer).getArgNumber();
  }
  /// Entries of a page; 0 if those of a slot lie side by side.
  int64_t page(), countPages();
  mlir::Value ringSlot(mlir::Value position);
  /// Row `rank` of an entry among rows that are entries times ranks.
  mlir::Value rowOfEntry(mlir::Value position, int64_t rank, int64_t ranks);
  mlir::Value lastEntry();
  std::pair<mlir::Value, llvm::SmallVector<mlir::Value>>
  entryMemory(mlir::Value buffer, FieldAttr field, int64_t rank,
              mlir::Value position);
  Components loadEntry(mlir::Value buffer, llvm::StringRef name, int64_t rank,
                       mlir::Value position, const Place &place);
  mlir::Value loadEntryRow(mlir::Value buffer, llvm::StringRef name,
                           int64_t rank, mlir::Value position,
                           mlir::Value local);
  /// A number of every entry: entry 32 p + i is with lane i of part p.
  Components numbersOf(mlir::Value buffer, llvm::StringRef name);
  mlir::Value numberAt(Values parts, mlir::Value position);
  mlir::LogicalResult emitReadBuffer(ReadBufferOp op);
  Components
  sumWeightedValues(mlir::Value buffer,
                    llvm::ArrayRef<std::pair<llvm::StringRef, int64_t>> names,
                    mlir::Value weights, int64_t accumulators,
                    mlir::Value scales = {});

  //===--- Weights.cpp ----------------------------------------------------===//
  /// What an entry weighs: the product of the decays of all entries after it.
  /// Numbers lie as `numbersOf` has them; for vectors, keys are decayed.
  struct Decays {
    Components numbers;
    mlir::Value product;       ///< of all entries, if they are numbers
    mlir::Value productMemory; ///< [dk], if they are vectors
  };
  const Decays &decaysOf(mlir::Value buffer, llvm::StringRef name);
  void emitNumberDecays(mlir::Value buffer, llvm::StringRef name,
                        Decays &result);
  /// The product of numbers of each entry: its scales, and its decay if that
  /// is a number. Empty where there is none.
  Components weightsOf(mlir::Value buffer, std::optional<llvm::StringRef> decay,
                       llvm::ArrayRef<std::optional<llvm::StringRef>> scales);
  void emitWeights(StepOp form, bool vectors);

  //===--- DecayedKeys.cpp ------------------------------------------------===//
  using Entries = llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>;
  struct EarlyColumns {
    Columns columns;
    Entries entries;
    EntryColumns loaded;
  };
  void findDecayedKeys();
  /// The key with these decays, or null where these are none or numbers.
  DecayedKey *decayedKey(mlir::Value buffer, llvm::StringRef name,
                         std::optional<llvm::StringRef> decay);
  bool isLoadedByColumns(unsigned argument, FieldAttr field) const;
  int64_t rowOfDecayedKeys(int64_t size) const;
  int64_t decayedKeyBytes();
  Components weightsOfUse(mlir::Value buffer, llvm::StringRef key,
                          std::optional<llvm::StringRef> decay, Scales scales);
  Components loadKey(mlir::Value buffer, llvm::StringRef name,
                     std::optional<llvm::StringRef> decay, int64_t rank,
                     mlir::Value position, const Place &place);
  Columns columnsOf(int64_t size) const;
  Columns dividedColumns(int64_t size) const;
  void placeColumns(Columns &columns, mlir::Value first);
  EntryColumns
  loadColumns(mlir::Value buffer, llvm::StringRef decay, const Columns &columns,
              llvm::ArrayRef<std::pair<mlir::Value, mlir::Value>> entries);
  mlir::Value
  decayColumns(mlir::Value buffer, llvm::StringRef decay,
               const Columns &columns,
               llvm::ArrayRef<std::pair<mlir::Value, mlir::Value>> entries,
               const EntryColumns &loaded, mlir::Value passed);
  Entries entriesFrom(mlir::Value newest, int64_t count);
  Entries entriesOfPart(const Columns &columns);
  mlir::Value decaysOfNewerParts(const Columns &columns, Values decays);
  void loadDecayedEntries();
  void emitVectorDecays(mlir::Value buffer, llvm::StringRef name,
                        Decays &result);

  //===--- TileChains.cpp: what tiles are made of -------------------------===//
  /// Parts of keys that decay by elements, for a state of 16 bits.
  static constexpr int64_t kKeyParts = 2;
  void planTile(mlir::Value state);
  void splitDecayedKeys();
  void splitRows(const DecayedKey &key, mlir::Value from, mlir::Value count,
                 mlir::Value firstRow, Values factors);

  //===--- Folds.cpp and Transport.cpp ------------------------------------===//
  mlir::FailureOr<Components> emitFold(FoldBufferOp op, const Sheet &sheet,
                                       int64_t first);
  bool weighsValues(FoldBufferOp op);
  mlir::Value weightedValuesOf(FoldBufferOp op);
  mlir::FailureOr<Components> emitReplay(ReplayOp op, const Sheet &sheet,
                                         int64_t first);
  mlir::LogicalResult emitTransport(TransportOp op);
  /// What a transition is made of, for one entry.
  struct Transition {
    Components decay;
    llvm::SmallVector<llvm::SmallVector<Components>> keys, reads;
    llvm::SmallVector<mlir::Value> coefficients;
  };
  Transition loadTransition(mlir::Value buffer, TransitionAttr transition,
                            mlir::Value position);
  Components passBack(const Transition &entry, TransitionAttr transition,
                      mlir::Value buffer, mlir::Value position, Values query,
                      llvm::SmallVectorImpl<mlir::Value> &weights);

  StepOp step, fold;
  GpuSchedule schedule;
  int64_t drafts; ///< the most of a row that slots are for
  GpuSlots slots;
  mlir::ImplicitLocOpBuilder b;
  mlir::gpu::GPUFuncOp function;

  // Geometry.
  int64_t heads = 1, headGroup = 1;
  int64_t turns = 1;  ///< heads that a block takes one after the other
  int64_t packed = 1; ///< heads that it takes at once
  int64_t keySize = 1, valueSize = 1, stateBits = 32;
  int64_t width = 1, lanes = 1, chunks = 1; ///< of a row: width·lanes·chunks
  int64_t rowsPerThread = 1, tiles = 1;
  bool materialises = false; ///< a state is read that is not as it was loaded
  /// Vectors over dk are computed by the lanes of a warp, once in every warp,
  /// and then handed to the groups.
  bool hasWarpValues = false;
  /// Tensor cores multiply: rows that are read with vectors, entries that are
  /// added to rows.
  bool multipliesReads = false, multipliesFolds = false;
  bool ownsAllRows = false, copiesInBulk = true;
  bool stagesEntries = true, stagesWeights = true;
  llvm::DenseSet<mlir::Value> rowValues;

  // The task.
  mlir::Value row, readSlot, writeSlot, base, length, folds;
  mlir::Value head, firstHead, tileStart, isFirstTile;
  /// Which of its heads a block is at, if that is not known yet or no more.
  int64_t headScope = 0;
  mlir::Value thread, warpLane, lane, group;
  mlir::Value warpRow, firstRow, ownRow, ownsRow; ///< ownsRow is null if all do
  mlir::Value readSlots, writeSlots, cursors, threshold, padSlot;
  /// Of pools for drafts, by slot: where entries lie, which version of the
  /// carries is that of the history, and what waits to be committed.
  mlir::Value entryOrder, carryVersions, waiting;
  /// If entries lie in pages: by slot, which these are, which its state is, and
  /// how often that was written; which rows the kernel is for.
  mlir::Value pageTable, stateTable, epochs, rowKind;
  /// Where the states of the slots are, and whether that of the write slot is
  /// there to be written: null for always.
  mlir::Value readState, writeState, mayFold;
  mlir::scf::IfOp ownRows; ///< the branch of the rows of its own
  mlir::Value hasNoState;  ///< whether that of the read slot was never written
  mlir::Value moves; ///< whether the row writes another slot than it reads
  /// In shared memory, or null: where entry j of the history lies in the slot,
  /// and in pages behind how many of all; and the slot's pages with the spare.
  mlir::Value entryPlaces, entryRows, ownPages;
  mlir::Value readCarry, writeCarry;     ///< versions of the row's carries
  llvm::SmallVector<mlir::Value> memory; ///< by the step's argument
  llvm::MapVector<unsigned, llvm::SmallVector<mlir::Value>> fields;
  llvm::SmallVector<mlir::Value> outputs;

  // What is in shared memory.
  /// What copies are counted with: of states, and of entries, which arrive
  /// first.
  mlir::Value copies, entryCopies;
  int64_t copyCount = 0;
  /// With pieces: which counter is the first of this warp's, and how many of
  /// its stages have been waited for.
  mlir::Value firstPart;
  int64_t stagesWaited = 0;
  llvm::SmallVector<Gather> waitingGathers;
  bool gathers = false; ///< entries are copied by all threads
  llvm::SmallVector<std::function<void()>> lateCopies;
  llvm::DenseMap<unsigned, mlir::Value> stagedStates;
  std::map<std::pair<unsigned, std::string>, mlir::Value> stagedFields;
  /// What is computed alike in both forms: the fold's values to the step's.
  llvm::DenseMap<mlir::Value, mlir::Value> sameValues;

  // What has been emitted. Arguments, numbers and decays of entries are those
  // of all forms.
  /// Where loads are put that later operations ask for: of tokens, of a slot,
  /// and what the ring's numbers become once its cursor is known.
  mlir::Operation *endOfTokenLoads = nullptr, *endOfSlotLoads = nullptr,
                  *endOfEntryNumbers = nullptr;
  using ValueKey = std::tuple<void *, Place::Key, int64_t>;
  std::map<ValueKey, Components> values;
  std::map<std::tuple<unsigned, Place::Key, int64_t>, Components>
      loadedArguments;
  std::map<std::pair<unsigned, std::string>, Components> numbers;
  std::map<std::pair<unsigned, std::string>, Decays> decays;
  /// By the buffer's argument and the field of decays.
  std::map<std::pair<unsigned, std::string>, llvm::SmallVector<DecayedKey>>
      decayedKeys;
  std::map<std::pair<unsigned, std::string>, EarlyColumns> earlyColumns;
  mlir::Value partDecays; ///< nobody's, when keys have decayed
  llvm::DenseMap<mlir::Value, Components> states;
  llvm::DenseMap<mlir::Operation *, mlir::Value> weightedValues;
  /// Queries as parts that tensor cores take, [3 queries + 1, dk + padding],
  /// the last row zero, and the first of a value's queries.
  mlir::Value queryParts;
  llvm::MapVector<mlir::Value, int64_t> queryNumbers;
  llvm::DenseSet<mlir::Value> writtenQueries;
  bool areQueriesPending = false; ///< some are behind no barrier yet
  TileChain tileChain;            ///< of the state that is stored
  /// Vectors over dk in shared memory, [components, dk].
  llvm::DenseMap<mlir::Value, mlir::Value> wholeValues;
  /// Bytes that views are aligned to, by the kernel's argument.
  std::map<unsigned, int64_t> alignments;
  size_t firstStepArgument = 0; ///< of the function
  llvm::DenseMap<int64_t, mlir::Value> constants;
  mlir::Value anyCount; ///< not negative, which no compiler knows; or null
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_KERNEL_H
