//===- EvictionTest.cpp - which tokens are kept -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Eviction.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace ladle;
using Indices = std::vector<int32_t>;

TEST_CASE("a salience is a mean, a variance, and its neighbours") {
  Candidates two{{0, 1, 2}, {4, 2, 0, 8, 2, 6}, {2, 2, 1}};
  // Means 6, 2, 6; variances 4, 0, and 0 of the only weight.
  CHECK(saliences({0, 1, 2, 0.5, 1}, two) == std::vector<double>{8, 2, 6});
  CHECK(saliences({0, 1, 2, 0, 1}, two) == std::vector<double>{6, 2, 6});
  std::vector<double> pooled = saliences({0, 1, 2, 0.5, 3}, two);
  CHECK(pooled[0] == 5);
  CHECK(pooled[1] == Approx(16.0 / 3));
  CHECK(pooled[2] == 4);
  Candidates sums{{0, 1}, {3, 9}, {5, 1}};
  CHECK(saliences({0, 1, 0, 0, 1}, sums) == std::vector<double>{3, 9});
}

TEST_CASE("sinks, recent tokens and the most salient are kept") {
  Candidates six{{0, 2, 3, 7, 8, 9}, {}, {}};
  std::vector<double> salience{0, 5, 1, 5, 2, 0};
  EvictionNumbers numbers{1, 1};
  CHECK(chooseKept(numbers, six, salience, 10, 6) == Indices{0, 1, 2, 3, 4, 5});
  CHECK(chooseKept(numbers, six, salience, 10, 4) == Indices{0, 1, 3, 5});
  // Of equal ones the younger.
  CHECK(chooseKept(numbers, six, salience, 10, 3) == Indices{0, 3, 5});
  CHECK(chooseKept(numbers, six, salience, 10, 2) == Indices{0, 5});
}

TEST_CASE("a NaN is kept") {
  Candidates three{{0, 1, 2}, {1, NAN, 2}, {1, 1, 1}};
  EvictionNumbers numbers{0, 1, 1, 0, 1};
  std::vector<double> salience = saliences(numbers, three);
  CHECK(std::isinf(salience[1]));
  CHECK(chooseKept(numbers, three, salience, 3, 2) == Indices{1, 2});
}

TEST_CASE("what a cut costs is not what rounding leaves") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 5);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> scores;
    for (int i = 0; i < 11; ++i)
      scores.push_back(normal(random));
    std::vector<uint8_t> isKept(scores.size(), 1);
    std::vector<double> norms(scores.size(), 1.5);
    PreferenceInputs inputs;
    inputs.tokens = scores.size();
    inputs.scores = scores;
    inputs.isKept = isKept;
    inputs.valueNorms = norms;
    CHECK(preferenceOf(inputs).disturbance == 0);
    // One alone is its own mean, and so are equal ones.
    isKept[4] = 0;
    CHECK(preferenceOf(inputs).disturbance == 0);
    CHECK(preferenceOf(inputs).entropy > 0);
    scores[7] = scores[4];
    isKept[7] = 0;
    CHECK(preferenceOf(inputs).disturbance == 0);
  }
  // Weights 1, e⁻⁶ and e⁻⁸, of which the last two are e⁻⁷ each, or nothing.
  const std::vector<float> scores{0, -6, -8};
  const std::vector<uint8_t> isKept{1, 0, 0};
  const std::vector<double> norms{1, 1, 1};
  PreferenceInputs inputs{3, scores, isKept, norms};
  inputs.isFirstOrder = false;
  inputs.valueExponent = 0;
  double exact = 1 + std::exp(-6) + std::exp(-8), sum = 1 + 2 * std::exp(-7);
  CHECK(preferenceOf(inputs).disturbance ==
        Approx(std::exp(-6) / exact - std::exp(-7) / sum));
  inputs.remembers = false;
  CHECK(preferenceOf(inputs).disturbance == Approx(1 - 1 / exact));
}
