//===- BoundedValues.cpp - arithmetic of a bounded step -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values of a head that are numbers or vectors are evaluated once. Those with
// more dimensions, such as the product of a matrix and a vector before it is
// summed, never exist as a whole: a row of them is evaluated when it is asked
// for, in a loop over rows.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/cpu/BoundedKernel.h"
#include "passes/cpu/Dots.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType tensorOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Of a number or a vector along the last dimension.
static Type elementType(RankedTensorType tensor) {
  Type type = tensor.getElementType();
  if (!type.isInteger(1))
    type = Float32Type::get(tensor.getContext());
  return tensor.getRank() == 1
             ? type
             : VectorType::get({tensor.getShape().back()}, type);
}

FailureOr<Value> BoundedKernel::element(Value value, ValueRange indices) {
  if (!isa<RankedTensorType>(value.getType()))
    return mlir::emitError(value.getLoc(),
                           "cannot be lowered for the CPU: not a token value");
  if (indices.empty())
    for (const auto &scope : llvm::reverse(evaluated))
      if (auto known = scope.find(value); known != scope.end())
        return known->second;
  FailureOr<Value> result = compute(value, indices);
  if (succeeded(result) && indices.empty())
    evaluated.back()[value] = *result;
  return result;
}

FailureOr<Value> BoundedKernel::compute(Value value, ValueRange indices) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return loadArgument(argument, indices);
  Operation *op = value.getDefiningOp();
  RankedTensorType tensor = tensorOf(value);
  return llvm::TypeSwitch<Operation *, FailureOr<Value>>(op)
      .Case([&](arith::ConstantOp constant) -> FailureOr<Value> {
        auto splatAttr = dyn_cast<SplatElementsAttr>(constant.getValue());
        if (!splatAttr)
          return op->emitError("only constants with one value are supported");
        if (tensor.getRank() == 1)
          return Value(arith::ConstantOp::create(
              b, splatAttr.getSplatValue<TypedAttr>()));
        return Value(arith::ConstantOp::create(
            b, DenseElementsAttr::get(cast<VectorType>(elementType(tensor)),
                                      splatAttr.getSplatValue<Attribute>())));
      })
      // Memory is where types change.
      .Case<arith::ExtFOp, arith::TruncFOp>([&](Operation *each) {
        return element(each->getOperand(0), indices);
      })
      .Case([&](BroadcastOp each) { return broadcast(each, indices); })
      .Case([&](SumOp each) { return sum(each, indices); })
      .Case([&](RotateOp each) { return rotate(each, indices); })
      .Case([&](OnceOp each) { return once(each, indices); })
      .Case([&](NormalizeOp each) -> FailureOr<Value> {
        FailureOr<Summary> summary = summaryOf(each.getSummary());
        if (failed(summary))
          return failure();
        return normalize(*summary);
      })
      .Case([&](RecallOp) -> FailureOr<Value> {
        return load(found.at(value).values, {group, index(0)}, valueSize);
      })
      .Default([&](Operation *each) { return elementwise(each, indices); });
}

FailureOr<Value> BoundedKernel::loadArgument(BlockArgument argument,
                                             ValueRange indices) {
  RankedTensorType type = tensorOf(argument);
  int64_t its = type.getDimSize(0);
  Value at;
  if (cacheHeads % its == 0)
    at = arith::DivUIOp::create(b, head, index(cacheHeads / its));
  else if (queryHead && heads % its == 0)
    at = arith::DivUIOp::create(b, queryHead, index(heads / its));
  else
    return mlir::emitError(argument.getLoc(), "cannot be lowered for the CPU: ")
           << its << " heads of a value, where the cache has " << cacheHeads
           << " and the query " << heads;
  SmallVector<Value> place;
  if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Token)
    place.push_back(row);
  place.push_back(at);
  llvm::append_range(place, indices);
  if (type.getRank() > 1) {
    place.push_back(index(0));
    return load(memory.at(argument), place, type.getShape().back());
  }
  Value number = memref::LoadOp::create(b, memory.at(argument), place);
  return convertElements(b, number, b.getF32Type());
}

FailureOr<Value> BoundedKernel::broadcast(BroadcastOp op, ValueRange indices) {
  RankedTensorType from = op.getInput().getType();
  RankedTensorType to = op.getResult().getType();
  ArrayRef<int64_t> dims = op.getDims();
  if (from.getRank() == 1) {
    FailureOr<Value> number = element(op.getInput());
    if (failed(number) || to.getRank() == 1)
      return number;
    return splat(*number, to.getShape().back());
  }
  SmallVector<Value> inner;
  for (int64_t dim : dims.drop_front().drop_back())
    inner.push_back(indices[dim - 1]);
  if (dims.back() + 1 == to.getRank())
    return element(op.getInput(), inner);
  FailureOr<Value> number =
      scalarAt(op.getInput(), inner, indices[dims.back() - 1]);
  if (failed(number))
    return failure();
  return splat(*number, to.getShape().back());
}

FailureOr<Value> BoundedKernel::scalarAt(Value value, ValueRange indices,
                                         Value at) {
  if (!indices.empty()) {
    FailureOr<Value> vector = element(value, indices);
    if (failed(vector))
      return failure();
    return Value(vector::ExtractOp::create(b, *vector, at));
  }
  for (const auto &scope : llvm::reverse(spilled))
    if (auto known = scope.find(value); known != scope.end())
      return Value(memref::LoadOp::create(b, known->second, at));
  FailureOr<Value> vector = element(value);
  if (failed(vector))
    return failure();
  Value memory = scratch({tensorOf(value).getShape().back()});
  store(*vector, memory, index(0));
  spilled.back()[value] = memory;
  return Value(memref::LoadOp::create(b, memory, at));
}

LogicalResult BoundedKernel::prepare(Value value) {
  if (tensorOf(value).getRank() <= 2)
    return element(value);
  Operation *op = value.getDefiningOp();
  if (!op)
    return success();
  if (auto spread = dyn_cast<BroadcastOp>(op)) {
    Value input = spread.getInput();
    bool isByRow =
        spread.getDims().back() + 1 != spread.getResult().getType().getRank();
    if (isByRow && tensorOf(input).getRank() == 2)
      return scalarAt(input, {}, index(0));
  }
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()) && failed(prepare(operand)))
      return failure();
  return success();
}

FailureOr<Value> BoundedKernel::sum(SumOp op, ValueRange indices) {
  if (auto known = products.find(op); known != products.end() && group)
    return load(known->second, {group, index(0)},
                op.getResult().getType().getShape().back());
  RankedTensorType from = op.getInput().getType();
  auto dim = static_cast<int64_t>(op.getDim());
  if (dim + 1 == from.getRank()) {
    if (from.getRank() > 2)
      return sumRows(op, indices);
    FailureOr<Value> vector = element(op.getInput());
    if (failed(vector))
      return failure();
    return Value(vector::ReductionOp::create(
        b, vector::CombiningKind::ADD, *vector, arith::FastMathFlags::reassoc));
  }
  if (failed(prepare(op.getInput())))
    return failure();
  auto loop =
      scf::ForOp::create(b, index(0), index(from.getDimSize(dim)), index(1),
                         splat(number(0), from.getShape().back()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Scope scope(*this);
  SmallVector<Value> inner(indices);
  inner.insert(inner.begin() + (dim - 1), loop.getInductionVar());
  FailureOr<Value> row = element(op.getInput(), inner);
  if (failed(row))
    return failure();
  scf::YieldOp::create(
      b, Value(arith::AddFOp::create(b, loop.getRegionIterArg(0), *row)));
  return loop.getResult(0);
}

/// A sum along rows, such as a matrix times a vector: 16 rows at a time, whose
/// sums become the lanes of a register.
FailureOr<Value> BoundedKernel::sumRows(SumOp op, ValueRange indices) {
  RankedTensorType from = op.getInput().getType();
  int64_t width = from.getShape().back();
  int64_t rows = from.getShape()[from.getRank() - 2];
  bool inLanes = width % kBlock == 0 && rows % kBlock == 0;
  if (failed(prepare(op.getInput())))
    return failure();
  Value sums = scratch({rows});
  auto loop =
      scf::ForOp::create(b, index(0), index(rows), index(inLanes ? kBlock : 1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Scope scope(*this);
    SmallVector<Value> inner(indices);
    Value first = loop.getInductionVar();
    inner.push_back(first);
    SmallVector<Value> products;
    auto product = op.getInput().getDefiningOp<arith::MulFOp>();
    for (int64_t j = 0; j < (inLanes ? kBlock : 1); ++j) {
      inner.back() =
          j ? Value(arith::AddIOp::create(b, first, index(j))) : first;
      FailureOr<Value> lhs =
          element(product ? product.getLhs() : op.getInput(), inner);
      if (failed(lhs))
        return failure();
      FailureOr<Value> rhs = product
                                 ? element(product.getRhs(), inner)
                                 : FailureOr<Value>(splat(number(1), width));
      if (failed(rhs))
        return failure();
      products.push_back(inLanes ? partialDot(b, *lhs, *rhs) : dot(*lhs, *rhs));
    }
    if (inLanes)
      store(sumLanes(b, products), sums, first);
    else
      memref::StoreOp::create(b, products.front(), sums, first);
  }
  return load(sums, index(0), rows);
}

FailureOr<Value> BoundedKernel::rotate(RotateOp op, ValueRange indices) {
  FailureOr<Value> input = element(op.getInput(), indices);
  FailureOr<Value> angle = element(op.getAngle(), indices);
  if (failed(input) || failed(angle))
    return failure();
  return rotatePairs(b, *input, *angle);
}

FailureOr<Value> BoundedKernel::elementwise(Operation *op, ValueRange indices) {
  if (!op->hasTrait<OpTrait::Elementwise>() || op->getNumResults() != 1)
    return op->emitError("cannot be lowered for the CPU: '")
           << op->getName() << "' is neither elementwise nor known";
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<Value> each = element(operand, indices);
    if (failed(each))
      return failure();
    operands.push_back(*each);
  }
  return repeatElementwise(b, op, operands,
                           elementType(tensorOf(op->getResult(0))));
}

/// Whether there is something in the memory: of caches that evict the kernel
/// knows, of others who calls it.
Value BoundedKernel::remembers() {
  if (!isEvicting)
    return isLess(index(0), holds);
  Value count =
      memref::LoadOp::create(b, spread, ValueRange{slot, head, index(0)});
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, count, number(0));
}

/// Only one of the two is evaluated: before the first fold a step does what it
/// would do without a memory, and costs no more.
FailureOr<Value> BoundedKernel::once(OnceOp op, ValueRange indices) {
  auto choice =
      scf::IfOp::create(b, TypeRange{elementType(op.getResult().getType())},
                        remembers(), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (auto [block, value] :
       {std::pair(choice.thenBlock(), op.getValue()),
        std::pair(choice.elseBlock(), op.getOtherwise())}) {
    b.setInsertionPointToStart(block);
    Scope scope(*this);
    FailureOr<Value> result = element(value, indices);
    if (failed(result))
      return failure();
    scf::YieldOp::create(b, *result);
  }
  return choice.getResult(0);
}
