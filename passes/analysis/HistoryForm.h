//===- HistoryForm.h - a recurrence as entries of a history -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// In normal form every read takes the state as it was at the start of the
// token, and each state is decayed at most once and then written. One token is
// then one entry of the history,
//
//     S_t = γ_t S_0 + Σ_j (γ_t / γ_j) k_j u_jᵀ,
//
// and the classes of decay, keys, values and queries say which routes give the
// same output as the recurrence itself.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_ANALYSIS_HISTORYFORM_H
#define LADLE_PASSES_ANALYSIS_HISTORYFORM_H

#include "passes/analysis/OperandClasses.h"
#include <optional>
#include <string>

namespace ladle {

struct StateWrite {
  WriteOp op;
  mlir::Value key, value;
  OperandClass keyClass, valueClass;
};

/// What one token does to one state.
struct StateHistory {
  mlir::BlockArgument state;
  unsigned index = 0; // among the state arguments
  mlir::Value decay;  // null if the state is never decayed
  DecayOp decayOp;
  OperandClass decayClass = OperandClass::TokenOnly;
  llvm::SmallVector<StateWrite> writes; // in order
  llvm::SmallVector<ReadOp> reads;      // all read the argument
};

class HistoryForm {
public:
  /// Fails with a diagnostic if `op` is not in normal form.
  static mlir::FailureOr<HistoryForm> get(RecurrenceOp op);

  llvm::ArrayRef<StateHistory> getStates() const { return states; }

  /// The class of any value of the body; token-only for one added later.
  OperandClass getClass(mlir::Value value) const { return classes.get(value); }

  bool isLegal(Route route) const { return !getObstacle(route); }

  /// What prevents a route.
  struct Obstacle {
    mlir::Operation *op; // to point at
    std::string reason;
    std::string wayOut;
    mlir::Operation *read = nullptr; // that the operand comes from, if known
  };

  /// Null for a legal route; `recurrent` always is.
  std::optional<Obstacle> getObstacle(Route route) const;

private:
  explicit HistoryForm(RecurrenceOp op)
      : recurrence(op), classes(op.getBody()) {}

  mlir::LogicalResult addState(mlir::BlockArgument state, mlir::Value next);
  /// Operands of state operations that are not token-only.
  std::optional<Obstacle> findDependentOperand(const StateHistory &state) const;
  /// Values that the adjoint route cannot carry a query back through.
  std::optional<Obstacle> findOpaqueValue(const StateHistory &state) const;
  std::string nameOf(const StateHistory &state) const;

  RecurrenceOp recurrence;
  OperandClasses classes;
  llvm::SmallVector<StateHistory> states;
};

/// Fails with a diagnostic unless states are only decayed, written, read and
/// yielded, each in its own place.
mlir::LogicalResult verifyStateUses(RecurrenceOp op);

} // namespace ladle

#endif // LADLE_PASSES_ANALYSIS_HISTORYFORM_H
