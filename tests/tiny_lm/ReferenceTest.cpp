//===- ReferenceTest.cpp - the model against its float64 pass -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Check.h"
#include "tests/tiny_lm/Models.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace tinylm;
using namespace tinylm::test;

/// The largest difference from the reference of the logits at its positions
/// within the first `count` tokens, which are passed in chains of `chain`.
static double worstLogit(TinyLm &model, int64_t count, int64_t chain) {
  const Reference &reference = getReference();
  int64_t vocabulary = model.getConfig().vocabulary;
  model.reset(std::vector<int32_t>{1});
  double worst = 0;
  size_t next = 0;
  for (int64_t begin = 0; begin < count; begin += chain) {
    Batch batch;
    batch.addRow(1);
    Acceptance accepted;
    for (int64_t i = begin; i < std::min(count, begin + chain); ++i)
      accepted.path.push_back(batch.addToken(
          reference.tokens[i], static_cast<int32_t>(i - begin) - 1));
    accepted.counts = {static_cast<int32_t>(accepted.path.size())};
    Vector logits = model.forward(batch);
    model.commit(batch, accepted);
    for (; reference.positions[next] < begin + batch.count(); ++next)
      for (int64_t i = 0; i < vocabulary; ++i)
        worst = std::max<double>(
            worst,
            std::abs(
                logits[(reference.positions[next] - begin) * vocabulary + i] -
                reference.logits[next * vocabulary + i]));
  }
  CHECK(static_cast<int64_t>(next) == count / 128);
  return worst;
}

TEST_CASE("logits are those of a float64 pass") {
  ModelOptions options;
  options.slots = 2;
  for (const char *route : {"inner", "outer", "adjoint", "recurrent"}) {
    options.route = route;
    TinyLm model = makeModel(options);
    CAPTURE(route);
    CHECK(worstLogit(model, 512, 16) < 1e-4);
    CHECK(worstLogit(model, 256, 1) < 1e-4);
    CHECK(worstLogit(model, 256, 5) < 1e-4);
  }
}

TEST_CASE("prompts are read in parts of any length, chunk by chunk") {
  const Reference &reference = getReference();
  ModelOptions options;
  options.slots = 2;
  TinyLm model = makeModel(options);
  int64_t vocabulary = model.getConfig().vocabulary;
  REQUIRE(model.takesPrompts());
  model.reset(std::vector<int32_t>{0, 1});
  // The slots' parts end elsewhere.
  size_t last = 2;
  auto end = static_cast<int32_t>(reference.positions[last]);
  for (int32_t slot : {0, 1})
    for (int32_t begin = 0, part = 30 + 41 * slot; begin < end; begin += part) {
      Batch batch;
      batch.addRow(slot);
      for (int32_t i = begin; i < std::min(end, begin + part); ++i)
        batch.addToken(reference.tokens[i], i - begin - 1);
      model.prefill(batch);
    }
  Batch batch;
  for (int32_t slot : {0, 1}) {
    batch.addRow(slot);
    batch.addToken(reference.tokens[end], -1);
  }
  Vector logits = model.forward(batch);
  for (int64_t i = 0; i < 2 * vocabulary; ++i)
    CHECK(logits[i] ==
          Approx(reference.logits[last * vocabulary + i % vocabulary])
              .margin(1e-4));
  options.isDeterministic = true;
  CHECK(!makeModel(options).takesPrompts());
}

TEST_CASE("a text that was held out takes as many bits as in the reference") {
  const Reference &reference = getReference();
  ModelOptions options;
  options.slots = 1;
  options.longest = static_cast<int64_t>(reference.tokens.size());
  TinyLm model = makeModel(options);
  CHECK(bitsPerByte(model, reference.tokens) == Approx(0.7631539).margin(1e-5));
}

TEST_CASE("greedy text is that of the reference") {
  const Reference &reference = getReference();
  std::string prompt(reference.tokens.begin() + 1,
                     reference.tokens.begin() + 2048);
  std::string greedy(reference.greedy.begin(), reference.greedy.end());
  for (Mode mode : {Mode::Plain, Mode::Tree}) {
    TinyLm model = makeModel({});
    EngineOptions options;
    options.mode = mode;
    Engine engine(model, options);
    CHECK(engine.run({{prompt, 600}}).front().text == greedy);
  }
}
