//===- CostModel.h - bytes and time of a step -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Bytes over rates or flops over a rate, whichever takes longer, and what a
// launch and trips to memory take. The bytes are exact: they are counted on the
// step that is lowered.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_COSTMODEL_H
#define LADLE_PASSES_ANALYSIS_COSTMODEL_H

#include "dialect/LadleOps.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/SequenceMemory.h"

namespace ladle {

/// What one step moves and computes for one row of the batch, as a linear
/// function of the entries h in its buffer. Bytes; parameters, which all rows
/// share, are not counted.
struct StepCost {
  double stateRead = 0, stateWritten = 0;
  double entryRead = 0;    ///< a cached entry
  double entryWritten = 0; ///< the entry of this token
  double inputRead = 0, outputWritten = 0;
  double carryMoved = 0;
  double flops = 0, flopsPerEntry = 0;
  bool verifies = false;  ///< drafts of a row at once
  bool areRanked = false; ///< and each is several vectors

  /// Counts on a step.
  static StepCost of(StepOp step);

  double bytes(double h) const {
    return stateRead + stateWritten + entryWritten + inputRead + outputWritten +
           carryMoved + entryRead * h;
  }
  double flopsAt(double h) const { return flops + flopsPerEntry * h; }
  /// Seconds of a step of `batch` rows with h entries each.
  double seconds(const Machine &machine, double batch, double h) const;
};

/// The steps of one route of a recurrence.
struct RouteCost {
  Route route;
  StepCost decode;
  std::optional<StepCost> decodeFold, fold;
  /// Of all drafts that the steps were built for.
  std::optional<StepCost> verify, verifyFold;

  /// Bytes a token over a cycle of m tokens: fills 0..m−2, then a step that
  /// answers and folds.
  double cycleBytes(double m) const;
  double cycleFlops(double m) const;
  /// The same if the fold is a pass of its own after m tokens, as published
  /// kernels do it (KVBuffer, eq. 9).
  double separateCycleBytes(double m) const;
  /// A step of several drafts after h entries: the state and the entries are
  /// read once, a draft reads those before it.
  double verifyBytes(double drafts, double h) const;
  double verifyFlops(double drafts, double h) const;
  /// Seconds a step of `batch` rows that verifies drafts, half of which are
  /// accepted, amortised from one fold to the next; of a route without such
  /// steps, those of a token, one for each draft.
  double draftSeconds(const Machine &machine, double batch, int64_t m,
                      int64_t drafts) const;
  /// Seconds a step of `batch` rows on `machine`, amortised over the cycle.
  /// For kv_only, m is the length of the context.
  double seconds(const Machine &machine, double batch, int64_t m) const;
  /// The threshold m in 1..limit with the least time (or bytes): of steps that
  /// verify, if there are drafts.
  int64_t bestThreshold(const Machine &machine, double batch, int64_t limit,
                        int64_t drafts = 0) const;
  int64_t bestSeparateThreshold(int64_t limit) const;
};

/// What a sequence keeps by a route with a ring of `capacity` entries and
/// `drafts` a row, without its cursors.
SequenceMemory sequenceMemory(RecurrenceOp recurrence, const RouteCost &cost,
                              int64_t capacity, int64_t drafts);

/// The costs of all routes whose steps are in `module` for `recurrence`.
std::vector<RouteCost> collectCosts(mlir::Operation *module,
                                    llvm::StringRef recurrence);

/// The cheapest route, and of those within a hundredth of it the simplest:
/// recurrent, inner, outer, adjoint, kv_only. A route that folds at every token
/// never goes before recurrent. `context` tokens are in the sequence (0: longer
/// than any buffer, so that kv_only is out); `threshold` is the m of those that
/// fold (0: the best of each). Of programs with drafts, steps of a token tell
/// which route with a buffer, and steps that verify its m and whether recurrent
/// takes less.
struct RouteChoice {
  size_t index; ///< into the costs
  int64_t threshold;
  double seconds;
};
std::optional<RouteChoice> chooseRoute(llvm::ArrayRef<RouteCost> costs,
                                       const Machine &machine, int64_t batch,
                                       int64_t context, int64_t capacity,
                                       int64_t threshold = 0,
                                       int64_t drafts = 0);

/// The longest context, up to `limit` tokens, that kv_only decodes in less time
/// than the route that is chosen for long ones. Nothing if it is not legal.
std::optional<int64_t> findCrossover(llvm::ArrayRef<RouteCost> costs,
                                     const Machine &machine, int64_t batch,
                                     int64_t capacity, int64_t limit);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_COSTMODEL_H
