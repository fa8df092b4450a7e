//===- SelectRoute.cpp - the cheapest route by the cost model -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "passes/Passes.h"
#include "passes/analysis/CostModel.h"
#include "llvm/Support/FormatVariadic.h"

namespace ladle {
#define GEN_PASS_DEF_SELECTROUTE
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct SelectRoute : ladle::impl::SelectRouteBase<SelectRoute> {
  using SelectRouteBase::SelectRouteBase;

  LogicalResult select(RecurrenceOp recurrence, const Machine &machine) {
    SmallVector<StepOp> steps;
    int64_t capacity = 1;
    for (StepOp step : getOperation().getOps<StepOp>()) {
      if (step.getRecurrence() != recurrence.getSymName())
        continue;
      steps.push_back(step);
      for (BlockArgument buffer : step.getArgumentsOfKind(ArgumentKind::Buffer))
        capacity = std::max(capacity,
                            cast<BufferType>(buffer.getType()).getCapacity());
    }
    std::vector<RouteCost> costs =
        collectCosts(getOperation(), recurrence.getSymName());
    std::optional<RouteChoice> choice =
        chooseRoute(costs, machine, batch, context, capacity);
    if (!choice) {
      InFlightDiagnostic diag =
          recurrence.emitError("no route can decode a context of ")
          << context.getValue() << " tokens";
      diag.attachNote()
          << "run ladle-build-decode first, with a capacity of at least the "
             "context for kv_only";
      return failure();
    }
    const RouteCost &chosen = costs[choice->index];
    Builder b(&getContext());
    recurrence->setAttr("ladle.selected",
                        RouteAttr::get(&getContext(), chosen.route));
    recurrence->setAttr("ladle.fold_threshold",
                        b.getI64IntegerAttr(choice->threshold));
    for (const RouteCost &cost : costs) {
      if (cost.route == chosen.route)
        continue;
      int64_t m =
          cost.decodeFold ? cost.bestThreshold(machine, batch, capacity) : 1;
      recurrence.emitRemark()
          << "chose " << stringifyRoute(chosen.route)
          << " with m = " << choice->threshold << ": "
          << llvm::formatv("{0:F0} bytes and {1:F0} flops",
                           chosen.cycleBytes(choice->threshold),
                           chosen.cycleFlops(choice->threshold))
                 .str()
          << " a token and row against "
          << llvm::formatv("{0:F0} bytes and {1:F0} flops", cost.cycleBytes(m),
                           cost.cycleFlops(m))
                 .str()
          << " by " << stringifyRoute(cost.route);
    }
    for (StepOp step : steps)
      if (step.getRoute() != chosen.route)
        step.erase();
    return success();
  }

  void runOnOperation() override {
    std::optional<Machine> machine = Machine::named(machineName);
    if (!machine || batch < 1 || context < 0) {
      getOperation().emitError("machine must be cpu or h200, batch positive "
                               "and context not negative, got ")
          << machineName.getValue() << ", " << batch.getValue() << " and "
          << context.getValue();
      return signalPassFailure();
    }
    if (readBandwidth > 0)
      machine->readBandwidth = readBandwidth * 1e9;
    if (updateBandwidth > 0)
      machine->updateBandwidth = updateBandwidth * 1e9;
    SmallVector<RecurrenceOp> recurrences(
        getOperation().getOps<RecurrenceOp>());
    for (RecurrenceOp recurrence : recurrences)
      if (failed(select(recurrence, *machine)))
        return signalPassFailure();
  }
};
} // namespace
