//===- Rounding.cpp - storage types in float64 arithmetic -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/Rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace ladle::interpreter;

namespace {
struct Format {
  /// Distance of neighbours in [1, 2), and of subnormals.
  double epsilon, tiny;
  double largest;
};
} // namespace

static Format formatOf(Precision precision) {
  switch (precision) {
  case Precision::Float16:
    return {0x1p-10, 0x1p-24, 65504.0};
  case Precision::Bfloat16:
    return {0x1p-7, 0x1p-133, 0x1.fep127};
  case Precision::Float32:
    return {0x1p-23, 0x1p-149, std::numeric_limits<float>::max()};
  case Precision::Float64:
    break;
  }
  return {0, 0, 0};
}

static double roundTo(double value, const Format &format) {
  if (!std::isfinite(value))
    return value;
  // The exponent bits alone are the power of two below |value|.
  constexpr uint64_t exponentMask = 0x7ff0000000000000;
  double power =
      std::bit_cast<double>(std::bit_cast<uint64_t>(value) & exponentMask);
  double spacing = std::max(power * format.epsilon, format.tiny);
  // At this magnitude neighbours of float64 are `spacing` apart, so that the
  // addition itself rounds to nearest even.
  double anchor = spacing * 0x1.8p52;
  double rounded = (value + anchor) - anchor;
  if (std::abs(rounded) > format.largest)
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return std::copysign(rounded, value);
}

double ladle::interpreter::roundTo(double value, Precision precision) {
  return precision == Precision::Float64
             ? value
             : ::roundTo(value, formatOf(precision));
}

Neighbours ladle::interpreter::findNeighbours(double value, double slack,
                                              Precision precision) {
  double low = roundTo(value - slack, precision);
  double high = roundTo(value + slack, precision);
  if (std::isfinite(high - low) && high - low > 4 * slack)
    return {low, high};
  double nearest = roundTo(value, precision);
  return {nearest, nearest};
}

void ladle::interpreter::roundTo(std::vector<double> &values,
                                 Precision precision) {
  if (precision == Precision::Float64)
    return;
  Format format = formatOf(precision);
  for (double &value : values)
    value = ::roundTo(value, format);
}
