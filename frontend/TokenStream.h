//===- TokenStream.h - tokens with one of lookahead -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_TOKENSTREAM_H
#define LADLE_FRONTEND_TOKENSTREAM_H

#include "frontend/Lexer.h"

#include <optional>

namespace ladle::frontend {

/// What the parser looks at: the current token and the one after it.
class TokenStream {
public:
  TokenStream(llvm::StringRef buffer, Diagnostics &diagnostics)
      : lexer(buffer, diagnostics), diagnostics(diagnostics),
        token(lexer.next()), lookahead(lexer.next()) {}

  const Token &get() const { return token; }
  const Token &peek() const { return lookahead; }
  /// The end of the token before the current one.
  llvm::SMLoc getPreviousEnd() const { return previousEnd; }

  void advance();
  bool at(Token::Kind kind) const { return token.is(kind); }
  bool consumeIf(Token::Kind kind);

  /// Takes a token of this kind, or reports that it is missing; `context` goes
  /// on after its name: "after the sizes".
  bool expect(Token::Kind kind, const llvm::Twine &context);
  std::optional<Token> expectName(const llvm::Twine &what);
  void reportUnexpected(const llvm::Twine &expected);

  /// True where a statement begins or none can follow.
  bool startsStatement() const;
  /// Recovers from an error: skips to where a statement may begin.
  void skipToStatement();

private:
  Lexer lexer;
  Diagnostics &diagnostics;
  Token token;
  Token lookahead;
  llvm::SMLoc previousEnd;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_TOKENSTREAM_H
