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
Value TokenBlocks::rowOf(const Tokens &block, Value tile, Value key,
                         const Running &running) {
  Value first = arith::MulIOp::create(b, tile, index(running.tileKeys));
  Value at = arith::AddIOp::create(
      b, arith::AddIOp::create(b, block.first, first), key);
  return block.isWhole
             ? at
             : minimum(at, arith::SubIOp::create(b, block.end, index(1)));
}

/// Lane h · tile keys + j of the result is that of head h and key j, before it
/// is summed over the lanes of a register.
SmallVector<Value>
TokenBlocks::multiplyKeys(const Running &running, const Tokens &block,
                          const TokenRows &rows,
                          ArrayRef<SmallVector<Value>> places,
                          const Places &ahead, const Places &soon) {
  auto lanes = VectorType::get({kBlock}, b.getF32Type());
  Value zero = splat(number(0), kBlock);
  int64_t keys = running.tileKeys, heads = running.together;
  SmallVector<Value> sums(kBlock);
  // Sums of all heads and keys stay in registers where these are wide and
  // many, and those of some of them elsewhere.
  bool isWide = vectors.lanes >= kBlock;
  int64_t someHeads = isWide ? heads : std::min<int64_t>(heads, 2);
  int64_t someKeys = isWide ? keys : std::min<int64_t>(keys, 2);
  auto query = [&](int64_t h, Value lane, Type type) -> Value {
    return vector::LoadOp::create(b, type, running.queries,
                                  ValueRange{plus(block.head, h), lane});
  };
  auto addChunk = [&](int64_t h, int64_t j, Value lane, ArrayRef<Value> key) {
    Value &sum = sums[h * keys + j];
    if (running.usesDots) {
      sum = x86vector::DotBF16Op::create(
          b, lanes, sum ? sum : zero, query(h, lane, key[0].getType()), key[0]);
      return;
    }
    for (auto [i, part] : llvm::enumerate(key)) {
      Value factor =
          query(h, plus(lane, static_cast<int64_t>(i) * kBlock), lanes);
      sum = sum ? Value(vector::FMAOp::create(b, factor, part, sum))
                : Value(arith::MulFOp::create(b, factor, part));
    }
  };
  auto loadKey = [&](int64_t j, const Chunk &chunk,
                     Value column) -> SmallVector<Value> {
    if (!running.usesDots)
      return loadChunk(rows.keys, places[j], chunk, column);
    SmallVector<Value> place(places[j]);
    place.push_back(column);
    return {vector::LoadOp::create(
        b, VectorType::get({2 * kBlock}, b.getBF16Type()), rows.keys, place)};
  };
  auto askFor = [&](const Chunk &chunk, Value column) {
    for (const SmallVector<Value> &place : ahead)
      prefetchColumns(rows, place, column, chunk.width, keySize);
    for (const SmallVector<Value> &place : soon)
      prefetchSoon(rows.keys, place, column, chunk.width);
  };
  SmallVector<Chunk> chunks =
      chunksOf(keySize, running.usesDots || running.splitKeys);
  if (isWide && keySize % chunks.front().width == 0) {
    // A loop, because else all that is asked for is at one place of the code,
    // where only some of it finds room.
    int64_t width = chunks.front().width;
    auto loop = scf::ForOp::create(b, index(0), index(keySize), index(width),
                                   SmallVector<Value>(heads * keys, zero));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value column = loop.getInductionVar();
    askFor(chunks.front(), column);
    llvm::copy(loop.getRegionIterArgs(), sums.begin());
    for (int64_t j = 0; j < keys; ++j) {
      SmallVector<Value> key = loadKey(j, chunks.front(), column);
      for (int64_t h = 0; h < heads; ++h)
        addChunk(h, j, column, key);
    }
    scf::YieldOp::create(b, ArrayRef<Value>(sums).take_front(heads * keys));
    llvm::copy(loop.getResults(), sums.begin());
  } else {
    for (int64_t fromHead = 0; fromHead < heads; fromHead += someHeads)
      for (int64_t fromKey = 0; fromKey < keys; fromKey += someKeys)
        for (const Chunk &chunk : chunks) {
          Value column = index(chunk.column);
          if (fromHead == 0 && fromKey == 0)
            askFor(chunk, column);
          for (int64_t j = fromKey; j < std::min(fromKey + someKeys, keys);
               ++j) {
            SmallVector<Value> key = loadKey(j, chunk, column);
            for (int64_t h = fromHead;
                 h < std::min(fromHead + someHeads, heads); ++h)
              addChunk(h, j, column, key);
          }
        }
  }
  for (Value &sum : sums)
    if (!sum) // of no head
      sum = zero;
  return sums;
}

/// Which lanes of a tile are of a token that is there, for the head; null if
/// all are.
Value TokenBlocks::areValid(const Running &running, const Tokens &block,
                            Value first) {
  SmallVector<int32_t> numbers(kBlock);
  for (int32_t lane = 0; lane < kBlock; ++lane)
    numbers[lane] = lane % static_cast<int32_t>(running.tileKeys);
  Value key = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  auto narrow = [&](Value value) {
    return splat(arith::IndexCastOp::create(b, b.getI32Type(), value), kBlock);
  };
  Value valid;
  if (!block.isWhole)
    valid = arith::CmpIOp::create(
        b, arith::CmpIPredicate::slt, key,
        narrow(minimum(arith::SubIOp::create(b, block.end, first),
                       index(kBlock))));
  if (!running.lower)
    return valid;
  Value offset = arith::AddIOp::create(
      b, key, narrow(arith::SubIOp::create(b, first, block.begin)));
  Value lower =
      vector::LoadOp::create(b, VectorType::get({kBlock}, b.getI32Type()),
                             running.lower, ValueRange{block.part, index(0)});
  Value isBehind =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, offset, lower);
  return valid ? Value(arith::AndIOp::create(b, valid, isBehind)) : isBehind;
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
  Places places, ahead, soon;
  Value later = rowSoon(running, block, tile);
  int64_t pairs = running.tileKeys / 2;
  for (int64_t j = 0; j < running.tileKeys; ++j) {
    places.push_back(rows.place(rowOf(block, tile, index(j), running)));
    if (later)
      soon.push_back(rows.place(plus(later, j)));
    if (j < pairs)
      ahead.push_back(placeAhead(
          block, rows, plus(arith::MulIOp::create(b, tile, index(pairs)), j)));
  }
  Value scores =
      sumLanes(b, multiplyKeys(running, block, rows, places, ahead, soon));
  scores =
      arith::MulFOp::create(b, scores, splat(number(running.scale), kBlock));
  if (Value valid = areValid(running, block, first))
    scores = arith::SelectOp::create(b, valid, scores, never);
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

/// m moves; returns what is taken off scores.
Value TokenBlocks::moveMost(const Running &running, const Tokens &block,
                            Value most) {
  SmallVector<Value> place{block.part, index(0)};
  most = overKeys(running, most,
                  [&](Value lhs, Value rhs) { return larger(lhs, rhs); });
  Value before = load(running.most, place, kBlock);
  most = larger(most, before);
  // 0 for −∞, so that a difference is never NaN.
  Value never = splat(number(-INFINITY), kBlock);
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, most, never);
  Value base =
      arith::SelectOp::create(b, isEmpty, splat(number(0), kBlock), most);
  store(most, running.most, place);
  store(exp(arith::SubFOp::create(b, before, base)), running.stays, place);
  return base;
}

/// Weights take the place of the scores of a tile.
Value TokenBlocks::weighTile(const Running &running, Value tile, Value base) {
  SmallVector<Value> at{tile, index(0)};
  Value scores = load(running.scores, at, kBlock);
  Value weights = exp(arith::SubFOp::create(b, scores, base));
  // Of nothing it is 0, where exp has a least value that is not.
  Value isNothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, scores,
                                          splat(number(-INFINITY), kBlock));
  weights =
      arith::SelectOp::create(b, isNothing, splat(number(0), kBlock), weights);
  store(weights, running.scores, at);
  return weights;
}
