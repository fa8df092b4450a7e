//===- SlakeTest.cpp - what docs/slake.md shows ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The document shows the lines between two marks of the same name.
//
//===----------------------------------------------------------------------===//

#include "ladle/prompt_budgets.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

using namespace ladle;

/// Ends the test with the message of a failure.
static void need(const Status &status) {
  if (!status)
    FAIL(status.message());
}
template <typename T> static T need(Result<T> result) {
  need(result.status());
  return std::move(*result);
}

namespace {
/// Random activations of a prompt, or of a token.
struct Activations {
  explicit Activations(int64_t tokens, unsigned seed) : tokens(tokens) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto [values, heads] :
         {std::pair{&q, 4}, std::pair{&k, 2}, std::pair{&v, 2}}) {
      values->resize(static_cast<size_t>(tokens * heads * 64));
      for (float &value : *values)
        value = normal(random);
    }
    o.resize(q.size());
  }
  std::map<std::string, TensorView, std::less<>> views() {
    auto view = [&](std::vector<float> &values, int64_t heads) {
      return TensorView::dense(values, DType::F32, {tokens, heads, 64});
    };
    return {{"q", view(q, 4)},
            {"k", view(k, 2)},
            {"v", view(v, 2)},
            {"o", view(o, 4)}};
  }
  int64_t tokens;
  std::vector<float> q, k, v, o;
};
} // namespace

TEST_CASE("layers share a budget") {
  std::ifstream file("examples/slake.ladle");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr int64_t layerCount = 3, promptTokens = 300;
  constexpr int32_t slot = 0;

  // [budgets]
  AttentionCompileOptions options;
  options.preset = "small";
  options.tokenTypes["*"] = "f32";
  options.options["budget"] = 128; // what a slot has memory for
  AttentionProgram program =
      need(compileAttention(text, "slake.ladle", options));
  std::vector<AttentionPool> pools;
  std::vector<AttentionDecoder> decoders;
  pools.reserve(layerCount);    // decoders keep where they are, and
  decoders.reserve(layerCount); // budgets where these are
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    pools.push_back(need(AttentionPool::create(program, {.slots = 4})));
    AttentionDecoderOptions each;
    each.preference = PreferenceOptions{.budget = 64};
    decoders.push_back(
        need(AttentionDecoder::create(program, pools.back(), each)));
  }

  // 64 tokens a layer on average, of which none has fewer than 16.
  PromptBudgetOptions shared;
  shared.layers = {
      .layers = layerCount, .total = 64 * layerCount, .least = 16, .most = 128};
  PromptBudgets budgets = need(PromptBudgets::create(program, shared));
  const int32_t slots[] = {slot}, starts[] = {0, promptTokens};
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    Activations prompt(promptTokens, layer); // the layer before gives them
    PrefillArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = prompt.views();
    need(decoders[layer].prefill(arguments));
    need(budgets.add(decoders[layer], slots)); // sets those of all so far
  }
  // [budgets]

  int64_t kept = 0;
  for (AttentionPool &pool : pools)
    kept += pool.keptTokens(slot);
  CHECK(kept == 64 * layerCount);
  Activations token(1, 9);
  AttentionArguments step;
  step.rows = 1;
  step.slots = slots;
  step.tensors = token.views();
  need(decoders[1].step(step));
  CHECK(pools[1].keptTokens(slot) == budgets.budgets(1)[0]);
  for (float element : token.o)
    CHECK(std::isfinite(element));
}

TEST_CASE("budgets that fall from layer to layer") {
  std::ifstream file("examples/pyramid_kv.ladle");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr int64_t layerCount = 4, promptTokens = 300;
  constexpr int32_t slot = 0;

  // [pyramid]
  AttentionCompileOptions options;
  options.preset = "small";
  options.tokenTypes["*"] = "f32";
  constexpr int64_t first = 112, last = 16; // 64 tokens a layer on average
  options.options["budget"] = first;        // what a slot has memory for
  AttentionProgram program =
      need(compileAttention(text, "pyramid_kv.ladle", options));
  std::vector<AttentionPool> pools;
  std::vector<AttentionDecoder> decoders;
  pools.reserve(layerCount); // decoders keep where they are
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    pools.push_back(need(AttentionPool::create(program, {.slots = 4})));
    decoders.push_back(need(AttentionDecoder::create(program, pools.back())));
    // Before the prompt, and again after each reset of the slot.
    int64_t budget = first - (first - last) * layer / (layerCount - 1);
    need(decoders.back().setBudget(slot, budget));
  }
  // [pyramid]

  for (int64_t layer = 0; layer < layerCount; ++layer) {
    Activations prompt(promptTokens, static_cast<unsigned>(layer));
    const int32_t slots[] = {slot}, starts[] = {0, promptTokens};
    PrefillArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = prompt.views();
    need(decoders[layer].prefill(arguments));
    CHECK(pools[layer].keptTokens(slot) == 112 - 32 * layer);
  }
  need(pools[1].reset(std::vector<int32_t>{slot}));
  CHECK(pools[1].budget(slot) == first);
}
