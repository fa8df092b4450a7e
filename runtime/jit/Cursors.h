//===- Cursors.h - the kernel that moves cursors ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_CURSORS_H
#define LADLE_RUNTIME_JIT_CURSORS_H

#include "llvm/ADT/StringRef.h"

namespace ladle::jit {

/// The text of Cursors.cuh, for NVRTC.
llvm::StringRef cursorsText();

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_CURSORS_H
