//===- ExprParser.cpp - from tokens to expressions --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/ExprParser.h"

#include "frontend/Parser.h"

#include "llvm/ADT/ScopeExit.h"

#include <algorithm>

using namespace ladle::frontend;
using Kind = Token::Kind;

void ExprParser::reportTooDeep(llvm::SMLoc loc) {
  diagnostics.error(loc, "expression nests deeper than " +
                             llvm::Twine(maxDepth) + " levels");
  diagnostics.note(loc, "name a part of it with let");
}

bool ExprParser::enter(llvm::SMLoc loc) {
  if (nesting == maxDepth) {
    reportTooDeep(loc);
    return false;
  }
  ++nesting;
  return true;
}

ExprPtr ExprParser::finish(ExprPtr expr, llvm::SMLoc start,
                           unsigned childDepth) {
  expr->range = llvm::SMRange(start, tokens.getPreviousEnd());
  expr->depth = childDepth + 1;
  if (expr->depth <= maxDepth)
    return expr;
  reportTooDeep(expr->loc);
  return nullptr;
}

ExprPtr ExprParser::makeBinary(const Token &op, ExprPtr lhs, ExprPtr rhs) {
  auto binary = std::make_unique<BinaryExpr>();
  binary->loc = op.loc;
  binary->op = op.text.front();
  llvm::SMLoc start = lhs->range.Start;
  unsigned depth = std::max(lhs->depth, rhs->depth);
  binary->lhs = std::move(lhs);
  binary->rhs = std::move(rhs);
  return finish(std::move(binary), start, depth);
}

/// expr = term { ( "+" | "-" ) term }
ExprPtr ExprParser::parseExpr() {
  ExprPtr lhs = parseTerm();
  while (lhs && (tokens.at(Kind::Plus) || tokens.at(Kind::Minus))) {
    Token op = tokens.get();
    tokens.advance();
    ExprPtr rhs = parseTerm();
    lhs = rhs ? makeBinary(op, std::move(lhs), std::move(rhs)) : nullptr;
  }
  return lhs;
}

/// term = unary { ( "*" | "/" ) unary }
ExprPtr ExprParser::parseTerm() {
  ExprPtr lhs = parseUnary();
  while (lhs && (tokens.at(Kind::Star) || tokens.at(Kind::Slash))) {
    Token op = tokens.get();
    tokens.advance();
    ExprPtr rhs = parseUnary();
    lhs = rhs ? makeBinary(op, std::move(lhs), std::move(rhs)) : nullptr;
  }
  return lhs;
}

/// unary = "-" unary | primary
ExprPtr ExprParser::parseUnary() {
  llvm::SMLoc start = tokens.get().loc;
  // Every kind of nesting, of signs, parentheses and calls, comes by here.
  if (!enter(start))
    return nullptr;
  llvm::scope_exit leave([&] { --nesting; });
  if (!tokens.consumeIf(Kind::Minus))
    return parsePrimary();
  ExprPtr operand = parseUnary();
  if (!operand)
    return nullptr;
  auto negate = std::make_unique<NegateExpr>();
  negate->loc = start;
  unsigned depth = operand->depth;
  negate->operand = std::move(operand);
  return finish(std::move(negate), start, depth);
}

/// primary = number | "(" expr ")" | name | call
ExprPtr ExprParser::parsePrimary() {
  if (tokens.at(Kind::Number))
    return parseNumber();
  if (tokens.at(Kind::LeftParen))
    return parseParenthesis();
  // `name =` on a new line is the next statement: this one lacks an operand.
  if (tokens.at(Kind::Identifier) && !tokens.startsStatement())
    return parseNameOrCall();
  if (tokens.get().isKeyword() && !tokens.get().startsLine)
    tokens.expectName("the name of a value");
  else
    tokens.reportUnexpected("an expression");
  return nullptr;
}

ExprPtr ExprParser::parseNumber() {
  auto number = std::make_unique<NumberExpr>();
  number->loc = tokens.get().loc;
  number->value = tokens.get().number;
  tokens.advance();
  llvm::SMLoc start = number->loc;
  return finish(std::move(number), start, 0);
}

ExprPtr ExprParser::parseParenthesis() {
  llvm::SMLoc start = tokens.get().loc;
  tokens.advance();
  ExprPtr inner = parseExpr();
  if (!inner)
    return nullptr;
  if (!tokens.expect(Kind::RightParen, "to close the parenthesis")) {
    diagnostics.note(start, "it is opened here");
    return nullptr;
  }
  inner->range = llvm::SMRange(start, tokens.getPreviousEnd());
  return inner;
}

/// The words of attention, whose numbers have names. Elsewhere `name =` on a
/// new line is the next statement.
static bool takesNames(llvm::StringRef callee) {
  return llvm::is_contained({"match", "softmax", "complete", "expand",
                             "segmented", "evicting", "paged", "linear",
                             "taylor"},
                            callee);
}

/// call = name "(" [ argument { "," argument } [ "," ] ] ")"
/// argument = [ name "=" ] expr
ExprPtr ExprParser::parseNameOrCall() {
  Token name = tokens.get();
  tokens.advance();
  // A parenthesis on the next line makes a call too: nothing else begins so.
  llvm::SMLoc open = tokens.get().loc;
  if (!tokens.consumeIf(Kind::LeftParen)) {
    auto expr = std::make_unique<NameExpr>();
    expr->loc = name.loc;
    expr->name = name.text;
    return finish(std::move(expr), name.loc, 0);
  }
  auto call = std::make_unique<CallExpr>();
  call->loc = name.loc;
  call->callee = name.text;
  unsigned depth = 0;
  while (!tokens.at(Kind::RightParen)) {
    llvm::StringRef argName;
    if (takesNames(name.text) && tokens.at(Kind::Identifier) &&
        tokens.peek().is(Kind::Equal)) {
      argName = tokens.get().text;
      tokens.advance();
      tokens.advance();
    }
    ExprPtr arg = parseExpr();
    if (!arg)
      return nullptr;
    depth = std::max(depth, arg->depth);
    call->args.push_back(std::move(arg));
    call->names.push_back(argName);
    if (!tokens.consumeIf(Kind::Comma))
      break;
  }
  if (!tokens.expect(Kind::RightParen,
                     "after the arguments of " + quote(name.text))) {
    diagnostics.note(open, "to close this '('");
    return nullptr;
  }
  return finish(std::move(call), name.loc, depth);
}
