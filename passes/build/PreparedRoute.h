//===- PreparedRoute.h - what all steps of a route start from ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_PREPAREDROUTE_H
#define LADLE_PASSES_BUILD_PREPAREDROUTE_H

#include "passes/analysis/AffineForm.h"
#include "passes/build/EntryLayout.h"

namespace ladle {

/// What the steps of a program have in common.
struct StepOptions {
  int64_t capacity = 16; ///< L: entries that a slot holds
  /// The most drafts of a row; 0 for a program that never verifies. With
  /// drafts, buffers are indexed.
  int64_t drafts = 0;
  /// Entries of a page; 0: those of a slot lie side by side.
  int64_t page = 0;
  PoolLayout stateLayout = PoolLayout::DvDk;
  /// Tokens of a prompt that a prefill step answers.
  int64_t chunk = 64;
  /// Whether prefill_entries of kv_only carries the state along a prompt, for
  /// targets that go through one in a kernel, and stores it for rows that fold.
  bool carriesState = false;
  /// Whether that of the others does instead, and stores the state where chunks
  /// end and nowhere else.
  bool foldsByChunk = false;
  /// Whether tokens that wait for one another have a form of their own.
  bool scansPrompts = false;
};

/// Checks the numbers of the options, sets the layout to the one called
/// `stateLayout`, and returns the type of entries; or null and an error if
/// something is out of range.
mlir::Type checkStepOptions(mlir::ModuleOp module, StepOptions &options,
                            llvm::StringRef entryType,
                            llvm::StringRef stateLayout);

/// The routes called `names`, or all legal ones.
mlir::FailureOr<llvm::SmallVector<Route>>
chooseRoutes(RecurrenceOp recurrence, llvm::ArrayRef<std::string> names);

/// Calls `build` for every recurrence of a module with each of its routes that
/// are called `names`.
mlir::LogicalResult forEachRoute(
    mlir::ModuleOp module, llvm::ArrayRef<std::string> names,
    llvm::function_ref<mlir::LogicalResult(RecurrenceOp, Route)> build);

/// A copy of a recurrence, to which layouts may add values, with what a route
/// caches. The copy is erased with this.
struct PreparedRoute {
  /// Fails with a diagnostic if the route is not legal.
  static mlir::FailureOr<PreparedRoute> get(RecurrenceOp original, Route route,
                                            mlir::Type entryType,
                                            mlir::OpBuilder &b);
  PreparedRoute(PreparedRoute &&other)
      : recurrence(other.recurrence), route(other.route),
        history(std::move(other.history)), layouts(std::move(other.layouts)) {
    other.recurrence = {};
  }
  ~PreparedRoute() {
    if (recurrence)
      recurrence.erase();
  }

  RecurrenceOp recurrence;
  Route route;
  HistoryForm history;
  llvm::SmallVector<EntryLayout> layouts; ///< one a state, if it is buffered

private:
  PreparedRoute(RecurrenceOp recurrence, Route route, HistoryForm history)
      : recurrence(recurrence), route(route), history(std::move(history)) {}
};

/// A value that is read with one vector a state: scale ∘ Σ reads + remainder.
struct AffineRoot {
  mlir::Value value;
  llvm::SmallVector<mlir::Value> queries; ///< one a state, or null
  mlir::Value scale;                      ///< token-only, or null for 1
  mlir::Value remainder;                  ///< token-only, or null
};

/// `value` as a sum of reads, if it is affine: one for each of its scales, the
/// first with the remainder. Adds values to the body.
mlir::FailureOr<llvm::SmallVector<AffineRoot, 1>>
makeRoots(mlir::Value value, const HistoryForm &history, mlir::OpBuilder &b,
          AffineScale scale);

/// The largest affine values that outputs and carries take: those with a user
/// that is not affine itself. Each is one read of every state that it depends
/// on. What `known` holds is not computed.
llvm::SmallVector<AffineRoot>
findRoots(RecurrenceOp recurrence, const HistoryForm &history,
          const llvm::DenseSet<mlir::Value> &known = {});

} // namespace ladle

#endif // LADLE_PASSES_BUILD_PREPAREDROUTE_H
