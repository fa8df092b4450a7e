//===- TuneReport.cpp - what tuning has found, as text --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/TuneReport.h"
#include "tools/ladle/Table.h"

#include <algorithm>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using tune::Outcome;
using tune::Trial;

/// The place that the model gave a trial among those that were timed, from 1.
static size_t predictedPlace(const std::vector<const Trial *> &timed,
                             const Trial *trial) {
  return 1 + std::count_if(timed.begin(), timed.end(), [&](const Trial *each) {
           return each->expected.predicted < trial->expected.predicted;
         });
}

static std::string describeBest(const Outcome &outcome) {
  std::vector<const Trial *> timed = outcome.ranking();
  Table table({"candidate", "a step", "of limit", "predicted", "place by model",
               "samples"});
  for (size_t i = 0; i < std::min<size_t>(5, timed.size()); ++i) {
    const Trial &trial = *timed[i];
    table.add(
        {trial.candidate.str(), formatTime(trial.seconds()),
         fmt::format("{:.1f} %", 100 * trial.expected.limit / trial.seconds()),
         formatTime(trial.expected.predicted),
         fmt::format("{} of {}", predictedPlace(timed, &trial), timed.size()),
         std::to_string(trial.samples.size())});
  }
  return table.str();
}

std::string tool::explainOutcome(const Outcome &outcome) {
  std::string text = describeBest(outcome);
  if (auto correlation = outcome.rankCorrelation())
    text += fmt::format("rank correlation of predicted and measured times: "
                        "{:.2f}\n",
                        *correlation);
  size_t untimed = 0;
  // In the fixed order, one line a reason.
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Trial &trial : outcome.trials) {
    untimed += trial.rejection.empty() && trial.samples.empty();
    if (trial.rejection.empty())
      continue;
    auto found =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto &each) {
          return each.first == trial.rejection;
        });
    if (found == reasons.end())
      found = reasons.insert(reasons.end(), {trial.rejection, {}});
    found->second.push_back(trial.candidate.str());
  }
  for (const auto &[reason, candidates] : reasons) {
    text += fmt::format("{} rejected: {}\n", candidates.size(), reason);
    for (const std::string &candidate : candidates)
      text += fmt::format("  {}\n", candidate);
  }
  if (untimed)
    text += fmt::format("{} were not timed: by the model they are slower\n",
                        untimed);
  return text;
}
