//===- BenchDrafts.cpp - ladle bench --drafts -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TunedTable.h"
#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/DraftReport.h"
#include "tools/ladle/DraftTimer.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

static constexpr const char *kSchema = "ladle-bench-drafts-2";

namespace {

class DraftBench {
public:
  DraftBench(const BenchOptions &options, const measure::Gpu &gpu)
      : options(options), gpu(gpu) {}
  Status run();

private:
  Status open();
  std::vector<DraftSpec> listSpecs() const;
  Status beginRun();
  Json describeRun() const;
  /// In place of the route `auto`: what was tuned, or else what the model
  /// chooses.
  Result<DraftSpec> choose(const DraftSpec &spec);
  /// Why it is left out; empty if it was measured or known.
  Result<std::string> take(const DraftSpec &spec);
  Result<std::string> measure(const DraftSpec &spec, const DraftCost &cost,
                              const std::string &kernels);
  Result<Json> time(const DraftSpec &spec, const DraftCost &cost);
  bool isOutOfTime() const {
    return options.budget > 0 && elapsed() + longest > options.budget;
  }
  double elapsed() const {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  double longest = 0;
  bool isCutShort = false;
  const BenchOptions &options;
  const measure::Gpu &gpu;
  std::optional<BenchStore> store;
  std::optional<measure::Ceilings> ceilings;
  DraftPlans plans;
  DraftReport report;
};

} // namespace

static BenchKey keyOf(const DraftSpec &spec, bool startsEarly) {
  BenchKey key{spec.source.file,      spec.source.preset,
               spec.source.sizes,     spec.route,
               spec.source.stateType, spec.source.entryType,
               spec.threshold,        spec.batch,
               spec.schedule,         spec.source.stateLayout,
               spec.drafts,           startsEarly};
  return key;
}

/// One number of drafts after another, the routes and batches of each.
std::vector<DraftSpec> DraftBench::listSpecs() const {
  std::vector<std::string> routes = options.routes;
  if (routes.empty())
    routes = {"inner"};
  std::vector<DraftSpec> specs;
  for (int64_t drafts : options.drafts)
    for (const std::string &state : options.states)
      for (const std::string &entry : options.entries)
        for (int64_t m : options.thresholds)
          for (const std::string &route : routes)
            for (int64_t batch : options.batches) {
              SourceOptions source = options.source;
              source.stateType = state;
              source.entryType = entry;
              specs.push_back(
                  {source, route, drafts, m, batch, options.schedule});
            }
  return specs;
}

Result<DraftSpec> DraftBench::choose(const DraftSpec &spec) {
  std::vector<tune::Candidate> candidates;
  for (const char *route : {"inner", "outer", "adjoint"})
    candidates.push_back({route, spec.threshold, spec.schedule});
  DraftSpec chosen = spec;
  auto take = [&](const tune::Candidate &candidate) {
    chosen.route = candidate.route;
    chosen.threshold = candidate.threshold;
    chosen.schedule = candidate.schedule;
  };
  auto modelled = chooseLeast(
      candidates, [&](const tune::Candidate &each) -> std::optional<double> {
        const Planner *planner = plans.find(spec);
        DraftPlan plan;
        if (planner)
          plan = planner->draftPlan(each.route, Rates::gpu(gpu.device().name()),
                                    spec.batch, each.threshold,
                                    static_cast<double>(spec.drafts) / 2);
        if (!planner || !plan.obstacle.empty())
          return std::nullopt;
        return plan.predicted;
      });
  if (!modelled)
    return Status(ErrorCode::InvalidArgument,
                  "none of the routes verifies all drafts of a row at once");
  take(*modelled);
  Result<jit::GpuProgram> program = chosen.compile();
  if (!program)
    return program.status();
  if (auto tuned =
          tune::lookupTuned(gpu.device().name(), program->signature,
                            spec.source.entryType, spec.batch, spec.drafts))
    take(tuned->candidate);
  return chosen;
}

//===----------------------------------------------------------------------===//
// One figure
//===----------------------------------------------------------------------===//

static double micro(double seconds) { return std::round(seconds * 1e9) / 1e3; }

static Json describe(Json figure, const std::vector<double> &samples,
                     double limit) {
  double seconds = measure::median(samples);
  figure["us_a_step"] = micro(seconds);
  figure["limit_us"] = micro(limit);
  figure["of_limit"] = std::round(1000 * limit / seconds) / 1000;
  if (figure.contains("accepted"))
    figure["tokens_per_s_a_row"] = std::round(
        static_cast<double>(figure["accepted"].get<int64_t>() + 1) / seconds);
  for (double each : samples)
    figure["samples_us"].push_back(micro(each));
  return figure;
}

Result<Json> DraftBench::time(const DraftSpec &spec, const DraftCost &cost) {
  Bandwidth bandwidth{ceilings->read().bytesPerSecond(),
                      ceilings->update().bytesPerSecond()};
  auto rows = static_cast<double>(spec.batch);
  auto limitOf = [&](const DraftStep &step) {
    return rows * cost.leastSeconds(step, bandwidth);
  };
  auto at = [&](int64_t fill) {
    return DraftStep(fill, spec.drafts, spec.threshold);
  };
  DraftTimer::Options timing;
  timing.modelLayers = options.modelLayers;
  timing.startsEarly = options.early;
  timing.restSeconds = 0.25;
  timing.leastSeconds = limitOf(at(0));
  timing.rowBytes = cost.bytes(0);
  auto timer = DraftTimer::create(spec, gpu, timing);
  if (!timer)
    return timer.status();
  Json figures = Json::array();
  for (bool branches : {false, true}) {
    if (branches && spec.drafts < 3)
      break;
    const char *tree = branches ? "tree" : "chain";
    std::vector<int64_t> fills{0, spec.threshold / 2, spec.threshold};
    fills.erase(std::unique(fills.begin(), fills.end()), fills.end());
    for (int64_t fill : fills) {
      auto samples = (*timer)->timeVerify(branches, fill, options.samples);
      if (!samples)
        return samples.status();
      figures.push_back(
          describe({{"tree", tree}, {"h", fill}, {"folds", at(fill).folds}},
                   *samples, limitOf(at(fill))));
    }
    std::vector<int64_t> parts{spec.drafts, spec.drafts / 2, 0};
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (int64_t accepted : parts) {
      if (Status status =
              (*timer)->recordCycle(branches, static_cast<double>(accepted));
          !status)
        return status;
      std::vector<double> samples;
      for (int64_t i = 0; i < options.samples; ++i) {
        Result<double> seconds = (*timer)->sampleCycle();
        if (!seconds)
          return seconds.status();
        samples.push_back(*seconds);
      }
      // A tree has no path of all its drafts.
      int64_t taken = (*timer)->acceptedByFirstRow();
      figures.push_back(
          describe({{"tree", tree}, {"accepted", taken}}, samples,
                   meanOfCycle(spec.drafts, static_cast<double>(taken),
                               spec.threshold, limitOf)));
    }
  }
  return Json{{"layers", (*timer)->layerCount()}, {"figures", figures}};
}

/// The first line: the rest shows sources.
static std::string firstLine(const std::string &text) {
  return text.substr(0, text.find('\n'));
}

Result<std::string> DraftBench::measure(const DraftSpec &spec,
                                        const DraftCost &cost,
                                        const std::string &kernels) {
  if (!ceilings)
    if (Status status = beginRun(); !status)
      return status;
  if (!options.skipCheck) {
    Result<std::string> wrong = spec.check();
    if (!wrong)
      return wrong.status();
    if (!wrong->empty())
      return Status(ErrorCode::Internal, *wrong);
  }
  Result<Json> timed = time(spec, cost);
  if (!timed)
    return timed.status();
  Json result{{"kernels", kernels}, {"model_layers", options.modelLayers}};
  result.update(*timed);
  store->updateRun(describeRun());
  if (Status status = store->add(keyOf(spec, options.early), result); !status)
    return status;
  return std::string();
}

Result<std::string> DraftBench::take(const DraftSpec &spec) {
  const Planner *planner = plans.find(spec);
  if (!planner)
    return Status(ErrorCode::InvalidData, "the file cannot be planned");
  // Rates do not matter to what is legal.
  DraftPlan plan = planner->draftPlan(spec.route, Rates::gpu(""), 1,
                                      spec.threshold, /*accepted=*/0);
  if (!plan.obstacle.empty())
    return plan.obstacle;
  Result<jit::GpuProgram> program = spec.compile();
  if (!program)
    return firstLine(program.message());
  std::string kernels = tune::fingerprintOf(program->text);
  auto findKnown = [&]() -> const Json * {
    const Json *known = store->find(keyOf(spec, options.early));
    bool isSame =
        known && known->value("kernels", "") == kernels &&
        known->value("model_layers", int64_t(0)) == options.modelLayers;
    return isSame ? known : nullptr;
  };
  if (!findKnown()) {
    if (isOutOfTime()) {
      isCutShort = true;
      return std::string();
    }
    double before = elapsed();
    std::optional<DraftCost> cost = planner->draftCost(spec.route);
    if (Result<std::string> why = measure(spec, *cost, kernels);
        !why || !why->empty())
      return why;
    longest = std::max(longest, elapsed() - before);
  }
  // Without a file nothing is found that was not just measured.
  if (const Json *known = findKnown())
    report.add(*known, *planner->memory(spec.route));
  return std::string();
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

Json DraftBench::describeRun() const {
  return {{"date", today()},
          {"command", options.commandLine},
          {"driver", gpu.driver()},
          {"read_gb_per_s", ceilings->read().bytesPerSecond() / 1e9},
          {"update_gb_per_s", ceilings->update().bytesPerSecond() / 1e9}};
}

Status DraftBench::beginRun() {
  Result<measure::Ceilings> measured = measure::Ceilings::measure(gpu);
  if (!measured)
    return measured.status();
  ceilings.emplace(std::move(*measured));
  store->beginRun(describeRun());
  fmt::print(
      "ceilings: {:.0f} GB/s reading, {:.0f} GB/s updating in place; one "
      "commit in {} steps of a layer\n",
      ceilings->read().bytesPerSecond() / 1e9,
      ceilings->update().bytesPerSecond() / 1e9, options.modelLayers);
  return Status();
}

Status DraftBench::open() {
  Result<BenchStore> opened =
      BenchStore::open(options.json, gpu.device().name(), kSchema);
  if (!opened)
    return opened.status();
  store.emplace(std::move(*opened));
  fmt::print("{} {} on {}, driver {}\n", options.source.file,
             options.source.preset, gpu.device().name(), gpu.driver());
  return Status();
}

Status DraftBench::run() {
  if (Status status = open(); !status)
    return status;
  std::vector<DraftSpec> specs = listSpecs();
  std::string last;
  for (size_t i = 0; i < specs.size(); ++i) {
    DraftSpec spec = specs[i];
    if (spec.route == "auto") {
      Result<DraftSpec> chosen = choose(spec);
      if (!chosen)
        return chosen.status();
      spec = std::move(*chosen);
    }
    Result<std::string> why = take(spec);
    if (!why)
      return Status(why.status().code(),
                    fmt::format("{}\nnote: repeat with: {}", why.message(),
                                spec.reproducer()));
    if (isCutShort) {
      fmt::print(
          "the budget ends before figure {} of {}{}\n", i + 1, specs.size(),
          options.json.empty() ? "" : "; the same command goes on there");
      break;
    }
    std::string line =
        fmt::format("{} with {} drafts and m = {} is left out: {}\n",
                    spec.route, spec.drafts, spec.threshold, *why);
    // Batches have the same reasons.
    if (!why->empty() && line != last)
      fmt::print("{}", line);
    last = line;
    std::fflush(stdout);
  }
  report.summarise(options.modelLayers, options.memory);
  return Status();
}

int tool::benchDrafts(const BenchOptions &options, const measure::Gpu &gpu) {
  if (std::string wrong = jit::checkLayout(options.schedule); !wrong.empty()) {
    fmt::print(stderr, "error: {}\n", wrong);
    return 2;
  }
  if (Status status = DraftBench(options, gpu).run(); !status) {
    fmt::print(stderr, "error: {}\n", status.message());
    return 1;
  }
  return 0;
}
