//===- host_attention.cpp - decode with a cache that is reused ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles an attention, answers two prompts, and decodes after them.
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"

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
/// One dense array [tokens, heads, ...] for each token and output.
struct Arguments {
  Arguments(const Signature &signature, int64_t tokens) {
    for (const auto *specs : {&signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs) {
        std::vector<int64_t> shape{tokens};
        shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
        TensorView view = TensorView::dense(nullptr, spec.dtype, shape);
        view.data =
            memory.emplace_back(view.count() * sizeInBytes(spec.dtype)).data();
        tensors[spec.name] = view;
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
  std::vector<std::vector<std::byte>> memory;
  std::map<std::string, TensorView, std::less<>> tensors;
};
} // namespace

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "examples/mac.ladle";
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  AttentionCompileOptions compile;
  compile.preset = "small";
  AttentionProgram program = orExit(compileAttention(text, path, compile));
  const Signature &signature = program.signature();

  // Two sequences of 512 tokens at most, whose pages come from one pool.
  AttentionPoolOptions room;
  room.slots = 2;
  room.pages = 64;
  AttentionPool pool = orExit(AttentionPool::create(program, room));
  AttentionDecoderOptions options;
  options.diagnostics = true;
  // What `ladle tune --trace` chose for layer 0, if there is a table.
  if (argc > 2)
    options.settings = orExit(readAttentionSettings(argv[2])).at(0);
  AttentionDecoder decoder =
      orExit(AttentionDecoder::create(program, pool, options));

  // Prompts of 200 and 100 tokens, one after the other.
  std::vector<int32_t> slots{0, 1}, starts{0, 200, 300};
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 300; ++i)
    positions.push_back(i < 200 ? i : i - 200);
  Arguments prompt(signature, 300);
  prompt.fill(signature, positions);
  PrefillArguments prompts;
  prompts.rows = 2;
  prompts.slots = slots;
  prompts.cuSeqlens = starts;
  prompts.tensors = prompt.tensors;
  orExit(decoder.prefill(prompts));

  Arguments token(signature, 2);
  AttentionArguments step;
  step.rows = 2;
  step.slots = slots;
  step.tensors = token.tensors;
  for (int64_t i = 0; i < 100; ++i) {
    token.fill(signature, {200 + i, 100 + i});
    orExit(decoder.step(step));
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
