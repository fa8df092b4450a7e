//===- BoundedMerge.cpp - what the blocks of a cluster found --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Blocks answer the heads of the query in turns. All loads of other blocks'
// memories are independent of one another: as many as a cluster may have
// blocks, of which those that are not there count nothing.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace ladle;

Value GpuBounded::ownHeads() {
  return div(add(sub(index(plan.group()), rank), sub(ranks, index(1))), ranks);
}

void GpuBounded::openOwnHead(Value which) {
  local = add(rank, mul(ranks, which));
  head = add(mul(cacheHead, plan.group()), local);
}

void GpuBounded::forOwnHeads(int64_t size,
                             llvm::function_ref<void(Value)> body) {
  loop(thread, mul(ownHeads(), size), index(threads), [&](Value at) {
    openOwnHead(div(at, size));
    body(rem(at, size));
  });
}

Value GpuBounded::inBlock(Value which, Value memory) {
  return mostBlocks == 1 ? memory : memoryOf(which, memory);
}

Value GpuBounded::sumOverBlocks(Value memory, ValueRange at) {
  Value all;
  for (int64_t block = 0; block < mostBlocks; ++block) {
    Value which = minimum(index(block), sub(ranks, index(1)));
    Value value = loadFloat(inBlock(which, memory), at);
    if (block)
      value = select(less(index(block), ranks), value, number(0));
    all = all ? sum(all, value) : value;
  }
  return all;
}

/// What is noted of this thread's only token; of others it is stored.
GpuAttention::Values GpuBounded::mergeBlocks() {
  if (mostBlocks == 1) {
    takeOwn();
    return {};
  }
  Value isAlone = equal(ranks, index(1));
  ifThen(isAlone, [&] { takeOwn(); });
  if (note)
    return ifElse(
        negate(isAlone), [&] { return mergeNoting(); },
        [&] { return nothingNoted(); });
  ifThen(negate(isAlone), [&] { mergeEach(); });
  return {};
}

/// Of a block alone.
void GpuBounded::takeOwn() {
  int64_t group = plan.group();
  loop(thread, index(group), index(threads), [&](Value ofHead) {
    Value all = loadFloat(blockSums, ofHead);
    store(loadFloat(blockMosts, ofHead), sharedMosts, ofHead);
    store(all, sharedSums, ofHead);
    if (note)
      store(arith::DivFOp::create(b, number(1), all), inverses, ofHead);
  });
  constexpr int64_t width = 4;
  loop(mul(thread, width), index(group * valueSize), index(threads * width),
       [&](Value at) {
         Values place{div(at, valueSize), rem(at, valueSize)};
         storeVector(loadVector(blockValues, place, width), sharedValues,
                     place);
       });
  barrier();
  if (note)
    noteWeights();
}

/// Each thread for itself: nobody waits for another.
void GpuBounded::mergeEach() {
  forOwnHeads(valueSize, [&](Value at) {
    Values mosts, sums, values;
    for (int64_t block = 0; block < mostBlocks; ++block) {
      Value which = minimum(index(block), sub(ranks, index(1)));
      mosts.push_back(loadFloat(inBlock(which, blockMosts), local));
      sums.push_back(loadFloat(inBlock(which, blockSums), local));
      values.push_back(loadFloat(inBlock(which, blockValues), {local, at}));
    }
    Value most = mosts[0], allSums = number(0), allValues = number(0);
    for (Value its : mosts)
      most = larger(most, its);
    for (int64_t block = 0; block < mostBlocks; ++block) {
      Value weight = exp(arith::SubFOp::create(b, mosts[block], finite(most)));
      weight = select(less(index(block), ranks), weight, number(0));
      allSums = sum(allSums, product(sums[block], weight));
      allValues = sum(allValues, product(values[block], weight));
    }
    store(allValues, sharedValues, {local, at});
    ifThen(equal(at, index(0)), [&] {
      store(most, sharedMosts, local);
      store(allSums, sharedSums, local);
    });
  });
}

GpuAttention::Values GpuBounded::mergeNoting() {
  int64_t group = plan.group();
  Ahead ownValues =
      startLoop(thread, mul(ownHeads(), valueSize), index(threads),
                /*together=*/1, [this](Value at) {
                  openOwnHead(div(at, valueSize));
                  // Who answers no head loads what is there, too.
                  Value ofHead = minimum(local, index(plan.group() - 1));
                  Values loaded;
                  for (int64_t block = 0; block < mostBlocks; ++block) {
                    Value which = minimum(index(block), sub(ranks, index(1)));
                    loaded.push_back(loadFloat(inBlock(which, blockValues),
                                               {ofHead, rem(at, valueSize)}));
                  }
                  return loaded;
                });
  if (fitsWarp()) {
    mergeInLanes();
    Values noted = noteMerged();
    finishLoop(ownValues, {}, [&](Value at, ValueRange loaded, ValueRange) {
      openOwnHead(div(at, valueSize));
      Value all = number(0);
      for (int64_t block = 0; block < mostBlocks; ++block) {
        Value lane = add(local, block * group);
        Value weight = shuffle(ofLanes.weight, lane, gpu::ShuffleMode::IDX);
        all = sum(all, product(loaded[block], weight));
      }
      store(all, sharedValues, {local, rem(at, valueSize)});
      return Values();
    });
    ofLanes = {};
    return noted;
  }
  loop(thread, index(mostBlocks * group), index(threads), [&](Value at) {
    Value block = div(at, group), ofHead = rem(at, group);
    Value isThere = less(block, ranks);
    Value which = minimum(block, sub(ranks, index(1)));
    Value most = loadFloat(inBlock(which, blockMosts), ofHead);
    Value all = loadFloat(inBlock(which, blockSums), ofHead);
    store(select(isThere, most, number(-INFINITY)), rankMosts, {block, ofHead});
    store(select(isThere, all, number(0)), rankSums, {block, ofHead});
  });
  barrier();
  loop(thread, index(group), index(threads), [&](Value ofHead) {
    Value most = loadFloat(rankMosts, {index(0), ofHead}), all = number(0);
    for (int64_t block = 1; block < mostBlocks; ++block)
      most = larger(most, loadFloat(rankMosts, {index(block), ofHead}));
    for (int64_t block = 0; block < mostBlocks; ++block)
      all = sum(all, product(loadFloat(rankSums, {index(block), ofHead}),
                             weightOfBlock(block, ofHead, most)));
    store(most, sharedMosts, ofHead);
    store(all, sharedSums, ofHead);
    store(arith::DivFOp::create(b, number(1), all), inverses, ofHead);
  });
  barrier();
  Values noted = noteMerged();
  finishLoop(ownValues, {}, [&](Value at, ValueRange loaded, ValueRange) {
    openOwnHead(div(at, valueSize));
    Value most = loadFloat(sharedMosts, local), all = number(0);
    for (int64_t block = 0; block < mostBlocks; ++block)
      all = sum(all, product(loaded[block], weightOfBlock(block, local, most)));
    store(all, sharedValues, {local, rem(at, valueSize)});
    return Values();
  });
  return noted;
}

GpuAttention::Values GpuBounded::noteMerged() {
  return ifElse(
      notesOne(), [&] { return noteOwn(); },
      [&] {
        noteWeights();
        return nothingNoted();
      });
}

/// Whether a warp has a lane for each head of each block; and registers, which
/// heads of 96 do not leave it.
bool GpuBounded::fitsWarp() const {
  int64_t all = mostBlocks * plan.group();
  return all <= kWarp && llvm::isPowerOf2_64(static_cast<uint64_t>(all)) &&
         llvm::isPowerOf2_64(static_cast<uint64_t>(valueSize));
}

/// Each warp for itself: nobody waits for another.
void GpuBounded::mergeInLanes() {
  int64_t group = plan.group(), all = mostBlocks * group;
  Value block = div(lane, group), ofHead = rem(lane, group);
  Value isThere = less(block, ranks);
  Value which = minimum(block, sub(ranks, index(1)));
  Value its = select(isThere, loadFloat(inBlock(which, blockMosts), ofHead),
                     number(-INFINITY));
  Value sums = loadFloat(inBlock(which, blockSums), ofHead);
  Value most = its;
  for (int64_t mask = group; mask < all; mask *= 2)
    most = larger(most, exchange(most, mask));
  Value weight = exp(arith::SubFOp::create(b, its, finite(most)));
  weight = select(isThere, weight, number(0));
  Value total = product(sums, weight);
  for (int64_t mask = group; mask < all; mask *= 2)
    total = sum(total, exchange(total, mask));
  ifThen(both(equal(warp, index(0)), less(lane, index(group))), [&] {
    store(most, sharedMosts, lane);
    store(total, sharedSums, lane);
  });
  Value inverse = arith::DivFOp::create(b, number(1), total);
  ofLanes.weight = weight;
  for (int64_t h = 0; h < group; ++h) {
    ofLanes.mosts.push_back(shuffle(most, index(h), gpu::ShuffleMode::IDX));
    ofLanes.inverses.push_back(
        shuffle(inverse, index(h), gpu::ShuffleMode::IDX));
  }
}

void GpuBounded::mergeMemory() {
  if (recall)
    mergeRecalled();
  if (taylor)
    mergeTaylor();
  barrier();
}

/// What the summary of a block counts for; 0 if there is no such block.
Value GpuBounded::weightOfBlock(int64_t block, Value ofHead, Value most) {
  Value its = loadFloat(rankMosts, {index(block), ofHead});
  return exp(arith::SubFOp::create(b, its, finite(most)));
}

//===----------------------------------------------------------------------===//
// Memories
//===----------------------------------------------------------------------===//

void GpuBounded::mergeRecalled() {
  int64_t all = plan.group() * valueSize;
  forOwnHeads(valueSize, [&](Value at) {
    Values value = ifElse(
        less(index(0), held),
        [&]() -> Values {
          Value divisor = sumOverBlocks(blockMemory, add(local, all));
          Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                                divisor, number(0));
          Value read =
              sumOverBlocks(blockMemory, add(mul(local, valueSize), at));
          return {arith::DivFOp::create(b, read,
                                        select(isEmpty, number(1), divisor))};
        },
        [&]() -> Values { return {number(0)}; });
    store(value[0], sharedMemory, {local, at});
  });
}

void GpuBounded::mergeTaylor() {
  double scale = taylor.getScale().convertToDouble();
  forOwnHeads(valueSize, [&](Value at) {
    Values value = ifElse(
        less(index(0), held),
        [&]() -> Values {
          Value score = loadFloat(sharedNumbers, {local, index(0)});
          Value order = loadFloat(sharedNumbers, {local, index(2)});
          Value weight =
              arith::SubFOp::create(b, number(1), product(order, score));
          Value read =
              sumOverBlocks(blockMemory, add(mul(local, valueSize), at));
          Value first = product(product(order, number(scale)), read);
          return {sum(product(weight, loadFloat(sharedValueSums, at)), first)};
        },
        [&]() -> Values {
          // An empty summary.
          ifThen(equal(at, index(0)), [&] {
            store(number(-INFINITY), sharedNumbers, {local, index(0)});
            store(number(0), sharedNumbers, {local, index(1)});
          });
          return {number(0)};
        });
    store(value[0], sharedMemory, {local, at});
  });
}
