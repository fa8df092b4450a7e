//===- ChunkStacks.h - values of tokens in shared memory --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CHUNKSTACKS_H
#define LADLE_PASSES_GPU_CHUNKSTACKS_H

#include "mlir/IR/Value.h"
#include <optional>

namespace ladle {

/// Component i of a token is in row first + token · step + i.
struct GpuChunkStack {
  mlir::Value memory;
  int64_t components = 1, size = 1;
  int64_t first = 0, step = 1;
  bool isTile = false;
  bool isShort = false; ///< all elements have 11 significant bits at most
  /// Of an f32 that is so many of bf16, which add up to it: one in all rows
  /// after the other.
  int64_t parts = 1;
};

/// A stack that is multiplied, and what the product is multiplied by.
struct GpuChunkTerm {
  GpuChunkStack base;
  std::optional<GpuChunkStack> scale;
};

/// Where a pass puts a value: a stack, or an output of the step.
struct GpuChunkSink {
  mlir::Value value;
  std::optional<GpuChunkStack> stack;
  mlir::Value output;
  bool isTile = false;
  mlir::Type rounded = nullptr; ///< to which it is rounded
  bool isEntry = false;         ///< the output is a field
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_CHUNKSTACKS_H
