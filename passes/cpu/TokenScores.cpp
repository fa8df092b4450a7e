//===- TokenScores.cpp - scores and weights of a block of tokens ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "passes/cpu/Dots.h"
#include "passes/cpu/TokenBlocks.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Behind the last token it is the last again, with a weight of 0.
Value TokenBlocks::rowOf(const Tokens &block, Value tile, int64_t key,
                         const Running &running) {
  Value first = arith::MulIOp::create(b, tile, index(running.tileKeys));
  Value at = plus(arith::AddIOp::create(b, block.first, first), key);
  return minimum(at, arith::SubIOp::create(b, block.end, index(1)));
}

/// Lane h · tile keys + j of the result is that of head h and key j, before it
/// is summed over the lanes of a register.
SmallVector<Value>
TokenBlocks::multiplyKeys(const Running &running, const Tokens &block,
                          const TokenRows &rows,
                          ArrayRef<SmallVector<Value>> places) {
  auto lanes = VectorType::get({kBlock}, b.getF32Type());
  Value zero = splat(number(0), kBlock);
  int64_t keys = running.tileKeys, heads = running.together;
  SmallVector<Value> sums(kBlock);
  // Sums of all heads and keys stay in registers where these are wide and
  // many, and those of some of them elsewhere.
  bool isWide = vectors.lanes >= kBlock;
  int64_t someHeads = isWide ? heads : std::min<int64_t>(heads, 2);
  int64_t someKeys = isWide ? keys : std::min<int64_t>(keys, 2);
  auto query = [&](int64_t h, int64_t lane, Type type) -> Value {
    return vector::LoadOp::create(b, type, running.queries,
                                  ValueRange{plus(block.head, h), index(lane)});
  };
  auto addChunk = [&](int64_t h, int64_t j, int64_t lane, ArrayRef<Value> key) {
    Value &sum = sums[h * keys + j];
    if (running.usesDots) {
      sum = x86vector::DotBF16Op::create(
          b, lanes, sum ? sum : zero, query(h, lane, key[0].getType()), key[0]);
      return;
    }
    for (auto [i, part] : llvm::enumerate(key)) {
      Value factor = query(h, lane + static_cast<int64_t>(i) * kBlock, lanes);
      sum = sum ? Value(vector::FMAOp::create(b, factor, part, sum))
                : Value(arith::MulFOp::create(b, factor, part));
    }
  };
  auto loadKey = [&](int64_t j, const Chunk &chunk) -> SmallVector<Value> {
    if (!running.usesDots)
      return loadChunk(rows.keys, places[j], chunk);
    SmallVector<Value> place(places[j]);
    place.push_back(index(chunk.column));
    return {vector::LoadOp::create(
        b, VectorType::get({2 * kBlock}, b.getBF16Type()), rows.keys, place)};
  };
  for (int64_t fromHead = 0; fromHead < heads; fromHead += someHeads)
    for (int64_t fromKey = 0; fromKey < keys; fromKey += someKeys)
      for (const Chunk &chunk :
           chunksOf(keySize, running.usesDots || running.splitKeys)) {
        int64_t lane = chunk.column;
        for (int64_t j = fromKey; j < std::min(fromKey + someKeys, keys); ++j) {
          SmallVector<Value> key = loadKey(j, chunk);
          for (int64_t h = fromHead; h < std::min(fromHead + someHeads, heads);
               ++h)
            addChunk(h, j, lane, key);
        }
      }
  for (Value &sum : sums)
    if (!sum) // of no head
      sum = zero;
  return sums;
}

/// Which lanes of a tile are of a token that is there, for the head.
Value TokenBlocks::areValid(const Running &running, const Tokens &block,
                            Value first) {
  SmallVector<int32_t> numbers(kBlock);
  for (int32_t lane = 0; lane < kBlock; ++lane)
    numbers[lane] = lane % static_cast<int32_t>(running.tileKeys);
  Value key = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  auto narrow = [&](Value value) {
    return splat(arith::IndexCastOp::create(b, b.getI32Type(), value), kBlock);
  };
  Value left =
      minimum(arith::SubIOp::create(b, block.end, first), index(kBlock));
  Value valid =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, key, narrow(left));
  if (!running.lower)
    return valid;
  Value offset = arith::AddIOp::create(
      b, key, narrow(arith::SubIOp::create(b, first, block.begin)));
  Value lower =
      vector::LoadOp::create(b, VectorType::get({kBlock}, b.getI32Type()),
                             running.lower, ValueRange{block.part, index(0)});
  return arith::AndIOp::create(
      b, valid,
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, offset, lower));
}

/// What NaN among them gives is left open: its weight is NaN, whatever the
/// largest is.
Value TokenBlocks::larger(Value lhs, Value rhs) {
  Value isLarger =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, lhs, rhs);
  return arith::SelectOp::create(b, isLarger, lhs, rhs);
}

/// The scores of a block, and the largest of each lane.
Value TokenBlocks::scoreTiles(const Running &running, const Tokens &block,
                              const TokenRows &rows) {
  Value never = splat(number(-INFINITY), kBlock);
  auto tiles = scf::ForOp::create(b, index(0), block.tiles, index(1), never);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(tiles.getBody());
  Value tile = tiles.getInductionVar();
  Value first = arith::AddIOp::create(
      b, block.first, arith::MulIOp::create(b, tile, index(running.tileKeys)));
  SmallVector<SmallVector<Value>> places;
  for (int64_t j = 0; j < running.tileKeys; ++j) {
    Value row = rowOf(block, tile, j, running);
    places.push_back(rows.place(row));
    prefetchValues(rows, places.back());
  }
  Value scores = sumLanes(b, multiplyKeys(running, block, rows, places));
  scores =
      arith::MulFOp::create(b, scores, splat(number(running.scale), kBlock));
  scores = arith::SelectOp::create(b, areValid(running, block, first), scores,
                                   never);
  store(scores, running.scores, {tile, index(0)});
  if (running.noted)
    for (int64_t h = 0; h < running.together; ++h) {
      Value ofHead = scores;
      if (running.tileKeys != kBlock)
        ofHead = vector::ExtractStridedSliceOp::create(
            b, scores, ArrayRef<int64_t>{h * running.tileKeys},
            ArrayRef<int64_t>{running.tileKeys}, ArrayRef<int64_t>{1});
      store(ofHead, running.noted, {plus(block.head, h), first});
    }
  scf::YieldOp::create(b, larger(scores, tiles.getRegionIterArg(0)));
  return tiles.getResult(0);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Combines the lanes of each head; all of them get the result.
Value TokenBlocks::overKeys(const Running &running, Value lanes,
                            llvm::function_ref<Value(Value, Value)> combine) {
  for (int64_t half = running.tileKeys / 2; half; half /= 2) {
    SmallVector<int64_t> others;
    for (int64_t lane = 0; lane < kBlock; ++lane)
      others.push_back(lane ^ half);
    lanes = combine(lanes, vector::ShuffleOp::create(b, lanes, lanes, others));
  }
  return lanes;
}

/// Weights take the place of scores, and (m, Z) move.
void TokenBlocks::weighTiles(const Running &running, const Tokens &block,
                             Value most) {
  SmallVector<Value> place{block.part, index(0)};
  most = overKeys(running, most,
                  [&](Value lhs, Value rhs) { return larger(lhs, rhs); });
  Value before = load(running.most, place, kBlock);
  most = larger(most, before);
  // 0 for −∞, so that a difference is never NaN.
  Value never = splat(number(-INFINITY), kBlock);
  Value zero = splat(number(0), kBlock);
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, most, never);
  Value base = arith::SelectOp::create(b, isEmpty, zero, most);
  Value stays = exp(arith::SubFOp::create(b, before, base));
  store(most, running.most, place);
  store(stays, running.stays, place);
  Value start =
      arith::MulFOp::create(b, load(running.sums, place, kBlock), stays);
  auto tiles = scf::ForOp::create(b, index(0), block.tiles, index(1), start);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(tiles.getBody());
    SmallVector<Value> at{tiles.getInductionVar(), index(0)};
    Value scores = load(running.scores, at, kBlock);
    Value weights = exp(arith::SubFOp::create(b, scores, base));
    // Of nothing it is 0, where exp has a least value that is not.
    Value isNothing =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, scores, never);
    weights = arith::SelectOp::create(b, isNothing, zero, weights);
    store(weights, running.scores, at);
    scf::YieldOp::create(
        b, Value(arith::AddFOp::create(b, tiles.getRegionIterArg(0), weights)));
  }
  store(tiles.getResult(0), running.sums, place);
}
