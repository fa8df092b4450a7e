//===- Measure.cpp - what decoding takes ----------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Measure.h"
#include "ladle/decode.h"
#include "tools/ladle/Feeder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;
using check::Trace;
using interpreter::SpecInterpreter;
using interpreter::ValueInfo;

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// Views of arrays, as the oracle takes them.
static std::vector<llvm::ArrayRef<double>> refs(const Trace::Arrays &arrays) {
  return {arrays.begin(), arrays.end()};
}

Trace tool::makeRandomTrace(const SpecInterpreter &oracle, int64_t tokens,
                            uint64_t seed) {
  check::RandomInputs random({}, seed);
  Trace trace;
  trace.params = random.draw(oracle.getParams(), 0, random.params);
  SpecInterpreter::Row row = oracle.makeRow();
  for (int64_t token = 0; token < tokens; ++token) {
    trace.tokens.push_back(random.draw(oracle.getTokens(), 0, token));
    trace.outputs.emplace_back(oracle.getOutputs().size());
    oracle.step(row, refs(trace.params), refs(trace.tokens.back()),
                trace.outputs.back());
  }
  trace.states = std::move(row.states);
  return trace;
}

/// InvalidData if an element of an input is NaN or infinite.
static Status checkFinite(const Trace::Arrays &arrays,
                          llvm::ArrayRef<ValueInfo> infos, int64_t token) {
  for (size_t i = 0; i < arrays.size(); ++i)
    for (double value : arrays[i])
      if (!std::isfinite(value))
        return Status(
            ErrorCode::InvalidData,
            fmt::format("'{}' of the trace holds {}{}, wanted finite numbers",
                        infos[i].name, value,
                        token < 0 ? "" : fmt::format(" at token {}", token)));
  return Status();
}

Result<Trace> tool::loadTrace(const std::string &path,
                              const SpecInterpreter &oracle, int64_t tokens) {
  Result<Safetensors> file = Safetensors::open(path);
  if (!file)
    return file.status();
  Result<Trace> trace = Trace::load(*file, oracle, tokens);
  if (!trace)
    return trace;
  if (Status status = checkFinite(trace->params, oracle.getParams(), -1);
      !status)
    return status;
  for (size_t token = 0; token < trace->tokens.size(); ++token)
    if (Status status =
            checkFinite(trace->tokens[token], oracle.getTokens(), token);
        !status)
      return status;
  return trace;
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

namespace {
class Stopwatch {
public:
  Stopwatch(const Program &program, const Trace &trace,
            const TimingOptions &options, const ProgressFunction &progress)
      : program(program), options(options), progress(progress),
        feeder(program.signature(), trace, options.rows) {}
  Result<Timing> run();

private:
  Status begin();
  Status step(bool isTimed);
  Status spreadFills();
  Status timeContexts();
  Status timeSteps();

  const Program &program;
  TimingOptions options;
  const ProgressFunction &progress;
  Feeder feeder;
  std::optional<Pool> pool;
  std::optional<Decoder> decoder;
  StepArguments arguments;
  std::vector<int32_t> slots, activeSlots;
  int64_t token = 0;
  Timing timing;
};
} // namespace

Status Stopwatch::begin() {
  PoolOptions poolOptions;
  poolOptions.slots = options.rows;
  poolOptions.foldThreshold = program.capacity() ? options.threshold : 0;
  Result<Pool> made = Pool::create(program, poolOptions);
  if (!made)
    return made.status();
  pool.emplace(std::move(*made));
  DecoderOptions decoderOptions;
  decoderOptions.threads = options.threads;
  Result<Decoder> bound = Decoder::create(program, *pool, decoderOptions);
  if (!bound)
    return bound.status();
  decoder.emplace(std::move(*bound));
  slots.resize(options.rows);
  std::iota(slots.begin(), slots.end(), 0);
  activeSlots = slots;
  arguments.rows = options.rows;
  arguments.tensors = feeder.getBatch().getTensors();
  return Status();
}

Status Stopwatch::step(bool isTimed) {
  using Clock = std::chrono::steady_clock;
  feeder.gather(token++);
  arguments.readSlots = activeSlots;
  Clock::time_point start = Clock::now();
  Status status = decoder->step(arguments);
  if (!isTimed)
    return status;
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (options.inPhase) {
    size_t fill = timing.steps % options.threshold;
    if (fill == timing.byFill.size())
      timing.byFill.push_back(seconds);
    timing.byFill[fill] = std::min(timing.byFill[fill], seconds);
  }
  timing.seconds += seconds;
  ++timing.steps;
  return status;
}

/// Writes every state once, because memory that was never written is not read
/// from memory, and brings row r to a fill of m - 1 - r mod m entries, or all
/// rows to none.
Status Stopwatch::spreadFills() {
  int64_t m = options.threshold;
  if (program.capacity() > 0)
    if (Status status = pool->setFoldThreshold(1); !status)
      return status;
  if (Status status = step(false); !status)
    return status;
  if (program.capacity() == 0)
    return Status();
  if (Status status = pool->setFoldThreshold(m); !status)
    return status;
  if (options.inPhase)
    return Status();
  for (int64_t wave = 0; wave + 1 < m; ++wave) {
    for (int64_t row = 0; row < options.rows; ++row)
      activeSlots[row] = row % m <= wave ? slots[row] : -1;
    if (Status status = step(false); !status)
      return status;
  }
  activeSlots = slots;
  return Status();
}

Status Stopwatch::timeSteps() {
  if (Status status = spreadFills(); !status)
    return status;
  while (timing.steps < options.minSteps ||
         (timing.steps < options.maxSteps && timing.seconds < options.budget)) {
    if (Status status = step(true); !status)
      return status;
    if (progress)
      progress(std::max(double(timing.steps) / options.maxSteps,
                        timing.seconds / options.budget));
  }
  return Status();
}

/// Whole contexts, the first of them only to touch the memory.
Status Stopwatch::timeContexts() {
  int64_t length = std::max<int64_t>(1, options.threshold - 1);
  for (bool isTimed : {false, true}) {
    if (isTimed)
      if (Status status = pool->reset(slots); !status)
        return status;
    for (int64_t i = 0; i < length; ++i) {
      if (Status status = step(isTimed); !status)
        return status;
      if (progress)
        progress((isTimed + double(i + 1) / length) / 2);
    }
  }
  return Status();
}

Result<Timing> Stopwatch::run() {
  if (Status status = begin(); !status)
    return status;
  Status status =
      program.route() == RouteKind::KvOnly ? timeContexts() : timeSteps();
  if (!status)
    return status;
  timing.rows = options.rows;
  timing.seconds /= static_cast<double>(timing.steps);
  return timing;
}

Result<Timing> tool::timeDecode(const Program &program, const Trace &trace,
                                const TimingOptions &options,
                                const ProgressFunction &progress) {
  return Stopwatch(program, trace, options, progress).run();
}
