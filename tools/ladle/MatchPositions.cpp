//===- MatchPositions.cpp - where heads match in a benchmark --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/MatchPositions.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace ladle::tool;

std::string MatchScenario::gapsName() const {
  switch (gaps) {
  case Gaps::Uniform:
    return "uniform";
  case Gaps::Grouped:
    return "grouped";
  case Gaps::Same:
    return std::to_string(gap);
  case Gaps::None:
    return "none";
  }
  return "none";
}

const MatchPositions &MatchPositions::committed() {
  static const MatchPositions positions;
  return positions;
}

MatchPositions::MatchPositions() {
  auto document = nlohmann::json::parse(macGapsText());
  document.at("seed").get_to(seedOfAll);
  document.at("most").get_to(mostDrawn);
  document.at("uniform").get_to(uniform);
  document.at("groups").get_to(groups);
  document.at("deviations").get_to(deviations);
  misses.resize(uniform.size());
  for (const auto &miss : document.at("misses"))
    misses.at(miss.get<size_t>()) = true;
}

std::vector<int64_t> MatchPositions::gaps(const MatchScenario &scenario,
                                          int64_t heads, int64_t group,
                                          int64_t most) const {
  std::vector<int64_t> result(static_cast<size_t>(heads));
  if (most < 1 || scenario.gaps == MatchScenario::Gaps::None)
    return result;
  auto scaled = [&](int64_t drawn) {
    return most < mostDrawn ? 1 + (drawn - 1) * most / mostDrawn : drawn;
  };
  for (size_t head = 0; head < result.size(); ++head) {
    size_t at = head % uniform.size();
    if (scenario.hasMisses && misses[at])
      continue;
    size_t ofGroup = head / static_cast<size_t>(group) % groups.size();
    switch (scenario.gaps) {
    case MatchScenario::Gaps::Uniform:
      result[head] = scaled(uniform[at]);
      break;
    case MatchScenario::Gaps::Grouped:
      result[head] = scaled(
          std::clamp<int64_t>(groups[ofGroup] + deviations[at], 1, mostDrawn));
      break;
    case MatchScenario::Gaps::Same:
      result[head] = std::min(scenario.gap, most);
      break;
    case MatchScenario::Gaps::None:
      break;
    }
  }
  return result;
}
