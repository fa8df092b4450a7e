//===- Measure.h - what decoding takes, and how exact it is -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every row of a batch decodes the same trace from another token on: row r
// starts at token r·stride and wraps around.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MEASURE_H
#define LADLE_TOOLS_LADLE_MEASURE_H

#include "ladle/decode.h"
#include "runtime/check/RandomInputs.h"
#include "runtime/check/TraceCheck.h"
#include "tools/ladle/Feeder.h"

#include <cmath>
#include <functional>

namespace ladle::tool {

/// Told the part that is done, 0 to 1.
using ProgressFunction = std::function<void(double part)>;

/// A trace of random inputs, with the oracle's outputs.
check::Trace makeRandomTrace(const interpreter::SpecInterpreter &oracle,
                             int64_t tokens, uint64_t seed);

/// The file as a trace of at most `tokens` tokens.
Result<check::Trace> loadTrace(const std::string &path,
                               const interpreter::SpecInterpreter &oracle,
                               int64_t tokens);

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

struct TimingOptions {
  int64_t rows = 1;
  int64_t threshold = 1; ///< m
  int64_t minSteps = 1, maxSteps = 1;
  double budget = 10; ///< seconds after which no step but the least begins
  int threads = 0;
  /// All rows at the same fill, instead of evenly spread ones.
  bool inPhase = false;
};

struct Timing {
  int64_t rows = 0, steps = 0;
  double seconds = 0; ///< a step, on average
};

/// One prompt of the first `tokens` of a trace, which wraps around, into an
/// empty slot: `seconds` is a token of the fastest of several.
Result<Timing> timePrefill(const Program &program, const check::Trace &trace,
                           int64_t tokens, int threads);

/// Steps of one program over a pool of its own, one after the other. What the
/// constructor is given must outlive it.
class StepTimer {
public:
  StepTimer(const Program &program, const check::Trace &trace,
            const TimingOptions &options)
      : program(program), options(options),
        feeder(program.signature(), trace, options.rows) {}

  /// Allocates the pool, writes every state once and brings the rows to their
  /// fills.
  Status prepare();
  /// The seconds of a step, without those that gathering its inputs takes.
  Result<double> step();
  /// Resets all rows.
  Status restart();

private:
  Status begin();
  Status spreadFills();

  const Program &program;
  TimingOptions options;
  Feeder feeder;
  std::optional<Pool> pool;
  std::optional<Decoder> decoder;
  StepArguments arguments;
  std::vector<int32_t> slots, activeSlots;
  int64_t token = 0;
};

/// Decodes with the states that earlier tokens left. Rows of large batches are
/// at evenly spread fills, as they are when sequences come and go, so that
/// every step does its part of the folds. kv_only decodes contexts that grow
/// from nothing to m tokens. Gathering a step's inputs takes no part.
Result<Timing> timeDecode(const Program &program, const check::Trace &trace,
                          const TimingOptions &options,
                          const ProgressFunction &progress);

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

/// A route to compare with the oracle.
struct Candidate {
  Program program;
  int64_t threshold = 1;
};

struct RouteErrors {
  check::WorstError outputs, states; ///< against the oracle
  /// Against the trace; `tensor` is empty if it holds none.
  check::WorstError storedOutputs, storedStates;
  double outputBound = 0, stateBound = 0;
  std::string failure; ///< why it did not run; empty if it did

  bool passed() const {
    auto allows = [](double bound, const check::WorstError &error) {
      return std::isfinite(error.value) && error.value <= bound;
    };
    return failure.empty() && allows(outputBound, outputs) &&
           allows(outputBound, storedOutputs) && allows(stateBound, states) &&
           allows(stateBound, storedStates);
  }
};

/// Decodes the whole trace in `rows` rows by every candidate. `rounded` is the
/// oracle that rounds entries as they are cached.
std::vector<RouteErrors>
compareWithOracle(const std::vector<Candidate> &candidates,
                  const check::Trace &trace,
                  const interpreter::SpecInterpreter &exact,
                  const interpreter::SpecInterpreter &rounded, int64_t rows,
                  const ProgressFunction &progress);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MEASURE_H
