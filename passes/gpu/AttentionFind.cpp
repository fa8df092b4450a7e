//===- AttentionFind.cpp - the nearest query of a section -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The ring is streamed: lanes have 16 bytes of an entry each, and all loads of
// several entries are on their way before the first of them is looked at.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = 128;
/// Loads of a lane that are on their way together.
static constexpr int64_t kLoads = 8;

//===----------------------------------------------------------------------===//
// The token into its page
//===----------------------------------------------------------------------===//

GpuAttention::Values GpuAttention::loadToken(AppendOp op, Value token,
                                             Value kvHead) {
  Values parts;
  for (auto [value, type, size] :
       {std::tuple(op.getValues()[0], plan.keyType, keySize),
        std::tuple(op.getValues()[1], plan.valueType, valueSize)}) {
    int64_t width = elementsOfLoad(type);
    // Threads that have nothing to copy load the last part.
    Value at = minimum(mul(thread, width), index(size - width));
    parts.push_back(loadVector(tensor(value), {token, kvHead, at}, width));
  }
  return parts;
}

void GpuAttention::storeToken(const Values &parts, Value place) {
  auto copy = [&](Value part, StringRef pages, Type type, int64_t size) {
    int64_t width = elementsOfLoad(type);
    ifThen(less(thread, index(size / width)), [&] {
      storeVector(part, array(pages, type, size), {place, mul(thread, width)});
    });
  };
  copy(parts[0], "key_pages", plan.keyType, keySize);
  copy(parts[1], "value_pages", plan.valueType, valueSize);
}

void GpuAttention::append(const Row &row, Value kvHead) {
  AppendOp op;
  step.walk([&](AppendOp each) { op = each; });
  if (!op)
    return;
  Value place = named("place", rowOfKey(row.slot, row.position, kvHead));
  storeToken(loadToken(op, row.token, kvHead), place);
  Value spare = mul(scalar("spare_page"), cacheHeads * plan.pageSize);
  Value isLost = both(equal(thread, index(0)), notLess(place, spare));
  Value fault = array("fault", b.getI32Type());
  ifThen(isLost, [&] { store(add(row.slot, 1), fault, index(0)); });
}

//===----------------------------------------------------------------------===//
// The scan
//===----------------------------------------------------------------------===//

/// Of the ring, from the newest on: a match at p skips p + 1 - band - sinks
/// tokens.
Value GpuAttention::countEntries(const Row &row) {
  Value count = minimum(row.entries, scalar("window"));
  auto limitBy = [&](StringRef name, llvm::function_ref<Value(Value)> most) {
    Value limit = scalar(name);
    count = select(less(index(0), limit), minimum(count, most(limit)), count);
  };
  limitBy("max_gap", [](Value limit) { return limit; });
  limitBy("skip", [&](Value limit) {
    Value skipped = sub(add(row.position, 1), scalar("band"));
    return sub(sub(skipped, scalar("sinks")), limit);
  });
  return maximum(count, index(0));
}

void GpuAttention::buildFind() {
  createKernel("_find", kThreads, /*blocks=*/8);
  startInOrder();
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value number = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  Value sections = scalar("sections");
  Value ofHead = named("head", div(block, sections));
  Value section = named("section", rem(block, sections));
  Row row = openRow(number);
  ifThen(row.isAnswered, [&] {
    Value isFirst = both(equal(section, index(0)),
                         equal(rem(ofHead, plan.group()), index(0)));
    ifThen(isFirst, [&] { append(row, div(ofHead, plan.group())); });
    scan(number, row, ofHead, section);
  });
}

void GpuAttention::scan(Value rowNumber, const Row &row, Value ofHead,
                        Value section) {
  Type type = plan.ring.getQueryType(), f32 = b.getF32Type();
  int64_t width = elementsOfLoad(type), all = keySize / width;
  int64_t lanes = 1;
  while (lanes < kWarp && all % (2 * lanes) == 0)
    lanes *= 2;
  int64_t parts = all / lanes;
  int64_t atOnce = kThreads / lanes;
  int64_t rounds = kAttentionSection / atOnce;
  int64_t batch = std::clamp<int64_t>(kLoads / parts, 1, rounds);

  Value ring = array("ring_queries", type, keySize);
  Value query = tensor(plan.find.getQuery());
  Value ofLane = named("lane", rem(thread, lanes));
  Value group = named("group", div(thread, lanes));
  auto place = [&](int64_t part) {
    return mul(add(ofLane, part * lanes), width);
  };
  Values wanted;
  for (int64_t part = 0; part < parts; ++part)
    wanted.push_back(named(
        "query", widened(query, {row.token, ofHead, place(part)}, width)));
  Value first = named("first", mul(section, kAttentionSection));
  Value count = named("count", countEntries(row));

  Values best = loop(
      index(0), index(rounds), index(batch), {number(INFINITY), index(-1)},
      [&](Value round, ValueRange carried) -> Values {
        Values offsets, loaded, isThere;
        for (int64_t i = 0; i < batch; ++i) {
          Value offset = add(first, add(mul(add(round, i), atOnce), group));
          Value isEntry = less(offset, count);
          Value entry =
              entryBefore(row.position, select(isEntry, offset, index(0)));
          Value at = ringRow(row.slot, ofHead, entry);
          auto vector = VectorType::get({width}, type);
          Value zeros = arith::ConstantOp::create(
              b, DenseElementsAttr::get(vector,
                                        Attribute(b.getFloatAttr(type, 0.0))));
          for (int64_t part = 0; part < parts; ++part)
            loaded.push_back(vector::MaskedLoadOp::create(
                b, vector, ring, ValueRange{at, place(part)},
                splat(isEntry, width), zeros));
          offsets.push_back(offset);
          isThere.push_back(isEntry);
        }
        Value nearest = carried[0], nearestAt = carried[1];
        for (int64_t i = 0; i < batch; ++i) {
          Value squared;
          for (int64_t part = 0; part < parts; ++part) {
            Value other = widen(loaded[i * parts + part]);
            Value difference = arith::SubFOp::create(b, wanted[part], other);
            Value squares = product(difference, difference);
            squared = vector::ReductionOp::create(
                b, vector::CombiningKind::ADD, squares,
                squared ? squared : number(0.0));
          }
          for (int64_t mask = 1; mask < lanes; mask *= 2)
            squared = sum(squared, exchange(squared, mask));
          // Offsets grow, so that ties stay with the newest.
          Value isNearer = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                                 squared, nearest);
          isNearer = both(isNearer, isThere[i]);
          nearest = select(isNearer, squared, nearest);
          nearestAt = select(isNearer, offsets[i], nearestAt);
        }
        return {nearest, nearestAt};
      });

  auto takeNearer = [&](Value squared, Value offset) {
    Value isNearer =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, squared, best[0]);
    Value isAlike =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, squared, best[0]);
    Value isBetter = either(isNearer, both(isAlike, less(offset, best[1])));
    best = {select(isBetter, squared, best[0]),
            select(isBetter, offset, best[1])};
  };
  for (int64_t mask = lanes; mask < kWarp; mask *= 2)
    takeNearer(exchange(best[0], mask), exchange(best[1], mask));
  constexpr int64_t warpCount = kThreads / kWarp;
  Value squares = sharedArray("warp_nearest", f32, {warpCount});
  Value offsets = sharedArray("warp_entries", b.getI32Type(), {warpCount});
  ifThen(equal(rem(thread, kWarp), index(0)), [&] {
    store(best[0], squares, div(thread, kWarp));
    store(best[1], offsets, div(thread, kWarp));
  });
  barrier();
  ifThen(equal(thread, index(0)), [&] {
    for (int64_t other = 1; other < warpCount; ++other)
      takeNearer(loadFloat(squares, index(other)), load(offsets, index(other)));
    Value at = add(mul(add(mul(rowNumber, heads), ofHead), scalar("sections")),
                   section);
    store(best[0], array("nearest", f32), at);
    store(best[1], array("nearest_entry", b.getI32Type()), at);
  });
}
