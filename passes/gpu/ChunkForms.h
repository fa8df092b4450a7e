//===- ChunkForms.h - what tokens of a chunk are made of --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What comes as 16 bits has room in a part of a product as it is, and takes
// half of the memory. Norms and gates would make an f32 of it. So keys and
// queries that are sums of tokens, each times a number a head, are multiplied
// as they came, and the numbers with what comes out.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CHUNKFORMS_H
#define LADLE_PASSES_GPU_CHUNKFORMS_H

#include "dialect/LadleOps.h"
#include "llvm/ADT/DenseMap.h"

namespace ladle {

/// A stack as it came, [heads, T, dk] of 16 significant bits at most, and the
/// numbers [heads, T] that it is multiplied by; null for 1.
struct ChunkTerm {
  mlir::Value base, scale;
};
/// By stack, what it is the sum of.
using ChunkForms = llvm::DenseMap<mlir::Value, llvm::SmallVector<ChunkTerm, 2>>;

/// Moves what one region makes of a token for another alone into that one, so
/// that it needs no memory; numbers alone pass from one to the other.
void moveTokenValues(StepOp step);

/// Finds the keys and queries that are sums of what came as 16 bits, and has
/// their regions yield the terms.
ChunkForms separateScales(StepOp step);

} // namespace ladle

#endif // LADLE_PASSES_GPU_CHUNKFORMS_H
