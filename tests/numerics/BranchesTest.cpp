//===- BranchesTest.cpp - branches and prefixes of a sequence -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"
#include "tests/numerics/Prompts.h"

using namespace ladle;
using namespace ladle::test;

static void need(const Status &status) {
  INFO(status.message());
  REQUIRE(status.ok());
}

static CompileOptions branchOptions(const std::string &route,
                                    int64_t page = 8) {
  CompileOptions options;
  options.preset = "tiny";
  options.route = route;
  options.capacity = 16;
  options.page = page;
  return options;
}

TEST_CASE("branches share a checkpoint and entries until they part") {
  PoolOptions memory;
  memory.states = 3;
  memory.pages = 6;
  Prompts prompts(readExample("gated_delta_net"), branchOptions("inner"), {},
                  memory);
  Cursors cursors = prompts.cursors();
  prompts.prefill({0}, {20});
  for (int token = 0; token < 10; ++token)
    prompts.decode({0});
  REQUIRE(cursors.pages().free == 4);
  prompts.fork(0, 1);
  prompts.fork(0, 2);
  REQUIRE(cursors.pages().free == 4);
  REQUIRE(cursors.states().free == 2);
  REQUIRE(cursors.stateOf(1) == cursors.stateOf(0));
  // The last page, which is not full, is two copies more; the first is one of
  // all three.
  prompts.decode({0, 1, 2});
  REQUIRE(cursors.pages().free == 2);
  prompts.decode({1, 0, 2});
  REQUIRE(cursors.pages().free == 2);
  // Who folds writes a state of his own.
  for (int token = 0; token < 3; ++token)
    prompts.decode({1});
  REQUIRE(prompts.cursor(1).length == 15);
  prompts.decode({1});
  REQUIRE(prompts.cursor(1).length == 0);
  REQUIRE(cursors.states().free == 1);
  REQUIRE(cursors.stateOf(2) == cursors.stateOf(0));
  REQUIRE(cursors.stateOf(1) != cursors.stateOf(0));
  REQUIRE(cursors.pages().free == 3);
  for (int token = 0; token < 6; ++token)
    prompts.decode({2, 0, 1});
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
  for (int32_t slot : {0, 1, 2})
    prompts.reset(slot);
  REQUIRE(cursors.pages().free == 6);
  REQUIRE(cursors.states().free == 3);
}

TEST_CASE("the last who asks for a copy keeps what the others leave") {
  PoolOptions memory;
  memory.pages = 2;
  Prompts prompts(readExample("gated_delta_net"), branchOptions("inner"), {},
                  memory);
  for (int token = 0; token < 3; ++token)
    prompts.decode({0});
  prompts.fork(0, 1);
  // One page is free, and both write; one of them may stay.
  prompts.decode({0, 1});
  REQUIRE(prompts.cursors().pages().free == 0);
  prompts.fork(1, 2);
  REQUIRE(prompts.tryDecode({2}).code() == ErrorCode::ResourceExhausted);
  prompts.reset(0);
  prompts.decode({2, 1});
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("rings and states of their own are copied for a branch") {
  Prompts prompts(readExample("mamba3"), branchOptions("outer", /*page=*/0));
  prompts.prefill({3}, {9});
  for (int token = 0; token < 5; ++token)
    prompts.decode({3});
  prompts.fork(3, 0);
  for (int token = 0; token < 14; ++token)
    prompts.decode({0, 3});
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("a prefix is rebuilt from its entries") {
  std::string route = GENERATE("inner", "adjoint", "kv_only");
  INFO(route);
  PoolOptions memory;
  memory.crossover = 16;
  Prompts prompts(readExample("gated_delta_net"), branchOptions(route), {},
                  memory);
  if (route != "kv_only")
    prompts.prefill({0}, {20});
  std::vector<Prompts::Interpreter::Row> history{prompts.sequence(0)};
  for (int token = 0; token < 13; ++token) {
    prompts.decode({0});
    history.push_back(prompts.sequence(0));
  }
  Cursors cursors = prompts.cursors();
  int64_t free = cursors.pages().free;
  for (auto [entries, to] : {std::pair(11, 1), {4, 2}, {0, 3}}) {
    Status status = cursors.rebuild(0, entries, to);
    INFO(status.message());
    REQUIRE(status.ok());
    REQUIRE(prompts.cursor(to).length == entries);
    prompts.setSequence(to, history[entries]);
  }
  REQUIRE(cursors.pages().free == free);
  prompts.decode({2, 0, 1, 3});
  // A sequence can go back itself.
  REQUIRE(cursors.rebuild(0, 6, 0).ok());
  prompts.setSequence(0, history[6]);
  for (int token = 0; token < 7; ++token)
    prompts.decode({0, 1, 2, 3});
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("raw entries go with any checkpoint") {
  PoolOptions memory;
  memory.states = 4;
  Prompts prompts(readExample("gated_delta_net"), branchOptions("adjoint"), {},
                  memory);
  prompts.prefill({0, 1}, {20, 31});
  for (int token = 0; token < 9; ++token)
    prompts.decode({0});
  Cursors cursors = prompts.cursors();
  Status status = cursors.rebuild(0, 7, 2, /*checkpoint=*/1);
  INFO(status.message());
  REQUIRE(status.ok());
  REQUIRE(cursors.stateOf(2) == cursors.stateOf(1));
  prompts.setSequence(2, prompts.follow(prompts.sequence(1), 0, 20, 27));
  for (int token = 0; token < 12; ++token)
    prompts.decode({0, 2, 1});
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("raw entries follow what their new slot held") {
  bool takesStates = GENERATE(false, true);
  int64_t page = GENERATE(0, 8);
  CAPTURE(takesStates, page);
  PoolOptions memory;
  if (takesStates)
    memory.states = 4;
  Prompts prompts(readExample("gated_delta_net"),
                  branchOptions("adjoint", page), {}, memory);
  prompts.prefill({0, 1}, {20, 31});
  for (int token = 0; token < 9; ++token)
    prompts.decode({0});
  Cursors cursors = prompts.cursors();
  for (int32_t checkpoint : {1, 0}) {
    // The second time entries follow the state that they follow already.
    int32_t to = checkpoint == 1 ? 1 : 2;
    if (checkpoint == 0)
      need(prompts.pool->flush(*prompts.program, std::vector{0}));
    int64_t entries = checkpoint == 1 ? 7 : 0;
    Status status = cursors.rebuild(0, entries, to, checkpoint);
    INFO(status.message());
    REQUIRE(status.ok());
    prompts.setSequence(to, checkpoint == 1
                                ? prompts.follow(prompts.sequence(1), 0, 20, 27)
                                : prompts.sequence(0));
  }
  // A slot that never began has a state, too, which is zero.
  for (int token = 0; token < 3; ++token)
    prompts.decode({2});
  REQUIRE(cursors.rebuild(2, 2, 5, /*checkpoint=*/5).ok());
  REQUIRE(prompts.cursor(5).epoch == 0);
  prompts.setSequence(5, prompts.follow(prompts.sequence(4), 2, 0, 2));
  for (int token = 0; token < 12; ++token)
    prompts.decode({0, 2, 1, 5});
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

// A route without a buffer leaves a state in the version of the draft that was
// accepted last.
TEST_CASE("raw entries follow the version of a state that counts") {
  CompileOptions options = branchOptions("adjoint", /*page=*/0);
  options.extraRoutes = {"recurrent"};
  options.drafts = 3;
  Prompts prompts(readExample("gated_delta_net"), options);
  Program serial = *prompts.program->withRoute(RouteKind::Recurrent);
  Decoder decoder = *Decoder::create(serial, *prompts.pool);
  check::Batch batch(serial.signature(), 6, /*packed=*/false);
  check::RandomInputs inputs({}, 5);
  frontend::ElaborationOptions elaboration;
  elaboration.preset = "tiny";
  std::string messages;
  auto oracle = check::compileOracle("g", readExample("gated_delta_net"),
                                     elaboration, messages);
  batch.setParams(
      inputs.draw(oracle->getParams(), 0, check::RandomInputs::params));
  batch.clearOutputs();
  std::vector<int32_t> slots{1, 3}, starts{0, 3, 6}, counts{2, 2};
  for (int round = 0; round < 2; ++round) {
    for (int32_t draft = 0; draft < 3; ++draft)
      for (int32_t row : {0, 1})
        batch.setTokens(3 * row + draft,
                        inputs.draw(oracle->getTokens(), 0, 3 * round + draft));
    VerifyArguments arguments;
    arguments.rows = 2;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = batch.getTensors();
    need(decoder.verify(arguments));
    need(prompts.pool->commit(slots, counts));
  }
  // Slot 3 decodes after that what slot 2 gets as entries.
  prompts.repeat(3, 0);
  for (int token = 0; token < 4; ++token)
    prompts.decode({0});
  for (int token = 0; token < 4; ++token)
    prompts.decode({3});
  need(prompts.cursors().rebuild(0, 4, 2, /*checkpoint=*/1));
  REQUIRE(prompts.cursor(2).epoch == prompts.cursor(1).epoch);
  auto stateOf = [&](int32_t slot) {
    return check::toDoubles(
        prompts.pool->exportSlot(*prompts.program, slot)->states[0].view());
  };
  REQUIRE(check::relativeError(stateOf(2), stateOf(3)) < 1e-6);
}

TEST_CASE("what is no branch and no prefix is an error") {
  Prompts prompts(readExample("gated_delta_net"), branchOptions("inner"));
  for (int token = 0; token < 5; ++token)
    prompts.decode({0, 1});
  Cursors cursors = prompts.cursors();
  auto fork = [&](std::vector<int32_t> from, std::vector<int32_t> to) {
    return cursors.fork(from, to).message();
  };
  REQUIRE(fork({0, 1}, {2}) ==
          "to has 1 slots, wanted 2, one for each of from");
  REQUIRE(fork({0}, {6}) ==
          "to[0]: slot 6 is outside of the pool, which has 6");
  REQUIRE(fork({0}, {-1}) == "to[0]: slot -1 marks padding");
  REQUIRE(fork({0, 1}, {2, 2}) ==
          "to[1] is 2, which is to[0], wanted slots that no other branch comes "
          "from or goes to");
  REQUIRE(fork({0, 1}, {2, 0}) ==
          "to[1] is 0, which is from[0], wanted slots that no other branch "
          "comes from or goes to");
  REQUIRE(cursors.rebuild(0, 6, 2).message() ==
          "entries is 6, wanted 0 to 5, those that slot 0 holds");
  REQUIRE(cursors.rebuild(0, 3, 2, 4).message() ==
          "checkpoint is 4, wanted none: entries of 'gated_delta_net' depend "
          "on the state that they followed; those of route 'adjoint' do not");
  REQUIRE(cursors.rebuild(0, 3, 2, 1).message() ==
          "checkpoint 1 holds 5 entries, wanted none; flush the slot first");

  Prompts carries(readExample("mamba3"), branchOptions("inner"));
  for (int token = 0; token < 5; ++token)
    carries.decode({0});
  Status status = carries.cursors().rebuild(0, 4, 1);
  REQUIRE(status.message().starts_with(
      "entries is 4, wanted the 5 that slot 0 holds: 'mamba3' has the carry "));
  REQUIRE(carries.cursors().rebuild(0, 5, 1).ok());

  Prompts raw(readExample("mamba3"), branchOptions("adjoint"));
  raw.decode({0});
  status = raw.cursors().rebuild(0, 1, 2, 1);
  REQUIRE(status.message().starts_with("checkpoint is 1, wanted none: entries "
                                       "of 'mamba3' depend on the carry "));
  REQUIRE(status.message().ends_with("of the history that they followed"));
}

TEST_CASE("a checkpoint whose prompt waits for its cursor is an error") {
  CompileOptions options = branchOptions("adjoint");
  options.prefill = true;
  Program program =
      *compileSource(readExample("gated_delta_net"), "g", options);
  PoolOptions memory;
  memory.cursors = *Cursors::create(program, {.slots = 3});
  Pool pool = *Pool::create(program, memory);
  Decoder decoder = *Decoder::create(program, pool);
  check::Batch batch(program.signature(), 4, /*packed=*/false);
  batch.clearOutputs();
  std::vector<int32_t> slots{1}, starts{0, 4};
  PrefillArguments arguments;
  arguments.rows = 1;
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tensors = batch.getTensors();
  need(decoder.prefill(arguments));
  REQUIRE(
      pool.rebuild(0, 0, 2, 1).message() ==
      "checkpoint: slot 1 has a prompt of 4 tokens that its cursor has not "
      "moved on; advance it first, or reset it if the prompt was abandoned");
  need(memory.cursors->advance(slots));
  REQUIRE(pool.rebuild(0, 0, 2, 1).ok());
}

TEST_CASE("drafts that wait keep a slot from branching") {
  CompileOptions options = branchOptions("inner");
  options.drafts = 2;
  Program program =
      *compileSource(readExample("linear_attention"), "l", options);
  PoolOptions memory;
  memory.slots = 3;
  Pool pool = *Pool::create(program, memory);
  Decoder decoder = *Decoder::create(program, pool);
  check::Batch batch(program.signature(), 2, /*packed=*/false);
  batch.clearOutputs();
  std::vector<int32_t> slots{1}, starts{0, 2}, to{0};
  VerifyArguments arguments;
  arguments.rows = 1;
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tensors = batch.getTensors();
  REQUIRE(decoder.verify(arguments).ok());
  REQUIRE(pool.fork(slots, to).message() ==
          "from[0]: slot 1 has 2 drafts that are not committed; commit them "
          "first, 0 to reject all");
  REQUIRE(pool.fork(to, slots).message() ==
          "to[0]: slot 1 has 2 drafts that are not committed; commit them "
          "first, 0 to reject all");
  REQUIRE_FALSE(pool.rebuild(1, 0, 0).ok());
  std::vector<int32_t> none{0};
  REQUIRE(pool.commit(slots, none).ok());
  REQUIRE(pool.fork(slots, to).ok());
}
