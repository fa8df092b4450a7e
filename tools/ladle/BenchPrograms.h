//===- BenchPrograms.h - kernels that are timed -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_BENCHPROGRAMS_H
#define LADLE_TOOLS_LADLE_BENCHPROGRAMS_H

#include "runtime/tune/Candidate.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Plan.h"
#include "tools/measure/GpuCycle.h"
#include "tools/measure/GpuReference.h"

#include <functional>
#include <memory>

namespace ladle::tool {

/// What kernels are compiled from. The state type, the entry type and the
/// capacity of `source` count.
struct GpuSpec {
  SourceOptions source;
  std::string route;
  std::map<std::string, int64_t> schedule;

  int64_t threshold() const { return source.capacity; }
  /// What answers and memory depend on: all but the schedule.
  std::string layout() const;
  std::string str() const;
};

/// What a candidate of the tuner stands for. Without tiles of its own it is
/// laid out for the batch, as a program is.
GpuSpec specOf(const SourceOptions &source, const tune::Candidate &candidate,
               int64_t batch = 0);

/// The command that checks and times one figure.
std::string reproducerOf(const GpuSpec &spec, int64_t batch);

/// Kernels of one route, as the source's options have them.
jit::GpuRequest requestOf(const SourceOptions &source,
                          const std::string &route);

/// CUDA text. An error holds the compiler's messages.
Result<jit::GpuProgram> compileText(const jit::GpuRequest &request);
Result<jit::GpuProgram> compileSpec(const GpuSpec &spec);

struct GpuSubject {
  GpuSpec spec;
  jit::GpuProgram program;
  measure::LoadedKernels kernels;
};

/// Costs of routes, without a GPU.
class GpuPlans {
public:
  /// An obstacle says why there is no such route. Nothing, with the errors on
  /// stderr, if the file has any.
  std::optional<RoutePlan> plan(const GpuSpec &spec, const Rates &rates,
                                int64_t batch);

private:
  std::map<std::string, Planner> planners;
};

/// The candidate with the fewest seconds, and of those within a hundredth the
/// first. None if none is legal, which has no seconds.
std::optional<tune::Candidate>
chooseLeast(const std::vector<tune::Candidate> &candidates,
            const std::function<std::optional<double>(const tune::Candidate &)>
                &seconds);

/// That which the model predicts to be the fastest. What it chooses on a card
/// does not depend on what a run measures there.
std::optional<tune::Candidate>
chooseByModel(GpuPlans &plans, const std::string &card,
              const SourceOptions &source,
              const std::vector<tune::Candidate> &candidates, int64_t batch);

/// Compiles, checks and times kernels, and keeps what several of them share.
class GpuPrograms {
public:
  explicit GpuPrograms(const measure::Gpu &gpu) : gpu(gpu) {}

  Result<GpuSubject> load(const GpuSpec &spec) const;
  Result<measure::GpuVerdict> check(const GpuSubject &subject);
  /// Graphs of the steps of `plan`, each of about `replaySeconds`. Cursors move
  /// once every `modelLayers` steps of a layer, 0: never; other steps may start
  /// before those ahead of them have ended.
  Result<std::unique_ptr<measure::GpuCycle>>
  record(const GpuSubject &subject, const RoutePlan &plan, const Rates &rates,
         int64_t batch, double replaySeconds, int64_t modelLayers = 0,
         bool startsEarly = false);
  /// The same without graphs, for a profiler.
  Result<std::unique_ptr<measure::GpuCycle>> prepare(const GpuSubject &subject,
                                                     const RoutePlan &plan,
                                                     const Rates &rates,
                                                     int64_t batch);
  /// What the host takes to launch a step.
  Result<measure::HostCosts> measureHost(const GpuSubject &subject) const;

private:
  Result<std::unique_ptr<measure::GpuCycle>>
  makeCycle(const GpuSubject &subject, const RoutePlan &plan,
            const Rates &rates, measure::CycleShape shape);
  Result<measure::GpuReference *> reference(const SourceOptions &source);

  const measure::Gpu &gpu;
  std::map<std::string, measure::GpuReference> references;
  /// As long as a cycle uses them.
  std::map<std::string, std::weak_ptr<measure::GpuLayers>> layers;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_BENCHPROGRAMS_H
