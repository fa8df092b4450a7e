//===- Scope.cpp - the names of a recurrence --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Scope.h"

using namespace ladle::frontend;

llvm::StringRef ladle::frontend::describe(Symbol::Kind kind) {
  switch (kind) {
  case Symbol::Kind::Size:
    return "a size";
  case Symbol::Kind::Option:
    return "an option";
  case Symbol::Kind::Param:
    return "a param";
  case Symbol::Kind::Token:
    return "a token";
  case Symbol::Kind::Carry:
    return "a carry";
  case Symbol::Kind::State:
    return "a state";
  case Symbol::Kind::Let:
    return "a let";
  case Symbol::Kind::Output:
    return "an output";
  case Symbol::Kind::Cache:
    return "a cache";
  case Symbol::Kind::Prefix:
    return "a match";
  case Symbol::Kind::Memory:
    return "a memory";
  case Symbol::Kind::Invalid:
    return "a name";
  }
  return "";
}

bool Scope::declare(llvm::StringRef name, Symbol symbol) {
  auto [it, inserted] = symbols.try_emplace(name, symbol);
  if (inserted)
    return true;
  const Symbol &previous = it->second;
  diagnostics.error(symbol.loc, quote(name) + " is declared twice");
  diagnostics.note(previous.loc, "it is " + describe(previous.kind) +
                                     " since here; choose another name");
  return false;
}

Symbol *Scope::lookup(llvm::StringRef name) {
  auto it = symbols.find(name);
  return it == symbols.end() ? nullptr : &it->second;
}

const Symbol *Scope::lookup(llvm::StringRef name) const {
  auto it = symbols.find(name);
  return it == symbols.end() ? nullptr : &it->second;
}

void Scope::reportUnknown(llvm::StringRef name, llvm::SMLoc loc,
                          llvm::StringRef what, const llvm::Twine &wayOut) {
  diagnostics.error(loc, "unknown " + what + " " + quote(name));
  auto later = announced.find(name);
  if (later != announced.end()) {
    diagnostics.note(later->second,
                     "it is declared here, after its use; move it up");
    return;
  }
  Suggestion suggestion(name);
  for (auto &[known, symbol] : symbols)
    if (what != "size" || symbol.kind == Symbol::Kind::Size)
      suggestion.consider(known);
  if (!suggestion.get().empty())
    diagnostics.note(loc, "did you mean '" + suggestion.get() + "'?");
  else if (what == "size")
    diagnostics.note(loc, "add it to the sizes of the recurrence: recurrence "
                          "name(..., " +
                              name + ")");
  else
    diagnostics.note(loc, wayOut);
}
