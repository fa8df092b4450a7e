//===- Outcome.cpp - what tuning has found --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/Tuner.h"

#include <algorithm>
#include <cmath>

using namespace ladle::tune;

std::optional<Mode> ladle::tune::parseMode(const std::string &text) {
  static const std::map<std::string, Mode> modes{{"off", Mode::Off},
                                                 {"frozen", Mode::Frozen},
                                                 {"fill", Mode::Fill},
                                                 {"force", Mode::Force}};
  auto found = modes.find(text);
  return found == modes.end() ? std::nullopt : std::optional(found->second);
}

//===----------------------------------------------------------------------===//
// Trials
//===----------------------------------------------------------------------===//

static double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half]
                           : (values[half - 1] + values[half]) / 2;
}

double Trial::seconds() const { return medianOf(samples); }

double Trial::noise() const {
  double middle = seconds();
  std::vector<double> distances;
  for (double sample : samples)
    distances.push_back(std::abs(sample - middle));
  // 1.25 standard deviations of a mean, of which the median distance is 0.67.
  return 1.25 * medianOf(distances) / 0.6745 /
         std::sqrt(static_cast<double>(samples.size())) / middle;
}

const Trial *Outcome::find(const Candidate &candidate) const {
  for (const Trial &trial : trials)
    if (trial.candidate == candidate)
      return &trial;
  return nullptr;
}

std::vector<const Trial *> Outcome::ranking() const {
  std::vector<const Trial *> timed;
  for (const Trial &trial : trials)
    if (trial.isTimed())
      timed.push_back(&trial);
  std::sort(timed.begin(), timed.end(), [](const Trial *a, const Trial *b) {
    return std::pair(a->seconds(), a) < std::pair(b->seconds(), b);
  });
  return timed;
}

/// Ranks from 0; equal values share the mean of their ranks.
static std::vector<double> ranksOf(const std::vector<double> &values) {
  std::vector<double> ranks;
  for (double value : values) {
    double below = 0, equal = 0;
    for (double other : values) {
      below += other < value;
      equal += other == value;
    }
    ranks.push_back(below + (equal - 1) / 2);
  }
  return ranks;
}

std::optional<double> Outcome::rankCorrelation() const {
  std::vector<double> predicted, measured;
  for (const Trial *trial : ranking()) {
    predicted.push_back(trial->expected.predicted);
    measured.push_back(trial->seconds());
  }
  if (predicted.size() < 3)
    return std::nullopt;
  std::vector<double> a = ranksOf(predicted), b = ranksOf(measured);
  double mean = static_cast<double>(a.size() - 1) / 2, ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa == 0 || bb == 0)
    return std::nullopt;
  return ab / std::sqrt(aa * bb);
}
