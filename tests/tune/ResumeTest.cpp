//===- ResumeTest.cpp - tuning that goes on -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TrialStore.h"
#include "tests/tune/SimulatedDevice.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

using namespace ladle;
using namespace ladle::test;
using tune::Mode;
using tune::Outcome;
using tune::Problem;
using tune::Trial;
using tune::TrialStore;
using tune::TuneOptions;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    static int count = 0;
    path = fs::temp_directory_path() /
           ("ladle-resume-test-" + std::to_string(count++));
    fs::remove_all(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

Problem makeProblem() {
  return {"Simulated 1", "1.0", "f(; q:f32[4]) -> y:f32[4]", "bf16", 8, "abc"};
}

TrialStore open(const Folder &folder, const Problem &problem) {
  Result<TrialStore> store = TrialStore::open(folder.path.string(), problem);
  REQUIRE(store);
  return std::move(*store);
}

/// Stops after `heats` heats, and keeps every trial at once.
Outcome run(TrialStore &store, SimulatedDevice &device, int heats,
            Mode mode = Mode::Fill) {
  TuneOptions options;
  options.mode = mode;
  options.hasTime = [&heats] { return heats-- > 0; };
  options.record = [&](const Trial &trial) { REQUIRE(store.record(trial)); };
  return tune::tune(
      makeSpace(), makeDefault(), [](const Candidate &) { return ""; }, predict,
      device, options, store.trials());
}

SimulatedDevice makeDevice() {
  return {[](const Candidate &candidate) { return truthOf(candidate, 5); }, 1,
          0};
}

} // namespace

TEST_CASE("a run that was cut short goes on where it stopped") {
  Folder folder, whole;
  SimulatedDevice reference = makeDevice();
  TrialStore wholeStore = open(whole, makeProblem());
  Outcome expected = run(wholeStore, reference, 1000);
  REQUIRE(expected.isComplete);

  int sampled = 0;
  std::optional<Outcome> outcome;
  for (int attempt = 0; attempt < 20 && !(outcome && outcome->isComplete);
       ++attempt) {
    TrialStore store = open(folder, makeProblem());
    SimulatedDevice device = makeDevice();
    outcome = run(store, device, 2);
    sampled += device.total;
  }
  REQUIRE(outcome->isComplete);
  CHECK(outcome->chosen == expected.chosen);
  CHECK(sampled == reference.total); // nothing twice
}

TEST_CASE("frozen and off measure nothing") {
  Folder folder;
  TrialStore store = open(folder, makeProblem());
  SimulatedDevice device = makeDevice();
  Outcome tuned = run(store, device, 1000);
  REQUIRE(tuned.chosen != makeDefault());

  SimulatedDevice untouched = makeDevice();
  CHECK(run(store, untouched, 1000, Mode::Frozen).chosen == tuned.chosen);
  CHECK(run(store, untouched, 1000, Mode::Off).chosen == makeDefault());
  CHECK(untouched.prepared.empty());
  CHECK(untouched.total == 0);
}

TEST_CASE("force measures again what is known") {
  Folder folder;
  TrialStore store = open(folder, makeProblem());
  SimulatedDevice device = makeDevice(), again = makeDevice();
  run(store, device, 1000);
  run(store, again, 1000, Mode::Force);
  CHECK(again.total == device.total);
}

TEST_CASE("a new configuration is measured alone") {
  Folder folder;
  TrialStore store = open(folder, makeProblem());
  SimulatedDevice device = makeDevice();
  run(store, device, 1000);
  SimulatedDevice again = makeDevice();
  run(store, again, 1000);
  CHECK(again.total == 0);
}

TEST_CASE("times of another driver or other kernels are not taken over") {
  Folder folder;
  TrialStore store = open(folder, makeProblem());
  SimulatedDevice device = makeDevice();
  run(store, device, 1000);
  CHECK_FALSE(open(folder, makeProblem()).trials().empty());
  Problem other = makeProblem();
  other.driver = "2.0";
  CHECK(open(folder, other).trials().empty());
  other = makeProblem();
  other.fingerprint = "def";
  CHECK(open(folder, other).trials().empty());
}

TEST_CASE("a configuration has one entry, with what became of it") {
  Folder folder;
  TrialStore store = open(folder, makeProblem());
  Trial trial;
  trial.candidate = makeDefault();
  trial.expected = {2e-6, 1e-6};
  trial.samples = {3e-6, 4e-6};
  REQUIRE(store.record(trial));
  trial.samples.push_back(5e-6);
  REQUIRE(store.record(trial));
  TrialStore again = open(folder, makeProblem());
  REQUIRE(again.trials().size() == 1);
  CHECK(again.trials()[0].candidate == makeDefault());
  CHECK(again.trials()[0].samples == trial.samples);
  CHECK(again.trials()[0].expected.limit == 1e-6);
}

TEST_CASE("rings of two sizes are two configurations") {
  Folder folder;
  TrialStore store = open(folder, makeProblem());
  Trial trial;
  trial.candidate = makeDefault();
  REQUIRE(store.record(trial));
  trial.candidate.capacity = 32;
  REQUIRE(store.record(trial));
  TrialStore again = open(folder, makeProblem());
  REQUIRE(again.trials().size() == 2);
  CHECK(again.trials()[1].candidate == trial.candidate);
}

TEST_CASE("a damaged file counts as empty") {
  Folder folder;
  std::string path = open(folder, makeProblem()).path();
  std::ofstream(path) << GENERATE("", "{", "{\"problem\": 3}", "[]");
  CHECK(open(folder, makeProblem()).trials().empty());
}
