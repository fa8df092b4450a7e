//===- CoveringArray.h - few cases that meet every pair ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_COVERINGARRAY_H
#define LADLE_RUNTIME_CHECK_COVERINGARRAY_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ladle::check {

/// One level (0 .. levels - 1) for every factor.
using Combination = std::vector<size_t>;

/// Combinations of `levels.size()` factors, factor f having `levels[f]` levels,
/// such that any two levels of any two factors meet in at least one of them.
/// Greedy, after Cohen, Dalal, Fredman and Patton, "The AETG system" (IEEE
/// Transactions on Software Engineering, 1997). The same seed gives the same
/// combinations. Every factor must have a level.
std::vector<Combination> makeCoveringArray(const std::vector<size_t> &levels,
                                           uint64_t seed);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_COVERINGARRAY_H
