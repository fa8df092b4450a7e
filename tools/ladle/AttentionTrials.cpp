//===- AttentionTrials.cpp - what was measured of an attention ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/AttentionTrials.h"
#include "runtime/tune/Problem.h"
#include "runtime/tune/ReplaceFile.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

static constexpr const char *kSchema = "ladle-attention-trials-1";

std::string AttentionCandidate::str() const {
  if (isExact())
    return "exact";
  std::string text = fmt::format("tau={} window={} band={}", tau, window, band);
  if (maxChain)
    text += fmt::format(" max_chain={}", maxChain);
  return text;
}

AttentionSettings AttentionCandidate::in(AttentionSettings settings) const {
  settings.tau = tau;
  settings.window = window;
  settings.band = band;
  settings.maxChain = maxChain;
  return settings;
}

static Json toJson(const AttentionTrial &trial) {
  return {{"tau", trial.candidate.tau},
          {"window", trial.candidate.window},
          {"band", trial.candidate.band},
          {"max_chain", trial.candidate.maxChain},
          {"error", trial.error},
          {"cut_short", trial.isCutShort},
          {"bytes", trial.bytes},
          {"exact_bytes", trial.exactBytes},
          {"hits", trial.hits}};
}

static AttentionTrial trialOf(const Json &json) {
  AttentionTrial trial;
  trial.candidate = {json.at("tau"), json.at("window"), json.at("band"),
                     json.at("max_chain")};
  json.at("error").get_to(trial.error);
  json.at("cut_short").get_to(trial.isCutShort);
  json.at("bytes").get_to(trial.bytes);
  json.at("exact_bytes").get_to(trial.exactBytes);
  json.at("hits").get_to(trial.hits);
  return trial;
}

Result<AttentionTrials> AttentionTrials::open(const std::string &folder,
                                              const std::string &name,
                                              const std::string &problem) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("cannot make the folder '{}': {}", folder,
                              error.message()));
  AttentionTrials trials;
  trials.problem = problem;
  trials.path = (fs::path(folder) / fmt::format("attention-{}-{}.json", name,
                                                tune::fingerprintOf(problem)))
                    .string();
  std::ifstream stream(trials.path);
  Json document = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object())
    return trials;
  try {
    if (document.at("schema") == kSchema && document.at("problem") == problem)
      for (const Json &trial : document.at("trials"))
        trials.known.push_back(trialOf(trial));
  } catch (const Json::exception &) {
    // As if it had never been there.
    trials.known.clear();
  }
  return trials;
}

const AttentionTrial *
AttentionTrials::find(const AttentionCandidate &candidate) const {
  for (const AttentionTrial &trial : known)
    if (trial.candidate == candidate)
      return &trial;
  return nullptr;
}

Status AttentionTrials::record(const AttentionTrial &trial) {
  auto isSame = [&](const AttentionTrial &old) {
    return old.candidate == trial.candidate;
  };
  auto found = std::find_if(known.begin(), known.end(), isSame);
  if (found == known.end())
    known.push_back(trial);
  else
    *found = trial;
  std::string text = "{\"schema\": " + Json(kSchema).dump() +
                     ", \"problem\": " + Json(problem).dump() +
                     ",\n \"trials\": [";
  const char *separator = "\n  ";
  for (const AttentionTrial &each : known) {
    text += separator + toJson(each).dump();
    separator = ",\n  ";
  }
  return tune::replaceFile(path, text + "\n]}\n");
}
