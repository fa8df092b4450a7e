//===- EntryLayout.h - fields of history entries ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What an entry of the history holds. Inputs are kept raw and in their own
// type, with a number a head beside them, so that they lose nothing; only a
// value that depends on the state is rounded to the entry type.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_ENTRYLAYOUT_H
#define LADLE_PASSES_BUILD_ENTRYLAYOUT_H

#include "dialect/LadleOps.h"
#include "passes/analysis/HistoryForm.h"

namespace ladle {

/// The fields of the entries of one state, and the values of the recurrence's
/// body that fill them.
struct EntryLayout {
  struct Write {
    mlir::StringAttr key, keyScale, value, valueScale; // scales may be null
  };
  llvm::SmallVector<FieldAttr> fields;
  llvm::SmallVector<mlir::Value> sources;
  llvm::SmallVector<Write> writes;
  mlir::StringAttr decay; // null without a decay
  /// For raw entries (the adjoint route).
  TransitionAttr transition;
};

/// Lays out (key, value, decay) entries for the routes outer, inner and
/// kv_only. Inserts the values it needs before the terminator of the
/// recurrence.
EntryLayout layOutHistory(RecurrenceOp recurrence, const StateHistory &state,
                          mlir::Type entryType);

/// Lays out raw entries, from which a state can be replayed. Fails if a value
/// is not affine without a scale.
mlir::FailureOr<EntryLayout> layOutRaw(RecurrenceOp recurrence,
                                       const StateHistory &state);

/// `value` with `heads` heads.
mlir::Value broadcastHeads(mlir::OpBuilder &b, mlir::Location loc,
                           mlir::Value value, int64_t heads);
/// The product of a value and a number a head, or of two values of one shape,
/// with as many heads as both divide.
mlir::Value multiply(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                     mlir::Value scale);

} // namespace ladle

#endif // LADLE_PASSES_BUILD_ENTRYLAYOUT_H
