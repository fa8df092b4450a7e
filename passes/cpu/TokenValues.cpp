//===- TokenValues.cpp - sums of rows that stay in registers --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/TokenBlocks.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

SmallVector<TokenBlocks::Piece>
TokenBlocks::piecesOf(int64_t heads, int64_t size, bool isSplit) {
  // Half of the registers are for sums.
  int64_t most = vectors.lanes >= kBlock ? 16 : 4;
  int64_t some = std::min(heads, isSplit ? most / 2 : most);
  int64_t across = most / some;
  SmallVector<Piece> pieces;
  SmallVector<Chunk> chunks = chunksOf(size, isSplit);
  for (int64_t head = 0; head < heads; head += some) {
    int64_t lane = 0;
    for (size_t i = 0; i < chunks.size();) {
      Piece &piece = pieces.emplace_back(
          Piece{head, std::min(some, heads - head), {}, lane});
      for (int64_t taken = 0;
           i < chunks.size() && taken + chunks[i].registers() <= across; ++i) {
        piece.chunks.push_back(chunks[i]);
        taken += chunks[i].registers();
        lane += chunks[i].registers() * kBlock;
      }
    }
  }
  return pieces;
}

/// Adds the values of tokens `key` and `key` + 1 of a tile.
void TokenBlocks::addPair(const Running &running, const Tokens &block,
                          const TokenRows &rows, const Piece &piece, Value tile,
                          Value key, MutableArrayRef<Value> totals) {
  int64_t column = piece.chunks.front().column;
  int64_t columns =
      piece.chunks.back().column + piece.chunks.back().width - column;
  Value later = piece.head == 0 ? rowSoon(running, block, tile) : Value();
  if (piece.head == 0) {
    Value share = arith::AddIOp::create(b, block.tiles, tile);
    Value pair = arith::AddIOp::create(
        b, arith::MulIOp::create(b, share, index(running.tileKeys / 2)),
        arith::DivUIOp::create(b, key, index(2)));
    prefetchColumns(rows, placeAhead(block, rows, pair), index(column), columns,
                    valueSize);
  }
  for (int64_t j : {0, 1}) {
    if (later)
      prefetchSoon(rows.values,
                   rows.place(plus(arith::AddIOp::create(b, later, key), j)),
                   index(column), columns);
    SmallVector<Value> value;
    SmallVector<Value> at =
        rows.place(rowOf(block, tile, plus(key, j), running));
    for (const Chunk &chunk : piece.chunks)
      llvm::append_range(value, loadChunk(rows.values, at, chunk));
    for (int64_t h = 0; h < piece.heads; ++h) {
      Value lane = plus(key, (piece.head + h) * running.tileKeys + j);
      Value weight = splat(
          memref::LoadOp::create(b, running.scores, ValueRange{tile, lane}),
          kBlock);
      for (size_t i = 0; i < value.size(); ++i) {
        Value &total = totals[h * value.size() + i];
        total = vector::FMAOp::create(b, weight, value[i], total);
      }
    }
  }
}

/// A ← A e^(m − m') + Σ w v and Z ← Z e^(m − m') + Σ w. Weights are found
/// beside the first piece, so that their long chains are not waited for.
void TokenBlocks::addValues(const Running &running, const Tokens &block,
                            const TokenRows &rows, Value base) {
  SmallVector<Value> lanes{block.part, index(0)};
  Value stays = load(running.stays, lanes, kBlock);
  SmallVector<Piece> pieces =
      piecesOf(running.together, valueSize, running.splitValues);
  for (const Piece &piece : pieces) {
    bool weighs = &piece == pieces.begin();
    int64_t registers = 0;
    for (const Chunk &chunk : piece.chunks)
      registers += chunk.registers();
    auto place = [&](int64_t h, int64_t i) {
      return SmallVector<Value>{plus(block.head, piece.head + h),
                                index(piece.lane + i * kBlock)};
    };
    SmallVector<Value> totals;
    for (int64_t h = 0; h < piece.heads; ++h) {
      Value factor = splat(vector::ExtractOp::create(
                               b, stays, (piece.head + h) * running.tileKeys),
                           kBlock);
      for (int64_t i = 0; i < registers; ++i)
        totals.push_back(arith::MulFOp::create(
            b, load(running.values, place(h, i), kBlock), factor));
    }
    if (weighs)
      totals.push_back(
          arith::MulFOp::create(b, load(running.sums, lanes, kBlock), stays));
    auto tiles = scf::ForOp::create(b, index(0), block.tiles, index(1), totals);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(tiles.getBody());
      Value tile = tiles.getInductionVar();
      totals.assign(tiles.getRegionIterArgs().begin(),
                    tiles.getRegionIterArgs().end());
      if (weighs)
        totals.back() = arith::AddFOp::create(b, totals.back(),
                                              weighTile(running, tile, base));
      // A loop over pairs, as over columns of keys.
      Value sum = weighs ? totals.pop_back_val() : Value();
      auto pairs = scf::ForOp::create(b, index(0), index(running.tileKeys),
                                      index(2), totals);
      {
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPointToStart(pairs.getBody());
        totals.assign(pairs.getRegionIterArgs().begin(),
                      pairs.getRegionIterArgs().end());
        addPair(running, block, rows, piece, tile, pairs.getInductionVar(),
                totals);
        scf::YieldOp::create(b, totals);
      }
      totals.assign(pairs.getResults().begin(), pairs.getResults().end());
      if (sum)
        totals.push_back(sum);
      scf::YieldOp::create(b, totals);
    }
    for (int64_t h = 0; h < piece.heads; ++h)
      for (int64_t i = 0; i < registers; ++i)
        store(tiles.getResult(h * registers + i), running.values, place(h, i));
    if (weighs)
      store(tiles.getResults().back(), running.sums, lanes);
  }
}

//===----------------------------------------------------------------------===//
// A matrix and a vector
//===----------------------------------------------------------------------===//

void TokenBlocks::multiplyRows(int64_t count, int64_t rows, Value factors,
                               Value matrix, ArrayRef<Value> outer,
                               Value result,
                               llvm::function_ref<void(Value, bool)> beside) {
  Type element = cast<MemRefType>(matrix.getType()).getElementType();
  bool isSplit = element.isBF16() && valueSize % (2 * kBlock) == 0;
  int64_t together = headsTogether(count);
  auto parts = scf::ForOp::create(b, index(0), index(count), index(together));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parts.getBody());
  Value head = parts.getInductionVar();
  SmallVector<Piece> pieces = piecesOf(together, valueSize, isSplit);
  for (const Piece &piece : pieces) {
    int64_t registers = 0;
    for (const Chunk &chunk : piece.chunks)
      registers += chunk.registers();
    SmallVector<Value> totals(piece.heads * registers,
                              splat(number(0), kBlock));
    auto loop = scf::ForOp::create(b, index(0), index(rows), index(1), totals);
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(loop.getBody());
      Value c = loop.getInductionVar();
      SmallVector<Value> place(outer), row;
      bool isFirst = &piece == pieces.begin();
      if (beside) {
        if (isFirst)
          beside(c, true);
        if (&piece == &pieces.back())
          beside(c, false);
      } else if (isFirst) {
        place.append({minimum(plus(c, kRowsAhead), index(rows - 1)), index(0)});
        prefetch(matrix, place, valueSize);
        place.assign(outer.begin(), outer.end());
      }
      place.push_back(c);
      for (const Chunk &chunk : piece.chunks)
        llvm::append_range(row, loadChunk(matrix, place, chunk));
      totals.clear();
      for (int64_t h = 0; h < piece.heads; ++h) {
        Value factor = memref::LoadOp::create(
            b, factors, ValueRange{plus(head, piece.head + h), c});
        factor = splat(factor, kBlock);
        for (int64_t i = 0; i < registers; ++i)
          totals.push_back(vector::FMAOp::create(
              b, factor, row[i], loop.getRegionIterArg(h * registers + i)));
      }
      scf::YieldOp::create(b, totals);
    }
    for (int64_t h = 0; h < piece.heads; ++h) {
      auto next = loop.getResults().begin() + h * registers;
      for (const Chunk &chunk : piece.chunks) {
        SmallVector<Value> parts(next, next + chunk.registers());
        next += chunk.registers();
        storeChunk(parts, result, {plus(head, piece.head + h)}, chunk);
      }
    }
  }
}
