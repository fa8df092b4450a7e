//===- AttentionMatches.cpp - which query of a ring is a match ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A thread takes a head: the nearest of what the sections of its ring have
// left, and whether the gates let it be a match.

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

/// Of a query of this row to one of a ring; by one thread.
Value GpuAttention::distance(Value value, const Row &row, Value ofHead,
                             Value ring, Value ringAt) {
  Value mine = tensor(value);
  constexpr int64_t width = 8;
  return loop(index(0), index(keySize), index(width), number(0.0),
              [&](Value at, ValueRange carried) -> Values {
                Value difference = arith::SubFOp::create(
                    b, widened(mine, {row.token, ofHead, at}, width),
                    widened(ring, {ringAt, at}, width));
                return {vector::ReductionOp::create(
                    b, vector::CombiningKind::ADD,
                    product(difference, difference), carried[0])};
              })
      .front();
}

/// What some sections of a head have found, from one on. The last ones again
/// are nearer than themselves in no case.
GpuAttention::Values GpuAttention::loadFound(Value ofAll, Value section) {
  Value nearest = array("nearest", b.getF32Type());
  Value nearestEntry = array("nearest_entry", b.getI32Type());
  Value sections = scalar("sections"), first = mul(ofAll, sections);
  Values found;
  for (int64_t i = 0; i < kSectionsAtOnce; i += kAttentionSections) {
    Value at = add(first, minimum(add(section, i),
                                  sub(sections, index(kAttentionSections))));
    found.push_back(loadVector(nearest, at, kAttentionSections));
    found.push_back(loadVector(nearestEntry, at, kAttentionSections));
  }
  return found;
}

/// The nearest of what was, and of what has been found; of several as near the
/// newest, though a gate has refused it (`refusedEntry`).
GpuAttention::Values GpuAttention::nearestOf(ValueRange before,
                                             ValueRange found) {
  Value best = before[0], entry = before[1];
  auto ageOf = [&](Value which) {
    return select(less(which, index(0)), refusedEntry(which), which);
  };
  for (int64_t i = 0; i < kSectionsAtOnce; ++i) {
    int64_t which = i / kAttentionSections * 2, at = i % kAttentionSections;
    Value square = extract(found[which], at);
    Value its = arith::IndexCastOp::create(b, b.getIndexType(),
                                           extract(found[which + 1], at));
    Value isNearer =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, square, best);
    Value isAlike =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, square, best);
    isNearer = either(isNearer, both(isAlike, less(ageOf(its), ageOf(entry))));
    best = select(isNearer, square, best);
    entry = select(isNearer, its, entry);
  }
  return {best, entry};
}

GpuAttention::Values GpuAttention::nearest(Value number, Value ofHead) {
  Value ofAll = add(mul(number, heads), ofHead);
  Values found = loop(index(0), scalar("sections"), index(kSectionsAtOnce),
                      {this->number(INFINITY), index(-1)},
                      [&](Value section, ValueRange carried) -> Values {
                        return nearestOf(carried, loadFound(ofAll, section));
                      });
  return {found[0], maximum(found[1], index(-1))};
}

/// An entry that is no match as a negative number, and back; −1 is none, too.
Value GpuAttention::refusedEntry(Value entry) { return sub(index(-1), entry); }

/// [slots, heads]: the mean of the squares, and of how many tokens.
Value GpuAttention::momentsMemory() {
  return array("ring_moments", b.getF32Type(), 2);
}

Value GpuAttention::momentOf(Value ofSlot, Value ofHead) {
  if (Value given = plan.find.getMoment())
    return loadFloat(tensor(given), ofHead);
  return loadFloat(momentsMemory(),
                   {add(mul(ofSlot, heads), ofHead), index(0)});
}

std::pair<Value, Value> GpuAttention::decide(ValueRange found, const Row &row,
                                             Value ofHead, Value moment) {
  Type integer = b.getI32Type();
  Value offset = named("nearest_offset", found[1]);
  // What is not less, NaN among it, is no match.
  Value isMatch = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, found[0],
                                        product(floatScalar("limit"), moment));
  isMatch = both(isMatch, notLess(offset, index(0)));
  Values decided = ifElse(
      isMatch,
      [&]() -> Values {
        Value entryAt =
            ringRow(row.slot, ofHead, entryBefore(row.position, offset));
        // A chain that is as long as it may be is refreshed by exact attention.
        Value most = scalar("max_chain");
        Value isBounded = less(index(0), most);
        Value isRefused =
            ifElse(
                isBounded,
                [&]() -> Values {
                  Value chain = load(array("ring_depths", integer), entryAt);
                  return {notLess(chain, most)};
                },
                [&]() -> Values { return {isBounded}; })
                .front();
        if (plan.find.getRotated()) {
          Value ring = array("ring_rotated", plan.ring.getQueryType(), keySize);
          Value drifted = arith::CmpFOp::create(
              b, arith::CmpFPredicate::UGE,
              distance(plan.find.getRotated(), row, ofHead, ring, entryAt),
              product(floatScalar("drift_limit"), moment));
          isRefused = either(isRefused, drifted);
        }
        Value start = maximum(sub(sub(row.position, offset), scalar("band")),
                              scalar("sinks"));
        if (plan.ring.getParts() == 2)
          start = select(less(scalar("wide_gap"), add(offset, 1)),
                         load(array("ring_ends", integer), entryAt), start);
        return {select(isRefused, index(-1), offset),
                select(isRefused, index(0), start)};
      },
      [&]() -> Values { return {index(-1), index(0)}; });
  return {decided[0], decided[1]};
}
