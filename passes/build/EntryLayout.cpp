//===- EntryLayout.cpp - fields of history entries ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/EntryLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "passes/analysis/AffineForm.h"
#include "passes/build/Components.h"
#include <numeric>

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

Value ladle::broadcastHeads(OpBuilder &b, Location loc, Value value,
                            int64_t heads) {
  RankedTensorType type = typeOf(value);
  if (type.getDimSize(0) == heads)
    return value;
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = heads;
  return BroadcastOp::create(
      b, loc, RankedTensorType::get(shape, type.getElementType()), value,
      llvm::to_vector(llvm::seq<int64_t>(0, type.getRank())));
}

Value ladle::multiply(OpBuilder &b, Location loc, Value value, Value scale) {
  RankedTensorType type = typeOf(value), scaleType = typeOf(scale);
  int64_t heads = std::lcm(type.getDimSize(0), scaleType.getDimSize(0));
  value = broadcastHeads(b, loc, value, heads);
  if (scaleType.getRank() == type.getRank()) {
    scale = broadcastHeads(b, loc, scale, heads);
  } else {
    // [heads] or [heads, D] beside [heads, (R,) D].
    SmallVector<int64_t> dims{0};
    if (scaleType.getRank() == 2)
      dims.push_back(type.getRank() - 1);
    scale = BroadcastOp::create(b, loc, value.getType(), scale, dims);
  }
  return arith::MulFOp::create(b, loc, value, scale);
}

//===----------------------------------------------------------------------===//
// Raw inputs
//===----------------------------------------------------------------------===//

namespace {

/// `raw` times `scale` (a number a head, or null), where `raw` is exact in
/// `type`.
struct Split {
  Value raw;
  Type type;
  Value scale;
};

class Layouter {
public:
  Layouter(RecurrenceOp recurrence)
      : b(recurrence.getYield()), loc(recurrence.getLoc()) {}

  Split split(Value value);
  StringAttr addField(const Twine &name, Value source, Type type, Side side);
  StringAttr addScale(const Twine &name, Value scale) {
    return scale ? addField(name, scale, b.getF32Type(), Side::Scalar)
                 : StringAttr();
  }

  OpBuilder b;
  Location loc;
  EntryLayout layout;

private:
  std::optional<Split> splitFactor(Value factor, Value scale);
};

} // namespace

/// If `value` is a number a head repeated over the other dimensions, that
/// number.
static Value findScalar(OpBuilder &b, Location loc, Value value) {
  if (typeOf(value).getRank() == 1)
    return value;
  SplatElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return arith::ConstantOp::create(
        b, loc,
        constant.resizeSplat(
            RankedTensorType::get({1}, constant.getType().getElementType())));
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return findScalar(b, loc, broadcast.getInput());
  return {};
}

std::optional<Split> Layouter::splitFactor(Value factor, Value scale) {
  Value number = findScalar(b, loc, scale);
  if (!number)
    return std::nullopt;
  Split inner = split(factor);
  if (inner.type.isF32())
    return std::nullopt;
  inner.scale = inner.scale ? multiply(b, loc, inner.scale, number) : number;
  return inner;
}

Split Layouter::split(Value value) {
  Split whole{value, b.getF32Type(), {}};
  Operation *op = value.getDefiningOp();
  if (auto extend = dyn_cast_if_present<arith::ExtFOp>(op);
      extend && isa<BlockArgument>(extend.getIn()))
    return {value, typeOf(extend.getIn()).getElementType(), {}};
  if (auto broadcast = dyn_cast_if_present<BroadcastOp>(op)) {
    // Over heads alone: one copy serves the group.
    if (broadcast.getInput().getType().getRank() == typeOf(value).getRank())
      return split(broadcast.getInput());
    return whole;
  }
  if (auto norm = dyn_cast_if_present<L2NormOp>(op)) {
    Split inner = split(norm.getInput());
    if (inner.type.isF32() || inner.scale || typeOf(inner.raw).getRank() != 2)
      return whole;
    RankedTensorType scalarType = RankedTensorType::get(
        {typeOf(inner.raw).getDimSize(0)}, b.getF32Type());
    Value square = arith::MulFOp::create(b, loc, inner.raw, inner.raw);
    Value sum = SumOp::create(b, loc, scalarType, square, 1);
    Value eps = arith::ConstantOp::create(
        b, loc,
        DenseElementsAttr::get(
            scalarType, static_cast<float>(norm.getEps().convertToDouble())));
    inner.scale = math::RsqrtOp::create(
        b, loc, Value(arith::AddFOp::create(b, loc, sum, eps)));
    return inner;
  }
  if (auto product = dyn_cast_if_present<arith::MulFOp>(op)) {
    if (auto result = splitFactor(product.getLhs(), product.getRhs()))
      return *result;
    if (auto result = splitFactor(product.getRhs(), product.getLhs()))
      return *result;
  }
  return whole;
}

StringAttr Layouter::addField(const Twine &name, Value source, Type type,
                              Side side) {
  // The same value on the same side is cached once.
  for (auto [field, other] : llvm::zip(layout.fields, layout.sources))
    if (other == source && field.getSide() == side &&
        field.getElementType() == type)
      return b.getStringAttr(field.getName());
  auto attr = b.getStringAttr(name);
  layout.fields.push_back(FieldAttr::get(
      b.getContext(), attr.getValue(), typeOf(source).getShape(), type, side));
  layout.sources.push_back(source);
  return attr;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

static void addDecay(Layouter &layouter, const StateHistory &state) {
  if (!state.decay)
    return;
  bool scalar = typeOf(state.decay).getRank() == 1;
  layouter.layout.decay =
      layouter.addField("decay", state.decay, layouter.b.getF32Type(),
                        scalar ? Side::Scalar : Side::Key);
}

/// "k", or "k0", "k1" … if there are several.
static std::string fieldName(StringRef stem, size_t index, size_t count) {
  return count == 1 ? stem.str() : (stem + Twine(index)).str();
}

EntryLayout ladle::layOutHistory(RecurrenceOp recurrence,
                                 const StateHistory &state, Type entryType) {
  Layouter layouter(recurrence);
  size_t count = state.writes.size();
  for (auto [i, write] : llvm::enumerate(state.writes)) {
    std::string key = fieldName("k", i, count),
                value = fieldName("u", i, count);
    EntryLayout::Write names;
    Split keySplit = layouter.split(write.key);
    names.key = layouter.addField(key, keySplit.raw, keySplit.type, Side::Key);
    names.keyScale = layouter.addScale(key + "_scale", keySplit.scale);
    Split valueSplit{write.value, entryType, {}};
    if (write.valueClass == OperandClass::TokenOnly)
      valueSplit = layouter.split(write.value);
    names.value =
        layouter.addField(value, valueSplit.raw, valueSplit.type, Side::Value);
    names.valueScale = layouter.addScale(value + "_scale", valueSplit.scale);
    layouter.layout.writes.push_back(names);
  }
  addDecay(layouter, state);
  return layouter.layout;
}

/// If `vector` is a vector decay times x, x: the read is one of the state
/// after its decay. Numbers a rank, and a sum over ranks, stay around x.
static Value stripDecay(Value vector, Value decay, OpBuilder &b) {
  if (!decay || typeOf(decay).getRank() == 1)
    return {};
  auto isDecay = [&](Value value) {
    while (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
      if (!keepsLastDimension(broadcast))
        return false;
      value = broadcast.getInput();
    }
    return value == decay;
  };
  auto sum = vector.getDefiningOp<SumOp>();
  if (sum && static_cast<int64_t>(sum.getDim()) + 1 <
                 sum.getInput().getType().getRank()) {
    Value stripped = stripDecay(sum.getInput(), decay, b);
    return stripped ? SumOp::create(b, sum.getLoc(), sum.getResult().getType(),
                                    stripped, sum.getDim())
                          .getResult()
                    : Value();
  }
  auto product = vector.getDefiningOp<arith::MulFOp>();
  if (!product)
    return {};
  if (isDecay(product.getLhs()))
    return product.getRhs();
  if (isDecay(product.getRhs()))
    return product.getLhs();
  Value stripped = stripDecay(product.getLhs(), decay, b);
  return stripped ? arith::MulFOp::create(b, product.getLoc(), stripped,
                                          product.getRhs())
                        .getResult()
                  : Value();
}

FailureOr<EntryLayout> ladle::layOutRaw(RecurrenceOp recurrence,
                                        const StateHistory &state) {
  Layouter layouter(recurrence);
  OpBuilder &b = layouter.b;
  StringAttr none = b.getStringAttr("");
  auto orNone = [&](StringAttr name) { return name ? name : none; };
  SmallVector<StringAttr> keys, keyScales, values, valueScales;
  SmallVector<StringAttr> coefficients, vectors, vectorScales;
  SmallVector<int64_t> owners, afterDecay;
  size_t count = state.writes.size();
  for (auto [i, write] : llvm::enumerate(state.writes)) {
    FailureOr<AffineForm> affine =
        decomposeAffine(write.value, b, AffineScale::None);
    if (failed(affine))
      return failure();
    std::string key = fieldName("k", i, count),
                value = fieldName("v", i, count);
    Split keySplit = layouter.split(write.key);
    keys.push_back(
        layouter.addField(key, keySplit.raw, keySplit.type, Side::Key));
    keyScales.push_back(
        orNone(layouter.addScale(key + "_scale", keySplit.scale)));
    if (affine->remainder) {
      Split valueSplit = layouter.split(affine->remainder);
      values.push_back(layouter.addField(value, valueSplit.raw, valueSplit.type,
                                         Side::Value));
      valueScales.push_back(
          orNone(layouter.addScale(value + "_scale", valueSplit.scale)));
    } else {
      values.push_back(none);
      valueScales.push_back(none);
    }
    for (const AffineTerm &term : affine->terms) {
      std::string suffix = std::to_string(owners.size());
      Value vector = term.query;
      Value stripped = stripDecay(vector, state.decay, b);
      Split vectorSplit = layouter.split(stripped ? stripped : vector);
      vectors.push_back(layouter.addField("a" + suffix, vectorSplit.raw,
                                          vectorSplit.type, Side::Key));
      vectorScales.push_back(orNone(
          layouter.addScale("a" + suffix + "_scale", vectorSplit.scale)));
      Value coefficient = term.coefficient;
      if (!coefficient)
        coefficient = arith::ConstantOp::create(
            b, layouter.loc,
            DenseElementsAttr::get(RankedTensorType::get({1}, b.getF32Type()),
                                   1.0f));
      coefficients.push_back(layouter.addField("c" + suffix, coefficient,
                                               b.getF32Type(), Side::Scalar));
      owners.push_back(i);
      afterDecay.push_back(stripped ? 1 : 0);
    }
  }
  addDecay(layouter, state);
  layouter.layout.transition = TransitionAttr::get(
      b.getContext(),
      layouter.layout.decay ? layouter.layout.decay.getValue() : StringRef(),
      keys, keyScales, values, valueScales, owners, coefficients, vectors,
      vectorScales, afterDecay);
  return layouter.layout;
}
