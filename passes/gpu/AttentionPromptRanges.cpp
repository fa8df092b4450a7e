//===- AttentionPromptRanges.cpp - keys of a tile, and what it leaves -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionPrompts.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

LogicalResult GpuPrompts::listSegments() {
  if (plan.store) {
    auto parts = plan.store.getParts();
    AttendOp first;
    for (Value part : llvm::reverse(parts)) {
      first = part.getDefiningOp<AttendOp>();
      if (!first)
        return plan.store.emitError("stores what is no ladle.attend, which is "
                                    "not lowered for prompts");
      segments.push_back({first.getBegin(), first.getEnd()});
    }
    for (AttendOp attend : plan.attends)
      if (attend != first)
        segments.push_back({attend.getBegin(), attend.getEnd()});
  }
  skipsKeys = !segments.empty();
  segments.push_back({Bound::Start, Bound::End});
  return success();
}

/// What the queries of the lane attend to, of the warp, and of the block.
void GpuPrompts::openSegment(Value which) {
  auto bound = [&](Value at, bool isEnd) {
    Value all;
    for (auto [i, segment] : llvm::enumerate(segments)) {
      Value each = boundOf(isEnd ? segment.end : segment.begin, at);
      if (all)
        each = select(equal(which, index(static_cast<int64_t>(i))), each, all);
      all = each;
    }
    return all;
  };
  for (int64_t i = 0; i < 2; ++i) {
    from[i] = named("from", bound(placeOf[i], /*isEnd=*/false));
    to[i] = bound(placeOf[i], /*isEnd=*/true);
    to[i] = named("to", select(isQuery[i], to[i], index(0)));
  }
  // Bounds grow with the position.
  int64_t tileKeys = 16 * warps;
  begin = bound(add(position, firstOfTile), /*isEnd=*/false);
  begin = named("begin", mul(div(begin, tileKeys), tileKeys));
  // Nothing is a tile of which all is left out.
  end = named("end",
              maximum(bound(add(position, lastOfTile), true), add(begin, 1)));
  warpBegin = bound(add(position, firstOfWarp), /*isEnd=*/false);
  // A warp behind the prompt attends to nothing.
  warpEnd = bound(add(position, lastOfWarp), /*isEnd=*/true);
  warpEnd = select(less(firstOfWarp, count), warpEnd, index(0));
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

GpuAttention::Values GpuPrompts::elementsOf(ValueRange totals, int64_t which) {
  int64_t part = valuePart();
  Values all, elements;
  for (size_t at = 0; at < totals.size(); at += static_cast<size_t>(part))
    for (int64_t column = 0; column < 2; ++column) {
      elements.clear();
      for (int64_t i = 0; i < part; ++i)
        elements.push_back(extract(totals[at + i], 2 * which + column));
      all.push_back(fromElements(elements));
    }
  return all;
}

std::pair<Value, GpuAttention::Values> GpuPrompts::answerOf(ValueRange carried,
                                                            int64_t which) {
  Value all = carried[2 + which];
  for (int64_t mask = 1; mask < 4; mask *= 2)
    all = sum(all, exchange(all, mask));
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, all, number(0));
  Value divisor = select(isEmpty, number(1), all);
  Value inverse = arith::DivFOp::create(b, number(1), divisor);
  Values answer = elementsOf(carried.drop_front(4), which);
  for (Value &elements : answer)
    elements = product(elements, splat(inverse, valuePart()));
  return {all, answer};
}

/// At the elements that the lane has (AttentionPromptProducts.cpp).
void GpuPrompts::storeAnswer(ArrayRef<Value> answer, Value memory,
                             ArrayRef<Value> place) {
  int64_t part = valuePart();
  for (auto [i, elements] : llvm::enumerate(answer)) {
    auto block = static_cast<int64_t>(i) / 2, column = int64_t(i) % 2;
    Values indices(place);
    indices.push_back(
        add(mul(add(mul(lanePart, 2), column), part), block * 8 * part));
    storeVector(elements, memory, indices);
  }
}

void GpuPrompts::storeAnswers(ValueRange carried) {
  for (int64_t i = 0; i < 2; ++i) {
    auto [all, answer] = answerOf(carried, i);
    ifThen(isQuery[i], [&, answer = answer] {
      storeAnswer(answer, outputMemory(), {tokenOf[i], headOf[i]});
    });
  }
}

/// A summary is its answer and the logarithm of its sum.
void GpuPrompts::leavePart(Value part, ValueRange carried) {
  Value capacity = scalar("capacity");
  constexpr double naturalOfBinary = 0.69314718055994530942;
  for (int64_t i = 0; i < 2; ++i) {
    auto [all, answer] = answerOf(carried, i);
    Value behind = sub(count, sub(tokenOf[i], firstToken));
    Value isWanted = both(isQuery[i], notLess(capacity, behind));
    ifThen(isWanted, [&, all = all, answer = answer] {
      // [slots, heads, parts, K]
      Value ofHead = add(mul(slot, heads), headOf[i]);
      Value ofPart = add(mul(ofHead, plan.ring.getParts()), part);
      Value place = named(
          "entry_row", add(mul(ofPart, capacity), rem(placeOf[i], capacity)));
      storeAnswer(answer,
                  array("ring_values", plan.ring.getValueType(), valueSize),
                  {place});
      Value isEmpty =
          arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, all, number(0));
      Value logSum = sum(product(carried[i], number(naturalOfBinary)),
                         math::LogOp::create(b, all));
      ifThen(equal(lanePart, index(0)), [&] {
        store(select(isEmpty, number(-INFINITY), logSum),
              array("ring_sums", b.getF32Type()), place);
      });
    });
  }
}
