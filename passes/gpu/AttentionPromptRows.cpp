//===- AttentionPromptRows.cpp - tokens of prompts, and cursors -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What is known of a row before its prompt is noted first, so that cursors can
// move while others still ask: slot, first token, position, tokens, those that
// leave something, what was amended before, and the entries of its ring after.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionPrompts.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kAppendWarps = kAttentionAppendWarps, kFinishWarps = 8;
/// Numbers of a slot, and of a row's plan.
static constexpr int64_t kNumbers = 8;

//===----------------------------------------------------------------------===//
// Tokens into their pages
//===----------------------------------------------------------------------===//

/// The first row that ends behind the token.
Value GpuPrompts::rowOfToken(Value ofToken) {
  Value starts = array("cu_seqlens", b.getI32Type());
  constexpr int64_t bitsOfRows = 16;
  Values found =
      loop(index(0), index(bitsOfRows), index(1), {index(0), scalar("rows")},
           [&](Value, ValueRange carried) -> Values {
             Value middle = div(add(carried[0], carried[1]), 2);
             Value isOpen = less(carried[0], carried[1]);
             Value at = minimum(middle, sub(scalar("rows"), index(1)));
             Value isBefore = notLess(ofToken, load(starts, {add(at, 1)}));
             Value low = select(isBefore, add(middle, 1), carried[0]);
             Value high = select(isBefore, carried[1], middle);
             return {select(isOpen, low, carried[0]),
                     select(isOpen, high, carried[1])};
           });
  return found[0];
}

void GpuPrompts::noteRow(Value number) {
  Type integer = b.getI32Type();
  Value ofSlot = load(array("slots", integer), {number});
  Value starts = array("cu_seqlens", integer);
  Value first = load(starts, {number});
  Value tokens = maximum(sub(load(starts, {add(number, 1)}), first), index(0));
  Value cursors = array("cursors", integer, kNumbers);
  Value cursor = maximum(ofSlot, index(0));
  auto field = [&](int64_t which) {
    return load(cursors, {cursor, index(which)});
  };
  Value stores = index(0), amendedBefore = index(0), entriesAfter = index(0);
  if (plan.ring) {
    Value capacity = scalar("capacity");
    // What was left with another band means something else, and a prompt that
    // fills the ring leaves nothing of what it held.
    Value isValid = both(equal(field(3), scalar("band")),
                         both(equal(field(4), scalar("sinks")),
                              equal(field(5), scalar("wide"))));
    isValid = both(isValid, less(tokens, capacity));
    stores = minimum(tokens, capacity);
    amendedBefore = select(isValid, field(2), index(0));
    Value entries = select(isValid, field(1), index(0));
    entriesAfter = minimum(add(entries, stores), capacity);
  }
  Value plans = array("prompt_plans", integer, kNumbers);
  Value list[] = {ofSlot, first,         field(0),    tokens,
                  stores, amendedBefore, entriesAfter};
  for (auto [which, value] : llvm::enumerate(list))
    store(value, plans, {number, index(static_cast<int64_t>(which))});
}

/// By a warp.
void GpuPrompts::storePrompt(AppendOp op, Value ofToken,
                             llvm::function_ref<Value(Value)> placeOf) {
  auto copy = [&](Value value, StringRef pages, Type type, int64_t size) {
    Value memory = tensor(value), to = array(pages, type, size);
    int64_t width = elementsOfLoad(type), loads = size / width;
    loop(lane, index(cacheHeads * loads), index(kWarp), [&](Value each) {
      Value ofHead = div(each, loads);
      Value element = mul(rem(each, loads), width);
      storeVector(loadVector(memory, {ofToken, ofHead, element}, width), to,
                  {placeOf(ofHead), element});
    });
  };
  copy(op.getValues()[0], "key_pages", plan.keyType, keySize);
  copy(op.getValues()[1], "value_pages", plan.valueType, valueSize);
}

void GpuPrompts::answerByZeros(Value ofToken) {
  constexpr int64_t width = 4;
  loop(mul(lane, width), index(heads * valueSize), index(kWarp * width),
       [&](Value at) {
         storeVector(splat(number(0), width), outputMemory(),
                     {ofToken, div(at, valueSize), rem(at, valueSize)});
       });
}

void GpuPrompts::appendToken(Value number, Value ofToken) {
  Type integer = b.getI32Type();
  Value ofSlot = named("slot", load(array("slots", integer), {number}));
  Value isRow = notLess(ofSlot, index(0));
  ifThen(isRow, [&] {
    Value before =
        load(array("cursors", integer, kNumbers), {ofSlot, index(0)});
    Value first = load(array("cu_seqlens", integer), {number});
    Value at = named("position", add(before, sub(ofToken, first)));
    AppendOp op;
    step.walk([&](AppendOp each) { op = each; });
    storePrompt(op, ofToken,
                [&](Value ofHead) { return rowOfKey(ofSlot, at, ofHead); });
    Value spare = mul(scalar("spare_page"), cacheHeads * plan.pageSize);
    Value isLost = notLess(rowOfKey(ofSlot, at, index(0)), spare);
    ifThen(both(equal(lane, index(0)), isLost),
           [&] { store(add(ofSlot, 1), array("fault", integer), index(0)); });
  });
  // Padding is answered by zeros.
  ifThen(negate(isRow), [&] { answerByZeros(ofToken); });
}

void GpuPrompts::buildPromptAppend() {
  createKernel("_append", kAppendWarps * kWarp, /*blocks=*/8);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  Value rows = scalar("rows");
  ifThen(equal(block, index(0)), [&] {
    loop(thread, rows, index(threads), [&](Value number) { noteRow(number); });
  });
  Value ofToken = named("token", add(mul(block, kAppendWarps), warp));
  Value last = load(array("cu_seqlens", b.getI32Type()), {rows});
  ifThen(less(ofToken, last),
         [&] { appendToken(named("row", rowOfToken(ofToken)), ofToken); });
}

//===----------------------------------------------------------------------===//
// What the last tokens leave beside their summaries
//===----------------------------------------------------------------------===//

/// Queries, depths and ends of the tokens that leave something, and the mean of
/// the squares so far.
void GpuPrompts::leaveTokens(Value plans) {
  Type integer = b.getI32Type(), f32 = b.getF32Type();
  auto field = [&](int64_t which) { return load(plans, {row, index(which)}); };
  Value stored = named("stored", field(4));
  Value skipped = sub(field(3), stored);
  Value firstStored = add(field(1), skipped);
  Value firstAt = named("position", add(field(2), skipped));
  int64_t width = keySize / kWarp;
  Value element = mul(lane, width);
  // So that no sum of squares overflows that are numbers themselves.
  constexpr double scale = 0x1p-24;
  Values squares = loop(
      warp, stored, index(kFinishWarps), {number(0), number(0)},
      [&](Value each, ValueRange carried) -> Values {
        Value ofToken = add(firstStored, each), at = add(firstAt, each);
        Value entryRow = named(
            "entry_row", ringRow(slot, head, rem(at, scalar("capacity"))));
        auto loadQuery = [&](Value value) {
          return widened(tensor(value), {ofToken, head, element}, width);
        };
        auto storeQuery = [&](Value query, StringRef name) {
          storeVector(query, array(name, plan.ring.getQueryType(), keySize),
                      {entryRow, element});
        };
        Value query = loadQuery(plan.store.getQuery());
        Value square = squareOf(query);
        storeQuery(query, "ring_queries");
        if (plan.store.getRotated())
          storeQuery(loadQuery(plan.store.getRotated()), "ring_rotated");
        ifThen(equal(lane, index(0)), [&] {
          // Nothing was matched.
          store(index(0), array("ring_depths", integer), entryRow);
          if (plan.ring.getParts() == 2)
            store(boundOf(Bound::Wide, at), array("ring_ends", integer),
                  entryRow);
        });
        Value counts = isNumber(square);
        auto more = [&](Value value) {
          return select(counts, value, number(0));
        };
        return {sum(carried[0], more(product(square, number(scale)))),
                sum(carried[1], more(number(1)))};
      });
  if (!plan.ring.getEstimates())
    return;
  Value ofWarps = sharedArray("warp_squares", f32, {kFinishWarps, 2});
  ifThen(equal(lane, index(0)), [&] {
    store(squares[0], ofWarps, {warp, index(0)});
    store(squares[1], ofWarps, {warp, index(1)});
  });
  barrier();
  ifThen(both(equal(thread, index(0)), less(index(0), stored)), [&] {
    Value all = number(0), counted = number(0);
    for (int64_t each = 0; each < kFinishWarps; ++each) {
      all = sum(all, loadFloat(ofWarps, {index(each), index(0)}));
      counted = sum(counted, loadFloat(ofWarps, {index(each), index(1)}));
    }
    Value isLater = less(index(0), named("amended", field(5)));
    Value moments = momentsMemory(), at = add(mul(slot, heads), head);
    auto so = [&](int64_t which) {
      return select(isLater, loadFloat(moments, {at, index(which)}), number(0));
    };
    Value mean = so(0), tokens = sum(so(1), counted);
    // The mean moves by the mean of what is new beside it.
    Value change = arith::SubFOp::create(
        b, all, product(product(mean, number(scale)), counted));
    change = arith::DivFOp::create(b, change, larger(tokens, number(1)));
    store(sum(mean, product(change, number(1 / scale))), moments,
          {at, index(0)});
    store(tokens, moments, {at, index(1)});
  });
}

void GpuPrompts::movePromptCursor(Value plans) {
  auto field = [&](int64_t which) { return load(plans, {row, index(which)}); };
  Value cursors = array("cursors", b.getI32Type(), kNumbers);
  auto keep = [&](int64_t which, Value value) {
    store(value, cursors, {slot, index(which)});
  };
  keep(0, add(field(2), field(3)));
  if (!plan.ring)
    return;
  // A row without tokens leaves its ring to the band that it has.
  ifThen(less(index(0), field(3)), [&] {
    keep(1, field(6));
    keep(2, add(field(5), field(4)));
    keep(3, scalar("band"));
    keep(4, scalar("sinks"));
    keep(5, scalar("wide"));
  });
}

void GpuPrompts::buildPromptFinish() {
  createKernel("_finish", plan.ring ? kFinishWarps * kWarp : kWarp,
               /*blocks=*/2);
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  head = named("head", gpu::BlockIdOp::create(b, gpu::Dimension::x));
  row = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  Value plans = array("prompt_plans", b.getI32Type(), kNumbers);
  slot = named("slot", load(plans, {row, index(0)}));
  ifThen(notLess(slot, index(0)), [&] {
    if (plan.ring)
      leaveTokens(plans);
    Value isOne = both(equal(head, index(0)), equal(thread, index(0)));
    ifThen(isOne, [&] { movePromptCursor(plans); });
  });
}
