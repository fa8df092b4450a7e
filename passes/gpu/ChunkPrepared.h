//===- ChunkPrepared.h - steps of another kernel ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CHUNKPREPARED_H
#define LADLE_PASSES_GPU_CHUNKPREPARED_H

#include "dialect/LadleOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/MapVector.h"

namespace ladle {

/// Two kernels, as one makes them: see ChunkPrepared.cpp.
struct GpuPreparedSteps {
  /// Bytes that a thread copies at once.
  static constexpr int64_t kCopyBytes = 16;
  /// Registers of a multiprocessor, and of a thread that prepares.
  static constexpr int64_t kRegisters = 64 << 10, kMostRegisters = 128;

  mlir::gpu::GPUFuncOp kernel; ///< that prepares
  /// Arguments of both: what passes, counters of its runs, the first run of a
  /// launch, and its rows and heads.
  mlir::Value memory, ready, firstRun, rowCount, headCount;
  mlir::scf::IfOp parts;
  mlir::scf::ForOp ahead, ofRows; ///< loops of both
  /// Shared memory that passes, and where it is among the bytes of a step.
  llvm::SmallVector<std::pair<mlir::Value, int64_t>> passed;
  /// Shared memory with a place for each of several steps, and the type of one.
  llvm::MapVector<mlir::Value, mlir::MemRefType> placed;
  int64_t bytesOfStep = 0;
  int64_t bytesOfBlock = 0; ///< of shared memory, of one that prepares

  void place(mlir::Value memory);
  static void addArguments(mlir::OpBuilder &b,
                           llvm::SmallVectorImpl<mlir::Type> &types,
                           llvm::SmallVectorImpl<std::string> &names);
};

/// Erases shared memory that nobody uses.
void eraseUnusedShared(mlir::gpu::GPUFuncOp of);

/// The name of the kernel that prepares the steps of another.
std::string prepareNameOf(StepOp step);

} // namespace ladle

#endif // LADLE_PASSES_GPU_CHUNKPREPARED_H
