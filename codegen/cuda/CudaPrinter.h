//===- CudaPrinter.h - kernels as CUDA C++ ----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_CUDAPRINTER_H
#define LADLE_CODEGEN_CUDA_CUDAPRINTER_H

#include "mlir/Support/LLVM.h"

namespace llvm {
class raw_ostream;
} // namespace llvm

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace ladle {

/// Prints every gpu.func below `op`, a kernel of gpu, scf, arith, math, memref
/// and vector operations on scalars and 1-D vectors, as CUDA C++ that includes
/// "ladle_prelude.cuh".
///
/// A memref argument is a pointer to its first element (the offset is part of
/// it), followed by one `int` a dynamic stride, in elements, in the order of
/// the dimensions: `const bf16 *__restrict__ q, int q_stride0`. A pointer is
/// const where the kernel does not store to it, and restrict, too, unless it is
/// read behind a wait for the kernel ahead. Sizes are not passed. Names are
/// those of `ladle.name` on arguments, then those of locations.
///
/// An index is an `int`, and integer arithmetic is C++'s, without wrapping:
/// kernels count elements of one slot. Only addresses are 64-bit.
///
/// Copies of threads are waited for all at once, or, where a wait names a
/// number of groups, but for the last so many.
///
/// Emits errors at what cannot be printed; then nothing is written to `os`.
mlir::LogicalResult printCuda(mlir::Operation *op, llvm::raw_ostream &os);

/// What a launch has to give a kernel of shared memory: 0 if that is static.
int64_t dynamicSharedBytes(mlir::gpu::GPUFuncOp kernel);

/// The dialects of a kernel.
void registerCudaPrinterDialects(mlir::DialectRegistry &registry);

} // namespace ladle

#endif // LADLE_CODEGEN_CUDA_CUDAPRINTER_H
