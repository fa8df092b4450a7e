//===- BenchMixed.cpp - ladle bench --mixed -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/DraftFigures.h"
#include "tools/ladle/MixedTimer.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Statistics.h"

#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

static constexpr const char *kSchema = "ladle-bench-mixed-1";
/// By which rows of kv_only go on, as a program has it.
static constexpr const char *kLongRoute = "inner";
static constexpr const char *kShortRoute = "kv_only";

namespace {

class MixedBench : public DraftFigures {
public:
  MixedBench(const BenchOptions &options, const measure::Gpu &gpu)
      : DraftFigures(options, gpu, kSchema) {}

private:
  Result<DraftSpec> choose(const DraftSpec &spec) override;
  std::string findObstacle(const DraftSpec &spec) override;
  Result<std::string> textOf(const DraftSpec &spec) const override;
  Result<Json> time(const DraftSpec &spec) override;
  void report(const DraftSpec &spec, const Json &result) override;
  /// Of a row: bytes that it cannot do without, and the time that these take.
  Result<std::pair<double, double>> costOf(const DraftSpec &spec,
                                           const MixedRow &row);
};

} // namespace

/// The larger one, unless so many of the smaller ones leave a slot less room
/// that it never needs.
static int64_t pageOf(const DraftSpec &spec) {
  constexpr int64_t smaller = 8, larger = 16;
  auto heldIn = [&](int64_t page) {
    return (spec.capacity() + page - 1) / page * page;
  };
  return heldIn(smaller) < heldIn(larger) ? smaller : larger;
}

/// Rows without a state and with one are in pages; others all have one.
Result<DraftSpec> MixedBench::choose(const DraftSpec &spec) {
  DraftSpec chosen = spec;
  if (spec.route == kShortRoute)
    chosen.page = pageOf(spec);
  chosen.isMixed = true;
  return chosen;
}

/// Routes of the kernels of a call.
static std::vector<std::string> routesOf(const DraftSpec &spec) {
  if (spec.page)
    return {spec.route, kLongRoute};
  return {spec.route};
}

std::string MixedBench::findObstacle(const DraftSpec &spec) {
  for (const std::string &route : routesOf(spec)) {
    DraftPlan plan = plans.find(spec)->draftPlan(
        route, Rates::gpu(""), 1, spec.threshold, /*accepted=*/0);
    if (!plan.obstacle.empty())
      return plan.obstacle;
  }
  return std::string();
}

Result<std::string> MixedBench::textOf(const DraftSpec &spec) const {
  std::string text;
  for (const std::string &route : routesOf(spec)) {
    DraftSpec own = spec;
    own.route = route;
    Result<jit::GpuProgram> program = own.compile();
    if (!program)
      return program.status();
    text += program->text;
  }
  return text;
}

//===----------------------------------------------------------------------===//
// What rows cost
//===----------------------------------------------------------------------===//

Result<std::pair<double, double>> MixedBench::costOf(const DraftSpec &spec,
                                                     const MixedRow &row) {
  if (row.isPadding())
    return std::pair(0.0, 0.0);
  DraftSpec own = spec;
  own.drafts = row.drafts;
  const Planner *planner = plans.find(own);
  std::string route = !row.hasState   ? kShortRoute
                      : spec.page > 0 ? kLongRoute
                                      : spec.route;
  std::optional<DraftCost> cost =
      planner ? planner->draftCost(route) : std::nullopt;
  if (!cost)
    return Status(
        ErrorCode::Unsupported,
        fmt::format("{} has no costs of {} drafts", route, row.drafts));
  DraftStep step(row.fill, row.drafts, spec.threshold);
  return std::pair(step.folds ? cost->foldBytes(row.fill)
                              : cost->bytes(row.fill),
                   cost->leastSeconds(step, bandwidth()));
}

//===----------------------------------------------------------------------===//
// One batch
//===----------------------------------------------------------------------===//

static double micro(double seconds) { return std::round(seconds * 1e9) / 1e3; }

static Json describe(Json figure, double bytes, double limit,
                     const std::vector<double> &samples) {
  figure["bytes"] = std::round(bytes);
  figure["limit_us"] = micro(limit);
  figure["us"] = micro(measure::median(samples));
  for (double each : samples)
    figure["samples_us"].push_back(micro(each));
  return figure;
}

Result<Json> MixedBench::time(const DraftSpec &spec) {
  MixedRows rows = MixedRows::of(spec);
  std::vector<double> bytes(rows.parts.size()), limits(rows.parts.size());
  std::vector<int64_t> drafts(rows.parts.size());
  double allBytes = 0, allLimits = 0;
  for (const MixedRow &row : rows.rows) {
    Result<std::pair<double, double>> cost = costOf(spec, row);
    if (!cost)
      return cost.status();
    bytes[row.part] += cost->first;
    limits[row.part] += cost->second;
    drafts[row.part] += row.drafts;
    allBytes += cost->first;
    allLimits += cost->second;
  }
  MixedTimer::Options timing;
  timing.batchBytes = allBytes;
  timing.startsEarly = options.early;
  timing.restSeconds = 0.25;
  auto timer = MixedTimer::create(spec, rows, gpu, timing);
  if (!timer)
    return timer.status();
  Json parts = Json::array();
  double alone = 0;
  std::vector<size_t> all;
  for (size_t part = 0; part < rows.parts.size(); ++part) {
    std::vector<size_t> of = rows.rowsOf(part);
    if (of.empty())
      continue;
    all.insert(all.end(), of.begin(), of.end());
    auto samples = (*timer)->time(of, limits[part], options.samples);
    if (!samples)
      return samples.status();
    alone += measure::median(*samples);
    parts.push_back(describe({{"part", rows.parts[part]},
                              {"rows", of.size()},
                              {"drafts", drafts[part]}},
                             bytes[part], limits[part], *samples));
  }
  // As they are interleaved.
  std::sort(all.begin(), all.end());
  auto samples = (*timer)->time(all, allLimits, options.samples);
  if (!samples)
    return samples.status();
  Result<int64_t> nodes = (*timer)->countNodes();
  if (!nodes)
    return nodes.status();
  if (Status status = (*timer)->checkFolds(); !status)
    return status;
  Json mixed = describe({{"rows", all.size()}}, allBytes, allLimits, *samples);
  double seconds = measure::median(*samples);
  mixed["of_limits"] = std::round(1000 * seconds / allLimits) / 1000;
  mixed["alone_us"] = micro(alone);
  mixed["of_alone"] = std::round(1000 * seconds / alone) / 1000;
  return Json{{"layers", (*timer)->layerCount()},
              {"nodes", *nodes},
              {"parts", parts},
              {"mixed", mixed}};
}

/// Figures of a batch, as text.
void MixedBench::report(const DraftSpec &spec, const Json &result) {
  std::string route = spec.route;
  if (spec.page)
    route += fmt::format(" in pages of {}, then {}", spec.page, kLongRoute);
  fmt::print("\n{}, {} states, {} entries, m = {}, up to {} drafts, batch {}\n",
             route, result["state"].get<std::string>(),
             result["entry"].get<std::string>(), spec.threshold, spec.drafts,
             spec.batch);
  Table table({"rows that are", "rows", "drafts", "bytes", "limit", "alone",
               "of limit"});
  auto seconds = [](const Json &of, const char *name) {
    return 1e-6 * of[name].get<double>();
  };
  int64_t drafts = 0;
  for (const Json &part : result["parts"]) {
    double limit = seconds(part, "limit_us"), time = seconds(part, "us");
    drafts += part["drafts"].get<int64_t>();
    table.add({part["part"].get<std::string>(),
               std::to_string(part["rows"].get<int64_t>()),
               std::to_string(part["drafts"].get<int64_t>()),
               formatBytes(part["bytes"].get<double>()), formatTime(limit),
               formatTime(time),
               limit > 0 ? fmt::format("{:.2f}", time / limit) : ""});
  }
  const Json &mixed = result["mixed"];
  double limit = seconds(mixed, "limit_us"), time = seconds(mixed, "us");
  auto addSum = [&](const char *name, double taken) {
    table.add({name, std::to_string(mixed["rows"].get<int64_t>()),
               std::to_string(drafts),
               formatBytes(mixed["bytes"].get<double>()), formatTime(limit),
               formatTime(taken), fmt::format("{:.2f}", taken / limit)});
  };
  addSum("the sum", seconds(mixed, "alone_us"));
  addSum("all in one call", time);
  fmt::print("{}", table.str());
  auto nodes = result["nodes"].get<int64_t>();
  fmt::print(
      "a mixed batch takes {:.3f} of the sum of its parts' limits, and "
      "{:.3f} of what\nthe parts take alone; a call is {} graph {}: {}\n",
      mixed["of_limits"].get<double>(), mixed["of_alone"].get<double>(), nodes,
      nodes == 1 ? "node" : "nodes",
      spec.page ? fmt::format("one kernel, by {} for rows without a state and "
                              "by {} for all others",
                              spec.route, kLongRoute)
                : fmt::format("one kernel of {} for all rows", spec.route));
}

int tool::benchMixed(const BenchOptions &options, const measure::Gpu &gpu) {
  return MixedBench(options, gpu)
      .run(options.drafts.empty() ? std::vector<int64_t>{4} : options.drafts,
           options.routes.empty()
               ? std::vector<std::string>{kShortRoute, kLongRoute}
               : options.routes);
}
