//===- BoundedBlocks.cpp - 16 tokens for all heads of a group -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step over a cache is as fast as the cache can be read if each key and value
// is loaded once, widened in registers, and used for all heads of the group
// from there. So keys go token by token, and values go by pieces of a row, for
// which the sums of all heads stay in registers.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/BoundedKernel.h"
#include "passes/cpu/Dots.h"

using namespace mlir;
using namespace ladle;

/// The most heads whose sums stay in registers.
static constexpr int64_t kTogether = 8;

static int64_t headsTogether(int64_t count) {
  int64_t together = std::min(count, kTogether);
  while (count % together)
    --together;
  return together;
}

BoundedKernel::BlockScratch BoundedKernel::makeBlockScratch() {
  int64_t size = heads / cacheHeads;
  bool inLanes = keySize % kBlock == 0;
  return {scratch({size, kBlock, inLanes ? kBlock : 1}),
          scratch({size, kBlock}), scratch({size})};
}

/// Row `offset` of a block; behind the last entry it is the last again.
Value BoundedKernel::rowOfBlock(Value block, Value end, Value offset) {
  return minimum(arith::AddIOp::create(b, block, offset),
                 arith::SubIOp::create(b, end, index(1)));
}

/// Asks for the row that a pass over the cache comes to two blocks later.
void BoundedKernel::prefetchRow(Value memory, Value row, int64_t width) {
  constexpr int64_t lineBits = 64 * 8;
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  int64_t line = lineBits / element.getIntOrFloatBitWidth();
  Value later = arith::AddIOp::create(b, row, index(2 * kBlock));
  for (int64_t at = 0; at < width; at += line)
    memref::PrefetchOp::create(b, memory,
                               ValueRange{slot, head, later, index(at)},
                               /*isWrite=*/false, /*localityHint=*/3,
                               /*isDataCache=*/true);
}

/// The products of the keys of a block with all queries, before they are summed
/// over the lanes of a register.
void BoundedKernel::multiplyKeys(Value block, Value end, Value queries,
                                 const BlockScratch &space) {
  int64_t size = heads / cacheHeads, together = headsTogether(size);
  auto parts = scf::ForOp::create(b, index(0), index(size), index(together));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parts.getBody());
  Value first = parts.getInductionVar();
  auto loop = scf::ForOp::create(b, index(0), index(kBlock), index(1));
  b.setInsertionPointToStart(loop.getBody());
  Value j = loop.getInductionVar();
  Value at = rowOfBlock(block, end, j);
  prefetchRow(keys, at, keySize);
  prefetchRow(values, at, valueSize);
  Value key = load(keys, {slot, head, at, index(0)}, keySize);
  for (int64_t i = 0; i < together; ++i) {
    Value g = arith::AddIOp::create(b, first, index(i));
    Value query = load(queries, {g, index(0)}, keySize);
    if (keySize % kBlock == 0)
      store(partialDot(b, query, key), space.products, {g, j, index(0)});
    else
      memref::StoreOp::create(b, dot(query, key), space.products,
                              ValueRange{g, j, index(0)});
  }
}

/// The largest of 16 numbers. What a NaN among them gives is left open: its
/// weight is NaN, whatever the largest is.
static Value largest(ImplicitLocOpBuilder &b, Value lanes) {
  int64_t size = cast<VectorType>(lanes.getType()).getDimSize(0);
  for (int64_t half = size / 2; half; half /= 2) {
    SmallVector<int64_t> others;
    for (int64_t lane = 0; lane < size; ++lane)
      others.push_back((lane + half) % size);
    Value other = vector::ShuffleOp::create(b, lanes, lanes, others);
    Value isLarger =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lanes, other);
    lanes = arith::SelectOp::create(b, isLarger, lanes, other);
  }
  return vector::ExtractOp::create(b, lanes, 0);
}

/// exp(before − base), which is mostly 1.
Value BoundedKernel::weightOfBefore(Value before, Value base) {
  Value isSame =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, before, base);
  auto choice = scf::IfOp::create(b, TypeRange{b.getF32Type()}, isSame,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(b, number(1));
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, exp(arith::SubFOp::create(b, before, base)));
  return choice.getResult(0);
}

/// The weights of a block for a head, which moves (m, Z) of its summary.
void BoundedKernel::weighBlock(Value block, Value end, Value g,
                               const BlockScratch &space, const Found &result) {
  Value scores;
  if (keySize % kBlock == 0) {
    SmallVector<Value> products;
    for (int64_t j = 0; j < kBlock; ++j)
      products.push_back(load(space.products, {g, index(j), index(0)}, kBlock));
    scores = sumLanes(b, products);
  } else {
    Value flat = memref::CollapseShapeOp::create(
        b, space.products, ArrayRef<ReassociationIndices>{{0}, {1, 2}});
    scores = load(flat, {g, index(0)}, kBlock);
  }
  SmallVector<int32_t> numbers(kBlock);
  for (int32_t j = 0; j < kBlock; ++j)
    numbers[j] = j;
  Value lane = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  Value left = minimum(arith::SubIOp::create(b, end, block), index(kBlock));
  Value isValid = arith::CmpIOp::create(
      b, arith::CmpIPredicate::slt, lane,
      splat(arith::IndexCastOp::create(b, b.getI32Type(), left), kBlock));
  scores = arith::SelectOp::create(b, isValid, scores,
                                   splat(number(-INFINITY), kBlock));
  if (result.scores)
    store(scores, result.scores, {g, block});

  auto loadSum = [&](int64_t which) -> Value {
    return memref::LoadOp::create(b, result.sums, ValueRange{g, index(which)});
  };
  Value before = loadSum(0);
  Value most = arith::MaximumFOp::create(b, before, largest(b, scores));
  Value base = finite(most);
  Value weights = exp(arith::SubFOp::create(b, scores, splat(base, kBlock)));
  weights =
      arith::SelectOp::create(b, isValid, weights, splat(number(0), kBlock));
  Value stays = weightOfBefore(before, base);
  Value sum = arith::AddFOp::create(
      b, arith::MulFOp::create(b, loadSum(1), stays),
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, weights,
                                  arith::FastMathFlags::reassoc));
  store(weights, space.weights, {g, index(0)});
  memref::StoreOp::create(b, stays, space.stays, g);
  memref::StoreOp::create(b, most, result.sums, ValueRange{g, index(0)});
  memref::StoreOp::create(b, sum, result.sums, ValueRange{g, index(1)});
}

/// A ← A e^(m − m') + Σ w v, a piece of the values at a time.
void BoundedKernel::addValues(Value block, Value end, const BlockScratch &space,
                              const Found &result) {
  int64_t size = heads / cacheHeads, together = headsTogether(size);
  int64_t width = valueSize % (2 * kBlock) == 0 ? 2 * kBlock
                  : valueSize % kBlock == 0     ? kBlock
                                                : valueSize;
  auto parts = scf::ForOp::create(b, index(0), index(size), index(together));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parts.getBody());
  Value first = parts.getInductionVar();
  auto pieces = scf::ForOp::create(b, index(0), index(valueSize), index(width));
  b.setInsertionPointToStart(pieces.getBody());
  Value piece = pieces.getInductionVar();
  SmallVector<Value> group, totals;
  for (int64_t i = 0; i < together; ++i) {
    group.push_back(arith::AddIOp::create(b, first, index(i)));
    Value stays = memref::LoadOp::create(b, space.stays, group.back());
    totals.push_back(arith::MulFOp::create(
        b, load(result.values, {group.back(), piece}, width),
        splat(stays, width)));
  }
  for (int64_t j = 0; j < kBlock; ++j) {
    Value at = rowOfBlock(block, end, index(j));
    Value value = load(values, {slot, head, at, piece}, width);
    for (auto [g, total] : llvm::zip(group, totals)) {
      Value weight =
          memref::LoadOp::create(b, space.weights, ValueRange{g, index(j)});
      total = vector::FMAOp::create(b, splat(weight, width), value, total);
    }
  }
  for (auto [g, total] : llvm::zip(group, totals))
    store(total, result.values, {g, piece});
}

void BoundedKernel::attendBlock(Value block, Value end, Value queries,
                                const BlockScratch &space,
                                const Found &result) {
  multiplyKeys(block, end, queries, space);
  auto loop =
      scf::ForOp::create(b, index(0), index(heads / cacheHeads), index(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    weighBlock(block, end, loop.getInductionVar(), space, result);
  }
  addValues(block, end, space, result);
}
