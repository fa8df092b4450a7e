//===- BoundedSema.cpp - caches that give up tokens -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/AttentionSema.h"
#include "frontend/Functions.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cfloat>

using namespace ladle::frontend;
using llvm::cast;
using llvm::dyn_cast;
using llvm::formatv;

static constexpr llvm::StringRef segmentedSignature =
    "cache KV[k, v] segmented(sinks, window, segment)";
static constexpr llvm::StringRef evictingSignature =
    "cache KV[k, v] evicting(budget, recent = 32)";
static constexpr llvm::StringRef linearSignature =
    "memory M[KV] = linear(elu(k) + 1) : f32";
static constexpr llvm::StringRef taylorSignature =
    "memory T[KV] = taylor(limit = 0) : f32";
static constexpr llvm::StringRef mergeSignature =
    "merge(softmax(query, cache), expand(query, memory))";
static constexpr llvm::StringRef expandSignature =
    "expand(query, memory, scale = rsqrt(D))";
static constexpr llvm::StringRef recallSignature = "recall(features, memory)";
static constexpr llvm::StringRef onceSignature =
    "once(memory, value, otherwise)";

//===----------------------------------------------------------------------===//
// Caches
//===----------------------------------------------------------------------===//

bool AttentionChecker::checkNumber(Expr *expr, llvm::StringRef what,
                                   double least, double most,
                                   llvm::StringRef note, double &result) {
  if (!expr)
    return true;
  std::optional<double> value = exprs.checkConstant(*expr, what);
  if (!value)
    return false;
  result = *value;
  if (*value >= least && *value <= most)
    return true;
  diagnostics.error(expr->loc, (what + " is " + formatNumber(*value)).str(),
                    expr->range);
  diagnostics.note(expr->loc, note);
  return false;
}

bool AttentionChecker::checkSegmented(CallExpr &call) {
  AttentionScheme::Bounds &bounds = scheme.bounds.emplace();
  scheme.pageSize = 0;
  auto arguments =
      bind(call, {"sinks", "window", "segment"}, {}, segmentedSignature);
  if (!arguments)
    return false;
  bool valid = checkCount(arguments->lookup("sinks"), "sinks", 0, bounds.sinks);
  valid &=
      checkCount(arguments->lookup("window"), "the window", 0, bounds.window);
  valid &= checkCount(arguments->lookup("segment"), "the segment", 1,
                      bounds.segment);
  // A prompt keeps one token beside a segment that is full.
  bounds.capacity =
      bounds.sinks + std::max<int64_t>(bounds.window, 1) + bounds.segment;
  return valid;
}

bool AttentionChecker::checkEvicting(CallExpr &call) {
  AttentionScheme::Bounds &bounds = scheme.bounds.emplace();
  bounds.evicts = true;
  scheme.pageSize = 0;
  auto arguments =
      bind(call, {"budget"}, {"sinks", "recent", "queries", "variance", "pool"},
           evictingSignature);
  if (!arguments)
    return false;
  bool valid =
      checkCount(arguments->lookup("budget"), "the budget", 1, bounds.budget);
  valid &= checkCount(arguments->lookup("sinks"), "sinks", 0, bounds.sinks);
  valid &= checkCount(arguments->lookup("recent"), "recent", 1, bounds.recent);
  valid &= checkCount(arguments->lookup("queries"), "queries", 0,
                      bounds.queries, "queries");
  valid &= checkCount(arguments->lookup("pool"), "pool", 1, bounds.pool);
  if (!bounds.queries && !arguments->lookup("variance"))
    bounds.variance = 0;
  valid &= checkNumber(arguments->lookup("variance"), "variance", 0, FLT_MAX,
                       "it weighs the variance of what queries gave a token "
                       "beside the mean: 0 or more",
                       bounds.variance);
  bounds.capacity = bounds.budget + 1;
  if (!valid)
    return false;
  if (bounds.sinks + bounds.recent > bounds.budget) {
    diagnostics.error(call.loc,
                      formatv("the budget is {0}, and {1} tokens never leave",
                              bounds.budget, bounds.sinks + bounds.recent)
                          .str(),
                      call.range);
    diagnostics.note(call.loc, "it holds the sinks and the recent tokens, and "
                               "those that were salient");
    if (!arguments->lookup("recent"))
      diagnostics.note(
          call.loc,
          formatv("recent = {0} is the default", bounds.recent).str());
    return false;
  }
  if (bounds.pool % 2 == 0) {
    diagnostics.error(arguments->lookup("pool")->loc,
                      "pool is " + std::to_string(bounds.pool),
                      arguments->lookup("pool")->range);
    diagnostics.note(call.loc, "it is odd: as many tokens on either side");
    return false;
  }
  if (!bounds.queries && bounds.variance > 0) {
    diagnostics.error(arguments->lookup("variance")->loc,
                      "there is no variance over all queries",
                      arguments->lookup("variance")->range);
    diagnostics.note(call.loc, "with queries = 0 a token's salience is the sum "
                               "over all queries: give a count of queries");
    return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Memories
//===----------------------------------------------------------------------===//

/// The first name in an expression that is neither the key nor a constant.
static const NameExpr *findOther(const Expr &expr, llvm::StringRef key) {
  if (expr.constant)
    return nullptr;
  switch (expr.getKind()) {
  case Expr::Kind::Number:
    return nullptr;
  case Expr::Kind::Name: {
    const auto &name = cast<NameExpr>(expr);
    return name.name == key ? nullptr : &name;
  }
  case Expr::Kind::Negate:
    return findOther(*cast<NegateExpr>(expr).operand, key);
  case Expr::Kind::Binary: {
    const auto &binary = cast<BinaryExpr>(expr);
    const NameExpr *other = findOther(*binary.lhs, key);
    return other ? other : findOther(*binary.rhs, key);
  }
  case Expr::Kind::Call:
    for (auto [index, arg] : llvm::enumerate(cast<CallExpr>(expr).args)) {
      const Function *function = cast<CallExpr>(expr).function;
      if (function && function->takesDim && index == 1)
        continue;
      if (const NameExpr *other = findOther(*arg, key))
        return other;
    }
    return nullptr;
  }
  return nullptr;
}

bool AttentionChecker::checkFeature(Expr &feature) {
  if (!exprs.checkValue(feature))
    return false;
  const Symbol &key = *scope.lookup(scheme.key);
  if (const NameExpr *other = findOther(feature, scheme.key)) {
    diagnostics.error(other->loc,
                      "the features of a memory take " + quote(other->name));
    diagnostics.note(feature.loc,
                     "they are of the key alone, which is all that a cache "
                     "holds beside the value: linear(elu(" +
                         scheme.key + ") + 1)");
    return false;
  }
  if (feature.shape.features.size() == 1 &&
      feature.shape.getNumHeads() == key.shape.getNumHeads())
    return true;
  diagnostics.error(feature.loc,
                    "the features of a key are " + feature.shape.str(),
                    feature.range);
  diagnostics.note(feature.loc, "they are a vector for each head of the cache");
  return false;
}

void AttentionChecker::checkMemory(Statement &statement,
                                   std::optional<ElementType> type) {
  Symbol symbol;
  symbol.loc = statement.loc;
  auto declare = [&] { scope.declare(statement.name, symbol); };
  auto fail = [&](llvm::SMLoc loc, const llvm::Twine &message,
                  llvm::SMLoc noteLoc, const llvm::Twine &note) {
    diagnostics.error(loc, message);
    diagnostics.note(noteLoc, note);
    declare();
  };
  if (scheme.memory)
    return fail(statement.loc,
                "attention " + quote(recurrence.name) + " has two memories",
                scheme.memory->loc, "the first is here");
  const NamedPlace &place = statement.fields.front();
  Symbol *cache = scope.lookup(place.name);
  if (!cache) {
    scope.reportUnknown(place.name, place.loc, "cache",
                        "declare it before: " + segmentedSignature);
    return declare();
  }
  if (cache->kind == Symbol::Kind::Invalid)
    return declare();
  if (cache->kind != Symbol::Kind::Cache)
    return fail(place.loc,
                quote(place.name) + " is " + describe(cache->kind) +
                    ", not a cache",
                statement.loc, "write " + linearSignature);
  if (!isBounded())
    return fail(place.loc, "nothing leaves cache " + quote(place.name),
                cache->loc,
                "a memory holds what a segmented or evicting cache gives up");
  cache->read = true;
  auto &call = cast<CallExpr>(*statement.value);
  bool isTaylor = call.callee == "taylor";
  if (isTaylor != scheme.bounds->evicts)
    return fail(call.loc,
                isTaylor ? "a segmented cache has a taylor memory"
                         : "an evicting cache has a linear memory",
                cache->loc,
                "write " + (isTaylor ? linearSignature : taylorSignature));
  AttentionScheme::Memory &memory = scheme.memory.emplace();
  memory.name = statement.name;
  memory.loc = statement.loc;
  const Symbol &key = *scope.lookup(scheme.key);
  const Symbol &value = *scope.lookup(scheme.value);
  Dim keyDim = key.shape.features[0];
  bool valid = type.has_value();
  if (isTaylor) {
    auto arguments = bind(call, {}, {"limit"}, taylorSignature);
    valid &=
        arguments &&
        checkNumber(arguments->lookup("limit"), "the limit", 0, FLT_MAX,
                    "it bounds |q| times the spread of the keys, as far as "
                    "the first order holds; 0 is none",
                    memory.limit);
  } else {
    auto arguments = bind(call, {"features"}, {"decay"}, linearSignature);
    valid &= arguments.has_value();
    if (arguments) {
      valid &= checkNumber(arguments->lookup("decay"), "the decay", FLT_MIN, 1,
                           "what is remembered is multiplied by it at a fold: "
                           "above 0, and 1 at the most",
                           memory.decay);
      Expr &feature = *arguments->lookup("features");
      valid &= checkFeature(feature);
      if (valid)
        keyDim = feature.shape.features[0];
      for (ExprPtr &arg : call.args)
        if (arg.get() == &feature)
          memory.feature = &arg;
    }
  }
  if (valid) {
    symbol.kind = Symbol::Kind::Memory;
    symbol.type = memory.type = *type;
    symbol.shape.head = key.shape.head;
    symbol.shape.features = {keyDim, value.shape.features[0]};
    memory.shape = symbol.shape;
  }
  declare();
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

bool AttentionChecker::checkMemoryName(const CallExpr &call, const Expr &expr,
                                       bool isTaylor) {
  auto *name = dyn_cast<NameExpr>(&expr);
  Symbol *symbol = name ? scope.lookup(name->name) : nullptr;
  if (name && !symbol) {
    std::string wayOut =
        scheme.memory ? "the memory of cache " + quote(scheme.cache) + " is " +
                            quote(scheme.memory->name)
                      : formatv("declare it: memory {0}[{1}] = {2} : f32",
                                name->name, scheme.cache,
                                scheme.bounds->evicts
                                    ? "taylor(limit = 0)"
                                    : "linear(elu(" + scheme.key + ") + 1)")
                            .str();
    scope.reportUnknown(name->name, name->loc, "memory", wayOut);
    return false;
  }
  if (symbol && symbol->kind == Symbol::Kind::Invalid)
    return false;
  if (!symbol || symbol->kind != Symbol::Kind::Memory) {
    diagnostics.error(expr.loc,
                      symbol
                          ? quote(name->name) + " is " +
                                describe(symbol->kind).str() + ", not a memory"
                          : quote(call.callee) + " does not read a memory",
                      expr.range);
    diagnostics.note(expr.loc, "declare one: " + linearSignature + " or " +
                                   taylorSignature);
    return false;
  }
  symbol->read = true;
  if (call.callee == "once" || isTaylor == scheme.bounds->evicts)
    return true;
  diagnostics.error(expr.loc,
                    quote(call.callee) + " reads a " +
                        (isTaylor ? "taylor" : "linear") + " memory, " +
                        quote(name->name) + " is a " +
                        (isTaylor ? "linear" : "taylor") + " one",
                    expr.range);
  diagnostics.note(expr.loc,
                   "write " + (isTaylor ? recallSignature : expandSignature));
  return false;
}

bool AttentionChecker::checkExpand(CallExpr &call) {
  auto arguments = bind(call, {"query", "memory"}, {"scale"}, expandSignature);
  if (!arguments)
    return false;
  const Symbol *query = checkToken(arguments->lookup("query"), "the query");
  bool valid = checkMemoryName(call, *arguments->lookup("memory"), true);
  double scale = 1;
  if (Expr *expr = arguments->lookup("scale"))
    valid &= checkNumber(expr, "the scale", -FLT_MAX, FLT_MAX, "", scale);
  if (!valid || !query)
    return false;
  const Shape &memory = scheme.memory->shape;
  call.shape.head = query->shape.head;
  call.shape.features = {memory.features[1]};
  call.isSummary = true;
  if (query->shape.features[0] == memory.features[0] &&
      query->shape.getNumHeads() % memory.getNumHeads() == 0)
    return true;
  diagnostics.error(call.loc,
                    formatv("the query is {0}, memory '{1}' {2}",
                            query->shape.str(), scheme.memory->name,
                            memory.str())
                        .str(),
                    call.range);
  diagnostics.note(call.loc, "it has the dimension of the keys and a multiple "
                             "of their heads");
  return false;
}

bool AttentionChecker::checkRecall(CallExpr &call) {
  auto arguments = bind(call, {"features", "memory"}, {}, recallSignature);
  if (!arguments)
    return false;
  Expr &query = *arguments->lookup("features");
  bool valid = exprs.checkValue(query);
  valid &= checkMemoryName(call, *arguments->lookup("memory"), false);
  if (!valid)
    return false;
  const Shape &memory = scheme.memory->shape;
  call.shape.head = query.shape.head;
  call.shape.features = {memory.features[1]};
  if (query.shape.features.size() == 1 &&
      query.shape.features[0] == memory.features[0] &&
      query.shape.getNumHeads() % memory.getNumHeads() == 0)
    return true;
  diagnostics.error(query.loc,
                    formatv("the query is {0}, memory '{1}' {2}",
                            query.shape.str(), scheme.memory->name,
                            memory.str())
                        .str(),
                    query.range);
  diagnostics.note(query.loc, "it has the dimension of the features of keys "
                              "and a multiple of their heads");
  return false;
}

bool AttentionChecker::checkOnce(CallExpr &call) {
  auto arguments =
      bind(call, {"memory", "value", "otherwise"}, {}, onceSignature);
  if (!arguments)
    return false;
  Expr &value = *arguments->lookup("value");
  Expr &otherwise = *arguments->lookup("otherwise");
  bool valid = checkMemoryName(call, *arguments->lookup("memory"), false);
  valid &= exprs.checkValue(value);
  valid &= exprs.checkValue(otherwise);
  if (!valid)
    return false;
  std::optional<Shape> shape = checkBroadcast(
      value.shape, otherwise.shape, call.loc, call.range, diagnostics);
  if (!shape)
    return false;
  call.shape = *shape;
  return true;
}

bool AttentionChecker::checkMerge(CallExpr &call) {
  auto arguments = bind(call, {"first", "second"}, {}, mergeSignature);
  if (!arguments)
    return false;
  bool valid = true;
  for (ExprPtr &arg : call.args) {
    if (!exprs.checkValue(*arg)) {
      valid = false;
    } else if (!arg->isSummary) {
      diagnostics.error(arg->loc, "merge of what is no summary", arg->range);
      diagnostics.note(arg->loc, "write " + mergeSignature);
      valid = false;
    }
  }
  if (!valid)
    return false;
  const Shape &first = call.args[0]->shape, &second = call.args[1]->shape;
  call.shape = first;
  call.isSummary = true;
  if (first.features == second.features &&
      first.getNumHeads() == second.getNumHeads())
    return true;
  diagnostics.error(call.loc,
                    "the summaries are " + first.str() + " and " + second.str(),
                    call.range);
  diagnostics.note(call.loc, "they are of the same query and values");
  return false;
}

llvm::ArrayRef<llvm::StringRef> AttentionChecker::callNames() const {
  static constexpr llvm::StringRef names[] = {"softmax", "expand", "merge",
                                              "recall", "once"};
  if (!isBounded())
    return {};
  return names;
}

void AttentionChecker::reportMatch(llvm::SMLoc loc) {
  diagnostics.error(loc, "a match needs all tokens, of which cache " +
                             quote(scheme.cache) + " gives up some");
  diagnostics.note(scheme.cacheLoc,
                   "what a match reuses is the summary of a prefix: keep it, "
                   "cache " +
                       scheme.cache + "[k, v] paged(16)");
}

std::optional<bool> AttentionChecker::checkCall(CallExpr &call) {
  if (!isBounded())
    return std::nullopt;
  if (call.callee == "softmax") {
    bool valid = checkSoftmax(call);
    call.isSummary = true;
    return valid;
  }
  // What it completes has been reported, if it is a match at all.
  if (call.callee == "complete") {
    auto *name =
        call.args.empty() ? nullptr : dyn_cast<NameExpr>(call.args[0].get());
    const Symbol *prefix = name ? scope.lookup(name->name) : nullptr;
    if (!prefix || prefix->kind != Symbol::Kind::Invalid)
      reportMatch(call.loc);
    return false;
  }
  if (call.callee == "expand")
    return checkExpand(call);
  if (call.callee == "merge")
    return checkMerge(call);
  if (call.callee == "recall")
    return checkRecall(call);
  if (call.callee == "once")
    return checkOnce(call);
  return std::nullopt;
}
