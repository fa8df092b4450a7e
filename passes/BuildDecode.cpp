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
#include "passes/build/StepBuilder.h"

namespace ladle {
#define GEN_PASS_DEF_BUILDDECODE
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

/// Builds the decode and fold forms of `route` after the recurrence.
static LogicalResult buildRoute(RecurrenceOp original, Route route,
                                const StepOptions &options, Type entryType,
                                OpBuilder &b) {
  FailureOr<PreparedRoute> prepared =
      PreparedRoute::get(original, route, entryType, b);
  if (failed(prepared))
    return failure();
  SmallVector<AffineRoot> roots;
  if (route == Route::Adjoint)
    roots = findRoots(prepared->recurrence, prepared->history);
  b.setInsertionPoint(prepared->recurrence);
  StepBuilder builder(*prepared, options, b);
  builder.setRoots(roots);
  builder.build(Form::Decode);
  if (route != Route::Recurrent && !prepared->history.getStates().empty()) {
    builder.build(Form::DecodeFold);
    builder.build(Form::Fold);
  }
  return success();
}

namespace {
struct BuildDecode : ladle::impl::BuildDecodeBase<BuildDecode> {
  using BuildDecodeBase::BuildDecodeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder b(&getContext());
    StepOptions options;
    options.capacity = capacity;
    options.page = page;
    options.drafts = drafts;
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
