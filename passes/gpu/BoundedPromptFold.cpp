//===- BoundedPromptFold.cpp - what of a prompt leaves --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block has some rows of a head's matrix, a warp four of them, and a lane
// some elements of each, in registers from the first token to the last. Tokens
// come to shared memory many at a time, and the next ones are loaded meanwhile.
// Each thread keeps the count, the sum, the mean and the squares around it
// (Welford) of every eighth token of a column, which are merged at the end.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedPrompts.h"

#include <algorithm>

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarps = 4, kRows = kFoldRows / kWarps;
/// Threads that share a column.
static constexpr int64_t kSharing = kWarps * 32 / kFoldRows;

static int64_t bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

void GpuBoundedPrompts::buildFold() {
  createKernel("_fold", kWarps * kWarp, /*blocks=*/2);
  // What a thread has loaded ahead stays in its registers.
  constexpr int64_t mostBytes = 128, mostTokens = 64;
  chunk = mostTokens;
  while (chunk * valueSize * bytesOf(plan.valueType) > mostBytes * threads)
    chunk /= 2;
  Type f32 = b.getF32Type();
  foldKeys = sharedArray("keys", f32, {chunk, kFoldRows});
  foldValues = sharedArray("values", f32, {chunk, valueSize});
  partSums = sharedArray("parts", f32, {4, threads});
  openLanes();
  openHead(gpu::BlockIdOp::create(b, gpu::Dimension::x));
  Value part = named("part", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  ifThen(both(notLess(slot, index(0)), less(index(0), leaving)),
         [&] { foldHead(part); });
}

/// Of as many tokens from one on, as threads take them.
GpuAttention::Values GpuBoundedPrompts::loadChunk(Value from, Value part) {
  Values loaded;
  Value list = array("leaving", b.getI32Type());
  auto take = [&](Value token, StringRef pages, Type type, int64_t size,
                  Value first, int64_t columns) {
    int64_t width = elementsOfLoad(type), chunks = columns / width;
    for (int64_t base = 0; base < chunk * chunks; base += threads) {
      Value at = minimum(add(thread, base), index(chunk * chunks - 1));
      Value element = add(first, mul(rem(at, chunks), width));
      Value which = minimum(add(from, div(at, chunks)), sub(leaving, index(1)));
      Value of = load(list, placeOf(which));
      loaded.append(ifElse(
          notLess(of, index(0)),
          [&]() -> Values {
            return {loadVector(array(pages, type, size),
                               {rowOfEntry(of), element}, width)};
          },
          [&]() -> Values {
            Value ofCall = add(firstToken, sub(index(-1), of));
            return {
                loadVector(tensor(token), {ofCall, cacheHead, element}, width)};
          }));
    }
  };
  take(given.append.getValues()[0], "key_pages", plan.keyType, keySize,
       mul(part, kFoldRows), kFoldRows);
  take(given.append.getValues()[1], "value_pages", plan.valueType, valueSize,
       index(0), valueSize);
  return loaded;
}

/// Behind the last token there are zeros.
void GpuBoundedPrompts::takeChunk(ValueRange loaded, Value from) {
  size_t next = 0;
  auto take = [&](Value into, Type type, int64_t columns) {
    int64_t width = elementsOfLoad(type), chunks = columns / width;
    for (int64_t base = 0; base < chunk * chunks; base += threads) {
      Value vector = widen(loaded[next++]), at = add(thread, base);
      Value token = div(at, chunks);
      vector = select(less(add(from, token), leaving), vector,
                      splat(number(0), width));
      auto keep = [&] {
        storeVector(vector, into, {token, mul(rem(at, chunks), width)});
      };
      if (base + threads <= chunk * chunks)
        keep();
      else
        ifThen(less(at, index(chunk * chunks)), keep);
    }
  };
  take(foldKeys, plan.keyType, kFoldRows);
  take(foldValues, plan.valueType, valueSize);
}

/// Count, sum, mean and squares of this thread's tokens of a column.
GpuAttention::Values GpuBoundedPrompts::countTokens(ValueRange before,
                                                    Value from, Value column,
                                                    Value columns) {
  Value firstToken = div(thread, kFoldRows);
  Values numbers;
  Value n = number(0), total = number(0);
  for (int64_t token = 0; token < chunk; token += kSharing) {
    Value which = add(firstToken, token);
    numbers.push_back(loadFloat(columns, {which, column}));
    Value isThere = less(add(from, which), leaving);
    n = sum(n, select(isThere, number(1), number(0)));
    total = sum(total, numbers.back());
  }
  Value mean = arith::DivFOp::create(b, total, larger(n, number(1)));
  Value squares = number(0);
  for (auto [i, each] : llvm::enumerate(numbers)) {
    Value which = add(firstToken, static_cast<int64_t>(i) * kSharing);
    Value distance = arith::SubFOp::create(b, each, mean);
    distance = select(less(add(from, which), leaving), distance, number(0));
    squares = sum(squares, product(distance, distance));
  }
  return mergeMoments(before, {n, total, mean, squares});
}

/// (n, Σ, mean, Σ |x − mean|²) of two sets as one's.
GpuAttention::Values GpuBoundedPrompts::mergeMoments(ValueRange one,
                                                     ValueRange other) {
  Value n = sum(one[0], other[0]);
  Value share = arith::DivFOp::create(b, other[0], larger(n, number(1)));
  Value distance = arith::SubFOp::create(b, other[2], one[2]);
  Value mean = sum(one[2], product(distance, share));
  Value apart = product(product(distance, distance), product(one[0], share));
  return {n, sum(one[1], other[1]), mean, sum(sum(one[3], other[3]), apart)};
}

/// Adds up what the threads of a column have, and what the memory had; leaves
/// the sum, and returns the squares that came with these tokens.
Value GpuBoundedPrompts::finishSums(ValueRange mine, StringRef name,
                                    Value column, int64_t size) {
  Type f32 = b.getF32Type();
  barrier();
  for (int64_t i = 0; i < 4; ++i)
    store(mine[i], partSums, {index(i), thread});
  barrier();
  Value isOne = both(less(thread, index(kFoldRows)), less(column, index(size)));
  return ifElse(
             isOne,
             [&]() -> Values {
               Value memory = array(name, f32);
               Value at = add(mul(cursorRow, size), column);
               Value hasOld = less(index(0), evicted);
               Value old = select(hasOld, loadFloat(memory, at), number(0));
               Value n = arith::SIToFPOp::create(
                   b, f32,
                   arith::IndexCastOp::create(b, b.getI32Type(), evicted));
               Value mean = arith::DivFOp::create(b, old, larger(n, number(1)));
               Values sums{n, old, mean, number(0)};
               for (int64_t each = 0; each < kSharing; ++each) {
                 Values its;
                 for (int64_t i = 0; i < 4; ++i)
                   its.push_back(loadFloat(
                       partSums, {index(i), add(thread, each * kFoldRows)}));
                 sums = mergeMoments(sums, its);
               }
               store(sums[1], memory, at);
               return {sums[3]};
             },
             [&]() -> Values { return {number(0)}; })
      .front();
}

void GpuBoundedPrompts::foldHead(Value part) {
  int64_t width = valueSize / kWarp, parts = keySize / kFoldRows;
  Value matrix = array("memory", memory.getElementType(), valueSize);
  Value element = mul(lane, width);
  Value firstRow = mul(warp, kRows);
  auto placeOfRow = [&](int64_t i) {
    Value ofBlock = add(add(mul(part, kFoldRows), firstRow), i);
    return add(mul(cursorRow, keySize), ofBlock);
  };
  Value hasOld = less(index(0), evicted);
  Values inits;
  for (int64_t i = 0; i < kRows; ++i)
    inits.push_back(select(hasOld,
                           widened(matrix, {placeOfRow(i), element}, width),
                           splat(number(0), width)));
  // Columns of keys, and then of values that blocks share out.
  Value ofThread = rem(thread, kFoldRows);
  int64_t valueColumns = llvm::divideCeil(valueSize, parts);
  SmallVector<Value> columns{ofThread};
  for (int64_t first = 0; first < valueColumns; first += kFoldRows) {
    Value inPart = add(ofThread, first);
    Value column = add(mul(part, valueColumns), inPart);
    columns.push_back(select(less(inPart, index(valueColumns)),
                             minimum(column, index(valueSize)),
                             index(valueSize)));
  }
  inits.append(4 * columns.size(), number(0));
  Ahead chunks =
      startLoop(index(0), leaving, index(chunk), /*together=*/1,
                [this, part](Value at) { return loadChunk(at, part); });
  Values sums = finishLoop(
      chunks, inits,
      [&](Value from, ValueRange loaded, ValueRange before) -> Values {
        barrier();
        takeChunk(loaded, from);
        barrier();
        Values rows = loop(
            index(0), index(chunk), index(1), before.take_front(kRows),
            [&](Value token, ValueRange carried) -> Values {
              Value values = loadVector(foldValues, {token, element}, width);
              Value factors = loadVector(foldKeys, {token, firstRow}, kRows);
              Values after;
              for (int64_t i = 0; i < kRows; ++i)
                after.push_back(vector::FMAOp::create(
                    b, values, splat(extract(factors, i), width), carried[i]));
              return after;
            },
            /*unrolls=*/false);
        for (auto [i, column] : llvm::enumerate(columns)) {
          ValueRange its = before.slice(kRows + 4 * i, 4);
          Value inside =
              minimum(column, index((i ? valueSize : kFoldRows) - 1));
          rows.append(
              countTokens(its, from, inside, i ? foldValues : foldKeys));
        }
        return rows;
      });
  for (int64_t i = 0; i < kRows; ++i)
    storeVector(sums[i], matrix, {placeOfRow(i), element});
  ValueRange moments = ValueRange(sums).drop_front(kRows);
  for (size_t i = 1; i < columns.size(); ++i)
    (void)finishSums(moments.slice(4 * i, 4), "memory_values", columns[i],
                     valueSize);
  Value keyColumn = add(mul(part, kFoldRows), ofThread);
  Value squares =
      finishSums(moments.take_front(4), "memory_keys", keyColumn, keySize);
  // The sixteen columns are lanes of the first warp.
  for (int64_t mask = 1; mask < kFoldRows; mask *= 2)
    squares = sum(squares, exchange(squares, mask));
  ifThen(equal(thread, index(0)), [&] {
    store(squares, array("spread_parts", b.getF32Type(), kSpreadParts),
          {planRow, part});
  });
}
