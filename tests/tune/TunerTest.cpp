//===- TunerTest.cpp - the search on a simulated device -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/tune/SimulatedDevice.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

using namespace ladle;
using namespace ladle::test;
using tune::Outcome;
using tune::Trial;
using tune::TuneOptions;

static std::string allLegal(const Candidate &) { return ""; }

static Outcome run(SimulatedDevice &device, const TuneOptions &options = {},
                   const std::vector<Trial> &known = {}) {
  return tune::tune(makeSpace(), makeDefault(), allLegal, predict, device,
                    options, known);
}

static double bestTime(unsigned seed) {
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate &candidate : makeSpace().enumerate())
    best = std::min(best, truthOf(candidate, seed));
  return best;
}

static SimulatedDevice makeDevice(unsigned seed, unsigned noiseSeed = 1,
                                  double noise = 0.004) {
  return {[=](const Candidate &candidate) { return truthOf(candidate, seed); },
          noiseSeed, noise};
}

TEST_CASE("the choice is within 3 % of exhaustive search") {
  // All candidates pass the model, then a third of them.
  size_t keep = GENERATE(1000, 27);
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SimulatedDevice device = makeDevice(seed, seed);
    TuneOptions options;
    options.keep = keep;
    Outcome outcome = run(device, options);
    CAPTURE(keep, seed, outcome.chosen.str(), outcome.reason);
    CHECK(truthOf(outcome.chosen, seed) <= 1.03 * bestTime(seed));
  }
}

TEST_CASE("two runs choose the same or what is equally fast") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SimulatedDevice first = makeDevice(seed, 100 + seed);
    SimulatedDevice second = makeDevice(seed, 200 + seed);
    Candidate a = run(first).chosen, b = run(second).chosen;
    CAPTURE(seed, a.str(), b.str());
    double ratio = truthOf(a, seed) / truthOf(b, seed);
    CHECK(std::max(ratio, 1 / ratio) <= 1.03);
  }
}

TEST_CASE("without noise two runs are the same to the letter") {
  SimulatedDevice first = makeDevice(3, 1, 0), second = makeDevice(3, 2, 0);
  Outcome a = run(first), b = run(second);
  CHECK(a.chosen == b.chosen);
  CHECK(a.reason == b.reason);
  CHECK(first.sampled == second.sampled);
}

TEST_CASE("what is illegal is explained and never compiled") {
  SimulatedDevice device = makeDevice(1);
  Outcome outcome = tune::tune(makeSpace(), makeDefault(),
                               [](const Candidate &candidate) -> std::string {
                                 return candidate.schedule.at("threads") == 64
                                            ? "64 threads are too few"
                                            : "";
                               },
                               predict, device, {});
  size_t illegal = 0;
  for (const Trial &trial : outcome.trials) {
    if (trial.candidate.schedule.at("threads") != 64)
      continue;
    ++illegal;
    CHECK(trial.rejection == "64 threads are too few");
    CHECK(device.prepared.count(trial.candidate) == 0);
  }
  CHECK(illegal == 27);
  CHECK(outcome.chosen.schedule.at("threads") != 64);
}

TEST_CASE("what spills is not checked, and what is wrong is not timed") {
  SimulatedDevice device = makeDevice(1);
  device.obstacle = [](const Candidate &candidate) -> std::string {
    return candidate.route == "outer" ? "spills 24 bytes a thread" : "";
  };
  device.wrong = [](const Candidate &candidate) -> std::string {
    return candidate.threshold == 16 ? "is wrong by 0.5" : "";
  };
  Outcome outcome = run(device);
  for (const Trial &trial : outcome.trials) {
    if (trial.candidate.route == "outer") {
      // Those that the model lets through.
      if (device.prepared.count(trial.candidate))
        CHECK(trial.rejection == "spills 24 bytes a thread");
      CHECK(device.checked.count(trial.candidate) == 0);
      CHECK(device.sampled.count(trial.candidate) == 0);
    } else if (trial.candidate.threshold == 16) {
      CHECK(device.sampled.count(trial.candidate) == 0);
    }
  }
  CHECK(outcome.chosen.route == "inner");
  CHECK(outcome.chosen.threshold != 16);
}

TEST_CASE("a candidate that fails while it is timed is out") {
  SimulatedDevice device = makeDevice(1);
  device.failure = [](const Candidate &candidate) {
    return candidate.route == "inner";
  };
  Outcome outcome = run(device);
  CHECK(outcome.chosen.route == "outer");
  const Trial *failed = nullptr;
  for (const Trial &trial : outcome.trials)
    if (trial.rejection == "an illegal address")
      failed = &trial;
  REQUIRE(failed);
  CHECK(failed->candidate.route == "inner");
}

TEST_CASE("the default is always a candidate, and gives way to a margin only") {
  Candidate odd{"inner", 12, {{"threads", 96}, {"tile_rows", 4}}};
  double gain = GENERATE(0.01, 0.10);
  SimulatedDevice device(
      [=](const Candidate &candidate) {
        return candidate == odd ? 1e-4 : 1e-4 * (1 - gain);
      },
      7, 0.002);
  Outcome outcome = tune::tune(makeSpace(), odd, allLegal, predict, device, {});
  CAPTURE(gain, outcome.chosen.str(), outcome.reason);
  CHECK(device.sampled[odd] >= 15);
  CHECK((outcome.chosen == odd) == (gain < 0.02));
}

TEST_CASE("two runs that tie choose within the tie") {
  // A fifth of the schedules are as fast as the best, the rest far behind.
  auto truth = [](const Candidate &candidate) {
    unsigned hash = 0;
    for (const auto &[name, value] : candidate.schedule)
      hash = hash * 31 + static_cast<unsigned>(value);
    return candidate.route == "inner" && hash % 5 == 0 ? 1e-4 : 1.2e-4;
  };
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimulatedDevice first(truth, seed, 0.004), second(truth, 50 + seed, 0.004);
    Candidate a = run(first).chosen, b = run(second).chosen;
    CAPTURE(seed, a.str(), b.str());
    CHECK(truth(a) == 1e-4);
    CHECK(truth(b) == truth(a));
  }
}

TEST_CASE("a parameter that is added is searched like the others") {
  tune::Space space = makeSpace();
  space.parameters.push_back({"stages", {0, 2, 3}});
  Candidate fallback = makeDefault();
  fallback.schedule["stages"] = 0;
  // Fastest by two parameters that the model knows nothing of.
  auto truth = [](const Candidate &candidate) {
    return 1e-4 * (candidate.route == "inner" ? 1 : 1.5) *
           (candidate.schedule.at("stages") == 3 ? 0.9 : 1) *
           (candidate.schedule.at("threads") == 256 ? 0.95 : 1);
  };
  SimulatedDevice device(truth, 3, 0.002);
  Outcome outcome = tune::tune(space, fallback, allLegal, predict, device, {});
  CAPTURE(outcome.chosen.str());
  CHECK(outcome.trials.size() == space.enumerate().size());
  CHECK(outcome.chosen.schedule.at("stages") == 3);
  CHECK(outcome.chosen.schedule.at("threads") == 256);
}

TEST_CASE("of equally fast candidates the first in the fixed order is chosen") {
  // All of a route take the same; `inner` stands before `outer`.
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SimulatedDevice device(
        [](const Candidate &candidate) {
          return candidate.route == "recurrent" ? 2e-4 : 1e-4;
        },
        seed, 0.0005);
    TuneOptions options;
    options.keep = 1000;
    options.finalists = 1000;
    Outcome outcome = run(device, options);
    CHECK(outcome.chosen.str() == "inner m=4 threads=64");
  }
}

TEST_CASE("the model's best of each route is timed, however slow it looks") {
  SimulatedDevice device = makeDevice(1);
  TuneOptions options;
  options.keep = 5;
  Outcome outcome = run(device, options);
  for (const char *route : {"recurrent", "inner", "outer"})
    CHECK(std::any_of(
        outcome.trials.begin(), outcome.trials.end(), [&](const Trial &trial) {
          return trial.candidate.route == route && trial.isTimed();
        }));
}

TEST_CASE("ranking and correlation tell how well the model did") {
  SimulatedDevice device(
      [](const Candidate &candidate) { return predict(candidate).predicted; },
      1, 0);
  TuneOptions options;
  options.keep = 1000;
  Outcome outcome = run(device, options);
  REQUIRE(outcome.rankCorrelation());
  CHECK(*outcome.rankCorrelation() == Approx(1));
  std::vector<const Trial *> ranking = outcome.ranking();
  REQUIRE(ranking.size() == makeSpace().enumerate().size());
  CHECK(std::is_sorted(ranking.begin(), ranking.end(),
                       [](const Trial *a, const Trial *b) {
                         return a->seconds() < b->seconds();
                       }));
}

TEST_CASE("rings are tried with more room, and not with twice as much") {
  tune::Space space{{{"recurrent", false}, {"inner", true}},
                    {16, 24},
                    {{"threads", {128}}},
                    {20, 24, 32, 64},
                    /*drafts=*/4};
  std::vector<std::string> names;
  for (const Candidate &candidate : space.enumerate())
    names.push_back(candidate.str());
  CHECK(names == std::vector<std::string>{
                     "recurrent threads=128", "inner m=16 threads=128",
                     "inner m=16 L=24 threads=128",
                     "inner m=16 L=32 threads=128", "inner m=24 threads=128",
                     "inner m=24 L=32 threads=128"});
  Candidate one{"inner", 16, {{"threads", 128}}, 32};
  std::vector<std::string> near;
  for (const Candidate &candidate :
       tune::Space::neighbours(one, space.enumerate()))
    near.push_back(candidate.str());
  CHECK(near == std::vector<std::string>{"inner m=16 threads=128",
                                         "inner m=16 L=24 threads=128",
                                         "inner m=24 L=32 threads=128"});
}
