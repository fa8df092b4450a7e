//===- FiguresTest.cpp - predicted against measured times -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From batch 32 up, the model predicts every figure in bench/results of a card
// that it has been fitted to within 15 %. The prediction is made here, from the
// source.
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Plan.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::json;

namespace {

constexpr const char *card = "NVIDIA H200";

/// All figures of the card that the generator has laid out itself.
std::vector<Json> readFigures(const char *folder = "bench/results") {
  std::vector<Json> figures;
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_regular_file()) // drafts have a folder
      continue;
    std::ifstream file(entry.path());
    Json document = Json::parse(file);
    if (document["device"] != card)
      continue;
    for (const Json &figure : document["results"])
      if (figure["schedule"].empty() && !figure.contains("layout") &&
          figure["route"] != "kv_only")
        figures.push_back(figure);
  }
  return figures;
}

const Planner &plannerOf(const Json &figure, int64_t drafts = 0) {
  static std::map<std::string, Planner> planners;
  SourceOptions source;
  source.file = figure["file"];
  source.preset = figure["preset"];
  source.sizes = figure["sizes"].get<std::map<std::string, int64_t>>();
  source.stateType = figure["state"];
  if (figure["entry"] != "")
    source.entryType = figure["entry"];
  auto m = figure["m"].get<int64_t>();
  source.capacity = m + drafts;
  std::string key = source.file + source.preset + figure["sizes"].dump() +
                    source.stateType + source.entryType + std::to_string(m) +
                    "+" + std::to_string(drafts);
  if (!planners.count(key)) {
    std::optional<Planner> planner = Planner::create(source, drafts);
    REQUIRE(planner);
    planners.emplace(key, std::move(*planner));
  }
  return planners.at(key);
}

/// Microseconds.
double predict(const Json &figure) {
  RunPlan plan =
      plannerOf(figure).plan(Rates::gpu(card), figure["batch"].get<int64_t>(),
                             figure["m"].get<int64_t>());
  for (const RoutePlan &route : plan.routes)
    if (Json(route.route) == figure["route"])
      return 1e6 * route.seconds;
  FAIL("no such route");
  return 0;
}

} // namespace

TEST_CASE("predictions of measured figures from batch 32 up") {
  size_t large = 0;
  for (const Json &figure : readFigures()) {
    if (figure["batch"] < 32)
      continue;
    ++large;
    double measured = figure["us_a_step"], predicted = predict(figure);
    CAPTURE(figure["file"], figure["route"], figure["state"], figure["batch"],
            measured, predicted);
    CHECK(measured / predicted == Approx(1).margin(0.15));
  }
  CHECK(large >= 38);
}

// The constants are fitted to steps at some fills; cycles go through all.
TEST_CASE("predictions of measured cycles of drafts from batch 32 up") {
  size_t cycles = 0;
  for (const Json &result : readFigures("bench/results/drafts")) {
    if (result["batch"] < 32 || result.value("started_early", false))
      continue;
    const Planner &planner = plannerOf(result, result["drafts"].get<int64_t>());
    for (const Json &figure : result["figures"]) {
      if (!figure.contains("accepted") || figure["tree"] != "chain")
        continue;
      ++cycles;
      double measured = figure["us_a_step"];
      DraftPlan plan = planner.draftPlan(
          result["route"], Rates::gpu(card), result["batch"].get<int64_t>(),
          result["m"].get<int64_t>(), figure["accepted"].get<double>());
      CAPTURE(result["file"], result["state"], result["batch"],
              result["drafts"], result["m"], figure["accepted"], measured);
      CHECK(measured / (1e6 * plan.predicted) == Approx(1).margin(0.15));
    }
  }
  CHECK(cycles >= 100);
}

TEST_CASE("figures hold what the model predicts") {
  // bench/fit.py --write makes them agree again.
  for (const Json &figure : readFigures()) {
    CAPTURE(figure["file"], figure["route"], figure["state"], figure["batch"]);
    CHECK(figure["predicted_us"].get<double>() ==
          Approx(predict(figure)).epsilon(1e-3));
  }
}

TEST_CASE("a card that nobody has measured has an H200's ratios") {
  Machine known = Machine::h200();
  CHECK(Machine::gpu({}).readBandwidth == known.readBandwidth);
  CHECK(Machine::gpu({card, 1e12, 1e12, 1e12, 4}).readBandwidth ==
        known.readBandwidth);
  Machine half = Machine::gpu({"a card", 0, 4.61e12 / 2, 4.29e12 / 4, 66});
  CHECK(half.name == "a card");
  CHECK(half.readBandwidth == Approx(known.readBandwidth / 2));
  CHECK(half.scatteredBandwidth == Approx(known.scatteredBandwidth / 2));
  CHECK(half.updateBandwidth == Approx(known.updateBandwidth / 4));
  CHECK(half.flopRate == Approx(known.flopRate / 2));
  CHECK(half.launch == known.launch);
  CHECK(half.drafts.scatteredBandwidth ==
        Approx(known.drafts.scatteredBandwidth / 2));
  CHECK(half.drafts.flopRate == Approx(known.drafts.flopRate / 2));
  CHECK(half.drafts.rankedFlopRate == Approx(known.drafts.rankedFlopRate / 2));
  Machine nominal = Machine::gpu({"a card", 4.917e12 / 2, 0, 0, 0});
  CHECK(nominal.readBandwidth == Approx(known.readBandwidth / 2));
  CHECK(nominal.updateBandwidth == Approx(known.updateBandwidth / 2));
}
