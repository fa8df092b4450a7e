//===- BenchPrograms.cpp - kernels that are timed -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/SourceChoices.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::string GpuSpec::layout() const {
  return fmt::format("{}, {} states{}, {} entries, m = {}", route,
                     source.stateType.empty() ? "declared" : source.stateType,
                     source.stateLayout == "dv_dk" ? "" : " dk_dv",
                     source.entryType, source.capacity);
}

std::string GpuSpec::str() const {
  std::string text = layout();
  for (const auto &[name, value] : schedule)
    text += fmt::format(", {} = {}", name, value);
  return text;
}

std::string tool::reproducerOf(const GpuSpec &spec, int64_t batch) {
  std::string text =
      fmt::format("ladle bench '{}' --device gpu", spec.source.file);
  if (!spec.source.recurrence.empty())
    text += fmt::format(" --recurrence {}", spec.source.recurrence);
  if (!spec.source.preset.empty())
    text += fmt::format(" --preset '{}'", spec.source.preset);
  for (const auto &[name, value] : spec.source.sizes)
    text += fmt::format(" --set {}={}", name, value);
  for (const auto &[name, value] : spec.source.options)
    text += fmt::format(" --set {}={}", name, value);
  if (!spec.source.stateType.empty())
    text += " --states " + spec.source.stateType;
  if (spec.source.stateLayout != "dv_dk")
    text += " --state-layout " + spec.source.stateLayout;
  text += fmt::format(" --routes {} --entries {} --m {} --batch {}", spec.route,
                      spec.source.entryType, spec.source.capacity, batch);
  std::string schedule;
  for (const auto &[name, value] : spec.schedule)
    if (name != "batch" && value != 0)
      schedule += fmt::format(
          "{}{}={}", schedule.empty() ? " --schedule " : ",", name, value);
  return text + schedule;
}

GpuSpec tool::specOf(const SourceOptions &source,
                     const tune::Candidate &candidate, int64_t batch) {
  GpuSpec spec{source, candidate.route, candidate.schedule};
  spec.source.capacity = candidate.threshold;
  auto tiles = spec.schedule.find("tile_rows");
  // From so many rows on, blocks fill a GPU however they are laid out.
  constexpr int64_t manyRows = 256;
  if (batch && (tiles == spec.schedule.end() || tiles->second == 0))
    spec.schedule["batch"] = std::min(batch, manyRows);
  return spec;
}

std::optional<tune::Candidate> tool::chooseLeast(
    const std::vector<tune::Candidate> &candidates,
    const std::function<std::optional<double>(const tune::Candidate &)>
        &seconds) {
  constexpr double tie = 1.01;
  std::optional<tune::Candidate> best;
  double least = 0;
  for (const tune::Candidate &candidate : candidates) {
    std::optional<double> each = seconds(candidate);
    if (!each || (best && *each >= least / tie))
      continue;
    best = candidate;
    least = *each;
  }
  return best;
}

std::optional<tune::Candidate> tool::chooseByModel(
    GpuPlans &plans, const std::string &card, const SourceOptions &source,
    const std::vector<tune::Candidate> &candidates, int64_t batch) {
  return chooseLeast(
      candidates,
      [&](const tune::Candidate &candidate) -> std::optional<double> {
        std::optional<RoutePlan> plan =
            plans.plan(specOf(source, candidate), Rates::gpu(card), batch);
        if (!plan || !plan->isLegal())
          return std::nullopt;
        return plan->seconds;
      });
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

jit::GpuRequest tool::requestOf(const SourceOptions &source,
                                const std::string &route) {
  jit::GpuRequest request;
  request.path = source.file;
  request.elaboration = elaborationOf(source);
  request.route = route;
  request.stateType = source.stateType;
  request.entryType = source.entryType;
  request.stateLayout = source.stateLayout;
  request.capacity = source.capacity;
  return request;
}

Result<jit::GpuProgram> tool::compileText(const jit::GpuRequest &request) {
  std::string messages;
  std::optional<jit::GpuProgram> program =
      jit::compileForGpu(request, messages);
  if (!program)
    return Status(ErrorCode::InvalidData, messages);
  return std::move(*program);
}

Result<jit::GpuProgram> tool::compileSpec(const GpuSpec &spec) {
  jit::GpuRequest request = requestOf(spec.source, spec.route);
  request.layout = spec.schedule;
  if (std::string wrong = jit::checkLayout(spec.schedule); !wrong.empty())
    return Status(ErrorCode::InvalidArgument, wrong);
  return compileText(request);
}

std::optional<RoutePlan> GpuPlans::plan(const GpuSpec &spec, const Rates &rates,
                                        int64_t batch) {
  // One plan holds all routes.
  GpuSpec shared = spec;
  shared.route.clear();
  auto found = planners.find(shared.layout());
  if (found == planners.end()) {
    std::optional<Planner> made = Planner::create(spec.source);
    if (!made)
      return std::nullopt;
    found = planners.emplace(shared.layout(), std::move(*made)).first;
  }
  RunPlan all = found->second.plan(rates, batch, spec.threshold());
  for (RoutePlan &route : all.routes)
    if (route.route == spec.route)
      return std::move(route);
  RoutePlan unknown;
  unknown.route = spec.route;
  unknown.obstacle = "no such route; routes are recurrent, inner, outer, "
                     "adjoint and kv_only";
  return unknown;
}

Result<GpuSubject> GpuPrograms::load(const GpuSpec &spec) const {
  Result<jit::GpuProgram> program = compileSpec(spec);
  if (!program)
    return program.status();
  Result<measure::LoadedKernels> kernels = gpu.load(program->text);
  if (!kernels)
    return kernels.status();
  return GpuSubject{spec, std::move(*program), std::move(*kernels)};
}

Result<measure::GpuReference *>
GpuPrograms::reference(const SourceOptions &source) {
  std::string key = source.stateType + " " + source.entryType;
  auto found = references.find(key);
  if (found == references.end()) {
    Result<measure::GpuReference> made =
        measure::GpuReference::create({source.file, elaborationOf(source),
                                       source.stateType, source.entryType});
    if (!made)
      return made.status();
    found = references.emplace(key, std::move(*made)).first;
  }
  return &found->second;
}

Result<measure::GpuVerdict> GpuPrograms::check(const GpuSubject &subject) {
  Result<measure::GpuReference *> expected = reference(subject.spec.source);
  if (!expected)
    return expected.status();
  return measure::checkKernels(gpu, subject.program, subject.kernels,
                               subject.spec.route, subject.spec.threshold(),
                               **expected);
}

Result<std::unique_ptr<measure::GpuCycle>>
GpuPrograms::record(const GpuSubject &subject, const RoutePlan &plan,
                    const Rates &rates, int64_t batch, double replaySeconds,
                    int64_t modelLayers, bool startsEarly) {
  measure::CycleShape shape;
  shape.startsEarly = startsEarly;
  shape.rows = batch;
  shape.replaySeconds = replaySeconds;
  shape.modelLayers = modelLayers;
  return makeCycle(subject, plan, rates, shape);
}

Result<std::unique_ptr<measure::GpuCycle>>
GpuPrograms::prepare(const GpuSubject &subject, const RoutePlan &plan,
                     const Rates &rates, int64_t batch) {
  measure::CycleShape shape;
  shape.rows = batch;
  shape.isEager = true;
  return makeCycle(subject, plan, rates, shape);
}

Result<std::unique_ptr<measure::GpuCycle>>
GpuPrograms::makeCycle(const GpuSubject &subject, const RoutePlan &plan,
                       const Rates &rates, measure::CycleShape shape) {
  shape.threshold = subject.spec.threshold();
  shape.grows = subject.spec.route == "kv_only";
  shape.fills = static_cast<int64_t>(plan.bytesByFill.size());
  for (const StateSpec &spec : subject.program.signature.states)
    shape.rowBytes += static_cast<double>(
        spec.heads * spec.keySize * spec.valueSize * sizeInBytes(spec.dtype));
  if (shape.grows)
    shape.rowBytes = plan.bytes;
  shape.leastSeconds =
      plan.leastSeconds(rates.bandwidth) * static_cast<double>(shape.rows);

  std::string key =
      fmt::format("{}, batch {}", subject.spec.layout(), shape.rows);
  std::shared_ptr<measure::GpuLayers> memory = layers[key].lock();
  if (!memory) {
    Result<measure::GpuReference *> inputs = reference(subject.spec.source);
    if (!inputs)
      return inputs.status();
    auto made =
        measure::GpuLayers::allocate(gpu, subject.program, shape, **inputs);
    if (!made)
      return made.status();
    memory = std::move(*made);
    layers[key] = memory;
  }
  return measure::GpuCycle::create(gpu, subject.program, subject.kernels,
                                   subject.spec.route, shape,
                                   std::move(memory));
}

Result<measure::HostCosts>
GpuPrograms::measureHost(const GpuSubject &subject) const {
  Result<Program> program =
      measure::makeRuntimeProgram(gpu, subject.program, subject.kernels,
                                  subject.spec.route, subject.spec.threshold());
  if (!program)
    return program.status();
  return measure::measureHost(gpu, *program);
}
