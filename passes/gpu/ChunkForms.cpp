//===- ChunkForms.cpp - what tokens of a chunk are made of ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/ChunkForms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"
#include "passes/build/Components.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace ladle;

/// More terms take more products than one of f32.
static constexpr size_t kMostTerms = 2;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool isIn(Value value, EachDraftOp op) {
  return value.getParentBlock() == &op.getBody().front();
}

/// Has a region yield more, after what it yields, with new results for it.
static EachDraftOp addYields(EachDraftOp op, ArrayRef<Value> values) {
  if (values.empty())
    return op;
  assert(op.getCarries().empty() && "carries are yielded last");
  OpBuilder b(op);
  int64_t tokens = cast<DraftsType>(op.getDrafts().getType()).getMost();
  SmallVector<Type> types(op.getResultTypes());
  for (Value value : values) {
    SmallVector<int64_t> shape(typeOf(value).getShape());
    shape.insert(shape.begin() + 1, tokens);
    types.push_back(
        RankedTensorType::get(shape, typeOf(value).getElementType()));
  }
  auto result = EachDraftOp::create(b, op.getLoc(), types, op.getDrafts(),
                                    op.getStacks(), op.getCarries());
  result.getBody().takeBody(op.getBody());
  result.getYield().getValuesMutable().append(values);
  op.replaceAllUsesWith(result.getResults().take_front(op.getNumResults()));
  op.erase();
  return result;
}

//===----------------------------------------------------------------------===//
// Values of one region for another
//===----------------------------------------------------------------------===//

namespace {

/// What a value of a region is made of, elementwise.
struct Slice {
  llvm::SetVector<Operation *> ops; ///< users before what they use
  llvm::SetVector<Value> inputs;    ///< of the region: numbers, stacks
};

} // namespace

/// Whether somebody else needs the stack of a value as well.
static bool isStack(Value value, EachDraftOp region) {
  for (auto [yielded, result] :
       llvm::zip(region.getYield().getValues(), region.getResults()))
    if (yielded == value &&
        llvm::any_of(result.getUsers(),
                     [](Operation *user) { return !isa<EachDraftOp>(user); }))
      return true;
  return false;
}

static bool findSlice(Value value, EachDraftOp region, Slice &slice) {
  if (!isIn(value, region))
    return true;
  if (typeOf(value).getRank() == 1 || isa<BlockArgument>(value) ||
      isStack(value, region)) {
    slice.inputs.insert(value);
    return true;
  }
  Operation *op = value.getDefiningOp();
  auto broadcast = dyn_cast<BroadcastOp>(op);
  bool isPlain = typeOf(value).getRank() == 2 &&
                 (broadcast ? broadcast.getInput().getType().getRank() == 1 ||
                                  keepsLastDimension(broadcast)
                            : op->hasTrait<OpTrait::Elementwise>());
  if (!isPlain)
    return false;
  slice.ops.insert(op);
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    return findSlice(operand, region, slice);
  });
}

/// Moves a result into the one region that takes it, if it can be.
static bool moveResult(EachDraftOp from, unsigned index) {
  OpResult result = from->getResult(index);
  Value value = from.getYield().getValues()[index];
  if (result.use_empty() || typeOf(value).getRank() != 2)
    return false;
  auto into = dyn_cast<EachDraftOp>(*result.getUsers().begin());
  if (!into || !into.getCarries().empty() ||
      llvm::any_of(result.getUsers(),
                   [&](Operation *user) { return user != into; }))
    return false;
  Slice slice;
  if (!findSlice(value, from, slice) || slice.ops.empty())
    return false;
  // What the slice takes becomes stacks: those of the region, or new ones.
  SmallVector<Value> stacks, yields;
  SmallVector<std::pair<Value, unsigned>> made;
  for (Value input : slice.inputs) {
    if (auto argument = dyn_cast<BlockArgument>(input)) {
      stacks.push_back(from.getStacks()[argument.getArgNumber()]);
      continue;
    }
    OperandRange yielded = from.getYield().getValues();
    unsigned at = llvm::find(yielded, input) - yielded.begin();
    if (at == yielded.size()) {
      at += yields.size();
      yields.push_back(input);
    }
    made.emplace_back(input, at);
    stacks.push_back(nullptr);
  }
  from = addYields(from, yields);
  auto next = made.begin();
  for (Value &stack : stacks)
    if (!stack)
      stack = from.getResult((next++)->second);
  Block &body = into.getBody().front();
  IRMapping mapping;
  for (auto [input, stack] : llvm::zip(slice.inputs, stacks)) {
    unsigned at =
        llvm::find(into.getStacks(), stack) - into.getStacks().begin();
    if (at < into.getNumStacks()) {
      mapping.map(input, body.getArgument(at));
      continue;
    }
    mapping.map(input,
                body.insertArgument(at, input.getType(), input.getLoc()));
    into.getStacksMutable().append(stack);
  }
  // Operations of a block are in order.
  OpBuilder b(&body, body.begin());
  SmallVector<Operation *> ops(slice.ops.begin(), slice.ops.end());
  llvm::sort(ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : ops)
    b.clone(*op, mapping);
  for (unsigned i = into.getNumStacks(); i-- > 0;)
    if (into.getStacks()[i] == from.getResult(index)) {
      body.getArgument(i).replaceAllUsesWith(mapping.lookup(value));
      body.eraseArgument(i);
      into.getStacksMutable().erase(i);
    }
  return true;
}

void ladle::moveTokenValues(StepOp step) {
  bool isChanged = true;
  while (isChanged) {
    isChanged = false;
    for (EachDraftOp op : step.getBody().front().getOps<EachDraftOp>()) {
      if (!op.getCarries().empty())
        continue;
      for (unsigned i = 0; i < op.getNumResults() && !isChanged; ++i)
        isChanged = moveResult(op, i);
      if (isChanged)
        break;
    }
  }
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

namespace {

/// Finds terms, and makes their scales at the end of a region.
class Terms {
public:
  explicit Terms(EachDraftOp region)
      : region(region), b(region.getLoc(), region.getYield()) {}

  /// Nothing if the value is no such sum.
  std::optional<SmallVector<ChunkTerm, 2>> find(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !isIn(value, region) || typeOf(value).getRank() != 2)
      return std::nullopt;
    if (auto extend = dyn_cast<arith::ExtFOp>(op)) {
      if (!isa<BlockArgument>(extend.getIn()))
        return std::nullopt;
      return SmallVector<ChunkTerm, 2>{{value, {}}};
    }
    if (auto broadcast = dyn_cast<BroadcastOp>(op))
      return broadcast.getInput().getType().getRank() == 2 &&
                     keepsLastDimension(broadcast)
                 ? find(broadcast.getInput())
                 : std::nullopt;
    if (isa<arith::NegFOp>(op))
      return scaled(find(op->getOperand(0)), [&](Value scale) {
        return scale ? Value(arith::NegFOp::create(b, scale))
                     : constant(-1, typeOf(value).getDimSize(0));
      });
    if (isa<arith::MulFOp>(op)) {
      for (unsigned i : {0, 1})
        if (Value number = numberOf(op->getOperand(i)))
          return scaled(find(op->getOperand(1 - i)), [&](Value scale) {
            return scale ? product(scale, number) : number;
          });
      return std::nullopt;
    }
    if (isa<arith::AddFOp, arith::SubFOp>(op)) {
      auto terms = find(op->getOperand(0)), more = find(op->getOperand(1));
      if (isa<arith::SubFOp>(op))
        more = scaled(more, [&](Value scale) {
          return scale ? Value(arith::NegFOp::create(b, scale))
                       : constant(-1, typeOf(value).getDimSize(0));
        });
      if (!terms || !more)
        return std::nullopt;
      for (const ChunkTerm &term : *more) {
        // Twice the same is one product as well, but no sum of two numbers.
        if (llvm::any_of(*terms, [&](const ChunkTerm &other) {
              return other.base == term.base;
            }))
          return std::nullopt;
        terms->push_back(term);
      }
      return terms;
    }
    return std::nullopt;
  }

  /// Has products of two such values summed as they came, too.
  void moveOutOfSums() {
    for (SumOp sum :
         llvm::to_vector(region.getBody().front().getOps<SumOp>())) {
      auto of = sum.getInput().getDefiningOp<arith::MulFOp>();
      if (!of || !isIn(of, region) || sum.getResult().getType().getRank() != 1)
        continue;
      b.setInsertionPoint(sum);
      auto lhs = find(of.getLhs()), rhs = find(of.getRhs());
      if (!lhs || !rhs || lhs->size() != 1 || rhs->size() != 1)
        continue;
      auto [left, leftScale] = lhs->front();
      auto [right, rightScale] = rhs->front();
      if ((!leftScale && !rightScale) || left.getType() != right.getType())
        continue;
      Value result = SumOp::create(
          b,
          RankedTensorType::get(typeOf(left).getShape().take_front(),
                                b.getF32Type()),
          arith::MulFOp::create(b, left, right), sum.getDimAttr());
      for (Value scale : {leftScale, rightScale})
        if (scale)
          result = product(result, scale);
      if (result.getType() == sum.getType())
        sum.replaceAllUsesWith(result);
    }
    b.setInsertionPoint(region.getYield());
  }

private:
  template <typename Change>
  static std::optional<SmallVector<ChunkTerm, 2>>
  scaled(std::optional<SmallVector<ChunkTerm, 2>> terms, Change change) {
    if (terms)
      for (ChunkTerm &term : *terms)
        term.scale = change(term.scale);
    return terms;
  }

  Value constant(double value, int64_t heads) {
    auto type = RankedTensorType::get({heads}, b.getF32Type());
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(type, static_cast<float>(value)));
  }

  /// The numbers, one a head, that all elements of a vector are.
  Value numberOf(Value value) {
    if (auto broadcast = value.getDefiningOp<BroadcastOp>())
      return broadcast.getInput().getType().getRank() == 1
                 ? Value(broadcast.getInput())
                 : numberOf(broadcast.getInput());
    DenseElementsAttr all;
    if (matchPattern(value, m_Constant(&all)) && all.isSplat())
      return constant(all.getSplatValue<APFloat>().convertToDouble(),
                      typeOf(value).getDimSize(0));
    return {};
  }

  Value product(Value lhs, Value rhs) {
    int64_t heads =
        std::max(typeOf(lhs).getDimSize(0), typeOf(rhs).getDimSize(0));
    auto spread = [&](Value value) -> Value {
      if (typeOf(value).getDimSize(0) == heads)
        return value;
      return BroadcastOp::create(
          b, RankedTensorType::get({heads}, typeOf(value).getElementType()),
          value, b.getDenseI64ArrayAttr({0}));
    };
    return arith::MulFOp::create(b, spread(lhs), spread(rhs));
  }

  EachDraftOp region;
  ImplicitLocOpBuilder b;
};

} // namespace

/// Decays of each channel are multiplied with elements of keys and queries.
static bool decaysChannels(StepOp step) {
  return step
      .walk([](Operation *op) {
        Value decays;
        if (auto gram = dyn_cast<PathGramOp>(op))
          decays = gram.getDecays();
        else if (auto fold = dyn_cast<FoldDraftsOp>(op))
          decays = fold.getDecays();
        return decays && typeOf(decays).getRank() > 2 ? WalkResult::interrupt()
                                                      : WalkResult::advance();
      })
      .wasInterrupted();
}

ChunkForms ladle::separateScales(StepOp step) {
  ChunkForms forms;
  if (decaysChannels(step))
    return forms;
  for (EachDraftOp region : llvm::make_early_inc_range(
           step.getBody().front().getOps<EachDraftOp>())) {
    if (!region.getCarries().empty())
      continue;
    Terms terms(region);
    terms.moveOutOfSums();
    SmallVector<std::pair<unsigned, SmallVector<ChunkTerm, 2>>> found;
    for (auto [i, value] : llvm::enumerate(region.getYield().getValues())) {
      bool isKey = false, isMultiplied = false;
      for (OpOperand &use : region.getResult(i).getUses()) {
        auto gram = dyn_cast<PathGramOp>(use.getOwner());
        isKey |= isa<FoldDraftsOp>(use.getOwner()) ||
                 (gram && gram.getKeys() == use.get());
        isMultiplied |= gram || isa<ReadOp, FoldDraftsOp>(use.getOwner());
      }
      // Values of a state may be folded, too.
      if (!isMultiplied ||
          llvm::any_of(region.getResult(i).getUsers(), [&](Operation *user) {
            auto fold = dyn_cast<FoldDraftsOp>(user);
            return fold &&
                   llvm::is_contained(fold.getValues(), region.getResult(i));
          }))
        continue;
      if (auto all = terms.find(value);
          all && all->size() <= (isKey ? 1 : kMostTerms))
        found.emplace_back(static_cast<unsigned>(i), *all);
    }
    SmallVector<Value> yields(region.getYield().getValues()), more;
    auto indexOf = [&](Value value) -> unsigned {
      unsigned at = llvm::find(yields, value) - yields.begin();
      if (at == yields.size()) {
        yields.push_back(value);
        more.push_back(value);
      }
      return at;
    };
    SmallVector<std::tuple<unsigned, unsigned, std::optional<unsigned>>> places;
    for (auto &[i, all] : found)
      for (const ChunkTerm &term : all)
        places.emplace_back(i, indexOf(term.base),
                            term.scale ? std::optional(indexOf(term.scale))
                                       : std::nullopt);
    EachDraftOp made = addYields(region, more);
    for (auto &[i, base, scale] : places)
      forms[made.getResult(i)].push_back(
          {made.getResult(base), scale ? made.getResult(*scale) : Value()});
  }
  return forms;
}
