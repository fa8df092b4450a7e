//===- MacLm.cpp - a softmax model by Ladle -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/MacLm.h"
#include "examples/tiny_lm/Attention.h"
#include "examples/tiny_lm/Errors.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <numeric>

using namespace tinylm;
using namespace ladle;

/// Of a prompt, at a time: what is in flight stays small.
static constexpr size_t chunk = 512;

static AttentionProgram compile(const Config &config,
                                const MacLmOptions &options) {
  std::ifstream stream(options.attention, std::ios::binary);
  if (!stream)
    throw std::runtime_error(
        fmt::format("cannot read '{}'", options.attention));
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  AttentionCompileOptions compile;
  compile.sizes = {{"Hq", config.queryHeads},
                   {"Hkv", config.keyValueHeads},
                   {"D", config.headSize}};
  compile.tokenTypes["*"] = options.storage;
  compile.tokenTypes["o"] = "f32";
  return orThrow(compileAttention(text, options.attention, compile));
}

MacLm::MacLm(const Weights &weights, const MacLmOptions &options)
    : weights(weights), options(options),
      storage(options.storage == "bf16" ? DType::BF16 : DType::F32),
      program(compile(weights.config, options)) {
  for (size_t i = 0; i < weights.layers.size(); ++i)
    if (!weights.config.isAttention[i])
      throw std::runtime_error(fmt::format(
          "layer {} is Gated DeltaNet, wanted softmax attention alone", i));
  setThreads(options.threads);
  AttentionPoolOptions room;
  room.slots = options.slots;
  room.maxTokens = options.longest;
  room.pages = options.slots * ((options.longest + program.pageSize() - 1) /
                                program.pageSize());
  room.window = options.window;
  for (size_t i = 0; i < weights.layers.size(); ++i)
    pools.push_back(orThrow(AttentionPool::create(program, room)));
  AttentionSettings exact;
  exact.window = 1;
  use({exact});
}

void MacLm::use(const std::vector<AttentionSettings> &settings,
                bool diagnoses) {
  if (settings.size() != 1 && settings.size() != pools.size())
    throw std::runtime_error(
        fmt::format("there are settings of {} layers, wanted {}",
                    settings.size(), pools.size()));
  decoders.clear();
  for (size_t i = 0; i < pools.size(); ++i) {
    AttentionDecoderOptions each;
    each.threads = options.threads;
    each.settings = settings[settings.size() > 1 ? i : 0];
    each.diagnostics = diagnoses;
    decoders.push_back(
        orThrow(AttentionDecoder::create(program, pools[i], each)));
  }
}

//===----------------------------------------------------------------------===//
// A pass through the layers
//===----------------------------------------------------------------------===//

TensorView MacLm::store(std::vector<std::byte> &memory, Vector &values,
                        int64_t heads) const {
  int64_t size = weights.config.headSize;
  auto tokens = static_cast<int64_t>(values.size()) / heads / size;
  memory.resize(values.size() * sizeInBytes(storage));
  TensorView view =
      TensorView::dense(memory.data(), storage, {tokens, heads, size});
  orThrow(copy(TensorView::dense(values, DType::F32, view.shape), view));
  return view;
}

Vector MacLm::attendLayer(size_t layer, std::span<const float> normed,
                          std::span<const int64_t> positions,
                          const Attend &attend) {
  const Config &config = weights.config;
  const auto &mixer = std::get<AttentionWeights>(weights.layers[layer].mixer);
  Vector before = multiply(mixer.query, normed, Order::Fastest);
  Vector key = multiply(mixer.key, normed, Order::Fastest);
  Vector value = multiply(mixer.value, normed, Order::Fastest);
  Vector query = before;
  for (size_t i = 0; i < positions.size(); ++i) {
    auto at = static_cast<int64_t>(i);
    rotate(config, rowOf(query, at, mixer.query.out), positions[i]);
    rotate(config, rowOf(key, at, mixer.key.out), positions[i]);
  }
  if (observe)
    observe(layer, {before, query, key, value});
  Vector answer(query.size());
  std::vector<std::byte> memory[4];
  Tensors tensors;
  tensors["q_pre"] = store(memory[0], before, config.queryHeads);
  tensors["q"] = store(memory[1], query, config.queryHeads);
  tensors["k"] = store(memory[2], key, config.keyValueHeads);
  tensors["v"] = store(memory[3], value, config.keyValueHeads);
  tensors["o"] = TensorView::dense(answer, DType::F32, tensors["q"].shape);
  orThrow(attend(decoders[layer], std::move(tensors)));
  return multiply(mixer.output, answer, Order::Fastest);
}

Vector MacLm::forward(std::span<const uint8_t> tokens,
                      std::span<const int64_t> positions, const Attend &attend,
                      bool wantsLogits) {
  const Config &config = weights.config;
  Vector x;
  for (uint8_t token : tokens) {
    std::span<const float> row =
        rowOf(weights.embedding.values, token, config.width);
    x.insert(x.end(), row.begin(), row.end());
  }
  for (size_t index = 0; index < weights.layers.size(); ++index) {
    const LayerWeights &layer = weights.layers[index];
    add(x, attendLayer(index, rmsNorm(x, layer.normBefore, config.epsilon),
                       positions, attend));
    add(x, feedForward(layer, rmsNorm(x, layer.normBetween, config.epsilon),
                       Order::Fastest));
  }
  if (!wantsLogits)
    return {};
  return multiply(weights.embedding, rmsNorm(x, weights.norm, config.epsilon),
                  Order::Fastest);
}

Vector MacLm::prefill(int32_t slot, std::span<const uint8_t> tokens,
                      bool wantsLogits) {
  Vector logits;
  // A ring is filled by the calls together.
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    std::span<const uint8_t> part =
        tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    std::vector<int64_t> positions(part.size());
    std::iota(positions.begin(), positions.end(), length(slot));
    const int32_t starts[] = {0, static_cast<int32_t>(part.size())};
    Vector each = forward(
        part, positions,
        [&](AttentionDecoder &decoder, Tensors &&tensors) {
          PrefillArguments arguments;
          arguments.rows = 1;
          arguments.slots = {&slot, 1};
          arguments.cuSeqlens = starts;
          arguments.tensors = std::move(tensors);
          return decoder.prefill(arguments);
        },
        wantsLogits);
    logits.insert(logits.end(), each.begin(), each.end());
  }
  return logits;
}

Vector MacLm::step(std::span<const int32_t> slots,
                   std::span<const uint8_t> tokens) {
  std::vector<int64_t> positions;
  for (int32_t slot : slots)
    positions.push_back(length(slot));
  return forward(
      tokens, positions,
      [&](AttentionDecoder &decoder, Tensors &&tensors) {
        AttentionArguments arguments;
        arguments.rows = static_cast<int64_t>(slots.size());
        arguments.slots = slots;
        arguments.tensors = std::move(tensors);
        return decoder.step(arguments);
      },
      /*wantsLogits=*/true);
}

void MacLm::refill(int32_t slot, std::span<const uint8_t> tokens) {
  size_t kept = tokens.size() -
                std::min(tokens.size(), static_cast<size_t>(options.window));
  for (AttentionPool &pool : pools) {
    orThrow(pool.truncate(slot, static_cast<int64_t>(kept)));
    orThrow(pool.invalidateRings({&slot, 1}));
  }
  prefill(slot, tokens.subspan(kept), /*wantsLogits=*/false);
}
