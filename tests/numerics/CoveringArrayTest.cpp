//===- CoveringArrayTest.cpp - every pair meets ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CoveringArray.h"

#include <catch2/catch.hpp>
#include <set>
#include <tuple>

using namespace ladle::check;

static size_t countPairs(const std::vector<Combination> &combinations) {
  std::set<std::tuple<size_t, size_t, size_t, size_t>> pairs;
  for (const Combination &combination : combinations)
    for (size_t f = 0; f < combination.size(); ++f)
      for (size_t g = f + 1; g < combination.size(); ++g)
        pairs.emplace(f, combination[f], g, combination[g]);
  return pairs.size();
}

TEST_CASE("all pairs of levels meet, in few combinations") {
  std::vector<size_t> levels = {3, 3, 2, 5, 4, 2, 2, 3};
  size_t pairs = 0;
  for (size_t f = 0; f < levels.size(); ++f)
    for (size_t g = f + 1; g < levels.size(); ++g)
      pairs += levels[f] * levels[g];
  for (uint64_t seed : {1, 2, 3}) {
    std::vector<Combination> combinations = makeCoveringArray(levels, seed);
    REQUIRE(countPairs(combinations) == pairs);
    for (const Combination &combination : combinations)
      for (size_t f = 0; f < levels.size(); ++f)
        REQUIRE(combination[f] < levels[f]);
    // 20 is the least possible: five levels meet four.
    REQUIRE(combinations.size() <= 28);
  }
}

TEST_CASE("a seed fixes the combinations") {
  std::vector<size_t> levels = {3, 2, 4, 3};
  REQUIRE(makeCoveringArray(levels, 7) == makeCoveringArray(levels, 7));
}

TEST_CASE("one factor takes each of its levels") {
  REQUIRE(makeCoveringArray({3}, 1) == std::vector<Combination>{{0}, {1}, {2}});
}
