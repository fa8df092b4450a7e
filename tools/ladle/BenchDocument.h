//===- BenchDocument.h - figures that are written at the end ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_BENCHDOCUMENT_H
#define LADLE_TOOLS_LADLE_BENCHDOCUMENT_H

#include "tools/ladle/Bench.h"

#include <nlohmann/json.hpp>

namespace ladle::tool {

/// The file of a benchmark of a GPU that is not gone on with: what was run
/// where and when, and figures.
class BenchDocument {
public:
  BenchDocument(const BenchOptions &options, const measure::Gpu &gpu,
                const std::string &schema);

  /// What holds for all figures.
  nlohmann::ordered_json &operator[](const std::string &name) {
    return header[name];
  }
  /// A list.
  nlohmann::ordered_json &figures() { return list; }
  /// A figure and its samples, which are seconds, as `samples_us`.
  void add(nlohmann::ordered_json figure, const std::vector<double> &samples);
  /// Where --json says, if it does.
  Status write() const;

private:
  std::string path;
  nlohmann::ordered_json header, list = nlohmann::ordered_json::array();
};

/// What a command returns; prints why it failed, if it has.
int exitCodeOf(const Status &status);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_BENCHDOCUMENT_H
