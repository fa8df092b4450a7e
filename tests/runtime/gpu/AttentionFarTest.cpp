//===- AttentionFarTest.cpp - a million tokens, behind four gigabytes -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A slot whose pages are behind 2^32 bytes of the cache is set to 2^20 tokens,
// as `ladle bench` sets it. The emulated card takes memory where it is written.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceAttention.h"
#include "tests/numerics/Examples.h"
#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Gpu.h"

#include <cmath>
#include <random>

using namespace ladle;
using namespace ladle::test;

namespace {
constexpr int64_t size = 32, pageSize = 64, tokens = int64_t(1) << 20;
/// Pages of 2^32 bytes of keys, which another slot has.
constexpr int64_t pagesAhead = (int64_t(1) << 32) / (pageSize * size * 4);

class FarSlot {
public:
  explicit FarSlot(const std::string &name) {
    AttentionCompileOptions options;
    options.sizes = {{"Hq", 1}, {"Hkv", 1}, {"D", size}};
    options.tokenTypes = {{"*", "f32"}};
    options.pageSize = pageSize;
    if (name == "mac")
      options.options = {{"window", 64.0}, {"band", 16.0}, {"tau", 0.3}};
    options.target = "cuda";
    program = std::make_unique<AttentionProgram>(
        need(compileAttention(readExample(name), name + ".ladle", options)));
    pool = std::make_unique<AttentionPool>(need(AttentionPool::create(
        *program, {.slots = 2, .pages = pagesAhead + tokens / pageSize + 1})));
    decoder = std::make_unique<AttentionDecoder>(
        need(AttentionDecoder::create(*program, *pool)));
    const std::vector<int32_t> other{1}, mine{0};
    need(pool->reserve(other, pagesAhead * pageSize));
    need(pool->reserve(mine, tokens + 2));
    fill(pool->getImpl().device->keys, keys);
    fill(pool->getImpl().device->values, values);
    const AttentionSettings &settings = program->settings();
    const int32_t cursor[] = {static_cast<int32_t>(tokens),
                              0,
                              0,
                              static_cast<int32_t>(settings.band),
                              0,
                              0,
                              0,
                              0};
    need(pool->getImpl().device->cursors.write(cursor, sizeof cursor));
    REQUIRE(pool->length(0) == tokens);
    for (const TensorSpec *spec : specs())
      arguments.tensors[spec->name] =
          (memory[spec->name] = need(DeviceTensor::allocate(
               program->device(), DType::F32, {1, 1, size})))
              .view();
    memory["slots"] =
        need(DeviceTensor::allocate(program->device(), DType::I32, {1}));
    need(copy(
        TensorView::dense(const_cast<int32_t *>(mine.data()), DType::I32, {1}),
        memory["slots"].view()));
    arguments.slots = {memory["slots"].as<int32_t>(), 1};
    arguments.rows = 1;
  }

  /// Answers a token, and returns its error as a part of its answer.
  double step() {
    std::vector<float> query(size, 0.7F), key = draw(1), value = draw(1);
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
    for (const TensorSpec *spec : specs()) {
      std::vector<float> &from = spec->name == "k"   ? key
                                 : spec->name == "v" ? value
                                                     : query;
      need(copy(TensorView::dense(from, DType::F32, {1, 1, size}),
                memory[spec->name].view()));
    }
    need(decoder->step(arguments));
    need(synchronize(program->device()));
    std::vector<float> got = need(toFloats(memory["o"].view()));
    double weights = 0, sums[size] = {};
    for (size_t at = 0; at < keys.size(); at += size) {
      double score = 0;
      for (size_t i = 0; i < size; ++i)
        score += double(query[i]) * keys[at + i];
      double weight = std::exp(score / std::sqrt(double(size)));
      weights += weight;
      for (size_t i = 0; i < size; ++i)
        sums[i] += weight * values[at + i];
    }
    double error = 0, norm = 0;
    for (size_t i = 0; i < size; ++i) {
      double wanted = sums[i] / weights;
      error += (got[i] - wanted) * (got[i] - wanted);
      norm += wanted * wanted;
    }
    return std::sqrt(error / norm);
  }

  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;

private:
  std::vector<const TensorSpec *> specs() const {
    std::vector<const TensorSpec *> all;
    for (const auto *list :
         {&program->signature().tokens, &program->signature().outputs})
      for (const TensorSpec &spec : *list)
        all.push_back(&spec);
    return all;
  }
  std::vector<float> draw(int64_t count) {
    std::uniform_real_distribution<float> uniform(-1, 2);
    std::vector<float> all(static_cast<size_t>(count * size));
    for (float &value : all)
      value = uniform(random);
    return all;
  }
  /// The pages of the slot, which are one behind another.
  void fill(cuda::Memory &pages, std::vector<float> &with) {
    with = draw(tokens);
    need(pages.write(with.data(), static_cast<int64_t>(with.size() * 4),
                     int64_t(1) << 32));
  }

  std::vector<float> keys, values;
  std::minstd_rand random{1};
  std::map<std::string, DeviceTensor> memory;
  AttentionArguments arguments;
};
} // namespace

TEST_CASE("a token after 2^20, exact and with a match, behind 2^32 bytes") {
  if (!emulatedGpu())
    return;
  FarSlot far("mac");
  CHECK(far.step() < 1e-5);
  CHECK(far.decoder->matches()[0] == -1);
  CHECK(far.step() < 1e-5);
  CHECK(far.decoder->matches()[0] == tokens);
  CHECK(far.pool->length(0) == tokens + 2);
}

TEST_CASE("a token of exact attention after 2^20, behind 2^32 bytes") {
  if (!emulatedGpu() || !isFull())
    return;
  FarSlot far("exact_attention");
  CHECK(far.step() < 1e-5);
}
