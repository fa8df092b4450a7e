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
#include "passes/build/PreparedRoute.h"

namespace ladle {

class StepBuilder {
public:
  StepBuilder(const PreparedRoute &prepared, const StepOptions &options,
              mlir::OpBuilder &builder)
      : recurrence(prepared.recurrence), history(prepared.history),
        layouts(prepared.layouts), options(options), route(prepared.route),
        b(builder) {}

  /// For the adjoint route, before any step is built.
  void setRoots(llvm::ArrayRef<AffineRoot> list) { roots = list; }

  StepOp build(Form form);

protected:
  StepOp begin(Form form);
  /// The value in the step, with all that it is computed from. Reads and
  /// roots that a route replaces have been mapped before.
  mlir::Value demand(mlir::Value value);
  /// γ: the decay since the checkpoint, or null.
  mlir::Value decayProduct(const StateHistory &state);
  /// The state after all entries, before the current token.
  mlir::Value rebuild(const StateHistory &state);
  mlir::Value load(const StateHistory &state);
  mlir::Value buffer(const StateHistory &state) { return buffers[state.index]; }

private:
  void finish(Form form);
  void cloneUpdate(const StateHistory &state);
  void mapReadsInner(const StateHistory &state, bool readsState);
  void mapRootsAdjoint();
  void append(const StateHistory &state);

  bool isBuffered() const { return route != Route::Recurrent; }

protected:
  RecurrenceOp recurrence;
  const HistoryForm &history;
  llvm::ArrayRef<EntryLayout> layouts;
  llvm::ArrayRef<AffineRoot> roots;
  StepOptions options;
  Route route;
  mlir::OpBuilder &b;

  StepOp step;
  mlir::IRMapping mapping;
  llvm::SmallVector<mlir::Value> pools, buffers;
};

} // namespace ladle

#endif // LADLE_PASSES_BUILD_STEPBUILDER_H
