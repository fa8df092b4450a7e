//===- Run.cpp - ladle run ------------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "runtime/check/AttentionCheck.h"
#include "runtime/check/Oracle.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/RunAttention.h"
#include "tools/ladle/RunReport.h"
#include "tools/ladle/SourceChoices.h"
#include "tools/measure/Ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <span>
#include <thread>

using namespace ladle;
using namespace ladle::tool;
using interpreter::SpecInterpreter;

namespace {

/// Random inputs repeat after so many tokens.
constexpr int64_t randomTokens = 512;
/// Rows that are compared with the oracle, at offsets spread over the trace.
constexpr int64_t comparedRows = 3;
/// Seconds of timed steps, at the large batch and at batch 1.
constexpr double chosenBudget = 240, otherBudget = 5, singleBudget = 2;
constexpr double bandwidthSeconds = 1.5;
constexpr int64_t maxThreads = 1024;

class RunCommand {
public:
  explicit RunCommand(const RunOptions &options) : options(options) {}
  int run();
  /// The text of the file, if what the options choose is an attention.
  std::optional<std::string> findAttention() const;

private:
  Status checkOptions() const;
  /// Opens the GPU, if it is to be one.
  Status chooseTarget();
  /// What the memory gives, and by that the plan.
  RunPlan makePlan(const Planner &planner);
  Status checkRoute(const RunPlan &plan) const;
  Status makeOracles();
  Status loadInputs();
  CompileOptions compileOptions() const;
  void compileRoutes(const RunPlan &plan);
  int64_t bytesBesideStates() const;
  /// InvalidArgument if there is not so much memory.
  Status chooseRows(const Planner &planner);
  /// Thresholds, bytes and the choice, now that the bandwidth is known.
  void applyPlan(const RunPlan &plan);
  void compareRoutes();
  void timeRoutes();
  Status timePrompt();

  const RunOptions &options;
  std::optional<measure::Gpu> gpu;
  std::string text;
  std::optional<SpecInterpreter> exact, rounded;
  check::Trace trace;
  RunReport report;
  Progress progress;
};

} // namespace

static int fail(const Status &status) {
  printError(status);
  return status.code() == ErrorCode::InvalidArgument ? 2 : 1;
}

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// What to run
//===----------------------------------------------------------------------===//

Status RunCommand::checkOptions() const {
  if (options.source.file == "-")
    return invalid("run compiles its file several times, so it cannot be "
                   "standard input\nnote: write it to a file");
  if (options.route != "auto" && !parseRoute(options.route))
    return invalid(fmt::format(
        "unknown route '{}'\nnote: routes are auto, recurrent, outer, inner, "
        "adjoint and kv_only",
        options.route));
  for (auto [name, value] :
       {std::pair("threshold", options.threshold),
        std::pair("rows", options.rows), std::pair("threads", options.threads)})
    if (value && *value < 1)
      return invalid(
          fmt::format("--{} is {}, wanted a positive number", name, *value));
  if (options.threshold > options.source.capacity)
    return invalid(fmt::format("--threshold is {}, wanted 1 to the capacity, "
                               "{}\nnote: --capacity makes the buffer larger",
                               *options.threshold, options.source.capacity));
  if (options.threads > maxThreads)
    return invalid(fmt::format("--threads is {}, wanted {} at most",
                               *options.threads, maxThreads));
  return Status();
}

Status RunCommand::chooseTarget() {
  Result<RunTarget> chosen = RunTarget::choose(options.target, options.threads);
  if (!chosen)
    return chosen.status();
  static_cast<RunMachine &>(report) = chosen->machine;
  gpu = std::move(chosen->gpu);
  if (gpu) {
    report.driverVersion = chosen->device->driverVersion;
    report.contextSeconds = cuda::Device::shared()->openSeconds();
  }
  return Status();
}

Status RunCommand::checkRoute(const RunPlan &plan) const {
  if (options.route == "auto")
    return Status();
  for (const RoutePlan &route : plan.routes)
    if (route.route == options.route && !route.isLegal())
      return invalid(fmt::format("route '{}' is not legal for '{}': {}",
                                 route.route, report.recurrence,
                                 route.obstacle));
  return Status();
}

Status RunCommand::makeOracles() {
  Result<std::string> read = readFile(options.source.file);
  if (!read)
    return read.status();
  text = std::move(*read);

  frontend::ElaborationOptions elaboration = elaborationOf(options.source);
  if (!options.source.stateType.empty())
    elaboration.stateTypes["*"] = options.source.stateType;
  auto compile = [&](interpreter::Precision entries, auto &oracle) {
    std::string messages;
    oracle = check::compileOracle(options.source.file, text, elaboration,
                                  messages, entries);
    return oracle ? Status() : Status(ErrorCode::InvalidData, messages);
  };
  if (Status status = compile(interpreter::Precision::Float64, exact); !status)
    return status;
  const std::string &entries = options.source.entryType;
  if (entries == "f32")
    return Status();
  return compile(entries == "bf16" ? interpreter::Precision::Bfloat16
                                   : interpreter::Precision::Float16,
                 rounded);
}

Status RunCommand::loadInputs() {
  if (options.trace.empty()) {
    report.inputs = "random inputs";
    trace = makeRandomTrace(*exact, std::min(options.tokens, randomTokens),
                            /*seed=*/1);
    return Status();
  }
  report.inputs = options.trace;
  Result<check::Trace> loaded =
      loadTrace(options.trace, *exact, options.tokens);
  if (!loaded)
    return invalid(loaded.message());
  trace = std::move(*loaded);
  return Status();
}

CompileOptions RunCommand::compileOptions() const {
  CompileOptions compile = compileOptionsOf(options.source);
  compile.target = gpu ? "cuda" : "cpu";
  return compile;
}

void RunCommand::compileRoutes(const RunPlan &plan) {
  CompileOptions compile = compileOptions();
  progress.show("compiling", 0, 1);
  auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  report.routes.resize(plan.routes.size());
  for (size_t i = 0; i < plan.routes.size(); ++i) {
    report.routes[i].plan = plan.routes[i];
    if (plan.routes[i].isLegal())
      threads.emplace_back(
          [&, &route = report.routes[i], each = compile]() mutable {
            each.route = route.plan.route;
            Result<Program> program =
                compileSource(text, options.source.file, each);
            if (program)
              route.program = std::move(*program);
            else
              route.failure = program.message();
          });
  }
  for (std::thread &thread : threads)
    thread.join();
  report.compileSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
}

//===----------------------------------------------------------------------===//
// How large
//===----------------------------------------------------------------------===//

static int64_t bytesOf(std::span<const TensorSpec> tensors) {
  int64_t bytes = 0;
  for (const TensorSpec &tensor : tensors) {
    int64_t count = sizeInBytes(tensor.dtype);
    for (int64_t size : tensor.shape)
      count *= size;
    bytes += count;
  }
  return bytes;
}

/// What a row needs besides its states: entries, carries, inputs and outputs.
int64_t RunCommand::bytesBesideStates() const {
  int64_t most = 0;
  for (const RouteReport &route : report.routes) {
    if (!route.program)
      continue;
    const Signature &signature = route.program->signature();
    most = std::max(
        most, bytesOf(route.program->fields()) * route.program->capacity() +
                  bytesOf(signature.carries) + bytesOf(signature.tokens) +
                  bytesOf(signature.outputs));
  }
  return most;
}

Status RunCommand::chooseRows(const Planner &planner) {
  report.stateBytes = std::max<int64_t>(1, planner.stateBytes());
  int64_t rowBytes = report.stateBytes + bytesBesideStates();
  int64_t available = report.host.availableMemory;
  if (options.rows) {
    report.rows = *options.rows;
    // 0 if the system does not say.
    int64_t most = available / rowBytes;
    if (available == 0 || report.rows <= most)
      return Status();
    return invalid(fmt::format(
        "{} rows need {} of memory, {} are available\nnote: --rows {} is the "
        "most that fits",
        report.rows, formatBytes(double(report.rows) * double(rowBytes)),
        formatBytes(double(available)), most));
  }
  constexpr int64_t most = int64_t(1) << 30;
  int64_t wanted = (4 * report.host.cacheBytes() + report.stateBytes - 1) /
                   report.stateBytes;
  int64_t possible = std::max<int64_t>(1, available / 2 / rowBytes);
  report.rows = std::min({wanted, possible, most});
  report.isCapped = report.rows < wanted;
  return Status();
}

RunPlan RunCommand::makePlan(const Planner &planner) {
  int64_t bytes = report.rows * report.stateBytes;
  int64_t threshold = options.threshold.value_or(0);
  progress.show("measuring the memory", 0, 1);
  if (!gpu) {
    report.bandwidth =
        measureBandwidth(bytes, report.threads, bandwidthSeconds);
    return planner.plan(report.bandwidth, report.threads, report.rows,
                        threshold);
  }
  constexpr int64_t least = int64_t(64) << 20;
  Result<measure::Ceilings> ceilings = measure::Ceilings::measure(
      *gpu, std::max({bytes, 4 * report.host.cacheBytes(), least}));
  if (ceilings) {
    report.bandwidth = {ceilings->read().bytesPerSecond(),
                        ceilings->update().bytesPerSecond()};
  } else {
    report.note = ceilings.message();
  }
  const cuda::Device &device = gpu->device();
  return planner.plan(
      Rates::gpu(device.name(), report.bandwidth, device.multiprocessors()),
      report.rows, threshold);
}

void RunCommand::applyPlan(const RunPlan &plan) {
  for (size_t i = 0; i < plan.routes.size(); ++i) {
    report.routes[i].plan = plan.routes[i];
    if (options.route == plan.routes[i].route)
      report.chosen = i;
  }
  if (options.route == "auto")
    report.chosen = plan.chosen;
  report.isForced = options.route != "auto";
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

void RunCommand::compareRoutes() {
  std::vector<Candidate> candidates;
  std::vector<RouteReport *> compared;
  for (RouteReport &route : report.routes) {
    if (!route.program)
      continue;
    candidates.push_back({*route.program, route.plan.threshold});
    compared.push_back(&route);
  }
  report.comparedTokens = static_cast<int64_t>(trace.tokens.size());
  report.comparedRows = std::min(comparedRows, report.comparedTokens);
  std::vector<RouteErrors> errors =
      compareWithOracle(candidates, trace, *exact, rounded ? *rounded : *exact,
                        report.comparedRows, [&](double part) {
                          progress.show("comparing with the oracle", part, 1);
                        });
  for (size_t i = 0; i < errors.size(); ++i) {
    compared[i]->failure = errors[i].failure;
    compared[i]->errors = std::move(errors[i]);
  }
}

void RunCommand::timeRoutes() {
  for (size_t i = 0; i < report.routes.size(); ++i) {
    RouteReport &route = report.routes[i];
    if (!route.program || !route.failure.empty())
      continue;
    bool isChosen = i == report.chosen;
    int64_t m = route.plan.threshold;
    TimingOptions timing;
    timing.rows = report.rows;
    timing.threshold = m;
    timing.threads = static_cast<int>(options.threads.value_or(0));
    timing.minSteps = m;
    timing.maxSteps =
        std::max(m, isChosen ? options.tokens : std::max<int64_t>(3 * m, 24));
    timing.budget = isChosen ? chosenBudget : otherBudget;
    auto measure = [&](const char *what, Timing &into) {
      Result<Timing> result =
          timeDecode(*route.program, trace, timing, [&](double part) {
            progress.show(fmt::format("{}, {}", route.plan.route, what), part,
                          1);
          });
      if (result)
        into = *result;
      else
        route.failure = result.message();
    };
    measure("all rows", route.batch);
    if (!route.failure.empty())
      continue;
    timing.rows = 1;
    // Whole cycles: a single row folds in some steps and not in others.
    timing.maxSteps = (options.tokens + m - 1) / m * m;
    timing.budget = singleBudget;
    measure("one row", route.single);
  }
}

/// A prompt by the chosen route, of the CPU.
Status RunCommand::timePrompt() {
  const RouteReport &route = report.routes[report.chosen];
  if (gpu || !route.program || !route.failure.empty())
    return Status();
  CompileOptions compile = compileOptions();
  compile.route = route.plan.route;
  compile.prefill = true;
  compile.chunk = report.chunk = options.chunk;
  Result<Program> program = compileSource(text, options.source.file, compile);
  if (!program)
    return program.status();
  progress.show("a prompt", 0, 1);
  Result<Timing> timing =
      timePrefill(*program, trace, options.tokens,
                  static_cast<int>(options.threads.value_or(0)));
  if (timing)
    report.prompt = *timing;
  return timing.status();
}

std::optional<std::string> RunCommand::findAttention() const {
  // Standard input can be read once, and is refused for recurrences.
  if (options.source.file == "-")
    return std::nullopt;
  Result<std::string> contents = readFile(options.source.file);
  if (!contents)
    return std::nullopt;
  if (!check::choosesAttention(options.source.file, *contents,
                               elaborationOf(options.source)))
    return std::nullopt;
  return *contents;
}

int RunCommand::run() {
  if (Status status = checkOptions(); !status)
    return fail(status);
  std::optional<Planner> planner = Planner::create(options.source);
  if (!planner)
    return 1;
  report.file = options.source.file;
  report.recurrence = planner->recurrence();
  if (Status status = chooseTarget(); !status)
    return fail(status);
  RunPlan plan = planner->plan({1e10, 1e10}, report.threads, 1, 0);
  if (Status status = checkRoute(plan); !status)
    return fail(status);
  if (Status status = makeOracles(); !status)
    return fail(status);
  if (Status status = loadInputs(); !status)
    return fail(status);
  report.tokens = options.tokens;

  compileRoutes(plan);
  Status fits = chooseRows(*planner);
  if (!fits) {
    progress.clear();
    return fail(fits);
  }
  applyPlan(makePlan(*planner));
  compareRoutes();
  timeRoutes();
  Status prompted = timePrompt();
  progress.clear();
  if (!prompted)
    return fail(prompted);
  std::string output = options.json ? report.json() : report.table();
  std::fputs(output.c_str(), stdout);
  return report.passed() ? 0 : 1;
}

int tool::run(const RunOptions &options) {
  RunCommand command(options);
  if (std::optional<std::string> attention = command.findAttention())
    return runAttention(options, *attention);
  if (!options.params.empty() || !options.paramsPrefix.empty()) {
    printError(Status(ErrorCode::InvalidArgument,
                      "--params is for attentions, and the file declares a "
                      "recurrence\nnote: its parameters come from --trace"));
    return 2;
  }
  return command.run();
}
