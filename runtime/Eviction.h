//===- Eviction.h - which tokens of a prompt are kept -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step evicts one token, and its kernel chooses which. After a prompt, and
// when a budget is lowered, many go at once: a partial sort of a few thousand
// numbers, once a prompt, that the host does between two kernels.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_EVICTION_H
#define LADLE_RUNTIME_EVICTION_H

#include "ladle/budgets.h"

namespace ladle {

/// The numbers of `ladle.evict`.
struct EvictionNumbers {
  int64_t sinks = 0, recent = 1;
  int64_t queries = 32; ///< 0: the sum of all weights
  double variance = 0;
  int64_t pool = 1;
};

/// Tokens of one head of a cache, in the order of the sequence.
struct Candidates {
  std::vector<int64_t> positions;
  /// Their weights by queries, row after row, 0 where a query came before the
  /// token; or one row of sums if there is no count of queries.
  std::vector<float> weights;
  /// How many of the queries came with or after a token, each.
  std::vector<int64_t> seen;

  size_t count() const { return positions.size(); }
};

/// mean w + variance · var w over the queries that a token has seen, averaged
/// over `pool` neighbours. One query whose salience is NaN makes a token most
/// salient rather than anything undefined.
std::vector<double> saliences(const EvictionNumbers &numbers,
                              const Candidates &candidates);

/// Indices, in order, of `budget` candidates: the first `sinks` positions, the
/// `recent` last before `length`, and the most salient of the others, of equal
/// ones the youngest. All, if there are no more.
std::vector<int32_t> chooseKept(const EvictionNumbers &numbers,
                                const Candidates &candidates,
                                std::span<const double> salience,
                                int64_t length, int64_t budget);

/// What LayerPreference is made of, for the queries of one head.
struct PreferenceInputs {
  size_t tokens = 0; ///< that are visible to the query
  std::span<const float> scores;
  std::span<const uint8_t> isKept;
  std::span<const double> valueNorms;
  /// Whether evicted tokens are expanded, and to first order.
  bool remembers = true, isFirstOrder = true;
  double valueExponent = 0.1;
  bool entropyOfExact = false;
};
/// Weights whose distance ½ Σ |Ã − A| is no more are equal: a few ulps of f32
/// round them so far apart. A token that is evicted alone is its own mean, and
/// loses nothing; a power of what rounding leaves would be a share.
inline constexpr double negligibleDistance = 1e-6;
LayerPreference preferenceOf(const PreferenceInputs &inputs);

} // namespace ladle

#endif // LADLE_RUNTIME_EVICTION_H
