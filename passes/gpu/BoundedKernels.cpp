//===- BoundedKernels.cpp - a bounded attention as GPU kernels ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/BoundedKernels.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/KernelInfo.h"

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
  if (failed(checkSizes()))
    return failure();
  share = attentionShare(plan.group());
  tasksOfRow = heads / share;
  if (note && failed(checkEviction()))
    return failure();
  chooseTiles();
  buildAttend();
  return buildFinish();
}

void GpuBounded::createEarlyKernel(StringRef suffix, int64_t count,
                                   int64_t blocks) {
  createKernel(suffix, count, blocks);
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
}

void GpuBounded::waitForPrevious() {
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
}

void GpuBounded::letNextStart() {
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::launch_dependents);
}

Value GpuBounded::openToken() {
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

void GpuBounded::openCursor(Value ofSlot, Value ofHead) {
  slot = ofSlot;
  cacheHead = ofHead;
  cursorRow =
      named("cursor", add(mul(maximum(slot, index(0)), cacheHeads), cacheHead));
  Value cursors = array("cursors", b.getI32Type(), kBoundedNumbers);
  auto field = [&](BoundedNumber which) {
    return load(cursors, {cursorRow, index(static_cast<int64_t>(which))});
  };
  position = named("position", field(BoundedNumber::Length));
  if (evict) {
    budget = index(static_cast<int64_t>(evict.getBudget()));
    count = named("count", field(BoundedNumber::Count));
    victim = named("victim", field(BoundedNumber::Victim));
    seen = named("seen", field(BoundedNumber::Seen));
    evicted = named("evicted", field(BoundedNumber::Evicted));
    Value isFull = notLess(count, budget);
    newEntry =
        named("entry", select(isFull, field(BoundedNumber::Spare), count));
    attended = kept = named("kept", minimum(add(count, 1), budget));
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
  isFolding = less(index(0), foldCount);
  nextFolds = named("next_folds", add(folds, foldCount));
  Value first = add(mul(nextFolds, segment), sinks);
  attended = named("attended", add(minimum(length, index(sinks)),
                                   maximum(sub(length, first), index(0))));
  newEntry = named(
      "entry", select(less(position, index(sinks)), position,
                      add(rem(maximum(sub(position, index(sinks)), index(0)),
                              capacity - sinks),
                          sinks)));
}

/// Of a cache that evicts, key j is entry j, but for the one that leaves, in
/// whose place the last entry stands. In a segmented one the first are the
/// sinks, and those after them follow the last fold around the ring.
Value GpuBounded::entryOfKey(Value key) {
  Value entry = maximum(key, index(0));
  if (evict)
    return select(equal(entry, victim), index(capacity - 1), entry);
  Value ring = rem(add(sub(entry, index(sinks)), mul(nextFolds, segment)),
                   capacity - sinks);
  return select(less(entry, index(sinks)), entry, add(ring, sinks));
}

Value GpuBounded::rowOfKey(Value ofSlot, Value key, Value ofHead) {
  return add(mul(add(mul(ofSlot, cacheHeads), ofHead), capacity),
             entryOfKey(key));
}
