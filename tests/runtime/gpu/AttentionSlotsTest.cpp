//===- AttentionSlotsTest.cpp - what slots of an attention hold -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/OneHead.h"

#include <cmath>

using namespace ladle;
using namespace ladle::test;

static constexpr AttentionSettings near{.tau = 0.5, .window = 4, .band = 1};

//===----------------------------------------------------------------------===//
// Queries that are no numbers
//===----------------------------------------------------------------------===//

TEST_CASE("a query whose square is no number matches nothing, spoils nothing") {
  for (const std::string &target : targetsOfOneHead())
    for (float bad : {NAN, INFINITY, -INFINITY, 1e20F, -3e38F}) {
      CAPTURE(target, bad);
      OneHead head(target, near);
      CHECK(head.step(1) == -1);
      CHECK(head.step(1) == 0);
      CHECK(head.step(bad) == -1);
      CHECK(head.step(bad) == -1); // nor one like it
      CHECK(head.step(1) == 1);
      // Nothing far becomes near.
      for (float far : {5.F, -50.F, 1000.F, -3e4F})
        CHECK(head.step(far) == -1);

      head.reset();
      CHECK(head.step(1) == -1);
      CHECK(head.step(1) == 0);
      const std::vector<int32_t> slots{0};
      CHECK(head.step(bad) == -1);
      need(head.pool->invalidateRings(slots));
      CHECK(head.step(1) == -1);
      CHECK(head.step(1) == 3);
    }
}

TEST_CASE("a query whose square is no number counts for nothing") {
  for (const std::string &target : targetsOfOneHead())
    for (float bad : {NAN, INFINITY, 1e20F}) {
      CAPTURE(target, bad);
      OneHead head(target, near);
      // √(2d) (1 − τ) is 0.71 of √d here, of one token that counts. Were the
      // others zeros, it would be less.
      CHECK(head.step(bad) == -1);
      CHECK(head.step(bad) == -1);
      CHECK(head.step(1) == -1);
      CHECK(head.step(1.6F) == 2);
      // Prompts leave the same.
      head.reset();
      need(head.prefill({0}, {0, 3}, bad));
      CHECK(head.step(1) == -1);
      CHECK(head.step(1.6F) == 3);
      head.reset();
      need(head.prefill({0}, {0, 1}, 1));
      need(head.prefill({0}, {0, 2}, bad));
      CHECK(head.step(1.6F) == 0);
    }
}

TEST_CASE("squares of a prompt may be as large as numbers are") {
  for (const std::string &target : targetsOfOneHead()) {
    CAPTURE(target);
    OneHead head(target, near);
    need(head.prefill({0}, {0, 4}, 3e18F)); // 32 squares are 2.9e38
    CHECK(head.step(3e18F) == 3);
    CHECK(head.step(5) == -1);
  }
}

//===----------------------------------------------------------------------===//
// Prompts
//===----------------------------------------------------------------------===//

TEST_CASE("a row of a prompt without tokens leaves its slot as it is") {
  for (const std::string &target : targetsOfOneHead())
    for (int32_t empty : {0, 1}) {
      CAPTURE(target, empty);
      // The row without tokens is the first one or the last one.
      const std::vector<int32_t> starts = empty == 0
                                              ? std::vector<int32_t>{0, 0, 3}
                                              : std::vector<int32_t>{0, 3, 3};
      OneHead head(target, near);
      need(head.prefill({0, 1}, starts, 1));
      CHECK(head.pool->length(empty) == 0);
      CHECK(head.pool->ringEntries(empty) == 0);
      CHECK(head.pool->length(1 - empty) == 3);
      CHECK(head.step(1, empty, 2) == -1);
      CHECK(head.answer() == Approx(2)); // of its own token alone
      CHECK(head.step(1, 1 - empty) == 2);

      CHECK(head.step(1, empty) == 0);
      need(head.prefill({0, 1}, starts, 1));
      CHECK(head.pool->length(empty) == 2);
      CHECK(head.pool->ringEntries(empty) == 2);
      CHECK(head.pool->length(1 - empty) == 7);
      CHECK(head.step(1, empty) == 1);
      CHECK(head.step(1, 1 - empty) == 6);
    }
}
