//===- SegmentPrompts.cpp - prompts of a segmented cache ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Keys of a tile of queries are numbered anew: whole tiles of sinks, and then
// the tokens from the first segment on that one of its queries is in. Before
// the first fold there are no sinks but those in their place.

#include "passes/gpu/SegmentPrompts.h"

using namespace mlir;
using namespace ladle;

LogicalResult GpuSegmentPrompts::build() {
  if (failed(openCache()))
    return failure();
  sinks = static_cast<int64_t>(given.fold.getSinks());
  window = static_cast<int64_t>(given.fold.getWindow());
  segment = static_cast<int64_t>(given.fold.getSegment());
  skipsKeys = sharesPlaces = true;
  // Beside tiles there are bounds of threads.
  constexpr int64_t usual = 200 << 10, mostThreads = 256;
  constexpr int64_t bytes = kBoundsOfThread * sizeof(int32_t);
  int64_t all = shared, most = shared ? shared : usual;
  shared = most - bytes * mostThreads;
  choosePromptTiles();
  mostBytes = most - bytes * queryWarps * kWarp;
  shared = all;
  buildFold();
  buildScan();
  buildPromptAttend();
  buildKeep();
  return success();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Those of the call that these kernels answer.
std::pair<Value, Value> GpuSegmentPrompts::tokensOf(Value ofRow) {
  Value from = scalar("round_begin"), to = scalar("round_end");
  auto [start, all] = GpuPrompts::tokensOf(ofRow);
  Value first = minimum(maximum(start, from), to);
  return {first, sub(minimum(add(start, all), to), first)};
}

void GpuSegmentPrompts::openPrompt(Value ofRow) {
  openCacheRow(ofRow);
  position = named("position", cursor(BoundedNumber::Length));
  folds = named("folds", cursor(BoundedNumber::Folds));
  // As many as the whole prompt leaves, of which those that are not complete
  // yet are folded with the tokens that come later.
  Value rest = load(array("cu_seqlens", b.getI32Type()), {add(row, 1)});
  rest = maximum(sub(rest, add(firstToken, count)), index(0));
  Value here = sub(add(position, count), index(sinks));
  Value most =
      div(maximum(sub(add(here, rest), index(window)), index(0)), segment);
  Value complete = div(maximum(here, index(0)), segment);
  most = select(less(index(0), rest), minimum(most, complete), most);
  nextFolds = named("next_folds", maximum(folds, most));
  nextFolds = select(less(index(0), count), nextFolds, folds);
}

/// Segments that the token at a position sees through the memory.
Value GpuSegmentPrompts::foldsAt(Value at) {
  Value before = div(maximum(sub(at, index(sinks)), index(0)), segment);
  return maximum(minimum(before, nextFolds), folds);
}

/// Of the row, among those of all heads.
Value GpuSegmentPrompts::firstMemory() {
  Value before = div(sub(firstToken, scalar("round_begin")), segment);
  return add(mul(add(before, row), cacheHeads), cacheHead);
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

Value GpuSegmentPrompts::rowOfKey(Value, Value key, Value) {
  Value at;
  if (folding) {
    at = add(firstOfSegment, key);
  } else {
    Value own = add(firstOwn, sub(key, sinkKeys));
    at = own;
    if (sinks)
      at = select(less(key, sinkKeys), minimum(key, index(sinks - 1)), own);
  }
  Value ring = rem(maximum(sub(at, index(sinks)), index(0)), capacity - sinks);
  Value entry = select(less(at, index(sinks)), at, add(ring, sinks));
  return select(less(at, position), rowOfEntry(entry),
                rowOfPrompt(sub(at, position)));
}

void GpuSegmentPrompts::openSegment(Value) {
  int64_t tileKeys = kAttentionWarpQueries * warps;
  Value firstFolds = foldsAt(add(position, firstOfTile));
  Value lastFolds = foldsAt(add(position, lastOfTile));
  Value isFolded = less(index(0), lastFolds);
  sinkTiles = named(
      "sink_tiles",
      select(isFolded, index((sinks + tileKeys - 1) / tileKeys), index(0)));
  sinkKeys = mul(sinkTiles, tileKeys);
  auto firstBehind = [&](Value folded) {
    return add(mul(folded, segment), sinks);
  };
  firstOwn =
      named("first_own", select(isFolded, firstBehind(firstFolds), index(0)));
  auto numberOf = [&](Value at) {
    return add(sinkKeys, maximum(sub(at, firstOwn), index(0)));
  };
  // Where nothing is folded, all tokens are one's own.
  auto beginOf = [&](Value folded) {
    return select(isFolded, numberOf(firstBehind(folded)), index(0));
  };
  // What tiles and answers ask for waits in shared memory: products leave no
  // registers for it.
  bounds = sharedArray("bounds", b.getI32Type(), {kBoundsOfThread, threads});
  auto keep = [&](int64_t which, Value value) {
    store(value, bounds, {index(which), thread});
  };
  begin = index(0);
  end = named("end", numberOf(add(add(position, lastOfTile), 1)));
  for (int64_t i = 0; i < 2; ++i) {
    Value folded = foldsAt(placeOf[i]), next = add(placeOf[i], 1);
    keep(kSinkBounds + i, begin);
    keep(kSinkBounds + 2 + i,
         select(isQuery[i], minimum(next, index(sinks)), begin));
    keep(kOwnBounds + i, beginOf(folded));
    keep(kOwnBounds + 2 + i, select(isQuery[i], numberOf(next), begin));
    keep(kFolds + i, folded);
  }
  Value last = sub(count, index(1)), isBusy = less(firstOfWarp, count);
  Value firstFolded = foldsAt(add(position, minimum(firstOfWarp, last)));
  keep(kSinkBounds + 4, begin);
  keep(kSinkBounds + 5, select(isBusy, sinkKeys, begin));
  keep(kOwnBounds + 4, beginOf(firstFolded));
  keep(kOwnBounds + 5,
       select(isBusy, numberOf(add(add(position, lastOfWarp), 1)), begin));
  keep(kWarpFolds, firstFolded);
  keep(kWarpFolds + 1, foldsAt(add(position, minimum(lastOfWarp, last))));
}

Value GpuSegmentPrompts::bound(Value which) {
  return load(bounds, {which, thread});
}

/// Of sinks queries see all, but for those that are among them.
void GpuSegmentPrompts::enterTile(Value tile) {
  if (folding)
    return;
  Value first =
      select(less(tile, sinkTiles), index(kSinkBounds), index(kOwnBounds));
  for (int64_t i = 0; i < 2; ++i) {
    from[i] = bound(add(first, i));
    to[i] = bound(add(first, 2 + i));
  }
  warpBegin = bound(add(first, 4));
  warpEnd = bound(add(first, 5));
}

GpuAttention::Values GpuSegmentPrompts::addKeys(Value tile, ValueRange before) {
  return folding ? addTokens(tile, before) : GpuPrompts::addKeys(tile, before);
}
