//===- MacReplay.cpp - an attention decodes a trace -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/MacReplay.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;
using namespace ladle::tool;

// Which gates, pieces and sinks there are is compiled in; how large they are is
// for the settings of a decoder.
static constexpr std::string_view profiledSource = R"(
attention profiled(Hq, Hkv, D, Dv) {{
  option window = 1024
  token q_pre[Hq, D], q_post[Hq, D], k_post[Hkv, D], v[Hkv, Dv] : bf16
  cache KV[k_post, v] paged(16)
  let prefix = match(q_pre, window, 0.5{})
  out o[Hq, Dv] : f32 =
    complete(prefix, softmax(q_post, KV, scale = rsqrt(D)), 0, sinks = 1{})
}}
)";

Result<AttentionProgram> tool::programOf(const MacTrace &trace,
                                         const AttentionSettings &settings,
                                         bool hasDrift) {
  AttentionCompileOptions options;
  options.sizes = {{"Hq", trace.find("q_pre")->shape[1]},
                   {"Hkv", trace.find("k")->shape[1]},
                   {"D", trace.find("q_pre")->shape[2]},
                   {"Dv", trace.find("v")->shape[2]}};
  std::string source =
      fmt::format(profiledSource, hasDrift ? ", drift = 0.5" : "",
                  settings.wideBand ? ", wide_band = 1, wide_gap = 1" : "");
  return compileAttention(source, "profile.ladle", options);
}

double MacRun::meanError() const {
  return std::accumulate(errors.begin(), errors.end(), 0.0) /
         static_cast<double>(std::max<size_t>(errors.size(), 1));
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Result<MacReplay> MacReplay::create(const MacTrace &trace,
                                    const AttentionProgram &program,
                                    const MacReplayOptions &options) {
  for (const TensorSpec &spec : program.signature().tokens) {
    const TensorView *view = trace.find(spec.name);
    std::vector<int64_t> wanted = spec.shape;
    wanted.insert(wanted.begin(), trace.tokens());
    if (!view || view->dtype != spec.dtype || view->rank() != 3 ||
        !std::equal(spec.shape.begin(), spec.shape.end(),
                    view->shape.begin() + 1)) {
      std::string found = "the trace has none of that name";
      if (view)
        found = "the trace has " + toString(view->slice(0, 0, trace.tokens()));
      if (view && view->dtype != spec.dtype)
        found += fmt::format("\nnote: declare it as {}, as the trace has it",
                             toString(view->dtype));
      return Status(
          ErrorCode::InvalidArgument,
          fmt::format("token '{}' of '{}' is {}, {}", spec.name,
                      program.signature().name,
                      toString(TensorView::dense(nullptr, spec.dtype, wanted)),
                      found));
    }
  }
  if (!program.signature().params.empty())
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("'{}' takes the param '{}', which no trace holds",
                              program.signature().name,
                              program.signature().params[0].name));
  int64_t prompt = options.prompt ? options.prompt : trace.tokens() / 2;
  if (prompt < 1 || prompt >= trace.tokens())
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("the prompt is {} of {} tokens, wanted fewer",
                              prompt, trace.tokens()));
  AttentionPoolOptions room;
  room.slots = 1;
  room.pages = (trace.tokens() + program.pageSize() - 1) / program.pageSize();
  // One entry more than is looked at: a token may be answered twice.
  room.window = options.window + 1;
  Result<AttentionPool> pool = AttentionPool::create(program, room);
  if (!pool)
    return pool.status();
  MacReplay replay(trace, program, std::move(*pool));
  replay.prompt = prompt;
  replay.window = room.window;
  AttentionSettings never;
  never.window = 1;
  Result<AttentionDecoder> decoder =
      replay.decoderOf(program.reuses() ? never : program.settings());
  if (!decoder)
    return decoder.status();
  for (auto [begin, end] :
       {std::pair(int64_t(0), prompt), {prompt, trace.tokens()}})
    if (Status status = replay.prefill(*decoder, begin, end); !status)
      return status;
  replay.exact = replay.outputs;
  replay.compareWithTrace();
  return std::move(replay);
}

Result<AttentionDecoder> MacReplay::decoderOf(const AttentionSettings &settings,
                                              bool diagnoses) {
  AttentionDecoderOptions options;
  options.settings = settings;
  options.diagnostics = diagnoses;
  return AttentionDecoder::create(program, pool, options);
}

std::map<std::string, TensorView, std::less<>> MacReplay::part(int64_t begin,
                                                               int64_t end) {
  std::map<std::string, TensorView, std::less<>> tensors;
  for (const TensorSpec &spec : program.signature().tokens)
    tensors.emplace(spec.name, trace->find(spec.name)->slice(0, begin, end));
  const TensorSpec &output = program.signature().outputs[0];
  outputs.resize(
      static_cast<size_t>((end - begin) * output.shape[0] * output.shape[1]));
  tensors.emplace(output.name, TensorView::dense(outputs, DType::F32,
                                                 {end - begin, output.shape[0],
                                                  output.shape[1]}));
  return tensors;
}

Status MacReplay::prefill(AttentionDecoder &decoder, int64_t begin,
                          int64_t end) {
  const int32_t slots[] = {0};
  const int32_t starts[] = {0, static_cast<int32_t>(end - begin)};
  PrefillArguments arguments;
  arguments.rows = 1;
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tensors = part(begin, end);
  return decoder.prefill(arguments);
}

Status MacReplay::rewind(AttentionDecoder &decoder) {
  // The cache of the prompt stays; the rings are filled again.
  int64_t kept = std::max<int64_t>(prompt - window, 0);
  const int32_t slots[] = {0};
  if (Status status = pool.truncate(0, kept); !status)
    return status;
  if (Status status = pool.invalidateRings(slots); !status)
    return status;
  return prefill(decoder, kept, prompt);
}

void MacReplay::compareWithTrace() {
  if (!trace->outputs())
    return;
  const TensorSpec &spec = program.signature().outputs[0];
  int64_t size = spec.shape[0] * spec.shape[1];
  double largest = 0, worst = 0;
  const MacTrace::Outputs &stored = *trace->outputs();
  for (size_t i = 0; i < stored.positions.size(); ++i) {
    int64_t at = stored.positions[i] - prompt;
    for (int64_t c = 0; c < size && at >= 0 && at < tokens(); ++c) {
      double value = stored.values[i * size + c];
      largest = std::max(largest, std::abs(value));
      worst = std::max(worst, std::abs(value - exact[at * size + c]));
    }
  }
  if (largest > 0)
    worstOfTrace = worst / largest;
}

void MacReplay::warnOfTraceError() const {
  constexpr double most = 0.1;
  if (worstOfTrace.value_or(0) > most)
    fmt::print(stderr,
               "warning: {}: exact attention differs from the trace's outputs "
               "by {:.2f} of the largest\n"
               "note: are --rope-base and the scale those of the model?\n",
               trace->getPath(), *worstOfTrace);
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// Answers a token, and adds what became of its heads.
Status MacReplay::step(AttentionDecoder &decoder, int64_t token, MacRun &run) {
  const int32_t slots[] = {0};
  AttentionArguments arguments;
  arguments.rows = 1;
  arguments.slots = slots;
  arguments.tensors = part(token, token + 1);
  if (Status status = decoder.step(arguments); !status)
    return status;
  std::span<const int64_t> matches = decoder.matches();
  run.matches.insert(run.matches.end(), matches.begin(), matches.end());
  size_t width = outputs.size() / static_cast<size_t>(heads());
  const float *wanted = exact.data() + (token - prompt) * outputs.size();
  for (size_t at = 0; at < outputs.size(); at += width) {
    double difference = 0, norm = 0;
    for (size_t c = at; c < at + width; ++c) {
      double off = static_cast<double>(outputs[c]) - wanted[c];
      difference += off * off;
      norm += static_cast<double>(wanted[c]) * wanted[c];
    }
    run.errors.push_back(
        norm > 0 ? static_cast<float>(std::sqrt(difference / norm)) : 0.0F);
  }
  return Status();
}

Result<MacRun> MacReplay::closedLoop(const AttentionSettings &settings,
                                     double mostError, bool diagnoses) {
  Result<AttentionDecoder> decoder = decoderOf(settings, diagnoses);
  if (!decoder)
    return decoder.status();
  if (Status status = rewind(*decoder); !status)
    return status;
  MacRun run;
  double sum = 0, most = mostError * static_cast<double>(tokens() * heads());
  for (int64_t token = prompt; token < trace->tokens(); ++token) {
    if (Status status = step(*decoder, token, run); !status)
      return status;
    for (size_t i = run.errors.size() - heads(); i < run.errors.size(); ++i)
      sum += run.errors[i];
    if (sum > most && token + 1 < trace->tokens()) {
      run.isCutShort = true;
      break;
    }
  }
  run.diagnostics = decoder->diagnostics();
  return run;
}

Result<std::vector<MacRun>>
MacReplay::singleStep(const AttentionSettings &settings,
                      const std::vector<int64_t> &windows) {
  std::vector<AttentionDecoder> decoders;
  for (int64_t each : windows) {
    AttentionSettings own = settings;
    own.window = each;
    own.maxChain = 0;
    Result<AttentionDecoder> decoder = decoderOf(own);
    if (!decoder)
      return decoder.status();
    decoders.push_back(std::move(*decoder));
  }
  if (Status status = rewind(decoders.front()); !status)
    return status;
  std::vector<MacRun> runs(windows.size());
  for (int64_t token = prompt; token < trace->tokens(); ++token) {
    for (size_t i = 0; i < decoders.size(); ++i) {
      if (Status status = step(decoders[i], token, runs[i]); !status)
        return status;
      if (Status status = pool.truncate(0, token); !status)
        return status;
    }
    if (Status status = prefill(decoders.front(), token, token + 1); !status)
      return status;
  }
  return runs;
}
