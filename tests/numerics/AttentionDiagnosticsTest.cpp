//===- AttentionDiagnosticsTest.cpp - what heads say that they did --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "tests/numerics/Requests.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>

using namespace ladle;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {
constexpr int64_t heads = 2, size = 16, tokenCount = 40;

/// Two heads that share a cache of one; the queries of odd tokens are those of
/// the token before.
struct Sequence {
  Sequence() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int64_t token = 0; token < tokenCount; ++token) {
      for (int64_t i = 0; i < heads * size; ++i)
        query.push_back(token % 2 ? query[query.size() - heads * size]
                                  : normal(random));
      for (int64_t i = 0; i < size; ++i) {
        key.push_back(normal(random));
        value.push_back(normal(random));
      }
    }
  }
  /// The softmax's weights on tokens up to `token`, in double.
  std::vector<double> weights(int64_t token, int64_t head) const {
    std::vector<double> result;
    double sum = 0;
    for (int64_t j = 0; j <= token; ++j) {
      double score = 0;
      for (int64_t i = 0; i < size; ++i)
        score += static_cast<double>(query[(token * heads + head) * size + i]) *
                 key[j * size + i];
      sum += result.emplace_back(std::exp(score / 4)); // √16
    }
    for (double &weight : result)
      weight /= sum;
    return result;
  }
  std::vector<float> query, key, value;
};

struct Decoded {
  std::vector<AttentionHeadDiagnostics> diagnostics;
  std::vector<float> outputs;
};
} // namespace

static Decoded decode(Sequence sequence, AttentionSettings settings,
                      bool diagnoses) {
  AttentionCompileOptions options;
  options.sizes = {{"Hq", heads}, {"Hkv", 1}, {"D", size}};
  options.tokenTypes = {{"*", "f32"}};
  options.options = {{"sinks", 1}}; // compiled with sinks
  AttentionProgram program =
      *compileAttention(test::readExample("mac"), "mac", options);
  AttentionPool pool = *AttentionPool::create(
      program, {.slots = 1, .pages = 4, .maxTokens = 0, .window = 16});
  AttentionDecoder decoder =
      *AttentionDecoder::create(program, pool,
                                {.threads = 1,
                                 .settings = settings,
                                 .diagnostics = diagnoses,
                                 .preference = {}});
  Decoded result;
  for (int64_t token = 0; token < tokenCount; ++token) {
    const int32_t slots[] = {0};
    std::vector<float> o(heads * size);
    AttentionArguments arguments{.rows = 1, .slots = slots, .tensors = {}};
    auto add = [&](const char *name, float *data, int64_t count) {
      arguments.tensors.emplace(
          name, TensorView::dense(static_cast<void *>(data), DType::F32,
                                  {1, count, size}));
    };
    add("q_pre", &sequence.query[token * heads * size], heads);
    add("q", &sequence.query[token * heads * size], heads);
    add("k", &sequence.key[token * size], 1);
    add("v", &sequence.value[token * size], 1);
    add("o", o.data(), heads);
    REQUIRE(decoder.step(arguments).ok());
    result.outputs.insert(result.outputs.end(), o.begin(), o.end());
  }
  result.diagnostics = decoder.diagnostics();
  return result;
}

TEST_CASE("hits, weights and norms of each head") {
  Sequence sequence;
  // Odd tokens match the token before, and nothing else does.
  AttentionSettings settings{.tau = 0.95, .window = 16, .band = 5, .sinks = 1};
  Decoded decoded = decode(sequence, settings, true);
  REQUIRE(decoded.diagnostics.size() == heads);
  for (int64_t head = 0; head < heads; ++head) {
    const AttentionHeadDiagnostics &found = decoded.diagnostics[head];
    CHECK(found.tokens == tokenCount);
    CHECK(found.hits == tokenCount / 2);
    CHECK(found.cached == tokenCount * (tokenCount + 1) / 2);
    double band = 0, reused = 0;
    int64_t skipped = 0;
    std::vector<double> norms;
    for (int64_t token = 0; token < tokenCount; ++token) {
      std::vector<double> weights = sequence.weights(token, head);
      for (int64_t j = std::max<int64_t>(token - 4, 1); j <= token; ++j)
        band += weights[j] / tokenCount;
      // Of a match at token − 1: 1 to token − 1 − 5, the sink left out.
      for (int64_t j = 1; token % 2 && j <= token - 6; ++j, ++skipped)
        reused += weights[j] / tokenCount;
      double square = 0;
      for (int64_t i = 0; i < size; ++i)
        square +=
            std::pow(sequence.query[(token * heads + head) * size + i], 2);
      norms.push_back(std::sqrt(square));
    }
    CHECK(found.skipped == skipped);
    CHECK_THAT(found.bandWeight, WithinAbs(band, 1e-5));
    CHECK_THAT(found.reusedWeight, WithinAbs(reused, 1e-5));
    std::sort(norms.begin(), norms.end());
    CHECK_THAT(found.query.median, WithinRel(norms[tokenCount / 2 - 1], 0.011));
    CHECK_THAT(found.query.p90,
               WithinRel(norms[tokenCount * 9 / 10 - 1], 0.011));
    CHECK_THAT(found.query.p99, WithinRel(norms.back(), 0.011));
    CHECK_THAT(found.query.most, WithinRel(norms.back(), 1e-6));
    CHECK(found.value.most > found.value.median);
  }
}

TEST_CASE("nobody asks: no diagnostics, and the same answers") {
  AttentionSettings settings{.tau = 0.3, .window = 16, .band = 2, .sinks = 1};
  Decoded with = decode({}, settings, true),
          without = decode({}, settings, false);
  CHECK(without.diagnostics.empty());
  CHECK(with.outputs == without.outputs);
}

TEST_CASE("settings of layers are read from a table") {
  const std::string path = "attention-settings-test.json";
  auto write = [&](const std::string &layers) {
    std::ofstream(path) << R"({"schema": "ladle-mac-settings-1", "layers": [)"
                        << layers << "]}";
  };
  write(R"({"layer": 1, "tau": 0.6, "window": 64, "band": 8, "max_chain": 3},
           {"layer": 0, "tau": 1, "window": 1, "band": 0})");
  Result<std::vector<AttentionSettings>> found = readAttentionSettings(path);
  REQUIRE(found.ok());
  REQUIRE(found->size() == 2);
  CHECK(found->at(0) == AttentionSettings{.tau = 1, .window = 1});
  CHECK(found->at(1) ==
        AttentionSettings{.tau = 0.6, .window = 64, .band = 8, .maxChain = 3});
  auto says = [&](const char *text) {
    Status status = readAttentionSettings(path).status();
    CAPTURE(status.message());
    CHECK(status.message().find(text) != std::string::npos);
  };
  write(R"({"layer": 1, "tau": 1, "window": 1, "band": 0})");
  says("has layer 1, but no layer 0");
  write(R"({"layer": 0, "window": 1, "band": 0})");
  says("layer 0 has no 'tau'");
  write(R"({"layer": 0, "tau": 1, "window": 2.5, "band": 0})");
  says("layer 0 has 2.5 as 'window', wanted an integer from 0 on");
  write(R"({"layer": 0, "tau": 7, "window": 2, "band": 0})");
  says("layer 0 has 7 as 'tau', wanted a number from 0 to 1");
  write(R"({"layer": 0, "tau": "x", "window": 2, "band": 0})");
  says("layer 0 has \"x\" as 'tau', wanted a number from 0 to 1");
  write(R"({"layer": 0, "tau": 1, "window": 2, "band": 0, "maxgap": 3})");
  says("layer 0 has 'maxgap', which nobody reads\nnote: the keys are tau,");
  write(R"({"layer": 0, "tau": 1, "window": 2, "band": 0},
           {"layer": 0, "tau": 1, "window": 2, "band": 0})");
  says("layer 0 is there twice");
  write("[]");
  says("a layer is [], wanted an object with its number as 'layer'");
  write("");
  says("has no layers");
  write("{");
  says("is no JSON object");
  std::ofstream(path) << R"({"schema": "other", "layers": []})";
  says("schema is \"other\", wanted \"ladle-mac-settings-1\"");
  std::remove(path.c_str());
  says("cannot read");
}
