//===- Compare.cpp - how exact decoding is --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All routes and the oracle go through the trace together, token by token, so
// that nothing but the worst errors has to be kept.
//
//===----------------------------------------------------------------------===//

#include "ladle/decode.h"
#include "runtime/ThreadPool.h"
#include "runtime/check/HostSteps.h"
#include "runtime/check/RoundedRuns.h"
#include "tools/ladle/Feeder.h"
#include "tools/ladle/Measure.h"

#include <numeric>

using namespace ladle;
using namespace ladle::tool;
using check::Trace;
using interpreter::SpecInterpreter;

namespace {

using Rows = std::vector<SpecInterpreter::Row>;

/// One route on its own pool, beside float64 runs that round what the route
/// stores, if it stores less than float32.
struct Runner {
  const Candidate &candidate;
  RouteErrors errors;
  std::optional<Pool> pool;
  std::optional<check::HostSteps> decoder;
  /// Of kv_only on a GPU: the host hands over once rows have folded.
  std::optional<check::HostSteps> afterFold;
  std::vector<check::RoundedRuns> rounded;
  double roundedOutputs = 0, roundedStates = 0;

  explicit Runner(const Candidate &candidate) : candidate(candidate) {}
  Status begin(int64_t rows);
  check::HostSteps &decoderAt(int64_t done) {
    return afterFold && done >= candidate.threshold ? *afterFold : *decoder;
  }
  /// Whether the token after `done` others folds.
  bool foldsAt(int64_t done) const {
    return candidate.program.route() == RouteKind::Recurrent ||
           (done + 1) % candidate.threshold == 0;
  }
};

class Comparison {
public:
  Comparison(const std::vector<Candidate> &candidates, const Trace &trace,
             const SpecInterpreter &exact, const SpecInterpreter &rounded,
             int64_t rows);
  std::vector<RouteErrors> run(const ProgressFunction &progress);

private:
  bool storesLess() const;
  void stepOracles(int64_t step);
  void stepRounded(Runner &runner, int64_t step);
  Status decodeToken(Runner &runner, int64_t step);
  void compareToken(Runner &runner, int64_t step);
  Status compareStates(Runner &runner);
  void setBounds(Runner &runner);
  std::vector<llvm::ArrayRef<double>> tokensOf(int64_t row, int64_t step) const;

  const Signature &signature;
  const Trace &trace;
  const SpecInterpreter &exact, &rounded;
  int64_t rows, length;
  bool isNarrow;
  Feeder feeder;
  std::vector<int32_t> slots;
  std::vector<llvm::ArrayRef<double>> params;
  Rows exactRows;
  std::vector<Trace::Arrays> expected; ///< by row, of this step
  std::vector<Runner> runners;
};

} // namespace

Status Runner::begin(int64_t rows) {
  PoolOptions options;
  options.slots = rows;
  options.foldThreshold =
      candidate.program.capacity() ? candidate.threshold : 0;
  if (candidate.program.crossesOver())
    options.crossover = options.foldThreshold;
  Result<Pool> made = Pool::create(candidate.program, options);
  if (!made)
    return made.status();
  pool.emplace(std::move(*made));
  const Program &program = candidate.program;
  Result<check::HostSteps> bound = check::HostSteps::create(program, *pool);
  if (!bound)
    return bound.status();
  decoder.emplace(std::move(*bound));
  if (program.route() != RouteKind::KvOnly || program.device() == DeviceId())
    return Status();
  Result<Program> inner = program.withRoute(RouteKind::Inner);
  if (!inner)
    return inner.status();
  Result<check::HostSteps> second = check::HostSteps::create(*inner, *pool);
  if (!second)
    return second.status();
  afterFold.emplace(std::move(*second));
  return Status();
}

Comparison::Comparison(const std::vector<Candidate> &candidates,
                       const Trace &trace, const SpecInterpreter &exact,
                       const SpecInterpreter &rounded, int64_t rows)
    : signature(candidates.front().program.signature()), trace(trace),
      exact(exact), rounded(rounded), rows(rows),
      length(static_cast<int64_t>(trace.tokens.size())), isNarrow(storesLess()),
      feeder(signature, trace, rows), slots(rows),
      params(trace.params.begin(), trace.params.end()) {
  std::iota(slots.begin(), slots.end(), 0);
  expected.assign(rows, Trace::Arrays(signature.outputs.size()));
  for (int64_t row = 0; row < rows; ++row)
    exactRows.push_back(exact.makeRow());
  runners.reserve(candidates.size());
  for (const Candidate &candidate : candidates) {
    Runner &runner = runners.emplace_back(candidate);
    if (Status status = runner.begin(rows); !status)
      runner.errors.failure = status.message();
    if (isNarrow)
      for (int64_t row = 0; row < rows; ++row)
        runner.rounded.emplace_back(rounded);
  }
}

bool Comparison::storesLess() const {
  if (&exact != &rounded)
    return true;
  auto isLess = [](const auto &spec) { return spec.dtype != DType::F32; };
  return std::any_of(signature.states.begin(), signature.states.end(),
                     isLess) ||
         std::any_of(signature.carries.begin(), signature.carries.end(),
                     isLess);
}

std::vector<llvm::ArrayRef<double>> Comparison::tokensOf(int64_t row,
                                                         int64_t step) const {
  const Trace::Arrays &arrays = trace.tokens[feeder.tokenOf(row, step)];
  return {arrays.begin(), arrays.end()};
}

void Comparison::stepOracles(int64_t step) {
  ThreadPool::shared().forEach(rows, [&](int64_t row, int) {
    exact.step(exactRows[row], params, tokensOf(row, step), expected[row]);
  });
}

/// Rounds states where the route stores them, and adds what that changed.
void Comparison::stepRounded(Runner &runner, int64_t step) {
  std::vector<double> errors(rows);
  ThreadPool::shared().forEach(rows, [&](int64_t row, int) {
    check::RoundedRuns &runs = runner.rounded[row];
    for (double error :
         runs.step(rounded, params, tokensOf(row, step),
                   check::RoundedRuns::decoded(runner.foldsAt(step)),
                   exactRows[row], expected[row]))
      errors[row] = std::max(errors[row], error);
    if (step + 1 == length)
      runs.storeStates(rounded, exactRows[row]);
  });
  for (double error : errors)
    runner.roundedOutputs = std::max(runner.roundedOutputs, error);
}

Status Comparison::decodeToken(Runner &runner, int64_t step) {
  check::Batch &batch = feeder.getBatch();
  batch.clearOutputs();
  StepArguments arguments;
  arguments.rows = rows;
  arguments.readSlots = slots;
  arguments.tensors = batch.getTensors();
  if (Status status = runner.decoderAt(step).step(arguments); !status)
    return status;
  compareToken(runner, step);
  return Status();
}

void Comparison::compareToken(Runner &runner, int64_t step) {
  RouteErrors &errors = runner.errors;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const std::string &name = signature.outputs[i].name;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<double> actual = feeder.getBatch().getOutput(row, i);
      errors.outputs.add(check::relativeError(actual, expected[row][i]), row,
                         step, name);
      auto stored = trace.storedOutputs.find(step);
      if (row == 0 && stored != trace.storedOutputs.end() &&
          !stored->second[i].empty())
        errors.storedOutputs.add(
            check::relativeError(actual, stored->second[i]), row, step, name);
    }
  }
}

Status Comparison::compareStates(Runner &runner) {
  RouteErrors &errors = runner.errors;
  for (int64_t row = 0; row < rows; ++row) {
    Result<SlotContents> contents =
        runner.pool->exportSlot(runner.candidate.program, slots[row]);
    if (!contents)
      return contents.status();
    for (size_t i = 0; i < signature.states.size(); ++i) {
      const StateSpec &spec = signature.states[i];
      std::vector<double> actual =
          check::toKeyMajor(check::toDoubles(contents->states[i].view()), spec);
      const std::vector<double> &oracle = exactRows[row].states[i];
      errors.states.add(check::relativeError(actual, oracle), row, length - 1,
                        spec.name);
      if (isNarrow)
        runner.roundedStates =
            std::max(runner.roundedStates,
                     runner.rounded[row].stateError(i, exactRows[row]));
      if (row == 0 && i < trace.storedStates.size() &&
          !trace.storedStates[i].empty())
        errors.storedStates.add(
            check::relativeError(actual, trace.storedStates[i]), row,
            length - 1, spec.name);
    }
  }
  return Status();
}

/// An answer is rounded once to its declared type: half a unit in the last
/// place, relative to the largest element.
static double roundingOf(DType dtype) {
  switch (dtype) {
  case DType::BF16:
    return 0x1p-8;
  case DType::F16:
    return 0x1p-11;
  default:
    return 0;
  }
}

void Comparison::setBounds(Runner &runner) {
  double answer = 0;
  for (const TensorSpec &spec : signature.outputs)
    answer = std::max(answer, roundingOf(spec.dtype));
  RouteErrors &errors = runner.errors;
  errors.outputBound = check::Bound{runner.roundedOutputs}.value() + answer;
  errors.stateBound = check::Bound{runner.roundedStates}.value();
}

std::vector<RouteErrors> Comparison::run(const ProgressFunction &progress) {
  for (int64_t step = 0; step < length; ++step) {
    feeder.gather(step);
    stepOracles(step);
    for (Runner &runner : runners) {
      if (!runner.errors.failure.empty())
        continue;
      if (Status status = decodeToken(runner, step); !status)
        runner.errors.failure = status.message();
      if (isNarrow)
        stepRounded(runner, step);
    }
    if (progress)
      progress(double(step + 1) / length);
  }
  std::vector<RouteErrors> results;
  for (Runner &runner : runners) {
    if (runner.errors.failure.empty())
      if (Status status = compareStates(runner); !status)
        runner.errors.failure = status.message();
    setBounds(runner);
    results.push_back(std::move(runner.errors));
  }
  return results;
}

std::vector<RouteErrors>
tool::compareWithOracle(const std::vector<Candidate> &candidates,
                        const Trace &trace, const SpecInterpreter &exact,
                        const SpecInterpreter &rounded, int64_t rows,
                        const ProgressFunction &progress) {
  if (candidates.empty())
    return {};
  return Comparison(candidates, trace, exact, rounded, rows).run(progress);
}
