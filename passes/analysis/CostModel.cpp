//===- CostModel.cpp - bytes and time of a step ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/CostModel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/analysis/DraftCycle.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace ladle;

static double elementBytes(Type type) {
  return type.getIntOrFloatBitWidth() / 8.0;
}

static double tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * elementBytes(tensor.getElementType());
}

static double fieldBytes(FieldAttr field) {
  double count = 1;
  for (int64_t size : field.getShape())
    count *= size;
  return count * elementBytes(field.getElementType());
}

static double stateElements(StateType state) {
  return double(state.getHeads()) * state.getKeySize() * state.getValueSize();
}

/// Vectors a head in a [heads, D] or [heads, R, D] value, or in a stack of them
/// those of all drafts.
static double rankOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  double outer = tensor.getDimSize(0);
  return tensor.getRank() < 3
             ? 1
             : tensor.getNumElements() / (outer * tensor.getShape().back());
}

static double rankOf(BufferType buffer, StringRef field) {
  ArrayRef<int64_t> shape = buffer.getField(field).getShape();
  return shape.size() == 3 ? shape[1] : 1;
}

//===----------------------------------------------------------------------===//
// Counting on a step
//===----------------------------------------------------------------------===//

namespace {
class Counter {
public:
  explicit Counter(StepOp step) : step(step) {}
  StepCost run();

private:
  void touch(Value buffer, StringRef field) {
    if (!field.empty())
      touched.insert({buffer, field});
  }
  void touchAll(Value buffer, TransitionAttr transition);
  void count(Operation *op);

  StepOp step;
  StepCost cost;
  /// Fields that the step reads: several readers of a field share one pass.
  llvm::SmallSetVector<std::pair<Value, StringRef>, 8> touched;
};
} // namespace

/// Products with a Gram matrix: a chain has half of all pairs.
static double pathFlops(Type gram, double size) {
  auto type = cast<RankedTensorType>(gram);
  double drafts = type.getDimSize(1);
  return type.getNumElements() * (drafts - 1) / drafts * size;
}

void Counter::touchAll(Value buffer, TransitionAttr transition) {
  touch(buffer, transition.getDecay());
  for (ArrayRef<StringAttr> names :
       {transition.getKeys(), transition.getKeyScales(), transition.getValues(),
        transition.getValueScales(), transition.getCoefficients(),
        transition.getVectors(), transition.getVectorScales()})
    for (StringAttr name : names)
      touch(buffer, name.getValue());
}

void Counter::count(Operation *op) {
  TypeSwitch<Operation *>(op)
      .Case([&](LoadStateOp load) {
        // What has been stored in the same pass is not read again.
        for (Operation *user : load.getPool().getUsers())
          if (isa<StoreStateOp>(user) && user->isBeforeInBlock(load))
            return;
        StateType state = load.getState().getType();
        cost.stateRead +=
            stateElements(state) * elementBytes(state.getElementType());
      })
      .Case([&](StoreStateOp store) {
        StateType state = store.getState().getType();
        cost.stateWritten +=
            stateElements(state) * elementBytes(state.getElementType());
      })
      .Case([&](DecayOp decay) {
        cost.flops += stateElements(decay.getState().getType());
      })
      .Case([&](WriteOp write) {
        cost.flops += 2 * stateElements(write.getState().getType()) *
                      rankOf(write.getKey().getType());
      })
      .Case([&](ReadOp read) {
        cost.flops += 2 * stateElements(read.getState().getType()) *
                      rankOf(read.getQuery().getType());
      })
      .Case([&](DecayProductOp product) {
        touch(product.getBuffer(), product.getDecay());
        cost.flopsPerEntry += product.getResult().getType().getNumElements();
      })
      .Case([&](ReadBufferOp read) {
        Value buffer = read.getBuffer();
        touch(buffer, read.getKey());
        touch(buffer, read.getValue());
        for (auto name :
             {read.getKeyScale(), read.getValueScale(), read.getDecay()})
          touch(buffer, name.value_or(""));
        double keys = rankOf(read.getBuffer().getType(), read.getKey());
        for (auto [query, result] :
             llvm::zip(read.getQueries(), read.getResults())) {
          auto to = cast<RankedTensorType>(result.getType());
          auto from = cast<RankedTensorType>(query.getType());
          cost.flopsPerEntry += 2 * keys *
                                (to.getNumElements() +
                                 double(to.getDimSize(0)) / from.getDimSize(0) *
                                     from.getNumElements());
        }
      })
      .Case([&](FoldDraftsOp fold) {
        double rows = 0; // tokens × ranks, of all writes
        for (Value key : fold.getKeys()) {
          auto type = cast<RankedTensorType>(key.getType());
          rows += static_cast<double>(type.getNumElements()) /
                  (type.getDimSize(0) * type.getShape().back());
        }
        cost.flops += 2 * rows * stateElements(fold.getState().getType());
      })
      .Case([&](FoldBufferOp fold) {
        Value buffer = fold.getBuffer();
        touch(buffer, fold.getKey());
        touch(buffer, fold.getValue());
        for (auto name :
             {fold.getKeyScale(), fold.getValueScale(), fold.getDecay()})
          touch(buffer, name.value_or(""));
        cost.flopsPerEntry += 2 * stateElements(fold.getState().getType()) *
                              rankOf(fold.getBuffer().getType(), fold.getKey());
      })
      .Case([&](TransportOp transport) {
        TransitionAttr transition = transport.getTransition();
        touchAll(transport.getBuffer(), transition);
        for (auto [query, partial] :
             llvm::zip(transport.getQueries(), transport.getPartials())) {
          double keySide =
              cast<RankedTensorType>(query.getType()).getNumElements();
          double valueSide =
              cast<RankedTensorType>(partial.getType()).getNumElements();
          cost.flopsPerEntry +=
              transition.getKeys().size() * 2 * (keySide + valueSide) +
              transition.getVectors().size() * 2 * keySide + keySide;
        }
      })
      .Case([&](ReplayOp replay) {
        TransitionAttr transition = replay.getTransition();
        touchAll(replay.getBuffer(), transition);
        double passes = transition.getDecay().empty() ? 0 : 1;
        for (StringAttr key : transition.getKeys())
          passes += 2 * rankOf(replay.getBuffer().getType(), key.getValue());
        for (StringAttr vector : transition.getVectors())
          passes += 2 * rankOf(replay.getBuffer().getType(), vector.getValue());
        cost.flopsPerEntry +=
            passes * stateElements(replay.getState().getType());
      })
      .Case([&](AppendOp append) {
        for (FieldAttr field : append.getBuffer().getType().getFields())
          cost.entryWritten += fieldBytes(field);
      })
      .Case([&](AppendDraftsOp append) {
        for (FieldAttr field : append.getBuffer().getType().getFields())
          cost.entryWritten +=
              fieldBytes(field) * append.getDrafts().getType().getMost();
      })
      .Case([&](EachDraftOp each) {
        double before = cost.flops;
        for (Operation &inner : each.getBody().front().without_terminator())
          count(&inner);
        cost.flops +=
            (cost.flops - before) * (each.getDrafts().getType().getMost() - 1);
      })
      .Case([&](PathGramOp gram) {
        cost.flops += pathFlops(gram.getResult().getType(),
                                gram.getKeys().getType().getShape().back());
      })
      .Case<PathProductOp, PathSolveOp>([&](auto sum) {
        double size = cast<RankedTensorType>(sum->getResult(0).getType())
                          .getShape()
                          .back();
        for (Value gram : sum.getGrams())
          cost.flops += pathFlops(gram.getType(), size);
      })
      .Case([&](SumOp sum) {
        cost.flops += sum.getInput().getType().getNumElements();
      })
      // Moved or converted on the way: no arithmetic.
      .Case<BroadcastOp, arith::ExtFOp, arith::TruncFOp, arith::ConstantOp>(
          [](Operation *) {})
      .Default([&](Operation *each) {
        for (Type type : each->getResultTypes())
          if (auto tensor = dyn_cast<RankedTensorType>(type))
            cost.flops += tensor.getNumElements();
      });
}

StepCost Counter::run() {
  for (Operation &op : step.getBody().front().without_terminator())
    count(&op);
  double drafts =
      step.isStacked()
          ? static_cast<double>(
                cast<DraftsType>(step.getDrafts().getType()).getMost())
          : 1;
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (argument.use_empty())
      continue;
    ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
    if (kind == ArgumentKind::Token)
      cost.inputRead += drafts * tensorBytes(argument.getType());
    else if (kind == ArgumentKind::Carry)
      cost.carryMoved += tensorBytes(argument.getType());
  }
  for (Value output : step.getYieldedOutputs())
    cost.outputWritten += tensorBytes(output.getType());
  for (Value carry : step.getYieldedCarries())
    cost.carryMoved += tensorBytes(carry.getType());
  for (auto [buffer, name] : touched)
    cost.entryRead +=
        fieldBytes(cast<BufferType>(buffer.getType()).getField(name));
  return cost;
}

StepCost StepCost::of(StepOp step) {
  StepCost cost = Counter(step).run();
  cost.verifies =
      llvm::is_contained({Form::Verify, Form::VerifyFold}, step.getForm());
  for (BlockArgument buffer : step.getArgumentsOfKind(ArgumentKind::Buffer))
    cost.areRanked |=
        cost.verifies &&
        llvm::any_of(
            cast<BufferType>(buffer.getType()).getFields(),
            [](FieldAttr field) { return field.getShape().size() == 3; });
  return cost;
}

//===----------------------------------------------------------------------===//
// Cycles
//===----------------------------------------------------------------------===//

double RouteCost::cycleBytes(double m) const {
  if (!decodeFold)
    return decode.bytes(0);
  if (route == Route::KvOnly) // no fold: the context is the buffer
    return decode.bytes(m - 1);
  double entries = (m - 1) * (m - 2) / 2;
  return ((m - 1) * decode.bytes(0) + decode.entryRead * entries +
          decodeFold->bytes(m - 1)) /
         m;
}

double RouteCost::cycleFlops(double m) const {
  if (!decodeFold)
    return decode.flopsAt(0);
  if (route == Route::KvOnly)
    return decode.flopsAt(m - 1);
  double entries = (m - 1) * (m - 2) / 2;
  return ((m - 1) * decode.flopsAt(0) + decode.flopsPerEntry * entries +
          decodeFold->flopsAt(m - 1)) /
         m;
}

double RouteCost::separateCycleBytes(double m) const {
  if (!fold)
    return decode.bytes(0);
  return decode.bytes(0) + decode.entryRead * (m - 1) / 2 + fold->bytes(m) / m;
}

double RouteCost::verifyBytes(double drafts, double h) const {
  double each = decode.inputRead + decode.outputWritten + decode.entryWritten;
  return decode.bytes(h) + (drafts - 1) * each;
}

double RouteCost::verifyFlops(double drafts, double h) const {
  return drafts * decode.flopsAt(h) +
         decode.flopsPerEntry * drafts * (drafts - 1) / 2;
}

double RouteCost::draftSeconds(const Machine &machine, double batch, int64_t m,
                               int64_t drafts) const {
  double count = static_cast<double>(drafts);
  // One draft after another.
  if (!verify)
    return count * seconds(machine, batch, m);
  if (!verifyFold || route == Route::KvOnly)
    return verify->seconds(machine, batch, double(m - 1));
  return meanOfCycle(drafts, count / 2, m, [&](const DraftStep &each) {
    return (each.folds ? *verifyFold : *verify)
        .seconds(machine, batch, static_cast<double>(each.fill));
  });
}

double StepCost::seconds(const Machine &of, double batch, double h) const {
  const StepRates &machine = verifies ? of.drafts : of;
  double states = stateRead + stateWritten, entries = entryRead * h;
  double scattered =
      entries + entryWritten + inputRead + outputWritten + carryMoved;
  // What is updated in place streams slower than what is read alone.
  double memory = states / (stateWritten > 0 ? machine.updateBandwidth
                                             : machine.readBandwidth) +
                  scattered / machine.scatteredBandwidth;
  double rate = areRanked && machine.rankedFlopRate > 0 ? machine.rankedFlopRate
                                                        : machine.flopRate;
  // Memory and arithmetic overlap within a step.
  return machine.launch + (entries > 0 ? machine.entryLatency : 0) +
         batch * std::max(memory, flopsAt(h) / rate);
}

double RouteCost::seconds(const Machine &machine, double batch,
                          int64_t m) const {
  if (!decodeFold)
    return decode.seconds(machine, batch, 0);
  if (route == Route::KvOnly)
    return decode.seconds(machine, batch, double(m - 1));
  double cycle = decodeFold->seconds(machine, batch, double(m - 1));
  for (int64_t fill = 0; fill + 1 < m; ++fill)
    cycle += decode.seconds(machine, batch, double(fill));
  return cycle / double(m);
}

int64_t RouteCost::bestThreshold(const Machine &machine, double batch,
                                 int64_t limit, int64_t drafts) const {
  int64_t best = 1;
  if (drafts > 0 && verify && verifyFold && route != Route::KvOnly) {
    double least = std::numeric_limits<double>::infinity();
    // Of those that fold in the same steps the largest: rows that decode a
    // token then fold less often.
    for (int64_t m = 1; m <= limit; ++m)
      if (double mean = draftSeconds(machine, batch, m, drafts);
          mean <= least) {
        least = mean;
        best = m;
      }
    return best;
  }
  double least = seconds(machine, batch, best);
  if (!decodeFold || route == Route::KvOnly)
    return best;
  double withoutFold = 0; // of fills 0 to m - 2
  for (int64_t m = 2; m <= limit; ++m) {
    withoutFold += decode.seconds(machine, batch, double(m - 2));
    double mean =
        (withoutFold + decodeFold->seconds(machine, batch, double(m - 1))) /
        double(m);
    if (mean < least) {
      least = mean;
      best = m;
    }
  }
  return best;
}

int64_t RouteCost::bestSeparateThreshold(int64_t limit) const {
  int64_t best = 1;
  for (int64_t m = 2; m <= limit; ++m)
    if (separateCycleBytes(m) < separateCycleBytes(best))
      best = m;
  return best;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

SequenceMemory ladle::sequenceMemory(RecurrenceOp recurrence,
                                     const RouteCost &cost, int64_t capacity,
                                     int64_t drafts) {
  SequenceMemory memory;
  for (BlockArgument argument :
       recurrence.getArgumentsOfKind(ArgumentKind::State)) {
    auto type = cast<StateType>(argument.getType());
    memory.state += stateElements(type) * elementBytes(type.getElementType());
  }
  double carries = 0;
  for (BlockArgument argument :
       recurrence.getArgumentsOfKind(ArgumentKind::Carry)) {
    auto type = cast<RankedTensorType>(argument.getType());
    carries += static_cast<double>(type.getNumElements()) *
               elementBytes(type.getElementType());
  }
  auto versions = static_cast<double>(drafts + 1);
  memory.carries = carries * versions;
  // What a token appends is an entry.
  memory.entries = cost.decode.entryWritten * static_cast<double>(capacity);
  memory.stateADraft = (memory.state + carries) * versions;
  return memory;
}

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

std::vector<RouteCost> ladle::collectCosts(Operation *module,
                                           StringRef recurrence) {
  std::vector<RouteCost> costs;
  module->walk([&](StepOp step) {
    if (step.getRecurrence() != recurrence)
      return;
    auto found = llvm::find_if(costs, [&](const RouteCost &cost) {
      return cost.route == step.getRoute();
    });
    if (found == costs.end()) {
      costs.push_back({step.getRoute(), {}, {}, {}, {}, {}});
      found = std::prev(costs.end());
    }
    StepCost cost = StepCost::of(step);
    switch (step.getForm()) {
    case Form::Decode:
      found->decode = cost;
      break;
    case Form::DecodeFold:
      found->decodeFold = cost;
      break;
    case Form::Verify:
      found->verify = cost;
      break;
    case Form::VerifyFold:
      found->verifyFold = cost;
      break;
    case Form::Fold:
      found->fold = cost;
      break;
    case Form::PrefillFold: // a prompt is no part of a cycle
    case Form::PrefillEntries:
    case Form::PrefillScan:
      break;
    }
  });
  return costs;
}

/// Predictions are no more exact than this: within it the simplest route wins.
static constexpr double kTie = 1.01;

/// Simple first: what a route caches, and what it makes of that at a read.
static unsigned complexityOf(Route route) {
  switch (route) {
  case Route::Recurrent:
    return 0;
  case Route::Inner:
    return 1;
  case Route::Outer:
    return 2;
  case Route::Adjoint:
    return 3;
  case Route::KvOnly:
    return 4;
  }
  llvm_unreachable("unknown route");
}

/// By the steps of a token, of all routes or of those with a buffer.
static std::optional<RouteChoice>
chooseByTokens(ArrayRef<RouteCost> costs, const Machine &machine, int64_t batch,
               int64_t context, int64_t capacity, int64_t threshold,
               bool hasBuffer) {
  bool hasRecurrent =
      !hasBuffer && llvm::any_of(costs, [](const RouteCost &cost) {
        return cost.route == Route::Recurrent;
      });
  SmallVector<RouteChoice> choices;
  for (auto [i, cost] : llvm::enumerate(costs)) {
    RouteChoice choice{i, 1, 0};
    if (cost.route == Route::KvOnly) {
      // Its buffer must hold the whole context.
      if (context == 0 || context > capacity)
        continue;
      choice.threshold = context;
    } else if (cost.decodeFold) {
      choice.threshold = threshold > 0
                             ? threshold
                             : cost.bestThreshold(machine, batch, capacity);
      // A fold at every token is the recurrent route with more to do.
      if (choice.threshold == 1 && hasRecurrent)
        continue;
    } else if (hasBuffer) {
      continue;
    }
    choice.seconds = cost.seconds(machine, batch, choice.threshold);
    choices.push_back(choice);
  }
  std::optional<RouteChoice> best;
  double least = std::numeric_limits<double>::infinity();
  for (const RouteChoice &choice : choices)
    least = std::min(least, choice.seconds);
  for (const RouteChoice &choice : choices)
    if (choice.seconds <= least * kTie &&
        (!best || complexityOf(costs[choice.index].route) <
                      complexityOf(costs[best->index].route)))
      best = choice;
  return best;
}

std::optional<RouteChoice>
ladle::chooseRoute(ArrayRef<RouteCost> costs, const Machine &machine,
                   int64_t batch, int64_t context, int64_t capacity,
                   int64_t threshold, int64_t drafts) {
  std::optional<RouteChoice> best =
      chooseByTokens(costs, machine, batch, context, capacity, threshold,
                     /*hasBuffer=*/drafts > 0);
  if (drafts == 0)
    return best;
  // What tells routes with a buffer from one another has been measured of steps
  // of a token alone.
  double rows = static_cast<double>(batch);
  if (best) {
    const RouteCost &cost = costs[best->index];
    if (cost.route != Route::KvOnly && threshold == 0)
      best->threshold = cost.bestThreshold(machine, rows, capacity, drafts);
    best->seconds = cost.draftSeconds(machine, rows, best->threshold, drafts);
  }
  for (auto [i, cost] : llvm::enumerate(costs)) {
    if (cost.route != Route::Recurrent)
      continue;
    double seconds = cost.draftSeconds(machine, rows, 1, drafts);
    if (!best || seconds <= best->seconds * kTie)
      best = RouteChoice{i, 1, seconds};
  }
  return best;
}

std::optional<int64_t> ladle::findCrossover(ArrayRef<RouteCost> costs,
                                            const Machine &machine,
                                            int64_t batch, int64_t capacity,
                                            int64_t limit) {
  auto growing = llvm::find_if(
      costs, [](const RouteCost &cost) { return cost.route == Route::KvOnly; });
  std::optional<RouteChoice> longChoice =
      chooseRoute(costs, machine, batch, 0, capacity);
  if (growing == costs.end() || !longChoice || growing->decode.entryRead == 0)
    return std::nullopt;
  int64_t tokens = 0;
  while (tokens < limit && growing->seconds(machine, double(batch),
                                            tokens + 1) < longChoice->seconds)
    ++tokens;
  return tokens;
}
