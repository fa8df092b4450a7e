//===- AttentionLongTest.cpp - a million tokens, and deep chains ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "tests/numerics/Examples.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace ladle;

namespace {
constexpr int64_t size = 16;

/// One head, whose query is always the same, so that each token but the first
/// matches the one before it; keys and values are random. What softmax gives is
/// summed up in double beside it.
class OneQuery {
public:
  OneQuery(int64_t tokens, int64_t maxChain) {
    AttentionCompileOptions options;
    options.sizes = {{"Hq", 1}, {"Hkv", 1}, {"D", size}};
    options.tokenTypes = {{"*", "f32"}};
    program = std::make_unique<AttentionProgram>(
        *compileAttention(test::readExample("mac"), "mac", options));
    pool = std::make_unique<AttentionPool>(std::move(*AttentionPool::create(
        *program, {.slots = 1, .pages = tokens / 16 + 1, .window = 64})));
    AttentionSettings near{.tau = 0.3, .window = 64, .band = 16};
    near.maxChain = maxChain;
    reuses = std::make_unique<AttentionDecoder>(decoderOf(near));
    near.tau = 1;
    exact = std::make_unique<AttentionDecoder>(decoderOf(near));
  }

  /// The error of the token, as a part of its answer.
  double step(bool isExact = false) {
    std::normal_distribution<float> normal;
    double score = 0;
    for (size_t i = 0; i < size; ++i) {
      key[i] = normal(random);
      value[i] = 1 + normal(random);
      score += double(query[i]) * key[i] / std::sqrt(double(size));
    }
    weight += std::exp(score);
    for (size_t i = 0; i < size; ++i)
      sums[i] += std::exp(score) * value[i];
    AttentionArguments arguments{.rows = 1, .slots = slots, .tensors = {}};
    for (auto [name, values] : {std::pair{"q_pre", &query},
                                {"q", &query},
                                {"k", &key},
                                {"v", &value},
                                {"o", &output}})
      arguments.tensors.emplace(
          name, TensorView::dense(*values, DType::F32, {1, 1, size}));
    AttentionDecoder &decoder = isExact ? *exact : *reuses;
    REQUIRE(decoder.step(arguments).ok());
    hits += decoder.matches()[0] >= 0;
    double error = 0, norm = 0;
    for (size_t i = 0; i < size; ++i) {
      double wanted = sums[i] / weight;
      error += (output[i] - wanted) * (output[i] - wanted);
      norm += wanted * wanted;
    }
    return std::sqrt(error / norm);
  }

  int64_t hits = 0;

private:
  AttentionDecoder decoderOf(const AttentionSettings &settings) {
    return std::move(*AttentionDecoder::create(
        *program, *pool,
        {.threads = 1, .settings = settings, .preference = {}}));
  }

  const int32_t slots[1] = {0};
  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> reuses, exact;
  std::mt19937 random{1};
  std::vector<float> query = std::vector<float>(size, 0.7F), key = query,
                     value = query, output = query;
  double weight = 0, sums[size] = {};
};
} // namespace

TEST_CASE("a million tokens, each after the one before it, then exact ones") {
  constexpr int64_t tokens = int64_t(1) << 20;
  OneQuery head(tokens + 2, /*maxChain=*/0);
  double most = 0;
  for (int64_t i = 1; i <= tokens; ++i) {
    double error = head.step();
    most = std::max(most, error);
    if ((i & (i - 1)) == 0)
      UNSCOPED_INFO("up to " << i << " tokens: " << most);
    // docs/mac.md tells what chains that are not ended lose.
    if (i == 1024)
      CHECK(most < 5e-6);
    if (i == 4096)
      CHECK(most < 2e-5);
  }
  CHECK(head.hits == tokens - 1);
  CHECK(most < 1e-2);
  for (int i = 0; i < 2; ++i)
    CHECK(head.step(/*isExact=*/true) < 1e-6);
  CHECK(head.hits == tokens - 1);
}

TEST_CASE("max_chain bounds what deep chains lose") {
  OneQuery head(20000, /*maxChain=*/1024);
  double most = 0;
  for (int64_t i = 0; i < 20000; ++i)
    most = std::max(most, head.step());
  CHECK(head.hits == 20000 - 20);
  CHECK(most < 2e-5);
}

TEST_CASE("the table of docs/mac.md", "[.][measure]") {
  for (int64_t chain : {64, 256, 1024, 4096, 16384, 0}) {
    OneQuery head(int64_t(1) << 20, chain);
    double most = 0;
    std::string row;
    for (int64_t i = 1; i <= int64_t(1) << 20; ++i) {
      most = std::max(most, head.step());
      if (i == 4096 || i == 16384 || i == 65536 || i == 1 << 20)
        row += " " + std::to_string(most * 1e6) + "e-6";
    }
    WARN("max_chain " << chain
                      << ", errors up to 4 K, 16 K, 64 K, 1 M: " << row);
  }
}
