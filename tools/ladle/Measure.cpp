//===- Measure.cpp - what decoding takes ----------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Measure.h"
#include "ladle/decode.h"
#include "tools/ladle/DeviceTimer.h"
#include "tools/ladle/Feeder.h"

#include <algorithm>
#include <chrono>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;
using check::Trace;
using interpreter::SpecInterpreter;

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

Result<Trace> tool::loadTrace(const std::string &path,
                              const SpecInterpreter &oracle, int64_t tokens) {
  Result<Safetensors> file = Safetensors::open(path);
  if (!file)
    return file.status();
  return Trace::load(*file, oracle, tokens);
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

Status StepTimer::begin() {
  PoolOptions poolOptions;
  poolOptions.slots = options.rows;
  poolOptions.foldThreshold = program.capacity() ? options.threshold : 0;
  // Contexts of kv_only are measured up to m, wherever they stop to pay.
  if (program.crossesOver())
    poolOptions.crossover = poolOptions.foldThreshold;
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

Result<double> StepTimer::step() {
  using Clock = std::chrono::steady_clock;
  feeder.gather(token++);
  arguments.readSlots = activeSlots;
  Clock::time_point start = Clock::now();
  if (Status status = decoder->step(arguments); !status)
    return status;
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Writes every state once, because memory that was never written is not read
/// from memory, and brings row r to a fill of m - 1 - r mod m entries, or all
/// rows to none.
Status StepTimer::spreadFills() {
  int64_t m = options.threshold;
  if (program.capacity() > 0)
    if (Status status = pool->setFoldThreshold(1); !status)
      return status;
  if (Status status = step().status(); !status)
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
    if (Status status = step().status(); !status)
      return status;
  }
  activeSlots = slots;
  return Status();
}

Status StepTimer::prepare() {
  if (Status status = begin(); !status)
    return status;
  return program.route() == RouteKind::KvOnly ? Status() : spreadFills();
}

Status StepTimer::restart() { return pool->reset(slots); }

/// Steps until there are enough of them or the time is over.
static Status timeSteps(StepTimer &timer, const TimingOptions &options,
                        const ProgressFunction &progress, Timing &timing) {
  while (timing.steps < options.minSteps ||
         (timing.steps < options.maxSteps && timing.seconds < options.budget)) {
    Result<double> seconds = timer.step();
    if (!seconds)
      return seconds.status();
    timing.seconds += *seconds;
    ++timing.steps;
    if (progress)
      progress(std::max(double(timing.steps) / options.maxSteps,
                        timing.seconds / options.budget));
  }
  return Status();
}

/// Whole contexts, the first of them only to touch the memory.
static Status timeContexts(StepTimer &timer, const TimingOptions &options,
                           const ProgressFunction &progress, Timing &timing) {
  int64_t length = std::max<int64_t>(1, options.threshold - 1);
  for (bool isTimed : {false, true}) {
    if (Status status = timer.restart(); !status)
      return status;
    for (int64_t i = 0; i < length; ++i) {
      Result<double> seconds = timer.step();
      if (!seconds)
        return seconds.status();
      if (isTimed) {
        timing.seconds += *seconds;
        ++timing.steps;
      }
      if (progress)
        progress((isTimed + double(i + 1) / length) / 2);
    }
  }
  return Status();
}

Result<Timing> tool::timeDecode(const Program &program, const Trace &trace,
                                const TimingOptions &options,
                                const ProgressFunction &progress) {
  if (program.device() != DeviceId())
    return timeDecodeOnDevice(program, trace, options, progress);
  StepTimer timer(program, trace, options);
  if (Status status = timer.prepare(); !status)
    return status;
  Timing timing;
  timing.rows = options.rows;
  auto measure =
      program.route() == RouteKind::KvOnly ? timeContexts : timeSteps;
  if (Status status = measure(timer, options, progress, timing); !status)
    return status;
  timing.seconds /= static_cast<double>(timing.steps);
  return timing;
}

Result<Timing> tool::timePrefill(const Program &program, const Trace &trace,
                                 int64_t tokens, int threads) {
  PoolOptions memory;
  memory.slots = 1;
  Result<Pool> pool = Pool::create(program, memory);
  if (!pool)
    return pool.status();
  DecoderOptions options;
  options.threads = threads;
  Result<Decoder> decoder = Decoder::create(program, *pool, options);
  if (!decoder)
    return decoder.status();
  check::Batch batch(program.signature(), tokens, /*packed=*/false);
  batch.setParams(trace.params);
  for (int64_t token = 0; token < tokens; ++token)
    batch.setTokens(token, trace.tokens[token % trace.tokens.size()]);
  const int32_t slot = 0;
  const int32_t starts[] = {0, static_cast<int32_t>(tokens)};
  PrefillArguments arguments;
  arguments.rows = 1;
  arguments.slots = {&slot, 1};
  arguments.cuSeqlens = starts;
  arguments.tensors = batch.getTensors();
  Timing timing;
  timing.rows = 1;
  timing.steps = tokens;
  constexpr int repetitions = 5;
  for (int i = 0; i < repetitions; ++i) {
    if (Status status = pool->reset({&slot, 1}); !status)
      return status;
    auto start = std::chrono::steady_clock::now();
    if (Status status = decoder->prefill(arguments); !status)
      return status;
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count() /
        static_cast<double>(tokens);
    timing.seconds = i ? std::min(timing.seconds, seconds) : seconds;
  }
  return timing;
}
