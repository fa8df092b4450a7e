//===- Rounding.h - storage types in float64 arithmetic ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CODEGEN_INTERPRETER_ROUNDING_H
#define LADLE_CODEGEN_INTERPRETER_ROUNDING_H

#include <vector>

namespace ladle::interpreter {

/// The types in which values are stored between tokens.
enum class Precision { Float64, Float32, Float16, Bfloat16 };

/// The nearest value of `precision`, ties to even; overflows to infinity.
double roundTo(double value, Precision precision);

void roundTo(std::vector<double> &values, Precision precision);

/// The two values that roundTo may give if `value` is off by up to `slack`.
/// Both are the nearest one unless `value` is nearly a tie, and where
/// neighbours are closer than 4 slack.
struct Neighbours {
  double low, high;
};
Neighbours findNeighbours(double value, double slack, Precision precision);

} // namespace ladle::interpreter

#endif // LADLE_CODEGEN_INTERPRETER_ROUNDING_H
