//===- BoundedFinish.cpp - the answer of a bounded attention --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes a head of the cache of a row, and all heads of the query that
// share it.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = kBoundedThreads,
                         kWarps = kBoundedThreads / 32;

LogicalResult GpuBounded::buildFinish() {
  int64_t group = plan.group();
  // Two blocks of a multiprocessor wait in turns, where registers suffice: a
  // fold has tokens and rows in them.
  bool isSmall = group * valueSize <= 512 && !fold;
  createEarlyKernel("_finish", kThreads, isSmall ? 2 : 1);
  materialized.clear();
  Type f32 = b.getF32Type();
  sharedMosts = sharedArray("mosts", f32, {group});
  sharedSums = sharedArray("sums", f32, {group});
  sharedValues = sharedArray("values", f32, {group, valueSize});
  if (memory)
    declareMemory();
  if (evict)
    declareEviction();
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  Value ofHead =
      named("cache_head", gpu::BlockIdOp::create(b, gpu::Dimension::x));
  rowNumber = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  letNextStart();
  waitForPrevious();
  Value ofRow = openToken();
  LogicalResult isLowered = success();
  cacheHead = ofHead;
  // Padding is answered by zeros.
  ifThen(both(isToken, less(ofRow, index(0))), [&] {
    isLowered = storeOutput(
        [&](Value, Value) -> FailureOr<Value> { return number(0); });
  });
  ifThen(notLess(ofRow, index(0)), [&] {
    openCursor(ofRow, ofHead);
    leaves = evict ? notLess(victim, index(0)) : isFolding;
    held = fold ? nextFolds : add(evicted, select(leaves, index(1), index(0)));
    mergePieces();
    if (memory)
      ifThen(less(index(0), held), [&] {
        isLowered = readMemory();
        if (evict && succeeded(isLowered))
          isLowered = updateTaylor();
      });
    barrier();
    if (recall)
      mergeRecalled();
    if (taylor)
      mergeTaylor();
    if (recall || taylor)
      barrier();
    if (succeeded(isLowered))
      isLowered = answer();
    if (evict)
      chooseNext();
    moveCursor();
  });
  return isLowered;
}

/// The pieces of each head, in their order, by a warp.
void GpuBounded::mergePieces() {
  int64_t width = valueSize / kWarp, group = plan.group();
  Value count =
      named("pieces", div(add(attended, kBoundedPiece - 1), kBoundedPiece));
  loop(warp, index(group), index(kWarps), [&](Value ofGroup) {
    Value task = add(mul(cacheHead, group / share), div(ofGroup, share));
    Value first =
        mul(add(mul(rowNumber, tasksOfRow), task), scalar("pieces_of_task"));
    Summary all = mergeRange(first, add(first, count), index(kPiecesAtOnce),
                             rem(ofGroup, share));
    storeVector(all.values, sharedValues, {ofGroup, mul(lane, width)});
    ifThen(equal(lane, index(0)), [&] {
      store(all.most, sharedMosts, ofGroup);
      store(all.sum, sharedSums, ofGroup);
    });
  });
}

//===----------------------------------------------------------------------===//
// Memories
//===----------------------------------------------------------------------===//

void GpuBounded::mergeRecalled() {
  int64_t all = plan.group() * valueSize;
  loop(thread, index(all), index(kThreads), [&](Value at) {
    Value ofGroup = div(at, valueSize);
    Values value = ifElse(
        less(index(0), held),
        [&]() -> Values {
          Value divisor = partsOfMemory(add(ofGroup, all));
          Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                                divisor, number(0));
          return {arith::DivFOp::create(b, partsOfMemory(at),
                                        select(isEmpty, number(1), divisor))};
        },
        [&]() -> Values { return {number(0)}; });
    store(value[0], sharedMemory, {ofGroup, rem(at, valueSize)});
  });
}

/// The sums and the spread of the keys, with the token that leaves (Welford).
LogicalResult GpuBounded::updateTaylor() {
  Type f32 = b.getF32Type();
  int64_t size = memory.getKeySize();
  Value leaving = add(mul(cursorRow, capacity), maximum(victim, index(0)));
  Value hasOld = less(index(0), evicted);
  auto count = [&](Value integer) {
    Value narrow = arith::IndexCastOp::create(b, b.getI32Type(), integer);
    return arith::SIToFPOp::create(b, f32, narrow).getResult();
  };
  Value ofOld = count(maximum(evicted, index(1)));
  Value ofAll = count(maximum(held, index(1)));
  auto update = [&](StringRef name, StringRef cache, Type type, int64_t width,
                    Value into) {
    Value stored = array(name, f32);
    Value from = array(cache, type, width);
    loop(thread, index(width), index(kThreads), [&](Value at) {
      Value place = add(mul(cursorRow, width), at);
      Values old = ifElse(
          hasOld, [&]() -> Values { return {loadFloat(stored, place)}; },
          [&]() -> Values { return {number(0)}; });
      Values next = ifElse(
          leaves,
          [&]() -> Values {
            Value sums = sum(old[0], loadFloat(from, {leaving, at}));
            store(sums, stored, place);
            return {sums};
          },
          [&]() -> Values { return {old[0]}; });
      store(next[0], into, at);
    });
  };
  update("memory_keys", "key_pages", plan.keyType, size, sharedKeySums);
  update("memory_values", "value_pages", plan.valueType, valueSize,
         sharedValueSums);
  barrier();
  ifThen(equal(warp, index(0)), [&] {
    Value spreads = array("memory_spread", f32);
    Values old = ifElse(
        hasOld, [&]() -> Values { return {loadFloat(spreads, cursorRow)}; },
        [&]() -> Values { return {number(0)}; });
    Values next = ifElse(
        both(hasOld, leaves),
        [&]() -> Values {
          Value keysOfCache = array("key_pages", plan.keyType, keySize);
          Value change =
              loop(lane, index(size), index(kWarp), number(0.0),
                   [&](Value at, ValueRange carried) -> Values {
                     Value key = loadFloat(keysOfCache, {leaving, at});
                     Value all = loadFloat(sharedKeySums, at);
                     auto fromMean = [&](Value sums, Value n) -> Value {
                       Value mean = arith::DivFOp::create(b, sums, n);
                       return arith::SubFOp::create(b, key, mean);
                     };
                     Value earlier = arith::SubFOp::create(b, all, key);
                     return {sum(carried[0], product(fromMean(earlier, ofOld),
                                                     fromMean(all, ofAll)))};
                   })
                  .front();
          for (int64_t mask = 1; mask < kWarp; mask *= 2)
            change = sum(change, exchange(change, mask));
          return {sum(old[0], change)};
        },
        [&]() -> Values { return {old[0]}; });
    ifThen(equal(lane, index(0)), [&] {
      store(next[0], spreadNow, index(0));
      ifThen(leaves, [&] { store(next[0], spreads, cursorRow); });
    });
  });
  if (!taylor)
    return success();

  // Of each head: the score of the mean key, the number of tokens, and whether
  // the first order is within its range.
  barrier();
  double scale = taylor.getScale().convertToDouble();
  double limit = taylor.getLimit().convertToDouble();
  LogicalResult isLowered = success();
  loop(warp, index(plan.group()), index(kWarps), [&](Value ofGroup) {
    local = ofGroup;
    head = add(mul(cacheHead, plan.group()), ofGroup);
    Values all =
        loop(lane, index(size), index(kWarp), {number(0), number(0)},
             [&](Value at, ValueRange carried) -> Values {
               FailureOr<Value> query = element(taylor.getQuery(), {at});
               isLowered = query;
               if (failed(query))
                 return Values(carried);
               return {sum(carried[0],
                           product(*query, loadFloat(sharedKeySums, at))),
                       sum(carried[1], product(*query, *query))};
             });
    for (int64_t mask = 1; mask < kWarp; mask *= 2)
      for (Value &each : all)
        each = sum(each, exchange(each, mask));
    ifThen(equal(lane, index(0)), [&] {
      Value mean = arith::DivFOp::create(b, all[0], ofAll);
      Value score = product(mean, number(scale));
      Value order = number(1);
      if (limit > 0) {
        Value spread =
            arith::DivFOp::create(b, loadFloat(spreadNow, index(0)), ofAll);
        Value reach = product(math::SqrtOp::create(b, product(all[1], spread)),
                              number(std::abs(scale)));
        Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, reach,
                                            number(limit));
        order = select(isFar, number(0), order);
      }
      store(score, sharedNumbers, {ofGroup, index(0)});
      store(ofAll, sharedNumbers, {ofGroup, index(1)});
      store(order, sharedNumbers, {ofGroup, index(2)});
    });
  });
  return isLowered;
}

void GpuBounded::mergeTaylor() {
  double scale = taylor.getScale().convertToDouble();
  loop(thread, index(plan.group() * valueSize), index(kThreads), [&](Value at) {
    Value ofGroup = div(at, valueSize), element = rem(at, valueSize);
    Values value = ifElse(
        less(index(0), held),
        [&]() -> Values {
          Value score = loadFloat(sharedNumbers, {ofGroup, index(0)});
          Value order = loadFloat(sharedNumbers, {ofGroup, index(2)});
          Value weight =
              arith::SubFOp::create(b, number(1), product(order, score));
          Value first =
              product(product(order, number(scale)), partsOfMemory(at));
          return {
              sum(product(weight, loadFloat(sharedValueSums, element)), first)};
        },
        [&]() -> Values {
          // An empty summary.
          ifThen(equal(element, index(0)), [&] {
            store(number(-INFINITY), sharedNumbers, {ofGroup, index(0)});
            store(number(0), sharedNumbers, {ofGroup, index(1)});
          });
          return {number(0)};
        });
    store(value[0], sharedMemory, {ofGroup, element});
  });
}

//===----------------------------------------------------------------------===//
// The end of a step
//===----------------------------------------------------------------------===//

LogicalResult GpuBounded::storeOutput(
    llvm::function_ref<FailureOr<Value>(Value local, Value at)> element) {
  Value output = outputMemory();
  Type type = plan.output.getElementType();
  int64_t size = plan.output.getDimSize(1);
  LogicalResult isLowered = success();
  loop(thread, index(plan.group() * size), index(kThreads), [&](Value at) {
    Value ofGroup = div(at, size), place = rem(at, size);
    FailureOr<Value> value = element(ofGroup, place);
    isLowered = value;
    if (failed(value))
      return;
    Value stored = *value;
    if (stored.getType() != type)
      stored = arith::TruncFOp::create(b, type, stored);
    memref::StoreOp::create(
        b, stored, output,
        ValueRange{of, add(mul(cacheHead, plan.group()), ofGroup), place});
  });
  return isLowered;
}

LogicalResult GpuBounded::answer() {
  Value given = step.getYield().getValues().front();
  if (failed(materialize(given)))
    return failure();
  return storeOutput([&](Value ofGroup, Value at) {
    local = ofGroup;
    head = add(mul(cacheHead, plan.group()), ofGroup);
    return element(given, {at});
  });
}

void GpuBounded::moveCursor() {
  ifThen(equal(thread, index(0)), [&] {
    Value cursors = array("cursors", b.getI32Type(), kBoundedNumbers);
    auto keep = [&](BoundedNumber which, Value value) {
      store(value, cursors, {cursorRow, index(static_cast<int64_t>(which))});
    };
    keep(BoundedNumber::Length, add(position, 1));
    if (fold)
      return keep(BoundedNumber::Folds, nextFolds);
    keep(BoundedNumber::Count, kept);
    keep(BoundedNumber::Spare, select(leaves, victim, budget));
    keep(BoundedNumber::Seen, add(seen, 1));
    keep(BoundedNumber::Evicted, held);
    keep(BoundedNumber::Victim, nextVictim);
    store(position, array("token_positions", b.getI32Type(), stride),
          {cursorRow, newEntry});
  });
}
