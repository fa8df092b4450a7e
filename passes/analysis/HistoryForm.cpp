//===- HistoryForm.cpp - a recurrence as entries of a history -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/HistoryForm.h"
#include "passes/analysis/AffineForm.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Chains of states
//===----------------------------------------------------------------------===//

/// The state that `op` changes, or null if it is neither decay nor write.
static Value changedState(Operation *op) {
  if (auto decay = dyn_cast_if_present<DecayOp>(op))
    return decay.getState();
  if (auto write = dyn_cast_if_present<WriteOp>(op))
    return write.getState();
  return {};
}

/// The version of a state that all its decays and writes start from.
static Value rootOf(Value state) {
  while (Value previous = changedState(state.getDefiningOp()))
    state = previous;
  return state;
}

LogicalResult ladle::verifyStateUses(RecurrenceOp recurrence) {
  auto isState = [](Type type) { return isa<StateType>(type); };
  WalkResult walked = recurrence.getBody().walk([&](Operation *op) {
    if (isa<DecayOp, WriteOp, ReadOp, YieldOp>(op))
      return WalkResult::advance();
    bool takes = llvm::any_of(op->getOperandTypes(), isState);
    if (!takes && llvm::none_of(op->getResultTypes(), isState))
      return WalkResult::advance();
    InFlightDiagnostic diag =
        op->emitOpError(takes ? "takes a state" : "gives a state");
    diag.attachNote() << "a state is only decayed, written and read; compute "
                         "with what ladle.read gives";
    return WalkResult::interrupt();
  });
  if (walked.wasInterrupted())
    return failure();

  auto states = recurrence.getArgumentsOfKind(ArgumentKind::State);
  for (auto [state, next] : llvm::zip(states, recurrence.getYieldedStates())) {
    auto root = cast<BlockArgument>(rootOf(next));
    if (root == state)
      continue;
    InFlightDiagnostic diag =
        recurrence.getYield().emitOpError("replaces state '")
        << recurrence.getArgumentName(state.getArgNumber())
        << "' by a version of state '"
        << recurrence.getArgumentName(root.getArgNumber()) << "'";
    diag.attachNote() << "decay and write a state itself; another state "
                         "enters its update through ladle.read";
    return diag;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Normal form
//===----------------------------------------------------------------------===//

static LogicalResult failNormalForm(Operation *op, const Twine &message) {
  InFlightDiagnostic diag = op->emitOpError(message);
  diag.attachNote() << "run ladle-normalize-reads first";
  return diag;
}

std::string HistoryForm::nameOf(const StateHistory &history) const {
  return RecurrenceOp(recurrence)
      .getArgumentName(history.state.getArgNumber())
      .str();
}

LogicalResult HistoryForm::addState(BlockArgument state, Value next) {
  StateHistory history;
  history.state = state;
  history.index = states.size();
  // Backwards from the last version: writes first, then the decay.
  for (Operation *op = next.getDefiningOp(); op;
       op = changedState(op).getDefiningOp()) {
    if (auto write = dyn_cast<WriteOp>(op)) {
      if (history.decayOp)
        return failNormalForm(history.decayOp, "decays state '" +
                                                   nameOf(history) +
                                                   "' after a write");
      history.writes.push_back({write, write.getKey(), write.getValue(),
                                getClass(write.getKey()),
                                getClass(write.getValue())});
      continue;
    }
    if (history.decayOp)
      return failNormalForm(op, "decays state '" + nameOf(history) +
                                    "' before another decay");
    history.decayOp = cast<DecayOp>(op);
    history.decay = history.decayOp.getFactor();
    history.decayClass = getClass(history.decay);
  }
  std::reverse(history.writes.begin(), history.writes.end());
  states.push_back(std::move(history));
  return success();
}

FailureOr<HistoryForm> HistoryForm::get(RecurrenceOp op) {
  if (failed(verifyStateUses(op)))
    return failure();
  HistoryForm form(op);
  auto arguments = op.getArgumentsOfKind(ArgumentKind::State);
  llvm::SmallPtrSet<Operation *, 8> chained;
  for (auto [state, next] : llvm::zip(arguments, op.getYieldedStates())) {
    if (failed(form.addState(state, next)))
      return failure();
    const StateHistory &history = form.states.back();
    if (history.decayOp)
      chained.insert(history.decayOp);
    for (const StateWrite &write : history.writes)
      chained.insert(write.op);
  }
  WalkResult walked = op.getBody().walk([&](Operation *inner) {
    if (changedState(inner) && !chained.contains(inner)) {
      (void)failNormalForm(inner, "gives a version of a state that is not "
                                  "yielded");
      return WalkResult::interrupt();
    }
    auto read = dyn_cast<ReadOp>(inner);
    if (!read)
      return WalkResult::advance();
    auto found = llvm::find_if(form.states, [&](const StateHistory &history) {
      return history.state == read.getState();
    });
    if (found == form.states.end()) {
      (void)failNormalForm(read, "reads a state that is not an argument of "
                                 "the recurrence");
      return WalkResult::interrupt();
    }
    found->reads.push_back(read);
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();
  return form;
}

//===----------------------------------------------------------------------===//
// Legality of routes
//===----------------------------------------------------------------------===//

std::optional<HistoryForm::Obstacle>
HistoryForm::findDependentOperand(const StateHistory &state) const {
  auto obstacle = [&](Operation *op, StringRef what, Value operand) {
    return Obstacle{
        op,
        llvm::formatv("the {0} state '{1}' comes from a read", what,
                      nameOf(state))
            .str(),
        "compute it from inputs, parameters and carries, or decode by route "
        "'recurrent'",
        classes.findRead(operand)};
  };
  if (state.decayClass != OperandClass::TokenOnly)
    return obstacle(state.decayOp, "decay of", state.decay);
  for (const StateWrite &write : state.writes)
    if (write.keyClass != OperandClass::TokenOnly)
      return obstacle(write.op, "key of a write to", write.key);
  for (ReadOp read : state.reads)
    if (getClass(read.getQuery()) != OperandClass::TokenOnly)
      return obstacle(read, "query of a read of", read.getQuery());
  return std::nullopt;
}

std::optional<HistoryForm::Obstacle>
HistoryForm::findOpaqueValue(const StateHistory &state) const {
  constexpr StringLiteral wayOut =
      "the other routes allow any value; the adjoint one carries a query back "
      "through the tokens, so that a value must be a combination of reads of "
      "its own state with token-only numbers, one a head or rank";
  for (StateWrite write : state.writes) {
    std::string what = "the value of a write to state '" + nameOf(state) + "' ";
    AffineObstacle affine;
    FailureOr<SmallVector<ReadOp>> reads =
        findAffineReads(write.value, classes, AffineScale::None, affine);
    if (failed(reads))
      return Obstacle{
          affine.op ? affine.op : WriteOp(write.op).getOperation(),
          what + "is not a linear combination of reads: " + affine.reason,
          wayOut.str(), classes.findRead(write.value)};
    for (ReadOp read : *reads)
      if (read.getState() != state.state)
        return Obstacle{write.op, what + "comes from a read of another state",
                        wayOut.str(), read};
  }
  return std::nullopt;
}

std::optional<HistoryForm::Obstacle>
HistoryForm::getObstacle(Route route) const {
  if (route == Route::Recurrent)
    return std::nullopt;
  if (states.empty())
    return Obstacle{RecurrenceOp(recurrence), "there is no state",
                    "route 'recurrent' decodes it; nothing needs a history"};
  for (const StateHistory &state : states) {
    if (state.writes.empty())
      return Obstacle{RecurrenceOp(recurrence),
                      "state '" + nameOf(state) + "' is never written",
                      "write to it, or decode by route 'recurrent'"};
    if (std::optional<Obstacle> obstacle = findDependentOperand(state))
      return obstacle;
  }
  if (route == Route::Adjoint)
    for (const StateHistory &state : states)
      if (std::optional<Obstacle> obstacle = findOpaqueValue(state))
        return obstacle;
  return std::nullopt;
}
