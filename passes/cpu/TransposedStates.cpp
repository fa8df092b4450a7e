//===- TransposedStates.cpp - states of which dv is contiguous ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// All that is done with a state is done with its rows, vectors over dk. Where
// memory has vectors over dv instead, a tile is transposed as it comes and as
// it goes, in registers, and is in the nearest cache in between.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/Kernel.h"
#include "passes/cpu/ScheduleInfo.h"

using namespace mlir;
using namespace ladle;

/// Rows of a square that is transposed in registers.
static constexpr int64_t kMostRows = 16;

/// Transposes n vectors of n elements, n a power of two. A stage interleaves
/// vector i with vector i + n/2; if the bits of a row and of a column are
/// written one after the other, it rotates them by one place.
static void transpose(ImplicitLocOpBuilder &b, SmallVectorImpl<Value> &rows) {
  auto size = static_cast<int64_t>(rows.size());
  for (int64_t stage = 1; stage < size; stage *= 2) {
    SmallVector<Value> next;
    for (int64_t i = 0; i < size / 2; ++i)
      for (int64_t half : {int64_t(0), size / 2}) {
        SmallVector<int64_t> mask;
        for (int64_t j = half; j < half + size / 2; ++j)
          mask.append({j, size + j});
        next.push_back(
            vector::ShuffleOp::create(b, rows[i], rows[i + size / 2], mask));
      }
    rows.assign(next.begin(), next.end());
  }
}

/// Copies a matrix of `rows` × `columns`; element (i, j) becomes (j, i).
void Kernel::copyTransposed(const Corner &from, const Corner &to, int64_t rows,
                            int64_t columns) {
  int64_t size = 1;
  while (size < kMostRows && rows % (2 * size) == 0 &&
         columns % (2 * size) == 0)
    size *= 2;
  OpBuilder::InsertionGuard guard(b);
  auto open = [&](int64_t count) {
    auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(count),
                                   constantIndex(size));
    b.setInsertionPointToStart(loop.getBody());
    return loop.getInductionVar();
  };
  Value row = open(rows), column = open(columns);
  auto at = [&](const Corner &corner, Value i, int64_t offset, Value j) {
    SmallVector<Value> indices(corner.outer.begin(), corner.outer.end());
    Value first = arith::AddIOp::create(b, corner.row, i);
    indices.push_back(arith::AddIOp::create(b, first, constantIndex(offset)));
    indices.push_back(arith::AddIOp::create(b, corner.column, j));
    return indices;
  };
  if (size == 1) {
    Type element = cast<MemRefType>(to.memory.getType()).getElementType();
    Value value =
        memref::LoadOp::create(b, from.memory, at(from, row, 0, column));
    memref::StoreOp::create(b, convertTo(toF32(value), element), to.memory,
                            at(to, column, 0, row));
    return;
  }
  SmallVector<Value> square;
  for (int64_t i = 0; i < size; ++i)
    square.push_back(loadVector(from.memory, at(from, row, i, column), size));
  transpose(b, square);
  for (int64_t i = 0; i < size; ++i)
    storeVector(square[i], to.memory, at(to, column, i, row));
}

static bool isTransposed(PoolType pool) {
  return pool.getLayout() == PoolLayout::DkDv;
}

void Kernel::gatherTile(Value state, int64_t width) {
  LoadStateOp load = findLoad(state);
  if (!load || !isTransposed(load.getPool().getType()) ||
      stashed.contains(load.getState()))
    return;
  PoolType pool = load.getPool().getType();
  Value zero = constantIndex(0);
  Value tile = allocateScratch({width, pool.getKeySize()});
  copyTransposed({memory[load.getPool()],
                  {readSlot, headIndex(pool.getHeads())},
                  zero,
                  tileStart},
                 {tile, {}, zero, zero}, pool.getKeySize(), width);
  stashed[load.getState()] = tile;
}

Value Kernel::tileToScatter(StoreStateOp store, int64_t width) {
  PoolType pool = store.getPool().getType();
  return isTransposed(pool) ? allocateScratch({width, pool.getKeySize()},
                                              pool.getElementType())
                            : Value();
}

void Kernel::scatterTile(StoreStateOp store, Value tile, int64_t width) {
  PoolType pool = store.getPool().getType();
  Value zero = constantIndex(0);
  copyTransposed({tile, {}, zero, zero},
                 {memory[store.getPool()],
                  {writeSlot, headIndex(pool.getHeads())},
                  zero,
                  tileStart},
                 width, pool.getKeySize());
}
