//===- SlakeLm.cpp - a softmax model with bounded caches ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/SlakeLm.h"
#include "examples/tiny_lm/Attention.h"
#include "examples/tiny_lm/Errors.h"

#include <fmt/format.h>
#include <fstream>
#include <iterator>

using namespace tinylm;
using namespace ladle;

static AttentionProgram compile(const Config &config,
                                const SlakeLmOptions &options) {
  std::ifstream stream(options.attention, std::ios::binary);
  if (!stream)
    throw std::runtime_error(
        fmt::format("cannot read '{}'", options.attention));
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  AttentionCompileOptions compile;
  compile.sizes = {{"Hq", config.queryHeads},
                   {"Hkv", config.keyValueHeads},
                   {"D", config.headSize}};
  compile.options = options.options;
  compile.options["budget"] =
      static_cast<double>(options.sharesBudget ? options.room : options.budget);
  compile.tokenTypes["*"] = "bf16";
  compile.tokenTypes["o"] = "f32";
  return orThrow(compileAttention(text, options.attention, compile));
}

SlakeLm::SlakeLm(const Weights &weights, const SlakeLmOptions &options)
    : weights(weights), options(options),
      program(compile(weights.config, options)) {
  AttentionDecoderOptions each;
  each.threads = options.threads;
  if (options.sharesBudget) {
    each.preference.emplace();
    each.preference->budget = options.budget;
  }
  AttentionPoolOptions room;
  room.slots = 1;
  pools.reserve(weights.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    if (!weights.config.isAttention[i])
      throw std::runtime_error(fmt::format(
          "layer {} is Gated DeltaNet, wanted softmax attention alone", i));
    pools.push_back(orThrow(AttentionPool::create(program, room)));
    decoders.push_back(
        orThrow(AttentionDecoder::create(program, pools[i], each)));
  }
}

std::vector<int64_t> SlakeLm::budgets() const {
  std::vector<int64_t> result;
  for (const AttentionPool &pool : pools)
    result.push_back(pool.budget(0));
  return result;
}

int64_t SlakeLm::cacheBytes() const {
  return program.slotBytes() * static_cast<int64_t>(pools.size());
}

/// The layers so far share the budget of the model: what a layer takes, those
/// before it give up at once.
void SlakeLm::shareBudget(size_t layer) {
  auto layers = static_cast<int64_t>(pools.size());
  if (layer == 0) {
    LayerBudgetOptions all;
    all.layers = layers;
    all.total = layers * options.budget;
    all.least = options.least;
    all.most = options.room;
    shares = orThrow(LayerBudgets::create(all));
  }
  orThrow(shares->add(preferenceScore(decoders[layer].preferences().front(),
                                      options.exponents)));
  for (size_t i = 0; i <= layer; ++i)
    orThrow(decoders[i].setBudget(0, shares->budgets()[i]));
}

static TensorView store(std::vector<uint16_t> &memory, Vector &values,
                        int64_t tokens, int64_t heads) {
  memory.resize(values.size());
  auto size = static_cast<int64_t>(values.size()) / tokens / heads;
  TensorView view =
      TensorView::dense(memory, DType::BF16, {tokens, heads, size});
  orThrow(copy(TensorView::dense(values, DType::F32, view.shape), view));
  return view;
}

Vector SlakeLm::attend(size_t layer, std::span<const float> normed,
                       int64_t position, bool isPrompt) {
  const Config &config = weights.config;
  const auto &mixer = std::get<AttentionWeights>(weights.layers[layer].mixer);
  Vector query = multiply(mixer.query, normed, Order::Fastest);
  Vector key = multiply(mixer.key, normed, Order::Fastest);
  Vector value = multiply(mixer.value, normed, Order::Fastest);
  auto count = static_cast<int64_t>(query.size()) / mixer.query.out;
  for (int64_t i = 0; i < count; ++i) {
    rotate(config, rowOf(query, i, mixer.query.out), position + i);
    rotate(config, rowOf(key, i, mixer.key.out), position + i);
  }
  Vector answer(query.size());
  std::vector<uint16_t> memory[3];
  Tensors tensors;
  tensors["q"] = store(memory[0], query, count, config.queryHeads);
  tensors["k"] = store(memory[1], key, count, config.keyValueHeads);
  tensors["v"] = store(memory[2], value, count, config.keyValueHeads);
  tensors["o"] = TensorView::dense(answer, DType::F32, tensors["q"].shape);
  const int32_t slots[] = {0}, starts[] = {0, static_cast<int32_t>(count)};
  if (isPrompt) {
    PrefillArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = std::move(tensors);
    orThrow(decoders[layer].prefill(arguments));
    if (options.sharesBudget)
      shareBudget(layer);
  } else {
    AttentionArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.tensors = std::move(tensors);
    orThrow(decoders[layer].step(arguments));
  }
  return multiply(mixer.output, answer, Order::Fastest);
}

Vector SlakeLm::forward(std::span<const uint8_t> tokens, bool isPrompt,
                        bool wantsLogits) {
  const Config &config = weights.config;
  int64_t position = length();
  Vector x;
  for (uint8_t token : tokens) {
    std::span<const float> row =
        rowOf(weights.embedding.values, token, config.width);
    x.insert(x.end(), row.begin(), row.end());
  }
  for (size_t index = 0; index < weights.layers.size(); ++index) {
    const LayerWeights &layer = weights.layers[index];
    add(x, attend(index, rmsNorm(x, layer.normBefore, config.epsilon), position,
                  isPrompt));
    add(x, feedForward(layer, rmsNorm(x, layer.normBetween, config.epsilon),
                       Order::Fastest));
  }
  if (!wantsLogits)
    return {};
  return multiply(weights.embedding, rmsNorm(x, weights.norm, config.epsilon),
                  Order::Fastest);
}

Vector SlakeLm::prefill(std::span<const uint8_t> tokens, bool wantsLogits) {
  return forward(tokens, /*isPrompt=*/true, wantsLogits);
}

Vector SlakeLm::step(uint8_t token) {
  return forward({&token, 1}, /*isPrompt=*/false, /*wantsLogits=*/true);
}
