//===- BoundedEviction.h - eviction, as the oracle has it -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `ladle.evict`, `ladle.observe` and `ladle.taylor` do to a row of the
// interpreter. Every token keeps all weights that it was given.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_BOUNDEDEVICTION_H
#define LADLE_CODEGEN_INTERPRETER_BOUNDEDEVICTION_H

#include "codegen/interpreter/BoundedInterpreter.h"

namespace ladle::interpreter {

/// Evicts down to the budget of the row, if it is decoding or a prompt has
/// ended. Tokens are folded if there is a memory.
void evict(BoundedInterpreter::Row &row, const EvictionNumbers &numbers);

/// Gives each token that a head keeps its softmax weight.
/// \param queries [heads of the query, key size]
void observe(BoundedInterpreter::Row &row, const double *queries, size_t heads,
             double scale);

/// (m, Z, A) of the evicted tokens of a head for a query.
void taylorSummary(const BoundedInterpreter::Head &head, const double *query,
                   double scale, double limit, double *summary);

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_BOUNDEDEVICTION_H
