//===- CasePlan.h - which cases a check runs --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_CASEPLAN_H
#define LADLE_RUNTIME_CHECK_CASEPLAN_H

#include "runtime/check/CheckCase.h"

#include <vector>

namespace ladle::check {

using SizeMap = std::map<std::string, int64_t>;

/// One case a route with everything stored as float32, at every size: each
/// route appends, folds and flushes in it.
std::vector<CheckCase> planCross(const std::vector<RouteKind> &routes,
                                 const std::vector<SizeMap> &sizes,
                                 uint64_t seed);

/// For each route a covering array over storage types, capacity and threshold,
/// rows, how slots are taken, padded rows, resets, strides and sizes; `rounds`
/// arrays of different seeds.
std::vector<CheckCase> planPairwise(const std::vector<RouteKind> &routes,
                                    const std::vector<SizeMap> &sizes,
                                    uint64_t seed, int rounds);

/// Sizes for a signature at `given` sizes, with heads, keys and values that are
/// few, in the same groups, and no powers of two. A guess by value: the caller
/// has to see whether the recurrence takes them.
SizeMap shrinkSizes(const Signature &signature, const SizeMap &given);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_CASEPLAN_H
