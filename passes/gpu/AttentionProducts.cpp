//===- AttentionProducts.cpp - scores and weighted values of a tile -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// On tensor cores, keys and values are the 16 rows of a product and the heads
// its 8 columns. Which elements of a key a product takes, and which of a value
// its rows are, does not matter as long as queries and answers agree: lanes
// load as many at once as lie side by side. Weights are split into two numbers
// of 16 bits, whose products are as good as those of f32. Caches of other types
// are multiplied by plain arithmetic, with the same things in the same lanes.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

/// Elements of a key that a lane loads at once for products.
static constexpr int64_t kKeyPart = 8;

/// Elements of a value that a lane loads at once.
int64_t GpuAttention::valuePart() const {
  return multiplies && valueSize % 64 == 0 ? 8 : 4;
}

Value GpuAttention::multiplyTiles(Value a, Value rhs, Value c) {
  auto shaped = [&](Value value, int64_t rows) -> Value {
    Type element = cast<VectorType>(value.getType()).getElementType();
    return vector::ShapeCastOp::create(b, VectorType::get({rows, 2}, element),
                                       value);
  };
  Value all =
      nvgpu::MmaSyncOp::create(b, shaped(a, 4), shaped(rhs, 2), shaped(c, 2),
                               b.getI64ArrayAttr({kTileKeys, kTileHeads, 16}));
  return vector::ShapeCastOp::create(b, c.getType(), all);
}

void GpuAttention::loadQueries(Value of, Value firstHead) {
  Value memory = tensor(plan.attends.front().getQuery());
  queryParts.clear();
  // Columns without a head repeat the last one, and nobody reads them.
  if (multiplies) {
    Value ofHead = add(firstHead, minimum(laneRow, index(share - 1)));
    for (int64_t at = 0; at < keySize; at += 4 * kKeyPart)
      queryParts.push_back(named(
          "query",
          loadVector(memory, {of, ofHead, add(mul(lanePart, kKeyPart), at)},
                     kKeyPart)));
    return;
  }
  constexpr int64_t width = 4;
  loop(mul(lane, width), index(kTileHeads * keySize), index(kWarp * width),
       [&](Value at) {
         Value local = div(at, keySize), element = rem(at, keySize);
         Value ofHead = add(firstHead, minimum(local, index(share - 1)));
         storeVector(widened(memory, {of, ofHead, element}, width), queries,
                     {add(mul(warp, kTileHeads), local), element});
       });
  warpBarrier();
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Of keys g and g + 8 behind a row of the tiles, for heads 2 t and 2 t + 1.
Value GpuAttention::scores(Value tileRow) {
  auto fragment = VectorType::get({4}, b.getF32Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(fragment));
  // Of two sums one's products need not wait for the other's.
  Values all(scoreSums, zeros);
  Value rows[2] = {add(tileRow, laneRow),
                   add(add(tileRow, laneRow), kTileKeys / 2)};
  if (multiplies) {
    for (auto [which, query] : llvm::enumerate(queryParts)) {
      Value chunk = add(lanePart, static_cast<int64_t>(which) * 4);
      Value at = mul(swizzled(chunk, laneRow, /*isKey=*/true), kKeyPart);
      Value low = loadVector(keys, {rows[0], at}, kKeyPart);
      Value high = loadVector(keys, {rows[1], at}, kKeyPart);
      for (int64_t i = 0; i < kKeyPart; i += 4) {
        Value a = pick(low, high,
                       {i, i + 1, i + 8, i + 9, i + 2, i + 3, i + 10, i + 11});
        Value wanted = pick(query, query, {i, i + 1, i + 2, i + 3});
        Value &total = all[i / 4 % scoreSums];
        total = multiplyTiles(a, wanted, total);
      }
    }
    return scoreSums == 1 ? all[0] : sum(all[0], all[1]);
  }
  constexpr int64_t width = 4;
  Values sums(4, number(0));
  sums = loop(index(0), index(keySize), index(width), sums,
              [&](Value at, ValueRange carried) -> Values {
                Value key[2], query[2];
                for (int64_t i = 0; i < 2; ++i) {
                  key[i] = widened(keys, {rows[i], at}, width);
                  Value row = add(mul(warp, kTileHeads), mul(lanePart, 2));
                  query[i] = loadVector(queries, {add(row, i), at}, width);
                }
                Values next;
                for (int64_t i = 0; i < 4; ++i)
                  next.push_back(vector::ReductionOp::create(
                      b, vector::CombiningKind::ADD,
                      product(key[i / 2], query[i % 2]), carried[i]));
                return next;
              });
  return fromElements(sums);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// What weights are relative to, given the largest score and what a score grows
/// by where its weight doubles. Two numbers of f16 have no more than 24 bits
/// behind the point: where weights are up to 2^15 and not 1, many small ones
/// beside a large one are not lost.
Value GpuAttention::baseOf(Value most, double doubling) {
  constexpr double bits = 15;
  if (!multiplies || !plan.valueType.isF16())
    return most;
  return arith::SubFOp::create(b, most, number(bits * doubling));
}

void GpuAttention::addValues(Value tileRow, ArrayRef<Value> weights,
                             Values &parts) {
  int64_t part = valuePart(), products = part / 2;
  auto blocks = valueSize / (8 * part);
  if (!multiplies) {
    for (int64_t key = 0; key < kTileKeys; ++key) {
      Value source = add(lanePart, key % 8 * 4);
      Value weight[2];
      for (int64_t i = 0; i < 2; ++i)
        weight[i] =
            shuffle(weights[key / 8 * 2 + i], source, gpu::ShuffleMode::IDX);
      Value factors =
          fromElements({weight[0], weight[1], weight[0], weight[1]});
      for (int64_t block = 0; block < blocks; ++block) {
        Value at = add(mul(laneRow, part), block * 8 * part);
        Value value = widened(values, {add(tileRow, key), at}, part);
        for (int64_t i = 0; i < products; ++i) {
          Value pairs =
              pick(value, value, {2 * i, 2 * i, 2 * i + 1, 2 * i + 1});
          Value &total = parts[block * products + i];
          total = vector::FMAOp::create(b, pairs, factors, total);
        }
      }
    }
    return;
  }
  // Weights of keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 for head g.
  Value isOdd = equal(rem(laneRow, 2), index(1));
  Value turned[4];
  for (int64_t i = 0; i < 4; ++i) {
    Value source = add(add(mul(lanePart, 8), div(laneRow, 2)), i % 2 * 4);
    Value even = shuffle(weights[i / 2 * 2], source, gpu::ShuffleMode::IDX);
    Value odd = shuffle(weights[i / 2 * 2 + 1], source, gpu::ShuffleMode::IDX);
    turned[i] = select(isOdd, odd, even);
  }
  Value weight = fromElements({turned[0], turned[1], turned[2], turned[3]});
  auto type = VectorType::get({4}, plan.valueType);
  Value upper = arith::TruncFOp::create(b, type, weight);
  Value rest = arith::SubFOp::create(b, weight, widen(upper));
  Value lower = arith::TruncFOp::create(b, type, rest);
  for (int64_t block = 0; block < blocks; ++block) {
    Value loaded[4];
    for (int64_t i = 0; i < 4; ++i) {
      Value row = add(mul(lanePart, 2), i / 2 * 8 + i % 2);
      Value at;
      if (part == 8)
        at = mul(swizzled(add(laneRow, block * 8), mul(lanePart, 2),
                          /*isKey=*/false),
                 part);
      else
        at = add(mul(laneRow, part), block * 8 * part);
      loaded[i] = loadVector(values, {add(tileRow, row), at}, part);
    }
    for (int64_t i = 0; i < products; ++i) {
      SmallVector<int64_t> pair{2 * i, part + 2 * i, 2 * i + 1,
                                part + 2 * i + 1};
      Value a =
          pick(pick(loaded[0], loaded[1], pair),
               pick(loaded[2], loaded[3], pair), {0, 1, 2, 3, 4, 5, 6, 7});
      Value &total = parts[block * products + i];
      total = multiplyTiles(a, upper, total);
      total = multiplyTiles(a, lower, total);
    }
  }
}
