//===- AttentionManifest.h - compiled attentions as JSON --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_ATTENTIONMANIFEST_H
#define LADLE_RUNTIME_JIT_ATTENTIONMANIFEST_H

#include "runtime/AttentionKernels.h"
#include "runtime/jit/GpuAttention.h"
#include "llvm/ADT/StringRef.h"

namespace ladle::jit {

/// A kernel of the host by its place in a program and its symbol.
struct AttentionSymbol {
  std::string place, symbol;
};

/// A compiled attention that is in no memory yet.
struct AttentionObject {
  AttentionProgramImpl program; ///< without code and device
  std::vector<AttentionSymbol> symbols;
  std::vector<GpuAttentionStep> steps;
  std::string image; ///< an ELF file; for a GPU a cubin
};

/// Where a kernel of the host is in a program; null for a name that is none.
KernelFunction *placeOf(AttentionProgramImpl &program, llvm::StringRef name);

/// All but the image itself. Parsing returns nothing for anything that was not
/// written by the function above it.
std::string serialize(const AttentionObject &object);
std::optional<AttentionObject> parseAttentionObject(llvm::StringRef text);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_ATTENTIONMANIFEST_H
