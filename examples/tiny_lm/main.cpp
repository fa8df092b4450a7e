//===- main.cpp - text from a hybrid model --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A model of how an engine uses Ladle: continuous batches, plain and
// speculative decoding. `tiny_lm --help` tells what it can do.
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Check.h"

#include <CLI/CLI.hpp>
#include <cctype>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

using namespace tinylm;

namespace {

struct Options {
  std::string model = TINY_LM_FOLDER "/model";
  ModelOptions engine;
  EngineOptions decoding;
  std::vector<std::string> prompts, promptFiles;
  std::vector<Mode> modes;
  int64_t bytes = 200;
  bool checks = false, isQuiet = false;
  std::string scored;
  int64_t scoredBytes = 4096;
};

const std::map<std::string, Mode> modeNames{
    {"plain", Mode::Plain}, {"chain", Mode::Chain}, {"tree", Mode::Tree}};

/// Two best logits that are so close may change places by rounding.
constexpr float nearTie = 1e-3f;

} // namespace

static std::string nameOf(Mode mode) {
  for (const auto &[name, each] : modeNames)
    if (each == mode)
      return name;
  return {};
}

static std::string readFile(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    throw std::runtime_error(fmt::format("cannot read '{}'", path));
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Bytes that are no text as \xNN.
static std::string printable(const std::string &text) {
  std::string result;
  for (char each : text) {
    auto byte = static_cast<unsigned char>(each);
    if (std::isprint(byte) || each == '\n' || byte >= 0x80)
      result += each;
    else if (byte)
      result += fmt::format("\\x{:02x}", byte);
  }
  return result;
}

static void parse(CLI::App &app, Options &options) {
  app.add_option("--model", options.model, "folder of config.json and weights")
      ->capture_default_str();
  app.add_option("--recurrence", options.engine.recurrence,
                 "the .ladle file of the Gated DeltaNet layers")
      ->capture_default_str();
  app.add_option("--prompt", options.prompts, "text; may be repeated");
  app.add_option("--prompt-file", options.promptFiles,
                 "a file of text; may be repeated");
  app.add_option("--bytes", options.bytes, "to generate, a prompt")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
      ->capture_default_str();
  app.add_option("--mode", options.modes,
                 "plain, chain or tree; may be repeated (default: plain)")
      ->transform(CLI::CheckedTransformer(modeNames, CLI::ignore_case));
  app.add_option("--slots", options.engine.slots,
                 "sequences at a time; others wait for a slot")
      ->check(CLI::Range(int64_t(1), int64_t(4096)))
      ->capture_default_str();
  app.add_option("--drafts", options.decoding.drafts,
                 "bytes that are guessed a row and pass")
      ->check(CLI::Range(int64_t(1), int64_t(15)))
      ->capture_default_str();
  app.add_option("--pass", options.engine.drafts,
                 "the most bytes of a row in a pass; 1: no pass verifies")
      ->check(CLI::Range(int64_t(1), int64_t(16)))
      ->capture_default_str();
  app.add_option("--ngram", options.decoding.lookup.longest,
                 "bytes that a guess has to find again")
      ->check(CLI::Range(int64_t(1), int64_t(64)))
      ->capture_default_str();
  app.add_option("--device", options.engine.device, "cpu, cuda or auto")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
  app.add_option("--route", options.engine.route,
                 "how Ladle decodes: auto, recurrent, outer, inner, adjoint")
      ->capture_default_str();
  app.add_option("--threads", options.engine.threads,
                 "of the CPU: 1, or 0 for one a processor")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_flag("--deterministic", options.engine.isDeterministic,
               "the same bits, however many bytes a pass has");
  app.add_flag("--check", options.checks,
               "compare what the modes say with what plain decoding says, and "
               "fail if it is not the same");
  app.add_flag("--quiet", options.isQuiet, "no text");
  app.add_option("--score", options.scored,
                 "a file: print the bits per byte of its text, and no more");
  app.add_option("--score-bytes", options.scoredBytes, "of that file, at most")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
      ->capture_default_str();
}

static std::vector<Request> makeRequests(const Options &options) {
  std::vector<std::string> prompts = options.prompts;
  for (const std::string &path : options.promptFiles)
    prompts.push_back(readFile(path));
  if (prompts.empty())
    prompts = {"#include <stdio.h>\n\nint main(", "def test_", "Copyright (c) ",
               "class TestCase(unittest.TestCase):\n    def setUp(self):\n",
               "The "};
  std::vector<Request> requests;
  for (const std::string &prompt : prompts)
    requests.push_back({prompt, options.bytes});
  return requests;
}

static void printFigures(Mode mode, const Figures &figures) {
  fmt::print("{:<6} {:>7.0f} bytes/s", nameOf(mode),
             figures.seconds > 0
                 ? static_cast<double>(figures.timedBytes) / figures.seconds
                 : 0.0);
  if (figures.rows)
    fmt::print(", {:.2f} bytes a row and pass",
               static_cast<double>(figures.timedBytes) /
                   static_cast<double>(figures.rows));
  if (figures.drafted)
    fmt::print(", {} of {} drafts accepted ({:.0f} %)", figures.accepted,
               figures.drafted,
               100.0 * static_cast<double>(figures.accepted) /
                   static_cast<double>(figures.drafted));
  fmt::print("; prompts {:.0f} bytes/s\n",
             figures.promptSeconds > 0
                 ? static_cast<double>(figures.promptBytes) /
                       figures.promptSeconds
                 : 0.0);
}

static bool printComparison(Mode mode, const Comparison &comparison) {
  fmt::print("check: {} says the same as plain in {} bytes; the closest two "
             "logits were {:.2g} apart\n",
             nameOf(mode), comparison.equalBytes, comparison.closest);
  for (const Divergence &each : comparison.divergences)
    fmt::print("check: {} differs in prompt {} at byte {}, where plain's two "
               "best logits are {:.2g} apart: {}\n",
               nameOf(mode), each.request, each.byte, each.margin,
               each.isNearTie ? "a near tie" : "WRONG");
  return comparison.isGood();
}

static int score(const Options &options, const Weights &weights) {
  std::string text =
      '\0' + readFile(options.scored)
                 .substr(0, static_cast<size_t>(options.scoredBytes));
  ModelOptions engine = options.engine;
  engine.slots = 1;
  engine.longest = static_cast<int64_t>(text.size()) + engine.drafts;
  TinyLm model(weights, engine);
  const auto *bytes = reinterpret_cast<const uint8_t *>(text.data());
  fmt::print("{:.4f} bits per byte of {} bytes\n",
             bitsPerByte(model, {bytes, text.size()}), text.size() - 1);
  return 0;
}

static int generate(Options options, const Weights &weights) {
  std::vector<Request> requests = makeRequests(options);
  size_t longest = 0;
  for (const Request &request : requests)
    longest = std::max(longest, request.prompt.size());
  options.engine.longest =
      static_cast<int64_t>(longest) + options.bytes + options.engine.drafts + 1;
  TinyLm model(weights, options.engine);
  if (options.checks)
    options.modes.insert(options.modes.begin(), Mode::Plain);
  else if (options.modes.empty())
    options.modes = {Mode::Plain};
  fmt::print("route {} on {}, {} slots, {} prompts, {} bytes a pass at most\n",
             toString(model.getProgram().route()),
             toString(model.getProgram().device()), options.engine.slots,
             requests.size(), options.engine.drafts);

  bool isGood = true;
  std::vector<Answer> first;
  for (size_t run = 0; run < options.modes.size(); ++run) {
    options.decoding.mode = options.modes[run];
    Engine engine(model, options.decoding);
    std::vector<Answer> answers = engine.run(requests);
    if (run == 0 && !options.isQuiet)
      for (size_t i = 0; i < requests.size(); ++i)
        fmt::print("--- prompt {}\n{}[{}]\n", i, printable(requests[i].prompt),
                   printable(answers[i].text));
    printFigures(options.modes[run], engine.getFigures());
    if (run == 0)
      first = std::move(answers);
    else if (options.checks)
      isGood &= printComparison(
          options.modes[run],
          compare(first, answers,
                  options.engine.isDeterministic ? 0.0f : nearTie));
  }
  return isGood ? 0 : 1;
}

int main(int argc, char **argv) {
  Options options;
  // From wherever it is started.
  options.engine.recurrence = TINY_LM_FOLDER "/../gated_delta_net.ladle";
  CLI::App app{"Text from a small hybrid model, three quarters Gated DeltaNet "
               "by Ladle, greedily."};
  parse(app, options);
  CLI11_PARSE(app, argc, argv);
  options.decoding.lookup.shortest = std::min(options.decoding.lookup.shortest,
                                              options.decoding.lookup.longest);
  try {
    Weights weights = Weights::load(options.model);
    return options.scored.empty() ? generate(std::move(options), weights)
                                  : score(options, weights);
  } catch (const std::exception &error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
