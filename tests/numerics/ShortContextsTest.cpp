//===- ShortContextsTest.cpp - sequences without a state ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Batch.h"
#include "tests/numerics/Prompts.h"

using namespace ladle;
using namespace ladle::test;

static CompileOptions kvOptions(int64_t capacity, int64_t page) {
  CompileOptions options;
  options.preset = "tiny";
  options.route = "kv_only";
  options.capacity = capacity;
  options.page = page;
  return options;
}

TEST_CASE("a deployment can have pages and no states") {
  PoolOptions memory;
  memory.states = 0;
  memory.pages = 40;
  Prompts prompts(readExample("gated_delta_net"), kvOptions(512, 16), {},
                  memory);
  REQUIRE(prompts.pool->state("S")->shape[0] == 0);
  prompts.prefill({2, 0}, {500, 70});
  for (int token = 0; token < 12; ++token)
    prompts.decode({0, 2});
  REQUIRE(prompts.cursor(2).length == 512);
  REQUIRE(prompts.cursor(2).epoch == 0);
  REQUIRE(prompts.cursors().pages().free == 40 - 32 - 6);
  REQUIRE(prompts.worst < 1e-4);

  Status status = prompts.tryDecode({0, 2});
  REQUIRE(status.code() == ErrorCode::ResourceExhausted);
  REQUIRE(status.message() ==
          "'gated_delta_net' has no states to fold entries into "
          "(CursorOptions::states is 0): a sequence has 512 tokens at most");
  REQUIRE(prompts.cursor(0).length == 82);
  int32_t slot = 0;
  REQUIRE_FALSE(
      prompts.pool->flush(*prompts.program, std::span(&slot, 1)).ok());
  REQUIRE(prompts.cursor(0).length == 82);
  prompts.reset(2);
  prompts.decode({0, 2});
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("rows take a state each when they have become long") {
  PoolOptions memory;
  memory.states = 2;
  memory.crossover = 24;
  memory.foldThreshold = 8;
  Prompts prompts(readExample("gated_delta_net"), kvOptions(32, 8), {}, memory);
  Cursors cursors = prompts.cursors();
  // Short rows beside long ones, in one call.
  prompts.prefill({0, 1, 2}, {5, 23, 40});
  REQUIRE(cursors.stateOf(0) == -1);
  REQUIRE(cursors.stateOf(1) == -1);
  REQUIRE(cursors.stateOf(2) == 0);
  REQUIRE(cursors.states().free == 1);
  for (int token = 0; token < 18; ++token) {
    prompts.decode({2, 0, 1});
    REQUIRE(prompts.cursor(0).length == 6 + token);
    REQUIRE(prompts.cursor(1).length == token % 8);
    REQUIRE(prompts.cursor(2).length == (token + 1) % 8);
  }
  REQUIRE(cursors.stateOf(0) == -1);
  REQUIRE(cursors.stateOf(1) == 1);
  REQUIRE(prompts.cursor(0).length == 23);
  // The next token of slot 0 folds, and there is no state.
  Status status = prompts.tryDecode({0, 1});
  REQUIRE(status.code() == ErrorCode::ResourceExhausted);
  REQUIRE(status.message() ==
          "the states of 'gated_delta_net' do not suffice: wanted 1, 0 of 2 "
          "are free; reset slots, or make more (CursorOptions::states)");
  // An engine that asks before the step hears of it then.
  const std::vector<int32_t> both{0, 1}, fourteen(2, 14);
  REQUIRE(cursors.reserve(both, fourteen).message() == status.message());
  REQUIRE(cursors.reserve(both, std::vector<int32_t>{0, 5}).ok());
  REQUIRE(prompts.cursor(0).length == 23);
  REQUIRE(prompts.cursor(1).length == 1);
  prompts.reset(1);
  REQUIRE(cursors.states().free == 1);
  prompts.decode({0, 2});
  REQUIRE(cursors.stateOf(0) == 1);
  REQUIRE(prompts.cursor(0).length == 0);
  REQUIRE(prompts.cursor(0).epoch == 1);
  for (int token = 0; token < 20; ++token)
    prompts.decode({0, 2});
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("the crossover moves between steps") {
  Prompts prompts(readExample("gated_delta_net"), kvOptions(32, 8));
  Cursors cursors = prompts.cursors();
  // Left out, it is the cost model's, whatever m is for rows with a state.
  int64_t best = prompts.program->crossover();
  REQUIRE(best > 8);
  REQUIRE(best < 32);
  REQUIRE(cursors.crossover() == best);
  REQUIRE(cursors.setFoldThreshold(8).ok());
  REQUIRE(cursors.crossover() == best);
  REQUIRE(cursors.setCrossover(16).ok());
  REQUIRE(cursors.setCrossover(33).message() ==
          "crossover is 33, wanted 1 to 32");
  prompts.prefill({0}, {15});
  REQUIRE(prompts.cursor(0).epoch == 0);
  prompts.decode({0});
  REQUIRE(prompts.cursor(0).epoch == 1);
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("a crossover that is left out leaves room for drafts") {
  CompileOptions options = kvOptions(16, 8);
  options.drafts = 6;
  Prompts prompts(readExample("gated_delta_net"), options);
  REQUIRE(prompts.cursors().crossover() == 10);
  options.route = "inner";
  Prompts folding(readExample("gated_delta_net"), options);
  REQUIRE(folding.cursors().setFoldThreshold(4).ok());
  REQUIRE(folding.cursors().crossover() == 4);
}

TEST_CASE("slots that take states leave and come back") {
  PoolOptions memory;
  memory.states = 2;
  Prompts prompts(readExample("gated_delta_net"), kvOptions(16, 8), {}, memory);
  prompts.prefill({0, 1}, {30, 6});
  SlotContents contents = *prompts.pool->exportSlot(*prompts.program, 0);
  prompts.setSequence(3, prompts.sequence(0));
  prompts.reset(0);
  REQUIRE(prompts.cursors().states().free == 2);
  REQUIRE(prompts.pool->importSlot(3, contents).ok());
  REQUIRE(prompts.cursors().stateOf(3) >= 0);
  prompts.decode({3, 1});
  // A slot that holds nothing exports a state of zeros, and takes none.
  SlotContents empty = *prompts.pool->exportSlot(*prompts.program, 5);
  REQUIRE(prompts.cursors().stateOf(5) == -1);
  for (std::byte byte : empty.states[0].data)
    REQUIRE(byte == std::byte(0));
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("long rows go on by the route that was chosen for them") {
  std::string route = GENERATE("outer", "recurrent");
  INFO(route);
  CompileOptions options = kvOptions(16, 8);
  options.longRoute = route;
  PoolOptions memory;
  memory.foldThreshold = 4;
  memory.crossover = 12;
  memory.states = 3;
  Prompts prompts(readExample("gated_delta_net"), options, {}, memory);
  REQUIRE(prompts.program->routes().size() == 2);
  prompts.prefill({0, 1, 2}, {3, 10, 30});
  for (int token = 0; token < 15; ++token)
    prompts.decode({0, 1, 2});
  REQUIRE(prompts.cursor(0).epoch > 0);
  REQUIRE(prompts.cursor(2).length == (route == "outer" ? 3 : 0));
  REQUIRE(prompts.cursors().pages().all - prompts.cursors().pages().free ==
          (route == "outer" ? 3 : 0));
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("what long rows cannot go on by is an error") {
  CompileOptions options = kvOptions(16, 8);
  auto message = [&] {
    return compileSource(readExample("gated_delta_net"), "g", options)
        .message();
  };
  options.longRoute = "adjoint";
  REQUIRE(message() ==
          "longRoute is 'adjoint', expected inner, outer or recurrent");
  options.longRoute = "recurrent";
  options.drafts = 2;
  REQUIRE(message() == "longRoute is 'recurrent', expected inner or outer: "
                       "drafts and chunks need a buffer");
}

TEST_CASE("layers whose rows go on by other kinds of routes share no cursors") {
  auto compile = [](const CompileOptions &options) {
    return *compileSource(readExample("gated_delta_net"), "g", options);
  };
  CompileOptions options = kvOptions(16, 8);
  Program keeps = compile(options);
  options.longRoute = "recurrent";
  Program drops = compile(options);
  auto message = [](const Program &program, const Program &first) {
    PoolOptions memory;
    memory.cursors = *Cursors::create(first, {.slots = 1});
    Pool pool = *Pool::create(program, memory);
    return Decoder::create(program, pool).message();
  };
  REQUIRE(message(keeps, drops) ==
          "rows of 'gated_delta_net' that have folded keep their entries, and "
          "those of the program of the cursors do not: wanted routes that both "
          "keep entries, or neither (CompileOptions::longRoute)");
  REQUIRE(message(drops, keeps) ==
          "rows of 'gated_delta_net' that have folded keep no entries, and "
          "those of the program of the cursors do: wanted routes that both "
          "keep entries, or neither (CompileOptions::longRoute)");
  REQUIRE(message(keeps, keeps).empty());
  // Nor do layers of one program of which some append to the end.
  options.extraRoutes = {"inner"};
  Program both = compile(options);
  PoolOptions memory;
  memory.cursors = *Cursors::create(both, {.slots = 1});
  Pool first = *Pool::create(both, memory),
       second = *Pool::create(both, memory);
  Decoder one = *Decoder::create(both, first),
          other = *Decoder::create(*both.withRoute(RouteKind::Inner), second);
  check::Batch batch(both.signature(), 1, /*packed=*/false);
  const std::vector<int32_t> slot{0};
  StepArguments step;
  step.rows = 1;
  step.readSlots = slot;
  step.tensors = batch.getTensors();
  REQUIRE(one.step(step).ok());
  REQUIRE(
      other.step(step).message() ==
      "a layer decodes by route 'inner', which appends entries, and another "
      "has decoded by 'kv_only' since the cursors that they share moved: "
      "advance, commit or abandon them between");

  // Nor do those that fold where chunks end, and others.
  options = CompileOptions();
  options.preset = "tiny";
  options.route = "inner";
  options.capacity = 16;
  options.prefill = true;
  options.chunk = 16;
  Program steps = compile(options);
  options.numerics = "chunk";
  Program chunks = compile(options);
  REQUIRE(message(chunks, steps) ==
          "'gated_delta_net' folds by chunks (numerics = chunk), and the "
          "program of the cursors does not: both do or neither, if prompts are "
          "to come");
}

TEST_CASE("the cost model says where short contexts end") {
  CompileOptions options = kvOptions(512, 16);
  options.preset = "qwen3-next";
  options.batch = 64;
  options.readBandwidth = options.updateBandwidth = 100;
  Program program =
      *compileSource(readExample("gated_delta_net"), "g", options);
  // About d, where entries have a key and a value for each of the heads.
  REQUIRE(program.crossover() > 64);
  REQUIRE(program.crossover() < 192);
  options.capacity = 32;
  REQUIRE(compileSource(readExample("gated_delta_net"), "g", options)
              ->crossover() == 32);
  options.route = "inner";
  REQUIRE(compileSource(readExample("gated_delta_net"), "g", options)
              ->crossover() == 0);
}
