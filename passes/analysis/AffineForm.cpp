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
#include <numeric>

using namespace mlir;
using namespace ladle;

namespace {

/// Longer chains of operations than a person writes are given up, since the
/// walk over them is recursive.
constexpr unsigned maxDepth = 1000;

/// Decomposes values, with a builder or, to find out whether it is possible,
/// without one. Without one, every value that would be built is represented by
/// an operand of the operation that would build it; what is decided depends on
/// the values of the body alone.
class Decomposer {
public:
  Decomposer(const OperandClasses &classes, OpBuilder *builder)
      : classes(classes), builder(builder) {}

  FailureOr<AffineForm> decompose(Value value, unsigned depth = 0);
  const AffineObstacle &getObstacle() const { return obstacle; }

private:
  FailureOr<AffineForm> decomposeOp(Operation *op, unsigned depth);
  /// The form of `op`, which multiplies or divides `value` by `factor`.
  FailureOr<AffineForm> scale(Operation *op, Value value, Value factor,
                              bool divides, unsigned depth);
  AffineForm add(AffineForm lhs, const AffineForm &rhs, Location loc);
  AffineForm negate(AffineForm form, Location loc);

  /// A token-only value that does not differ within a head, as [h]; or null.
  Value numberAHead(Value value, unsigned depth);
  Value numberAHeadOf(Operation *op, unsigned depth);

  FailureOr<AffineForm> fail(Operation *op, const Twine &reason) {
    obstacle = {op, reason.str()};
    return failure();
  }

  Value constant(Value like, int64_t heads, float number);
  Value withHeads(Value number, int64_t heads);
  template <typename OpT> Value binary(Location loc, Value lhs, Value rhs);
  Value negated(Location loc, Value value) {
    return builder ? arith::NegFOp::create(*builder, loc, value).getResult()
                   : value;
  }

  const OperandClasses &classes;
  OpBuilder *builder;
  AffineObstacle obstacle;
  // A shared subexpression is decomposed and built once.
  DenseMap<Value, AffineForm> forms;
  DenseMap<Value, Value> numbers;
};

int64_t headsOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(0);
}

} // namespace

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Value Decomposer::constant(Value like, int64_t heads, float number) {
  if (!builder)
    return like;
  auto type = RankedTensorType::get({heads}, builder->getF32Type());
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
    return constant(op->getResult(0), 1,
                    splat.getSplatValue<APFloat>().convertToFloat());
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return numberAHead(broadcast.getInput(), depth);

  // An elementwise operation on numbers a head gives numbers a head.
  bool isElementwise = op->hasTrait<OpTrait::Elementwise>() ||
                       isa<SigmoidOp, SiluOp, SoftplusOp, EluOp>(op);
  if (!isElementwise || op->getNumResults() != 1 || op->getNumOperands() == 0)
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

//===----------------------------------------------------------------------===//
// Linear combinations
//===----------------------------------------------------------------------===//

AffineForm Decomposer::add(AffineForm lhs, const AffineForm &rhs,
                           Location loc) {
  for (const AffineTerm &term : rhs.terms) {
    auto same = llvm::find_if(lhs.terms, [&](const AffineTerm &other) {
      return other.read == term.read;
    });
    if (same == lhs.terms.end()) {
      lhs.terms.push_back(term);
      continue;
    }
    auto numberOf = [&](const AffineTerm &each) {
      return each.coefficient ? each.coefficient
                              : constant(ReadOp(each.read).getResult(), 1, 1);
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
    term.coefficient = term.coefficient
                           ? negated(loc, term.coefficient)
                           : constant(term.read.getResult(), 1, -1);
  if (form.remainder)
    form.remainder = negated(loc, form.remainder);
  return form;
}

FailureOr<AffineForm> Decomposer::scale(Operation *op, Value value,
                                        Value factor, bool divides,
                                        unsigned depth) {
  FailureOr<AffineForm> form = decompose(value, depth);
  if (failed(form))
    return failure();
  Value number = numberAHead(factor, depth);
  if (!number)
    return fail(op, Twine("a read is ") + (divides ? "divided" : "multiplied") +
                        " by one number a channel");
  Location loc = op->getLoc();
  for (AffineTerm &term : form->terms) {
    Value &coefficient = term.coefficient;
    if (divides)
      coefficient = binary<arith::DivFOp>(
          loc, coefficient ? coefficient : constant(factor, 1, 1), number);
    else
      coefficient = coefficient
                        ? binary<arith::MulFOp>(loc, coefficient, number)
                        : number;
  }
  if (form->remainder)
    form->remainder = divides
                          ? binary<arith::DivFOp>(loc, form->remainder, factor)
                          : binary<arith::MulFOp>(loc, form->remainder, factor);
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
    Location loc = op->getLoc();
    return add(*lhs, subtracts ? negate(*rhs, loc) : *rhs, loc);
  };
  return TypeSwitch<Operation *, Result>(op)
      .Case([&](ReadOp read) -> Result {
        return AffineForm{{AffineTerm{read, {}}}, {}};
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
      .Default([&](Operation *) {
        return fail(op, Twine("'") + op->getName().getStringRef() +
                            "' of a read is not one number a head times it");
      });
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

FailureOr<AffineForm> ladle::decomposeAffine(Value value, OpBuilder &builder) {
  Region *body = value.getParentRegion();
  if (auto recurrence = body->getParentOfType<RecurrenceOp>())
    body = &recurrence.getBody();
  OperandClasses classes(*body);
  // A failure halfway must leave nothing behind.
  if (failed(Decomposer(classes, nullptr).decompose(value)))
    return failure();
  return Decomposer(classes, &builder).decompose(value);
}

FailureOr<SmallVector<ReadOp>>
ladle::findAffineReads(Value value, const OperandClasses &classes,
                       AffineObstacle &obstacle) {
  Decomposer decomposer(classes, nullptr);
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
