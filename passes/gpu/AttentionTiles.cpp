//===- AttentionTiles.cpp - tiles of keys and values ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A tile is 16 keys and values of a warp, which come to shared memory several
// tiles ahead; no warp waits for another's. Where they are is looked up
// one tile before they are asked for. A thread 4 g + t of a warp has the scores
// of keys g and g + 8 for heads 2 t and 2 t + 1: what a product of tiles leaves
// it.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/KernelInfo.h"

#include <cmath>

using namespace mlir;
using namespace ladle;

static int64_t bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

int64_t GpuAttention::bytesOfTiles() const {
  int64_t keyBytes =
      keySize * bytesOf(plan.keyType) + valueSize * bytesOf(plan.valueType);
  int64_t tile = warps * kTileKeys * (stages * (keyBytes + 4) + 4);
  int64_t queryBytes = multiplies ? 0 : warps * kTileHeads * keySize * 4;
  int64_t numbers = takesFewRows() && plan.find ? fewNumbers() : 0;
  return tile + queryBytes + 4 * numbers;
}

void GpuAttention::chooseTiles() {
  // Two blocks at once: eight warps that wait for different things.
  int64_t most = 110 << 10;
  if (shared)
    most = std::min(most, shared);
  constexpr int64_t spare = 1 << 10;
  most -= spare;
  stages = 3;
  for (warps = 4; bytesOfTiles() > most && warps > 1;)
    warps /= 2;
  if (bytesOfTiles() > most)
    stages = 2;
}

void GpuAttention::declareTiles() {
  Type f32 = b.getF32Type(), integer = b.getI32Type();
  int64_t tileKeys = kTileKeys * warps;
  keys = sharedArray("keys", plan.keyType, {stages * tileKeys, keySize});
  values =
      sharedArray("values", plan.valueType, {stages * tileKeys, valueSize});
  places = sharedArray("places", integer, {stages + 1, tileKeys});
  if (!multiplies)
    queries = sharedArray("queries", f32, {warps * kTileHeads, keySize});
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  laneRow = named("g", div(lane, 4));
  lanePart = named("t", rem(lane, 4));
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Where a key of a tile is; behind the last one it is the last again, with a
/// weight of 0.
Value GpuAttention::lookUp(const Keys &of, Value firstKey) {
  Value key = add(firstKey, rem(lane, kTileKeys));
  return rowOfKey(of.slot, minimum(key, sub(of.end, index(1))), of.cacheHead);
}

void GpuAttention::keepPlace(Value tile, Value place) {
  ifThen(less(lane, index(kTileKeys)), [&] {
    store(place, places,
          {rem(tile, stages + 1), add(mul(warp, kTileKeys), lane)});
  });
}

/// Rows of shared memory that lanes read together are in different banks.
Value GpuAttention::swizzled(Value chunk, Value row, bool isKey) {
  constexpr int64_t banks = 8, chunkBytes = 16;
  Type type = isKey ? plan.keyType : plan.valueType;
  int64_t size = isKey ? keySize : valueSize;
  if (!multiplies || size * bytesOf(type) / chunkBytes % banks != 0)
    return chunk;
  Value mask = isKey ? mul(rem(row, 2), 4) : mul(rem(div(row, 2), 4), 2);
  return arith::XOrIOp::create(b, chunk, mask);
}

/// Waits name a group of copies, whatever group: one that is there for all.
void GpuAttention::openCopies() {
  copies = nvgpu::DeviceAsyncCreateGroupOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange());
}

/// What is started in a branch is a group where the branch is taken alone.
void GpuAttention::ifThenStart(Value condition,
                               llvm::function_ref<void()> body) {
  Value before = copies;
  ifThen(condition, body);
  copies = before;
}

/// The keys of a tile, or its values: they are asked for again as soon as they
/// have been multiplied.
void GpuAttention::startTile(Value tile, Value isThere, bool isKey) {
  Type type = isKey ? plan.keyType : plan.valueType;
  int64_t size = isKey ? keySize : valueSize;
  int64_t width = elementsOfLoad(type), chunks = size / width;
  Value from = array(isKey ? "key_pages" : "value_pages", type, size);
  Value firstRow = mul(warp, kTileKeys);
  Value tileRow = add(mul(rem(tile, stages), kTileKeys * warps), firstRow);
  Value ring = rem(tile, stages + 1);
  // Where a warp copies whole rows at once, a lane copies the same part of all.
  bool isWhole = kWarp % chunks == 0;
  ifThen(isThere, [&] {
    loop(
        index(0), index(kTileKeys * chunks / kWarp), index(1),
        [&](Value i) {
          Value at = add(mul(i, kWarp), lane);
          Value row = isWhole ? add(mul(i, kWarp / chunks), div(lane, chunks))
                              : div(at, chunks);
          Value chunk = rem(isWhole ? lane : at, chunks);
          Value place = load(places, {ring, add(firstRow, row)});
          Value into = mul(swizzled(chunk, row, isKey), width);
          nvgpu::DeviceAsyncCopyOp::create(
              b, nvgpu::DeviceAsyncTokenType::get(b.getContext()),
              isKey ? keys : values, ValueRange{add(tileRow, row), into}, from,
              ValueRange{place, mul(chunk, width)}, b.getIndexAttr(width),
              Value(), /*bypassL1=*/b.getUnitAttr());
        },
        /*unrolls=*/true);
  });
  // What is waited for is counted in halves of tiles, there or not.
  openCopies();
}

/// For the oldest half of a tile that nobody has waited for.
void GpuAttention::waitForTile() {
  auto wait = nvgpu::DeviceAsyncWaitOp::create(
      b, TypeRange(), copies,
      b.getI32IntegerAttr(static_cast<int32_t>(2 * stages - 1)));
  wait->setAttr(kOfWarpAttr, b.getUnitAttr());
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

GpuAttention::Values GpuAttention::emptySums() {
  Values sums{number(-INFINITY), number(-INFINITY), number(0), number(0)};
  auto fragment = VectorType::get({4}, b.getF32Type());
  for (int64_t i = 0; i < valueSize / kTileKeys; ++i)
    sums.push_back(arith::ConstantOp::create(b, b.getZeroAttr(fragment)));
  return sums;
}

/// The keys of a tile that lie in a place of the ring of tiles, and start with
/// one; asks for the keys that come there next, if there are any.
GpuAttention::Values GpuAttention::addTile(Value place, Value firstKey,
                                           Value hasLater, ValueRange before) {
  int64_t tileKeys = kTileKeys * warps;
  Value tileRow = add(mul(rem(place, stages), tileKeys), mul(warp, kTileKeys));
  double scale = plan.attends.front().getScale().convertToDouble();
  waitForTile();
  changeTile(place, /*isKey=*/true);
  Value all = product(scores(tileRow), splat(number(scale), 4));
  warpBarrier();
  startTile(add(place, stages), hasLater, /*isKey=*/true);
  Value score[4], key[2];
  for (int64_t i = 0; i < 2; ++i)
    key[i] = add(firstKey, add(laneRow, i * (kTileKeys / 2)));
  for (int64_t i = 0; i < 4; ++i) {
    Value isValid = less(key[i / 2], end);
    if (from[i % 2])
      isValid = both(notLess(key[i / 2], from[i % 2]), isValid);
    score[i] = select(isValid, extract(all, i), number(-INFINITY));
  }
  keepScores(key, score);
  // The largest of all keys of the warp, for each head of the lane.
  Values after(4);
  Value kept[2], base[2];
  for (int64_t i = 0; i < 2; ++i) {
    Value most = larger(score[i], score[i + 2]);
    for (int64_t mask = 4; mask < kWarp; mask *= 2)
      most = larger(most, exchange(most, mask));
    most = baseOf(most, /*doubling=*/std::log(2.0));
    after[i] = named("most", larger(before[i], most));
    base[i] = finite(after[i]);
    kept[i] = named("kept", exp(arith::SubFOp::create(b, before[i], base[i])));
  }
  Values weights;
  for (int64_t i = 0; i < 4; ++i)
    weights.push_back(
        named("weight", exp(arith::SubFOp::create(b, score[i], base[i % 2]))));
  for (int64_t i = 0; i < 2; ++i)
    after[2 + i] =
        sum(product(before[2 + i], kept[i]), sum(weights[i], weights[i + 2]));
  Value factors = fromElements({kept[0], kept[1], kept[0], kept[1]});
  Values parts;
  for (Value part : before.drop_front(4))
    parts.push_back(product(part, factors));
  waitForTile();
  changeTile(place, /*isKey=*/false);
  addValues(tileRow, weights, parts);
  warpBarrier();
  after.append(parts);
  return after;
}
