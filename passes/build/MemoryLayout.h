//===- MemoryLayout.h - how a step's arguments lie in memory ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_MEMORYLAYOUT_H
#define LADLE_PASSES_BUILD_MEMORYLAYOUT_H

#include "dialect/LadleOps.h"

namespace ladle {

/// The product of the dimensions between heads and the last: the rank R of a
/// [heads, R, D] value.
int64_t componentCount(mlir::RankedTensorType type);
/// The same of a field of an entry.
int64_t componentCount(FieldAttr field);

/// Memory of shape [outer, heads, ...]. Whoever calls may stride rows and
/// heads of an input; what a pool owns is dense within a slot. The innermost
/// dimension is contiguous unless it is the one that counts heads.
mlir::MemRefType memoryType(llvm::ArrayRef<int64_t> shape,
                            mlir::Type elementType, bool denseWithinOuter,
                            bool hasOuter);

/// The memory of an argument of a step: one for a parameter, token, carry or
/// pool, one a field for a buffer, the parents for drafts.
llvm::SmallVector<mlir::MemRefType> memoryTypesOf(StepOp step,
                                                  mlir::BlockArgument argument);
/// The memory of an output.
mlir::MemRefType memoryTypeOfOutput(mlir::RankedTensorType type);

} // namespace ladle

#endif // LADLE_PASSES_BUILD_MEMORYLAYOUT_H
