//===- ExprParser.h - from tokens to expressions ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_EXPRPARSER_H
#define LADLE_FRONTEND_EXPRPARSER_H

#include "frontend/Ast.h"
#include "frontend/TokenStream.h"

namespace ladle::frontend {

/// Parses expressions, with the usual precedences.
class ExprParser {
public:
  ExprParser(TokenStream &tokens, Diagnostics &diagnostics)
      : tokens(tokens), diagnostics(diagnostics) {}

  /// Null after an error, which has been reported.
  ExprPtr parseExpr();

private:
  ExprPtr parseTerm();
  ExprPtr parseUnary();
  ExprPtr parsePrimary();
  ExprPtr parseNumber();
  ExprPtr parseParenthesis();
  ExprPtr parseNameOrCall();
  ExprPtr makeBinary(const Token &op, ExprPtr lhs, ExprPtr rhs);
  /// Fills in the extent and depth of an expression that has been parsed.
  ExprPtr finish(ExprPtr expr, llvm::SMLoc start, unsigned childDepth);
  /// False, after an error, if another level would be too many.
  bool enter(llvm::SMLoc loc);
  void reportTooDeep(llvm::SMLoc loc);

  TokenStream &tokens;
  Diagnostics &diagnostics;
  unsigned nesting = 0;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_EXPRPARSER_H
