//===- RunAttention.cpp - ladle run, of an attention ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sequence of the trace is decoded beside the oracle, which is told what the
// decoder matched and evicted; then steps of all rows are timed while their
// contexts grow, those of one row, and on a CPU a prompt.
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/RunAttention.h"
#include "runtime/AttentionPool.h"
#include "runtime/check/BoundedCheck.h"
#include "runtime/check/Comparison.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/RunAttentionInputs.h"
#include "tools/ladle/SourceChoices.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <random>

using namespace ladle;
using namespace ladle::tool;
using check::relativeError;
using Clock = std::chrono::steady_clock;

namespace {

/// Tokens that the oracle is asked about: its time grows with their square.
constexpr int64_t mostCompared = 256;
constexpr int64_t mostRows = 256;
/// Seconds after which no step begins.
constexpr double batchBudget = 60, singleBudget = 5, bandwidthSeconds = 1;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class AttentionRun {
public:
  AttentionRun(const RunOptions &options, const std::string &source)
      : options(options), source(source) {}
  Result<AttentionRunReport> run();

private:
  using Tensors = std::map<std::string, TensorView, std::less<>>;

  Status chooseTarget();
  Status compile();
  Status makeOracle();
  Status loadInputs();
  Status chooseRows();
  /// Bytes of the cache that a row of so many tokens reads.
  int64_t cacheBytes(int64_t tokens) const;
  Status compare();
  Status time(int64_t rows, double budget, const char *what,
              AttentionTiming &into);
  Status timePrompt();
  /// What a call of `rows` rows takes; row r is token first + r · stride.
  Result<Tensors> makeTensors(int64_t rows);
  Status fill(const Tensors &tensors, int64_t first, int64_t stride);
  Result<AttentionPool> makePool(int64_t rows, int64_t tokens) const;
  Result<AttentionDecoder> makeDecoder(AttentionPool &pool) const;

  const RunOptions &options;
  const std::string &source;
  frontend::ElaborationOptions elaboration;
  std::optional<measure::Gpu> gpu;
  std::optional<AttentionProgram> program;
  std::optional<interpreter::AttentionInterpreter> exact;
  std::optional<interpreter::BoundedInterpreter> bounded;
  RunAttentionInputs inputs;
  /// Of the tensors of a call.
  std::vector<DeviceTensor> memory;
  AttentionRunReport report;
  Progress progress;
};

} // namespace

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// What to run
//===----------------------------------------------------------------------===//

Status AttentionRun::chooseTarget() {
  Result<RunTarget> chosen = RunTarget::choose(options.target, options.threads);
  if (!chosen)
    return chosen.status();
  static_cast<RunMachine &>(report) = chosen->machine;
  gpu = std::move(chosen->gpu);
  return Status();
}

Status AttentionRun::compile() {
  AttentionCompileOptions compile;
  compile.attention = options.source.recurrence;
  compile.preset = options.source.preset;
  compile.sizes = elaboration.sizes;
  compile.options = options.source.options;
  if (!options.source.stateType.empty())
    compile.stateTypes["*"] = options.source.stateType;
  compile.summaryType = options.source.entryType;
  compile.target = gpu ? "cuda" : "cpu";
  progress.show("compiling", 0, 1);
  Clock::time_point start = Clock::now();
  Result<AttentionProgram> made =
      compileAttention(source, options.source.file, compile);
  if (!made)
    return made.status();
  report.compileSeconds = secondsSince(start);
  report.name = made->signature().name;
  report.isBounded = made->isBounded();
  if (Status status = refuseStates(options.source);
      !status && !report.isBounded)
    return status;
  report.reuses = made->reuses();
  if (Status status = refuseEntries(options.source); !status && !report.reuses)
    return status;
  program.emplace(std::move(*made));
  return Status();
}

Status AttentionRun::makeOracle() {
  std::string messages;
  if (program->isBounded())
    bounded = check::compileBoundedOracle(options.source.file, source,
                                          elaboration, messages);
  else
    exact = check::compileAttentionOracle(options.source.file, source,
                                          elaboration, messages);
  return bounded || exact ? Status() : Status(ErrorCode::InvalidData, messages);
}

Status AttentionRun::loadInputs() {
  report.inputs = options.trace.empty() ? "random inputs" : options.trace;
  Result<RunAttentionInputs> loaded =
      RunAttentionInputs::load(options, program->signature());
  if (loaded)
    inputs = std::move(*loaded);
  return loaded.status();
}

int64_t AttentionRun::cacheBytes(int64_t tokens) const {
  const AttentionProgramImpl &made = program->getImpl();
  if (program->isBounded())
    return program->slotBytes();
  return made.cacheHeads * tokens *
         (made.keySize * sizeInBytes(made.keyType) +
          made.valueSize * sizeInBytes(made.valueType));
}

Status AttentionRun::chooseRows() {
  report.tokens = options.tokens;
  report.rowBytes = cacheBytes(options.tokens);
  int64_t available = report.host.availableMemory;
  int64_t most = available
                     ? std::max<int64_t>(1, available / 2 / report.rowBytes)
                     : int64_t(1) << 20;
  if (options.rows) {
    report.rows = *options.rows;
    if (available == 0 || report.rows <= available / report.rowBytes)
      return Status();
    return invalid(fmt::format(
        "{} rows need {} of memory, {} are available\nnote: --rows {} is the "
        "most that fits",
        report.rows, formatBytes(double(report.rows) * double(report.rowBytes)),
        formatBytes(double(available)), available / report.rowBytes));
  }
  report.rows = std::min(
      {4 * report.host.cacheBytes() / report.rowBytes + 1, most, mostRows});
  return Status();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Result<AttentionPool> AttentionRun::makePool(int64_t rows,
                                             int64_t tokens) const {
  AttentionPoolOptions room;
  room.slots = rows;
  if (!program->isBounded()) {
    int64_t pages = (tokens + program->pageSize() - 1) / program->pageSize();
    room.pages = rows * pages;
    room.maxTokens = pages * program->pageSize();
  }
  return AttentionPool::create(*program, room);
}

Result<AttentionDecoder> AttentionRun::makeDecoder(AttentionPool &pool) const {
  AttentionDecoderOptions decoding;
  decoding.threads = static_cast<int>(options.threads.value_or(0));
  return AttentionDecoder::create(*program, pool, decoding);
}

Result<AttentionRun::Tensors> AttentionRun::makeTensors(int64_t rows) {
  memory.clear();
  Tensors tensors;
  const Signature &signature = program->signature();
  for (const auto *specs :
       {&signature.params, &signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      std::vector<int64_t> shape = spec.shape;
      bool isParam = specs == &signature.params;
      if (!isParam)
        shape.insert(shape.begin(), rows);
      Result<DeviceTensor> made =
          DeviceTensor::allocate(program->device(), spec.dtype, shape);
      if (!made)
        return made.status();
      tensors.emplace(spec.name, made->view());
      if (isParam)
        if (Status status = copy(TensorView::dense(inputs.values.at(spec.name),
                                                   DType::F32, shape),
                                 made->view());
            !status)
          return status;
      memory.push_back(std::move(*made));
    }
  return tensors;
}

Status AttentionRun::fill(const Tensors &tensors, int64_t first,
                          int64_t stride) {
  for (const TensorSpec &spec : program->signature().tokens) {
    const TensorView &view = tensors.at(spec.name);
    int64_t count = elementsOf(spec);
    std::vector<float> values;
    values.reserve(static_cast<size_t>(view.count()));
    for (int64_t row = 0; row < view.shape[0]; ++row) {
      int64_t token = (first + row * stride) % inputs.tokens;
      auto from = inputs.values.at(spec.name).begin() + token * count;
      values.insert(values.end(), from, from + count);
    }
    if (Status status =
            copy(TensorView::dense(values, DType::F32, view.shape), view);
        !status)
      return status;
  }
  return Status();
}

static std::vector<int32_t> listSlots(int64_t rows) {
  std::vector<int32_t> slots(static_cast<size_t>(rows));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

/// Slots 0 to rows - 1 in memory of a program's device.
static Result<DeviceTensor> makeSlots(const AttentionProgram &program,
                                      int64_t rows) {
  std::vector<int32_t> slots = listSlots(rows);
  return DeviceTensor::copyOf(program.device(),
                              TensorView::dense(slots, DType::I32, {rows}));
}

/// A step that has ended when it returns.
static Status stepOnce(const AttentionProgram &program,
                       AttentionDecoder &decoder,
                       const AttentionArguments &arguments) {
  Status status = decoder.step(arguments);
  if (status && program.device().kind != DeviceKind::Cpu)
    return synchronize(program.device());
  return status;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

Status AttentionRun::compare() {
  int64_t tokens = report.comparedTokens = std::min(
      {options.tokens, mostCompared, std::max<int64_t>(inputs.tokens, 1)});
  Result<AttentionPool> pool = makePool(1, tokens);
  if (!pool)
    return pool.status();
  Result<AttentionDecoder> decoder = makeDecoder(*pool);
  Result<Tensors> tensors = makeTensors(1);
  Result<DeviceTensor> slots = makeSlots(*program, 1);
  for (const Status &status :
       {decoder.status(), tensors.status(), slots.status()})
    if (!status)
      return status;
  if (Status status = pool->reserve(std::vector{0}, tokens); !status)
    return status;
  AttentionArguments arguments;
  arguments.rows = 1;
  arguments.slots = {slots->as<int32_t>(), 1};
  arguments.tensors = *tensors;
  const Signature &signature = program->signature();
  auto arraysOf = [&](const std::vector<TensorSpec> &specs, int64_t token) {
    std::vector<std::vector<double>> arrays;
    for (const TensorSpec &spec : specs) {
      auto from =
          inputs.values.at(spec.name).begin() + token * elementsOf(spec);
      arrays.emplace_back(from, from + elementsOf(spec));
    }
    return arrays;
  };
  std::vector<std::vector<double>> params = arraysOf(signature.params, 0);
  std::optional<interpreter::AttentionInterpreter::Row> exactRow;
  std::optional<interpreter::BoundedInterpreter::Row> boundedRow;
  if (exact)
    exactRow = exact->makeRow();
  else
    boundedRow = bounded->makeRow();
  DType type = signature.outputs[0].dtype;
  // Answers are rounded once more than the oracle's; memories and summaries may
  // be, of which the latter are made from each other.
  auto epsilonOf = [](std::string_view of) {
    return of == "bf16" ? 0x1p-8 : of == "f16" ? 0x1p-11 : 0.0;
  };
  report.bound = check::Bound::exact + 2 * epsilonOf(toString(type)) +
                 16 * epsilonOf(toString(program->memoryType())) +
                 16 * epsilonOf(options.source.entryType);
  for (int64_t token = 0; token < tokens; ++token) {
    progress.show("comparing with the oracle", double(token), double(tokens));
    if (Status status = fill(*tensors, token, 0); !status)
      return status;
    if (Status status = stepOnce(*program, *decoder, arguments); !status)
      return status;
    Result<std::vector<float>> got =
        toFloats(tensors->at(signature.outputs[0].name));
    if (!got)
      return got.status();
    std::vector<double> actual(got->begin(), got->end()), expected;
    auto inputsOfToken = arraysOf(signature.tokens, token);
    if (exact) {
      std::span<const int64_t> matches = decoder->matches();
      for (int64_t match : matches)
        ++(match >= 0 ? report.hits : report.misses);
      exact->step(*exactRow, params, inputsOfToken, expected,
                  llvm::ArrayRef(matches.data(), matches.size()));
    } else {
      std::vector<std::vector<double>> outputs(signature.outputs.size());
      boundedRow->follows.clear();
      for (size_t head = 0;
           bounded->isEvicting && head < boundedRow->heads.size(); ++head)
        boundedRow->follows.push_back(
            pool->keptPositions(0, static_cast<int64_t>(head)));
      bounded->step(*boundedRow, params, inputsOfToken, outputs);
      expected = outputs[0];
    }
    double error = relativeError(actual, expected);
    if (!(error <= report.error)) { // NaN is the worst
      report.error = error;
      report.worstToken = token;
    }
  }
  return Status();
}

Status AttentionRun::time(int64_t rows, double budget, const char *what,
                          AttentionTiming &into) {
  Result<AttentionPool> pool = makePool(rows, options.tokens);
  if (!pool)
    return pool.status();
  Result<AttentionDecoder> decoder = makeDecoder(*pool);
  Result<Tensors> tensors = makeTensors(rows);
  Result<DeviceTensor> slots = makeSlots(*program, rows);
  for (const Status &status :
       {decoder.status(), tensors.status(), slots.status()})
    if (!status)
      return status;
  if (Status status = pool->reserve(listSlots(rows), options.tokens); !status)
    return status;
  AttentionArguments arguments;
  arguments.rows = rows;
  arguments.slots = {slots->as<int32_t>(), static_cast<size_t>(rows)};
  arguments.tensors = *tensors;
  int64_t stride = std::max<int64_t>(1, inputs.tokens / rows);
  into = {rows, 0, 0, 0};
  Clock::time_point start = Clock::now();
  std::vector<double> seconds;
  while (into.steps < options.tokens && secondsSince(start) < budget) {
    progress.show(what, double(into.steps), double(options.tokens));
    if (Status status = fill(*tensors, into.steps, stride); !status)
      return status;
    Clock::time_point begin = Clock::now();
    if (Status status = stepOnce(*program, *decoder, arguments); !status)
      return status;
    seconds.push_back(secondsSince(begin));
    ++into.steps;
  }
  // The last eighth, by its median.
  auto last = seconds.end() - std::max<int64_t>(1, into.steps / 8);
  std::nth_element(last, last + (seconds.end() - last) / 2, seconds.end());
  into.atEnd = last[(seconds.end() - last) / 2];
  for (double each : seconds)
    into.seconds += each / static_cast<double>(into.steps);
  return Status();
}

/// One prompt of all tokens into an empty slot, on a CPU.
Status AttentionRun::timePrompt() {
  if (gpu)
    return Status();
  int64_t tokens = std::min(options.tokens, inputs.tokens);
  Result<AttentionPool> pool = makePool(1, tokens);
  if (!pool)
    return pool.status();
  Result<AttentionDecoder> decoder = makeDecoder(*pool);
  Result<Tensors> tensors = makeTensors(tokens);
  if (!decoder || !tensors)
    return decoder ? tensors.status() : decoder.status();
  if (Status filled = fill(*tensors, 0, 1); !filled)
    return filled;
  std::vector<int32_t> slots{0}, starts{0, static_cast<int32_t>(tokens)};
  PrefillArguments arguments;
  arguments.rows = 1;
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tensors = *tensors;
  progress.show("a prompt", 0, 1);
  report.prompt.rows = 1;
  report.prompt.steps = tokens;
  // The fastest: the first brings memory in.
  for (int round = 0; round < 3; ++round) {
    Clock::time_point start = Clock::now();
    if (Status status = decoder->prefill(arguments); !status)
      return status;
    double seconds = secondsSince(start) / static_cast<double>(tokens);
    if (round == 0 || seconds < report.prompt.seconds)
      report.prompt.seconds = seconds;
    if (Status status = pool->reset(slots); !status)
      return status;
  }
  return Status();
}

Result<AttentionRunReport> AttentionRun::run() {
  report.file = options.source.file;
  elaboration = elaborationOf(options.source);
  auto sizes = RunAttentionInputs::sizes(options, source);
  if (!sizes)
    return sizes.status();
  elaboration.sizes = *sizes;
  if (!options.source.stateType.empty())
    elaboration.stateTypes["*"] = options.source.stateType;
  for (Status (AttentionRun::*part)() :
       {&AttentionRun::chooseTarget, &AttentionRun::compile,
        &AttentionRun::makeOracle, &AttentionRun::loadInputs,
        &AttentionRun::chooseRows, &AttentionRun::compare})
    if (Status status = (this->*part)(); !status)
      return status;
  int64_t bytes = report.rows * report.rowBytes;
  progress.show("measuring the memory", 0, 1);
  if (!gpu) {
    report.readBandwidth =
        measureBandwidth(bytes, report.threads, bandwidthSeconds).read;
  } else {
    constexpr int64_t least = int64_t(64) << 20;
    Result<measure::Ceilings> ceilings = measure::Ceilings::measure(
        *gpu, std::max({bytes, 4 * report.host.cacheBytes(), least}));
    if (ceilings)
      report.readBandwidth = ceilings->read().bytesPerSecond();
    else
      report.note = ceilings.message();
  }
  if (Status status =
          time(report.rows, batchBudget, "steps of all rows", report.batch);
      !status)
    return status;
  if (Status status = time(1, singleBudget, "steps of one row", report.single);
      !status)
    return status;
  if (Status status = timePrompt(); !status)
    return status;
  report.bytesAtEnd = report.batch.rows * cacheBytes(report.batch.steps);
  return std::move(report);
}

int tool::runAttention(const RunOptions &options, const std::string &source) {
  auto fail = [](const Status &status) {
    printError(status);
    return status.code() == ErrorCode::InvalidArgument ? 2 : 1;
  };
  if (Status status =
          refuse(options.source, {"--route", "--threshold", "--chunk",
                                  "--capacity", "--state-layout"});
      !status)
    return fail(status);
  Result<AttentionRunReport> report = AttentionRun(options, source).run();
  if (!report)
    return fail(report.status());
  std::string output = options.json ? report->json() : report->table();
  std::fputs(output.c_str(), stdout);
  return report->passed() ? 0 : 1;
}
