//===- StepTest.cpp - what a step computes and when it folds --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace ladle;
using namespace ladle::test;

TEST_CASE("every route decodes a sequence across folds and ring turns") {
  auto route =
      GENERATE(RouteKind::Recurrent, RouteKind::Inner, RouteKind::KvOnly);
  CAPTURE(toString(route));
  Program program = linearAttention(route);
  Pool pool = makePool(program, 2);
  Reference reference;
  for (uint32_t time = 0; time < 11; ++time) {
    CAPTURE(time);
    CHECK(decodeOne(program, pool, 1, 5, time) ==
          reference.step(makeToken(5, time)));
  }
}

TEST_CASE("all outputs of a step are written") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  Batch batch(1);
  Token token = makeToken(1, 0);
  batch.set(0, token);
  REQUIRE(decode(program, pool, batch.with({0})));
  CHECK(batch.z(0) == std::vector<float>(token.a, token.a + heads));
}

TEST_CASE("rows at different fills fold when their own buffer is full") {
  Program program = linearAttention();
  Pool pool = makePool(program, capacity);
  std::vector<Reference> references(capacity);
  Batch batch(capacity);
  std::vector<uint32_t> times(capacity, 0);
  // Row r is r tokens ahead.
  for (uint32_t row = 0; row < capacity; ++row)
    for (; times[row] < row; ++times[row]) {
      decodeOne(program, pool, row, row, times[row]);
      references[row].step(makeToken(row, times[row]));
    }
  std::vector<int32_t> slots{0, 1, 2, 3};
  for (int step = 0; step < 9; ++step) {
    for (uint32_t row = 0; row < capacity; ++row)
      batch.set(row, makeToken(row, times[row]));
    REQUIRE(decode(program, pool, batch.with(slots)));
    for (uint32_t row = 0; row < capacity; ++row) {
      CAPTURE(step, row);
      CHECK(batch.y(row) == references[row].step(makeToken(row, times[row]++)));
      CHECK(pool.cursor(row)->length == times[row] % capacity);
    }
  }
}

TEST_CASE("a row folds with the token that would be its m-th entry") {
  int64_t threshold = GENERATE(1, 2, 3, 4);
  CAPTURE(threshold);
  Program program = linearAttention();
  PoolOptions options;
  options.foldThreshold = threshold;
  Pool pool = makePool(program, 1, options);
  CHECK(pool.foldThreshold() == threshold);
  Reference reference;
  for (uint32_t time = 0; time < 8; ++time) {
    CHECK(decodeOne(program, pool, 0, 3, time) ==
          reference.step(makeToken(3, time)));
    Cursor cursor = *pool.cursor(0);
    CHECK(cursor.length == (time + 1) % threshold);
    CHECK(cursor.committed == cursor.length);
    CHECK(cursor.epoch == (time + 1) / threshold);
  }
}

TEST_CASE("a lower threshold folds a longer buffer with its next token") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  Reference reference;
  for (uint32_t time = 0; time < 3; ++time) {
    decodeOne(program, pool, 0, 3, time);
    reference.step(makeToken(3, time));
  }
  REQUIRE(pool.cursor(0)->length == 3);
  REQUIRE(pool.setFoldThreshold(2));
  CHECK(decodeOne(program, pool, 0, 3, 3) == reference.step(makeToken(3, 3)));
  CHECK(pool.cursor(0)->length == 0);
}

TEST_CASE("the ring turns, so that entries of the last window stay") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  for (uint32_t time = 0; time < capacity; ++time)
    decodeOne(program, pool, 0, 3, time);
  CHECK(pool.cursor(0)->base == capacity - 1);
}

TEST_CASE("routes take turns on a pool once entries are flushed") {
  Program inner = linearAttention(RouteKind::Inner);
  Program recurrent = *inner.withRoute(RouteKind::Recurrent);
  Program kvOnly = *inner.withRoute(RouteKind::KvOnly);
  Pool pool = makePool(inner, 1);
  Reference reference;
  uint32_t time = 0;
  auto run = [&](const Program &program, int tokens) {
    for (int i = 0; i < tokens; ++i, ++time) {
      CAPTURE(time);
      CHECK(decodeOne(program, pool, 0, 8, time) ==
            reference.step(makeToken(8, time)));
    }
  };
  std::vector<int32_t> slots{0};
  run(kvOnly, 2);
  run(inner, 1); // the same entries
  REQUIRE(pool.flush(recurrent, slots));
  run(recurrent, 3);
  run(kvOnly, 6); // there is a state by now, which must not be ignored
  run(inner, 3);
}

TEST_CASE("kv_only ignores the state of a slot that never folded") {
  Program program = linearAttention(RouteKind::KvOnly);
  Pool pool = makePool(program, 1);
  // What the memory holds before the first fold does not matter.
  TensorView state = *pool.state("S");
  std::fill_n(static_cast<float *>(state.data), state.count(), 7.0f);
  Reference reference;
  for (uint32_t time = 0; time < 9; ++time)
    CHECK(decodeOne(program, pool, 0, 3, time) ==
          reference.step(makeToken(3, time)));
}

TEST_CASE("a batch of no rows does nothing") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  CHECK(decode(program, pool, StepArguments()));
}

TEST_CASE("a NaN stays in its row") {
  Program program = linearAttention();
  Pool pool = makePool(program, 2);
  Reference reference;
  Batch batch(2);
  for (uint32_t time = 0; time < 6; ++time) {
    Token poisoned = makeToken(1, time);
    poisoned.v[0][0] = std::numeric_limits<float>::quiet_NaN();
    batch.set(0, poisoned);
    batch.set(1, makeToken(2, time));
    REQUIRE(decode(program, pool, batch.with({0, 1})));
    CHECK(std::isnan(batch.y(0)[0]));
    CHECK(batch.y(1) == reference.step(makeToken(2, time)));
  }
}
