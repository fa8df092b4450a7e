//===- AttentionSema.cpp - what an attention means --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/AttentionSema.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace ladle::frontend;
using llvm::cast;
using llvm::dyn_cast;
using llvm::formatv;

static constexpr llvm::StringRef matchSignature =
    "let prefix = match(query, window, tau)";
static constexpr llvm::StringRef softmaxSignature =
    "softmax(query, cache, scale = rsqrt(D))";
static constexpr llvm::StringRef completeSignature =
    "complete(prefix, softmax(query, cache), band)";

/// More tokens than any ring or sequence has; kernels add up three such counts
/// in 32 bits.
static constexpr int64_t maxCount = int64_t(1) << 29;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

std::optional<AttentionChecker::Arguments>
AttentionChecker::bind(CallExpr &call, llvm::ArrayRef<llvm::StringRef> required,
                       llvm::ArrayRef<llvm::StringRef> optional,
                       llvm::StringRef signature) {
  llvm::SmallVector<llvm::StringRef> known(required);
  known.append(optional.begin(), optional.end());
  Arguments arguments;
  auto fail = [&](llvm::SMLoc loc, const llvm::Twine &message,
                  const llvm::Twine &note) {
    diagnostics.error(loc, message, call.range);
    diagnostics.note(loc, note);
    return std::nullopt;
  };
  for (auto [index, arg] : llvm::enumerate(call.args)) {
    llvm::StringRef name = call.names[index];
    if (name.empty() && index >= known.size())
      return fail(arg->loc,
                  formatv("'{0}' takes {1} arguments at most, got {2}",
                          call.callee, known.size(), call.args.size()),
                  "write " + signature);
    if (name.empty())
      name = known[index];
    if (!llvm::is_contained(known, name)) {
      Suggestion suggestion(name);
      for (llvm::StringRef candidate : known)
        suggestion.consider(candidate);
      return fail(arg->loc,
                  quote(call.callee) + " has no argument " + quote(name),
                  suggestion.get().empty()
                      ? "it has " + llvm::join(known, ", ")
                      : "did you mean '" + suggestion.get().str() + "'?");
    }
    if (!arguments.try_emplace(name, arg.get()).second)
      return fail(arg->loc,
                  quote(name) + " of " + quote(call.callee) + " is given twice",
                  "write " + signature);
  }
  for (llvm::StringRef name : required)
    if (!arguments.contains(name))
      return fail(call.loc,
                  quote(call.callee) + " lacks its argument " + quote(name),
                  "write " + signature);
  return arguments;
}

Symbol *AttentionChecker::checkToken(const Expr *expr, llvm::StringRef what) {
  auto *name = dyn_cast<NameExpr>(expr);
  Symbol *symbol = name ? scope.lookup(name->name) : nullptr;
  if (name && !symbol) {
    scope.reportUnknown(name->name, name->loc, "token");
    return nullptr;
  }
  if (symbol && symbol->kind == Symbol::Kind::Invalid)
    return nullptr;
  if (!symbol || symbol->kind != Symbol::Kind::Token) {
    diagnostics.error(expr->loc,
                      symbol
                          ? quote(name->name) + " is " +
                                describe(symbol->kind).str() + ", not a token"
                          : (what + " is not a token").str(),
                      expr->range);
    diagnostics.note(expr->loc, "an attention takes its inputs as they come: "
                                "rotate and scale them before the step");
    return nullptr;
  }
  symbol->read = true;
  if (symbol->shape.features.size() == 1)
    return symbol;
  diagnostics.error(
      expr->loc,
      formatv("{0} '{1}' is {2}", what, name->name, symbol->shape.str()).str());
  diagnostics.note(symbol->loc, "it has heads and one dimension besides: " +
                                    name->name + "[H, D]");
  return nullptr;
}

bool AttentionChecker::checkCount(Expr *expr, llvm::StringRef what,
                                  int64_t least, int64_t &result,
                                  llvm::StringRef counted) {
  if (!expr)
    return true;
  std::optional<double> value = exprs.checkConstant(*expr, what);
  if (!value)
    return false;
  if (*value == std::trunc(*value) && *value >= static_cast<double>(least) &&
      *value <= static_cast<double>(maxCount)) {
    result = static_cast<int64_t>(*value);
    return true;
  }
  diagnostics.error(expr->loc, what + " is " + formatNumber(*value),
                    expr->range);
  bool isTooLarge = *value > static_cast<double>(maxCount);
  diagnostics.note(
      expr->loc,
      formatv("it counts {0}: a whole number from {1} {2}", counted, least,
              isTooLarge ? formatv("to {0}", maxCount).str() : "on")
          .str());
  return false;
}

bool AttentionChecker::checkShare(Expr *expr, llvm::StringRef what,
                                  double &result) {
  std::optional<double> value = exprs.checkConstant(*expr, what);
  if (!value)
    return false;
  result = *value;
  if (*value >= 0 && *value <= 1)
    return true;
  diagnostics.error(expr->loc, what + " is " + formatNumber(*value),
                    expr->range);
  diagnostics.note(expr->loc, "it is from 0, where a query matches all that "
                              "are nearer than a random one, to 1, where it "
                              "matches none");
  return false;
}

//===----------------------------------------------------------------------===//
// Cache and match
//===----------------------------------------------------------------------===//

void AttentionChecker::checkCache(Statement &statement) {
  if (!scheme.cache.empty()) {
    diagnostics.error(statement.loc, "attention " + quote(recurrence.name) +
                                         " has two caches");
    diagnostics.note(scheme.cacheLoc, "the first is here; an attention has one "
                                      "cache, of keys and values");
    return;
  }
  Symbol symbol;
  symbol.loc = scheme.cacheLoc = statement.loc;
  scheme.cache = statement.name;
  auto &way = cast<CallExpr>(*statement.value);
  bool valid = way.callee == "segmented"  ? checkSegmented(way)
               : way.callee == "evicting" ? checkEvicting(way)
                                          : checkPaged(way);
  if (statement.fields.size() != 2) {
    diagnostics.error(statement.loc,
                      formatv("cache '{0}' holds {1} value{2} of a token",
                              statement.name, statement.fields.size(),
                              statement.fields.size() == 1 ? "" : "s")
                          .str());
    diagnostics.note(statement.loc, "it holds a key and a value: " +
                                        statement.name + "[k, v]");
    valid = false;
  }
  llvm::SmallVector<Symbol *> tokens;
  for (const NamedPlace &field : statement.fields) {
    NameExpr name;
    name.name = field.name;
    name.loc = field.loc;
    tokens.push_back(checkToken(&name, "what is cached"));
    valid &= tokens.back() != nullptr;
  }
  if (valid && statement.fields[0].name == statement.fields[1].name) {
    diagnostics.error(statement.fields[1].loc,
                      formatv("cache '{0}' holds token '{1}' twice",
                              statement.name, statement.fields[1].name)
                          .str());
    diagnostics.note(statement.loc, "a key and a value are two tokens, which "
                                    "the caller may give the same numbers");
    valid = false;
  }
  if (valid &&
      tokens[0]->shape.getNumHeads() != tokens[1]->shape.getNumHeads()) {
    diagnostics.error(statement.fields[1].loc,
                      formatv("keys have {0} heads, values {1}",
                              tokens[0]->shape.getNumHeads(),
                              tokens[1]->shape.getNumHeads())
                          .str());
    diagnostics.note(statement.loc, "a cached token has a key and a value for "
                                    "each of its heads");
    valid = false;
  }
  if (valid) {
    symbol.kind = Symbol::Kind::Cache;
    scheme.key = statement.fields[0].name;
    scheme.value = statement.fields[1].name;
  }
  scope.declare(statement.name, symbol);
}

bool AttentionChecker::checkPaged(CallExpr &call) {
  auto arguments = bind(call, {"tokens"}, {}, "cache KV[k, v] paged(16)");
  return arguments && checkCount(arguments->lookup("tokens"),
                                 "the size of a page", 1, scheme.pageSize);
}

void AttentionChecker::checkReach(const Expr *maxGap) {
  const AttentionScheme::Match &match = *scheme.match;
  if (!maxGap || match.maxGap <= match.window)
    return;
  diagnostics.warning(maxGap->loc, formatv("max_gap is {0}, the window {1}",
                                           match.maxGap, match.window)
                                       .str());
  diagnostics.note(maxGap->loc,
                   "a match lies in the window: leave max_gap out, "
                   "or make it smaller");
}

bool AttentionChecker::checkMoment(const Expr *expr, const Symbol &query) {
  auto *name = dyn_cast<NameExpr>(expr);
  Symbol *symbol = name ? scope.lookup(name->name) : nullptr;
  if (symbol)
    symbol->read = true;
  if (symbol && symbol->kind == Symbol::Kind::Param &&
      symbol->shape.features.empty() &&
      symbol->shape.getNumHeads() == query.shape.getNumHeads()) {
    scheme.match->moment = name->name;
    return true;
  }
  diagnostics.error(expr->loc,
                    "the moment of a match is not a param of its "
                    "heads",
                    expr->range);
  diagnostics.note(expr->loc, formatv("it is E|q|^2 of each head: param "
                                      "moment[{0}] : f32; leave it out to have "
                                      "it estimated",
                                      query.shape.head ? query.shape.head->name
                                                       : std::string("1"))
                                  .str());
  return false;
}

bool AttentionChecker::checkMatch(Statement &statement) {
  auto *call = dyn_cast<CallExpr>(statement.value.get());
  if (!call || call->callee != "match")
    return false;
  Symbol symbol;
  symbol.loc = statement.loc;
  if (isBounded()) {
    reportMatch(call->loc);
    scope.declare(statement.name, symbol);
    return true;
  }
  if (scheme.match) {
    diagnostics.error(call->loc,
                      "attention " + quote(recurrence.name) + " matches twice",
                      call->range);
    diagnostics.note(scheme.match->loc, "the first is here; a token reuses one "
                                        "summary");
    scope.declare(statement.name, symbol);
    return true;
  }
  auto arguments =
      bind(*call, {"query", "window", "tau"},
           {"moment", "max_gap", "max_chain", "skip", "drift"}, matchSignature);
  AttentionScheme::Match &match = scheme.match.emplace();
  match.loc = call->loc;
  bool valid = arguments.has_value();
  if (valid) {
    const Symbol *query = checkToken(arguments->lookup("query"), "the query");
    valid = query != nullptr;
    if (query)
      match.query = cast<NameExpr>(arguments->lookup("query"))->name;
    valid &=
        checkCount(arguments->lookup("window"), "the window", 1, match.window);
    valid &= checkShare(arguments->lookup("tau"), "tau", match.tau);
    valid &=
        checkCount(arguments->lookup("max_gap"), "max_gap", 0, match.maxGap);
    valid &= checkCount(arguments->lookup("max_chain"), "max_chain", 0,
                        match.maxChain, "summaries");
    valid &= checkCount(arguments->lookup("skip"), "skip", 0, match.skip);
    if (Expr *drift = arguments->lookup("drift"))
      valid &= checkShare(drift, "drift", match.drift.emplace());
    if (Expr *moment = arguments->lookup("moment"); moment && query)
      valid &= checkMoment(moment, *query);
  }
  if (valid) {
    symbol.kind = Symbol::Kind::Prefix;
    checkReach(arguments->lookup("max_gap"));
  }
  scope.declare(statement.name, symbol);
  return true;
}

//===----------------------------------------------------------------------===//
// The output
//===----------------------------------------------------------------------===//

bool AttentionChecker::checkSoftmax(Expr &expr) {
  auto *call = dyn_cast<CallExpr>(&expr);
  if (!call || call->callee != "softmax") {
    reportValue(expr);
    return false;
  }
  if (scheme.attends) {
    diagnostics.error(call->loc,
                      "attention " + quote(recurrence.name) + " attends twice",
                      call->range);
    diagnostics.note(scheme.softmaxLoc,
                     "the first is here; bind it with let to use it again");
    return false;
  }
  scheme.attends = true;
  scheme.softmaxLoc = call->loc;
  auto arguments = bind(*call, {"query", "cache"}, {"scale"}, softmaxSignature);
  if (!arguments)
    return false;
  Symbol *query = checkToken(arguments->lookup("query"), "the query");
  auto *name = dyn_cast<NameExpr>(arguments->lookup("cache"));
  Symbol *cache = name ? scope.lookup(name->name) : nullptr;
  if (cache && cache->kind == Symbol::Kind::Invalid)
    return false;
  if (!cache || cache->kind != Symbol::Kind::Cache) {
    const Expr &place = *arguments->lookup("cache");
    diagnostics.error(place.loc, "softmax does not run over a cache",
                      place.range);
    diagnostics.note(place.loc, "write " + softmaxSignature +
                                    ", after cache KV[k, v] paged(16)");
    return false;
  }
  cache->read = true;
  if (Expr *scale = arguments->lookup("scale")) {
    std::optional<double> value =
        exprs.checkConstant(*scale, "the scale of softmax");
    if (!value)
      return false;
    scheme.scale = *value;
  }
  if (!query)
    return false;
  scheme.query = cast<NameExpr>(arguments->lookup("query"))->name;
  const Symbol &key = *scope.lookup(scheme.key);
  const Symbol &value = *scope.lookup(scheme.value);
  expr.shape.head = query->shape.head;
  expr.shape.features = value.shape.features;
  if (query->shape.features != key.shape.features) {
    diagnostics.error(call->loc,
                      formatv("query '{0}' is {1}, key '{2}' {3}", scheme.query,
                              query->shape.str(), scheme.key, key.shape.str())
                          .str(),
                      call->range);
    diagnostics.note(call->loc, "the dimension after the heads has to be the "
                                "same, by name");
    return false;
  }
  if (query->shape.getNumHeads() % key.shape.getNumHeads()) {
    diagnostics.error(call->loc,
                      formatv("query '{0}' has {1} heads, which the {2} of the "
                              "cache do not divide",
                              scheme.query, query->shape.getNumHeads(),
                              key.shape.getNumHeads())
                          .str(),
                      call->range);
    diagnostics.note(call->loc, "queries share the keys of a head in groups of "
                                "one size");
    return false;
  }
  return true;
}

bool AttentionChecker::checkWide(const Arguments &arguments,
                                 const CallExpr &call) {
  Expr *band = arguments.lookup("wide_band"),
       *gap = arguments.lookup("wide_gap");
  if (!band && !gap)
    return true;
  if (!band || !gap) {
    diagnostics.error(call.loc,
                      std::string(band ? "wide_band" : "wide_gap") +
                          " is given without " +
                          (band ? "wide_gap" : "wide_band"),
                      call.range);
    diagnostics.note(call.loc, "matches that lie more than wide_gap tokens "
                               "back take the band wide_band");
    return false;
  }
  if (!checkCount(band, "wide_band", 0, scheme.wideBand.emplace()) ||
      !checkCount(gap, "wide_gap", 0, scheme.wideGap.emplace()))
    return false;
  if (*scheme.wideBand >= scheme.band)
    return true;
  diagnostics.error(
      band->loc,
      formatv("wide_band is {0}, band {1}", *scheme.wideBand, scheme.band)
          .str(),
      band->range);
  diagnostics.note(band->loc, "the wide band holds the other one");
  return false;
}

bool AttentionChecker::checkComplete(CallExpr &call) {
  scheme.completes = true;
  scheme.completeLoc = call.loc;
  auto arguments = bind(call, {"prefix", "all", "band"},
                        {"sinks", "wide_band", "wide_gap"}, completeSignature);
  if (!arguments)
    return false;
  auto *name = dyn_cast<NameExpr>(arguments->lookup("prefix"));
  Symbol *symbol = name ? scope.lookup(name->name) : nullptr;
  bool valid = checkSoftmax(*arguments->lookup("all"));
  call.shape = arguments->lookup("all")->shape;
  valid &= checkCount(arguments->lookup("band"), "the band", 0, scheme.band);
  valid &= checkCount(arguments->lookup("sinks"), "sinks", 0, scheme.sinks);
  valid = valid && checkWide(*arguments, call);
  if (symbol && symbol->kind == Symbol::Kind::Invalid)
    return false;
  if (!symbol || symbol->kind != Symbol::Kind::Prefix) {
    const Expr &place = *arguments->lookup("prefix");
    diagnostics.error(place.loc, "the first operand of complete is not a match",
                      place.range);
    diagnostics.note(place.loc, "bind one before: " + matchSignature);
    return false;
  }
  symbol->read = usesPrefix = true;
  if (!valid)
    return false;
  const Symbol &matched = *scope.lookup(scheme.match->query);
  const Symbol &query = *scope.lookup(scheme.query);
  if (matched.shape.features == query.shape.features &&
      matched.shape.getNumHeads() == query.shape.getNumHeads())
    return true;
  diagnostics.error(call.loc,
                    formatv("'{0}', which is matched, is {1}, '{2}' {3}",
                            scheme.match->query, matched.shape.str(),
                            scheme.query, query.shape.str())
                        .str(),
                    call.range);
  diagnostics.note(call.loc, "they are one query, before and after its "
                             "rotation");
  return false;
}

void AttentionChecker::reportValue(const Expr &expr) {
  auto *call = dyn_cast<CallExpr>(&expr);
  diagnostics.error(expr.loc,
                    call ? "expected softmax or complete, got " +
                               quote(call->callee)
                         : "an attention answers softmax or complete alone",
                    expr.range);
  diagnostics.note(
      expr.loc,
      ("write " + softmaxSignature + " or " + completeSignature).str());
}

void AttentionChecker::countOutput(const Statement &statement) {
  if (++outputs < 2)
    return;
  diagnostics.error(statement.loc,
                    "attention " + quote(recurrence.name) + " has two outputs");
  diagnostics.note(statement.loc, "declare an attention for each");
}

void AttentionChecker::checkOutput(Statement &statement, const Shape &target) {
  Expr &value = *statement.value;
  if (outputs > 1)
    return;
  auto *call = dyn_cast<CallExpr>(&value);
  bool valid = call && call->callee == "complete" ? checkComplete(*call)
                                                  : checkSoftmax(value);
  if (!valid || (value.shape.features == target.features &&
                 value.shape.getNumHeads() == target.getNumHeads()))
    return;
  diagnostics.error(value.loc,
                    formatv("output '{0}' is {1}, its value {2}",
                            statement.name, target.str(), value.shape.str())
                        .str(),
                    value.range);
  diagnostics.note(value.loc, "it has the heads of the query and the dimension "
                              "of the values");
}

void AttentionChecker::checkUses() {
  if (!outputs) {
    diagnostics.error(recurrence.loc,
                      "attention " + quote(recurrence.name) + " has no output");
    diagnostics.note(
        recurrence.loc,
        ("declare one: out o[H, D] : f32 = " + softmaxSignature).str());
  }
  // Reported like all that is never used.
  if (!usesPrefix && !isBounded())
    scheme.match.reset();
  if (!isBounded())
    return;
  if (scheme.match)
    reportMatch(scheme.match->loc);
  if (!scheme.attends) {
    diagnostics.error(recurrence.loc, "attention " + quote(recurrence.name) +
                                          " never attends to its cache");
    diagnostics.note(scheme.cacheLoc, ("write " + softmaxSignature).str());
  }
  if (!scheme.bounds->evicts && !scheme.memory) {
    diagnostics.error(scheme.cacheLoc, "nothing keeps the segments of cache " +
                                           quote(scheme.cache));
    diagnostics.note(scheme.cacheLoc, "declare a memory: memory M[" +
                                          scheme.cache +
                                          "] = linear(elu(k) + 1) : f32");
  }
}
