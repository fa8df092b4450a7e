//===- BoundedPromptBudgets.cpp - heads that keep less than before --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A budget that is lowered is a prompt of no tokens: candidates are those that
// a head holds, with the salience that the last queries left them. `_lower`, a
// block a head of a row, chooses; `_fold` is that of prompts; and `_pack` moves
// those that stay and lie behind the last into the entries of those that left,
// which are as many. Nothing is written to an entry that is read.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedPrompts.h"

#include <cmath>

using namespace mlir;
using namespace ladle;

void GpuBoundedPrompts::buildLower() {
  createKernel("_lower", kSelectThreads, /*blocks=*/1);
  openChoosing();
  Type integer = b.getI32Type();
  row = named("row", div(planRow, cacheHeads));
  slot = named("slot", load(array("slots", integer), {row}));
  firstToken = count = index(0);
  cursorRow =
      named("cursor", add(mul(maximum(slot, index(0)), cacheHeads), cacheHead));
  position = all = named("held", cursor(BoundedNumber::Count));
  Value isPadding = less(slot, index(0));
  // What nobody on the host has seen is kept within its bounds.
  Value wanted = load(array("budgets", integer), {row});
  wanted =
      minimum(maximum(wanted, index(sinks + recent)), index(budgetOfProgram));
  ifThen(both(negate(isPadding), equal(thread, index(0))), [&] {
    store(wanted, array("cursors", integer, kBoundedNumbers),
          {cursorRow, index(static_cast<int64_t>(BoundedNumber::Budget))});
  });
  Value isThere = both(negate(isPadding), less(index(0), position));
  ifThen(negate(isThere), [&] { skipHead(); });
  ifThen(isThere, [&] { lowerHead(wanted); });
}

void GpuBoundedPrompts::lowerHead(Value wanted) {
  before = named("before", cursor(BoundedNumber::Length));
  evicted = named("evicted", cursor(BoundedNumber::Evicted));
  openChoice(wanted);
  if (given.notes) {
    weighHeld();
    barrier();
  }
  listCandidates(rankAndFind());
  Value place = nextPlace();
  barrier();
  moveInside();
  barrier();
  ifThen(equal(thread, index(0)), [&] {
    keepCursor(place, load(array("kept_entries", b.getI32Type(), stride),
                           {planRow, place}));
  });
}

/// By what the last queries gave each, as steps note it.
void GpuBoundedPrompts::weighHeld() {
  Type f32 = b.getF32Type(), integer = b.getI32Type();
  Value seen = window ? cursor(BoundedNumber::Seen) : Value();
  loop(thread, position, index(threads), [&](Value at) {
    Value entry = entryInOrder(at);
    auto its = [&](StringRef name, Type type) -> Value {
      return memref::LoadOp::create(b, array(name, type, stride),
                                    ValueRange{cursorRow, entry});
    };
    Value salience;
    if (window) {
      Value came = arith::IndexCastOp::create(b, b.getIndexType(),
                                              its("token_positions", integer));
      Value queries = minimum(minimum(seen, index(window)), sub(before, came));
      Value n = arith::SIToFPOp::create(
          b, f32,
          arith::IndexCastOp::create(b, integer, maximum(queries, index(1))));
      Value ofOne = arith::DivFOp::create(b, number(1), n);
      auto fromUnits = [&](Value sums, int64_t bits) {
        Value whole = arith::UIToFPOp::create(b, f32, sums);
        return product(
            product(whole, number(std::ldexp(1.0, -static_cast<int>(bits)))),
            ofOne);
      };
      int64_t bits = windowBits(plan.group(), window);
      Value mean = fromUnits(its("window_sums", integer), bits);
      Value squares =
          fromUnits(its("window_squares", b.getI64Type()), 2 * bits);
      Value variance = arith::SubFOp::create(b, squares, product(mean, mean));
      salience =
          sum(mean, product(number(given.evict.getVariance().convertToDouble()),
                            larger(variance, number(0))));
    } else {
      salience = its("weight_sums", f32);
    }
    store(salience, array("salience", f32), placeOf(at));
  });
}

/// Leaves the entries that those which stay come from, and go to. As many of
/// them lie behind the last as entries before it are free.
void GpuBoundedPrompts::moveInside() {
  Type integer = b.getI32Type();
  Value tokens = array("kept_tokens", integer, stride);
  Value entries = array("kept_entries", integer, stride);
  // Ranks have done their work.
  Value free = array("ranks", integer);
  auto stretch = [&](Value size) {
    Value each = div(add(size, kSelectThreads - 1), kSelectThreads);
    Value from = minimum(mul(thread, each), size);
    return std::pair(from, minimum(add(from, each), size));
  };
  auto listThose = [&](Value size, llvm::function_ref<Value(Value at)> isMeant,
                       llvm::function_ref<void(Value at, Value which)> tell) {
    auto [from, last] = stretch(size);
    auto count = [&](Value at, Value sums) {
      return add(sums, select(isMeant(at), index(1), index(0)));
    };
    Values mine = loop(from, last, index(1), {index(0)},
                       [&](Value at, ValueRange sums) -> Values {
                         return {count(at, sums[0])};
                       });
    Value ahead = sumBefore(mine[0]).first;
    loop(from, last, index(1), {ahead},
         [&](Value at, ValueRange sums) -> Values {
           tell(at, sums[0]);
           return {count(at, sums[0])};
         });
  };
  Value list = array("leaving", integer);
  auto left = [&](Value at) { return load(list, placeOf(at)); };
  listThose(
      leaving, [&](Value at) { return less(left(at), kept); },
      [&](Value at, Value which) {
        ifThen(less(left(at), kept),
               [&] { store(left(at), free, placeOf(which)); });
      });
  loop(thread, kept, index(threads), [&](Value place) {
    store(entryInOrder(load(tokens, {planRow, place})), tokens,
          {planRow, place});
  });
  barrier();
  auto old = [&](Value place) { return load(tokens, {planRow, place}); };
  listThose(
      kept, [&](Value place) { return notLess(old(place), kept); },
      [&](Value place, Value which) {
        Value from = old(place);
        Value inside =
            minimum(which, maximum(sub(leaving, index(1)), index(0)));
        store(select(less(from, kept), from, load(free, placeOf(inside))),
              entries, {planRow, place});
      });
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

void GpuBoundedPrompts::buildPack() {
  createKernel("_pack", kScoreWarps * kWarp, /*blocks=*/1);
  openLanes();
  openHead(gpu::BlockIdOp::create(b, gpu::Dimension::x));
  Value first = named(
      "first", mul(gpu::BlockIdOp::create(b, gpu::Dimension::y), kTileKeys));
  Value isThere = both(notLess(slot, index(0)), less(index(0), leaving));
  ifThen(both(isThere, less(first, kept)), [&] { packTile(first); });
}

void GpuBoundedPrompts::packTile(Value first) {
  Type integer = b.getI32Type();
  Value last = minimum(add(first, kTileKeys), kept);
  Value sources = array("kept_tokens", integer, stride);
  Value entries = array("kept_entries", integer, stride);
  auto move = [&](StringRef name, Type type, Value ofRow, Value from,
                  Value to) {
    Value all = array(name, type, stride);
    memref::StoreOp::create(
        b, memref::LoadOp::create(b, all, ValueRange{ofRow, from}), all,
        ValueRange{ofRow, to});
  };
  // Of `each` parts of a place in turn, where it moves at all.
  auto visit = [&](int64_t each,
                   llvm::function_ref<void(Value, Value, Value)> moved) {
    loop(thread, mul(sub(last, first), each), index(threads), [&](Value at) {
      Value place = add(first, div(at, each));
      Value from = load(sources, {planRow, place});
      Value to = load(entries, {planRow, place});
      ifThen(negate(equal(from, to)), [&] { moved(rem(at, each), from, to); });
    });
  };
  loop(add(first, thread), last, index(threads), [&](Value place) {
    store(load(entries, {planRow, place}), array("sequence", integer, stride),
          {cursorRow, place});
  });
  visit(1, [&](Value, Value from, Value to) {
    move("token_positions", integer, cursorRow, from, to);
    if (!given.notes)
      return;
    if (!window)
      return move("weight_sums", b.getF32Type(), cursorRow, from, to);
    move("window_sums", integer, cursorRow, from, to);
    move("window_squares", b.getI64Type(), cursorRow, from, to);
  });
  auto copy = [&](StringRef pages, Type type, int64_t size) {
    Value of = array(pages, type, size);
    int64_t width = elementsOfLoad(type);
    visit(size / width, [&](Value chunk, Value from, Value to) {
      Value element = mul(chunk, width);
      storeVector(loadVector(of, {rowOfEntry(from), element}, width), of,
                  {rowOfEntry(to), element});
    });
  };
  copy("key_pages", plan.keyType, keySize);
  copy("value_pages", plan.valueType, valueSize);
  if (given.notes && window)
    visit(window, [&](Value query, Value from, Value to) {
      move("weights", b.getF16Type(), add(mul(cursorRow, window), query), from,
           to);
    });
  if (memory)
    keepSpread();
}
