//===- BenchHost.cpp - ladle bench on a CPU -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decodes a batch whose states are several times the last-level cache, by one
// route after the other. Before each step the same threads walk as much memory
// in pieces of the same size, so that a ratio to what the memory gives compares
// neighbours in time. Rounds of all routes follow one another; each figure is
// the median over the rounds. The bytes of a step are those of the states, and
// of the entries that have been cached.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "runtime/check/Oracle.h"
#include "tools/ladle/Bench.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/Host.h"
#include "tools/ladle/Measure.h"
#include "tools/ladle/SourceChoices.h"
#include "tools/ladle/Table.h"
#include "tools/measure/Statistics.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;
using measure::median;

namespace {

struct Settings {
  SourceOptions source;
  std::string entry;
  std::vector<std::string> routes, states;
  int64_t threshold = 16, rows = 0, rounds = 7;
  int threads = 0;
  double budget = 0;
  std::string json, commandLine;
};

/// One route with one storage of the states.
struct Subject {
  explicit Subject(Program program) : program(std::move(program)) {}

  std::string route, state;
  Program program;
  std::unique_ptr<StepTimer> timer;
  double stateBytes = 0, entryBytes = 0; ///< of all rows; of one token
  int64_t threshold = 1;
  // A value a round.
  std::vector<double> cycle;    ///< seconds of a step over whole cycles
  std::vector<double> stepping; ///< without the step that folds
  std::vector<double> ofCeiling;
};

class Bench {
public:
  explicit Bench(const Settings &settings)
      : settings(settings), host(Host::describe()) {}
  Status run();

private:
  Status addSubjects(const std::string &text, const std::string &state);
  Status measureSubject(Subject &subject);
  double readCeiling() const {
    return static_cast<double>(stream->bytes()) / median(readSeconds);
  }
  /// Bytes read and bytes written count.
  double updateCeiling() const {
    return 2 * static_cast<double>(stream->bytes()) / median(updateSeconds);
  }
  /// The median over the rounds of how much faster `a` decodes than `b`.
  static double speedup(const Subject &a, const Subject &b);
  const Subject *find(const std::string &route, const std::string &state) const;
  void print() const;
  nlohmann::ordered_json json() const;

  Settings settings;
  Host host;
  check::Trace trace;
  std::vector<Subject> subjects;
  std::optional<MemoryStream> stream;
  std::vector<double> readSeconds, updateSeconds; ///< of passes over the memory
};

} // namespace

Status Bench::addSubjects(const std::string &text, const std::string &state) {
  for (const std::string &route : settings.routes) {
    CompileOptions options = compileOptionsOf(settings.source);
    options.stateType = state;
    options.entryType = settings.entry;
    options.route = route;
    options.capacity = settings.threshold;
    Result<Program> program =
        compileSource(text, settings.source.file, options);
    if (!program)
      return program.status();
    Subject &subject = subjects.emplace_back(std::move(*program));
    subject.route = route;
    subject.state = state;
    subject.threshold = route == "recurrent" ? 1 : settings.threshold;
    double bytes = 0;
    for (const StateSpec &spec : subject.program.signature().states)
      bytes += static_cast<double>(spec.heads * spec.keySize * spec.valueSize *
                                   sizeInBytes(spec.dtype));
    if (settings.rows == 0)
      settings.rows = static_cast<int64_t>(
          4.0 * static_cast<double>(host.cacheBytes()) / bytes + 1);
    subject.stateBytes = bytes * static_cast<double>(settings.rows);
    for (const TensorSpec &field : subject.program.fields()) {
      auto size = static_cast<double>(settings.rows * sizeInBytes(field.dtype));
      for (int64_t extent : field.shape)
        size *= static_cast<double>(extent);
      subject.entryBytes += size;
    }
  }
  return Status();
}

Status Bench::measureSubject(Subject &subject) {
  int64_t m = subject.threshold, cycles = std::max<int64_t>(1, 16 / m);
  double all = 0, stepping = 0, ceiling = 0, bytes = 0, ceilingBytes = 0;
  for (int64_t step = 0; step < m * cycles; ++step) {
    // A pass before each step: the machine may be faster a second later.
    double seconds = m == 1 ? stream->update() : stream->read();
    (m == 1 ? updateSeconds : readSeconds).push_back(seconds);
    Result<double> taken = subject.timer->step();
    if (!taken)
      return taken.status();
    all += *taken;
    // All rows are in phase: they fold together, in the last step of a cycle.
    int64_t fill = step % m;
    if (m > 1 && fill == m - 1)
      continue;
    stepping += *taken;
    ceiling += seconds;
    ceilingBytes += static_cast<double>(stream->bytes());
    bytes +=
        subject.stateBytes + static_cast<double>(fill) * subject.entryBytes;
  }
  double steps = static_cast<double>(m * cycles);
  double withoutFold = m == 1 ? steps : steps - static_cast<double>(cycles);
  subject.cycle.push_back(all / steps);
  subject.stepping.push_back(stepping / withoutFold);
  subject.ofCeiling.push_back(bytes / stepping / (ceilingBytes / ceiling));
  return Status();
}

double Bench::speedup(const Subject &a, const Subject &b) {
  std::vector<double> ratios;
  ratios.reserve(a.cycle.size());
  for (size_t round = 0; round < a.cycle.size(); ++round)
    ratios.push_back(b.cycle[round] / a.cycle[round]);
  return median(ratios);
}

const Subject *Bench::find(const std::string &route,
                           const std::string &state) const {
  for (const Subject &subject : subjects)
    if (subject.route == route && subject.state == state)
      return &subject;
  return nullptr;
}

void Bench::print() const {
  fmt::print("{} {}, {} rows, m = {}, on {}, {} threads\n",
             settings.source.file, settings.source.preset, settings.rows,
             settings.threshold, host.processor,
             settings.threads ? settings.threads : host.cores);
  fmt::print("ceilings: {:.1f} GB/s reading, {:.1f} GB/s updating in place; an "
             "update of a state takes {:.2f} times a read\n\n",
             readCeiling() / 1e9, updateCeiling() / 1e9,
             2 * readCeiling() / updateCeiling());
  Table table({"route", "states", "a step,\nno fold", "of the\nceiling",
               "a step,\namortised", "faster than\nrecurrent",
               "faster than\nf32"});
  for (const Subject &subject : subjects) {
    auto against = [&](const std::string &route, const std::string &state) {
      const Subject *other = find(route, state);
      return other && other != &subject
                 ? fmt::format("{:.2f}", speedup(subject, *other))
                 : std::string("-");
    };
    table.add(
        {subject.route, subject.state, formatTime(median(subject.stepping)),
         fmt::format("{:.0f} %", 100 * median(subject.ofCeiling)),
         formatTime(median(subject.cycle)), against("recurrent", subject.state),
         against(subject.route, "f32")});
  }
  fmt::print("{}", table.str());
}

nlohmann::ordered_json Bench::json() const {
  nlohmann::ordered_json result;
  result["date"] = today();
  result["command"] = settings.commandLine;
  result["processor"] = host.processor;
  result["threads"] = settings.threads ? settings.threads : host.cores;
  result["last_level_cache"] = host.lastLevel;
  result["file"] = settings.source.file;
  result["preset"] = settings.source.preset;
  if (!settings.source.recurrence.empty())
    result["recurrence"] = settings.source.recurrence;
  result["entries"] = settings.entry;
  result["layout"] = settings.source.stateLayout;
  result["rows"] = settings.rows;
  result["threshold"] = settings.threshold;
  result["rounds"] = subjects.front().cycle.size();
  result["read_ceiling"] = readCeiling();
  result["update_ceiling"] = updateCeiling();
  for (const Subject &subject : subjects) {
    nlohmann::ordered_json entry;
    entry["route"] = subject.route;
    entry["states"] = subject.state;
    entry["state_bytes"] = subject.stateBytes;
    entry["seconds_without_fold"] = median(subject.stepping);
    entry["of_ceiling"] = median(subject.ofCeiling);
    entry["seconds_amortised"] = median(subject.cycle);
    if (const Subject *other = find("recurrent", subject.state))
      entry["speedup_over_recurrent"] = speedup(subject, *other);
    if (const Subject *other = find(subject.route, "f32"))
      entry["speedup_over_f32"] = speedup(subject, *other);
    result["subjects"].push_back(entry);
  }
  return result;
}

Status Bench::run() {
  Result<std::string> text = readFile(settings.source.file);
  if (!text)
    return text.status();
  std::string messages;
  auto oracle = check::compileOracle(settings.source.file, *text,
                                     elaborationOf(settings.source), messages,
                                     interpreter::Precision::Float64);
  if (!oracle)
    return Status(ErrorCode::InvalidData, messages);
  trace = makeRandomTrace(*oracle, /*tokens=*/64, /*seed=*/1);

  for (const std::string &state : settings.states)
    if (Status status = addSubjects(*text, state); !status)
      return status;
  for (Subject &subject : subjects) {
    TimingOptions timing;
    timing.rows = settings.rows;
    timing.threshold = subject.threshold;
    timing.threads = settings.threads;
    timing.inPhase = true;
    subject.timer = std::make_unique<StepTimer>(subject.program, trace, timing);
    if (Status status = subject.timer->prepare(); !status)
      return status;
  }
  stream.emplace(static_cast<int64_t>(subjects.front().stateBytes),
                 settings.threads);
  if (stream->bytes() == 0)
    return Status(ErrorCode::ResourceExhausted,
                  "no memory to measure its bandwidth");
  stream->read();
  Progress progress;
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  for (int64_t round = 0; round < settings.rounds; ++round) {
    double elapsed =
        std::chrono::duration<double>(Clock::now() - start).count();
    double each = elapsed / static_cast<double>(std::max<int64_t>(round, 1));
    if (settings.budget > 0 && round > 0 && elapsed + each > settings.budget)
      break;
    progress.show("rounds", static_cast<double>(round),
                  static_cast<double>(settings.rounds));
    readSeconds.push_back(stream->read());
    updateSeconds.push_back(stream->update());
    for (Subject &subject : subjects)
      if (Status status = measureSubject(subject); !status)
        return status;
  }
  progress.clear();
  print();
  return settings.json.empty()
             ? Status()
             : writeFile(settings.json, json().dump(2) + "\n");
}

int tool::benchOnHost(const BenchOptions &options) {
  Settings settings;
  settings.source = options.source;
  settings.entry = options.entries.front();
  settings.routes = options.routes;
  if (settings.routes.empty())
    settings.routes = {"recurrent", "inner", "adjoint"};
  settings.states = options.states;
  settings.threshold = options.thresholds.front();
  settings.rows = options.hostRows;
  settings.rounds = options.samples;
  settings.budget = options.budget;
  settings.threads = static_cast<int>(options.threads.value_or(0));
  settings.json = options.json;
  settings.commandLine = options.commandLine;
  if (settings.threshold < 2) {
    fmt::print(stderr, "error: m is 2 at least on a CPU, got {}\n",
               settings.threshold);
    return 2;
  }
  if (Status status = Bench(settings).run(); !status) {
    printError(status);
    return 1;
  }
  return 0;
}
