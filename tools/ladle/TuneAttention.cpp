//===- TuneAttention.cpp - ladle tune of an attention ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/TuneAttention.h"
#include "runtime/tune/Problem.h"
#include "runtime/tune/TunedTable.h"
#include "tools/ladle/AttentionTuner.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/SizesOfTokens.h"
#include "tools/ladle/Table.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;
using Verdict = AttentionOutcome::Verdict;

namespace {

class Tuning {
public:
  explicit Tuning(const TuneRequest &request) : request(request) {}
  Status run();

private:
  Status openTraces();
  Status compile();
  Status tuneLayer(int64_t layer);
  void report(int64_t layer, const std::vector<AttentionOutcome> &outcomes,
              const AttentionOutcome *chosen);
  void explain(const std::vector<AttentionOutcome> &outcomes) const;
  Json describe(int64_t layer, const AttentionOutcome &chosen) const;
  std::string problemOf(const std::vector<MacTrace> &traces) const;
  Status writeTable() const;

  const TuneRequest &request;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
  std::map<int64_t, std::vector<MacTrace>> traces; ///< of each layer
  std::string text;
  std::optional<AttentionProgram> program;
  Json layers = Json::array();
  bool isComplete = true;
};

} // namespace

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

/// "3:FILE" is a trace of layer 3; others are of the layers in turn.
Status Tuning::openTraces() {
  int64_t next = 0;
  for (const std::string &argument : request.traces) {
    int64_t layer = 0;
    const char *end = argument.data() + argument.size();
    auto [colon, error] = std::from_chars(argument.data(), end, layer);
    bool isNamed = error == std::errc() && colon != end && *colon == ':';
    std::string path = isNamed ? std::string(colon + 1, end) : argument;
    if (!isNamed)
      layer = next++;
    Result<MacTrace> trace =
        MacTrace::open(path, {request.traceTokens, request.ropeBase});
    if (!trace)
      return Status(trace.status().code(),
                    fmt::format("{}: {}", path, trace.status().message()));
    traces[layer].push_back(std::move(*trace));
  }
  for (int64_t layer = 0; const auto &[found, each] : traces)
    if (found != layer++)
      return invalid(fmt::format("there is a trace of layer {}, but none of "
                                 "layer {}\nnote: --trace {}:FILE is one",
                                 found, layer - 1, layer - 1));
  return Status();
}

Status Tuning::compile() {
  Result<std::string> read = readFile(request.source.file);
  if (!read)
    return read.status();
  text = std::move(*read);
  const MacTrace &trace = traces.begin()->second.front();
  AttentionCompileOptions options;
  options.attention = request.source.recurrence;
  options.preset = request.source.preset;
  options.options = request.source.options;
  options.summaryType = request.source.entryType;
  auto sizes = sizesOfTokens(
      request.source, text,
      [&](const std::string &name) -> std::optional<std::vector<int64_t>> {
        const TensorView *view = trace.find(name);
        if (!view)
          return std::nullopt;
        return std::vector(view->shape.begin() + 1, view->shape.end());
      });
  if (!sizes)
    return invalid(""); // it has been said why
  // What a preset or the user says is checked against the trace.
  if (request.source.preset.empty())
    options.sizes = *sizes;
  for (const auto &[name, size] : request.source.sizes)
    options.sizes[name] = size;
  Result<AttentionProgram> made =
      compileAttention(text, request.source.file, options);
  if (!made)
    return made.status();
  if (!made->reuses())
    return invalid(fmt::format("'{}' reuses nothing: there is nothing to tune"
                               "\nnote: match and complete reuse summaries",
                               made->signature().name));
  // Errors are of what is answered, not of how it is stored.
  options.tokenTypes[made->signature().outputs[0].name] = "f32";
  made = compileAttention(text, request.source.file, options);
  if (!made)
    return made.status();
  program.emplace(std::move(*made));
  return Status();
}

//===----------------------------------------------------------------------===//
// A layer
//===----------------------------------------------------------------------===//

std::string Tuning::problemOf(const std::vector<MacTrace> &of) const {
  // The file, a preset and what is set are all that the program is made of.
  std::string problem = fmt::format(
      "{} {} summaries, file {}, preset {}, prompt {}",
      tune::describe(program->signature()), request.source.entryType,
      tune::fingerprintOf(text), request.source.preset, request.prompt);
  for (const auto &[name, value] : request.source.sizes)
    problem += fmt::format(", {}={}", name, value);
  for (const auto &[name, value] : request.source.options)
    problem += fmt::format(", {}={}", name, value);
  for (const MacTrace &trace : of)
    problem +=
        fmt::format(", {} tokens {}", trace.tokens(), trace.fingerprint());
  return problem;
}

Json Tuning::describe(int64_t layer, const AttentionOutcome &chosen) const {
  AttentionSettings settings = chosen.candidate.in(program->settings());
  return {{"layer", layer},
          {"tau", settings.tau},
          {"window", settings.window},
          {"band", settings.band},
          {"sinks", settings.sinks},
          {"max_gap", settings.maxGap},
          {"max_chain", settings.maxChain},
          {"skip", settings.skip},
          {"drift", settings.drift},
          {"wide_band", settings.wideBand},
          {"wide_gap", settings.wideGap},
          {"error", chosen.trial.error},
          {"hits", chosen.trial.hits},
          {"bytes", chosen.trial.bytes / chosen.trial.exactBytes}};
}

void Tuning::explain(const std::vector<AttentionOutcome> &outcomes) const {
  Table table({"candidate", "bytes", "predicted", "error", "hits"});
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  size_t dearer = 0;
  double exact = 0;
  for (const AttentionOutcome &each : outcomes)
    if (each.candidate.isExact())
      exact = each.predicted;
  auto reject = [&](const std::string &why, const std::string &candidate) {
    auto found =
        std::find_if(reasons.begin(), reasons.end(),
                     [&](const auto &reason) { return reason.first == why; });
    if (found == reasons.end())
      found = reasons.insert(reasons.end(), {why, {}});
    found->second.push_back(candidate);
  };
  for (const AttentionOutcome &each : outcomes) {
    const AttentionTrial &trial = each.trial;
    std::string name = each.candidate.str();
    switch (each.verdict) {
    case Verdict::Holds:
      table.add({name, fmt::format("{:.3f}", trial.bytes / trial.exactBytes),
                 fmt::format("{:.3f}", each.predicted / exact),
                 fmt::format("{:.4f}", trial.error),
                 fmt::format("{:.3f}", trial.hits)});
      break;
    case Verdict::Exceeds:
      reject(fmt::format("the error exceeds {}", *request.maxError),
             trial.isCutShort
                 ? name + fmt::format(": more than {:.4f}", trial.error)
                 : name + fmt::format(": {:.4f}", trial.error));
      break;
    case Verdict::Illegal:
      reject(each.why, name);
      break;
    case Verdict::NoGain:
      reject("moves as much as exact attention",
             name + fmt::format(": {:.3f}", trial.exactBytes > 0
                                                ? trial.bytes / trial.exactBytes
                                                : each.predicted / exact));
      break;
    case Verdict::Dearer:
      ++dearer;
      break;
    case Verdict::Unmeasured:
      reject("there was no time", name);
      break;
    }
  }
  fmt::print("{}", table.str());
  for (const auto &[reason, candidates] : reasons) {
    fmt::print("{} rejected: {}\n", candidates.size(), reason);
    for (const std::string &candidate : candidates)
      fmt::print("  {}\n", candidate);
  }
  if (dearer)
    fmt::print("{} were not measured: they move more bytes\n", dearer);
}

void Tuning::report(int64_t layer,
                    const std::vector<AttentionOutcome> &outcomes,
                    const AttentionOutcome *chosen) {
  if (chosen)
    fmt::print("layer {}: {}, {:.3f} of the bytes of exact attention, error "
               "{:.4f}, hits {:.3f}\n",
               layer, chosen->candidate.str(),
               chosen->trial.bytes / chosen->trial.exactBytes,
               chosen->trial.error, chosen->trial.hits);
  else
    fmt::print("layer {}: the budget ended first: the same command goes on "
               "there\n",
               layer);
  if (request.explain)
    explain(outcomes);
  std::fflush(stdout);
}

Status Tuning::tuneLayer(int64_t layer) {
  const std::vector<MacTrace> &of = traces.at(layer);
  std::string folder =
      request.folder.empty() ? tune::defaultTuneFolder() : request.folder;
  if (folder.empty())
    return Status(ErrorCode::NotFound,
                  "no folder for results: no home directory is known\n"
                  "note: set LADLE_TUNE_DIR to a folder");
  Result<AttentionTrials> trials =
      AttentionTrials::open(folder, program->signature().name, problemOf(of));
  if (!trials)
    return trials.status();
  if (request.mode == "force")
    trials->forget();
  AttentionSpace space{request.taus, request.windows, request.bands,
                       request.chains};
  Result<AttentionTuner> tuner =
      AttentionTuner::create(*program, of, space, request.prompt);
  if (!tuner)
    return tuner.status();
  Progress progress;
  AttentionTuner::Options options;
  options.maxError = *request.maxError;
  options.wanted = request.explain ? 5 : 1;
  options.hasTime = [&] {
    std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - start;
    return request.budget <= 0 || passed.count() <= request.budget;
  };
  options.progress = [&](const std::string &label, double part) {
    progress.show(fmt::format("layer {}, {}", layer, label), part, 1);
  };
  Result<std::vector<AttentionOutcome>> outcomes = tuner->run(options, *trials);
  progress.clear();
  if (!outcomes)
    return outcomes.status();
  const AttentionOutcome *chosen = nullptr;
  for (const AttentionOutcome &each : *outcomes)
    if (each.isChosen)
      chosen = &each;
  report(layer, *outcomes, chosen);
  if (chosen)
    layers.push_back(describe(layer, *chosen));
  else
    isComplete = false;
  return Status();
}

//===----------------------------------------------------------------------===//
// All
//===----------------------------------------------------------------------===//

Status Tuning::writeTable() const {
  std::ofstream stream(request.table);
  stream << "{\"schema\": \"ladle-mac-settings-1\", \"attention\": "
         << Json(program->signature().name)
         << ", \"max_error\": " << Json(*request.maxError)
         << ",\n \"layers\": [";
  const char *separator = "\n  ";
  for (const Json &layer : layers) {
    stream << separator << layer.dump();
    separator = ",\n  ";
  }
  stream << "\n]}\n";
  stream.close();
  return stream ? Status()
                : Status(ErrorCode::ResourceExhausted,
                         fmt::format("cannot write '{}'", request.table));
}

Status Tuning::run() {
  if (!request.maxError)
    return invalid("--trace needs --max-error\n"
                   "note: 0.02, say: the mean of |o - exact| / |exact|");
  if (request.mode != "fill" && request.mode != "force")
    return invalid(fmt::format("--mode is '{}', wanted fill or force for an "
                               "attention",
                               request.mode));
  if (Status status = openTraces(); !status)
    return status;
  if (Status status = compile(); !status)
    return status;
  for (const auto &[layer, of] : traces)
    if (Status status = tuneLayer(layer); !status)
      return status;
  if (!request.table.empty() && isComplete)
    return writeTable();
  return Status();
}

int tool::tuneAttention(const TuneRequest &request) {
  Status status = refuse(
      request.source,
      {"--state", "--state-layout", "--routes", "--m", "--capacity", "--batch",
       "--drafts", "--acceptance", "--vary", "--card", "--keep"},
      {"recurrences", "--trace tunes what an attention reuses"});
  if (status)
    status = Tuning(request).run();
  if (!status) {
    printError(status);
    return 1;
  }
  return 0;
}
