//===- BoundedPromptScores.cpp - what the last queries gave each token ----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// 64 keys stay in shared memory, and warps go through the queries of the
// window, 16 at a time: tokens by the heads that share a head of the cache, of
// which a token has a power of two. Products leave a lane two queries and 16
// keys, as those of AttentionPromptProducts.cpp do. Weights are computed twice:
// once to choose, and once more of those who stay, so that nothing is kept of
// all tokens but a number each.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedPrompts.h"

using namespace mlir;
using namespace ladle;

/// Queries of a tile that a token has, padding among them.
int64_t GpuBoundedPrompts::queriesOfToken() const {
  return kQueries / preferenceTokens(plan.group());
}

/// The first token of the prompt whose weights count.
Value GpuBoundedPrompts::firstOfWindow() {
  return window ? maximum(sub(count, index(window)), index(0)) : index(0);
}

/// Of a tile, to shared memory.
void GpuBoundedPrompts::copyKeys(llvm::function_ref<Value(Value)> placeOfKey) {
  int64_t width = elementsOfLoad(plan.keyType), chunks = keySize / width;
  loop(thread, index(kTileKeys * chunks), index(threads), [&](Value at) {
    Value keyRow = div(at, chunks), chunk = rem(at, chunks);
    copyChunk(/*isKey=*/true, placeOfKey(keyRow), mul(chunk, width),
              {keyRow, mul(swizzled(chunk, keyRow, /*isKey=*/true), width)});
  });
  Value copies = nvgpu::DeviceAsyncCreateGroupOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange());
  nvgpu::DeviceAsyncWaitOp::create(b, TypeRange(), copies,
                                   b.getI32IntegerAttr(0));
}

GpuAttention::Values GpuBoundedPrompts::candidatesOfLane(
    llvm::function_ref<Value(Value)> candidateOfKey) {
  Values candidates;
  for (int64_t i = 0; i < kLaneKeys; ++i)
    candidates.push_back(
        candidateOfKey(add(mul(lanePart, 2), i / 2 * 8 + i % 2)));
  return candidates;
}

/// Those of a tile: of tokens from one on, and heads of the group likewise.
/// Returns the logarithms of the sums of the two of a lane.
GpuAttention::Values GpuBoundedPrompts::openQueries(Value firstLocal,
                                                    int64_t firstHead) {
  int64_t group = plan.group(), ofToken = queriesOfToken();
  Values logSum;
  for (int64_t i = 0; i < 2; ++i) {
    Value query = add(laneRow, i * (kQueries / 2));
    Value local = add(firstLocal, div(query, ofToken));
    Value ofGroup = add(rem(query, ofToken), firstHead);
    isQuery[i] = both(less(local, count), less(ofGroup, index(group)));
    to[i] = select(isQuery[i], add(add(position, local), 1), index(0));
    tokenOf[i] = add(firstToken, minimum(local, sub(count, index(1))));
    headOf[i] = add(mul(cacheHead, group), minimum(ofGroup, index(group - 1)));
    logSum.push_back(loadFloat(array("query_sums", b.getF32Type(), heads),
                               {tokenOf[i], headOf[i]}));
  }
  return logSum;
}

GpuAttention::Values
GpuBoundedPrompts::weighTokens(Value firstLocal, ArrayRef<Value> candidates) {
  int64_t group = plan.group(), ofToken = queriesOfToken();
  bool isOne = ofToken == kQueries;
  double scale = plan.attends.front().getScale().convertToDouble() *
                 1.44269504088896340736;
  Values weights(static_cast<size_t>((isOne ? 1 : 2) * kLaneKeys), number(0));
  for (int64_t firstHead = 0; firstHead < group; firstHead += kQueries) {
    Values logSum = openQueries(firstLocal, firstHead);
    loadTileQueries();
    for (auto [column, scores] : llvm::enumerate(scoresOfTile(index(0)))) {
      Value scaled = product(scores, splat(number(scale), 4));
      for (int64_t e = 0; e < 4; ++e) {
        int64_t i = e / 2, key = static_cast<int64_t>(column) * 2 + e % 2;
        Value weight =
            exp2(arith::SubFOp::create(b, extract(scaled, e), logSum[i]));
        weight = select(less(candidates[key], to[i]), weight, number(0));
        Value &sums = weights[(isOne ? 0 : i) * kLaneKeys + key];
        sums = sum(sums, weight);
      }
    }
  }
  for (int64_t mask = 4; mask < 4 * std::min<int64_t>(ofToken, 8); mask *= 2)
    for (Value &weight : weights)
      weight = sum(weight, exchange(weight, mask));
  return weights;
}

//===----------------------------------------------------------------------===//
// Salience
//===----------------------------------------------------------------------===//

void GpuBoundedPrompts::buildScore() {
  createKernel("_score", kScoreWarps * kWarp, /*blocks=*/1);
  keys = sharedArray("keys", plan.keyType, {kTileKeys, keySize});
  tileSums = sharedArray("sums", b.getF32Type(), {2 * kScoreWarps, kTileKeys});
  openLanes();
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  cacheHead = named("cache_head", rem(block, cacheHeads));
  auto [rowAfter, tile] = findTile(
      div(block, cacheHeads), kTileKeys,
      [&](Value ofRow, Value tokens) { return add(tokens, heldOf(ofRow)); });
  ifThen(less(index(0), rowAfter), [&, tile = tile, rowAfter = rowAfter] {
    openPrompt(sub(rowAfter, index(1)));
    scoreTile(named("tile", tile));
  });
}

void GpuBoundedPrompts::scoreTile(Value tile) {
  Value firstKey = named("first_key", mul(tile, kTileKeys));
  inOrder = true;
  copyKeys([&](Value keyRow) {
    Value key = minimum(add(firstKey, keyRow), sub(all, index(1)));
    return rowOfKey(slot, key, cacheHead);
  });
  inOrder = false;
  Values candidates =
      candidatesOfLane([&](Value key) { return add(firstKey, key); });
  // Nobody ahead of these keys has seen them.
  Value first = maximum(firstOfWindow(), sub(firstKey, position));
  int64_t ofToken = queriesOfToken();
  int64_t tokens = kQueries / ofToken;
  Value turns = div(add(sub(count, first), tokens - 1), tokens);
  Values sums = loop(warp, turns, index(kScoreWarps),
                     Values(static_cast<size_t>(2 * kLaneKeys), number(0)),
                     [&](Value turn, ValueRange before) -> Values {
                       Values after(before);
                       Values weights = weighTokens(
                           add(first, mul(turn, tokens)), candidates);
                       for (auto [i, weight] : llvm::enumerate(weights)) {
                         size_t key = i % kLaneKeys;
                         after[key] = sum(after[key], weight);
                         Value &squares = after[kLaneKeys + key];
                         squares = sum(squares, product(weight, weight));
                       }
                       return after;
                     });
  for (int64_t mask = 4 * std::min<int64_t>(ofToken, 8); mask < kWarp;
       mask *= 2)
    for (Value &each : sums)
      each = sum(each, exchange(each, mask));
  ifThen(equal(laneRow, index(0)), [&] {
    for (auto [i, each] : llvm::enumerate(sums)) {
      auto key = static_cast<int64_t>(i) % kLaneKeys;
      store(each, tileSums,
            {add(mul(warp, 2), static_cast<int64_t>(i) / kLaneKeys),
             add(mul(lanePart, 2), key / 2 * 8 + key % 2)});
    }
  });
  barrier();
  ifThen(both(less(thread, index(kTileKeys)), less(add(firstKey, thread), all)),
         [&] { storeSalience(add(firstKey, thread), thread); });
}

/// Mean and variance over the queries of the window that a token has seen; or
/// the sum over all queries that ever were.
void GpuBoundedPrompts::storeSalience(Value candidate, Value key) {
  Value total = number(0), squares = number(0);
  for (int64_t each = 0; each < kScoreWarps; ++each) {
    total = sum(total, loadFloat(tileSums, {index(2 * each), key}));
    squares = sum(squares, loadFloat(tileSums, {index(2 * each + 1), key}));
  }
  Type f32 = b.getF32Type();
  Value salience;
  if (window) {
    Value seen = minimum(sub(all, candidate), minimum(count, index(window)));
    Value n = arith::SIToFPOp::create(
        b, f32, arith::IndexCastOp::create(b, b.getI32Type(), seen));
    Value ofOne = arith::DivFOp::create(b, number(1), n);
    Value mean = product(total, ofOne);
    Value variance =
        arith::SubFOp::create(b, product(squares, ofOne), product(mean, mean));
    salience =
        sum(mean, product(number(given.evict.getVariance().convertToDouble()),
                          larger(variance, number(0))));
  } else {
    Value isHeld = less(candidate, position);
    Value entry = select(isHeld, entryInOrder(candidate), index(0));
    Value old =
        loadFloat(array("weight_sums", f32, stride), {cursorRow, entry});
    salience = sum(total, select(isHeld, old, number(0)));
  }
  store(salience, array("salience", f32), placeOf(candidate));
}
