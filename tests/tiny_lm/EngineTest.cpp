//===- EngineTest.cpp - sequences that share a batch ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Check.h"
#include "tests/tiny_lm/Models.h"

#include <catch2/catch.hpp>

using namespace tinylm;
using namespace tinylm::test;

/// Prompts of many lengths, one of them empty, more than there are slots.
static std::vector<Request> makeRequests() {
  return {{"def f(x):\n    return x\n\ndef g(x):\n", 40},
          {"#include <stdio.h>\n#include <", 25},
          {"", 8},
          {"The", 60},
          {"/* Copyright (C) 1991-2022 Free Software Foundation, Inc.\n", 33},
          {"import os\nimport sys\nimport ", 1}};
}

static std::vector<std::string> textsOf(const std::vector<Answer> &answers) {
  std::vector<std::string> texts;
  for (const Answer &answer : answers)
    texts.push_back(answer.text);
  return texts;
}

static ModelOptions deterministic(int64_t slots, int64_t pass) {
  ModelOptions options;
  options.slots = slots;
  options.drafts = pass;
  options.longest = 256;
  options.isDeterministic = true;
  return options;
}

TEST_CASE("a deterministic model says the same, however it is asked") {
  // One sequence at a time, one byte a pass.
  TinyLm alone = makeModel(deterministic(1, 1));
  std::vector<Answer> expected = Engine(alone, {}).run(makeRequests());
  TinyLm together = makeModel(deterministic(3, 16));
  for (Mode mode : {Mode::Plain, Mode::Chain, Mode::Tree})
    for (int64_t drafts : {3, 15}) {
      EngineOptions options;
      options.mode = mode;
      options.drafts = drafts;
      Engine engine(together, options);
      std::vector<Answer> answers = engine.run(makeRequests());
      CAPTURE(static_cast<int>(mode), drafts);
      CHECK(textsOf(answers) == textsOf(expected));
      // Not only the text: the logits.
      for (size_t i = 0; i < answers.size(); ++i)
        CHECK(answers[i].margins == expected[i].margins);
      CHECK((engine.getFigures().accepted > 0) == (mode != Mode::Plain));
    }
}

TEST_CASE("sequences that end leave their slots to those that wait") {
  ModelOptions options;
  options.slots = 2;
  options.longest = 256;
  TinyLm model = makeModel(options);
  std::vector<Request> requests = makeRequests();
  for (Mode mode : {Mode::Plain, Mode::Tree}) {
    EngineOptions decoding;
    decoding.mode = mode;
    Engine engine(model, decoding);
    std::vector<Answer> together = engine.run(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      std::vector<Answer> alone = Engine(model, decoding).run({requests[i]});
      CHECK(compare(alone, {together[i]}, 1e-3f).isGood());
      CHECK(static_cast<int64_t>(together[i].text.size()) <= requests[i].bytes);
    }
    CHECK(engine.getFigures().bytes >= 100);
  }
}

TEST_CASE("a sequence that does not fit is an error") {
  ModelOptions options;
  options.slots = 1;
  options.longest = 30;
  TinyLm model = makeModel(options);
  Engine engine(model, {});
  CHECK_THROWS_WITH(engine.run({{"import os", 60}}),
                    Catch::Contains("gets 1 more, wanted 30 at most"));
}

TEST_CASE("a model that is not there is named") {
  CHECK_THROWS_WITH(Weights::load("nowhere"),
                    Catch::Contains("cannot read 'nowhere/config.json'"));
}
