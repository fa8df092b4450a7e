//===- BuildPrefill.cpp - prefill steps of a recurrence -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/build/VerifyBuilder.h"

namespace ladle {
#define GEN_PASS_DEF_BUILDPREFILL
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

/// Why the tokens of a chunk cannot be answered at once.
static std::optional<VerifyObstacle>
findObstacle(const PreparedRoute &prepared) {
  // Decays, keys and queries have to be known before any read.
  if (auto obstacle = prepared.history.getObstacle(Route::Inner))
    return VerifyObstacle{obstacle->op, obstacle->reason};
  return std::nullopt;
}

/// Whether a head is a channel: of vectors over dk alone, there is nothing that
/// products of matrices would save.
static bool isChannels(RecurrenceOp recurrence) {
  return llvm::all_of(
      recurrence.getArgumentsOfKind(ArgumentKind::State),
      [](BlockArgument state) {
        return cast<StateType>(state.getType()).getValueSize() == 1;
      });
}

/// Builds the prefill forms of `route` after the recurrence, or says why there
/// are none.
static LogicalResult buildRoute(RecurrenceOp original, Route route,
                                const StepOptions &options, Type entryType,
                                OpBuilder &b) {
  FailureOr<PreparedRoute> prepared =
      PreparedRoute::get(original, route, entryType, b);
  if (failed(prepared))
    return failure();
  std::optional<VerifyObstacle> obstacle = findObstacle(*prepared);
  VerifyRoots roots;
  if (!obstacle) {
    std::variant<VerifyRoots, VerifyObstacle> found =
        findVerifyRoots(*prepared, b);
    if (auto *reason = std::get_if<VerifyObstacle>(&found))
      obstacle = *reason;
    else
      roots = std::get<VerifyRoots>(std::move(found));
  }
  if (obstacle) {
    InFlightDiagnostic diag =
        obstacle->op->emitRemark("route '")
        << stringifyRoute(route)
        << "' prefills one token after another: " << obstacle->reason;
    diag.attachNote() << "what is written may be a sum of reads times "
                         "numbers of the token, and of values of the token";
  }
  b.setInsertionPoint(prepared->recurrence);
  if (options.scansPrompts && (obstacle || isChannels(prepared->recurrence))) {
    // Where it is left off decides about folds, nobody stops amid a prompt.
    if (route != Route::KvOnly && !options.foldsByChunk)
      StepBuilder(*prepared, options, b).build(Form::PrefillScan);
    return success();
  }
  if (obstacle)
    return success();
  VerifyBuilder builder(*prepared, roots, options, b);
  // Once there is a state, kv_only has handed over to inner.
  if (route != Route::KvOnly && !options.foldsByChunk)
    builder.build(Form::PrefillFold);
  if (route != Route::Recurrent)
    builder.build(Form::PrefillEntries);
  return success();
}

namespace {
struct BuildPrefill : ladle::impl::BuildPrefillBase<BuildPrefill> {
  using BuildPrefillBase::BuildPrefillBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder b(&getContext());
    StepOptions options;
    options.capacity = capacity;
    options.page = page;
    options.drafts = drafts;
    options.chunk = chunk;
    options.carriesState = carriesState;
    options.foldsByChunk = foldsByChunk;
    options.scansPrompts = scansPrompts;
    Type type = checkStepOptions(module, options, entryType, stateLayout);
    if (!type)
      return signalPassFailure();
    auto build = [&](RecurrenceOp recurrence, Route route) {
      return buildRoute(recurrence, route, options, type, b);
    };
    if (failed(forEachRoute(module, routes, build)))
      signalPassFailure();
  }
};
} // namespace
