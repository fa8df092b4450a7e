//===- CaseRunner.h - one run of one route against the oracle ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_CASERUNNER_H
#define LADLE_RUNTIME_CHECK_CASERUNNER_H

#include "codegen/interpreter/SpecInterpreter.h"
#include "ladle/program.h"
#include "runtime/check/CheckCase.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/RandomInputs.h"

#include <array>

namespace ladle::check {

/// What one form of a route did.
struct FormResult {
  int64_t count = 0; ///< tensors compared
  WorstError error;
  Bound bound;

  bool passed() const { return bound.allows(error.value); }
};

struct CaseResult {
  CheckCase config;
  /// By FormKind. Decode: the answers of tokens that were appended (by the
  /// recurrent route: all). DecodeFold: the answers of tokens that folded.
  /// Fold: states and carries at the end, when all is folded. Verify: the
  /// answers of drafts; VerifyFold: of those before which entries were folded.
  /// PrefillFold: the answers of prompts; PrefillEntries: of those that ended
  /// as entries.
  std::array<FormResult, 7> forms;
  /// What went wrong besides errors that are too large.
  std::string failure;
  /// The failure is that Ladle does not do what the case asks for.
  bool isRefused = false;

  bool passed() const;
  /// `status` is why the case did not begin.
  void fail(const Status &status);
  /// Answers of all forms read the same storage. What narrow types cost is the
  /// larger of two runs at as many points as were compared, which of a few says
  /// too little: a form that few answers are of has the bound of the others.
  void shareBounds();
};

/// The oracle twice: as it is, and rounding values to the entry type of the
/// case where they are written.
struct Oracles {
  interpreter::SpecInterpreter exact, rounded;
};

/// Runs `config` on `program`, which decodes by its route and has its types and
/// capacity. Besides the numbers it checks that padded rows answer zero, that
/// cursors move as the fold threshold says, that slots which no row wrote keep
/// what they had, and that the padding between states stays untouched.
CaseResult runCase(const CheckCase &config, const Program &program,
                   const Oracles &oracles, const RandomInputs &inputs);

/// The precision of a storage type.
interpreter::Precision precisionOf(DType dtype);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_CASERUNNER_H
