//===- Sema.cpp - what a recurrence means -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Sema.h"

#include "frontend/AttentionSema.h"
#include "frontend/Heads.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace ladle::frontend;
using llvm::formatv;

namespace {

class RecurrenceChecker {
public:
  RecurrenceChecker(Recurrence &recurrence, const Configuration &configuration,
                    const ElaborationOptions &options, Scope &scope,
                    Diagnostics &diagnostics)
      : recurrence(recurrence), configuration(configuration), options(options),
        diagnostics(diagnostics), scope(scope), exprs(scope, diagnostics),
        attention(recurrence, scope, exprs, diagnostics) {}

  void run();

private:
  void declareSizes();
  void announceNames();
  void collectFeatureNames();

  void checkStatement(Statement &statement);
  void checkDeclaration(Statement &statement);
  void checkOption(Statement &statement);
  void checkLet(Statement &statement);
  void checkAssign(Statement &statement);
  void checkMemory(Statement &statement);
  void checkOutput(Statement &statement);
  /// Reports unless `value` fits into a place of shape `target`.
  bool checkFits(const Expr &value, llvm::StringRef what, llvm::StringRef name,
                 const Shape &target);

  std::optional<Shape> resolveShape(const ArrayDecl &array, bool isState);
  std::optional<Dim> resolveDim(const DimExpr &dim);
  bool checkStateDims(const ArrayDecl &array);
  bool checkRepeatedDims(const ArrayDecl &array);
  bool checkRank(const ArrayDecl &array, const Shape &shape);
  std::optional<ElementType>
  resolveType(const Statement &statement, llvm::StringRef name,
              const std::map<std::string, std::string> *overrides);
  void checkOverrides(const std::map<std::string, std::string> &overrides,
                      llvm::StringRef what, llvm::ArrayRef<Symbol::Kind> kinds);

  void checkUses();
  void checkStateUse(llvm::StringRef name, const Symbol &state);

  Recurrence &recurrence;
  const Configuration &configuration;
  const ElaborationOptions &options;
  Diagnostics &diagnostics;
  Scope &scope;
  ExprChecker exprs;
  AttentionChecker attention;
  /// Dimensions that stand after the first somewhere: those are not heads.
  llvm::StringSet<> featureNames;
};

} // namespace

void RecurrenceChecker::run() {
  declareSizes();
  announceNames();
  collectFeatureNames();
  if (recurrence.isAttention)
    exprs.setCalls([&](CallExpr &call) { return attention.checkCall(call); },
                   [&] { return attention.callNames(); });
  for (Statement &statement : recurrence.statements)
    checkStatement(statement);
  checkOverrides(options.stateTypes,
                 recurrence.isAttention ? "memory" : "state",
                 {Symbol::Kind::State, Symbol::Kind::Memory});
  checkOverrides(options.tokenTypes, "token or output",
                 {Symbol::Kind::Token, Symbol::Kind::Output});
  // Where something is wrong, what looks unused may be used there.
  if (!diagnostics.hasErrors())
    checkUses();
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

void RecurrenceChecker::declareSizes() {
  for (const SizeParameter &size : recurrence.sizes) {
    Symbol symbol;
    symbol.kind = Symbol::Kind::Size;
    symbol.loc = size.loc;
    symbol.constant =
        static_cast<double>(configuration.sizes.lookup(size.name));
    scope.declare(size.name, symbol);
  }
}

void RecurrenceChecker::announceNames() {
  for (const Statement &statement : recurrence.statements) {
    for (const ArrayDecl &array : statement.arrays)
      scope.announce(array.name, array.loc);
    if (statement.kind == Statement::Kind::Let ||
        statement.kind == Statement::Kind::Cache ||
        statement.kind == Statement::Kind::Memory ||
        statement.kind == Statement::Kind::Option)
      scope.announce(statement.name, statement.loc);
  }
}

void RecurrenceChecker::collectFeatureNames() {
  for (const Statement &statement : recurrence.statements)
    for (const ArrayDecl &array : statement.arrays)
      for (size_t i = 1; i < array.dims.size(); ++i)
        featureNames.insert(array.dims[i].name);
}

//===----------------------------------------------------------------------===//
// Shapes and types of declarations
//===----------------------------------------------------------------------===//

std::optional<Dim> RecurrenceChecker::resolveDim(const DimExpr &dim) {
  int64_t size = dim.number;
  if (!dim.size.empty()) {
    Symbol *symbol = scope.lookup(dim.size);
    if (!symbol || symbol->kind != Symbol::Kind::Size) {
      if (symbol) {
        diagnostics.error(dim.loc, quote(dim.size) + " is " +
                                       describe(symbol->kind) + ", not a size");
        diagnostics.note(dim.loc, "dimensions are the sizes of the recurrence "
                                  "and whole numbers");
      } else {
        scope.reportUnknown(dim.size, dim.loc, "size");
      }
      return std::nullopt;
    }
    symbol->read = true;
    size = configuration.sizes.lookup(dim.size);
    if (dim.op == '/' && (dim.number == 0 || size % dim.number != 0)) {
      diagnostics.error(dim.loc, formatv("{0} is {1}, which {2} does not "
                                         "divide",
                                         dim.size, size, dim.number)
                                     .str());
      diagnostics.note(dim.loc, "a dimension is a whole number: choose " +
                                    dim.size + " accordingly");
      return std::nullopt;
    }
    // Sizes are small and numbers below 2^30: this does not overflow.
    size = dim.op == '+'   ? size + dim.number
           : dim.op == '-' ? size - dim.number
           : dim.op == '*' ? size * dim.number
           : dim.op == '/' ? size / dim.number
                           : size;
  }
  if (size >= 1 && size <= maxSize)
    return Dim{dim.name, size};
  diagnostics.error(dim.loc,
                    formatv("dimension '{0}' is {1}", dim.name, size).str());
  diagnostics.note(dim.loc, "a dimension is from 1 to " + llvm::Twine(maxSize));
  return std::nullopt;
}

bool RecurrenceChecker::checkStateDims(const ArrayDecl &array) {
  if (array.dims.size() != 3) {
    diagnostics.error(array.loc, formatv("state '{0}' has {1} dimension{2}",
                                         array.name, array.dims.size(),
                                         array.dims.size() == 1 ? "" : "s")
                                     .str());
    diagnostics.note(array.loc, "a state is [heads, key, value]: " +
                                    array.name + "[H, Dk, Dv]");
    return false;
  }
  const DimExpr &heads = array.dims[0];
  if (heads.name == "1" ||
      (heads.isPlainName() && !featureNames.contains(heads.name)))
    return true;
  diagnostics.error(heads.loc, formatv("'{0}' does not count heads, but stands "
                                       "first in state '{1}'",
                                       heads.name, array.name)
                                   .str());
  diagnostics.note(heads.loc, "a state is [heads, key, value]; a head count is "
                              "a size that stands first everywhere");
  return false;
}

bool RecurrenceChecker::checkRepeatedDims(const ArrayDecl &array) {
  llvm::StringSet<> seen;
  for (const DimExpr &dim : array.dims) {
    if (seen.insert(dim.name).second)
      continue;
    diagnostics.error(dim.loc, formatv("dimension '{0}' occurs twice in '{1}'",
                                       dim.name, array.name)
                                   .str());
    diagnostics.note(dim.loc, "dimensions match by name: add a size with "
                              "another name");
    return false;
  }
  return true;
}

/// Kernels of recurrences know the heads, a rank and a vector. No operation has
/// more dimensions than its operands, so that declarations alone are checked.
bool RecurrenceChecker::checkRank(const ArrayDecl &array, const Shape &shape) {
  size_t maxRank = recurrence.isAttention ? 5 : 3;
  // Heads count where all share the value, too.
  size_t rank = 1 + shape.features.size();
  if (rank <= maxRank)
    return true;
  bool isImplied = rank > array.dims.size();
  diagnostics.error(array.loc,
                    formatv("'{0}' has {1} dimensions{2}", array.name, rank,
                            isImplied ? ", with that of the heads" : "")
                        .str());
  diagnostics.note(
      array.loc,
      formatv("a value of {0} has at most {1}, with that of the "
              "heads: make two of them one, or declare several "
              "values",
              recurrence.isAttention ? "an attention" : "a recurrence", maxRank)
          .str());
  return false;
}

std::optional<Shape> RecurrenceChecker::resolveShape(const ArrayDecl &array,
                                                     bool isState) {
  if (isState && !checkStateDims(array))
    return std::nullopt;
  // A state may be square; everywhere else a name stands for one place.
  if (!isState && !checkRepeatedDims(array))
    return std::nullopt;
  Shape shape;
  int64_t elements = 1;
  bool valid = true;
  for (auto [index, expr] : llvm::enumerate(array.dims)) {
    std::optional<Dim> dim = resolveDim(expr);
    if (!dim) {
      valid = false;
      continue;
    }
    if (elements <= maxElements)
      elements *= dim->size;
    bool isFeature = !expr.isPlainName() || featureNames.contains(dim->name);
    if (index == 0 && expr.name == "1")
      continue; // Shared by all heads, said explicitly.
    if (index == 0 && (isState || !isFeature))
      shape.head = *dim;
    else
      shape.features.push_back(*dim);
  }
  if (!valid || !checkRank(array, shape))
    return std::nullopt;
  if (elements > maxElements) {
    diagnostics.error(array.loc, quote(array.name) + " has more than " +
                                     llvm::Twine(maxElements) + " elements");
    diagnostics.note(array.loc, "choose smaller sizes");
    return std::nullopt;
  }
  return shape;
}

std::optional<ElementType> RecurrenceChecker::resolveType(
    const Statement &statement, llvm::StringRef name,
    const std::map<std::string, std::string> *overrides) {
  std::optional<ElementType> type = parseElementType(statement.typeName);
  if (!type) {
    diagnostics.error(statement.typeLoc,
                      "unknown type " + quote(statement.typeName));
    diagnostics.note(statement.typeLoc, "the types are f32, bf16 and f16");
    return std::nullopt;
  }
  if (!overrides)
    return type;
  auto override = overrides->find(name.str());
  if (override == overrides->end())
    override = overrides->find("*");
  // A wrong override is reported once, by checkOverrides.
  if (override != overrides->end())
    type = parseElementType(override->second).value_or(*type);
  return type;
}

void RecurrenceChecker::checkOverrides(
    const std::map<std::string, std::string> &overrides, llvm::StringRef what,
    llvm::ArrayRef<Symbol::Kind> kinds) {
  for (auto &[name, type] : overrides) {
    if (!parseElementType(type)) {
      diagnostics.error(recurrence.loc,
                        "unknown type " + quote(type) + " for " + quote(name));
      diagnostics.note(recurrence.loc, "the types are f32, bf16 and f16");
    }
    const Symbol *symbol = scope.lookup(name);
    if (name == "*" || (symbol && (symbol->kind == Symbol::Kind::Invalid ||
                                   llvm::is_contained(kinds, symbol->kind))))
      continue;
    diagnostics.error(recurrence.loc, recurrence.keyword() + " " +
                                          quote(recurrence.name) + " has no " +
                                          what + " " + quote(name));
    std::string known;
    for (auto &[other, candidate] : scope.getSymbols())
      if (llvm::is_contained(kinds, candidate.kind))
        known += (known.empty() ? "" : ", ") + other.str();
    diagnostics.note(recurrence.loc, "it has " + known);
  }
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

void RecurrenceChecker::checkStatement(Statement &statement) {
  switch (statement.kind) {
  case Statement::Kind::Declare:
    return checkDeclaration(statement);
  case Statement::Kind::Option:
    return checkOption(statement);
  case Statement::Kind::Let:
    return checkLet(statement);
  case Statement::Kind::Assign:
    return checkAssign(statement);
  case Statement::Kind::Output:
    return checkOutput(statement);
  case Statement::Kind::Cache:
    if (recurrence.isAttention)
      return attention.checkCache(statement);
    diagnostics.error(statement.loc, "recurrence " + quote(recurrence.name) +
                                         " declares a cache");
    diagnostics.note(recurrence.loc, "caches belong to attentions: attention " +
                                         recurrence.name + "(...) { ... }");
    return;
  case Statement::Kind::Memory:
    return checkMemory(statement);
  }
}

void RecurrenceChecker::checkDeclaration(Statement &statement) {
  using Storage = Statement::Storage;
  if (recurrence.isAttention && (statement.storage == Storage::State ||
                                 statement.storage == Storage::Carry)) {
    diagnostics.error(statement.loc, "attention " + quote(recurrence.name) +
                                         " declares a state or a carry");
    diagnostics.note(statement.loc, "it remembers its cache: cache KV[k, v] "
                                    "paged(16)");
    return;
  }
  bool isState = statement.storage == Storage::State;
  Symbol::Kind kind =
      isState                               ? Symbol::Kind::State
      : statement.storage == Storage::Carry ? Symbol::Kind::Carry
      : statement.storage == Storage::Token ? Symbol::Kind::Token
                                            : Symbol::Kind::Param;
  const auto *overrides = isState                       ? &options.stateTypes
                          : kind == Symbol::Kind::Token ? &options.tokenTypes
                                                        : nullptr;
  bool typeReported = false;
  for (ArrayDecl &array : statement.arrays) {
    Symbol symbol;
    symbol.loc = array.loc;
    std::optional<Shape> shape = resolveShape(array, isState);
    std::optional<ElementType> type;
    if (!typeReported)
      type = resolveType(statement, array.name, overrides);
    typeReported |= !type;
    if (shape && type) {
      symbol.kind = kind;
      symbol.shape = array.shape = *shape;
      symbol.type = array.type = *type;
    }
    scope.declare(array.name, symbol);
  }
}

void RecurrenceChecker::checkOption(Statement &statement) {
  Symbol symbol;
  symbol.loc = statement.loc;
  symbol.constant = exprs.checkConstant(
      *statement.value, "the value of option " + quote(statement.name));
  if (symbol.constant)
    symbol.kind = Symbol::Kind::Option;
  auto override = configuration.options.find(statement.name);
  if (override != configuration.options.end())
    symbol.constant = override->second;
  scope.declare(statement.name, symbol);
}

void RecurrenceChecker::checkMemory(Statement &statement) {
  if (!recurrence.isAttention) {
    diagnostics.error(statement.loc, "recurrence " + quote(recurrence.name) +
                                         " declares a memory");
    diagnostics.note(recurrence.loc, "it remembers states: state S[H, Dk, Dv] "
                                     ": f32");
    return;
  }
  attention.checkMemory(
      statement, resolveType(statement, statement.name, &options.stateTypes));
}

void RecurrenceChecker::checkLet(Statement &statement) {
  if (recurrence.isAttention && attention.checkMatch(statement))
    return;
  Symbol symbol;
  symbol.loc = statement.loc;
  if (exprs.checkValue(*statement.value)) {
    symbol.kind = Symbol::Kind::Let;
    symbol.shape = statement.value->shape;
    symbol.isSummary = statement.value->isSummary;
    symbol.constant = statement.value->constant;
  }
  scope.declare(statement.name, symbol);
}

bool RecurrenceChecker::checkFits(const Expr &value, llvm::StringRef what,
                                  llvm::StringRef name, const Shape &target) {
  if (value.constant)
    return true;
  llvm::ArrayRef<Dim> features = value.shape.features;
  if (features == llvm::ArrayRef(target.features) &&
      target.getNumHeads() % value.shape.getNumHeads() == 0)
    return true;
  diagnostics.error(value.loc,
                    formatv("{0} '{1}' is {2}, its value {3}", what, name,
                            target.str(), value.shape.str())
                        .str(),
                    value.range);
  if (features == llvm::ArrayRef(target.features))
    diagnostics.note(value.loc,
                     formatv("the value has {0} heads, which do not divide {1}",
                             value.shape.getNumHeads(), target.getNumHeads())
                         .str());
  else
    diagnostics.note(value.loc, "the dimensions after the heads have to be "
                                "the same, by name");
  return false;
}

/// Whether a state that becomes `expr` gets anything: a decay alone leaves it
/// zero.
static bool holdsWrite(const Expr &expr) {
  const auto *call = llvm::dyn_cast<CallExpr>(&expr);
  if (!call || call->args.empty())
    return false;
  return call->callee == "write" || holdsWrite(*call->args[0]);
}

void RecurrenceChecker::checkAssign(Statement &statement) {
  llvm::StringRef name = statement.name;
  Symbol *symbol = scope.lookup(name);
  if (!symbol) {
    exprs.checkValue(*statement.value);
    scope.reportUnknown(name, statement.loc, "state or carry",
                        "declare it with state or carry");
    diagnostics.note(statement.loc, formatv("a new name is bound by let: let "
                                            "{0} = ...",
                                            name)
                                        .str());
    // Reported once, not at every use.
    Symbol invalid;
    invalid.loc = statement.loc;
    scope.declare(name, invalid);
    return;
  }
  switch (symbol->kind) {
  case Symbol::Kind::Invalid:
    return;
  case Symbol::Kind::State:
    exprs.checkNextState(*statement.value, name, *symbol);
    symbol->written |= holdsWrite(*statement.value);
    return;
  case Symbol::Kind::Carry:
    if (exprs.checkValue(*statement.value))
      checkFits(*statement.value, "carry", name, symbol->shape);
    symbol->written = true;
    return;
  default:
    diagnostics.error(statement.loc, quote(name) + " is " +
                                         describe(symbol->kind) +
                                         " and does not change");
    diagnostics.note(symbol->loc, "only states and carries are assigned; bind "
                                  "a new name with let");
  }
}

void RecurrenceChecker::checkOutput(Statement &statement) {
  ArrayDecl &array = statement.arrays.front();
  Symbol symbol;
  symbol.loc = array.loc;
  std::optional<Shape> shape = resolveShape(array, /*isState=*/false);
  std::optional<ElementType> type =
      resolveType(statement, array.name, &options.tokenTypes);
  // A cache that keeps all tokens answers in ways of its own.
  bool isPlan = recurrence.isAttention && !attention.isBounded();
  if (recurrence.isAttention)
    attention.countOutput(statement);
  bool valid = isPlan || exprs.checkValue(*statement.value);
  if (isPlan && shape)
    attention.checkOutput(statement, *shape);
  if (shape && type) {
    symbol.kind = Symbol::Kind::Output;
    symbol.shape = array.shape = *shape;
    symbol.type = array.type = *type;
    if (valid && !isPlan)
      checkFits(*statement.value, "output", array.name, *shape);
  }
  scope.declare(array.name, symbol);
}

//===----------------------------------------------------------------------===//
// What a recurrence has to have
//===----------------------------------------------------------------------===//

void RecurrenceChecker::checkStateUse(llvm::StringRef name,
                                      const Symbol &state) {
  if (!state.written) {
    diagnostics.error(state.loc, "state " + quote(name) + " is never written");
    diagnostics.note(state.loc, "write to it: " + name + " = write(" + name +
                                    ", key, value)");
  }
  if (!state.read) {
    diagnostics.error(state.loc, "state " + quote(name) + " is never read");
    diagnostics.note(state.loc, "read it: read(" + name + ", query)");
  }
}

void RecurrenceChecker::checkUses() {
  bool hasOutput = false, hasState = false;
  for (auto &[name, symbol] : scope.getSymbols()) {
    switch (symbol.kind) {
    case Symbol::Kind::Output:
      hasOutput = true;
      continue;
    case Symbol::Kind::State:
      hasState = true;
      checkStateUse(name, symbol);
      continue;
    case Symbol::Kind::Carry:
      if (!symbol.written) {
        diagnostics.warning(symbol.loc,
                            "carry " + quote(name) + " is never assigned");
        diagnostics.note(symbol.loc, "it stays zero; assign what the next "
                                     "token shall find in it");
      }
      [[fallthrough]];
    default:
      if (!symbol.read) {
        diagnostics.warning(symbol.loc,
                            describe(symbol.kind).split(' ').second + " " +
                                quote(name) + " is never used");
        diagnostics.note(symbol.loc, "remove it, or use it");
      }
    }
  }
  if (recurrence.isAttention)
    return attention.checkUses();
  checkHeads(recurrence, scope, diagnostics);
  if (!hasState) {
    diagnostics.error(recurrence.loc,
                      "recurrence " + quote(recurrence.name) + " has no state");
    diagnostics.note(recurrence.loc, "declare one: state S[H, Dk, Dv] : f32");
  }
  if (!hasOutput) {
    diagnostics.error(recurrence.loc, "recurrence " + quote(recurrence.name) +
                                          " has no output");
    diagnostics.note(recurrence.loc,
                     "declare one: out y[H, Dv] : f32 = read(S, query)");
  }
}

std::optional<Scope> ladle::frontend::checkRecurrence(
    Recurrence &recurrence, const Configuration &configuration,
    const ElaborationOptions &options, Diagnostics &diagnostics) {
  Scope scope(diagnostics);
  RecurrenceChecker(recurrence, configuration, options, scope, diagnostics)
      .run();
  if (diagnostics.hasErrors())
    return std::nullopt;
  return scope;
}
