//===- Slake.h - a cache that evicts, in float64 ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SLAKE's Algorithm 1 from its equations: one token at a time, with a list of
// what is kept, a list of what was evicted, and every weight that a query ever
// gave. Of the evicted no sum is made: each has the Taylor series of its own
// weight, e^μ (1 + s − μ), around the mean score μ of the evicted. So nothing
// here is in the form of what it is compared with.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_MODELS_SLAKE_H
#define LADLE_TESTS_MODELS_SLAKE_H

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace ladle::reference {

struct SlakeNumbers {
  int64_t heads = 1, cacheHeads = 1, keySize = 1, valueSize = 1;
  double scale = 1;
  int64_t budget = 1, sinks = 0, recent = 32;
  int64_t queries = 32; ///< 0: the sum of all weights
  double variance = 200;
  int64_t pool = 5;
  bool remembers = true; ///< otherwise what is evicted is lost
  double limit = 0;      ///< of scale |q| ρ for first order; 0 is none
};

/// VABS, Eqs. of its preference score.
struct SlakePreference {
  double disturbance = 0, entropy = 0;
};

class Slake {
public:
  using Vector = std::vector<double>;
  using Kept = std::vector<std::vector<int64_t>>; ///< [cacheHeads]: positions

  explicit Slake(const SlakeNumbers &numbers);

  /// Appends a token and answers it, [heads, valueSize]. `follows`, if given,
  /// says which tokens each head keeps after it: what is not among them is
  /// evicted, and `regret` says how much worse that was.
  Vector step(const Vector &q, const Vector &k, const Vector &v,
              const std::optional<Kept> &follows = std::nullopt);
  /// Answers `count` tokens by what is kept, the evicted, and each other; then
  /// chooses what to keep.
  Vector prefill(const Vector &q, const Vector &k, const Vector &v,
                 int64_t count,
                 const std::optional<Kept> &follows = std::nullopt);
  /// Evicts down to a lower budget.
  void setBudget(int64_t budget,
                 const std::optional<Kept> &follows = std::nullopt);

  /// What a budget would do to the last prompt, which came to an empty
  /// sequence: the means over its last `queries` queries, or all of them, and
  /// the heads. `ofExact`: the entropy of the weights of exact attention.
  SlakePreference preference(int64_t budget, int64_t queries, double exponent,
                             bool ofExact) const;

  Kept kept() const;
  int64_t evicted(int64_t head) const {
    return static_cast<int64_t>(heads[head].evicted.size());
  }
  /// The largest amount by which the salience of a token that was evicted
  /// exceeded that of one that might have been, over the larger of the two.
  double regret = 0;

private:
  struct Token {
    int64_t position = 0;
    Vector key, value;
    std::map<int64_t, double> seen; ///< by position of the query, summed
  };
  struct Head {
    std::vector<Token> kept, evicted;
  };
  Vector part(const Vector &all, int64_t index, int64_t of, int64_t head,
              int64_t size) const;
  double score(const Vector &query, const Token &token) const;
  Vector answer(const Head &head, std::span<const Token *const> tokens,
                const Vector &query, Vector *weights) const;
  Vector saliences(const Head &head, int64_t firstQuery) const;
  std::vector<int64_t> chooseKept(const Head &head, int64_t budget,
                                  int64_t firstQuery) const;
  void evict(size_t head, int64_t budget, int64_t firstQuery,
             const std::optional<Kept> &follows);

  SlakeNumbers numbers;
  std::vector<Head> heads;
  int64_t length = 0;
  int64_t budget;
  int64_t firstNoted = 0; ///< queries before it are not looked at
  int64_t promptLength = 0;
  std::vector<std::vector<Vector>> promptQueries; ///< [heads][tokens]
  std::vector<Head> promptTokens;
};

} // namespace ladle::reference

#endif // LADLE_TESTS_MODELS_SLAKE_H
