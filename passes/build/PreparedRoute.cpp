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
  if (!type) {
    module.emitError("entries must be f32, bf16 or f16, got ") << entryType;
    return {};
  }
  constexpr int64_t mostEntries = 1024;
  if (options.capacity < 1 || options.capacity > mostEntries) {
    module.emitError("the capacity must be 1 to ")
        << mostEntries << ", got " << options.capacity;
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
           "this step's are folded; set the capacity to "
        << 2 * options.drafts << " at least, or have fewer drafts";
    return {};
  }
  if (options.page < 0) {
    module.emitError("page must not be negative, got ") << options.page;
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

FailureOr<SmallVector<AffineRoot, 1>>
ladle::makeRoots(Value value, const HistoryForm &history, OpBuilder &b,
                 AffineScale scale) {
  FailureOr<AffineForm> affine = decomposeAffine(value, b, scale);
  if (failed(affine))
    return failure();
  SmallVector<AffineRoot, 1> roots;
  auto add = [&](Value scale) -> AffineRoot & {
    AffineRoot &root = roots.emplace_back();
    root.value = value;
    root.scale = scale;
    root.queries.resize(history.getStates().size());
    return root;
  };
  for (const AffineTerm &term : affine->terms) {
    AffineRoot *same = llvm::find_if(roots, [&](const AffineRoot &each) {
      return each.scale == term.scale;
    });
    AffineRoot &root = same == roots.end() ? add(term.scale) : *same;
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
  roots.front().remainder = affine->remainder;
  return roots;
}

/// Vectors of a head: the ranks of a value, together.
static int64_t countVectors(Value value) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
  int64_t count = 1;
  for (int64_t size : shape.drop_front().drop_back())
    count *= size;
  return count;
}

/// True if `value` can be read with one vector a state, and with no more of
/// them than its reads have themselves: what repeats a read over ranks repeats
/// its answer.
static bool isRead(Value value, const HistoryForm &history,
                   const OperandClasses &classes) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.getElementType().isF32() || type.getRank() < 2 ||
      history.getClass(value) != OperandClass::Affine)
    return false;
  AffineObstacle obstacle;
  FailureOr<SmallVector<ReadOp>> reads =
      findAffineReads(value, classes, AffineScale::None, obstacle);
  return succeeded(reads) && llvm::all_of(*reads, [&](ReadOp read) {
           return countVectors(value) <= countVectors(read.getResult());
         });
}

SmallVector<AffineRoot> ladle::findRoots(RecurrenceOp recurrence,
                                         const HistoryForm &history,
                                         const llvm::DenseSet<Value> &known) {
  OperandClasses classes(recurrence.getBody());
  llvm::SetVector<Value> reached;
  llvm::DenseSet<Value> found;
  auto add = [&](Value value) {
    if (!isa<StateType>(value.getType()) && !known.contains(value))
      reached.insert(value);
  };
  llvm::for_each(recurrence.getYieldedOutputs(), add);
  llvm::for_each(recurrence.getYieldedCarries(), add);
  for (size_t i = 0; i < reached.size(); ++i) {
    Value value = reached[i];
    Operation *op = value.getDefiningOp();
    if (isRead(value, history, classes))
      found.insert(value);
    else if (op)
      op->walk(
          [&](Operation *inner) { llvm::for_each(inner->getOperands(), add); });
  }

  OpBuilder b(recurrence.getYield());
  SmallVector<AffineRoot> roots;
  for (Operation &op : llvm::make_early_inc_range(recurrence.getBody().front()))
    for (Value value : op.getResults())
      if (found.contains(value))
        roots.push_back(
            makeRoots(value, history, b, AffineScale::None)->front());
  return roots;
}
