//===- LadleTypes.h - states, pools, buffers, summaries ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DIALECT_LADLETYPES_H
#define LADLE_DIALECT_LADLETYPES_H

#include "dialect/LadleAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

namespace ladle {
/// The most drafts of a chain: the largest chunk of a prompt.
inline constexpr int64_t kMostInChain = 256;
} // namespace ladle

#define GET_TYPEDEF_CLASSES
#include "dialect/LadleTypes.h.inc"

#endif // LADLE_DIALECT_LADLETYPES_H
