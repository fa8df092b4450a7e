//===- TestInputs.h - random inputs of a reference model --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_MODELS_TESTINPUTS_H
#define LADLE_TESTS_MODELS_TESTINPUTS_H

#include "tests/models/Reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

namespace ladle::reference {

/// Elements of every param or token.
using Sizes = std::map<std::string, int64_t>;

/// Draws tensors from the ranges of a model.
class Inputs {
public:
  Inputs(const std::string &model, const ReferenceShape &shape)
      : ranges(inputRanges(model, shape)) {}

  Tensors draw(const Sizes &sizes) {
    Tensors tensors;
    for (const auto &[name, size] : sizes) {
      InputRange range = ranges.at(name);
      std::normal_distribution<double> normal;
      std::uniform_real_distribution<double> uniform(range.low, range.high);
      for (int64_t i = 0; i < size; ++i)
        tensors[name].push_back(range.normal ? normal(engine)
                                             : uniform(engine));
    }
    return tensors;
  }

private:
  std::map<std::string, InputRange> ranges;
  std::mt19937 engine{20};
};

/// The largest difference over the largest element of `expected`.
inline double relativeError(const std::vector<double> &actual,
                            const std::vector<double> &expected) {
  REQUIRE(actual.size() == expected.size());
  double error = 0, largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    // fmax would drop a NaN.
    REQUIRE(std::isfinite(actual[i]));
    error = std::max(error, std::fabs(actual[i] - expected[i]));
    largest = std::max(largest, std::fabs(expected[i]));
  }
  return largest > 0 ? error / largest : error;
}

inline std::vector<double> times(std::vector<double> x, double factor) {
  for (double &value : x)
    value *= factor;
  return x;
}

} // namespace ladle::reference

#endif // LADLE_TESTS_MODELS_TESTINPUTS_H
