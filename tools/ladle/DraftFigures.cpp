//===- DraftFigures.cpp - A list of timed batches of drafts ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/DraftFigures.h"
#include "runtime/tune/TunedTable.h"
#include "tools/ladle/Errors.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

static BenchKey keyOf(const DraftSpec &spec, bool startsEarly) {
  BenchKey key{spec.source.file,
               spec.source.recurrence,
               spec.source.preset,
               spec.source.sizes,
               spec.source.options,
               spec.route,
               spec.source.stateType,
               spec.source.entryType,
               spec.threshold,
               spec.batch,
               spec.schedule,
               spec.source.stateLayout,
               spec.drafts,
               startsEarly,
               spec.room};
  return key;
}

/// One number of drafts after another, the routes and batches of each.
static std::vector<DraftSpec>
listSpecs(const BenchOptions &options, const std::vector<int64_t> &counts,
          const std::vector<std::string> &routes) {
  std::vector<DraftSpec> specs;
  for (int64_t drafts : counts)
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
              specs.back().room = options.capacity;
            }
  return specs;
}

//===----------------------------------------------------------------------===//
// One figure
//===----------------------------------------------------------------------===//

Status DraftFigures::measure(const DraftSpec &spec,
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
  Result<Json> timed = time(spec);
  if (!timed)
    return timed.status();
  Json result{{"kernels", kernels}};
  result.update(*timed);
  store->updateRun(describeRun());
  return store->add(keyOf(spec, options.early), result);
}

Result<std::string> DraftFigures::take(const DraftSpec &spec) {
  if (!plans.find(spec))
    return Status(ErrorCode::InvalidData, "the file cannot be planned");
  if (std::string obstacle = findObstacle(spec); !obstacle.empty())
    return obstacle;
  Result<std::string> text = textOf(spec);
  if (!text) // The rest of the message shows sources.
    return text.message().substr(0, text.message().find('\n'));
  std::string kernels = tune::fingerprintOf(*text);
  auto findKnown = [&]() -> const Json * {
    const Json *known = store->find(keyOf(spec, options.early));
    bool isSame =
        known && known->value("kernels", "") == kernels && isStillValid(*known);
    return isSame ? known : nullptr;
  };
  if (!findKnown()) {
    if (isOutOfTime()) {
      isCutShort = true;
      return std::string();
    }
    double before = elapsed();
    if (Status status = measure(spec, kernels); !status)
      return status;
    longest = std::max(longest, elapsed() - before);
  }
  // Without a file nothing is found that was not just measured.
  if (const Json *known = findKnown())
    report(spec, *known);
  return std::string();
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

Json DraftFigures::describeRun() const {
  return {{"date", today()},
          {"command", options.commandLine},
          {"driver", gpu.driver()},
          {"read_gb_per_s", bandwidth().read / 1e9},
          {"update_gb_per_s", bandwidth().update / 1e9}};
}

Status DraftFigures::beginRun() {
  Result<measure::Ceilings> measured = measure::Ceilings::measure(gpu);
  if (!measured)
    return measured.status();
  ceilings.emplace(std::move(*measured));
  store->beginRun(describeRun());
  fmt::print("ceilings: {:.0f} GB/s reading, {:.0f} GB/s updating in place{}\n",
             bandwidth().read / 1e9, bandwidth().update / 1e9,
             describeSetting());
  return Status();
}

Status DraftFigures::open() {
  Result<BenchStore> opened =
      BenchStore::open(options.json, gpu.device().name(), schema);
  if (!opened)
    return opened.status();
  store.emplace(std::move(*opened));
  fmt::print("{} {} on {}, driver {}\n", options.source.file,
             options.source.preset, gpu.device().name(), gpu.driver());
  return Status();
}

Status DraftFigures::takeAll(const std::vector<DraftSpec> &specs) {
  if (Status status = open(); !status)
    return status;
  std::string last;
  for (size_t i = 0; i < specs.size(); ++i) {
    Result<DraftSpec> spec = choose(specs[i]);
    if (!spec)
      return spec.status();
    Result<std::string> why = take(*spec);
    if (!why)
      return Status(why.status().code(),
                    fmt::format("{}\nnote: repeat with: {}", why.message(),
                                spec->reproducer()));
    if (isCutShort) {
      fmt::print(
          "the budget ends before figure {} of {}{}\n", i + 1, specs.size(),
          options.json.empty() ? "" : "; the same command goes on there");
      break;
    }
    std::string line =
        fmt::format("{} with {} drafts and m = {} is left out: {}\n",
                    spec->route, spec->drafts, spec->threshold, *why);
    // Batches have the same reasons.
    if (!why->empty() && line != last)
      fmt::print("{}", line);
    last = line;
    std::fflush(stdout);
  }
  summarise();
  return Status();
}

int DraftFigures::run(const std::vector<int64_t> &drafts,
                      const std::vector<std::string> &routes) {
  if (std::string wrong = jit::checkLayout(options.schedule); !wrong.empty()) {
    fmt::print(stderr, "error: {}\n", wrong);
    return 2;
  }
  if (Status status = takeAll(listSpecs(options, drafts, routes)); !status) {
    printError(status);
    return 1;
  }
  return 0;
}
