//===- Candidate.cpp - a way to run a recurrence --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/Candidate.h"

#include <fmt/format.h>
#include <iterator>

using namespace ladle::tune;

std::string Candidate::str() const {
  std::string text = route;
  if (threshold > 1)
    text += fmt::format(" m={}", threshold);
  if (capacity > 0)
    text += fmt::format(" L={}", capacity);
  for (const auto &[name, value] : schedule)
    if (value != 0)
      text += fmt::format(" {}={}", name, value);
  return text;
}

std::vector<Candidate> Space::enumerate() const {
  std::vector<std::map<std::string, int64_t>> schedules{{}};
  for (const Parameter &parameter : parameters) {
    std::vector<std::map<std::string, int64_t>> longer;
    for (const auto &schedule : schedules)
      for (int64_t value : parameter.values) {
        longer.push_back(schedule);
        longer.back()[parameter.name] = value;
      }
    schedules = std::move(longer);
  }
  std::vector<Candidate> all;
  for (const RouteChoice &choice : routes) {
    std::vector<int64_t> sizes =
        choice.buffers ? thresholds : std::vector<int64_t>{1};
    for (int64_t threshold : sizes) {
      int64_t least = leastCapacity(threshold, drafts);
      std::vector<int64_t> rings{0};
      if (choice.buffers)
        std::copy_if(capacities.begin(), capacities.end(),
                     std::back_inserter(rings), [&](int64_t capacity) {
                       return capacity > least && capacity < 2 * least;
                     });
      for (int64_t capacity : rings)
        for (const auto &schedule : schedules)
          all.push_back({choice.route, threshold, schedule, capacity});
    }
  }
  return all;
}

std::vector<Candidate> Space::neighbours(const Candidate &candidate,
                                         const std::vector<Candidate> &all) {
  std::vector<Candidate> found;
  for (const Candidate &other : all) {
    if (other.route != candidate.route)
      continue;
    int differences = (other.threshold != candidate.threshold) +
                      (other.capacity != candidate.capacity);
    for (const auto &[name, value] : other.schedule) {
      auto mine = candidate.schedule.find(name);
      differences += mine == candidate.schedule.end() || mine->second != value;
    }
    if (differences == 1)
      found.push_back(other);
  }
  return found;
}
