//===- AttentionTuner.cpp - the cheapest reuse within a bound -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/AttentionTuner.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;
using Verdict = AttentionOutcome::Verdict;

std::vector<AttentionCandidate> AttentionSpace::enumerate() const {
  std::vector<AttentionCandidate> all{{}};
  for (int64_t window : windows)
    for (double tau : taus)
      for (int64_t band : bands)
        for (int64_t chain : chains)
          all.push_back({tau, window, band, chain});
  return all;
}

Result<AttentionTuner>
AttentionTuner::create(const AttentionProgram &program,
                       const std::vector<MacTrace> &traces,
                       const AttentionSpace &space, int64_t prompt) {
  AttentionTuner tuner(program);
  tuner.space = space;
  tuner.traces = &traces;
  tuner.base = program.settings();
  tuner.bytes = bytesOf(program);
  MacReplayOptions room;
  room.prompt = prompt;
  room.window = *std::max_element(space.windows.begin(), space.windows.end());
  AttentionSettings near = tuner.base;
  near.tau = near.drift = 0;
  near.skip = near.band = near.wideBand = 0;
  for (const MacTrace &trace : traces) {
    Result<MacReplay> replay = MacReplay::create(trace, program, room);
    if (!replay)
      return replay.status();
    replay->warnOfTraceError();
    Result<std::vector<MacRun>> runs = replay->singleStep(near, space.windows);
    if (!runs)
      return runs.status();
    tuner.replays.push_back(std::move(*replay));
    tuner.nearest.push_back(std::move(*runs));
  }
  return tuner;
}

std::string
AttentionTuner::obstacle(const AttentionCandidate &candidate) const {
  if (!candidate.isExact() && program.hasWideBand() &&
      base.wideBand < candidate.band)
    return fmt::format("the wide band {} is less than the band", base.wideBand);
  return {};
}

/// Bytes of all steps: which tokens match is a matter of the queries, with the
/// moments of the whole trace. A nearest one that skips too little is no match,
/// though another one may be.
double AttentionTuner::predict(const AttentionCandidate &candidate) const {
  AttentionSettings settings = candidate.in(base);
  auto limitOf = [](double share) { return 2 * (1 - share) * (1 - share); };
  double sum = 0, allowed = limitOf(candidate.tau);
  bool hasDrift = program.hasDrift();
  double drift = limitOf(settings.drift);
  size_t window =
      std::find(space.windows.begin(), space.windows.end(), candidate.window) -
      space.windows.begin();
  for (size_t t = 0; t < replays.size(); ++t) {
    const MacTrace &trace = (*traces)[t];
    int64_t heads = replays[t].heads(), first = replays[t].first();
    MacRun run;
    run.matches.assign(nearest[t][0].matches.size(), -1);
    std::vector<int64_t> depths(run.matches.size());
    for (size_t i = 0; i < run.matches.size() && !candidate.isExact(); ++i) {
      int64_t match = nearest[t][window].matches[i];
      int64_t position = first + static_cast<int64_t>(i) / heads,
              head = static_cast<int64_t>(i) % heads;
      if (match < 0 || !(trace.squaredDistance(position, match, head) <
                         allowed * trace.moments()[head]))
        continue;
      if (settings.skip &&
          match + 1 - settings.band - settings.sinks < settings.skip)
        continue;
      if (hasDrift && !(trace.rotatedDistance(position, match, head) <
                        drift * trace.moments()[head]))
        continue;
      int64_t depth =
          1 + (match >= first ? depths[(match - first) * heads + head] : 0);
      if (candidate.maxChain && depth > candidate.maxChain)
        continue;
      depths[i] = depth;
      run.matches[i] = match;
    }
    sum += bytesOfRun(replays[t], bytes, settings, run).bytes;
  }
  return sum;
}

Result<AttentionTrial>
AttentionTuner::measure(const AttentionCandidate &candidate, double maxError) {
  AttentionTrial trial;
  trial.candidate = candidate;
  AttentionSettings settings = candidate.in(base);
  double hits = 0, answers = 0;
  for (MacReplay &replay : replays) {
    Result<MacRun> run = replay.closedLoop(settings, maxError);
    if (!run)
      return run.status();
    if (run->isCutShort) {
      trial = {};
      trial.candidate = candidate;
      trial.error = maxError;
      trial.isCutShort = true;
      return trial;
    }
    trial.error = std::max(trial.error, run->meanError());
    MacBytes moved = bytesOfRun(replay, bytes, settings, *run);
    trial.bytes += moved.bytes;
    trial.exactBytes += moved.exact;
    answers += static_cast<double>(run->matches.size());
    hits += static_cast<double>(
        std::count_if(run->matches.begin(), run->matches.end(),
                      [](int64_t match) { return match >= 0; }));
  }
  trial.hits = hits / answers;
  return trial;
}

Result<std::vector<AttentionOutcome>>
AttentionTuner::run(const Options &options, AttentionTrials &trials) {
  std::vector<AttentionOutcome> outcomes;
  for (const AttentionCandidate &candidate : space.enumerate()) {
    AttentionOutcome &outcome = outcomes.emplace_back();
    outcome.candidate = candidate;
    outcome.why = obstacle(candidate);
    outcome.predicted = outcome.why.empty() ? predict(candidate) : HUGE_VAL;
    outcome.verdict = outcome.why.empty() ? Verdict::Dearer : Verdict::Illegal;
  }
  double exact = outcomes.front().predicted;
  for (AttentionOutcome &outcome : outcomes)
    if (outcome.verdict == Verdict::Dearer && !outcome.candidate.isExact() &&
        outcome.predicted >= exact)
      outcome.verdict = Verdict::NoGain;
  // What moves the same stays in the fixed order.
  std::vector<size_t> order(outcomes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(outcomes[a].predicted, a) <
           std::pair(outcomes[b].predicted, b);
  });
  std::vector<AttentionOutcome> sorted;
  for (size_t i : order)
    sorted.push_back(std::move(outcomes[i]));
  outcomes = std::move(sorted);

  // What comes next is predicted to move as much as the best one does: that is
  // taken, whatever else is asked for.
  size_t held = 0;
  AttentionOutcome *best = nullptr;
  bool isOver = false, isSettled = false, isMissing = false;
  auto settle = [&] {
    if (best && !isSettled && !isMissing)
      best->isChosen = true;
    isSettled |= best != nullptr;
  };
  for (size_t i = 0; i < outcomes.size(); ++i) {
    AttentionOutcome &outcome = outcomes[i];
    if (outcome.verdict != Verdict::Dearer)
      continue;
    if (best && best->trial.bytes <= outcome.predicted)
      settle();
    if (isSettled && held >= options.wanted)
      break;
    const AttentionTrial *known = trials.find(outcome.candidate);
    if (known && known->settles(options.maxError)) {
      outcome.trial = *known;
    } else {
      isOver |= options.hasTime && !options.hasTime();
      if (isOver) {
        outcome.verdict = Verdict::Unmeasured;
        isMissing = true;
        continue;
      }
      if (options.progress)
        options.progress(outcome.candidate.str(),
                         static_cast<double>(i) /
                             static_cast<double>(outcomes.size()));
      Result<AttentionTrial> trial =
          measure(outcome.candidate, options.maxError);
      if (!trial)
        return trial.status();
      if (Status status = trials.record(*trial); !status)
        return status;
      outcome.trial = *trial;
    }
    if (!outcome.trial.holds(options.maxError)) {
      outcome.verdict = Verdict::Exceeds;
      continue;
    }
    // Moments of the first tokens are others than those of the whole trace.
    if (!outcome.candidate.isExact() &&
        outcome.trial.bytes >= outcome.trial.exactBytes) {
      outcome.verdict = Verdict::NoGain;
      continue;
    }
    outcome.verdict = Verdict::Holds;
    ++held;
    if (!isSettled && (!best || outcome.trial.bytes < best->trial.bytes))
      best = &outcome;
  }
  settle();
  return outcomes;
}
