//===- Kernel.h - a step as a function over memrefs -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A scheduled `ladle.step` becomes one function over memrefs, for one row of
// the batch and a range of heads. This class holds what its parts share:
// arguments, the loop nest over heads, and where each value lives.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_KERNEL_H
#define LADLE_PASSES_CPU_KERNEL_H

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/build/MemoryLayout.h"
#include "llvm/ADT/MapVector.h"

namespace ladle {

/// A value of one head. A component is a number for [heads] and a vector along
/// the last dimension otherwise, always in f32: memory is where types change;
/// the dimensions between, such as the rank of a [heads, R, D] value, count
/// components, the last of them fastest.
using Components = llvm::SmallVector<mlir::Value>;

class Kernel {
public:
  Kernel(StepOp step, mlir::OpBuilder &builder)
      : step(step), b(step.getLoc(), builder) {}
  virtual ~Kernel() = default;

  /// Builds the function before the step. Diagnostics name what cannot be
  /// lowered.
  mlir::FailureOr<mlir::func::FuncOp> build();

  /// Numbers in a partial sum. On processors with shorter registers LLVM takes
  /// several registers, whose additions then overlap.
  static constexpr int64_t kPartialSums = 16;

protected:
  //===--- Kernel.cpp: arguments, loop nest, phases ----------------------===//
  /// Fails unless the step has been scheduled.
  mlir::LogicalResult checkSchedule();
  void createFunction();
  /// Opens the loop over the heads of a level, below those of the levels above,
  /// and stays in it.
  void openLevel(unsigned level);
  mlir::LogicalResult emitLevel(unsigned level);
  mlir::LogicalResult emitPhases();
  mlir::LogicalResult emitHeadOps(int64_t phase, std::optional<unsigned> level);
  mlir::LogicalResult emitRowPhase(int64_t phase);
  mlir::LogicalResult emitTile(int64_t phase, int64_t size, mlir::Value start,
                               int64_t width);
  void collectSinks();
  void prefetchSinks();
  void collectSpills();

  //===--- Values.cpp: where values live ----------------------------------===//
  int64_t phaseOf(mlir::Value value) const;
  int64_t phaseOf(mlir::Operation *op) const;
  unsigned levelOf(mlir::Type type) const;
  mlir::Value headIndex(int64_t heads);
  mlir::Value constantIndex(int64_t value);
  /// Of f32 unless `element` says otherwise.
  virtual mlir::Value allocateScratch(llvm::ArrayRef<int64_t> shape,
                                      mlir::Type element = {});
  /// All of a value, in an even phase.
  mlir::FailureOr<Components> headOperand(mlir::Value value);
  /// The tile of a value that starts at `tileStart`, in an odd phase.
  mlir::FailureOr<Components> rowOperand(mlir::Value value);
  void setHeadValue(mlir::Value value, Components components);
  void setRowValue(mlir::Value value, Components components);
  /// `outer` is the row or slot; null for a parameter.
  Components loadArgument(mlir::BlockArgument argument, mlir::Value outer);
  mlir::Value outerIndex(mlir::BlockArgument argument);
  /// The address of a value of this head in memory of shape
  /// [outer, heads, ...]: outer index, head, then zeros.
  void storeVector(mlir::Value vector, mlir::Value memory,
                   llvm::ArrayRef<mlir::Value> indices);
  void storeTo(mlir::Value memory, llvm::ArrayRef<mlir::Value> prefix,
               const Components &components, mlir::Value lastIndex);
  /// Asks for `width` elements along the last dimension.
  void prefetch(mlir::Value memory, llvm::ArrayRef<mlir::Value> prefix,
                int64_t width, bool isWrite);
  mlir::Value loadVector(mlir::Value memory,
                         llvm::ArrayRef<mlir::Value> indices, int64_t width);
  mlir::Value toF32(mlir::Value value);
  mlir::Value convertTo(mlir::Value value, mlir::Type elementType);
  mlir::Value splat(mlir::Value scalar, int64_t width);
  mlir::Value zeros(int64_t width);

  //===--- Dots.cpp: dot products -----------------------------------------===//
  mlir::Value dot(mlir::Value lhs, mlir::Value rhs);
  /// True if dot products over `keySize` can be left as partial sums.
  static bool sumsInLanes(int64_t keySize);
  /// A dot product before the sum over the lanes of a register.
  mlir::Value partialDot(mlir::Value lhs, mlir::Value rhs);
  /// The dot products that `count` rows left in `scratch` from row `first` on,
  /// as a vector.
  mlir::Value sumRows(mlir::Value scratch, mlir::Value first, int64_t count);

  //===--- TokenEmission.cpp: arithmetic ----------------------------------===//
  mlir::LogicalResult emitHead(mlir::Operation *op);
  mlir::LogicalResult emitRow(mlir::Operation *op);
  mlir::FailureOr<Components>
  emitComponents(mlir::Operation *op, llvm::ArrayRef<Components> operands,
                 std::optional<int64_t> width);
  Components emitBroadcast(BroadcastOp op, const Components &input,
                           int64_t width);
  Components emitSum(SumOp op, const Components &input);

  //===--- BufferEmission.cpp: entries ------------------------------------===//
  struct Entry;
  /// Where an entry lies: in a slot of a ring, or in a page.
  struct EntryPlace {
    mlir::Value outer, entry;
  };
  EntryPlace placeOf(mlir::Value position);
  Components loadField(mlir::Value buffer, llvm::StringRef name,
                       EntryPlace place);
  mlir::Value fieldMemory(mlir::Value buffer, llvm::StringRef name);
  void prefetchEntries(int64_t extent);
  mlir::LogicalResult emitDecayProduct(DecayProductOp op);
  llvm::SmallVector<mlir::Value> sumWeightedValues(
      mlir::Value weights, llvm::ArrayRef<mlir::Value> initial,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(EntryPlace)>
          loadValues);
  mlir::LogicalResult emitReadBuffer(ReadBufferOp op);
  mlir::LogicalResult emitTransport(TransportOp op);
  void gatherFold(FoldBufferOp op);
  void gatherReplay(ReplayOp op);

  //===--- StateEmission.cpp: rows ----------------------------------------===//
  mlir::LogicalResult emitReads(llvm::ArrayRef<ReadOp> reads, int64_t width,
                                bool stashForStore);
  mlir::LogicalResult emitStore(StoreStateOp store, int64_t width);
  std::pair<mlir::Value, llvm::SmallVector<mlir::Value>>
  storeRow(StoreStateOp store, mlir::Value tile, mlir::Value row,
           mlir::Value local, int64_t offset);
  /// Consecutive rows of a state, each a vector over dk.
  using Rows = llvm::SmallVector<mlir::Value, 4>;
  /// A loop over the rows of the tile, several at a time: `body` gets the row
  /// of the tile at which they start, and how many they are.
  mlir::LogicalResult
  forRows(mlir::Value state, int64_t width,
          llvm::function_ref<mlir::LogicalResult(mlir::Value, int64_t)> body,
          bool severalAtOnce = false);
  /// `count` rows of a state value from row `local` of the tile on.
  mlir::FailureOr<Rows> emitStateRows(mlir::Value state, mlir::Value local,
                                      int64_t count);
  void emitFoldRows(FoldBufferOp op, Rows &rows, mlir::Value local);
  void emitReplayRows(ReplayOp op, Rows &rows, mlir::Value local);
  mlir::Value rowOfTile(mlir::Value local, int64_t offset);

  //===--- TransposedStates.cpp: states of the layout dk_dv ---------------===//
  /// The place of a matrix in memory: the indices of its first element.
  struct Corner {
    mlir::Value memory;
    llvm::SmallVector<mlir::Value, 2> outer;
    mlir::Value row, column;
  };
  void copyTransposed(const Corner &from, const Corner &to, int64_t rows,
                      int64_t columns);
  /// Brings the rows of a tile together, if a state's memory does not have them
  /// so: it is stashed.
  void gatherTile(mlir::Value state, int64_t width);
  /// Where rows of a tile are stored instead of the pool, [tile, dk]; null if
  /// they go there. Then `scatterTile` brings them there.
  mlir::Value tileToScatter(StoreStateOp store, int64_t width);
  void scatterTile(StoreStateOp store, mlir::Value tile, int64_t width);

  StepOp step;
  mlir::ImplicitLocOpBuilder b;
  mlir::func::FuncOp function;
  mlir::Operation *scratchEnd = nullptr; // allocations go before it

  // The task: runtime/Kernels.h says what its numbers are.
  mlir::Value row, readSlot, writeSlot, readCarry, writeCarry, entrySlot, base,
      length, draftCount, headBegin, headEnd;
  /// Where entries lie, if buffers are indexed, the pages of the slot, if it
  /// has any, and the parents of the drafts.
  mlir::Value entryOrder, pageTable, parents;
  /// Bytes to work in, of a step whose drafts are a chain.
  mlir::Value workspace;
  /// Memory of parameters, tokens, carries and pools.
  llvm::DenseMap<mlir::Value, mlir::Value> memory;
  /// Memory of each field of each buffer.
  llvm::MapVector<mlir::Value, llvm::SmallVector<mlir::Value>> fields;
  llvm::SmallVector<mlir::Value> outputs;

  // The loop nest over heads: one level for each head count.
  llvm::SmallVector<int64_t> levels;
  llvm::SmallVector<mlir::Value> levelIndex;

  // Where values live.
  llvm::DenseMap<mlir::Value, Components> headValues;
  llvm::DenseMap<mlir::Value, Components> rowValues;
  llvm::DenseMap<mlir::Value, mlir::Value> spills; // [components, size]
  llvm::DenseSet<mlir::Value> needsSpill;
  llvm::DenseMap<int64_t, mlir::Value> constants;
  int64_t currentPhase = 0;
  mlir::Value tileStart;
  int64_t tileWidth = 0;

  /// A value that ends in memory: an output, a carry, or a field of an entry.
  struct Sink {
    mlir::Value value, memory;
    llvm::SmallVector<mlir::Value> outer; // indices before the head
    mlir::Value entry;                    // index after the head, or null
  };
  llvm::SmallVector<Sink> sinks;
  void emitSinks(llvm::function_ref<bool(const Sink &)> when, bool alongRows);

  /// Entries brought into the order of time and f32, with their weights.
  struct Gathered {
    mlir::Value count;                 // entries × R
    mlir::Value keys, values;          // [count, dk], [count, dv]
    mlir::Value decays;                // [entries] or [entries, dk]
    mlir::Value coefficients, vectors; // [entries × reads × R](, dk)
  };
  llvm::DenseMap<mlir::Operation *, Gathered> gathered;
  /// Brings the entries together with their weights, newest first.
  template <typename OpT> Gathered gatherEntries(OpT op);
  llvm::DenseMap<mlir::Value, mlir::Value> stashed; // state -> [tile, dk]
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_KERNEL_H
