//===- CHeader.h - what C has to know of a kernel ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_CHEADER_H
#define LADLE_TOOLS_LADLE_CHEADER_H

#include "dialect/LadleOps.h"

#include <optional>
#include <string>

namespace ladle::tool {

/// A header in C99 for the kernel that decodes an attention with a segmented
/// cache: the state of a sequence, and functions that take a token or a prompt.
/// It needs the C library's headers alone. Nothing, and an error at the
/// attention or at a value whose name C does not take, if there is no such
/// header.
std::optional<std::string> cHeader(AttentionOp attention);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_CHEADER_H
