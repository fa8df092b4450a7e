//===- Functions.h - the function library -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function of the language is one row of the table in Functions.cpp and one
// row of the table in docs/language.md.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_FUNCTIONS_H
#define LADLE_FRONTEND_FUNCTIONS_H

#include "frontend/Ast.h"
#include "frontend/Diagnostics.h"

namespace mlir {
class Value;
} // namespace mlir

namespace ladle::frontend {

class ValueBuilder;

struct Function {
  llvm::StringRef name;
  unsigned minArgs;
  unsigned maxArgs;
  /// How it is called: shown when it is called otherwise.
  llvm::StringRef signature;

  /// The shape of the result; nothing after an error. The arguments have been
  /// checked, and their number is right.
  std::optional<Shape> (*inferShape)(const CallExpr &call,
                                     Diagnostics &diagnostics);
  /// The operations that compute it.
  mlir::Value (*build)(ValueBuilder &builder, const CallExpr &call);
  /// The value for constant arguments; null if it takes no single numbers.
  double (*fold)(llvm::ArrayRef<double> args) = nullptr;
  /// True if the second argument is the name of a dimension.
  bool takesDim = false;
};

llvm::ArrayRef<Function> getFunctions();

/// Null if there is no such function.
const Function *lookupFunction(llvm::StringRef name);

/// Infers the shape of an elementwise operation on two values, or reports at
/// `loc` why there is none.
std::optional<Shape> checkBroadcast(const Shape &lhs, const Shape &rhs,
                                    llvm::SMLoc loc, llvm::SMRange range,
                                    Diagnostics &diagnostics);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_FUNCTIONS_H
