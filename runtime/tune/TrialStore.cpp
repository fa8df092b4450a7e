//===- TrialStore.cpp - what was measured, on disk ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TrialStore.h"
#include "runtime/tune/ReplaceFile.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tune;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

static constexpr const char *kSchema = "ladle-trials-1";

static Json toJson(const Problem &problem) {
  Json json{{"schema", kSchema},
            {"device", problem.device},
            {"driver", problem.driver},
            {"shape", problem.shape},
            {"entry", problem.entryType},
            {"batch", problem.batch},
            {"fingerprint", problem.fingerprint}};
  if (problem.drafts) {
    json["drafts"] = problem.drafts;
    json["acceptance"] = problem.acceptance;
  }
  return json;
}

static Json toJson(const Trial &trial) {
  return {{"route", trial.candidate.route},
          {"m", trial.candidate.threshold},
          {"L", trial.candidate.capacity},
          {"schedule", trial.candidate.schedule},
          {"predicted", trial.expected.predicted},
          {"limit", trial.expected.limit},
          {"rejection", trial.rejection},
          {"samples", trial.samples}};
}

static Trial trialOf(const Json &json) {
  Trial trial;
  trial.candidate.route = json.at("route");
  trial.candidate.threshold = json.at("m");
  trial.candidate.capacity = json.value("L", int64_t(0));
  json.at("schedule").get_to(trial.candidate.schedule);
  trial.expected = {json.at("predicted"), json.at("limit")};
  trial.rejection = json.at("rejection");
  json.at("samples").get_to(trial.samples);
  return trial;
}

Result<TrialStore> TrialStore::open(const std::string &folder,
                                    const Problem &problem) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("cannot make the folder '{}': {}", folder,
                              error.message()));
  TrialStore store;
  store.problem = problem;
  store.file = (fs::path(folder) / (problem.fileName() + ".json")).string();
  std::ifstream stream(store.file);
  Json document = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object())
    return store;
  try {
    if (document.at("problem") == toJson(problem))
      for (const Json &entry : document.at("trials"))
        store.known.push_back(trialOf(entry));
  } catch (const Json::exception &) {
    // As if it had never been there.
    store.known.clear();
  }
  return store;
}

Status TrialStore::record(const Trial &trial) {
  auto isSame = [&](const Trial &old) {
    return old.candidate == trial.candidate;
  };
  auto found = std::find_if(known.begin(), known.end(), isSame);
  if (found == known.end())
    known.push_back(trial);
  else
    *found = trial;
  return save();
}

Status TrialStore::save() const {
  std::string text =
      "{\"problem\": " + toJson(problem).dump() + ",\n \"trials\": [";
  const char *separator = "\n  ";
  for (const Trial &trial : known) {
    text += separator + toJson(trial).dump();
    separator = ",\n  ";
  }
  return replaceFile(file, text + "\n]}\n");
}
