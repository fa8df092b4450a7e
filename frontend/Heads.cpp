//===- Heads.cpp - the heads of declared values ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Heads.h"

#include "llvm/Support/FormatVariadic.h"

using namespace ladle::frontend;

void ladle::frontend::checkHeads(const Recurrence &recurrence,
                                 const Scope &scope, Diagnostics &diagnostics) {
  using Named = std::pair<llvm::StringRef, const Symbol *>;
  llvm::SmallVector<Named> declared;
  for (const Statement &statement : recurrence.statements)
    for (const ArrayDecl &array : statement.arrays)
      if (const Symbol *symbol = scope.lookup(array.name))
        declared.emplace_back(array.name, symbol);
  const Named *first = llvm::find_if(declared, [](const Named &each) {
    return each.second->kind == Symbol::Kind::State;
  });
  if (first == declared.end())
    return;

  const auto &[stateName, state] = *first;
  int64_t heads = state->shape.getNumHeads();
  for (const auto &[name, symbol] : declared) {
    int64_t own = symbol->shape.getNumHeads();
    bool isState = symbol->kind == Symbol::Kind::State;
    if (isState ? own == heads : heads % own == 0)
      continue;
    diagnostics.error(symbol->loc,
                      llvm::formatv("{0} '{1}' has {2} heads, state '{3}' has "
                                    "{4}",
                                    describe(symbol->kind).split(' ').second,
                                    name, own, stateName, heads)
                          .str());
    diagnostics.note(state->loc,
                     isState ? "the states of a recurrence have the same heads"
                             : "the heads of a state have to be a multiple of "
                               "those of everything else; give it as many");
  }
}
