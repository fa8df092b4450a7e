//===- CursorsTest.cpp - cursors that pools share -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On the CPU, against a reference; tests/runtime/gpu compares both targets.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

static std::vector<float> stateOf(const Pool &pool, int64_t slot) {
  return *toFloats((*pool.state("S"))[slot]);
}

TEST_CASE("two layers answer as the reference, by any route of theirs") {
  // kv_only hands over to inner when the shared cursor has folded.
  auto second = GENERATE(RouteKind::Inner, RouteKind::KvOnly);
  CAPTURE(toString(second));
  Program program = linearAttention();
  Result<Cursors> cursors = Cursors::create(program, {.slots = 2});
  REQUIRE(cursors);
  PoolOptions options;
  options.cursors = *cursors;
  Pool pools[] = {makePool(program, 2, options), makePool(program, 2, options)};
  Program programs[] = {program, *program.withRoute(second)};
  Reference references[2];
  std::vector<int32_t> slots{1};
  for (uint32_t time = 0; time < 11; ++time) {
    CAPTURE(time);
    for (uint32_t layer : {0, 1}) {
      Batch batch(1);
      batch.set(0, makeToken(layer + 5, time));
      REQUIRE(decode(programs[layer], pools[layer], batch.with(slots)));
      CHECK(batch.y(0) == references[layer].step(makeToken(layer + 5, time)));
      CHECK(cursors->cursor(1)->length == time % capacity);
    }
    REQUIRE(cursors->advance(slots));
  }
  REQUIRE(cursors->flush(std::vector<int32_t>{0, 1}));
  for (uint32_t layer : {0, 1}) {
    std::vector<float> state = stateOf(pools[layer], 1);
    const float *expected = &references[layer].state[0][0][0];
    for (size_t i = 0; i < state.size(); ++i)
      CHECK(state[i] == Approx(expected[i]).margin(1e-5));
  }
  CHECK(cursors->cursor(1)->length == 0);
}

TEST_CASE("slots that cursors cannot move are named, and nothing moves") {
  Program program = linearAttention();
  Result<Cursors> cursors = Cursors::create(program, {.slots = 2});
  REQUIRE(cursors);
  std::vector<int32_t> wrong{0, 2}, one{1};
  CHECK(cursors->advance(wrong).message() ==
        "row 1: slot 2 is outside of the pool, which has 2");
  CHECK(cursors->advance(wrong, one).message() ==
        "writeSlots has 1 slots, wanted 2 or none");
  CHECK(cursors->cursor(0)->length == 0);
  CHECK(cursors->cursor(5).message() ==
        "slot 5 is outside of the pool, which has 2");
  CHECK(cursors->setFoldThreshold(capacity + 1).message() ==
        "foldThreshold is 5, wanted 1 to 4");
  CHECK_THAT(Cursors::create(program, {.slots = 0}).message(),
             Contains("slots is 0, wanted 1 to"));
  CHECK(Cursors::create(program, {.slots = 1, .padSlot = 3}).message() ==
        "padSlot is 3, wanted a negative number or 0");
}

TEST_CASE("a pool that goes leaves the cursors to the others") {
  Program program = linearAttention();
  Result<Cursors> cursors = Cursors::create(program, {.slots = 2});
  REQUIRE(cursors);
  PoolOptions options;
  options.cursors = *cursors;
  Pool stays = makePool(program, 2, options);
  std::vector<int32_t> slots{0};
  {
    Pool goes = makePool(program, 2, options);
    Pool assigned = makePool(program, 2);
    assigned = std::move(goes);
    Batch batch(1);
    batch.set(0, makeToken(1, 0));
    for (Pool *pool : {&stays, &assigned})
      REQUIRE(decode(program, *pool, batch.with(slots)));
    REQUIRE(cursors->advance(slots));
  }
  REQUIRE(cursors->flush(slots));
  CHECK(stateOf(stays, 0) !=
        std::vector<float>(heads * valueSize * keySize, 0.0f));
  REQUIRE(stays.reset(slots));
  CHECK(stays.cursor(0)->epoch == 0);
}
