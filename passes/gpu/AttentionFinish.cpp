//===- AttentionFinish.cpp - what is done with summaries ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A block takes a head of a row. Its warps share the pieces of each attend; a
// lane has some elements of a value. The first one does the rest: the entry
// that is written may be the one that was matched, and is read before.
//
// A head of a row alone that matches nothing has hundreds of pieces, and most
// multiprocessors nothing to do. There, blocks of a cluster take slices of a
// head's values each: a lane has fewer elements, and more pieces on their way.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

GpuAttention::Summary GpuAttention::emptySummary() {
  return {number(-INFINITY), number(0), splat(number(0), valuesOfLane())};
}

GpuAttention::Summary GpuAttention::merge(const Summary &lhs,
                                          const Summary &rhs) {
  int64_t width = valuesOfLane();
  Value most = larger(lhs.most, rhs.most), base = finite(most);
  auto weigh = [&](const Summary &side) {
    return exp(arith::SubFOp::create(b, side.most, base));
  };
  Value left = weigh(lhs), right = weigh(rhs);
  Value all = sum(product(lhs.sum, left), product(rhs.sum, right));
  Value merged = vector::FMAOp::create(b, rhs.values, splat(right, width),
                                       product(lhs.values, splat(left, width)));
  return {most, all, merged};
}

/// Whose loads of a warp are on their way together, one a lane at most. What is
/// reused takes registers as well.
int64_t GpuAttention::piecesAtOnce() const {
  int64_t registers = slices > 1 ? 32 : plan.find ? 24 : 40;
  return std::min(registers / valuesOfLane(), kWarp);
}

/// So many pieces from one on, or up to one, behind what a warp has merged. A
/// lane weighs one of them, for all, and says which that is.
GpuAttention::Summary
GpuAttention::mergePieces(Value begin, Value last, Value local,
                          const Summary &before, int64_t together,
                          llvm::function_ref<Value(Value)> pieceOf) {
  int64_t width = valuesOfLane();
  SumsMemory memory = pieceMemory();
  Value element = add(mul(local, valueSize), firstValueOfLane());
  // What is not there loads the last one.
  Value final = sub(last, index(1));
  Value mine = add(begin, lane), piece = minimum(mine, final);
  if (pieceOf)
    piece = pieceOf(piece);
  Value pair = loadVector(memory.pairs, {piece, mul(local, 2)}, 2);
  Values loaded;
  for (int64_t i = 0; i < together; ++i) {
    Value its =
        pieceOf ? ofLane(piece, index(i)) : minimum(add(begin, i), final);
    loaded.push_back(loadVector(memory.values, {its, element}, width));
  }
  Value isThere = both(less(lane, index(together)), less(mine, last));
  Value exponent = select(isThere, extract(pair, 0), number(-INFINITY));
  Value most = exponent;
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    most = larger(most, exchange(most, mask));
  most = larger(before.most, most);
  Value least = finite(most);
  Value weight = exp(arith::SubFOp::create(b, exponent, least));
  Value kept = exp(arith::SubFOp::create(b, before.most, least));
  Value total = product(extract(pair, 1), weight);
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    total = sum(total, exchange(total, mask));
  Value all = product(before.values, splat(kept, width));
  for (int64_t i = 0; i < together; ++i) {
    Value its = shuffle(weight, index(i), gpu::ShuffleMode::IDX);
    all = vector::FMAOp::create(b, loaded[i], splat(its, width), all);
  }
  return {most, sum(product(before.sum, kept), total), all};
}

/// The pieces of each attend of a task from one on, as the plan has them.
GpuAttention::Values GpuAttention::loadBounds(Value task) {
  auto attends = static_cast<int64_t>(plan.attends.size());
  Value bounds = array("piece_bounds", b.getI32Type(), 2 * attends);
  Values all;
  for (int64_t i = 0; i < attends; ++i) {
    Value from = load(bounds, {task, index(2 * i)});
    Value length = sub(load(bounds, {task, index(2 * i + 1)}), from);
    all.append({from, length, length, index(0), index(0)});
  }
  return all;
}

/// One of two, where there may be a plan and none. Slices are of few rows.
GpuAttention::Values
GpuAttention::ofFewRows(llvm::function_ref<Values()> found,
                        llvm::function_ref<Values()> planned) {
  if (slices > 1)
    return found();
  bool hasFew = plan.find && takesFewRows();
  return hasFew ? ifElse(isFew(), found, planned) : planned();
}

/// Or, of few rows, as `_few` has left them.
void GpuAttention::openLists(Value task, ValueRange planned) {
  auto attends = static_cast<int64_t>(plan.attends.size());
  auto found = [&] {
    Values all;
    for (int64_t i = 0; i < attends; ++i)
      all.append(loadRange(add(mul(task, attends), i)));
    return all;
  };
  Values all = ofFewRows(found, [&] { return Values(planned); });
  pieceLists.clear();
  for (int64_t i = 0; i < attends; ++i) {
    ArrayRef<Value> its = ArrayRef(all).slice(kListFields * i, kListFields);
    FewPieces list;
    list.rank = index(0);
    list.first = its[0];
    list.count = its[1];
    list.leading = its[2];
    list.firstWhole = its[3];
    list.whole = its[4];
    pieceLists.push_back(list);
  }
}

/// A warp's part of the pieces of all attends into shared memory. Warps take
/// chunks of those of one attend and then of the next, so that none waits for
/// what another attend has left.
void GpuAttention::gatherPieces(Value local) {
  int64_t width = valuesOfLane(), together = piecesAtOnce();
  bool hasFew = plan.find && takesFewRows();
  auto attends = static_cast<int64_t>(plan.attends.size());
  // The chunk behind the last one of each attend.
  Values behind;
  for (int64_t i = 0; i < attends; ++i) {
    Value chunks = div(add(pieceLists[i].count, together - 1), together);
    behind.push_back(i ? add(behind.back(), chunks) : chunks);
  }
  Values inits;
  Summary empty = emptySummary();
  for (int64_t i = 0; i < attends; ++i)
    inits.append({empty.most, empty.sum, empty.values});
  Values all = loop(
      warp, behind.back(), index(mergeWarps), inits,
      [&](Value chunk, ValueRange carried) -> Values {
        Value within = chunk;
        FewPieces list = pieceLists[0];
        Summary before{carried[0], carried[1], carried[2]};
        Values isOf{less(chunk, behind[0])};
        for (int64_t i = 1; i < attends; ++i) {
          Value isLater = notLess(chunk, behind[i - 1]);
          isOf.push_back(both(isLater, less(chunk, behind[i])));
          auto later = [&](Value its, Value other) {
            return select(isLater, its, other);
          };
          within = later(sub(chunk, behind[i - 1]), within);
          const FewPieces &its = pieceLists[i];
          list.first = later(its.first, list.first);
          list.count = later(its.count, list.count);
          if (hasFew) {
            list.leading = later(its.leading, list.leading);
            list.firstWhole = later(its.firstWhole, list.firstWhole);
            list.whole = later(its.whole, list.whole);
          }
          before = {later(carried[3 * i], before.most),
                    later(carried[3 * i + 1], before.sum),
                    later(carried[3 * i + 2], before.values)};
        }
        Value at = mul(within, together);
        if (hasFew)
          list.rest = add(list.firstWhole, mul(list.whole, warps));
        Summary merged =
            hasFew
                ? mergePieces(at, list.count, local, before, together,
                              [&](Value which) { return pieceOf(list, which); })
                : mergePieces(add(list.first, at), add(list.first, list.count),
                              local, before, together);
        Value parts[] = {merged.most, merged.sum, merged.values};
        Values after;
        for (int64_t i = 0; i < attends; ++i)
          for (int64_t j = 0; j < 3; ++j)
            after.push_back(
                attends == 1 ? parts[j]
                             : select(isOf[i], parts[j], carried[3 * i + j]));
        return after;
      });
  for (int64_t i = 0; i < attends; ++i) {
    Summary its{all[3 * i], all[3 * i + 1], all[3 * i + 2]};
    Value place = add(warp, i * mergeWarps);
    ifThen(equal(lane, index(0)), [&] {
      store(its.most, pieceMosts, place);
      store(its.sum, pieceTotals, place);
    });
    storeVector(its.values, pieceValues, {place, mul(lane, width)});
  }
}

GpuAttention::Summary GpuAttention::mergedPieces(int64_t which) {
  int64_t width = valuesOfLane();
  Values mosts;
  Summary all = emptySummary();
  for (int64_t each = 0; each < mergeWarps; ++each) {
    mosts.push_back(loadFloat(pieceMosts, index(which * mergeWarps + each)));
    all.most = larger(all.most, mosts.back());
  }
  for (auto [each, most] : llvm::enumerate(mosts)) {
    Value place = index(which * mergeWarps + static_cast<int64_t>(each));
    Value values = loadVector(pieceValues, {place, mul(lane, width)}, width);
    Value weight = exp(arith::SubFOp::create(b, most, finite(all.most)));
    all.sum = sum(all.sum, product(loadFloat(pieceTotals, place), weight));
    all.values =
        vector::FMAOp::create(b, values, splat(weight, width), all.values);
  }
  return all;
}

/// A / Z, or 0 for an empty summary.
Value GpuAttention::normalize(const Summary &summary) {
  Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                        summary.sum, number(0));
  Value divisor = select(isEmpty, number(1), summary.sum);
  Value inverse = arith::DivFOp::create(b, number(1), divisor);
  return product(summary.values, splat(inverse, valuesOfLane()));
}

//===----------------------------------------------------------------------===//
// Stored summaries
//===----------------------------------------------------------------------===//

GpuAttention::Summary GpuAttention::loadStored(Value condition, int64_t part) {
  int64_t width = valuesOfLane(), parts = plan.ring.getParts();
  Summary empty = emptySummary();
  Values taken = ifElse(
      condition,
      [&]() -> Values {
        Value capacity = scalar("capacity");
        // [slots, heads, parts, K]
        Value ofHead = mul(add(mul(slot, heads), head), parts);
        Value at = add(mul(add(ofHead, part), capacity), hitRow);
        Value logSum = loadFloat(array("ring_sums", b.getF32Type()), at);
        Value all =
            widened(array("ring_values", plan.ring.getValueType(), valueSize),
                    {at, firstValueOfLane()}, width);
        return {logSum, number(1), all};
      },
      [&]() -> Values { return {empty.most, empty.sum, empty.values}; });
  return {taken[0], taken[1], taken[2]};
}

GpuAttention::Summary GpuAttention::reuse(ReuseOp op) {
  if (plan.ring.getParts() == 1)
    return loadStored(isHit, 0);
  Value isNear = both(isHit, negate(isFar));
  if (op.getPart() == 1)
    return loadStored(both(isNear, isInside), 1);
  return merge(loadStored(isHit, 0),
               loadStored(both(isNear, negate(isInside)), 1));
}

/// Reads what the entry that is written may replace.
void GpuAttention::prepareStore() {
  Type integer = b.getI32Type();
  depth = index(0);
  outerEnd = wideBound;
  if (plan.store.getAfter()) {
    Value at = ringRow(slot, head, hitRow);
    Value next = add(load(array("ring_depths", integer), at), 1);
    depth = select(isHit, next, depth);
    if (plan.ring.getParts() == 2) {
      Value end = load(array("ring_ends", integer), at);
      outerEnd = select(both(isHit, isInside), end, outerEnd);
    }
  }
  int64_t width = keySize / kWarp;
  auto load = [&](Value asked) {
    return widened(tensor(asked), {token, head, mul(lane, width)}, width);
  };
  query = load(plan.store.getQuery());
  if (plan.store.getRotated())
    rotated = load(plan.store.getRotated());
}

/// The square of what was asked with. One that overflows is as NaN: nothing is
/// near it.
Value GpuAttention::squareOf(Value &wanted) {
  Value square = vector::ReductionOp::create(b, vector::CombiningKind::ADD,
                                             product(wanted, wanted));
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    square = sum(square, exchange(square, mask));
  wanted =
      select(isNumber(square), wanted, splat(number(NAN), keySize / kWarp));
  return square;
}

Value GpuAttention::isNumber(Value square) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, square,
                               number(INFINITY));
}

/// The mean of the squares so far and of how many they are, with this token's
/// among them if it is a number. Where the ring begins anew both are 0,
/// whatever stands there.
void GpuAttention::updateMoment(Value square) {
  Value isStored = both(equal(lane, index(0)), less(index(0), stores));
  ifThen(ofFirstSlice(isStored), [&] {
    Value moments = momentsMemory();
    Value at = add(mul(slot, heads), head), isLater = less(index(1), amended);
    auto so = [&](int64_t which) {
      return select(isLater, loadFloat(moments, {at, index(which)}), number(0));
    };
    Value before = so(0), tokens = so(1), more = sum(tokens, number(1));
    Value change = arith::DivFOp::create(
        b, arith::SubFOp::create(b, square, before), more);
    Value counts = isNumber(square);
    store(select(counts, sum(before, change), before), moments, {at, index(0)});
    store(select(counts, more, tokens), moments, {at, index(1)});
  });
}

void GpuAttention::storeSummary(ArrayRef<Summary> parts) {
  Type integer = b.getI32Type(), f32 = b.getF32Type();
  int64_t width = keySize / kWarp;
  Value square = squareOf(query);
  if (plan.ring.getEstimates())
    updateMoment(square);
  ifThen(less(index(0), stores), [&] {
    Value at = named("entry_row", ringRow(slot, head, entry));
    Value element = mul(lane, width);
    auto storeQueries = [&] {
      storeVector(query,
                  array("ring_queries", plan.ring.getQueryType(), keySize),
                  {at, element});
      if (plan.store.getRotated())
        storeVector(rotated,
                    array("ring_rotated", plan.ring.getQueryType(), keySize),
                    {at, element});
    };
    if (slices == 1)
      storeQueries();
    else
      ifThen(equal(slice, index(0)), storeQueries);
    Value isFirst = ofFirstSlice(equal(lane, index(0)));
    ifThen(isFirst, [&] {
      store(depth, array("ring_depths", integer), at);
      if (plan.ring.getParts() == 2)
        store(outerEnd, array("ring_ends", integer), at);
    });
    for (auto [which, summary] : llvm::enumerate(parts)) {
      Value ofHead = mul(add(mul(slot, heads), head), plan.ring.getParts());
      Value place =
          add(mul(add(ofHead, static_cast<int64_t>(which)), scalar("capacity")),
              entry);
      storeVector(normalize(summary),
                  array("ring_values", plan.ring.getValueType(), valueSize),
                  {place, firstValueOfLane()});
      Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                            summary.sum, number(0));
      Value logSum = sum(summary.most, math::LogOp::create(b, summary.sum));
      ifThen(isFirst, [&] {
        store(select(isEmpty, number(-INFINITY), logSum),
              array("ring_sums", f32), place);
      });
    }
  });
}

//===----------------------------------------------------------------------===//
// The end of a step
//===----------------------------------------------------------------------===//

void GpuAttention::moveCursor(Value plans) {
  Value isOne = both(equal(head, index(0)), equal(lane, index(0)));
  ifThen(ofFirstSlice(isOne), [&] {
    Value cursors = array("cursors", b.getI32Type(), 8);
    auto keep = [&](int64_t which, Value value) {
      store(value, cursors, {slot, index(which)});
    };
    keep(0, add(load(plans, {rowOfHead, index(2)}), 1));
    if (!plan.ring)
      return;
    keep(1, load(plans, {rowOfHead, index(6)}));
    keep(2, amended);
    keep(3, scalar("band"));
    keep(4, scalar("sinks"));
    keep(5, scalar("wide"));
  });
}

void GpuAttention::storeOutput(Value answer) {
  storeVector(answer, outputMemory(), {token, head, firstValueOfLane()});
}

/// What an earlier token has left, before anything is written.
void GpuAttention::openHit(Value plans, Value position) {
  Type integer = b.getI32Type();
  if (plan.ring && plan.ring.getParts() == 2)
    wideBound = boundOf(Bound::Wide, position);
  if (plan.find) {
    isHit = notLess(hit, index(0));
    hitRow = named("hit_entry", entryBefore(position, maximum(hit, index(0))));
    if (plan.ring.getParts() == 2) {
      isFar = less(scalar("wide_gap"), add(hit, 1));
      isInside = less(wideBound,
                      load(array("starts", integer, heads), {rowOfHead, head}));
    }
  }
  for (Operation &op : step.getBody().front().without_terminator())
    if (auto taken = dyn_cast<ReuseOp>(op))
      summaries[taken.getResult()] = reuse(taken);
  if (plan.store) {
    entry = named("entry", load(plans, {rowOfHead, index(3)}));
    stores = load(plans, {rowOfHead, index(4)});
    amended = load(plans, {rowOfHead, index(5)});
    prepareStore();
  }
}

void GpuAttention::completeRow(Value plans) {
  for (auto [which, attend] : llvm::enumerate(plan.attends))
    summaries[attend.getResult()] = mergedPieces(static_cast<int64_t>(which));
  for (Operation &op : step.getBody().front().without_terminator()) {
    if (auto merged = dyn_cast<MergeOp>(op))
      summaries[merged.getResult()] =
          merge(summaries.at(merged.getLhs()), summaries.at(merged.getRhs()));
    else if (auto stored = dyn_cast<StoreSummaryOp>(op))
      storeSummary(llvm::map_to_vector(
          stored.getParts(), [&](Value part) { return summaries.at(part); }));
    else if (auto answer = dyn_cast<NormalizeOp>(op))
      storeOutput(normalize(summaries.at(answer.getSummary())));
  }
  moveCursor(plans);
}

/// So many divide what a lane has of a value.
int64_t GpuAttention::mostSlices() const {
  int64_t most = std::clamp<int64_t>(mostBlocks, 1, kMostSlices);
  while (valueSize / kWarp % most != 0)
    --most;
  return most;
}

/// What blocks have in common is one's.
Value GpuAttention::ofFirstSlice(Value condition) {
  return slices == 1 ? condition : both(condition, equal(slice, index(0)));
}

Value GpuAttention::firstValueOfLane() {
  Value ofSlice = mul(lane, valuesOfLane());
  return slices == 1 ? ofSlice : add(mul(slice, valueSize / slices), ofSlice);
}

/// Beside a slice and what attends there is no room for what looks for the
/// matches of an early step. As long as a long history is read, that would run
/// on the few multiprocessors without a slice, and hold up what attends there.
/// Blocks of padding have none to wait for.
void GpuAttention::letNextLook(Value position) {
  constexpr int64_t longHistory = 1 << 16;
  Value isShort = less(position, index(longHistory));
  Value isSoon =
      either(either(isShort, notLess(hit, index(0))), less(slot, index(0)));
  ifThen(both(isEarly(), isSoon), [&] { letNextStart(); });
}

void GpuAttention::buildFinish(int64_t slicesOfHead) {
  slices = slicesOfHead;
  mergeWarps = slices == 1 ? 8 : 4;
  // Wide heads and more pieces at once take more registers. A block with a
  // slice fits beside those of `_few`, whose pieces it waits for.
  constexpr int64_t besideFew = 5;
  int64_t blocks = valuesOfLane() > 4 || !plan.find ? 3 : 4;
  createKernel(slices == 1 ? "_finish" : "_finish_slices", mergeWarps * kWarp,
               slices == 1 ? blocks : besideFew);
  if (slices > 1)
    function->setAttr(kClusterAttr, b.getIndexAttr(slices));
  Type f32 = b.getF32Type();
  int64_t places = mergeWarps * static_cast<int64_t>(plan.attends.size());
  pieceMosts = sharedArray("mosts", f32, {places});
  pieceTotals = sharedArray("sums", f32, {places});
  pieceValues = sharedArray("values", f32, {places, valueSize / slices});
  lane = named("lane", rem(thread, kWarp));
  warp = named("warp", div(thread, kWarp));
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  head = named("head", div(block, slices));
  if (slices > 1)
    slice = named("slice", rem(block, slices));
  rowOfHead = named("row", gpu::BlockIdOp::create(b, gpu::Dimension::y));
  // Where there is a match, the plan has been made when this kernel starts, and
  // nothing but pieces waits for the kernel ahead.
  if (!plan.find)
    startInOrder();
  // What comes next may look for its matches while this one waits for pieces.
  if (plan.find && slices == 1)
    ifThen(isEarly(), [&] { letNextStart(); });
  // Nothing that is asked for here waits for anything else.
  Type integer = b.getI32Type();
  Value plans = array("row_plans", integer, 8);
  Value task = add(mul(rowOfHead, tasksOfRow), div(head, share));
  Values bounds = slices == 1 ? loadBounds(task) : Values();
  auto planned = [&]() -> Values {
    return {load(array("hits", integer, heads), {rowOfHead, head})};
  };
  // Without a plan what has been found is what is let through.
  auto found = [&]() -> Values { return {nearest(rowOfHead, head)[1]}; };
  if (plan.find)
    hit = named("hit", ofFewRows(found, planned).front());
  slot = named("slot", load(plans, {rowOfHead, index(0)}));
  token = named("token", load(plans, {rowOfHead, index(1)}));
  auto loadPosition = [&] {
    return named("position", load(plans, {rowOfHead, index(2)}));
  };
  Value position = slices > 1 ? loadPosition() : Value();
  if (slices > 1)
    letNextLook(position);
  Value isAnswered = notLess(slot, index(0));
  ifThen(isAnswered, [&] {
    if (slices == 1)
      position = loadPosition();
    openHit(plans, position);
    // Others may still read what the first slice then replaces.
    if (slices > 1)
      clusterArrive();
    if (plan.find)
      startInOrder();
    openLists(task, bounds);
    gatherPieces(rem(head, share));
    if (slices > 1)
      clusterWait();
    barrier();
    ifThen(equal(warp, index(0)), [&] { completeRow(plans); });
  });
  // Padding is answered by zeros.
  Value isPadded = both(negate(isAnswered), notLess(token, index(0)));
  ifThen(both(isPadded, equal(warp, index(0))), [&] {
    if (plan.find)
      startInOrder();
    storeOutput(splat(number(0), valuesOfLane()));
  });
  slices = 1;
}
