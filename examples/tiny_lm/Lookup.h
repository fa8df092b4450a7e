//===- Lookup.h - drafts that the text itself suggests -------- -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prompt lookup: what followed the last few bytes when they stood in the text
// before may follow them again.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_EXAMPLES_TINY_LM_LOOKUP_H
#define LADLE_EXAMPLES_TINY_LM_LOOKUP_H

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tinylm {

struct LookupOptions {
  int64_t longest = 4, shortest = 3; ///< bytes that have to be found again
  int64_t places = 32; ///< the last of them that a tree is made of
  /// How often a byte that follows all places is the next one: the less, the
  /// wider trees become.
  double agreement = 0.8;
};

/// Candidates for what comes next: drafts[i] follows drafts[parents[i]], or
/// the text, if parents[i] is −1. Parents come first.
struct Candidates {
  std::vector<uint8_t> drafts;
  std::vector<int32_t> parents;
};

/// What followed the last place that the end of the text is like: a chain of
/// `most` drafts, or of none. It may run on into itself, as in a loop.
Candidates lookUpChain(std::span<const uint8_t> text, int64_t most,
                       const LookupOptions &options = {});

/// What followed the last places, merged where they agree: of the tree of all,
/// the `most` drafts that the places make likeliest.
Candidates lookUpTree(std::span<const uint8_t> text, int64_t most,
                      const LookupOptions &options = {});

} // namespace tinylm

#endif // LADLE_EXAMPLES_TINY_LM_LOOKUP_H
