//===- TinyLm.cpp - the model ---------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/TinyLm.h"
#include "examples/tiny_lm/Errors.h"
#include "ladle/compile.h"

#include <algorithm>
#include <fmt/format.h>

using namespace tinylm;
using namespace ladle;

/// A window is verified as a whole.
static int64_t draftsOf(const ModelOptions &options) {
  if (options.isDeterministic)
    return ModelOptions::mostDrafts;
  return options.drafts > 1 ? options.drafts : 0;
}

static Program compile(const Config &config, const ModelOptions &options) {
  CompileOptions compile;
  compile.sizes = {{"Hk", config.deltaKeyHeads},
                   {"Hv", config.deltaValueHeads},
                   {"Dk", config.deltaKeySize},
                   {"Dv", config.deltaValueSize}};
  for (const char *name : {"q", "k", "v", "a", "b", "y"})
    compile.tokenTypes[name] = "f32";
  compile.target = options.device;
  compile.route = options.route;
  compile.batch = options.slots;
  compile.drafts = draftsOf(options);
  compile.capacity = 16 + 2 * compile.drafts;
  compile.prefill = !options.isDeterministic;
  return orThrow(compileFile(options.recurrence, compile));
}

static Cursors makeCursors(const Program &program, int64_t slots) {
  CursorOptions options;
  options.slots = slots;
  return orThrow(Cursors::create(program, options));
}

TinyLm::TinyLm(const Weights &weights, const ModelOptions &options)
    : weights(weights), options(options),
      order(options.isDeterministic ? Order::Fixed : Order::Fastest),
      program(compile(weights.config, options)),
      cursors(makeCursors(program, options.slots)),
      held({.device = program.device(),
            .slots = options.slots,
            .rowTokens = std::max<int64_t>(draftsOf(options), 1),
            .window = options.isDeterministic ? draftsOf(options) : 0}),
      lengths(static_cast<size_t>(options.slots)) {
  setThreads(options.threads);
  GatedDeltaOptions layer;
  layer.slots = layer.rows = options.slots;
  layer.tokens = std::max(options.slots * draftsOf(options),
                          std::max(options.slots, ModelOptions::promptTokens));
  layer.threads = options.threads;
  layer.order = order;
  mixers.reserve(weights.layers.size());
  for (const LayerWeights &each : weights.layers)
    if (const auto *attention = std::get_if<AttentionWeights>(&each.mixer))
      mixers.emplace_back(std::in_place_type<Attention>, *attention,
                          weights.config, options.slots, options.longest,
                          order);
    else
      mixers.emplace_back(std::in_place_type<GatedDelta>,
                          std::get<GatedDeltaWeights>(each.mixer),
                          weights.config, program, cursors, layer);
}

Vector TinyLm::runLayers(const Batch &batch) {
  for (int64_t row = 0; row < batch.rows(); ++row) {
    int64_t count = batch.starts[row + 1] - batch.starts[row],
            length = lengths[batch.slots[row]];
    if (length + count > options.longest)
      throw std::runtime_error(
          fmt::format("a sequence of {} tokens gets {} more, wanted {} at most "
                      "in all",
                      length, count, options.longest));
  }
  const Config &config = weights.config;
  Vector x;
  for (uint8_t token : batch.tokens) {
    std::span<const float> row =
        rowOf(weights.embedding.values, token, config.width);
    x.insert(x.end(), row.begin(), row.end());
  }
  for (size_t index = 0; index < mixers.size(); ++index) {
    const LayerWeights &layer = weights.layers[index];
    Vector normed = rmsNorm(x, layer.normBefore, config.epsilon);
    if (auto *attention = std::get_if<Attention>(&mixers[index]))
      add(x, attention->forward(batch, lengths, normed));
    else
      add(x, std::get<GatedDelta>(mixers[index])
                 .forward(batch, held, std::move(normed)));
    add(x, feedForward(layer, rmsNorm(x, layer.normBetween, config.epsilon),
                       order));
  }
  return x;
}

Vector TinyLm::forward(const Batch &batch) {
  held.hold(batch, lengths);
  Vector x = runLayers(batch);
  return multiply(weights.embedding,
                  rmsNorm(x, weights.norm, weights.config.epsilon), order);
}

void TinyLm::prefill(const Batch &batch) {
  held.hold(batch, lengths, /*isPrompt=*/true);
  runLayers(batch);
  Acceptance all;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    all.counts.push_back(batch.starts[row + 1] - batch.starts[row]);
    for (int32_t token = 0; token < all.counts.back(); ++token)
      all.path.push_back(token);
  }
  commit(batch, all);
}

void TinyLm::commit(const Batch &batch, const Acceptance &accepted) {
  held.commit(batch, accepted, cursors);
  for (auto &mixer : mixers)
    if (auto *attention = std::get_if<Attention>(&mixer))
      attention->commit(batch, accepted, lengths);
    else
      std::get<GatedDelta>(mixer).commit(batch, held, accepted);
  for (int64_t row = 0; row < batch.rows(); ++row)
    lengths[batch.slots[row]] += accepted.counts[row];
}

int64_t TinyLm::room(int32_t slot) const {
  if (!options.isDeterministic)
    return options.drafts;
  return std::min(options.drafts,
                  draftsOf(options) - lengths[slot] % draftsOf(options));
}

void TinyLm::reset(std::span<const int32_t> slots) {
  orThrow(cursors.reset(slots));
  for (auto &mixer : mixers)
    if (auto *delta = std::get_if<GatedDelta>(&mixer))
      delta->reset(slots);
  for (int32_t slot : slots)
    lengths[slot] = 0;
}
