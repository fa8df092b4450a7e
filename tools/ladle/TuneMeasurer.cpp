//===- TuneMeasurer.cpp - candidates on a GPU -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/TuneMeasurer.h"

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
