//===- SegmentFold.cpp - what segments of a prompt add to the memory ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// M gains the features of a segment's keys, transposed, times its values: what
// weights of 16 queries are elsewhere, are here 16 rows of M, and so the same
// products sum up both. A lane has two rows that lie side by side, and what it
// loads of four keys at once goes through the features together. Segments are
// summed up all at the same time, and then one after another.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/gpu/SegmentPrompts.h"

#include <algorithm>

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Sums of a segment
//===----------------------------------------------------------------------===//

void GpuSegmentPrompts::buildFold() {
  constexpr int64_t mostWarps = 4;
  int64_t foldWarps = std::min(queryWarps, mostWarps);
  while (keySize % (foldWarps * kSegmentRows) != 0)
    --foldWarps;
  createKernel("_fold", foldWarps * kWarp, /*blocks=*/1);
  // Sums of features may leave the range of f16.
  bool mayMultiply = multiplies;
  multiplies = multiplies && plan.valueType.isBF16();
  folding = true;
  declarePromptTiles();
  openLanes();
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  cacheHead = named("cache_head", rem(block, cacheHeads));
  auto [rowAfter, which] = findTile(div(block, cacheHeads), /*unitsOfTile=*/1,
                                    [&](Value ofRow, Value) {
                                      openPrompt(ofRow);
                                      return sub(nextFolds, folds);
                                    });
  ifThen(less(index(0), rowAfter), [&, which = which, rowAfter = rowAfter] {
    openPrompt(sub(rowAfter, index(1)));
    foldSegment(named("which", which));
  });
  folding = false;
  multiplies = mayMultiply;
}

void GpuSegmentPrompts::foldSegment(Value which) {
  firstOfSegment =
      named("first_of_segment", add(mul(add(folds, which), segment), sinks));
  begin = warpBegin = index(0);
  end = warpEnd = index(segment);
  Value part = gpu::BlockIdOp::create(b, gpu::Dimension::y);
  Value ofWarp = add(mul(part, threads / kWarp), warp);
  featureRow =
      named("feature_row", add(mul(ofWarp, kSegmentRows), mul(laneRow, 2)));
  Values inits{number(0), number(0)};
  auto fragment = VectorType::get({4}, b.getF32Type());
  for (int64_t i = 0; i < valueSize / 8; ++i)
    inits.push_back(arith::ConstantOp::create(b, b.getZeroAttr(fragment)));
  Values sums = attendSegment(inits);
  Value place = add(firstMemory(), mul(which, cacheHeads));
  place = add(mul(place, keySize), featureRow);
  Type f32 = b.getF32Type();
  for (int64_t i = 0; i < 2; ++i) {
    storeAnswer(elementsOf(ValueRange(sums).drop_front(2), i),
                array("segment_memory", f32, valueSize), {add(place, i)});
    Value all = sums[i];
    for (int64_t mask = 1; mask < 4; mask *= 2)
      all = sum(all, exchange(all, mask));
    ifThen(equal(lanePart, index(0)),
           [&] { store(all, array("segment_keys", f32), add(place, i)); });
  }
}

/// What a key of each element adds, element by element.
Value GpuSegmentPrompts::featuresOf(Value elements) {
  auto width = cast<VectorType>(elements.getType()).getDimSize(0);
  Block &body = given.fold.getFeature().front();
  IRMapping known;
  known.map(body.getArgument(0), elements);
  for (Operation &op : body.without_terminator()) {
    auto type = VectorType::get(
        {width}, getElementTypeOrSelf(op.getResult(0).getType()));
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto all = cast<SplatElementsAttr>(constant.getValue());
      Value value = arith::ConstantOp::create(
          b, DenseElementsAttr::get(type, all.getSplatValue<Attribute>()));
      known.map(constant.getResult(), value);
      continue;
    }
    OperationState state(b.getLoc(), op.getName());
    for (Value operand : op.getOperands())
      state.addOperands(known.lookup(operand));
    state.addTypes(type);
    state.propertiesAttr = op.getPropertiesAsAttribute();
    known.map(op.getResult(0), b.create(state)->getResult(0));
  }
  return known.lookup(body.getTerminator()->getOperand(0));
}

/// Two sums of features, and the sums of values.
GpuAttention::Values GpuSegmentPrompts::addTokens(Value tile,
                                                  ValueRange before) {
  int64_t tileKeys = kTileKeys * warps, width = elementsOfLoad(plan.keyType);
  Value tileRow = mul(rem(tile, stages), tileKeys);
  Value rest = sub(index(segment), mul(tile, tileKeys));
  Values totals(before.drop_front(2)), sums(before.take_front(2));
  for (int64_t first = 0; first < tileKeys; first += kTileKeys) {
    Value loaded[4], isThere[4];
    for (int64_t i = 0; i < 4; ++i) {
      Value key = add(mul(lanePart, 2), first + i / 2 * 8 + i % 2);
      Value chunk = swizzled(div(featureRow, width), key, /*isKey=*/true);
      Value at = add(mul(chunk, width), rem(featureRow, width));
      loaded[i] = widened(keys, {add(tileRow, key), at}, 2);
      isThere[i] = less(key, rest);
    }
    Values elements;
    for (int64_t i : {0, 1, 0, 1, 2, 3, 2, 3})
      elements.push_back(
          extract(loaded[i], static_cast<int64_t>(elements.size()) / 2 % 2));
    Value features = featuresOf(fromElements(elements));
    Values weights;
    for (int64_t i : {0, 1, 0, 1, 2, 3, 2, 3}) {
      auto at = static_cast<int64_t>(weights.size());
      Value feature = extract(features, at);
      if (segment % tileKeys != 0)
        feature = select(isThere[i], feature, number(0));
      weights.push_back(named("feature", feature));
      Value &mine = sums[static_cast<size_t>(at / 2 % 2)];
      mine = sum(mine, feature);
    }
    addValuesOfTile(add(tileRow, first), weights, totals);
  }
  sums.append(totals);
  return sums;
}

//===----------------------------------------------------------------------===//
// One segment after another
//===----------------------------------------------------------------------===//

void GpuSegmentPrompts::buildScan() {
  createKernel("_scan", kScanElements / kScanWidth, /*blocks=*/4);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value part = named("part", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  cacheHead = named("cache_head", rem(block, cacheHeads));
  openPrompt(div(block, cacheHeads));
  Value isFirst = equal(part, index(0));
  Value notes =
      both(isFirst, both(equal(cacheHead, index(0)), equal(thread, index(0))));
  ifThen(notes, [&] { noteRow(); });
  ifThen(both(notLess(slot, index(0)), less(folds, nextFolds)), [&] {
    scanElements(part);
    ifThen(isFirst, [&] { scanSums(); });
  });
}

/// For who moves cursors: slot, first token, position, tokens, folds after.
void GpuSegmentPrompts::noteRow() {
  Value plans = array("prompt_plans", b.getI32Type(), kBoundedNumbers);
  Value list[] = {slot, firstToken, position, count, nextFolds};
  for (auto [which, value] : llvm::enumerate(list))
    store(value, plans, {row, index(static_cast<int64_t>(which))});
}

/// What each segment added becomes the memory before it.
void GpuSegmentPrompts::scanElements(Value part) {
  Type f32 = b.getF32Type(), stored = memory.getElementType();
  double decay = given.fold.getDecay().convertToDouble();
  Value at = add(mul(part, kScanElements), mul(thread, kScanWidth));
  Value ofHead = div(at, valueSize), column = rem(at, valueSize);
  Value matrix = array("memory", stored, valueSize);
  Value sums = array("segment_memory", f32, valueSize);
  Value place = add(mul(cursorRow, keySize), ofHead);
  Value first = firstMemory();
  Value before = select(less(index(0), folds),
                        widened(matrix, {place, column}, kScanWidth),
                        splat(number(0), kScanWidth));
  Values last =
      loop(index(0), sub(nextFolds, folds), index(1), {before},
           [&](Value which, ValueRange carried) -> Values {
             Value its =
                 add(mul(add(first, mul(which, cacheHeads)), keySize), ofHead);
             Value added = loadVector(sums, {its, column}, kScanWidth);
             storeVector(carried[0], sums, {its, column});
             Value kept = carried[0];
             if (decay != 1)
               kept = product(kept, splat(number(decay), kScanWidth));
             Value after = sum(kept, added);
             // A memory of 16 bits is rounded once a fold.
             if (!stored.isF32())
               after = widen(arith::TruncFOp::create(
                   b, VectorType::get({kScanWidth}, stored), after));
             return {after};
           });
  storeVector(last[0], matrix, {place, column});
}

void GpuSegmentPrompts::scanSums() {
  Type f32 = b.getF32Type();
  double decay = given.fold.getDecay().convertToDouble();
  Value sums = array("segment_keys", f32), all = array("memory_keys", f32);
  Value first = firstMemory();
  loop(thread, index(keySize), index(threads), [&](Value at) {
    Value place = add(mul(cursorRow, keySize), at);
    Value before =
        select(less(index(0), folds), loadFloat(all, place), number(0));
    Values last =
        loop(index(0), sub(nextFolds, folds), index(1), {before},
             [&](Value which, ValueRange carried) -> Values {
               Value its =
                   add(mul(add(first, mul(which, cacheHeads)), keySize), at);
               Value added = loadFloat(sums, its);
               store(carried[0], sums, its);
               return {sum(product(carried[0], number(decay)), added)};
             });
    store(last[0], all, place);
  });
}
