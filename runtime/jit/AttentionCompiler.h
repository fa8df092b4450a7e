//===- AttentionCompiler.h - attentions into code ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_ATTENTIONCOMPILER_H
#define LADLE_RUNTIME_JIT_ATTENTIONCOMPILER_H

#include "runtime/jit/AttentionManifest.h"
#include "runtime/jit/Target.h"

namespace ladle::jit {

/// Compiles an attention of a text for a target, without loading it.
Result<AttentionObject>
compileAttentionObject(std::string_view text, std::string_view name,
                       const AttentionCompileOptions &options,
                       const Target &target);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_ATTENTIONCOMPILER_H
