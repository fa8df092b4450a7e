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

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Gram products
//===----------------------------------------------------------------------===//

/// Columns that the tokens of a tile of rows may take from, a multiple of 8.
/// Behind the last token of a step a tile has rows, and memory may have none.
Value GpuChunkKernel::columnsBefore(Value row, int64_t ranks, int64_t keys) {
  Value last = over(add(row, 15), ranks);
  if (tokensAtOnce() % 16 != 0)
    last = arith::MinSIOp::create(b, last, constantIndex(tokensAtOnce() - 1));
  Value end = times(last, keys);
  return times(over(add(end, kPart - 1), kPart), kPart);
}

/// Gram products of the same keys, which are multiplied at the same time.
SmallVector<PathGramOp> GpuChunkKernel::gramsBeside(PathGramOp op) {
  bool isVector = op.getDecays() && typeOf(op.getDecays()).getRank() > 2;
  SmallVector<PathGramOp> ops;
  for (auto other : op->getBlock()->getOps<PathGramOp>())
    if (other.getKeys() == op.getKeys() &&
        other.getDecays() == op.getDecays() && hasStack(other.getQueries()) &&
        (isVector || other.getType() == op.getType()) &&
        !find(other.getResult(), false))
      ops.push_back(other);
  return ops;
}

LogicalResult GpuChunkKernel::emitPathGram(PathGramOp op) {
  if (find(op.getResult(), false))
    return success();
  SmallVector<PathGramOp> ops = gramsBeside(op);
  if (op.getDecays() && typeOf(op.getDecays()).getRank() > 2)
    emitVectorGrams(ops);
  else
    emitGrams(ops);
  return success();
}

/// Finds the stacks that sums of products are made of, each of them once.
GpuChunkKernel::Sides GpuChunkKernel::sidesOf(ArrayRef<Value> values,
                                              bool readsScales) {
  Sides sides;
  for (Value value : values) {
    auto &mine = sides.terms.emplace_back();
    for (const Term &term : termsOf(value)) {
      auto found = llvm::find_if(sides.lefts, [&](const Operand &left) {
        return left.memory == term.base.memory;
      });
      size_t at = static_cast<size_t>(found - sides.lefts.begin());
      if (found == sides.lefts.end()) {
        sides.lefts.push_back({term.base.memory, false, term.base.isShort,
                               nullptr, false, term.base.parts});
        willRead(term.base.memory);
      }
      if (term.scale && readsScales)
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

/// Multiplies what Gram products are made of while numbers of tokens are not
/// there yet: a warp has squares of 16 tokens in registers until they are.
void GpuChunkKernel::beginGrams(ArrayRef<PathGramOp> ops) {
  SmallVector<Value> queries;
  for (PathGramOp op : ops)
    queries.push_back(op.getQueries());
  Sides sides = sidesOf(queries, /*readsScales=*/false);
  PathGramOp first = ops.front();
  Term key = termsOf(first.getKeys()).front();
  auto isBF16 = [](Value memory) {
    return cast<MemRefType>(memory.getType()).getElementType().isBF16();
  };
  if (!isBF16(key.base.memory) ||
      !llvm::all_of(sides.lefts,
                    [&](const Operand &left) { return isBF16(left.memory); }))
    return;
  willRead(key.base.memory);
  BegunGrams begun;
  begun.ops.assign(ops.begin(), ops.end());
  int64_t across = rowsFor(tokensAtOnce()) / 16;
  int64_t warps = schedule.threads / 32;
  auto four = VectorType::get({4}, b.getF32Type());
  for (int64_t i = 0; i < across * (across + 1) / 2; i += warps) {
    // Squares below the diagonal: the first row has one, the next two.
    Value square = add(over(thread, 32), i), row = constantIndex(0),
          start = constantIndex(0);
    for (int64_t r = 1, before = 1; r < across; before += ++r) {
      Value isBelowIt =
          compare(arith::CmpIPredicate::uge, square, constantIndex(before));
      row = arith::SelectOp::create(b, isBelowIt, constantIndex(r), row);
      start =
          arith::SelectOp::create(b, isBelowIt, constantIndex(before), start);
    }
    Value column =
        arith::MinUIOp::create(b, arith::SubIOp::create(b, square, start), row);
    row = times(row, 16);
    column = times(column, 16);
    Components sums(2 * sides.lefts.size(),
                    arith::ConstantOp::create(b, b.getZeroAttr(four)));
    auto loadParts = [&](Value memory, int64_t parts, Value first, Value from,
                         bool isLeft) {
      Components tiles;
      for (int64_t part = 0; part < parts; ++part)
        tiles.push_back(loadTiles(memory, add(first, rowOfPart(part)), from,
                                  /*isAcross=*/isLeft));
      return tiles;
    };
    for (int64_t k = 0; k < keySize; k += 16) {
      Value from = constantIndex(k);
      Components rights = loadParts(key.base.memory, key.base.parts, column,
                                    from, /*isLeft=*/false);
      for (auto [side, left] : llvm::enumerate(sides.lefts)) {
        Components tiles =
            loadParts(left.memory, left.parts, row, from, /*isLeft=*/true);
        for (int64_t order = mostOrder(left.parts, key.base.parts, false);
             order >= 0; --order)
          for (int64_t i = std::max<int64_t>(0, order - key.base.parts + 1);
               i <= std::min(order, left.parts - 1); ++i)
            for (int64_t j = 0; j < 2; ++j) {
              Value &sum = sums[2 * side + static_cast<size_t>(j)];
              sum = multiplyTiles(tiles[static_cast<size_t>(i)],
                                  vector::ExtractStridedSliceOp::create(
                                      b, rights[static_cast<size_t>(order - i)],
                                      {4 * j}, {4}, {1}),
                                  sum);
            }
      }
    }
    Value isSquare;
    if (i + warps > across * (across + 1) / 2)
      isSquare = isBelow(square, across * (across + 1) / 2);
    begun.squares.push_back({row, column, isSquare, sums});
  }
  begunGrams.push_back(std::move(begun));
}

/// What is left of Gram products that have been begun, or all of it.
void GpuChunkKernel::finishGrams(ArrayRef<PathGramOp> ops,
                                 const Product &product) {
  auto find = [&] {
    return llvm::find_if(begunGrams, [&](const BegunGrams &each) {
      return ArrayRef<PathGramOp>(each.ops) == ops;
    });
  };
  auto begun = find();
  bool hasParts = llvm::any_of(ops, [&](PathGramOp op) {
    return termsOf(op.getQueries()).front().base.parts > 1 ||
           termsOf(op.getKeys()).front().base.parts > 1;
  });
  if (begun == begunGrams.end() && hasParts) {
    beginGrams(ops);
    begun = find();
    assert(begun != begunGrams.end() && "products know the first part alone");
  }
  if (begun == begunGrams.end())
    return emitProduct(product);
  auto two = VectorType::get({2}, b.getF32Type());
  for (const BegunGrams::Square &square : begun->squares)
    guarded(square.isInside, [&, &square = square] {
      Value row = arith::AddIOp::create(b, square.row, over(warpLane, 4));
      Value column = arith::AddIOp::create(b, square.column, pairOfLane());
      for (int64_t j = 0; j < 2; ++j)
        for (int64_t half = 0; half < 2; ++half) {
          SmallVector<Value> parts;
          for (size_t side = 0; side < square.sums.size() / 2; ++side) {
            Value sum = square.sums[2 * side + static_cast<size_t>(j)];
            parts.push_back(vector::FromElementsOp::create(
                b, two,
                ValueRange{vector::ExtractOp::create(b, sum, 2 * half),
                           vector::ExtractOp::create(b, sum, 2 * half + 1)}));
          }
          product.finish(add(row, half * 8), add(column, j * 8), parts);
        }
    });
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
  finishGrams(ops, product);
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
    // In place, if nobody takes the right-hand side after the first sums.
    if (!rhs.hasOneUse() || op.getScale(i))
      into = makeStack(unstackType(typeOf(result)), tiles > 1);
    all[result] = into;
  }
  constexpr int64_t mostRows = 4 * kSolved;
  if (count * kSolved > mostRows)
    return op.emitError("cannot be lowered for GPUs: a token solves for ")
           << count << " vectors, 4 at most";
  for (size_t i : open) {
    willRead(stackOf(op.getRhs()[i], true).memory);
    if (Value scale = op.getScale(i))
      willRead(stackOf(scale, true).memory);
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
      // What the ancestors give is scaled as a whole, and so lies there alone.
      if (!op.getScale(i))
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
  // When a token has taken from all before it.
  auto finish = [&](int64_t token) {
    for (size_t i : open) {
      Value scale = op.getScale(i);
      if (!scale)
        continue;
      const Stack &from = stackOf(op.getRhs()[i], true);
      for (int64_t r = 0; r < from.components; ++r) {
        int64_t row = token * from.components + r;
        auto load = [&](Value stack) {
          return memref::LoadOp::create(b, stackOf(stack, true).memory,
                                        ValueRange{rowOf(from, row), column});
        };
        Value &sum = solved[i][static_cast<size_t>(row)];
        sum = math::FmaOp::create(b, load(scale), sum, load(op.getRhs()[i]));
      }
    }
  };
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
    for (int64_t token = panel; token < end; ++token) {
      take(token, panel, token);
      finish(token);
    }
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
