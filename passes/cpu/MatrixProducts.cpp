//===- MatrixProducts.cpp - products of matrices in a chunk ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block of the result stays in registers while the products are summed up: a
// row of the right factor is loaded once for all rows of the block, an element
// of the left one is spread over a register.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

Value ChunkKernel::times(Value value, int64_t factor) {
  return factor == 1
             ? value
             : Value(arith::MulIOp::create(b, value, constantIndex(factor)));
}

Value ChunkKernel::plus(Value value, int64_t summand) {
  return summand == 0
             ? value
             : Value(arith::AddIOp::create(b, value, constantIndex(summand)));
}

Value ChunkKernel::roundUp(Value value, int64_t multiple) {
  return times(arith::CeilDivUIOp::create(b, value, constantIndex(multiple)),
               multiple);
}

Value ChunkKernel::smaller(Value first, Value second) {
  return arith::MinUIOp::create(b, first, second);
}

Value ChunkKernel::openLoop(Value first, Value end, int64_t step) {
  auto loop = scf::ForOp::create(b, first, end, constantIndex(step));
  b.setInsertionPointToStart(loop.getBody());
  return loop.getInductionVar();
}

std::function<Value(Value, Value)> ChunkKernel::elementsOf(Value scratch) {
  return [this, scratch](Value i, Value k) -> Value {
    return memref::LoadOp::create(b, scratch, ValueRange{i, k});
  };
}

std::function<void(Value, Value, Value)>
ChunkKernel::storesInto(Value scratch) {
  return [this, scratch](Value i, Value n, Value sums) {
    vector::StoreOp::create(b, sums, scratch, ArrayRef<Value>{i, n});
  };
}

Value ChunkKernel::rowsOfTokens(int64_t rowsOfToken) {
  return roundUp(times(draftCount, rowsOfToken), kBlockRows);
}

void ChunkKernel::emitProductTile(const Product &product,
                                  ArrayRef<Factor> factors, Value firstRow,
                                  Value firstColumn, int64_t width) {
  SmallVector<Value> rows, sums;
  for (int64_t r = 0; r < product.blockRows; ++r) {
    rows.push_back(plus(firstRow, r));
    sums.push_back(product.start ? product.start(rows[r], firstColumn, width)
                                 : zeros(width));
  }
  for (const Factor &factor : factors) {
    auto loop = scf::ForOp::create(b, constantIndex(0), factor.depth,
                                   constantIndex(1), sums);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value k = loop.getInductionVar();
    Value right = loadVector(factor.right, {k, firstColumn}, width);
    SmallVector<Value> next;
    for (auto [row, sum] : llvm::zip(rows, loop.getRegionIterArgs()))
      next.push_back(vector::FMAOp::create(b, splat(factor.left(row, k), width),
                                           right, sum));
    scf::YieldOp::create(b, next);
    sums.assign(loop.getResults().begin(), loop.getResults().end());
  }
  for (auto [row, sum] : llvm::zip(rows, sums))
    product.finish(row, firstColumn, sum);
}

void ChunkKernel::emitProduct(const Product &product) {
  OpBuilder::InsertionGuard guard(b);
  Value row = openLoop(product.firstRow, product.endRow, product.blockRows);
  SmallVector<Factor> factors = product.factors(row);
  int64_t whole = product.width / kBlockColumns * kBlockColumns;
  Value end = product.columns ? product.columns(row) : constantIndex(whole);
  {
    OpBuilder::InsertionGuard inner(b);
    Value column = openLoop(constantIndex(0), end, kBlockColumns);
    emitProductTile(product, factors, row, column, kBlockColumns);
  }
  if (!product.columns && whole < product.width)
    emitProductTile(product, factors, row, constantIndex(whole),
                    product.width - whole);
}
