//===- SegmentAnswers.cpp - what prompts by segments are answered ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A warp answers its 16 queries by itself, a block of the answer at a time. Of
// a vector a lane has what products leave it: of queries g and g + 8, elements
// (2 t) n + i and (2 t + 1) n + i of a block of 8 n, as those of values are
// (AttentionPromptProducts.cpp). Exact answers, memories and matrices are
// blocks; what is elementwise is computed between them.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/SegmentPrompts.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static int64_t sizeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape().back();
}

int64_t GpuSegmentPrompts::partOf(int64_t size) const {
  if (size == valueSize)
    return valuePart();
  constexpr int64_t columns = 8;
  for (int64_t part : {8, 4})
    if (size % (columns * part) == 0)
      return part;
  return 2;
}

int64_t GpuSegmentPrompts::blocksOf(int64_t size) const {
  return llvm::divideCeil(size, 8 * partOf(size));
}

/// The first of a column; behind the last one it is the last again.
Value GpuSegmentPrompts::elementOf(int64_t size, int64_t block,
                                   int64_t column) {
  int64_t part = partOf(size), columns = 8;
  Value element =
      add(mul(add(mul(lanePart, 2), column), part), block * columns * part);
  if (size % (columns * part) == 0)
    return element;
  return minimum(element, index(size - part));
}

//===----------------------------------------------------------------------===//
// All of it
//===----------------------------------------------------------------------===//

/// Warps whose queries see no memory read none.
void GpuSegmentPrompts::storeAnswers(ValueRange carried) {
  for (int64_t i = 0; i < 2; ++i) {
    exact[i] = answerOf(carried, i).second;
    warpFolds[i] = bound(index(kWarpFolds + i));
  }
  keepExact();
  Value remembers = less(index(0), warpFolds[1]);
  ifThen(remembers, [&] { answerAll(/*hasMemory=*/true); });
  ifThen(negate(remembers), [&] { answerAll(/*hasMemory=*/false); });
}

/// In place of keys and values, or beside them, if there is room for it, until
/// a block of it is asked for; nobody else reads what a thread has there.
void GpuSegmentPrompts::keepExact() {
  Value tiles[2] = {keys, values};
  auto bytesOf = [](Value memory) {
    auto type = cast<MemRefType>(memory.getType());
    return type.getNumElements() * type.getElementTypeBitWidth() / 8;
  };
  auto rows = static_cast<int64_t>(exact[0].size()), part = valuePart();
  int64_t wanted = rows * threads * part * static_cast<int64_t>(sizeof(float));
  bool isInPlace = bytesOf(keys) >= wanted && bytesOf(values) >= wanted;
  int64_t taken = bytesOf(keys) + bytesOf(values) + bytesOf(places) +
                  bytesOf(placesOfQueries);
  if (sharesQueries)
    taken += bytesOf(queries);
  if (!isInPlace && taken + 2 * wanted > mostBytes)
    return;
  barrier();
  for (int64_t i = 0; i < 2; ++i) {
    StringRef name = i ? "exact_high" : "exact_low";
    int64_t shape[] = {rows, threads * part};
    Type f32 = b.getF32Type();
    sharedExact[i] = isInPlace ? sharedInPlaceOf(tiles[i], name, f32, shape)
                               : sharedArray(name, f32, shape);
    for (auto [row, elements] : llvm::enumerate(exact[i]))
      storeVector(elements, sharedExact[i],
                  {index(static_cast<int64_t>(row)), mul(thread, part)});
  }
}

void GpuSegmentPrompts::answerAll(bool hasMemory) {
  isRemembered = hasMemory;
  blocks.clear();
  int64_t width = valuePart();
  for (int64_t block = 0; block < blocksOf(valueSize); ++block) {
    computeProducts(given.answer, block);
    for (int64_t query = 0; query < 2; ++query)
      for (int64_t column = 0; column < 2; ++column) {
        Value element = elementOf(valueSize, block, column);
        Site site{query, column, block, width, element};
        Value answer = vectorAt(given.answer, site);
        ifThen(isQuery[query], [&] {
          storeVector(answer, outputMemory(),
                      {tokenOf[query], headOf[query], element});
        });
      }
  }
  blocks.clear();
}

/// Of a block, before what is elementwise, which would wait in registers.
void GpuSegmentPrompts::computeProducts(Value value, int64_t block) {
  Operation *op = value.getDefiningOp();
  if (isa_and_present<RecallOp, SumOp>(op)) {
    (void)blockOf(value, block);
  } else if (auto once = dyn_cast_if_present<OnceOp>(op)) {
    computeProducts(once.getOtherwise(), block);
    if (isRemembered)
      computeProducts(once.getValue(), block);
  } else if (op && !isa<NormalizeOp>(op)) {
    for (Value operand : op->getOperands())
      computeProducts(operand, block);
  }
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

Value GpuSegmentPrompts::argumentAt(BlockArgument argument, const Site &site) {
  int64_t its = cast<RankedTensorType>(argument.getType()).getDimSize(0);
  Values place;
  if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Token)
    place.push_back(tokenOf[site.query]);
  place.push_back(its == 1 ? index(0) : div(headOf[site.query], heads / its));
  place.push_back(site.element);
  return widened(tensor(argument), place, site.width);
}

Value GpuSegmentPrompts::applied(Operation *op, const Site &site) {
  OperationState state(b.getLoc(), op->getName());
  for (Value operand : op->getOperands())
    state.addOperands(vectorAt(operand, site));
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  state.addTypes(VectorType::get({site.width}, element));
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return b.create(state)->getResult(0);
}

Value GpuSegmentPrompts::vectorAt(Value value, const Site &site) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argumentAt(argument, site);
  auto ofBlock = [&](Operation *) {
    return blockOf(value, site.block)[2 * site.query + site.column];
  };
  return llvm::TypeSwitch<Operation *, Value>(value.getDefiningOp())
      .Case([&](arith::ConstantOp constant) -> Value {
        auto all = cast<SplatElementsAttr>(constant.getValue());
        auto type = VectorType::get({site.width}, all.getElementType());
        return arith::ConstantOp::create(
            b, DenseElementsAttr::get(type, all.getSplatValue<Attribute>()));
      })
      // Memory is where types change.
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *each) { return vectorAt(each->getOperand(0), site); })
      .Case([&](BroadcastOp each) { return vectorAt(each.getInput(), site); })
      .Case([&](OnceOp each) -> Value {
        Value otherwise = vectorAt(each.getOtherwise(), site);
        if (!isRemembered)
          return otherwise;
        return select(less(index(0), foldsOf(site.query)),
                      vectorAt(each.getValue(), site), otherwise);
      })
      .Case<NormalizeOp, RecallOp, SumOp>(ofBlock)
      .Default([&](Operation *each) { return applied(each, site); });
}

/// Computed once, when it is first asked for.
ArrayRef<Value> GpuSegmentPrompts::blockOf(Value value, int64_t block) {
  if (auto known = blocks.find({value, block}); known != blocks.end())
    return known->second;
  Values columns;
  if (value.getDefiningOp<NormalizeOp>()) {
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t row : {2 * block, 2 * block + 1})
        columns.push_back(
            sharedExact[i] ? loadVector(sharedExact[i],
                                        {index(row), mul(thread, valuePart())},
                                        valuePart())
                           : exact[i][static_cast<size_t>(row)]);
  } else if (auto op = value.getDefiningOp<RecallOp>()) {
    // One at a time, for want of registers.
    columns = recall(op, block);
  } else {
    auto product = SegmentProduct::of(value.getDefiningOp<SumOp>());
    columns = columnsOf(multiplyMatrix(*product, sizeOf(value), block));
  }
  return blocks[{value, block}] = columns;
}
