//===- TunedTable.cpp - what was chosen, by shape and batch ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/TunedTable.h"
#include "runtime/tune/ReplaceFile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

using namespace ladle;
using namespace ladle::tune;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace ladle::tune {
// Written by Tables.cmake.
extern const char *const builtInTables[];
extern const size_t builtInTableCount;
} // namespace ladle::tune

static constexpr const char *kSchema = "ladle-tuned-1";

//===----------------------------------------------------------------------===//
// As text
//===----------------------------------------------------------------------===//

Result<TunedTable> TunedTable::parse(const std::string &text) {
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("schema", "") != kSchema)
    return Status(ErrorCode::InvalidData,
                  fmt::format("is no table of tuned choices: it lacks "
                              "\"schema\": \"{}\"",
                              kSchema));
  TunedTable table;
  try {
    for (const Json &entry : document.at("choices")) {
      TunedChoice choice;
      choice.device = entry.at("device");
      choice.shape = entry.at("shape");
      choice.entryType = entry.at("entry");
      choice.batch = entry.at("batch");
      choice.candidate.route = entry.at("route");
      choice.candidate.threshold = entry.at("m");
      entry.at("schedule").get_to(choice.candidate.schedule);
      choice.candidate.capacity = entry.value("L", int64_t(0));
      choice.drafts = entry.value("drafts", int64_t(0));
      choice.acceptance = entry.value("acceptance", 0.0);
      choice.seconds = entry.at("us").get<double>() * 1e-6;
      choice.limit = entry.at("limit_us").get<double>() * 1e-6;
      choice.date = entry.at("date");
      table.add(std::move(choice));
    }
  } catch (const Json::exception &error) {
    return Status(ErrorCode::InvalidData, error.what());
  }
  return table;
}

std::string TunedTable::str() const {
  std::string text =
      fmt::format("{{\"schema\": \"{}\",\n \"choices\": [", kSchema);
  const char *separator = "\n  ";
  auto microseconds = [](double seconds) {
    return std::round(seconds * 1e9) / 1e3;
  };
  for (const TunedChoice &choice : choices) {
    Json entry{{"device", choice.device},
               {"shape", choice.shape},
               {"entry", choice.entryType},
               {"batch", choice.batch},
               {"route", choice.candidate.route},
               {"m", choice.candidate.threshold},
               {"schedule", choice.candidate.schedule},
               {"us", microseconds(choice.seconds)},
               {"limit_us", microseconds(choice.limit)},
               {"date", choice.date}};
    if (choice.candidate.capacity)
      entry["L"] = choice.candidate.capacity;
    if (choice.drafts) {
      entry["drafts"] = choice.drafts;
      entry["acceptance"] = choice.acceptance;
    }
    text += separator + entry.dump();
    separator = ",\n  ";
  }
  return text + "\n]}\n";
}

const TunedTable &TunedTable::builtIn() {
  static const TunedTable table = [] {
    TunedTable all;
    for (size_t i = 0; i < builtInTableCount; ++i)
      if (Result<TunedTable> each = parse(builtInTables[i]))
        all.add(*each);
    return all;
  }();
  return table;
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

static auto sortKey(const TunedChoice &choice) {
  return std::tie(choice.device, choice.shape, choice.entryType, choice.drafts,
                  choice.batch);
}

void TunedTable::add(TunedChoice choice) {
  auto at = std::lower_bound(choices.begin(), choices.end(), choice,
                             [](const TunedChoice &a, const TunedChoice &b) {
                               return sortKey(a) < sortKey(b);
                             });
  if (at != choices.end() && sortKey(*at) == sortKey(choice))
    *at = std::move(choice);
  else
    choices.insert(at, std::move(choice));
}

void TunedTable::add(const TunedTable &other) {
  for (const TunedChoice &choice : other.choices)
    add(choice);
}

std::optional<TunedChoice> TunedTable::lookup(const std::string &device,
                                              const std::string &shape,
                                              const std::string &entryType,
                                              int64_t batch,
                                              int64_t drafts) const {
  const TunedChoice *best = nullptr;
  int64_t largest = 0;
  double distance = 0;
  for (const TunedChoice &choice : choices) {
    if (choice.device != device || choice.shape != shape ||
        choice.entryType != entryType || choice.drafts != drafts)
      continue;
    largest = std::max(largest, choice.batch);
    double apart = std::abs(std::log2(static_cast<double>(batch)) -
                            std::log2(static_cast<double>(choice.batch)));
    if (!best || apart < distance) {
      best = &choice;
      distance = apart;
    }
  }
  constexpr int64_t full = 64;
  bool isBeyond = batch > largest && largest >= full;
  if (!best || (distance > 2 && !isBeyond))
    return std::nullopt;
  return *best;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

std::string tune::defaultTuneFolder() {
  auto get = [](const char *name) -> std::string {
    const char *value = std::getenv(name);
    return value ? value : "";
  };
  if (std::string folder = get("LADLE_TUNE_DIR"); !folder.empty())
    return folder;
  if (std::string cache = get("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/ladle/tune";
  if (std::string home = get("HOME"); !home.empty())
    return home + "/.cache/ladle/tune";
  return "";
}

std::string tune::userTable(const std::string &folder) {
  return (fs::path(folder) / "choices.json").string();
}

static Result<TunedTable> readTable(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    return TunedTable();
  std::stringstream text;
  text << file.rdbuf();
  Result<TunedTable> table = TunedTable::parse(text.str());
  if (!table)
    return Status(ErrorCode::InvalidData,
                  fmt::format("'{}' {}", path, table.message()));
  return table;
}

std::optional<TunedChoice> tune::lookupTuned(const std::string &device,
                                             const Signature &signature,
                                             const std::string &entryType,
                                             int64_t batch, int64_t drafts) {
  return lookupTuned(device, describe(signature), entryType, batch, drafts);
}

std::optional<TunedChoice> tune::lookupTuned(const std::string &device,
                                             const std::string &shape,
                                             const std::string &entryType,
                                             int64_t batch, int64_t drafts) {
  std::string folder = defaultTuneFolder();
  if (!folder.empty())
    if (Result<TunedTable> mine = readTable(userTable(folder)))
      if (auto choice = mine->lookup(device, shape, entryType, batch, drafts))
        return choice;
  return TunedTable::builtIn().lookup(device, shape, entryType, batch, drafts);
}

Status tune::addToTable(const std::string &path, const TunedChoice &choice) {
  Result<TunedTable> table = readTable(path);
  if (!table)
    return table.status();
  table->add(choice);
  std::error_code error;
  if (fs::path folder = fs::path(path).parent_path(); !folder.empty())
    fs::create_directories(folder, error);
  return replaceFile(path, table->str());
}
