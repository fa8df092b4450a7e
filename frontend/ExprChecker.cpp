//===- ExprChecker.cpp - shapes and constants of expressions ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/ExprChecker.h"

#include "frontend/Functions.h"

#include "llvm/Support/FormatVariadic.h"

#include <cfloat>
#include <cmath>

using namespace ladle::frontend;
using llvm::cast;
using llvm::dyn_cast;
using llvm::formatv;

static constexpr llvm::StringRef decaySignature = "S = decay(S, factor)";
static constexpr llvm::StringRef writeSignature = "S = write(S, key, value)";
static constexpr llvm::StringRef readSignature = "read(S, query)";

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

bool ExprChecker::checkValue(Expr &expr) {
  switch (expr.getKind()) {
  case Expr::Kind::Number:
    return setConstant(expr, cast<NumberExpr>(expr).value);
  case Expr::Kind::Name:
    return checkName(cast<NameExpr>(expr));
  case Expr::Kind::Negate:
    return checkNegate(cast<NegateExpr>(expr));
  case Expr::Kind::Binary:
    return checkBinary(cast<BinaryExpr>(expr));
  case Expr::Kind::Call:
    return checkCall(cast<CallExpr>(expr));
  }
  return false;
}

std::optional<double> ExprChecker::checkConstant(Expr &expr,
                                                 const llvm::Twine &what) {
  if (!checkValue(expr))
    return std::nullopt;
  if (!expr.constant) {
    diagnostics.error(expr.loc, what + " is not a constant", expr.range);
    diagnostics.note(expr.loc, "use numbers, sizes and options only");
  }
  return expr.constant;
}

bool ExprChecker::setConstant(Expr &expr, double value) {
  if (std::isnan(value)) {
    diagnostics.error(expr.loc, "this constant is not a number", expr.range);
    diagnostics.note(expr.loc, "0 / 0 is none, nor are the root and the "
                               "logarithm of a number below 0");
    return false;
  }
  // Arithmetic is f32, so that a larger number would become infinite.
  if (!(std::abs(value) <= FLT_MAX)) {
    diagnostics.error(expr.loc,
                      "this constant is " + formatNumber(value) +
                          ", which f32 does not hold",
                      expr.range);
    diagnostics.note(expr.loc, "the largest f32 number is 3.4e38");
    return false;
  }
  expr.constant = value;
  return true;
}

bool ExprChecker::checkName(NameExpr &expr) {
  Symbol *symbol = scope.lookup(expr.name);
  if (!symbol) {
    scope.reportUnknown(expr.name, expr.loc, "name");
    if (lookupFunction(expr.name))
      diagnostics.note(expr.loc,
                       quote(expr.name) + " is a function; give it arguments");
    return false;
  }
  symbol->read = true;
  switch (symbol->kind) {
  case Symbol::Kind::Invalid:
    return false;
  case Symbol::Kind::State:
    diagnostics.error(expr.loc,
                      "state " + quote(expr.name) + " is used as a value");
    diagnostics.note(expr.loc, "a state takes part in decay, write and read "
                               "only: read(" +
                                   expr.name + ", query)");
    return false;
  case Symbol::Kind::Output:
    diagnostics.error(expr.loc,
                      "output " + quote(expr.name) + " is used as a value");
    diagnostics.note(symbol->loc,
                     "bind the value with let and use that in both places");
    return false;
  case Symbol::Kind::Cache:
  case Symbol::Kind::Prefix:
    diagnostics.error(expr.loc, quote(expr.name) + " is " +
                                    describe(symbol->kind) +
                                    " and is used as a value");
    diagnostics.note(expr.loc,
                     "a cache is an operand of softmax alone, a match "
                     "one of complete");
    return false;
  case Symbol::Kind::Memory:
    diagnostics.error(expr.loc,
                      "memory " + quote(expr.name) + " is used as a value");
    diagnostics.note(expr.loc, "a memory is read: recall(query, " + expr.name +
                                   ") or expand(query, " + expr.name + ")");
    return false;
  default:
    expr.shape = symbol->shape;
    expr.isSummary = symbol->isSummary;
    expr.constant = symbol->constant;
    return true;
  }
}

bool ExprChecker::checkNegate(NegateExpr &expr) {
  if (!checkValue(*expr.operand))
    return false;
  expr.shape = expr.operand->shape;
  return !expr.operand->constant || setConstant(expr, -*expr.operand->constant);
}

bool ExprChecker::checkBinary(BinaryExpr &expr) {
  bool valid = checkValue(*expr.lhs);
  valid &= checkValue(*expr.rhs);
  if (!valid)
    return false;
  std::optional<Shape> shape = checkBroadcast(
      expr.lhs->shape, expr.rhs->shape, expr.loc, expr.range, diagnostics);
  if (!shape)
    return false;
  expr.shape = *shape;
  if (!expr.lhs->constant || !expr.rhs->constant)
    return true;
  double lhs = *expr.lhs->constant, rhs = *expr.rhs->constant;
  switch (expr.op) {
  case '+':
    return setConstant(expr, lhs + rhs);
  case '-':
    return setConstant(expr, lhs - rhs);
  case '*':
    return setConstant(expr, lhs * rhs);
  default:
    return setConstant(expr, lhs / rhs);
  }
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

bool ExprChecker::checkArgumentCount(const CallExpr &call, unsigned minArgs,
                                     unsigned maxArgs,
                                     llvm::StringRef signature) {
  size_t count = call.args.size();
  if (count >= minArgs && count <= maxArgs)
    return true;
  std::string wanted = std::to_string(minArgs);
  if (maxArgs != minArgs)
    wanted +=
        (maxArgs == minArgs + 1 ? " or " : " to ") + std::to_string(maxArgs);
  diagnostics.error(call.loc,
                    formatv("'{0}' takes {1} argument{2}, got {3}", call.callee,
                            wanted, wanted == "1" ? "" : "s", count)
                        .str(),
                    call.range);
  diagnostics.note(call.loc, "write " + signature);
  return false;
}

void ExprChecker::reportUnknownFunction(const CallExpr &call) {
  if (call.callee == "match" || call.callee == "softmax" ||
      call.callee == "complete") {
    diagnostics.error(call.loc, quote(call.callee) + " gives no value");
    if (!callNames && call.callee == "softmax")
      diagnostics.note(call.loc, "it attends to the cache of an attention; the "
                                 "softmax of a vector is exp(x) / sum(exp(x))");
    else
      diagnostics.note(call.loc,
                       "in an attention, let prefix = match(...), and "
                       "the output is softmax(...) or complete(prefix, "
                       "softmax(...), band)");
    return;
  }
  diagnostics.error(call.loc, "unknown function " + quote(call.callee));
  Suggestion suggestion(call.callee);
  for (const Function &function : getFunctions())
    suggestion.consider(function.name);
  for (llvm::StringRef name : {"decay", "write", "read"})
    suggestion.consider(name);
  if (callNames)
    for (llvm::StringRef name : callNames())
      suggestion.consider(name);
  if (!suggestion.get().empty()) {
    diagnostics.note(call.loc, "did you mean '" + suggestion.get() + "'?");
    return;
  }
  std::string names;
  for (const Function &function : getFunctions())
    names += (function.name + ", ").str();
  diagnostics.note(call.loc,
                   "the functions are " + names + "decay, write and read");
}

bool ExprChecker::checkCall(CallExpr &call) {
  if (call.callee == "read")
    return checkRead(call);
  if (call.callee == "decay" || call.callee == "write") {
    diagnostics.error(call.loc,
                      quote(call.callee) + " gives a state, not a value",
                      call.range);
    diagnostics.note(call.loc, "assign it to the state: " +
                                   (call.callee == "decay" ? decaySignature
                                                           : writeSignature));
    return false;
  }
  const Function *function = lookupFunction(call.callee);
  if (!function && calls)
    if (std::optional<bool> valid = calls(call))
      return *valid;
  if (!function) {
    reportUnknownFunction(call);
    return false;
  }
  call.function = function;
  bool valid = checkArgumentCount(call, function->minArgs, function->maxArgs,
                                  function->signature);
  llvm::SmallVector<double> constants;
  for (auto [index, arg] : llvm::enumerate(call.args)) {
    if (function->takesDim && index == 1)
      continue;
    valid &= checkValue(*arg);
    if (arg->constant)
      constants.push_back(*arg->constant);
  }
  if (!valid)
    return false;
  if (function->fold && constants.size() == call.args.size())
    return setConstant(call, function->fold(constants));
  std::optional<Shape> shape = function->inferShape(call, diagnostics);
  if (!shape)
    return false;
  call.shape = *shape;
  return true;
}

//===----------------------------------------------------------------------===//
// State operations
//===----------------------------------------------------------------------===//

bool ExprChecker::checkStateHeads(const Expr &expr, llvm::StringRef what,
                                  llvm::StringRef stateName,
                                  const Symbol &state) {
  int64_t heads = expr.shape.getNumHeads();
  int64_t stateHeads = state.shape.getNumHeads();
  if (stateHeads % heads == 0)
    return true;
  diagnostics.error(expr.loc,
                    formatv("{0} has {1} heads, state '{2}' has {3}", what,
                            heads, stateName, stateHeads)
                        .str(),
                    expr.range);
  diagnostics.note(expr.loc, "the heads of a state have to be a multiple of "
                             "those of what it is used with");
  return false;
}

bool ExprChecker::checkKeySide(const CallExpr &call, const Expr &expr,
                               llvm::StringRef what, llvm::StringRef stateName,
                               const Symbol &state) {
  llvm::ArrayRef<Dim> features = expr.shape.features;
  const Dim &keyDim = state.getKeyDim();
  if ((features.size() == 1 || features.size() == 2) &&
      features.back() == keyDim) {
    if (features.size() == 1 || !(features.front() == state.getValueDim()))
      return checkStateHeads(expr, what, stateName, state);
    diagnostics.error(expr.loc,
                      formatv("the rank of this {0} is the value dimension {1} "
                              "of state '{2}'",
                              what, features.front().name, stateName)
                          .str(),
                      expr.range);
    diagnostics.note(expr.loc, "dimensions match by name: give the rank a size "
                               "of its own");
    return false;
  }
  diagnostics.error(expr.loc,
                    formatv("{0} of state '{1}' is {2}, its key dimension is "
                            "{3}",
                            what, stateName, expr.shape.str(), keyDim.name)
                        .str(),
                    expr.range);
  if (call.callee == "write" && !features.empty() &&
      features.back() == state.getValueDim())
    diagnostics.note(expr.loc, "the key is the second operand, the value the "
                               "third: " +
                                   writeSignature);
  else
    diagnostics.note(expr.loc,
                     formatv("a {0} is [H, {1}], or [H, R, {1}] with a rank R",
                             what, keyDim.name)
                         .str());
  return false;
}

/// read(S, query): [H, dv], or [H, R, dv] for a query of rank R.
bool ExprChecker::checkRead(CallExpr &call) {
  if (!checkArgumentCount(call, 2, 2, readSignature))
    return false;
  Expr &source = *call.args[0], &query = *call.args[1];
  auto *name = dyn_cast<NameExpr>(&source);
  Symbol *state = name ? scope.lookup(name->name) : nullptr;
  bool valid = checkValue(query);
  if (name && !state) {
    scope.reportUnknown(name->name, name->loc, "state",
                        "declare it with state");
    return false;
  }
  if (!state || (state->kind != Symbol::Kind::State &&
                 state->kind != Symbol::Kind::Invalid)) {
    diagnostics.error(source.loc,
                      name ? quote(name->name) + " is " +
                                 describe(state->kind).str() + ", not a state"
                           : "the first operand of read is not a state",
                      source.range);
    diagnostics.note(source.loc,
                     name ? "the state is the first operand, the query the "
                            "second: read(S, query)"
                          : "assign the state first, then read it by its "
                            "name: read(S, query)");
    return false;
  }
  state->read = true;
  if (!valid || state->kind == Symbol::Kind::Invalid ||
      !checkKeySide(call, query, "query", name->name, *state))
    return false;
  call.shape.head = state->shape.head;
  call.shape.features = query.shape.features;
  call.shape.features.back() = state->getValueDim();
  return true;
}

bool ExprChecker::checkNextState(Expr &expr, llvm::StringRef stateName,
                                 const Symbol &state) {
  if (auto *name = dyn_cast<NameExpr>(&expr)) {
    if (name->name == stateName)
      return true;
    const Symbol *other = scope.lookup(name->name);
    if (!other) {
      scope.reportUnknown(name->name, name->loc, "state",
                          "a state changes by decay and write of itself: " +
                              stateName);
      return false;
    }
    if (other->kind == Symbol::Kind::State) {
      diagnostics.error(expr.loc, "state " + quote(stateName) +
                                      " is assigned from state " +
                                      quote(name->name));
      diagnostics.note(expr.loc, "a state enters another one only through a "
                                 "read: write(" +
                                     stateName + ", key, read(" + name->name +
                                     ", query))");
      return false;
    }
  }
  if (auto *call = dyn_cast<CallExpr>(&expr)) {
    if (call->callee == "decay")
      return checkDecay(*call, stateName, state);
    if (call->callee == "write")
      return checkWrite(*call, stateName, state);
  }
  // A wrong expression is the first thing to mend.
  if (!checkValue(expr))
    return false;
  diagnostics.error(expr.loc,
                    "state " + quote(stateName) + " is assigned a value",
                    expr.range);
  diagnostics.note(expr.loc,
                   "a state changes by decay and write only: " + stateName +
                       " = write(" + stateName + ", key, value)");
  return false;
}

/// decay(S, factor): one number a head, or one a key channel.
bool ExprChecker::checkDecay(CallExpr &call, llvm::StringRef stateName,
                             const Symbol &state) {
  if (!checkArgumentCount(call, 2, 2, decaySignature))
    return false;
  Expr &factor = *call.args[1];
  bool valid = checkNextState(*call.args[0], stateName, state);
  valid &= checkValue(factor);
  if (!valid)
    return false;
  llvm::ArrayRef<Dim> features = factor.shape.features;
  if (!features.empty() &&
      (features.size() > 1 || !(features[0] == state.getKeyDim()))) {
    diagnostics.error(factor.loc,
                      formatv("decay factor of state '{0}' is {1}", stateName,
                              factor.shape.str())
                          .str(),
                      factor.range);
    diagnostics.note(factor.loc,
                     formatv("a decay is one number a head, [H], or one a key "
                             "channel, [H, {0}]",
                             state.getKeyDim().name)
                         .str());
    return false;
  }
  return checkStateHeads(factor, "decay factor", stateName, state);
}

/// write(S, key, value): value [dv], or [R, dv] for a key of rank R.
bool ExprChecker::checkWrite(CallExpr &call, llvm::StringRef stateName,
                             const Symbol &state) {
  if (!checkArgumentCount(call, 3, 3, writeSignature))
    return false;
  Expr &key = *call.args[1], &value = *call.args[2];
  bool valid = checkNextState(*call.args[0], stateName, state);
  valid &= checkValue(key);
  valid &= checkValue(value);
  if (!valid || !checkKeySide(call, key, "key", stateName, state))
    return false;

  auto wanted = key.shape.features;
  wanted.back() = state.getValueDim();
  if (matchSubsequence(value.shape.features, wanted))
    return checkStateHeads(value, "value", stateName, state);
  diagnostics.error(value.loc,
                    formatv("value written to state '{0}' is {1}, its value "
                            "dimension is {2}",
                            stateName, value.shape.str(),
                            state.getValueDim().name)
                        .str(),
                    value.range);
  diagnostics.note(value.loc,
                   formatv("for a key {0} the value is {1}, heads before it",
                           formatDims(key.shape.features), formatDims(wanted))
                       .str());
  return false;
}
