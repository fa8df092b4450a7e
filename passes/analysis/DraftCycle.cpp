//===- DraftCycle.cpp - steps of drafts from one fold to the next ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/DraftCycle.h"

#include <cmath>

using namespace ladle;

std::vector<DraftStep> ladle::draftCycle(int64_t drafts, int64_t accepted,
                                         int64_t threshold) {
  if (accepted == 0)
    return {DraftStep(0, drafts, threshold)};
  std::vector<DraftStep> cycle;
  int64_t fill = accepted;
  do {
    cycle.emplace_back(fill, drafts, threshold);
    fill = (cycle.back().folds ? 0 : fill) + accepted;
  } while (!cycle.back().folds);
  return cycle;
}

double ladle::meanOfCycle(int64_t drafts, double accepted, int64_t threshold,
                          const std::function<double(const DraftStep &)> &of) {
  auto mean = [&](int64_t whole) {
    std::vector<DraftStep> cycle = draftCycle(drafts, whole, threshold);
    double sum = 0;
    for (const DraftStep &step : cycle)
      sum += of(step);
    return sum / static_cast<double>(cycle.size());
  };
  double whole = std::floor(accepted), part = accepted - whole;
  double result = mean(static_cast<int64_t>(whole));
  if (part > 0)
    result += part * (mean(static_cast<int64_t>(whole) + 1) - result);
  return result;
}
