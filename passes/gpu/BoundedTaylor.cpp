//===- BoundedTaylor.cpp - the sums of a Taylor memory --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each block of a cluster has the sums with the token that leaves in its shared
// memory; the first one stores them when all have read what they were.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

/// What the sums of keys and values were, and the key and the value that leave,
/// as threads take them; and the spread.
GpuAttention::Values GpuBounded::loadSums() {
  Type f32 = b.getF32Type();
  Value leaving = add(mul(cursorRow, capacity), maximum(victim, index(0)));
  Values loaded{loadFloat(array("memory_spread", f32), cursorRow)};
  auto take = [&](StringRef name, StringRef cache, Type type, int64_t width) {
    for (int64_t first = 0; first < width; first += threads) {
      Value at = minimum(add(thread, first), index(width - 1));
      loaded.push_back(
          loadFloat(array(name, f32), add(mul(cursorRow, width), at)));
      loaded.push_back(loadFloat(array(cache, type, width), {leaving, at}));
    }
  };
  take("memory_keys", "key_pages", plan.keyType, memory.getKeySize());
  take("memory_values", "value_pages", plan.valueType, valueSize);
  return loaded;
}

/// The sums with the token that leaves.
void GpuBounded::updateTaylor(ValueRange loaded) {
  Value hasOld = less(index(0), evicted);
  oldSpread = select(hasOld, loaded.front(), number(0));
  size_t next = 1;
  auto update = [&](int64_t width, Value into, Value leaving) {
    for (int64_t first = 0; first < width; first += threads) {
      Value old = loaded[next++], its = loaded[next++];
      Value at = add(thread, first);
      ifThen(less(at, index(width)), [&] {
        store(
            sum(select(hasOld, old, number(0)), select(leaves, its, number(0))),
            into, at);
        if (leaving)
          store(its, leaving, at);
      });
    }
  };
  update(memory.getKeySize(), sharedKeySums, sharedLeaving);
  update(valueSize, sharedValueSums, {});
}

Value GpuBounded::asNumber(Value count) {
  Value narrow =
      arith::IndexCastOp::create(b, b.getI32Type(), maximum(count, index(1)));
  return arith::SIToFPOp::create(b, b.getF32Type(), narrow);
}

Value GpuBounded::shareOfOne(Value count) {
  return arith::DivFOp::create(b, number(1), asNumber(count));
}

/// The spread of the keys with the token that leaves (Welford), in each warp.
Value GpuBounded::updateSpread() {
  Value ofOld = shareOfOne(evicted), ofAll = shareOfOne(held);
  Value change =
      loop(lane, index(memory.getKeySize()), index(kWarp), number(0.0),
           [&](Value at, ValueRange carried) -> Values {
             Value key = loadFloat(sharedLeaving, at);
             Value all = loadFloat(sharedKeySums, at);
             Value before = arith::SubFOp::create(b, all, key);
             auto fromMean = [&](Value sums, Value share) -> Value {
               return arith::SubFOp::create(b, key, product(sums, share));
             };
             return {sum(carried[0], product(fromMean(before, ofOld),
                                             fromMean(all, ofAll)))};
           })
          .front();
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    change = sum(change, exchange(change, mask));
  Value isChanged = both(leaves, less(index(0), evicted));
  Value spread = sum(oldSpread, select(isChanged, change, number(0)));
  ifThen(equal(thread, index(0)),
         [&] { store(spread, sharedSpread, index(0)); });
  return spread;
}

/// Of each head: the score of the mean key, the number of tokens, and whether
/// the first order is within its range.
void GpuBounded::scoreMean(Value spread) {
  double scale = taylor.getScale().convertToDouble();
  double limit = taylor.getLimit().convertToDouble();
  Value share = shareOfOne(held);
  loop(warp, index(plan.group()), index(warps), [&](Value ofGroup) {
    Values all = loop(
        lane, index(memory.getKeySize()), index(kWarp), {number(0), number(0)},
        [&](Value at, ValueRange carried) -> Values {
          Value query = loadFloat(sharedFeatures, {ofGroup, at});
          return {sum(carried[0], product(query, loadFloat(sharedKeySums, at))),
                  sum(carried[1], product(query, query))};
        });
    for (int64_t mask = 1; mask < kWarp; mask *= 2)
      for (Value &each : all)
        each = sum(each, exchange(each, mask));
    ifThen(equal(lane, index(0)), [&] {
      Value score = product(product(all[0], share), number(scale));
      Value order = number(1);
      if (limit > 0) {
        Value reach = product(
            math::SqrtOp::create(b, product(all[1], product(spread, share))),
            number(std::abs(scale)));
        Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, reach,
                                            number(limit));
        order = select(isFar, number(0), order);
      }
      store(score, sharedNumbers, {ofGroup, index(0)});
      store(arith::DivFOp::create(b, number(1), share), sharedNumbers,
            {ofGroup, index(1)});
      store(order, sharedNumbers, {ofGroup, index(2)});
    });
  });
}

void GpuBounded::keepTaylor() {
  if (!memory)
    return;
  ifThen(both(equal(rank, index(0)), leaves), [&] {
    auto keep = [&](StringRef name, Value from, int64_t width) {
      Value stored = array(name, b.getF32Type());
      loop(thread, index(width), index(threads), [&](Value at) {
        store(loadFloat(from, at), stored, add(mul(cursorRow, width), at));
      });
    };
    keep("memory_keys", sharedKeySums, memory.getKeySize());
    keep("memory_values", sharedValueSums, valueSize);
    keep("memory_spread", sharedSpread, 1);
  });
}
