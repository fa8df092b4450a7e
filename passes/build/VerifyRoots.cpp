//===- VerifyRoots.cpp - what drafts and chunks read ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/AffineForm.h"
#include "passes/build/VerifyBuilder.h"

using namespace mlir;
using namespace ladle;

std::variant<VerifyRoots, VerifyObstacle>
ladle::findVerifyRoots(const PreparedRoute &prepared, OpBuilder &b) {
  const HistoryForm &history = prepared.history;
  RecurrenceOp recurrence = prepared.recurrence;
  for (Value carry : recurrence.getYieldedCarries())
    if (history.getClass(carry) != OperandClass::TokenOnly) {
      Operation *op = carry.getDefiningOp();
      return VerifyObstacle{op ? op : recurrence,
                            "a carry is computed from a read of a state, so "
                            "that a draft waits for the answer of its parent"};
    }
  VerifyRoots roots;
  b.setInsertionPoint(recurrence.getYield());
  for (const StateHistory &state : history.getStates())
    for (const StateWrite &write : state.writes) {
      SmallVector<AffineRoot, 1> &parts = roots.writes.emplace_back();
      if (write.valueClass == OperandClass::TokenOnly)
        continue;
      auto made = makeRoots(write.value, history, b, AffineScale::Channels);
      if (failed(made)) {
        OperandClasses classes(recurrence.getBody());
        AffineObstacle obstacle;
        (void)findAffineReads(write.value, classes, AffineScale::Channels,
                              obstacle);
        return VerifyObstacle{write.op, "a value that is written is not affine "
                                        "in reads: " +
                                            obstacle.reason};
      }
      parts = *made;
      if (llvm::any_of(parts,
                       [](const AffineRoot &part) { return bool(part.scale); }))
        roots.solved.insert(write.value);
    }
  roots.outputs = findRoots(recurrence, history, roots.solved);
  return roots;
}
