//===- Plan.cpp - which routes there are, and what they cost --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Plan.h"
#include "passes/Pipelines.h"
#include "passes/analysis/CostModel.h"
#include "passes/analysis/HistoryForm.h"
#include "runtime/cuda/DeviceCursors.h"
#include "tools/ladle/Source.h"

#include <cmath>

using namespace mlir;
using namespace ladle;
using namespace ladle::tool;

struct Planner::Impl {
  struct Obstacle {
    std::string route, text;
  };
  std::string recurrence;
  int64_t stateBytes = 0;
  int64_t capacity = 0, drafts = 0;
  std::vector<RouteCost> costs;
  std::vector<std::pair<std::string, SequenceMemory>> memories;

  const RouteCost *find(const std::string &route) const {
    for (const RouteCost &cost : costs)
      if (stringifyRoute(cost.route) == route)
        return &cost;
    return nullptr;
  }
  std::vector<Obstacle> obstacles;
};

Planner::Planner(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Planner::Planner(Planner &&) noexcept = default;
Planner::~Planner() = default;

const std::string &Planner::recurrence() const { return impl->recurrence; }
int64_t Planner::stateBytes() const { return impl->stateBytes; }

/// "line 14: the key depends on a read; ..."
static std::string describe(const HistoryForm::Obstacle &obstacle) {
  std::string text;
  obstacle.op->getLoc()->walk([&](Location each) {
    auto file = dyn_cast<FileLineColLoc>(each);
    if (!file)
      return WalkResult::advance();
    text = "line " + std::to_string(file.getLine()) + ": ";
    return WalkResult::interrupt();
  });
  return text + obstacle.reason + "; " + obstacle.wayOut;
}

std::optional<DraftCost> Planner::draftCost(const std::string &route) const {
  const RouteCost *cost = impl->find(route);
  if (!cost || !cost->verify)
    return std::nullopt;
  // Rows without a state fold by another route.
  if (!cost->verifyFold)
    return DraftCost{cost->verify->bytes(0), cost->verify->bytes(0),
                     cost->verify->entryRead, 0};
  return DraftCost{cost->verify->bytes(0), cost->verifyFold->bytes(0),
                   cost->verify->entryRead,
                   cost->verifyFold->stateRead +
                       cost->verifyFold->stateWritten};
}

DraftPlan Planner::draftPlan(const std::string &route, const Rates &rates,
                             int64_t rows, int64_t threshold,
                             double accepted) const {
  DraftPlan plan;
  for (const Impl::Obstacle &obstacle : impl->obstacles)
    if (obstacle.route == route)
      plan.obstacle = obstacle.text;
  std::optional<DraftCost> least = draftCost(route);
  if (!least) {
    if (plan.obstacle.empty())
      plan.obstacle = "it does not verify all drafts of a row at once";
    return plan;
  }
  const RouteCost &cost = *impl->find(route);
  auto batch = static_cast<double>(rows);
  plan.predicted = meanOfCycle(
      impl->drafts, accepted, threshold, [&](const DraftStep &step) {
        const StepCost &of = step.folds ? *cost.verifyFold : *cost.verify;
        return of.seconds(rates.machine, batch, static_cast<double>(step.fill));
      });
  plan.limit =
      batch * meanOfCycle(impl->drafts, accepted, threshold,
                          [&](const DraftStep &step) {
                            return least->leastSeconds(step, rates.bandwidth);
                          });
  return plan;
}

std::optional<SequenceMemory> Planner::memory(const std::string &route) const {
  for (const auto &[name, memory] : impl->memories)
    if (name == route)
      return memory;
  return std::nullopt;
}

std::optional<Planner> Planner::create(const SourceOptions &options,
                                       int64_t drafts) {
  Source source(options, /*showRemarks=*/false);
  if (!source.module)
    return std::nullopt;
  DecodePipelineOptions pipeline;
  pipeline.capacity = options.capacity;
  pipeline.entryType = options.entryType;
  pipeline.stateLayout = options.stateLayout;
  pipeline.drafts = drafts;
  PassManager manager(&source.context);
  buildStepPipeline(manager, pipeline);
  if (failed(manager.run(*source.module)))
    return std::nullopt;
  auto recurrences = source.module->getOps<RecurrenceOp>();
  RecurrenceOp recurrence = *recurrences.begin();
  FailureOr<HistoryForm> history = HistoryForm::get(recurrence);
  if (failed(history))
    return std::nullopt;

  auto impl = std::make_unique<Impl>();
  impl->recurrence = recurrence.getSymName();
  impl->capacity = options.capacity;
  impl->costs = collectCosts(*source.module, recurrence.getSymName());
  impl->drafts = drafts;
  for (const RouteCost &cost : impl->costs)
    if (cost.decodeFold) {
      SequenceMemory memory =
          sequenceMemory(recurrence, cost, options.capacity, drafts);
      memory.cursors = static_cast<double>(
          DeviceCursors::slotBytes(options.capacity, drafts));
      impl->memories.emplace_back(stringifyRoute(cost.route).str(), memory);
    }
  for (const StateHistory &state : history->getStates()) {
    auto type = cast<StateType>(state.state.getType());
    impl->stateBytes += type.getHeads() * type.getKeySize() *
                        type.getValueSize() *
                        (type.getElementType().getIntOrFloatBitWidth() / 8);
  }
  for (unsigned i = 0; i <= getMaxEnumValForRoute(); ++i) {
    auto route = static_cast<Route>(i);
    if (auto obstacle = history->getObstacle(route))
      impl->obstacles.push_back(
          {stringifyRoute(route).str(), describe(*obstacle)});
  }
  return Planner(std::move(impl));
}

RunPlan Planner::plan(const Bandwidth &bandwidth, int threads, int64_t rows,
                      int64_t threshold) const {
  Machine machine = Machine::cpu(threads);
  machine.readBandwidth = machine.scatteredBandwidth = bandwidth.read;
  machine.updateBandwidth = bandwidth.update;
  machine.drafts = machine;
  return plan(Rates{machine, bandwidth}, rows, threshold);
}

Rates Rates::gpu(const std::string &card, const Bandwidth &ceilings,
                 int multiprocessors) {
  // What an H200 gives, where nothing else is known.
  constexpr Bandwidth expected{4.5e12, 4.2e12};
  return {Machine::gpu({card, /*nominal=*/0, ceilings.read, ceilings.update,
                        multiprocessors}),
          ceilings.read > 0 ? ceilings : expected};
}

RunPlan Planner::plan(const Rates &rates, int64_t rows,
                      int64_t threshold) const {
  const Machine &machine = rates.machine;
  RunPlan plan;
  for (const RouteCost &cost : impl->costs) {
    RoutePlan route;
    route.route = stringifyRoute(cost.route).str();
    route.hasBuffer = cost.decodeFold.has_value();
    if (route.hasBuffer)
      route.threshold = threshold > 0 ? threshold
                        : cost.route == Route::KvOnly
                            ? impl->capacity
                            : cost.bestThreshold(machine, rows, impl->capacity);
    int64_t m = route.threshold;
    route.bytes = cost.cycleBytes(m);
    route.flops = cost.cycleFlops(m);
    route.seconds = cost.seconds(machine, rows, m);
    if (cost.route == Route::KvOnly) {
      // On average over a context that grows until the buffer is full.
      int64_t steps = std::max<int64_t>(1, m - 1);
      double fill = (steps - 1) / 2.0;
      route.bytes = cost.decode.bytes(fill);
      route.flops = cost.decode.flopsAt(fill);
      for (int64_t each = 0; each < steps; ++each)
        route.bytesByFill.push_back(cost.decode.bytes(each));
    } else {
      const StepCost &last = route.hasBuffer ? *cost.decodeFold : cost.decode;
      route.updatedBytes = (last.stateRead + last.stateWritten) / m;
      for (int64_t fill = 0; fill + 1 < m; ++fill)
        route.bytesByFill.push_back(cost.decode.bytes(fill));
      route.bytesByFill.push_back(last.bytes(m - 1));
    }
    plan.routes.push_back(std::move(route));
  }
  if (auto choice = chooseRoute(impl->costs, machine, rows, /*context=*/0,
                                impl->capacity, threshold))
    plan.chosen = choice->index;
  for (const Impl::Obstacle &obstacle : impl->obstacles) {
    RoutePlan &route = plan.routes.emplace_back();
    route.route = obstacle.route;
    route.obstacle = obstacle.text;
  }
  return plan;
}
