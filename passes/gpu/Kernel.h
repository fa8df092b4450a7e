//===- Kernel.h - a step as a GPU kernel ------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A step becomes a kernel of which a block takes one row of the batch, one head
// of the state and a tile of dv. Three placements of values meet in a block:
//
// - a number of a head is in every thread;
// - element e of a vector is in thread e: of a vector over dv, the elements of
//   the tile;
// - a state is spread over the registers of all threads: a group of lanes
//   covers a row by loads of 16 bytes, and a thread holds its part of every
//   n-th row from when it is loaded until it is stored.
//
// A state is loaded before anything else. Vectors that rows are multiplied with
// go through shared memory once; a read ends with a butterfly over the group.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_KERNEL_H
#define LADLE_PASSES_GPU_KERNEL_H

#include "dialect/LadleOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/build/MemoryLayout.h"
#include "llvm/ADT/MapVector.h"

namespace ladle {

/// How a step is spread over a grid; see Kernel.cpp for how it is chosen.
struct GpuSchedule {
  int64_t threads = 128;
  int64_t tileRows = 0; ///< rows of dv in a block; 0: all
};

class GpuKernel {
public:
  GpuKernel(StepOp step, bool hasFold, const GpuSchedule &schedule,
            mlir::OpBuilder &builder)
      : step(step), hasFold(hasFold), schedule(schedule),
        b(unnamed(step.getLoc()), builder) {}

  /// Builds the kernel at the builder's place. Diagnostics name what cannot be
  /// lowered.
  mlir::FailureOr<mlir::gpu::GPUFuncOp> build();

private:
  using Components = llvm::SmallVector<mlir::Value>;
  /// What is not a value of the source gets no name of it.
  static mlir::Location unnamed(mlir::Location location) {
    auto named = llvm::dyn_cast<mlir::NameLoc>(location);
    return named ? named.getChildLoc() : location;
  }
  /// The dimension that the elements of a vector run along.
  enum class Side { Key, Row };

  //===--- Kernel.cpp: arguments, the task of a block, sinks --------------===//
  void chooseGeometry();
  bool needsAllRows();
  void createFunction();
  mlir::Value emitTask();
  mlir::LogicalResult emitBody();
  void emitPaddedRow();
  mlir::LogicalResult storeValue(mlir::Value value, mlir::Value memory,
                                 llvm::ArrayRef<mlir::Value> outer,
                                 mlir::Value entry);

  //===--- Values.cpp: token values
  //----------------------------------------===//
  mlir::FailureOr<Components> get(mlir::Value value, Side side);
  mlir::FailureOr<Components> emit(mlir::Value value, Side side);
  mlir::FailureOr<Components> emitSum(SumOp op, Side side);
  mlir::FailureOr<Components> emitBroadcast(BroadcastOp op, Side side);
  mlir::FailureOr<Components> emitRotate(RotateOp op, Side side);
  Components loadArgument(mlir::BlockArgument argument, Side side);
  /// All of a value in shared memory, [components, size].
  mlir::FailureOr<mlir::Value> whole(mlir::Value value, Side side);
  /// This thread's part of a vector over dk: `chunks` vectors.
  mlir::FailureOr<Components> fragment(mlir::Value value, int64_t component);
  Components fragmentOf(mlir::Value memory,
                        llvm::ArrayRef<mlir::Value> indices);
  mlir::Value sumOverBlock(mlir::Value value);
  mlir::Value sumOverGroup(mlir::Value value);

  //===--- Places.cpp: threads, memory, arithmetic
  //-------------------------===//
  mlir::Value constantIndex(int64_t value);
  mlir::Value constantFloat(double value);
  mlir::Value shared(llvm::ArrayRef<int64_t> shape, llvm::StringRef name);
  mlir::Value add(mlir::Value lhs, int64_t rhs);
  mlir::Value headIndex(int64_t heads);
  int64_t sizeOn(mlir::RankedTensorType type, Side side);
  mlir::Value elementOn(Side side);
  /// The thread's element of a vector, held within its size.
  mlir::Value clampedThread(int64_t size);
  mlir::Value isBelow(mlir::Value value, int64_t bound);
  void ifThread(int64_t size, llvm::function_ref<void()> body);
  mlir::Value toF32(mlir::Value value);
  mlir::Value convertTo(mlir::Value value, mlir::Type elementType);
  mlir::Value loadElement(mlir::Value memory,
                          llvm::ArrayRef<mlir::Value> indices);
  mlir::Value splat(mlir::Value scalar);
  mlir::Value shuffleXor(mlir::Value value, int64_t mask);
  void barrier();

  //===--- States.cpp: rows
  //-------------------------------------------------===//
  /// The registers of a state: row i of this thread, chunk c at i·chunks + c.
  mlir::FailureOr<Components> stateOf(mlir::Value state);
  mlir::FailureOr<Components> emitState(mlir::Value state);
  Components loadState(LoadStateOp op);
  mlir::FailureOr<Components> emitRead(ReadOp op);
  mlir::LogicalResult emitStore(StoreStateOp op);
  mlir::Value rowOf(int64_t i);
  mlir::Value dotChunks(llvm::ArrayRef<mlir::Value> lhs,
                        llvm::ArrayRef<mlir::Value> rhs);

  //===--- Buffers.cpp: entries
  //---------------------------------------------===//
  mlir::Value ringSlot(mlir::Value position);
  mlir::Value clampedEntry(mlir::Value position);
  mlir::Value fieldMemory(mlir::Value buffer, llvm::StringRef name);
  llvm::SmallVector<mlir::Value> fieldIndices(FieldAttr field,
                                              mlir::Value entry);
  /// The product of the decays of all entries after an entry times its
  /// scales, for each entry in shared memory: [L], or [L, dk] when decays are
  /// vectors; and the product of all decays.
  struct EntryWeights {
    mlir::Value each, product;
    bool isVector = false;
  };
  EntryWeights weightsOf(mlir::Value buffer,
                         std::optional<llvm::StringRef> decay,
                         llvm::ArrayRef<llvm::StringRef> scales);
  void preloadValues(mlir::Operation *op, mlir::Value buffer,
                     llvm::ArrayRef<llvm::StringRef> names);
  Components sumWeightedValues(mlir::Operation *op, mlir::Value weights,
                               int64_t accumulators);
  mlir::LogicalResult emitReadBuffer(ReadBufferOp op);
  mlir::LogicalResult emitTransport(TransportOp op);
  mlir::FailureOr<Components> emitFold(FoldBufferOp op);
  mlir::FailureOr<Components> emitReplay(ReplayOp op);

  StepOp step;
  bool hasFold;
  GpuSchedule schedule;
  mlir::ImplicitLocOpBuilder b;
  mlir::gpu::GPUFuncOp function;

  // Geometry.
  int64_t heads = 1, headGroup = 1;
  int64_t keySize = 1, valueSize = 1;
  int64_t width = 1, lanes = 1, chunks = 1; ///< of a row: width·lanes·chunks
  int64_t groups = 1, rowsPerThread = 1, tiles = 1;

  // The task.
  mlir::Value row, readSlot, writeSlot, base, length, head, tileStart;
  mlir::Value thread, laneOfGroup, group, isFirstOfHeads, isFirstTile;
  mlir::Value readSlots, writeSlots, cursors, threshold, padSlot;
  llvm::DenseMap<mlir::Value, mlir::Value> memory;
  llvm::MapVector<mlir::Value, llvm::SmallVector<mlir::Value>> fields;
  llvm::SmallVector<mlir::Value> outputs;

  // What has been emitted.
  llvm::DenseMap<std::pair<mlir::Value, int>, Components> values;
  llvm::DenseMap<std::pair<mlir::Value, int>, mlir::Value> wholes;
  llvm::DenseMap<mlir::Value, Components> states;
  llvm::StringMap<EntryWeights> weights;
  llvm::DenseMap<mlir::Operation *, Components> preloaded;
  llvm::DenseMap<int64_t, mlir::Value> constants;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_KERNEL_H
