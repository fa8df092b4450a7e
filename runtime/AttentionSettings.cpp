//===- AttentionSettings.cpp - the settings of layers, from a file --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"

#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace ladle;
using Json = nlohmann::json;

static Status wrong(const std::string &path, const std::string &why) {
  return Status(ErrorCode::InvalidData, fmt::format("{}: {}", path, why));
}

static AttentionSettings settingsOf(const Json &layer) {
  AttentionSettings settings;
  layer.at("tau").get_to(settings.tau);
  layer.at("window").get_to(settings.window);
  layer.at("band").get_to(settings.band);
  settings.sinks = layer.value("sinks", settings.sinks);
  settings.maxGap = layer.value("max_gap", settings.maxGap);
  settings.maxChain = layer.value("max_chain", settings.maxChain);
  settings.skip = layer.value("skip", settings.skip);
  settings.drift = layer.value("drift", settings.drift);
  settings.wideBand = layer.value("wide_band", settings.wideBand);
  settings.wideGap = layer.value("wide_gap", settings.wideGap);
  return settings;
}

Result<std::vector<AttentionSettings>>
ladle::readAttentionSettings(const std::string &path) {
  std::ifstream stream(path);
  if (!stream)
    return Status(ErrorCode::NotFound, fmt::format("cannot read '{}'", path));
  Json document = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    return wrong(path, "is no JSON");
  try {
    if (document.at("schema") != "ladle-mac-settings-1")
      return wrong(path, fmt::format("schema is {}, wanted "
                                     "\"ladle-mac-settings-1\"",
                                     document["schema"].dump()));
    std::map<int64_t, AttentionSettings> layers;
    for (const Json &layer : document.at("layers"))
      if (!layers.emplace(layer.at("layer").get<int64_t>(), settingsOf(layer))
               .second)
        return wrong(path, fmt::format("layer {} is there twice",
                                       layer["layer"].dump()));
    std::vector<AttentionSettings> result;
    for (const auto &[layer, settings] : layers) {
      if (layer != static_cast<int64_t>(result.size()))
        return wrong(path, fmt::format("has layer {}, but no layer {}", layer,
                                       result.size()));
      result.push_back(settings);
    }
    return result;
  } catch (const Json::exception &error) {
    return wrong(path, error.what());
  }
}
