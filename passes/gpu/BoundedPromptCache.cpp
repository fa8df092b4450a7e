//===- BoundedPromptCache.cpp - what bounded prompts share ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/BoundedPromptCache.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace ladle;

Value ladle::withoutCasts(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<arith::ExtFOp, arith::TruncFOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

std::optional<BoundedPromptTokens>
BoundedPromptTokens::of(AttentionStepOp step) {
  BoundedPromptTokens tokens;
  int64_t attends = 0;
  step.walk([&](AttendOp op) {
    tokens.attend = op;
    ++attends;
  });
  step.walk([&](AppendOp op) { tokens.append = op; });
  if (!tokens.append || attends != 1 || step.getOutputNames().size() != 1 ||
      !isa<BlockArgument>(unwidened(tokens.attend.getQuery())))
    return std::nullopt;
  ArrayRef<FieldAttr> fields =
      cast<BufferType>(step.getCache().getType()).getFields();
  for (auto [field, value] : llvm::zip(fields, tokens.append.getValues())) {
    Value token = unwidened(value);
    if (!isa<BlockArgument>(token) ||
        getElementTypeOrSelf(token.getType()) != field.getElementType())
      return std::nullopt;
  }
  return tokens;
}

LogicalResult GpuBoundedPromptCache::openCache() {
  auto cache = cast<BufferType>(step.getCache().getType());
  ArrayRef<FieldAttr> fields = cache.getFields();
  plan.attends = {tokens.attend};
  plan.cacheHeads = cacheHeads = fields[0].getShape()[0];
  plan.keySize = keySize = fields[0].getShape()[1];
  plan.valueSize = valueSize = fields[1].getShape()[1];
  plan.keyType = fields[0].getElementType();
  plan.valueType = fields[1].getElementType();
  plan.heads = heads = tokens.attend.getQuery().getType().getDimSize(0);
  plan.output = cast<RankedTensorType>(
      cast<TypeAttr>(step.getOutputTypes()[0]).getValue());
  if (Value store = step.getMemory())
    memory = cast<MemoryType>(store.getType());
  capacity = cache.getCapacity();
  if (failed(checkSizes()))
    return failure();
  return listSegments();
}

void GpuBoundedPromptCache::openLanes() {
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  laneRow = named("g", div(lane, 4));
  lanePart = named("t", rem(lane, 4));
}

void GpuBoundedPromptCache::openCacheRow(Value ofRow) {
  row = named("row", ofRow);
  slot = named("slot", load(array("slots", b.getI32Type()), {row}));
  auto [first, its] = tokensOf(row);
  firstToken = named("first_token", first);
  count = named("count", maximum(its, index(0)));
  cursorRow =
      named("cursor", add(mul(maximum(slot, index(0)), cacheHeads), cacheHead));
}

Value GpuBoundedPromptCache::cursor(BoundedNumber which) {
  return load(array("cursors", b.getI32Type(), kBoundedNumbers),
              {cursorRow, index(static_cast<int64_t>(which))});
}

Value GpuBoundedPromptCache::rowOfEntry(Value entry) {
  return add(mul(cursorRow, capacity), entry);
}

Value GpuBoundedPromptCache::rowOfPrompt(Value token) {
  return sub(index(-1), add(firstToken, token));
}

void GpuBoundedPromptCache::copyChunk(bool isKey, Value place, Value element,
                                      ValueRange into) {
  Value isHeld = notLess(place, index(0));
  ifThen(isHeld, [&] { GpuPrompts::copyChunk(isKey, place, element, into); });
  ifThen(negate(isHeld), [&] {
    Value from = tensor(tokens.append.getValues()[isKey ? 0 : 1]);
    GpuPrompts::copyChunk(from, {sub(index(-1), place), cacheHead, element},
                          isKey ? keys : values, into);
  });
}
