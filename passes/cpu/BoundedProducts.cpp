//===- BoundedProducts.cpp - matrices that heads share --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A matrix of parameters, such as those of a gate, is the same for all heads of
// the query that share a head of the cache. It is multiplied by the vectors of
// all of them before any is answered, so that it is loaded once: a tile is as
// many heads and rows as a register has lanes, like one of scores.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/analysis/AttentionPlan.h"
#include "passes/cpu/BoundedKernel.h"
#include "passes/cpu/Dots.h"

using namespace mlir;
using namespace ladle;

int64_t BoundedKernel::rowsOfTile() const {
  int64_t together = headsTogether(heads / cacheHeads);
  return kBlock / static_cast<int64_t>(llvm::PowerOf2Ceil(together));
}

std::optional<BoundedKernel::Product> BoundedKernel::productOf(SumOp op) {
  RankedTensorType from = op.getInput().getType();
  auto product = op.getInput().getDefiningOp<arith::MulFOp>();
  if (!product || from.getRank() != 3 || op.getDim() != 2 ||
      from.getDimSize(0) != heads || from.getDimSize(1) % rowsOfTile() ||
      from.getDimSize(2) % kBlock)
    return {};
  for (auto [left, right] : {std::pair(product.getLhs(), product.getRhs()),
                             {product.getRhs(), product.getLhs()}}) {
    auto matrix = left.getDefiningOp<BroadcastOp>();
    auto vector = right.getDefiningOp<BroadcastOp>();
    if (!matrix || !vector || matrix.getDims() != ArrayRef<int64_t>{0, 1, 2} ||
        vector.getDims() != ArrayRef<int64_t>{0, 2})
      continue;
    // Of a head of the cache at most.
    auto argument = dyn_cast<BlockArgument>(unwidened(matrix.getInput()));
    RankedTensorType type = matrix.getInput().getType();
    if (argument && type.getRank() == 3 && cacheHeads % type.getDimSize(0) == 0)
      return Product{op, left, vector.getInput(), from.getDimSize(1)};
  }
  return {};
}

/// What is evaluated for `value` in any case, and else.
static void collect(Value value, llvm::SetVector<Operation *> &always,
                    llvm::SetVector<Operation *> &sometimes, bool isSure) {
  Operation *op = value.getDefiningOp();
  if (!op || !(isSure ? always : sometimes).insert(op))
    return;
  auto once = dyn_cast<OnceOp>(op);
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()))
      collect(operand, always, sometimes,
              isSure && !(once && operand == once.getValue()));
}

/// The products that outputs are made of. What only a memory that holds
/// something is multiplied for is not before that.
LogicalResult BoundedKernel::emitProducts(YieldOp op) {
  llvm::SetVector<Operation *> always, sometimes;
  for (Value value : op.getValues())
    if (isa<RankedTensorType>(value.getType()))
      collect(value, always, sometimes, true);
  SmallVector<Product> sure, other;
  int64_t rounds = 0;
  for (auto sum : step.getBody().front().getOps<SumOp>()) {
    if (!always.contains(sum) && !sometimes.contains(sum))
      continue;
    std::optional<Product> product = productOf(sum);
    if (!product)
      continue;
    (always.contains(sum) ? sure : other).push_back(*product);
    rounds += product->rows / rowsOfTile();
  }
  int64_t round = 0;
  auto emitThese = [&](ArrayRef<Product> these) -> LogicalResult {
    for (const Product &product : these) {
      if (failed(emitProduct(product, round, rounds)))
        return failure();
      round += product.rows / rowsOfTile();
    }
    return success();
  };
  if (failed(emitThese(sure)))
    return failure();
  if (other.empty())
    return success();
  auto wanted = scf::IfOp::create(b, remembers());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(wanted.thenBlock());
  return emitThese(other);
}

/// Rounds `round` and so on of `rounds`.
LogicalResult BoundedKernel::emitProduct(const Product &product, int64_t round,
                                         int64_t rounds) {
  FailureOr<Value> vectors = gatherQueries(product.vector, 1);
  if (failed(vectors))
    return failure();
  int64_t count = heads / cacheHeads, together = headsTogether(count);
  int64_t some = rowsOfTile();
  Value results = scratch({count, product.rows});
  auto parts = scf::ForOp::create(b, index(0), index(count), index(together));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parts.getBody());
  Value head = parts.getInductionVar();
  auto tiles =
      scf::ForOp::create(b, index(0), index(product.rows), index(some));
  b.setInsertionPointToStart(tiles.getBody());
  Value first = tiles.getInductionVar();
  Value now = plus(arith::DivUIOp::create(b, first, index(some)), round);

  SmallVector<Value> rows;
  for (int64_t j = 0; j < some; ++j) {
    FailureOr<Value> row = element(product.matrix, {plus(first, j)});
    if (failed(row))
      return failure();
    rows.push_back(*row);
  }
  SmallVector<Value> sums(kBlock, splat(number(0), kBlock));
  int64_t width = cast<VectorType>(rows.front().getType()).getDimSize(0);
  for (int64_t column = 0; column < width; column += kBlock) {
    prefetchNextMemory(now, rounds, column / kBlock, width / kBlock);
    for (int64_t h = 0; h < together; ++h) {
      Value factor = load(*vectors, {plus(head, h), index(column)}, kBlock);
      for (int64_t j = 0; j < some; ++j) {
        Value part = vector::ExtractStridedSliceOp::create(
            b, rows[j], ArrayRef<int64_t>{column}, ArrayRef<int64_t>{kBlock},
            ArrayRef<int64_t>{1});
        Value &sum = sums[h * some + j];
        sum = column ? Value(vector::FMAOp::create(b, factor, part, sum))
                     : Value(arith::MulFOp::create(b, factor, part));
      }
    }
  }
  Value all = sumLanes(b, sums);
  for (int64_t h = 0; h < together; ++h)
    store(some == kBlock ? all
                         : Value(vector::ExtractStridedSliceOp::create(
                               b, all, ArrayRef<int64_t>{h * some},
                               ArrayRef<int64_t>{some}, ArrayRef<int64_t>{1})),
          results, {plus(head, h), first});
  products[product.sum] = results;
  return success();
}

//===----------------------------------------------------------------------===//
// The memory, ahead of its use
//===----------------------------------------------------------------------===//

/// Three quarters: the rest is asked for while those are multiplied.
int64_t BoundedKernel::linesBefore() const {
  return memoryType.getKeySize() * 3 / 4 * valueSize / lineOf(matrix);
}

/// Matrices of parameters stay in a cache, so that nothing comes from memory
/// while vectors are multiplied by them: part `part` of each round asks for a
/// share of the next head's memory, at two places.
void BoundedKernel::prefetchNextMemory(Value round, int64_t rounds,
                                       int64_t part, int64_t parts) {
  if (!memoryType || memoryType.getKind() != MemoryKind::Linear)
    return;
  int64_t line = lineOf(matrix);
  // Where there are few rounds, as much as they may wait for.
  int64_t share =
      std::min<int64_t>(llvm::divideCeil(linesBefore(), 2 * rounds), 4 * parts);
  Value from = arith::MulIOp::create(b, round, index(share * line));
  for (int64_t i = share * part / parts; i < share * (part + 1) / parts; ++i)
    for (int64_t place : {i, i + share * rounds})
      prefetch(matrix,
               {slot, head, index(memoryType.getKeySize()),
                plus(from, place * line)},
               line);
}

/// Beside each of the first rows of the memory, what its head has not been
/// asked for.
void BoundedKernel::prefetchRest(Value row) {
  int64_t line = lineOf(matrix), size = memoryType.getKeySize();
  int64_t lines = size * valueSize / line, rest = lines - linesBefore();
  int64_t share = llvm::divideCeil(4 * rest, 3 * size);
  Value from = minimum(arith::MulIOp::create(b, row, index(share * line)),
                       index(std::max<int64_t>(rest - share, 0) * line));
  prefetch(matrix, {slot, head, index(0), plus(from, linesBefore() * line)},
           share * line);
}
