//===- Parser.cpp - from tokens to a tree -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Recursive descent, one function a rule of the grammar in docs/language.md. A
// rule that fails has reported why; the statement it belongs to is dropped and
// parsing goes on at the next line that begins like a statement.
//
//===----------------------------------------------------------------------===//

#include "frontend/Parser.h"

#include "frontend/ExprParser.h"
#include "frontend/TokenStream.h"

#include <cmath>

using namespace ladle::frontend;
using Kind = Token::Kind;

namespace {

class Parser {
public:
  Parser(llvm::StringRef buffer, Diagnostics &diagnostics)
      : diagnostics(diagnostics), tokens(buffer, diagnostics),
        exprs(tokens, diagnostics) {}

  SourceFile parseFile();

private:
  bool parseRecurrence(SourceFile &file);
  void parseBody(Recurrence &recurrence);
  bool parseStatement(Recurrence &recurrence);
  bool parsePreset(Recurrence &recurrence);
  bool parsePresetEntries(Preset &preset);
  bool parseDeclaration(Statement &statement);
  bool parseArray(ArrayDecl &array);
  bool parseDim(DimExpr &dim);
  std::optional<int64_t> parseInteger();
  bool parseType(Statement &statement);
  bool parseNamedValue(Statement &statement, Statement::Kind kind);
  bool parseOption(Recurrence &recurrence, Statement &statement);
  bool parseOutput(Statement &statement);
  bool parseCache(Statement &statement);
  bool parseMemory(Statement &statement);
  bool parseWay(Statement &statement, llvm::ArrayRef<llvm::StringRef> ways,
                const llvm::Twine &note);
  bool atDeclaration() const {
    return tokens.at(Kind::KwRecurrence) || tokens.at(Kind::KwAttention);
  }
  void reportExpectedStatement();
  void reportNoStatement();

  Diagnostics &diagnostics;
  TokenStream tokens;
  ExprParser exprs;
};

} // namespace

SourceFile Parser::parseFile() {
  SourceFile file;
  if (tokens.at(Kind::EndOfFile)) {
    diagnostics.error(tokens.get().loc, "the file declares nothing");
    diagnostics.note(tokens.get().loc,
                     "write: recurrence name(H, Dk, Dv) { ... }, or attention "
                     "name(Hq, Hkv, D) { ... }");
  }
  while (!tokens.at(Kind::EndOfFile) && !diagnostics.isFull()) {
    if (atDeclaration()) {
      if (parseRecurrence(file))
        continue;
    } else {
      diagnostics.error(tokens.get().loc,
                        "expected 'recurrence' or 'attention', "
                        "got " +
                            quote(tokens.get().text));
      diagnostics.note(tokens.get().loc, "a file is a list of declarations: "
                                         "recurrence name(H, Dk, Dv) { ... }");
    }
    while (!tokens.at(Kind::EndOfFile) && !atDeclaration())
      tokens.advance();
  }
  return file;
}

/// recurrence = ( "recurrence" | "attention" )
///              name "(" [ name { "," name } ] ")" "{" { statement } "}"
bool Parser::parseRecurrence(SourceFile &file) {
  Recurrence recurrence;
  recurrence.isAttention = tokens.at(Kind::KwAttention);
  tokens.advance();
  std::optional<Token> name =
      tokens.expectName("the name of the " + recurrence.keyword());
  if (!name)
    return false;
  recurrence.name = name->text;
  recurrence.loc = name->loc;
  if (!tokens.expect(Kind::LeftParen, "before the sizes"))
    return false;
  while (!tokens.at(Kind::RightParen)) {
    std::optional<Token> size = tokens.expectName("the name of a size");
    if (!size)
      return false;
    recurrence.sizes.push_back({size->text, size->loc});
    if (!tokens.consumeIf(Kind::Comma))
      break;
  }
  if (!tokens.expect(Kind::RightParen, "after the sizes"))
    return false;
  llvm::SMLoc open = tokens.get().loc;
  if (!tokens.expect(Kind::LeftBrace, "before the body"))
    return false;
  parseBody(recurrence);
  if (!tokens.consumeIf(Kind::RightBrace)) {
    tokens.reportUnexpected("'}' to close " + recurrence.keyword() + " " +
                            quote(recurrence.name));
    diagnostics.note(open, "it is opened here");
  }
  file.recurrences.push_back(std::move(recurrence));
  return true;
}

void Parser::parseBody(Recurrence &recurrence) {
  while (!tokens.at(Kind::RightBrace) && !tokens.at(Kind::EndOfFile) &&
         !atDeclaration() && !diagnostics.isFull()) {
    if (!parseStatement(recurrence))
      tokens.skipToStatement();
  }
  if (diagnostics.isFull())
    while (!tokens.at(Kind::EndOfFile) && !tokens.at(Kind::RightBrace))
      tokens.advance();
}

bool Parser::parseStatement(Recurrence &recurrence) {
  if (tokens.at(Kind::KwPreset))
    return parsePreset(recurrence);

  Statement statement;
  statement.loc = tokens.get().loc;
  bool parsed = false;
  switch (tokens.get().kind) {
  case Kind::KwParam:
  case Kind::KwToken:
  case Kind::KwCarry:
  case Kind::KwState:
    parsed = parseDeclaration(statement);
    break;
  case Kind::KwOption:
    parsed = parseOption(recurrence, statement);
    break;
  case Kind::KwLet:
    tokens.advance();
    parsed = parseNamedValue(statement, Statement::Kind::Let);
    break;
  case Kind::KwOut:
    parsed = parseOutput(statement);
    break;
  case Kind::KwCache:
    parsed = parseCache(statement);
    break;
  case Kind::KwMemory:
    parsed = parseMemory(statement);
    break;
  case Kind::Identifier:
    if (tokens.peek().is(Kind::Equal)) {
      parsed = parseNamedValue(statement, Statement::Kind::Assign);
      break;
    }
    [[fallthrough]];
  default:
    reportNoStatement();
    tokens.advance();
  }
  if (parsed)
    recurrence.statements.push_back(std::move(statement));
  return parsed;
}

void Parser::reportExpectedStatement() {
  diagnostics.error(tokens.get().loc,
                    "expected a statement, got " + quote(tokens.get().text));
}

void Parser::reportNoStatement() {
  reportExpectedStatement();
  Suggestion suggestion(tokens.get().text);
  for (llvm::StringRef word : {"preset", "option", "param", "token", "carry",
                               "state", "cache", "memory", "let", "out"})
    suggestion.consider(word);
  if (!suggestion.get().empty())
    diagnostics.note(tokens.get().loc,
                     "did you mean '" + suggestion.get() + "'?");
  else
    diagnostics.note(tokens.get().loc,
                     "a statement begins with preset, option, param, token, "
                     "carry, state, let or out, or assigns a state or carry: "
                     "S = write(S, k, v)");
}

/// preset = "preset" string "{" [ entry { "," entry } [ "," ] ] "}"
bool Parser::parsePreset(Recurrence &recurrence) {
  tokens.advance();
  Preset preset;
  preset.name = tokens.get().text;
  preset.loc = tokens.get().loc;
  if (!tokens.at(Kind::String)) {
    tokens.reportUnexpected("the name of the preset");
    diagnostics.note(tokens.get().loc,
                     "the name is a string: preset \"small\" { ... }");
    return false;
  }
  tokens.advance();
  if (!tokens.expect(Kind::LeftBrace, "before the sizes of the preset"))
    return false;
  if (!parsePresetEntries(preset) ||
      !tokens.expect(Kind::RightBrace, "after the sizes of the preset")) {
    // An entry looks like an assignment, so only a keyword ends the preset.
    while (!tokens.at(Kind::EndOfFile) && !tokens.at(Kind::RightBrace) &&
           !(tokens.get().startsLine && tokens.get().isKeyword()))
      tokens.advance();
    tokens.consumeIf(Kind::RightBrace);
    return true;
  }
  recurrence.presets.push_back(std::move(preset));
  return true;
}

/// entry = name "=" expr
bool Parser::parsePresetEntries(Preset &preset) {
  while (!tokens.at(Kind::RightBrace)) {
    std::optional<Token> name =
        tokens.expectName("the name of a size or option");
    if (!name || !tokens.expect(Kind::Equal, "and a number"))
      return false;
    ExprPtr value = exprs.parseExpr();
    if (!value)
      return false;
    preset.entries.push_back({name->text, name->loc, std::move(value)});
    if (!tokens.consumeIf(Kind::Comma))
      break;
  }
  return true;
}

/// declaration = ( "param" | "token" | "carry" | "state" )
///               array { "," array } ":" type
bool Parser::parseDeclaration(Statement &statement) {
  statement.kind = Statement::Kind::Declare;
  switch (tokens.get().kind) {
  case Kind::KwParam:
    statement.storage = Statement::Storage::Param;
    break;
  case Kind::KwToken:
    statement.storage = Statement::Storage::Token;
    break;
  case Kind::KwCarry:
    statement.storage = Statement::Storage::Carry;
    break;
  default:
    statement.storage = Statement::Storage::State;
  }
  tokens.advance();
  do {
    ArrayDecl array;
    if (!parseArray(array))
      return false;
    statement.arrays.push_back(std::move(array));
  } while (tokens.consumeIf(Kind::Comma));
  return parseType(statement);
}

/// array = name [ "[" dim { "," dim } "]" ]
bool Parser::parseArray(ArrayDecl &array) {
  std::optional<Token> name = tokens.expectName("the name of a value");
  if (!name)
    return false;
  array.name = name->text;
  array.loc = name->loc;
  if (!tokens.consumeIf(Kind::LeftBracket))
    return true;
  do {
    DimExpr dim;
    if (!parseDim(dim))
      return false;
    array.dims.push_back(std::move(dim));
  } while (tokens.consumeIf(Kind::Comma));
  return tokens.expect(Kind::RightBracket, "after the dimensions");
}

/// dim = integer | name [ ( "+" | "-" | "*" | "/" ) integer ]
bool Parser::parseDim(DimExpr &dim) {
  dim.loc = tokens.get().loc;
  if (tokens.at(Kind::Number)) {
    std::optional<int64_t> number = parseInteger();
    if (!number)
      return false;
    dim.number = *number;
    dim.name = std::to_string(*number);
    return true;
  }
  std::optional<Token> name = tokens.expectName("a dimension");
  if (!name)
    return false;
  dim.size = name->text;
  dim.name = name->text.str();
  if (tokens.at(Kind::Plus) || tokens.at(Kind::Minus) ||
      tokens.at(Kind::Star) || tokens.at(Kind::Slash)) {
    dim.op = tokens.get().text.front();
    tokens.advance();
    std::optional<int64_t> number = parseInteger();
    if (!number)
      return false;
    dim.number = *number;
    dim.name += dim.op + std::to_string(*number);
  }
  return true;
}

std::optional<int64_t> Parser::parseInteger() {
  constexpr double maxInteger = 1 << 30;
  if (!tokens.at(Kind::Number)) {
    tokens.reportUnexpected("a whole number");
    return std::nullopt;
  }
  if (tokens.get().number != std::trunc(tokens.get().number) ||
      tokens.get().number > maxInteger) {
    diagnostics.error(tokens.get().loc, "expected a whole number, got " +
                                            quote(tokens.get().text));
    diagnostics.note(tokens.get().loc,
                     "a dimension is a size, a whole number, or a "
                     "size and a whole number: W + 1, Dk / 2");
    return std::nullopt;
  }
  int64_t number = static_cast<int64_t>(tokens.get().number);
  tokens.advance();
  return number;
}

bool Parser::parseType(Statement &statement) {
  if (!tokens.consumeIf(Kind::Colon)) {
    tokens.reportUnexpected("':' and a type");
    diagnostics.note(statement.loc, "say how it is stored: f32, bf16 or f16, "
                                    "for instance x[H, D] : f32");
    return false;
  }
  std::optional<Token> type = tokens.expectName("a type (f32, bf16 or f16)");
  if (!type)
    return false;
  statement.typeName = type->text;
  statement.typeLoc = type->loc;
  return true;
}

/// name "=" expr
bool Parser::parseNamedValue(Statement &statement, Statement::Kind kind) {
  statement.kind = kind;
  std::optional<Token> name = tokens.expectName("a name");
  if (!name)
    return false;
  statement.name = name->text;
  statement.loc = name->loc;
  if (!tokens.expect(Kind::Equal, "after " + quote(name->text)))
    return false;
  statement.value = exprs.parseExpr();
  return statement.value != nullptr;
}

/// option = "option" name "=" expr
bool Parser::parseOption(Recurrence &recurrence, Statement &statement) {
  tokens.advance();
  while (parseNamedValue(statement, Statement::Kind::Option)) {
    if (!tokens.at(Kind::Comma))
      return true;
    // What follows is taken, so that no use of it is an error, too.
    reportExpectedStatement();
    llvm::StringRef next = tokens.peek().is(Kind::Identifier)
                               ? tokens.peek().text
                               : llvm::StringRef("name");
    diagnostics.note(tokens.get().loc,
                     "options are one a line: option " + next + " = ...");
    recurrence.statements.push_back(std::move(statement));
    statement = Statement();
    tokens.advance();
  }
  return false;
}

/// output = "out" array ":" type "=" expr
bool Parser::parseOutput(Statement &statement) {
  statement.kind = Statement::Kind::Output;
  tokens.advance();
  ArrayDecl array;
  if (!parseArray(array))
    return false;
  statement.loc = array.loc;
  statement.name = array.name;
  statement.arrays.push_back(std::move(array));
  if (!parseType(statement) ||
      !tokens.expect(Kind::Equal, "and the value of the output"))
    return false;
  statement.value = exprs.parseExpr();
  return statement.value != nullptr;
}

/// A call of one of `ways`, which is the value of the statement.
bool Parser::parseWay(Statement &statement,
                      llvm::ArrayRef<llvm::StringRef> ways,
                      const llvm::Twine &note) {
  if (!tokens.at(Kind::Identifier) ||
      !llvm::is_contained(ways, tokens.get().text)) {
    std::string wanted;
    for (auto [index, way] : llvm::enumerate(ways))
      wanted += (index == 0                 ? ""
                 : index + 1 == ways.size() ? " or "
                                            : ", ") +
                quote(way);
    tokens.reportUnexpected(wanted);
    diagnostics.note(statement.loc, note);
    return false;
  }
  llvm::StringRef way = tokens.get().text;
  statement.value = exprs.parseExpr();
  if (!statement.value)
    return false;
  auto *call = llvm::dyn_cast<CallExpr>(statement.value.get());
  if (call && call->callee == way)
    return true;
  diagnostics.error(statement.value->loc, quote(way) + " stands alone",
                    statement.value->range);
  diagnostics.note(statement.loc, note);
  return false;
}

/// cache = "cache" name "[" name { "," name } "]" call
bool Parser::parseCache(Statement &statement) {
  statement.kind = Statement::Kind::Cache;
  tokens.advance();
  std::optional<Token> name = tokens.expectName("the name of the cache");
  if (!name || !tokens.expect(Kind::LeftBracket, "before what is cached"))
    return false;
  statement.name = name->text;
  statement.loc = name->loc;
  do {
    std::optional<Token> field = tokens.expectName("the name of a token");
    if (!field)
      return false;
    statement.fields.push_back({field->text, field->loc});
  } while (tokens.consumeIf(Kind::Comma));
  return tokens.expect(Kind::RightBracket, "after what is cached") &&
         parseWay(statement, {"paged", "segmented", "evicting"},
                  "say how many tokens a page holds: cache " + name->text +
                      "[k, v] paged(16)");
}

/// memory = "memory" name "[" name "]" "=" call ":" type
bool Parser::parseMemory(Statement &statement) {
  statement.kind = Statement::Kind::Memory;
  tokens.advance();
  std::optional<Token> name = tokens.expectName("the name of the memory");
  if (!name || !tokens.expect(Kind::LeftBracket, "before its cache"))
    return false;
  statement.name = name->text;
  statement.loc = name->loc;
  std::optional<Token> cache = tokens.expectName("the name of a cache");
  if (!cache)
    return false;
  statement.fields.push_back({cache->text, cache->loc});
  return tokens.expect(Kind::RightBracket, "after its cache") &&
         tokens.expect(Kind::Equal, "and what it keeps") &&
         parseWay(statement, {"linear", "taylor"},
                  "write memory " + name->text + "[" + cache->text +
                      "] = linear(features) or taylor(limit = 0)") &&
         parseType(statement);
}

SourceFile ladle::frontend::parse(Diagnostics &diagnostics) {
  llvm::SourceMgr &sourceManager = diagnostics.getSourceManager();
  const llvm::MemoryBuffer *buffer =
      sourceManager.getMemoryBuffer(sourceManager.getMainFileID());
  return Parser(buffer->getBuffer(), diagnostics).parseFile();
}
