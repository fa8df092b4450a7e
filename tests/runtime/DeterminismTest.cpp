//===- DeterminismTest.cpp - the same bits on any threads and heads -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/LinearAttention.h"

#include <catch2/catch.hpp>

using namespace ladle;
using namespace ladle::test;

/// Outputs of six tokens of three sequences, decoded together.
static std::vector<float> decodeTogether(const DecoderOptions &options) {
  Program program = linearAttention();
  Pool pool = makePool(program, 3);
  Result<Decoder> decoder = Decoder::create(program, pool, options);
  REQUIRE(decoder.ok());
  std::vector<float> all;
  for (uint32_t time = 0; time < 6; ++time) {
    Batch batch(3);
    for (uint32_t row = 0; row < 3; ++row)
      batch.set(row, makeToken(row, time));
    REQUIRE(decoder->step(batch.with({0, 1, 2})));
    all.insert(all.end(), batch.ys.begin(), batch.ys.end());
  }
  return all;
}

TEST_CASE("the number of threads does not change a bit") {
  DecoderOptions one;
  one.threads = 1;
  std::vector<float> expected = decodeTogether(one);
  for (int threads : {2, 3, 8}) {
    CAPTURE(threads);
    DecoderOptions options;
    options.threads = threads;
    CHECK(decodeTogether(options) == expected);
  }
}

TEST_CASE("a row does not depend on the rows around it") {
  std::vector<float> together = decodeTogether(DecoderOptions());
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  constexpr int64_t width = heads * valueSize;
  for (uint32_t time = 0; time < 6; ++time) {
    auto begin = together.begin() + (time * 3 + 2) * width;
    CHECK(decodeOne(program, pool, 0, 2, time) ==
          std::vector<float>(begin, begin + width));
  }
}

TEST_CASE("two halves of the heads make the whole") {
  std::vector<float> expected = decodeTogether(DecoderOptions());
  DecoderOptions low, high;
  low.headEnd = high.headBegin = heads / 2;
  std::vector<float> lower = decodeTogether(low), upper = decodeTogether(high);
  constexpr int64_t half = heads / 2 * valueSize;
  for (size_t at = 0; at < expected.size(); at += 2 * half)
    for (int64_t i = 0; i < half; ++i) {
      CHECK(lower[at + i] == expected[at + i]);
      CHECK(upper[at + half + i] == expected[at + half + i]);
      CHECK(lower[at + half + i] == 99.0f);
    }
}

TEST_CASE("a padded row is zeroed in the head range only") {
  Program program = linearAttention();
  Pool pool = makePool(program, 1);
  DecoderOptions options;
  options.headBegin = 1;
  options.headEnd = 2;
  Decoder decoder = std::move(*Decoder::create(program, pool, options));
  Batch batch(1);
  REQUIRE(decoder.step(batch.with({-1})));
  CHECK(batch.z(0) == std::vector<float>{99, 0, 99, 99});
}
