//===- Tuner.h - the fastest way that is right ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_TUNER_H
#define LADLE_RUNTIME_TUNE_TUNER_H

#include "ladle/status.h"
#include "runtime/tune/Candidate.h"

#include <functional>
#include <optional>

namespace ladle::tune {

/// Where candidates run. Nothing here knows what a GPU is.
class Measurer {
public:
  virtual ~Measurer() = default;
  /// Compiles. Returns why the candidate cannot or should not run, "spills 24
  /// bytes a thread" say; empty if it may.
  virtual std::string prepare(const Candidate &candidate) = 0;
  /// Returns how its answers are wrong; empty if they are right.
  virtual std::string check(const Candidate &candidate) = 0;
  /// Seconds of a step, amortised over a cycle: one sample. Candidates are
  /// sampled in turn.
  virtual Result<double> sample(const Candidate &candidate) = 0;
};

/// What is expected before anything is measured, seconds a step.
struct Expectation {
  double predicted = 0;
  double limit = 0; ///< the least that its bytes take
};
using Model = std::function<Expectation(const Candidate &)>;

enum class Mode {
  Off,    ///< the default, whatever is known
  Frozen, ///< what is known, nothing is measured
  Fill,   ///< what is known, and what is missing is measured
  Force,  ///< everything is measured again
};
std::optional<Mode> parseMode(const std::string &text);

/// What became of one candidate.
struct Trial {
  Candidate candidate;
  Expectation expected;
  std::string rejection; ///< why it was not timed; empty if it may be
  std::vector<double> samples;

  bool isTimed() const { return rejection.empty() && !samples.empty(); }
  double seconds() const; ///< the median
  /// How far medians of such samples are apart by chance, as a part of them.
  double noise() const;
};

struct TuneOptions {
  Mode mode = Mode::Fill;
  size_t keep = 48; ///< candidates that the model lets through
  int firstSamples = 3, finalSamples = 15;
  size_t heat = 8;      ///< candidates that take turns
  size_t finalists = 4; ///< besides the default
  double tie = 0.01;    ///< within this part two are equally fast
  double margin = 0.02; ///< the default gives way to this gain
  /// Returns whether time is left; asked before each candidate.
  std::function<bool()> hasTime;
  std::function<void(const std::string &label, double part)> progress;
  /// Told of every trial that changed, at once.
  std::function<void(const Trial &)> record;
};

struct Outcome {
  std::vector<Trial> trials; ///< in the fixed order
  Candidate chosen;
  std::string reason;
  bool isComplete = true; ///< the budget did not end first

  const Trial *find(const Candidate &candidate) const;
  /// Timed trials, fastest first.
  std::vector<const Trial *> ranking() const;
  /// Spearman's rank correlation of predicted and measured times, or nothing
  /// for fewer than three.
  std::optional<double> rankCorrelation() const;
};

/// Ranks the candidates by the model, keeps the best, the best of each route
/// and the default, checks each, times them by successive halving, and looks
/// around the winner. `fallback` is the default: always a candidate, and never
/// worse than what is chosen by more than the margin. `known` are trials of
/// earlier runs.
Outcome tune(const Space &space, const Candidate &fallback,
             const std::function<std::string(const Candidate &)> &obstacle,
             const Model &model, Measurer &measurer, const TuneOptions &options,
             const std::vector<Trial> &known = {});

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_TUNER_H
