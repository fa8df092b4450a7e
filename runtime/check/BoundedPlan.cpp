//===- BoundedPlan.cpp - the cases of bounded caches ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/BoundedCheck.h"

#include <algorithm>

using namespace ladle;
using namespace ladle::check;

/// With the numbers of the file: that begins with a prompt, and from nothing.
static std::vector<BoundedCase>
planOwnSegments(const interpreter::SegmentNumbers &numbers) {
  constexpr int64_t longSegment = 64, longestPrompt = 4096;
  bool isLong = numbers.segment > longSegment;
  int64_t fold = numbers.sinks + numbers.window + numbers.segment;
  BoundedCase prompted;
  prompted.segments = {numbers.sinks, numbers.window, numbers.segment};
  BoundedCase empty = prompted;
  // Of five steps one drops a token. The second slot is one token ahead.
  prompted.prompt = std::min(isLong ? fold - 2 : fold + 1, longestPrompt);
  prompted.tokens = isLong ? 20 : numbers.segment * 5 / 4 + 20;
  prompted.later = 5;
  empty.tokens = isLong || fold > 2 * longSegment ? 20 : fold * 5 / 4 + 20;
  return {prompted, empty};
}

std::vector<BoundedCase>
check::planSegments(const interpreter::SegmentNumbers &numbers, uint64_t seed) {
  struct Line {
    const char *type;
    SegmentSettings segments;
    int64_t prompt, later;
  };
  static constexpr Line lines[] = {
      {"bf16", {4, 8, 16}, 0, 0},  {"f16", {4, 8, 16}, 37, 21},
      {"f32", {0, 8, 16}, 24, 0},  {"bf16", {4, 0, 16}, 36, 5},
      {"f32", {0, 0, 7}, 21, 14},  {"f16", {3, 5, 1}, 9, 2},
      {"f32", {0, 0, 1}, 0, 4},    {"bf16", {20, 3, 33}, 70, 40},
      {"f32", {1, 40, 5}, 100, 1}, {"bf16", {2, 1, 500}, 30, 30},
  };
  std::vector<BoundedCase> cases;
  for (const Line &line : lines) {
    BoundedCase one;
    one.type = line.type;
    one.segments = line.segments;
    one.prompt = line.prompt;
    one.later = line.later;
    one.seed = seed++;
    one.threads = 1 + static_cast<int>(cases.size() % 2);
    one.forks = cases.size() % 2 == 0;
    cases.push_back(one);
  }
  std::vector<BoundedCase> own = planOwnSegments(numbers);
  for (BoundedCase &one : own)
    one.seed = seed++;
  cases.insert(cases.begin(), own.begin(), own.end());
  return cases;
}

std::vector<BoundedCase>
check::planEviction(const interpreter::EvictionNumbers &numbers,
                    uint64_t seed) {
  int64_t budget = numbers.budget, least = numbers.sinks + numbers.recent;
  int64_t middle = (budget + least) / 2;
  struct Line {
    const char *type;
    int64_t prompt, later, lowered;
  };
  const Line lines[] = {
      {"f32", budget + 29, 0, 0},      {"bf16", budget - 20, 17, 0},
      {"f16", budget + 5, 40, middle}, {"bf16", 2 * budget + 1, 1, least},
      {"f32", budget, 2, middle},      {"bf16", 0, 3, 0},
  };
  std::vector<BoundedCase> cases;
  for (const Line &line : lines) {
    BoundedCase one;
    one.type = line.type;
    one.prompt = std::max<int64_t>(line.prompt, 0);
    one.later = line.later;
    one.lowered = line.lowered;
    one.seed = seed++;
    one.threads = 1 + static_cast<int>(cases.size() % 2);
    one.forks = cases.size() % 2 == 0;
    cases.push_back(one);
  }
  return cases;
}
