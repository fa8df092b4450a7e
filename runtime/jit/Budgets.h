//===- Budgets.h - the kernel that shares out a budget ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_BUDGETS_H
#define LADLE_RUNTIME_JIT_BUDGETS_H

#include "runtime/cuda/KernelInfo.h"
#include "llvm/ADT/StringRef.h"

namespace ladle::jit {

/// The text of Budgets.cuh, to stand behind kernels with the prelude.
llvm::StringRef budgetsText();
/// Its kernel, a warp a row.
inline cuda::KernelInfo budgetsKernelInfo() {
  return {"ladle_share_budgets", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/false};
}

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_BUDGETS_H
