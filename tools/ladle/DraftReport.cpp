//===- DraftReport.cpp - figures of steps that verify, as text ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/DraftReport.h"
#include "tools/ladle/Table.h"

#include <algorithm>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

double DraftBand::secondsAt(double accepted) const {
  auto above = std::find_if(seconds.begin(), seconds.end(), [&](auto &each) {
    return static_cast<double>(each.first) >= accepted;
  });
  if (above == seconds.end())
    return seconds.rbegin()->second;
  if (above == seconds.begin())
    return above->second;
  auto below = std::prev(above);
  auto from = static_cast<double>(below->first);
  double part = (accepted - from) / (static_cast<double>(above->first) - from);
  return below->second + part * (above->second - below->second);
}

double DraftBand::expectedAccepted(double probability) const {
  double all = 0, each = 1;
  for (int64_t draft = 0; draft < drafts; ++draft)
    all += each *= probability;
  return all;
}

void DraftReport::add(const Json &result, const SequenceMemory &memory) {
  if (lines.empty())
    fmt::print(
        "\n{:>8} {:>6} {:>7} {:>3} {:>6} {:>3} {:>6} {:>22} {:>11} {:>11} "
        "{:>8}\n",
        "route", "states", "entries", "m", "batch", "T", "drafts", "what",
        "a step", "limit", "of limit");
  Line line{result, memory, {result["drafts"].get<int64_t>(), {}}};
  for (const Json &figure : result["figures"]) {
    double seconds = 1e-6 * figure["us_a_step"].get<double>();
    std::string what;
    if (figure.contains("accepted")) {
      auto accepted = figure["accepted"].get<int64_t>();
      what = fmt::format("cycle, {} accepted", accepted);
      if (figure["tree"] == "chain")
        line.chain.seconds[accepted] = seconds;
    } else {
      what = fmt::format("{}, h = {}",
                         figure["folds"].get<bool>() ? "verify and fold"
                                                     : "verify",
                         figure["h"].get<int64_t>());
    }
    fmt::print("{:>8} {:>6} {:>7} {:>3} {:>6} {:>3} {:>6} {:>22} {:>11} {:>11} "
               "{:>6.1f} %\n",
               result["route"].get<std::string>(),
               result["state"].get<std::string>(),
               result["entry"].get<std::string>(), result["m"].get<int64_t>(),
               result["batch"].get<int64_t>(), line.chain.drafts,
               figure["tree"].get<std::string>(), what, formatTime(seconds),
               formatTime(1e-6 * figure["limit_us"].get<double>()),
               100 * figure["of_limit"].get<double>());
  }
  lines.push_back(std::move(line));
}

void DraftReport::summarise(int64_t layers, double budget) const {
  if (lines.empty())
    return;
  layers = std::max<int64_t>(layers, 1);
  constexpr double probabilities[] = {0.5, 0.7, 0.9};
  fmt::print(
      "\ntokens a second and row through a layer: a step of a chain gives "
      "what is accepted and\none more; by percents, each draft is "
      "accepted so often after those before it\n");
  std::vector<std::string> headings{"route", "states", "entries", "m",
                                    "batch", "T",      "none"};
  for (double probability : probabilities)
    headings.push_back(fmt::format("{:.0f} %", 100 * probability));
  headings.emplace_back("all");
  if (budget > 0)
    headings.insert(headings.end(), {"a request", "a state a draft",
                                     fmt::format("in {}", formatBytes(budget)),
                                     "with a state a draft", "gain"});
  Table table(headings);
  for (const Line &line : lines) {
    const DraftBand &band = line.chain;
    auto rate = [&](double accepted) {
      return fmt::format("{:.0f}", band.tokensAt(accepted));
    };
    std::vector<std::string> cells{
        line.result["route"].get<std::string>(),
        line.result["state"].get<std::string>(),
        line.result["entry"].get<std::string>(),
        std::to_string(line.result["m"].get<int64_t>()),
        std::to_string(line.result["batch"].get<int64_t>()),
        std::to_string(band.drafts),
        rate(0)};
    for (double probability : probabilities)
      cells.push_back(rate(band.expectedAccepted(probability)));
    cells.push_back(rate(static_cast<double>(band.drafts)));
    if (budget > 0) {
      double bytes = line.memory.bytes(layers);
      double states = line.memory.bytesOfStates(layers);
      cells.push_back(formatBytes(bytes));
      cells.push_back(formatBytes(states));
      for (double each : {bytes, states})
        cells.push_back(std::to_string(SequenceMemory::countIn(budget, each)));
      cells.push_back(fmt::format("{:.2f}", line.memory.gain(layers)));
    }
    table.add(std::move(cells));
  }
  fmt::print("{}", table.str());
  if (budget > 0)
    fmt::print(
        "a request has {} layers (--layers); with a state a draft it keeps "
        "T + 1 states in each\n",
        layers);
}
