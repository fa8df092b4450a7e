//===- Problem.h - what is tuned for ----------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_PROBLEM_H
#define LADLE_RUNTIME_TUNE_PROBLEM_H

#include "ladle/types.h"

#include <string>

namespace ladle::tune {

/// A recurrence as far as its kernels depend on it: names, shapes and types,
/// "gated_delta_rule(; q:bf16[16,128], ...) S:f32[32,128,128] -> y:bf16[..]".
std::string describe(const Signature &signature);

/// What a measured time holds for.
struct Problem {
  std::string device;    ///< "NVIDIA H200"
  std::string driver;    ///< "580.159.04"
  std::string shape;     ///< describe(signature)
  std::string entryType; ///< of cached values that depend on a state
  int64_t batch = 1;
  /// Of the text of the default's kernels: another compiler, other times.
  std::string fingerprint = {};
  /// Of steps that verify so many a row, of which this part is accepted; 0:
  /// steps of a token.
  int64_t drafts = 0;
  double acceptance = 0;

  bool operator==(const Problem &) const = default;
  /// "NVIDIA_H200-gated_delta_rule-b256-0123456789abcdef"
  std::string fileName() const;
};

/// 16 hexadecimal digits.
std::string fingerprintOf(const std::string &text);

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_PROBLEM_H
