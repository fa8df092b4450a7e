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
void GpuBounded::meetCluster() {
  if (mostBlocks > 1)
    ifThen(less(index(1), ranks), [&] { clusterBarrier(); });
}

void GpuBounded::letOthersMeet() {
  if (mostBlocks > 1 && (recall || taylor))
    ifThen(less(index(1), ranks), [&] { clusterArrive(); });
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
  Value clusters =
      named("clusters", gpu::GridDimOp::create(b, gpu::Dimension::y));
  Value tasks = named("tasks", mul(scalar("rows"), cacheHeads));
  Values done = loop(first, tasks, clusters, {init},
                     [&](Value task, ValueRange before) -> Values {
                       named("task", task);
                       return {body(openTask(task), before.front())};
                     });
  return done.front();
}

LogicalResult GpuBounded::buildStep() {
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  function->setAttr(kLeastBlocksAttr, b.getIndexAttr(leastBlocks));
  rank = named("rank", gpu::BlockIdOp::create(b, gpu::Dimension::x));
  ranks = named("ranks", gpu::GridDimOp::create(b, gpu::Dimension::x));
  blockThread = thread;
  blockWarp = warp;
  letNextStart();
  Value attends = less(warp, index(attending));
  ifThen(negate(attends), [&] { prefetchParameters(); });
  ifThen(equal(scalar("starts_early"), index(0)), [&] { waitForPrevious(); });
  ifThen(attends, [&] { attendTasks(); });
  ifThen(negate(attends), [&] { answerTasks(); });
  return isLowered;
}

void GpuBounded::attendTasks() {
  enterPart(Attending, 0, attending);
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
  if (firstOfTask == 0)
    letOthersMeet();
}

/// Of those who attend, until the others have merged what they found.
void GpuBounded::leaveHead() {
  meetAll(Merged);
  meetCluster();
}

void GpuBounded::answerTasks() {
  enterPart(Answering, attending, kAnswering);
  forTasks(index(0), [&](Value ofRow, Value before) {
    // Padding is answered by zeros.
    ifThen(both(isToken, less(ofRow, index(0))), [&] {
      waitForPrevious();
      keep(storeOutput([&](Value) -> FailureOr<Value> { return number(0); }));
    });
    ifThen(notLess(ofRow, index(0)), [&] {
      openCursor(ofRow);
      takeKeys();
      newToken = loadToken(append, of, cacheHead);
      prepare();
      waitForPrevious();
      recallMemory();
      meetAll(Found);
      mergeBlocks();
      meetAll(Merged);
      // Nobody reads what leaves any more.
      ifThen(hasNewKey, [&] {
        storeToken(newToken, add(mul(cursorRow, capacity), newEntry));
      });
      keep(answer());
      if (evict) {
        keepOrder();
        keepTaylor();
        if (note)
          chooseNext();
      }
      meetCluster();
      moveHeadCursor();
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
  if (!recall && !taylor)
    return;
  meetOthers();
  mergeMemory();
  keep(materialize(step.getYield().getValues().front(), /*beforeKeys=*/true));
}

/// All loads come before anything waits for one of them.
void GpuBounded::prepareMemory() {
  rowsHere = named("rows_here", div(index(memory.getKeySize()), ranks));
  firstRow = named("first_row", mul(rank, rowsHere));
  if (fold)
    ifThen(leaves, [&] {
      waitForPrevious();
      foldSegments();
      barrier();
    });
  Ahead rows = loadRows();
  Values features, sums;
  if (recall || taylor)
    features = loadFeatures();
  if (evict)
    sums = loadSums();
  // Rows of the memory are the first thing that is written.
  waitForPrevious();
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

LogicalResult GpuBounded::storeOutput(
    llvm::function_ref<FailureOr<Value>(Value at)> element) {
  Value output = outputMemory();
  Type type = plan.output.getElementType();
  LogicalResult isStored = success();
  forOwnHeads(plan.output.getDimSize(1), [&](Value at) {
    FailureOr<Value> value = element(at);
    isStored = value;
    if (failed(value))
      return;
    Value stored = *value;
    if (stored.getType() != type)
      stored = arith::TruncFOp::create(b, type, stored);
    memref::StoreOp::create(b, stored, output, ValueRange{of, head, at});
  });
  return isStored;
}

LogicalResult GpuBounded::answer() {
  Value given = step.getYield().getValues().front();
  if (failed(materialize(given)))
    return failure();
  return storeOutput([&](Value at) { return element(given, {at}); });
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
