//===- AttentionAttend.cpp - pieces of a history --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A tile is 16 keys and values a warp, which come to shared memory several
// tiles ahead. Where they are is looked up one tile before they are asked for.
// A thread 4 g + t of a warp has the scores of keys g and g + 8 for heads 2 t
// and 2 t + 1: what a product of tiles leaves it.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

/// Keys of a warp, and heads, of a product of tiles.
static constexpr int64_t kTileKeys = 16, kTileHeads = 8;

static int64_t bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

void GpuAttention::chooseTiles() {
  int64_t keyBytes =
      keySize * bytesOf(plan.keyType) + valueSize * bytesOf(plan.valueType);
  auto bytes = [&] {
    int64_t tile = stages * warps * kTileKeys * (keyBytes + 4);
    int64_t queryBytes = multiplies ? 0 : kTileHeads * keySize * 4;
    return tile + kTileHeads * valueSize * 4 + queryBytes + 1024;
  };
  // Two blocks at once, so that one streams while the other ends a piece.
  int64_t most = 110 << 10;
  if (shared)
    most = std::min(most, shared);
  stages = 3;
  for (warps = 4; bytes() > most && warps > 1;)
    warps /= 2;
  if (bytes() > most)
    stages = 2;
}

void GpuAttention::declareTiles() {
  Type f32 = b.getF32Type(), integer = b.getI32Type();
  int64_t tileKeys = kTileKeys * warps;
  keys = sharedArray("keys", plan.keyType, {stages * tileKeys, keySize});
  values =
      sharedArray("values", plan.valueType, {stages * tileKeys, valueSize});
  places = sharedArray("places", integer, {stages, tileKeys});
  warpMosts = sharedArray("warp_mosts", f32, {warps, kTileHeads});
  warpSums = sharedArray("warp_sums", f32, {warps, kTileHeads});
  totals = sharedArray("totals", f32, {kTileHeads, valueSize});
  if (!multiplies)
    queries = sharedArray("queries", f32, {kTileHeads, keySize});
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  laneRow = named("g", div(lane, 4));
  lanePart = named("t", rem(lane, 4));
}

void GpuAttention::buildAttend() {
  createKernel("_attend", warps * kWarp, /*blocks=*/2);
  declareTiles();
  Type integer = b.getI32Type();
  Value first = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value count = named("count", load(array("piece_count", integer), index(0)));
  loop(first, count, blocks, [&](Value piece) {
    named("piece", piece);
    attendPiece(piece);
  });
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Where a key of the tile is; behind the last one it is the last again, with a
/// weight of 0.
Value GpuAttention::lookUp(Value tile) {
  int64_t tileKeys = kTileKeys * warps;
  Value key = add(begin, add(mul(tile, tileKeys), rem(thread, tileKeys)));
  return rowOfKey(slot, minimum(key, sub(end, index(1))), cacheHead);
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

Value GpuAttention::startTile(Value tile) {
  int64_t tileKeys = kTileKeys * warps;
  constexpr int64_t chunkBytes = 16;
  Value stage = rem(tile, stages);
  auto copy = [&](Value from, Value to, Type type, int64_t size, bool isKey) {
    int64_t width = chunkBytes / bytesOf(type), chunks = size / width;
    loop(
        index(0), index(tileKeys * chunks / threads), index(1),
        [&](Value i) {
          Value at = add(mul(i, threads), thread);
          Value row = div(at, chunks), chunk = rem(at, chunks);
          Value place = load(places, {stage, row});
          Value into = mul(swizzled(chunk, row, isKey), width);
          nvgpu::DeviceAsyncCopyOp::create(
              b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), to,
              ValueRange{add(mul(stage, tileKeys), row), into}, from,
              ValueRange{place, mul(chunk, width)}, b.getIndexAttr(width),
              Value(), /*bypassL1=*/b.getUnitAttr());
        },
        /*unrolls=*/true);
  };
  ifThen(less(tile, tiles), [&] {
    copy(array("key_pages", plan.keyType, keySize), keys, plan.keyType, keySize,
         true);
    copy(array("value_pages", plan.valueType, valueSize), values,
         plan.valueType, valueSize, false);
  });
  // What is waited for is counted in tiles, started or not.
  return nvgpu::DeviceAsyncCreateGroupOp::create(
      b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange());
}

//===----------------------------------------------------------------------===//
// A piece
//===----------------------------------------------------------------------===//

void GpuAttention::attendPiece(Value piece) {
  Type integer = b.getI32Type();
  Value record = loadVector(array("pieces", integer, 4), {piece, index(0)}, 4);
  auto field = [&](int64_t which) -> Value {
    return arith::IndexCastOp::create(b, b.getIndexType(),
                                      extract(record, which));
  };
  Value task = named("task", field(0));
  begin = named("begin", field(1));
  end = named("end", field(2));
  Value row = named("row", div(task, tasksOfRow));
  Value firstHead = named("first_head", mul(rem(task, tasksOfRow), share));
  cacheHead = named("cache_head", div(firstHead, plan.group()));
  Value plans = array("row_plans", integer, 8);
  slot = named("slot", load(plans, {row, index(0)}));
  Value of = named("token", load(plans, {row, index(1)}));
  for (int64_t i = 0; i < 2; ++i) {
    from[i] = begin;
    if (!plan.find)
      continue;
    Value local = minimum(add(mul(lanePart, 2), i), index(share - 1));
    Value start =
        load(array("starts", integer, heads), {row, add(firstHead, local)});
    start = select(less(index(0), field(3)), start, begin);
    from[i] = named("from", maximum(start, begin));
  }
  attendKeys(piece, of, firstHead);
}

void GpuAttention::attendKeys(Value piece, Value of, Value firstHead) {
  int64_t tileKeys = kTileKeys * warps;
  tiles = named("tiles", div(add(sub(end, begin), tileKeys - 1), tileKeys));

  for (int64_t tile = 0; tile < stages; ++tile) {
    Value place = lookUp(index(tile));
    ifThen(less(thread, index(tileKeys)),
           [&] { store(place, places, {index(tile), thread}); });
  }
  loadQueries(of, firstHead);
  barrier();
  Value copies;
  for (int64_t tile = 0; tile + 1 < stages; ++tile)
    copies = startTile(index(tile));
  beforeScores();

  Values inits{number(-INFINITY), number(-INFINITY), number(0), number(0)};
  auto fragment = VectorType::get({4}, b.getF32Type());
  for (int64_t i = 0; i < valueSize / kTileKeys; ++i)
    inits.push_back(arith::ConstantOp::create(b, b.getZeroAttr(fragment)));
  Values carried =
      loop(index(0), tiles, index(1), inits,
           [&](Value tile, ValueRange before) -> Values {
             named("tile", tile);
             nvgpu::DeviceAsyncWaitOp::create(
                 b, TypeRange(), copies,
                 b.getI32IntegerAttr(static_cast<int32_t>(stages - 2)));
             Value later = add(tile, stages);
             Value place = named("place", lookUp(later));
             (void)startTile(add(tile, stages - 1));
             Values after = addTile(tile, before);
             ifThen(less(thread, index(tileKeys)), [&] {
               store(place, places, {rem(later, stages), thread});
             });
             return tilesOfPiece ? endTile(piece, tile, after, inits) : after;
           });
  if (!tilesOfPiece)
    leavePiece(piece, carried);
}

/// Where a piece ends with this tile, its summary is left and the next begins,
/// whose copies are on their way already.
GpuAttention::Values GpuAttention::endTile(Value firstPiece, Value tile,
                                           ArrayRef<Value> after,
                                           ArrayRef<Value> empty) {
  Value next = add(tile, 1);
  Value isEnd =
      either(equal(rem(next, tilesOfPiece), index(0)), equal(next, tiles));
  return ifElse(
      isEnd,
      [&]() -> Values {
        leavePiece(add(firstPiece, div(tile, tilesOfPiece)), after);
        return Values(empty);
      },
      [&]() -> Values { return Values(after); });
}

GpuAttention::Values GpuAttention::addTile(Value tile, ValueRange before) {
  int64_t tileKeys = kTileKeys * warps;
  Value rowInTile = add(mul(warp, kTileKeys), laneRow);
  Value tileRow = add(mul(rem(tile, stages), tileKeys), mul(warp, kTileKeys));
  double scale = plan.attends.front().getScale().convertToDouble();
  Value all = product(scores(tileRow), splat(number(scale), 4));
  Value score[4], key[2];
  for (int64_t i = 0; i < 2; ++i)
    key[i] = add(add(begin, mul(tile, tileKeys)),
                 add(rowInTile, i * (kTileKeys / 2)));
  for (int64_t i = 0; i < 4; ++i) {
    Value isValid =
        both(notLess(key[i / 2], from[i % 2]), less(key[i / 2], end));
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
  addValues(tileRow, weights, parts);
  after.append(parts);
  return after;
}

/// The warps' summaries become one, in their order.
void GpuAttention::leavePiece(Value piece, ValueRange carried) {
  Type f32 = b.getF32Type();
  Value columns[2] = {mul(lanePart, 2), add(mul(lanePart, 2), 1)};
  for (int64_t i = 0; i < 2; ++i) {
    Value all = carried[2 + i];
    for (int64_t mask = 4; mask < kWarp; mask *= 2)
      all = sum(all, exchange(all, mask));
    ifThen(equal(laneRow, index(0)), [&] {
      store(carried[i], warpMosts, {warp, columns[i]});
      store(all, warpSums, {warp, columns[i]});
    });
  }
  barrier();
  auto mostOf = [&](Value column) {
    Value most = loadFloat(warpMosts, {index(0), column});
    for (int64_t other = 1; other < warps; ++other)
      most = larger(most, loadFloat(warpMosts, {index(other), column}));
    return most;
  };
  Value factor[2];
  for (int64_t i = 0; i < 2; ++i)
    factor[i] =
        exp(arith::SubFOp::create(b, carried[i], finite(mostOf(columns[i]))));
  int64_t part = valuePart(), products = part / 2;
  for (int64_t turn = 0; turn < warps; ++turn) {
    ifThen(equal(warp, index(turn)), [&] {
      for (auto [which, fragment] : llvm::enumerate(carried.drop_front(4))) {
        int64_t block = static_cast<int64_t>(which) / products;
        int64_t within = static_cast<int64_t>(which) % products;
        Value place = add(mul(laneRow, part), block * 8 * part + 2 * within);
        for (int64_t i = 0; i < 4; ++i) {
          Value at = add(place, i / 2);
          Value value = product(extract(fragment, i), factor[i % 2]);
          if (turn)
            value = sum(value, loadFloat(totals, {columns[i % 2], at}));
          store(value, totals, {columns[i % 2], at});
        }
      }
    });
    barrier();
  }
  constexpr int64_t width = 4;
  Value pieceMemory = array("piece_values", f32, share * valueSize);
  loop(mul(thread, width), index(share * valueSize), index(threads * width),
       [&](Value at) {
         Value ofHead = div(at, valueSize), element = rem(at, valueSize);
         storeVector(loadVector(totals, {ofHead, element}, width), pieceMemory,
                     {piece, at});
       });
  ifThen(less(thread, index(share)), [&] {
    Value most = mostOf(thread), base = finite(most), all = number(0);
    for (int64_t other = 0; other < warps; ++other) {
      Value weight = exp(arith::SubFOp::create(
          b, loadFloat(warpMosts, {index(other), thread}), base));
      all = sum(all,
                product(loadFloat(warpSums, {index(other), thread}), weight));
    }
    storeVector(fromElements({most, all}), array("piece_sums", f32, 2 * share),
                {piece, mul(thread, 2)});
  });
}
