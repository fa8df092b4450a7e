//===- Schedule.cpp - phases and tiles of a step --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Decides, for one row of the batch on one processor, what is computed once a
// head and what is computed along the rows of the state.
//
// Decay, write and read are separable over dv: row v of the state meets no
// other row. So a step becomes a sequence of phases. Even phases hold values
// that are complete for a head; odd phases are passes over tiles of dv, in
// which state rows are read, values that depend on them are computed, and
// rows are stored. A value that goes from dv to dk, or is reduced over dv,
// ends a phase.
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/cpu/ScheduleInfo.h"
#include "llvm/ADT/TypeSwitch.h"

namespace ladle {
#define GEN_PASS_DEF_LADLESCHEDULE
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {

/// Phases of the operations of one step.
class PhaseAssignment {
public:
  void run(StepOp step);

private:
  int64_t phaseOf(Value value) const {
    Operation *op = value.getDefiningOp();
    return op ? phases.lookup(op) : 0;
  }
  /// The even phase from which `value` is complete for a head.
  int64_t completeAt(Value value) const {
    int64_t phase = phaseOf(value);
    return phase + (phase & 1);
  }
  int64_t completeAt(ValueRange values) const {
    int64_t phase = 0;
    for (Value value : values)
      phase = std::max(phase, completeAt(value));
    return phase;
  }
  int64_t elementwise(ValueRange operands) const;
  /// The odd phase from which rows of `state` can be formed. `sameTile` lets
  /// the last writes take values of the tile at hand.
  int64_t rowsOf(Value state, bool sameTile) const;
  int64_t phaseFor(Operation *op) const;

  DenseMap<Operation *, int64_t> phases;
};

} // namespace

int64_t PhaseAssignment::elementwise(ValueRange operands) const {
  bool alongRows = llvm::any_of(
      operands, [&](Value operand) { return phaseOf(operand) & 1; });
  int64_t phase = 0;
  for (Value operand : operands) {
    int64_t at = phaseOf(operand);
    phase = std::max(phase, alongRows ? at | 1 : at);
  }
  return phase;
}

int64_t PhaseAssignment::rowsOf(Value state, bool sameTile) const {
  Operation *op = state.getDefiningOp();
  return TypeSwitch<Operation *, int64_t>(op)
      .Case([&](DecayOp decay) {
        return std::max(rowsOf(decay.getState(), sameTile),
                        completeAt(decay.getFactor()) + 1);
      })
      .Case([&](WriteOp write) {
        int64_t value = sameTile ? phaseOf(write.getValue()) | 1
                                 : completeAt(write.getValue()) + 1;
        return std::max({rowsOf(write.getState(), sameTile), value,
                         completeAt(write.getKey()) + 1});
      })
      .Case<FoldBufferOp, ReplayOp>(
          [&](auto fold) { return rowsOf(fold.getState(), sameTile); })
      .Default([](Operation *) { return 1; });
}

int64_t PhaseAssignment::phaseFor(Operation *op) const {
  return TypeSwitch<Operation *, int64_t>(op)
      .Case([&](ReadOp read) {
        return std::max(rowsOf(read.getState(), /*sameTile=*/false),
                        completeAt(read.getQuery()) + 1);
      })
      .Case([&](StoreStateOp store) {
        // A row must not be replaced before the last read of its old value.
        int64_t phase = rowsOf(store.getState(), /*sameTile=*/true);
        for (auto &[other, at] : phases)
          if (isa<ReadOp>(other) &&
              findLoadedPool(cast<ReadOp>(other).getState()) == store.getPool())
            phase = std::max(phase, at);
        return phase;
      })
      .Case([&](SumOp sum) {
        bool last =
            int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank();
        return last ? completeAt(sum.getInput()) : phaseOf(sum.getInput());
      })
      .Case([&](BroadcastOp broadcast) {
        // Only a broadcast that keeps the last dimension runs along rows.
        int64_t rank = broadcast.getResult().getType().getRank();
        bool keepsLast = broadcast.getDims().back() + 1 == rank &&
                         broadcast.getInput().getType().getRank() > 1;
        return keepsLast ? phaseOf(broadcast.getInput())
                         : completeAt(broadcast.getInput());
      })
      .Case<RotateOp, ReadBufferOp, TransportOp>(
          [&](Operation *each) { return completeAt(each->getOperands()); })
      .Case<ShiftOp, ConvOp>(
          [&](Operation *each) { return elementwise(each->getOperands()); })
      .Default([&](Operation *each) {
        return each->hasTrait<OpTrait::Elementwise>()
                   ? elementwise(each->getOperands())
                   : 0;
      });
}

void PhaseAssignment::run(StepOp step) {
  // Stores come last: each waits for all reads of its pool.
  auto body = step.getBody().front().without_terminator();
  for (Operation &op : body)
    if (!isa<StoreStateOp>(op))
      phases[&op] = phaseFor(&op);
  for (Operation &op : body)
    if (isa<StoreStateOp>(op))
      phases[&op] = phaseFor(&op);
  int64_t last = 0;
  Builder builder(step.getContext());
  for (Operation &op : body) {
    last = std::max(last, phases[&op]);
    op.setAttr(kPhaseAttr, builder.getIndexAttr(phases[&op]));
  }
  step->setAttr(kLastPhaseAttr, builder.getIndexAttr(last | 1));
}

//===----------------------------------------------------------------------===//
// Head levels
//===----------------------------------------------------------------------===//

/// Collects the head counts of all values and checks that they nest: a value
/// with few heads is computed once for the group of heads that share it.
static FailureOr<SmallVector<int64_t>> collectLevels(StepOp step) {
  std::map<int64_t, Location> counts;
  auto add = [&](Type type, Location loc) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      counts.try_emplace(tensor.getDimSize(0), loc);
    else if (auto pool = dyn_cast<PoolType>(type))
      counts.try_emplace(pool.getHeads(), loc);
    else if (auto buffer = dyn_cast<BufferType>(type))
      for (FieldAttr field : buffer.getFields())
        counts.try_emplace(field.getShape().front(), loc);
  };
  std::optional<int64_t> stateHeads;
  for (BlockArgument argument : step.getBody().getArguments()) {
    add(argument.getType(), argument.getLoc());
    auto pool = dyn_cast<PoolType>(argument.getType());
    if (pool && stateHeads && *stateHeads != pool.getHeads()) {
      InFlightDiagnostic diag =
          step.emitError("states of one recurrence must have the same number "
                         "of heads to be decoded together, got ")
          << *stateHeads << " and " << pool.getHeads();
      diag.attachNote(argument.getLoc())
          << "declare this state with " << *stateHeads << " heads";
      return failure();
    }
    if (pool)
      stateHeads = pool.getHeads();
  }
  step.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      add(type, op->getLoc());
  });

  SmallVector<int64_t> levels;
  for (auto &[count, loc] : counts) {
    if (!levels.empty() && count % levels.back() != 0) {
      InFlightDiagnostic diag =
          step.emitError("head counts must divide one another, got ")
          << levels.back() << " and " << count;
      diag.attachNote(loc) << "give this value a multiple of " << levels.back()
                           << " heads";
      return failure();
    }
    levels.push_back(count);
  }
  return levels;
}

/// The heads that one task must cover together: a value that is stored with
/// few heads must not be stored by two tasks, one of which still reads it.
static int64_t findHeadGroup(StepOp step, int64_t heads) {
  int64_t fewest = heads;
  for (Value value : step.getYield().getValues())
    fewest =
        std::min(fewest, cast<RankedTensorType>(value.getType()).getDimSize(0));
  step.walk([&](Operation *op) {
    if (isa<AppendOp, AppendDraftsOp>(op))
      for (Type type : op->getOperandTypes())
        if (auto tensor = dyn_cast<RankedTensorType>(type))
          fewest = std::min(fewest, tensor.getDimSize(0));
  });
  return heads / fewest;
}

namespace {
struct LadleSchedule : ladle::impl::LadleScheduleBase<LadleSchedule> {
  using LadleScheduleBase::LadleScheduleBase;

  void runOnOperation() override {
    StepOp step = getOperation();
    if (tileRows < 1 || tileRows > 64) {
      step.emitError("tile-rows must be between 1 and 64, got ")
          << tileRows.getValue();
      return signalPassFailure();
    }
    FailureOr<SmallVector<int64_t>> levels = collectLevels(step);
    if (failed(levels))
      return signalPassFailure();
    Builder builder(&getContext());
    // With stacks, a state is passed over once, when all its vectors are there.
    if (step.isStacked())
      step->setAttr(kLastPhaseAttr, builder.getIndexAttr(0));
    else
      PhaseAssignment().run(step);
    if (levels->empty())
      levels->push_back(1);
    step->setAttr(kLevelsAttr, builder.getDenseI64ArrayAttr(*levels));
    step->setAttr(kHeadGroupAttr,
                  builder.getIndexAttr(findHeadGroup(step, levels->back())));
    step->setAttr(kTileRowsAttr, builder.getIndexAttr(tileRows));
  }
};
} // namespace
