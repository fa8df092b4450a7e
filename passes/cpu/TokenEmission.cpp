//===- TokenEmission.cpp - arithmetic of a token --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/cpu/Kernel.h"
#include "passes/cpu/ScheduleInfo.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

LogicalResult Kernel::emitHead(Operation *op) {
  // Stores, states and their operations are emitted with the rows.
  if (isa<LoadStateOp, StoreStateOp, ZeroStateOp, DecayOp, WriteOp, ReadOp,
          AppendOp, ClearOp>(op))
    return success();
  if (auto product = dyn_cast<DecayProductOp>(op))
    return emitDecayProduct(product);
  if (auto read = dyn_cast<ReadBufferOp>(op))
    return emitReadBuffer(read);
  if (auto transport = dyn_cast<TransportOp>(op))
    return emitTransport(transport);
  if (auto fold = dyn_cast<FoldBufferOp>(op)) {
    gatherFold(fold);
    return success();
  }
  if (auto replay = dyn_cast<ReplayOp>(op)) {
    gatherReplay(replay);
    return success();
  }
  SmallVector<Components> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<Components> components = headOperand(operand);
    if (failed(components))
      return failure();
    operands.push_back(*components);
  }
  FailureOr<Components> result = emitComponents(op, operands, std::nullopt);
  if (failed(result))
    return failure();
  setHeadValue(op->getResult(0), *result);
  return success();
}

LogicalResult Kernel::emitRow(Operation *op) {
  SmallVector<Components> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<Components> components = rowOperand(operand);
    if (failed(components))
      return failure();
    operands.push_back(*components);
  }
  FailureOr<Components> result = emitComponents(op, operands, tileWidth);
  if (failed(result))
    return failure();
  setRowValue(op->getResult(0), *result);
  return success();
}

Components Kernel::emitBroadcast(BroadcastOp op, const Components &input,
                                 int64_t width) {
  if (op.getInput().getType().getRank() == op.getResult().getType().getRank())
    return input; // over heads only
  Components result;
  for (int64_t i = 0, e = componentCount(op.getResult().getType()); i < e;
       ++i) {
    BroadcastSource source = sourceOf(op, i);
    Value component = input[source.component];
    if (keepsLastDimension(op)) {
      result.push_back(component);
      continue;
    }
    if (op.getInput().getType().getRank() > 1)
      component = vector::ExtractOp::create(b, component, source.element);
    result.push_back(splat(component, width));
  }
  return result;
}

Components Kernel::emitSum(SumOp op, const Components &input) {
  RankedTensorType from = op.getInput().getType();
  RankedTensorType to = op.getResult().getType();
  int64_t dim = op.getDim(), last = from.getRank() - 1;
  if (dim == last) {
    SmallVector<Value> sums;
    for (Value component : input)
      sums.push_back(
          vector::ReductionOp::create(b, vector::CombiningKind::ADD, component,
                                      arith::FastMathFlags::reassoc));
    if (to.getRank() == 1)
      return sums;
    // The dimension before becomes the one that vectors run along.
    int64_t size = to.getShape().back();
    Components result;
    for (size_t i = 0; i < sums.size(); i += size)
      result.push_back(vector::FromElementsOp::create(
          b, VectorType::get({size}, from.getElementType()),
          ArrayRef(sums).slice(i, size)));
    return result;
  }
  return sumComponents(b, op, input);
}

FailureOr<Components> Kernel::emitComponents(Operation *op,
                                             ArrayRef<Components> operands,
                                             std::optional<int64_t> width) {
  if (op->getNumResults() != 1 ||
      !isa<RankedTensorType>(op->getResult(0).getType()))
    return op->emitError("cannot be lowered for the CPU: '")
           << op->getName() << "' has no token value as its result";
  auto tensor = cast<RankedTensorType>(op->getResult(0).getType());
  int64_t rank = tensor.getRank();
  int64_t size = width.value_or(tensor.getShape().back());
  int64_t count = componentCount(tensor);
  Type type = tensor.getElementType();
  if (rank > 1)
    type = VectorType::get({size}, type);

  return TypeSwitch<Operation *, FailureOr<Components>>(op)
      .Case([&](arith::ConstantOp constant) -> FailureOr<Components> {
        auto splatAttr = dyn_cast<SplatElementsAttr>(constant.getValue());
        if (!splatAttr)
          return op->emitError("only constants with one value are supported");
        TypedAttr value = rank > 1 ? TypedAttr(DenseElementsAttr::get(
                                         cast<VectorType>(type),
                                         splatAttr.getSplatValue<Attribute>()))
                                   : splatAttr.getSplatValue<TypedAttr>();
        return Components(count, arith::ConstantOp::create(b, value));
      })
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *) -> FailureOr<Components> { return operands[0]; })
      .Case([&](BroadcastOp broadcast) -> FailureOr<Components> {
        return emitBroadcast(broadcast, operands[0], size);
      })
      .Case([&](SumOp sum) -> FailureOr<Components> {
        return emitSum(sum, operands[0]);
      })
      .Case([&](RotateOp) -> FailureOr<Components> {
        Components result;
        for (auto [input, angle] : llvm::zip(operands[0], operands[1]))
          result.push_back(rotatePairs(b, input, angle));
        return result;
      })
      .Case([&](ShiftOp) -> FailureOr<Components> {
        Components result(llvm::drop_begin(operands[0]));
        result.push_back(operands[1].front());
        return result;
      })
      .Case([&](ConvOp) -> FailureOr<Components> {
        Components inputs(operands[0]);
        inputs.push_back(operands[1].front());
        Value total;
        for (auto [input, weight] : llvm::zip(inputs, operands[2])) {
          Value term = arith::MulFOp::create(b, input, weight);
          total = total ? arith::AddFOp::create(b, total, term) : term;
        }
        return Components{total};
      })
      .Default([&](Operation *each) -> FailureOr<Components> {
        if (!each->hasTrait<OpTrait::Elementwise>())
          return each->emitError("cannot be lowered for the CPU: '")
                 << each->getName() << "' is neither elementwise nor known";
        Components result;
        for (int64_t i = 0; i < count; ++i) {
          SmallVector<Value> inputs;
          for (const Components &operand : operands)
            inputs.push_back(operand[i]);
          result.push_back(repeatElementwise(b, each, inputs, type));
        }
        return result;
      });
}
