//===- Lexer.cpp - tokens of the language -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Lexer.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>

using namespace ladle::frontend;
using Kind = Token::Kind;

// Longer literals carry no more precision than these, and cost time to read.
static constexpr size_t maxNumberLength = 64;
// Names end up in symbols, file names and tables.
static constexpr size_t maxNameLength = 128;

llvm::StringRef ladle::frontend::describe(Kind kind) {
  switch (kind) {
  case Kind::EndOfFile:
    return "the end of the file";
  case Kind::Identifier:
    return "a name";
  case Kind::Number:
    return "a number";
  case Kind::String:
    return "a string";
  case Kind::KwRecurrence:
    return "'recurrence'";
  case Kind::KwAttention:
    return "'attention'";
  case Kind::KwPreset:
    return "'preset'";
  case Kind::KwOption:
    return "'option'";
  case Kind::KwParam:
    return "'param'";
  case Kind::KwToken:
    return "'token'";
  case Kind::KwCarry:
    return "'carry'";
  case Kind::KwState:
    return "'state'";
  case Kind::KwCache:
    return "'cache'";
  case Kind::KwMemory:
    return "'memory'";
  case Kind::KwLet:
    return "'let'";
  case Kind::KwOut:
    return "'out'";
  case Kind::LeftParen:
    return "'('";
  case Kind::RightParen:
    return "')'";
  case Kind::LeftBracket:
    return "'['";
  case Kind::RightBracket:
    return "']'";
  case Kind::LeftBrace:
    return "'{'";
  case Kind::RightBrace:
    return "'}'";
  case Kind::Comma:
    return "','";
  case Kind::Colon:
    return "':'";
  case Kind::Equal:
    return "'='";
  case Kind::Plus:
    return "'+'";
  case Kind::Minus:
    return "'-'";
  case Kind::Star:
    return "'*'";
  case Kind::Slash:
    return "'/'";
  }
  return "";
}

static bool isNameStart(char c) { return llvm::isAlpha(c) || c == '_'; }
static bool isNamePart(char c) { return llvm::isAlnum(c) || c == '_'; }

static bool isPunctuation(char c) {
  return llvm::StringRef("()[]{},:=+-*/").contains(c);
}

bool Lexer::skipSpaceAndComments() {
  bool startsLine = atLineStart;
  for (; current != end; ++current) {
    if (*current == '#') {
      while (current != end && *current != '\n')
        ++current;
      if (current == end)
        break;
    }
    if (*current == '\n')
      startsLine = true;
    else if (*current != ' ' && *current != '\t' && *current != '\r')
      break;
  }
  atLineStart = false;
  return startsLine;
}

Token Lexer::make(Kind kind, const char *start) {
  Token token;
  token.kind = kind;
  token.text = llvm::StringRef(start, current - start);
  token.loc = llvm::SMLoc::getFromPointer(start);
  return token;
}

Token Lexer::next() {
  while (true) {
    bool startsLine = skipSpaceAndComments();
    const char *start = current;
    Token token;
    if (current == end) {
      token = make(Kind::EndOfFile, start);
    } else if (isNameStart(*current)) {
      token = lexIdentifier(start);
    } else if (llvm::isDigit(*current)) {
      token = lexNumber(start);
    } else if (*current == '"') {
      token = lexString(start);
    } else if (isPunctuation(*current)) {
      ++current;
      token = make(llvm::StringSwitch<Kind>(llvm::StringRef(start, 1))
                       .Case("(", Kind::LeftParen)
                       .Case(")", Kind::RightParen)
                       .Case("[", Kind::LeftBracket)
                       .Case("]", Kind::RightBracket)
                       .Case("{", Kind::LeftBrace)
                       .Case("}", Kind::RightBrace)
                       .Case(",", Kind::Comma)
                       .Case(":", Kind::Colon)
                       .Case("=", Kind::Equal)
                       .Case("+", Kind::Plus)
                       .Case("-", Kind::Minus)
                       .Case("*", Kind::Star)
                       .Default(Kind::Slash),
                   start);
    } else {
      reportBadBytes(start);
      atLineStart = startsLine;
      continue;
    }
    token.startsLine = startsLine;
    return token;
  }
}

Token Lexer::lexIdentifier(const char *start) {
  while (current != end && isNamePart(*current))
    ++current;
  llvm::StringRef text(start, current - start);
  if (text.size() > maxNameLength) {
    diagnostics.error(llvm::SMLoc::getFromPointer(start),
                      "name " + quote(text) + " has " +
                          llvm::Twine(text.size()) + " characters");
    diagnostics.note(llvm::SMLoc::getFromPointer(start),
                     "a name has at most " + llvm::Twine(maxNameLength));
  }
  return make(llvm::StringSwitch<Kind>(text)
                  .Case("recurrence", Kind::KwRecurrence)
                  .Case("attention", Kind::KwAttention)
                  .Case("cache", Kind::KwCache)
                  .Case("memory", Kind::KwMemory)
                  .Case("preset", Kind::KwPreset)
                  .Case("option", Kind::KwOption)
                  .Case("param", Kind::KwParam)
                  .Case("token", Kind::KwToken)
                  .Case("carry", Kind::KwCarry)
                  .Case("state", Kind::KwState)
                  .Case("let", Kind::KwLet)
                  .Case("out", Kind::KwOut)
                  .Default(Kind::Identifier),
              start);
}

Token Lexer::lexNumber(const char *start) {
  bool isWhole = true;
  auto skipDigits = [&] {
    isWhole &= current != end && llvm::isDigit(*current);
    while (current != end && llvm::isDigit(*current))
      ++current;
  };
  skipDigits();
  if (current != end && *current == '.') {
    ++current;
    skipDigits();
  }
  if (current != end && (*current == 'e' || *current == 'E')) {
    ++current;
    if (current != end && (*current == '+' || *current == '-'))
      ++current;
    skipDigits();
  }
  // Takes in what follows directly ("16x", "1.2.3"), to report it as a whole.
  while (current != end && (isNamePart(*current) || *current == '.'))
    ++current;

  Token token = make(Kind::Number, start);
  auto report = [&](const llvm::Twine &problem, const llvm::Twine &wayOut) {
    diagnostics.error(token.loc, quote(token.text) + problem);
    diagnostics.note(token.loc, wayOut);
    token.number = 1;
  };
  if (token.text.size() > maxNumberLength)
    report(" has " + llvm::Twine(token.text.size()) + " characters",
           "a number has at most " + llvm::Twine(maxNumberLength));
  else if (!isWhole || llvm::isAlpha(token.text.back()) ||
           token.text.count('.') > 1 || token.text.getAsDouble(token.number))
    report(" is not a number", "numbers are written 16, 0.5 or 1e-6");
  else if (!std::isfinite(token.number))
    report(" is too large", "the largest number is 1.8e308");
  return token;
}

Token Lexer::lexString(const char *start) {
  ++current;
  while (current != end && *current != '"' && *current != '\n')
    ++current;
  Token token = make(Kind::String, start + 1);
  token.loc = llvm::SMLoc::getFromPointer(start);
  if (current != end && *current == '"') {
    ++current;
  } else {
    diagnostics.error(token.loc, "string has no closing '\"'");
    diagnostics.note(token.loc, "a string ends on the line it starts on");
  }
  return token;
}

void Lexer::reportBadBytes(const char *start) {
  auto isBad = [](char c) {
    return !isNamePart(c) && !isPunctuation(c) && !llvm::isSpace(c) &&
           c != '#' && c != '"';
  };
  do
    ++current;
  while (current != end && isBad(*current));
  llvm::SMLoc loc = llvm::SMLoc::getFromPointer(start);
  diagnostics.error(loc, "unexpected " +
                             quote(llvm::StringRef(start, current - start)));
  diagnostics.note(loc, "outside of comments only ASCII letters, digits, '_', "
                        "strings and ()[]{},:=+-*/ are used");
  diagnostics.dropRestOfLine(loc);
}
