//===- Plan.h - which routes there are, and what they cost ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// This header knows nothing of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_PLAN_H
#define LADLE_TOOLS_LADLE_PLAN_H

#include "passes/analysis/DraftCycle.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/SequenceMemory.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Host.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ladle::tool {

/// A route of a recurrence. Bytes and flops are of one row and token, over a
/// whole cycle.
struct RoutePlan {
  std::string route;
  std::string obstacle; ///< why the route is not legal; empty if it is
  bool hasBuffer = false;
  int64_t threshold = 1; ///< m
  double bytes = 0, flops = 0;
  /// Bytes of the steps of a cycle: fills 0 to m - 1, of which the last folds.
  std::vector<double> bytesByFill;
  double updatedBytes = 0; ///< of the bytes, what is read and written in place
  double seconds = 0;      ///< predicted, a step of all rows

  bool isLegal() const { return obstacle.empty(); }
  /// The least time that the bytes of a row and token take.
  double leastSeconds(const Bandwidth &bandwidth) const {
    return updatedBytes / bandwidth.update +
           (bytes - updatedBytes) / bandwidth.read;
  }
  /// Of a row in the step at a fill. Only the last of a cycle updates.
  double leastSecondsAt(size_t fill, const Bandwidth &bandwidth) const {
    bool updates = fill + 1 == bytesByFill.size();
    double updated = updates ? updatedBytes * double(threshold) : 0;
    return updated / bandwidth.update +
           (bytesByFill[fill] - updated) / bandwidth.read;
  }
};

/// What times are predicted from, and what they are compared with.
struct Rates {
  Machine machine;
  Bandwidth bandwidth; ///< ceilings: what memory gives to streaming kernels

  /// A GPU by its name, with ceilings that were measured or are expected.
  static Rates gpu(const std::string &card, const Bandwidth &ceilings = {},
                   int multiprocessors = 0);
};

/// Bytes of a row that a step with drafts cannot do without.
struct DraftCost {
  double empty = 0, folding = 0; ///< without entries
  double entry = 0;              ///< of each
  double updatedBytes = 0; ///< of `folding`, what is read and written in place

  double bytes(int64_t fill) const {
    return empty + entry * static_cast<double>(fill);
  }
  double foldBytes(int64_t fill) const {
    return folding + entry * static_cast<double>(fill);
  }
  /// The least time that a row's bytes take.
  double leastSeconds(const DraftStep &step, const Bandwidth &bandwidth) const {
    double updated = step.folds ? updatedBytes : 0;
    double all = step.folds ? foldBytes(step.fill) : bytes(step.fill);
    return updated / bandwidth.update + (all - updated) / bandwidth.read;
  }
};

/// A route that verifies, on a machine: seconds of a step of all rows, mean of
/// a cycle.
struct DraftPlan {
  std::string obstacle; ///< why it does not; empty if it does
  double predicted = 0, limit = 0;
};

struct RunPlan {
  std::vector<RoutePlan> routes;
  size_t chosen = 0;
};

/// The compiler's view of a file: elaborated once, then asked for costs.
class Planner {
public:
  /// Nothing, with the errors on stderr, if the file has any.
  /// `drafts` a row are verified, if there are any.
  static std::optional<Planner> create(const SourceOptions &source,
                                       int64_t drafts = 0);
  Planner(Planner &&) noexcept;
  ~Planner();

  const std::string &recurrence() const;
  /// Of a route by its name; nothing if it does not verify drafts at once.
  std::optional<DraftCost> draftCost(const std::string &route) const;
  /// What a step of `rows` rows takes that verifies, and folds beyond
  /// `threshold` entries.
  DraftPlan draftPlan(const std::string &route, const Rates &rates,
                      int64_t rows, int64_t threshold, double accepted) const;
  /// What a sequence keeps by a route with a ring; nothing for others.
  std::optional<SequenceMemory> memory(const std::string &route) const;
  /// Of all states of one row.
  int64_t stateBytes() const;
  /// The routes for `rows` rows of sequences that are longer than a buffer.
  /// `threshold` replaces the best m of each route if it is positive.
  RunPlan plan(const Bandwidth &bandwidth, int threads, int64_t rows,
               int64_t threshold) const;
  RunPlan plan(const Rates &rates, int64_t rows, int64_t threshold) const;

private:
  struct Impl;
  explicit Planner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_PLAN_H
