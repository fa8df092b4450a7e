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
  // A key of a fold is one of the cache, or will be.
  if (argument.getOwner() != &step.getBody().front()) {
    if (keyRow)
      return loadFloat(array("key_pages", plan.keyType, keySize),
                       {keyRow, indices.front()});
    Value given = tensor(append.getValues()[0]);
    Value key = loadFloat(given, {of, cacheHead, indices.front()});
    if (cast<MemRefType>(given.getType()).getElementType() != plan.keyType &&
        !plan.keyType.isF32()) {
      Value stored = arith::TruncFOp::create(b, plan.keyType, key);
      key = arith::ExtFOp::create(b, b.getF32Type(), stored);
    }
    return key;
  }
  FailureOr<int64_t> ofOne = headsOfOne(argument, heads);
  if (failed(ofOne))
    return failure();
  SmallVector<Value> place;
  if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Token)
    place.push_back(of);
  place.push_back(*ofOne == heads ? index(0) : div(head, *ofOne));
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
  if (auto known = knownElements.find(value); known != knownElements.end())
    return known->second;
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
        Value remembers = fold ? nextFolds : held;
        return select(less(index(0), remembers), *yes, *no);
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

/// Elements of a sum, without the heads.
static int64_t elementsOf(SumOp op) {
  int64_t elements = 1;
  for (int64_t other : op.getResult().getType().getShape().drop_front())
    elements *= other;
  return elements;
}

/// Terms of a lane whose loads are unrolled, and elements of a warp.
static constexpr int64_t kMostTerms = 4, kMostTogether = 16;

static int64_t elementsTogether(SumOp op) {
  constexpr int64_t loads = 32, warp = 32;
  int64_t size =
      op.getInput().getType().getDimSize(static_cast<int64_t>(op.getDim()));
  int64_t terms = std::min((size + warp - 1) / warp, kMostTerms);
  return std::min(kMostTogether, loads / terms);
}

/// Whether a value depends on what is attended to.
static bool needsKeys(Value value) {
  SmallVector<Value> waiting{value};
  DenseSet<Value> seen;
  while (!waiting.empty()) {
    Value next = waiting.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !seen.insert(next).second)
      continue;
    if (isa<AttendOp>(op))
      return true;
    llvm::append_range(waiting, op->getOperands());
  }
  return false;
}

static void findParameters(AttentionStepOp step, Value value,
                           llvm::SetVector<Value> &read) {
  if (auto given = dyn_cast<BlockArgument>(value)) {
    if (isa<RankedTensorType>(value.getType()) &&
        step.getArgumentKind(given.getArgNumber()) == ArgumentKind::Param)
      read.insert(value);
    return;
  }
  for (Value operand : value.getDefiningOp()->getOperands())
    findParameters(step, operand, read);
}

/// Those that an answer reads, long before it does: each thread of those that
/// answer asks for a line.
void GpuBounded::prefetchParameters() {
  llvm::SetVector<Value> read;
  findParameters(step, step.getYield().getValues().front(), read);
  if (read.empty())
    return;
  Value cluster = gpu::BlockIdOp::create(b, gpu::Dimension::y);
  Value block = add(mul(cluster, ranks), rank);
  Value clusters = gpu::GridDimOp::create(b, gpu::Dimension::y);
  Value own = add(mul(block, threads), thread);
  Value all = mul(mul(clusters, ranks), threads);
  for (Value each : read) {
    auto type = cast<RankedTensorType>(each.getType());
    int64_t elements = kLineBits / type.getElementTypeBitWidth();
    int64_t rowSize = type.getShape().back();
    int64_t lines = (rowSize + elements - 1) / elements;
    loop(own, index(type.getNumElements() / rowSize * lines), all,
         [&](Value at) {
           Value rest = div(at, lines);
           Values place{mul(rem(at, lines), elements)};
           for (int64_t size : llvm::reverse(type.getShape().drop_back())) {
             place.insert(place.begin(), rem(rest, size));
             rest = div(rest, size);
           }
           prefetch(tensor(each), place);
         });
  }
}

/// The largest values of an answer that need no keys and are as large as it.
static void findBeforeKeys(Value value, llvm::SetVector<Value> &found) {
  Operation *op = value.getDefiningOp();
  if (!needsKeys(value)) {
    if (!isa_and_present<arith::ConstantOp>(op))
      found.insert(value);
    return;
  }
  bool keepsPlaces =
      isa<OnceOp>(op) ||
      isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
  for (Value operand : op->getOperands())
    if (keepsPlaces && isa<RankedTensorType>(operand.getType()))
      findBeforeKeys(operand, found);
}

GpuAttention::Values GpuBounded::valuesBeforeKeys() {
  llvm::SetVector<Value> found;
  findBeforeKeys(step.getYield().getValues().front(), found);
  return Values(found.getArrayRef());
}

/// Of each element that this thread answers, before keys are attended to.
GpuAttention::Ahead GpuBounded::loadBeforeKeys(ValueRange known) {
  int64_t size = plan.output.getDimSize(1);
  Values wanted(known);
  return startLoop(thread, mul(ownHeads(), size), index(threads),
                   /*together=*/1, [this, size, wanted](Value at) {
                     openOwnHead(div(at, size));
                     // Who answers no head loads what is there, too.
                     local = minimum(local, index(plan.group() - 1));
                     head = add(mul(cacheHead, plan.group()), local);
                     Values loaded;
                     for (Value each : wanted) {
                       FailureOr<Value> its = element(each, {rem(at, size)});
                       keep(its);
                       loaded.push_back(succeeded(its) ? *its : number(0));
                     }
                     return loaded;
                   });
}

void GpuBounded::declareSums() {
  llvm::SetVector<Operation *> sums;
  findSums(step.getYield().getValues().front(), sums);
  materialized.clear();
  for (Operation *op : sums) {
    auto each = cast<SumOp>(op);
    sharedSumsOf[each.getResult()] =
        sharedArray("sum", b.getF32Type(), {plan.group(), elementsOf(each)});
  }
}

/// Of some elements, each of a head, at once: their loads wait together, and
/// heads that need the same ones share them.
void GpuBounded::sumElements(SumOp op, int64_t howMany,
                             llvm::function_ref<SumElement(Value)> which,
                             Value result) {
  ArrayRef<int64_t> sizes = op.getResult().getType().getShape();
  auto dim = static_cast<int64_t>(op.getDim());
  int64_t size = op.getInput().getType().getDimSize(dim);
  SmallVector<SumElement> wanted;
  for (int64_t i = 0; i < howMany; ++i)
    wanted.push_back(which(index(i)));
  auto open = [&](const SumElement &each) {
    local = each.ofHead;
    head = add(mul(cacheHead, plan.group()), local);
    Value rest = each.at;
    Values indices;
    for (int64_t other : llvm::reverse(sizes.drop_front())) {
      indices.insert(indices.begin(), rem(rest, other));
      rest = div(rest, other);
    }
    return indices;
  };
  auto addTerm = [&](Value term, ValueRange before) -> Values {
    Values terms;
    for (const SumElement &each : wanted) {
      Values inner = open(each);
      inner.insert(inner.begin() + (dim - 1), term);
      FailureOr<Value> next = element(op.getInput(), inner);
      keep(next);
      terms.push_back(succeeded(next) ? *next : number(0));
    }
    for (auto [all, term] : llvm::zip_equal(before, terms))
      term = sum(all, term);
    return terms;
  };
  Values all(wanted.size(), number(0));
  if (size % kWarp == 0 && size / kWarp <= kMostTerms)
    for (int64_t first = 0; first < size; first += kWarp)
      all = addTerm(add(lane, first), all);
  else
    all = loop(lane, index(size), index(kWarp), all, addTerm);
  // Lanes give one another half of their sums, until each has one.
  auto sums = static_cast<int64_t>(llvm::PowerOf2Ceil(all.size()));
  all.resize(sums, number(0));
  int64_t mask = kWarp / 2;
  for (; all.size() > 1; mask /= 2) {
    Value isUpper = equal(rem(div(lane, mask), 2), index(1));
    size_t half = all.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      Value given = select(isUpper, all[i], all[half + i]);
      Value kept = select(isUpper, all[half + i], all[i]);
      all[i] = sum(kept, exchange(given, mask));
    }
    all.truncate(half);
  }
  for (; mask > 0; mask /= 2)
    all[0] = sum(all[0], exchange(all[0], mask));
  int64_t lanes = kWarp / sums;
  SumElement own = which(div(lane, lanes));
  ifThen(both(equal(rem(lane, lanes), index(0)), own.isThere),
         [&] { store(all[0], result, {own.ofHead, own.at}); });
}

LogicalResult GpuBounded::materialize(Value value, bool beforeKeys) {
  llvm::SetVector<Operation *> sums;
  findSums(value, sums);
  for (Operation *op : sums) {
    auto each = cast<SumOp>(op);
    if (materialized.contains(each.getResult()) ||
        (beforeKeys && needsKeys(each.getInput())))
      continue;
    int64_t elements = elementsOf(each), group = plan.group();
    Value result = sharedSumsOf.lookup(each.getResult());
    // Of a warp, elements of all heads if a block has these, or else of one
    // after another: as many as leave registers for their loads.
    int64_t together = elementsTogether(each);
    int64_t rows =
        std::max<int64_t>(std::min(2 * kMostTogether / group, together), 1);
    // There are as many sums at once as lanes at the most.
    Value hasAll = equal(ranks, index(group > kWarp ? 0 : 1));
    if (group <= kWarp)
      ifThen(hasAll, [&] {
        loop(mul(warp, rows), index(elements), index(warps * rows),
             [&](Value from) {
               auto which = [&](Value i) -> SumElement {
                 Value at = add(from, div(i, group)),
                       most = index(elements - 1);
                 return {rem(i, group), minimum(at, most),
                         both(less(i, index(rows * group)),
                              less(at, index(elements)))};
               };
               sumElements(each, rows * group, which, result);
             });
      });
    if (mostBlocks > 1 || group > kWarp)
      ifThen(negate(hasAll), [&] {
        Value count = mul(ownHeads(), elements);
        loop(mul(warp, together), count, index(warps * together),
             [&](Value from) {
               // All are of a head where they divide its elements.
               bool isOfOne = elements % together == 0;
               Value first = isOfOne ? rem(from, elements) : from;
               openOwnHead(div(from, elements));
               Value ofAll = local;
               auto which = [&](Value i) -> SumElement {
                 Value isThere = less(i, index(together));
                 if (isOfOne)
                   return {ofAll, add(first, minimum(i, index(together - 1))),
                           isThere};
                 Value at = add(first, i);
                 isThere = both(isThere, less(at, count));
                 at = minimum(at, sub(count, index(1)));
                 openOwnHead(div(at, elements));
                 return {local, rem(at, elements), isThere};
               };
               sumElements(each, together, which, result);
             });
      });
    if (failed(isLowered))
      return failure();
    barrier();
    materialized[each.getResult()] = result;
  }
  return success();
}
