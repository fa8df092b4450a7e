//===- Parser.h - from tokens to a tree ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_PARSER_H
#define LADLE_FRONTEND_PARSER_H

#include "frontend/Ast.h"
#include "frontend/Diagnostics.h"

namespace ladle::frontend {

/// Parses the main file of the source manager. Never fails as a whole: what
/// could not be parsed is reported and left out, so that the checker can still
/// look at the rest. Expressions nest at most `maxDepth` levels, which bounds
/// the recursion of everything that walks the tree.
SourceFile parse(Diagnostics &diagnostics);

inline constexpr unsigned maxDepth = 256;

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_PARSER_H
