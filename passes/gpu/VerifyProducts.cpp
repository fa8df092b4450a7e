//===- VerifyProducts.cpp - rows times vectors of drafts on a GPU ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Thread 4 g + t of a warp loads some elements of row g at once: which columns
// a product of tiles takes does not matter as long as rows and vectors agree.
//
// - Floats (m16n8k8): 16 rows times 8 vectors. An f32 is the sum of what it is
//   without its last 13 bits, its upper part, and of the rest; the product of
//   two lower parts is left out, and what has 16 bits is its upper part.
// - Tokens (m16n8k16): 16 vectors times 8 rows of bf16, as they came, so that
//   what a lane loads of a row lies in registers as products take it.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/VerifyKernel.h"
#include <array>

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// The two sides of a product of tiles.
static constexpr int64_t kLong = 16, kShort = 8;
/// Elements that a lane has of a row of floats at a time.
static constexpr int64_t kPart = 4;
static constexpr int64_t kSlab = 4 * kPart;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Whether rows of such elements are multiplied as tokens are.
bool GpuVerifyKernel::areTokens(ArrayRef<Stack> stacks, Type element) {
  Type ofVectors =
      cast<MemRefType>(stacks.front().memory.getType()).getElementType();
  return ofVectors.isBF16() && element.isBF16();
}

void GpuVerifyKernel::multiply(ArrayRef<Stack> stacks, const Matrix &matrix,
                               StoreProduct store) {
  if (keySize % kSlab != 0)
    multiplyOneByOne(stacks, matrix, store);
  else if (areTokens(stacks, matrix.element))
    multiplyTokens(stacks, matrix, store);
  else
    multiplyFloats(stacks, matrix, store);
}

/// A thread takes a row and a vector.
void GpuVerifyKernel::multiplyOneByOne(ArrayRef<Stack> stacks,
                                       const Matrix &matrix,
                                       StoreProduct store) {
  int64_t columns = countVectors(stacks);
  Value all = arith::MulIOp::create(b, matrix.rows, constantIndex(columns));
  auto loop =
      scf::ForOp::create(b, thread, all, constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value i = loop.getInductionVar();
  Value row = arith::DivUIOp::create(b, i, constantIndex(columns));
  Value column = arith::RemUIOp::create(b, i, constantIndex(columns));
  Value vector = vectorRow(column, stacks);
  auto sum = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                constantIndex(1), ValueRange{constantFloat(0)});
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(sum.getBody());
    Value at = sum.getInductionVar();
    Value mine =
        toF32(vector::ExtractOp::create(b, matrix.load(row, at, 1), 0));
    Value other = memref::LoadOp::create(b, stacks.front().memory,
                                         ValueRange{vector, at});
    Value term = arith::MulFOp::create(b, mine, other);
    Value next = arith::AddFOp::create(b, sum.getRegionIterArg(0), term);
    scf::YieldOp::create(b, next);
  }
  store(row, column, sum.getResult(0));
}

/// The sums of rows g, g + 8, g + 16, ... of a lane, `rows` in this order,
/// times vectors, of which `vectorRows` has one of each tile: tile after tile
/// of 16 rows, and of each, those of all tiles of vectors.
GpuKernel::Components GpuVerifyKernel::sumFloats(Value memory,
                                                 ArrayRef<Value> vectorRows,
                                                 const Matrix &matrix,
                                                 ArrayRef<Value> rows) {
  Type f32 = b.getF32Type();
  Type vectorElement = cast<MemRefType>(memory.getType()).getElementType();
  auto vectorTiles = static_cast<int64_t>(vectorRows.size());
  auto rowTiles = static_cast<int64_t>(rows.size()) / 2;
  auto split = [&](Value value) -> SmallVector<Value, 2> {
    if (isShort(cast<VectorType>(value.getType()).getElementType()))
      return {toF32(value)};
    auto [upper, lower] = splitTerms(value);
    return {upper, lower};
  };
  auto element = [&](Value value, int64_t i) -> Value {
    return vector::ExtractOp::create(b, value, i);
  };
  bool isRowShort = isShort(matrix.element),
       isVectorShort = isShort(vectorElement);
  SmallVector<std::pair<unsigned, unsigned>, 3> products;
  // The smallest come first.
  if (!isVectorShort)
    products.emplace_back(0, 1);
  if (!isRowShort)
    products.emplace_back(1, 0);
  products.emplace_back(0, 0);
  // A product waits for the one that it is added to: with few tiles, products
  // of other parts have sums of their own.
  auto accumulator = VectorType::get({4}, f32);
  int64_t tilesAtOnce = rowTiles * vectorTiles;
  int64_t sumsOfTile =
      tilesAtOnce > 2 ? 1 : static_cast<int64_t>(products.size());
  SmallVector<Value> zeros(
      tilesAtOnce * sumsOfTile,
      arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
  auto slabs = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                  constantIndex(kSlab), zeros);
  if (tilesAtOnce <= 4)
    slabs->setAttr("ladle.unroll", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(slabs.getBody());
    Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
    Value from = arith::AddIOp::create(
        b, slabs.getInductionVar(),
        arith::MulIOp::create(b, inGroup, constantIndex(kPart)));
    // Two products take a slab: each half of what a lane has of it.
    using Halves = std::array<Value, 2>;
    SmallVector<SmallVector<Halves, 2>> ofVectors;
    for (Value row : vectorRows) {
      auto &parts = ofVectors.emplace_back();
      for (Value each : split(vector::LoadOp::create(
               b, VectorType::get({kPart}, vectorElement), memory,
               ValueRange{row, from}))) {
        auto &halves = parts.emplace_back();
        for (int64_t half = 0; half < 2; ++half)
          halves[half] = vector::FromElementsOp::create(
              b, VectorType::get({2}, f32),
              ValueRange{element(each, 2 * half), element(each, 2 * half + 1)});
      }
    }
    SmallVector<Value> next(slabs.getRegionIterArgs());
    for (int64_t i = 0; i < rowTiles; ++i) {
      auto upper = split(matrix.load(rows[2 * i], from, kPart));
      auto lower = split(matrix.load(rows[2 * i + 1], from, kPart));
      for (int64_t half = 0; half < 2; ++half) {
        SmallVector<Value, 2> ofRows;
        for (auto [above, below] : llvm::zip(upper, lower))
          ofRows.push_back(vector::FromElementsOp::create(
              b, VectorType::get({4}, f32),
              ValueRange{element(above, 2 * half), element(below, 2 * half),
                         element(above, 2 * half + 1),
                         element(below, 2 * half + 1)}));
        for (int64_t j = 0; j < vectorTiles; ++j)
          for (auto [p, of] : llvm::enumerate(products)) {
            int64_t at = (i * vectorTiles + j) * sumsOfTile +
                         static_cast<int64_t>(p) % sumsOfTile;
            next[at] = multiplyShortTiles(
                ofRows[of.first], ofVectors[j][of.second][half], next[at]);
          }
      }
    }
    scf::YieldOp::create(b, next);
  }
  Components sums;
  for (int64_t tile = 0; tile < tilesAtOnce; ++tile) {
    Value sum = slabs.getResult(tile * sumsOfTile);
    for (int64_t k = 1; k < sumsOfTile; ++k)
      sum =
          arith::AddFOp::create(b, sum, slabs.getResult(tile * sumsOfTile + k));
    sums.push_back(sum);
  }
  return sums;
}

void GpuVerifyKernel::multiplyFloats(ArrayRef<Stack> stacks,
                                     const Matrix &matrix, StoreProduct store) {
  int64_t count = countVectors(stacks);
  int64_t vectorTiles = llvm::divideCeil(count, kShort);
  int64_t rowTiles = llvm::divideCeil(matrix.mostRows, kLong);
  int64_t warps = schedule.threads / kWarp;
  // Warps without rows of their own take vectors of theirs.
  int64_t sides = 1;
  while (vectorTiles % (2 * sides) == 0 && 2 * sides * rowTiles <= warps)
    sides *= 2;
  vectorTiles /= sides;
  warps /= sides;
  // Tiles of rows share what is loaded of vectors, if a warp has so many.
  int64_t together = matrix.mostRows >= 2 * kLong * warps ? 2 : 1;
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = arith::DivUIOp::create(b, warpLane, constantIndex(4));
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  Value firstVector = constantIndex(0);
  if (sides > 1) {
    firstVector = arith::MulIOp::create(
        b, arith::RemUIOp::create(b, warp, constantIndex(sides)),
        constantIndex(vectorTiles * kShort));
    warp = arith::DivUIOp::create(b, warp, constantIndex(sides));
  }
  if (int64_t shift = matrix.firstWarp * rowTiles % warps)
    warp = arith::RemUIOp::create(b, add(warp, warps - shift),
                                  constantIndex(warps));
  SmallVector<Value> vectorRows;
  for (int64_t j = 0; j < vectorTiles; ++j)
    vectorRows.push_back(vectorRow(
        add(arith::AddIOp::create(b, firstVector, ofGroup), j * kShort),
        stacks));

  int64_t stride = kLong * together;
  auto loop = scf::ForOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(stride)), matrix.rows,
      constantIndex(warps * stride));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  bool isWhole = matrix.mostRows % (warps * stride) == 0 &&
                 matrix.rows.getDefiningOp<arith::ConstantOp>();
  Value last = arith::SubIOp::create(b, matrix.rows, constantIndex(1));
  Value first = arith::AddIOp::create(b, loop.getInductionVar(), ofGroup);
  SmallVector<Value> held;
  for (int64_t i = 0; i < 2 * together; ++i) {
    Value row = add(first, i * kShort);
    held.push_back(isWhole ? row : Value(arith::MinSIOp::create(b, row, last)));
  }
  Components sums = sumFloats(stacks.front().memory, vectorRows, matrix, held);
  if (matrix.isOverwritten)
    warpBarrier();
  Value column = arith::AddIOp::create(
      b, firstVector, arith::MulIOp::create(b, inGroup, constantIndex(2)));
  for (int64_t i = 0; i < 2 * together; ++i) {
    Value row = add(first, i * kShort);
    Value isThere;
    if (!isWhole)
      isThere =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, matrix.rows);
    guarded(isThere, [&] {
      for (int64_t j = 0; j < vectorTiles; ++j)
        for (int64_t side = 0; side < 2; ++side) {
          Value sum = vector::ExtractOp::create(
              b, sums[i / 2 * vectorTiles + j], i % 2 * 2 + side);
          Value at = add(column, j * kShort + side);
          guarded(count % kShort == 0 ? Value() : isBelow(at, count),
                  [&] { store(row, at, sum); });
        }
    });
  }
}

/// Elements that a lane has of a row of bf16 at a time.
int64_t GpuVerifyKernel::tokenPart() const { return keySize % 32 == 0 ? 8 : 4; }

/// What a lane has of a slab of 16 vectors, from `row` and from 8 rows further
/// on: a left operand for each product that takes the slab.
GpuKernel::Components GpuVerifyKernel::loadTokens(ArrayRef<Value> rows,
                                                  Value from) {
  int64_t part = tokenPart();
  auto type = VectorType::get({part}, b.getBF16Type());
  SmallVector<Value, 2> loaded;
  for (Value row : rows)
    loaded.push_back(
        vector::LoadOp::create(b, type, tokens, ValueRange{row, from}));
  Components result;
  for (int64_t at = 0; at < part; at += kPart) {
    SmallVector<Value> elements;
    for (int64_t pair : {0, 2})
      for (Value each : loaded)
        for (int64_t i = 0; i < 2; ++i)
          elements.push_back(vector::ExtractOp::create(b, each, at + pair + i));
    result.push_back(vector::FromElementsOp::create(
        b, VectorType::get({8}, b.getBF16Type()), elements));
  }
  return result;
}

/// The sums of rows g of tiles of 8, `rows`, times vectors, of which
/// `vectorRows` has two of each tile: tile after tile of rows.
GpuKernel::Components GpuVerifyKernel::sumTokens(ArrayRef<Value> vectorRows,
                                                 const Matrix &matrix,
                                                 ArrayRef<Value> rows) {
  int64_t part = tokenPart(), slab = 4 * part;
  auto vectorTiles = static_cast<int64_t>(vectorRows.size()) / 2;
  auto rowTiles = static_cast<int64_t>(rows.size());
  auto accumulator = VectorType::get({4}, b.getF32Type());
  SmallVector<Value> zeros(
      rowTiles * vectorTiles,
      arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
  auto slabs = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                  constantIndex(slab), zeros);
  // What is loaded ahead takes registers, which sums need, too, and values.
  constexpr int64_t manyEntries = 16;
  if (rowTiles * vectorTiles <= 2)
    slabs->setAttr("ladle.unroll", b.getUnitAttr());
  else if (holdsValues && mostEntries() > manyEntries)
    slabs->setAttr("ladle.rolled", b.getUnitAttr());
  else if (rowTiles * vectorTiles <= 8)
    slabs->setAttr("ladle.unroll", b.getI32IntegerAttr(2));
  OpBuilder::InsertionGuard inner(b);
  b.setInsertionPointToStart(slabs.getBody());
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value from = arith::AddIOp::create(
      b, slabs.getInductionVar(),
      arith::MulIOp::create(b, inGroup, constantIndex(part)));
  SmallVector<Components> ofVectors;
  for (int64_t j = 0; j < vectorTiles; ++j)
    ofVectors.push_back(loadTokens(vectorRows.slice(2 * j, 2), from));
  SmallVector<Value> next(slabs.getRegionIterArgs());
  for (auto [i, row] : llvm::enumerate(rows)) {
    Value all = matrix.load(row, from, part);
    for (int64_t p = 0; p < part / kPart; ++p) {
      Value ofRow = vector::ExtractStridedSliceOp::create(
          b, all, ArrayRef<int64_t>{p * kPart}, ArrayRef<int64_t>{kPart},
          ArrayRef<int64_t>{1});
      for (int64_t j = 0; j < vectorTiles; ++j) {
        Value &sum = next[static_cast<int64_t>(i) * vectorTiles + j];
        sum = multiplyTiles(ofVectors[j][p], ofRow, sum);
      }
    }
  }
  scf::YieldOp::create(b, next);
  return Components(slabs.getResults());
}

void GpuVerifyKernel::multiplyTokens(ArrayRef<Stack> stacks,
                                     const Matrix &matrix, StoreProduct store) {
  int64_t count = countVectors(stacks);
  int64_t vectorTiles = llvm::divideCeil(count, kLong);
  int64_t warps = schedule.threads / kWarp;
  int64_t together = 1;
  while (together < 4 && matrix.mostRows >= 2 * together * kShort * warps)
    together *= 2;
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = arith::DivUIOp::create(b, warpLane, constantIndex(4));
  SmallVector<Value> vectorRows;
  for (int64_t j = 0; j < 2 * vectorTiles; ++j)
    vectorRows.push_back(vectorRow(add(ofGroup, j * kShort), stacks));

  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  int64_t stride = kShort * together;
  auto loop = scf::ForOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(stride)), matrix.rows,
      constantIndex(warps * stride));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  bool isWhole = matrix.mostRows % (warps * stride) == 0 &&
                 matrix.rows.getDefiningOp<arith::ConstantOp>();
  Value last = arith::SubIOp::create(b, matrix.rows, constantIndex(1));
  SmallVector<Value> held;
  for (int64_t i = 0; i < together; ++i) {
    Value row = add(arith::AddIOp::create(b, loop.getInductionVar(), ofGroup),
                    i * kShort);
    held.push_back(isWhole ? row : Value(arith::MinSIOp::create(b, row, last)));
  }
  Components sums = sumTokens(vectorRows, matrix, held);
  if (matrix.isOverwritten)
    warpBarrier();
  Value column = arith::MulIOp::create(b, inGroup, constantIndex(2));
  for (int64_t i = 0; i < together; ++i)
    for (int64_t side = 0; side < 2; ++side) {
      Value row = add(arith::AddIOp::create(b, loop.getInductionVar(), column),
                      i * kShort + side);
      Value isThere;
      if (!isWhole)
        isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row,
                                        matrix.rows);
      guarded(isThere, [&] {
        for (int64_t j = 0; j < 2 * vectorTiles; ++j) {
          if (j * kShort >= count)
            continue;
          Value at = add(ofGroup, j * kShort);
          guarded(
              (j + 1) * kShort <= count ? Value() : isBelow(at, count), [&] {
                store(row, at,
                      vector::ExtractOp::create(
                          b, sums[i * vectorTiles + j / 2], j % 2 * 2 + side));
              });
        }
      });
    }
}
