//===- DeriveHistory.cpp - classes of operands and legal routes -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/analysis/HistoryForm.h"

namespace ladle {
#define GEN_PASS_DEF_DERIVEHISTORY
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

/// Leaves the class of each operand on the operation that uses it.
static void markClasses(const HistoryForm &history) {
  auto mark = [](Operation *op, StringRef name, OperandClass operandClass) {
    op->setAttr(name, OperandClassAttr::get(op->getContext(), operandClass));
  };
  for (const StateHistory &state : history.getStates()) {
    if (state.decayOp)
      mark(state.decayOp, "ladle.class", state.decayClass);
    for (const StateWrite &write : state.writes) {
      mark(write.op, "ladle.class", write.valueClass);
      mark(write.op, "ladle.key_class", write.keyClass);
    }
    for (ReadOp read : state.reads)
      mark(read, "ladle.class", history.getClass(read.getQuery()));
  }
}

/// Says what prevents `routes`, which have the same obstacle.
static void explain(ArrayRef<Route> routes,
                    const HistoryForm::Obstacle &obstacle) {
  InFlightDiagnostic diag = obstacle.op->emitRemark();
  diag << (routes.size() == 1 ? "route " : "routes ");
  llvm::interleave(
      routes, [&](Route route) { diag << "'" << stringifyRoute(route) << "'"; },
      [&] { diag << ", "; });
  diag << (routes.size() == 1 ? " is" : " are")
       << " not legal: " << obstacle.reason;
  if (obstacle.read && obstacle.read != obstacle.op)
    diag.attachNote(obstacle.read->getLoc()) << "this is the read";
  diag.attachNote() << obstacle.wayOut;
}

namespace {
struct DeriveHistory : ladle::impl::DeriveHistoryBase<DeriveHistory> {
  void runOnOperation() override {
    RecurrenceOp recurrence = getOperation();
    FailureOr<HistoryForm> history = HistoryForm::get(recurrence);
    if (failed(history))
      return signalPassFailure();
    markClasses(*history);

    SmallVector<Attribute> legal;
    SmallVector<std::pair<HistoryForm::Obstacle, SmallVector<Route>>> illegal;
    for (unsigned i = 0; i <= getMaxEnumValForRoute(); ++i) {
      auto route = static_cast<Route>(i);
      std::optional<HistoryForm::Obstacle> obstacle =
          history->getObstacle(route);
      if (!obstacle) {
        legal.push_back(RouteAttr::get(&getContext(), route));
        continue;
      }
      auto same = llvm::find_if(illegal, [&](const auto &entry) {
        return entry.first.op == obstacle->op &&
               entry.first.reason == obstacle->reason;
      });
      if (same == illegal.end())
        illegal.push_back({*obstacle, {route}});
      else
        same->second.push_back(route);
    }
    recurrence->setAttr("ladle.routes", ArrayAttr::get(&getContext(), legal));
    for (const auto &[obstacle, routes] : illegal)
      explain(routes, obstacle);
  }
};
} // namespace
