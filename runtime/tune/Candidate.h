//===- Candidate.h - a way to run a recurrence ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_CANDIDATE_H
#define LADLE_RUNTIME_TUNE_CANDIDATE_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ladle::tune {

/// What is chosen: a route, the entries of a cycle, and how kernels are laid
/// out, by the names of the kernel generator's parameters; 0 leaves one to the
/// generator.
struct Candidate {
  std::string route;
  int64_t threshold = 1; ///< m; 1 where there is no buffer
  std::map<std::string, int64_t> schedule;

  auto operator<=>(const Candidate &) const = default;
  /// "inner m=16 threads=128 tile_rows=8"; what is 0 is left out.
  std::string str() const;
};

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

  std::vector<Candidate> enumerate() const;
  /// Those of the list that differ from `candidate` in m or in one parameter.
  static std::vector<Candidate> neighbours(const Candidate &candidate,
                                           const std::vector<Candidate> &all);
};

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_CANDIDATE_H
