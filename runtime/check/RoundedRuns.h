//===- RoundedRuns.h - what narrow storage costs ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_ROUNDEDRUNS_H
#define LADLE_RUNTIME_CHECK_ROUNDEDRUNS_H

#include "codegen/interpreter/SpecInterpreter.h"

namespace ladle::check {

/// Rounds what a pool stores as a kernel may: float32 arithmetic differs from
/// float64 by up to Bound::exact of the largest element, so that what is nearer
/// than that to the middle of two neighbours may become either. It becomes the
/// one that is further from `exact`, the value without any rounding.
void roundAway(std::vector<double> &values, llvm::ArrayRef<double> exact,
               interpreter::Precision precision);

/// One sequence in float64, rounded where a pool stores it: once to the nearest
/// value, once to the other one where that is nearly a tie: states and carries
/// by roundAway, entries because of Row::tieSlack. Where few elements were
/// rounded few times, one that goes the other way costs several times what the
/// first run says.
class RoundedRuns {
public:
  using Row = interpreter::SpecInterpreter::Row;
  using Arrays = interpreter::SpecInterpreter::Arrays;
  using Views = llvm::ArrayRef<llvm::ArrayRef<double>>;

  /// `oracle` rounds entries.
  explicit RoundedRuns(const interpreter::SpecInterpreter &oracle);

  /// What becomes of a token: an entry, a part of states that are stored, or of
  /// states that are stored with a later token.
  enum class Token { Kept, Folded, Held };
  static Token decoded(bool folds) {
    return folds ? Token::Folded : Token::Kept;
  }
  /// A token; `exact` is what it makes of the sequence without rounding. The
  /// larger error of each output.
  std::vector<double> step(const interpreter::SpecInterpreter &oracle,
                           Views params, Views tokens, Token token,
                           const Row &exact, const Arrays &exactOutputs);
  /// What an export gives.
  void storeStates(const interpreter::SpecInterpreter &oracle,
                   const Row &exact);

  double stateError(size_t state, const Row &exact) const;
  double carryError(size_t carry, const Row &exact) const;

private:
  /// Nearest, and away unless the pool stores everything as float32.
  std::vector<Row> rows;
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_ROUNDEDRUNS_H
