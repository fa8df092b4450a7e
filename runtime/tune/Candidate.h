//===- Candidate.h - a way to run a recurrence ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_CANDIDATE_H
#define LADLE_RUNTIME_TUNE_CANDIDATE_H

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ladle::tune {

/// What is chosen: a route, the entries of a cycle, how kernels are laid out,
/// by the names of the kernel generator's parameters; 0 leaves one to the
/// generator; and the entries of a ring.
struct Candidate {
  std::string route;
  int64_t threshold = 1; ///< m; 1 where there is no buffer
  std::map<std::string, int64_t> schedule = {};
  int64_t capacity = 0; ///< L; 0: as many as m and the drafts ask for

  auto operator<=>(const Candidate &) const = default;
  /// "inner m=24 L=32 threads=128 tile_rows=8"; what is 0 is left out.
  std::string str() const;
};

/// The entries that a ring has to hold at least, of m and the drafts of a row.
inline int64_t leastCapacity(int64_t threshold, int64_t drafts) {
  return std::max(threshold + drafts, 2 * drafts);
}

/// A parameter of the schedule and what it may be, the simplest first.
struct Parameter {
  std::string name;
  std::vector<int64_t> values;
};

/// Everything that could be run. The order of the lists is the fixed order
/// that decides between what is equally fast.
struct Space {
  /// Simple routes first. One that keeps no buffer has no choice of m.
  struct RouteChoice {
    std::string route;
    bool buffers = true;
  };
  std::vector<RouteChoice> routes;
  std::vector<int64_t> thresholds;
  std::vector<Parameter> parameters;
  /// Of rings, besides what m and `drafts` ask for: those that are larger, and
  /// not twice as large.
  std::vector<int64_t> capacities = {};
  int64_t drafts = 0;

  std::vector<Candidate> enumerate() const;
  /// Those of the list that differ from `candidate` in m, in L or in one
  /// parameter.
  static std::vector<Candidate> neighbours(const Candidate &candidate,
                                           const std::vector<Candidate> &all);
};

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_CANDIDATE_H
