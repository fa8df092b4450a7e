//===- SegmentPlan.cpp - answers that prompts by segments know ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// An answer is computed for the queries of a warp, some elements of each at a
// time: what is elementwise may be anything, and what is summed over a product
// of a parameter's matrix with a vector.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "passes/gpu/SegmentPrompts.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

std::optional<SegmentProduct> SegmentProduct::of(SumOp op) {
  auto terms = op.getInput().getDefiningOp<arith::MulFOp>();
  if (!terms || shapeOf(op.getInput()).size() != 3 || op.getDim() != 2)
    return std::nullopt;
  SegmentProduct product;
  for (Value operand : terms->getOperands()) {
    auto broadcast = operand.getDefiningOp<BroadcastOp>();
    if (!broadcast)
      return std::nullopt;
    Value from = withoutCasts(broadcast.getInput());
    if (broadcast.getDims() == ArrayRef<int64_t>{0, 1, 2})
      product.matrix = dyn_cast<BlockArgument>(from);
    else if (broadcast.getDims() == ArrayRef<int64_t>{0, 2})
      product.vector = broadcast.getInput();
  }
  if (!product.matrix || !product.vector || shapeOf(product.matrix)[0] != 1)
    return std::nullopt;
  return product;
}

namespace {
struct Known {
  AttentionStepOp step;
  AttendOp attend;
  int64_t heads;

  /// `isAnswer`: and not what a memory is asked with.
  bool value(Value value, bool isAnswer);
  bool operation(Operation *op, bool isAnswer);
  bool isSized(Value value) const {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    // Lanes load pairs.
    return type && type.getRank() == 2 && heads % type.getDimSize(0) == 0 &&
           type.getDimSize(1) % 2 == 0;
  }
};
} // namespace

bool Known::value(Value value, bool isAnswer) {
  if (!isSized(value))
    return false;
  auto argument = dyn_cast<BlockArgument>(value);
  return argument ? argument.getOwner() == &step.getBody().front()
                  : operation(value.getDefiningOp(), isAnswer);
}

bool Known::operation(Operation *op, bool isAnswer) {
  auto isKnown = [&](Value operand) { return value(operand, isAnswer); };
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([](arith::ConstantOp constant) {
        return isa<SplatElementsAttr>(constant.getValue());
      })
      .Case([&](BroadcastOp each) {
        return each.getDims() == ArrayRef<int64_t>{0, 1} &&
               shapeOf(each.getInput())[1] == shapeOf(each.getResult())[1] &&
               isKnown(each.getInput());
      })
      .Case([&](NormalizeOp each) {
        return isAnswer && each.getSummary() == attend.getResult();
      })
      .Case([&](RecallOp each) {
        return isAnswer && value(each.getQuery(), /*isAnswer=*/false) &&
               shapeOf(each.getQuery())[1] ==
                   attend.getQuery().getType().getDimSize(1);
      })
      .Case([&](OnceOp each) {
        return isAnswer && isKnown(each.getValue()) &&
               isKnown(each.getOtherwise());
      })
      .Case([&](SumOp each) {
        auto product = SegmentProduct::of(each);
        return isAnswer && product && isSized(product->vector) &&
               isKnown(product->vector);
      })
      .Default([&](Operation *each) {
        return each->getNumResults() == 1 && each->getNumRegions() == 0 &&
               isa_and_present<arith::ArithDialect, math::MathDialect>(
                   each->getDialect()) &&
               llvm::all_of(each->getOperands(), isKnown);
      });
}

/// Of a key alone, element by element.
static bool isElementwise(FoldFromOp fold) {
  return llvm::all_of(
      fold.getFeature().front().without_terminator(), [](Operation &op) {
        if (auto constant = dyn_cast<arith::ConstantOp>(op))
          return isa<SplatElementsAttr>(constant.getValue());
        return op.getNumResults() == 1 && op.getNumRegions() == 0 &&
               isa_and_present<arith::ArithDialect, math::MathDialect>(
                   op.getDialect());
      });
}

std::optional<SegmentPromptPlan> SegmentPromptPlan::of(AttentionStepOp step) {
  if (!step.isBounded() || step.getForm() != AttentionForm::Decode)
    return std::nullopt;
  auto tokens = BoundedPromptTokens::of(step);
  if (!tokens)
    return std::nullopt;
  SegmentPromptPlan plan{*tokens, {}, {}};
  step.walk([&](FoldFromOp op) { plan.fold = op; });
  if (!plan.fold || !isElementwise(plan.fold))
    return std::nullopt;
  auto memory = cast<MemoryType>(step.getMemory().getType());
  ArrayRef<FieldAttr> fields =
      cast<BufferType>(step.getCache().getType()).getFields();
  if (memory.getKeySize() != fields[0].getShape()[1])
    return std::nullopt;
  plan.answer = withoutCasts(step.getYield().getValues().front());
  Known known{step, plan.attend,
              plan.attend.getQuery().getType().getDimSize(0)};
  if (!known.value(plan.answer, /*isAnswer=*/true) ||
      shapeOf(plan.answer)[1] != fields[1].getShape()[1])
    return std::nullopt;
  return plan;
}
