//===- BenchDrafts.cpp - ladle bench --drafts -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TunedTable.h"
#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/DraftFigures.h"
#include "tools/ladle/DraftReport.h"
#include "tools/measure/Statistics.h"

#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

static constexpr const char *kSchema = "ladle-bench-drafts-2";

namespace {

class DraftBench : public DraftFigures {
public:
  DraftBench(const BenchOptions &options, const measure::Gpu &gpu)
      : DraftFigures(options, gpu, kSchema) {}

private:
  /// In place of the route `auto`: what was tuned, or else what the model
  /// chooses.
  Result<DraftSpec> choose(const DraftSpec &spec) override;
  std::string findObstacle(const DraftSpec &spec) override;
  Result<std::string> textOf(const DraftSpec &spec) const override;
  bool isStillValid(const Json &known) const override {
    return known.value("model_layers", int64_t(0)) == options.modelLayers;
  }
  Result<Json> time(const DraftSpec &spec) override;
  void report(const DraftSpec &spec, const Json &result) override {
    figures.add(result, *plans.find(spec)->memory(spec.route));
  }
  void summarise() override {
    figures.summarise(options.modelLayers, options.memory);
  }
  std::string describeSetting() const override {
    return fmt::format("; one commit in {} steps of a layer",
                       options.modelLayers);
  }

  DraftReport figures;
};

} // namespace

Result<DraftSpec> DraftBench::choose(const DraftSpec &spec) {
  if (spec.route != "auto")
    return spec;
  std::vector<tune::Candidate> candidates;
  for (const char *route : {"inner", "outer", "adjoint"})
    candidates.push_back({route, spec.threshold, spec.schedule});
  DraftSpec chosen = spec;
  auto take = [&](const tune::Candidate &candidate) {
    chosen.route = candidate.route;
    chosen.threshold = candidate.threshold;
    chosen.schedule = candidate.schedule;
    chosen.room = std::max(candidate.capacity, spec.room);
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

std::string DraftBench::findObstacle(const DraftSpec &spec) {
  // Rates do not matter to what is legal.
  return plans.find(spec)
      ->draftPlan(spec.route, Rates::gpu(""), 1, spec.threshold,
                  /*accepted=*/0)
      .obstacle;
}

Result<std::string> DraftBench::textOf(const DraftSpec &spec) const {
  Result<jit::GpuProgram> program = spec.compile();
  if (!program)
    return program.status();
  return std::move(program->text);
}

Result<Json> DraftBench::time(const DraftSpec &spec) {
  DraftCost cost = *plans.find(spec)->draftCost(spec.route);
  Bandwidth bandwidth = this->bandwidth();
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
  return Json{{"model_layers", options.modelLayers},
              {"layers", (*timer)->layerCount()},
              {"figures", figures}};
}

int tool::benchDrafts(const BenchOptions &options, const measure::Gpu &gpu) {
  return DraftBench(options, gpu)
      .run(options.drafts, options.routes.empty()
                               ? std::vector<std::string>{"inner"}
                               : options.routes);
}
