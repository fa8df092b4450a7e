//===- mac_main.cpp - bits per byte of a model that reuses ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A softmax model whose layers match, amend and complete, against exact
// attention. `mac_lm --help` tells what it can do.
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Errors.h"
#include "examples/tiny_lm/MacScore.h"
#include "ladle/safetensors.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

using namespace tinylm;
using namespace ladle;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  std::string model, text, checked, traces, json;
  MacLmOptions engine;
  int64_t streams = 0, streamBytes = 0, positions = 0;
  std::vector<int64_t> contexts{4096};
  std::vector<double> taus{0.45};
  std::vector<int64_t> bands{256}, chains{0};
  std::vector<std::string> tables;
};

/// A name, and the settings of all layers or of each.
using Choice = std::pair<std::string, std::vector<AttentionSettings>>;

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
  app.add_option("--attention", options.engine.attention,
                 "the .ladle file of the layers")
      ->capture_default_str();
  app.add_option("--storage", options.engine.storage,
                 "of queries, keys and values: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  app.add_option("--text", options.text,
                 "a file of streams, one after another, that the model has "
                 "not seen");
  app.add_option("--stream-bytes", options.streamBytes,
                 "of a stream (default: the context)")
      ->check(CLI::PositiveNumber);
  app.add_option("--streams", options.streams, "of the file (default: all)")
      ->check(CLI::PositiveNumber);
  addList("--context", options.contexts,
          "bytes of a stream, of which the first half is a prompt")
      ->check(CLI::Range(4, 1 << 20));
  app.add_option("--positions", options.positions,
                 "of the second half that are scored (default: all)")
      ->check(CLI::PositiveNumber);
  addList("--tau", options.taus, "how near queries have to be")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--window", options.engine.window, "queries to look among (K)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  addList("--band", options.bands, "tokens attended to before a match (r)")
      ->check(CLI::NonNegativeNumber);
  addList("--max-chain", options.chains,
          "summaries made one from another; 0 is no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--settings", options.tables,
                 "instead: a table of `ladle tune --trace`; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--threads", options.engine.threads, "0: one a processor")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--json", options.json, "a file for the figures");
  app.add_option(
      "--check", options.checked,
      "a file of tokens, positions and logits: compare, and no more");
  app.add_option("--traces", options.traces,
                 "a folder: write what each layer of each stream takes, for "
                 "mac-profile and tune, and no more");
}

static std::vector<uint8_t> readBytes(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    throw std::runtime_error(fmt::format("cannot read '{}'", path));
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The beginnings of the streams of a file.
static std::vector<std::span<const uint8_t>>
streamsOf(const Options &options, std::span<const uint8_t> text,
          int64_t context) {
  auto step =
      static_cast<size_t>(options.streamBytes ? options.streamBytes : context);
  auto bytes = static_cast<size_t>(context);
  std::vector<std::span<const uint8_t>> streams;
  for (size_t at = 0; at + std::max(step, bytes) <= text.size(); at += step)
    if (!options.streams ||
        streams.size() < static_cast<size_t>(options.streams))
      streams.push_back(text.subspan(at, bytes));
  if (bytes > step || streams.empty() ||
      streams.size() < static_cast<size_t>(options.streams))
    throw std::runtime_error(
        fmt::format("'{}' has {} bytes, wanted {} streams of {} bytes, and {} "
                    "of each",
                    options.text, text.size(),
                    std::max<int64_t>(options.streams, 1), step, context));
  return streams;
}

static std::vector<Choice> choicesOf(const Options &options) {
  std::vector<Choice> choices;
  for (const std::string &path : options.tables)
    choices.emplace_back(std::filesystem::path(path).stem().string(),
                         orThrow(readAttentionSettings(path)));
  if (!choices.empty())
    return choices;
  for (int64_t band : options.bands)
    for (int64_t chain : options.chains)
      for (double tau : options.taus) {
        AttentionSettings settings;
        settings.tau = tau;
        settings.window = options.engine.window;
        settings.band = band;
        settings.maxChain = chain;
        choices.emplace_back(
            fmt::format("tau={} K={} r={}{}", tau, options.engine.window, band,
                        chain ? fmt::format(" max_chain={}", chain) : ""),
            std::vector{settings});
      }
  return choices;
}

static Json toJson(const Choice &choice) {
  Json layers = Json::array();
  for (const AttentionSettings &each : choice.second)
    layers.push_back({{"tau", each.tau},
                      {"window", each.window},
                      {"band", each.band},
                      {"max_chain", each.maxChain}});
  return layers;
}

static Json scoreContext(const Options &options, const Weights &weights,
                         std::span<const uint8_t> text, int64_t context,
                         const std::vector<Choice> &choices) {
  ScoreRequest request;
  request.streams = streamsOf(options, text, context);
  request.positions = std::min(
      options.positions ? options.positions : context / 2, context / 2);
  MacLmOptions engine = options.engine;
  engine.slots = static_cast<int64_t>(request.streams.size());
  engine.longest = context;
  for (const Choice &choice : choices)
    for (const AttentionSettings &each : choice.second)
      engine.window = std::max(engine.window, each.window);
  MacLm model(weights, engine);
  Scorer scorer(model, request);
  Estimate exact = estimate(scorer.exact());
  fmt::print("context {}, {} streams, {} bytes of each after a prompt of {}\n"
             "  {:<34} {:.4f} ± {:.4f} bits per byte\n",
             context, request.streams.size(), request.positions, context / 2,
             "exact", exact.mean, exact.error);
  Json result{{"context", context},
              {"streams", request.streams.size()},
              {"positions", request.positions},
              {"exact", {{"bits", exact.mean}, {"error", exact.error}}},
              {"runs", Json::array()}};
  for (const Choice &choice : choices) {
    auto start = std::chrono::steady_clock::now();
    Score score = scorer.score(choice.second);
    std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - start;
    std::vector<double> more;
    for (size_t i = 0; i < score.bits.size(); ++i)
      more.push_back(score.bits[i] - scorer.exact()[i]);
    Estimate bits = estimate(score.bits), change = estimate(more);
    fmt::print("  {:<34} {:.4f} ± {:.4f}, {:+.4f} ± {:.4f}; hits {:.3f}, "
               "skipped {:.3f}; {:.0f} s\n",
               choice.first, bits.mean, bits.error, change.mean, change.error,
               score.hits, score.skipped, passed.count());
    std::fflush(stdout);
    result["runs"].push_back({{"name", choice.first},
                              {"settings", toJson(choice)},
                              {"bits", bits.mean},
                              {"error", bits.error},
                              {"change", change.mean},
                              {"change_error", change.error},
                              {"hits", score.hits},
                              {"skipped", score.skipped},
                              {"layer_hits", score.layerHits},
                              {"layer_skipped", score.layerSkipped}});
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Traces
//===----------------------------------------------------------------------===//

/// What one layer of a stream has taken.
struct LayerTrace {
  Vector before, query, key, value;
};

static void writeTraces(const Options &options, const Weights &weights,
                        std::span<const uint8_t> text) {
  const Config &config = weights.config;
  int64_t context = options.contexts.front();
  std::vector<std::span<const uint8_t>> streams =
      streamsOf(options, text, context);
  MacLmOptions engine = options.engine;
  engine.longest = context;
  MacLm model(weights, engine);
  std::filesystem::create_directories(options.traces);
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    std::vector<LayerTrace> layers(weights.layers.size());
    model.observe = [&](size_t layer, const MacLm::Seen &seen) {
      auto append = [](Vector &to, const Vector &from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(layers[layer].before, seen.before);
      append(layers[layer].query, seen.query);
      append(layers[layer].key, seen.key);
      append(layers[layer].value, seen.value);
    };
    model.refill(0, {});
    model.prefill(0, streams[stream], /*wantsLogits=*/false);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      std::map<std::string, TensorView> tensors;
      std::vector<std::vector<uint16_t>> memory(4);
      auto add = [&](size_t i, const char *name, Vector &values,
                     int64_t heads) {
        memory[i].resize(values.size());
        TensorView view = TensorView::dense(memory[i], DType::BF16,
                                            {context, heads, config.headSize});
        orThrow(copy(TensorView::dense(values, DType::F32, view.shape), view));
        tensors.emplace(name, view);
      };
      add(0, "q_pre", layers[layer].before, config.queryHeads);
      add(1, "q_post", layers[layer].query, config.queryHeads);
      add(2, "k_post", layers[layer].key, config.keyValueHeads);
      add(3, "v", layers[layer].value, config.keyValueHeads);
      orThrow(Safetensors::write(fmt::format("{}/stream{}-layer{}.safetensors",
                                             options.traces, stream, layer),
                                 tensors));
    }
  }
  fmt::print("{} traces of {} tokens in '{}'\n",
             streams.size() * weights.layers.size(), context, options.traces);
}

static int check(const Options &options, const Weights &weights) {
  MacLmOptions engine = options.engine;
  engine.longest =
      orThrow(orThrow(Safetensors::open(options.checked)).view("tokens"))
          .shape.back();
  MacLm model(weights, engine);
  auto [worst, largest] = compareLogits(model, options.checked);
  fmt::print("logits differ by {:.4f} at most, the largest is {:.2f}\n", worst,
             largest);
  return 0;
}

static int run(const Options &options) {
  Weights weights = Weights::load(options.model);
  if (!options.checked.empty())
    return check(options, weights);
  if (options.text.empty())
    throw std::runtime_error("--text names no file");
  std::vector<uint8_t> text = readBytes(options.text);
  if (!options.traces.empty()) {
    writeTraces(options, weights, text);
    return 0;
  }
  std::vector<Choice> choices = choicesOf(options);
  std::string json;
  for (int64_t context : options.contexts)
    json += (json.empty() ? "\n " : ",\n ") +
            scoreContext(options, weights, text, context, choices).dump();
  if (options.json.empty())
    return 0;
  std::ofstream stream(options.json);
  stream << "{\"schema\": \"ladle-mac-bits-1\", \"model\": "
         << Json(std::filesystem::path(options.model).filename().string())
         << ", \"contexts\": [" << json << "\n]}\n";
  stream.close();
  if (!stream)
    throw std::runtime_error(fmt::format("cannot write '{}'", options.json));
  return 0;
}

int main(int argc, char **argv) {
  Options options;
  CLI::App app{"Bits per byte of a softmax model whose layers match, amend and "
               "complete by Ladle, against exact attention."};
  parse(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception &error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
