//===- ChunkDecays.cpp - decays along the chain in a GPU's prefill --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Decays are only ever multiplied between two tokens of a chunk: no logarithm
// and no quotient, so that nothing overflows and a decay of 0 needs no special
// case. Numbers fill a matrix, a thread a column. Of vectors, blocks of tokens
// are joined two by two: the queries of the second take what follows the
// boundary, the keys of the first what precedes it, so that each doubling is a
// product of matrices.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kPart = 8;
static constexpr int64_t kWarp = 32;
/// Warps that begin with decays of paths, and of what comes after a token.
static constexpr int64_t kPathWarp = 5, kAfterWarp = 3;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Calls `body` with what threads have of `count`.
void GpuChunkKernel::forThreads(Value count, function_ref<void(Value)> body,
                                int64_t firstWarp) {
  int64_t warps = schedule.threads / kWarp;
  Value from = thread;
  // So that what is for few threads is not for the same.
  if (firstWarp % warps)
    from = arith::RemUIOp::create(
        b, add(thread, schedule.threads - firstWarp % warps * kWarp),
        constantIndex(schedule.threads));
  auto loop =
      scf::ForOp::create(b, from, count, constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

/// Goes from token to token with a number, which `body` gets and changes: with
/// the token and its decay. Decays are loaded before anything is stored, which
/// may be to the same memory as far as the compiler knows.
Value GpuChunkKernel::forDecays(const Stack &decays, Value column, Value first,
                                function_ref<Value(Value, Value, Value)> body) {
  int64_t tokens = tokensAtOnce(), each = std::gcd<int64_t>(tokens, 8);
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(tokens),
                                 constantIndex(each), ValueRange{first});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value from = loop.getInductionVar(), number = loop.getRegionIterArg(0);
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < each; ++i)
    loaded.push_back(memref::LoadOp::create(
        b, decays.memory, ValueRange{add(from, decays.first + i), column}));
  for (int64_t i = 0; i < each; ++i)
    number = body(add(from, i), number, loaded[static_cast<size_t>(i)]);
  scf::YieldOp::create(b, number);
  return loop.getResult(0);
}

const GpuChunkKernel::Weights &GpuChunkKernel::weightsOf(Value decays) {
  Weights &result = weights[decays];
  if (result.between)
    return result;
  const Stack &stack = stackOf(decays);
  int64_t tokens = rowsFor(tokensAtOnce());
  result.between = allocate(tokens, tokens);
  // What passes to another kernel is copied in parts of four.
  result.after =
      allocate(shape.prepared ? llvm::alignTo(tokens + 1, 4) : tokens + 1, 1);
  willRead(stack.memory);
  willWrite(result.between);
  willWrite(result.after);
  if (holdsRows) {
    weighInWarps(stack, result);
    beginOp();
    return result;
  }
  Value zero = constantIndex(0);
  Value one = constantFloat(1), none = constantFloat(0);
  // Row s is row s − 1 times the decay of s − 1, and 1 for s − 1 itself.
  forThreads(constantIndex(tokens), [&](Value column) {
    Value last = forDecays(
        stack, zero, none, [&](Value at, Value weight, Value decay) -> Value {
          memref::StoreOp::create(b, weight, result.between,
                                  ValueRange{at, column});
          return arith::SelectOp::create(
              b, compare(arith::CmpIPredicate::eq, at, column), one,
              arith::MulFOp::create(b, weight, decay));
        });
    // Tokens that fill up a tile have decays of 1.
    for (int64_t at = tokensAtOnce(); at < tokens; ++at) {
      memref::StoreOp::create(b, last, result.between,
                              ValueRange{constantIndex(at), column});
      last = arith::SelectOp::create(
          b, compare(arith::CmpIPredicate::eq, constantIndex(at), column), one,
          last);
    }
  });
  // What comes after a token, and all for the one behind the last.
  forThreads(
      constantIndex(tokens + 1),
      [&](Value token) {
        Value isAll =
            compare(arith::CmpIPredicate::eq, token, constantIndex(tokens));
        Value all = forDecays(
            stack, zero, one,
            [&](Value at, Value product, Value decay) -> Value {
              Value isAfter = arith::OrIOp::create(
                  b, isAll, compare(arith::CmpIPredicate::sgt, at, token));
              return arith::SelectOp::create(
                  b, isAfter, arith::MulFOp::create(b, product, decay),
                  product);
            });
        memref::StoreOp::create(b, all, result.after, ValueRange{token, zero});
      },
      kAfterWarp);
  beginOp();
  return result;
}

/// The decay of a lane's token, 1 behind the last.
Value GpuChunkKernel::decayOfLane(const Stack &decays) {
  Value last = constantIndex(tokensAtOnce() - 1);
  Value decay = memref::LoadOp::create(
      b, decays.memory,
      ValueRange{add(arith::MinUIOp::create(b, warpLane, last), decays.first),
                 constantIndex(0)});
  return arith::SelectOp::create(b, isBelow(warpLane, tokensAtOnce()), decay,
                                 constantFloat(1));
}

/// The product of a lane's number and those of the lanes before it, or after.
Value GpuChunkKernel::productsOverLanes(Value number, bool ofBefore) {
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value other =
        shuffle(number, constantInt(static_cast<int32_t>(distance)), kWarp,
                ofBefore ? gpu::ShuffleMode::UP : gpu::ShuffleMode::DOWN);
    Value hasOther = ofBefore ? compare(arith::CmpIPredicate::uge, warpLane,
                                        constantIndex(distance))
                              : isBelow(warpLane, kWarp - distance);
    number = arith::SelectOp::create(
        b, hasOther, arith::MulFOp::create(b, number, other), number);
  }
  return number;
}

/// Calls `body` in one warp.
void GpuChunkKernel::inWarp(int64_t warp, function_ref<void()> body) {
  warp %= schedule.threads / kWarp;
  guarded(compare(arith::CmpIPredicate::eq, over(thread, kWarp),
                  constantIndex(warp)),
          body);
}

/// weightsOf for a token a lane.
void GpuChunkKernel::weighInWarps(const Stack &decays, const Weights &result) {
  int64_t tokens = rowsFor(tokensAtOnce());
  Value zero = constantIndex(0), one = constantFloat(1);
  inWarp(kPathWarp, [&] {
    Value decay = decayOfLane(decays), weight = one;
    // From the token before it back, each times the decay of the one between.
    for (int64_t distance = 1; distance < tokens; ++distance) {
      Value other = arith::SubIOp::create(b, warpLane, constantIndex(distance));
      Value isToken = both(compare(arith::CmpIPredicate::sge, other, zero),
                           isBelow(warpLane, tokens));
      guarded(isToken, [&, weight = weight] {
        memref::StoreOp::create(b, weight, result.between,
                                ValueRange{warpLane, other});
      });
      Value index = arith::IndexCastOp::create(
          b, b.getI32Type(), arith::MaxSIOp::create(b, other, zero));
      weight = arith::MulFOp::create(
          b, weight, shuffle(decay, index, kWarp, gpu::ShuffleMode::IDX));
    }
  });
  inWarp(kAfterWarp, [&] {
    Value all = productsOverLanes(decayOfLane(decays), /*ofBefore=*/false);
    Value after = shuffle(all, constantInt(1), kWarp, gpu::ShuffleMode::DOWN);
    after =
        arith::SelectOp::create(b, isBelow(warpLane, kWarp - 1), after, one);
    guarded(isBelow(warpLane, tokens), [&] {
      memref::StoreOp::create(b, after, result.after,
                              ValueRange{warpLane, zero});
    });
    guarded(isBelow(warpLane, 1), [&] {
      memref::StoreOp::create(b, all, result.after,
                              ValueRange{constantIndex(tokens), zero});
    });
  });
}

void GpuChunkKernel::emitPathDecay(PathDecayOp op) {
  Stack decays = stackOf(op.getDecays());
  bool isNumber = typeOf(op.getDecays()).getRank() == 2;
  if (!op.getResult().use_empty()) {
    Stack path = makeStack(unstackType(typeOf(op.getResult())), false);
    willRead(decays.memory);
    willWrite(path.memory);
    if (isNumber && holdsRows)
      inWarp(kAfterWarp, [&] {
        Value all = productsOverLanes(decayOfLane(decays), /*ofBefore=*/true);
        Value before =
            shuffle(all, constantInt(1), kWarp, gpu::ShuffleMode::UP);
        before = arith::SelectOp::create(b, isBelow(warpLane, 1),
                                         constantFloat(1), before);
        guarded(isBelow(warpLane, tokensAtOnce()), [&] {
          memref::StoreOp::create(b, before, path.memory,
                                  ValueRange{warpLane, constantIndex(0)});
        });
      });
    else
      forThreads(
          constantIndex(path.size),
          [&](Value column) {
            forDecays(decays, column, constantFloat(1),
                      [&](Value at, Value product, Value decay) -> Value {
                        memref::StoreOp::create(b, product, path.memory,
                                                ValueRange{at, column});
                        return arith::MulFOp::create(b, product, decay);
                      });
          },
          isNumber ? kPathWarp : 0);
    fullStacks[op.getResult()] = path;
  }
  // Other warps can go on meanwhile.
  if (isNumber)
    (void)weightsOf(op.getDecays());
}

/// Gram products of the same keys with decays of each channel.
void GpuChunkKernel::emitVectorGrams(ArrayRef<PathGramOp> ops) {
  if (holdsRows && ops.size() <= 2 && tokensAtOnce() == kMostVectorTokens)
    return multiplyDoublings(ops);
  int64_t tokens = rowsFor(tokensAtOnce());
  PathGramOp first = ops.front();
  Stack decays = stackOf(first.getDecays());
  Stack keys = stackOf(first.getKeys());
  int64_t keyRanks = keys.components;
  struct Side {
    Stack from;
    Value scaled, gram;
  };
  Side ofKeys{keys, allocate(tokens * keyRanks, keySize), {}};
  SmallVector<Side> sides;
  DenseMap<Value, Value> known;
  for (PathGramOp op : ops) {
    Stack query = stackOf(op.getQueries());
    Side side{
        query, {}, allocate(tokens * query.components, tokens * keyRanks)};
    Value &scaled = known[op.getQueries()];
    if (!scaled)
      scaled = allocate(tokens * query.components, keySize);
    side.scaled = scaled;
    sides.push_back(side);
  }
  // [tokens, dk]: what blocks are multiplied by as a whole, with each.
  Value totals = allocate(tokens, keySize);
  for (const Side &side : sides)
    willRead(side.from.memory);
  willRead(keys.memory);
  willRead(decays.memory);
  willWrite(ofKeys.scaled);
  willWrite(totals);
  SmallVector<std::pair<Stack, Value>> copies{{keys, ofKeys.scaled}};
  for (const Side &side : sides) {
    if (!llvm::is_contained(llvm::make_second_range(copies), side.scaled)) {
      willWrite(side.scaled);
      copies.emplace_back(side.from, side.scaled);
    }
    willWrite(side.gram);
  }
  auto copyColumn = [&](Value from, int64_t firstRow, Value into, int64_t rows,
                        Value column) {
    auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(rows),
                                   constantIndex(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value at = loop.getInductionVar();
    Value element =
        memref::LoadOp::create(b, from, ValueRange{add(at, firstRow), column});
    memref::StoreOp::create(b, element, into, ValueRange{at, column});
  };
  forThreads(constantIndex(keySize), [&](Value column) {
    for (auto &[from, into] : copies)
      copyColumn(from.memory, from.first, into, tokens * from.components,
                 column);
    copyColumn(decays.memory, decays.first, totals, tokens, column);
  });
  for (int64_t size = 1; size < tokens; size *= 2) {
    syncAll();
    for (const Side &side : sides) {
      willRead(side.scaled);
      willRead(ofKeys.scaled);
      isWritten.insert(side.gram);
      int64_t ranks = side.from.components;
      int64_t depth = llvm::alignTo(keySize, kPart);
      Product product;
      product.rows = tokens * ranks;
      product.columns = tokens * keyRanks;
      product.factors.push_back(
          {{{side.scaled, false, size == 1 && side.from.isShort}},
           {ofKeys.scaled, false, size == 1 && keys.isShort},
           [&](Value) { return constantIndex(depth); }});
      product.finish = [&](Value row, Value column, ValueRange all) {
        Value sums = all.front();
        // A token of the second block of two, and one of the first.
        Value token = over(row, ranks);
        for (int64_t i = 0; i < 2; ++i) {
          Value ancestor = over(add(column, i), keyRanks);
          Value block = over(token, size);
          Value isSecond =
              compare(arith::CmpIPredicate::eq,
                      arith::RemUIOp::create(b, block, constantIndex(2)),
                      constantIndex(1));
          Value before = arith::SubIOp::create(b, block, constantIndex(1));
          Value isPair = both(isSecond, compare(arith::CmpIPredicate::eq,
                                                over(ancestor, size), before));
          // The first round leaves zeros behind for what is no pair at all.
          Value isNone = compare(arith::CmpIPredicate::sge, ancestor, token);
          Value value = vector::ExtractOp::create(b, sums, i);
          if (size == 1) {
            value = arith::SelectOp::create(b, isNone, constantFloat(0), value);
            isPair = arith::OrIOp::create(b, isPair, isNone);
          }
          guarded(isPair, [&] {
            memref::StoreOp::create(b, value, side.gram,
                                    ValueRange{row, add(column, i)});
          });
        }
      };
      emitProduct(product);
    }
    if (size * 2 >= tokens)
      break;
    // The second blocks pass the first, and keys of the first the second.
    syncAll();
    for (auto &[from, into] : copies)
      willWrite(into);
    willWrite(totals);
    forThreads(constantIndex(keySize), [&](Value column) {
      auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(tokens),
                                     constantIndex(2 * size));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value start = loop.getInductionVar();
      auto load = [&](Value memory, Value row) -> Value {
        return memref::LoadOp::create(b, memory, ValueRange{row, column});
      };
      Value ofFirst = load(totals, start);
      Value ofSecond = load(totals, add(start, size));
      for (auto &[from, into] : copies) {
        bool isKey = into == ofKeys.scaled;
        int64_t ranks = from.components;
        Value factor = isKey ? ofSecond : ofFirst;
        Value begin = times(isKey ? start : add(start, size), ranks);
        Value memory = into;
        auto rows = scf::ForOp::create(
            b, constantIndex(0), constantIndex(size * ranks), constantIndex(1));
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPointToStart(rows.getBody());
        Value row = arith::AddIOp::create(b, begin, rows.getInductionVar());
        memref::StoreOp::create(
            b, arith::MulFOp::create(b, load(memory, row), factor), memory,
            ValueRange{row, column});
      }
      memref::StoreOp::create(b, arith::MulFOp::create(b, ofFirst, ofSecond),
                              totals, ValueRange{start, column});
    });
  }
  for (auto [at, side] : llvm::enumerate(sides)) {
    PathGramOp op = ops[at];
    Stack gram;
    gram.memory = side.gram;
    fullStacks[op.getResult()] = gram;
  }
  for (auto &[from, into] : copies)
    unused[sizes.lookup(into)].push_back(into);
  unused[sizes.lookup(totals)].push_back(totals);
}
