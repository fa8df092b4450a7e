//===- ChunkProducts.cpp - products of stacks in a GPU's prefill ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A product of tiles takes 16 rows, 8 columns and 8 terms. An f32 is the sum of
// what it is without its last 13 bits and of the rest, so that three products
// are as good as f32: the fourth is below the last bit. What came as 16 bits is
// not split, and left sides that are multiplied with the same, states with keys
// and with queries, share what is split of that. Which terms a lane has
// does not matter as long as both sides agree: two beside each other where both
// lie along their rows, and four apart where one does not, so that the lanes of
// a warp meet different banks.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
static constexpr int64_t kTileRows = 16;
static constexpr int64_t kTileColumns = 8;
static constexpr int64_t kTerms = 8;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value GpuChunkKernel::times(Value value, int64_t factor) {
  return factor == 1 ? value
                     : arith::MulIOp::create(b, value, constantIndex(factor));
}

Value GpuChunkKernel::over(Value value, int64_t divisor) {
  return divisor == 1
             ? value
             : arith::DivUIOp::create(b, value, constantIndex(divisor));
}

Value GpuChunkKernel::compare(arith::CmpIPredicate predicate, Value lhs,
                              Value rhs) {
  return arith::CmpIOp::create(b, predicate, lhs, rhs);
}

Value GpuChunkKernel::loadTwo(Value memory, Value row, Value column) {
  return vector::LoadOp::create(b, VectorType::get({2}, b.getF32Type()), memory,
                                ValueRange{row, column});
}

void GpuChunkKernel::storeTwo(Value memory, Value row, Value column,
                              Value value) {
  vector::StoreOp::create(b, value, memory, ValueRange{row, column});
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Elements from one row of a memory to the next.
int64_t GpuChunkKernel::pitchIn(Value memory) {
  return cast<MemRefType>(memory.getType()).getDimSize(1);
}

/// The same place, of which no compiler knows a bit: where it knows that a
/// constant has none in common with it, it joins them by an or, and all that
/// lies at constant distances has an address of several instructions.
Value GpuChunkKernel::unknown(Value place) {
  Value zero = arith::ShRSIOp::create(b, tokenCount, constantIndex(31));
  return arith::AddIOp::create(b, place, zero);
}

Value GpuChunkKernel::firstTerm(const Operand &operand, Value row, Value k) {
  int64_t pitch = pitchIn(operand.memory);
  return operand.alongRows ? arith::AddIOp::create(b, times(k, pitch), row)
                           : arith::AddIOp::create(b, times(row, pitch), k);
}

/// The two terms of a lane in a row that is so far from its first: beside each
/// other, or four apart. One number is their place, so that all that a lane
/// loads of a memory is at constant distances.
Value GpuChunkKernel::loadTerms(const Operand &operand, Value at, int64_t row,
                                bool isPaired) {
  int64_t pitch = pitchIn(operand.memory);
  Value zero = constantIndex(0);
  at = add(at, operand.alongRows ? row : row * pitch);
  if (isPaired)
    return toF32(vector::LoadOp::create(
        b,
        VectorType::get(
            {2}, cast<MemRefType>(operand.memory.getType()).getElementType()),
        operand.memory, ValueRange{zero, at}));
  Value second = add(at, operand.alongRows ? 4 * pitch : 4);
  return vector::FromElementsOp::create(
      b, VectorType::get({2}, b.getF32Type()),
      ValueRange{loadElement(operand.memory, {zero, at}),
                 loadElement(operand.memory, {zero, second})});
}

/// The tiles of a warp for which it has least to do: what is loaded and split
/// of one side is for all tiles of the other.
GpuChunkKernel::Together
GpuChunkKernel::tilesTogether(const Product &product) const {
  constexpr int64_t mostSums = 4;
  int64_t rowTiles = product.rows / kTileRows;
  int64_t columnTiles = product.columns / kTileColumns;
  int64_t warps = schedule.threads / kWarp;
  bool hasRows = !product.width;
  for (const Factor &factor : product.factors)
    hasRows &= !factor.isTriangular;
  auto costOf = [&](const Together &together) {
    int64_t cost = 0;
    for (const Factor &factor : product.factors) {
      const Operand &right = factor.right;
      bool isRightAlong = right.alongRows;
      if (takesHalves(factor)) {
        // Half of what 16 terms take.
        bool isExact =
            cast<MemRefType>(right.memory.getType()).getElementType().isBF16();
        int64_t rows =
            together.rows * static_cast<int64_t>(factor.lefts.size());
        cost += rows * (2 + together.columns * (isExact ? 1 : 3) / 2) +
                together.columns * (isExact ? 1 : 12);
        continue;
      }
      for (const Operand &left : factor.lefts) {
        bool isPaired = !left.alongRows && !isRightAlong;
        int64_t load =
            (isPaired ? 2 : 4) + (left.isShort ? 0 : 8) + (left.scale ? 4 : 0);
        int64_t products = 3 - left.isShort - right.isShort;
        cost += together.rows * (load + together.columns * products);
      }
      cost += together.columns * (2 + (right.isShort ? 0 : 4));
    }
    int64_t tasks =
        (rowTiles / together.rows) * (columnTiles / together.columns);
    return cost * llvm::divideCeil(tasks, warps);
  };
  Together best;
  int64_t sides = static_cast<int64_t>(product.factors.front().lefts.size());
  for (int64_t rows : {1, 2, 4})
    for (int64_t columns : {1, 2, 4, 8}) {
      if (rowTiles % rows || columnTiles % columns || (rows > 1 && !hasRows) ||
          sides * rows * columns > mostSums)
        continue;
      Together each{rows, columns};
      if (costOf(each) < costOf(best))
        best = each;
    }
  return best;
}

/// Adds the products of a factor to `sums`: of each left side, row of tiles and
/// column of tiles, from a first row and column on.
void GpuChunkKernel::multiplyTerms(const Factor &factor,
                                   const Together &together, Value row,
                                   Value column, SmallVectorImpl<Value> &sums) {
  auto four = VectorType::get({4}, b.getF32Type());
  auto element = [&](Value value, int64_t i) -> Value {
    return vector::ExtractOp::create(b, value, i);
  };
  auto tileOf = [&](Value first, Value second) -> Value {
    return vector::FromElementsOp::create(
        b, four,
        ValueRange{element(first, 0), element(second, 0), element(first, 1),
                   element(second, 1)});
  };
  const Operand &right = factor.right;
  bool isPaired = !right.alongRows;
  for (const Operand &left : factor.lefts)
    isPaired &= !left.alongRows;
  Value k = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  k = times(k, isPaired ? 2 : 1);
  Value depth = factor.depth(row), ofGroup = over(warpLane, 4);
  row = arith::AddIOp::create(b, row, ofGroup);
  column = arith::AddIOp::create(b, column, ofGroup);
  SmallVector<Value> firsts;
  for (const Operand &left : factor.lefts)
    firsts.push_back(firstTerm(left, row, k));
  Value firstOfRight = firstTerm(right, column, k);
  auto terms = scf::ForOp::create(b, constantIndex(0), depth,
                                  constantIndex(kTerms), sums);
  // A step is long, and a copy of it takes registers and instruction cache.
  terms->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(terms.getBody());
  Value from = terms.getInductionVar();
  auto placeOf = [&](const Operand &operand, Value first) -> Value {
    return arith::AddIOp::create(
        b, first,
        operand.alongRows ? times(from, pitchIn(operand.memory)) : from);
  };
  SmallVector<std::pair<Value, Value>> lefts;
  for (auto [left, first] : llvm::zip(factor.lefts, firsts)) {
    Value at = placeOf(left, first), scale;
    if (left.scale) {
      Value term = arith::AddIOp::create(b, from, k);
      scale = vector::FromElementsOp::create(
          b, VectorType::get({2}, b.getF32Type()),
          ValueRange{left.scale(term),
                     left.scale(add(term, isPaired ? 1 : 4))});
    }
    for (int64_t i = 0; i < together.rows; ++i) {
      Value upper = loadTerms(left, at, i * kTileRows, isPaired);
      Value lower = loadTerms(left, at, i * kTileRows + 8, isPaired);
      if (scale) {
        upper = arith::MulFOp::create(b, upper, scale);
        lower = arith::MulFOp::create(b, lower, scale);
      }
      if (left.isShort) {
        lefts.emplace_back(tileOf(upper, lower), nullptr);
        continue;
      }
      auto [upperMost, upperLeast] = splitTerms(upper);
      auto [lowerMost, lowerLeast] = splitTerms(lower);
      lefts.emplace_back(tileOf(upperMost, lowerMost),
                         tileOf(upperLeast, lowerLeast));
    }
  }
  Value at = placeOf(right, firstOfRight);
  SmallVector<Value> next(terms.getRegionIterArgs());
  for (int64_t j = 0; j < together.columns; ++j) {
    Value most = loadTerms(right, at, j * kTileColumns, isPaired), rest;
    if (!right.isShort)
      std::tie(most, rest) = splitTerms(most);
    auto multiply = [&](bool isLeast, Value other) {
      for (auto [i, left] : llvm::enumerate(lefts)) {
        Value &sum = next[i * static_cast<size_t>(together.columns) +
                          static_cast<size_t>(j)];
        if (Value mine = isLeast ? left.second : left.first)
          sum = multiplyShortTiles(mine, other, sum);
      }
    };
    if (rest)
      multiply(false, rest);
    multiply(true, most);
    multiply(false, most);
  }
  scf::YieldOp::create(b, next);
  sums.assign(terms.result_begin(), terms.result_end());
}

/// Whether left sides are of bf16, so that products of it are exact and of
/// twice the terms.
bool GpuChunkKernel::takesHalves(const Factor &factor) const {
  return depthOfKeys() % (2 * kTerms) == 0 && !factor.right.alongRows &&
         llvm::all_of(factor.lefts, [&](const Operand &left) {
           auto type = cast<MemRefType>(left.memory.getType());
           return type.getElementType().isBF16() && !left.alongRows;
         });
}

/// multiplyTerms for bf16 on the left. On the right an f32 is the sum of three.
void GpuChunkKernel::multiplyHalves(const Factor &factor,
                                    const Together &together, Value row,
                                    Value column,
                                    SmallVectorImpl<Value> &sums) {
  const Operand &right = factor.right;
  Type element = cast<MemRefType>(right.memory.getType()).getElementType();
  bool isExact = element.isBF16();
  Value depth = factor.depth(row);
  Value k = times(arith::RemUIOp::create(b, warpLane, constantIndex(4)), 2);
  Value firstOfRight =
      firstTerm(right, arith::AddIOp::create(b, column, over(warpLane, 4)), k);
  auto terms = scf::ForOp::create(b, constantIndex(0), depth,
                                  constantIndex(2 * kTerms), sums);
  terms->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(terms.getBody());
  Value from = terms.getInductionVar(), zero = constantIndex(0);
  // Two terms beside each other, and two that are 8 further on.
  bool isMatrix = matrices.contains(right.memory);
  Value lane = over(warpLane, 4);
  auto load = [&](Value at, int64_t tile) -> Value {
    SmallVector<Value> all;
    for (int64_t term : {0, 8}) {
      std::array<Value, 2> place{
          zero, add(at, tile * kTileColumns * pitchIn(right.memory) + term)};
      if (isMatrix)
        place = placeIn(
            right.memory,
            add(arith::AddIOp::create(b, column, lane), tile * kTileColumns),
            add(arith::AddIOp::create(b, from, k), term));
      Value two = vector::LoadOp::create(b, VectorType::get({2}, element),
                                         right.memory, place);
      for (int64_t i : {0, 1})
        all.push_back(vector::ExtractOp::create(b, two, i));
    }
    return vector::FromElementsOp::create(b, VectorType::get({4}, element),
                                          all);
  };
  SmallVector<Value> lefts;
  for (const Operand &left : factor.lefts)
    for (int64_t i = 0; i < together.rows; ++i)
      lefts.push_back(loadTiles(left.memory, add(row, i * kTileRows), from,
                                /*isAcross=*/true));
  Value at = arith::AddIOp::create(b, firstOfRight, from);
  SmallVector<Value> next(terms.getRegionIterArgs());
  Value tiles;
  for (int64_t j = 0; j < together.columns; ++j) {
    Components parts;
    if (isExact && together.columns % 2 == 0) {
      // Those of two columns of tiles at a time.
      if (j % 2 == 0)
        tiles = loadTiles(right.memory, add(column, j * kTileColumns), from,
                          /*isAcross=*/false);
      parts = {vector::ExtractStridedSliceOp::create(b, tiles, {j % 2 * 4}, {4},
                                                     {1})};
    } else {
      Value all = load(at, j);
      parts = isExact ? Components{all} : partsOf(toF32(all), kParts);
    }
    for (Value part : llvm::reverse(parts))
      for (auto [i, left] : llvm::enumerate(lefts)) {
        Value &sum = next[i * static_cast<size_t>(together.columns) +
                          static_cast<size_t>(j)];
        sum = multiplyTiles(left, part, sum);
      }
  }
  scf::YieldOp::create(b, next);
  sums.assign(terms.result_begin(), terms.result_end());
}

void GpuChunkKernel::emitProduct(const Product &product) {
  int64_t warps = schedule.threads / kWarp;
  Together together = tilesTogether(product);
  int64_t rows = together.rows * kTileRows;
  int64_t columns = together.columns * kTileColumns;
  int64_t groups = product.columns / columns;
  int64_t tasks = product.rows / rows * groups;
  size_t sides = product.factors.front().lefts.size();
  auto four = VectorType::get({4}, b.getF32Type());
  auto two = VectorType::get({2}, b.getF32Type());
  Value warp = over(thread, kWarp);
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = over(warpLane, 4);

  auto loop =
      scf::ForOp::create(b, warp, constantIndex(tasks), constantIndex(warps));
  if (tasks > warps)
    loop->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value task = loop.getInductionVar();
  Value firstRow = times(over(task, groups), rows);
  if (product.firstRow)
    firstRow = arith::AddIOp::create(b, product.firstRow, firstRow);
  Value firstColumn =
      times(arith::RemUIOp::create(b, task, constantIndex(groups)), columns);
  if (product.width) {
    auto branch =
        scf::IfOp::create(b, compare(arith::CmpIPredicate::slt, firstColumn,
                                     product.width(firstRow)));
    b.setInsertionPointToStart(branch.thenBlock());
  }
  Value row = arith::AddIOp::create(b, firstRow, ofGroup);
  Value column = arith::AddIOp::create(b, firstColumn, times(inGroup, 2));
  auto element = [&](Value value, int64_t i) -> Value {
    return vector::ExtractOp::create(b, value, i);
  };
  SmallVector<Value> sums;
  for (size_t side = 0; side < sides; ++side)
    for (int64_t i = 0; i < rows; i += kTileRows)
      for (int64_t j = 0; j < columns; j += kTileColumns) {
        if (!product.start) {
          sums.push_back(arith::ConstantOp::create(b, b.getZeroAttr(four)));
          continue;
        }
        Value upper = product.start(add(row, i), add(column, j));
        Value lower = product.start(add(row, i + 8), add(column, j));
        sums.push_back(vector::FromElementsOp::create(
            b, four,
            ValueRange{element(upper, 0), element(upper, 1), element(lower, 0),
                       element(lower, 1)}));
      }
  for (const Factor &factor : product.factors)
    if (takesHalves(factor))
      multiplyHalves(factor, together, firstRow, firstColumn, sums);
    else
      multiplyTerms(factor, together, firstRow, firstColumn, sums);
  size_t tiles = sums.size() / sides;
  for (size_t tile = 0; tile < tiles; ++tile)
    for (int64_t half = 0; half < 2; ++half) {
      SmallVector<Value> parts;
      for (size_t side = 0; side < sides; ++side) {
        Value sum = sums[side * tiles + tile];
        parts.push_back(vector::FromElementsOp::create(
            b, two,
            ValueRange{element(sum, 2 * half), element(sum, 2 * half + 1)}));
      }
      int64_t i = static_cast<int64_t>(tile) / together.columns;
      int64_t j = static_cast<int64_t>(tile) % together.columns;
      product.finish(add(row, i * kTileRows + half * 8),
                     add(column, j * kTileColumns), parts);
    }
}
