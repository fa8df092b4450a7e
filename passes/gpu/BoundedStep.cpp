//===- BoundedStep.cpp - the kernel of a bounded attention ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedKernels.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

void GpuBounded::declare() {
  Type f32 = b.getF32Type();
  int64_t group = plan.group();
  bytesOfKey = 0;
  declareTiles();
  warpMosts = sharedArray("warp_mosts", f32, {warps, kTileHeads});
  warpSums = sharedArray("warp_sums", f32, {warps, kTileHeads});
  warpTotals = sharedInPlaceOf(values, "warp_totals", f32,
                               {warps * rowsOfTotals(), valueSize});
  totals = sharedArray("totals", f32, {share, valueSize});
  blockMosts = sharedArray("block_mosts", f32, {group});
  blockSums = sharedArray("block_sums", f32, {group});
  blockValues = share == group
                    ? totals
                    : sharedArray("block_values", f32, {group, valueSize});
  rankMosts = sharedArray("rank_mosts", f32, {mostBlocks, group});
  rankSums = sharedArray("rank_sums", f32, {mostBlocks, group});
  sharedMosts = sharedArray("mosts", f32, {group});
  sharedSums = sharedArray("sums", f32, {group});
  sharedValues = sharedArray("merged", f32, {group, valueSize});
  newKeyParts.clear();
  for (auto [name, value, size] :
       {std::tuple("new_key", append.getValues()[0], keySize),
        std::tuple("new_value", append.getValues()[1], valueSize)}) {
    auto type = cast<RankedTensorType>(unwidened(value).getType());
    newKeyParts.push_back(sharedArray(name, type.getElementType(), {size}));
  }
  if (evict)
    declareEviction();
  if (memory)
    declareMemory();
  declareSums();
}

//===----------------------------------------------------------------------===//
// Two parts of a block
//===----------------------------------------------------------------------===//

void GpuBounded::enterPart(int64_t which, int64_t firstWarp, int64_t count) {
  part = which;
  warps = count;
  threads = count * kWarp;
  thread = blockThread;
  warp = blockWarp;
  shareRegisters();
  if (!firstWarp)
    return;
  thread = named("thread_of_part", sub(thread, index(firstWarp * kWarp)));
  warp = named("warp_of_part", sub(warp, index(firstWarp)));
}

/// Of two blocks of a multiprocessor a thread has 128 registers, which is too
/// little for who attends, and more than the others need.
void GpuBounded::shareRegisters() {
  constexpr int64_t group = 4;
  // Folds take more than evictions do.
  int32_t ofAttending = fold ? 136 : 144, ofAnswering = 256 - ofAttending;
  static_assert(kAnswering == group);
  auto blocks = function->getAttrOfType<IntegerAttr>(kBlocksAttr);
  if (blocks.getInt() != 2 || attending != group || !sharesRegisters())
    return;
  bool attends = part == Attending;
  NVVM::SetMaxRegisterOp::create(b, attends ? ofAttending : ofAnswering,
                                 attends
                                     ? NVVM::SetMaxRegisterAction::increase
                                     : NVVM::SetMaxRegisterAction::decrease);
}

/// All threads of the cluster. Blocks alone have barriers at which nobody else
/// is waited for.
void GpuBounded::meetAll(int64_t which) {
  auto meetBlock = [&] { meet(which, (attending + kAnswering) * kWarp); };
  if (mostBlocks == 1)
    return meetBlock();
  Value hasOthers = less(index(1), ranks);
  ifThen(hasOthers, [&] { clusterBarrier(); });
  ifThen(negate(hasOthers), meetBlock);
}

/// Of several blocks: nobody reads another's shared memory any more.
void GpuBounded::leaveCluster() {
  if (mostBlocks > 1)
    ifThen(less(index(1), ranks), [&] { clusterArrive(); });
}

void GpuBounded::awaitCluster() {
  if (mostBlocks > 1)
    ifThen(less(index(1), ranks), [&] { clusterWait(); });
}

void GpuBounded::letOthersMeet() {
  if (mostBlocks > 1 && (recall || taylor))
    ifThen(less(index(1), ranks), [&] { clusterArrive(/*publishes=*/false); });
}

void GpuBounded::meetOthers() {
  bool attends = part == Attending;
  if (mostBlocks == 1)
    return attends ? void() : barrier();
  Value hasOthers = less(index(1), ranks);
  ifThen(hasOthers, [&] {
    if (!attends)
      clusterArrive();
    clusterWait();
  });
  if (!attends)
    ifThen(negate(hasOthers), [&] { barrier(); });
}

/// For each task of the cluster, in their order.
Value GpuBounded::forTasks(Value init, function_ref<Value(Value, Value)> body) {
  Value first = named("cluster", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  clusters = named("clusters", gpu::GridDimOp::create(b, gpu::Dimension::y));
  tasks = named("tasks", mul(scalar("rows"), cacheHeads));
  Values done = loop(first, tasks, clusters, {init},
                     [&](Value which, ValueRange before) -> Values {
                       task = named("task", which);
                       return {body(openTask(task), before.front())};
                     });
  return done.front();
}

/// Before what is ahead has ended: keys, values and rows of the memory come to
/// the second-level cache from where they are unless what is ahead moves them.
/// What is read here says what to ask for, and nothing else. Those who attend
/// do not wait for it.
void GpuBounded::prefetchAhead() {
  Value first = gpu::BlockIdOp::create(b, gpu::Dimension::y);
  ifThen(less(first, mul(scalar("rows"), cacheHeads)), [&] {
    cacheHead = rem(first, cacheHeads);
    Value its = extract(loadVectorAhead(array("slots", b.getI32Type()),
                                        {div(first, cacheHeads)}, 1),
                        0);
    its = arith::IndexCastOp::create(b, b.getIndexType(), its);
    Value isSlot =
        both(notLess(its, index(0)), less(its, scalar("slot_count")));
    ifThen(isSlot, [&] {
      openCursor(its, /*isAhead=*/true);
      takeKeys();
      prefetchKeys(/*isKey=*/true);
      prefetchKeys(/*isKey=*/false);
      if (memory) {
        takeRows();
        prefetchRows();
      }
    });
  });
}

/// Those of the first tiles. Whatever the cursor is, rows of this head.
void GpuBounded::prefetchKeys(bool isKey) {
  Type type = isKey ? plan.keyType : plan.valueType;
  int64_t size = isKey ? keySize : valueSize;
  int64_t elements = kLineBits / type.getIntOrFloatBitWidth();
  int64_t lines = (size + elements - 1) / elements;
  Value cache = array(isKey ? "key_pages" : "value_pages", type, size);
  Value ahead = minimum(sub(end, begin), index(stages * kTileKeys * attending));
  loop(thread, mul(ahead, lines), index(threads), [&](Value at) {
    Value key = maximum(add(begin, div(at, lines)), index(0));
    key = minimum(key, index(capacity - 1));
    prefetch(cache,
             {rowOfKey(slot, key, cacheHead), mul(rem(at, lines), elements)});
  });
}

/// Where the head that comes next stands, while this one is attended to.
void GpuBounded::prefetchNextCursor() {
  Value next = add(task, clusters);
  ifThen(less(next, tasks), [&] {
    Value its = load(array("slots", b.getI32Type()), {div(next, cacheHeads)});
    Value row =
        add(mul(maximum(its, index(0)), cacheHeads), rem(next, cacheHeads));
    prefetch(array("cursors", b.getI32Type(), kBoundedNumbers),
             {row, index(0)});
  });
}

LogicalResult GpuBounded::buildStep() {
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  function->setAttr(kLeastBlocksAttr, b.getIndexAttr(leastBlocks));
  rank = named("rank", gpu::BlockIdOp::create(b, gpu::Dimension::x));
  ranks = named("ranks", gpu::GridDimOp::create(b, gpu::Dimension::x));
  blockThread = thread;
  blockWarp = warp;
  startsEarly =
      named("is_early", negate(equal(scalar("starts_early"), index(0))));
  ifThen(startsEarly, [&] { letNextStart(); });
  Value attends = less(warp, index(attending));
  ifThen(attends, [&] { attendTasks(); });
  ifThen(negate(attends), [&] { answerTasks(); });
  return isLowered;
}

/// A step in order lets the next one start when what is ahead of both has
/// ended: the next one may read what that wrote.
void GpuBounded::waitInOrder() {
  ifThen(negate(startsEarly), [&] {
    // Of few rows, blocks are there while another kernel still runs.
    if (decodes && part == Answering)
      ifThen(equal(ranks, index(mostBlocks)), [&] { prefetchAhead(); });
    waitForPrevious();
    letNextStart();
  });
}

void GpuBounded::attendTasks() {
  enterPart(Attending, 0, attending);
  waitInOrder();
  Value last = forTasks(index(0), [&](Value ofRow, Value before) {
    Values after = ifElse(
        notLess(ofRow, index(0)),
        [&]() -> Values {
          openCursor(ofRow);
          takeKeys();
          copyNewToken();
          isBehind = before;
          attendOwnKeys();
          if (recall || taylor)
            meetOthers();
          meetAll(Found);
          return {index(1)};
        },
        [&]() -> Values { return {before}; });
    return after.front();
  });
  ifThen(less(index(0), last), [&] { leaveHead(); });
}

void GpuBounded::beforeScores() {
  if (firstOfTask == 0)
    ifThen(less(index(0), isBehind), [&] { leaveHead(); });
  if (firstOfTask == 0) {
    letOthersMeet();
    prefetchNextCursor();
  }
}

/// Of those who attend, until the others have merged what they found.
void GpuBounded::leaveHead() {
  meetAll(Merged);
  if (evict) {
    leaveCluster();
    awaitCluster();
  }
}

void GpuBounded::answerTasks() {
  enterPart(Answering, attending, kAnswering);
  prefetchParameters();
  waitInOrder();
  forTasks(index(0), [&](Value ofRow, Value before) {
    // Padding is answered by zeros.
    ifThen(both(isToken, less(ofRow, index(0))), [&] {
      waitForPrevious();
      forOwnHeads(plan.output.getDimSize(1),
                  [&](Value at) { storeElement(number(0), at); });
    });
    ifThen(notLess(ofRow, index(0)), [&] {
      openCursor(ofRow);
      takeKeys();
      newToken = loadToken(append, of, cacheHead);
      prepare();
      recallMemory();
      Values known = valuesBeforeKeys();
      Ahead ahead = loadBeforeKeys(known);
      meetAll(Found);
      Values noted = mergeBlocks();
      meetAll(Merged);
      if (note)
        chooseNext();
      // Before another block puts the new token in place of what leaves.
      Values rows = loadRowsAgain();
      if (evict)
        leaveCluster();
      // What is written waits for what is ahead, and nothing else does.
      waitForPrevious();
      if (evict) {
        keep(answer(known, ahead));
        awaitCluster();
      }
      keepRows(rows);
      keepNoted(noted);
      // Nobody reads what leaves any more.
      ifThen(hasNewKey, [&] {
        storeToken(newToken, add(mul(cursorRow, capacity), newEntry));
      });
      // All have read where the head stood, and who leaves next is chosen.
      moveHeadCursor();
      if (!evict) {
        keep(answer(known, ahead));
        // Otherwise others wait for the memory before they write what is
        // shared.
        if (!recall)
          barrier();
        return;
      }
      keepOrder();
      keepTaylor();
      barrier();
    });
    return before;
  });
}

/// While others attend.
void GpuBounded::prepare() {
  if (memory)
    prepareMemory();
  if (!evict)
    return;
  Ahead places = loadOrder();
  if (!note)
    return takeOrder(places);
  Ahead weights = loadEarlierWeights();
  takeOrder(places);
  addEarlierWeights(weights);
}

/// What is computed from the memory alone needs no keys.
void GpuBounded::recallMemory() {
  if (recall || taylor) {
    meetOthers();
    mergeMemory();
  }
  keep(materialize(step.getYield().getValues().front(), /*beforeKeys=*/true));
}

/// All loads come before anything waits for one of them.
void GpuBounded::prepareMemory() {
  takeRows();
  if (fold)
    ifThen(leaves, [&] {
      waitForPrevious();
      foldSegments();
      barrier();
    });
  if (fold)
    prefetchLaterRows();
  Ahead rows = loadRows();
  Values features, sums;
  if (recall || taylor)
    features = loadFeatures();
  if (evict)
    sums = loadSums();
  if (evict)
    ifThen(negate(keepsRows()), [&] { waitForPrevious(); });
  ifThen(less(index(0), held), [&] {
    takeFeatures(features);
    if (evict)
      updateTaylor(sums);
    barrier();
    readMemory(rows);
    if (!evict)
      return;
    Value spread = updateSpread();
    if (taylor)
      scoreMean(spread);
  });
}

//===----------------------------------------------------------------------===//
// The end of a step
//===----------------------------------------------------------------------===//

void GpuBounded::storeElement(FailureOr<Value> value, Value at) {
  keep(value);
  if (failed(value))
    return;
  Type type = plan.output.getElementType();
  Value stored = *value;
  if (stored.getType() != type)
    stored = arith::TruncFOp::create(b, type, stored);
  memref::StoreOp::create(b, stored, outputMemory(), ValueRange{of, head, at});
}

LogicalResult GpuBounded::answer(ValueRange known, const Ahead &ahead) {
  Value given = step.getYield().getValues().front();
  if (failed(materialize(given)))
    return failure();
  int64_t size = plan.output.getDimSize(1);
  finishLoop(ahead, {}, [&](Value at, ValueRange loaded, ValueRange) {
    openOwnHead(div(at, size));
    for (auto [value, element] : llvm::zip_equal(known, loaded))
      knownElements[value] = element;
    storeElement(element(given, {rem(at, size)}), rem(at, size));
    knownElements.clear();
    return Values();
  });
  return isLowered;
}

void GpuBounded::byFirst(llvm::function_ref<void()> body) {
  ifThen(both(equal(rank, index(0)), equal(thread, index(0))), body);
}

void GpuBounded::moveHeadCursor() {
  byFirst([&] {
    Value cursors = array("cursors", b.getI32Type(), kBoundedNumbers);
    auto keep = [&](BoundedNumber which, Value value) {
      store(value, cursors, {cursorRow, index(static_cast<int64_t>(which))});
    };
    keep(BoundedNumber::Length, add(position, 1));
    if (fold)
      return keep(BoundedNumber::Folds, nextFolds);
    keep(BoundedNumber::Count, kept);
    keep(BoundedNumber::Seen, add(seen, 1));
    keep(BoundedNumber::Evicted, held);
    auto [nextVictim, nextPlace] = bestOfBlocks();
    Value isFull = notLess(kept, budget);
    keep(BoundedNumber::Victim, select(isFull, nextVictim, index(-1)));
    keep(BoundedNumber::Place, select(isFull, nextPlace, index(capacity)));
  });
}
