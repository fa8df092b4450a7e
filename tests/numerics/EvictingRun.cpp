//===- EvictingRun.cpp - a cache that evicts beside its model -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/EvictingRun.h"

#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using reference::Slake;

std::string ladle::declarationOf(const EvictingCase &config) {
  const reference::SlakeNumbers &numbers = config.numbers;
  std::string cache = fmt::format(
      "evicting({}, sinks = {}, recent = {}, queries = {}, variance = {}, "
      "pool = {})",
      numbers.budget, numbers.sinks, numbers.recent, numbers.queries,
      numbers.variance, numbers.pool);
  std::string exact = fmt::format("softmax(q, KV, scale = {})", numbers.scale);
  std::string memory, output = exact;
  if (numbers.remembers) {
    memory = fmt::format("  memory T[KV] = taylor(limit = {}) : {}\n",
                         numbers.limit, config.memoryType);
    output = fmt::format("merge({}, expand(q, T, scale = {}))", exact,
                         numbers.scale);
  }
  return fmt::format("attention evicts(Hq, Hkv, D, Dv) {{\n"
                     "  preset \"p\" {{ Hq = {}, Hkv = {}, D = {}, Dv = {} }}\n"
                     "  token q[Hq, D], k[Hkv, D], v[Hkv, Dv] : {}\n"
                     "  cache KV[k, v] {}\n{}  out o[Hq, Dv] : f32 = {}\n}}\n",
                     numbers.heads, numbers.cacheHeads, numbers.keySize,
                     numbers.valueSize, config.type, cache, memory, output);
}

EvictingRun::EvictingRun(const EvictingCase &given, int64_t slots,
                         unsigned seed)
    : config(given), random(seed) {
  std::string text = declarationOf(config);
  CAPTURE(text);
  Result<AttentionProgram> compiled = compileAttention(text, "evicts.ladle");
  INFO(compiled.message());
  REQUIRE(compiled);
  program.emplace(std::move(*compiled));
  AttentionPoolOptions room;
  room.slots = slots;
  Result<AttentionPool> made = AttentionPool::create(*program, room);
  INFO(made.message());
  REQUIRE(made);
  pool.emplace(std::move(*made));
  AttentionDecoderOptions options;
  options.threads = config.threads;
  options.preference = config.preference;
  Result<AttentionDecoder> decodes =
      AttentionDecoder::create(*program, *pool, options);
  INFO(decodes.message());
  REQUIRE(decodes);
  decoder.emplace(std::move(*decodes));
  models.assign(static_cast<size_t>(slots), Slake(config.numbers));
}

/// Values that the storage type holds, so that the model has the same.
EvictingRun::Tokens EvictingRun::draw(int64_t count) {
  std::normal_distribution<float> normal;
  auto fill = [&](int64_t size, double factor) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float &value : values) {
      value = static_cast<float>(factor) * normal(random);
      if (config.type == "bf16") {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        bits &= 0xffff0000;
        std::memcpy(&value, &bits, sizeof(bits));
      }
    }
    return values;
  };
  const reference::SlakeNumbers &numbers = config.numbers;
  return {fill(count * numbers.heads * numbers.keySize, 1),
          fill(count * numbers.cacheHeads * numbers.keySize, config.spread),
          fill(count * numbers.cacheHeads * numbers.valueSize, 1)};
}

std::map<std::string, TensorView, std::less<>>
EvictingRun::views(Tokens &tokens, int64_t count) {
  const reference::SlakeNumbers &numbers = config.numbers;
  outputs.assign(static_cast<size_t>(count * numbers.heads * numbers.valueSize),
                 NAN);
  DType dtype = config.type == "bf16" ? DType::BF16 : DType::F32;
  storage.clear();
  storage.reserve(3);
  std::map<std::string, TensorView, std::less<>> result;
  auto add = [&](const char *name, std::vector<float> &values, int64_t heads,
                 int64_t size) {
    TensorView from =
        TensorView::dense(values, DType::F32, {count, heads, size});
    std::vector<char> &bytes = storage.emplace_back(values.size() * 4);
    TensorView to = TensorView::dense(bytes.data(), dtype, from.shape);
    REQUIRE(copy(from, to));
    result[name] = to;
  };
  add("q", tokens.q, numbers.heads, numbers.keySize);
  add("k", tokens.k, numbers.cacheHeads, numbers.keySize);
  add("v", tokens.v, numbers.cacheHeads, numbers.valueSize);
  result["o"] = TensorView::dense(outputs, DType::F32,
                                  {count, numbers.heads, numbers.valueSize});
  return result;
}

Slake::Kept EvictingRun::keptOf(int32_t slot) const {
  Slake::Kept kept;
  for (int64_t head = 0; head < config.numbers.cacheHeads; ++head)
    kept.push_back(pool->keptPositions(slot, head));
  return kept;
}

void EvictingRun::compare(int64_t row, const Vector &expected) {
  double largest = 0, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double mine = outputs[static_cast<size_t>(row) * expected.size() + i];
    REQUIRE(std::isfinite(mine));
    worst = std::max(worst, std::fabs(mine - expected[i]));
    largest = std::max(largest, std::fabs(expected[i]));
  }
  error = std::max(error, worst / largest);
}

static EvictingRun::Vector rowsOf(const std::vector<float> &all, int64_t begin,
                                  int64_t count, int64_t of) {
  auto width = static_cast<int64_t>(all.size()) / of;
  return {all.begin() + begin * width, all.begin() + (begin + count) * width};
}

void EvictingRun::step(const std::vector<int32_t> &slots) {
  auto count = static_cast<int64_t>(slots.size());
  Tokens tokens = draw(count);
  AttentionArguments arguments;
  arguments.rows = count;
  arguments.slots = slots;
  arguments.tensors = views(tokens, count);
  Status status = decoder->step(arguments);
  INFO(status.message());
  REQUIRE(status);
  for (int64_t row = 0; row < count; ++row) {
    int32_t slot = slots[row];
    if (slot < 0) {
      for (double element : rowsOf(outputs, row, 1, count))
        REQUIRE(element == 0);
      continue;
    }
    compare(row,
            models[slot].step(rowsOf(tokens.q, row, 1, count),
                              rowsOf(tokens.k, row, 1, count),
                              rowsOf(tokens.v, row, 1, count), keptOf(slot)));
  }
}

void EvictingRun::prefill(int32_t slot, int64_t count) {
  Tokens tokens = draw(count);
  PrefillArguments arguments;
  const int32_t starts[] = {0, static_cast<int32_t>(count)};
  arguments.rows = 1;
  arguments.slots = {&slot, 1};
  arguments.cuSeqlens = starts;
  arguments.tensors = views(tokens, count);
  Status status = decoder->prefill(arguments);
  INFO(status.message());
  REQUIRE(status);
  Vector expected = models[slot].prefill(
      rowsOf(tokens.q, 0, count, count), rowsOf(tokens.k, 0, count, count),
      rowsOf(tokens.v, 0, count, count), count, keptOf(slot));
  for (int64_t row = 0; row < count; ++row)
    compare(row, rowsOf(std::vector<float>(expected.begin(), expected.end()),
                        row, 1, count));
}

void EvictingRun::setBudget(int32_t slot, int64_t budget) {
  Status status = decoder->setBudget(slot, budget);
  INFO(status.message());
  REQUIRE(status);
  models[slot].setBudget(budget, keptOf(slot));
}

void EvictingRun::reset(int32_t slot) {
  REQUIRE(pool->reset({&slot, 1}));
  worstRegret = regret();
  models[slot] = Slake(config.numbers);
}

double EvictingRun::regret() const {
  double worst = worstRegret;
  for (const Slake &model : models)
    worst = std::max(worst, model.regret);
  return worst;
}
