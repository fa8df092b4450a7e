//===- BoundedPromptKeep.cpp - what of a prompt stays, in the cache -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/BoundedPrompts.h"

#include <cmath>

using namespace mlir;
using namespace ladle;

/// Threads that sum up the weights of a key.
static constexpr int64_t kSumming = 4;

void GpuBoundedPrompts::buildKeep() {
  bool weighs = given.notes && window;
  createKernel("_keep", kScoreWarps * kWarp, /*blocks=*/1);
  if (weighs) {
    keys = sharedArray("keys", plan.keyType, {kTileKeys, keySize});
    windowSums =
        sharedArray("sums_of_window", b.getI32Type(), {kSumming, kTileKeys});
    windowSquares =
        sharedArray("squares_of_window", b.getI64Type(), {kSumming, kTileKeys});
  }
  openLanes();
  openHead(gpu::BlockIdOp::create(b, gpu::Dimension::x));
  Value first = named(
      "first", mul(gpu::BlockIdOp::create(b, gpu::Dimension::y), kTileKeys));
  ifThen(both(notLess(slot, index(0)), less(first, kept)),
         [&] { keepTile(first); });
}

void GpuBoundedPrompts::keepTile(Value first) {
  Type integer = b.getI32Type(), f32 = b.getF32Type();
  Value tokens = array("kept_tokens", integer, stride);
  Value entries = array("kept_entries", integer, stride);
  Value last = minimum(add(first, kTileKeys), kept);
  auto candidate = [&](Value place) { return load(tokens, {planRow, place}); };
  auto entry = [&](Value place) { return load(entries, {planRow, place}); };
  loop(add(first, thread), last, index(threads), [&](Value place) {
    Value of = candidate(place), at = entry(place);
    store(at, array("sequence", integer, stride), {cursorRow, place});
    ifThen(notLess(of, position), [&] {
      store(add(before, sub(of, position)),
            array("token_positions", integer, stride), {cursorRow, at});
    });
    if (given.notes && !window)
      store(loadFloat(array("salience", f32), placeOf(of)),
            array("weight_sums", f32, stride), {cursorRow, at});
  });
  auto copy = [&](Value token, StringRef pages, Type type, int64_t size) {
    Value from = tensor(token), into = array(pages, type, size);
    int64_t width = elementsOfLoad(type), chunks = size / width;
    loop(thread, mul(sub(last, first), chunks), index(threads), [&](Value at) {
      Value place = add(first, div(at, chunks));
      Value of = candidate(place), element = mul(rem(at, chunks), width);
      ifThen(notLess(of, position), [&] {
        Value ofCall = add(firstToken, sub(of, position));
        storeVector(loadVector(from, {ofCall, cacheHead, element}, width), into,
                    {rowOfEntry(entry(place)), element});
      });
    });
  };
  copy(given.append.getValues()[0], "key_pages", plan.keyType, keySize);
  copy(given.append.getValues()[1], "value_pages", plan.valueType, valueSize);
  if (memory)
    keepSpread();
  if (given.notes && window)
    keepWeights(first, entries, tokens);
}

/// The parts of all blocks of the fold, by one thread.
void GpuBoundedPrompts::keepSpread() {
  Value isOne =
      both(equal(gpu::BlockIdOp::create(b, gpu::Dimension::y), index(0)),
           equal(thread, index(0)));
  ifThen(both(isOne, less(index(0), leaving)), [&] {
    Type f32 = b.getF32Type();
    Value spread = array("memory_spread", f32);
    Value total = select(less(index(0), evicted), loadFloat(spread, cursorRow),
                         number(0));
    Value parts = array("spread_parts", f32, kSpreadParts);
    for (int64_t part = 0; part < keySize / kFoldRows; ++part)
      total = sum(total, loadFloat(parts, {planRow, index(part)}));
    store(total, spread, cursorRow);
  });
}

void GpuBoundedPrompts::keepWeights(Value first, Value entries, Value tokens) {
  auto placeIn = [&](Value key) {
    return minimum(add(first, key), sub(kept, index(1)));
  };
  auto candidate = [&](Value key) {
    return load(tokens, {planRow, placeIn(key)});
  };
  // Those of the prompt are still there, and may not have come to the cache.
  copyKeys([&](Value keyRow) {
    Value of = candidate(keyRow);
    return select(less(of, position),
                  rowOfEntry(load(entries, {planRow, placeIn(keyRow)})),
                  rowOfPrompt(sub(of, position)));
  });
  Values candidates = candidatesOfLane(candidate);
  int64_t ofToken = queriesOfToken();
  int64_t tokensOfTile = kQueries / ofToken;
  Value firstLocal = firstOfWindow();
  Value turns =
      div(add(sub(count, firstLocal), tokensOfTile - 1), tokensOfTile);
  Value weights = array("weights", b.getF16Type(), stride);
  loop(warp, turns, index(kScoreWarps), [&](Value turn) {
    Value ahead = mul(turn, tokensOfTile);
    Values all = weighTokens(add(firstLocal, ahead), candidates);
    Value isOne = equal(rem(laneRow, std::min<int64_t>(ofToken, 8)), index(0));
    for (size_t half = 0; half * kLaneKeys < all.size(); ++half) {
      Value query = add(laneRow, static_cast<int64_t>(half) * (kQueries / 2));
      Value ofWindow = add(ahead, div(query, ofToken));
      Value isThere = both(isOne, less(add(firstLocal, ofWindow), count));
      ifThen(isThere, [&] {
        Value weightRow = add(mul(cursorRow, window), ofWindow);
        for (int64_t i = 0; i < kLaneKeys; ++i) {
          Value key = add(mul(lanePart, 2), i / 2 * 8 + i % 2);
          ifThen(less(add(first, key), kept), [&] {
            Value stored = arith::TruncFOp::create(b, b.getF16Type(),
                                                   all[half * kLaneKeys + i]);
            memref::StoreOp::create(
                b, stored, weights,
                ValueRange{weightRow, load(entries, {planRow, placeIn(key)})});
          });
        }
      });
    }
  });
  barrier();
  sumWeights(first, entries);
}

/// As steps go on with them: exact sums of what is stored, in units.
void GpuBoundedPrompts::sumWeights(Value first, Value entries) {
  Type integer = b.getI32Type(), wide = b.getI64Type();
  auto zero = [&](Type type) -> Value {
    return arith::ConstantOp::create(b, b.getIntegerAttr(type, 0));
  };
  Value key = rem(thread, kTileKeys), which = div(thread, kTileKeys);
  Value place = add(first, key);
  Value isThere = less(place, kept);
  Value entry = load(entries, {planRow, minimum(place, sub(kept, index(1)))});
  Value weights = array("weights", b.getF16Type(), stride);
  double ofOne =
      std::ldexp(1.0, static_cast<int>(windowBits(plan.group(), window)));
  Value last = select(isThere, minimum(count, index(window)), index(0));
  Values mine = loop(
      which, last, index(kSumming), {zero(integer), zero(wide)},
      [&](Value query, ValueRange before) -> Values {
        Value weight =
            loadFloat(weights, {add(mul(cursorRow, window), query), entry});
        Value units =
            arith::FPToSIOp::create(b, integer, product(weight, number(ofOne)));
        Value one = arith::ExtUIOp::create(b, wide, units);
        Value square = arith::MulIOp::create(b, one, one);
        return {arith::AddIOp::create(b, before[0], units),
                arith::AddIOp::create(b, before[1], square)};
      });
  memref::StoreOp::create(b, mine[0], windowSums, ValueRange{which, key});
  memref::StoreOp::create(b, mine[1], windowSquares, ValueRange{which, key});
  barrier();
  ifThen(both(isThere, equal(which, index(0))), [&] {
    for (auto [parts, name] : {std::pair(windowSums, "window_sums"),
                               std::pair(windowSquares, "window_squares")}) {
      Type type = cast<MemRefType>(parts.getType()).getElementType();
      Value total = zero(type);
      for (int64_t each = 0; each < kSumming; ++each) {
        Value its =
            memref::LoadOp::create(b, parts, ValueRange{index(each), key});
        total = arith::AddIOp::create(b, total, its);
      }
      memref::StoreOp::create(b, total, array(name, type, stride),
                              ValueRange{cursorRow, entry});
    }
  });
}
