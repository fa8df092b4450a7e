//===- MacProfile.cpp - ladle mac-profile ---------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What match, amend, complete would do to a real layer: the first half of a
// trace is a prompt, the second is decoded token by token in a closed loop, in
// which summaries are made from summaries, and compared with exact attention.
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "ladle/safetensors.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;

namespace {

constexpr std::string_view profiledSource = R"(
attention profiled(Hq, Hkv, D, Dv) {
  option window = 1024
  token q_pre[Hq, D], q_post[Hq, D], k_post[Hkv, D], v[Hkv, Dv] : bf16
  cache KV[k_post, v] paged(16)
  let prefix = match(q_pre, window, 0.5)
  out o[Hq, Dv] : f32 =
    complete(prefix, softmax(q_post, KV, scale = rsqrt(D)), 0, sinks = 1)
}
)";

constexpr const char *inputs[] = {"q_pre", "q_post", "k_post", "v"};

/// One choice of numbers over the second half of the trace.
struct Figures {
  double tau = 0;
  int64_t window = 0, band = 0;
  double hits = 0;    ///< share of heads of tokens
  double skipped = 0; ///< share of the tokens of the cache, of all heads
  double error = 0;   ///< mean of |o − exact| / |exact| over heads of tokens
};

class Profile {
public:
  static Result<Profile> create(const MacProfileOptions &options);

  /// Outputs of the second half.
  Result<std::vector<float>> decode(const AttentionSettings &settings,
                                    Figures &figures);
  Result<Figures> measure(double tau, int64_t window, int64_t band);
  int64_t maxChain = 0;

  int64_t tokens = 0;
  /// Of exact attention against outputs that the trace holds, relative to the
  /// largest; nothing if it holds none.
  std::optional<double> traceError;

private:
  Status compareExact();
  explicit Profile(AttentionProgram program) : program(std::move(program)) {}
  int64_t half() const { return tokens / 2; }
  std::map<std::string, TensorView, std::less<>> part(int64_t begin,
                                                      int64_t end);

  AttentionProgram program;
  std::map<std::string, TensorView> trace;
  std::optional<Safetensors> file;
  int64_t mostWindow = 1;
  std::vector<float> exact, memory;
};

} // namespace

Result<Profile> Profile::create(const MacProfileOptions &options) {
  Result<Safetensors> file = Safetensors::open(options.trace);
  if (!file)
    return file.status();
  std::map<std::string, TensorView> trace;
  for (const char *name : inputs) {
    Result<TensorView> view = file->view(name);
    if (!view)
      return view.status();
    if (view->rank() != 3 || view->dtype != DType::BF16)
      return Status(ErrorCode::InvalidData,
                    fmt::format("'{}' of the trace is {}, wanted bf16 [tokens, "
                                "heads, D]",
                                name, toString(*view)));
    trace.emplace(name, *view);
  }
  AttentionCompileOptions compile;
  compile.sizes = {{"Hq", trace["q_pre"].shape[1]},
                   {"Hkv", trace["k_post"].shape[1]},
                   {"D", trace["q_pre"].shape[2]},
                   {"Dv", trace["v"].shape[2]}};
  Result<AttentionProgram> program =
      compileAttention(profiledSource, "profile.ladle", compile);
  if (!program)
    return program.status();
  Profile profile(*program);
  profile.tokens = trace["q_pre"].shape[0];
  if (options.tokens)
    profile.tokens = std::min(profile.tokens, options.tokens);
  for (const auto &[name, view] : trace)
    if (view.shape[0] < profile.tokens)
      return Status(ErrorCode::InvalidData,
                    fmt::format("'{}' of the trace is {}, wanted {} tokens",
                                name, toString(view), profile.tokens));
  if (profile.tokens < 2)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("the trace has {} tokens, wanted 2 at least",
                              profile.tokens));
  profile.trace = std::move(trace);
  profile.file = std::move(*file);
  profile.mostWindow =
      *std::max_element(options.windows.begin(), options.windows.end());
  Figures none;
  AttentionSettings never;
  never.window = 1;
  Result<std::vector<float>> exact = profile.decode(never, none);
  if (!exact)
    return exact.status();
  profile.exact = std::move(*exact);
  if (Status status = profile.compareExact(); !status)
    return status;
  return std::move(profile);
}

/// Compares with `o` of the trace, at its `positions`.
Status Profile::compareExact() {
  if (!file->contains("o") || !file->contains("positions"))
    return Status();
  Result<TensorView> outputs = file->view("o");
  Result<TensorView> positions = file->view("positions");
  if (!outputs || !positions)
    return outputs ? positions.status() : outputs.status();
  const TensorSpec &spec = program.signature().outputs[0];
  if (positions->rank() != 1 || positions->dtype != DType::I32 ||
      outputs->shape != std::vector<int64_t>{positions->shape[0], spec.shape[0],
                                             spec.shape[1]})
    return Status(ErrorCode::InvalidData,
                  fmt::format("'positions' and 'o' of the trace are {} and {}, "
                              "wanted i32 [n] and [n, heads, D]",
                              toString(*positions), toString(*outputs)));
  Result<std::vector<float>> wanted = toFloats(*outputs);
  if (!wanted)
    return wanted.status();
  int64_t size = spec.shape[0] * spec.shape[1];
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < positions->shape[0]; ++i) {
    int64_t at = static_cast<const int32_t *>(
                     positions->data)[i * positions->strides[0]] -
                 half();
    for (int64_t c = 0; c < size && at >= 0 && at < tokens - half(); ++c) {
      auto stored = static_cast<double>((*wanted)[i * size + c]);
      largest = std::max(largest, std::abs(stored));
      worst = std::max(worst, std::abs(stored - exact[at * size + c]));
    }
  }
  if (largest > 0)
    traceError = worst / largest;
  return Status();
}

std::map<std::string, TensorView, std::less<>> Profile::part(int64_t begin,
                                                             int64_t end) {
  std::map<std::string, TensorView, std::less<>> tensors;
  for (const auto &[name, view] : trace)
    tensors.emplace(name, view.slice(0, begin, end));
  const TensorSpec &output = program.signature().outputs[0];
  memory.resize(
      static_cast<size_t>((end - begin) * output.shape[0] * output.shape[1]));
  tensors.emplace(output.name, TensorView::dense(memory, DType::F32,
                                                 {end - begin, output.shape[0],
                                                  output.shape[1]}));
  return tensors;
}

Result<std::vector<float>> Profile::decode(const AttentionSettings &settings,
                                           Figures &figures) {
  AttentionPoolOptions room;
  room.slots = 1;
  room.pages = (tokens + program.pageSize() - 1) / program.pageSize();
  room.window = std::max(mostWindow, settings.window);
  Result<AttentionPool> pool = AttentionPool::create(program, room);
  if (!pool)
    return pool.status();
  Result<AttentionDecoder> decoder =
      AttentionDecoder::create(program, *pool, {.settings = settings});
  if (!decoder)
    return decoder.status();
  const int32_t slots[] = {0};
  const int32_t starts[] = {0, static_cast<int32_t>(half())};
  PrefillArguments prompt;
  prompt.rows = 1;
  prompt.slots = slots;
  prompt.cuSeqlens = starts;
  prompt.tensors = part(0, half());
  if (Status status = decoder->prefill(prompt); !status)
    return status;

  std::vector<float> outputs;
  double skipped = 0, cached = 0, hits = 0, all = 0;
  for (int64_t token = half(); token < tokens; ++token) {
    AttentionArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.tensors = part(token, token + 1);
    if (Status status = decoder->step(arguments); !status)
      return status;
    outputs.insert(outputs.end(), memory.begin(), memory.end());
    for (int64_t match : decoder->matches()) {
      ++all;
      cached += static_cast<double>(token + 1);
      if (match < 0)
        continue;
      ++hits;
      skipped += static_cast<double>(
          std::max<int64_t>(0, match + 1 - settings.band - settings.sinks));
    }
  }
  figures.hits = hits / all;
  figures.skipped = skipped / cached;
  return std::move(outputs);
}

Result<Figures> Profile::measure(double tau, int64_t window, int64_t band) {
  Figures figures;
  AttentionSettings settings;
  settings.tau = figures.tau = tau;
  settings.window = figures.window = window;
  settings.band = figures.band = band;
  settings.maxChain = maxChain;
  Result<std::vector<float>> outputs = decode(settings, figures);
  if (!outputs)
    return outputs.status();
  auto width = static_cast<size_t>(program.signature().outputs[0].shape[1]);
  double sum = 0;
  for (size_t at = 0; at < exact.size(); at += width) {
    double difference = 0, norm = 0;
    for (size_t c = at; c < at + width; ++c) {
      double off = static_cast<double>((*outputs)[c]) - exact[c];
      difference += off * off;
      norm += static_cast<double>(exact[c]) * exact[c];
    }
    sum += norm > 0 ? std::sqrt(difference / norm) : 0;
  }
  figures.error =
      sum / static_cast<double>(exact.size()) * static_cast<double>(width);
  return figures;
}

static int fail(const Status &status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 2;
}

int ladle::tool::macProfile(const MacProfileOptions &options) {
  Result<Profile> profile = Profile::create(options);
  if (!profile)
    return fail(profile.status());
  profile->maxChain = options.maxChain;
  size_t total =
      options.taus.size() * options.windows.size() * options.bands.size();
  std::vector<Figures> figures;
  Progress progress;
  for (int64_t window : options.windows)
    for (double tau : options.taus)
      for (int64_t band : options.bands) {
        progress.show(fmt::format("{} of {}", figures.size(), total),
                      figures.size(), total);
        Result<Figures> one = profile->measure(tau, window, band);
        if (!one)
          return fail(one.status());
        figures.push_back(*one);
      }
  progress.clear();
  if (options.json) {
    nlohmann::ordered_json all = {{"trace", options.trace},
                                  {"tokens", profile->tokens},
                                  {"max_chain", options.maxChain},
                                  {"figures", nlohmann::ordered_json::array()}};
    for (const Figures &one : figures)
      all["figures"].push_back({{"tau", one.tau},
                                {"window", one.window},
                                {"band", one.band},
                                {"hits", one.hits},
                                {"skipped", one.skipped},
                                {"error", one.error}});
    std::fputs((all.dump(2) + "\n").c_str(), stdout);
    return 0;
  }
  if (profile->traceError)
    fmt::print("exact attention is within {:.1e} of the trace's outputs\n",
               *profile->traceError);
  fmt::print("{} of {} tokens decoded, the others a prompt\n\n{:>6} {:>6} "
             "{:>6} {:>7} {:>8} {:>8}\n",
             profile->tokens - profile->tokens / 2, profile->tokens, "window",
             "tau", "band", "hits", "skipped", "error");
  for (const Figures &one : figures)
    fmt::print("{:>6} {:>6} {:>6} {:>7.3f} {:>8.3f} {:>8.4f}\n", one.window,
               one.tau, one.band, one.hits, one.skipped, one.error);
  return 0;
}
