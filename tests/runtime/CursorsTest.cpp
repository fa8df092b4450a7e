//===- CursorsTest.cpp - cursors that pools share -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On the CPU, against a reference; tests/runtime/gpu compares both targets.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"
#include "tests/runtime/TightMemory.h"

#include <catch2/catch.hpp>
#include <deque>

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

namespace {
/// Two layers that share the cursors of three slots.
struct TwoLayers {
  explicit TwoLayers(PoolOptions options = PoolOptions())
      : cursors(*Cursors::create(program, {.slots = 3})) {
    options.cursors = cursors;
    for (int layer = 0; layer < 2; ++layer) {
      pools.push_back(makePool(program, 3, options));
      decoders.push_back(*Decoder::create(program, pools.back()));
    }
  }
  /// The message of layer `layer`.
  std::string step(size_t layer, const std::vector<int32_t> &reads,
                   const std::vector<int32_t> &writes = {}) {
    Batch batch(static_cast<int64_t>(reads.size()));
    for (size_t row = 0; row < reads.size(); ++row)
      batch.set(static_cast<int64_t>(row), makeToken(1, 0));
    return decoders[layer].step(batch.with(reads, writes)).message();
  }
  std::string advance(const std::vector<int32_t> &reads,
                      const std::vector<int32_t> &writes = {}) {
    return cursors.advance(reads, writes).message();
  }

  Program program = linearAttention();
  Cursors cursors;
  std::deque<Pool> pools;
  std::vector<Decoder> decoders;
};
} // namespace

TEST_CASE_METHOD(TwoLayers, "cursors move by what all layers have decoded") {
  CHECK(advance({0}) ==
        "row 0: no layer has decoded a token of slot 0 since its cursor moved");
  CHECK(step(0, {0, 1}).empty());
  CHECK(advance({0}) ==
        "row 0: slot 0 has a token that the layer of a pool of "
        "'linear_attention' has not decoded; all pools that share cursors "
        "decode it first");
  CHECK(
      step(0, {1}) ==
      "row 0: slot 1 has a token that its cursor has not moved on; advance it "
      "first, or reset it if the step was abandoned");
  CHECK(step(1, {0}).empty());
  CHECK_THAT(advance({0, 1}), Contains("row 1: slot 1 has a token that"));
  CHECK(advance({0, 0}) ==
        "rows 0 and 1 both write slot 0, wanted a slot of its own for each "
        "row");
  CHECK(cursors.cursor(0)->length == 0);
  CHECK(advance({0}).empty());
  CHECK_THAT(advance({0}), Contains("no layer has decoded a token of slot 0"));
  CHECK(cursors.cursor(0)->length == 1);
  // The other slot still waits, in whatever batch its layers decode it.
  CHECK(step(1, {2, 1}).empty());
  CHECK(step(0, {2}).empty());
  CHECK(advance({1, 2}).empty());
  for (int32_t slot : {0, 1, 2})
    CHECK(cursors.cursor(slot)->length == 1);
}

TEST_CASE_METHOD(TwoLayers, "rows that go on in other slots are moved alike") {
  for (size_t layer : {0, 1})
    CHECK(step(layer, {0}).empty());
  CHECK(advance({0}).empty());
  CHECK(step(0, {0, 0}, {1, 2}).empty());
  CHECK(step(1, {1}) ==
        "row 0: slot 1 goes on from slot 1, and from 0 by another layer that "
        "shares its cursor");
  CHECK_THAT(step(1, {1}, {0}), Contains("row 0: slot 1 has a token"));
  CHECK(step(1, {0, 0}, {1, 2}).empty());
  CHECK(advance({1, 0}, {1, 2}) ==
        "row 0: no layer has decoded a token of slot 1 since its cursor moved");
  CHECK(advance({0, 2}, {1, 1}) ==
        "row 1: no layer has decoded a token from slot 2 into 1 since its "
        "cursor moved");
  CHECK(advance({0, 0}, {1, 2}).empty());
  CHECK(cursors.cursor(1)->epoch == 1);
}

TEST_CASE_METHOD(TwoLayers, "what would lose a token that waits is an error") {
  std::vector<int32_t> zero{0}, one{1};
  const std::string waits = "slot 0 has a token that its cursor has not moved "
                            "on; advance it first, or reset it if the step "
                            "was abandoned";
  for (size_t layer : {0, 1})
    CHECK(step(layer, {0}).empty());
  CHECK(cursors.flush(zero).message() == waits);
  CHECK(pools[0].exportSlot(program, 0).message() == waits);
  CHECK(cursors.fork(zero, one).message() == "from[0]: " + waits);
  CHECK(cursors.fork(one, zero).message() == "to[0]: " + waits);
  CHECK(cursors.rebuild(0, 0, 0).message() == waits);
  CHECK_THAT(cursors.setFoldThreshold(2).message(),
             Contains("foldThreshold is set after a layer has decoded"));
  CHECK_THAT(cursors.setCrossover(2).message(),
             Contains("crossover is set after a layer has decoded"));
  // Slots that take no part are free meanwhile.
  CHECK(cursors.flush(one).ok());
  for (size_t layer : {0, 1})
    CHECK(step(layer, {1}).empty());
  CHECK(advance({1}).empty());
  CHECK(cursors.setFoldThreshold(2).message() == "foldThreshold: " + waits);
  CHECK(advance({0}).empty());
  CHECK(cursors.setFoldThreshold(2).ok());
  CHECK(cursors.flush(zero).ok());
  CHECK(cursors.cursor(0)->epoch == 1);
  // A reset forgets the token, and so does who abandons it.
  CHECK(step(0, {0}).empty());
  REQUIRE(cursors.reset(zero).ok());
  CHECK_THAT(advance({0}), Contains("no layer has decoded a token of slot 0"));
  CHECK(step(0, {0, 1}).empty());
  REQUIRE(cursors.abandon().ok());
  CHECK_THAT(advance({1}), Contains("no layer has decoded a token of slot 1"));
  CHECK(cursors.setFoldThreshold(3).ok());
}

TEST_CASE("a state that several rows read is taken once") {
  Program program = linearAttention();
  PoolOptions options;
  options.states = 3;
  Pool pool = makePool(program, 3, options);
  Batch batch(2);
  for (int64_t row : {0, 1})
    batch.set(row, makeToken(1, 0));
  REQUIRE(decode(program, pool, batch.with({0, 0}, {1, 2})));
  CHECK(pool.cursors().states().free == 0);
  Reference reference;
  CHECK(batch.y(0) == reference.step(makeToken(1, 0)));
  CHECK(batch.y(1) == batch.y(0));
}

TEST_CASE("tables for which there is no memory are an error") {
  Program program = linearAttention();
  TightMemory tight(rlim_t(1) << 30);
  if (!tight)
    return;
  Status status = Cursors::create(program, {.slots = INT32_MAX}).status();
  CHECK(status.code() == ErrorCode::ResourceExhausted);
  CHECK_THAT(status.message(), Contains("no cursors for 2147483647 slots"));
}
