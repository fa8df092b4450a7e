//===- MacScore.cpp - what reuse costs a model ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/MacScore.h"
#include "examples/tiny_lm/Check.h"
#include "examples/tiny_lm/Errors.h"
#include "ladle/safetensors.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace tinylm;
using namespace ladle;

Estimate tinylm::estimate(const std::vector<double> &values) {
  auto count = static_cast<double>(values.size());
  double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (double value : values)
    squares += (value - mean) * (value - mean);
  return {mean, count > 1 ? std::sqrt(squares / (count - 1) / count) : 0.0};
}

Scorer::Scorer(MacLm &model, ScoreRequest given)
    : model(model), request(std::move(given)) {
  AttentionSettings exact;
  exact.window = 1;
  model.use({exact});
  int64_t vocabulary = model.getConfig().vocabulary;
  for (size_t i = 0; i < request.streams.size(); ++i) {
    auto slot = static_cast<int32_t>(i);
    std::span<const uint8_t> stream = request.streams[i];
    // The last byte of the prompt is the first that says what follows it.
    model.prefill(slot, stream.first(half() - 1), /*wantsLogits=*/false);
    auto positions = static_cast<size_t>(request.positions);
    Vector logits = model.prefill(slot, stream.subspan(half() - 1, positions));
    double bits = 0;
    for (size_t at = 0; at < positions; ++at)
      bits += bitsOf(rowOf(logits, static_cast<int64_t>(at), vocabulary),
                     stream[half() + at]);
    exactBits.push_back(bits / static_cast<double>(positions));
  }
}

Score Scorer::score(const std::vector<AttentionSettings> &settings) {
  model.use(settings, /*diagnoses=*/true);
  std::vector<int32_t> slots(request.streams.size());
  std::iota(slots.begin(), slots.end(), 0);
  for (int32_t slot : slots)
    model.refill(slot, request.streams[slot].first(half() - 1));
  Score result;
  result.bits.assign(slots.size(), 0);
  for (int64_t at = 0; at < request.positions; ++at) {
    size_t position = half() - 1 + static_cast<size_t>(at);
    std::vector<uint8_t> tokens;
    for (const std::span<const uint8_t> &stream : request.streams)
      tokens.push_back(stream[position]);
    Vector logits = model.step(slots, tokens);
    for (size_t i = 0; i < slots.size(); ++i)
      result.bits[i] += bitsOf(rowOf(logits, static_cast<int64_t>(i),
                                     model.getConfig().vocabulary),
                               request.streams[i][position + 1]) /
                        static_cast<double>(request.positions);
  }
  size_t layers = model.getConfig().isAttention.size();
  for (size_t layer = 0; layer < layers; ++layer) {
    double hits = 0, answers = 0, skipped = 0, cached = 0;
    for (const AttentionHeadDiagnostics &head : model.diagnostics(layer)) {
      hits += static_cast<double>(head.hits);
      answers += static_cast<double>(head.tokens);
      skipped += static_cast<double>(head.skipped);
      cached += static_cast<double>(head.cached);
    }
    result.layerHits.push_back(hits / answers);
    result.layerSkipped.push_back(skipped / cached);
    result.hits += hits / answers / static_cast<double>(layers);
    result.skipped += skipped / cached / static_cast<double>(layers);
  }
  return result;
}

std::pair<double, double> tinylm::compareLogits(MacLm &model,
                                                const std::string &path) {
  Safetensors file = orThrow(Safetensors::open(path));
  TensorView tokens = orThrow(file.view("tokens"));
  TensorView positions = orThrow(file.view("positions"));
  TensorView wanted = orThrow(file.view("logits"));
  int64_t vocabulary = model.getConfig().vocabulary;
  if (tokens.rank() != 2 || tokens.dtype != DType::U8 ||
      positions.dtype != DType::I32 ||
      wanted.shape !=
          std::vector<int64_t>{tokens.shape[0], positions.count(), vocabulary})
    throw std::runtime_error(fmt::format(
        "{}: tokens, positions and logits are {}, {} and {}, wanted u8 "
        "[streams, length], i32 [n] and f32 [streams, n, {}]",
        path, toString(tokens), toString(positions), toString(wanted),
        vocabulary));
  double worst = 0, largest = 0;
  for (int64_t stream = 0; stream < tokens.shape[0]; ++stream) {
    const auto *bytes = static_cast<const uint8_t *>(tokens[stream].data);
    auto length = static_cast<size_t>(tokens.shape[1]);
    model.refill(0, {});
    Vector logits = model.prefill(0, {bytes, length});
    Vector all = orThrow(toFloats(wanted[stream]));
    for (int64_t i = 0; i < positions.count(); ++i) {
      int64_t at = static_cast<const int32_t *>(positions.data)[i];
      std::span<const float> mine = rowOf(logits, at, vocabulary);
      for (int64_t c = 0; c < vocabulary; ++c) {
        double value = all[i * vocabulary + c];
        largest = std::max(largest, std::abs(value));
        worst = std::max(worst, std::abs(value - mine[c]));
      }
    }
  }
  return {worst, largest};
}
