//===- Tuner.cpp - the fastest way that is right --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/Tuner.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

using namespace ladle;
using namespace ladle::tune;

//===----------------------------------------------------------------------===//
// The search
//===----------------------------------------------------------------------===//

namespace {

class Search {
public:
  Search(const Space &space, Candidate fallback, const Model &model,
         Measurer &measurer, const TuneOptions &options)
      : fallback(std::move(fallback)), model(model), measurer(measurer),
        options(options), all(space.enumerate()) {
    // The default stands first: of what is equally fast it is taken.
    std::erase(all, this->fallback);
    all.insert(all.begin(), this->fallback);
  }

  void
  rejectIllegal(const std::function<std::string(const Candidate &)> &obstacle);
  void takeKnown(const std::vector<Trial> &known);
  void run();
  Outcome finish();
  Outcome outcome;

private:
  using Indices = std::vector<size_t>;
  bool hasTime() { return !options.hasTime || options.hasTime(); }
  bool isOut(size_t i) const { return !outcome.trials[i].rejection.empty(); }
  Indices select() const;
  bool admit(size_t i);
  void sampleInTurn(const Indices &heat, int samples);
  bool isDone(size_t i, int samples) const;
  void timeAll(Indices indices, int samples) {
    timeAll(std::move(indices), samples, options.heat);
  }
  void timeAll(Indices indices, int samples, size_t heat);
  Indices fastest(size_t count) const;
  void reject(Trial &trial, const std::string &why);
  void record(const Trial &trial) {
    if (options.record)
      options.record(trial);
  }
  void progress(const std::string &label, double part) {
    if (options.progress)
      options.progress(label, part);
  }

  Candidate fallback;
  const Model &model;
  Measurer &measurer;
  const TuneOptions &options;
  std::vector<Candidate> all;
  std::set<size_t> admitted; ///< compiled and checked in this run
};

} // namespace

void Search::rejectIllegal(
    const std::function<std::string(const Candidate &)> &obstacle) {
  for (const Candidate &candidate : all) {
    Trial &trial = outcome.trials.emplace_back();
    trial.candidate = candidate;
    trial.rejection = obstacle(candidate);
    if (trial.rejection.empty())
      trial.expected = model(candidate);
  }
}

void Search::takeKnown(const std::vector<Trial> &known) {
  for (const Trial &old : known)
    for (Trial &trial : outcome.trials)
      if (trial.candidate == old.candidate && trial.rejection.empty()) {
        trial.rejection = old.rejection;
        trial.samples = old.samples;
      }
}

/// The default, the best of each route, and the best of all, as predicted.
Search::Indices Search::select() const {
  Indices ranked;
  for (size_t i = 0; i < outcome.trials.size(); ++i)
    if (!isOut(i))
      ranked.push_back(i);
  std::sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) {
    return std::pair(outcome.trials[a].expected.predicted, a) <
           std::pair(outcome.trials[b].expected.predicted, b);
  });
  Indices kept;
  std::set<std::string> routes;
  auto keep = [&](size_t i) {
    if (std::find(kept.begin(), kept.end(), i) == kept.end())
      kept.push_back(i);
  };
  if (!isOut(0))
    keep(0);
  for (size_t i : ranked)
    if (routes.insert(outcome.trials[i].candidate.route).second)
      keep(i);
  for (size_t i : ranked)
    if (kept.size() < options.keep)
      keep(i);
  return kept;
}

void Search::reject(Trial &trial, const std::string &why) {
  trial.rejection = why;
  trial.samples.clear();
  record(trial);
}

/// Compiles and checks, once: what is wrong is never timed.
bool Search::admit(size_t i) {
  Trial &trial = outcome.trials[i];
  if (isOut(i))
    return false;
  if (admitted.count(i))
    return true;
  std::string why = measurer.prepare(trial.candidate);
  if (why.empty())
    why = measurer.check(trial.candidate);
  if (!why.empty()) {
    reject(trial, why);
    return false;
  }
  admitted.insert(i);
  return true;
}

/// Known already, or out: needs no turn.
bool Search::isDone(size_t i, int samples) const {
  return isOut(i) ||
         outcome.trials[i].samples.size() >= static_cast<size_t>(samples);
}

void Search::sampleInTurn(const Indices &heat, int samples) {
  Indices open;
  for (size_t i : heat)
    if (!isDone(i, samples) && admit(i))
      open.push_back(i);
  for (int turn = 0; turn < samples; ++turn)
    for (size_t i : open) {
      Trial &trial = outcome.trials[i];
      if (isDone(i, samples))
        continue;
      Result<double> seconds = measurer.sample(trial.candidate);
      if (!seconds)
        reject(trial, seconds.message());
      else if (!(*seconds > 0))
        reject(trial, fmt::format("took {} seconds", *seconds));
      else
        trial.samples.push_back(*seconds);
    }
  for (size_t i : open)
    if (!isOut(i))
      record(outcome.trials[i]);
}

void Search::timeAll(Indices indices, int samples, size_t heat) {
  std::erase_if(indices, [&](size_t i) { return isDone(i, samples); });
  for (size_t begin = 0; begin < indices.size(); begin += heat) {
    if (!hasTime()) {
      outcome.isComplete = false;
      return;
    }
    size_t end = std::min(indices.size(), begin + heat);
    progress(outcome.trials[indices[begin]].candidate.str(),
             static_cast<double>(begin) / static_cast<double>(indices.size()));
    sampleInTurn({indices.begin() + static_cast<ptrdiff_t>(begin),
                  indices.begin() + static_cast<ptrdiff_t>(end)},
                 samples);
  }
}

Search::Indices Search::fastest(size_t count) const {
  Indices timed;
  for (size_t i = 0; i < outcome.trials.size(); ++i)
    if (outcome.trials[i].isTimed())
      timed.push_back(i);
  std::sort(timed.begin(), timed.end(), [&](size_t a, size_t b) {
    return std::pair(outcome.trials[a].seconds(), a) <
           std::pair(outcome.trials[b].seconds(), b);
  });
  timed.resize(std::min(timed.size(), count));
  return timed;
}

void Search::run() {
  timeAll(select(), options.firstSamples);
  // Around the winner, as long as that moves it: the model does not know what a
  // schedule costs.
  for (int walk = 0; walk < 4 && outcome.isComplete; ++walk) {
    Indices best = fastest(1);
    if (best.empty())
      break;
    std::vector<Candidate> near =
        Space::neighbours(outcome.trials[best[0]].candidate, all);
    Indices around;
    for (size_t i = 0; i < all.size(); ++i)
      if (!isOut(i) && outcome.trials[i].samples.empty() &&
          std::find(near.begin(), near.end(), all[i]) != near.end())
        around.push_back(i);
    timeAll(around, options.firstSamples);
    if (fastest(1) == best)
      break;
  }
  // Halve the field and double the samples until the finalists are left.
  int samples = options.firstSamples;
  size_t field = fastest(all.size()).size();
  while (outcome.isComplete && field > options.finalists) {
    field = std::max(options.finalists, (field + 1) / 2);
    samples = std::min(2 * samples, options.finalSamples);
    timeAll(fastest(field), samples);
  }
  // The default is in every final. One heat: all take turns.
  Indices finalists = fastest(options.finalists);
  if (!isOut(0) &&
      std::find(finalists.begin(), finalists.end(), 0) == finalists.end())
    finalists.push_back(0);
  if (outcome.isComplete && !finalists.empty())
    timeAll(finalists, options.finalSamples, finalists.size());
}

/// Trials are in the fixed order, so the first of a tie is the one.
Outcome Search::finish() {
  outcome.chosen = fallback;
  std::vector<const Trial *> ranking = outcome.ranking();
  if (options.mode == Mode::Off || ranking.empty()) {
    outcome.reason = options.mode == Mode::Off
                         ? "the default: tuning is off"
                         : "the default: nothing was timed";
    return std::move(outcome);
  }
  // Who fell out early is known by a few samples, which may flatter.
  size_t most = 0;
  for (const Trial *trial : ranking)
    most = std::max(most, trial->samples.size());
  std::erase_if(ranking, [&](const Trial *trial) {
    return trial->samples.size() < most && trial->candidate != fallback;
  });
  const Trial *best = ranking.front();
  const Trial *standing = outcome.find(fallback);
  if (standing->isTimed() &&
      standing->seconds() <= best->seconds() * (1 + options.margin)) {
    outcome.reason =
        best == standing
            ? "the default is the fastest"
            : fmt::format("the default: the fastest gains {:.1f} %, {:.1f} % "
                          "are wanted",
                          100 * (standing->seconds() / best->seconds() - 1),
                          100 * options.margin);
    return std::move(outcome);
  }
  // A bad moment is no tie: it widens to the margin at most.
  double tie =
      std::min(std::max(options.tie, 2 * best->noise()), options.margin);
  double allowed = best->seconds() * (1 + tie);
  std::erase_if(ranking,
                [&](const Trial *trial) { return trial->seconds() > allowed; });
  // All lie in one vector, in the fixed order.
  const Trial *first = *std::min_element(ranking.begin(), ranking.end());
  outcome.chosen = first->candidate;
  outcome.reason =
      ranking.size() > 1
          ? fmt::format("the first of {} that are equally fast", ranking.size())
          : std::string("the fastest");
  return std::move(outcome);
}

Outcome
tune::tune(const Space &space, const Candidate &fallback,
           const std::function<std::string(const Candidate &)> &obstacle,
           const Model &model, Measurer &measurer, const TuneOptions &options,
           const std::vector<Trial> &known) {
  Search search(space, fallback, model, measurer, options);
  search.rejectIllegal(obstacle);
  if (options.mode != Mode::Off && options.mode != Mode::Force)
    search.takeKnown(known);
  if (options.mode == Mode::Fill || options.mode == Mode::Force)
    search.run();
  return search.finish();
}
