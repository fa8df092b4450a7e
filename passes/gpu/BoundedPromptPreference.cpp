//===- BoundedPromptPreference.cpp - what a cut would cost a layer --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// LayerPreference of ladle/budgets.h, of prompts. `_mark`, a block a head of a
// row, chooses as if the budget were that of the preference, and leaves which
// candidates would stay. A block of `_prefer` has 16 of the last queries, and
// goes through all candidates twice, a warp 16 keys of a tile: for the mean
// score of those that would leave, then for what the cut changes. Scores are
// logarithms to the base 2.

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedPrompts.h"

#include <numbers>

using namespace mlir;
using namespace ladle;

/// Warps of a block of `_prefer`; keys of each in a tile.
static constexpr int64_t kWarps = 4;

//===----------------------------------------------------------------------===//
// Who would stay
//===----------------------------------------------------------------------===//

void GpuBoundedPrompts::buildMark() {
  createKernel("_mark", kSelectThreads, /*blocks=*/1);
  openChoosing();
  if (needsSpread())
    partSums = sharedArray("parts", b.getF32Type(), {1, kSelectWarps});
  openPrompt(div(planRow, cacheHeads));
  Value isThere = both(notLess(slot, index(0)), less(index(0), count));
  ifThen(isThere, [&] {
    openChoice(scalar("preference_budget"));
    Type integer = b.getI32Type();
    judgeCandidates(rankAndFind(), [&](Value at, Value stays, Value) {
      store(select(stays, index(1), index(0)), array("leaving", integer),
            placeOf(at));
    });
    if (needsSpread()) {
      barrier();
      measureSpread();
    }
  });
}

/// Whether the series of some queries is of the zeroth order.
bool GpuBoundedPrompts::needsSpread() {
  return given.taylor && given.taylor.getLimit().convertToDouble() > 0;
}

/// The mean square distance of the keys that would leave from their mean. Some
/// elements of all keys are a warp's, and one key after another is a lane's.
void GpuBoundedPrompts::measureSpread() {
  Value marks = array("leaving", b.getI32Type());
  int64_t width = elementsOfLoad(plan.keyType);
  Value none = splat(number(0), width);
  auto total = [&](Value vector) -> Value {
    return vector::ReductionOp::create(b, vector::CombiningKind::ADD, vector);
  };
  Value mine =
      loop(warp, index(keySize / width), index(kSelectWarps), {number(0)},
           [&](Value chunk, ValueRange before) -> Values {
             Values sums = loop(
                 lane, all, index(kWarp), {none, none, number(0)},
                 [&](Value at, ValueRange carried) -> Values {
                   Value leaves = equal(load(marks, placeOf(at)), index(0));
                   Value key =
                       partOf(/*isKey=*/true, at, mul(chunk, width), width);
                   key = select(leaves, key, none);
                   return {
                       sum(carried[0], key),
                       vector::FMAOp::create(b, key, key, carried[1]),
                       sum(carried[2], select(leaves, number(1), number(0)))};
                 });
             for (int64_t mask = 1; mask < kWarp; mask *= 2)
               for (Value &each : sums)
                 each = sum(each, exchange(each, mask));
             Value ofOne = arith::DivFOp::create(b, number(1),
                                                 larger(sums[2], number(1)));
             Value mean = product(sums[0], splat(ofOne, width));
             Value squares = product(sums[1], splat(ofOne, width));
             Value apart =
                 arith::SubFOp::create(b, squares, product(mean, mean));
             return {sum(before[0], total(apart))};
           })
          .front();
  ifThen(equal(lane, index(0)),
         [&] { store(mine, partSums, {index(0), warp}); });
  barrier();
  ifThen(equal(thread, index(0)), [&] {
    Value spread = number(0);
    for (int64_t each = 0; each < kSelectWarps; ++each)
      spread = sum(spread, loadFloat(partSums, {index(0), index(each)}));
    store(larger(spread, number(0)), array("preference_spread", b.getF32Type()),
          planRow);
  });
}

/// Of the key or the value of a candidate.
Value GpuBoundedPrompts::partOf(bool isKey, Value candidate, Value element,
                                int64_t width) {
  Type type = isKey ? plan.keyType : plan.valueType;
  Value pages = array(isKey ? "key_pages" : "value_pages", type,
                      isKey ? keySize : valueSize);
  Value token = tensor(given.append.getValues()[isKey ? 0 : 1]);
  Values loaded = ifElse(
      less(candidate, position),
      [&]() -> Values {
        Value at = rowOfEntry(entryInOrder(candidate));
        return {loadVector(pages, {at, element}, width)};
      },
      [&]() -> Values {
        Value ofCall = add(firstToken, sub(candidate, position));
        return {loadVector(token, {ofCall, cacheHead, element}, width)};
      });
  return widen(loaded.front());
}

//===----------------------------------------------------------------------===//
// What the cut changes
//===----------------------------------------------------------------------===//

void GpuBoundedPrompts::buildPrefer() {
  createKernel("_prefer", kWarps * kWarp, /*blocks=*/1);
  Type f32 = b.getF32Type();
  warps = 1; // of a warp's products: 16 keys
  keys = sharedArray("keys", plan.keyType, {kTileKeys, keySize});
  norms = sharedArray("norms", f32, {kTileKeys});
  partSums = sharedArray("parts", f32, {kChanges, kWarps * kQueries});
  openLanes();
  planRow = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  cacheHead = named("cache_head", rem(planRow, cacheHeads));
  openPrompt(div(planRow, cacheHeads));
  Value which = gpu::BlockIdOp::create(b, gpu::Dimension::y);
  Value queries = minimum(scalar("preference_queries"), count);
  Value ahead = mul(which, kQueries / queriesOfToken());
  Value isThere = both(notLess(slot, index(0)), less(ahead, queries));
  Value results = array("preference_parts", f32, kResults);
  Value at = add(mul(planRow, scalar("preference_blocks")), which);
  ifThen(both(negate(isThere), less(thread, index(kResults))),
         [&] { store(number(0), results, {at, thread}); });
  ifThen(isThere, [&] {
    Value firstLocal = named("first_local", add(sub(count, queries), ahead));
    // Of the heads of a group that a tile has no room for, one after another.
    Values totals(kResults, number(0));
    for (int64_t head = 0; head < plan.group(); head += kQueries)
      for (auto [total, its] :
           llvm::zip_equal(totals, preferTile(firstLocal, head)))
        total = sum(total, its);
    ifThen(equal(thread, index(0)), [&] {
      for (auto [i, total] : llvm::enumerate(totals))
        store(total, results, {at, index(static_cast<int64_t>(i))});
    });
  });
}

/// Goes through all keys, with what a lane knows of two: its number, whether it
/// would stay, and its logarithmic weight by the two queries of the lane.
GpuAttention::Values GpuBoundedPrompts::visitCandidates(
    ValueRange inits, bool takesNorms, ArrayRef<Value> logSum,
    llvm::function_ref<void(Values &sums, int64_t query, const Judged &key)>
        visited) {
  double scale =
      plan.attends.front().getScale().convertToDouble() * std::numbers::log2e;
  Value marks = array("leaving", b.getI32Type());
  Value tiles = div(add(all, kTileKeys - 1), kTileKeys);
  return loop(
      index(0), tiles, index(1), inits,
      [&](Value tile, ValueRange before) -> Values {
        Value first = mul(tile, kTileKeys);
        auto inside = [&](Value key) {
          return minimum(add(first, key), sub(all, index(1)));
        };
        barrier(); // others may still read the tile before
        inOrder = true;
        copyKeys(
            [&](Value key) { return rowOfKey(slot, inside(key), cacheHead); });
        inOrder = false;
        if (takesNorms)
          measureValues(first);
        barrier();
        Values sums(before);
        Value ofWarp = mul(warp, kQueries);
        for (auto [column, scores] : llvm::enumerate(scoresOfTile(ofWarp))) {
          Value scaled = product(scores, splat(number(scale), 4));
          for (int64_t i = 0; i < 2; ++i) {
            Value key = add(add(ofWarp, mul(lanePart, 2)),
                            static_cast<int64_t>(column) * 8 + i);
            Judged judged;
            judged.stays =
                negate(equal(load(marks, placeOf(inside(key))), index(0)));
            if (takesNorms)
              judged.norm = loadFloat(norms, key);
            for (int64_t query = 0; query < 2; ++query) {
              judged.isVisible = less(add(first, key), to[query]);
              judged.logWeight = arith::SubFOp::create(
                  b, extract(scaled, 2 * query + i), logSum[query]);
              visited(sums, query, judged);
            }
          }
        }
        return sums;
      });
}

/// Of the values of a tile. Two threads have one.
void GpuBoundedPrompts::measureValues(Value first) {
  int64_t width = elementsOfLoad(plan.valueType);
  constexpr int64_t sharing = kWarps * kWarp / kTileKeys;
  Value key = div(thread, sharing), part = rem(thread, sharing);
  Value at = minimum(add(first, key), sub(all, index(1)));
  Value squares =
      loop(mul(part, width), index(valueSize), index(sharing * width),
           {splat(number(0), width)},
           [&](Value element, ValueRange before) -> Values {
             Value value = partOf(/*isKey=*/false, at, element, width);
             return {vector::FMAOp::create(b, value, value, before[0])};
           })
          .front();
  Value total =
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, squares);
  for (int64_t mask = 1; mask < sharing; mask *= 2)
    total = sum(total, exchange(total, mask));
  ifThen(equal(part, index(0)),
         [&] { store(math::SqrtOp::create(b, total), norms, key); });
}

/// Sums of all lanes and warps, `each` of one query after those of the other.
GpuAttention::Values GpuBoundedPrompts::sumQueries(Values mine) {
  auto each = static_cast<int64_t>(mine.size()) / 2;
  for (int64_t mask = 1; mask < 4; mask *= 2)
    for (Value &one : mine)
      one = sum(one, exchange(one, mask));
  auto placeOfQuery = [&](int64_t i, Value ofWarp) {
    return add(add(mul(ofWarp, kQueries), laneRow), i / each * 8);
  };
  barrier();
  ifThen(equal(lanePart, index(0)), [&] {
    for (auto [at, one] : llvm::enumerate(mine)) {
      auto i = static_cast<int64_t>(at);
      store(one, partSums, {index(i % each), placeOfQuery(i, warp)});
    }
  });
  barrier();
  for (auto [at, one] : llvm::enumerate(mine)) {
    auto i = static_cast<int64_t>(at);
    one = number(0);
    for (int64_t of = 0; of < kWarps; ++of)
      one = sum(one, loadFloat(partSums,
                               {index(i % each), placeOfQuery(i, index(of))}));
  }
  return mine;
}

/// 1 where the series of a query is of the first order, 0 where its scores
/// spread too far.
Value GpuBoundedPrompts::orderOf(int64_t query) {
  if (!needsSpread())
    return number(1);
  double scale = given.taylor.getScale().convertToDouble();
  double limit = given.taylor.getLimit().convertToDouble();
  Value memory = tensor(given.attend.getQuery());
  Value squares =
      loop(index(0), index(keySize), index(1), {number(0)},
           [&](Value at, ValueRange sums) -> Values {
             Value its = loadFloat(memory, {tokenOf[query], headOf[query], at});
             return {sum(sums[0], product(its, its))};
           })
          .front();
  Value spread = loadFloat(array("preference_spread", b.getF32Type()), planRow);
  Value reach = product(product(squares, number(scale * scale)), spread);
  Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, reach,
                                      number(limit * limit));
  return select(isFar, number(0), number(1));
}

/// Sums over 16 queries: of disturbance, of entropy, and their number.
GpuAttention::Values GpuBoundedPrompts::preferTile(Value firstLocal,
                                                   int64_t firstHead) {
  Values logSum = openQueries(firstLocal, firstHead);
  loadTileQueries();
  // Of those that leave the scores, their number and weight; the weight of the
  // others. A large sum is rounded, so that weights do not add up to 1.
  Values sums = sumQueries(visitCandidates(
      Values(8, number(0)), /*takesNorms=*/false, logSum,
      [&](Values &sums, int64_t query, const Judged &key) {
        Value leaves = both(key.isVisible, negate(key.stays));
        Value stays = both(key.isVisible, key.stays);
        Value weight = exp2(key.logWeight);
        Value *mine = &sums[static_cast<size_t>(4 * query)];
        mine[0] = sum(mine[0], select(leaves, key.logWeight, number(0)));
        mine[1] = sum(mine[1], select(leaves, number(1), number(0)));
        mine[2] = sum(mine[2], select(stays, weight, number(0)));
        mine[3] = sum(mine[3], select(leaves, weight, number(0)));
      }));
  auto inverse = [&](Value all) -> Value {
    Value isSome =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, all, number(0));
    return arith::DivFOp::create(b, number(1), select(isSome, all, number(1)));
  };
  Value mean[2], weight[2], order[2], ofOne[2], ofOneExact[2];
  for (int64_t i = 0; i < 2; ++i) {
    Value n = sums[4 * i + 1], stays = sums[4 * i + 2];
    mean[i] = arith::DivFOp::create(b, sums[4 * i], larger(n, number(1)));
    weight[i] = given.taylor ? exp2(mean[i]) : number(0);
    order[i] = orderOf(i);
    // Deviations from the mean add up to nothing. Of a query that sees nothing
    // of what is kept nothing is left.
    ofOne[i] = inverse(sum(stays, product(n, weight[i])));
    ofOneExact[i] = inverse(sum(stays, sums[4 * i + 3]));
  }
  Value ofExact = negate(equal(scalar("preference_of_exact"), index(0)));
  Values changes = sumQueries(visitCandidates(
      Values(2 * kChanges, number(0)), /*takesNorms=*/true, logSum,
      [&](Values &sums, int64_t query, const Judged &key) {
        Value own = exp2(key.logWeight);
        Value exact =
            select(key.isVisible, product(own, ofOneExact[query]), number(0));
        Value deviation =
            product(arith::SubFOp::create(b, key.logWeight, mean[query]),
                    number(std::numbers::ln2));
        Value series = product(
            weight[query], sum(number(1), product(order[query], deviation)));
        Value after = product(select(key.stays, own, series), ofOne[query]);
        after = select(key.isVisible, after, number(0));
        Value change =
            math::AbsFOp::create(b, arith::SubFOp::create(b, after, exact));
        Value share = select(ofExact, exact, larger(after, number(0)));
        Value isSome = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                             share, number(0));
        Value bits = math::Log2Op::create(b, select(isSome, share, number(1)));
        Value norm = select(key.isVisible, key.norm, number(0));
        Value terms[] = {change, product(norm, change), norm, share,
                         product(share, bits)};
        for (auto [i, term] : llvm::enumerate(terms)) {
          Value &sum0 = sums[static_cast<size_t>(kChanges * query) + i];
          sum0 = sum(sum0, term);
        }
      }));
  Values results(kResults, number(0));
  // Where nobody leaves, or rounding alone changes weights, nothing is lost.
  for (int64_t i = 0; i < 2; ++i) {
    Value &change = changes[kChanges * i];
    Value leaves = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                         sums[4 * i + 1], number(0));
    Value isLost = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, change,
                                         number(2 * kNegligibleDistance));
    change = select(both(leaves, isLost), change, number(0));
  }
  for (int64_t i = 0; i < 2; ++i)
    for (auto [result, its] : llvm::zip_equal(
             results,
             judge(i, ValueRange(changes).slice(kChanges * i, kChanges))))
      result = sum(result, its);
  // The rows of lanes are queries; every warp has them all.
  for (int64_t mask = 4; mask < kWarp; mask *= 2)
    for (Value &each : results)
      each = sum(each, exchange(each, mask));
  return results;
}

/// ½ Σ |Ã − A| (Σ ‖v‖ / Σ‖v‖ |Ã − A|)^e and −Σ a ln a of a query.
GpuAttention::Values GpuBoundedPrompts::judge(int64_t query,
                                              ValueRange changes) {
  auto isPositive = [&](Value value) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, value,
                                 number(0));
  };
  auto ratio = [&](Value of, Value all) -> Value {
    return select(
        isPositive(all),
        arith::DivFOp::create(b, of, select(isPositive(all), all, number(1))),
        number(0));
  };
  Value exponent = floatScalar("preference_exponent");
  Value aware = ratio(changes[1], changes[2]);
  Value bits =
      math::Log2Op::create(b, select(isPositive(aware), aware, number(1)));
  Value power = select(isPositive(aware), exp2(product(exponent, bits)),
                       select(isPositive(exponent), number(0), number(1)));
  Value disturbance = product(product(changes[0], number(0.5)), power);
  Value sumBits = math::Log2Op::create(
      b, select(isPositive(changes[3]), changes[3], number(1)));
  Value entropy =
      product(arith::SubFOp::create(b, sumBits, ratio(changes[4], changes[3])),
              number(std::numbers::ln2));
  Value counts = isQuery[query];
  return {select(counts, disturbance, number(0)),
          select(counts, entropy, number(0)),
          select(counts, number(1), number(0))};
}
