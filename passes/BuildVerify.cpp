//===- BuildVerify.cpp - verify steps of a recurrence ---------------------===//
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
#define GEN_PASS_DEF_BUILDVERIFY
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

/// Builds the verify forms of `route` after the recurrence, or says why there
/// are none.
static LogicalResult buildRoute(RecurrenceOp original, Route route,
                                const StepOptions &options, Type entryType,
                                OpBuilder &b) {
  FailureOr<PreparedRoute> prepared =
      PreparedRoute::get(original, route, entryType, b);
  if (failed(prepared))
    return failure();
  std::variant<VerifyRoots, VerifyObstacle> roots =
      findVerifyRoots(*prepared, b);
  if (auto *obstacle = std::get_if<VerifyObstacle>(&roots)) {
    InFlightDiagnostic diag =
        obstacle->op->emitRemark("route '")
        << stringifyRoute(route)
        << "' verifies one draft after another: " << obstacle->reason;
    diag.attachNote() << "what is written may be a sum of reads times "
                         "numbers of the token, and of values of the token";
    return success();
  }
  b.setInsertionPoint(prepared->recurrence);
  VerifyBuilder builder(*prepared, std::get<VerifyRoots>(roots), options, b);
  builder.build(Form::Verify);
  builder.build(Form::VerifyFold);
  return success();
}

namespace {
struct BuildVerify : ladle::impl::BuildVerifyBase<BuildVerify> {
  using BuildVerifyBase::BuildVerifyBase;

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
    if (drafts == 0)
      return;
    auto build = [&](RecurrenceOp recurrence, Route route) {
      // Without entries a draft is a state: that is what slots are for.
      return route == Route::Recurrent
                 ? success()
                 : buildRoute(recurrence, route, options, type, b);
    };
    if (failed(forEachRoute(module, routes, build)))
      signalPassFailure();
  }
};
} // namespace
