//===- ChunkPaths.cpp - sums along the chain in a GPU's prefill -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What tokens take from those before them are products of matrices that are
// lower triangular. Tiles above the diagonal are left out, and a triangular
// system is solved in blocks: a product for what comes before a block, and a
// substitution within it.
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
/// Of these, so many before the others take from them.
static constexpr int64_t kPanel = 4;
static constexpr int64_t kPart = 8;
/// Reads of a state at a time, with sums in registers.
static constexpr size_t kReads = 2;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
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
  bool isVector = op.getDecays() && typeOf(op.getDecays()).getRank() > 2;
  // What is multiplied with the same keys is multiplied at the same time.
  SmallVector<PathGramOp> ops;
  for (auto other : op->getBlock()->getOps<PathGramOp>())
    if (other.getKeys() == op.getKeys() &&
        other.getDecays() == op.getDecays() && hasStack(other.getQueries()) &&
        (isVector || other.getType() == op.getType()) &&
        !find(other.getResult(), false))
      ops.push_back(other);
  if (isVector)
    emitVectorGrams(ops);
  else
    emitGrams(ops);
  return success();
}

/// Finds the stacks that sums of products are made of, each of them once.
GpuChunkKernel::Sides GpuChunkKernel::sidesOf(ArrayRef<Value> values) {
  Sides sides;
  for (Value value : values) {
    auto &mine = sides.terms.emplace_back();
    for (const Term &term : termsOf(value)) {
      auto found = llvm::find_if(sides.lefts, [&](const Operand &left) {
        return left.memory == term.base.memory;
      });
      size_t at = static_cast<size_t>(found - sides.lefts.begin());
      if (found == sides.lefts.end()) {
        sides.lefts.push_back({term.base.memory, false, term.base.isShort});
        willRead(term.base.memory);
      }
      if (term.scale)
        willRead(term.scale->memory);
      mine.emplace_back(at, term.scale);
    }
  }
  return sides;
}

/// The sum of the sides of a value, at a row of its stack.
Value GpuChunkKernel::sumOf(const Sides &sides, size_t value, Value token,
                            ValueRange sums) {
  Value result;
  for (auto &[side, scale] : sides.terms[value]) {
    Value part = sums[side];
    if (scale)
      part = arith::MulFOp::create(b, part, splat(scaleAt(*scale, token), 2));
    result = result ? Value(arith::AddFOp::create(b, result, part)) : part;
  }
  return result;
}

void GpuChunkKernel::emitGrams(ArrayRef<PathGramOp> ops) {
  PathGramOp first = ops.front();
  ArrayRef<int64_t> shapeOf = first.getResult().getType().getShape();
  int64_t ranks = shapeOf[2], keys = shapeOf[4];
  Value between;
  if (first.getDecays())
    between = weightsOf(first.getDecays()).between;
  SmallVector<Value> queries, grams;
  for (PathGramOp op : ops)
    queries.push_back(op.getQueries());
  Sides sides = sidesOf(queries);
  Term key = termsOf(first.getKeys()).front();
  willRead(key.base.memory);
  if (key.scale)
    willRead(key.scale->memory);
  if (between)
    willRead(between);
  for (PathGramOp op : ops) {
    Stack gram;
    gram.memory = allocate(rowsOf(ranks), rowsOf(keys));
    willWrite(gram.memory);
    grams.push_back(gram.memory);
    fullStacks[op.getResult()] = gram;
  }
  int64_t depth = depthOfKeys();
  Product product;
  product.rows = rowsOf(ranks);
  product.columns = rowsOf(keys);
  product.factors.push_back({sides.lefts,
                             {key.base.memory, false, key.base.isShort},
                             [&](Value) { return constantIndex(depth); }});
  product.width = [&](Value row) { return columnsBefore(row, ranks, keys); };
  product.finish = [&](Value row, Value column, ValueRange sums) {
    Value token = over(row, ranks);
    SmallVector<Value> weights, isBefore;
    for (int64_t i = 0; i < 2; ++i) {
      Value ancestor = over(add(column, i), keys), weight;
      if (between)
        weight =
            memref::LoadOp::create(b, between, ValueRange{token, ancestor});
      if (key.scale) {
        Value scale = scaleAt(*key.scale, ancestor);
        weight =
            weight ? Value(arith::MulFOp::create(b, weight, scale)) : scale;
      }
      weights.push_back(weight);
      isBefore.push_back(compare(arith::CmpIPredicate::slt, ancestor, token));
    }
    for (auto [at, gram] : llvm::enumerate(grams)) {
      Value both = sumOf(sides, at, token, sums);
      SmallVector<Value> kept;
      for (int64_t i = 0; i < 2; ++i) {
        Value sum = vector::ExtractOp::create(b, both, i);
        if (weights[static_cast<size_t>(i)])
          sum = arith::MulFOp::create(b, sum, weights[static_cast<size_t>(i)]);
        kept.push_back(arith::SelectOp::create(
            b, isBefore[static_cast<size_t>(i)], sum, constantFloat(0)));
      }
      storeTwo(gram, row, column,
               vector::FromElementsOp::create(
                   b, cast<VectorType>(both.getType()), kept));
    }
  };
  emitProduct(product);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Values of tokens before, weighted by Gram products.
GpuChunkKernel::Factor GpuChunkKernel::pathFactor(Value gram, Value values) {
  ArrayRef<int64_t> shapeOf = typeOf(gram).getShape();
  int64_t ranks = shapeOf[2], keys = shapeOf[4];
  const Stack &of = stackOf(values, /*isTile=*/true);
  Value weight = stackOf(gram).memory;
  willRead(weight);
  willRead(of.memory);
  return {{{weight, false, false}},
          {of.memory, true, of.isShort},
          [this, ranks, keys](Value row) {
            return columnsBefore(row, ranks, keys);
          },
          /*isTriangular=*/true};
}

LogicalResult GpuChunkKernel::emitPathProduct(PathProductOp op) {
  Stack result = makeStack(unstackType(typeOf(op.getResult())), tiles > 1);
  Product product;
  product.rows = rowsOf(result.components);
  product.columns = llvm::alignTo(schedule.tileRows, kPart);
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues()))
    product.factors.push_back(pathFactor(gram, values));
  willWrite(result.memory);
  product.finish = [&](Value row, Value column, ValueRange sums) {
    storeTwo(result.memory, row, column, sums.front());
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
        Factor factor = pathFactor(op.getGrams()[g], op.getResult(of));
        int64_t keys = typeOf(op.getGrams()[g]).getShape()[4];
        factor.depth = [this, first, keys, known = !isOpen(of)](Value) {
          return times(known ? add(first, kSolved) : first, keys);
        };
        product.factors.push_back(std::move(factor));
      }
      product.finish = [&](Value row, Value column, ValueRange sums) {
        storeTwo(into.memory, row, column, sums.front());
      };
      emitProduct(product);
    }
    barrier();
    // Substitution within the block: a thread takes a column.
    forThreads(constantIndex(schedule.tileRows), [&](Value column) {
      solveColumn(op, open, terms, first, column);
    });
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
  // Adds what a token takes from those between two others.
  auto take = [&](int64_t token, int64_t from, int64_t to) {
    for (size_t i : open) {
      Stack into = stackOf(op.getResult(i), true);
      for (int64_t r = 0; r < into.components; ++r) {
        int64_t row = token * into.components + r;
        Value &sum = solved[i][static_cast<size_t>(row)];
        for (size_t g : terms[i]) {
          auto known = solved.find(op.getColumns()[g]);
          if (known == solved.end())
            continue;
          int64_t keys = typeOf(op.getGrams()[g]).getShape()[4];
          Value gram = stackOf(op.getGrams()[g]).memory, some;
          for (int64_t k = from * keys; k < to * keys; ++k) {
            if (k % kPanel == 0)
              some = vector::LoadOp::create(
                  b, VectorType::get({kPanel}, b.getF32Type()), gram,
                  ValueRange{rowOf(into, row), add(times(first, keys), k)});
            sum = math::FmaOp::create(
                b, vector::ExtractOp::create(b, some, k % kPanel),
                known->second[static_cast<size_t>(k)], sum);
          }
        }
      }
    }
  };
  // A panel is solved, and then all later tokens take from it, which need not
  // wait for each other.
  for (int64_t panel = 0; panel < kSolved; panel += kPanel) {
    int64_t end = panel + kPanel;
    for (int64_t token = panel + 1; token < end; ++token)
      take(token, panel, token);
    for (int64_t token = end; token < kSolved; ++token)
      take(token, panel, end);
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

void GpuChunkKernel::emitRead(ReadOp op) {
  auto &all = tiles > 1 ? tileStacks : fullStacks;
  if (find(op.getResult(), tiles > 1))
    return;
  // All reads of a state at the same time, if their queries are there.
  SmallVector<Value> queries, results;
  for (auto other : op->getBlock()->getOps<ReadOp>())
    if (other.getState() == op.getState() && hasStack(other.getQuery()) &&
        other.getQuery().getType() == op.getQuery().getType() &&
        !find(other.getResult(), tiles > 1) && queries.size() < kReads) {
      queries.push_back(other.getQuery());
      Stack result =
          makeStack(unstackType(typeOf(other.getResult())), tiles > 1);
      all[other.getResult()] = result;
      results.push_back(result.memory);
    }
  Value held = heldStates[poolOf(op.getState())];
  Sides sides = sidesOf(queries);
  willRead(held);
  for (Value result : results)
    willWrite(result);
  int64_t components = componentCount(unstackType(typeOf(op.getQuery())));
  int64_t depth = depthOfKeys();
  Product product;
  product.rows = rowsOf(components);
  product.columns = llvm::alignTo(schedule.tileRows, kPart);
  product.factors.push_back({sides.lefts, {held, false, false}, [&](Value) {
                               return constantIndex(depth);
                             }});
  product.finish = [&](Value row, Value column, ValueRange sums) {
    for (auto [at, result] : llvm::enumerate(results))
      storeTwo(result, row, column,
               sumOf(sides, at, over(row, components), sums));
  };
  emitProduct(product);
}

void GpuChunkKernel::emitFold(FoldDraftsOp op) {
  Value held = heldStates[poolOf(op.getState())];
  int64_t tokens = rowsFor(tokensAtOnce());
  bool isVector = op.getDecays() && typeOf(op.getDecays()).getRank() > 2;
  SmallVector<Stack> keys;
  SmallVector<std::optional<Stack>> scales;
  for (Value key : op.getKeys()) {
    Term term = termsOf(key).front();
    keys.push_back(term.base);
    scales.push_back(term.scale);
  }
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
    forThreads(constantIndex(keySize), [&](Value column) {
      auto loop =
          scf::ForOp::create(b, constantIndex(0), constantIndex(tokensAtOnce()),
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
            memref::StoreOp::create(b, arith::MulFOp::create(b, key, product),
                                    into.memory, ValueRange{row, column});
          }
        Value decay = memref::LoadOp::create(
            b, decays.memory, ValueRange{add(token, decays.first), column});
        scf::YieldOp::create(b,
                             Value(arith::MulFOp::create(b, product, decay)));
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
  for (auto [value, key, scale] : llvm::zip(op.getValues(), keys, scales)) {
    const Stack &values = stackOf(value, true);
    willRead(values.memory);
    willRead(key.memory);
    int64_t ranks = key.components;
    Operand left{values.memory, true, values.isShort && !after && !scale};
    if (scale)
      willRead(scale->memory);
    if (after || scale)
      left.scale = [this, after, ranks, scale](Value row) -> Value {
        Value token = over(row, ranks), weight;
        if (after)
          weight = memref::LoadOp::create(b, after,
                                          ValueRange{token, constantIndex(0)});
        if (!scale)
          return weight;
        Value mine = scaleAt(*scale, token);
        return weight ? Value(arith::MulFOp::create(b, weight, mine)) : mine;
      };
    product.factors.push_back(
        {{left}, {key.memory, true, key.isShort}, [this, ranks](Value) {
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
  product.finish = [&](Value row, Value column, ValueRange sums) {
    storeTwo(held, row, column, sums.front());
  };
  emitProduct(product);
}
