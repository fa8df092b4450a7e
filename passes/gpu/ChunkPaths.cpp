//===- ChunkPaths.cpp - sums along the chain in a GPU's prefill -----------===//
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

/// Tokens whose values are solved for one by one.
static constexpr int64_t kSolved = 16;
static constexpr int64_t kPart = 8;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Decays
//===----------------------------------------------------------------------===//

/// Calls `body` with what threads have of `count`.
static void forEach(ImplicitLocOpBuilder &b, Value thread, Value count,
                    Value threads, function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(b, thread, count, threads);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

const GpuChunkKernel::Weights &GpuChunkKernel::weightsOf(Value decays) {
  Weights &result = weights[decays];
  if (result.between)
    return result;
  const Stack &stack = stackOf(decays);
  int64_t tokens = rowsFor(tokensAtOnce());
  result.between = allocate(tokens, tokens);
  result.after = allocate(tokens + 1, 1);
  willRead(stack.memory);
  willWrite(result.between);
  willWrite(result.after);
  Value threads = constantIndex(schedule.threads), zero = constantIndex(0);
  Value one = constantFloat(1), none = constantFloat(0);
  auto decayOf = [&](Value token) -> Value {
    return memref::LoadOp::create(b, stack.memory,
                                  ValueRange{add(token, stack.first), zero});
  };
  // Row s is row s − 1 times the decay of s − 1, and 1 for s − 1 itself.
  forEach(b, thread, constantIndex(tokens), threads, [&](Value column) {
    auto rows = scf::ForOp::create(b, zero, constantIndex(tokens),
                                   constantIndex(1), ValueRange{none});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(rows.getBody());
    Value at = rows.getInductionVar(), weight = rows.getRegionIterArg(0);
    memref::StoreOp::create(b, weight, result.between, ValueRange{at, column});
    Value next = arith::MulFOp::create(b, weight, decayOf(at));
    next = arith::SelectOp::create(
        b, compare(arith::CmpIPredicate::eq, at, column), one, next);
    scf::YieldOp::create(b, next);
  });
  // What comes after a token, and all for the one behind the last.
  forEach(b, thread, constantIndex(tokens + 1), threads, [&](Value token) {
    Value isAll =
        compare(arith::CmpIPredicate::eq, token, constantIndex(tokens));
    auto all = scf::ForOp::create(b, zero, constantIndex(tokensAtOnce()),
                                  constantIndex(1), ValueRange{one});
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(all.getBody());
      Value at = all.getInductionVar(), product = all.getRegionIterArg(0);
      Value isAfter = arith::OrIOp::create(
          b, isAll, compare(arith::CmpIPredicate::sgt, at, token));
      Value next = arith::MulFOp::create(b, product, decayOf(at));
      scf::YieldOp::create(
          b, Value(arith::SelectOp::create(b, isAfter, next, product)));
    }
    memref::StoreOp::create(b, all.getResult(0), result.after,
                            ValueRange{token, zero});
  });
  beginOp();
  return result;
}

void GpuChunkKernel::emitPathDecay(PathDecayOp op) {
  Stack decays = stackOf(op.getDecays());
  bool isNumber = typeOf(op.getDecays()).getRank() == 2;
  if (!op.getResult().use_empty()) {
    Stack path = makeStack(unstackType(typeOf(op.getResult())), false);
    willRead(decays.memory);
    willWrite(path.memory);
    forEach(b, thread, constantIndex(path.size),
            constantIndex(schedule.threads), [&](Value column) {
              auto loop = scf::ForOp::create(
                  b, constantIndex(0), constantIndex(tokensAtOnce()),
                  constantIndex(1), ValueRange{constantFloat(1)});
              OpBuilder::InsertionGuard guard(b);
              b.setInsertionPointToStart(loop.getBody());
              Value at = loop.getInductionVar();
              Value product = loop.getRegionIterArg(0);
              memref::StoreOp::create(b, product, path.memory,
                                      ValueRange{at, column});
              Value decay = memref::LoadOp::create(
                  b, decays.memory, ValueRange{add(at, decays.first), column});
              scf::YieldOp::create(
                  b, Value(arith::MulFOp::create(b, product, decay)));
            });
    fullStacks[op.getResult()] = path;
  }
  // Other warps can go on meanwhile.
  if (isNumber)
    (void)weightsOf(op.getDecays());
}

//===----------------------------------------------------------------------===//
// Gram products
//===----------------------------------------------------------------------===//

/// Columns that the tokens of a tile of rows may take from, a multiple of 8.
Value GpuChunkKernel::columnsBefore(Value row, int64_t ranks, int64_t keys) {
  Value last = over(add(row, 15), ranks);
  Value end = times(last, keys);
  return times(over(add(end, kPart - 1), kPart), kPart);
}

LogicalResult GpuChunkKernel::emitPathGram(PathGramOp op) {
  if (find(op.getResult(), false))
    return success();
  ArrayRef<int64_t> shapeOf = op.getResult().getType().getShape();
  int64_t ranks = shapeOf[2], keys = shapeOf[4];
  if (op.getDecays() && typeOf(op.getDecays()).getRank() > 2) {
    SmallVector<PathGramOp> ops;
    for (auto other : op->getBlock()->getOps<PathGramOp>())
      if (other.getKeys() == op.getKeys() &&
          other.getDecays() == op.getDecays() &&
          find(other.getQueries(), false) && !find(other.getResult(), false))
        ops.push_back(other);
    emitVectorGrams(ops);
    return success();
  }
  Stack query = stackOf(op.getQueries()), key = stackOf(op.getKeys());
  Value between;
  if (op.getDecays())
    between = weightsOf(op.getDecays()).between;
  Stack gram;
  gram.memory = allocate(rowsOf(ranks), rowsOf(keys));
  for (Value each : {query.memory, key.memory})
    willRead(each);
  if (between)
    willRead(between);
  willWrite(gram.memory);
  int64_t depth = llvm::alignTo(keySize, kPart);
  Product product;
  product.rows = rowsOf(ranks);
  product.columns = rowsOf(keys);
  product.factors.push_back({{query.memory, false, query.isShort},
                             {key.memory, false, key.isShort},
                             [&](Value) { return constantIndex(depth); }});
  product.width = [&](Value row) { return columnsBefore(row, ranks, keys); };
  product.finish = [&](Value row, Value column, Value sums) {
    Value token = over(row, ranks);
    SmallVector<Value> kept;
    for (int64_t i = 0; i < 2; ++i) {
      Value ancestor = over(add(column, i), keys);
      Value sum = vector::ExtractOp::create(b, sums, i);
      if (between)
        sum = arith::MulFOp::create(
            b, sum,
            memref::LoadOp::create(b, between, ValueRange{token, ancestor}));
      Value isBefore = compare(arith::CmpIPredicate::slt, ancestor, token);
      kept.push_back(
          arith::SelectOp::create(b, isBefore, sum, constantFloat(0)));
    }
    storeTwo(gram.memory, row, column,
             vector::FromElementsOp::create(b, cast<VectorType>(sums.getType()),
                                            kept));
  };
  emitProduct(product);
  fullStacks[op.getResult()] = gram;
  return success();
}

/// Gram products of the same keys with decays of each channel.
void GpuChunkKernel::emitVectorGrams(ArrayRef<PathGramOp> ops) {
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
  Value threads = constantIndex(schedule.threads);
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
  forEach(b, thread, constantIndex(keySize), threads, [&](Value column) {
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
          {{side.scaled, false, size == 1 && side.from.isShort},
           {ofKeys.scaled, false, size == 1 && keys.isShort},
           [&](Value) { return constantIndex(depth); }});
      product.finish = [&](Value row, Value column, Value sums) {
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
    forEach(b, thread, constantIndex(keySize), threads, [&](Value column) {
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

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Values of tokens before, weighted by Gram products.
GpuChunkKernel::Factor GpuChunkKernel::pathFactor(Value gram, Value values,
                                                  bool isStrict) {
  ArrayRef<int64_t> shapeOf = typeOf(gram).getShape();
  int64_t ranks = shapeOf[2], keys = shapeOf[4];
  const Stack &of = stackOf(values, /*isTile=*/true);
  Value weight = stackOf(gram).memory;
  willRead(weight);
  willRead(of.memory);
  return {{weight, false, false},
          {of.memory, true, of.isShort},
          [this, ranks, keys, isStrict](Value row) {
            return isStrict ? times(over(row, ranks), keys)
                            : columnsBefore(row, ranks, keys);
          }};
}

LogicalResult GpuChunkKernel::emitPathProduct(PathProductOp op) {
  Stack result = makeStack(unstackType(typeOf(op.getResult())), tiles > 1);
  Product product;
  product.rows = rowsOf(result.components);
  product.columns = llvm::alignTo(schedule.tileRows, kPart);
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues()))
    product.factors.push_back(pathFactor(gram, values, /*isStrict=*/false));
  willWrite(result.memory);
  product.finish = [&](Value row, Value column, Value sums) {
    storeTwo(result.memory, row, column, sums);
  };
  emitProduct(product);
  (tiles > 1 ? tileStacks : fullStacks)[op.getResult()] = result;
  return success();
}

LogicalResult GpuChunkKernel::emitPathSolve(PathSolveOp op) {
  auto &all = tiles > 1 ? tileStacks : fullStacks;
  SmallVector<SmallVector<size_t>> terms(op.getRhs().size());
  for (auto [g, row] : llvm::enumerate(op.getRows()))
    terms[row].push_back(g);
  int64_t width = llvm::alignTo(schedule.tileRows, kPart);
  SmallVector<size_t> open;
  int64_t count = 0;
  for (auto [i, pair] :
       llvm::enumerate(llvm::zip(op.getRhs(), op.getResults()))) {
    auto [rhs, result] = pair;
    Stack from = stackOf(rhs, true);
    if (terms[i].empty()) {
      all[result] = from;
      continue;
    }
    open.push_back(i);
    count += from.components;
    Stack into = from;
    into.isShort = false;
    // In place, if nobody else takes the right-hand side.
    if (!rhs.hasOneUse())
      into = makeStack(unstackType(typeOf(result)), tiles > 1);
    all[result] = into;
  }
  constexpr int64_t mostRows = 4 * kSolved;
  if (count * kSolved > mostRows)
    return op.emitError("cannot be lowered for GPUs: a token solves for ")
           << count << " vectors, 4 at most";
  for (size_t i : open) {
    willRead(stackOf(op.getRhs()[i], true).memory);
    for (size_t g : terms[i]) {
      willRead(stackOf(op.getGrams()[g]).memory);
      willRead(stackOf(op.getResult(op.getColumns()[g]), true).memory);
    }
  }
  syncAll();
  auto isOpen = [&](size_t i) { return !terms[i].empty(); };
  auto blocks = scf::ForOp::create(b, constantIndex(0),
                                   constantIndex(rowsFor(tokensAtOnce())),
                                   constantIndex(kSolved));
  blocks->setAttr("ladle.rolled", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(blocks.getBody());
    Value first = blocks.getInductionVar();
    // What the tokens before the block give, and what is known of it.
    for (size_t i : open) {
      Stack from = stackOf(op.getRhs()[i], true);
      Stack into = stackOf(op.getResult(i), true);
      Product product;
      product.firstRow = times(first, into.components);
      product.rows = kSolved * into.components;
      product.columns = width;
      product.start = [&](Value row, Value column) {
        return loadTwo(from.memory, row, column);
      };
      for (size_t g : terms[i]) {
        size_t of = op.getColumns()[g];
        Factor factor = pathFactor(op.getGrams()[g], op.getResult(of),
                                   /*isStrict=*/false);
        int64_t keys = typeOf(op.getGrams()[g]).getShape()[4];
        factor.depth = [this, first, keys, known = !isOpen(of)](Value) {
          return times(known ? add(first, kSolved) : first, keys);
        };
        product.factors.push_back(std::move(factor));
      }
      product.finish = [&](Value row, Value column, Value sums) {
        storeTwo(into.memory, row, column, sums);
      };
      emitProduct(product);
    }
    barrier();
    // Substitution within the block: a thread takes a column.
    forEach(b, thread, constantIndex(schedule.tileRows),
            constantIndex(schedule.threads),
            [&](Value column) { solveColumn(op, open, terms, first, column); });
    barrier();
  }
  isRead.clear();
  isWritten.clear();
  return success();
}

void GpuChunkKernel::solveColumn(PathSolveOp op, ArrayRef<size_t> open,
                                 ArrayRef<SmallVector<size_t>> terms,
                                 Value first, Value column) {
  DenseMap<size_t, SmallVector<Value>> solved;
  auto rowOf = [&](const Stack &stack, int64_t row) {
    return add(times(first, stack.components), row);
  };
  for (size_t i : open) {
    Stack into = stackOf(op.getResult(i), true);
    for (int64_t row = 0; row < kSolved * into.components; ++row)
      solved[i].push_back(memref::LoadOp::create(
          b, into.memory, ValueRange{rowOf(into, row), column}));
  }
  for (int64_t token = 1; token < kSolved; ++token)
    for (size_t i : open) {
      Stack into = stackOf(op.getResult(i), true);
      for (int64_t r = 0; r < into.components; ++r) {
        int64_t row = token * into.components + r;
        Value sum = solved[i][row];
        for (size_t g : terms[i]) {
          auto known = solved.find(op.getColumns()[g]);
          if (known == solved.end())
            continue;
          int64_t keys = typeOf(op.getGrams()[g]).getShape()[4];
          Value gram = stackOf(op.getGrams()[g]).memory, some;
          for (int64_t k = 0; k < token * keys; ++k) {
            if (k % 4 == 0)
              some = vector::LoadOp::create(
                  b, VectorType::get({4}, b.getF32Type()), gram,
                  ValueRange{rowOf(into, row), add(times(first, keys), k)});
            sum = math::FmaOp::create(b,
                                      vector::ExtractOp::create(b, some, k % 4),
                                      known->second[k], sum);
          }
        }
        solved[i][row] = sum;
      }
    }
  for (size_t i : open) {
    Stack into = stackOf(op.getResult(i), true);
    for (auto [row, value] : llvm::enumerate(solved[i]))
      memref::StoreOp::create(
          b, value, into.memory,
          ValueRange{rowOf(into, static_cast<int64_t>(row)), column});
  }
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

static unsigned poolOf(Value state) {
  return cast<BlockArgument>(state.getDefiningOp<LoadStateOp>().getPool())
      .getArgNumber();
}

void GpuChunkKernel::emitRead(ReadOp op) {
  Stack query = stackOf(op.getQuery());
  Stack result = makeStack(unstackType(typeOf(op.getResult())), tiles > 1);
  Value held = heldStates[poolOf(op.getState())];
  willRead(query.memory);
  willRead(held);
  willWrite(result.memory);
  int64_t depth = llvm::alignTo(keySize, kPart);
  Product product;
  product.rows = rowsOf(query.components);
  product.columns = llvm::alignTo(schedule.tileRows, kPart);
  product.factors.push_back({{query.memory, false, query.isShort},
                             {held, false, false},
                             [&](Value) { return constantIndex(depth); }});
  product.finish = [&](Value row, Value column, Value sums) {
    storeTwo(result.memory, row, column, sums);
  };
  emitProduct(product);
  (tiles > 1 ? tileStacks : fullStacks)[op.getResult()] = result;
}

void GpuChunkKernel::emitFold(FoldDraftsOp op) {
  Value held = heldStates[poolOf(op.getState())];
  int64_t tokens = rowsFor(tokensAtOnce());
  bool isVector = op.getDecays() && typeOf(op.getDecays()).getRank() > 2;
  SmallVector<Stack> keys;
  for (Value key : op.getKeys())
    keys.push_back(stackOf(key));
  Value after, total;
  if (isVector) {
    // Keys times the decays of the tokens after them, from the last one back.
    Stack decays = stackOf(op.getDecays());
    willRead(decays.memory);
    total = allocate(1, keySize);
    SmallVector<std::pair<Stack, Stack>> scaled;
    for (auto [key, stack] : llvm::zip(op.getKeys(), keys)) {
      willRead(stack.memory);
      Stack from = stack;
      bool isLast = llvm::none_of(key.getUsers(), [&](Operation *user) {
        return user != op && op->isBeforeInBlock(user);
      });
      if (!isLast || llvm::count(op.getKeys(), key) > 1)
        stack.memory = allocate(rowsOf(stack.components), keySize);
      stack.isShort = false;
      scaled.emplace_back(from, stack);
    }
    syncAll();
    willWrite(total);
    for (auto &[from, into] : scaled)
      willWrite(into.memory);
    forEach(
        b, thread, constantIndex(keySize), constantIndex(schedule.threads),
        [&](Value column) {
          auto loop = scf::ForOp::create(
              b, constantIndex(0), constantIndex(tokensAtOnce()),
              constantIndex(1), ValueRange{constantFloat(1)});
          {
            OpBuilder::InsertionGuard guard(b);
            b.setInsertionPointToStart(loop.getBody());
            Value token = arith::SubIOp::create(
                b, constantIndex(tokensAtOnce() - 1), loop.getInductionVar());
            Value product = loop.getRegionIterArg(0);
            for (auto &[from, into] : scaled)
              for (int64_t r = 0; r < from.components; ++r) {
                Value row = add(times(token, from.components), r);
                Value key = memref::LoadOp::create(
                    b, from.memory, ValueRange{add(row, from.first), column});
                memref::StoreOp::create(b,
                                        arith::MulFOp::create(b, key, product),
                                        into.memory, ValueRange{row, column});
              }
            Value decay = memref::LoadOp::create(
                b, decays.memory, ValueRange{add(token, decays.first), column});
            scf::YieldOp::create(
                b, Value(arith::MulFOp::create(b, product, decay)));
          }
          memref::StoreOp::create(b, loop.getResult(0), total,
                                  ValueRange{constantIndex(0), column});
        });
    for (auto [stack, pair] : llvm::zip(keys, scaled))
      stack = pair.second;
    beginOp();
    willRead(total);
  } else if (op.getDecays()) {
    after = weightsOf(op.getDecays()).after;
    willRead(after);
  }
  Product product;
  product.rows = rowsFor(schedule.tileRows);
  product.columns = llvm::alignTo(keySize, kPart);
  for (auto [value, key] : llvm::zip(op.getValues(), keys)) {
    const Stack &values = stackOf(value, true);
    willRead(values.memory);
    willRead(key.memory);
    int64_t ranks = key.components;
    Operand left{values.memory, true, values.isShort && !after};
    if (after)
      left.scale = [this, after, ranks](Value row) -> Value {
        return memref::LoadOp::create(
            b, after, ValueRange{over(row, ranks), constantIndex(0)});
      };
    product.factors.push_back(
        {left, {key.memory, true, key.isShort}, [this, ranks](Value) {
           return constantIndex(rowsOf(ranks));
         }});
  }
  willWrite(held);
  product.start = [&](Value row, Value column) -> Value {
    Value before = loadTwo(held, row, column);
    if (isVector)
      return arith::MulFOp::create(b, before,
                                   loadTwo(total, constantIndex(0), column));
    if (!after)
      return before;
    Value all = memref::LoadOp::create(
        b, after, ValueRange{constantIndex(tokens), constantIndex(0)});
    return arith::MulFOp::create(b, before, splat(all, 2));
  };
  product.finish = [&](Value row, Value column, Value sums) {
    storeTwo(held, row, column, sums);
  };
  emitProduct(product);
}
