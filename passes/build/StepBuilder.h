//===- StepBuilder.h - the steps of a route ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Builds the steps of one route from a recurrence in normal form. The body of
// the recurrence is kept; a route only replaces the reads of the state and
// what becomes of its writes.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_STEPBUILDER_H
#define LADLE_PASSES_BUILD_STEPBUILDER_H

#include "mlir/IR/IRMapping.h"
#include "passes/build/EntryLayout.h"

namespace ladle {

/// A value that the adjoint route reads with one vector a state.
struct AdjointRoot {
  mlir::Value value;
  llvm::SmallVector<mlir::Value> queries; // one a state, or null
  mlir::Value remainder;                  // token-only, or null
};

class StepBuilder {
public:
  StepBuilder(RecurrenceOp recurrence, const HistoryForm &history,
              llvm::ArrayRef<EntryLayout> layouts, int64_t capacity,
              Route route, mlir::OpBuilder &builder)
      : recurrence(recurrence), history(history), layouts(layouts),
        capacity(capacity), route(route), b(builder) {}

  /// For the adjoint route, before any step is built.
  void setRoots(llvm::ArrayRef<AdjointRoot> list) { roots = list; }

  StepOp build(Form form);

private:
  StepOp begin(Form form);
  void finish(Form form);
  /// The value in the step, with all that it is computed from. Reads and
  /// roots that a route replaces have been mapped before.
  mlir::Value demand(mlir::Value value);
  void cloneUpdate(const StateHistory &state);

  void mapReadsInner(const StateHistory &state, bool readsState);
  void mapRootsAdjoint();
  /// γ: the decay since the checkpoint, or null.
  mlir::Value decayProduct(const StateHistory &state);
  /// The state after all entries, before the current token.
  mlir::Value rebuild(const StateHistory &state);
  void append(const StateHistory &state);

  bool isBuffered() const { return route != Route::Recurrent; }
  mlir::Value load(const StateHistory &state);
  mlir::Value buffer(const StateHistory &state) { return buffers[state.index]; }

  RecurrenceOp recurrence;
  const HistoryForm &history;
  llvm::ArrayRef<EntryLayout> layouts;
  llvm::ArrayRef<AdjointRoot> roots;
  int64_t capacity;
  Route route;
  mlir::OpBuilder &b;

  StepOp step;
  mlir::IRMapping mapping;
  llvm::SmallVector<mlir::Value> pools, buffers;
};

} // namespace ladle

#endif // LADLE_PASSES_BUILD_STEPBUILDER_H
