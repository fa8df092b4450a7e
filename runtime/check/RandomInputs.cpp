//===- RandomInputs.cpp - inputs in the regime of a model -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/RandomInputs.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <random>

using namespace ladle::check;
using ladle::interpreter::ValueInfo;

static std::optional<double> parseNumber(std::string_view text) {
  double value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<InputRange> InputRange::parse(std::string_view text) {
  if (text == "normal")
    return InputRange{Kind::Normal};
  if (text == "unit")
    return InputRange{Kind::Unit};
  size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return std::nullopt;
  std::optional<double> low = parseNumber(text.substr(0, colon));
  std::optional<double> high = parseNumber(text.substr(colon + 1));
  if (!low || !high || *low >= *high)
    return std::nullopt;
  return InputRange{Kind::Uniform, *low, *high};
}

std::string InputRange::str() const {
  switch (kind) {
  case Kind::Normal:
    return "normal";
  case Kind::Unit:
    return "unit";
  case Kind::Uniform:
    break;
  }
  return fmt::format("{}:{}", low, high);
}

const InputRanges &ladle::check::defaultRanges() {
  auto uniform = [](double low, double high) {
    return InputRange{InputRange::Kind::Uniform, low, high};
  };
  const InputRange unit{InputRange::Kind::Unit};
  const InputRange gain = uniform(0.5, 1.5);
  static const InputRanges ranges = {
      {"q", unit},
      {"k", unit},
      {"r", unit},
      {"kk", unit},
      // Mamba's initialisation: A in [1, 16], steps of 0.001 to 0.1.
      {"A_log", uniform(0, 2.7)},
      {"dt_bias", uniform(-5, 0)},
      {"g", uniform(-3, 0)},
      {"beta", uniform(0, 1)},
      {"gamma", uniform(0.9, 0.999)},
      {"slope", uniform(0.004, 0.9)},
      // RWKV's log of the log of the decay.
      {"w", uniform(-6, 1)},
      {"k_k", uniform(0.5, 1)},
      {"k_a", uniform(0, 1.1)},
      {"r_k", uniform(-0.5, 0.5)},
      {"D", gain},
      {"norm", gain},
      {"norm_w", gain},
      {"norm_b", uniform(-0.2, 0.2)},
      {"B_norm", gain},
      {"C_norm", gain},
      {"B_bias", gain},
      {"C_bias", gain},
      {"conv_q", uniform(-0.5, 0.5)},
      {"conv_k", uniform(-0.5, 0.5)},
      {"conv_v", uniform(-0.5, 0.5)},
  };
  return ranges;
}

InputRange RandomInputs::rangeOf(std::string_view name) const {
  for (const InputRanges *ranges : {&overrides, &defaultRanges()})
    if (auto it = ranges->find(name); it != ranges->end())
      return it->second;
  return {};
}

static std::vector<double> drawOne(const ValueInfo &info, InputRange range,
                                   std::mt19937_64 &random) {
  std::vector<double> values(info.size());
  if (range.kind == InputRange::Kind::Uniform) {
    std::uniform_real_distribution<double> uniform(range.low, range.high);
    for (double &value : values)
      value = uniform(random);
    return values;
  }
  std::normal_distribution<double> normal;
  for (double &value : values)
    value = normal(random);
  if (range.kind == InputRange::Kind::Unit) {
    size_t length = info.shape.back();
    for (size_t first = 0; first < values.size(); first += length) {
      double squares = 0;
      for (size_t i = first; i < first + length; ++i)
        squares += values[i] * values[i];
      for (size_t i = first; i < first + length; ++i)
        values[i] /= std::sqrt(squares);
    }
  }
  return values;
}

std::vector<std::vector<double>>
RandomInputs::draw(llvm::ArrayRef<ValueInfo> infos, uint64_t sequence,
                   uint64_t position) const {
  // seed_seq takes 32 bits of each number.
  std::seed_seq sources{seed,     seed >> 32,     sequence,
                        position, position >> 32, sequence >> 32};
  std::mt19937_64 random(sources);
  std::vector<std::vector<double>> arrays;
  for (const ValueInfo &info : infos) {
    arrays.push_back(drawOne(info, rangeOf(info.name), random));
    interpreter::roundTo(arrays.back(), info.precision);
  }
  return arrays;
}
