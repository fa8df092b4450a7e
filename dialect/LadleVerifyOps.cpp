//===- LadleVerifyOps.cpp - the drafts of a row at once -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"

using namespace mlir;
using namespace ladle;

RankedTensorType ladle::stackType(RankedTensorType type, int64_t most) {
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin() + 1, most);
  return RankedTensorType::get(shape, type.getElementType());
}

RankedTensorType ladle::unstackType(RankedTensorType type) {
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + 1);
  return RankedTensorType::get(shape, type.getElementType());
}

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// That `value` is [heads, T, ...] with `least` to `most` dimensions.
static LogicalResult verifyStack(Operation *op, StringRef what, Value value,
                                 DraftsType drafts, int64_t least,
                                 int64_t most) {
  RankedTensorType type = typeOf(value);
  if (type.getRank() >= least && type.getRank() <= most &&
      type.getDimSize(1) == drafts.getMost())
    return success();
  return op->emitOpError() << what << " must be stacked for " << drafts
                           << " and have " << least << " to " << most
                           << " dimensions, got " << type;
}

/// The rank of [heads, T, D] or [heads, T, R, D].
static int64_t rankOf(RankedTensorType type) {
  return type.getRank() == 4 ? type.getDimSize(2) : 1;
}

static LogicalResult verifyHeads(Operation *op, int64_t heads,
                                 ValueRange values) {
  for (Value value : values)
    if (heads % typeOf(value).getDimSize(0) != 0)
      return op->emitOpError("result has ")
             << heads << " heads, which are no multiple of those of "
             << value.getType();
  return success();
}

//===----------------------------------------------------------------------===//
// EachDraftOp
//===----------------------------------------------------------------------===//

YieldDraftOp EachDraftOp::getYield() {
  return cast<YieldDraftOp>(getBody().front().getTerminator());
}

LogicalResult EachDraftOp::verifyRegions() {
  int64_t most = getDrafts().getType().getMost();
  auto yield = dyn_cast<YieldDraftOp>(getBody().front().back());
  if (!yield)
    return emitOpError("must end in ladle.yield_draft");
  if (getBody().getNumArguments() != getStacks().size() + getCarries().size())
    return emitOpError("has ")
           << getBody().getNumArguments() << " arguments in its region for "
           << getStacks().size() << " stacks and " << getCarries().size()
           << " carries";
  for (auto [argument, stack] :
       llvm::zip(getBody().getArguments(), getStacks())) {
    RankedTensorType type = typeOf(stack);
    if (type.getRank() < 2 || type.getDimSize(1) != most)
      return emitOpError("takes a stack for ")
             << getDrafts().getType() << ", got " << type;
    if (argument.getType() != unstackType(type))
      return emitOpError("argument of the region for ")
             << type << " must be " << unstackType(type) << ", got "
             << argument.getType();
  }
  for (auto [argument, carry] :
       llvm::zip(getBody().getArguments().drop_front(getStacks().size()),
                 getCarries()))
    if (argument.getType() != carry.getType())
      return emitOpError("argument of the region for a carry must be ")
             << carry.getType() << ", got " << argument.getType();
  if (yield.getValues().size() != getResults().size() ||
      getResults().size() < getCarries().size())
    return emitOpError("has ") << getResults().size() << " results, but yields "
                               << yield.getValues().size() << " values";
  for (auto [value, result] : llvm::zip(yield.getValues(), getResults())) {
    RankedTensorType type = typeOf(value);
    if (type.getRank() < 1 || stackType(type, most) != result.getType())
      return emitOpError("result for a value ")
             << type << " must be stacked for " << getDrafts().getType()
             << ", got " << result.getType();
  }
  for (auto [carry, next] : llvm::zip(getCarries(), getNextCarries()))
    if (stackType(typeOf(carry), most) != next.getType())
      return emitOpError("carry ") << carry.getType() << " is left behind as "
                                   << unstackType(typeOf(next));
  return success();
}

//===----------------------------------------------------------------------===//
// Paths
//===----------------------------------------------------------------------===//

LogicalResult PathDecayOp::verify() {
  return verifyStack(*this, "decays", getDecays(), getDrafts().getType(), 2, 3);
}

LogicalResult PathGramOp::verify() {
  DraftsType drafts = getDrafts().getType();
  RankedTensorType queries = getQueries().getType(), keys = getKeys().getType();
  if (failed(verifyStack(*this, "queries", getQueries(), drafts, 3, 4)) ||
      failed(verifyStack(*this, "keys", getKeys(), drafts, 3, 4)))
    return failure();
  if (queries.getShape().back() != keys.getShape().back())
    return emitOpError("queries ")
           << queries << " and keys " << keys << " differ in dk";
  SmallVector<Value> operands{getQueries(), getKeys()};
  if (Value decays = getDecays()) {
    operands.push_back(decays);
    if (failed(verifyStack(*this, "decays", decays, drafts, 2, 3)))
      return failure();
    RankedTensorType type = typeOf(decays);
    if (type.getRank() == 3 && type.getShape().back() != keys.getShape().back())
      return emitOpError("decays ")
             << type << " and keys " << keys << " differ in dk";
  }
  ArrayRef<int64_t> shape = getResult().getType().getShape();
  SmallVector<int64_t> wanted{shape.front(), drafts.getMost(), rankOf(queries),
                              drafts.getMost(), rankOf(keys)};
  if (shape != ArrayRef(wanted))
    return emitOpError("result must be [heads, T, R, T, K] = ")
           << RankedTensorType::get(wanted, queries.getElementType())
           << ", got " << getResult().getType();
  return verifyHeads(*this, shape.front(), operands);
}

/// That a Gram product weighs `values` for a sum of type `result`.
static LogicalResult verifyWeights(Operation *op, Value gram, Value values,
                                   RankedTensorType result, DraftsType drafts) {
  RankedTensorType weights = typeOf(gram), from = typeOf(values);
  if (failed(verifyStack(op, "values", values, drafts, 3, 4)))
    return failure();
  SmallVector<int64_t> wanted{drafts.getMost(), rankOf(result),
                              drafts.getMost(), rankOf(from)};
  if (weights.getRank() != 5 ||
      weights.getShape().drop_front() != ArrayRef(wanted))
    return op->emitOpError("Gram products ")
           << weights << " do not weigh " << from << " for " << result;
  if (from.getShape().back() != result.getShape().back())
    return op->emitOpError("values ")
           << from << " and the sum " << result << " differ in size";
  return verifyHeads(op, result.getDimSize(0), {gram, values});
}

LogicalResult PathProductOp::verify() {
  DraftsType drafts = getDrafts().getType();
  if (getGrams().size() != getValues().size() || getGrams().empty())
    return emitOpError("has ") << getGrams().size() << " Gram products for "
                               << getValues().size() << " values";
  if (failed(verifyStack(*this, "result", getResult(), drafts, 3, 4)))
    return failure();
  for (auto [gram, values] : llvm::zip(getGrams(), getValues()))
    if (failed(
            verifyWeights(*this, gram, values, getResult().getType(), drafts)))
      return failure();
  return success();
}

LogicalResult PathSolveOp::verify() {
  DraftsType drafts = getDrafts().getType();
  if (getRhs().empty() || getRhs().getTypes() != getResults().getTypes())
    return emitOpError("results must have the types of the right-hand sides");
  for (Value rhs : getRhs())
    if (failed(verifyStack(*this, "right-hand side", rhs, drafts, 3, 4)))
      return failure();
  if (getRows().size() != getGrams().size() ||
      getColumns().size() != getGrams().size())
    return emitOpError("needs a row and a column for each of ")
           << getGrams().size() << " Gram products";
  auto unknowns = static_cast<int64_t>(getRhs().size());
  if (getScales().size() != getScaled().size())
    return emitOpError("needs an unknown for each of ")
           << getScales().size() << " scales";
  for (auto [i, pair] : llvm::enumerate(llvm::zip(getScales(), getScaled()))) {
    auto [scale, row] = pair;
    if (row < 0 || row >= unknowns ||
        llvm::is_contained(getScaled().take_front(i), row))
      return emitOpError("scales unknown ")
             << row << " of " << unknowns << ", or scales it twice";
    if (scale.getType() != getRhs()[row].getType())
      return emitOpError("scale ")
             << scale.getType() << " does not fit " << getRhs()[row].getType();
  }
  for (auto [gram, row, column] :
       llvm::zip(getGrams(), getRows(), getColumns())) {
    if (row < 0 || row >= unknowns || column < 0 || column >= unknowns)
      return emitOpError("couples ")
             << row << " to " << column << " of " << unknowns << " unknowns";
    if (failed(verifyWeights(*this, gram, getResults()[column],
                             typeOf(getResults()[row]), drafts)))
      return failure();
  }
  return success();
}

Value PathSolveOp::getScale(size_t row) {
  const auto *found = llvm::find(getScaled(), static_cast<int64_t>(row));
  return found == getScaled().end()
             ? Value()
             : getScales()[static_cast<size_t>(found - getScaled().begin())];
}

LogicalResult FoldDraftsOp::verify() {
  DraftsType drafts = getDrafts().getType();
  StateType state = getState().getType();
  if (!drafts.getIsChain())
    return emitOpError("folds drafts that are a chain, got ") << drafts;
  if (getKeys().size() != getValues().size())
    return emitOpError("has ") << getKeys().size() << " keys for "
                               << getValues().size() << " values";
  auto check = [&](StringRef what, Value value, int64_t least, int64_t most,
                   int64_t size) -> LogicalResult {
    if (failed(verifyStack(*this, what, value, drafts, least, most)))
      return failure();
    RankedTensorType type = typeOf(value);
    if (type.getRank() > 2 && type.getShape().back() != size)
      return emitOpError() << what << " " << type << " do not fit into "
                           << state;
    return verifyHeads(*this, state.getHeads(), value);
  };
  for (auto [key, value] : llvm::zip(getKeys(), getValues())) {
    if (failed(check("keys", key, 3, 4, state.getKeySize())) ||
        failed(check("values", value, 3, 4, state.getValueSize())))
      return failure();
    if (rankOf(typeOf(key)) != rankOf(typeOf(value)))
      return emitOpError("keys ") << key.getType() << " and values "
                                  << value.getType() << " differ in rank";
  }
  if (Value decays = getDecays())
    return check("decays", decays, 2, 3, state.getKeySize());
  return success();
}

LogicalResult AppendDraftsOp::verify() {
  ArrayRef<FieldAttr> fields = getBuffer().getType().getFields();
  if (fields.size() != getValues().size())
    return emitOpError("needs a stack for each of ")
           << fields.size() << " fields, got " << getValues().size();
  for (auto [field, value] : llvm::zip(fields, getValues())) {
    RankedTensorType type = typeOf(value);
    auto one = RankedTensorType::get(field.getShape(), type.getElementType());
    if (type != stackType(one, getDrafts().getType().getMost()))
      return emitOpError("stack of field '")
             << field.getName() << "' must have its shape for each draft, got "
             << type;
  }
  return success();
}
