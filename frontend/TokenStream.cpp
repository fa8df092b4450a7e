//===- TokenStream.cpp - tokens with one of lookahead -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/TokenStream.h"

using namespace ladle::frontend;
using Kind = Token::Kind;

void TokenStream::advance() {
  previousEnd = token.getEnd();
  token = lookahead;
  lookahead = lexer.next();
}

bool TokenStream::consumeIf(Kind kind) {
  if (!at(kind))
    return false;
  advance();
  return true;
}

void TokenStream::reportUnexpected(const llvm::Twine &expected) {
  // What is missing at the end of a line is reported there, not at whatever
  // the next line begins with.
  if ((token.startsLine || at(Kind::EndOfFile)) && previousEnd.isValid()) {
    diagnostics.error(previousEnd,
                      "expected " + expected +
                          (at(Kind::EndOfFile) ? " before the end of the file"
                                               : " at the end of the line"));
    return;
  }
  diagnostics.error(token.loc,
                    "expected " + expected + ", got " +
                        (at(Kind::EndOfFile) ? describe(token.kind).str()
                                             : quote(token.text)));
}

bool TokenStream::expect(Kind kind, const llvm::Twine &context) {
  if (consumeIf(kind))
    return true;
  reportUnexpected(describe(kind) + " " + context);
  return false;
}

std::optional<Token> TokenStream::expectName(const llvm::Twine &what) {
  if (at(Kind::Identifier)) {
    Token name = token;
    advance();
    return name;
  }
  if (token.isKeyword() && !token.startsLine) {
    diagnostics.error(token.loc, quote(token.text) +
                                     " is a word of the language, not " + what);
    diagnostics.note(token.loc, "choose another name, for instance " +
                                    quote((token.text + "_").str()));
    return std::nullopt;
  }
  reportUnexpected(what);
  return std::nullopt;
}

bool TokenStream::startsStatement() const {
  if (at(Kind::EndOfFile) || at(Kind::RightBrace))
    return true;
  return token.startsLine && (token.isKeyword() || (at(Kind::Identifier) &&
                                                    lookahead.is(Kind::Equal)));
}

void TokenStream::skipToStatement() {
  while (!startsStatement())
    advance();
}
