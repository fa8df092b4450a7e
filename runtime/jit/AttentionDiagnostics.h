//===- AttentionDiagnostics.h - the kernel that watches heads ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_ATTENTIONDIAGNOSTICS_H
#define LADLE_RUNTIME_JIT_ATTENTIONDIAGNOSTICS_H

#include "runtime/cuda/KernelInfo.h"
#include "llvm/ADT/StringRef.h"

namespace ladle::jit {

/// The text of AttentionDiagnostics.cuh, for NVRTC.
llvm::StringRef diagnosticsText();
/// Its kernel, a block a head of the query or of the cache.
inline cuda::KernelInfo diagnosticsKernelInfo() {
  return {"ladle_attention_diagnostics", /*gridBlocks=*/1, /*threads=*/256,
          /*sharedBytes=*/0, /*programmatic=*/true};
}

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_ATTENTIONDIAGNOSTICS_H
