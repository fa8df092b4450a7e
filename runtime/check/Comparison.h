//===- Comparison.h - relative errors and their bounds ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The error of a tensor is max |actual − expected| / max |expected|, over the
// elements of one tensor of one row at one token: norm-wise, because an output
// near zero is a difference of large terms. The error of a run is the largest
// over its rows, tokens and tensors.
//
// All of a tensor may be such a difference: the only element of a head of size
// 1, the few that one key writes into an empty state, what is divided by
// features of both signs. Arithmetic is off in proportion to the terms, not to
// what is left of them: of a sum Σ x_i by 24 bits of √Σ x_i² for each time that
// it is rounded, as signs of errors are random. The oracles know that number
// for each element (√Σ (w v)² / Z of an attention, √Σ (q S)² of a read, with
// √Σ (γ k v)² for an S that only sums what tokens bring, and what arithmetic
// makes of them), and errors are relative to the larger of max
// |expected| and a quarter of the largest such number. Sums of random signs are
// about as large as it: what cancels no more than they do is compared as if
// there were no terms. 1e-5 is 170 roundings of the output, or 42 of the terms.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_COMPARISON_H
#define LADLE_RUNTIME_CHECK_COMPARISON_H

#include "ladle/types.h"

#include <span>
#include <string>
#include <vector>

namespace ladle::check {

/// The error of one tensor: infinite if an element is NaN or infinite in one
/// and not the same in the other, absolute if `expected` is zero.
double relativeError(std::span<const double> actual,
                     std::span<const double> expected);
/// Of a tensor whose elements have these terms, in the sense of above.
double relativeError(std::span<const double> actual,
                     std::span<const double> expected,
                     std::span<const double> terms);

/// By how much terms may exceed what is left of them before errors are relative
/// to them.
inline constexpr double mostCancellation = 4;

/// Of all that `type` rounds to `actual`, what is nearest to `expected`: what
/// an answer of 16 bits may have been before it was rounded.
std::vector<double> beforeRounding(std::vector<double> actual,
                                   std::span<const double> expected,
                                   DType type);

/// Whether no element is NaN or infinite.
bool isFinite(std::span<const double> values);

/// The largest error so far, and where it was.
struct WorstError {
  double value = 0;
  int64_t row = -1, token = -1;
  std::string tensor;

  void add(double error, int64_t atRow, int64_t atToken,
           const std::string &ofTensor);
};

/// What a run may differ from the oracle by. `exact` is what float32 arithmetic
/// is allowed. Storage types narrower than float32 are allowed twice what they
/// cost in float64: `rounded` is the larger error of two float64 runs that
/// round only what they store, at the same points (RoundedRuns).
struct Bound {
  static constexpr double exact = 1e-5;
  double rounded = 0;

  double value() const { return 2 * rounded + exact; }
  /// No bound, not even that of a run that overflows, allows infinity.
  bool allows(double error) const;
};

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_COMPARISON_H
