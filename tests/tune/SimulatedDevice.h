//===- SimulatedDevice.h - a device that is a formula -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_TUNE_SIMULATEDDEVICE_H
#define LADLE_TESTS_TUNE_SIMULATEDDEVICE_H

#include "runtime/tune/Tuner.h"

#include <cmath>
#include <random>

namespace ladle::test {

using tune::Candidate;

/// Times are a function of the candidate, with noise: a part that is always
/// there, a few samples that something else has disturbed, a slow drift.
class SimulatedDevice : public tune::Measurer {
public:
  SimulatedDevice(std::function<double(const Candidate &)> truth, unsigned seed,
                  double noise)
      : truth(std::move(truth)), generator(seed), noise(noise) {}

  std::string prepare(const Candidate &candidate) override {
    ++prepared[candidate];
    return obstacle ? obstacle(candidate) : "";
  }
  std::string check(const Candidate &candidate) override {
    ++checked[candidate];
    return wrong ? wrong(candidate) : "";
  }
  Result<double> sample(const Candidate &candidate) override {
    if (failure && failure(candidate))
      return Status(ErrorCode::Internal, "an illegal address");
    ++sampled[candidate];
    double part = std::normal_distribution<double>(0, noise)(generator);
    bool isDisturbed =
        std::uniform_real_distribution<double>(0, 1)(generator) < 0.05;
    double drift = noise * std::sin(++total / 40.0);
    return truth(candidate) *
           (1 + part + drift + (isDisturbed ? 20 * noise : 0));
  }

  std::function<double(const Candidate &)> truth;
  std::function<std::string(const Candidate &)> obstacle, wrong;
  std::function<bool(const Candidate &)> failure;
  std::map<Candidate, int> prepared, checked, sampled;
  int total = 0;

private:
  std::mt19937 generator;
  double noise;
};

/// Two routes of which one has a best m, and two parameters of the schedule.
inline tune::Space makeSpace() {
  return {{{"recurrent", false}, {"inner", true}, {"outer", true}},
          {4, 8, 16, 32},
          {{"threads", {64, 128, 256}}, {"tile_rows", {0, 8, 16}}}};
}

inline Candidate makeDefault() {
  return {"recurrent", 1, {{"threads", 128}, {"tile_rows", 0}}};
}

/// Microseconds: 15 % between good and bad schedules, 40 % between routes. The
/// schedules of `seed` differ.
inline double truthOf(const Candidate &candidate, unsigned seed) {
  double time = 260;
  auto m = static_cast<double>(candidate.threshold);
  if (candidate.route == "inner")
    time = 120 + 200 / m + 1.4 * m;
  else if (candidate.route == "outer")
    time = 125 + 200 / m + 2.2 * m;
  unsigned hash = seed * 2654435761u;
  for (const auto &[name, value] : candidate.schedule)
    hash = (hash ^ static_cast<unsigned>(value)) * 16777619u;
  return 1e-6 * time * (1 + 0.15 * (hash >> 8) / double(1 << 24));
}

/// Knows routes and m within a tenth, and nothing of schedules.
inline tune::Expectation predict(const Candidate &candidate) {
  Candidate plain = candidate;
  plain.schedule.clear();
  double time = truthOf(plain, 0);
  return {time * (1 + 0.1 * std::sin(double(candidate.threshold))), 0.9 * time};
}

} // namespace ladle::test

#endif // LADLE_TESTS_TUNE_SIMULATEDDEVICE_H
