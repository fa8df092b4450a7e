//===- AttentionScan.cpp - the nearest query of a section -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The ring is streamed: lanes have 16 bytes of an entry each, and all loads of
// several entries are on their way before the first of them is looked at.
//
// A distance is a sum over the two halves of an entry. Where there are many
// rows, the second half is read of those entries alone whose first half leaves
// them a chance: to be a match at all, and to be nearer than those that seemed
// nearest, which are looked at whole before. Few rows wait for memory rather
// than for its bandwidth, and read all at once. The distances are the same.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

/// Loads of a lane that are on their way together.
static constexpr int64_t kLoads = 8;

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

namespace ladle {
/// What a block looks at.
class AttentionScan {
public:
  using Values = GpuAttention::Values;
  using Row = GpuAttention::Row;

  AttentionScan(GpuAttention &kernel, const Row &row, Value ofHead,
                Value section);
  /// The least distance that a lane has seen, and how many entries before the
  /// newest that was: among all that are there, and among those that can be
  /// matches.
  Values whole();
  Values inHalves();
  void storeNearest(Values best, Value moment, Value place);

private:
  /// Entries whose loads are on their way together: how many before the newest
  /// they are, and whether they are looked at; where they are among all and in
  /// their ring, and whether they are of it.
  struct Entries {
    Values offsets, isThere, places, ofRing, isInside;
  };
  Entries entriesFrom(Value round, int64_t count);
  void lookAt(Entries &entries);
  Values loadHalf(Value place, int64_t half, Value isThere);
  Values queryHalf(int64_t half);
  Value distanceOf(ValueRange query, ValueRange loaded);
  Value leastDistance();
  void takeNearer(Values &best, Value squared, Value offset);
  Values laterHalves(const Entries &entries, ArrayRef<Value> squares,
                     ArrayRef<Value> hasChance, Values best);
  Value orderedLess(Value lhs, Value rhs) {
    return arith::CmpFOp::create(k.b, arith::CmpFPredicate::OLT, lhs, rhs);
  }
  Value least(Value lhs, Value rhs) {
    return k.select(orderedLess(lhs, rhs), lhs, rhs);
  }

  GpuAttention &k;
  const Row &row;
  Value ofHead, first, ring, ofLane, group;
  Type type;
  int64_t width, lanes = 1, parts, atOnce, rounds;
  Values wanted;
};
} // namespace ladle

AttentionScan::AttentionScan(GpuAttention &kernel, const Row &row, Value ofHead,
                             Value section)
    : k(kernel), row(row), ofHead(ofHead),
      type(kernel.plan.ring.getQueryType()),
      width(GpuAttention::elementsOfLoad(type)) {
  int64_t ofHalf = k.keySize / 2 / width;
  // A lane has two loads of a half: fewer lanes have less to add up.
  while (ofHalf / lanes > 2 && ofHalf % (2 * lanes) == 0)
    lanes *= 2;
  parts = ofHalf / lanes;
  atOnce = k.threads / lanes;
  rounds = kAttentionSection / atOnce;

  ring = k.array("ring_queries", type, k.keySize);
  ofLane = k.named("lane", k.rem(k.thread, lanes));
  group = k.named("group", k.div(k.thread, lanes));
  wanted = queryHalf(0);
  first = k.named("first", k.mul(section, kAttentionSection));
}

AttentionScan::Entries AttentionScan::entriesFrom(Value round, int64_t count) {
  Entries entries;
  Value capacity = k.scalar("capacity");
  for (int64_t i = 0; i < count; ++i) {
    Value place = k.add(first, k.add(k.mul(k.add(round, i), atOnce), group));
    entries.isInside.push_back(k.less(place, capacity));
    entries.ofRing.push_back(place);
    entries.places.push_back(k.ringRow(row.slot, ofHead, place));
  }
  return entries;
}

/// Nothing of this is known before loads are on their way.
void AttentionScan::lookAt(Entries &entries) {
  Value capacity = k.scalar("capacity");
  Value count = k.named("count", k.countEntries(row));
  Value newest =
      k.rem(k.sub(k.add(row.position, capacity), k.index(1)), capacity);
  for (auto [place, isInside] :
       llvm::zip_equal(entries.ofRing, entries.isInside)) {
    Value offset = k.sub(newest, place);
    offset =
        k.select(k.less(offset, k.index(0)), k.add(offset, capacity), offset);
    entries.offsets.push_back(offset);
    entries.isThere.push_back(k.both(isInside, k.less(offset, count)));
  }
}

AttentionScan::Values AttentionScan::loadHalf(Value place, int64_t half,
                                              Value isThere) {
  auto vector = VectorType::get({width}, type);
  Value zeros = arith::ConstantOp::create(
      k.b,
      DenseElementsAttr::get(vector, Attribute(k.b.getFloatAttr(type, 0.0))));
  Values loaded;
  for (int64_t part = half * parts; part < (half + 1) * parts; ++part) {
    Value at = k.mul(k.add(ofLane, part * lanes), width);
    loaded.push_back(
        vector::MaskedLoadOp::create(k.b, vector, ring, ValueRange{place, at},
                                     k.splat(isThere, width), zeros));
  }
  return loaded;
}

AttentionScan::Values AttentionScan::queryHalf(int64_t half) {
  Value query = k.tensor(k.plan.find.getQuery());
  Values result;
  for (int64_t part = half * parts; part < (half + 1) * parts; ++part) {
    Value at = k.mul(k.add(ofLane, part * lanes), width);
    result.push_back(
        k.named("query", k.widened(query, {row.token, ofHead, at}, width)));
  }
  return result;
}

/// Of a half, which all lanes of the group get.
Value AttentionScan::distanceOf(ValueRange query, ValueRange loaded) {
  Value squared = k.number(0.0);
  for (int64_t part = 0; part < parts; ++part) {
    Value difference =
        arith::SubFOp::create(k.b, query[part], k.widen(loaded[part]));
    squared =
        vector::ReductionOp::create(k.b, vector::CombiningKind::ADD,
                                    k.product(difference, difference), squared);
  }
  for (int64_t mask = 1; mask < lanes; mask *= 2)
    squared = k.sum(squared, k.exchange(squared, mask));
  return squared;
}

/// Ties stay with the newest.
void AttentionScan::takeNearer(Values &best, Value squared, Value offset) {
  Value isAlike =
      arith::CmpFOp::create(k.b, arith::CmpFPredicate::OEQ, squared, best[0]);
  Value isBetter = k.either(orderedLess(squared, best[0]),
                            k.both(isAlike, k.less(offset, best[1])));
  best = {k.select(isBetter, squared, best[0]),
          k.select(isBetter, offset, best[1])};
}

AttentionScan::Values AttentionScan::whole() {
  int64_t batch = std::clamp<int64_t>(kLoads / (2 * parts), 1, rounds);
  Values rest = queryHalf(1);
  return k.loop(k.index(0), k.index(rounds), k.index(batch),
                {k.number(INFINITY), k.index(-1)},
                [&](Value round, ValueRange carried) -> Values {
                  Entries entries = entriesFrom(round, batch);
                  SmallVector<Values> loaded;
                  for (int64_t i = 0; i < batch; ++i)
                    for (int64_t half : {0, 1})
                      loaded.push_back(loadHalf(entries.places[i], half,
                                                entries.isInside[i]));
                  lookAt(entries);
                  Values best(carried);
                  for (int64_t i = 0; i < batch; ++i) {
                    Value squared = k.sum(distanceOf(wanted, loaded[2 * i]),
                                          distanceOf(rest, loaded[2 * i + 1]));
                    squared = k.select(entries.isThere[i], squared,
                                       k.number(INFINITY));
                    takeNearer(best, squared, entries.offsets[i]);
                  }
                  return best;
                });
}

/// Looks at the rest of those entries that have a chance.
AttentionScan::Values AttentionScan::laterHalves(const Entries &entries,
                                                 ArrayRef<Value> squares,
                                                 ArrayRef<Value> hasChance,
                                                 Values best) {
  Values rest = queryHalf(1);
  for (size_t i = 0; i < hasChance.size(); ++i) {
    Value squared =
        k.sum(squares[i],
              distanceOf(rest, loadHalf(entries.places[i], 1, hasChance[i])));
    squared = k.select(hasChance[i], squared, k.number(INFINITY));
    takeNearer(best, squared, entries.offsets[i]);
  }
  return best;
}

/// From which on an entry is no match.
Value AttentionScan::leastDistance() {
  return k.named(
      "limit", k.product(k.floatScalar("limit"), k.momentOf(row.slot, ofHead)));
}

AttentionScan::Values AttentionScan::inHalves() {
  auto ofWarp = [&](Value value, llvm::function_ref<Value(Value, Value)> op) {
    for (int64_t mask = lanes; mask < GpuAttention::kWarp; mask *= 2)
      value = op(value, k.exchange(value, mask));
    return value;
  };
  int64_t batch = std::clamp<int64_t>(kLoads / parts, 1, rounds);
  return k.loop(
      k.index(0), k.index(rounds), k.index(batch),
      {k.number(INFINITY), k.index(-1)},
      [&](Value round, ValueRange carried) -> Values {
        Entries entries = entriesFrom(round, batch);
        SmallVector<Values> loaded;
        for (int64_t i = 0; i < batch; ++i)
          loaded.push_back(loadHalf(entries.places[i], 0, entries.isInside[i]));
        lookAt(entries);
        // Of the group's entries the one that seems nearest is looked at first.
        SmallVector<Value> squares;
        Value most = k.number(INFINITY);
        Entries tried{{k.index(-1)}, {}, {k.index(0)}, {}, {}};
        for (int64_t i = 0; i < batch; ++i) {
          Value squared = distanceOf(wanted, loaded[i]);
          squares.push_back(
              k.select(entries.isThere[i], squared, k.number(INFINITY)));
          Value isNearer = orderedLess(squares[i], most);
          most = k.select(isNearer, squares[i], most);
          tried.offsets[0] =
              k.select(isNearer, entries.offsets[i], tried.offsets[0]);
          tried.places[0] =
              k.select(isNearer, entries.places[i], tried.places[0]);
        }
        Value limit = leastDistance();
        Value bound = least(limit, carried[0]);
        Value isTried =
            arith::CmpFOp::create(k.b, arith::CmpFPredicate::OLE, most, bound);
        isTried = k.both(isTried, k.notLess(tried.offsets[0], k.index(0)));
        Value isAny =
            ofWarp(k.select(isTried, k.index(1), k.index(0)),
                   [&](Value lhs, Value rhs) { return k.maximum(lhs, rhs); });
        return k.ifElse(
            k.less(k.index(0), isAny),
            [&]() -> Values {
              Values best =
                  laterHalves(tried, {most}, {isTried}, Values(carried));
              Value nearest =
                  ofWarp(least(limit, best[0]),
                         [&](Value lhs, Value rhs) { return least(lhs, rhs); });
              SmallVector<Value> hasChance;
              Value chances = k.index(0);
              for (int64_t i = 0; i < batch; ++i) {
                Value mayBe = arith::CmpFOp::create(
                    k.b, arith::CmpFPredicate::OLE, squares[i], nearest);
                mayBe = k.both(mayBe, k.negate(k.equal(entries.offsets[i],
                                                       tried.offsets[0])));
                mayBe = k.both(mayBe, entries.isThere[i]);
                hasChance.push_back(mayBe);
                chances = k.select(mayBe, k.index(1), chances);
              }
              chances = ofWarp(chances, [&](Value lhs, Value rhs) {
                return k.maximum(lhs, rhs);
              });
              return k.ifElse(
                  k.less(k.index(0), chances),
                  [&] {
                    return laterHalves(entries, squares, hasChance, best);
                  },
                  [&] { return best; });
            },
            [&]() -> Values { return Values(carried); });
      });
}

/// Of all groups of the block. Without a plan the block lets its nearest entry
/// through the gates, or says that what is nearest is no match.
void AttentionScan::storeNearest(Values best, Value moment, Value place) {
  for (int64_t mask = lanes; mask < GpuAttention::kWarp; mask *= 2)
    takeNearer(best, k.exchange(best[0], mask), k.exchange(best[1], mask));
  int64_t warpCount = k.threads / GpuAttention::kWarp;
  Type f32 = k.b.getF32Type(), integer = k.b.getI32Type();
  Value squares = k.sharedArray("warp_nearest", f32, {warpCount});
  Value offsets = k.sharedArray("warp_entries", integer, {warpCount});
  k.ifThen(k.equal(k.rem(k.thread, GpuAttention::kWarp), k.index(0)), [&] {
    k.store(best[0], squares, k.div(k.thread, GpuAttention::kWarp));
    k.store(best[1], offsets, k.div(k.thread, GpuAttention::kWarp));
  });
  k.barrier();
  k.ifThen(k.equal(k.thread, k.index(0)), [&] {
    for (int64_t other = 1; other < warpCount; ++other)
      takeNearer(best, k.loadFloat(squares, k.index(other)),
                 k.load(offsets, k.index(other)));
    k.store(best[0], k.array("nearest", f32), place);
    Value found = best[1];
    if (moment)
      found = k.ifElse(
                   k.isFew(),
                   [&]() -> Values {
                     Value its = k.decide(best, row, ofHead, moment).first;
                     Value isRefused = k.both(k.less(its, k.index(0)),
                                              k.notLess(best[1], k.index(0)));
                     return {k.select(isRefused, k.refusedEntry(best[1]), its)};
                   },
                   [&]() -> Values { return {best[1]}; })
                  .front();
    k.store(found, k.array("nearest_entry", integer), place);
  });
}

void GpuAttention::scan(Value rowNumber, const Row &row, Value ofHead,
                        Value section) {
  AttentionScan scan(*this, row, ofHead, section);
  // Long before it is needed.
  Value moment = takesFewRows() ? momentOf(row.slot, ofHead) : Value();
  Value isSmall = less(scalar("rows"), scalar("rows_in_halves"));
  Values best = ifElse(
      isSmall, [&] { return scan.whole(); }, [&] { return scan.inHalves(); });
  scan.storeNearest(
      best, moment,
      add(mul(add(mul(rowNumber, heads), ofHead), scalar("sections")),
          section));
}
