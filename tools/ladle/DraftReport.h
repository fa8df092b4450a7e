//===- DraftReport.h - figures of steps that verify, as text ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_DRAFTREPORT_H
#define LADLE_TOOLS_LADLE_DRAFTREPORT_H

#include "passes/analysis/SequenceMemory.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace ladle::tool {

/// Seconds of a step, by how many of its drafts each row accepts.
struct DraftBand {
  int64_t drafts = 1;
  std::map<int64_t, double> seconds; ///< those that were measured

  /// Between two that were measured, on the line through them.
  double secondsAt(double accepted) const;
  /// Tokens a second and row: a step gives what is accepted and a token more.
  double tokensAt(double accepted) const {
    return (accepted + 1) / secondsAt(accepted);
  }
  /// Of a chain whose drafts are each accepted with a probability if all before
  /// it are: on average p + p² + ... + p^T (Leviathan et al., ICML 2023, eq. 1,
  /// without the token more).
  double expectedAccepted(double probability) const;
};

/// Prints figures as they come, and a line for each number of drafts at the
/// end.
class DraftReport {
public:
  void add(const nlohmann::ordered_json &result, const SequenceMemory &memory);
  /// `budget` bytes for all requests of a model of `layers`; 0: not asked.
  void summarise(int64_t layers, double budget) const;

private:
  struct Line {
    nlohmann::ordered_json result;
    SequenceMemory memory;
    DraftBand chain;
  };
  std::vector<Line> lines;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_DRAFTREPORT_H
