//===- LadleSpecOps.cpp - one token of a recurrence -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "dialect/TokenInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// RecurrenceOp
//===----------------------------------------------------------------------===//

void RecurrenceOp::getAsmBlockArgumentNames(Region &region,
                                            OpAsmSetValueNameFn setName) {
  setTokenArgumentNames(getArgumentNames(), region, setName);
}

ParseResult RecurrenceOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             result.attributes))
    return failure();
  return parseTokenInterface(parser, result);
}

void RecurrenceOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printTokenInterface(printer, *this, getArgumentKinds(), getOutputNames(),
                      getOutputTypes(), {"sym_name"});
}

/// Kernels go through the heads of the states once.
static LogicalResult verifyHeadsOfStates(RecurrenceOp op) {
  SmallVector<BlockArgument> states =
      op.getArgumentsOfKind(ArgumentKind::State);
  if (states.empty())
    return success();
  int64_t heads = cast<StateType>(states.front().getType()).getHeads();
  auto check = [&](StringRef name, Type type) -> LogicalResult {
    auto state = dyn_cast<StateType>(type);
    int64_t own =
        state ? state.getHeads() : cast<RankedTensorType>(type).getDimSize(0);
    if (state ? own == heads : heads % own == 0)
      return success();
    return op.emitOpError("'")
           << name << "' has " << own << " heads, which its states with "
           << heads << " do not allow";
  };
  for (BlockArgument argument : op.getBody().getArguments())
    if (failed(check(op.getArgumentName(argument.getArgNumber()),
                     argument.getType())))
      return failure();
  for (auto [name, type] :
       llvm::zip(op.getOutputNames().getAsValueRange<StringAttr>(),
                 op.getOutputTypes().getAsValueRange<TypeAttr>()))
    if (failed(check(name, type)))
      return failure();
  return success();
}

LogicalResult RecurrenceOp::verifyRegions() {
  if (failed(verifyTokenInterface(*this, getArgumentNames(), getArgumentKinds(),
                                  getOutputNames(), getOutputTypes())))
    return failure();
  SmallVector<Type> expected(getOutputTypes().getAsValueRange<TypeAttr>());
  for (BlockArgument carry : getArgumentsOfKind(ArgumentKind::Carry))
    expected.push_back(carry.getType());
  for (BlockArgument state : getArgumentsOfKind(ArgumentKind::State)) {
    if (!isa<StateType>(state.getType()))
      return emitOpError("state argument must be a !ladle.state, got ")
             << state.getType();
    expected.push_back(state.getType());
  }
  if (!getArgumentsOfKind(ArgumentKind::Buffer).empty())
    return emitOpError("has no buffers: those belong to a ladle.step");
  if (failed(verifyHeadsOfStates(*this)))
    return failure();
  return verifyYieldTypes(getYield(), expected);
}

StringRef RecurrenceOp::getArgumentName(unsigned index) {
  return cast<StringAttr>(getArgumentNames()[index]).getValue();
}

ArgumentKind RecurrenceOp::getArgumentKind(unsigned index) {
  return cast<ArgumentKindAttr>(getArgumentKinds()[index]).getValue();
}

SmallVector<BlockArgument> RecurrenceOp::getArgumentsOfKind(ArgumentKind kind) {
  return argumentsOfKind(getBody(), getArgumentKinds(), kind);
}

YieldOp RecurrenceOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

ValueRange RecurrenceOp::getYieldedOutputs() {
  return getYield().getValues().take_front(getOutputNames().size());
}

ValueRange RecurrenceOp::getYieldedCarries() {
  return getYield()
      .getValues()
      .drop_front(getOutputNames().size())
      .take_front(getArgumentsOfKind(ArgumentKind::Carry).size());
}

ValueRange RecurrenceOp::getYieldedStates() {
  return getYield().getValues().take_back(
      getArgumentsOfKind(ArgumentKind::State).size());
}

//===----------------------------------------------------------------------===//
// DecayOp, WriteOp, ReadOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyHeads(Operation *op, StringRef what, int64_t heads,
                                 StateType state) {
  if (state.getHeads() % heads == 0)
    return success();
  return op->emitOpError() << what << " has " << heads
                           << " heads, which do not divide the "
                           << state.getHeads() << " of the state";
}

/// A key or a query: [heads, dk] or [heads, R, dk]. Queries of drafts are
/// stacked.
static LogicalResult verifyKeySide(Operation *op, StringRef what,
                                   RankedTensorType type, StateType state) {
  auto step = dyn_cast<StepOp>(op->getParentOp());
  int64_t mostDims = step && step.isStacked() && isa<ReadOp>(op) ? 4 : 3;
  if (type.getRank() < 2 || type.getRank() > mostDims ||
      type.getShape().back() != state.getKeySize())
    return op->emitOpError()
           << what << " must be [heads, dk] or [heads, R, dk]"
           << " with dk = " << state.getKeySize() << ", got " << type;
  return verifyHeads(op, what, type.getDimSize(0), state);
}

LogicalResult DecayOp::verify() {
  RankedTensorType factor = getFactor().getType();
  StateType state = getState().getType();
  if (factor.getRank() > 2 ||
      (factor.getRank() == 2 && factor.getDimSize(1) != state.getKeySize()))
    return emitOpError("factor must be [heads] or [heads, dk] with dk = ")
           << state.getKeySize() << ", got " << factor;
  return verifyHeads(*this, "factor", factor.getDimSize(0), state);
}

OpFoldResult DecayOp::fold(FoldAdaptor adaptor) {
  auto splat = dyn_cast_if_present<SplatElementsAttr>(adaptor.getFactor());
  if (splat && splat.getSplatValue<APFloat>().isExactlyValue(1.0))
    return getState();
  return {};
}

LogicalResult WriteOp::verify() {
  RankedTensorType key = getKey().getType();
  RankedTensorType value = getValue().getType();
  StateType state = getState().getType();
  if (failed(verifyKeySide(*this, "key", key, state)))
    return failure();
  if (value.getRank() != key.getRank() ||
      (key.getRank() == 3 && value.getDimSize(1) != key.getDimSize(1)) ||
      value.getShape().back() != state.getValueSize())
    return emitOpError("value must be ")
           << (key.getRank() == 3 ? "[heads, R, dv]" : "[heads, dv]")
           << " with dv = " << state.getValueSize() << " for a key " << key
           << ", got " << value;
  return verifyHeads(*this, "value", value.getDimSize(0), state);
}

OpFoldResult WriteOp::fold(FoldAdaptor adaptor) {
  auto isZero = [](Attribute attr) {
    auto splat = dyn_cast_if_present<SplatElementsAttr>(attr);
    return splat && splat.getSplatValue<APFloat>().isZero();
  };
  if (isZero(adaptor.getKey()) || isZero(adaptor.getValue()))
    return getState();
  return {};
}

LogicalResult ReadOp::verify() {
  StateType state = getState().getType();
  RankedTensorType query = getQuery().getType();
  if (failed(verifyKeySide(*this, "query", query, state)))
    return failure();
  SmallVector<int64_t> shape(query.getShape());
  shape.front() = state.getHeads();
  shape.back() = state.getValueSize();
  if (getResult().getType().getShape() != ArrayRef(shape))
    return emitOpError("result must be ")
           << RankedTensorType::get(shape, query.getElementType()) << ", got "
           << getResult().getType();
  return success();
}
