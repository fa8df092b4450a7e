//===- BoundedPrompts.cpp - prompts of a cache that evicts ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/BoundedPrompts.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// What a step does
//===----------------------------------------------------------------------===//

/// Whether a summary is of the cache, and of the memory if there is one.
static bool isOf(Value summary, AttendOp attend, TaylorOp taylor) {
  if (!taylor)
    return summary == attend.getResult();
  auto merged = summary.getDefiningOp<MergeOp>();
  if (!merged)
    return false;
  Value sides[] = {merged.getLhs(), merged.getRhs()};
  return llvm::is_contained(sides, attend.getResult()) &&
         llvm::is_contained(sides, taylor.getResult());
}

std::optional<BoundedPromptPlan> BoundedPromptPlan::of(AttentionStepOp step) {
  if (!step.isBounded() || step.getForm() != AttentionForm::PrefillSelect)
    return std::nullopt;
  auto tokens = BoundedPromptTokens::of(step);
  if (!tokens)
    return std::nullopt;
  BoundedPromptPlan plan{*tokens, {}, {}};
  for (auto attention :
       step->getParentRegion()->front().getOps<AttentionOp>()) {
    if (attention.getSymName() != step.getAttention())
      continue;
    attention.walk([&](EvictOp op) { plan.evict = op; });
    attention.walk([&](ObserveOp) { plan.notes = true; });
  }
  int64_t recalls = 0;
  step.walk([&](TaylorOp op) {
    plan.taylor = op;
    ++recalls;
  });
  if (!plan.evict || recalls > 1 || bool(plan.taylor) != bool(step.getMemory()))
    return std::nullopt;
  if (plan.taylor && plan.taylor.getQuery() != plan.attend.getQuery())
    return std::nullopt;
  auto given = withoutCasts(step.getYield().getValues().front())
                   .getDefiningOp<NormalizeOp>();
  if (!given || !isOf(given.getSummary(), plan.attend, plan.taylor))
    return std::nullopt;
  return plan;
}

LogicalResult GpuBoundedPrompts::build() {
  if (failed(openCache()))
    return failure();
  stride = boundedStride(capacity);
  EvictOp evict = given.evict;
  budgetOfProgram = static_cast<int64_t>(evict.getBudget());
  sinks = static_cast<int64_t>(evict.getSinks());
  recent = static_cast<int64_t>(evict.getRecent());
  window = static_cast<int64_t>(evict.getQueries());
  pool = static_cast<int64_t>(evict.getPool());
  choosePromptTiles();
  buildPromptAttend();
  // Tiles of scores have no values, and leave room for queries.
  sharesQueries = false;
  warps = 4;
  if (given.notes)
    buildScore();
  buildSelect();
  if (memory)
    buildFold();
  buildKeep();
  buildLower();
  buildPack();
  buildMark();
  buildPrefer();
  return success();
}

//===----------------------------------------------------------------------===//
// Where things are
//===----------------------------------------------------------------------===//

Value GpuBoundedPrompts::heldOf(Value ofRow) {
  Value ofSlot =
      maximum(load(array("slots", b.getI32Type()), {ofRow}), index(0));
  return load(array("cursors", b.getI32Type(), kBoundedNumbers),
              {add(mul(ofSlot, cacheHeads), cacheHead),
               index(static_cast<int64_t>(BoundedNumber::Count))});
}

/// Keys of the prompt stand behind those that are held.
void GpuBoundedPrompts::openPrompt(Value ofRow) {
  openCacheRow(ofRow);
  position = named("held", cursor(BoundedNumber::Count));
  all = named("all", add(position, count));
}

void GpuBoundedPrompts::openHead(Value which) {
  planRow = which;
  cacheHead = named("cache_head", rem(which, cacheHeads));
  row = named("row", div(which, cacheHeads));
  Value plans = array("head_plans", b.getI32Type(), kBoundedNumbers);
  auto field = [&](int64_t number) {
    return load(plans, {planRow, index(number)});
  };
  slot = named("slot", field(0));
  firstToken = named("first_token", field(1));
  before = named("before", field(2));
  count = named("count", field(3));
  position = named("held", field(4));
  kept = named("kept", field(5));
  evicted = named("evicted", field(6));
  cursorRow =
      named("cursor", add(mul(maximum(slot, index(0)), cacheHeads), cacheHead));
  all = named("all", add(position, count));
  leaving = named("leaving", sub(all, kept));
}

Value GpuBoundedPrompts::placeOf(Value candidate) {
  Value ofRow = add(firstToken, mul(row, stride));
  return add(mul(cacheHead, scalar("candidates")), add(ofRow, candidate));
}

Value GpuBoundedPrompts::entryInOrder(Value candidate) {
  return load(array("sequence", b.getI32Type(), stride),
              {cursorRow, minimum(candidate, index(stride - 1))});
}

Value GpuBoundedPrompts::rowOfKey(Value, Value key, Value) {
  Value entry = inOrder ? entryInOrder(key) : key;
  return select(less(key, position), rowOfEntry(entry),
                rowOfPrompt(sub(key, position)));
}
