//===- PagesTest.cpp - entries in pages that slots share ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Batch.h"
#include "runtime/check/HostSteps.h"
#include "tests/numerics/Prompts.h"

#include <random>

using namespace ladle;
using namespace ladle::test;

static CompileOptions pagedOptions(int64_t capacity, int64_t page,
                                   const std::string &route = "inner") {
  CompileOptions options;
  options.preset = "tiny";
  options.route = route;
  options.capacity = capacity;
  options.page = page;
  return options;
}

static PoolOptions withPages(int64_t pages) {
  PoolOptions memory;
  memory.pages = pages;
  return memory;
}

TEST_CASE("sequences come and go, and pages with them") {
  // Fewer pages than the slots could fill: 24.
  PoolOptions memory = withPages(13);
  memory.foldThreshold = 20;
  Prompts prompts(readExample("gated_delta_net"), pagedOptions(32, 8), {},
                  memory);
  auto pagesHeld = [&] {
    int64_t held = 0;
    for (int32_t slot = 0; slot < Prompts::slots; ++slot)
      held += (prompts.cursor(slot).length + 7) / 8;
    return held;
  };
  std::mt19937_64 random(3);
  int64_t least = 13, folds = 0;
  for (int token = 0; token < 150; ++token) {
    std::vector<int32_t> rows;
    for (int32_t slot = 0; slot < Prompts::slots; ++slot)
      if (random() % 3)
        rows.push_back(slot);
    // Whoever waits for pages makes others leave.
    while (prompts.cursors().pages().free < static_cast<int64_t>(rows.size())) {
      auto slot = static_cast<int32_t>(random() % Prompts::slots);
      prompts.reset(slot);
    }
    prompts.decode(rows);
    BlockCount pages = prompts.cursors().pages();
    REQUIRE(pages.all == 13);
    REQUIRE(pages.all - pages.free == pagesHeld());
    least = std::min(least, pages.free);
    for (int32_t slot : rows)
      folds += prompts.cursor(slot).length == 0;
  }
  REQUIRE(least < 6);
  REQUIRE(folds > 0);
  prompts.compareSlots();
  REQUIRE(prompts.cursors().pages().free == 13);
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("a step that finds no page changes nothing") {
  Prompts prompts(readExample("gated_delta_net"), pagedOptions(32, 8), {},
                  withPages(3));
  for (int token = 0; token < 8; ++token)
    prompts.decode({0, 1});
  REQUIRE(prompts.cursors().pages().free == 1);
  // One page is left, and two rows want one.
  Status status = prompts.tryDecode({0, 1});
  REQUIRE(status.code() == ErrorCode::ResourceExhausted);
  REQUIRE(status.message() ==
          "the pages of 'gated_delta_net' do not suffice: wanted 2 of 8 "
          "entries, 1 of 3 are free; reset or flush slots, or make more "
          "(CursorOptions::pages)");
  REQUIRE(prompts.cursors().pages().free == 1);
  REQUIRE(prompts.cursor(0).length == 8);
  prompts.decode({0});
  REQUIRE(prompts.tryDecode({1}).code() == ErrorCode::ResourceExhausted);
  // A fold gives pages back, and so does a reset.
  int32_t slot = 0;
  REQUIRE(prompts.pool->flush(*prompts.program, std::span(&slot, 1)).ok());
  REQUIRE(prompts.cursors().pages().free == 2);
  prompts.decode({0, 1});
  prompts.reset(1);
  REQUIRE(prompts.cursors().pages().free == 2);
  prompts.compareSlots();
  REQUIRE(prompts.worst < 1e-4);
}

TEST_CASE("pages can be taken before they are needed") {
  Prompts prompts(readExample("gated_delta_net"), pagedOptions(32, 8), {},
                  withPages(4));
  Cursors cursors = prompts.cursors();
  std::vector<int32_t> slots{0, -1, 1}, entries{9, 99, 8};
  REQUIRE(cursors.reserve(slots, entries).ok());
  REQUIRE(cursors.pages().free == 1);
  REQUIRE(cursors.reserve(slots, entries).ok()); // they are there
  REQUIRE(cursors.pages().free == 1);
  entries[0] = 33;
  REQUIRE(cursors.reserve(slots, entries).message() ==
          "entries[0] is 33, wanted 0 to 32");
  entries[0] = 25;
  REQUIRE(cursors.reserve(slots, entries).code() ==
          ErrorCode::ResourceExhausted);
  entries.pop_back();
  REQUIRE(cursors.reserve(slots, entries).message() ==
          "entries has 2 numbers, wanted one for each of 3 slots");
  for (int token = 0; token < 8; ++token)
    prompts.decode({0, 1});
  REQUIRE(cursors.pages().free == 1);
}

TEST_CASE("a page is one of all layers, and bits do not depend on it") {
  CompileOptions options = pagedOptions(16, 8);
  std::string source = readExample("kda");
  Program paged = *compileSource(source, "kda", options);
  options.page = 0;
  Program ring = *compileSource(source, "kda", options);
  Cursors cursors = *Cursors::create(paged, {.slots = 3, .pages = 4});
  PoolOptions shared, own;
  shared.cursors = cursors;
  own.slots = 3;
  std::vector<Pool> pools;
  for (int layer = 0; layer < 2; ++layer)
    pools.push_back(*Pool::create(paged, shared));
  pools.push_back(*Pool::create(ring, own));
  std::vector<Decoder> layers;
  for (Pool &pool : pools)
    layers.push_back(
        *Decoder::create(&pool == &pools.back() ? ring : paged, pool));

  frontend::ElaborationOptions tiny;
  tiny.preset = "tiny";
  std::string messages;
  auto oracle = *check::compileOracle("kda", source, tiny, messages);
  check::RandomInputs inputs({}, 5);
  check::Batch batch(paged.signature(), 2, /*packed=*/false);
  batch.setParams(
      inputs.draw(oracle.getParams(), 0, check::RandomInputs::params));
  for (int64_t token = 0; token < 40; ++token) {
    std::vector<int32_t> slots{static_cast<int32_t>(token % 3),
                               static_cast<int32_t>((token + 1) % 3)};
    for (int64_t row = 0; row < 2; ++row)
      batch.setTokens(row, inputs.draw(oracle.getTokens(), row, token));
    StepArguments arguments;
    arguments.rows = 2;
    arguments.readSlots = slots;
    arguments.tensors = batch.getTensors();
    std::vector<std::vector<double>> answers;
    for (Decoder &layer : layers) {
      batch.clearOutputs();
      Status status = layer.step(arguments);
      INFO(status.message());
      REQUIRE(status.ok());
      for (int64_t row = 0; row < 2; ++row)
        answers.push_back(batch.getOutput(row, 0));
    }
    for (size_t i = 2; i < answers.size(); ++i)
      REQUIRE(answers[i] == answers[i % 2]);
    REQUIRE(cursors.advance(slots).ok());
    // Six slots of two layers, but three sequences.
    int64_t held = 0;
    for (int32_t slot = 0; slot < 3; ++slot)
      held += (cursors.cursor(slot)->length + 7) / 8;
    REQUIRE(cursors.pages().all - cursors.pages().free == held);
    if (cursors.pages().free < 2) {
      REQUIRE(cursors.flush(slots).ok());
      REQUIRE(pools.back().flush(ring, slots).ok());
    }
  }
}

TEST_CASE("what pages cannot be is an error") {
  std::string source = readExample("gated_delta_net");
  auto message = [&](const CompileOptions &options) {
    return compileSource(source, "g", options).message();
  };
  REQUIRE(message(pagedOptions(32, 4)) ==
          "page is 4, expected 8 or 16 entries, or 0 for none");

  Program paged = *compileSource(source, "g", pagedOptions(32, 8));
  Program ring = *compileSource(source, "g", pagedOptions(32, 0));
  REQUIRE(paged.page() == 8);
  auto cursors = [](const Program &program, const CursorOptions &options) {
    return Cursors::create(program, options).message();
  };
  REQUIRE(cursors(ring, {.slots = 2, .pages = 4}) ==
          "pages is 4, wanted 0: 'gated_delta_net' was compiled without; set "
          "CompileOptions::page");
  REQUIRE(cursors(paged, {.slots = 2, .pages = -1}) ==
          "pages is -1, wanted 0 to 268435455");
  REQUIRE(cursors(paged, {.slots = 2, .crossover = 33}) ==
          "crossover is 33, wanted 1 to 32");
  REQUIRE(cursors(paged, {.slots = 2, .states = -1}) ==
          "states is -1, wanted 0 to 2147483647");
  REQUIRE(cursors(paged, {.slots = 2, .states = 0}) ==
          "states is 0, wanted 1 at least: route 'inner' of 'gated_delta_net' "
          "reads states, kv_only does not");

  Cursors shared = *Cursors::create(paged, {.slots = 2, .pages = 4});
  PoolOptions memory;
  memory.cursors = shared;
  REQUIRE(Pool::create(ring, memory).message() ==
          "the pool of 'gated_delta_net' has entries a page 0, the cursors "
          "that it would share have 8");
  memory.pages = 5;
  REQUIRE(Pool::create(paged, memory).message() ==
          "the pool of 'gated_delta_net' has pages 5, the cursors that it "
          "would share have 4");
  memory.pages = 0;
  memory.states = 1;
  REQUIRE(Pool::create(paged, memory).message() ==
          "the pool of 'gated_delta_net' has states 1, the cursors that it "
          "would share have 2");
  memory = PoolOptions();
  memory.slots = 2;
  Pool pool = *Pool::create(ring, memory);
  REQUIRE(Decoder::create(paged, pool).message() ==
          "the pool of 'gated_delta_net' was made for pages of 0 entries, "
          "route 'inner' wants 8, where 0 is none");
  alignas(64) static float states[64];
  memory.states = 1;
  memory.stateMemory = {states};
  const std::string taken = "stateMemory[0] is not null, wanted null: slots "
                            "take states, which are zero before";
  REQUIRE(Pool::create(ring, memory).message() == taken);
  // Those that others share take states, too.
  PoolOptions sharing;
  sharing.cursors = *Cursors::create(ring, {.slots = 2, .states = 1});
  sharing.stateMemory = {states};
  REQUIRE(Pool::create(ring, sharing).message() == taken);
  REQUIRE(cursors(paged, {.slots = INT32_MAX}) ==
          "2147483647 slots have 8589934588 pages, wanted 268435455 at most; "
          "say how many there are (CursorOptions::pages)");
}

TEST_CASE("what is reserved of a route that reads states has them") {
  Program program =
      *compileSource(readExample("gated_delta_net"), "g", pagedOptions(32, 8));
  Cursors cursors = *Cursors::create(program, {.slots = 2, .states = 1});
  const std::vector<int32_t> both{0, 1}, first{0}, ones{1, 1}, one{1};
  REQUIRE(cursors.reserve(both, ones).message() ==
          "the states of 'gated_delta_net' do not suffice: wanted 2, 1 of 1 "
          "are free; reset slots, or make more (CursorOptions::states)");
  REQUIRE(cursors.pages().free == cursors.pages().all);
  REQUIRE(cursors.reserve(first, one).ok());
  REQUIRE(cursors.states().free == 0);
}

TEST_CASE("rejected drafts leave the pages that were reserved") {
  CompileOptions options = pagedOptions(32, 8);
  options.drafts = 4;
  Program program = *compileFile(examplePath("gated_delta_rule"), options);
  PoolOptions memory = withPages(6);
  memory.slots = 2;
  Pool pool = std::move(*Pool::create(program, memory));
  check::HostSteps steps =
      std::move(*check::HostSteps::create(program, pool, {}));
  check::Batch batch(program.signature(), 4, /*packed=*/false,
                     check::Batch::hostAlignment);
  Cursors cursors = pool.cursors();
  std::vector<int32_t> slots{0}, other{1}, starts{0, 4};
  auto verify = [&](int32_t accepted) {
    VerifyArguments arguments;
    arguments.rows = 1;
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tensors = batch.getTensors();
    REQUIRE(steps.verify(arguments).ok());
    REQUIRE(steps.commit(slots, std::vector{accepted}).ok());
  };
  REQUIRE(cursors.reserve(slots, std::vector{20}).ok());
  CHECK(cursors.pages().free == 3);
  for (int32_t accepted : {0, 1, 4, 2}) {
    verify(accepted);
    CHECK(cursors.pages().free == 3);
  }
  // A later call for less takes nothing back.
  REQUIRE(cursors.reserve(slots, std::vector{1}).ok());
  verify(0);
  CHECK(cursors.pages().free == 3);
  // A branch takes what is there, and nothing of what is to come.
  REQUIRE(cursors.fork(slots, other).ok());
  CHECK(cursors.pages().free == 3);
  REQUIRE(cursors.reset(other).ok());
  verify(4);
  CHECK(pool.cursor(0)->length == 11);
  CHECK(cursors.pages().free == 3);
  REQUIRE(cursors.reset(slots).ok());
  CHECK(cursors.pages().free == 6);
}
