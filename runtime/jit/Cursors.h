//===- Cursors.h - the kernel that moves cursors ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_CURSORS_H
#define LADLE_RUNTIME_JIT_CURSORS_H

#include "runtime/cuda/KernelInfo.h"
#include "llvm/ADT/StringRef.h"

namespace ladle::jit {

/// The text of Cursors.cuh, for NVRTC.
llvm::StringRef cursorsText();
/// Its kernel, a thread a row.
inline cuda::KernelInfo cursorsKernelInfo() {
  return {"ladle_advance_cursors", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/true};
}

/// The kernel that decides on drafts, a warp a row.
inline cuda::KernelInfo commitKernelInfo() {
  return {"ladle_commit_drafts", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/true};
}

/// The kernel that moves carries to their slots, a block a row.
inline cuda::KernelInfo keepCarriesKernelInfo() {
  return {"ladle_keep_carries", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/false};
}

/// The kernel that keeps how long prompts are, a thread a row.
inline cuda::KernelInfo notePromptsKernelInfo() {
  return {"ladle_note_prompts", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/false};
}

/// The kernel that clears slots of an array, some blocks a row.
inline cuda::KernelInfo clearRowsKernelInfo() {
  return {"ladle_clear_rows", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/false};
}

/// The kernel that has slots begin anew, a thread a row.
inline cuda::KernelInfo resetCursorsKernelInfo() {
  return {"ladle_reset_cursors", /*gridBlocks=*/1, /*threads=*/128,
          /*sharedBytes=*/0, /*programmatic=*/false};
}

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_CURSORS_H
