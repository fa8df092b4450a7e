//===- BoundedFold.cpp - segments that a memory takes up ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// M gains the product of the features of a segment's keys, transposed, and its
// values; z the sum of the features. Of bf16 a warp takes 16 rows and some
// columns of M at a time, which it has in the accumulators of tensor cores:
// rows are those of a product, columns its columns, tokens what is summed over.
// Features are split into two numbers of 16 bits. Which row or column of a
// product is which of M does not matter: lanes take what lies side by side, so
// that row g is 2 g, row g + 8 is 2 g + 1, and column g of product j is
// kPart g + j. Other types are multiplied by plain arithmetic.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

/// Rows and tokens of a product of tiles.
static constexpr int64_t kTileRows = 16, kTileTokens = 16;
/// Elements of a value that a lane loads at once.
static constexpr int64_t kPart = 4;
/// By plain arithmetic: rows, and tokens, whose loads are on their way
/// together.
static constexpr int64_t kRows = 4, kTokens = 4;

/// In place, before a row is read.
void GpuBounded::foldSegments() {
  newestToken = sub(position, index(sinks));
  if (plan.valueType.isBF16())
    foldByTiles();
  else
    foldByRows();
}

/// What a token adds to z for a row, and to M times its value; of the new one
/// it is as the cache will have it.
Value GpuBounded::featureOf(Value place, Value row) {
  keyRow = place;
  Value feature = cast<YieldOp>(fold.getFeature().front().back()).getOperand(0);
  FailureOr<Value> value = element(feature, {row});
  keep(value);
  return succeeded(value) ? *value : number(0);
}

Value GpuBounded::newValues(Value column, int64_t width) {
  Value value =
      loadVector(tensor(append.getValues()[1]), {of, cacheHead, column}, width);
  auto stored = VectorType::get({width}, plan.valueType);
  if (value.getType() == stored)
    return value;
  return plan.valueType.isF32()
             ? widen(value)
             : arith::TruncFOp::create(b, stored, widen(value)).getResult();
}

/// The row of a token behind the sinks among those of all slots.
Value GpuBounded::placeOfToken(Value token) {
  Value entry = add(rem(token, capacity - sinks), sinks);
  return add(mul(cursorRow, capacity), entry);
}

/// For each segment that is folded, from `before` to what is carried.
GpuAttention::Values GpuBounded::forSegments(
    ValueRange before,
    function_ref<Values(Value first, Value end, ValueRange carried)> body) {
  double decay = fold.getDecay().convertToDouble();
  return loop(index(0), foldCount, index(1), before,
              [&](Value which, ValueRange carried) -> Values {
                Values decayed(carried);
                for (Value &each : decayed) {
                  if (decay == 1)
                    break;
                  Value factor = number(decay);
                  if (auto type = dyn_cast<VectorType>(each.getType()))
                    factor = splat(factor, type.getDimSize(0));
                  each = product(each, factor);
                }
                Value first = mul(add(folds, which), segment);
                return body(first, add(first, segment), decayed);
              });
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

void GpuBounded::foldByTiles() {
  int64_t parts = valueSize / (8 * kPart);
  Value tilesOfRows = div(add(rowsHere, kTileRows - 1), kTileRows);
  loop(warp, mul(tilesOfRows, parts), index(warps), [&](Value unit) {
    Value first = add(mul(div(unit, parts), kTileRows), mul(laneRow, 2));
    foldTile(first, mul(rem(unit, parts), 8 * kPart));
  });
}

/// Two rows of a lane, of those of this block.
void GpuBounded::foldTile(Value first, Value column) {
  constexpr int64_t part = kPart;
  Type f32 = b.getF32Type();
  Value isThere = less(first, rowsHere);
  // Blocks have an even number of rows.
  first = minimum(first, sub(rowsHere, index(2)));
  Value rows[2], places[2], columns[2];
  for (int64_t i = 0; i < 2; ++i) {
    rows[i] = add(add(firstRow, first), i);
    places[i] = placeOfRow(first, i);
    columns[i] = add(column, mul(add(mul(lanePart, 2), i), part));
  }
  Value matrix = array("memory", memory.getElementType(), valueSize);
  Value sumsOfKeys = array("memory_keys", f32);
  Value isOld = less(index(0), folds), isFirst = equal(lanePart, index(0));
  Values old, before;
  for (int64_t i = 0; i < 4; ++i)
    old.push_back(select(isOld,
                         widened(matrix, {places[i / 2], columns[i % 2]}, part),
                         splat(number(0), part)));
  for (int64_t j = 0; j < part; ++j)
    before.push_back(fromElements({extract(old[0], j), extract(old[1], j),
                                   extract(old[2], j), extract(old[3], j)}));
  // Lanes of a row have the tokens of some columns each.
  for (Value place : places)
    before.push_back(
        select(both(isOld, isFirst), loadFloat(sumsOfKeys, place), number(0)));
  Value ownColumn = add(column, mul(laneRow, part));
  Value newest = newValues(ownColumn, part);
  Value newFeatures[2] = {featureOf({}, rows[0]), featureOf({}, rows[1])};
  Value values = array("value_pages", plan.valueType, valueSize);
  Values after = forSegments(
      before, [&](Value from, Value end, ValueRange carried) -> Values {
        return loop(
            from, end, index(kTileTokens), carried,
            [&](Value tile, ValueRange sums) -> Values {
              Value loaded[4], features[2][4];
              Value last =
                  sub(minimum(end, maximum(newestToken, index(1))), index(1));
              for (int64_t i = 0; i < 4; ++i) {
                Value token =
                    add(add(tile, mul(lanePart, 2)), i / 2 * 8 + i % 2);
                Value place = placeOfToken(minimum(token, last));
                Value isNew = equal(token, newestToken),
                      counts = less(token, end);
                loaded[i] =
                    select(isNew, newest,
                           loadVector(values, {place, ownColumn}, part));
                for (int64_t r = 0; r < 2; ++r) {
                  Value feature =
                      select(isNew, newFeatures[r], featureOf(place, rows[r]));
                  features[r][i] = select(counts, feature, number(0));
                }
              }
              Value a =
                  fromElements({features[0][0], features[0][1], features[1][0],
                                features[1][1], features[0][2], features[0][3],
                                features[1][2], features[1][3]});
              auto type = VectorType::get({8}, plan.valueType);
              Value upper = arith::TruncFOp::create(b, type, a);
              Value rest = arith::SubFOp::create(b, a, widen(upper));
              Value lower = arith::TruncFOp::create(b, type, rest);
              Values all(sums);
              for (int64_t j = 0; j < part; ++j) {
                int64_t pair[] = {j, part + j};
                Value rhs =
                    pick(pick(loaded[0], loaded[1], pair),
                         pick(loaded[2], loaded[3], pair), {0, 1, 2, 3});
                all[j] = multiplyTiles(upper, rhs, all[j]);
                all[j] = multiplyTiles(lower, rhs, all[j]);
              }
              for (int64_t r = 0; r < 2; ++r)
                for (Value feature : features[r])
                  all[part + r] = sum(all[part + r], feature);
              return all;
            });
      });
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t mask = 1; mask < 4; mask *= 2)
      after[part + r] = sum(after[part + r], exchange(after[part + r], mask));
  ifThen(isThere, [&] {
    for (int64_t i = 0; i < 4; ++i) {
      Values row;
      for (int64_t j = 0; j < part; ++j)
        row.push_back(extract(after[j], i));
      storeVector(fromElements(row), matrix, {places[i / 2], columns[i % 2]});
    }
    ifThen(both(isFirst, equal(column, index(0))), [&] {
      for (int64_t r = 0; r < 2; ++r)
        store(after[part + r], sumsOfKeys, places[r]);
    });
  });
}

//===----------------------------------------------------------------------===//
// Plain arithmetic
//===----------------------------------------------------------------------===//

void GpuBounded::foldByRows() {
  int64_t width = valueSize / kWarp;
  Type f32 = b.getF32Type();
  Value column = mul(lane, width), isOld = less(index(0), folds);
  Value matrix = array("memory", memory.getElementType(), valueSize);
  Value sumsOfKeys = array("memory_keys", f32);
  Value newest = widen(newValues(column, width));
  loop(mul(warp, kRows), rowsHere, index(warps * kRows), [&](Value at) {
    Values before, rows;
    for (int64_t j = 0; j < kRows; ++j) {
      rows.push_back(add(add(firstRow, at), j));
      before.push_back(
          select(isOld, widened(matrix, {placeOfRow(at, j), column}, width),
                 splat(number(0), width)));
    }
    for (int64_t j = 0; j < kRows; ++j)
      before.push_back(
          select(isOld, loadFloat(sumsOfKeys, placeOfRow(at, j)), number(0)));
    Values after = forSegments(
        before, [&](Value first, Value end, ValueRange carried) -> Values {
          return addTokens(rows, first, end, newest, carried);
        });
    for (int64_t j = 0; j < kRows; ++j)
      storeVector(after[j], matrix, {placeOfRow(at, j), column});
    ifThen(equal(lane, index(0)), [&] {
      for (int64_t j = 0; j < kRows; ++j)
        store(after[kRows + j], sumsOfKeys, placeOfRow(at, j));
    });
  });
}

/// To rows and their elements of z, some tokens at a time.
GpuAttention::Values GpuBounded::addTokens(ArrayRef<Value> rows, Value first,
                                           Value end, Value newest,
                                           ValueRange before) {
  int64_t width = valueSize / kWarp;
  Value values = array("value_pages", plan.valueType, valueSize);
  auto addOne = [&](Values &sums, Value value, ArrayRef<Value> features) {
    for (size_t j = 0; j < rows.size(); ++j) {
      sums[j] =
          vector::FMAOp::create(b, value, splat(features[j], width), sums[j]);
      sums[rows.size() + j] = sum(sums[rows.size() + j], features[j]);
    }
  };
  // The new token, which may be the last one, is not in the cache yet.
  Value last = minimum(end, newestToken);
  Values after = loop(
      first, last, index(kTokens), before,
      [&](Value from, ValueRange carried) -> Values {
        Values sums(carried), loaded, features;
        for (int64_t i = 0; i < kTokens; ++i) {
          Value token = add(from, i), isThere = less(token, last);
          Value place = placeOfToken(minimum(token, sub(last, index(1))));
          loaded.push_back(widened(values, {place, mul(lane, width)}, width));
          for (Value row : rows)
            features.push_back(
                select(isThere, featureOf(place, row), number(0)));
        }
        for (int64_t i = 0; i < kTokens; ++i)
          addOne(sums, loaded[i],
                 ArrayRef(features).slice(i * rows.size(), rows.size()));
        return sums;
      });
  return ifElse(
      less(last, end),
      [&]() -> Values {
        Values sums(after), features;
        for (Value row : rows)
          features.push_back(featureOf({}, row));
        addOne(sums, newest, features);
        return sums;
      },
      [&]() -> Values { return after; });
}
