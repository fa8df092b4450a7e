//===- TraceCheck.cpp - a route against the oracle on real input ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/TraceCheck.h"

#include "runtime/check/Batch.h"
#include "runtime/check/HostSteps.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <span>

using namespace ladle;
using namespace ladle::check;
using interpreter::SpecInterpreter;
using interpreter::ValueInfo;

bool TraceResult::passed() const {
  for (const WorstError *error :
       {&outputs, &states, &storedOutputs, &storedStates})
    if (!bound.allows(error->value))
      return false;
  return failure.empty();
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

static Status invalid(std::string message) {
  return {ErrorCode::InvalidData, std::move(message)};
}

/// The tensor `info.name`, whose shape must be that of `info` after
/// `leadingDims` dimensions.
static Result<TensorView> viewOf(const Safetensors &file, const ValueInfo &info,
                                 int64_t leadingDims) {
  Result<TensorView> view = file.view(info.name);
  if (!view)
    return view;
  if (!isFloat(view->dtype))
    return invalid(fmt::format("'{}' of the trace is {}, wanted a float type",
                               info.name, toString(*view)));
  auto fits = [&](std::span<const int64_t> shape) {
    return view->rank() >= leadingDims &&
           std::equal(view->shape.begin() + leadingDims, view->shape.end(),
                      shape.begin(), shape.end());
  };
  // Of what all heads share, files have no heads.
  std::span<const int64_t> shape(info.shape);
  if (!fits(shape) &&
      !(leadingDims == 0 && shape.front() == 1 && fits(shape.subspan(1))))
    return invalid(fmt::format(
        "'{}' of the trace is {}, wanted [{}{}]", info.name, toString(*view),
        leadingDims ? "T, " : "", fmt::join(info.shape, ", ")));
  return view;
}

/// Appends a value of the file as the declared type of an input has it.
/// `token` is for the message, negative for a param.
static Status addValues(const TensorView &view, const ValueInfo &info,
                        int64_t token, Trace::Arrays &arrays) {
  std::vector<double> values = toDoubles(view);
  for (double value : values)
    if (!std::isfinite(value))
      return invalid(fmt::format(
          "'{}' of the trace holds {}{}, wanted finite numbers", info.name,
          value, token < 0 ? "" : fmt::format(" at token {}", token)));
  interpreter::roundTo(values, info.precision);
  arrays.push_back(std::move(values));
  return Status();
}

/// Position of each row of a stored output: the tensor `positions`, or all.
static Result<std::vector<int64_t>> positionsOf(const Safetensors &file,
                                                int64_t count, int64_t tokens) {
  std::vector<int64_t> positions(static_cast<size_t>(count));
  // All of a sequence, or of its first part, needs none.
  std::iota(positions.begin(), positions.end(), 0);
  if (!file.contains("positions") || count == tokens)
    return positions;
  Result<TensorView> view = file.view("positions");
  if (!view)
    return view.status();
  if (view->shape != std::vector{count} ||
      (view->dtype != DType::I32 && view->dtype != DType::I64))
    return invalid(fmt::format("'positions' of the trace is {}, wanted i32 or "
                               "i64 [{}], where the outputs are",
                               toString(*view), count));
  int64_t before = -1;
  for (int64_t i = 0; i < count; ++i) {
    positions[i] = view->dtype == DType::I32
                       ? static_cast<const int32_t *>(view->data)[i]
                       : static_cast<const int64_t *>(view->data)[i];
    if (positions[i] <= before || positions[i] >= tokens)
      return invalid(fmt::format("'positions' of the trace holds {} after {}, "
                                 "wanted tokens in order, below {}",
                                 positions[i], before, tokens));
    before = positions[i];
  }
  return positions;
}

/// Reads what the file says should come out.
static Status loadExpected(const Safetensors &file,
                           const SpecInterpreter &oracle, int64_t tokens,
                           bool isWhole, Trace &trace) {
  size_t outputs = oracle.getOutputs().size();
  for (size_t i = 0; i < outputs; ++i) {
    const ValueInfo &info = oracle.getOutputs()[i];
    if (!file.contains(info.name))
      continue;
    Result<TensorView> view = viewOf(file, info, /*leadingDims=*/1);
    if (!view)
      return view.status();
    Result<std::vector<int64_t>> positions =
        positionsOf(file, view->shape[0], tokens);
    if (!positions)
      return positions.status();
    for (int64_t j = 0; j < view->shape[0]; ++j) {
      Trace::Arrays &stored = trace.storedOutputs[(*positions)[j]];
      stored.resize(outputs);
      stored[i] = toDoubles((*view)[j]);
    }
  }
  if (!isWhole)
    return Status();
  for (ValueInfo info : oracle.getStates()) {
    bool isOnly = oracle.getStates().size() == 1;
    if (isOnly && !file.contains(info.name))
      info.name = "state";
    trace.storedStates.emplace_back();
    if (!file.contains(info.name))
      continue;
    Result<TensorView> view = viewOf(file, info, /*leadingDims=*/0);
    if (!view)
      return view.status();
    trace.storedStates.back() = toDoubles(*view);
  }
  return Status();
}

Result<Trace> Trace::load(const Safetensors &file,
                          const SpecInterpreter &oracle, int64_t maxTokens) {
  Trace trace;
  for (const ValueInfo &info : oracle.getParams()) {
    Result<TensorView> view = viewOf(file, info, /*leadingDims=*/0);
    if (!view)
      return view.status();
    if (Status status = addValues(*view, info, -1, trace.params); !status)
      return status;
  }
  std::vector<TensorView> views;
  for (const ValueInfo &info : oracle.getTokens()) {
    Result<TensorView> view = viewOf(file, info, /*leadingDims=*/1);
    if (!view)
      return view.status();
    if (!views.empty() && view->shape[0] != views[0].shape[0])
      return invalid(fmt::format(
          "'{}' of the trace has {} tokens, '{}' {}", info.name, view->shape[0],
          oracle.getTokens()[0].name, views[0].shape[0]));
    views.push_back(*view);
  }
  int64_t total = views.empty() ? 0 : views[0].shape[0];
  if (total == 0)
    return invalid("the trace holds no tokens");
  int64_t count = maxTokens ? std::min(maxTokens, total) : total;

  SpecInterpreter::Row row = oracle.makeRow();
  for (int64_t token = 0; token < count; ++token) {
    Arrays inputs;
    for (size_t i = 0; i < views.size(); ++i)
      if (Status status =
              addValues(views[i][token], oracle.getTokens()[i], token, inputs);
          !status)
        return status;
    trace.tokens.push_back(std::move(inputs));
    trace.outputs.emplace_back();
    oracle.step(row, trace.params, trace.tokens.back(), trace.outputs.back());
  }
  trace.states = std::move(row.states);
  if (Status status = loadExpected(file, oracle, total, count == total, trace);
      !status)
    return status;
  return trace;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// Adds the errors of one token's outputs, or of the states.
static void compare(const Trace::Arrays &actual, const Trace::Arrays &expected,
                    int64_t token, WorstError &error, const char *what) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (!expected[i].empty())
      error.add(relativeError(actual[i], expected[i]), 0, token, what);
}

/// Says so if there is nothing to compare with.
static void checkOracle(const Trace::Arrays &expected, int64_t token,
                        TraceResult &result) {
  if (result.failure.empty() &&
      !std::all_of(expected.begin(), expected.end(), isFinite))
    result.failure = fmt::format(
        "the float64 oracle itself is not finite at token {}", token);
}

static void compareToken(const Trace &trace, const Trace::Arrays &actual,
                         int64_t token, TraceResult &result) {
  checkOracle(trace.outputs[token], token, result);
  compare(actual, trace.outputs[token], token, result.outputs, "outputs");
  if (auto stored = trace.storedOutputs.find(token);
      stored != trace.storedOutputs.end())
    compare(actual, stored->second, token, result.storedOutputs, "outputs");
}

static void compareStates(const Trace &trace, const Trace::Arrays &actual,
                          TraceResult &result) {
  int64_t last = result.tokens - 1;
  checkOracle(trace.states, last, result);
  compare(actual, trace.states, last, result.states, "states");
  compare(actual, trace.storedStates, last, result.storedStates, "states");
}

/// The first tokens of a trace, in slot 0.
static Status prefillTrace(const Trace &trace, const Signature &signature,
                           int64_t prompt, HostSteps &decoder,
                           TraceResult &result) {
  Batch batch(signature, prompt, /*packed=*/false);
  batch.setParams(trace.params);
  batch.clearOutputs();
  for (int64_t token = 0; token < prompt; ++token)
    batch.setTokens(token, trace.tokens[token]);
  const int32_t slot = 0;
  const int32_t starts[] = {0, static_cast<int32_t>(prompt)};
  PrefillArguments arguments;
  arguments.rows = 1;
  arguments.slots = {&slot, 1};
  arguments.cuSeqlens = starts;
  arguments.tensors = batch.getTensors();
  if (Status status = decoder.prefill(arguments); !status)
    return status;
  for (int64_t token = 0; token < prompt; ++token) {
    Trace::Arrays outputs;
    for (size_t i = 0; i < signature.outputs.size(); ++i)
      outputs.push_back(batch.getOutput(token, i));
    compareToken(trace, outputs, token, result);
  }
  return Status();
}

static Status decodeTrace(const Trace &trace, const Program &program,
                          int64_t threshold, int64_t prompt,
                          TraceResult &result) {
  const Signature &signature = program.signature();
  PoolOptions options;
  options.slots = 1;
  options.foldThreshold = program.capacity() ? threshold : 0;
  Result<Pool> pool = Pool::create(program, options);
  if (!pool)
    return pool.status();
  Result<HostSteps> decoder = HostSteps::create(program, *pool);
  if (!decoder)
    return decoder.status();

  if (prompt > 0)
    if (Status status =
            prefillTrace(trace, signature, prompt, *decoder, result);
        !status)
      return status;
  Batch batch(signature, /*rows=*/1, /*packed=*/false);
  batch.setParams(trace.params);
  const int32_t slot = 0;
  StepArguments arguments;
  arguments.rows = 1;
  arguments.readSlots = {&slot, 1};
  arguments.tensors = batch.getTensors();
  for (int64_t token = prompt; token < result.tokens; ++token) {
    batch.setTokens(0, trace.tokens[token]);
    batch.clearOutputs();
    if (Status status = decoder->step(arguments); !status)
      return status;
    Trace::Arrays outputs;
    for (size_t i = 0; i < signature.outputs.size(); ++i)
      outputs.push_back(batch.getOutput(0, i));
    compareToken(trace, outputs, token, result);
  }

  Result<SlotContents> contents = pool->exportSlot(program, slot);
  if (!contents)
    return contents.status();
  Trace::Arrays states;
  for (size_t i = 0; i < signature.states.size(); ++i)
    states.push_back(
        toKeyMajor(toDoubles(contents->states[i].view()), signature.states[i]));
  compareStates(trace, states, result);
  return Status();
}

TraceResult ladle::check::runTrace(const Trace &trace, const Program &program,
                                   int64_t threshold, int64_t prompt) {
  TraceResult result;
  result.route = program.route();
  result.tokens = static_cast<int64_t>(trace.tokens.size());
  if (Status status = decodeTrace(trace, program, threshold, prompt, result);
      !status)
    result.failure = status.message();
  return result;
}

TraceResult ladle::check::compareOracle(const Trace &trace) {
  TraceResult result;
  result.route = RouteKind::Recurrent;
  result.tokens = static_cast<int64_t>(trace.tokens.size());
  for (int64_t token = 0; token < result.tokens; ++token)
    compareToken(trace, trace.outputs[token], token, result);
  compareStates(trace, trace.states, result);
  return result;
}
