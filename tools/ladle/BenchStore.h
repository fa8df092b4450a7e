//===- BenchStore.h - figures of a benchmark in a file ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_BENCHSTORE_H
#define LADLE_TOOLS_LADLE_BENCHSTORE_H

#include "ladle/status.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ladle::tool {

/// What names a figure: what was compiled, and for what it was timed.
struct BenchKey {
  std::string file, recurrence, preset; ///< empty: the first
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> options;
  std::string route, state, entry;
  int64_t threshold = 1, batch = 1;
  std::map<std::string, int64_t> schedule;
  std::string layout = "dv_dk"; ///< of states
  int64_t drafts = 0;           ///< of a row, in steps that verify
  bool startsEarly = false;     ///< before steps of other layers have ended
  int64_t capacity = 0; ///< of rings, if that is more than m and drafts ask for

  nlohmann::ordered_json json() const;
  std::string str() const { return json().dump(); }
};

/// Results are written as soon as they are there, so that a run that was cut
/// short goes on where it stopped. One run and one result a line.
class BenchStore {
public:
  /// `path` may be empty: nothing is kept. InvalidData if the file holds
  /// something else, or figures of another device.
  static Result<BenchStore> open(const std::string &path,
                                 const std::string &device,
                                 const std::string &schema = "ladle-bench-1");

  const nlohmann::ordered_json *find(const BenchKey &key) const;
  /// Starts a run: the date, the command, what the device gave.
  void beginRun(nlohmann::ordered_json run);
  void updateRun(nlohmann::ordered_json run) { runs.back() = std::move(run); }
  /// Puts `figures` under `key`, in place of older ones, and saves.
  Status add(const BenchKey &key, const nlohmann::ordered_json &figures);
  Status save() const;

private:
  std::string path, device, schema;
  std::vector<nlohmann::ordered_json> runs, results;
};

/// "2026-11-21".
std::string today();

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_BENCHSTORE_H
