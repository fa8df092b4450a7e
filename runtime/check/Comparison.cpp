//===- Comparison.cpp - relative errors and their bounds ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

using namespace ladle::check;

double ladle::check::relativeError(std::span<const double> actual,
                                   std::span<const double> expected) {
  return relativeError(actual, expected, {});
}

double ladle::check::relativeError(std::span<const double> actual,
                                   std::span<const double> expected,
                                   std::span<const double> terms) {
  assert(actual.size() == expected.size());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(expected[i]) || !std::isfinite(actual[i])) {
      bool isSame = actual[i] == expected[i] ||
                    (std::isnan(actual[i]) && std::isnan(expected[i]));
      if (!isSame)
        return infinity;
      continue;
    }
    difference = std::max(difference, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  for (double term : terms)
    if (std::isfinite(term))
      largest = std::max(largest, std::abs(term) / mostCancellation);
  return largest > 0 ? difference / largest : difference;
}

std::vector<double>
ladle::check::beforeRounding(std::vector<double> actual,
                             std::span<const double> expected, DType type) {
  if (type == DType::F32)
    return actual;
  // Significant bits, and the exponent of the smallest number.
  int bits = type == DType::BF16 ? 8 : 11;
  int smallest = type == DType::BF16 ? -133 : -24;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i]) || !std::isfinite(expected[i]))
      continue;
    int exponent = smallest; // of 0, too
    if (actual[i] != 0)
      std::frexp(actual[i], &exponent);
    double half = std::ldexp(0.5, std::max(exponent - bits, smallest));
    actual[i] = std::clamp(expected[i], actual[i] - half, actual[i] + half);
  }
  return actual;
}

bool ladle::check::isFinite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return std::isfinite(value); });
}

bool Bound::allows(double error) const {
  return std::isfinite(error) && error <= value();
}

void WorstError::add(double error, int64_t atRow, int64_t atToken,
                     const std::string &ofTensor) {
  if (error <= value && row >= 0)
    return;
  value = error;
  row = atRow;
  token = atToken;
  tensor = ofTensor;
}
