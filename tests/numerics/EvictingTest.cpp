//===- EvictingTest.cpp - caches that evict against float64 ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/EvictingRun.h"

#include <cmath>

using namespace ladle;

/// heads, heads of the cache, sizes of keys and values, scale, budget, sinks,
/// recent, queries, variance, pool, memory, limit.
static const reference::SlakeNumbers slake{4, 2, 32,  16, 0.2,  20, 1,
                                           5, 8, 200, 5,  true, 0};

/// Every kind of call, in an order by chance.
static void decodeAtRandom(EvictingRun &run, int64_t budget, unsigned seed,
                           int calls) {
  std::mt19937 random(seed);
  std::vector<int32_t> all{0, 1, 2, 3};
  for (int call = 0; call < calls; ++call) {
    auto slot = static_cast<int32_t>(random() % 4);
    switch (random() % 24) {
    case 0:
      run.reset(slot);
      break;
    case 1:
      run.prefill(slot, 1 + static_cast<int64_t>(random() % 50));
      break;
    case 2:
      run.setBudget(slot, 9 + static_cast<int64_t>(random()) % (budget - 8));
      break;
    default:
      std::shuffle(all.begin(), all.end(), random);
      std::vector<int32_t> slots(all.begin(), all.begin() + 1 + random() % 4);
      if (random() % 4 == 0)
        slots[random() % slots.size()] = -1;
      run.step(slots);
    }
  }
}

static void agrees(const EvictingCase &config, double bound = 2e-5) {
  CAPTURE(declarationOf(config));
  for (unsigned seed : {1U, 2U}) {
    EvictingRun run(config, 4, seed);
    decodeAtRandom(run, config.numbers.budget, seed, 200);
    CHECK(run.error < bound);
    CHECK(run.regret() < 1e-4);
  }
}

TEST_CASE("SLAKE is its model, whatever is called") {
  agrees({slake});
  EvictingCase config{slake, "bf16"};
  config.threads = 3;
  agrees(config);
}

TEST_CASE("policies without a memory are their models") {
  EvictingCase h2o{slake};
  h2o.numbers.remembers = false;
  h2o.numbers.queries = 0;
  h2o.numbers.variance = 0;
  h2o.numbers.pool = 1;
  agrees(h2o);
  EvictingCase snap{slake};
  snap.numbers.remembers = false;
  snap.numbers.variance = 0;
  snap.numbers.pool = 7;
  agrees(snap);
  EvictingCase streaming{slake};
  streaming.numbers.remembers = false;
  streaming.numbers.sinks = 4;
  streaming.numbers.recent = 5;
  streaming.numbers.budget = 9;
  agrees(streaming);
}

TEST_CASE("heads and sizes of every kind") {
  for (auto [heads, cacheHeads, keySize, valueSize] :
       {std::array<int64_t, 4>{3, 3, 16, 16}, {8, 1, 20, 12}, {2, 2, 64, 64}}) {
    EvictingCase config{slake};
    config.numbers.heads = heads;
    config.numbers.cacheHeads = cacheHeads;
    config.numbers.keySize = keySize;
    config.numbers.valueSize = valueSize;
    agrees(config);
  }
}

TEST_CASE("small budgets and rings, and no neighbours") {
  EvictingCase config{slake};
  config.numbers.budget = 9;
  config.numbers.recent = 1;
  config.numbers.sinks = 0;
  config.numbers.queries = 1;
  config.numbers.pool = 1;
  agrees(config);
  config.numbers.pool = 31;
  config.numbers.queries = 40;
  agrees(config);
}

TEST_CASE("a limit takes the first order away where it is exceeded") {
  EvictingCase limited{slake};
  limited.numbers.limit = 6;
  agrees(limited);
  EvictingRun first({slake}, 1), some(limited, 1);
  limited.numbers.limit = 1e-6;
  EvictingRun none(limited, 1);
  int differs = 0, agreesWithNone = 0;
  for (int i = 0; i < 60; ++i) {
    first.step({0});
    some.step({0});
    none.step({0});
    differs += first.answer() != some.answer();
    agreesWithNone += i > 20 && none.answer() == some.answer();
  }
  CHECK(differs > 0);
  CHECK(agreesWithNone < 39);
}

TEST_CASE("a memory of 16 bits is rounded and no more") {
  EvictingCase config{slake};
  config.memoryType = "bf16";
  EvictingRun run(config, 1);
  run.prefill(0, 40);
  for (int i = 0; i < 40; ++i)
    run.step({0});
  CHECK(run.error < 0.05);
  CHECK(run.error > 1e-4);
}

TEST_CASE("nothing evicted is exact, and one token more is not") {
  EvictingCase large{slake}, forgets{slake};
  large.numbers.budget = 64;
  forgets.numbers.remembers = false;
  EvictingRun exact(large, 1), slakes({slake}, 1), plain(forgets, 1);
  for (int i = 0; i < 21; ++i) {
    for (EvictingRun *run : {&exact, &slakes, &plain})
      run->step({0});
    bool isSame =
        exact.answer() == slakes.answer() && exact.answer() == plain.answer();
    CHECK(isSame == (i < 20));
  }
  CHECK(slakes.answer() != plain.answer());
  CHECK(slakes.getPool().keptPositions(0, 0) ==
        plain.getPool().keptPositions(0, 0));
  CHECK(slakes.getPool().keptTokens(0) == 20);
}

TEST_CASE("every number of the eviction has its effect") {
  auto keptAfter = [](const reference::SlakeNumbers &numbers) {
    EvictingRun run({numbers}, 1);
    run.prefill(0, 40);
    for (int i = 0; i < 60; ++i)
      run.step({0});
    CHECK(run.error < 2e-5);
    return run.getPool().keptPositions(0, 1);
  };
  std::vector<int64_t> usual = keptAfter(slake);
  auto changed = [&](auto change) {
    reference::SlakeNumbers numbers = slake;
    change(numbers);
    return keptAfter(numbers) != usual;
  };
  CHECK(changed([](auto &numbers) { numbers.budget = 21; }));
  CHECK(changed([](auto &numbers) { numbers.sinks = 4; }));
  CHECK(changed([](auto &numbers) { numbers.recent = 12; }));
  CHECK(changed([](auto &numbers) { numbers.queries = 16; }));
  CHECK(changed([](auto &numbers) { numbers.variance = 0; }));
  CHECK(changed([](auto &numbers) { numbers.pool = 1; }));
  CHECK(!changed([](auto &numbers) { numbers.limit = 1; }));
}

TEST_CASE("answers depend neither on threads nor on the batch") {
  EvictingCase many{slake};
  many.threads = 4;
  EvictingRun one({slake}, 2), other(many, 2);
  for (EvictingRun *run : {&one, &other})
    run->prefill(1, 50);
  CHECK(one.answer() == other.answer());
  for (int i = 0; i < 30; ++i) {
    for (EvictingRun *run : {&one, &other})
      run->step({0, 1});
    CHECK(one.answer() == other.answer());
  }
}

TEST_CASE("what a layer prefers is what its model does") {
  EvictingCase config{slake};
  for (bool ofExact : {false, true})
    for (double limit : {0.0, 5.0}) {
      config.preference = PreferenceOptions{12, 5, 0.3, ofExact};
      config.numbers.limit = limit;
      EvictingRun run(config, 1);
      run.prefill(0, 45);
      std::span<const LayerPreference> mine = run.getDecoder().preferences();
      REQUIRE(mine.size() == 1);
      auto wanted = run.model(0).preference(12, 5, 0.3, ofExact);
      CHECK(mine[0].disturbance == Approx(wanted.disturbance).epsilon(1e-5));
      CHECK(mine[0].entropy == Approx(wanted.entropy).epsilon(1e-5));
      CHECK(wanted.disturbance > 0.01);
    }
}

TEST_CASE("budgets that cannot be are refused") {
  EvictingRun run({slake}, 1);
  auto refusal = [&](int32_t slot, int64_t budget) {
    return run.getDecoder().setBudget(slot, budget).message();
  };
  CHECK(refusal(0, 5) == "budget is 5, wanted 6 to 20");
  CHECK(refusal(0, 21) == "budget is 21, wanted 6 to 20");
  CHECK(refusal(1, 10) == "slot 1 is out of range, wanted 0 to 0");
  run.setBudget(0, 8);
  CHECK(run.getPool().budget(0) == 8);
  run.prefill(0, 30);
  CHECK(run.getPool().keptTokens(0) == 8);
  run.reset(0);
  CHECK(run.getPool().budget(0) == 20);
  CHECK(run.getPool().keptPositions(0, 0).empty());
}
