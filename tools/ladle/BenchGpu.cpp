//===- BenchGpu.cpp - ladle bench on a GPU --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/Problem.h"
#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchFigures.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using measure::median;
using Json = nlohmann::ordered_json;

/// Memory for the ceilings: as much as the states of a large batch.

namespace {

struct Checked {
  GpuSubject subject;
  std::optional<measure::GpuVerdict> verdict;
  measure::HostCosts host;
};

class GpuBench {
public:
  GpuBench(const BenchOptions &options, const measure::Gpu &gpu)
      : options(options), gpu(gpu), programs(gpu) {}
  Status run();
  bool isWrong = false; ///< an answer was out of bounds

private:
  Status beginRun();
  Json describeRun() const;
  Status measureFigure(const BenchFigure &figure);
  Status profileFigure(const BenchFigure &figure);
  Result<Json> timeFigure(const BenchFigure &figure, const RoutePlan &plan,
                          const GpuSubject &subject);
  /// A kernel that holds one form alone, and the graphs of its steps.
  struct Alone {
    std::string form;
    GpuSubject subject;
    std::unique_ptr<measure::GpuCycle> cycle;
    std::vector<std::vector<double>> samples;
  };
  Result<std::vector<Alone>> loadForms(const BenchFigure &figure,
                                       const RoutePlan &plan);
  Result<const Checked *> load(const BenchFigure &figure);
  const std::string &kernelsOf(const BenchFigure &figure);
  std::vector<std::string> formsOf(const BenchFigure &figure) const;
  const Json *findKnown(const BenchFigure &figure);
  Rates rates() const;
  void print(const Json &figures);

  BenchOptions options;
  const measure::Gpu &gpu;
  std::optional<BenchStore> store;
  std::optional<measure::Ceilings> ceilings;
  GpuPlans plans;
  GpuPrograms programs;
  std::map<std::string, Checked> loaded;
  std::map<std::string, std::string> fingerprints; ///< of the kernels' text
  bool hasHeadings = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Figures
//===----------------------------------------------------------------------===//

Rates GpuBench::rates() const {
  return Rates::gpu(
      gpu.device().name(),
      {ceilings->read().bytesPerSecond(), ceilings->update().bytesPerSecond()},
      gpu.device().multiprocessors());
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
  Result<measure::Ceilings> measured = measure::Ceilings::measure(gpu);
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
  if (options.modelLayers > 0)
    fmt::print("cursors move once in {} steps of a layer, as the layers of a "
               "model share them (--layers)\n",
               options.modelLayers);
  fmt::print(
      "host: what a call takes it to launch a step outside of a graph\n");
  return Status();
}

//===----------------------------------------------------------------------===//
// One figure
//===----------------------------------------------------------------------===//

const std::string &GpuBench::kernelsOf(const BenchFigure &figure) {
  auto [found, isNew] = fingerprints.try_emplace(figure.spec.str());
  if (isNew)
    if (Result<jit::GpuProgram> program = compileSpec(figure.spec))
      found->second = tune::fingerprintOf(program->text);
  return found->second;
}

/// A figure of other kernels is none of these, nor is one of cursors that move
/// at other times.
const Json *GpuBench::findKnown(const BenchFigure &figure) {
  const Json *known = store->find(figure.key);
  if (!known || known->value("kernels", "") != kernelsOf(figure))
    return nullptr;
  bool isSame = figure.key.route == "recurrent" ||
                known->value("model_layers", int64_t(0)) == options.modelLayers;
  for (const std::string &form : formsOf(figure))
    isSame &= known->contains("forms") && (*known)["forms"].contains(form);
  isSame &= !options.early || known->contains("early");
  return isSame ? known : nullptr;
}

Result<const Checked *> GpuBench::load(const BenchFigure &figure) {
  auto found = loaded.find(figure.spec.str());
  if (found != loaded.end())
    return &found->second;
  Result<GpuSubject> subject = programs.load(figure.spec);
  if (!subject)
    return subject.status();
  Checked checked{std::move(*subject), {}, {}};
  if (!options.skipCheck) {
    Result<measure::GpuVerdict> verdict = programs.check(checked.subject);
    if (!verdict)
      return verdict.status();
    checked.verdict = *verdict;
  }
  Result<measure::HostCosts> host = programs.measureHost(checked.subject);
  if (!host)
    return host.status();
  checked.host = *host;
  return &loaded.emplace(figure.spec.str(), std::move(checked)).first->second;
}

/// Those that a figure's kernel is compared with.
std::vector<std::string> GpuBench::formsOf(const BenchFigure &figure) const {
  // Other routes do not hold two.
  bool holdsBoth = figure.key.route != "recurrent" &&
                   figure.key.route != "kv_only" && figure.key.threshold > 1;
  return holdsBoth ? options.forms : std::vector<std::string>();
}

Result<std::vector<GpuBench::Alone>>
GpuBench::loadForms(const BenchFigure &figure, const RoutePlan &plan) {
  std::vector<Alone> all;
  for (const std::string &form : formsOf(figure)) {
    GpuSpec spec = figure.spec;
    Result<int64_t> number = jit::formsOf({form});
    if (!number)
      return number.status();
    spec.schedule["forms"] = *number;
    Result<GpuSubject> subject = programs.load(spec);
    if (!subject)
      return subject.status();
    auto cycle = programs.record(*subject, plan, rates(), figure.key.batch,
                                 /*replaySeconds=*/2e-3, options.modelLayers);
    if (!cycle)
      return cycle.status();
    all.push_back({form, std::move(*subject), std::move(*cycle), {}});
  }
  return all;
}

/// A batch whose rows all take one form: what a kernel with both forms takes
/// for it, and one that holds this one alone. The last fill is what folds.
static Json compareForm(const std::string &form,
                        const std::vector<double> &bothByFill,
                        const std::vector<std::vector<double>> &samples) {
  size_t last = samples.size() - 1;
  size_t begin = form == "decode" ? 0 : last;
  size_t end = form == "decode" ? last : last + 1;
  double both = 0, alone = 0;
  for (size_t fill = begin; fill < end; ++fill) {
    both += bothByFill[fill] / static_cast<double>(end - begin);
    alone += median(samples[fill]) / static_cast<double>(end - begin);
  }
  return {{"us_alone", rounded({alone}, 1e-6)[0]},
          {"us_of_both", rounded({both}, 1e-6)[0]},
          {"ratio", rounded({both / alone}, 1)[0]}};
}

Result<Json> GpuBench::timeFigure(const BenchFigure &figure,
                                  const RoutePlan &plan,
                                  const GpuSubject &subject) {
  auto cycle = programs.record(subject, plan, rates(), figure.key.batch,
                               /*replaySeconds=*/2e-3, options.modelLayers);
  if (!cycle)
    return cycle.status();
  Result<std::vector<Alone>> alone = loadForms(figure, plan);
  if (!alone)
    return alone.status();
  std::unique_ptr<measure::GpuCycle> early;
  if (options.early) {
    auto made = programs.record(subject, plan, rates(), figure.key.batch,
                                /*replaySeconds=*/2e-3, options.modelLayers,
                                /*startsEarly=*/true);
    if (!made)
      return made.status();
    early = std::move(*made);
  }
  std::vector<std::vector<double>> samples, earlySamples;
  if (Status status = ceilings->again(); !status)
    return status;
  for (int64_t i = 0; i < options.samples; ++i) {
    if (Status status = (*cycle)->sampleAll(samples); !status)
      return status;
    for (Alone &each : *alone)
      if (Status status = each.cycle->sampleAll(each.samples); !status)
        return status;
    if (early)
      if (Status status = early->sampleAll(earlySamples); !status)
        return status;
  }
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
  Json forms = Json::object();
  for (const Alone &each : *alone)
    forms[each.form] = compareForm(each.form, medians, each.samples);
  Json figures{{"us_a_step", rounded({step}, 1e-6)[0]},
               {"limit_us", rounded({limit}, 1e-6)[0]},
               {"of_limit", rounded({limit / step}, 1)[0]},
               {"predicted_us", rounded({plan.seconds}, 1e-6)[0]},
               {"bytes_a_step", plan.bytes * rows},
               {"layers", (*cycle)->layerCount()},
               {"rotated_bytes", (*cycle)->rotatedBytes()},
               {"us_by_fill", rounded(medians, 1e-6)},
               {"limit_us_by_fill", rounded(limits, 1e-6)},
               {"samples_us_by_fill", raw}};
  if (!forms.empty())
    figures["forms"] = std::move(forms);
  if (early) {
    std::vector<double> byFill;
    double mean = 0;
    for (const std::vector<double> &each : earlySamples) {
      byFill.push_back(median(each));
      mean += byFill.back() / static_cast<double>(earlySamples.size());
    }
    figures["early"] = {{"us_a_step", rounded({mean}, 1e-6)[0]},
                        {"of_limit", rounded({limit / mean}, 1)[0]},
                        {"us_by_fill", rounded(byFill, 1e-6)}};
  }
  return figures;
}

/// One line a fill: what a profiler should find.
Status GpuBench::profileFigure(const BenchFigure &figure) {
  Rates expected = Rates::gpu(gpu.device().name());
  std::optional<RoutePlan> plan =
      plans.plan(figure.spec, expected, figure.key.batch);
  if (!plan || !plan->isLegal())
    return Status(ErrorCode::InvalidArgument,
                  plan ? plan->obstacle : "the file cannot be planned");
  Result<GpuSubject> subject = programs.load(figure.spec);
  if (!subject)
    return subject.status();
  auto cycle = programs.prepare(*subject, *plan, expected, figure.key.batch);
  if (!cycle)
    return cycle.status();
  for (size_t fill = 0; fill < plan->bytesByFill.size(); ++fill) {
    if (Status status = (*cycle)->launchOnce(static_cast<int64_t>(fill));
        !status)
      return status;
    Json line = figure.key.json();
    line["fill"] = fill;
    line["kernel"] = subject->program.decode.name;
    line["launches"] = (*cycle)->layerCount();
    line["bytes_a_launch"] =
        plan->bytesByFill[fill] * static_cast<double>(figure.key.batch);
    fmt::print("{}\n", line.dump());
  }
  return Status();
}

Status GpuBench::measureFigure(const BenchFigure &figure) {
  std::optional<RoutePlan> plan =
      plans.plan(figure.spec, rates(), figure.key.batch);
  if (!plan)
    return Status(ErrorCode::InvalidData, "the file cannot be planned");
  if (!plan->isLegal()) {
    if (figure.key.batch == options.batches.front())
      fmt::print("{} is left out: {}\n", figure.key.route, plan->obstacle);
    return Status();
  }
  Result<const Checked *> checked = load(figure);
  if (!checked)
    return checked.status();
  const Checked &kernels = **checked;
  if (kernels.verdict && !kernels.verdict->passed()) {
    isWrong = true;
    fmt::print("{}: wrong by {:.2g} of the largest answer, allowed is "
               "{:.2g}: not timed\nrepeat with: {}\n",
               figure.spec.str(), kernels.verdict->error,
               kernels.verdict->bound,
               reproducerOf(figure.spec, figure.key.batch));
    return Status();
  }
  Result<Json> timed = timeFigure(figure, *plan, kernels.subject);
  if (!timed)
    return timed.status();
  Json figures = std::move(*timed);
  figures["kernels"] = kernelsOf(figure);
  // Outside of a graph.
  figures["host_launch_ns"] = std::round(1e9 * kernels.host.launch);
  if (kernels.host.advance > 0)
    figures["host_advance_ns"] = std::round(1e9 * kernels.host.advance);
  if (figure.key.route != "recurrent")
    figures["model_layers"] = options.modelLayers;
  if (kernels.verdict) {
    figures["error"] = kernels.verdict->error;
    figures["error_bound"] = kernels.verdict->bound;
  }
  for (const KernelResources &each : kernels.subject.kernels.resources) {
    figures["registers"].push_back(each.registers);
    figures["spilled_bytes"].push_back(each.spillStores + each.spillLoads);
  }
  store->updateRun(describeRun());
  return store->add(figure.key, figures);
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

void GpuBench::print(const Json &figures) {
  if (!hasHeadings)
    fmt::print("\n{:>9} {:>6} {:>7} {:>3} {:>6} {:>11} {:>11} {:>11} {:>11} "
               "{:>11} {:>8} {:>11} {:>11}\n",
               "route", "states", "entries", "m", "batch", "empty", "half",
               "last", "a step", "limit", "of limit", "predicted", "host");
  hasHeadings = true;
  auto time = [](double microseconds) {
    return formatTime(microseconds * 1e-6);
  };
  auto byFill = figures["us_by_fill"].get<std::vector<double>>();
  fmt::print(
      "{:>9} {:>6} {:>7} {:>3} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} "
      "{:>6.1f} % {:>11} {:>11}\n",
      figures["route"].get<std::string>(), figures["state"].get<std::string>(),
      figures["entry"].get<std::string>(), figures["m"].get<int64_t>(),
      figures["batch"].get<int64_t>(), time(byFill.front()),
      time(byFill[byFill.size() / 2]), time(byFill.back()),
      time(figures["us_a_step"]), time(figures["limit_us"]),
      100 * figures["of_limit"].get<double>(), time(figures["predicted_us"]),
      time(1e-3 * figures.value("host_launch_ns", 0.0)));
  if (figures.contains("forms"))
    for (const auto &[form, compared] : figures["forms"].items())
      fmt::print(
          "{:>9} {} alone {}, with the other form beside it {}: {:.3f}\n", "",
          form, time(compared["us_alone"]), time(compared["us_of_both"]),
          compared["ratio"].get<double>());
  if (figures.contains("early")) {
    const Json &early = figures["early"];
    fmt::print("{:>9} started early {}, {:.1f} % of the limit\n", "",
               time(early["us_a_step"]), 100 * early["of_limit"].get<double>());
  }
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
  Result<std::vector<BenchFigure>> listed =
      listFigures(options, gpu.device().name(), plans);
  if (!listed)
    return listed.status();
  const std::vector<BenchFigure> &figures = *listed;
  Progress progress;
  double longest = 0;
  for (size_t i = 0; i < figures.size(); ++i) {
    const BenchFigure &figure = figures[i];
    if (options.profile) {
      if (Status status = profileFigure(figure); !status)
        return status;
      continue;
    }
    if (const Json *known = findKnown(figure)) {
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
                    fmt::format("{}\nnote: repeat with: {}", status.message(),
                                reproducerOf(figure.spec, figure.key.batch)));
    longest = std::max(longest, elapsed() - before);
    if (const Json *measured = findKnown(figure))
      print(*measured);
  }
  return Status();
}

int tool::benchOnGpu(const BenchOptions &options, const measure::Gpu &gpu) {
  GpuBench bench(options, gpu);
  if (Status status = bench.run(); !status) {
    printError(status);
    return 1;
  }
  return bench.isWrong ? 1 : 0;
}
