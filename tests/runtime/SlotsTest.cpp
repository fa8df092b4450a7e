//===- SlotsTest.cpp - slots, padding, forks, reset, export ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

using namespace ladle;
using namespace ladle::test;

static std::vector<float> stateOf(const Pool &pool, int64_t slot) {
  return *toFloats((*pool.state("S"))[slot]);
}

static std::vector<float> zeros(int64_t count) {
  return std::vector<float>(count, 0.0f);
}

TEST_CASE("a padded row writes zeros and touches nothing else") {
  int32_t sentinel = GENERATE(-1, 0);
  CAPTURE(sentinel);
  Program program = linearAttention();
  PoolOptions options;
  options.padSlot = sentinel;
  Pool pool = makePool(program, 2, options);
  Batch batch(3);
  Reference reference;
  for (uint32_t time = 0; time < 5; ++time) {
    batch.set(1, makeToken(4, time));
    batch.ys.assign(batch.ys.size(), 99.0f);
    batch.zs.assign(batch.zs.size(), 99.0f);
    REQUIRE(decode(program, pool, batch.with({sentinel, 1, sentinel})));
    CHECK(batch.y(0) == zeros(heads * valueSize));
    CHECK(batch.z(2) == zeros(heads));
    CHECK(batch.y(1) == reference.step(makeToken(4, time)));
  }
  CHECK(stateOf(pool, 0) == zeros(heads * valueSize * keySize));
}

TEST_CASE("any negative slot is padding if the sentinel is negative") {
  Pool pool = makePool(linearAttention(), 2);
  CHECK(pool.isPadding(-1));
  CHECK(pool.isPadding(-7));
  CHECK_FALSE(pool.isPadding(0));
}

TEST_CASE("a row that writes another slot folds and leaves the first") {
  auto route =
      GENERATE(RouteKind::Recurrent, RouteKind::Inner, RouteKind::KvOnly);
  auto prompt = GENERATE(0u, 2u, 5u);
  CAPTURE(toString(route), prompt);
  Program program = linearAttention(route);
  Pool pool = makePool(program, 3);
  Reference original;
  for (uint32_t time = 0; time < prompt; ++time) {
    decodeOne(program, pool, 0, 6, time);
    original.step(makeToken(6, time));
  }
  Cursor before = *pool.cursor(0);
  Reference fork = original;
  CHECK(decodeOne(program, pool, 0, 7, 0, /*writeSlot=*/2) ==
        fork.step(makeToken(7, 0)));
  CHECK(pool.cursor(0)->length == before.length);
  CHECK(pool.cursor(0)->epoch == before.epoch);
  CHECK(pool.cursor(2)->length == 0);
  // Both go on.
  for (uint32_t time = 1; time < 6; ++time) {
    CHECK(decodeOne(program, pool, 2, 7, time) ==
          fork.step(makeToken(7, time)));
    CHECK(decodeOne(program, pool, 0, 6, time) ==
          original.step(makeToken(6, time)));
  }
}

TEST_CASE("two rows fork one slot") {
  Program program = linearAttention();
  Pool pool = makePool(program, 3);
  Reference left;
  decodeOne(program, pool, 0, 1, 0);
  left.step(makeToken(1, 0));
  Reference right = left;
  Batch batch(2);
  batch.set(0, makeToken(2, 0));
  batch.set(1, makeToken(3, 0));
  REQUIRE(decode(program, pool, batch.with({0, 0}, {1, 2})));
  CHECK(batch.y(0) == left.step(makeToken(2, 0)));
  CHECK(batch.y(1) == right.step(makeToken(3, 0)));
}

TEST_CASE("a fork overwrites entries of the slot that it writes") {
  Program program = linearAttention();
  Pool pool = makePool(program, 2);
  decodeOne(program, pool, 1, 9, 0);
  decodeOne(program, pool, 1, 9, 1);
  Reference reference;
  CHECK(decodeOne(program, pool, 0, 1, 0, /*writeSlot=*/1) ==
        reference.step(makeToken(1, 0)));
  CHECK(decodeOne(program, pool, 1, 1, 1) == reference.step(makeToken(1, 1)));
}

TEST_CASE("a slot that is reset starts anew, others go on") {
  auto route =
      GENERATE(RouteKind::Recurrent, RouteKind::Inner, RouteKind::KvOnly);
  CAPTURE(toString(route));
  Program program = linearAttention(route);
  Pool pool = makePool(program, 2);
  Reference other;
  for (uint32_t time = 0; time < 6; ++time) {
    decodeOne(program, pool, 0, 1, time);
    decodeOne(program, pool, 1, 2, time);
    other.step(makeToken(2, time));
  }
  std::vector<int32_t> slots{-1, 0}, outside{0, 2};
  bool byRows = GENERATE(false, true);
  Status status = byRows ? pool.resetRows(outside) : pool.reset(outside);
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK(status.message() ==
        "slots[1]: slot 2 is outside of the pool, which has 2");
  CHECK(pool.cursor(0)->epoch > 0);
  REQUIRE((byRows ? pool.resetRows(slots) : pool.reset(slots)).ok());
  CHECK(pool.cursor(0)->epoch == 0);
  Reference fresh;
  for (uint32_t time = 0; time < 6; ++time)
    CHECK(decodeOne(program, pool, 0, 3, time) ==
          fresh.step(makeToken(3, time)));
  CHECK(decodeOne(program, pool, 1, 2, 6) == other.step(makeToken(2, 6)));
}

TEST_CASE("flush folds the entries into the state") {
  auto route = GENERATE(RouteKind::Inner, RouteKind::KvOnly);
  Program program = linearAttention(route);
  Pool pool = makePool(program, 2);
  Reference reference;
  for (uint32_t time = 0; time < 3; ++time) {
    decodeOne(program, pool, 1, 1, time);
    reference.step(makeToken(1, time));
  }
  CHECK(stateOf(pool, 1) == zeros(heads * valueSize * keySize));
  // A slot may be named twice, be empty, or be padding.
  std::vector<int32_t> slots{1, -1, 1, 0};
  REQUIRE(pool.flush(program, slots));
  CHECK(pool.cursor(1)->length == 0);
  const float *state = &reference.state[0][0][0];
  CHECK(stateOf(pool, 1) ==
        std::vector<float>(state, state + heads * valueSize * keySize));
  CHECK(decodeOne(program, pool, 1, 1, 3) == reference.step(makeToken(1, 3)));
}

TEST_CASE("a sequence moves to another pool by export and import") {
  auto route =
      GENERATE(RouteKind::Recurrent, RouteKind::Inner, RouteKind::KvOnly);
  Program program = linearAttention(route);
  Pool from = makePool(program, 1), to = makePool(program, 3);
  Reference reference;
  for (uint32_t time = 0; time < 6; ++time) {
    decodeOne(program, from, 0, 1, time);
    reference.step(makeToken(1, time));
  }
  Result<SlotContents> contents = from.exportSlot(program, 0);
  REQUIRE(contents.ok());
  decodeOne(program, to, 2, 9, 0); // to be replaced
  REQUIRE(to.importSlot(2, *contents));
  for (uint32_t time = 6; time < 12; ++time)
    CHECK(decodeOne(program, to, 2, 1, time) ==
          reference.step(makeToken(1, time)));
}

TEST_CASE("an import converts float types") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  SlotContents contents = *pool.exportSlot(program, 0);
  SlotContents::Item &item = contents.states[0];
  item.dtype = DType::BF16;
  item.data.assign(item.data.size() / 2, std::byte(0x3f)); // 0x3f3f
  REQUIRE(pool.importSlot(0, contents));
  CHECK(stateOf(pool, 0)[7] == 0.74609375f);
}

TEST_CASE("states may lie in memory of the caller") {
  constexpr int64_t stride = heads * valueSize * keySize + 36;
  auto *memory =
      static_cast<float *>(std::aligned_alloc(64, 2 * stride * sizeof(float)));
  std::fill_n(memory, 2 * stride, 0.0f);
  // The caller's states are histories that kv_only must not ignore.
  Program program = linearAttention(RouteKind::KvOnly);
  PoolOptions options;
  options.slotStrides = {stride};
  options.stateMemory = {memory};
  Pool pool = makePool(program, 2, options);
  Reference reference;
  reference.state[1][2][0] = memory[stride + (valueSize + 2) * keySize] = 3;
  for (uint32_t time = 0; time < 9; ++time)
    CHECK(decodeOne(program, pool, 1, 1, time) ==
          reference.step(makeToken(1, time)));
  std::vector<int32_t> slots{1};
  REQUIRE(pool.flush(program, slots));
  CHECK(memory[stride] == reference.state[0][0][0]);
  std::free(memory);
}

TEST_CASE("padding between slots is left alone") {
  constexpr int64_t dense = heads * valueSize * keySize, stride = dense + 4;
  Program program = linearAttention();
  PoolOptions options;
  options.slotStrides = {stride};
  Pool pool = makePool(program, 3, options);
  auto *memory = static_cast<float *>(pool.state("S")->data);
  for (int64_t slot = 0; slot < 3; ++slot)
    std::fill_n(memory + slot * stride + dense, 4, 5.0f);
  Reference reference;
  for (uint32_t time = 0; time < 9; ++time)
    CHECK(decodeOne(program, pool, 1, 1, time) ==
          reference.step(makeToken(1, time)));
  std::vector<int32_t> slots{0, 1, 2};
  REQUIRE(pool.reset(slots));
  for (int64_t slot = 0; slot < 3; ++slot)
    CHECK(memory[slot * stride + dense] == 5.0f);
}

TEST_CASE("offsets beyond 2^31 elements reach their slot") {
  Program program = linearAttention();
  PoolOptions options;
  options.slotStrides = {int64_t(3) << 30}; // only touched pages take memory
  Pool pool = makePool(program, 3, options);
  Reference reference;
  for (uint32_t time = 0; time < 6; ++time)
    CHECK(decodeOne(program, pool, 2, 1, time) ==
          reference.step(makeToken(1, time)));
}
