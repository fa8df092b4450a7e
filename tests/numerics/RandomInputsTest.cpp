//===- RandomInputsTest.cpp - inputs in the regime of a model -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/RandomInputs.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace ladle;
using check::InputRange;
using check::RandomInputs;
using interpreter::Precision;
using interpreter::ValueInfo;

TEST_CASE("a range is read as it is written") {
  for (const char *text : {"normal", "unit", "-3:0.5"}) {
    std::optional<InputRange> range = InputRange::parse(text);
    REQUIRE(range.has_value());
    REQUIRE(range->str() == text);
  }
  for (const char *text : {"", "1", "1:", ":1", "2:1", "1:1", "a:b", "0:inf"})
    REQUIRE_FALSE(InputRange::parse(text).has_value());
}

TEST_CASE("keys are of unit length, and an override changes that") {
  std::vector<ValueInfo> infos = {{"k", {2, 3, 8}, Precision::Float64}};
  auto squares = [&](const RandomInputs &inputs, size_t row) {
    std::vector<double> values = inputs.draw(infos, 0, 0)[0];
    double sum = 0;
    for (size_t i = row * 8; i < row * 8 + 8; ++i)
      sum += values[i] * values[i];
    return sum;
  };
  RandomInputs byDefault({}, 1);
  for (size_t row = 0; row < 6; ++row)
    REQUIRE(squares(byDefault, row) == Approx(1));
  RandomInputs wide({{"k", *InputRange::parse("10:11")}}, 1);
  REQUIRE(squares(wide, 0) > 700);
}

TEST_CASE("an input has a value of its declared type") {
  std::vector<ValueInfo> infos = {{"g", {50}, Precision::Bfloat16}};
  std::vector<double> values = RandomInputs({}, 1).draw(infos, 0, 0)[0];
  for (double value : values) {
    REQUIRE(value == interpreter::roundTo(value, Precision::Bfloat16));
    REQUIRE(value >= -3);
    REQUIRE(value <= 0);
  }
}

TEST_CASE("an input depends on seed, sequence and position alone") {
  std::vector<ValueInfo> infos = {{"x", {5}, Precision::Float32},
                                  {"y", {5}, Precision::Float32}};
  RandomInputs inputs({}, 1);
  auto first = inputs.draw(infos, 2, 3);
  inputs.draw(infos, 0, 0);
  REQUIRE(inputs.draw(infos, 2, 3) == first);
  REQUIRE(first[0] != first[1]);
  REQUIRE(inputs.draw(infos, 3, 3) != first);
  REQUIRE(inputs.draw(infos, 2, 4) != first);
  REQUIRE(RandomInputs({}, 2).draw(infos, 2, 3) != first);
}
