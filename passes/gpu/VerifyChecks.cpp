//===- VerifyChecks.cpp - what no verify kernel is made of ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

static InFlightDiagnostic refuse(Operation *op) {
  return op->emitError("cannot be lowered for GPUs: ");
}

/// That drafts find entries to wait in.
static LogicalResult checkBuffers(StepOp form) {
  bool hasBuffer = false;
  for (Type type : form.getBody().getArgumentTypes())
    if (auto buffer = dyn_cast<BufferType>(type)) {
      hasBuffer = true;
      if (buffer.getOrder() != BufferOrder::Indexed)
        return refuse(form) << "drafts wait in a buffer whose order is "
                               "indexed, not "
                            << stringifyBufferOrder(buffer.getOrder());
    }
  if (!hasBuffer)
    return refuse(form) << "drafts wait in a buffer of entries, and there is "
                           "none";
  return success();
}

/// That there is something to cut into lanes.
static LogicalResult checkSizes(StepOp form) {
  auto refuseOne = [&](StringRef what, StringRef wayOut) -> LogicalResult {
    InFlightDiagnostic error = refuse(form) << what << " are of one element";
    error.attachNote() << wayOut;
    return error;
  };
  bool transports = !form.getBody().getOps<TransportOp>().empty();
  for (Type type : form.getBody().getArgumentTypes()) {
    auto pool = dyn_cast<PoolType>(type);
    if (pool && pool.getKeySize() == 1 && transports)
      return refuseOne("keys of drafts", "verify by route inner or outer");
    auto buffer = dyn_cast<BufferType>(type);
    for (FieldAttr field : buffer ? buffer.getFields() : ArrayRef<FieldAttr>())
      if (field.getShape().size() == 3 && field.getShape()[1] == 1)
        return refuseOne("ranks of drafts", "declare them without the rank");
  }
  return success();
}

/// That a stack has been made by something that makes stacks.
static LogicalResult checkStack(Operation *user, Value stack,
                                bool mayBeOfRows) {
  Operation *op = stack.getDefiningOp();
  bool isOfRows = isa_and_present<ReadOp, ReadBufferOp>(op);
  if (isa_and_present<EachDraftOp, PathDecayOp, PathGramOp, PathSolveOp,
                      PathProductOp, TransportOp>(op) ||
      (isOfRows && mayBeOfRows))
    return success();
  if (isOfRows)
    return refuse(user) << "what is read of a state is needed along dk";
  return refuse(user) << "nothing makes this stack before it is used";
}

static LogicalResult checkOp(Operation &op) {
  if (auto region = dyn_cast<EachDraftOp>(op)) {
    for (Operation &each : region.getBody().front().without_terminator())
      if (each.getNumResults() != 1 ||
          !isa<RankedTensorType>(each.getResult(0).getType()))
        return refuse(&each)
               << "'" << each.getName() << "' has no token value as its result";
    for (Value carry : region.getCarries())
      if (!isa<BlockArgument>(carry))
        return refuse(&op) << "a carry is none of the step";
    for (Value stack : region.getStacks())
      if (failed(checkStack(&op, stack, /*mayBeOfRows=*/true)))
        return failure();
    return success();
  }
  SmallVector<Value> ofTeams, any;
  if (auto path = dyn_cast<PathDecayOp>(op))
    ofTeams.push_back(path.getDecays());
  else if (isa<PathGramOp>(op))
    ofTeams.assign(op.operand_begin() + 1, op.operand_end());
  else if (auto read = dyn_cast<ReadOp>(op))
    ofTeams.push_back(read.getQuery());
  else if (auto read = dyn_cast<ReadBufferOp>(op))
    llvm::append_range(ofTeams, read.getQueries());
  else if (auto transport = dyn_cast<TransportOp>(op))
    llvm::append_range(ofTeams, transport.getQueries());
  else if (auto solve = dyn_cast<PathSolveOp>(op))
    for (ValueRange values : {solve.getRhs(), solve.getScales()})
      llvm::append_range(any, values);
  else if (auto product = dyn_cast<PathProductOp>(op))
    llvm::append_range(any, product.getValues());
  else if (auto append = dyn_cast<AppendDraftsOp>(op))
    for (auto [value, field] : llvm::zip(
             append.getValues(), append.getBuffer().getType().getFields()))
      if (field.getSide() == Side::Value)
        any.push_back(value);
      else if (!value.getDefiningOp<EachDraftOp>())
        return refuse(&op) << "the field '" << field.getName()
                           << "' is no value of each draft";
      else
        ofTeams.push_back(value);
  else if (!isa<YieldOp, LoadStateOp, StoreStateOp, ZeroStateOp, DecayOp,
                FoldBufferOp, ReplayOp, DecayProductOp, ClearOp,
                arith::ConstantOp>(op))
    return refuse(&op) << "'" << op.getName()
                       << "' is not for all drafts of a row";
  for (Value value : ofTeams)
    if (failed(checkStack(&op, value, /*mayBeOfRows=*/false)))
      return failure();
  for (Value value : any)
    if (failed(checkStack(&op, value, /*mayBeOfRows=*/true)))
      return failure();
  return success();
}

LogicalResult GpuVerifyKernel::check() {
  for (StepOp form : forms()) {
    if (failed(checkBuffers(form)) || failed(checkSizes(form)))
      return failure();
    for (Operation &op : form.getBody().front())
      if (failed(checkOp(op)))
        return failure();
    for (Value carry : form.getYieldedCarries())
      if (!carry.getDefiningOp<EachDraftOp>())
        return refuse(form)
               << "a carry is none that ladle.each_draft leaves behind";
    for (Value output : form.getYieldedOutputs())
      if (failed(checkStack(form, output, /*mayBeOfRows=*/true)))
        return failure();
    // What is asked of teams may come from rows by a detour.
    rowValues.clear();
    findRowValues(form);
    for (Operation &op : form.getBody().front()) {
      bool isAlongKeys =
          isa<PathDecayOp, PathGramOp, ReadOp, ReadBufferOp, TransportOp>(op);
      if (isAlongKeys && llvm::any_of(op.getOperands(), [&](Value value) {
            return dependsOnRows(value);
          }))
        return refuse(&op) << "what is read of a state is needed along dk";
    }
  }
  return GpuKernel::check();
}
