//===- RunReport.h - what a run found ---------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_RUNREPORT_H
#define LADLE_TOOLS_LADLE_RUNREPORT_H

#include "tools/ladle/Measure.h"
#include "tools/ladle/Plan.h"
#include "tools/ladle/RunTarget.h"
#include "tools/ladle/Table.h"

namespace ladle::tool {

struct RouteReport {
  RoutePlan plan;
  std::optional<Program> program; ///< none if it is not legal or failed
  std::string failure;
  RouteErrors errors;
  Timing batch, single; ///< of all rows, and of one, which fits the caches
};

struct RunReport : RunMachine {
  std::string file, recurrence, inputs;
  Bandwidth bandwidth;
  int driverVersion = 0;     ///< of a GPU
  double contextSeconds = 0; ///< that the driver took for the context
  int64_t tokens = 0;        ///< asked for
  int64_t stateBytes = 0, rows = 0;
  bool isCapped = false; ///< rows, by the memory there is
  int64_t comparedRows = 0, comparedTokens = 0;
  double compileSeconds = 0;
  std::vector<RouteReport> routes;
  size_t chosen = 0;
  bool isForced = false; ///< the choice, by the user
  /// A prompt by the chosen route, on a CPU; no rows: it was not timed.
  Timing prompt;
  int64_t chunk = 0;

  /// Whether all legal routes ran and kept their bounds.
  bool passed() const;
  std::string table() const;
  std::string json() const;

private:
  std::string header() const;
  std::string choice() const;
  std::string promptLine() const;
  std::string problems() const;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_RUNREPORT_H
