//===- AffineForm.cpp - values as linear combinations of reads ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/analysis/AffineForm.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include <map>
#include <numeric>

using namespace mlir;
using namespace ladle;

namespace {

/// Longer chains of operations than a person writes are given up, since the
/// walk over them is recursive.
constexpr unsigned maxDepth = 1000;

/// Decomposes values, with a builder or, to find out whether it is possible,
/// without one. Without one, every value that would be built is represented by
/// a value of the body: an operand of the operation that would build it, or,
/// for products of scales, which are compared, its result.
class Decomposer {
public:
  Decomposer(const OperandClasses &classes, AffineScale scales,
             OpBuilder *builder)
      : classes(classes), scales(scales), builder(builder) {}

  FailureOr<AffineForm> decompose(Value value, unsigned depth = 0);
  const AffineObstacle &getObstacle() const { return obstacle; }

private:
  FailureOr<AffineForm> decomposeOp(Operation *op, unsigned depth);
  /// The form of `op`, which multiplies or divides `value` by `factor`.
  FailureOr<AffineForm> scale(Operation *op, Value value, Value factor,
                              bool divides, unsigned depth);
  FailureOr<AffineForm> add(Operation *op, AffineForm lhs,
                            const AffineForm &rhs);
  AffineForm negate(AffineForm form, Location loc);
  /// The forms of a sum over a rank, and of what repeats a value over one.
  FailureOr<AffineForm> sumRanks(SumOp op, unsigned depth);
  FailureOr<AffineForm> repeatRanks(BroadcastOp op, unsigned depth);
  Value scaled(Operation *op, Value value, Value factor, bool divides);
  Value multiplyRanks(Location loc, Value query, Value numbers);

  /// A token-only value that does not differ within a head, as [h]; or null.
  Value numberAHead(Value value, unsigned depth);
  Value numberAHeadOf(Operation *op, unsigned depth);
  /// One that does not differ within a rank, of which there may be several:
  /// [h, R...] of [heads, R..., D]; or null.
  Value numberARank(Value value, unsigned depth);
  Value numberARankOf(Operation *op, unsigned depth);

  FailureOr<AffineForm> fail(Operation *op, const Twine &reason) {
    obstacle = {op, reason.str()};
    return failure();
  }

  Value constant(Value like, ArrayRef<int64_t> shape, float number);
  Value withHeads(Value number, int64_t heads);
  template <typename OpT> Value binary(Location loc, Value lhs, Value rhs);
  Value negated(Location loc, Value value) {
    return builder ? arith::NegFOp::create(*builder, loc, value).getResult()
                   : value;
  }

  const OperandClasses &classes;
  AffineScale scales;
  OpBuilder *builder;
  AffineObstacle obstacle;
  // A shared subexpression is decomposed and built once.
  DenseMap<Value, AffineForm> forms;
  DenseMap<Value, Value> numbers, numbersOfRanks;
  // Scales are compared: what is made of the same ones is the same.
  std::map<std::tuple<bool, const void *, const void *>, Value> products;
  DenseMap<std::pair<Value, Type>, Value> repeated;
};

bool isElementwise(Operation *op) {
  return (op->hasTrait<OpTrait::Elementwise>() ||
          isa<SigmoidOp, SiluOp, SoftplusOp, EluOp>(op)) &&
         op->getNumResults() == 1 && op->getNumOperands() > 0;
}

int64_t headsOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(0);
}

} // namespace

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Value Decomposer::constant(Value like, ArrayRef<int64_t> shape, float number) {
  if (!builder)
    return like;
  auto type = RankedTensorType::get(shape, builder->getF32Type());
  return arith::ConstantOp::create(*builder, like.getLoc(),
                                   DenseElementsAttr::get(type, number));
}

Value Decomposer::withHeads(Value number, int64_t heads) {
  if (headsOf(number) == heads)
    return number;
  auto type = RankedTensorType::get({heads}, builder->getF32Type());
  return BroadcastOp::create(*builder, number.getLoc(), type, number,
                             ArrayRef<int64_t>{0});
}

template <typename OpT>
Value Decomposer::binary(Location loc, Value lhs, Value rhs) {
  if (!builder)
    return lhs;
  // Numbers a head may differ in the count of heads; other values do not.
  if (cast<RankedTensorType>(lhs.getType()).getRank() == 1) {
    int64_t heads = std::lcm(headsOf(lhs), headsOf(rhs));
    lhs = withHeads(lhs, heads);
    rhs = withHeads(rhs, heads);
  }
  return OpT::create(*builder, loc, lhs, rhs);
}

//===----------------------------------------------------------------------===//
// Numbers a head
//===----------------------------------------------------------------------===//

Value Decomposer::numberAHead(Value value, unsigned depth) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.getElementType().isF32() || depth > maxDepth)
    return {};
  if (type.getRank() == 1)
    return value;
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  auto found = numbers.find(value);
  if (found != numbers.end())
    return found->second;
  Value number = numberAHeadOf(op, depth + 1);
  numbers[value] = number;
  return number;
}

Value Decomposer::numberAHeadOf(Operation *op, unsigned depth) {
  SplatElementsAttr splat;
  if (matchPattern(op, m_Constant(&splat)))
    return constant(op->getResult(0), {1},
                    splat.getSplatValue<APFloat>().convertToFloat());
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return numberAHead(broadcast.getInput(), depth);

  // An elementwise operation on numbers a head gives numbers a head.
  if (!isElementwise(op))
    return {};
  SmallVector<Value> numbersOfOperands;
  int64_t heads = 1;
  for (Value operand : op->getOperands()) {
    if (operand.getType() != op->getResult(0).getType())
      return {};
    Value number = numberAHead(operand, depth);
    if (!number)
      return {};
    heads = std::lcm(heads, headsOf(number));
    numbersOfOperands.push_back(number);
  }
  if (!builder)
    return op->getResult(0);
  for (Value &number : numbersOfOperands)
    number = withHeads(number, heads);
  auto type = RankedTensorType::get({heads}, builder->getF32Type());
  return builder
      ->create(op->getLoc(), op->getName().getIdentifier(), numbersOfOperands,
               type, op->getAttrs())
      ->getResult(0);
}

Value Decomposer::numberARank(Value value, unsigned depth) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  Operation *op = value.getDefiningOp();
  if (!type || type.getRank() < 3 || !type.getElementType().isF32() || !op ||
      depth > maxDepth)
    return {};
  auto found = numbersOfRanks.find(value);
  if (found != numbersOfRanks.end())
    return found->second;
  Value number = numberARankOf(op, depth + 1);
  numbersOfRanks[value] = number;
  return number;
}

Value Decomposer::numberARankOf(Operation *op, unsigned depth) {
  Value value = op->getResult(0);
  auto type = cast<RankedTensorType>(value.getType());
  // Numbers of fewer ranks, or heads, are repeated.
  auto repeat = [&](Value number, int64_t heads, ArrayRef<int64_t> dims) {
    SmallVector<int64_t> shape(type.getShape().drop_back());
    shape.front() = heads;
    auto wanted = RankedTensorType::get(shape, type.getElementType());
    return number.getType() == wanted
               ? number
               : BroadcastOp::create(*builder, op->getLoc(), wanted, number,
                                     dims)
                     .getResult();
  };
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    Value number = broadcast.getInput();
    ArrayRef<int64_t> dims = broadcast.getDims();
    if (dims.back() + 1 == type.getRank()) {
      number = dims.size() == 2 ? numberAHead(number, depth)
                                : numberARank(number, depth);
      dims = dims.drop_back();
    }
    if (!number || !builder)
      return number ? value : Value();
    return repeat(number, headsOf(number), dims);
  }
  if (!isElementwise(op))
    return {};
  SmallVector<Value> numbersOfOperands;
  int64_t heads = 1;
  for (Value operand : op->getOperands()) {
    if (operand.getType() != type)
      return {};
    Value number = numberAHead(operand, depth);
    if (!number)
      number = numberARank(operand, depth);
    if (!number)
      return {};
    heads = std::lcm(heads, headsOf(number));
    numbersOfOperands.push_back(number);
  }
  if (!builder)
    return value;
  for (Value &number : numbersOfOperands) {
    int64_t rank = cast<RankedTensorType>(number.getType()).getRank();
    number =
        repeat(number, heads, llvm::to_vector(llvm::seq<int64_t>(0, rank)));
  }
  return builder
      ->create(op->getLoc(), op->getName().getIdentifier(), numbersOfOperands,
               numbersOfOperands.front().getType(), op->getAttrs())
      ->getResult(0);
}

//===----------------------------------------------------------------------===//
// Linear combinations
//===----------------------------------------------------------------------===//

FailureOr<AffineForm> Decomposer::add(Operation *op, AffineForm lhs,
                                      const AffineForm &rhs) {
  Location loc = op->getLoc();
  for (const AffineTerm &term : rhs.terms) {
    auto same = llvm::find_if(lhs.terms, [&](const AffineTerm &other) {
      return other.read == term.read && other.query == term.query &&
             other.scale == term.scale;
    });
    if (same == lhs.terms.end()) {
      lhs.terms.push_back(term);
      continue;
    }
    auto numberOf = [&](const AffineTerm &each) {
      return each.coefficient ? each.coefficient : constant(each.query, {1}, 1);
    };
    same->coefficient =
        binary<arith::AddFOp>(loc, numberOf(*same), numberOf(term));
  }
  if (!lhs.remainder)
    lhs.remainder = rhs.remainder;
  else if (rhs.remainder)
    lhs.remainder = binary<arith::AddFOp>(loc, lhs.remainder, rhs.remainder);
  return lhs;
}

AffineForm Decomposer::negate(AffineForm form, Location loc) {
  for (AffineTerm &term : form.terms)
    term.coefficient = term.coefficient ? negated(loc, term.coefficient)
                                        : constant(term.query, {1}, -1);
  if (form.remainder)
    form.remainder = negated(loc, form.remainder);
  return form;
}

/// `factor`, or 1 / `factor`, times `value` (null for 1).
Value Decomposer::scaled(Operation *op, Value value, Value factor,
                         bool divides) {
  if (!divides)
    return value ? binary<arith::MulFOp>(op->getLoc(), value, factor) : factor;
  auto type = cast<RankedTensorType>(factor.getType());
  SmallVector<int64_t> shape(type.getShape());
  if (!value)
    value = constant(factor, shape, 1);
  return binary<arith::DivFOp>(op->getLoc(), value, factor);
}

/// A read whose ranks are multiplied by `numbers` is that with a query whose
/// ranks are.
Value Decomposer::multiplyRanks(Location loc, Value query, Value numbers) {
  if (!builder)
    return query;
  auto type = cast<RankedTensorType>(query.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.front() = std::lcm(headsOf(query), headsOf(numbers));
  type = RankedTensorType::get(shape, type.getElementType());
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  if (query.getType() != type)
    query = BroadcastOp::create(*builder, loc, type, query, dims);
  dims.pop_back();
  numbers = BroadcastOp::create(*builder, loc, type, numbers, dims);
  return arith::MulFOp::create(*builder, loc, query, numbers);
}

FailureOr<AffineForm> Decomposer::scale(Operation *op, Value value,
                                        Value factor, bool divides,
                                        unsigned depth) {
  FailureOr<AffineForm> form = decompose(value, depth);
  if (failed(form))
    return failure();
  if (Value number = numberAHead(factor, depth)) {
    for (AffineTerm &term : form->terms)
      term.coefficient = scaled(op, term.coefficient, number, divides);
  } else if (Value numbers = numberARank(factor, depth)) {
    if (divides)
      numbers = scaled(op, {}, numbers, divides);
    for (AffineTerm &term : form->terms)
      term.query = multiplyRanks(op->getLoc(), term.query, numbers);
  } else if (scales == AffineScale::Channels) {
    for (AffineTerm &term : form->terms) {
      bool isFactor = !term.scale && !divides;
      Value &known = products[{divides, term.scale.getAsOpaquePointer(),
                               factor.getAsOpaquePointer()}];
      if (!known)
        known = builder || isFactor ? scaled(op, term.scale, factor, divides)
                                    : op->getResult(0);
      term.scale = known;
    }
  } else {
    return fail(op, Twine("a read is ") + (divides ? "divided" : "multiplied") +
                        " by one number a channel");
  }
  if (form->remainder)
    form->remainder = scaled(op, form->remainder, factor, divides);
  return form;
}

FailureOr<AffineForm> Decomposer::sumRanks(SumOp op, unsigned depth) {
  FailureOr<AffineForm> form = decompose(op.getInput(), depth);
  if (failed(form))
    return failure();
  if (static_cast<int64_t>(op.getDim()) + 1 ==
      op.getInput().getType().getRank())
    return fail(op, "the channels of a read are summed");
  if (llvm::any_of(form->terms,
                   [](const AffineTerm &term) { return bool(term.scale); }))
    return fail(op, "the ranks of a read are summed after they have been "
                    "multiplied by one number a channel");
  if (!builder)
    return form;
  auto sum = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.erase(shape.begin() + static_cast<int64_t>(op.getDim()));
    return SumOp::create(*builder, op.getLoc(),
                         RankedTensorType::get(shape, type.getElementType()),
                         value, op.getDim())
        .getResult();
  };
  for (AffineTerm &term : form->terms)
    term.query = sum(term.query);
  if (form->remainder)
    form->remainder = sum(form->remainder);
  return form;
}

FailureOr<AffineForm> Decomposer::repeatRanks(BroadcastOp op, unsigned depth) {
  FailureOr<AffineForm> form = decompose(op.getInput(), depth);
  if (failed(form))
    return failure();
  RankedTensorType type = op.getResult().getType();
  if (op.getInput().getType().getDimSize(0) != type.getDimSize(0) ||
      op.getDims().back() + 1 != type.getRank())
    return fail(op, "a read is repeated over heads or channels");
  if (!builder)
    return form;
  auto repeat = [&](Value value) {
    auto from = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.front() = from.getDimSize(0);
    shape.back() = from.getShape().back();
    return BroadcastOp::create(
               *builder, op.getLoc(),
               RankedTensorType::get(shape, from.getElementType()), value,
               op.getDims())
        .getResult();
  };
  for (AffineTerm &term : form->terms) {
    term.query = repeat(term.query);
    if (!term.scale)
      continue;
    // The same scale of two reads stays the same.
    Value &known = repeated[{term.scale, type}];
    if (!known)
      known = repeat(term.scale);
    term.scale = known;
  }
  if (form->remainder)
    form->remainder = repeat(form->remainder);
  return form;
}

FailureOr<AffineForm> Decomposer::decompose(Value value, unsigned depth) {
  OperandClass valueClass = classes.get(value);
  if (valueClass == OperandClass::TokenOnly)
    return AffineForm{{}, value};
  if (valueClass == OperandClass::Other) {
    Operation *op = classes.findNonAffine(value);
    if (!op)
      return fail(nullptr, "it is computed in a nested region");
    if (isa<ReadOp>(op))
      return fail(op, "a state is read with what was read from a state");
    if (isa<arith::MulFOp>(op))
      return fail(op, "two reads are multiplied");
    return fail(op, Twine("'") + op->getName().getStringRef() +
                        "' of a read is not affine");
  }
  Operation *op = value.getDefiningOp();
  if (!op || depth > maxDepth)
    return fail(op, "the expression is too long");
  auto found = forms.find(value);
  if (found != forms.end())
    return found->second;
  FailureOr<AffineForm> form = decomposeOp(op, depth + 1);
  if (succeeded(form))
    forms[value] = *form;
  return form;
}

FailureOr<AffineForm> Decomposer::decomposeOp(Operation *op, unsigned depth) {
  using Result = FailureOr<AffineForm>;
  auto combine = [&](Value lhsValue, Value rhsValue, bool subtracts) -> Result {
    Result lhs = decompose(lhsValue, depth);
    if (failed(lhs))
      return failure();
    Result rhs = decompose(rhsValue, depth);
    if (failed(rhs))
      return failure();
    return add(op, *lhs, subtracts ? negate(*rhs, op->getLoc()) : *rhs);
  };
  return TypeSwitch<Operation *, Result>(op)
      .Case([&](ReadOp read) -> Result {
        return AffineForm{{AffineTerm{read, read.getQuery(), {}, {}}}, {}};
      })
      .Case([&](arith::AddFOp sum) {
        return combine(sum.getLhs(), sum.getRhs(), /*subtracts=*/false);
      })
      .Case([&](arith::SubFOp difference) {
        return combine(difference.getLhs(), difference.getRhs(),
                       /*subtracts=*/true);
      })
      .Case([&](arith::NegFOp negation) -> Result {
        Result form = decompose(negation.getOperand(), depth);
        if (failed(form))
          return failure();
        return negate(*form, op->getLoc());
      })
      .Case([&](arith::MulFOp product) {
        Value read = product.getLhs(), factor = product.getRhs();
        if (classes.get(read) == OperandClass::TokenOnly)
          std::swap(read, factor);
        return scale(op, read, factor, /*divides=*/false, depth);
      })
      .Case([&](arith::DivFOp quotient) {
        return scale(op, quotient.getLhs(), quotient.getRhs(),
                     /*divides=*/true, depth);
      })
      .Case([&](SumOp sum) { return sumRanks(sum, depth); })
      .Case([&](BroadcastOp repeat) { return repeatRanks(repeat, depth); })
      .Default([&](Operation *) {
        return fail(op, Twine("'") + op->getName().getStringRef() +
                            "' of a read is not a number times it");
      });
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

FailureOr<AffineForm> ladle::decomposeAffine(Value value, OpBuilder &builder,
                                             AffineScale scale) {
  Region *body = value.getParentRegion();
  if (auto recurrence = body->getParentOfType<RecurrenceOp>())
    body = &recurrence.getBody();
  OperandClasses classes(*body);
  // A failure halfway must leave nothing behind.
  if (failed(Decomposer(classes, scale, nullptr).decompose(value)))
    return failure();
  return Decomposer(classes, scale, &builder).decompose(value);
}

FailureOr<SmallVector<ReadOp>>
ladle::findAffineReads(Value value, const OperandClasses &classes,
                       AffineScale scale, AffineObstacle &obstacle) {
  Decomposer decomposer(classes, scale, nullptr);
  FailureOr<AffineForm> form = decomposer.decompose(value);
  if (failed(form)) {
    obstacle = decomposer.getObstacle();
    return failure();
  }
  SmallVector<ReadOp> reads;
  for (const AffineTerm &term : form->terms)
    reads.push_back(term.read);
  return reads;
}
