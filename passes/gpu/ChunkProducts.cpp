//===- ChunkProducts.cpp - products of stacks in a GPU's prefill ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A product of tiles takes 16 rows, 8 columns and 8 terms. An f32 is the sum of
// what it is without its last 13 bits and of the rest, so that three products
// are as good as f32: the fourth is below the last bit. Which terms a lane has
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

/// The two terms of a lane: at k and beside it, or four further on.
Value GpuChunkKernel::loadTerms(const Operand &operand, Value at, Value k,
                                bool isPaired) {
  auto type = VectorType::get({2}, b.getF32Type());
  Value terms;
  if (isPaired) {
    terms = loadTwo(operand.memory, at, k);
  } else {
    SmallVector<Value> two;
    for (int64_t i : {0, 4}) {
      Value term = add(k, i);
      SmallVector<Value> place{at, term};
      if (operand.alongRows)
        std::swap(place[0], place[1]);
      two.push_back(memref::LoadOp::create(b, operand.memory, place));
    }
    terms = vector::FromElementsOp::create(b, type, two);
  }
  if (!operand.scale)
    return terms;
  Value scale = vector::FromElementsOp::create(
      b, type,
      ValueRange{operand.scale(k), operand.scale(add(k, isPaired ? 1 : 4))});
  return arith::MulFOp::create(b, terms, scale);
}

/// The upper and the lower bits.
std::pair<Value, Value> GpuChunkKernel::splitTerms(Value value) {
  auto type = cast<VectorType>(value.getType());
  auto bits = VectorType::get(type.getShape(), b.getI32Type());
  Value cut = arith::ConstantOp::create(
      b, DenseElementsAttr::get(bits, static_cast<int32_t>(0xffffe000u)));
  Value upper = arith::BitcastOp::create(
      b, type,
      arith::AndIOp::create(b, arith::BitcastOp::create(b, bits, value), cut));
  return {upper, arith::SubFOp::create(b, value, upper)};
}

void GpuChunkKernel::emitProduct(const Product &product) {
  int64_t rowTiles = product.rows / kTileRows;
  int64_t columnTiles = product.columns / kTileColumns;
  int64_t warps = schedule.threads / kWarp;
  // Tiles beside each other share what is loaded of the left side.
  int64_t together = 4;
  while (together > 1 && (columnTiles % together != 0 ||
                          rowTiles * columnTiles / together < warps))
    together /= 2;
  int64_t groups = columnTiles / together;
  Type f32 = b.getF32Type();
  auto four = VectorType::get({4}, f32), two = VectorType::get({2}, f32);
  Value warp = over(thread, kWarp), inGroup, ofGroup;
  inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  ofGroup = over(warpLane, 4);

  auto loop = scf::ForOp::create(b, warp, constantIndex(rowTiles * groups),
                                 constantIndex(warps));
  if (rowTiles * groups > warps)
    loop->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value task = loop.getInductionVar();
  Value firstRow = times(over(task, groups), kTileRows);
  if (product.firstRow)
    firstRow = arith::AddIOp::create(b, product.firstRow, firstRow);
  Value firstColumn =
      times(arith::RemUIOp::create(b, task, constantIndex(groups)),
            together * kTileColumns);
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
  for (int64_t j = 0; j < together; ++j) {
    if (!product.start) {
      sums.push_back(arith::ConstantOp::create(b, b.getZeroAttr(four)));
      continue;
    }
    Value upper = product.start(row, add(column, j * kTileColumns));
    Value lower = product.start(add(row, 8), add(column, j * kTileColumns));
    sums.push_back(vector::FromElementsOp::create(
        b, four,
        ValueRange{element(upper, 0), element(upper, 1), element(lower, 0),
                   element(lower, 1)}));
  }
  for (const Factor &factor : product.factors) {
    const Operand &left = factor.left, &right = factor.right;
    bool isPaired = !left.alongRows && !right.alongRows;
    Value depth = factor.depth(firstRow);
    auto terms = scf::ForOp::create(b, constantIndex(0), depth,
                                    constantIndex(kTerms), sums);
    b.setInsertionPointToStart(terms.getBody());
    Value k = arith::AddIOp::create(b, terms.getInductionVar(),
                                    times(inGroup, isPaired ? 2 : 1));
    Value upperRow = loadTerms(left, row, k, isPaired);
    Value lowerRow = loadTerms(left, add(row, 8), k, isPaired);
    auto tileOf = [&](Value first, Value second) -> Value {
      return vector::FromElementsOp::create(
          b, four,
          ValueRange{element(first, 0), element(second, 0), element(first, 1),
                     element(second, 1)});
    };
    Value most, least;
    if (left.isShort) {
      most = tileOf(upperRow, lowerRow);
    } else {
      auto [upperMost, upperLeast] = splitTerms(upperRow);
      auto [lowerMost, lowerLeast] = splitTerms(lowerRow);
      most = tileOf(upperMost, lowerMost);
      least = tileOf(upperLeast, lowerLeast);
    }
    SmallVector<Value> next(terms.getRegionIterArgs());
    for (int64_t j = 0; j < together; ++j) {
      Value at =
          add(arith::AddIOp::create(b, firstColumn, ofGroup), j * kTileColumns);
      Value all = loadTerms(right, at, k, isPaired);
      Value ofRight = all, rest;
      if (!right.isShort)
        std::tie(ofRight, rest) = splitTerms(all);
      if (rest)
        next[j] = multiplyShortTiles(most, rest, next[j]);
      if (least)
        next[j] = multiplyShortTiles(least, ofRight, next[j]);
      next[j] = multiplyShortTiles(most, ofRight, next[j]);
    }
    scf::YieldOp::create(b, next);
    sums.assign(terms.result_begin(), terms.result_end());
    b.setInsertionPointAfter(terms);
  }
  for (int64_t j = 0; j < together; ++j)
    for (int64_t half = 0; half < 2; ++half)
      product.finish(add(row, half * 8), add(column, j * kTileColumns),
                     vector::FromElementsOp::create(
                         b, two,
                         ValueRange{element(sums[j], 2 * half),
                                    element(sums[j], 2 * half + 1)}));
}
