//===- AttentionPlan.cpp - what a step of an attention is made of ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/AttentionPlan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace ladle;

Value ladle::unwidened(Value value) {
  if (auto extended = value.getDefiningOp<arith::ExtFOp>())
    return extended.getIn();
  return value;
}

static LogicalResult checkArguments(Operation *op, ValueRange values) {
  for (Value value : values)
    if (value && !isa<BlockArgument>(unwidened(value)))
      return op->emitError("an operand of '")
             << op->getName() << "' is computed, which is not lowered; it has "
             << "to be an argument of the step";
  return success();
}

FailureOr<AttentionPlan> AttentionPlan::of(AttentionStepOp step) {
  AttentionPlan plan;
  int64_t finds = 0, stores = 0;
  for (Operation &op : step.getBody().front().without_terminator()) {
    if (isa<arith::ExtFOp, arith::TruncFOp, MergeOp, NormalizeOp, ReuseOp,
            AppendOp>(op))
      continue;
    LogicalResult isKnown = success();
    if (auto attend = dyn_cast<AttendOp>(op)) {
      plan.attends.push_back(attend);
      isKnown = checkArguments(attend, attend.getQuery());
      AttendOp first = plan.attends.front();
      if (succeeded(isKnown) && (attend.getQuery() != first.getQuery() ||
                                 attend.getScale() != first.getScale()))
        isKnown = attend.emitError("attends with another query or scale than "
                                   "the piece before it, which is not lowered");
    } else if (auto find = dyn_cast<FindOp>(op)) {
      ++finds;
      plan.find = find;
      isKnown = checkArguments(
          find, {find.getQuery(), find.getRotated(), find.getMoment()});
    } else if (auto store = dyn_cast<StoreSummaryOp>(op)) {
      ++stores;
      plan.store = store;
      isKnown = checkArguments(store, {store.getQuery(), store.getRotated()});
    } else {
      isKnown = op.emitError("'")
                << op.getName() << "' is not lowered in a step of an attention";
    }
    if (failed(isKnown))
      return failure();
  }
  if (plan.attends.empty() || plan.attends.size() > mostAttends || finds > 1 ||
      stores > 1) {
    step.emitError("has ") << plan.attends.size() << " attends, " << finds
                           << " finds and " << stores
                           << " stores of summaries; lowered are 1 to "
                           << mostAttends << ", and one of the others at most";
    return failure();
  }
  Value answer = step.getYield().getValues().front();
  if (auto rounded = answer.getDefiningOp<arith::TruncFOp>())
    answer = rounded.getIn();
  if (step.getOutputNames().size() != 1 ||
      !answer.getDefiningOp<NormalizeOp>()) {
    step.emitError("does not yield one ladle.normalize");
    return failure();
  }
  ArrayRef<FieldAttr> fields =
      cast<BufferType>(step.getCache().getType()).getFields();
  plan.cacheHeads = fields[0].getShape()[0];
  plan.keySize = fields[0].getShape()[1];
  plan.valueSize = fields[1].getShape()[1];
  plan.keyType = fields[0].getElementType();
  plan.valueType = fields[1].getElementType();
  plan.pageSize = static_cast<int64_t>(step.getPageSize());
  plan.heads = plan.attends.front().getQuery().getType().getDimSize(0);
  plan.output = cast<RankedTensorType>(
      cast<TypeAttr>(step.getOutputTypes()[0]).getValue());
  if (Value store = step.getRing())
    plan.ring = cast<RingType>(store.getType());
  return plan;
}
