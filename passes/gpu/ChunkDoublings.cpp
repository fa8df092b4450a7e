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

static constexpr int64_t kPart = 8;
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
  // Of the first doubling, whose blocks are a token, all is there.
  SmallVector<Value> lefts(1), rights(1);
  for (int64_t level = 1; level < kDoublings; ++level) {
    lefts.push_back(allocate(2 * kHalf, keySize));
    if (level % 2)
      rights.push_back(allocate(2 * kHalf, keySize));
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
  for (Value memory : ArrayRef(lefts).drop_front())
    willWrite(memory);
  for (Value memory : ArrayRef(rights).drop_front())
    willWrite(memory);
  auto firstRight = [](int64_t level) { return (level - 1) % 2 * kHalf; };
  forThreads(constantIndex(keySize), [&](Value channel) {
    auto load = [&](const Stack &stack) {
      SmallVector<Value> all;
      for (int64_t i = 0; i < kMostVectorTokens; ++i)
        all.push_back(memref::LoadOp::create(
            b, stack.memory,
            ValueRange{constantIndex(stack.first + i), channel}));
      return all;
    };
    SmallVector<Value> decay = load(decays), key = load(keys);
    SmallVector<SmallVector<Value>> query;
    for (const Stack &stack : queries)
      query.push_back(load(stack));
    auto put = [&](Value memory, int64_t row, Value value, Value factor) {
      if (factor)
        value = arith::MulFOp::create(b, value, factor);
      memref::StoreOp::create(b, value, memory,
                              ValueRange{constantIndex(row), channel});
    };
    for (int64_t level = 1; level < kDoublings; ++level) {
      int64_t size = int64_t(1) << level;
      Value left = lefts[static_cast<size_t>(level)];
      Value right = rights[static_cast<size_t>((level + 1) / 2)];
      for (int64_t start = 0; start < kHalf; start += size) {
        size_t boundary = static_cast<size_t>(2 * start + size);
        Value after, before;
        for (int64_t i = 0; i < size; ++i) {
          size_t next = boundary + static_cast<size_t>(i);
          size_t last = boundary - 1 - static_cast<size_t>(i);
          for (size_t side = 0; side < query.size(); ++side)
            put(left, static_cast<int64_t>(side) * kHalf + start + i,
                query[side][next], after);
          put(right, firstRight(level) + start + size - 1 - i, key[last],
              before);
          after = after ? Value(arith::MulFOp::create(b, after, decay[next]))
                        : decay[next];
          before = before ? Value(arith::MulFOp::create(b, before, decay[last]))
                          : decay[last];
        }
      }
    }
  });
  beginOp();
  for (Value memory : ArrayRef(lefts).drop_front())
    willRead(memory);
  for (Value memory : ArrayRef(rights).drop_front())
    willRead(memory);
  for (Value gram : grams)
    willWrite(gram);
  for (int64_t level = 0; level < kDoublings; ++level)
    inWarp(level, [&] {
      int64_t last = static_cast<int64_t>(queries.size()) - 1;
      auto upper = [&](int64_t half) -> std::pair<Value, Value> {
        Value lane = over(warpLane, 4);
        half = std::min(half, last);
        if (level)
          return {lefts[static_cast<size_t>(level)], add(lane, half * kHalf)};
        const Stack &query = queries[static_cast<size_t>(half)];
        return {query.memory, add(times(lane, 2), query.first + 1)};
      };
      Value lane = over(warpLane, 4), right = keys.memory;
      Value row = add(times(lane, 2), keys.first);
      if (level) {
        right = rights[static_cast<size_t>((level + 1) / 2)];
        row = add(lane, firstRight(level));
      }
      multiplyPairs(level, {upper(0), upper(1)}, {right, row}, grams);
    });
  for (auto *all : {&lefts, &rights})
    for (Value memory : ArrayRef(*all).drop_front())
      unused[sizes.lookup(memory)].push_back(memory);
}

/// The pairs of one doubling: of rows of a lane, of which those of a second
/// side follow those of the first.
void GpuChunkKernel::multiplyPairs(int64_t level,
                                   std::array<std::pair<Value, Value>, 2> lefts,
                                   const std::pair<Value, Value> &right,
                                   ArrayRef<Value> grams) {
  auto four = VectorType::get({4}, b.getF32Type());
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
  int64_t size = int64_t(1) << level;
  auto tokenOf = [&](Value index) -> Value {
    return arith::AddIOp::create(b, index, times(over(index, size), size));
  };
  Value lane = over(warpLane, 4);
  Value token = add(tokenOf(lane), size);
  for (int64_t i = 0; i < 2; ++i) {
    Value other = add(pairOfLane(), i);
    guarded(
        compare(arith::CmpIPredicate::eq, over(lane, size), over(other, size)),
        [&] {
          Value ancestor = tokenOf(other);
          for (auto [side, gram] : llvm::enumerate(grams))
            memref::StoreOp::create(
                b,
                vector::ExtractOp::create(b, sum,
                                          2 * static_cast<int64_t>(side) + i),
                gram, ValueRange{token, ancestor});
        });
  }
}
