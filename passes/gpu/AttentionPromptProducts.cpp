//===- AttentionPromptProducts.cpp - queries by keys, weights by values ---===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Queries are the 16 rows of a product; 8 keys, then 8 elements of a value, are
// its columns. What a product of scores leaves a lane is what the product of
// weights takes of it. Which elements are a column's does not matter as long as
// they are told apart at the end, so that lanes load as many at once as lie
// side by side: of a thread 4 g + t, part i of a block has elements (2 t) n + i
// and (2 t + 1) n + i of queries g and g + 8, of n parts. Weights are split
// into two numbers of 16 bits, whose products are as good as those of f32.
// Caches of other types are multiplied by plain arithmetic, with the same
// things in the same lanes.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionPrompts.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kColumns = 8;
/// Elements of a key that a lane loads at once for products.
static constexpr int64_t kKeyPart = 8;

Value GpuPrompts::exp2(Value value) { return math::Exp2Op::create(b, value); }

/// Two products take what a lane loads of two queries at once. Where registers
/// do not hold both queries and answers, a lane keeps its queries in shared
/// memory, where nobody else looks at them.
void GpuPrompts::loadTileQueries() {
  queryParts.clear();
  if (!multiplies)
    return;
  Value memory = tensor(plan.attends.front().getQuery());
  for (int64_t at = 0; at < keySize; at += 4 * kKeyPart) {
    Value element = add(mul(lanePart, kKeyPart), at), rows[2];
    for (int64_t i = 0; i < 2; ++i) {
      rows[i] = loadVector(memory, {tokenOf[i], headOf[i], element}, kKeyPart);
      if (sharesQueries)
        storeVector(rows[i], queries,
                    {index(at / (2 * kKeyPart) + i), mul(thread, kKeyPart)});
    }
    if (!sharesQueries)
      queryParts.append(operandsOf(rows[0], rows[1]));
  }
}

void GpuPrompts::keepPlaces() {
  if (!sharesPlaces)
    return;
  placesOfQueries = sharedArray("places_of_queries", b.getI32Type(),
                                {kPlacesOfQueries, threads});
  for (int64_t i = 0; i < 2; ++i) {
    Value isOne = select(isQuery[i], index(1), index(0));
    Value all[] = {tokenOf[i], headOf[i], placeOf[i], isOne};
    for (auto [which, value] : llvm::enumerate(all))
      store(value, placesOfQueries,
            {index(4 * i + static_cast<int64_t>(which)), thread});
  }
}

void GpuPrompts::findPlaces() {
  if (!sharesPlaces)
    return;
  for (int64_t i = 0; i < 2; ++i) {
    auto at = [&](int64_t which) {
      return load(placesOfQueries, {index(4 * i + which), thread});
    };
    tokenOf[i] = at(0);
    headOf[i] = at(1);
    placeOf[i] = at(2);
    isQuery[i] = less(index(0), at(3));
  }
}

GpuAttention::Values GpuPrompts::operandsOf(Value low, Value high) {
  Values operands;
  for (int64_t i = 0; i < kKeyPart; i += 4)
    operands.push_back(named(
        "query", pick(low, high,
                      {i, i + 1, i + 8, i + 9, i + 2, i + 3, i + 10, i + 11})));
  return operands;
}

/// Of the part of queries that two products take.
GpuAttention::Values GpuPrompts::queryOperands(int64_t which) {
  if (!sharesQueries)
    return {queryParts[2 * which], queryParts[2 * which + 1]};
  Value rows[2];
  for (int64_t i = 0; i < 2; ++i)
    rows[i] = loadVector(queries, {index(2 * which + i), mul(thread, kKeyPart)},
                         kKeyPart);
  return operandsOf(rows[0], rows[1]);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Of queries g and g + 8 for keys 2 t and 2 t + 1 of each 8.
GpuAttention::Values GpuPrompts::scoresOfTile(Value tileRow) {
  if (!multiplies)
    return plainScores(tileRow);
  auto fragment = VectorType::get({4}, b.getF32Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(fragment));
  Values scores(static_cast<size_t>(16 * warps / kColumns), zeros);
  // Products that follow one another are of sums that do not.
  for (int64_t which = 0; which < keySize / (4 * kKeyPart); ++which) {
    Values wanted = queryOperands(which);
    Value chunk = add(lanePart, which * 4);
    Value at = mul(swizzled(chunk, laneRow, /*isKey=*/true), kKeyPart);
    Values loaded;
    for (size_t column = 0; column < scores.size(); ++column) {
      Value key =
          add(add(tileRow, laneRow), static_cast<int64_t>(column) * kColumns);
      loaded.push_back(loadVector(keys, {key, at}, kKeyPart));
    }
    for (int64_t i = 0; i < 2; ++i)
      for (auto [sum, key] : llvm::zip_equal(scores, loaded))
        sum = multiplyTiles(
            wanted[static_cast<size_t>(i)],
            pick(key, key, {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3}), sum);
  }
  return scores;
}

GpuAttention::Values GpuPrompts::plainScores(Value tileRow) {
  constexpr int64_t width = 4;
  int64_t tileKeys = 16 * warps;
  Value memory = tensor(plan.attends.front().getQuery());
  Values sums(static_cast<size_t>(tileKeys / 2), number(0));
  sums =
      loop(index(0), index(keySize), index(width), sums,
           [&](Value at, ValueRange carried) -> Values {
             Value query[2];
             for (int64_t i = 0; i < 2; ++i)
               query[i] = widened(memory, {tokenOf[i], headOf[i], at}, width);
             Values next;
             for (int64_t first = 0; first < tileKeys; first += kColumns) {
               Value key[2];
               for (int64_t i = 0; i < 2; ++i)
                 key[i] = widened(
                     keys, {add(add(tileRow, mul(lanePart, 2)), first + i), at},
                     width);
               for (int64_t i = 0; i < 4; ++i)
                 next.push_back(vector::ReductionOp::create(
                     b, vector::CombiningKind::ADD,
                     product(query[i / 2], key[i % 2]), carried[next.size()]));
             }
             return next;
           });
  Values scores;
  for (size_t i = 0; i < sums.size(); i += 4)
    scores.push_back(fromElements(ArrayRef(sums).slice(i, 4)));
  return scores;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void GpuPrompts::addPlainValues(Value tileRow, ArrayRef<Value> weights,
                                Values &totals) {
  int64_t part = valuePart(), blocks = valueSize / (kColumns * part);
  // Of each lane of a query in turn.
  totals =
      loop(index(0), index(4), index(1), totals,
           [&](Value of, ValueRange carried) -> Values {
             Values next(carried);
             Value source = add(mul(laneRow, 4), of);
             for (int64_t i = 0; i < 4; ++i) {
               Value key =
                   add(add(tileRow, mul(of, 2)), i / 2 * kColumns + i % 2);
               Value low = shuffle(weights[i / 2 * 4 + i % 2], source,
                                   gpu::ShuffleMode::IDX);
               Value high = shuffle(weights[i / 2 * 4 + 2 + i % 2], source,
                                    gpu::ShuffleMode::IDX);
               Value factors = fromElements({low, low, high, high});
               for (int64_t block = 0; block < blocks; ++block) {
                 Value loaded[2];
                 for (int64_t column = 0; column < 2; ++column) {
                   Value at = mul(add(mul(lanePart, 2), column), part);
                   loaded[column] = widened(
                       values, {key, add(at, block * kColumns * part)}, part);
                 }
                 for (int64_t j = 0; j < part; ++j) {
                   Value &total = next[static_cast<size_t>(block * part + j)];
                   Value pairs =
                       pick(loaded[0], loaded[1], {j, part + j, j, part + j});
                   total = vector::FMAOp::create(b, pairs, factors, total);
                 }
               }
             }
             return next;
           });
}

/// Of 16 keys from a row on, with weights of keys 2 t, 2 t + 1, then of those 8
/// further on.
void GpuPrompts::addValuesOfTile(Value tileRow, ArrayRef<Value> weights,
                                 Values &totals) {
  if (!multiplies)
    return addPlainValues(tileRow, weights, totals);
  int64_t part = valuePart(), blocks = valueSize / (kColumns * part);
  Value weight = fromElements(weights);
  auto type =
      VectorType::get({static_cast<int64_t>(weights.size())}, plan.valueType);
  Value upper = arith::TruncFOp::create(b, type, weight);
  Value rest = arith::SubFOp::create(b, weight, widen(upper));
  Value lower = arith::TruncFOp::create(b, type, rest);
  for (int64_t block = 0; block < blocks; ++block) {
    Value loaded[4];
    for (int64_t i = 0; i < 4; ++i) {
      Value key = add(mul(lanePart, 2), i / 2 * 8 + i % 2);
      Value at = add(mul(laneRow, part), block * kColumns * part);
      if (part == 8)
        at = mul(swizzled(add(laneRow, block * kColumns), mul(lanePart, 2),
                          /*isKey=*/false),
                 part);
      loaded[i] = loadVector(values, {add(tileRow, key), at}, part);
    }
    // Few at once, for want of registers.
    constexpr int64_t atOnce = 4;
    for (int64_t first = 0; first < part; first += atOnce) {
      Values columns;
      for (int64_t i = first; i < first + atOnce; ++i)
        columns.push_back(pick(pick(loaded[0], loaded[1], {i, part + i}),
                               pick(loaded[2], loaded[3], {i, part + i}),
                               {0, 1, 2, 3}));
      for (Value half : {upper, lower})
        for (int64_t i = 0; i < atOnce; ++i) {
          Value &total = totals[block * part + first + i];
          total = multiplyTiles(half, columns[i], total);
        }
    }
  }
}

//===----------------------------------------------------------------------===//
// A tile
//===----------------------------------------------------------------------===//

/// Two maxima and sums, of logarithms to the base 2, then the sums of values.
GpuAttention::Values GpuPrompts::addKeys(Value tile, ValueRange before) {
  int64_t tileKeys = 16 * warps;
  Value tileRow = mul(rem(tile, stages), tileKeys);
  double scale = plan.attends.front().getScale().convertToDouble() *
                 1.44269504088896340736;
  Value factor = splat(number(scale), 4);
  Value firstKey = add(add(begin, mul(tile, tileKeys)), mul(lanePart, 2));
  Value first[2], last[2];
  for (int64_t i = 0; i < 2; ++i) {
    first[i] = sub(from[i], firstKey);
    last[i] = sub(to[i], firstKey);
  }
  Values scores; // 4 of each 8 keys: query g twice, then query g + 8
  Value most[2] = {number(-INFINITY), number(-INFINITY)};
  for (auto [column, all] : llvm::enumerate(scoresOfTile(tileRow))) {
    Value scaled = product(all, factor);
    for (int64_t i = 0; i < 4; ++i) {
      Value key = index(static_cast<int64_t>(column) * kColumns + i % 2);
      Value isValid = less(key, last[i / 2]);
      if (skipsKeys)
        isValid = both(isValid, notLess(key, first[i / 2]));
      scores.push_back(select(isValid, extract(scaled, i), number(-INFINITY)));
      most[i / 2] = larger(most[i / 2], scores.back());
    }
  }
  Values after(4);
  Value kept[2], base[2];
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t mask = 1; mask < 4; mask *= 2)
      most[i] = larger(most[i], exchange(most[i], mask));
    // Of this tile, of which the largest before was not one.
    most[i] = larger(before[i], baseOf(most[i], /*doubling=*/1));
    after[i] = named("most", most[i]);
    base[i] = finite(after[i]);
    kept[i] = named("kept", exp2(arith::SubFOp::create(b, before[i], base[i])));
    after[2 + i] = product(before[2 + i], kept[i]);
  }
  Value factors = fromElements({kept[0], kept[0], kept[1], kept[1]});
  Values totals;
  for (Value part : before.drop_front(4))
    totals.push_back(product(part, factors));
  constexpr size_t weightsOfProduct = 8;
  for (size_t at = 0; at < scores.size(); at += weightsOfProduct) {
    Values weights;
    for (size_t i = 0; i < weightsOfProduct; ++i) {
      size_t query = i % 4 / 2;
      Value weight =
          exp2(arith::SubFOp::create(b, scores[at + i], base[query]));
      weights.push_back(named("weight", weight));
      after[2 + query] = sum(after[2 + query], weight);
    }
    addValuesOfTile(add(tileRow, static_cast<int64_t>(at) * 2), weights,
                    totals);
  }
  after.append(totals);
  return after;
}
