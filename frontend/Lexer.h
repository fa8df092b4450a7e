//===- Lexer.h - tokens of the language ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_LEXER_H
#define LADLE_FRONTEND_LEXER_H

#include "frontend/Diagnostics.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/SMLoc.h"

namespace ladle::frontend {

struct Token {
  enum class Kind {
    EndOfFile,
    Identifier,
    Number,
    String, // text is without the quotes
    // Words of the language.
    KwRecurrence,
    KwAttention,
    KwPreset,
    KwOption,
    KwParam,
    KwToken,
    KwCarry,
    KwState,
    KwCache,
    KwMemory,
    KwLet,
    KwOut,
    // Punctuation.
    LeftParen,
    RightParen,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    Comma,
    Colon,
    Equal,
    Plus,
    Minus,
    Star,
    Slash,
  };

  Kind kind = Kind::EndOfFile;
  llvm::StringRef text;
  llvm::SMLoc loc;
  /// Only the value of a number.
  double number = 0;
  /// True for the first token of a line: where recovery may start again.
  bool startsLine = false;

  bool is(Kind other) const { return kind == other; }
  bool isKeyword() const {
    return kind >= Kind::KwRecurrence && kind <= Kind::KwOut;
  }
  llvm::SMLoc getEnd() const { return llvm::SMLoc::getFromPointer(text.end()); }
};

/// What a token of this kind is called in a message: `'('`, `a name`.
llvm::StringRef describe(Token::Kind kind);

/// Splits a buffer into tokens. Bytes that belong to no token are reported,
/// a run of them once, and skipped, so that the parser never sees them.
class Lexer {
public:
  Lexer(llvm::StringRef buffer, Diagnostics &diagnostics)
      : current(buffer.begin()), end(buffer.end()), diagnostics(diagnostics) {
    // Some editors begin a file with a byte order mark.
    if (buffer.starts_with("\xEF\xBB\xBF"))
      current += 3;
  }

  Token next();

private:
  /// Returns true if the position is now the first of a line.
  bool skipSpaceAndComments();
  Token make(Token::Kind kind, const char *start);
  Token lexIdentifier(const char *start);
  Token lexNumber(const char *start);
  Token lexString(const char *start);
  void reportBadBytes(const char *start);

  const char *current;
  const char *end;
  Diagnostics &diagnostics;
  bool atLineStart = true;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_LEXER_H
