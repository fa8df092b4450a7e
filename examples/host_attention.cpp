//===- host_attention.cpp - decode with a cache that is reused ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles an attention, answers two prompts, and decodes after them, on the
// CPU or with --gpu on a GPU:
//
//   host_attention [--gpu] [FILE [TABLE]]
//
// TABLE is what `ladle tune --trace` has chosen for a layer.
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "ladle/device.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace ladle;

static void orExit(const Status &status) {
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }
}

template <typename T> static T orExit(Result<T> result) {
  orExit(result.status());
  return std::move(*result);
}

/// Queries come again every 24 tokens, as the words of a text do.
static float makeInput(const std::string &name, int64_t token, int64_t index) {
  auto wave = [](int64_t at) {
    return std::sin(0.37F * static_cast<float>(at * at % 1009));
  };
  return name[0] == 'q' ? wave(131 * (token % 24) + index)
                        : wave(977 * token + index);
}

namespace {
/// One dense array [tokens, heads, ...] for each token and output, where the
/// program wants it.
struct Arguments {
  Arguments(const AttentionProgram &program, int64_t tokens) {
    const Signature &signature = program.signature();
    for (const auto *specs : {&signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs) {
        std::vector<int64_t> shape{tokens};
        shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
        memory.push_back(orExit(
            DeviceTensor::allocate(program.device(), spec.dtype, shape)));
        tensors[spec.name] = memory.back().view();
      }
  }
  /// `at` says the position in its sequence of each token.
  void fill(const Signature &signature, const std::vector<int64_t> &at) {
    for (const TensorSpec &spec : signature.tokens) {
      const TensorView &view = tensors[spec.name];
      std::vector<float> values(view.count());
      int64_t size = view.count() / static_cast<int64_t>(at.size());
      for (int64_t i = 0; i < view.count(); ++i)
        values[i] = makeInput(spec.name, at[i / size], i % size);
      orExit(copy(TensorView::dense(values, DType::F32, view.shape), view));
    }
  }
  std::vector<DeviceTensor> memory;
  std::map<std::string, TensorView, std::less<>> tensors;
};

/// Numbers in the memory of a device, or in the host's.
struct Numbers {
  Numbers(DeviceId device, std::vector<int32_t> all)
      : memory(orExit(DeviceTensor::copyOf(
            device, TensorView::dense(all.data(), DType::I32,
                                      {static_cast<int64_t>(all.size())})))),
        count(all.size()) {}
  std::span<const int32_t> view() const {
    return {memory.as<int32_t>(), count};
  }
  DeviceTensor memory;
  size_t count;
};
} // namespace

int main(int argc, char **argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  bool onGpu = std::erase(words, "--gpu") > 0;
  std::string path = words.empty() ? "examples/mac.ladle" : words[0];
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  AttentionCompileOptions compile;
  compile.preset = "small";
  compile.target = onGpu ? "cuda" : "cpu";
  Result<AttentionProgram> compiled = compileAttention(text, path, compile);
  if (onGpu && !compiled && compiled.status().code() == ErrorCode::NotFound) {
    std::printf("no GPU: %s\n", compiled.message().c_str());
    return 0;
  }
  AttentionProgram program = orExit(std::move(compiled));
  const Signature &signature = program.signature();

  // Two sequences of 512 tokens at most, whose pages come from one pool.
  AttentionPoolOptions room;
  room.slots = 2;
  room.pages = 64;
  AttentionPool pool = orExit(AttentionPool::create(program, room));
  AttentionDecoderOptions options;
  options.diagnostics = true;
  if (words.size() > 1)
    options.settings = orExit(readAttentionSettings(words[1])).at(0);
  AttentionDecoder decoder =
      orExit(AttentionDecoder::create(program, pool, options));

  // Prompts of 200 and 100 tokens, one after the other.
  const int32_t first[] = {0}, second[] = {1}, both[] = {0, 1};
  Numbers slots(program.device(), {0, 1});
  Numbers starts(program.device(), {0, 200, 300});
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 300; ++i)
    positions.push_back(i < 200 ? i : i - 200);
  Arguments prompt(program, 300);
  prompt.fill(signature, positions);
  PrefillArguments prompts;
  prompts.rows = 2;
  prompts.slots = slots.view();
  prompts.cuSeqlens = starts.view();
  prompts.tokens = onGpu ? 300 : 0;
  prompts.tensors = prompt.tensors;
  // A GPU cannot take pages, so that they are there before a call.
  orExit(pool.reserve(first, 200));
  orExit(pool.reserve(second, 100));
  orExit(decoder.prefill(prompts));

  // Checked once, launched for every token; a CUDA graph could capture it.
  Arguments token(program, 2);
  AttentionArguments arguments;
  arguments.rows = 2;
  arguments.slots = slots.view();
  arguments.tensors = token.tensors;
  BoundStep step = orExit(decoder.bind(arguments));
  for (int64_t i = 0; i < 100; ++i) {
    token.fill(signature, {200 + i, 100 + i});
    orExit(pool.reserve(both, 1));
    orExit(step.launch());
  }
  double sum = 0;
  for (float value : orExit(toFloats(token.tensors[signature.outputs[0].name])))
    sum += value;
  std::printf(
      "after 100 tokens: slot 0 holds %d, slot 1 %d; sum of o is %.4f\n",
      static_cast<int>(pool.length(0)), static_cast<int>(pool.length(1)), sum);
  int head = 0;
  for (const AttentionHeadDiagnostics &each : decoder.diagnostics())
    std::printf("head %d: %.0f %% of tokens match, %.0f %% of the cache is "
                "skipped, %.0f %% of the weight is reused\n",
                head++, 100.0 * static_cast<double>(each.hits) / each.tokens,
                100.0 * static_cast<double>(each.skipped) / each.cached,
                100 * each.reusedWeight);
}
