//===- Check.cpp - every route of a file against the oracle ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Check.h"

#include "runtime/check/CaseText.h"
#include "runtime/check/Oracle.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace ladle;
using namespace ladle::check;
using interpreter::Precision;
using interpreter::SpecInterpreter;

static constexpr RouteKind allRoutes[] = {
    RouteKind::Recurrent, RouteKind::Outer, RouteKind::Inner,
    RouteKind::Adjoint, RouteKind::KvOnly};

//===----------------------------------------------------------------------===//
// Workbench
//===----------------------------------------------------------------------===//

/// What a program and its oracles depend on.
static std::string keyOf(const CheckCase &config) {
  CheckCase key;
  key.stateType = config.stateType;
  key.entryType = config.entryType;
  key.outputType = config.outputType;
  key.layout = config.layout;
  key.capacity = key.threshold = config.capacity;
  key.page = config.page;
  key.drafts = config.drafts;
  key.prompts = config.prompts > 0;
  key.chunk = config.chunk;
  key.byChunk = config.byChunk;
  key.batch = config.batch;
  key.sizes = config.sizes;
  return key.str();
}

Result<const Oracles *> Workbench::getOracles(const CheckCase &config) {
  CheckCase unbuffered = config;
  unbuffered.capacity = 1;
  unbuffered.page = 0;
  unbuffered.drafts = unbuffered.prompts = 0;
  unbuffered.chunk = CheckCase().chunk;
  unbuffered.byChunk = false;
  unbuffered.batch = 0;
  unbuffered.outputType = DType::F32;
  unbuffered.layout = StateLayout::DvDk;
  std::string key = keyOf(unbuffered);
  if (auto it = oracles.find(key); it != oracles.end())
    return &it->second;

  frontend::ElaborationOptions options = request.elaboration;
  for (const auto &[name, size] : config.sizes)
    options.sizes[name] = size;
  options.stateTypes["*"] = toString(config.stateType);
  // float32 entries are within what float32 arithmetic is allowed.
  Precision entries = config.entryType == DType::F32
                          ? Precision::Float64
                          : precisionOf(config.entryType);
  std::string messages;
  std::optional<SpecInterpreter> exact =
      compileOracle(request.path, request.source, options, messages);
  if (!exact)
    return Status(ErrorCode::InvalidData, messages);
  std::optional<SpecInterpreter> rounded =
      compileOracle(request.path, request.source, options, messages, entries);
  if (!rounded)
    return Status(ErrorCode::InvalidData, messages);
  Oracles pair{std::move(*exact), std::move(*rounded)};
  return &oracles.emplace(key, std::move(pair)).first->second;
}

Result<CompileOptions> Workbench::makeOptions(const CheckCase &config) {
  CompileOptions options;
  options.recurrence = request.elaboration.recurrence;
  options.preset = request.elaboration.preset;
  options.sizes = request.elaboration.sizes;
  for (const auto &[name, size] : config.sizes)
    options.sizes[name] = size;
  options.options = request.elaboration.options;
  options.stateType = toString(config.stateType);
  options.entryType = toString(config.entryType);
  options.stateLayout = toString(config.layout);
  options.capacity = config.capacity;
  options.page = config.page;
  options.drafts = config.drafts;
  options.prefill = config.prompts > 0;
  options.chunk = config.chunk;
  options.numerics = config.byChunk ? "chunk" : "step";
  options.target = request.target;
  options.schedule = request.schedule;
  options.batch = config.batch ? config.batch : request.batch;
  Result<const Oracles *> oracles = getOracles(config);
  if (!oracles)
    return oracles.status();
  for (const interpreter::ValueInfo &output : (*oracles)->exact.getOutputs())
    options.tokenTypes[output.name] = toString(config.outputType);
  return options;
}

Result<const std::vector<Program> *>
Workbench::getPrograms(const CheckCase &config) {
  std::string key = keyOf(config);
  if (auto it = all.find(key); it != all.end())
    return &it->second;
  Result<CompileOptions> options = makeOptions(config);
  if (!options)
    return options.status();
  Result<std::vector<Program>> compiled =
      compileAllRoutes(request.source, request.path, *options);
  if (!compiled)
    return compiled.status();
  return &all.emplace(key, std::move(*compiled)).first->second;
}

std::shared_future<Result<Program>> Workbench::start(const CheckCase &config) {
  std::string key = keyOf(config);
  auto [it, isNew] = programs.try_emplace({key, config.route});
  if (!isNew)
    return it->second;
  Result<CompileOptions> options = makeOptions(config);
  if (!options) {
    Result<Program> failed = options.status();
    return it->second =
               std::async(std::launch::deferred, [failed] { return failed; });
  }
  options->route = toString(config.route);
  return it->second = threads.async([this, options = std::move(*options)] {
    return compileSource(request.source, request.path, options);
  });
}

void Workbench::compileAhead(const std::vector<CheckCase> &cases) {
  for (const CheckCase &config : cases)
    if (!all.count(keyOf(config)))
      (void)start(config);
}

Result<Program> Workbench::getProgram(const CheckCase &config) {
  if (auto it = all.find(keyOf(config)); it != all.end())
    for (const Program &program : it->second)
      if (program.route() == config.route)
        return program;
  return start(config).get();
}

//===----------------------------------------------------------------------===//
// The check
//===----------------------------------------------------------------------===//

namespace {
class Checker {
public:
  Checker(const CheckRequest &request, CheckReport &report)
      : request(request), report(report), workbench(request) {}

  Status findRoutes();
  Status runAll();
  void run(const std::vector<CheckCase> &cases);

  std::vector<RouteKind> routes;

private:
  Status checkRanges();
  std::vector<SizeMap> findSizes();
  bool scansPrompts(const SizeMap &sizes);
  std::vector<CheckCase> plan();
  CaseResult runOne(const CheckCase &config);
  Status runTraces();
  Status noCases() const;

  const CheckRequest &request;
  CheckReport &report;
  Workbench workbench;
  Signature signature; // at the sizes as given
  bool isOnCpu = true;
};
} // namespace

/// The note of the diagnostics that refuse a route, as one line with its place:
/// the error before it names no more than the route.
static std::string reasonOf(const std::string &diagnostics) {
  constexpr std::string_view mark = "note: ";
  size_t note = diagnostics.rfind(mark);
  if (note == std::string::npos)
    return diagnostics.substr(0, diagnostics.find('\n'));
  size_t text = note + mark.size();
  // At the beginning of a file there is no line before the note.
  size_t line = diagnostics.rfind('\n', note) + 1;
  return diagnostics.substr(line, note - line) +
         diagnostics.substr(text, diagnostics.find('\n', text) - text);
}

/// A range of an input that is not there would change nothing.
Status Checker::checkRanges() {
  Result<const Oracles *> oracles = workbench.getOracles(CheckCase());
  if (!oracles)
    return oracles.status();
  std::vector<std::string> names;
  for (auto infos :
       {(*oracles)->exact.getParams(), (*oracles)->exact.getTokens()})
    for (const interpreter::ValueInfo &info : infos)
      names.push_back(info.name);
  for (const auto &[name, range] : request.ranges)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return Status(ErrorCode::InvalidArgument,
                    fmt::format("--range {}={}: '{}' has no input '{}'\n"
                                "note: its inputs are {}",
                                name, range.str(), signature.name, name,
                                fmt::join(names, ", ")));
  return Status();
}

Status Checker::findRoutes() {
  CheckCase plain;
  Result<const std::vector<Program> *> programs = workbench.getPrograms(plain);
  if (!programs)
    return programs.status();
  for (const Program &program : **programs)
    routes.push_back(program.route());
  signature = (*programs)->front().signature();
  isOnCpu = (*programs)->front().device() == DeviceId();
  report.name = signature.name;
  for (RouteKind route : allRoutes) {
    plain.route = route;
    if (Result<Program> program = workbench.getProgram(plain); !program)
      report.missing.push_back({route, reasonOf(program.message())});
  }
  return checkRanges();
}

/// The sizes as given, and small ones if the recurrence takes them.
std::vector<SizeMap> Checker::findSizes() {
  SizeMap given = readSizes(request.path, request.source, request.elaboration);
  SizeMap small = shrinkSizes(signature, given);
  if (small.empty())
    return {{}};
  CheckCase config;
  config.sizes = small;
  return workbench.getOracles(config) ? std::vector<SizeMap>{{}, small}
                                      : std::vector<SizeMap>{{}};
}

/// Whether a GPU goes through prompts token by token: all of them fold then, at
/// once.
bool Checker::scansPrompts(const SizeMap &sizes) {
  auto route = std::ranges::find_if(routes, [](RouteKind each) {
    return each != RouteKind::Recurrent && each != RouteKind::KvOnly;
  });
  if (route == routes.end())
    return false;
  // One of the cases, whose programs are not compiled twice.
  CheckCase prompts;
  prompts.route = *route;
  prompts.prompts = 1;
  prompts.byChunk = true;
  prompts.chunk = prompts.capacity = prompts.threshold = 16;
  prompts.sizes = sizes;
  Result<Program> program = workbench.getProgram(prompts);
  return !program && program.status().code() == ErrorCode::Unsupported;
}

std::vector<CheckCase> Checker::plan() {
  std::vector<SizeMap> sizes = findSizes();
  std::vector<CheckCase> cases = planCross(routes, sizes, request.seed);
  // Many cases at full size take minutes, and the small ones meet more.
  std::vector<SizeMap> pairwise = sizes;
  if (!request.full && sizes.size() > 1)
    pairwise = {sizes.back()};
  for (CheckCase &config :
       planPairwise(routes, pairwise, request.seed, request.full ? 4 : 1)) {
    if (request.full)
      config.tokens *= 4;
    cases.push_back(std::move(config));
  }
  if (request.page > 0) {
    std::erase_if(cases, [](const CheckCase &config) {
      return config.route == RouteKind::Recurrent;
    });
    for (CheckCase &config : cases) {
      config.page = request.page;
    }
  }
  if (!isOnCpu) {
    // A GPU keeps prompts of kv_only as entries in pages alone and by chunks in
    // rings, and takes no drafts of states that lie [dk, dv].
    bool isScan = scansPrompts(sizes.back());
    std::erase_if(cases, [&](const CheckCase &config) {
      bool keepsEntries = config.byChunk || config.route == RouteKind::KvOnly;
      return (config.prompts > 0 && isScan && keepsEntries) ||
             (config.prompts > 0 &&
              (config.byChunk
                   ? config.page > 0 || config.route == RouteKind::KvOnly
                   : config.route == RouteKind::KvOnly && !config.page)) ||
             (config.drafts > 0 && config.layout == StateLayout::DkDv);
    });
    // Slots without pages take no states.
    for (CheckCase &config : cases) {
      config.crossover = config.page ? config.crossover : 0;
      config.takesStates &= config.page > 0;
    }
  }
  if (request.drafts == 0)
    return cases;
  std::erase_if(cases,
                [](const CheckCase &config) { return config.drafts == 0; });
  for (CheckCase &config : cases) {
    int64_t entries = config.capacity - config.drafts;
    config.drafts = request.drafts;
    config.capacity = std::max(entries + config.drafts, 2 * config.drafts);
    config.threshold = std::min(config.threshold, entries);
    config.crossover = std::min(config.crossover, entries);
  }
  return cases;
}

CaseResult Checker::runOne(const CheckCase &config) {
  CaseResult result;
  result.config = config;
  Result<const Oracles *> oracles = workbench.getOracles(config);
  if (!oracles) {
    result.failure = oracles.message();
    return result;
  }
  Result<Program> compiled = workbench.getProgram(config);
  if (!compiled) {
    result.fail(compiled.status());
    return result;
  }
  return runCase(config, *compiled, **oracles,
                 RandomInputs(request.ranges, config.seed));
}

Status Checker::runTraces() {
  Result<Safetensors> file = Safetensors::open(request.trace);
  if (!file)
    return file.status();
  CheckCase plain;
  Result<const Oracles *> oracles = workbench.getOracles(plain);
  if (!oracles)
    return oracles.status();
  Result<Trace> trace = Trace::load(*file, (*oracles)->exact);
  if (!trace)
    return trace.status();
  for (RouteKind route : routes) {
    plain.route = route;
    Result<Program> program = workbench.getProgram(plain);
    if (!program)
      return program.status();
    report.traces.push_back(runTrace(*trace, *program, /*threshold=*/0));
  }
  return Status();
}

void Checker::run(const std::vector<CheckCase> &cases) {
  workbench.compileAhead(cases);
  for (const CheckCase &config : cases) {
    report.cases.push_back(runOne(config));
    if (request.progress)
      request.progress(report.cases.size(), cases.size());
  }
}

Status Checker::runAll() {
  if (!request.trace.empty())
    if (Status status = runTraces(); !status)
      return status;
  std::vector<CheckCase> cases = plan();
  if (cases.empty())
    return noCases();
  run(cases);
  return Status();
}

/// A table without a row would look as if everything had passed.
Status Checker::noCases() const {
  std::string wanted;
  if (request.drafts > 0)
    wanted += fmt::format(" with {} drafts", request.drafts);
  if (request.page > 0)
    wanted += fmt::format(" in pages of {}", request.page);
  std::vector<std::string_view> names;
  for (RouteKind route : routes)
    names.push_back(toString(route));
  return Status(
      ErrorCode::Unsupported,
      fmt::format(
          "no case of '{}' is left to check{} on '{}': its only route is {}, "
          "which has no entries to lie in pages\nnote: leave out --pages",
          signature.name, wanted, request.target, fmt::join(names, ", ")));
}

std::string
ladle::check::showCommand(std::string_view path, std::string_view target,
                          const frontend::ElaborationOptions &options) {
  std::string text = fmt::format("ladle check {}", path);
  if (target != "cpu")
    text += fmt::format(" --target {}", target);
  if (!options.recurrence.empty())
    text += " --recurrence " + options.recurrence;
  if (!options.preset.empty())
    text += fmt::format(" --preset '{}'", options.preset);
  for (const auto &[name, value] : options.sizes)
    text += fmt::format(" --set {}={}", name, value);
  for (const auto &[name, value] : options.options)
    text += fmt::format(" --set {}={}", name, value);
  return text;
}

/// The command that repeats a case of `request`.
static std::string reproducerOf(const CheckRequest &request) {
  std::string text =
      showCommand(request.path, request.target, request.elaboration);
  for (const auto &[name, range] : request.ranges)
    text += fmt::format(" --range {}={}", name, range.str());
  return text;
}

Result<CheckReport> ladle::check::check(const CheckRequest &request) {
  CheckReport report;
  report.reproducer = reproducerOf(request);
  Checker checker(request, report);
  if (Status status = checker.findRoutes(); !status)
    return status;
  if (Status status = checker.runAll(); !status)
    return status;
  return report;
}

Result<CheckReport>
ladle::check::checkCases(const CheckRequest &request,
                         const std::vector<CheckCase> &cases) {
  CheckReport report;
  report.reproducer = reproducerOf(request);
  Checker checker(request, report);
  if (Status status = checker.findRoutes(); !status)
    return status;
  checker.run(cases);
  return report;
}

Result<std::vector<RouteKind>>
ladle::check::findRoutes(const CheckRequest &request) {
  CheckReport report;
  Checker checker(request, report);
  if (Status status = checker.findRoutes(); !status)
    return status;
  return checker.routes;
}
