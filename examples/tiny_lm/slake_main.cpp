//===- slake_main.cpp - what bounded caches cost a model ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bits per byte, recall of what was planted in a prompt, and time and memory
// against the length, of caches with a budget. Each stream of each choice is a
// job of its own; a file of figures is written after each, and a run that is
// given one goes on where it ended. `slake_lm --help` tells what it can do.
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Check.h"
#include "examples/tiny_lm/Errors.h"
#include "examples/tiny_lm/SlakeLm.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

using namespace tinylm;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  std::string model, text, json, machine;
  std::vector<std::string> schemes{
      "full=examples/cake.ladle+full", "evict=examples/cake.ladle",
      "ptaa=examples/slake.ladle", "vabs=examples/slake.ladle+vabs"};
  std::vector<int64_t> contexts{4096, 16384}, budgets{128, 256, 512, 1024};
  std::vector<std::string> settings;
  int64_t streamBytes = 65536, streams = 0, positions = 0, needles = 0;
  double least = 0.5, room = 3, alpha = 0.4, beta = 0.2;
  bool times = false, skipsBits = false;
  int threads = 1;
};

/// What is done with a stream.
struct Job {
  std::string kind; ///< bits, needle or time
  std::string scheme;
  int64_t context = 0, budget = 0, stream = 0;

  Json key() const {
    return {{"kind", kind},
            {"scheme", scheme},
            {"context", context},
            {"budget", budget},
            {"stream", stream}};
  }
};

using Bytes = std::vector<uint8_t>;

} // namespace

static void parse(CLI::App &app, Options &options) {
  auto addList = [&](const char *name, auto &list, const char *text) {
    return app.add_option(name, list, text)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
  };
  app.add_option("--model", options.model, "folder of config.json and weights")
      ->required();
  app.add_option("--text", options.text, "a file of streams, one after another")
      ->required();
  app.add_option("--stream-bytes", options.streamBytes, "of a stream")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--streams", options.streams, "of the file (default: all)")
      ->check(CLI::PositiveNumber);
  addList("--scheme", options.schemes,
          "NAME=FILE of a declaration; +vabs: layers share budgets; +full: "
          "the budget is the context");
  addList("--context", options.contexts,
          "bytes of a stream, of which the first half is a prompt")
      ->check(CLI::Range(64, 1 << 20));
  addList("--budget", options.budgets, "tokens that a head keeps")
      ->check(CLI::PositiveNumber);
  addList("--set", options.settings, "NAME=NUMBER, an option of declarations");
  app.add_option("--positions", options.positions,
                 "of the second half that are scored (default: all)")
      ->check(CLI::PositiveNumber);
  app.add_option("--needles", options.needles,
                 "plant so many in the prompt of each stream, one at a time")
      ->check(CLI::PositiveNumber);
  app.add_flag("--times", options.times, "measure time and memory, too");
  app.add_option("--machine", options.machine, "with --times: what it is of")
      ->needs("--times");
  app.add_flag("--no-bits", options.skipsBits, "needles and times alone");
  app.add_option("--least", options.least,
                 "with +vabs: the least of a layer, in budgets; the recent "
                 "tokens have to fit")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--room", options.room,
                 "with +vabs: the most of a layer, in budgets")
      ->check(CLI::Range(1.0, 64.0))
      ->capture_default_str();
  app.add_option("--alpha", options.alpha, "with +vabs: of the disturbance")
      ->capture_default_str();
  app.add_option("--beta", options.beta, "with +vabs: of the entropy")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "jobs at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", options.json,
                 "a file for the figures, and those of earlier runs");
}

static Bytes readBytes(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    throw std::runtime_error(fmt::format("cannot read '{}'", path));
  return {std::istreambuf_iterator<char>(stream), {}};
}

//===----------------------------------------------------------------------===//
// Schemes
//===----------------------------------------------------------------------===//

namespace {
/// NAME=FILE and what follows.
struct Scheme {
  explicit Scheme(const std::string &text) {
    size_t begin = text.find('='), end = text.find('+');
    if (begin == std::string::npos)
      throw std::runtime_error(
          fmt::format("--scheme {}: wanted NAME=FILE", text));
    name = text.substr(0, begin);
    file = text.substr(begin + 1, end - begin - 1);
    if (end != std::string::npos)
      way = text.substr(end);
    if (!way.empty() && way != "+vabs" && way != "+full")
      throw std::runtime_error(fmt::format(
          "--scheme {}: '{}' is not known, wanted +vabs or +full", text, way));
  }
  bool isFull() const { return way == "+full"; }
  std::string name, file, way;
};
} // namespace

static SlakeLmOptions optionsOf(const Options &options, const Job &job) {
  SlakeLmOptions result;
  result.budget = job.budget;
  for (const std::string &text : options.schemes) {
    Scheme scheme(text);
    if (scheme.name != job.scheme)
      continue;
    result.attention = scheme.file;
    result.sharesBudget = scheme.way == "+vabs";
    if (scheme.isFull())
      result.budget = job.context;
  }
  result.least =
      static_cast<int64_t>(options.least * static_cast<double>(job.budget));
  result.room = std::min(
      static_cast<int64_t>(options.room * static_cast<double>(job.budget)),
      job.context);
  result.exponents = {options.alpha, options.beta};
  for (const std::string &setting : options.settings) {
    size_t end = setting.find('=');
    if (end == std::string::npos)
      throw std::runtime_error(
          fmt::format("--set {}: wanted NAME=NUMBER", setting));
    result.options[setting.substr(0, end)] = std::stod(setting.substr(end + 1));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Jobs
//===----------------------------------------------------------------------===//

static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Bits per byte of the second half, of which every byte is a step.
static Json scoreBits(const Options &options, const Weights &weights,
                      const Job &job, std::span<const uint8_t> stream) {
  SlakeLm model(weights, optionsOf(options, job));
  size_t half = stream.size() / 2;
  auto count = static_cast<int64_t>(half);
  if (options.positions)
    count = std::min(count, options.positions);
  auto start = std::chrono::steady_clock::now();
  // The last byte of the prompt is the first that says what follows it.
  model.prefill(stream.first(half - 1));
  double prompt = secondsSince(start), bits = 0;
  for (int64_t i = 0; i < count; ++i)
    bits += bitsOf(model.step(stream[half - 1 + i]), stream[half + i]);
  Json result{{"bits", bits / static_cast<double>(count)},
              {"positions", count},
              {"prompt_seconds", prompt},
              {"seconds", secondsSince(start)}};
  result["budgets"] = model.budgets();
  return result;
}

/// A name is given a value somewhere in the prompt, and asked for at its end.
static Json scoreNeedles(const Options &options, const Weights &weights,
                         const Job &job, std::span<const uint8_t> stream) {
  std::mt19937 random(static_cast<unsigned>(job.stream * 1000 + 7));
  auto word = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i)
      text += static_cast<char>('a' + random() % 26);
    return text;
  };
  double bits = 0, right = 0, bytes = 0, whole = 0;
  Json depths = Json::array();
  for (int64_t i = 0; i < options.needles; ++i) {
    std::string name = word(8), value = word(12);
    std::string question = fmt::format("\n{} = \"", name);
    std::string needle = fmt::format("{}{}\"\n", question, value);
    double depth =
        (static_cast<double>(i) + 0.5) / static_cast<double>(options.needles);
    size_t size = stream.size() / 2 - needle.size() - question.size();
    auto at = static_cast<size_t>(depth * static_cast<double>(size));
    Bytes prompt(stream.begin(), stream.begin() + at);
    prompt.insert(prompt.end(), needle.begin(), needle.end());
    prompt.insert(prompt.end(), stream.begin() + at, stream.begin() + size);
    prompt.insert(prompt.end(), question.begin(), question.end());
    SlakeLm model(weights, optionsOf(options, job));
    uint8_t last = prompt.back();
    prompt.pop_back();
    model.prefill(prompt);
    double hits = 0;
    for (char byte : value) {
      Vector logits = model.step(last);
      last = static_cast<uint8_t>(byte);
      bits += bitsOf(logits, last);
      hits += std::max_element(logits.begin(), logits.end()) - logits.begin() ==
              last;
    }
    right += hits;
    bytes += static_cast<double>(value.size());
    whole += hits == static_cast<double>(value.size());
    depths.push_back({{"depth", depth}, {"right", hits / 12}});
  }
  return {{"bits", bits / bytes},
          {"right", right / bytes},
          {"whole", whole / static_cast<double>(options.needles)},
          {"depths", depths}};
}

/// Of the process so far, in bytes; 0 where nobody says.
static double peakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:"))
      return std::stod(line.substr(6)) * 1024;
  return 0;
}

/// Of the process, on all of its threads: where other work shares the
/// processor, time passes faster than this.
static double busySeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Seconds of a prompt and of a step behind it, and the memory of both.
static Json measure(const Options &options, const Weights &weights,
                    const Job &job, std::span<const uint8_t> stream) {
  // What compiling takes once is not of a sequence.
  (void)SlakeLm(weights, optionsOf(options, job));
  std::ofstream("/proc/self/clear_refs") << "5";
  double before = peakBytes();
  SlakeLm model(weights, optionsOf(options, job));
  auto start = std::chrono::steady_clock::now();
  double busyBefore = busySeconds();
  model.prefill(stream.first(stream.size() - 1));
  double prompt = secondsSince(start), busy = busySeconds() - busyBefore;
  std::vector<double> steps;
  for (int i = 0; i < 64; ++i) {
    start = std::chrono::steady_clock::now();
    model.step(stream.back());
    steps.push_back(secondsSince(start));
  }
  std::nth_element(steps.begin(), steps.begin() + 32, steps.end());
  return {
      {"prompt_seconds", prompt},           {"prompt_busy_seconds", busy},
      {"step_seconds", steps[32]},          {"cache_bytes", model.cacheBytes()},
      {"peak_bytes", peakBytes() - before}, {"machine", options.machine}};
}

static std::vector<Job> jobsOf(const Options &options, int64_t streams) {
  std::vector<Job> jobs;
  for (int64_t context : options.contexts)
    for (const std::string &text : options.schemes)
      for (int64_t budget : options.budgets) {
        Scheme scheme(text);
        Job job;
        job.scheme = scheme.name;
        job.context = context;
        if (scheme.isFull() && budget != options.budgets.front())
          continue;
        job.budget = scheme.isFull() ? 0 : budget;
        for (job.stream = 0; job.stream < streams; ++job.stream) {
          job.kind = "bits";
          if (!options.skipsBits)
            jobs.push_back(job);
          job.kind = "needle";
          if (options.needles)
            jobs.push_back(job);
          job.kind = "time";
          if (options.times && job.stream == 0)
            jobs.push_back(job);
        }
      }
  // Nothing else runs while time is measured.
  std::vector<Job> ordered;
  for (bool isTime : {false, true})
    std::copy_if(
        jobs.begin(), jobs.end(), std::back_inserter(ordered),
        [&](const Job &job) { return (job.kind == "time") == isTime; });
  return ordered;
}

//===----------------------------------------------------------------------===//
// Report
//===----------------------------------------------------------------------===//

namespace {
/// All figures so far, on disk after each.
class Report {
public:
  explicit Report(const std::string &path) : path(path) {
    std::ifstream stream(path);
    if (path.empty() || !stream)
      return;
    Json read = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
    if (read.is_discarded() || read.value("schema", "") != "ladle-slake-1")
      throw std::runtime_error(fmt::format("'{}' is no file of figures", path));
    all = read["jobs"];
  }
  bool has(const Job &job) const {
    Json key = job.key();
    return std::any_of(all.begin(), all.end(),
                       [&](const Json &each) { return each["job"] == key; });
  }
  void add(const Job &job, Json figures) {
    std::lock_guard<std::mutex> lock(mutex);
    all.push_back({{"job", job.key()}, {"figures", std::move(figures)}});
    fmt::print("{} {}\n", job.key().dump(), all.back()["figures"].dump());
    std::fflush(stdout);
    if (path.empty())
      return;
    // Whoever reads it finds all of the file, or that before.
    std::string next = path + ".next";
    std::ofstream(next)
        << Json{{"schema", "ladle-slake-1"}, {"jobs", all}}.dump(1) << "\n";
    std::filesystem::rename(next, path);
  }
  /// Means over streams of what is in `name`, with their standard errors.
  void printTable(const char *kind, const char *name) const;

private:
  std::string path;
  std::mutex mutex;
  Json all = Json::array();
};
} // namespace

void Report::printTable(const char *kind, const char *name) const {
  std::map<std::tuple<int64_t, int64_t, std::string>, std::vector<double>> of;
  for (const Json &each : all) {
    const Json &job = each["job"];
    if (job["kind"] == kind)
      of[{job["context"], job["budget"], job["scheme"]}].push_back(
          each["figures"][name]);
  }
  if (of.empty())
    return;
  fmt::print("\n{} {}\n", kind, name);
  for (const auto &[key, values] : of) {
    auto count = static_cast<double>(values.size());
    double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (double value : values)
      squares += (value - mean) * (value - mean);
    double error = count > 1 ? std::sqrt(squares / (count - 1) / count) : 0.0;
    fmt::print("  context {:>6} budget {:>5} {:<10} {:.4f} ± {:.4f}\n",
               std::get<0>(key), std::get<1>(key), std::get<2>(key), mean,
               error);
  }
}

static int run(const Options &options) {
  Weights weights = Weights::load(options.model);
  Bytes text = readBytes(options.text);
  auto count = static_cast<int64_t>(text.size()) / options.streamBytes;
  if (options.streams)
    count = std::min(count, options.streams);
  int64_t longest =
      *std::max_element(options.contexts.begin(), options.contexts.end());
  if (count == 0 || longest > options.streamBytes)
    throw std::runtime_error(fmt::format(
        "'{}' has {} bytes, wanted streams of {}, and contexts of no more",
        options.text, text.size(), options.streamBytes));
  setThreads(1);
  Report figures(options.json);
  std::vector<Job> jobs = jobsOf(options, count);
  std::erase_if(jobs, [&](const Job &job) { return figures.has(job); });
  auto firstTime = std::find_if(jobs.begin(), jobs.end(), [](const Job &job) {
    return job.kind == "time";
  });
  auto parallel = static_cast<size_t>(firstTime - jobs.begin());
  std::atomic<size_t> next = 0;
  std::string failure;
  std::mutex mutex;
  auto work = [&](size_t end) {
    for (size_t at; (at = next++) < end;) {
      const Job &job = jobs[at];
      try {
        auto stream = std::span<const uint8_t>(text).subspan(
            static_cast<size_t>(job.stream * options.streamBytes),
            static_cast<size_t>(job.context));
        figures.add(job, job.kind == "bits"
                             ? scoreBits(options, weights, job, stream)
                         : job.kind == "needle"
                             ? scoreNeedles(options, weights, job, stream)
                             : measure(options, weights, job, stream));
      } catch (const std::exception &error) {
        std::lock_guard<std::mutex> lock(mutex);
        failure = error.what();
        next = jobs.size();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i)
    threads.emplace_back(work, parallel);
  for (std::thread &thread : threads)
    thread.join();
  if (!failure.empty())
    throw std::runtime_error(failure);
  next = parallel;
  work(jobs.size());
  if (!failure.empty())
    throw std::runtime_error(failure);
  for (auto [kind, name] : {std::pair{"bits", "bits"},
                            {"needle", "right"},
                            {"needle", "whole"},
                            {"time", "step_seconds"},
                            {"time", "prompt_seconds"}})
    figures.printTable(kind, name);
  return 0;
}

int main(int argc, char **argv) {
  Options options;
  CLI::App app{"Bits per byte of a softmax model whose caches have a budget, "
               "recall of planted needles, time and memory."};
  parse(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception &error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
