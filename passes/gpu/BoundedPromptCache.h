//===- BoundedPromptCache.h - what bounded prompts share --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys and values of a prompt are read where they are, among its tokens, until
// the last kernel moves those that stay into the cache. A row of keys is one of
// the cache, or ~i for token i of the call.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BOUNDEDPROMPTCACHE_H
#define LADLE_PASSES_GPU_BOUNDEDPROMPTCACHE_H

#include "passes/gpu/AttentionPrompts.h"
#include "passes/gpu/BoundedInfo.h"

namespace ladle {

/// What a step over a bounded cache appends, and attends to once; nothing where
/// its keys, values or queries are not copied as they come.
struct BoundedPromptTokens {
  AttendOp attend;
  AppendOp append;

  static std::optional<BoundedPromptTokens> of(AttentionStepOp step);
};

/// Without the casts that memory does when it is read and written.
mlir::Value withoutCasts(mlir::Value value);

class GpuBoundedPromptCache : public GpuPrompts {
protected:
  GpuBoundedPromptCache(AttentionStepOp step, const BoundedPromptTokens &tokens,
                        int64_t shared, mlir::OpBuilder &builder,
                        AttentionForm form)
      : GpuPrompts(step, shared, builder, form), tokens(tokens) {}

  /// Looks at the step's sizes.
  mlir::LogicalResult openCache();
  void openLanes();
  /// Row, slot, tokens and cursor of a head of the cache.
  void openCacheRow(mlir::Value ofRow);
  mlir::Value cursor(BoundedNumber which);
  mlir::Value rowOfEntry(mlir::Value entry);
  mlir::Value rowOfPrompt(mlir::Value token);
  void copyChunk(bool isKey, mlir::Value place, mlir::Value element,
                 mlir::ValueRange into) override;

  BoundedPromptTokens tokens;
  MemoryType memory;
  int64_t capacity = 0;
  mlir::Value cursorRow;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDPROMPTCACHE_H
