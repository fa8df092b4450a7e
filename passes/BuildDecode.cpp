//===- BuildDecode.cpp - decode and fold steps of a recurrence ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/analysis/AffineForm.h"
#include "passes/build/StepBuilder.h"
#include "llvm/ADT/ScopeExit.h"
#include <numeric>

namespace ladle {
#define GEN_PASS_DEF_BUILDDECODE
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

/// True if the adjoint route can read `value` with one vector a state.
static bool isRead(Value value, const HistoryForm &history, OpBuilder &b) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32() && type.getRank() > 1 &&
         history.getClass(value) == OperandClass::Affine &&
         succeeded(decomposeAffine(value, b));
}

/// Collects the largest affine values of the body: those with a user that is
/// not affine itself. Each is one read of every state that it depends on.
static SmallVector<AdjointRoot> findRoots(RecurrenceOp recurrence,
                                          const HistoryForm &history) {
  OpBuilder b(recurrence.getYield());
  llvm::SetVector<Value> readable;
  for (Operation &op : llvm::make_early_inc_range(recurrence.getBody().front()))
    for (Value result : op.getResults())
      if (isRead(result, history, b))
        readable.insert(result);

  SmallVector<AdjointRoot> roots;
  ValueRange nextStates = recurrence.getYieldedStates();
  for (Value value : readable) {
    bool isRoot = llvm::any_of(value.getUses(), [&](OpOperand &use) {
      Operation *user = use.getOwner();
      if (isa<WriteOp, DecayOp>(user))
        return false;
      if (isa<YieldOp>(user))
        return !llvm::is_contained(nextStates, value);
      return !llvm::any_of(user->getResults(), [&](Value result) {
        return readable.contains(result);
      });
    });
    if (!isRoot)
      continue;
    AffineForm affine = *decomposeAffine(value, b);
    AdjointRoot root;
    root.value = value;
    root.remainder = affine.remainder;
    root.queries.resize(history.getStates().size());
    for (const AffineTerm &term : affine.terms) {
      auto state = cast<BlockArgument>(ReadOp(term.read).getState());
      auto found =
          llvm::find_if(history.getStates(), [&](const StateHistory &each) {
            return each.state == state;
          });
      Value query = ReadOp(term.read).getQuery();
      if (term.coefficient)
        query = multiply(b, value.getLoc(), query, term.coefficient);
      Value &sum = root.queries[found->index];
      if (!sum) {
        sum = query;
        continue;
      }
      int64_t heads =
          std::lcm(cast<RankedTensorType>(sum.getType()).getDimSize(0),
                   cast<RankedTensorType>(query.getType()).getDimSize(0));
      sum = arith::AddFOp::create(
          b, value.getLoc(), broadcastHeads(b, value.getLoc(), sum, heads),
          broadcastHeads(b, value.getLoc(), query, heads));
    }
    roots.push_back(root);
  }
  return roots;
}

/// Builds all forms of `route` after the recurrence.
static LogicalResult buildRoute(RecurrenceOp original, Route route,
                                int64_t capacity, Type entryType,
                                OpBuilder &b) {
  // Layouts and roots add values to the body, so work on a copy.
  b.setInsertionPointAfter(original);
  auto recurrence = cast<RecurrenceOp>(b.clone(*original.getOperation()));
  llvm::scope_exit eraseCopy([&] { recurrence.erase(); });

  FailureOr<HistoryForm> history = HistoryForm::get(recurrence);
  if (failed(history))
    return failure();
  if (!history->isLegal(route)) {
    std::optional<HistoryForm::Obstacle> obstacle = history->getObstacle(route);
    InFlightDiagnostic diag = original.emitError("route '")
                              << stringifyRoute(route) << "' is not legal for '"
                              << original.getSymName() << "'";
    diag.attachNote(obstacle->op->getLoc())
        << obstacle->reason << "; " << obstacle->wayOut;
    return failure();
  }
  SmallVector<EntryLayout> layouts;
  SmallVector<AdjointRoot> roots;
  if (route != Route::Recurrent)
    for (const StateHistory &state : history->getStates()) {
      if (route != Route::Adjoint) {
        layouts.push_back(layOutHistory(recurrence, state, entryType));
        continue;
      }
      FailureOr<EntryLayout> raw = layOutRaw(recurrence, state);
      if (failed(raw))
        return state.state.getOwner()->getParentOp()->emitError(
            "a value that is written is not affine in reads with one number a "
            "head");
      layouts.push_back(*raw);
    }
  if (route == Route::Adjoint)
    roots = findRoots(recurrence, *history);

  // The classes of the values that were added.
  history = HistoryForm::get(recurrence);
  b.setInsertionPoint(recurrence);
  StepBuilder builder(recurrence, *history, layouts, capacity, route, b);
  builder.setRoots(roots);
  builder.build(Form::Decode);
  if (route != Route::Recurrent && !history->getStates().empty()) {
    builder.build(Form::DecodeFold);
    builder.build(Form::Fold);
  }
  return success();
}

namespace {
struct BuildDecode : ladle::impl::BuildDecodeBase<BuildDecode> {
  using BuildDecodeBase::BuildDecodeBase;

  FailureOr<SmallVector<Route>> chooseRoutes(RecurrenceOp recurrence) {
    SmallVector<Route> chosen;
    for (const std::string &name : routes) {
      std::optional<Route> route = symbolizeRoute(name);
      if (!route)
        return recurrence.emitError("unknown route '") << name << "'";
      chosen.push_back(*route);
    }
    if (!chosen.empty())
      return chosen;
    FailureOr<HistoryForm> history = HistoryForm::get(recurrence);
    if (failed(history))
      return failure();
    for (unsigned i = 0; i <= getMaxEnumValForRoute(); ++i)
      if (history->isLegal(static_cast<Route>(i)))
        chosen.push_back(static_cast<Route>(i));
    return chosen;
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder b(&getContext());
    Type type = llvm::StringSwitch<Type>(entryType)
                    .Case("f32", b.getF32Type())
                    .Case("bf16", b.getBF16Type())
                    .Case("f16", b.getF16Type())
                    .Default({});
    if (!type || capacity < 1 || capacity > 1024) {
      module.emitError("entries must be f32, bf16 or f16 and the capacity "
                       "between 1 and 1024, got ")
          << entryType.getValue() << " and " << capacity.getValue();
      return signalPassFailure();
    }
    SmallVector<RecurrenceOp> recurrences(module.getOps<RecurrenceOp>());
    for (RecurrenceOp recurrence : recurrences) {
      FailureOr<SmallVector<Route>> chosen = chooseRoutes(recurrence);
      if (failed(chosen))
        return signalPassFailure();
      for (Route route : *chosen)
        if (failed(buildRoute(recurrence, route, capacity, type, b)))
          return signalPassFailure();
    }
  }
};
} // namespace
