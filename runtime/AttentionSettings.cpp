//===- AttentionSettings.cpp - the settings of layers, from a file --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

using namespace ladle;
using Json = nlohmann::json;

static Status wrong(const std::string &path, const std::string &why) {
  return Status(ErrorCode::InvalidData, fmt::format("{}: {}", path, why));
}

namespace {
struct Key {
  const char *name;
  std::variant<double AttentionSettings::*, int64_t AttentionSettings::*>
      member;
  bool isNeeded = false;
};
} // namespace

static const std::vector<Key> &keys() {
  static const std::vector<Key> all = {
      {"tau", &AttentionSettings::tau, true},
      {"window", &AttentionSettings::window, true},
      {"band", &AttentionSettings::band, true},
      {"sinks", &AttentionSettings::sinks},
      {"max_gap", &AttentionSettings::maxGap},
      {"max_chain", &AttentionSettings::maxChain},
      {"skip", &AttentionSettings::skip},
      {"drift", &AttentionSettings::drift},
      {"wide_band", &AttentionSettings::wideBand},
      {"wide_gap", &AttentionSettings::wideGap},
  };
  return all;
}

static std::string knownKeys() {
  std::string all;
  for (const Key &key : keys())
    all += fmt::format("{}{}", all.empty() ? "" : ", ", key.name);
  return all;
}

/// What is wrong with a layer, or nothing.
static std::string read(const Json &layer, AttentionSettings &settings) {
  for (const Key &key : keys()) {
    auto value = layer.find(key.name);
    if (value == layer.end()) {
      if (key.isNeeded)
        return fmt::format("has no '{}'", key.name);
      continue;
    }
    if (const auto *share =
            std::get_if<double AttentionSettings::*>(&key.member)) {
      double given = value->is_number() ? value->get<double>() : -1;
      if (!(given >= 0 && given <= 1))
        return fmt::format("has {} as '{}', wanted a number from 0 to 1",
                           value->dump(), key.name);
      settings.**share = given;
    } else {
      if (!value->is_number_integer() || value->get<int64_t>() < 0)
        return fmt::format("has {} as '{}', wanted an integer from 0 on",
                           value->dump(), key.name);
      settings.*std::get<int64_t AttentionSettings::*>(key.member) =
          value->get<int64_t>();
    }
  }
  // What the tuner measured stands beside what it chose.
  const std::set<std::string> others = {"layer", "error", "hits", "bytes"};
  for (const auto &[name, value] : layer.items())
    if (!others.count(name) &&
        std::none_of(keys().begin(), keys().end(),
                     [&](const Key &key) { return key.name == name; }))
      return fmt::format("has '{}', which nobody reads\nnote: the keys are {}",
                         name, knownKeys());
  return "";
}

Result<std::vector<AttentionSettings>>
ladle::readAttentionSettings(const std::string &path) {
  std::ifstream stream(path);
  if (!stream)
    return Status(ErrorCode::NotFound, fmt::format("cannot read '{}'", path));
  Json document = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object())
    return wrong(path, "is no JSON object");
  const std::string schema = "ladle-mac-settings-1";
  if (document["schema"] != schema)
    return wrong(path, fmt::format("schema is {}, wanted \"{}\"",
                                   document["schema"].dump(), schema));
  const Json &given = document["layers"];
  if (!given.is_array() || given.empty())
    return wrong(path, "has no layers\nnote: \"layers\" is an array with an "
                       "object for each");
  std::map<int64_t, AttentionSettings> layers;
  for (const Json &layer : given) {
    auto number = layer.find("layer");
    if (!layer.is_object() || number == layer.end() ||
        !number->is_number_integer())
      return wrong(path, fmt::format("a layer is {}, wanted an object with its "
                                     "number as 'layer'",
                                     layer.dump()));
    AttentionSettings settings;
    if (std::string why = read(layer, settings); !why.empty())
      return wrong(path, fmt::format("layer {} {}", number->dump(), why));
    if (!layers.emplace(number->get<int64_t>(), settings).second)
      return wrong(path,
                   fmt::format("layer {} is there twice", number->dump()));
  }
  std::vector<AttentionSettings> result;
  for (const auto &[layer, settings] : layers) {
    if (layer != static_cast<int64_t>(result.size()))
      return wrong(path, fmt::format("has layer {}, but no layer {}", layer,
                                     result.size()));
    result.push_back(settings);
  }
  return result;
}
