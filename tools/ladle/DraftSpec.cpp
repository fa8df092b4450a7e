//===- DraftSpec.cpp - a program that verifies ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Check.h"
#include "tools/ladle/BenchPrograms.h"
#include "tools/ladle/DraftTimer.h"
#include "tools/ladle/SourceChoices.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

SourceOptions DraftSpec::plannedSource() const {
  SourceOptions planned = source;
  planned.capacity = capacity();
  return planned;
}

CompileOptions DraftSpec::programOptions() const {
  CompileOptions options = compileOptionsOf(source);
  options.target = "cuda";
  options.route = route;
  options.capacity = capacity();
  options.page = page;
  options.drafts = drafts;
  options.batch = batch;
  options.schedule = fullSchedule();
  return options;
}

std::map<std::string, int64_t> DraftSpec::fullSchedule() const {
  // What was tuned would take the place of none.
  std::map<std::string, int64_t> full{{"verify_threads", 0}};
  for (const auto &[name, value] : schedule)
    full[name] = value;
  return full;
}

Result<jit::GpuProgram> DraftSpec::compile() const {
  jit::GpuRequest request = requestOf(source, route);
  request.capacity = capacity();
  request.drafts = drafts;
  request.page = page;
  request.layout = schedule;
  // As a program has it.
  constexpr int64_t manyRows = 256;
  request.layout["batch"] = std::min(batch, manyRows);
  return compileText(request);
}

Result<std::string> DraftSpec::check() const {
  check::CheckRequest request;
  request.path = source.file;
  request.source = readSource(source.file);
  request.elaboration = elaborationOf(source);
  request.target = "cuda";
  request.schedule = fullSchedule();
  request.batch = batch;
  std::string state = source.stateType.empty() ? "f32" : source.stateType;
  // Few tokens have to be enough to fold, and to have a state.
  int64_t m = isMixed ? std::min<int64_t>(threshold, 4) : threshold;
  std::string text =
      fmt::format("route={},state={},entries={},L={},m={},drafts={},trees=1,"
                  "rows={},tokens={},seed=1",
                  route, state, route == "adjoint" ? "f32" : source.entryType,
                  capacity(), m, drafts, isMixed ? 3 : 2, isMixed ? 6 : 4);
  if (isMixed)
    text += ",staggered=1,pads=1";
  if (page)
    text += fmt::format(",page={},crossover={},takes_states=1", page, m);
  Result<check::CheckCase> config = check::CheckCase::parse(text);
  if (!config)
    return config.status();
  check::Workbench workbench(request);
  Result<const check::Oracles *> oracles = workbench.getOracles(*config);
  if (!oracles)
    return oracles.status();
  Result<Program> program = workbench.getProgram(*config);
  if (!program)
    return program.status();
  check::CaseResult result =
      check::runCase(*config, *program, **oracles,
                     check::RandomInputs(request.ranges, config->seed));
  if (!result.failure.empty())
    return result.failure;
  for (const check::FormResult &form : result.forms)
    if (form.count && !form.passed())
      return fmt::format("is wrong by {:.2g} of the largest answer, allowed is "
                         "{:.2g}",
                         form.error.value, form.bound.value());
  return std::string();
}

const Planner *DraftPlans::find(const DraftSpec &spec) {
  std::string key =
      fmt::format("{} {} {} {}", spec.source.stateType, spec.source.entryType,
                  spec.drafts, spec.capacity());
  auto found = planners.find(key);
  if (found == planners.end()) {
    std::optional<Planner> made =
        Planner::create(spec.plannedSource(), spec.drafts);
    if (!made)
      return nullptr;
    found = planners.emplace(key, std::move(*made)).first;
  }
  return &found->second;
}

std::string DraftSpec::reproducer() const {
  std::string text = fmt::format("ladle bench '{}' --device gpu", source.file);
  if (!source.preset.empty())
    text += fmt::format(" --preset '{}'", source.preset);
  for (const auto &[name, value] : source.sizes)
    text += fmt::format(" --set {}={}", name, value);
  if (!source.stateType.empty())
    text += " --states " + source.stateType;
  if (isMixed)
    text += " --mixed";
  text += fmt::format(" --routes {} --entries {} --m {} --batch {} --drafts {}",
                      route, source.entryType, threshold, batch, drafts);
  if (room)
    text += fmt::format(" --capacity {}", room);
  std::string given;
  for (const auto &[name, value] : schedule)
    if (value != 0)
      given += fmt::format("{}{}={}", given.empty() ? " --schedule " : ",",
                           name, value);
  return text + given;
}
