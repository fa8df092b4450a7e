//===- Prelude.h - the header of generated CUDA C++ -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_CUDA_PRELUDE_H
#define LADLE_CODEGEN_CUDA_PRELUDE_H

#include "llvm/ADT/StringRef.h"

namespace ladle {

/// The text of prelude.cuh, which generated code includes under this name.
inline constexpr const char *cudaPreludeName = "ladle_prelude.cuh";
llvm::StringRef cudaPrelude();

} // namespace ladle

#endif // LADLE_CODEGEN_CUDA_PRELUDE_H
