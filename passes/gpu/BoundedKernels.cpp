//===- BoundedKernels.cpp - a bounded attention as a GPU kernel -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/BoundedKernels.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace ladle;

LogicalResult GpuBounded::checkStep() {
  int64_t attends = 0;
  step.walk([&](Operation *op) {
    if (auto each = dyn_cast<AttendOp>(op)) {
      attend = each;
      ++attends;
    } else if (auto each = dyn_cast<AppendOp>(op)) {
      append = each;
    } else if (auto each = dyn_cast<EvictFromOp>(op)) {
      evict = each;
    } else if (auto each = dyn_cast<FoldFromOp>(op)) {
      fold = each;
    } else if (auto each = dyn_cast<NoteWeightsOp>(op)) {
      note = each;
    } else if (auto each = dyn_cast<TaylorOp>(op)) {
      taylor = each;
    } else if (auto each = dyn_cast<RecallOp>(op)) {
      recall = each;
    }
  });
  if (step.getOutputNames().size() != 1)
    return step.emitError("cannot be lowered for GPUs: it has ")
           << step.getOutputNames().size() << " outputs, wanted one";
  if (attends != 1 || !append || bool(evict) == bool(fold))
    return step.emitError("cannot be lowered for GPUs: wanted one append, one "
                          "eviction or fold, and one attend, got ")
           << attends << " attends";
  Value operands[] = {attend.getQuery(), append.getValues()[0],
                      append.getValues()[1]};
  for (Value operand : operands)
    if (!isa<BlockArgument>(unwidened(operand)))
      return step.emitError("cannot be lowered for GPUs: queries, keys and "
                            "values are arguments of the step");
  return success();
}

LogicalResult GpuBounded::checkSizes() {
  if (failed(GpuAttention::checkSizes()))
    return failure();
  if (!memory)
    return success();
  int64_t size = memory.getKeySize();
  constexpr int64_t most = 256;
  if (size % kWarp == 0 && size <= most)
    return success();
  auto diagnostic = step.emitError("cannot be lowered for GPUs: features have ")
                    << size << " elements";
  diagnostic.attachNote() << "wanted a multiple of " << kWarp << " up to "
                          << most;
  return diagnostic;
}

LogicalResult GpuBounded::build() {
  if (failed(checkStep()))
    return failure();
  auto cache = cast<BufferType>(step.getCache().getType());
  ArrayRef<FieldAttr> fields = cache.getFields();
  plan.attends = {attend};
  plan.cacheHeads = cacheHeads = fields[0].getShape()[0];
  plan.keySize = keySize = fields[0].getShape()[1];
  plan.valueSize = valueSize = fields[1].getShape()[1];
  plan.keyType = fields[0].getElementType();
  plan.valueType = fields[1].getElementType();
  plan.heads = heads = attend.getQuery().getType().getDimSize(0);
  plan.output = cast<RankedTensorType>(
      cast<TypeAttr>(step.getOutputTypes()[0]).getValue());
  if (Value store = step.getMemory())
    memory = cast<MemoryType>(store.getType());
  capacity = cache.getCapacity();
  stride = boundedStride(capacity);
  sinks = static_cast<int64_t>(evict ? evict.getSinks() : fold.getSinks());
  if (fold)
    segment = static_cast<int64_t>(fold.getSegment());
  else
    queriesKept = static_cast<int64_t>(evict.getQueries());
  if (note)
    pool = static_cast<int64_t>(evict.getPool());
  if (failed(checkSizes()))
    return failure();
  share = attentionShare(plan.group());
  tasksOfRow = heads / share;
  scoreSums = 1; // Its warps have no registers to spare.
  chooseTiles();
  if (failed(chooseBlocks()))
    return failure();
  return buildStep();
}

int64_t GpuBounded::bytesOfShared() {
  int64_t bytes = 0;
  for (auto [i, each] : llvm::enumerate(function.getWorkgroupAttributions()))
    if (!function.getWorkgroupAttributionAttr(i, kSharesAttr)) {
      auto type = cast<MemRefType>(each.getType());
      bytes += llvm::alignTo(
          type.getNumElements() * type.getElementTypeBitWidth() / 8, 16);
    }
  return bytes;
}

/// As few blocks as leave room for a second one on a multiprocessor; failing
/// that, as few as fit alone. Leaves the kernel with its memory.
LogicalResult GpuBounded::chooseBlocks() {
  int64_t most = shared ? shared : 227 << 10, bytes = 0;
  // The multiprocessor takes some of each block's.
  constexpr int64_t own = 1 << 10;
  int64_t ofTwo = (most + own) / 2 - own;
  int64_t budget = evict ? static_cast<int64_t>(evict.getBudget()) : 0;
  constexpr int64_t keysOfTile = 16;
  attending = warps;
  // Of three, what the others load one after another waits behind more keys
  // each time, and the memory gives no more.
  stages = 2;
  auto tryBlocks = [&](int64_t count) {
    if (function) {
      b.setInsertionPointAfter(function);
      function.erase();
      function = {};
    }
    leastBlocks = count;
    int64_t keys = llvm::divideCeil(budget, count);
    keysOfBlock = llvm::alignTo(
        std::max<int64_t>(llvm::alignTo(keys, keysOfTile), keys + pool), 8);
    createKernel("", (attending + kAnswering) * kWarp, /*blocks=*/1);
    declare();
    return bytes = bytesOfShared();
  };
  // Of wide heads threads have too much in registers for a second block; and so
  // have those who attend, where they cannot get what the others leave.
  constexpr int64_t widest = 128;
  bool isCrowded = std::max(keySize, valueSize) > widest ||
                   (attending == kAnswering && !sharesRegisters());
  for (int64_t count = 1; count <= mostBlocks && !isCrowded; count *= 2)
    if (tryBlocks(count) <= ofTwo) {
      function->setAttr(kBlocksAttr, b.getIndexAttr(2));
      return success();
    }
  for (int64_t count = 1; count <= mostBlocks; count *= 2)
    if (tryBlocks(count) <= most)
      return success();
  // Rounded down to whole tiles.
  int64_t spare = most - bytes + bytesOfKey * keysOfBlock - bytesOfKey * pool;
  int64_t keys = bytesOfKey ? spare / bytesOfKey / keysOfTile * keysOfTile : 0;
  if (keys <= 0) {
    auto diagnostic =
        step.emitError("cannot be lowered for GPUs: a block needs ")
        << bytes - bytesOfKey * keysOfBlock << " bytes of shared memory";
    diagnostic.attachNote()
        << "there are " << most << ": smaller heads, or fewer that share a "
        << "head of the cache, need less";
    return failure();
  }
  auto diagnostic = step.emitError("cannot be lowered for GPUs: a budget of ")
                    << budget << " tokens";
  diagnostic.attachNote() << "wanted " << keys * mostBlocks
                          << " at the most: the blocks of a head have what "
                             "they note of its tokens in shared memory";
  return diagnostic;
}

Value GpuBounded::openTask(Value task) {
  rowNumber = named("row", div(task, cacheHeads));
  cacheHead = named("cache_head", rem(task, cacheHeads));
  Type integer = b.getI32Type();
  Value ofRow = named("slot", load(array("slots", integer), {rowNumber}));
  if (decodes) {
    of = rowNumber;
    isToken = arith::ConstantIntOp::create(b, 1, /*width=*/1);
    return ofRow;
  }
  Value starts = array("cu_seqlens", integer);
  of = named("token", add(load(starts, {rowNumber}), scalar("prompt_step")));
  remaining = sub(load(starts, {add(rowNumber, 1)}), of);
  isToken = less(index(0), remaining);
  return select(isToken, ofRow, index(-1));
}

void GpuBounded::openCursor(Value ofSlot, bool isAhead) {
  slot = ofSlot;
  cursorRow = named("cursor", add(mul(slot, cacheHeads), cacheHead));
  Value cursors = array("cursors", b.getI32Type(), kBoundedNumbers);
  Values place{cursorRow, index(0)};
  Value numbers = isAhead ? loadVectorAhead(cursors, place, kBoundedNumbers)
                          : loadVector(cursors, place, kBoundedNumbers);
  auto field = [&](BoundedNumber which) -> Value {
    return arith::IndexCastOp::create(
        b, b.getIndexType(), extract(numbers, static_cast<int64_t>(which)));
  };
  position = named("position", field(BoundedNumber::Length));
  if (evict) {
    Value lowered = field(BoundedNumber::Budget);
    budget =
        named("budget", select(less(index(0), lowered), lowered,
                               index(static_cast<int64_t>(evict.getBudget()))));
    count = named("count", field(BoundedNumber::Count));
    victim = named("victim", field(BoundedNumber::Victim));
    victimPlace = named("victim_place", field(BoundedNumber::Place));
    seen = named("seen", field(BoundedNumber::Seen));
    evicted = named("evicted", field(BoundedNumber::Evicted));
    leaves = named("leaves", notLess(victim, index(0)));
    victimPlace = select(leaves, victimPlace, index(capacity));
    held = named("held", add(evicted, select(leaves, index(1), index(0))));
    newKey = newEntry = named("entry", select(leaves, victim, count));
    span = kept = named("kept", minimum(add(count, 1), budget));
    return;
  }
  // What stands between the sinks and the window is folded where it is full. A
  // prompt's token is answered by its own segment: the window is that token,
  // until as many were folded as there will be when the prompt ends.
  folds = named("folds", field(BoundedNumber::Folds));
  Value length = add(position, 1);
  Value behind = sub(sub(length, index(sinks)), mul(folds, segment));
  Value residual = sub(behind, decodes ? scalar("window") : index(1));
  // A prompt that comes later may find several segments in the window.
  foldCount = div(maximum(residual, index(0)), segment);
  if (!decodes) {
    Value last = sub(add(position, remaining), scalar("window"));
    Value most = div(maximum(sub(last, index(sinks)), index(0)), segment);
    foldCount = minimum(foldCount, maximum(sub(most, folds), index(0)));
  }
  foldCount = named("fold_count", foldCount);
  leaves = named("folds_now", less(index(0), foldCount));
  held = nextFolds = named("next_folds", add(folds, foldCount));
  Value first = add(mul(nextFolds, segment), sinks);
  span = named("span", add(minimum(length, index(sinks)),
                           maximum(sub(length, first), index(0))));
  // Without a window, the token itself may be folded.
  Value stays = either(less(position, index(sinks)), notLess(position, first));
  newKey = select(stays, sub(span, index(1)), index(-1));
  newEntry = named(
      "entry", select(less(position, index(sinks)), position,
                      add(rem(maximum(sub(position, index(sinks)), index(0)),
                              capacity - sinks),
                          sinks)));
}

/// Of a cache that evicts, key j is entry j. In a segmented one the first are
/// the sinks, and those after them follow the last fold around the ring.
Value GpuBounded::rowOfKey(Value ofSlot, Value key, Value ofHead) {
  Value entry = maximum(key, index(0));
  if (fold) {
    Value ring = rem(add(sub(entry, index(sinks)), mul(nextFolds, segment)),
                     capacity - sinks);
    entry = select(less(entry, index(sinks)), entry, add(ring, sinks));
  }
  return add(mul(add(mul(ofSlot, cacheHeads), ofHead), capacity), entry);
}
