//===- AttentionPlan.cpp - the cases of attentions ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/AttentionCheck.h"

#include <algorithm>

using namespace ladle;
using namespace ladle::check;
using interpreter::AttentionInterpreter;

Status check::copyByContents(AttentionPool &pool, int32_t from, int32_t to) {
  Result<AttentionContents> contents = pool.exportSlot(from);
  return contents ? pool.importSlot(to, *contents) : contents.status();
}

bool check::canMatch(const AttentionInterpreter &oracle) {
  return oracle.reuses() && oracle.numbers.tau < 1;
}

AttentionCase check::planOwn(const AttentionInterpreter &oracle,
                             uint64_t seed) {
  const interpreter::AttentionNumbers &numbers = oracle.numbers;
  AttentionCase one;
  one.pageSize = oracle.pageSize;
  one.seed = seed;
  one.prompt = 33;
  one.guesses = 3;
  one.forks = 7;
  if (!canMatch(oracle))
    return one;
  AttentionSettings &settings = one.settings;
  settings.tau = numbers.tau;
  settings.window = numbers.window;
  settings.band = numbers.band;
  settings.sinks = numbers.sinks;
  settings.maxGap = numbers.maxGap;
  settings.maxChain = numbers.maxChain;
  settings.skip = numbers.skip;
  settings.drift = numbers.drift.value_or(0);
  settings.wideBand = numbers.wideBand.value_or(0);
  settings.wideGap = numbers.wideGap.value_or(0);
  // What is left out lies before the band, and small windows wrap around.
  constexpr int64_t mostTokens = 400;
  int64_t near = std::max(settings.band, settings.wideBand) + settings.sinks;
  one.prompt =
      std::min(near + settings.skip + std::min<int64_t>(settings.window, 40),
               mostTokens);
  return one;
}

std::vector<AttentionCase> check::planAttention(bool reuses, bool hasWideBand,
                                                uint64_t seed) {
  struct Line {
    const char *type, *summaries;
    int64_t page, prompt;
    double tau;
    int64_t window, band, sinks, maxGap, maxChain, skip, guesses, forks;
  };
  // Each column's values once at least; windows that wrap around.
  static constexpr Line lines[] = {
      {"bf16", "f32", 16, 0, 0.3, 16, 4, 0, 0, 0, 0, 2, 4},
      {"f16", "bf16", 1, 20, 0.3, 8, 0, 0, 0, 2, 0, 5, 5},
      {"f32", "f32", 64, 7, 0.5, 24, 3, 2, 0, 0, 6, 0, 0},
      {"bf16", "f16", 16, 33, 0.2, 64, 8, 5, 9, 3, 0, 1, 9},
      {"f32", "f32", 1, 0, 1.0, 16, 4, 0, 0, 0, 0, 3, 0},
      {"f16", "f32", 64, 70, 0.0, 7, 1, 1, 0, 0, 0, 9, 6},
  };
  std::vector<AttentionCase> cases;
  for (const Line &line : lines) {
    AttentionCase one;
    one.type = line.type;
    one.summaryType = reuses ? line.summaries : "f32";
    one.pageSize = line.page;
    one.prompt = line.prompt;
    one.guesses = line.guesses;
    one.forks = line.forks;
    one.seed = seed++;
    one.threads = 1 + static_cast<int>(cases.size() % 2);
    one.batchInvariant = cases.size() % 2 == 1;
    if (reuses) {
      one.settings.tau = line.tau;
      one.settings.window = line.window;
      one.settings.band = line.band;
      one.settings.sinks = line.sinks;
      one.settings.maxGap = line.maxGap;
      one.settings.maxChain = line.maxChain;
      one.settings.skip = line.skip;
      if (hasWideBand) {
        one.settings.wideBand = 2 * line.band + 2;
        one.settings.wideGap = 3;
      }
    }
    cases.push_back(one);
  }
  return cases;
}
