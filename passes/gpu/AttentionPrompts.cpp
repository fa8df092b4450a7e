//===- AttentionPrompts.cpp - tiles of a prompt's queries -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A tile is 16 queries a warp: tokens by the heads that share a head of the
// cache, so that heads share the keys that come to shared memory. Tiles of a
// prompt begin with its last one, which attends to most.

#include "passes/gpu/AttentionPrompts.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kTileQueries = kAttentionWarpQueries;

static int64_t bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

LogicalResult GpuPrompts::build() {
  if (failed(openPlan()) || failed(listSegments()))
    return failure();
  choosePromptTiles();
  buildPromptAppend();
  buildPromptAttend();
  buildPromptFinish();
  return success();
}

/// As many queries as share what is copied, as many keys as fit beside them.
void GpuPrompts::choosePromptTiles() {
  int64_t keyBytes =
      keySize * bytesOf(plan.keyType) + valueSize * bytesOf(plan.valueType);
  int64_t most = shared ? shared : 200 << 10;
  // Answers of wide values take the registers of two warps.
  bool isWide = std::max(keySize, valueSize) > 128;
  queryWarps = isWide ? 4 : 8;
  constexpr int64_t mostElements = 512;
  sharesQueries = multiplies && keySize + 2 * valueSize > mostElements;
  sharesPlaces |= sharesQueries;
  stages = 2;
  auto bytes = [&] {
    int64_t queryBytes = sharesQueries ? queryWarps * kTileQueries * keySize *
                                             bytesOf(plan.keyType)
                                       : 0;
    int64_t placeBytes =
        sharesPlaces ? kPlacesOfQueries * queryWarps * kWarp * 4 : 0;
    return stages * warps * kTileQueries * (keyBytes + 4) + queryBytes +
           placeBytes + 1024;
  };
  // So do scores.
  warps = !isWide ? 4 : sharesQueries ? 1 : 2;
  while (bytes() > most && warps > 1)
    warps /= 2;
  // All threads copy alike.
  auto isEven = [&](Type element, int64_t size) {
    constexpr int64_t chunkBytes = 16;
    int64_t chunks = size * bytesOf(element) / chunkBytes;
    return warps * kTileQueries * chunks % (queryWarps * kWarp) == 0;
  };
  while (!isEven(plan.keyType, keySize) || !isEven(plan.valueType, valueSize))
    queryWarps /= 2;
  stages = 3;
  if (bytes() > most)
    stages = 2;
}

//===----------------------------------------------------------------------===//
// Which tile
//===----------------------------------------------------------------------===//

/// Each warp sums the tiles of 32 rows at once.
std::pair<Value, Value> GpuPrompts::findTile(
    Value wanted, int64_t unitsOfTile,
    llvm::function_ref<Value(Value row, Value tokens)> unitsOf) {
  Type integer = b.getI32Type();
  Value slots = array("slots", integer), rows = scalar("rows");
  Values found = loop(
      index(0), rows, index(kWarp), {index(0), index(0), index(0)},
      [&](Value base, ValueRange carried) -> Values {
        Value each = add(base, lane);
        Value isRow = less(each, rows);
        Value at = minimum(each, sub(rows, index(1)));
        Value tokens = tokensOf(at).second;
        isRow = both(isRow, both(notLess(load(slots, {at}), index(0)),
                                 less(index(0), tokens)));
        Value units = select(isRow, unitsOf(at, tokens), index(0));
        Value tilesOfRow = div(add(units, unitsOfTile - 1), unitsOfTile);
        Value all = arith::IndexCastOp::create(b, integer, tilesOfRow);
        for (int64_t delta = 1; delta < kWarp; delta *= 2) {
          Value below = shuffle(all, index(delta), gpu::ShuffleMode::UP);
          Value more = arith::AddIOp::create(b, all, below);
          all = select(notLess(lane, index(delta)), more, all);
        }
        Value sums = arith::IndexCastOp::create(
            b, b.getIndexType(),
            shuffle(all, index(kWarp - 1), gpu::ShuffleMode::IDX));
        Value after = add(carried[0],
                          arith::IndexCastOp::create(b, b.getIndexType(), all));
        Value before = sub(after, tilesOfRow);
        Value isMine = both(notLess(wanted, before), less(wanted, after));
        Value ofRow = select(isMine, add(each, 1), index(0));
        Value ofTile = select(isMine, sub(after, add(wanted, 1)), index(0));
        for (int64_t mask = 1; mask < kWarp; mask *= 2) {
          ofRow = add(ofRow, exchange(ofRow, mask));
          ofTile = add(ofTile, exchange(ofTile, mask));
        }
        return {add(carried[0], sums), add(carried[1], ofRow),
                add(carried[2], ofTile)};
      });
  return {found[1], found[2]};
}

std::pair<Value, Value> GpuPrompts::tokensOf(Value ofRow) {
  Value starts = array("cu_seqlens", b.getI32Type());
  Value first = load(starts, {ofRow});
  return {first, sub(load(starts, {add(ofRow, 1)}), first)};
}

void GpuPrompts::openPrompt(Value ofRow) {
  row = named("row", ofRow);
  Value plans = array("prompt_plans", b.getI32Type(), 8);
  auto field = [&](int64_t which) { return load(plans, {row, index(which)}); };
  slot = named("slot", field(0));
  firstToken = named("first_token", field(1));
  position = named("position", field(2));
  count = named("count", field(3));
}

/// What the block and its threads answer.
void GpuPrompts::openTile(Value ofRow, Value tile) {
  openPrompt(ofRow);
  int64_t group = plan.group(), queriesOfTile = queryWarps * kTileQueries;
  Value last = sub(count, index(1));
  Value first = mul(tile, queriesOfTile);
  firstOfTile = named("first_of_tile", div(first, group));
  lastOfTile = named("last_of_tile",
                     minimum(div(add(first, queriesOfTile - 1), group), last));
  Value ofWarp = add(first, mul(warp, kTileQueries));
  firstOfWarp = div(ofWarp, group);
  lastOfWarp = minimum(div(add(ofWarp, kTileQueries - 1), group), last);
  for (int64_t i = 0; i < 2; ++i) {
    Value query = add(add(ofWarp, laneRow), i * (kTileQueries / 2));
    Value local = div(query, group);
    isQuery[i] = less(local, count);
    local = minimum(local, last);
    tokenOf[i] = named("token", add(firstToken, local));
    headOf[i] = named("head", add(mul(cacheHead, group), rem(query, group)));
    placeOf[i] = named("position", add(position, local));
  }
}

void GpuPrompts::declarePromptTiles() {
  int64_t tileKeys = kTileQueries * warps;
  keys = sharedArray("keys", plan.keyType, {stages * tileKeys, keySize});
  values =
      sharedArray("values", plan.valueType, {stages * tileKeys, valueSize});
  places = sharedArray("places", b.getI32Type(), {stages + 1, tileKeys});
}

void GpuPrompts::buildPromptAttend() {
  createKernel("_attend", queryWarps * kWarp, /*blocks=*/1);
  declarePromptTiles();
  if (sharesQueries)
    queries = sharedArray("queries", plan.keyType, {keySize / 16, threads * 8});
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  laneRow = named("g", div(lane, 4));
  lanePart = named("t", rem(lane, 4));
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  cacheHead = named("cache_head", rem(block, cacheHeads));
  auto [rowAfter, tile] =
      findTile(div(block, cacheHeads), queryWarps * kTileQueries,
               [&](Value, Value tokens) { return mul(tokens, plan.group()); });
  ifThen(less(index(0), rowAfter), [&, tile = tile, rowAfter = rowAfter] {
    openTile(sub(rowAfter, index(1)), named("tile", tile));
    answerTile();
  });
}

//===----------------------------------------------------------------------===//
// Its keys
//===----------------------------------------------------------------------===//

void GpuPrompts::answerTile() {
  keepPlaces();
  loadTileQueries();
  Values inits{number(-INFINITY), number(-INFINITY), number(0), number(0)};
  auto fragment = VectorType::get({4}, b.getF32Type());
  for (int64_t i = 0; i < valueSize / 8; ++i)
    inits.push_back(arith::ConstantOp::create(b, b.getZeroAttr(fragment)));
  auto all = static_cast<int64_t>(segments.size()) - 1;
  if (!all) {
    openSegment(index(0));
    Values sums = attendSegment(inits);
    findPlaces();
    storeAnswers(sums);
    return;
  }
  // Where nothing is stored, all keys are one segment: the last.
  Value leaves = less(sub(count, scalar("capacity")), add(lastOfTile, 1));
  Value first = select(leaves, index(0), index(all));
  Value last = select(leaves, index(all), index(all + 1));
  int64_t parts = plan.ring.getParts();
  Values carried =
      loop(first, last, index(1), inits,
           [&](Value which, ValueRange before) -> Values {
             named("segment", which);
             findPlaces();
             openSegment(which);
             Values kept(before);
             Value isStored = less(which, index(parts));
             if (parts > 1)
               for (auto [value, empty] : llvm::zip_equal(kept, inits))
                 value = select(isStored, empty, value);
             // Other warps may still read the tiles of the segment before.
             barrier();
             Values after = attendSegment(kept);
             findPlaces();
             ifThen(isStored,
                    [&] { leavePart(sub(index(parts - 1), which), after); });
             return after;
           });
  findPlaces();
  storeAnswers(carried);
}

/// Behind the last one it is the last again, with a weight of 0.
Value GpuPrompts::lookUpKey(Value tile) {
  int64_t tileKeys = kTileQueries * warps;
  Value key = add(begin, add(mul(tile, tileKeys), rem(thread, tileKeys)));
  return rowOfKey(slot, minimum(key, sub(end, index(1))), cacheHead);
}

void GpuPrompts::copyChunk(Value from, ValueRange at, Value to,
                           ValueRange into) {
  Type element = cast<MemRefType>(to.getType()).getElementType();
  nvgpu::DeviceAsyncCopyOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), to, into, from, at,
      b.getIndexAttr(elementsOfLoad(element)), Value(),
      /*bypassL1=*/b.getUnitAttr());
}

void GpuPrompts::copyChunk(bool isKey, Value place, Value element,
                           ValueRange into) {
  if (isKey)
    copyChunk(array("key_pages", plan.keyType, keySize), {place, element}, keys,
              into);
  else
    copyChunk(array("value_pages", plan.valueType, valueSize), {place, element},
              values, into);
}

Value GpuPrompts::copyTile(Value tile) {
  int64_t tileKeys = kTileQueries * warps;
  Value stage = rem(tile, stages), ring = rem(tile, stages + 1);
  auto copy = [&](Type type, int64_t size, bool isKey) {
    int64_t width = elementsOfLoad(type), chunks = size / width;
    loop(
        index(0), index(tileKeys * chunks / threads), index(1),
        [&](Value i) {
          Value at = add(mul(i, threads), thread);
          Value keyRow = div(at, chunks), chunk = rem(at, chunks);
          Value into = mul(swizzled(chunk, keyRow, isKey), width);
          copyChunk(isKey, load(places, {ring, keyRow}), mul(chunk, width),
                    {add(mul(stage, tileKeys), keyRow), into});
        },
        /*unrolls=*/true);
  };
  ifThen(less(tile, tiles), [&] {
    copy(plan.keyType, keySize, true);
    copy(plan.valueType, valueSize, false);
  });
  // What is waited for is counted in tiles, started or not.
  return nvgpu::DeviceAsyncCreateGroupOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange());
}

GpuAttention::Values GpuPrompts::attendSegment(ValueRange carried) {
  int64_t tileKeys = kTileQueries * warps;
  tiles = named("tiles", div(add(sub(end, begin), tileKeys - 1), tileKeys));
  for (int64_t tile = 0; tile < stages; ++tile) {
    Value place = lookUpKey(index(tile));
    ifThen(less(thread, index(tileKeys)),
           [&] { store(place, places, {index(tile), thread}); });
  }
  barrier();
  Value copies;
  for (int64_t tile = 0; tile + 1 < stages; ++tile)
    copies = copyTile(index(tile));
  return loop(index(0), tiles, index(1), carried,
              [&](Value tile, ValueRange before) -> Values {
                named("key_tile", tile);
                enterTile(tile);
                nvgpu::DeviceAsyncWaitOp::create(
                    b, TypeRange(), copies,
                    b.getI32IntegerAttr(static_cast<int32_t>(stages - 2)));
                Value later = add(tile, stages);
                Value place = named("place", lookUpKey(later));
                (void)copyTile(add(tile, stages - 1));
                // A warp leaves out what is before or after all its queries.
                Value first = add(begin, mul(tile, tileKeys));
                Value isWanted = both(less(first, warpEnd),
                                      less(warpBegin, add(first, tileKeys)));
                Values after = ifElse(
                    isWanted, [&] { return addKeys(tile, before); },
                    [&] { return Values(before); });
                ifThen(less(thread, index(tileKeys)), [&] {
                  store(place, places, {rem(later, stages + 1), thread});
                });
                return after;
              });
}
