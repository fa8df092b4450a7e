//===- OperandClasses.cpp - how values depend on the state ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/OperandClasses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

OperandClasses::OperandClasses(Region &body) {
  // Operations nested in another one come before it, so that it can be judged
  // by them.
  body.walk([&](Operation *op) {
    OperandClass resultClass = classify(op);
    if (resultClass == OperandClass::TokenOnly)
      return;
    for (Value result : op->getResults())
      if (!isa<StateType>(result.getType()))
        classes[result] = resultClass;
  });
}

OperandClass OperandClasses::get(Value value) const {
  auto found = classes.find(value);
  if (found != classes.end())
    return found->second;
  // What a nested region is entered with is not followed.
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && !isa<RecurrenceOp>(argument.getOwner()->getParentOp()))
    return OperandClass::Other;
  return OperandClass::TokenOnly;
}

OperandClass OperandClasses::classify(Operation *op) const {
  auto joined = [&](ValueRange values) {
    OperandClass result = OperandClass::TokenOnly;
    for (Value value : values)
      result = std::max(result, get(value));
    return result;
  };
  auto isTokenOnly = [&](Value value) {
    return get(value) == OperandClass::TokenOnly;
  };
  return TypeSwitch<Operation *, OperandClass>(op)
      .Case([&](ReadOp read) {
        return isTokenOnly(read.getQuery()) ? OperandClass::Affine
                                            : OperandClass::Other;
      })
      .Case<DecayOp, WriteOp>([](auto) { return OperandClass::TokenOnly; })
      .Case<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::ExtFOp,
            arith::TruncFOp, BroadcastOp, SumOp>(
          [&](auto) { return joined(op->getOperands()); })
      .Case([&](arith::MulFOp product) {
        if (isTokenOnly(product.getLhs()) || isTokenOnly(product.getRhs()))
          return joined(op->getOperands());
        return OperandClass::Other;
      })
      .Case([&](arith::DivFOp quotient) {
        return isTokenOnly(quotient.getRhs()) ? get(quotient.getLhs())
                                              : OperandClass::Other;
      })
      .Case([&](arith::SelectOp select) {
        return isTokenOnly(select.getCondition())
                   ? joined({select.getTrueValue(), select.getFalseValue()})
                   : OperandClass::Other;
      })
      .Default([&](Operation *) {
        bool dependsOnState =
            op->walk([&](Operation *inner) {
                bool depends =
                    isa<ReadOp>(inner) ||
                    llvm::any_of(inner->getOperands(), [&](Value operand) {
                      return isa<StateType>(operand.getType()) ||
                             !isTokenOnly(operand);
                    });
                return depends ? WalkResult::interrupt()
                               : WalkResult::advance();
              }).wasInterrupted();
        return dependsOnState ? OperandClass::Other : OperandClass::TokenOnly;
      });
}

ReadOp OperandClasses::findRead(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    if (auto read = dyn_cast<ReadOp>(op))
      return read;
    auto next = llvm::find_if(op->getOperands(), [&](Value operand) {
      return get(operand) != OperandClass::TokenOnly;
    });
    if (next == op->operand_end())
      return {};
    value = *next;
  }
  return {};
}

Operation *OperandClasses::findNonAffine(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    auto next = llvm::find_if(op->getOperands(), [&](Value operand) {
      return get(operand) == OperandClass::Other;
    });
    if (next == op->operand_end())
      return op;
    value = *next;
  }
  return nullptr;
}
