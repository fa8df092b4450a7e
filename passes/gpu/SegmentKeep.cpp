//===- SegmentKeep.cpp - what of a prompt stays beside the memory ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/SegmentPrompts.h"

using namespace mlir;
using namespace ladle;

void GpuSegmentPrompts::buildKeep() {
  createKernel("_keep", kAttentionAppendWarps * kWarp, /*blocks=*/8);
  openLanes();
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  // Nobody else reads cursors here.
  ifThen(equal(block, index(0)), [&] { moveCursors(); });
  Value ofToken =
      named("token", add(add(mul(block, kAttentionAppendWarps), warp),
                         scalar("round_begin")));
  Value last = load(array("cu_seqlens", b.getI32Type()), {scalar("rows")});
  ifThen(less(ofToken, minimum(last, scalar("round_end"))),
         [&] { keepToken(ofToken); });
}

/// Sinks, and what was not folded.
void GpuSegmentPrompts::keepToken(Value ofToken) {
  Value plans = array("prompt_plans", b.getI32Type(), kBoundedNumbers);
  row = named("row", rowOfToken(ofToken));
  auto field = [&](int64_t which) { return load(plans, {row, index(which)}); };
  slot = named("slot", field(0));
  Value isRow = notLess(slot, index(0));
  ifThen(isRow, [&] {
    Value at = named("position", add(field(2), sub(ofToken, field(1))));
    Value behind = sub(at, index(sinks));
    Value isSink = less(behind, index(0));
    Value stays = either(isSink, notLess(behind, mul(field(4), segment)));
    ifThen(stays, [&] {
      Value ring = rem(maximum(behind, index(0)), capacity - sinks);
      Value entry = select(isSink, at, add(ring, sinks));
      storePrompt(given.append, ofToken, [&](Value ofHead) {
        Value ofSlot = add(mul(slot, cacheHeads), ofHead);
        return add(mul(ofSlot, capacity), entry);
      });
    });
  });
  ifThen(negate(isRow), [&] { answerByZeros(ofToken); });
}

void GpuSegmentPrompts::moveCursors() {
  Type integer = b.getI32Type();
  Value plans = array("prompt_plans", integer, kBoundedNumbers);
  Value cursors = array("cursors", integer, kBoundedNumbers);
  loop(thread, mul(scalar("rows"), cacheHeads), index(threads), [&](Value at) {
    Value ofRow = div(at, cacheHeads);
    auto field = [&](int64_t which) {
      return load(plans, {ofRow, index(which)});
    };
    Value ofSlot = field(0), its = field(3);
    ifThen(both(notLess(ofSlot, index(0)), less(index(0), its)), [&] {
      Value place = add(mul(ofSlot, cacheHeads), rem(at, cacheHeads));
      auto keep = [&](BoundedNumber which, Value value) {
        store(value, cursors, {place, index(static_cast<int64_t>(which))});
      };
      keep(BoundedNumber::Length, add(field(2), its));
      keep(BoundedNumber::Folds, field(4));
    });
  });
}
