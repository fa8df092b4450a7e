//===- BoundedValues.cpp - arithmetic of a bounded step, by elements ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A thread asks for an element, and the operations that make it are emitted
// there and then. Sums alone exist as a whole, in shared memory: a warp adds up
// each of their elements, so that a matrix times a vector is read by rows.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static constexpr StringLiteral kCannot = "cannot be lowered for GPUs: ";

/// A head of a value, for a head of the query.
static FailureOr<int64_t> headsOfOne(Value value, int64_t heads) {
  int64_t its = cast<RankedTensorType>(value.getType()).getDimSize(0);
  if (heads % its == 0)
    return heads / its;
  return emitError(value.getLoc(), kCannot)
         << its << " heads of a value, where the query has " << heads;
}

FailureOr<Value> GpuBounded::argument(BlockArgument argument, Indices indices) {
  // A key of a fold is one of the cache.
  if (argument.getOwner() != &step.getBody().front())
    return loadFloat(array("key_pages", plan.keyType, keySize),
                     {keyRow, indices.front()});
  FailureOr<int64_t> ofOne = headsOfOne(argument, heads);
  if (failed(ofOne))
    return failure();
  SmallVector<Value> place;
  if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Token)
    place.push_back(of);
  place.push_back(div(head, *ofOne));
  llvm::append_range(place, indices);
  return loadFloat(tensor(argument), place);
}

FailureOr<Value> GpuBounded::elementwise(Operation *op, Indices indices) {
  bool isKnown =
      op->getNumResults() == 1 && op->getNumRegions() == 0 &&
      isa_and_present<arith::ArithDialect, math::MathDialect>(op->getDialect());
  if (!isKnown)
    return op->emitError(kCannot) << "'" << op->getName() << "'";
  Values operands;
  for (Value operand : op->getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()))
      return op->emitError(kCannot)
             << "an operand of type " << operand.getType();
    FailureOr<Value> each = element(operand, indices);
    if (failed(each))
      return failure();
    operands.push_back(*each);
  }
  OperationState state(b.getLoc(), op->getName());
  state.addOperands(operands);
  state.addTypes(getElementTypeOrSelf(op->getResult(0).getType()));
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return b.create(state)->getResult(0);
}

FailureOr<Value> GpuBounded::element(Value value, Indices indices) {
  if (auto given = dyn_cast<BlockArgument>(value))
    return argument(given, indices);
  auto type = cast<RankedTensorType>(value.getType());
  if (auto known = materialized.find(value); known != materialized.end()) {
    Value at = index(0);
    for (auto [place, size] : llvm::zip(indices, type.getShape().drop_front()))
      at = add(mul(at, size), place);
    return loadFloat(known->second, {local, at});
  }
  Operation *op = value.getDefiningOp();
  return llvm::TypeSwitch<Operation *, FailureOr<Value>>(op)
      .Case([&](arith::ConstantOp constant) -> FailureOr<Value> {
        if (auto all = dyn_cast<SplatElementsAttr>(constant.getValue()))
          return arith::ConstantOp::create(b, all.getSplatValue<TypedAttr>())
              .getResult();
        return op->emitError(kCannot) << "a constant of several values";
      })
      // Memory is where types change.
      .Case<arith::ExtFOp, arith::TruncFOp>([&](Operation *each) {
        return element(each->getOperand(0), indices);
      })
      .Case([&](BroadcastOp each) -> FailureOr<Value> {
        Values inner;
        for (int64_t dim : each.getDims().drop_front())
          inner.push_back(indices[dim - 1]);
        return element(each.getInput(), inner);
      })
      .Case([&](NormalizeOp each) -> FailureOr<Value> {
        FailureOr<Triple> all = summaryAt(each.getSummary(), indices.front());
        if (failed(all))
          return failure();
        Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                              all->sum, number(0));
        Value divisor = select(isEmpty, number(1), all->sum);
        return arith::DivFOp::create(b, all->value, divisor).getResult();
      })
      .Case([&](RecallOp) -> FailureOr<Value> {
        return loadFloat(sharedMemory, {local, indices.front()});
      })
      .Case([&](OnceOp each) -> FailureOr<Value> {
        FailureOr<Value> yes = element(each.getValue(), indices);
        FailureOr<Value> no = element(each.getOtherwise(), indices);
        if (failed(yes) || failed(no))
          return failure();
        Value held = fold ? nextFolds : evicted;
        return select(less(index(0), held), *yes, *no);
      })
      .Default([&](Operation *each) { return elementwise(each, indices); });
}

FailureOr<GpuBounded::Triple> GpuBounded::summaryAt(Value summary, Value at) {
  Operation *op = summary.getDefiningOp();
  if (isa_and_present<AttendOp>(op))
    return Triple{loadFloat(sharedMosts, local), loadFloat(sharedSums, local),
                  loadFloat(sharedValues, {local, at})};
  if (isa_and_present<TaylorOp>(op))
    return Triple{loadFloat(sharedNumbers, {local, index(0)}),
                  loadFloat(sharedNumbers, {local, index(1)}),
                  loadFloat(sharedMemory, {local, at})};
  auto merged = dyn_cast_or_null<MergeOp>(op);
  if (!merged)
    return emitError(summary.getLoc(), kCannot) << "a summary of another kind";
  FailureOr<Triple> left = summaryAt(merged.getLhs(), at);
  FailureOr<Triple> right = summaryAt(merged.getRhs(), at);
  if (failed(left) || failed(right))
    return failure();
  Value most = larger(left->most, right->most), base = finite(most);
  auto weigh = [&](const Triple &side) {
    return exp(arith::SubFOp::create(b, side.most, base));
  };
  Value ofLeft = weigh(*left), ofRight = weigh(*right);
  auto both = [&](Value one, Value other) {
    return sum(product(one, ofLeft), product(other, ofRight));
  };
  return Triple{most, both(left->sum, right->sum),
                both(left->value, right->value)};
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

static void findSums(Value value, llvm::SetVector<Operation *> &sums) {
  Operation *op = value.getDefiningOp();
  if (!op || !isa<RankedTensorType>(value.getType()))
    return;
  for (Value operand : op->getOperands())
    findSums(operand, sums);
  if (isa<SumOp>(op))
    sums.insert(op);
}

LogicalResult GpuBounded::materialize(Value value) {
  llvm::SetVector<Operation *> sums;
  findSums(value, sums);
  int64_t group = plan.group(), warpCount = threads / kWarp;
  for (Operation *op : sums) {
    auto each = cast<SumOp>(op);
    if (materialized.contains(each.getResult()))
      continue;
    RankedTensorType from = each.getInput().getType();
    ArrayRef<int64_t> sizes = each.getResult().getType().getShape();
    auto dim = static_cast<int64_t>(each.getDim());
    int64_t size = from.getDimSize(dim), elements = 1;
    for (int64_t other : sizes.drop_front())
      elements *= other;
    Value result = sharedArray("sum", b.getF32Type(), {group, elements});
    LogicalResult isLowered = success();
    loop(warp, index(group * elements), index(warpCount), [&](Value at) {
      local = div(at, elements);
      head = add(mul(cacheHead, group), local);
      Value rest = rem(at, elements);
      Values indices;
      for (int64_t other : llvm::reverse(sizes.drop_front())) {
        indices.insert(indices.begin(), rem(rest, other));
        rest = div(rest, other);
      }
      Value all = loop(lane, index(size), index(kWarp), number(0.0),
                       [&](Value term, ValueRange before) -> Values {
                         Values inner(indices);
                         inner.insert(inner.begin() + (dim - 1), term);
                         FailureOr<Value> next =
                             element(each.getInput(), inner);
                         isLowered = next;
                         return {succeeded(next) ? sum(before[0], *next)
                                                 : Value(before[0])};
                       })
                      .front();
      for (int64_t mask = 1; mask < kWarp; mask *= 2)
        all = sum(all, exchange(all, mask));
      ifThen(equal(lane, index(0)),
             [&] { store(all, result, {local, rem(at, elements)}); });
    });
    if (failed(isLowered))
      return failure();
    barrier();
    materialized[each.getResult()] = result;
  }
  return success();
}
