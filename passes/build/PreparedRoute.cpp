//===- PreparedRoute.cpp - what all steps of a route start from -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/PreparedRoute.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "passes/analysis/AffineForm.h"
#include "llvm/ADT/StringSwitch.h"
#include <numeric>

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

Type ladle::checkStepOptions(ModuleOp module, StepOptions &options,
                             StringRef entryType, StringRef stateLayout) {
  Builder b(module.getContext());
  Type type = llvm::StringSwitch<Type>(entryType)
                  .Case("f32", b.getF32Type())
                  .Case("bf16", b.getBF16Type())
                  .Case("f16", b.getF16Type())
                  .Default({});
  if (!type || options.capacity < 1 || options.capacity > 1024) {
    module.emitError("entries must be f32, bf16 or f16 and the capacity "
                     "between 1 and 1024, got ")
        << entryType << " and " << options.capacity;
    return {};
  }
  constexpr int64_t mostDrafts = 16;
  if (options.drafts < 0 || options.drafts > mostDrafts ||
      options.capacity < 2 * options.drafts) {
    InFlightDiagnostic diag =
        module.emitError("a row must have 0 to ")
        << mostDrafts << " drafts and the capacity be twice as many, got "
        << options.drafts << " and " << options.capacity;
    diag.attachNote()
        << "the drafts of the next step must find free entries before any of "
           "this step's are folded";
    return {};
  }
  if (options.page < 0 ||
      (options.page > 0 && options.capacity % options.page != 0)) {
    module.emitError("a page must hold a part of the ")
        << options.capacity << " entries of a slot, got " << options.page;
    return {};
  }
  std::optional<PoolLayout> layout = symbolizePoolLayout(stateLayout);
  if (!layout) {
    module.emitError("states must lie dv_dk or dk_dv, got ") << stateLayout;
    return {};
  }
  options.stateLayout = *layout;
  if (options.chunk < 1 || options.chunk > kMostInChain) {
    module.emitError("a chunk must have 1 to ")
        << kMostInChain << " tokens, got " << options.chunk;
    return {};
  }
  return type;
}

FailureOr<SmallVector<Route>> ladle::chooseRoutes(RecurrenceOp recurrence,
                                                  ArrayRef<std::string> names) {
  SmallVector<Route> chosen;
  for (const std::string &name : names) {
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

LogicalResult
ladle::forEachRoute(ModuleOp module, ArrayRef<std::string> names,
                    function_ref<LogicalResult(RecurrenceOp, Route)> build) {
  // Steps are put between recurrences.
  SmallVector<RecurrenceOp> recurrences(module.getOps<RecurrenceOp>());
  for (RecurrenceOp recurrence : recurrences) {
    FailureOr<SmallVector<Route>> chosen = chooseRoutes(recurrence, names);
    if (failed(chosen))
      return failure();
    for (Route route : *chosen)
      if (failed(build(recurrence, route)))
        return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// PreparedRoute
//===----------------------------------------------------------------------===//

FailureOr<PreparedRoute> PreparedRoute::get(RecurrenceOp original, Route route,
                                            Type entryType, OpBuilder &b) {
  FailureOr<HistoryForm> legal = HistoryForm::get(original);
  if (failed(legal))
    return failure();
  if (std::optional<HistoryForm::Obstacle> obstacle =
          legal->getObstacle(route)) {
    InFlightDiagnostic diag = original.emitError("route '")
                              << stringifyRoute(route) << "' is not legal for '"
                              << original.getSymName() << "'";
    diag.attachNote(obstacle->op->getLoc())
        << obstacle->reason << "; " << obstacle->wayOut;
    return failure();
  }
  b.setInsertionPointAfter(original);
  auto recurrence = cast<RecurrenceOp>(b.clone(*original.getOperation()));
  PreparedRoute result(recurrence, route, *HistoryForm::get(recurrence));
  if (route != Route::Recurrent)
    for (const StateHistory &state : result.history.getStates()) {
      if (route != Route::Adjoint) {
        result.layouts.push_back(layOutHistory(recurrence, state, entryType));
        continue;
      }
      FailureOr<EntryLayout> raw = layOutRaw(recurrence, state);
      if (failed(raw))
        return original.emitError(
            "a value that is written is not affine in "
            "reads, each times one number a head or rank");
      result.layouts.push_back(*raw);
    }
  return result;
}

//===----------------------------------------------------------------------===//
// Roots
//===----------------------------------------------------------------------===//

/// True if `value` can be read with one vector a state.
static bool isRead(Value value, const HistoryForm &history, OpBuilder &b) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32() && type.getRank() > 1 &&
         history.getClass(value) == OperandClass::Affine &&
         succeeded(decomposeAffine(value, b, AffineScale::None));
}

FailureOr<AffineRoot> ladle::makeRoot(Value value, const HistoryForm &history,
                                      OpBuilder &b, AffineScale scale) {
  FailureOr<AffineForm> affine = decomposeAffine(value, b, scale);
  if (failed(affine))
    return failure();
  AffineRoot root;
  root.value = value;
  root.scale = affine->scale;
  root.remainder = affine->remainder;
  root.queries.resize(history.getStates().size());
  for (const AffineTerm &term : affine->terms) {
    auto state = cast<BlockArgument>(ReadOp(term.read).getState());
    auto found =
        llvm::find_if(history.getStates(), [&](const StateHistory &each) {
          return each.state == state;
        });
    Value query = term.query;
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
  return root;
}

/// The operations that outputs and carries are computed by from `known`.
static llvm::SetVector<Operation *>
findAnswering(RecurrenceOp recurrence, const llvm::DenseSet<Value> &known) {
  llvm::SetVector<Operation *> found;
  auto add = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (op && !known.contains(value))
      found.insert(op);
  };
  llvm::for_each(recurrence.getYieldedOutputs(), add);
  llvm::for_each(recurrence.getYieldedCarries(), add);
  for (size_t i = 0; i < found.size(); ++i)
    found[i]->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!isa<StateType>(operand.getType()))
          add(operand);
    });
  return found;
}

SmallVector<AffineRoot> ladle::findRoots(RecurrenceOp recurrence,
                                         const HistoryForm &history,
                                         const llvm::DenseSet<Value> &known) {
  OpBuilder b(recurrence.getYield());
  llvm::SetVector<Value> readable;
  for (Operation &op : llvm::make_early_inc_range(recurrence.getBody().front()))
    for (Value result : op.getResults())
      if (isRead(result, history, b))
        readable.insert(result);

  SmallVector<AffineRoot> roots;
  llvm::SetVector<Operation *> answering = findAnswering(recurrence, known);
  for (Value value : readable) {
    bool isRoot = llvm::any_of(value.getUsers(), [&](Operation *user) {
      if (isa<YieldOp>(user))
        return true;
      return answering.contains(user) &&
             !llvm::any_of(user->getResults(), [&](Value result) {
               return readable.contains(result);
             });
    });
    if (isRoot)
      roots.push_back(*makeRoot(value, history, b, AffineScale::None));
  }
  return roots;
}
