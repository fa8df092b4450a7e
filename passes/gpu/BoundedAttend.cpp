//===- BoundedAttend.cpp - what a bounded cache holds, and its memory -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A warp of a block that has a part of the memory takes some of its rows, a
// lane some elements of each. A row is loaded, gets what leaves the cache, is
// stored, and is multiplied by the features of all queries, once.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

static int64_t elementsOfLoad(Type element) {
  constexpr int64_t bits = 128;
  return bits / element.getIntOrFloatBitWidth();
}

LogicalResult GpuBounded::buildAttend() {
  createEarlyKernel("_attend", warps * kWarp);
  declareTiles();
  Value sharedParts, sharedFeatures;
  int64_t group = plan.group();
  if (memory) {
    int64_t ofBlock = memory.getKeySize() / kBoundedMemoryBlocks;
    sharedParts = sharedArray("memory_part", b.getF32Type(),
                              {warps, group * (valueSize + 1)});
    sharedFeatures = sharedArray("features", b.getF32Type(), {group, ofBlock});
  }
  Value block = named("block", gpu::BlockIdOp::create(b, gpu::Dimension::x));
  Value task = named("task", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  rowNumber = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::z));
  waitForPrevious();
  Value ofRow = openToken();
  int64_t tasks = group / share;
  LogicalResult isLowered = success();
  ifThen(notLess(ofRow, index(0)), [&] {
    openCursor(ofRow, named("cache_head", div(task, tasks)));
    if (!memory)
      return attendPieces(block, task);
    ifThen(notLess(block, index(memoryBlocks())),
           [&] { attendPieces(sub(block, index(memoryBlocks())), task); });
    Value isTaken = both(less(block, index(memoryBlocks())),
                         equal(rem(task, tasks), index(0)));
    ifThen(isTaken,
           [&] { isLowered = readMemory(block, sharedParts, sharedFeatures); });
  });
  letNextStart();
  return isLowered;
}

/// The key and value of the token, into the entry that it takes.
void GpuBounded::appendToken() {
  Value place =
      add(mul(add(mul(slot, cacheHeads), cacheHead), capacity), newEntry);
  auto copy = [&](Value value, StringRef name, Type type, int64_t size) {
    Value token = tensor(value), to = array(name, type, size);
    int64_t width = elementsOfLoad(type);
    ifThen(less(thread, index(size / width)), [&] {
      Value at = mul(thread, width);
      storeVector(loadVector(token, {of, cacheHead, at}, width), to,
                  {place, at});
    });
  };
  copy(append.getValues()[0], "key_pages", plan.keyType, keySize);
  copy(append.getValues()[1], "value_pages", plan.valueType, valueSize);
}

void GpuBounded::attendPieces(Value block, Value task) {
  Value blocks =
      sub(gpu::GridDimOp::create(b, gpu::Dimension::x), index(memoryBlocks()));
  Value count =
      named("pieces", div(add(attended, kBoundedPiece - 1), kBoundedPiece));
  Value newKey = evict ? newEntry : sub(attended, index(1));
  Value newPiece =
      named("new_piece", div(maximum(newKey, index(0)), kBoundedPiece));
  firstHead = named("first_head", mul(task, share));
  Value firstPiece =
      mul(add(mul(rowNumber, tasksOfRow), task), scalar("pieces_of_task"));
  loop(block, count, blocks, [&](Value piece) {
    named("piece", piece);
    ifThen(equal(piece, newPiece), [&] { appendToken(); });
    begin = named("begin", mul(piece, kBoundedPiece));
    end = named("end", minimum(add(begin, kBoundedPiece), attended));
    from[0] = from[1] = begin;
    attendKeys(add(firstPiece, piece), of, firstHead);
  });
}

/// The token that leaves is there no more; what the others got is left for who
/// notes their weights.
void GpuBounded::maskScores(ArrayRef<Value> keysOfLane,
                            MutableArrayRef<Value> score) {
  if (!evict)
    return;
  for (int64_t i = 0; i < 4; ++i) {
    Value key = keysOfLane[i / 2];
    score[i] = select(equal(key, victim), number(-INFINITY), score[i]);
    if (!note)
      continue;
    Value ofHead = add(mul(lanePart, 2), i % 2);
    ifThen(both(less(key, attended), less(ofHead, index(share))), [&] {
      Value at = add(add(mul(rowNumber, heads), firstHead), ofHead);
      store(score[i], array("scores", b.getF32Type(), stride), {at, key});
    });
  }
}

//===----------------------------------------------------------------------===//
// The memory
//===----------------------------------------------------------------------===//

/// What each head of the group reads the rows of this block with.
LogicalResult GpuBounded::gatherFeatures(Value block, Value into) {
  int64_t ofBlock = memory.getKeySize() / kBoundedMemoryBlocks;
  Value query = recall ? recall.getQuery() : taylor.getQuery();
  LogicalResult isLowered = success();
  loop(thread, index(plan.group() * ofBlock), index(threads), [&](Value at) {
    Value ofHead = div(at, ofBlock), feature = rem(at, ofBlock);
    head = add(mul(cacheHead, plan.group()), ofHead);
    FailureOr<Value> value =
        element(query, {add(mul(block, ofBlock), feature)});
    isLowered = value;
    if (succeeded(value))
      store(*value, into, {ofHead, feature});
  });
  return isLowered;
}

FailureOr<GpuBounded::Values> GpuBounded::foldSegments(ArrayRef<Value> rows,
                                                       ValueRange old) {
  int64_t width = valueSize / kWarp;
  double decay = fold.getDecay().convertToDouble();
  Value feature = cast<YieldOp>(fold.getFeature().front().back()).getOperand(0);
  LogicalResult isLowered = success();
  Value values = array("value_pages", plan.valueType, valueSize);
  auto addToken = [&](Value token, ValueRange before) -> Values {
    Value entry = add(rem(token, capacity - sinks), sinks);
    keyRow = named("key_row", add(mul(cursorRow, capacity), entry));
    Value value = widened(values, {keyRow, mul(lane, width)}, width);
    Values after(before);
    for (auto [which, row] : llvm::enumerate(rows)) {
      FailureOr<Value> factor = element(feature, {row});
      if (failed(factor)) {
        isLowered = failure();
        return after;
      }
      after[which] =
          vector::FMAOp::create(b, value, splat(*factor, width), before[which]);
      after[rows.size() + which] = sum(before[rows.size() + which], *factor);
    }
    return after;
  };
  Values sums = loop(
      index(0), foldCount, index(1), old,
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
        return loop(first, add(first, segment), index(1), decayed, addToken);
      });
  if (failed(isLowered))
    return failure();
  return sums;
}

LogicalResult GpuBounded::readMemory(Value block, Value parts, Value features) {
  Type f32 = b.getF32Type();
  int64_t size = memory.getKeySize(), ofBlock = size / kBoundedMemoryBlocks;
  int64_t ofWarp = ofBlock / warps, width = valueSize / kWarp;
  int64_t group = plan.group();
  bool isRead = recall || taylor;
  Value zero = splat(number(0), width);
  Value hasOld = less(index(0), fold ? folds : evicted);
  Value hasNew = fold ? isFolding : notLess(victim, index(0));
  LogicalResult isLowered = success();
  ifThen(either(hasOld, hasNew), [&] {
    // A segment may hold the token itself.
    if (fold)
      ifThen(hasNew, [&] { appendToken(); });
    if (isRead)
      isLowered = gatherFeatures(block, features);
    barrier();
    Values rows, places;
    for (int64_t j = 0; j < ofWarp; ++j) {
      rows.push_back(add(add(mul(block, ofBlock), mul(warp, ofWarp)), j));
      places.push_back(add(mul(cursorRow, size), rows.back()));
    }
    Value matrix = array("memory", memory.getElementType(), valueSize);
    Value sumsOfKeys = fold ? array("memory_keys", f32) : Value();
    Value element = mul(lane, width);
    // What is there, if anything is, comes together.
    Values old = ifElse(
        hasOld,
        [&]() -> Values {
          Values loaded;
          for (Value place : places)
            loaded.push_back(widened(matrix, {place, element}, width));
          for (int64_t j = 0; fold && j < ofWarp; ++j)
            loaded.push_back(loadFloat(sumsOfKeys, places[j]));
          return loaded;
        },
        [&]() -> Values {
          Values none(static_cast<size_t>(ofWarp), zero);
          if (fold)
            none.append(static_cast<size_t>(ofWarp), number(0));
          return none;
        });
    Values next = ifElse(
        hasNew,
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
            Value leaving = add(
                mul(add(mul(slot, cacheHeads), cacheHead), capacity), victim);
            Value value =
                widened(array("value_pages", plan.valueType, valueSize),
                        {leaving, element}, width);
            Value keysOfCache = array("key_pages", plan.keyType, keySize);
            for (int64_t j = 0; j < ofWarp; ++j) {
              Value key = loadFloat(keysOfCache, {leaving, rows[j]});
              sums[j] =
                  vector::FMAOp::create(b, value, splat(key, width), sums[j]);
            }
          }
          // What is read is what is stored.
          for (int64_t j = 0; j < ofWarp; ++j) {
            if (!memory.getElementType().isF32()) {
              auto type = VectorType::get({width}, memory.getElementType());
              sums[j] = widen(arith::TruncFOp::create(b, type, sums[j]));
            }
            storeVector(sums[j], matrix, {places[j], element});
          }
          for (int64_t j = 0; fold && j < ofWarp; ++j)
            ifThen(equal(lane, index(0)),
                   [&] { store(sums[ofWarp + j], sumsOfKeys, places[j]); });
          return sums;
        },
        [&]() -> Values { return old; });
    if (!isRead)
      return;
    for (int64_t h = 0; h < group; ++h) {
      Value all = zero, divisor = number(0);
      for (int64_t j = 0; j < ofWarp; ++j) {
        Value factor =
            loadFloat(features, {index(h), add(mul(warp, ofWarp), j)});
        all = vector::FMAOp::create(b, next[j], splat(factor, width), all);
        if (fold)
          divisor = sum(divisor, product(factor, next[ofWarp + j]));
      }
      storeVector(all, parts, {warp, add(mul(lane, width), h * valueSize)});
      ifThen(equal(lane, index(0)), [&] {
        store(divisor, parts, {warp, index(group * valueSize + h)});
      });
    }
    barrier();
    Value place = add(
        mul(add(mul(rowNumber, cacheHeads), cacheHead), kBoundedMemoryBlocks),
        block);
    Value left = array("memory_parts", f32, group * (valueSize + 1));
    loop(thread, index(group * (valueSize + 1)), index(threads), [&](Value at) {
      Value all = loadFloat(parts, {index(0), at});
      for (int64_t other = 1; other < warps; ++other)
        all = sum(all, loadFloat(parts, {index(other), at}));
      store(all, left, {place, at});
    });
  });
  return isLowered;
}
