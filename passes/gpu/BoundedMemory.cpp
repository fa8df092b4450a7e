//===- BoundedMemory.cpp - the memory of a bounded attention --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A warp takes some rows of the matrix, a lane some elements of each. A row is
// loaded, gets what leaves the cache, is stored, and is multiplied by the
// features of all queries, once.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

/// Rows, and tokens of a segment, whose loads are on their way together.
static constexpr int64_t kRows = 4, kTokens = 4;
/// Warps whose sums stand in shared memory side by side.
static constexpr int64_t kParts = 4;

/// What each head of the group reads the memory with.
LogicalResult GpuBounded::gatherFeatures() {
  int64_t size = memory.getKeySize();
  Value query = recall ? recall.getQuery() : taylor.getQuery();
  LogicalResult isLowered = success();
  loop(thread, index(plan.group() * size), index(threads), [&](Value at) {
    local = div(at, size);
    head = add(mul(cacheHead, plan.group()), local);
    FailureOr<Value> value = element(query, {rem(at, size)});
    isLowered = value;
    if (succeeded(value))
      store(*value, sharedFeatures, {local, rem(at, size)});
  });
  return isLowered;
}

/// Rows of the memory, and their elements of z, after the folds of segments.
FailureOr<GpuBounded::Values> GpuBounded::foldSegments(ArrayRef<Value> rows,
                                                       ValueRange old) {
  int64_t width = valueSize / kWarp;
  double decay = fold.getDecay().convertToDouble();
  Value feature = cast<YieldOp>(fold.getFeature().front().back()).getOperand(0);
  LogicalResult isLowered = success();
  Value values = array("value_pages", plan.valueType, valueSize);
  auto addTokens = [&](Value first, Value last, ValueRange before) -> Values {
    Values after(before), places, loaded;
    for (int64_t i = 0; i < kTokens; ++i) {
      Value token = minimum(add(first, i), sub(last, index(1)));
      Value entry = add(rem(token, capacity - sinks), sinks);
      places.push_back(add(mul(cursorRow, capacity), entry));
      loaded.push_back(
          widened(values, {places.back(), mul(lane, width)}, width));
    }
    Values factors;
    for (int64_t i = 0; i < kTokens; ++i)
      for (Value row : rows) {
        keyRow = places[i];
        FailureOr<Value> factor = element(feature, {row});
        if (failed(factor)) {
          isLowered = failure();
          return after;
        }
        Value isThere = less(add(first, i), last);
        factors.push_back(select(isThere, *factor, number(0)));
      }
    for (int64_t i = 0; i < kTokens; ++i)
      for (size_t j = 0; j < rows.size(); ++j) {
        Value factor = factors[i * rows.size() + j];
        after[j] =
            vector::FMAOp::create(b, loaded[i], splat(factor, width), after[j]);
        after[rows.size() + j] = sum(after[rows.size() + j], factor);
      }
    return after;
  };
  Values sums =
      loop(index(0), foldCount, index(1), old,
           [&](Value which, ValueRange before) -> Values {
             Values decayed(before);
             for (Value &each : decayed) {
               if (decay == 1)
                 break;
               bool isVector = isa<VectorType>(each.getType());
               Value factor = number(decay);
               each = product(each, isVector ? splat(factor, width) : factor);
             }
             Value first = mul(add(folds, which), segment);
             Value last = add(first, segment);
             return loop(first, last, index(kTokens), decayed,
                         [&](Value token, ValueRange carried) {
                           return addTokens(token, last, carried);
                         });
           });
  if (failed(isLowered))
    return failure();
  return sums;
}

/// Rows as they are after this step.
FailureOr<GpuBounded::Values> GpuBounded::nextRows(ArrayRef<Value> rows) {
  int64_t width = valueSize / kWarp, size = memory.getKeySize();
  auto count = static_cast<int64_t>(rows.size());
  Value matrix = array("memory", memory.getElementType(), valueSize);
  Value sumsOfKeys = fold ? array("memory_keys", b.getF32Type()) : Value();
  Value at = mul(lane, width);
  Values places;
  for (Value row : rows)
    places.push_back(add(mul(cursorRow, size), row));
  Values old = ifElse(
      less(index(0), fold ? folds : evicted),
      [&]() -> Values {
        Values loaded;
        for (Value place : places)
          loaded.push_back(widened(matrix, {place, at}, width));
        for (int64_t j = 0; fold && j < count; ++j)
          loaded.push_back(loadFloat(sumsOfKeys, places[j]));
        return loaded;
      },
      [&]() -> Values {
        Values none(rows.size(), splat(number(0), width));
        if (fold)
          none.append(rows.size(), number(0));
        return none;
      });
  LogicalResult isLowered = success();
  Values next = ifElse(
      leaves,
      [&]() -> Values {
        Values sums(old);
        if (fold) {
          FailureOr<Values> folded = foldSegments(rows, old);
          if (failed(folded)) {
            isLowered = failure();
            return sums;
          }
          sums = *folded;
        } else {
          Value leaving = add(mul(cursorRow, capacity), victim);
          Value value = widened(array("value_pages", plan.valueType, valueSize),
                                {leaving, at}, width);
          Value keysOfCache = array("key_pages", plan.keyType, keySize);
          for (int64_t j = 0; j < count; ++j) {
            Value key = loadFloat(keysOfCache, {leaving, rows[j]});
            sums[j] =
                vector::FMAOp::create(b, value, splat(key, width), sums[j]);
          }
        }
        // What is read is what is stored.
        for (int64_t j = 0; j < count; ++j) {
          if (!memory.getElementType().isF32()) {
            auto type = VectorType::get({width}, memory.getElementType());
            sums[j] = widen(arith::TruncFOp::create(b, type, sums[j]));
          }
          storeVector(sums[j], matrix, {places[j], at});
        }
        for (int64_t j = 0; fold && j < count; ++j)
          ifThen(equal(lane, index(0)),
                 [&] { store(sums[count + j], sumsOfKeys, places[j]); });
        return sums;
      },
      [&]() -> Values { return old; });
  if (failed(isLowered))
    return failure();
  return next;
}

/// Updates the matrix, and leaves what all heads read of it in shared memory.
LogicalResult GpuBounded::readMemory() {
  int64_t size = memory.getKeySize(), width = valueSize / kWarp;
  int64_t warpCount = threads / kWarp, group = plan.group();
  int64_t ofWarp = (size + warpCount - 1) / warpCount;
  int64_t together = std::min(kRows, ofWarp);
  while (ofWarp % together != 0)
    --together;
  bool isRead = recall || taylor;
  LogicalResult isLowered = isRead ? gatherFeatures() : success();
  barrier();
  Values inits;
  for (int64_t h = 0; isRead && h < group; ++h) {
    inits.push_back(splat(number(0), width));
    inits.push_back(number(0));
  }
  Value first = mul(warp, ofWarp);
  Value last = minimum(add(first, ofWarp), index(size));
  Values totals = loop(
      first, last, index(together), inits,
      [&](Value row, ValueRange before) -> Values {
        Values rows, after(before);
        for (int64_t j = 0; j < together; ++j)
          rows.push_back(add(row, j));
        FailureOr<Values> next = nextRows(rows);
        if (failed(next)) {
          isLowered = failure();
          return after;
        }
        for (int64_t h = 0; isRead && h < group; ++h)
          for (int64_t j = 0; j < together; ++j) {
            Value factor = loadFloat(sharedFeatures, {index(h), rows[j]});
            after[2 * h] = vector::FMAOp::create(
                b, (*next)[j], splat(factor, width), after[2 * h]);
            if (fold)
              after[2 * h + 1] =
                  sum(after[2 * h + 1], product(factor, (*next)[together + j]));
          }
        return after;
      });
  if (failed(isLowered) || !isRead)
    return isLowered;
  // The warps' sums, a few at a time, in their order.
  Value part = rem(warp, index(kParts)), turnOfWarp = div(warp, kParts);
  for (int64_t turn = 0; turn * kParts < warpCount; ++turn) {
    ifThen(equal(turnOfWarp, index(turn)), [&] {
      for (int64_t h = 0; h < group; ++h) {
        Value place = add(mul(lane, width), h * valueSize);
        Value all = totals[2 * h];
        if (turn)
          all = sum(all, loadVector(sharedParts, {part, place}, width));
        storeVector(all, sharedParts, {part, place});
        if (!fold)
          continue;
        ifThen(equal(lane, index(0)), [&] {
          Value at = index(group * valueSize + h);
          Value divisor = totals[2 * h + 1];
          if (turn)
            divisor = sum(divisor, loadFloat(sharedParts, {part, at}));
          store(divisor, sharedParts, {part, at});
        });
      }
    });
    barrier();
  }
  return success();
}

Value GpuBounded::partsOfMemory(Value at) {
  Value all = loadFloat(sharedParts, {index(0), at});
  for (int64_t other = 1; other < std::min(kParts, threads / kWarp); ++other)
    all = sum(all, loadFloat(sharedParts, {index(other), at}));
  return all;
}

void GpuBounded::declareMemory() {
  Type f32 = b.getF32Type();
  int64_t group = plan.group(), size = memory.getKeySize();
  sharedMemory = sharedArray("memory_values", f32, {group, valueSize});
  sharedFeatures = sharedArray("features", f32, {group, size});
  sharedParts =
      sharedArray("memory_parts", f32, {kParts, group * (valueSize + 1)});
  if (fold)
    return;
  sharedNumbers = sharedArray("numbers", f32, {group, 3});
  sharedKeySums = sharedArray("key_sums", f32, {size});
  sharedValueSums = sharedArray("value_sums", f32, {valueSize});
  spreadNow = sharedArray("spread", f32, {1});
}
