//===- BoundedKeys.cpp - keys and values of a bounded step ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each block of a cluster attends to a stretch of the keys. The new token is
// not in the cache when they are read: it is put where it will be in shared
// memory.

#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "passes/gpu/BoundedKernels.h"

using namespace mlir;
using namespace ladle;

/// What this block attends to.
void GpuBounded::takeKeys() {
  constexpr int64_t keysOfTile = 16;
  Value each = div(sub(add(span, ranks), index(1)), ranks);
  keysOfRank =
      named("keys_of_rank",
            maximum(mul(div(add(each, keysOfTile - 1), keysOfTile), keysOfTile),
                    index(keysOfTile)));
  Value first = mul(rank, keysOfRank), isBusy = less(first, span);
  begin = named("begin", select(isBusy, first, index(0)));
  end = named("end",
              select(isBusy, minimum(add(begin, keysOfRank), span), index(0)));
  hasNewKey = both(notLess(newKey, begin), less(newKey, end));
}

/// To where the warp that will attend to the token finds it.
void GpuBounded::copyNewToken() {
  int64_t tileKeys = 16 * warps;
  Value row = rem(sub(newKey, begin), tileKeys);
  ownsNewKey = both(hasNewKey, equal(div(row, 16), warp));
  ifThen(ownsNewKey, [&] {
    for (auto [value, into, size] :
         {std::tuple(append.getValues()[0], newKeyParts[0], keySize),
          std::tuple(append.getValues()[1], newKeyParts[1], valueSize)}) {
      Value from = tensor(value);
      int64_t width =
          elementsOfLoad(cast<MemRefType>(from.getType()).getElementType());
      loop(mul(lane, width), index(size), index(kWarp * width), [&](Value at) {
        nvgpu::DeviceAsyncCopyOp::create(
            b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), into,
            ValueRange{at}, from, ValueRange{of, cacheHead, at},
            b.getIndexAttr(width), Value(), /*bypassL1=*/b.getUnitAttr());
      });
    }
  });
}

/// Memory does not have the new token yet, but the one that leaves, or nothing.
void GpuBounded::changeTile(Value tile, bool isKey) {
  int64_t tileKeys = kTileKeys * warps;
  Value at = sub(newKey, begin), row = rem(at, tileKeys);
  ifThen(both(ownsNewKey, equal(div(at, tileKeys), tile)), [&] {
    Value tileRow = add(mul(rem(tile, stages), tileKeys), row);
    Value from = newKeyParts[isKey ? 0 : 1], into = isKey ? keys : values;
    int64_t size = isKey ? keySize : valueSize;
    int64_t width = elementsOfLoad(isKey ? plan.keyType : plan.valueType);
    loop(lane, index(size / width), index(kWarp), [&](Value chunk) {
      Value place = mul(swizzled(chunk, row, isKey), width);
      storeVector(loadVector(from, mul(chunk, width), width), into,
                  {tileRow, place});
    });
    warpBarrier();
  });
}

/// For heads of the query from one on. Leaves a summary in `totals`,
/// `warpMosts` and `warpSums`.
void GpuBounded::attendKeys(Value firstHead) {
  int64_t tileKeys = kTileKeys * warps;
  Keys keys{slot, cacheHead, begin, end};
  auto keyOf = [&](Value tile) {
    return add(begin, add(mul(tile, tileKeys), mul(warp, kTileKeys)));
  };
  Value tiles =
      named("tiles", div(add(sub(end, begin), tileKeys - 1), tileKeys));
  for (int64_t tile = 0; tile <= stages; ++tile)
    keepPlace(index(tile), lookUp(keys, keyOf(index(tile))));
  loadQueries(of, firstHead);
  warpBarrier();
  for (int64_t tile = 0; tile < stages; ++tile)
    for (bool isKey : {true, false})
      startTile(index(tile), less(index(tile), tiles), isKey);
  beforeScores();
  Values sums = loop(index(0), tiles, index(1), emptySums(),
                     [&](Value tile, ValueRange before) -> Values {
                       named("tile", tile);
                       Value later = add(tile, stages + 1);
                       Value place = named("place", lookUp(keys, keyOf(later)));
                       Value isThere = less(add(tile, stages), tiles);
                       Values after =
                           addTile(tile, keyOf(tile), isThere, before);
                       startTile(add(tile, stages), isThere, /*isKey=*/false);
                       keepPlace(later, place);
                       return after;
                     });
  mergeWarps(sums);
}

/// Of f32 in place of a warp's values of a tile.
int64_t GpuBounded::rowsOfTotals() const {
  return kTileKeys * plan.valueType.getIntOrFloatBitWidth() / 32;
}

/// The warps' summaries become one, in their order. There is no tile left: a
/// warp's values are in place of those of its first one.
void GpuBounded::mergeWarps(ValueRange carried) {
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
  constexpr int64_t width = 4;
  int64_t part = valuePart(), products = part / 2;
  for (int64_t i = 0; i < 2; ++i) {
    Value factor = exp(
        arith::SubFOp::create(b, carried[i], finite(mostOfWarps(columns[i]))));
    // What a lane has of a head lies side by side, `part` elements of each
    // block.
    ifThen(less(columns[i], index(share)), [&] {
      Value row = add(mul(warp, rowsOfTotals()), columns[i]);
      for (int64_t at = 0; at < valueSize / 8; at += width) {
        int64_t block = at / part, first = block * products + at % part / 2;
        Values elements;
        for (int64_t j = 0; j < width; ++j)
          elements.push_back(
              extract(carried[4 + first + j / 2], j % 2 * 2 + i));
        Value scaled = product(fromElements(elements), splat(factor, width));
        Value into = add(mul(laneRow, part), block * 8 * part + at % part);
        storeVector(scaled, warpTotals, {row, into});
      }
    });
  }
  barrier();
  loop(mul(thread, width), index(share * valueSize), index(threads * width),
       [&](Value at) {
         Value ofHead = div(at, valueSize), element = rem(at, valueSize);
         Value all;
         for (int64_t other = 0; other < warps; ++other) {
           Value row = add(ofHead, other * rowsOfTotals());
           Value its = loadVector(warpTotals, {row, element}, width);
           all = all ? sum(all, its) : its;
         }
         storeVector(all, totals, {ofHead, element});
       });
  barrier();
}

Value GpuBounded::mostOfWarps(Value column) {
  Value most = loadFloat(warpMosts, {index(0), column});
  for (int64_t other = 1; other < warps; ++other)
    most = larger(most, loadFloat(warpMosts, {index(other), column}));
  return most;
}

Value GpuBounded::sumOfWarps(Value column, Value most) {
  Value base = finite(most), all = number(0);
  for (int64_t other = 0; other < warps; ++other) {
    Value weight = exp(arith::SubFOp::create(
        b, loadFloat(warpMosts, {index(other), column}), base));
    all =
        sum(all, product(loadFloat(warpSums, {index(other), column}), weight));
  }
  return all;
}

void GpuBounded::attendOwnKeys() {
  // No key is before it; compared, ptxas finds registers for heads of 96.
  from[0] = from[1] = begin;
  int64_t group = plan.group();
  for (firstOfTask = 0; firstOfTask < group; firstOfTask += share) {
    attendKeys(add(mul(cacheHead, group), firstOfTask));
    ifThen(less(thread, index(share)), [&] {
      Value most = mostOfWarps(thread), at = add(thread, firstOfTask);
      store(most, blockMosts, at);
      store(sumOfWarps(thread, most), blockSums, at);
    });
    if (share == group)
      continue;
    loop(thread, index(share * valueSize), index(threads), [&](Value at) {
      Value ofHead = div(at, valueSize), element = rem(at, valueSize);
      store(loadFloat(totals, {ofHead, element}), blockValues,
            {add(ofHead, firstOfTask), element});
    });
    barrier();
  }
}

/// Scores are left for who notes their weights.
void GpuBounded::keepScores(ArrayRef<Value> keysOfLane, ArrayRef<Value> score) {
  if (!note)
    return;
  for (int64_t i = 0; i < 4; ++i) {
    Value key = keysOfLane[i / 2];
    Value ofHead = add(mul(lanePart, 2), i % 2);
    ifThen(both(less(key, end), less(ofHead, index(share))), [&] {
      store(score[i], scoresOfBlock,
            {add(ofHead, firstOfTask), sub(key, begin)});
    });
  }
}
