//===- PrefillTest.cpp - prompts of every example -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Prompts.h"
#include "tests/numerics/Requests.h"

#include <filesystem>

using namespace ladle;
using namespace ladle::test;

static std::vector<std::string> allExamples() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator("examples"))
    // Attentions have prompts of their own: AttentionTest.cpp.
    if (entry.path().extension() == ".ladle" &&
        readExample(entry.path().stem()).find("\nrecurrence ") !=
            std::string::npos)
      names.push_back(entry.path().stem());
  REQUIRE(names.size() > 10);
  return names;
}

/// Hundreds of random tokens blow up a state that models keep in bounds.
static check::InputRanges rangesOf(const std::string &model) {
  if (model != "rwkv7_core")
    return {};
  return {{"kk", *check::InputRange::parse("unit")},
          {"a", *check::InputRange::parse("0:1")},
          {"w", *check::InputRange::parse("-1:0")}};
}

TEST_CASE("layers that share cursors take a prompt each") {
  CompileOptions options;
  options.preset = "tiny";
  options.route = "inner";
  options.prefill = true;
  Program program = *compileSource(readExample("kda"), "kda", options);
  Cursors cursors = *Cursors::create(program, {.slots = 3});
  std::vector<Pool> pools;
  std::vector<Decoder> layers;
  PoolOptions shared, own;
  shared.cursors = cursors;
  own.slots = 3;
  for (const PoolOptions &memory : {shared, shared, own})
    pools.push_back(std::move(*Pool::create(program, memory)));
  for (Pool &pool : pools)
    layers.push_back(std::move(*Decoder::create(program, pool)));

  check::RandomInputs inputs({}, 5);
  std::string messages;
  frontend::ElaborationOptions tiny;
  tiny.preset = "tiny";
  auto oracle =
      *check::compileOracle("kda", readExample("kda"), tiny, messages);
  check::Batch batch(program.signature(), 100, /*packed=*/false);
  batch.setParams(
      inputs.draw(oracle.getParams(), 0, check::RandomInputs::params));
  for (int64_t token = 0; token < 100; ++token)
    batch.setTokens(token, inputs.draw(oracle.getTokens(), 0, token));
  std::vector<int32_t> slots{2, 0}, starts{0, 70, 100};
  PrefillArguments prompt;
  prompt.rows = 2;
  prompt.slots = slots;
  prompt.cuSeqlens = starts;
  prompt.tensors = batch.getTensors();
  StepArguments step;
  step.rows = 2;
  step.readSlots = slots;
  step.tensors = batch.getTensors();
  for (const auto *specs :
       {&program.signature().tokens, &program.signature().outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = step.tensors.find(spec.name)->second;
      view = view.slice(0, 0, 2);
    }
  // Alone, and as one of two that move on together.
  std::vector<double> alone;
  for (bool isShared : {false, true}) {
    std::vector<double> answers;
    for (int round = 0; round < 4; ++round)
      for (size_t i = 0; i < layers.size(); ++i) {
        if ((i == 2) == isShared)
          continue;
        batch.clearOutputs();
        if (round % 2)
          REQUIRE(layers[i].step(step).ok());
        else
          REQUIRE(layers[i].prefill(prompt).ok());
        if (i == 2 || i == 1)
          for (int64_t row = 0; row < (round % 2 ? 2 : 100); ++row)
            for (double value : batch.getOutput(row, 0))
              answers.push_back(value);
        if (i == 1)
          REQUIRE(cursors.advance(slots).ok());
      }
    if (!isShared)
      alone = std::move(answers);
    else
      CHECK(answers == alone);
  }
  for (int32_t slot : slots) {
    CHECK(cursors.cursor(slot)->length == 1);
    CHECK(pools[2].cursor(slot)->length == 1);
  }
}

TEST_CASE("prompts of any length, on top of anything") {
  std::vector<std::string> models = allExamples();
  for (const char *of : {"channel", "rank"})
    models.push_back("../tests/tools/Inputs/" + std::string(of) + "_strengths");
  for (const std::string &model : models)
    for (RouteKind route : routesOf(requestOf(model))) {
      INFO(model << " by " << toString(route));
      CompileOptions options;
      options.preset = "tiny";
      options.route = toString(route);
      PoolOptions memory;
      if (route == RouteKind::KvOnly)
        memory.crossover = options.capacity;
      Prompts prompts(readExample(model), options, rangesOf(model), memory);
      prompts.prefill({0, 1, 2, -1, 3, 4}, {1, 63, 64, 2, 65, 200});
      CHECK(prompts.worst < 1e-5);
      // Then decode, and another prompt on what there is.
      for (int step = 0; step < 5; ++step)
        prompts.decode({4, 1, 5, 0});
      CHECK(prompts.worst < 1e-5);
      prompts.prefill({5, 4, 0, 1}, {3, 20, 70, 129});
      CHECK(prompts.worst < 1e-5);
      for (int32_t slot = 0; slot < Prompts::slots; ++slot) {
        bool isShort = route == RouteKind::KvOnly && slot == 5;
        CHECK(prompts.cursor(slot).length == (isShort ? 8 : 0));
        CHECK((prompts.cursor(slot).epoch > 0) == !isShort);
      }
      prompts.compareSlots();
      CHECK(prompts.worst < 1e-5);
    }
}
