//===- BenchStore.cpp - figures of a benchmark in a file ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/BenchStore.h"
#include "runtime/tune/ReplaceFile.h"

#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

Json BenchKey::json() const {
  Json key = {{"file", file},   {"preset", preset}, {"sizes", sizes},
              {"route", route}, {"state", state},   {"entry", entry},
              {"m", threshold}, {"batch", batch},   {"schedule", schedule}};
  if (!recurrence.empty())
    key["recurrence"] = recurrence;
  if (!options.empty())
    key["options"] = options;
  if (layout != "dv_dk")
    key["layout"] = layout;
  if (drafts)
    key["drafts"] = drafts;
  if (startsEarly)
    key["started_early"] = true;
  if (capacity)
    key["capacity"] = capacity;
  return key;
}

std::string tool::today() {
  std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%d", std::gmtime(&now));
  return date;
}

Result<BenchStore> BenchStore::open(const std::string &path,
                                    const std::string &device,
                                    const std::string &schema) {
  BenchStore store;
  store.schema = schema;
  store.path = path;
  store.device = device;
  std::ifstream file(path);
  if (path.empty() || !file)
    return store;
  auto damaged = [&](const std::string &what) {
    return Status(
        ErrorCode::InvalidData,
        fmt::format("'{}' {}\nnote: give --json another file", path, what));
  };
  Json document = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("schema", "") != schema ||
      !document["runs"].is_array() || !document["results"].is_array())
    return damaged("holds no such figures of ladle bench");
  if (std::string other = document.value("device", ""); other != device)
    return damaged(
        fmt::format("holds figures of {}, and this is {}", other, device));
  for (Json &run : document["runs"])
    store.runs.push_back(std::move(run));
  for (Json &result : document["results"])
    store.results.push_back(std::move(result));
  return store;
}

static bool isOf(const Json &result, const Json &key) {
  for (const auto &[name, value] : key.items())
    if (!result.contains(name) || result[name] != value)
      return false;
  // Keys have it where it is not the default.
  auto isInBoth = [&](const char *name) {
    return result.contains(name) == key.contains(name);
  };
  return isInBoth("recurrence") && isInBoth("options") && isInBoth("layout") &&
         isInBoth("started_early") && isInBoth("capacity");
}

const Json *BenchStore::find(const BenchKey &key) const {
  Json wanted = key.json();
  for (const Json &result : results)
    if (isOf(result, wanted))
      return &result;
  return nullptr;
}

void BenchStore::beginRun(Json run) { runs.push_back(std::move(run)); }

Status BenchStore::add(const BenchKey &key, const Json &figures) {
  Json result = key.json();
  result["run"] = runs.size() - 1;
  result.update(figures);
  std::erase_if(results,
                [&](const Json &old) { return isOf(old, key.json()); });
  results.push_back(std::move(result));
  return save();
}

Status BenchStore::save() const {
  if (path.empty())
    return Status();
  auto lines = [](const std::vector<Json> &items) {
    std::string text;
    for (const Json &item : items)
      text += (text.empty() ? "\n  " : ",\n  ") + item.dump();
    return text + "\n ";
  };
  return tune::replaceFile(
      path, fmt::format("{{\n \"schema\": {},\n \"device\": {},\n \"runs\": "
                        "[{}],\n \"results\": [{}]\n}}\n",
                        Json(schema).dump(), Json(device).dump(), lines(runs),
                        lines(results)));
}
