//===- TraceCheck.h - a route against the oracle on real input --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_TRACECHECK_H
#define LADLE_RUNTIME_CHECK_TRACECHECK_H

#include "codegen/interpreter/SpecInterpreter.h"
#include "ladle/program.h"
#include "ladle/safetensors.h"
#include "runtime/check/Comparison.h"

#include <map>

namespace ladle::check {

/// The inputs of one sequence, what the oracle makes of them, and what the file
/// says should come out.
///
/// The file holds a tensor [T, ...] for every token and one [...] for every
/// param, by name. It may hold outputs, by name, [T, ...] or at the tokens of
/// an integer tensor `positions`, and the state after the last token, by name
/// or, if there is one state, as `state`: [heads, dk, dv].
class Trace {
public:
  /// Reads at most `maxTokens` tokens (0: all). The final state of the file
  /// counts only if all are read. InvalidData if a tensor does not fit, or an
  /// input is NaN or infinite.
  static Result<Trace> load(const Safetensors &file,
                            const interpreter::SpecInterpreter &oracle,
                            int64_t maxTokens = 0);

  using Arrays = std::vector<std::vector<double>>;
  Arrays params;
  std::vector<Arrays> tokens;  ///< by token, in declaration order
  std::vector<Arrays> outputs; ///< of the oracle, likewise
  Arrays states;               ///< of the oracle after the last token
  /// The file's own outputs by token, and its state. May be empty.
  std::map<int64_t, Arrays> storedOutputs;
  Arrays storedStates;
};

struct TraceResult {
  RouteKind route;
  int64_t tokens = 0;
  WorstError outputs, states; ///< against the oracle
  /// Against the file; `tensor` is empty if it holds none.
  WorstError storedOutputs, storedStates;
  Bound bound;
  std::string failure;

  bool passed() const;
};

/// Decodes the trace in one slot; a row folds at its `threshold`-th entry (0:
/// the capacity). The first `prompt` tokens are a prompt.
TraceResult runTrace(const Trace &trace, const Program &program,
                     int64_t threshold, int64_t prompt = 0);

/// The oracle itself against the file.
TraceResult compareOracle(const Trace &trace);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_TRACECHECK_H
