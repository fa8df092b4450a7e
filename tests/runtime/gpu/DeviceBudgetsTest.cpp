//===- DeviceBudgetsTest.cpp - budgets of layers on a GPU -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/prompt_budgets.h"
#include "runtime/cuda/Driver.h"
#include "tests/runtime/gpu/PromptPair.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

TEST_CASE("budgets of slots that are lowered on a GPU, and raised") {
  if (!hasGpu())
    return;
  auto name = GENERATE(as<std::string>(), "slake", "h2o", "streaming_llm");
  CAPTURE(name);
  Options options{{"budget", 24}};
  if (name == "streaming_llm")
    options["sinks"] = 3;
  else
    options["recent"] = 5;
  if (name == "slake")
    options["queries"] = 6;
  Pair pair(name, {}, options);
  int64_t lower = name == "streaming_llm" ? 24 : 11;
  pair.prefill({{0, 60}, {1, 13}});
  pair.setBudget(0, lower);
  pair.setBudget(1, lower);
  pair.setBudget(2, lower);
  for (int i = 0; i < 8; ++i)
    pair.step({0, 1, 2});
  pair.prefill({{0, 30}, {2, 2}});
  pair.setBudget(0, 24);
  for (int i = 0; i < 4; ++i)
    pair.step({2, 0, 1});
  // A slot that is used again has all of its budget.
  pair.reset(1);
  pair.prefill({{1, 30}});
  CHECK(pair.there.pool->keptTokens(1) == 24);
}

TEST_CASE("a graph lowers budgets that it does not know") {
  if (!hasGpu())
    return;
  Pair pair("slake", {}, small);
  pair.prefill({{0, 60}, {1, 24}, {2, 9}});
  // One is padding, two are out of range.
  const std::vector<int32_t> slots{0, -1, 2, 1};
  const std::vector<std::vector<int32_t>> calls{{13, 9, -4, 100},
                                                {6, 9, 8, 10}};
  const std::vector<std::vector<int32_t>> wanted{{13, 0, 5, 24}, {6, 0, 8, 10}};
  DeviceCopies copies(pair.there.program->device());
  std::span<const int32_t> there = need(copies.upload(slots));
  std::span<const int32_t> budgets = need(copies.upload(calls[0]));
  cuda::Device device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(device, [&] {
    return pair.there.decoder->setBudgets(there, budgets, device.stream());
  }));
  CHECK(pair.there.pool->budget(0) == 24);
  for (size_t call = 0; call < calls.size(); ++call) {
    CAPTURE(call);
    need(
        copy(TensorView::dense(const_cast<int32_t *>(calls[call].data()),
                               DType::I32, {4}),
             TensorView::dense(const_cast<int32_t *>(budgets.data()),
                               DType::I32, {4}, pair.there.program->device())));
    need(synchronize(pair.there.program->device()));
    need(graph.replay());
    std::vector<int32_t> clamped = wanted[call];
    need(pair.host.decoder->setBudgets(slots, clamped));
    for (size_t row : {0, 2, 3})
      CHECK(pair.there.pool->budget(slots[row]) == clamped[row]);
    pair.checkKept();
    pair.step({2, 1, 0});
  }
}

/// Of the last prompts of both.
static void comparePreferences(Pair &pair) {
  std::span<const LayerPreference> got = pair.there.decoder->preferences();
  std::span<const LayerPreference> wanted = pair.host.decoder->preferences();
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].disturbance == Approx(wanted[i].disturbance).epsilon(1e-5));
    CHECK(got[i].entropy == Approx(wanted[i].entropy).epsilon(1e-5));
  }
}

TEST_CASE("a GPU says of prompts what a cut would cost, as the CPU does") {
  if (!hasGpu())
    return;
  struct Policy {
    const char *name;
    Options options;
    PreferenceOptions preference;
    Shape shape = {};
  };
  auto policy = GENERATE(
      Policy{"slake", small, {.budget = 12, .queries = 7}},
      Policy{"slake", small, {.budget = 9, .queries = 40, .valueExponent = 0}},
      Policy{"slake", small, {.budget = 12, .entropyOfExact = true}},
      Policy{"slake",
             {{"budget", 20}, {"recent", 4}, {"queries", 5}, {"limit", 2.2}},
             {.budget = 10, .queries = 9, .valueExponent = 0.5}},
      Policy{"cake", small, {.budget = 10}, {6, 2, 128, "bf16"}},
      Policy{"h2o",
             {{"budget", 20}, {"recent", 4}},
             {.budget = 14},
             {20, 1, 32, "bf16"}},
      Policy{"streaming_llm", {{"budget", 20}, {"sinks", 3}}, {.budget = 20}});
  CAPTURE(policy.name, policy.preference.budget);
  Pair pair(policy.name, policy.shape, policy.options, 0, policy.preference);
  CHECK(pair.there.decoder->preferences().empty());
  // Padding, shorter than the budget, of several tiles.
  pair.prefill({{0, 150}, {-1, 2}, {1, 5}});
  comparePreferences(pair);
  // On top of what is held, and of a memory.
  pair.prefill({{1, 70}, {0, 30}});
  comparePreferences(pair);
}

TEST_CASE("layers share budgets on a GPU as they do on the CPU") {
  if (!hasGpu())
    return;
  constexpr int64_t layerCount = 4, tokens = 60;
  const std::vector<Prompt> rows{{0, tokens}, {-1, 1}, {3, tokens / 2}};
  std::vector<std::unique_ptr<Pair>> layers;
  for (int64_t layer = 0; layer < layerCount; ++layer)
    layers.push_back(std::make_unique<Pair>("slake", Shape{}, small, 0,
                                            PreferenceOptions{.budget = 12}));
  PromptBudgetOptions options;
  options.layers = {.layers = layerCount, .total = 58, .least = 6};
  options.rows = 3;
  Pair &first = *layers.front();
  PromptBudgets there =
      need(PromptBudgets::create(*first.there.program, options));
  PromptBudgets host =
      need(PromptBudgets::create(*first.host.program, options));
  const std::vector<int32_t> slots{0, -1, 3};
  DeviceCopies copies(first.there.program->device());
  std::span<const int32_t> deviceSlots = need(copies.upload(slots));

  cuda::Device device = need(cuda::Device::shared());
  std::vector<PrefillArguments> calls;
  for (auto &layer : layers) {
    layer->seed += 10 * calls.size();
    calls.push_back(layer->there.prompts(rows, 0, ++layer->seed));
  }
  auto graph = need(cuda::Graph::record(device, [&] {
    for (int64_t layer = 0; layer < layerCount; ++layer) {
      if (Status status = layers[layer]->there.decoder->prefill(
              calls[layer], device.stream());
          !status)
        return status;
      if (Status status = there.add(*layers[layer]->there.decoder, deviceSlots,
                                    device.stream());
          !status)
        return status;
    }
    return Status();
  }));
  for (int replay = 0; replay < 2; ++replay) {
    need(graph.replay());
    host.restart();
    for (int64_t layer = 0; layer < layerCount; ++layer) {
      Side &side = layers[layer]->there;
      std::vector<float> got = side.answers(calls[layer].tensors.at("o"));
      layers[layer]->compareAnswers(rows, 0, got);
      need(host.add(*layers[layer]->host.decoder, slots));
    }
    for (int64_t layer = 0; layer < layerCount; ++layer) {
      CAPTURE(replay, layer);
      CHECK(there.budgets(layer) == host.budgets(layer));
      layers[layer]->checkKept();
      CHECK(layers[layer]->there.pool->budget(3) == host.budgets(layer)[2]);
    }
  }
  int64_t total = 0;
  for (int64_t layer = 0; layer < layerCount; ++layer)
    total += there.budgets(layer)[0];
  CHECK(total == 58);
  for (auto &layer : layers)
    layer->step({3, 0});
}

TEST_CASE("layers that lose nothing have equal budgets on a GPU") {
  if (!hasGpu())
    return;
  // Of large scores the sum of weights is rounded by more than their distance.
  std::string source = readExample("slake"), scale = "rsqrt(D)";
  if (GENERATE(false, true))
    for (size_t at; (at = source.find(scale)) != std::string::npos;)
      source.replace(at, scale.size(), "8");
  constexpr int64_t layerCount = 3;
  std::vector<std::unique_ptr<Pair>> layers;
  for (int64_t layer = 0; layer < layerCount; ++layer)
    layers.push_back(std::make_unique<Pair>(source, Shape{}, small, 0,
                                            PreferenceOptions{.budget = 12}));
  PromptBudgetOptions options;
  options.layers = {.layers = layerCount, .total = 30, .least = 5};
  Pair &first = *layers.front();
  PromptBudgets there =
      need(PromptBudgets::create(*first.there.program, options));
  PromptBudgets host =
      need(PromptBudgets::create(*first.host.program, options));
  const std::vector<int32_t> slots{2};
  DeviceCopies copies(first.there.program->device());
  std::span<const int32_t> deviceSlots = need(copies.upload(slots));
  for (unsigned round = 0; round < 4; ++round) {
    there.restart();
    host.restart();
    for (int64_t layer = 0; layer < layerCount; ++layer) {
      CAPTURE(round, layer);
      Pair &pair = *layers[layer];
      pair.seed = 10 * (round * layerCount + layer);
      pair.reset(2);
      pair.prefill({{2, 13}}); // of which one is evicted, and remembered
      CHECK(pair.there.decoder->preferences()[0].disturbance == 0);
      CHECK(pair.host.decoder->preferences()[0].disturbance == 0);
      need(there.add(*pair.there.decoder, deviceSlots));
      need(host.add(*pair.host.decoder, slots));
    }
    for (int64_t layer = 0; layer < layerCount; ++layer) {
      CHECK(there.budgets(layer) == std::vector<int64_t>{10});
      CHECK(host.budgets(layer) == std::vector<int64_t>{10});
    }
  }
}

TEST_CASE("a layer that is refused on a GPU can be added again") {
  if (!hasGpu())
    return;
  Pair first("slake", {}, small, 0, PreferenceOptions{.budget = 12});
  Pair second("slake", {}, small, 0, PreferenceOptions{.budget = 12});
  PromptBudgetOptions options;
  options.layers = {.layers = 2, .total = 24, .least = 5};
  PromptBudgets there =
      need(PromptBudgets::create(*first.there.program, options));
  PromptBudgets host =
      need(PromptBudgets::create(*first.host.program, options));
  const std::vector<int32_t> slots{1};
  DeviceCopies copies(first.there.program->device());
  std::span<const int32_t> deviceSlots = need(copies.upload(slots));
  const int32_t *nowhere = nullptr;
  second.seed = 20;
  for (Pair *pair : {&first, &second}) {
    pair->prefill({{1, 50}});
    Status status = there.add(*pair->there.decoder, std::span(nowhere, 1));
    CHECK(status.code() == ErrorCode::InvalidArgument);
    CHECK_THAT(status.message(), Contains("slots is at"));
    CHECK(there.budgets(pair == &second).empty());
    need(there.add(*pair->there.decoder, deviceSlots));
    need(host.add(*pair->host.decoder, slots));
  }
  for (int64_t layer = 0; layer < 2; ++layer)
    CHECK(there.budgets(layer) == host.budgets(layer));
  first.checkKept();
  second.checkKept();
}

TEST_CASE("what budgets of layers refuse on a GPU") {
  if (!hasGpu())
    return;
  Pair pair("slake", {}, small);
  AttentionDecoder &decoder = *pair.there.decoder;
  const std::vector<int32_t> slots{0, 1}, one{8};
  DeviceCopies copies(pair.there.program->device());
  std::span<const int32_t> there = need(copies.upload(slots));
  std::span<const int32_t> budgets = need(copies.upload(one));
  Status status = decoder.setBudgets(there, budgets);
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_THAT(status.message(), Contains("budgets has 1 numbers, wanted 2"));
  const int32_t *nowhere = nullptr;
  status = decoder.setBudgets(there, std::span(nowhere, 2));
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_THAT(status.message(), Contains("budgets is at"));

  PromptBudgetOptions options;
  options.layers = {.layers = 1, .total = 20, .least = 4};
  auto budgetsOf = [&] {
    return PromptBudgets::create(*pair.there.program, options);
  };
  CHECK_THAT(budgetsOf().message(), Contains("budget is 4, wanted 5 to 24"));
  options.layers.least = 5;
  options.rows = 0;
  CHECK_THAT(budgetsOf().message(), Contains("rows is 0, wanted 1 to"));
  options.rows = 2;
  PromptBudgets shares = need(budgetsOf());
  // Nobody has asked for preferences.
  status = shares.add(decoder, there);
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_THAT(status.message(),
             Contains("the decoder has preferences of 0 rows, wanted 2, of its "
                      "last prompts (AttentionDecoderOptions::preference)"));
  status = shares.add(decoder, there.first(1));
  CHECK_THAT(status.message(), Contains("slots has 1 slots, wanted 2"));

  Pair prefers("slake", {}, small, 0, PreferenceOptions{.budget = 12});
  prefers.prefill({{0, 40}, {1, 30}});
  PromptBudgets both =
      need(PromptBudgets::create(*prefers.there.program, options));
  need(both.add(*prefers.there.decoder, there));
  CHECK_THAT(both.add(*prefers.there.decoder, there).message(),
             Contains("all 1 layers have a budget"));
  CHECK(both.budgets(0) == std::vector<int64_t>{20, 20});
  CHECK(both.budgets(1).empty());
  both.restart();
  CHECK(both.budgets(0).empty());
}
