//===- ChunkDoublings.cpp - decays of channels where warps hold rows ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

namespace {

/// Rows of a memory from one on.
struct Rows {
  Value memory;
  int64_t first = 0;
};

} // namespace

static constexpr int64_t kPart = 8, kWarp = 32;
/// Of blocks of one token to one of all of a step, and products of one at once.
static constexpr int64_t kDoublings = 4, kTurns = 4;
/// Tokens of first blocks, and of second ones.
static constexpr int64_t kHalf = GpuChunkKernel::kMostVectorTokens / 2;

/// emitVectorGrams where warps hold rows: of all four doublings at once. A
/// thread takes a channel, whose tokens it has in registers, and leaves what
/// each doubling multiplies: the queries of second blocks times what follows
/// the boundary, and the keys of first blocks times what precedes it. These are
/// eight tokens each, so that two queries are a tile of rows, and the keys one
/// of columns; a warp takes a doubling.
void GpuChunkKernel::multiplyDoublings(ArrayRef<PathGramOp> ops) {
  PathGramOp first = ops.front();
  Stack decays = stackOf(first.getDecays()), keys = stackOf(first.getKeys());
  // Of the first doubling, whose blocks are a token, all is there. Only where
  // memory is enough it comes to the others, so that all warps do the same.
  bool areAlike = blockPart == Part::Ahead;
  int64_t sides = static_cast<int64_t>(ops.size());
  SmallVector<Rows> lefts(kDoublings), rights(kDoublings);
  Value left, right;
  for (int64_t level = areAlike ? 0 : 1; level < kDoublings; ++level) {
    if (areAlike && level == 0) {
      left = allocate(sides * kDoublings * kHalf, keySize);
      right = allocate(kDoublings * kHalf, keySize);
    } else if (!areAlike) {
      left = allocate(sides * kHalf, keySize);
      if (level % 2)
        right = allocate(2 * kHalf, keySize);
    }
    size_t at = static_cast<size_t>(level);
    lefts[at] = {left, areAlike ? sides * level * kHalf : 0};
    rights[at] = {right, areAlike ? level * kHalf : (level - 1) % 2 * kHalf};
  }
  SmallVector<Stack> queries;
  SmallVector<Value> grams;
  willRead(decays.memory);
  willRead(keys.memory);
  for (PathGramOp op : ops) {
    queries.push_back(stackOf(op.getQueries()));
    willRead(queries.back().memory);
    // What is no pair is zero from the beginning and stays so.
    Value &gram = pairGrams[op];
    if (!gram)
      gram = shared({kMostVectorTokens, pitchOf(kMostVectorTokens)}, "pairs");
    grams.push_back(gram);
    fullStacks[op.getResult()].memory = gram;
  }
  llvm::SetVector<Value> memories;
  for (auto *all : {&lefts, &rights})
    for (const Rows &each : *all)
      if (each.memory)
        memories.insert(each.memory);
  for (Value memory : memories)
    willWrite(memory);
  auto takeChannel = [&](Value channel, bool ofLefts, bool ofRights) {
    auto load = [&](const Stack &stack) {
      SmallVector<Value> all;
      for (int64_t i = 0; i < kMostVectorTokens; ++i)
        all.push_back(memref::LoadOp::create(
            b, stack.memory,
            ValueRange{constantIndex(stack.first + i), channel}));
      return all;
    };
    SmallVector<Value> decay = load(decays), key;
    SmallVector<SmallVector<Value>> query;
    if (ofRights)
      key = load(keys);
    for (const Stack &stack : queries)
      if (ofLefts)
        query.push_back(load(stack));
    auto put = [&](Value memory, int64_t row, Value value, Value factor) {
      if (factor)
        value = arith::MulFOp::create(b, value, factor);
      memref::StoreOp::create(b, value, memory,
                              ValueRange{constantIndex(row), channel});
    };
    for (int64_t level = 0; level < kDoublings; ++level) {
      int64_t size = int64_t(1) << level;
      auto [ofLeft, firstOfLeft] = lefts[static_cast<size_t>(level)];
      auto [ofRight, firstOfRight] = rights[static_cast<size_t>(level)];
      if (!ofLeft)
        continue;
      for (int64_t start = 0; start < kHalf; start += size) {
        size_t boundary = static_cast<size_t>(2 * start + size);
        Value after, before;
        for (int64_t i = 0; i < size; ++i) {
          size_t next = boundary + static_cast<size_t>(i);
          size_t last = boundary - 1 - static_cast<size_t>(i);
          for (size_t side = 0; side < query.size(); ++side)
            put(ofLeft,
                firstOfLeft + static_cast<int64_t>(side) * kHalf + start + i,
                query[side][next], after);
          if (ofLefts)
            after = after ? Value(arith::MulFOp::create(b, after, decay[next]))
                          : decay[next];
          if (!ofRights)
            continue;
          put(ofRight, firstOfRight + start + size - 1 - i, key[last], before);
          before = before ? Value(arith::MulFOp::create(b, before, decay[last]))
                          : decay[last];
        }
      }
    }
  };
  // Queries and keys are for different threads, where there are enough.
  bool isApart = schedule.threads >= 2 * keySize && keySize % kWarp == 0;
  forThreads(constantIndex(keySize),
             [&](Value channel) { takeChannel(channel, true, !isApart); });
  if (isApart)
    forThreads(
        constantIndex(keySize),
        [&](Value channel) { takeChannel(channel, false, true); },
        keySize / kWarp);
  beginOp();
  for (Value memory : memories)
    willRead(memory);
  if (!areAlike) { // The first doubling is of the stacks themselves.
    willRead(keys.memory);
    for (const Stack &query : queries)
      willRead(query.memory);
  }
  for (Value gram : grams)
    willWrite(gram);
  int64_t last = sides - 1;
  Value lane = over(warpLane, 4);
  int64_t warps = schedule.threads / kWarp;
  for (int64_t level = 0; areAlike && level < kDoublings; level += warps) {
    Value mine = add(over(thread, kWarp), level);
    guarded(isBelow(mine, kDoublings), [&] {
      Value row = arith::AddIOp::create(b, times(mine, kHalf), lane);
      Value upper = arith::AddIOp::create(b, times(mine, sides * kHalf), lane);
      multiplyPairs(mine, {{{left, upper}, {left, add(upper, last * kHalf)}}},
                    {right, row}, grams);
    });
  }
  for (int64_t level = 0; !areAlike && level < kDoublings; ++level)
    inWarp(level, [&] {
      size_t at = static_cast<size_t>(level);
      auto upper = [&](int64_t half) -> std::pair<Value, Value> {
        half = std::min(half, last);
        if (level)
          return {lefts[at].memory, add(lane, half * kHalf)};
        const Stack &query = queries[static_cast<size_t>(half)];
        return {query.memory, add(times(lane, 2), query.first + 1)};
      };
      std::pair<Value, Value> of{keys.memory, add(times(lane, 2), keys.first)};
      if (level)
        of = {rights[at].memory, add(lane, rights[at].first)};
      multiplyPairs(constantIndex(level), {upper(0), upper(1)}, of, grams);
    });
  for (Value memory : memories)
    unused[sizes.lookup(memory)].push_back(memory);
}

/// The pairs of one doubling: of rows of a lane, of which those of a second
/// side follow those of the first.
void GpuChunkKernel::multiplyPairs(Value level,
                                   std::array<std::pair<Value, Value>, 2> lefts,
                                   const std::pair<Value, Value> &right,
                                   ArrayRef<Value> grams) {
  auto four = VectorType::get({4}, b.getF32Type());
  Value lane = over(warpLane, 4);
  // Terms in turns, so that a sum need not wait for the one before.
  SmallVector<Value> sums(kTurns,
                          arith::ConstantOp::create(b, b.getZeroAttr(four)));
  for (int64_t k = 0; k < keySize; k += kPart * kTurns) {
    SmallVector<SplitProduct> products;
    for (int64_t turn = 0; turn < kTurns && k + turn * kPart < keySize;
         ++turn) {
      Value at = add(pairOfLane(), k + turn * kPart);
      SmallVector<Value> elements;
      for (int64_t i = 0; i < 2; ++i)
        for (auto &[memory, row] : lefts)
          elements.push_back(
              memref::LoadOp::create(b, memory, ValueRange{row, add(at, i)}));
      products.push_back(
          {splitTerms(vector::FromElementsOp::create(b, four, elements)),
           splitRight(loadTwo(right.first, right.second, at), false),
           &sums[static_cast<size_t>(turn)]});
    }
    multiplySplit(products);
  }
  Value sum = sums.front();
  for (Value other : ArrayRef(sums).drop_front())
    sum = arith::AddFOp::create(b, sum, other);
  // The blocks of a pair are the same, and a token is behind those of first
  // blocks up to its own.
  auto blockOf = [&](Value index) -> Value {
    return arith::ShRUIOp::create(b, index, level);
  };
  auto tokenOf = [&](Value index) -> Value {
    return arith::AddIOp::create(
        b, index, arith::ShLIOp::create(b, blockOf(index), level));
  };
  Value token = arith::AddIOp::create(
      b, tokenOf(lane), arith::ShLIOp::create(b, constantIndex(1), level));
  for (int64_t i = 0; i < 2; ++i) {
    Value other = add(pairOfLane(), i);
    guarded(compare(arith::CmpIPredicate::eq, blockOf(lane), blockOf(other)),
            [&] {
              Value ancestor = tokenOf(other);
              for (auto [side, gram] : llvm::enumerate(grams))
                memref::StoreOp::create(
                    b,
                    vector::ExtractOp::create(
                        b, sum, 2 * static_cast<int64_t>(side) + i),
                    gram, ValueRange{token, ancestor});
            });
  }
}
