//===- TransposedStates.cpp - states of which dv is contiguous ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// All that is done with a state is done with its rows, vectors over dk, in
// shared memory. Where global memory has vectors over dv instead, threads
// transpose a tile on its way in and on its way out: neighbours take rows
// beside each other, which lie beside each other in global memory, and each
// takes as many elements of a row as shared memory moves at once. Rows in
// shared memory are that much longer than dk, so that rows beside each other
// begin in other banks.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// Squares that a thread has in registers at a time: what is in flight.
static constexpr int64_t kMostSquares = 4;

bool GpuKernel::isTransposed(unsigned argument) {
  auto pool = cast<PoolType>(step.getBody().getArgument(argument).getType());
  return pool.getLayout() == PoolLayout::DkDv;
}

/// Calls `body` for every part of a tile of `rows` that a thread takes, several
/// at a time: its first row, of `across`, and its first element of dk.
void GpuKernel::forSquares(
    function_ref<void(ArrayRef<std::pair<Value, Value>>)> body, int64_t rows,
    int64_t across) {
  int64_t beside = rows / across, count = beside * (keySize / width);
  int64_t together = kMostSquares;
  while (together > 1 && count % (schedule.threads * together) != 0)
    together /= 2;
  auto loop = scf::ForOp::create(b, thread, constantIndex(count),
                                 constantIndex(schedule.threads * together));
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<std::pair<Value, Value>> squares;
  for (int64_t i = 0; i < together; ++i) {
    Value at = add(loop.getInductionVar(), i * schedule.threads);
    Value row = arith::RemUIOp::create(b, at, constantIndex(beside));
    Value chunk = arith::DivUIOp::create(b, at, constantIndex(beside));
    if (across > 1)
      row = arith::MulIOp::create(b, row, constantIndex(across));
    squares.emplace_back(row, width == 1
                                  ? chunk
                                  : Value(arith::MulIOp::create(
                                        b, chunk, constantIndex(width))));
  }
  body(squares);
}

/// Rows whose elements a thread moves at once in global memory: four bytes,
/// where tiles begin and end so.
int64_t GpuKernel::rowsAcross(Type element) {
  bool isEven = (valueSize | schedule.tileRows | tileRowsWithSpare()) % 2 == 0;
  return isEven && element.getIntOrFloatBitWidth() == 16 ? 2 : 1;
}

/// Makes room for a tile and, if the state is read, fills it before entries are
/// waited for. Rows of threads that have none are what the last row is.
void GpuKernel::stageTransposed(unsigned argument, bool isLoaded) {
  Value pool = memory[argument];
  Type element = cast<MemRefType>(pool.getType()).getElementType();
  int64_t rows = tileRowsWithSpare();
  Value tile = stagedStates[argument] =
      shared({rows, keySize + width},
             (step.getArgumentName(argument) + "_tile").str(), element);
  if (!isLoaded)
    return;
  int64_t across = rowsAcross(element);
  lateCopies.push_back([=, this] {
    auto type = VectorType::get({across}, element);
    auto wide = VectorType::get({width}, element);
    auto copy = [&](ArrayRef<std::pair<Value, Value>> squares) {
      SmallVector<SmallVector<Value>> loaded;
      for (auto [row, chunk] : squares) {
        Value from =
            hasSpareRows()
                ? Value(arith::MinUIOp::create(
                      b, row, constantIndex(schedule.tileRows - across)))
                : row;
        from = arith::AddIOp::create(b, tileStart, from);
        auto &columns = loaded.emplace_back();
        for (int64_t e = 0; e < width; ++e) {
          auto load = vector::LoadOp::create(
              b, type, pool, ValueRange{readState, head, add(chunk, e), from});
          // A state is read once a step.
          load.setNontemporal(true);
          columns.push_back(load);
        }
      }
      for (auto [columns, square] : llvm::zip(loaded, squares))
        for (int64_t a = 0; a < across; ++a) {
          SmallVector<Value> elements;
          for (Value column : columns)
            elements.push_back(vector::ExtractOp::create(b, column, a));
          Value part = vector::FromElementsOp::create(b, wide, elements);
          vector::StoreOp::create(
              b, part, tile, ValueRange{add(square.first, a), square.second});
        }
    };
    forSquares(copy, rows, across);
  });
}

/// Brings a tile, when all its rows are there, to where it belongs.
void GpuKernel::storeTransposed(unsigned argument) {
  Value pool = memory[argument], tile = stagedStates[argument];
  Type element = cast<MemRefType>(pool.getType()).getElementType();
  int64_t across = rowsAcross(element);
  auto type = VectorType::get({across}, element);
  auto wide = VectorType::get({width}, element);
  barrier();
  auto copy = [&](ArrayRef<std::pair<Value, Value>> squares) {
    for (auto [row, chunk] : squares) {
      SmallVector<Value> parts;
      for (int64_t a = 0; a < across; ++a)
        parts.push_back(vector::LoadOp::create(b, wide, tile,
                                               ValueRange{add(row, a), chunk}));
      Value to = arith::AddIOp::create(b, tileStart, row);
      for (int64_t e = 0; e < width; ++e) {
        SmallVector<Value> elements;
        for (Value part : parts)
          elements.push_back(vector::ExtractOp::create(b, part, e));
        auto store = vector::StoreOp::create(
            b, vector::FromElementsOp::create(b, type, elements), pool,
            ArrayRef<Value>{writeState, head, add(chunk, e), to});
        store.setNontemporal(true);
      }
    }
  };
  forSquares(copy, schedule.tileRows, across);
}
