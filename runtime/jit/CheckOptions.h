//===- CheckOptions.h - what can be compiled --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_CHECKOPTIONS_H
#define LADLE_RUNTIME_JIT_CHECKOPTIONS_H

#include "ladle/compile.h"

namespace ladle::jit {

bool foldsByChunk(const CompileOptions &options);
/// With what some options say of others.
CompileOptions complete(const CompileOptions &options);
/// InvalidArgument names the first option that is out of range, or does not go
/// with another.
Status checkOptions(const CompileOptions &options);
/// Unsupported if a GPU cannot do yet what is asked for.
Status checkTarget(const CompileOptions &options, bool isGpu);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_CHECKOPTIONS_H
