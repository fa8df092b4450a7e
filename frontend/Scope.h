//===- Scope.h - the names of a recurrence ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_SCOPE_H
#define LADLE_FRONTEND_SCOPE_H

#include "frontend/Diagnostics.h"
#include "frontend/Shape.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

#include <optional>

namespace ladle::frontend {

struct Symbol {
  enum class Kind {
    Size,
    Option,
    Param,
    Token,
    Carry,
    State,
    Let,
    Output,
    /// Of an attention: what is cached, what a match gives, and what is left
    /// of tokens that left the cache.
    Cache,
    Prefix,
    Memory,
    /// Its declaration was wrong, which has been reported: uses are not.
    Invalid,
  };

  Kind kind = Kind::Invalid;
  llvm::SMLoc loc;
  /// A state has two features, key and value.
  Shape shape;
  ElementType type = ElementType::F32;
  /// Sizes, options, and what is computed from them alone.
  std::optional<double> constant;

  /// Of a let: see Expr.
  bool isSummary = false;

  bool read = false;
  bool written = false;

  const Dim &getKeyDim() const { return shape.features[0]; }
  const Dim &getValueDim() const { return shape.features[1]; }
};

/// `a token`, `an option`: what a symbol is called in a message.
llvm::StringRef describe(Symbol::Kind kind);

/// One scope holds all names of a recurrence; nothing is shadowed.
class Scope {
public:
  explicit Scope(Diagnostics &diagnostics) : diagnostics(diagnostics) {}

  /// Adds a name, or reports that it exists already.
  bool declare(llvm::StringRef name, Symbol symbol);
  Symbol *lookup(llvm::StringRef name);
  const Symbol *lookup(llvm::StringRef name) const;

  /// Tells of a name that the recurrence declares somewhere, so that a use
  /// before its declaration is told from a misspelling.
  void announce(llvm::StringRef name, llvm::SMLoc loc) {
    announced.try_emplace(name, loc);
  }
  /// Reports that `name` is unknown, with the nearest known one, or else the
  /// way out.
  void reportUnknown(
      llvm::StringRef name, llvm::SMLoc loc, llvm::StringRef what,
      const llvm::Twine &wayOut = "declare it with token, param or let");

  /// In declaration order.
  const llvm::MapVector<llvm::StringRef, Symbol> &getSymbols() const {
    return symbols;
  }

private:
  Diagnostics &diagnostics;
  llvm::MapVector<llvm::StringRef, Symbol> symbols;
  llvm::StringMap<llvm::SMLoc> announced;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_SCOPE_H
