//===- BenchMixed.cpp - ladle bench --mixed -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TunedTable.h"
#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/MixedTimer.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <chrono>
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

class MixedBench {
public:
  MixedBench(const BenchOptions &options, const measure::Gpu &gpu)
      : options(options), gpu(gpu) {}
  Status run();

private:
  std::vector<DraftSpec> listSpecs() const;
  Status beginRun();
  Json describeRun() const;
  /// Why it is left out; empty if it was measured or known.
  Result<std::string> take(const DraftSpec &spec);
  /// The text of the kernels of all rows.
  Result<std::string> textOf(const DraftSpec &spec) const;
  /// Of a row: bytes that it cannot do without, and the time that these take.
  Result<std::pair<double, double>> costOf(const DraftSpec &spec,
                                           const MixedRow &row);
  Result<Json> time(const DraftSpec &spec);
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

/// The larger one, unless blocks would keep room for entries that never come.
static int64_t pageOf(DraftSpec spec) {
  spec.page = 8;
  int64_t least = spec.capacity();
  spec.page = 16;
  return spec.capacity() > least ? 8 : 16;
}

/// Rows without a state and with one, in pages; and without pages, where all
/// have one.
std::vector<DraftSpec> MixedBench::listSpecs() const {
  std::vector<std::string> routes = options.routes;
  if (routes.empty())
    routes = {kShortRoute, kLongRoute};
  std::vector<DraftSpec> specs;
  for (int64_t drafts :
       options.drafts.empty() ? std::vector<int64_t>{4} : options.drafts)
    for (const std::string &state : options.states)
      for (const std::string &entry : options.entries)
        for (int64_t m : options.thresholds)
          for (const std::string &route : routes)
            for (int64_t batch : options.batches) {
              SourceOptions source = options.source;
              source.stateType = state;
              source.entryType = entry;
              DraftSpec spec{source, route, drafts, m, batch, options.schedule};
              if (route == kShortRoute)
                spec.page = pageOf(spec);
              spec.isMixed = true;
              specs.push_back(std::move(spec));
            }
  return specs;
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
  Bandwidth bandwidth{ceilings->read().bytesPerSecond(),
                      ceilings->update().bytesPerSecond()};
  return std::pair(step.folds ? cost->foldBytes(row.fill)
                              : cost->bytes(row.fill),
                   cost->leastSeconds(step, bandwidth));
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
static void print(const Json &result, const DraftSpec &spec) {
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
      spec.page ? fmt::format("a kernel of {} for rows without a state, "
                              "and one of {} for all others",
                              spec.route, kLongRoute)
                : fmt::format("one kernel of {} for all rows", spec.route));
}

Result<std::string> MixedBench::textOf(const DraftSpec &spec) const {
  std::string text;
  for (const std::string &route :
       spec.page ? std::vector<std::string>{spec.route, kLongRoute}
                 : std::vector<std::string>{spec.route}) {
    DraftSpec own = spec;
    own.route = route;
    Result<jit::GpuProgram> program = own.compile();
    if (!program)
      return program.status();
    text += program->text;
  }
  return text;
}

Result<std::string> MixedBench::take(const DraftSpec &spec) {
  const Planner *planner = plans.find(spec);
  if (!planner)
    return Status(ErrorCode::InvalidData, "the file cannot be planned");
  for (const std::string &route :
       spec.page ? std::vector<std::string>{spec.route, kLongRoute}
                 : std::vector<std::string>{spec.route}) {
    DraftPlan plan = planner->draftPlan(route, Rates::gpu(""), 1,
                                        spec.threshold, /*accepted=*/0);
    if (!plan.obstacle.empty())
      return plan.obstacle;
  }
  Result<std::string> text = textOf(spec);
  if (!text) // The rest of the message shows sources.
    return text.message().substr(0, text.message().find('\n'));
  std::string kernels = tune::fingerprintOf(*text);
  auto findKnown = [&]() -> const Json * {
    const Json *known = store->find(keyOf(spec, options.early));
    return known && known->value("kernels", "") == kernels ? known : nullptr;
  };
  if (!findKnown()) {
    if (isOutOfTime()) {
      isCutShort = true;
      return std::string();
    }
    double before = elapsed();
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
    Result<Json> timed = time(spec);
    if (!timed)
      return timed.status();
    Json result{{"kernels", kernels}};
    result.update(*timed);
    store->updateRun(describeRun());
    if (Status status = store->add(keyOf(spec, options.early), result); !status)
      return status;
    longest = std::max(longest, elapsed() - before);
  }
  if (const Json *known = findKnown())
    print(*known, spec);
  return std::string();
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

Json MixedBench::describeRun() const {
  return {{"date", today()},
          {"command", options.commandLine},
          {"driver", gpu.driver()},
          {"read_gb_per_s", ceilings->read().bytesPerSecond() / 1e9},
          {"update_gb_per_s", ceilings->update().bytesPerSecond() / 1e9}};
}

Status MixedBench::beginRun() {
  Result<measure::Ceilings> measured = measure::Ceilings::measure(gpu);
  if (!measured)
    return measured.status();
  ceilings.emplace(std::move(*measured));
  store->beginRun(describeRun());
  fmt::print("ceilings: {:.0f} GB/s reading, {:.0f} GB/s updating in place\n",
             ceilings->read().bytesPerSecond() / 1e9,
             ceilings->update().bytesPerSecond() / 1e9);
  return Status();
}

Status MixedBench::run() {
  Result<BenchStore> opened =
      BenchStore::open(options.json, gpu.device().name(), kSchema);
  if (!opened)
    return opened.status();
  store.emplace(std::move(*opened));
  fmt::print("{} {} on {}, driver {}\n", options.source.file,
             options.source.preset, gpu.device().name(), gpu.driver());
  std::vector<DraftSpec> specs = listSpecs();
  std::string last;
  for (size_t i = 0; i < specs.size(); ++i) {
    const DraftSpec &spec = specs[i];
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
  return Status();
}

int tool::benchMixed(const BenchOptions &options, const measure::Gpu &gpu) {
  if (std::string wrong = jit::checkLayout(options.schedule); !wrong.empty()) {
    fmt::print(stderr, "error: {}\n", wrong);
    return 2;
  }
  if (Status status = MixedBench(options, gpu).run(); !status) {
    fmt::print(stderr, "error: {}\n", status.message());
    return 1;
  }
  return 0;
}
