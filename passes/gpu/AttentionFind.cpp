//===- AttentionFind.cpp - who looks for the nearest query ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kThreads = 128;

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

/// What has not been waited for yet is waited for before anything is written.
void GpuAttention::append(const Row &row, Value kvHead, Value waits) {
  AppendOp op;
  step.walk([&](AppendOp each) { op = each; });
  if (!op)
    return;
  Value place = named("place", rowOfKey(row.slot, row.position, kvHead));
  Values parts = loadToken(op, row.token, kvHead);
  if (waits)
    ifThen(waits, [&] { waitForPrevious(); });
  storeToken(parts, place);
  Value spare = mul(scalar("spare_page"), cacheHeads * plan.pageSize);
  Value isLost = both(equal(thread, index(0)), notLess(place, spare));
  Value fault = array("fault", b.getI32Type());
  ifThen(isLost, [&] { store(add(row.slot, 1), fault, index(0)); });
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Before what is ahead has ended, the entries of this block's section come to
/// the second-level cache, unless there are so many rows that halves are read.
/// Slots that are read here say what to ask for, and nothing else.
void GpuAttention::askForRing() {
  Type type = plan.ring.getQueryType();
  constexpr int64_t lineBits = 1024;
  int64_t elements = lineBits / type.getIntOrFloatBitWidth();
  int64_t lines = (keySize + elements - 1) / elements;
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value sections = scalar("sections");
  Value isScanned = both(less(block, mul(sections, heads)),
                         less(scalar("rows"), scalar("rows_in_halves")));
  ifThen(isScanned, [&] {
    Value number = gpu::BlockIdOp::create(b, gpu::Dimension::y);
    Value its = extract(
        loadVectorAhead(array("slots", b.getI32Type()), {number}, 1), 0);
    its = arith::IndexCastOp::create(b, b.getIndexType(), its);
    Value isSlot =
        both(notLess(its, index(0)), less(its, scalar("slot_count")));
    ifThen(isSlot, [&] {
      Value first = mul(rem(block, sections), kAttentionSection);
      Value count =
          minimum(sub(scalar("capacity"), first), index(kAttentionSection));
      Value row = ringRow(its, div(block, sections), first);
      loop(thread, mul(count, lines), index(kThreads), [&](Value at) {
        prefetch(array("ring_queries", type, keySize),
                 {add(row, div(at, lines)), mul(rem(at, lines), elements)});
      });
    });
  });
}

/// An early step looks for matches while what is ahead still runs. What a block
/// leaves is of this layer alone; only tokens wait.
void GpuAttention::buildFind() {
  createKernel("_find", kThreads, kAttentionFindBlocks);
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  Value early = isEarly();
  ifThen(early, [&] { letNextStart(); });
  ifThen(negate(early), [&] {
    askForRing();
    waitForPrevious();
    letNextStart();
  });
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value number = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  Value sections = scalar("sections");
  Row row = openRow(number);
  // Behind the blocks that look for a match are those that append the token, a
  // head each.
  Value scanners = mul(sections, heads);
  ifThen(both(row.isAnswered, less(block, scanners)), [&] {
    Value ofHead = named("head", div(block, sections));
    scan(number, row, ofHead, named("section", rem(block, sections)));
  });
  Value appends = notLess(block, scanners);
  ifThen(both(row.isAnswered, appends), [&] {
    append(row, named("cache_head", sub(block, scanners)), early);
  });
  if (takesFewRows())
    ifThen(both(isFew(), both(equal(block, scanners), equal(thread, index(0)))),
           [&] { keepRow(number, row); });
  // What comes next waits for this kernel, and with it for all ahead of it: so
  // do these blocks, whatever they append. Others make room.
  ifThen(both(early, appends), [&] { waitForPrevious(); });
}
