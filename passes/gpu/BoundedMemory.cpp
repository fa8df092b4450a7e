//===- BoundedMemory.cpp - the memory of a bounded attention --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes some rows of the matrix, a warp some of these, and a lane some
// elements of each. A row is loaded, of a Taylor memory gets what leaves the
// cache and is stored, and is multiplied by the features of all queries, once.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

/// Rows whose loads are on their way together.
static constexpr int64_t kRows = 4;

/// What each head of the group reads the memory with, as threads take it.
GpuAttention::Values GpuBounded::loadFeatures() {
  int64_t size = memory.getKeySize(), all = plan.group() * size;
  Value query = recall ? recall.getQuery() : taylor.getQuery();
  Values loaded;
  for (int64_t first = 0; first < all; first += threads) {
    Value at = minimum(add(thread, first), index(all - 1));
    local = div(at, size);
    head = add(mul(cacheHead, plan.group()), local);
    FailureOr<Value> value = element(query, {rem(at, size)});
    keep(value);
    loaded.push_back(succeeded(value) ? *value : number(0));
  }
  return loaded;
}

void GpuBounded::takeFeatures(ValueRange loaded) {
  int64_t size = memory.getKeySize(), all = plan.group() * size;
  for (auto [turn, value] : llvm::enumerate(loaded)) {
    Value at = add(thread, static_cast<int64_t>(turn) * threads);
    ifThen(less(at, index(all)), [&] {
      store(value, sharedFeatures, {div(at, size), rem(at, size)});
    });
  }
}

/// Those of this block.
void GpuBounded::takeRows() {
  rowsHere = named("rows_here", div(index(memory.getKeySize()), ranks));
  firstRow = named("first_row", mul(rank, rowsHere));
}

void GpuBounded::prefetchRows() {
  Type type = memory.getElementType();
  int64_t elements = kLineBits / type.getIntOrFloatBitWidth();
  int64_t lines = (valueSize + elements - 1) / elements;
  loop(thread, mul(rowsHere, lines), index(threads), [&](Value at) {
    prefetch(array("memory", type, valueSize),
             {placeOfRow(div(at, lines), 0), mul(rem(at, lines), elements)});
  });
}

/// Where a warp has rows that it loads one after another, they are asked for
/// all at once: behind the keys that are on their way, each waits for long.
void GpuBounded::prefetchLaterRows() {
  ifThen(less(index(warps * kRows), rowsHere), [&] { prefetchRows(); });
}

/// Of the rows of this block, some of a warp at once: what they were, and of a
/// Taylor memory what the token that leaves adds to them.
GpuAttention::Ahead GpuBounded::loadRows() {
  // Sizes are multiples of 32, and clusters have 8 blocks at the most.
  static_assert(kWarp / kMostBlocks == kRows);
  if (evict)
    leavingValue = loadLeavingValue();
  return startLoop(mul(warp, kRows), rowsHere, index(warps * kRows),
                   /*together=*/fold ? 1 : 2, [this](Value at) {
                     Values loaded = loadSomeRows(at);
                     for (int64_t j = 0; fold && j < kRows; ++j)
                       loaded.push_back(
                           loadFloat(array("memory_keys", b.getF32Type()),
                                     placeOfRow(at, j)));
                     return loaded;
                   });
}

GpuAttention::Values GpuBounded::loadSomeRows(Value at) {
  int64_t width = valueSize / kWarp;
  Value matrix = array("memory", memory.getElementType(), valueSize);
  Values loaded;
  for (int64_t j = 0; j < kRows; ++j)
    loaded.push_back(
        loadVector(matrix, {placeOfRow(at, j), mul(lane, width)}, width));
  return loaded;
}

/// A lane's part of it.
Value GpuBounded::loadLeavingValue() {
  int64_t width = valueSize / kWarp;
  Value leaving = add(mul(cursorRow, capacity), maximum(victim, index(0)));
  return loadVector(array("value_pages", plan.valueType, valueSize),
                    {leaving, mul(lane, width)}, width);
}

Value GpuBounded::placeOfRow(Value at, int64_t which) {
  return add(add(mul(cursorRow, memory.getKeySize()), add(firstRow, at)),
             which);
}

/// Rows as they are after this step; of a linear memory, their elements of z.
GpuAttention::Values GpuBounded::nextRows(Value at, ValueRange loaded) {
  Values rows = oldRows(loaded);
  if (fold)
    return rows;
  return ifElse(
      leaves,
      [&]() -> Values {
        Values sums = rowsWithLeaving(at, rows);
        ifThen(negate(keepsRows()), [&] { storeRows(at, sums); });
        return sums;
      },
      [&]() -> Values { return rows; });
}

GpuAttention::Values GpuBounded::oldRows(ValueRange loaded) {
  Values rows(loaded);
  for (int64_t j = 0; j < kRows; ++j)
    rows[j] = widen(rows[j]);
  if (fold)
    return rows;
  Value isOld = less(index(0), evicted);
  for (Value &row : rows)
    row = select(isOld, row, splat(number(0), valueSize / kWarp));
  return rows;
}

/// What is read is what is stored.
GpuAttention::Values GpuBounded::rowsWithLeaving(Value at, ValueRange rows) {
  int64_t width = valueSize / kWarp;
  Values sums(rows);
  for (int64_t j = 0; j < kRows; ++j) {
    Value key = loadFloat(sharedLeaving, add(add(firstRow, at), j));
    sums[j] = vector::FMAOp::create(b, widen(leavingValue), splat(key, width),
                                    sums[j]);
    if (!memory.getElementType().isF32()) {
      auto type = VectorType::get({width}, memory.getElementType());
      sums[j] = widen(arith::TruncFOp::create(b, type, sums[j]));
    }
  }
  return sums;
}

void GpuBounded::storeRows(Value at, ValueRange rows) {
  Value matrix = array("memory", memory.getElementType(), valueSize);
  for (int64_t j = 0; j < kRows; ++j)
    storeVector(rows[j], matrix,
                {placeOfRow(at, j), mul(lane, valueSize / kWarp)});
}

/// Whether a warp has few enough rows to write them when all else is written:
/// of several blocks, since sizes are multiples of 32.
Value GpuBounded::keepsRows() {
  if (!mayKeepRows())
    return arith::ConstantIntOp::create(b, 0, /*width=*/1);
  return notLess(index(warps * kRows), rowsHere);
}

/// Those that are still to be written, and the value that they get: threads
/// have no registers for them meanwhile.
GpuAttention::Values GpuBounded::loadRowsAgain() {
  if (!evict || !memory || !mayKeepRows())
    return {};
  auto load = [&] {
    Values loaded = loadSomeRows(mul(warp, kRows));
    loaded.push_back(loadLeavingValue());
    return loaded;
  };
  return ifElse(hasRowsToKeep(), load, [&] {
    int64_t width = valueSize / kWarp;
    auto zeros = [&](Type element) -> Value {
      auto type = VectorType::get({width}, element);
      return arith::ConstantOp::create(b, b.getZeroAttr(type));
    };
    Values none(kRows, zeros(memory.getElementType()));
    none.push_back(zeros(plan.valueType));
    return none;
  });
}

Value GpuBounded::hasRowsToKeep() {
  return both(both(leaves, keepsRows()), less(mul(warp, kRows), rowsHere));
}

void GpuBounded::keepRows(ValueRange loaded) {
  if (loaded.empty())
    return;
  Value at = mul(warp, kRows);
  leavingValue = loaded.back();
  ifThen(hasRowsToKeep(), [&] {
    storeRows(at, rowsWithLeaving(at, oldRows(loaded.drop_back())));
  });
}

/// Updates the matrix, and leaves what all heads read of this block's rows in
/// shared memory.
void GpuBounded::readMemory(const Ahead &ownRows) {
  int64_t width = valueSize / kWarp, group = plan.group();
  bool isRead = recall || taylor;
  Values inits;
  for (int64_t h = 0; isRead && h < group; ++h) {
    inits.push_back(splat(number(0), width));
    inits.push_back(number(0));
  }
  Values totals = finishLoop(
      ownRows, inits,
      [&](Value at, ValueRange loaded, ValueRange before) -> Values {
        Values after(before);
        Values next = nextRows(at, loaded);
        for (int64_t h = 0; isRead && h < group; ++h)
          for (int64_t j = 0; j < kRows; ++j) {
            Value row = add(add(firstRow, at), j);
            Value factor = loadFloat(sharedFeatures, {index(h), row});
            after[2 * h] = vector::FMAOp::create(
                b, next[j], splat(factor, width), after[2 * h]);
            if (fold)
              after[2 * h + 1] =
                  sum(after[2 * h + 1], product(factor, next[kRows + j]));
          }
        return after;
      });
  if (!isRead)
    return;
  // The warps' sums, in their order.
  for (int64_t turn = 0; turn < warps; ++turn) {
    ifThen(equal(warp, index(turn)), [&] {
      for (int64_t h = 0; h < group; ++h) {
        Value place = add(mul(lane, width), h * valueSize);
        Value all = totals[2 * h];
        if (turn)
          all = sum(all, loadVector(blockMemory, place, width));
        storeVector(all, blockMemory, place);
        if (!fold)
          continue;
        ifThen(equal(lane, index(0)), [&] {
          Value at = index(group * valueSize + h);
          Value divisor = totals[2 * h + 1];
          if (turn)
            divisor = sum(divisor, loadFloat(blockMemory, at));
          store(divisor, blockMemory, at);
        });
      }
    });
    barrier();
  }
}

void GpuBounded::declareMemory() {
  Type f32 = b.getF32Type();
  int64_t group = plan.group(), size = memory.getKeySize();
  blockMemory =
      sharedArray("memory_values", f32, {group * (valueSize + (fold ? 1 : 0))});
  sharedFeatures = sharedArray("features", f32, {group, size});
  sharedMemory = sharedArray("merged_memory", f32, {group, valueSize});
  if (fold)
    return;
  sharedNumbers = sharedArray("numbers", f32, {group, 3});
  sharedKeySums = sharedArray("key_sums", f32, {size});
  sharedValueSums = sharedArray("value_sums", f32, {valueSize});
  sharedSpread = sharedArray("spread", f32, {1});
  sharedLeaving = sharedArray("leaving_key", f32, {size});
}
