//===- Tune.cpp - ladle tune ----------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/GpuLayout.h"
#include "runtime/tune/TrialStore.h"
#include "runtime/tune/TunedTable.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Table.h"
#include "tools/ladle/TuneAttention.h"
#include "tools/ladle/TuneReport.h"
#include "tools/ladle/TuneSubject.h"
#include "tools/measure/Ceilings.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sstream>

using namespace ladle;
using namespace ladle::tool;
using tune::Candidate;
using tune::Mode;
using tune::Outcome;

namespace {

class Tuning {
public:
  Tuning(const TuneRequest &request, Mode mode)
      : request(request), mode(mode) {}
  Status run();

private:
  Status openDevice();
  Result<tune::Space> makeSpace() const;
  Status tuneBatch(int64_t batch);
  Status makeSubjects();
  std::optional<Candidate> makeDefault(int64_t batch);
  std::string describe(int64_t batch) const;
  Result<Outcome> search(const tune::Problem &problem,
                         const Candidate &fallback);
  Status keep(const tune::Problem &problem, const Outcome &outcome);
  double elapsed() const;

  const TuneRequest &request;
  Mode mode;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
  std::optional<measure::Gpu> gpu;
  std::string card, folder;
  Rates rates = Rates::gpu("");
  tune::Space space;
  int64_t drafts = 0; ///< what is tuned now; 0: steps of a token
  TuneSubject *subject = nullptr;
  std::vector<std::pair<int64_t, std::unique_ptr<TuneSubject>>> subjects;
};

} // namespace

double Tuning::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

//===----------------------------------------------------------------------===//
// What there is to choose from
//===----------------------------------------------------------------------===//

/// "threads=64:128", after the parameters that are always varied.
Result<tune::Space> Tuning::makeSpace() const {
  tune::Space made;
  for (const std::string &route : request.routes)
    made.routes.push_back({route, route != "recurrent"});
  made.thresholds = request.thresholds;
  if (!request.drafts.empty())
    made.capacities = request.capacities;
  for (const jit::GpuParameter &parameter : jit::gpuParameters())
    if (!parameter.tried.empty() &&
        parameter.verifies == !request.drafts.empty())
      made.parameters.push_back({parameter.name, parameter.tried});
  for (const std::string &text : request.vary) {
    size_t equals = text.find('=');
    tune::Parameter parameter{text.substr(0, equals), {}};
    std::istringstream values(
        equals == std::string::npos ? "" : text.substr(equals + 1));
    for (std::string value; std::getline(values, value, ':');) {
      char *end = nullptr;
      parameter.values.push_back(std::strtoll(value.c_str(), &end, 10));
      if (value.empty() || *end)
        parameter.values.clear();
      if (parameter.values.empty())
        break;
    }
    if (parameter.values.empty())
      return Status(ErrorCode::InvalidArgument,
                    fmt::format("--vary takes name=number:number, got '{}'\n"
                                "note: for instance --vary threads=64:128",
                                text));
    auto isSame = [&](const tune::Parameter &each) {
      return each.name == parameter.name;
    };
    if (std::string wrong = jit::checkLayout({{parameter.name, 0}});
        !wrong.empty())
      return Status(ErrorCode::InvalidArgument, wrong);
    auto known =
        std::find_if(made.parameters.begin(), made.parameters.end(), isSame);
    if (known != made.parameters.end())
      *known = std::move(parameter);
    else
      made.parameters.push_back(std::move(parameter));
  }
  return made;
}

/// "batch 8", "4 drafts, batch 8".
std::string Tuning::describe(int64_t batch) const {
  return drafts ? fmt::format("{} drafts, batch {}", drafts, batch)
                : fmt::format("batch {}", batch);
}

/// The model's choice, with the first schedule.
std::optional<Candidate> Tuning::makeDefault(int64_t batch) {
  std::map<std::string, int64_t> schedule;
  for (const tune::Parameter &parameter : space.parameters)
    schedule[parameter.name] = parameter.values.front();
  std::vector<Candidate> candidates = space.enumerate();
  std::erase_if(candidates, [&](const Candidate &candidate) {
    return candidate.schedule != schedule || candidate.capacity != 0;
  });
  return subject->choose(candidates, card, batch);
}

//===----------------------------------------------------------------------===//
// One batch
//===----------------------------------------------------------------------===//

Result<Outcome> Tuning::search(const tune::Problem &problem,
                               const Candidate &fallback) {
  Result<tune::TrialStore> store = tune::TrialStore::open(folder, problem);
  if (!store)
    return store.status();
  Progress progress;
  tune::TuneOptions options;
  options.mode = mode;
  options.keep = static_cast<size_t>(request.keep);
  double longest = 0, last = elapsed();
  options.hasTime = [&] {
    longest = std::max(longest, elapsed() - last);
    last = elapsed();
    return request.budget <= 0 || last + longest <= request.budget;
  };
  options.progress = [&](const std::string &label, double part) {
    progress.show(fmt::format("{}, {}", describe(problem.batch), label), part,
                  1);
  };
  Status written;
  options.record = [&](const tune::Trial &trial) {
    if (Status status = store->record(trial); !status)
      written = status;
  };
  // Without a device nothing is sampled in the modes that are left.
  std::unique_ptr<tune::Measurer> measurer;
  struct Nothing : tune::Measurer {
    std::string prepare(const Candidate &) override { return "no device"; }
    std::string check(const Candidate &) override { return "no device"; }
    Result<double> sample(const Candidate &) override {
      return Status(ErrorCode::NotFound, "no device");
    }
  } nothing;
  if (gpu)
    measurer = subject->makeMeasurer(*gpu, rates, problem.batch);
  Outcome outcome = tune::tune(
      space, fallback,
      [&](const Candidate &candidate) { return subject->obstacle(candidate); },
      [&](const Candidate &candidate) {
        return subject->expect(candidate, rates, problem.batch);
      },
      measurer ? *measurer : nothing, options, store->trials());
  if (!written)
    return written;
  return outcome;
}

Status Tuning::keep(const tune::Problem &problem, const Outcome &outcome) {
  const tune::Trial *trial = outcome.find(outcome.chosen);
  if (!trial || !trial->isTimed() || !outcome.isComplete)
    return Status();
  tune::TunedChoice choice;
  choice.device = problem.device;
  choice.shape = problem.shape;
  choice.entryType = problem.entryType;
  choice.batch = problem.batch;
  choice.drafts = problem.drafts;
  choice.acceptance = problem.acceptance;
  choice.candidate = outcome.chosen;
  choice.seconds = trial->seconds();
  choice.limit = trial->expected.limit;
  choice.date = today();
  if (!request.table.empty())
    if (Status status = tune::addToTable(request.table, choice); !status)
      return status;
  return tune::addToTable(tune::userTable(folder), choice);
}

Status Tuning::tuneBatch(int64_t batch) {
  std::optional<Candidate> modelled = makeDefault(batch);
  if (!modelled)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("none of the routes is legal: {}",
                              subject->obstacle(space.enumerate().front())));
  const Candidate &fallback = *modelled;
  // Another list of schedules is no other compiler.
  Candidate plain = fallback;
  plain.schedule.clear();
  Result<jit::GpuProgram> program = subject->compile(plain);
  if (!program)
    return program.status();
  tune::Problem problem{card,
                        gpu ? gpu->driver() : "",
                        tune::describe(program->signature),
                        request.source.entryType,
                        batch,
                        tune::fingerprintOf(program->text),
                        drafts,
                        drafts ? request.acceptance : 0};
  bool measures = mode == Mode::Fill || mode == Mode::Force;
  if (mode == Mode::Frozen) {
    auto known = tune::lookupTuned(card, program->signature,
                                   request.source.entryType, batch, drafts);
    fmt::print("{}: {}\n", describe(batch),
               known ? fmt::format("{}, {} a step, tuned on {} for batch {}",
                                   known->candidate.str(),
                                   formatTime(known->seconds), known->date,
                                   known->batch)
                     : fmt::format("{}, by the model: nothing was tuned for {}",
                                   fallback.str(), card));
    return Status();
  }
  Result<Outcome> outcome = search(problem, fallback);
  if (!outcome)
    return outcome.status();
  const tune::Trial *trial = outcome->find(outcome->chosen);
  fmt::print("{}: {}{}, {}\n", describe(batch), outcome->chosen.str(),
             trial->isTimed()
                 ? fmt::format(", {} a step, {:.1f} % of the limit",
                               formatTime(trial->seconds()),
                               100 * trial->expected.limit / trial->seconds())
                 : "",
             outcome->reason);
  if (measures && !outcome->isComplete)
    fmt::print("the budget ended first: the same command goes on there\n");
  if (request.explain)
    fmt::print("{}", explainOutcome(*outcome));
  std::fflush(stdout);
  return measures ? keep(problem, *outcome) : Status();
}

//===----------------------------------------------------------------------===//
// All
//===----------------------------------------------------------------------===//

Status Tuning::openDevice() {
  Result<measure::Gpu> opened = measure::Gpu::open();
  if (opened) {
    gpu.emplace(std::move(*opened));
    card = gpu->device().name();
    return Status();
  }
  if (mode == Mode::Fill || mode == Mode::Force)
    return Status(opened.status().code(),
                  opened.message() + "\nnote: without a GPU, --mode frozen "
                                     "--card NAME says what was tuned on one");
  card = request.card.empty() ? "an unknown card" : request.card;
  return Status();
}

Status Tuning::makeSubjects() {
  if (request.drafts.empty())
    subjects.emplace_back(0, tuneTokens(request.source));
  for (int64_t number : request.drafts)
    subjects.emplace_back(
        number, tuneDrafts(request.source, number, request.acceptance));
  // One says what is wrong with a file.
  if (!subjects.front().second->isValid(space.enumerate().front()))
    return Status(ErrorCode::InvalidData, "");
  return Status();
}

Status Tuning::run() {
  Result<tune::Space> made = makeSpace();
  if (!made)
    return made.status();
  space = std::move(*made);
  if (Status status = makeSubjects(); !status)
    return status;
  folder = request.folder.empty() ? tune::defaultTuneFolder() : request.folder;
  if (folder.empty())
    return Status(ErrorCode::NotFound,
                  "no folder for results: no home directory is known\n"
                  "note: set LADLE_TUNE_DIR to a folder");
  if (Status status = openDevice(); !status)
    return status;
  if (gpu && (mode == Mode::Fill || mode == Mode::Force)) {
    Result<measure::Ceilings> ceilings =
        measure::Ceilings::measure(*gpu, int64_t(2) << 30);
    if (!ceilings)
      return ceilings.status();
    rates = Rates::gpu(card,
                       {ceilings->read().bytesPerSecond(),
                        ceilings->update().bytesPerSecond()},
                       gpu->device().multiprocessors());
  }
  for (auto &[number, steps] : subjects) {
    drafts = space.drafts = number;
    subject = steps.get();
    for (int64_t batch : request.batches)
      if (Status status = tuneBatch(batch); !status)
        return status;
  }
  return Status();
}

int tool::tune(const TuneRequest &request) {
  if (!request.traces.empty())
    return tuneAttention(request);
  std::optional<Mode> mode = tune::parseMode(request.mode);
  if (!mode) {
    fmt::print(stderr,
               "error: unknown mode '{}'\nnote: modes are off, frozen, fill "
               "and force\n",
               request.mode);
    return 2;
  }
  if (request.drafts.empty() && request.source.given.count("--capacity")) {
    fmt::print(stderr, "error: --capacity changes nothing of steps of a token, "
                       "whose rings have m entries\nnote: set --drafts, or "
                       "leave it out\n");
    return 2;
  }
  if (Status status = Tuning(request, *mode).run(); !status) {
    printError(status);
    return 1;
  }
  return 0;
}
