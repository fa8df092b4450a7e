//===- VerifyGrams.cpp - decays and products along paths on a GPU ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What drafts have to do with their ancestors, before anything is read. Those
// that are none are left out by a selection: what a sibling has of them may be
// no number.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// Drafts of a product of tiles.
static constexpr int64_t kTile = 8;

Value GpuVerifyKernel::parentOf(Value draft) {
  return arith::IndexCastOp::create(
      b, b.getIndexType(),
      memref::LoadOp::create(b, parents, ValueRange{draft}));
}

Value GpuVerifyKernel::maskOf(Value draft) {
  return memref::LoadOp::create(b, ancestors, ValueRange{draft});
}

Value GpuVerifyKernel::isAncestor(Value mask, Value ancestor) {
  Value bit = arith::ShLIOp::create(
      b, constantInt(1),
      arith::IndexCastOp::create(b, b.getI32Type(), ancestor));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                               arith::AndIOp::create(b, mask, bit),
                               constantInt(0));
}

//===----------------------------------------------------------------------===//
// Decays and Gram products
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::emitPathDecay(PathDecayOp op) {
  bool isOfAll = ofAllTurns.contains(canonical(op.getDecays()));
  if (isOfAll && ofAllTurns.insert(canonical(op.getResult())))
    stacks[canonical(op.getResult())] = {
        shared({turns * most(), 1}, "draft_values")};
  Stack decays = teamOf(op.getDecays());
  if (decays.isVector) {
    if (!pathsOfTeams.contains(canonical(op.getResult())))
      walkPaths(op, gramsAlong(op, op.getDecays()));
    return;
  }
  Stack path = teamOf(op.getResult());
  sync({decays.memory});
  written.insert(path.memory);
  Value one = constantFloat(1);
  // A thread has a draft, and multiplies what it finds on its path.
  int64_t count = isOfAll ? turns * most() : most();
  for (int64_t from = 0; from < count; from += schedule.threads) {
    Value mine = add(thread, from), draft = mine, first;
    guarded(from + schedule.threads > count ? isBelow(mine, count) : Value(),
            [&] {
              if (isOfAll) {
                draft = arith::RemUIOp::create(b, mine, constantIndex(most()));
                first = arith::SubIOp::create(b, mine, draft);
              }
              Value product =
                  multiplyAlong(maskOf(draft), decays, most() - 1, first);
              memref::StoreOp::create(
                  b, product ? product : one, path.memory,
                  ValueRange{add(mine, path.first), constantIndex(0)});
            });
  }
}

/// The product of the numbers of those among the first `count` drafts that a
/// mask names. Null if there are none.
Value GpuVerifyKernel::multiplyAlong(Value mask, const Stack &numbers,
                                     int64_t count, Value first) {
  Value product, one = constantFloat(1);
  for (int64_t draft = 0; draft < count; ++draft) {
    Value isMine = isAncestor(mask, constantIndex(draft));
    Value at = first ? add(first, numbers.first + draft)
                     : constantIndex(numbers.first + draft);
    Value number = memref::LoadOp::create(b, numbers.memory,
                                          ValueRange{at, constantIndex(0)});
    Value factor = arith::SelectOp::create(b, isMine, number, one);
    product =
        product ? Value(arith::MulFOp::create(b, product, factor)) : factor;
  }
  return product;
}

LogicalResult GpuVerifyKernel::emitPathGram(PathGramOp op) {
  if (terms.contains(canonical(op.getKeys()))) {
    // Those that are of the same drafts share what they load.
    SmallVector<PathGramOp> all{op};
    for (auto other : op->getBlock()->getOps<PathGramOp>())
      if (op->isBeforeInBlock(other) && !grams.contains(other.getResult()) &&
          !sameValues.contains(other.getResult()) &&
          llvm::all_of(other->getOperands(), [&](Value operand) {
            Operation *def = operand.getDefiningOp();
            return !def || def->isBeforeInBlock(op);
          }))
        all.push_back(other);
    emitTokenGrams(all);
    return success();
  }
  if (op.getDecays() && teamOf(op.getDecays()).isVector) {
    walkPaths({}, gramsAlong(op, op.getDecays()));
    return success();
  }
  Stack queries = teamOf(op.getQueries()), keys = teamOf(op.getKeys());
  std::optional<Stack> decays;
  SmallVector<Value> operands{queries.memory, keys.memory};
  if (op.getDecays()) {
    decays = teamOf(op.getDecays());
    operands.push_back(decays->memory);
  }
  sync(operands);
  int64_t columns = llvm::alignTo(most() * keys.components, 4);
  Value gram = grams[op.getResult()] =
      shared({most() * queries.components, columns}, "gram");
  if (most() == 1)
    return success();
  OpBuilder::InsertionGuard guard(b);
  emitGram(queries, keys, decays, gram);
  written.insert(gram);
  return success();
}

/// A group of lanes takes a draft and one before it.
void GpuVerifyKernel::emitGram(const Stack &queries, const Stack &keys,
                               std::optional<Stack> decays, Value gram) {
  // Half a square, as a rectangle: what is above the diagonal of the left half
  // stands for the pairs of later drafts.
  int64_t half = llvm::divideCeil(most(), 2), last = 2 * half - 1;
  int64_t ranks = queries.components, rankKeys = keys.components;
  int64_t dots = last * half * ranks * rankKeys;
  int64_t groups = schedule.threads / lanes;
  int64_t rounds = llvm::divideCeil(dots, groups);
  Value mine = group;
  if (rounds > 1) {
    auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(rounds),
                                   constantIndex(1));
    loop->setAttr("ladle.rolled", b.getUnitAttr());
    b.setInsertionPointToStart(loop.getBody());
    mine =
        arith::AddIOp::create(b, group,
                              arith::MulIOp::create(b, loop.getInductionVar(),
                                                    constantIndex(groups)));
  }
  // A dot is of a pair of drafts, a query of the one and a key of the other.
  auto divide = [&](Value value, int64_t by) -> std::pair<Value, Value> {
    if (by == 1)
      return {value, constantIndex(0)};
    return {arith::DivUIOp::create(b, value, constantIndex(by)),
            arith::RemUIOp::create(b, value, constantIndex(by))};
  };
  auto [ofQuery, rankKey] = divide(mine, rankKeys);
  auto [pair, rank] = divide(ofQuery, ranks);
  Value y = arith::DivUIOp::create(b, pair, constantIndex(half));
  Value x = arith::RemUIOp::create(b, pair, constantIndex(half));
  Value isLeft = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, x, y);
  auto mirrored = [&](Value value) -> Value {
    return arith::SubIOp::create(b, constantIndex(last), value);
  };
  Value draft = arith::SelectOp::create(b, isLeft, add(y, 1), mirrored(y));
  Value ancestor = arith::SelectOp::create(b, isLeft, x, mirrored(x));
  Value valid = both(
      isBelow(mine, dots),
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, draft, draftCount));
  // Shuffles are those of a warp: all take part.
  draft = arith::SelectOp::create(b, valid, draft, constantIndex(1));
  ancestor = arith::SelectOp::create(b, valid, ancestor, constantIndex(0));
  Value mask = maskOf(draft);
  Value isMine = isAncestor(mask, ancestor);
  Value weight;
  if (decays) {
    // All ancestors after this one.
    Value later = arith::AndIOp::create(
        b, mask,
        arith::ShLIOp::create(
            b, constantInt(-2),
            arith::IndexCastOp::create(b, b.getI32Type(), ancestor)));
    weight = multiplyAlong(later, *decays, most() - 1);
  }
  Place place = keyPlace(keySize);
  auto row = [&](Value of, int64_t components, Value rankOf) -> Value {
    if (components == 1)
      return of;
    return arith::AddIOp::create(
        b, arith::MulIOp::create(b, of, constantIndex(components)), rankOf);
  };
  Value to = row(draft, ranks, rank), from = row(ancestor, rankKeys, rankKey);
  Components query =
      loadVector(queries.memory, {add(to, queries.first)}, place);
  Components key = loadVector(keys.memory, {add(from, keys.first)}, place);
  Value dot = sumOverLanes(dotChunks(query, key), place.lanes);
  if (weight)
    dot = arith::MulFOp::create(b, dot, weight);
  dot = arith::SelectOp::create(b, isMine, dot, constantFloat(0));
  guarded(both(valid, isBelow(lane, 1)),
          [&] { memref::StoreOp::create(b, dot, gram, ValueRange{to, from}); });
}

/// What Gram products of tokens are made of.
GpuVerifyKernel::TokenGrams
GpuVerifyKernel::tokenGramsOf(ArrayRef<PathGramOp> ops) {
  TokenGrams all{SmallVector<PathGramOp>(ops), {}, {}, {}};
  auto use = [&](Value numbers) {
    if (numbers)
      all.memories.push_back(teamOf(numbers).memory);
  };
  for (PathGramOp op : ops) {
    all.queries.push_back(queryOf(op.getQueries(), op.getResult()));
    all.keys.push_back(termsOf(op.getKeys()).front());
    for (const Term &term : all.queries.back().terms)
      use(term.scale);
    use(all.keys.back().scale);
    use(op.getDecays());
    Value &gram = grams[op.getResult()];
    if (!gram)
      gram = shared({most(), static_cast<int64_t>(llvm::alignTo(most(), 4))},
                    "gram");
  }
  return all;
}

/// Gram products of a draft and an ancestor that have the key `key`, of the
/// products of tokens.
void GpuVerifyKernel::storeGrams(const TokenGrams &all, const Stack &key,
                                 Value draft, Value ancestor, Value valid,
                                 function_ref<Value(const Stack &)> dotOf) {
  auto scaleOf = [&](Value product, Value scale, Value of) -> Value {
    if (!scale)
      return product;
    return arith::MulFOp::create(b, product,
                                 loadStack(teamOf(scale), of, Place()).front());
  };
  Value mask = maskOf(draft), isMine = isAncestor(mask, ancestor);
  DenseMap<Value, Value> weights;
  for (auto [each, query, ofKey] : llvm::zip(all.ops, all.queries, all.keys)) {
    PathGramOp op = each;
    if (ofKey.stack.first != key.first)
      continue;
    Value sum;
    for (const Term &term : query.terms) {
      Value product = scaleOf(dotOf(term.stack), term.scale, draft);
      sum = sum ? Value(arith::AddFOp::create(b, sum, product)) : product;
    }
    sum = scaleOf(sum, ofKey.scale, ancestor);
    if (Value decays = op.getDecays()) {
      Value &weight = weights[canonical(decays)];
      if (!weight) {
        // All ancestors after this one.
        Value later = arith::AndIOp::create(
            b, mask,
            arith::ShLIOp::create(
                b, constantInt(-2),
                arith::IndexCastOp::create(b, b.getI32Type(), ancestor)));
        weight = multiplyAlong(later, teamOf(decays), most() - 1);
      }
      sum = arith::MulFOp::create(b, sum, weight);
    }
    sum = arith::SelectOp::create(b, isMine, sum, constantFloat(0));
    Value gram = grams.lookup(op.getResult());
    guarded(valid, [&] {
      memref::StoreOp::create(b, sum, gram, ValueRange{draft, ancestor});
    });
    written.insert(gram);
  }
}

/// Products of tokens as they came, by tensor cores: a warp takes 8 drafts and
/// 8 before them. Two vectors of a draft are rows g and g + 8 of a product, so
/// that a lane has all that the sum of their terms takes. Of heads that take
/// turns, tokens have the products in common, and heads their weights. Numbers
/// that come late are multiplied later, too.
void GpuVerifyKernel::emitTokenGrams(ArrayRef<PathGramOp> ops) {
  if (phase == Phase::OfTurn)
    return scaleGrams(ops);
  bool isApart =
      phase == Phase::Common && llvm::any_of(ops, [&](PathGramOp op) {
        return isOfTurn(op.getResult());
      });
  TokenGrams all;
  SmallVector<Stack> keyStacks;
  if (!isApart)
    all = tokenGramsOf(ops);
  if (!isApart && llvm::any_of(all.memories, [&](Value memory) {
        return lateMemories.contains(memory);
      })) {
    unscaledGrams.append(ops.begin(), ops.end());
    isApart = true;
    all = {};
  }
  if (isApart)
    for (PathGramOp op : ops) {
      all.queries.push_back(queryOf(op.getQueries(), op.getResult()));
      all.keys.push_back(termsOf(op.getKeys()).front());
    }
  if (most() == 1)
    return;
  all.memories.push_back(tokens);
  sync(all.memories);
  SmallVector<Stack> stacks = stacksOf(all.queries);
  for (const Term &key : all.keys)
    if (llvm::none_of(keyStacks, [&](const Stack &stack) {
          return stack.first == key.stack.first;
        }))
      keyStacks.push_back(key.stack);
  // Those of a call are made with the first of them.
  if (isApart && llvm::all_of(keyStacks, [&](const Stack &key) {
        return llvm::all_of(stacks, [&](const Stack &query) {
          return tokenProducts.contains({key.first, query.first});
        });
      }))
    return;
  int64_t pitch = llvm::alignTo(most(), 4);
  for (const Stack &key : keyStacks)
    for (const Stack &query : stacks)
      if (isApart)
        written.insert(tokenProducts[{key.first, query.first}] =
                           shared({most(), pitch}, "token_products"));

  int64_t part = tokenPart(), slab = 4 * part;
  int64_t tiles = llvm::divideCeil(most(), kTile);
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = arith::DivUIOp::create(b, warpLane, constantIndex(4));
  auto clamped = [&](Value draft) -> Value {
    return most() % kTile == 0
               ? draft
               : arith::MinSIOp::create(b, draft, constantIndex(most() - 1));
  };
  auto multiplyTile = [&](const Stack &key, int64_t i, int64_t j) {
    Value draft = add(ofGroup, i * kTile), held = clamped(draft);
    Value before = clamped(add(ofGroup, j * kTile));
    auto accumulator = VectorType::get({4}, b.getF32Type());
    SmallVector<Value> zeros(
        (stacks.size() + 1) / 2,
        arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
    auto slabs = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                    constantIndex(slab), zeros);
    slabs->setAttr("ladle.unroll", b.getUnitAttr());
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(slabs.getBody());
      Value from = arith::AddIOp::create(
          b, slabs.getInductionVar(),
          arith::MulIOp::create(b, inGroup, constantIndex(part)));
      Value ofKey = vector::LoadOp::create(
          b, VectorType::get({part}, b.getBF16Type()), tokens,
          ValueRange{add(before, key.first), from});
      SmallVector<Value> next(slabs.getRegionIterArgs());
      for (auto [pair, sum] : llvm::enumerate(next)) {
        const Stack &other = stacks[std::min(2 * pair + 1, stacks.size() - 1)];
        Components ofQueries = loadTokens(
            {add(held, stacks[2 * pair].first), add(held, other.first)}, from);
        for (auto [p, ofQuery] : llvm::enumerate(ofQueries)) {
          Value column = vector::ExtractStridedSliceOp::create(
              b, ofKey, ArrayRef<int64_t>{static_cast<int64_t>(p) * 4},
              ArrayRef<int64_t>{4}, ArrayRef<int64_t>{1});
          sum = multiplyTiles(ofQuery, column, sum);
        }
      }
      scf::YieldOp::create(b, next);
    }
    for (int64_t side = 0; side < 2; ++side) {
      Value ancestor = add(arith::MulIOp::create(b, inGroup, constantIndex(2)),
                           j * kTile + side);
      Value valid =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, ancestor, draft);
      if (most() % kTile != 0)
        valid = both(valid, isBelow(draft, most()));
      Value other = clamped(ancestor);
      auto dotOf = [&](const Stack &stack) -> Value {
        int64_t at = llvm::find_if(stacks,
                                   [&](const Stack &other) {
                                     return other.first == stack.first;
                                   }) -
                     stacks.begin();
        return vector::ExtractOp::create(b, slabs.getResult(at / 2),
                                         at % 2 * 2 + side);
      };
      if (!isApart) {
        storeGrams(all, key, held, other, valid, dotOf);
        continue;
      }
      guarded(valid, [&] {
        for (const Stack &query : stacks)
          memref::StoreOp::create(b, dotOf(query),
                                  tokenProducts.at({key.first, query.first}),
                                  ValueRange{held, other});
      });
    }
  };
  int64_t warps = schedule.threads / kWarp, task = 0;
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  for (const Stack &key : keyStacks)
    for (int64_t i = 0; i < tiles; ++i)
      for (int64_t j = 0; j <= i; ++j, ++task) {
        Value isMine =
            arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warp,
                                  constantIndex(warps - 1 - task % warps));
        guarded(warps > 1 ? isMine : Value(), [&] { multiplyTile(key, i, j); });
      }
}

/// Products of tokens that are there, times numbers: a thread has a draft and
/// one before it.
void GpuVerifyKernel::scaleGrams(ArrayRef<PathGramOp> ops) {
  if (ops.empty())
    return;
  TokenGrams all = tokenGramsOf(ops);
  if (most() == 1)
    return;
  sync(all.memories);
  int64_t pairs = most() * most();
  // Other warps have the weights of entries to store.
  Value mine =
      arith::SubIOp::create(b, constantIndex(schedule.threads - 1), thread);
  for (int64_t from = 0; from < pairs; from += schedule.threads) {
    Value pair = add(mine, from);
    Value draft = arith::DivUIOp::create(b, pair, constantIndex(most()));
    Value ancestor = arith::RemUIOp::create(b, pair, constantIndex(most()));
    Value valid =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, ancestor, draft);
    if (from + schedule.threads > pairs)
      valid = both(valid, isBelow(pair, pairs));
    guarded(valid, [&] {
      llvm::SmallDenseSet<int64_t> known;
      for (const Term &term : all.keys) {
        const Stack &key = term.stack;
        if (known.insert(key.first).second)
          storeGrams(all, key, draft, ancestor, {}, [&](const Stack &query) {
            return Value(memref::LoadOp::create(
                b, tokenProducts.at({key.first, query.first}),
                ValueRange{draft, ancestor}));
          });
      }
    });
  }
}
