//===- RegisterBounds.h - kernels that do not spill -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_REGISTERBOUNDS_H
#define LADLE_CODEGEN_CUDA_REGISTERBOUNDS_H

#include "codegen/cuda/Nvrtc.h"
#include "llvm/ADT/ArrayRef.h"

namespace ladle {

/// As Nvrtc::compile; but kernels that spill although threads may have more
/// registers are compiled anew, a few times at the most, for as many blocks of
/// a multiprocessor at once as leave room for what they spilled.
llvm::Expected<Cubin> compileWithinRegisters(const Nvrtc &nvrtc,
                                             llvm::StringRef source,
                                             llvm::StringRef fileName,
                                             const CubinOptions &options);

/// What kernels may spill, as their text says behind their bounds:
/// LADLE_MAY_SPILL(bytes a thread).
void findSpillsAllowed(llvm::StringRef source,
                       llvm::MutableArrayRef<KernelResources> kernels);

/// The text with other launch bounds of those kernels that spill more than they
/// may and can have more registers, or nothing if there are none.
std::string withFewerBlocks(llvm::StringRef source,
                            llvm::ArrayRef<KernelResources> kernels);

} // namespace ladle

#endif // LADLE_CODEGEN_CUDA_REGISTERBOUNDS_H
