//===- BenchPrompts.cpp - ladle bench --prompts ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A call that prefills a prompt a row, a token of it against a token of a
// verify step, against the bytes that it cannot do without, and the flops that
// it takes a second. Layers take turns, so that a call finds its states in
// memory.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "ladle/device.h"
#include "runtime/check/Check.h"
#include "tools/ladle/BenchDocument.h"
#include "tools/ladle/DeviceInputs.h"
#include "tools/ladle/Plan.h"
#include "tools/ladle/SourceChoices.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

/// Drafts of the verify steps that prompts are compared with, and entries
/// before them.
static constexpr int64_t kDrafts = 16, kEntries = 16;

namespace {

/// One program on prompts of one length, and on drafts.
class PromptBench {
public:
  PromptBench(const BenchOptions &options, const measure::Gpu &gpu)
      : options(options), gpu(gpu) {}
  Status prepare(const CompileOptions &compile, int64_t batch,
                 int64_t stateBytes);
  /// Seconds of a call that prefills all rows.
  Result<std::vector<double>> timePrompts();
  /// Seconds of a verify step of `kDrafts` a row.
  Result<std::vector<double>> timeDrafts();
  bool verifiesAtOnce() const {
    return program->drafts() > 0 && program->verifiesAtOnce();
  }

private:
  Result<std::span<const int32_t>> keep(std::vector<int32_t> values);
  Result<std::vector<double>>
  time(const std::function<Status(Decoder &)> &launch);

  const BenchOptions &options;
  const measure::Gpu &gpu;
  int64_t rows = 1;
  std::optional<Program> program;
  std::optional<Cursors> cursors;
  std::vector<std::unique_ptr<Pool>> pools;
  std::vector<std::unique_ptr<Decoder>> decoders;
  std::vector<DeviceTensor> numbers;
  DeviceInputs inputs;
};

} // namespace

/// int32 numbers in memory of the device, which graphs hold.
Result<std::span<const int32_t>>
PromptBench::keep(std::vector<int32_t> values) {
  Result<DeviceTensor> made = DeviceTensor::copyOf(
      program->device(),
      TensorView::dense(values, DType::I32,
                        {static_cast<int64_t>(values.size())}));
  if (!made)
    return made.status();
  numbers.push_back(std::move(*made));
  return std::span(numbers.back().as<const int32_t>(), values.size());
}

Status PromptBench::prepare(const CompileOptions &compile, int64_t batch,
                            int64_t stateBytes) {
  rows = batch;
  Result<Program> made = compileFile(options.source.file, compile);
  if (!made)
    return made.status();
  program = std::move(*made);
  CursorOptions cursorOptions;
  cursorOptions.slots = rows;
  Result<Cursors> shared = Cursors::create(*program, cursorOptions);
  if (!shared)
    return shared.status();
  cursors = std::move(*shared);
  auto cache = static_cast<double>(gpu.device().cacheBytes());
  auto bytes = static_cast<double>(rows * stateBytes);
  auto count = static_cast<int64_t>(3 * cache / bytes) + 2;
  PoolOptions poolOptions;
  poolOptions.cursors = cursors;
  for (int64_t i = 0; i < count; ++i) {
    Result<Pool> pool = Pool::create(*program, poolOptions);
    if (!pool)
      return pool.status();
    pools.push_back(std::make_unique<Pool>(std::move(*pool)));
    Result<Decoder> decoder = Decoder::create(*program, *pools.back());
    if (!decoder)
      return decoder.status();
    decoders.push_back(std::make_unique<Decoder>(std::move(*decoder)));
  }
  Result<DeviceInputs> filled = DeviceInputs::create(
      options.source, *program, rows * std::max(options.prompts, kDrafts));
  if (!filled)
    return filled.status();
  inputs = std::move(*filled);
  return Status();
}

/// Of a launch, from graphs in which all layers have one.
Result<std::vector<double>>
PromptBench::time(const std::function<Status(Decoder &)> &launch) {
  Result<cuda::Graph> graph =
      cuda::Graph::record(gpu.device(), [&]() -> Status {
        for (auto &decoder : decoders)
          if (Status status = launch(*decoder); !status)
            return status;
        return Status();
      });
  if (!graph)
    return graph.status();
  // The first replay uploads the graph.
  if (Status status = graph->replay(); !status)
    return status;
  std::vector<double> samples;
  for (int64_t i = 0; i < options.samples; ++i) {
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    samples.push_back(*seconds / static_cast<double>(decoders.size()));
  }
  return samples;
}

Result<std::vector<double>> PromptBench::timePrompts() {
  std::vector<int32_t> list(static_cast<size_t>(rows)), starts{0};
  std::iota(list.begin(), list.end(), 0);
  for (int64_t row = 0; row < rows; ++row)
    starts.push_back(static_cast<int32_t>((row + 1) * options.prompts));
  auto slots = keep(std::move(list)), begins = keep(std::move(starts));
  if (!slots || !begins)
    return slots ? begins.status() : slots.status();
  PrefillArguments arguments;
  arguments.rows = rows;
  arguments.slots = *slots;
  arguments.cuSeqlens = *begins;
  arguments.tokens = rows * options.prompts;
  arguments.tensors = inputs.first(program->signature(), arguments.tokens);
  return time([&](Decoder &decoder) {
    return decoder.prefill(arguments, gpu.device().stream());
  });
}

Result<std::vector<double>> PromptBench::timeDrafts() {
  // The layers have taken prompts.
  if (Status status = gpu.device().synchronize(); !status)
    return status;
  std::vector<int32_t> list(static_cast<size_t>(rows)), starts{0};
  std::iota(list.begin(), list.end(), 0);
  for (int64_t row = 0; row < rows; ++row)
    starts.push_back(static_cast<int32_t>((row + 1) * kDrafts));
  auto slots = keep(std::move(list)), begins = keep(std::move(starts));
  if (!slots || !begins)
    return slots ? begins.status() : slots.status();
  if (Status status = cursors->advance(*slots, {}, gpu.device().stream());
      !status)
    return status;
  VerifyArguments arguments;
  arguments.rows = rows;
  arguments.slots = *slots;
  arguments.cuSeqlens = *begins;
  arguments.drafts = rows * kDrafts;
  arguments.tensors = inputs.first(program->signature(), arguments.drafts);
  return time([&](Decoder &decoder) {
    return decoder.verify(arguments, gpu.device().stream());
  });
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

/// Whether prompts are answered right.
static Status checkPrompts(const BenchOptions &options,
                           const std::string &route, const std::string &state) {
  check::CheckRequest request;
  request.path = options.source.file;
  request.source = readSource(options.source.file);
  request.elaboration = elaborationOf(options.source);
  request.target = "cuda";
  Result<check::CheckCase> config = check::CheckCase::parse(
      fmt::format("route={},state={},L=8,m=8,prompts=100,chunk=64,rows=2,"
                  "tokens=3,seed=1",
                  route, state));
  if (!config)
    return config.status();
  Result<check::CheckReport> report = check::checkCases(request, {*config});
  if (!report)
    return report.status();
  return report->passed() ? Status()
                          : Status(ErrorCode::Internal, report->table());
}

static Status benchOne(const BenchOptions &options, const measure::Gpu &gpu,
                       const measure::Ceilings &ceilings,
                       const CompileOptions &compile, const RoutePlan &plan,
                       int64_t stateBytes, Json &figures) {
  int64_t rows = compile.batch, tokens = options.prompts;
  CompileOptions wanted = compile;
  PromptBench bench(options, gpu);
  Status status = bench.prepare(wanted, rows, stateBytes);
  bool verifies =
      status ? bench.verifiesAtOnce() : status.code() != ErrorCode::Unsupported;
  if (wanted.drafts && !verifies) {
    // Prompts alone: drafts one after another are no measure of them.
    wanted.drafts = 0;
    status = bench.prepare(wanted, rows, stateBytes);
  }
  if (!status)
    return status;
  Result<std::vector<double>> prompts = bench.timePrompts();
  if (!prompts)
    return prompts.status();
  auto count = static_cast<double>(tokens);
  double call = measure::median(*prompts);
  double token = call / (count * static_cast<double>(rows));
  // A state is read and written once; tokens come and outputs go.
  double limit = static_cast<double>(rows) *
                 (plan.updatedBytes / ceilings.update().bytesPerSecond() +
                  count * (plan.bytes - plan.updatedBytes) /
                      ceilings.read().bytesPerSecond());
  double rate = plan.flops / token;
  Json figure{{"route", compile.route},  {"state", compile.stateType},
              {"batch", rows},           {"tokens", tokens},
              {"us_a_call", 1e6 * call}, {"ns_a_token", 1e9 * token},
              {"limit_us", 1e6 * limit}, {"flops_per_s", rate}};
  for (double each : *prompts)
    figure["samples_us"].push_back(1e6 * each);
  std::string verified = "-", gain = "-";
  if (bench.verifiesAtOnce()) {
    Result<std::vector<double>> drafts = bench.timeDrafts();
    if (!drafts)
      return drafts.status();
    double draft = measure::median(*drafts) /
                   (static_cast<double>(kDrafts) * static_cast<double>(rows));
    figure["verify_ns_a_token"] = 1e9 * draft;
    verified = formatTime(draft);
    gain = fmt::format("{:.1f}", draft / token);
  }
  fmt::print("{:>9} {:>6} {:>6} {:>7} {:>11} {:>11} {:>11} {:>11} {:>11} "
             "{:>6}\n",
             compile.route, compile.stateType, rows, tokens, formatTime(call),
             formatTime(limit), fmt::format("{:.3g} TF/s", rate / 1e12),
             formatTime(token), verified, gain);
  std::fflush(stdout);
  figures.push_back(std::move(figure));
  return Status();
}

static Status benchAll(const BenchOptions &options, const measure::Gpu &gpu) {
  Result<measure::Ceilings> ceilings = measure::Ceilings::measure(gpu);
  if (!ceilings)
    return ceilings.status();
  fmt::print(
      "{} {} on {}, driver {}\nprompts of {} tokens; verify steps are of "
      "{} drafts a row\n\n",
      options.source.file, options.source.preset, gpu.device().name(),
      gpu.driver(), options.prompts, kDrafts);
  fmt::print("{:>9} {:>6} {:>6} {:>7} {:>11} {:>11} {:>11} {:>11} {:>11} "
             "{:>6}\n",
             "route", "states", "batch", "tokens", "a call", "its bytes",
             "flops", "a token", "verified", "gain");
  BenchDocument document(options, gpu, "ladle-bench-prompts-1");
  std::vector<std::string> routes = options.routes;
  if (routes.empty())
    routes = {"inner"};
  for (const std::string &state : options.states) {
    SourceOptions source = options.source;
    source.stateType = state;
    auto planner = Planner::create(source);
    if (!planner)
      return Status(ErrorCode::InvalidData, "the file cannot be planned");
    // What one token after another takes.
    RunPlan plan = planner->plan(Rates::gpu(gpu.device().name()), 1, 1);
    auto recurrent = std::find_if(
        plan.routes.begin(), plan.routes.end(), [](const RoutePlan &route) {
          return route.route == "recurrent" && route.isLegal();
        });
    if (recurrent == plan.routes.end())
      return Status(ErrorCode::InvalidData, "no route is recurrent");
    for (const std::string &route : routes) {
      if (!options.skipCheck)
        if (Status status = checkPrompts(options, route, state); !status)
          return status;
      for (int64_t batch : options.batches) {
        CompileOptions compile = compileOptionsOf(options.source);
        compile.target = "cuda";
        compile.route = route;
        compile.stateType = state;
        compile.entryType = options.entries.front();
        compile.capacity = kEntries + kDrafts;
        compile.drafts = kDrafts;
        compile.prefill = true;
        compile.batch = batch;
        if (Status status =
                benchOne(options, gpu, *ceilings, compile, *recurrent,
                         planner->stateBytes(), document.figures());
            !status)
          return status;
      }
    }
  }
  return document.write();
}

int tool::benchPrompts(const BenchOptions &options, const measure::Gpu &gpu) {
  return exitCodeOf(benchAll(options, gpu));
}
