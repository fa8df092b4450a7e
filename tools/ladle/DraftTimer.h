//===- DraftTimer.h - steps that verify, replayed ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_DRAFTTIMER_H
#define LADLE_TOOLS_LADLE_DRAFTTIMER_H

#include "ladle/compile.h"
#include "runtime/jit/GpuProgram.h"
#include "runtime/tune/Candidate.h"
#include "tools/ladle/DraftLayers.h"
#include "tools/ladle/Plan.h"
#include "tools/measure/Gpu.h"

#include <algorithm>

namespace ladle::tool {

/// A program that verifies, and the batch that it is for. The state type and
/// the entry type of `source` count.
struct DraftSpec {
  SourceOptions source;
  std::string route;
  int64_t drafts = 4, threshold = 16, batch = 1; ///< T, m, rows
  std::map<std::string, int64_t> schedule;
  int64_t page = 0; ///< entries of one, where rows begin without a state
  /// Rows of which each does something else, in one call.
  bool isMixed = false;
  int64_t room = 0; ///< entries, if that is more than m and T ask for

  int64_t capacity() const {
    return std::max(tune::leastCapacity(threshold, drafts), room);
  }
  CompileOptions programOptions() const;
  /// For a program: nothing that was tuned takes the place of what is left out.
  std::map<std::string, int64_t> fullSchedule() const;
  /// What costs are planned from.
  SourceOptions plannedSource() const;
  /// CUDA text. An error holds the compiler's messages.
  Result<jit::GpuProgram> compile() const;
  /// How answers are wrong, compared with the interpreter; empty if they are
  /// right.
  Result<std::string> check() const;
  /// The command that checks and times it.
  std::string reproducer() const;
};

/// Costs of steps that verify, without a GPU.
class DraftPlans {
public:
  /// Null, with the errors on stderr, if the file has any.
  const Planner *find(const DraftSpec &spec);

private:
  std::map<std::string, Planner> planners;
};

/// Of layers that take turns: a verify alone leaves the cursors where they are,
/// so that it can be replayed at one fill; a cycle commits after the layers of
/// a model, and folds when that is due.
class DraftTimer {
public:
  struct Options {
    int64_t modelLayers = 32;
    double replaySeconds = 2e-3;
    double leastSeconds = 0; ///< of a step of all rows
    double rowBytes = 0;     ///< that it cannot do without
    /// Steps start before those of the layers ahead of them have ended.
    bool startsEarly = false;
    double restSeconds = 0; ///< before each that is timed
  };
  static Result<std::unique_ptr<DraftTimer>> create(const DraftSpec &spec,
                                                    const measure::Gpu &gpu,
                                                    const Options &options);
  ~DraftTimer();

  int64_t layerCount() const { return layers->count(); }
  /// Samples of a step in which all rows have `fill` entries, in seconds.
  Result<std::vector<double>> timeVerify(bool branches, int64_t fill,
                                         int64_t samples);
  /// A step and its commit, in which rows accept so many drafts on average, of
  /// a tree as many of them as its left side has.
  Status recordCycle(bool branches, double accepted);
  /// Seconds of a step, mean of whole cycles.
  Result<double> sampleCycle();
  /// That each row accepts, of the cycle that was recorded last.
  int64_t acceptedByFirstRow() const { return cycleAccepted; }

private:
  struct Tree;
  DraftTimer(DraftSpec spec, const measure::Gpu &gpu);
  Status prepare(const Options &options);
  Result<Tree> makeTree(int64_t drafts, double accepted, bool branches) const;
  VerifyArguments arguments(const Tree &tree) const;
  Status commit(const Tree &tree);
  Status setFill(int64_t fill);

  DraftSpec spec;
  const measure::Gpu &gpu;
  int64_t steps = 1; ///< of a layer, in a replay
  int64_t modelLayers = 1;
  std::optional<DraftLayers> layers;
  std::optional<DeviceTensor> slots;
  std::vector<int32_t> slotNumbers;
  std::unique_ptr<Tree> cycleTree; ///< numbers that the graph reads
  std::optional<cuda::Graph> cycle;
  int64_t cycleReplays = 1, cycleSteps = 1, cycleAccepted = 0;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_DRAFTTIMER_H
