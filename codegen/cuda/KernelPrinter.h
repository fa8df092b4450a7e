//===- KernelPrinter.h - one kernel as CUDA C++ -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_KERNELPRINTER_H
#define LADLE_CODEGEN_CUDA_KERNELPRINTER_H

#include "codegen/cuda/CudaNames.h"
#include "codegen/cuda/CudaPrinter.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Support/IndentedOstream.h"

namespace ladle::cuda {

/// Prints one kernel. A value is a C++ variable, but for
///  - constants, which are literals wherever they are used,
///  - vectors whose elements are all alike, which stay scalars as long as only
///    their elements are asked for,
///  - values that C++ does not tell from their operand: index_cast to i32.
class KernelPrinter {
public:
  explicit KernelPrinter(llvm::raw_ostream &stream) : os(stream) {}

  mlir::LogicalResult print(mlir::gpu::GPUFuncOp kernel);

private:
  // KernelPrinter.cpp: signatures, control flow and memory.
  mlir::LogicalResult printSignature(mlir::gpu::GPUFuncOp kernel);
  mlir::LogicalResult printParameters(mlir::gpu::GPUFuncOp kernel,
                                      llvm::SmallVectorImpl<std::string> &all);
  mlir::LogicalResult printShared(mlir::gpu::GPUFuncOp kernel);
  mlir::LogicalResult printRegion(mlir::Region &region);
  mlir::LogicalResult printBlock(mlir::Block &block);
  mlir::LogicalResult printOperation(mlir::Operation *op);
  mlir::LogicalResult printFor(mlir::scf::ForOp loop);
  mlir::LogicalResult printIf(mlir::scf::IfOp branch);
  mlir::LogicalResult printYield(mlir::scf::YieldOp yield);
  mlir::LogicalResult printLoad(mlir::Operation *load, mlir::Value memref,
                                mlir::ValueRange indices, bool streaming);
  mlir::LogicalResult printMaskedLoad(mlir::vector::MaskedLoadOp load);
  mlir::LogicalResult printStore(mlir::Operation *store, mlir::Value value,
                                 mlir::Value memref, mlir::ValueRange indices,
                                 bool streaming);
  void printCopyInit(mlir::Value counters); // CopyPrinter.cpp
  mlir::LogicalResult printCopy(mlir::memref::DmaStartOp copy);
  mlir::LogicalResult printThreadCopy(mlir::nvgpu::DeviceAsyncCopyOp copy);
  mlir::LogicalResult printCopyWait(mlir::memref::DmaWaitOp wait);
  mlir::LogicalResult printThreadWait(mlir::nvgpu::DeviceAsyncWaitOp wait);
  mlir::LogicalResult printPrefetch(mlir::memref::PrefetchOp prefetch);
  mlir::LogicalResult printArrival(mlir::memref::AtomicRMWOp arrival);
  mlir::LogicalResult printPartBarrier(mlir::NVVM::BarrierOp meets);
  mlir::LogicalResult printRegisters(mlir::NVVM::SetMaxRegisterOp registers);
  mlir::LogicalResult printRowsFrom(mlir::memref::SubViewOp view);
  mlir::LogicalResult printView(mlir::memref::ViewOp view);
  mlir::LogicalResult printCollapse(mlir::memref::CollapseShapeOp collapse);
  mlir::LogicalResult printClusterMemory(mlir::UnrealizedConversionCastOp cast);
  std::string offset(mlir::Value memref, mlir::ValueRange indices);
  std::string offset(mlir::Value memref,
                     llvm::ArrayRef<mlir::OpFoldResult> indices);

  // VectorPrinter.cpp: constants and vectors.
  mlir::LogicalResult printConstant(mlir::Operation *op);
  mlir::LogicalResult printElementwise(llvm::ArrayRef<mlir::Operation *> ops,
                                       int64_t size);
  mlir::LogicalResult printVectorOperation(mlir::Operation *op);
  mlir::LogicalResult printBroadcast(mlir::vector::BroadcastOp op);
  mlir::LogicalResult printExtract(mlir::vector::ExtractOp op);
  mlir::LogicalResult printInsert(mlir::vector::InsertOp op);
  mlir::LogicalResult printReduction(mlir::vector::ReductionOp op);
  mlir::LogicalResult printShuffle(mlir::vector::ShuffleOp op);
  mlir::LogicalResult printExtractSlice(mlir::vector::ExtractStridedSliceOp op);
  mlir::LogicalResult printInsertSlice(mlir::vector::InsertStridedSliceOp op);
  mlir::LogicalResult printFromElements(mlir::vector::FromElementsOp op);
  mlir::LogicalResult printToElements(mlir::vector::ToElementsOp op);
  mlir::LogicalResult printMultiplyTiles(mlir::nvgpu::MmaSyncOp op);
  mlir::LogicalResult printLoadTiles(mlir::nvgpu::LdMatrixOp op);
  mlir::LogicalResult printWarpgroupProduct(WarpgroupProductOp op);
  /// An unrolled loop over elements [begin, end) around one statement.
  void printElements(int64_t begin, int64_t end, llvm::StringRef statement);
  /// A variable with the same in all elements.
  void printFilled(mlir::VectorType type, llvm::StringRef variable,
                   llvm::StringRef element);

  // What values are called.
  /// An expression for `value` that may be an operand; makes a variable of
  /// elements that are all alike.
  std::string use(mlir::Value value);
  /// The same for the element at kElementIndex, or at `index`; scalars are
  /// their own elements.
  std::string element(mlir::Value value, llvm::StringRef index = kElementIndex);
  /// Makes a name for `value`, from its location if it has one.
  std::string name(mlir::Value value);
  /// `int x`, with a new name for `value`; empty, after an error, where the
  /// type has no text.
  std::string declare(mlir::Value value);
  mlir::LogicalResult define(mlir::Value value, llvm::StringRef expression);
  void makeAlias(mlir::Value value, mlir::Value same);
  void makeSplat(mlir::Value value, std::string scalar);
  /// What `value` is another text for: an iteration argument, say, which
  /// changes at the end of the iteration.
  mlir::Value root(mlir::Value value) const;

  mlir::raw_indented_ostream os;
  Names names;
  llvm::DenseMap<mlir::Value, std::string> texts;
  /// What the elements of a vector are, where they need no vector.
  llvm::DenseMap<mlir::Value, std::string> elements;
  llvm::DenseMap<mlir::Value, mlir::Value> aliases;
  /// Whether products of strides are instructions of their own.
  bool hasWideProducts = false;
  /// Names of the strides of memref arguments; empty where they are static.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<std::string>> strides;
};

/// Whether the copies of parts of a tile are counted apart; CopyPrinter.cpp.
bool countsParts(mlir::Value tag);

/// Whether a kernel waits for some of the groups of its threads' copies, and
/// not for all; CopyPrinter.cpp.
bool countsGroups(mlir::nvgpu::DeviceAsyncCreateGroupOp group);

/// Emits the error that `op` cannot be printed, with the way out.
mlir::LogicalResult unsupported(mlir::Operation *op);
mlir::LogicalResult unsupportedType(mlir::Location loc, mlir::Type type);
/// Of a memref that can be printed; else emits an error.
mlir::LogicalResult stridesOf(mlir::Value memref,
                              llvm::SmallVectorImpl<int64_t> &strides,
                              int64_t &offset);

} // namespace ladle::cuda

#endif // LADLE_CODEGEN_CUDA_KERNELPRINTER_H
