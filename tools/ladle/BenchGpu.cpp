//===- BenchGpu.cpp - ladle bench on a GPU --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/Plan.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/GpuCycle.h"
#include "tools/measure/Statistics.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using measure::median;
using Json = nlohmann::ordered_json;

/// Memory for the ceilings: as much as the states of a large batch.
static constexpr int64_t kCeilingBytes = int64_t(2) << 30;
/// f32 flops a second that a card is taken to do. The kernels here stream, so
/// that little depends on it.
static constexpr double kFlops = 60e12;

namespace {

/// A program on the device, and what is known of it.
struct Compiled {
  jit::GpuProgram program;
  measure::LoadedKernels kernels;
  measure::GpuReference *reference = nullptr;
  std::optional<measure::GpuVerdict> verdict;
};

class GpuBench {
public:
  GpuBench(const BenchOptions &options, const measure::Gpu &gpu)
      : options(options), gpu(gpu) {}
  Status run();
  bool isWrong = false; ///< an answer was out of bounds

private:
  struct Figure {
    BenchKey key;
    SourceOptions source;
  };
  std::vector<Figure> listFigures() const;
  Status beginRun();
  Json describeRun() const;
  Status measureFigure(const Figure &figure);
  Result<Json> timeFigure(const Figure &figure, const RoutePlan &plan,
                          const Compiled &compiled);
  Result<Compiled *> compile(const Figure &figure);
  Result<measure::GpuReference *> reference(const Figure &figure);
  const RoutePlan *planOf(const Figure &figure, RunPlan &plan);
  Rates rates() const;
  void print(const Json &figures);

  BenchOptions options;
  const measure::Gpu &gpu;
  std::optional<BenchStore> store;
  std::optional<measure::Ceilings> ceilings;
  std::map<std::string, Planner> planners;
  std::map<std::string, measure::GpuReference> references;
  std::map<std::string, Compiled> programs;
  bool hasHeadings = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Figures
//===----------------------------------------------------------------------===//

std::vector<GpuBench::Figure> GpuBench::listFigures() const {
  std::vector<std::string> routes = options.routes;
  if (routes.empty())
    routes = {"recurrent", "inner", "outer", "adjoint", "kv_only"};
  std::vector<Figure> figures;
  for (const std::string &state : options.states)
    for (const std::string &entry : options.entries)
      for (int64_t threshold : options.thresholds)
        for (const std::string &route : routes)
          for (int64_t batch : options.batches) {
            // A route without a buffer knows neither m nor entries.
            bool repeats = route == "recurrent" &&
                           (entry != options.entries.front() ||
                            threshold != options.thresholds.front());
            if (repeats)
              continue;
            Figure figure;
            figure.source = options.source;
            figure.source.stateType = state;
            figure.source.entryType = entry;
            figure.source.capacity = threshold;
            bool buffers = route != "recurrent";
            figure.key = {options.source.file,
                          options.source.preset,
                          options.source.sizes,
                          route,
                          state,
                          buffers ? entry : "",
                          buffers ? threshold : 1,
                          batch,
                          options.schedule};
            figures.push_back(std::move(figure));
          }
  return figures;
}

Rates GpuBench::rates() const {
  return {
      {ceilings->read().bytesPerSecond(), ceilings->update().bytesPerSecond()},
      kFlops,
      ceilings->launchSeconds()};
}

static std::vector<double> rounded(std::vector<double> values, double unit) {
  for (double &value : values)
    value = std::round(value / unit * 1000) / 1000;
  return values;
}

Json GpuBench::describeRun() const {
  auto describe = [](const measure::Ceiling &ceiling) -> Json {
    return {{"gb_per_s", std::round(ceiling.bytesPerSecond() / 1e8) / 10},
            {"variant", ceiling.variant},
            {"samples", rounded(ceiling.samples, 1e9)}};
  };
  return {{"date", today()},
          {"command", options.commandLine},
          {"driver", gpu.driver()},
          {"cuda", gpu.cudaVersion()},
          {"arch", gpu.device().arch()},
          {"l2_bytes", gpu.device().cacheBytes()},
          {"launch_us", std::round(ceilings->launchSeconds() * 1e9) / 1e3},
          {"read_ceiling", describe(ceilings->read())},
          {"update_ceiling", describe(ceilings->update())}};
}

Status GpuBench::beginRun() {
  Result<measure::Ceilings> measured =
      measure::Ceilings::measure(gpu, kCeilingBytes);
  if (!measured)
    return measured.status();
  ceilings.emplace(std::move(*measured));
  store->beginRun(describeRun());
  fmt::print(
      "ceilings: {:.0f} GB/s reading ({}), {:.0f} GB/s updating in place "
      "({}), {:.2f} µs a launch\n",
      ceilings->read().bytesPerSecond() / 1e9, ceilings->read().variant,
      ceilings->update().bytesPerSecond() / 1e9, ceilings->update().variant,
      ceilings->launchSeconds() * 1e6);
  return Status();
}

//===----------------------------------------------------------------------===//
// One figure
//===----------------------------------------------------------------------===//

Result<measure::GpuReference *> GpuBench::reference(const Figure &figure) {
  std::string key = figure.key.state + " " + figure.key.entry;
  auto found = references.find(key);
  if (found == references.end()) {
    measure::GpuSource source{
        options.source.file, options.source.preset, options.source.sizes,
        figure.key.state, figure.key.entry.empty() ? "f32" : figure.key.entry};
    Result<measure::GpuReference> made = measure::GpuReference::create(source);
    if (!made)
      return made.status();
    found = references.emplace(key, std::move(*made)).first;
  }
  return &found->second;
}

std::string tool::applySchedule(const std::map<std::string, int64_t> &schedule,
                                jit::GpuRequest &request) {
  for (const auto &[name, value] : schedule) {
    if (name == "threads")
      request.threads = value;
    else if (name == "tile_rows")
      request.tileRows = value;
    else
      return fmt::format("kernels have no parameter '{}'\n"
                         "note: they have threads and tile_rows",
                         name);
  }
  return "";
}

Result<Compiled *> GpuBench::compile(const Figure &figure) {
  BenchKey key = figure.key;
  key.batch = 0;
  auto found = programs.find(key.str());
  if (found != programs.end())
    return &found->second;
  jit::GpuRequest request;
  request.path = key.file;
  request.preset = key.preset;
  request.sizes = key.sizes;
  request.route = key.route;
  request.stateType = key.state;
  request.entryType = figure.source.entryType;
  request.capacity = figure.source.capacity;
  if (std::string wrong = applySchedule(key.schedule, request); !wrong.empty())
    return Status(ErrorCode::InvalidArgument, wrong);
  std::string messages;
  std::optional<jit::GpuProgram> program =
      jit::compileForGpu(request, messages);
  if (!program)
    return Status(ErrorCode::InvalidData, messages);
  Result<measure::LoadedKernels> kernels = gpu.load(program->text);
  if (!kernels)
    return kernels.status();
  Compiled compiled{std::move(*program), std::move(*kernels), nullptr, {}};
  Result<measure::GpuReference *> reference = this->reference(figure);
  if (!reference)
    return reference.status();
  compiled.reference = *reference;
  if (!options.skipCheck) {
    Result<measure::GpuVerdict> verdict =
        measure::checkKernels(gpu, compiled.program, compiled.kernels,
                              key.route, key.threshold, **reference);
    if (!verdict)
      return verdict.status();
    compiled.verdict = *verdict;
  }
  // Of one file, but of as many routes and shapes as there are.
  return &programs.emplace(key.str(), std::move(compiled)).first->second;
}

const RoutePlan *GpuBench::planOf(const Figure &figure, RunPlan &plan) {
  std::string key =
      fmt::format("{} {} {}", figure.source.stateType, figure.source.entryType,
                  figure.source.capacity);
  auto found = planners.find(key);
  if (found == planners.end()) {
    std::optional<Planner> made = Planner::create(figure.source);
    if (!made)
      return nullptr;
    found = planners.emplace(key, std::move(*made)).first;
  }
  plan = found->second.plan(rates(), figure.key.batch, figure.source.capacity);
  for (const RoutePlan &route : plan.routes)
    if (route.route == figure.key.route)
      return &route;
  return nullptr;
}

Result<Json> GpuBench::timeFigure(const Figure &figure, const RoutePlan &plan,
                                  const Compiled &compiled) {
  double rowBytes = 0;
  for (const StateSpec &spec : compiled.program.signature.states)
    rowBytes += static_cast<double>(spec.heads * spec.keySize * spec.valueSize *
                                    sizeInBytes(spec.dtype));
  measure::GpuCycle::Shape shape;
  shape.rows = figure.key.batch;
  shape.threshold = figure.source.capacity;
  shape.grows = figure.key.route == "kv_only";
  shape.fills = static_cast<int64_t>(plan.bytesByFill.size());
  shape.rowBytes = shape.grows ? plan.bytes : rowBytes;
  shape.leastSeconds = plan.leastSeconds(rates().bandwidth) *
                       static_cast<double>(figure.key.batch);
  auto cycle = measure::GpuCycle::create(
      gpu, compiled.program, compiled.kernels, shape, *compiled.reference);
  if (!cycle)
    return cycle.status();
  std::vector<std::vector<double>> samples;
  if (Status status = ceilings->again(); !status)
    return status;
  for (int64_t i = 0; i < options.samples; ++i)
    if (Status status = (*cycle)->sampleAll(samples); !status)
      return status;
  if (Status status = ceilings->again(); !status)
    return status;

  auto rows = static_cast<double>(figure.key.batch);
  std::vector<double> medians, limits;
  double step = 0, limit = 0;
  Json raw = Json::array();
  for (size_t fill = 0; fill < samples.size(); ++fill) {
    medians.push_back(median(samples[fill]));
    limits.push_back(rows * plan.leastSecondsAt(fill, rates().bandwidth));
    step += medians.back() / static_cast<double>(samples.size());
    limit += limits.back() / static_cast<double>(samples.size());
    raw.push_back(rounded(samples[fill], 1e-6));
  }
  return Json{{"us_a_step", rounded({step}, 1e-6)[0]},
              {"limit_us", rounded({limit}, 1e-6)[0]},
              {"of_limit", rounded({limit / step}, 1)[0]},
              {"predicted_us", rounded({plan.seconds}, 1e-6)[0]},
              {"bytes_a_step", plan.bytes * rows},
              {"layers", (*cycle)->layerCount()},
              {"rotated_bytes", (*cycle)->rotatedBytes()},
              {"us_by_fill", rounded(medians, 1e-6)},
              {"limit_us_by_fill", rounded(limits, 1e-6)},
              {"samples_us_by_fill", raw}};
}

Status GpuBench::measureFigure(const Figure &figure) {
  RunPlan plans;
  const RoutePlan *plan = planOf(figure, plans);
  if (!plan)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("no plan for route '{}'\nnote: routes are "
                              "recurrent, inner, outer, adjoint and kv_only",
                              figure.key.route));
  if (!plan->isLegal()) {
    if (figure.key.batch == options.batches.front())
      fmt::print("{} is left out: {}\n", figure.key.route, plan->obstacle);
    return Status();
  }
  Result<Compiled *> compiled = compile(figure);
  if (!compiled)
    return compiled.status();
  const Compiled &kernels = **compiled;
  if (kernels.verdict && !kernels.verdict->passed()) {
    isWrong = true;
    fmt::print("{} is wrong by {:.2g} of the largest answer, allowed is "
               "{:.2g}: not timed\n",
               figure.key.str(), kernels.verdict->error,
               kernels.verdict->bound);
    return Status();
  }
  Result<Json> timed = timeFigure(figure, *plan, kernels);
  if (!timed)
    return timed.status();
  Json figures = std::move(*timed);
  if (kernels.verdict) {
    figures["error"] = kernels.verdict->error;
    figures["error_bound"] = kernels.verdict->bound;
  }
  for (const KernelResources &each : kernels.kernels.resources) {
    figures["registers"].push_back(each.registers);
    figures["spilled_bytes"].push_back(each.spillStores + each.spillLoads);
  }
  store->updateRun(describeRun());
  return store->add(figure.key, std::move(figures));
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

void GpuBench::print(const Json &figures) {
  if (!hasHeadings)
    fmt::print("\n{:>9} {:>6} {:>7} {:>3} {:>6} {:>11} {:>11} {:>11} {:>11} "
               "{:>11} {:>8} {:>11}\n",
               "route", "states", "entries", "m", "batch", "empty", "half",
               "last", "a step", "limit", "of limit", "predicted");
  hasHeadings = true;
  auto time = [](double microseconds) {
    return formatTime(microseconds * 1e-6);
  };
  auto byFill = figures["us_by_fill"].get<std::vector<double>>();
  fmt::print(
      "{:>9} {:>6} {:>7} {:>3} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} "
      "{:>6.1f} % {:>11}\n",
      figures["route"].get<std::string>(), figures["state"].get<std::string>(),
      figures["entry"].get<std::string>(), figures["m"].get<int64_t>(),
      figures["batch"].get<int64_t>(), time(byFill.front()),
      time(byFill[byFill.size() / 2]), time(byFill.back()),
      time(figures["us_a_step"]), time(figures["limit_us"]),
      100 * figures["of_limit"].get<double>(), time(figures["predicted_us"]));
  std::fflush(stdout);
}

Status GpuBench::run() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  Result<BenchStore> opened =
      BenchStore::open(options.json, gpu.device().name());
  if (!opened)
    return opened.status();
  store.emplace(std::move(*opened));
  fmt::print("{} {} on {}, driver {}\n", options.source.file,
             options.source.preset, gpu.device().name(), gpu.driver());
  std::vector<Figure> figures = listFigures();
  Progress progress;
  double longest = 0;
  for (size_t i = 0; i < figures.size(); ++i) {
    const Figure &figure = figures[i];
    if (const Json *known = store->find(figure.key)) {
      print(*known);
      continue;
    }
    if (options.budget > 0 && elapsed() + longest > options.budget) {
      progress.clear();
      fmt::print(
          "the budget ends before figure {} of {}{}\n", i + 1, figures.size(),
          options.json.empty() ? "" : "; the same command goes on there");
      return Status();
    }
    if (!ceilings)
      if (Status status = beginRun(); !status)
        return status;
    progress.show(figure.key.route, static_cast<double>(i),
                  static_cast<double>(figures.size()));
    double before = elapsed();
    Status status = measureFigure(figure);
    progress.clear();
    if (!status)
      return Status(status.code(),
                    fmt::format("{}\nnote: this was {}", status.message(),
                                figure.key.str()));
    longest = std::max(longest, elapsed() - before);
    if (const Json *measured = store->find(figure.key))
      print(*measured);
  }
  return Status();
}

int tool::benchOnGpu(const BenchOptions &options, const measure::Gpu &gpu) {
  if (!options.source.recurrence.empty() || !options.source.options.empty()) {
    fmt::print(stderr,
               "error: on a GPU, bench takes neither --recurrence nor options "
               "in --set\nnote: put the recurrence into a file of its own\n");
    return 2;
  }
  GpuBench bench(options, gpu);
  if (Status status = bench.run(); !status) {
    fmt::print(stderr, "error: {}\n", status.message());
    return 1;
  }
  return bench.isWrong ? 1 : 0;
}
