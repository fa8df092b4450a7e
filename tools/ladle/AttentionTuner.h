//===- AttentionTuner.h - the cheapest reuse within a bound -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_ATTENTIONTUNER_H
#define LADLE_TOOLS_LADLE_ATTENTIONTUNER_H

#include "tools/ladle/AttentionTrials.h"
#include "tools/ladle/MacFigures.h"

#include <functional>

namespace ladle::tool {

/// What may be chosen. The order of the lists decides between what moves the
/// same bytes.
struct AttentionSpace {
  std::vector<double> taus;
  std::vector<int64_t> windows, bands, chains;

  /// All of them, exact attention first.
  std::vector<AttentionCandidate> enumerate() const;
};

/// What became of a candidate.
struct AttentionOutcome {
  enum class Verdict : uint8_t {
    Holds,     ///< measured, and within the bound
    Exceeds,   ///< measured, and beyond
    Illegal,   ///< `why` says so
    NoGain,    ///< moves as much as exact attention, or is predicted to
    Dearer,    ///< not measured: something that moves less holds
    Unmeasured ///< the time was over first
  };
  AttentionCandidate candidate;
  double predicted = 0; ///< bytes of all steps
  Verdict verdict = Verdict::Dearer;
  std::string why;
  AttentionTrial trial;  ///< of Holds and Exceeds, and of NoGain if measured
  bool isChosen = false; ///< of one at most
};

/// Tunes a layer on its traces: candidates in the order of the bytes that they
/// move by the cost model, whose matches follow from the queries alone, until
/// one holds the bound on every trace in a closed loop and moves, as measured,
/// no more than the next are predicted to.
class AttentionTuner {
public:
  /// A program whose output is f32; traces outlive the tuner.
  static Result<AttentionTuner> create(const AttentionProgram &program,
                                       const std::vector<MacTrace> &traces,
                                       const AttentionSpace &space,
                                       int64_t prompt);

  struct Options {
    double maxError = 0;
    size_t wanted = 1; ///< so many that hold are looked for
    std::function<bool()> hasTime;
    std::function<void(const std::string &label, double part)> progress;
  };
  /// Candidates, those that move least first. Measures what `trials` do not
  /// know, and tells them.
  Result<std::vector<AttentionOutcome>> run(const Options &options,
                                            AttentionTrials &trials);

private:
  explicit AttentionTuner(AttentionProgram program)
      : program(std::move(program)) {}
  std::string obstacle(const AttentionCandidate &candidate) const;
  double predict(const AttentionCandidate &candidate) const;
  Result<AttentionTrial> measure(const AttentionCandidate &candidate,
                                 double maxError);

  AttentionProgram program;
  AttentionSettings base;
  AttentionBytes bytes;
  AttentionSpace space;
  const std::vector<MacTrace> *traces = nullptr;
  std::vector<MacReplay> replays;
  /// Of each trace and window, at tau = 0.
  std::vector<std::vector<MacRun>> nearest;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_ATTENTIONTUNER_H
