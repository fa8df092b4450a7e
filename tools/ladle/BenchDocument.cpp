//===- BenchDocument.cpp - figures that are written at the end ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/BenchDocument.h"
#include "runtime/tune/ReplaceFile.h"
#include "tools/ladle/BenchStore.h"
#include "tools/ladle/Errors.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

BenchDocument::BenchDocument(const BenchOptions &options,
                             const measure::Gpu &gpu, const std::string &schema)
    : path(options.json), header{{"schema", schema},
                                 {"device", gpu.device().name()},
                                 {"driver", gpu.driver()},
                                 {"date", today()},
                                 {"command", options.commandLine},
                                 {"file", options.source.file},
                                 {"preset", options.source.preset}} {}

void BenchDocument::add(Json figure, const std::vector<double> &samples) {
  for (double each : samples)
    figure["samples_us"].push_back(1e6 * each);
  list.push_back(std::move(figure));
}

Status BenchDocument::write() const {
  if (path.empty())
    return Status();
  Json all = header;
  all["figures"] = list;
  return tune::replaceFile(path, all.dump(1) + "\n");
}

int tool::exitCodeOf(const Status &status) {
  if (status)
    return 0;
  printError(status);
  return 1;
}
