//===- MatchPositions.h - where heads match in a benchmark ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MATCHPOSITIONS_H
#define LADLE_TOOLS_LADLE_MATCHPOSITIONS_H

#include <cstdint>
#include <string>
#include <vector>

namespace ladle::tool {

/// Which heads match, and how far back.
struct MatchScenario {
  enum class Gaps {
    Uniform, ///< drawn for each head of the query
    Grouped, ///< drawn for heads that share keys, with a deviation for each
    Same,    ///< the same for all
    None     ///< nothing matches
  };
  const char *name;
  Gaps gaps;
  int64_t gap = 0;        ///< of `Same`
  bool hasMisses = false; ///< some heads match nothing

  /// What gaps are called in results: "uniform", "grouped", "64" or "none".
  std::string gapsName() const;
};

/// The text of bench/mac-gaps.json, as it was when this program was built.
const char *macGapsText();

/// What that says; bench/mac_gaps.py says what its lists are.
class MatchPositions {
public:
  static const MatchPositions &committed();

  /// What the file is called, and the seed of its numbers.
  static constexpr const char *file = "bench/mac-gaps.json";
  int64_t seed() const { return seedOfAll; }
  /// How many tokens back each of `heads` heads of all rows matches, 1 to
  /// `most`; 0 for none. `group` of them share keys. What is drawn up to 1023
  /// is scaled where `most` is less. From the 2049th head on positions come
  /// again.
  std::vector<int64_t> gaps(const MatchScenario &scenario, int64_t heads,
                            int64_t group, int64_t most) const;

private:
  MatchPositions();

  int64_t seedOfAll = 0, mostDrawn = 1;
  std::vector<int64_t> uniform, groups, deviations;
  std::vector<bool> misses;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MATCHPOSITIONS_H
