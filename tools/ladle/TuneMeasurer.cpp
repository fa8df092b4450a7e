//===- TuneMeasurer.cpp - candidates on a GPU -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/TuneMeasurer.h"

#include <algorithm>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using tune::Candidate;

/// Graphs of so many candidates stay on the device.
static constexpr size_t kResident = 16;
/// Shorter than a benchmark's: there are many, and they take turns.
static constexpr double kReplaySeconds = 5e-4;

/// The first line: the rest shows sources.
static std::string firstLine(const std::string &text) {
  return text.substr(0, text.find('\n'));
}

std::string GpuMeasurer::prepare(const Candidate &candidate) {
  Result<GpuSubject> subject = programs.load(specOf(source, candidate, batch));
  if (!subject)
    return firstLine(subject.message());
  if (std::string spills = measure::describeSpills(subject->kernels.resources);
      !spills.empty())
    return spills;
  forgetAllBut(candidate, kResident - 1);
  entries.insert_or_assign(candidate,
                           Entry{std::move(*subject), nullptr, ++uses});
  return "";
}

std::string GpuMeasurer::check(const Candidate &candidate) {
  Result<measure::GpuVerdict> verdict =
      programs.check(entries.at(candidate).subject);
  if (!verdict)
    return firstLine(verdict.message());
  if (!verdict->passed())
    return fmt::format("is wrong by {:.2g} of the largest answer, allowed is "
                       "{:.2g}; repeat with: {}",
                       verdict->error, verdict->bound,
                       reproducerOf(entries.at(candidate).subject.spec, batch));
  return "";
}

void GpuMeasurer::forgetAllBut(const Candidate &candidate, size_t count) {
  while (entries.size() > count) {
    auto oldest = entries.end();
    for (auto at = entries.begin(); at != entries.end(); ++at)
      if (at->first != candidate &&
          (oldest == entries.end() ||
           at->second.lastUse < oldest->second.lastUse))
        oldest = at;
    if (oldest == entries.end())
      return;
    entries.erase(oldest);
  }
}

Status GpuMeasurer::record(Entry &entry) {
  std::optional<RoutePlan> plan = plans.plan(entry.subject.spec, rates, batch);
  if (!plan || !plan->isLegal())
    return Status(ErrorCode::Internal, "the candidate has no plan");
  auto cycle =
      programs.record(entry.subject, *plan, rates, batch, kReplaySeconds);
  if (!cycle)
    return cycle.status();
  entry.cycle = std::move(*cycle);
  return Status();
}

Result<double> GpuMeasurer::sample(const Candidate &candidate) {
  if (!entries.count(candidate))
    if (std::string why = prepare(candidate); !why.empty())
      return Status(ErrorCode::Internal, why);
  Entry &entry = entries.at(candidate);
  entry.lastUse = ++uses;
  if (!entry.cycle) {
    Status status = record(entry);
    // Others may hold the memory.
    if (!status && status.code() == ErrorCode::ResourceExhausted) {
      forgetAllBut(candidate, 1);
      status = record(entry);
    }
    if (!status)
      return Status(status.code(), firstLine(status.message()));
  }
  return entry.cycle->sampleCycle();
}

//===----------------------------------------------------------------------===//
// Steps that verify
//===----------------------------------------------------------------------===//

std::string DraftMeasurer::prepare(const Candidate &candidate) {
  Result<jit::GpuProgram> program = specOf(candidate).compile();
  if (!program)
    return firstLine(program.message());
  Result<measure::LoadedKernels> kernels = gpu.load(program->text);
  if (!kernels)
    return firstLine(kernels.message());
  return measure::describeSpills(kernels->resources);
}

std::string DraftMeasurer::check(const Candidate &candidate) {
  DraftSpec spec = specOf(candidate);
  Result<std::string> wrong = spec.check();
  if (!wrong)
    return firstLine(wrong.message());
  return wrong->empty() ? ""
                        : fmt::format("{}; repeat with: {}", firstLine(*wrong),
                                      spec.reproducer());
}

void DraftMeasurer::forgetAllBut(size_t count) {
  while (entries.size() > count)
    entries.erase(std::min_element(entries.begin(), entries.end(),
                                   [](const auto &a, const auto &b) {
                                     return a.second.lastUse < b.second.lastUse;
                                   }));
}

Status DraftMeasurer::record(const Candidate &candidate) {
  DraftSpec spec = specOf(candidate);
  const Planner *planner = plans.find(spec);
  std::optional<DraftCost> cost =
      planner ? planner->draftCost(spec.route) : std::nullopt;
  if (!cost)
    return Status(ErrorCode::Internal, "the candidate has no plan");
  DraftTimer::Options options;
  options.replaySeconds = kReplaySeconds;
  options.rowBytes = cost->bytes(0);
  options.leastSeconds =
      static_cast<double>(spec.batch) *
      cost->leastSeconds(DraftStep(0, spec.drafts, spec.threshold),
                         rates.bandwidth);
  auto timer = DraftTimer::create(spec, gpu, options);
  if (!timer)
    return timer.status();
  if (Status status = (*timer)->recordCycle(/*branches=*/false, accepted);
      !status)
    return status;
  entries[candidate].timer = std::move(*timer);
  return Status();
}

Result<double> DraftMeasurer::sample(const Candidate &candidate) {
  if (!entries.count(candidate)) {
    forgetAllBut(kResident - 1);
    Status status = record(candidate);
    // Others may hold the memory.
    if (!status && status.code() == ErrorCode::ResourceExhausted) {
      entries.clear();
      status = record(candidate);
    }
    if (!status)
      return Status(status.code(), firstLine(status.message()));
  }
  Entry &entry = entries.at(candidate);
  entry.lastUse = ++uses;
  return entry.timer->sampleCycle();
}
