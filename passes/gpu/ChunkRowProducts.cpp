//===- ChunkRowProducts.cpp - products of rows that stay with warps -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The left side is a warp's: its rows of a state, or of values. Two tiles of
// sums beside each other are a tile of 16 terms of bf16 as they lie; of f32, a
// tile is one of 8 terms, of which a lane has two beside each other instead of
// four apart. The right side is in shared memory, a row a token.
//
// A triangular system is solved 8 tokens at a time, or 16, each a product with
// the inverse of its diagonal block. These inverses are of Gram products alone:
// a thread takes a column of one, for all warps.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kTileColumns = 8;
/// Terms of a product of bf16.
static constexpr int64_t kTerms = 16;
/// Tokens that are solved for at a time, and where other warps have inverted.
static constexpr int64_t kBlock = 8, kBlockAhead = 16;
/// Sums whose products wait for each other in turn.
static constexpr size_t kAtOnce = 8;
/// Of a column of an inverse, so many before the others take from them.
static constexpr int64_t kPanel = 4;
/// Which warp begins with inverses: the first has numbers of tokens.
static constexpr int64_t kInverseWarp = 2;
/// Stacks that a state is read with at a time.
static constexpr size_t kReads = 2;

static bool isBF16(Value memory) {
  return cast<MemRefType>(memory.getType()).getElementType().isBF16();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Four tiles of 16 rows and columns of a memory: one after the other along a
/// row, or across, down a column.
Value GpuChunkKernel::loadTiles(Value memory, Value row, Value column,
                                bool isAcross, bool isTransposed) {
  Value inTile = arith::RemUIOp::create(b, warpLane, constantIndex(8));
  Value tile = over(warpLane, 8);
  Value down = over(tile, 2);
  Value along = arith::RemUIOp::create(b, tile, constantIndex(2));
  if (isAcross)
    std::swap(down, along);
  row = arith::AddIOp::create(
      b, row, arith::AddIOp::create(b, inTile, times(down, kTileColumns)));
  column = arith::AddIOp::create(b, column, times(along, kTileColumns));
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  Value tiles = nvgpu::LdMatrixOp::create(
      b, VectorType::get({4, 2}, element), memory, placeIn(memory, row, column),
      b.getBoolAttr(isTransposed), b.getI32IntegerAttr(4));
  return vector::ShapeCastOp::create(b, VectorType::get({8}, element), tiles);
}

/// So many elements of a vector from one on.
static Value sliceOf(ImplicitLocOpBuilder &b, Value value, int64_t first,
                     int64_t count) {
  return vector::ExtractStridedSliceOp::create(b, value, {first}, {count}, {1});
}

/// Two tiles of sums as one of 16 terms, as so many parts of bf16.
GpuKernel::Components GpuChunkKernel::halvesOf(Value first, Value second,
                                               int64_t parts) {
  Value both = vector::ShuffleOp::create(
      b, first, second, ArrayRef<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  return partsOf(both, parts);
}

/// A tile of sums as one of 8 terms, in two parts.
std::pair<Value, Value> GpuChunkKernel::termsOfSums(Value sums) {
  return splitTerms(
      vector::ShuffleOp::create(b, sums, sums, ArrayRef<int64_t>{0, 2, 1, 3}));
}

/// Two terms of a right side, in as many parts.
GpuChunkKernel::Right GpuChunkKernel::splitRight(Value two, bool isShort) {
  if (isShort)
    return {two, {}};
  auto [most, rest] = splitTerms(two);
  return {most, rest};
}

/// Products of f32, of which the fourth part is below the last bit: the
/// smallest of all first, so that a sum need not wait for its own.
void GpuChunkKernel::multiplySplit(ArrayRef<SplitProduct> products) {
  auto smallOf = [](const SplitProduct &each) -> Value & {
    return each.small ? *each.small : *each.sum;
  };
  for (const SplitProduct &each : products)
    if (each.right.second)
      smallOf(each) =
          multiplyShortTiles(each.left.first, each.right.second, smallOf(each));
  for (const SplitProduct &each : products)
    smallOf(each) =
        multiplyShortTiles(each.left.second, each.right.first, smallOf(each));
  for (const SplitProduct &each : products)
    *each.sum =
        multiplyShortTiles(each.left.first, each.right.first, *each.sum);
}

/// The tile of a memory whose rows are the tokens of a product, and whose
/// columns are those that are summed.
GpuChunkKernel::Right GpuChunkKernel::rightAlong(Value memory, int64_t row,
                                                 int64_t column) {
  return splitRight(
      loadTwo(memory, add(over(warpLane, 4), row), add(pairOfLane(), column)),
      false);
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

/// The products of a warp's rows of a state with stacks. Of what is rounded to
/// 16 bits, products with the last part of a state are a 64th of the error.
SmallVector<GpuKernel::Components>
GpuChunkKernel::multiplyState(ArrayRef<Value> rows, ArrayRef<Operand> stacks) {
  auto four = VectorType::get({4}, b.getF32Type());
  int64_t count = tokenTiles();
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(four));
  SmallVector<Components> sums(stacks.size(),
                               Components(static_cast<size_t>(count), zero));
  bool areHalves = llvm::all_of(
      stacks, [](const Operand &stack) { return isBF16(stack.memory); });
  auto orderOf = [](const Operand &stack) {
    return mostOrder(kParts, stack.parts, stack.isRounded);
  };
  int64_t most = 0;
  for (const Operand &stack : stacks)
    most = std::max(most, orderOf(stack));
  if (areHalves && matrices.contains(stacks.front().memory)) {
    SmallVector<StackProduct> products;
    for (auto [stack, of] : llvm::zip(stacks, sums))
      products.push_back({stack.memory, stack.parts, orderOf(stack), of});
    multiplyStacks(rows, /*isFold=*/false, products);
    return sums;
  }
  Value from = firstKey();
  for (int64_t k = 0; areHalves && k < keysOfWarp(); k += kTerms) {
    size_t tile = static_cast<size_t>(k / kTileColumns);
    Components parts = halvesOf(rows[tile], rows[tile + 1], most + 1);
    // By stack, of each part two tiles of tokens at a time.
    SmallVector<SmallVector<Components>> tiles(stacks.size());
    for (auto [stack, ofStack] : llvm::zip(stacks, tiles))
      for (int64_t j = 0; j < std::min(stack.parts, orderOf(stack) + 1); ++j)
        for (Components &ofPart = ofStack.emplace_back();
             int64_t(ofPart.size()) * 2 < count;)
          ofPart.push_back(
              loadTiles(stack.memory,
                        constantIndex(rowOfPart(j) + int64_t(ofPart.size()) *
                                                         2 * kTileColumns),
                        add(from, k), /*isAcross=*/false));
    for (int64_t order = most; order >= 0; --order)
      for (int64_t j = 0; j <= order; ++j)
        for (auto [stack, ofStack, of] : llvm::zip(stacks, tiles, sums)) {
          if (order > orderOf(stack) || j >= int64_t(ofStack.size()))
            continue;
          for (auto [n, sum] : llvm::enumerate(of))
            sum =
                multiplyTiles(parts[static_cast<size_t>(order - j)],
                              sliceOf(b, ofStack[static_cast<size_t>(j)][n / 2],
                                      static_cast<int64_t>(n % 2) * 4, 4),
                              sum);
        }
  }
  multiplyMatrices(rows, stacks, sums);
  Value key = arith::AddIOp::create(b, from, pairOfLane());
  for (int64_t k = 0; !areHalves && k < keysOfWarp(); k += kTileColumns) {
    auto left = termsOfSums(rows[static_cast<size_t>(k / kTileColumns)]);
    SmallVector<SplitProduct> products;
    for (auto [stack, of] : llvm::zip(stacks, sums))
      for (int64_t n = 0; n < count && !matrices.contains(stack.memory); ++n) {
        Operand side{stack.memory};
        Right right;
        if (withRests.contains(stack.memory))
          right = loadWithRests(
              stack.memory,
              add(firstTerm(side, over(warpLane, 4), times(key, 2)),
                  n * kTileColumns * pitchIn(stack.memory) + 2 * k));
        else
          right = splitRight(
              loadTerms(side, add(firstTerm(side, over(warpLane, 4), key), k),
                        n * kTileColumns, /*isPaired=*/true),
              stack.isShort);
        products.push_back({left, right, &of[static_cast<size_t>(n)]});
      }
    multiplySplit(products);
  }
  return sums;
}

void GpuChunkKernel::emitRowRead(ReadOp op) {
  if (rowReads.contains(op.getResult()))
    return;
  // All reads of a state at the same time, if their queries are there; numbers
  // need not be.
  SmallVector<Operand, 2> stacks;
  SmallVector<std::pair<Value, SmallVector<std::pair<size_t, Term>>>> reads;
  for (auto other : op->getBlock()->getOps<ReadOp>()) {
    if (other.getState() != op.getState() || !hasStack(other.getQuery()) ||
        rowReads.contains(other.getResult()) || reads.size() == kReads)
      continue;
    auto &terms = reads.emplace_back().second;
    reads.back().first = other.getResult();
    bool rounded = isShortState(op.getState()) || isRounded(other.getResult());
    for (const Term &term : termsOf(other.getQuery())) {
      auto found = llvm::find_if(stacks, [&](const Operand &stack) {
        return stack.memory == term.base.memory &&
               stack.first == term.base.first;
      });
      terms.emplace_back(static_cast<size_t>(found - stacks.begin()), term);
      if (found == stacks.end()) {
        stacks.push_back({term.base.memory, false, term.base.isShort, nullptr,
                          rounded, term.base.parts, term.base.first});
        willRead(term.base.memory);
      } else {
        found->isRounded &= rounded;
      }
    }
  }
  SmallVector<Components> sums =
      multiplyState(heldRows[poolOf(op.getState())], stacks);
  llvm::SmallBitVector areDivided(static_cast<unsigned>(stacks.size()), true);
  for (auto &[result, terms] : reads)
    for (auto &[at, term] : terms)
      if (!dividedStacks.contains(result))
        areDivided.reset(static_cast<unsigned>(at));
  sumOverKeyParts(sums, areDivided);
  for (auto &[result, terms] : reads)
    for (auto &[at, term] : terms) {
      bool isWhole = !areDivided[static_cast<unsigned>(at)];
      rowReads[result].emplace_back(isWhole && dividedStacks.contains(result)
                                        ? ownTilesOf(sums[at])
                                        : sums[at],
                                    term.scale);
    }
}

//===----------------------------------------------------------------------===//
// Sums along the chain
//===----------------------------------------------------------------------===//

/// Adds the rows of values times a memory [T, T] to sums, a tile of 8 tokens
/// after the other, of which those up to it take. Parts of products that are
/// small are summed apart: a sum waits for every product before it.
void GpuChunkKernel::multiplyTriangle(ArrayRef<Value> values, Value memory,
                                      Split &split,
                                      MutableArrayRef<Value> sums) {
  willRead(memory);
  Value zero = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({4}, b.getF32Type())));
  Components small(sums.size(), zero);
  for (int64_t k = 0; k < tokenTiles(); ++k) {
    // Parts of all tiles at once are twice the registers of the values.
    if (split.size() == static_cast<size_t>(k))
      split.push_back(termsOfSums(values[static_cast<size_t>(k)]));
    SmallVector<SplitProduct> products;
    for (int64_t n = k; n < tokenTiles(); ++n)
      products.push_back(
          {split[static_cast<size_t>(k)],
           rightAlong(memory, n * kTileColumns, k * kTileColumns),
           &sums[static_cast<size_t>(n)], &small[static_cast<size_t>(n)]});
    multiplySplit(products);
  }
  for (auto [sum, rest] : llvm::zip(sums, small))
    sum = arith::AddFOp::create(b, sum, rest);
}

/// Adds what tokens take of those before them to sums.
LogicalResult GpuChunkKernel::addPath(Value gram, Value values,
                                      MutableArrayRef<Value> sums) {
  FailureOr<Components> rows = failure();
  {
    // Each token takes from all before it.
    llvm::SaveAndRestore whole(isDivided, false);
    rows = rowsOfStack(values);
  }
  if (failed(rows))
    return failure();
  Value memory = stackOf(gram).memory;
  if (isDivided)
    multiplyDividedTriangle(*rows, memory, splitStacks[values], sums);
  else
    multiplyTriangle(*rows, memory, splitStacks[values], sums);
  return success();
}

LogicalResult GpuChunkKernel::emitRowProduct(PathProductOp op) {
  Value zero = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({4}, b.getF32Type())));
  llvm::SaveAndRestore divided(isDivided,
                               dividedStacks.contains(op.getResult()));
  Components sums(static_cast<size_t>(tilesAtHand()), zero);
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues()))
    if (failed(addPath(gram, values, sums)))
      return failure();
  rowsOfStacks[isDivided][op.getResult()] = sums;
  return success();
}

/// Where others invert ahead, larger blocks are solved, fewer after the other;
/// of steps of 16 tokens only where those are a kernel of their own.
int64_t GpuChunkKernel::tokensOfInverse() const {
  bool mayTakeLonger =
      rowsFor(tokensAtOnce()) > kBlockAhead || shape.invertsAll;
  return blockPart == Part::All || !mayTakeLonger ? kBlock : kBlockAhead;
}

/// [T, block]: the inverses of the diagonal blocks of 1 - gram.
Value GpuChunkKernel::invertBlocks(Value gram) {
  int64_t tokens = rowsFor(tokensAtOnce()), block = tokensOfInverse();
  Value inverse = allocate(tokens, block);
  willRead(gram);
  willWrite(inverse);
  forThreads(
      constantIndex(tokens),
      [&](Value index) {
        Value column = arith::RemUIOp::create(b, index, constantIndex(block));
        Value first = arith::SubIOp::create(b, index, column);
        SmallVector<Value> solved;
        for (int64_t row = 0; row < block; ++row)
          solved.push_back(arith::SelectOp::create(
              b, compare(arith::CmpIPredicate::eq, column, constantIndex(row)),
              constantFloat(1), constantFloat(0)));
        auto take = [&](int64_t row, int64_t from, int64_t to) {
          Value some = vector::LoadOp::create(
              b, VectorType::get({kPanel}, b.getF32Type()), gram,
              ValueRange{add(first, row), add(first, from)});
          for (int64_t k = from; k < to; ++k)
            solved[static_cast<size_t>(row)] = math::FmaOp::create(
                b, vector::ExtractOp::create(b, some, k - from),
                solved[static_cast<size_t>(k)],
                solved[static_cast<size_t>(row)]);
        };
        // A panel is solved, and then all later rows take from it, which need
        // not wait for each other.
        for (int64_t panel = 0; panel < block; panel += kPanel) {
          for (int64_t row = panel + 1; row < panel + kPanel; ++row)
            take(row, panel, row);
          for (int64_t row = panel + kPanel; row < block; ++row)
            take(row, panel, panel + kPanel);
        }
        for (auto [row, value] : llvm::enumerate(solved))
          memref::StoreOp::create(
              b, value, inverse,
              ValueRange{add(first, static_cast<int64_t>(row)), column});
      },
      kInverseWarp);
  beginOp();
  return inverse;
}

LogicalResult GpuChunkKernel::emitRowSolve(PathSolveOp op) {
  size_t open = static_cast<size_t>(op.getRows().front());
  for (auto [i, rhs] : llvm::enumerate(op.getRhs())) {
    if (i == open)
      continue;
    FailureOr<Components> rows = rowsOfStack(rhs);
    if (failed(rows))
      return failure();
    rowsOfStacks[false][op.getResult(static_cast<unsigned>(i))] = *rows;
  }
  Value gram;
  FailureOr<Components> rhs = rowsOfStack(op.getRhs()[open]);
  if (failed(rhs))
    return failure();
  Components sums(*rhs);
  for (auto [of, column] : llvm::zip(op.getGrams(), op.getColumns())) {
    if (static_cast<size_t>(column) == open)
      gram = stackOf(of).memory;
    else if (failed(addPath(of, op.getResult(static_cast<unsigned>(column)),
                            sums)))
      return failure();
  }
  Value result = op.getResult(static_cast<unsigned>(open));
  if (!gram) {
    rowsOfStacks[false][result] = sums;
    return success();
  }
  Value inverse = inverses.lookup(op);
  if (!inverse)
    inverse = invertBlocks(gram);
  willRead(inverse);
  willRead(gram);
  Value zero = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({4}, b.getF32Type())));
  Components solved(sums.size(), zero);
  Split split;
  auto tiles = static_cast<size_t>(tokensOfInverse() / kTileColumns);
  for (size_t first = 0; first < sums.size(); first += tiles) {
    size_t end = std::min(sums.size(), first + tiles);
    auto rightOf = [&](Value memory, size_t n, size_t k) {
      return rightAlong(memory, static_cast<int64_t>(n) * kTileColumns,
                        static_cast<int64_t>(k) * kTileColumns);
    };
    Components small(sums.size(), zero);
    auto smallOf = [&](size_t n) { return tiles > 1 ? &small[n] : nullptr; };
    auto addSmall = [&](size_t n, Value &sum) {
      if (tiles > 1)
        sum = arith::AddFOp::create(b, sum, small[n]);
    };
    for (size_t k = first; k < end; ++k) {
      auto left = termsOfSums(sums[k]);
      SmallVector<SplitProduct> products;
      for (size_t n = k; n < end; ++n)
        products.push_back(
            {left, rightOf(inverse, n, k - first), &solved[n], smallOf(n)});
      multiplySplit(products);
    }
    for (size_t k = first; k < end; ++k) {
      addSmall(k, solved[k]);
      split.push_back(termsOfSums(solved[k]));
    }
    // What the tokens behind the block take from it, the next ones first.
    for (size_t k = first; k < end; ++k) {
      SmallVector<SplitProduct> products;
      for (size_t n = end; n < sums.size(); ++n)
        products.push_back(
            {split[k], rightOf(gram, n, k), &sums[n], smallOf(n)});
      multiplySplit(products);
    }
    for (size_t n = end; n < sums.size(); ++n)
      addSmall(n, sums[n]);
  }
  rowsOfStacks[false][result] = solved;
  splitStacks[result] = split;
  if (blockPart == Part::All)
    unused[sizes.lookup(inverse)].push_back(inverse);
  return success();
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

/// The keys of a tile of tokens and channels from one on. One number is the
/// place of the first, and all others are at constant distances from it.
GpuChunkKernel::Right
GpuChunkKernel::keysOfFold(const Stack &keys, int64_t token, int64_t channel) {
  Operand side{keys.memory, /*alongRows=*/true};
  int64_t pitch = pitchIn(keys.memory);
  Value column = arith::AddIOp::create(b, firstKey(), over(warpLane, 4));
  if (inPairs.contains(keys.memory)) {
    Value pair = arith::RemUIOp::create(b, warpLane, constantIndex(4));
    return splitRight(loadTwo(keys.memory, constantIndex(0),
                              add(firstTerm(side, times(column, 2), pair),
                                  token / 2 * pitch + 2 * channel)),
                      keys.isShort);
  }
  Value zero = constantIndex(0);
  Value first = add(firstTerm(side, column, add(pairOfLane(), keys.first)),
                    token * pitch + channel);
  Value two = vector::FromElementsOp::create(
      b, VectorType::get({2}, b.getF32Type()),
      ValueRange{loadElement(keys.memory, {zero, first}),
                 loadElement(keys.memory, {zero, add(first, pitch)})});
  return splitRight(two, keys.isShort);
}

LogicalResult GpuChunkKernel::emitRowFold(FoldDraftsOp op) {
  Components &rows = heldRows[poolOf(op.getState())];
  auto known = foldKeys.find(op);
  FoldKeys all = known == foldKeys.end() ? foldKeysOf(op) : known->second;
  for (Value memory : {all.after, all.total})
    if (memory)
      willRead(memory);
  // What the state weighs after the chunk.
  Value ofAll;
  if (all.after)
    ofAll = splat(memref::LoadOp::create(
                      b, all.after,
                      ValueRange{constantIndex(rowsFor(tokensAtOnce())),
                                 constantIndex(0)}),
                  4);
  Value channel;
  if (all.total)
    channel = unknown(arith::AddIOp::create(b, firstKey(), pairOfLane()));
  for (auto [tile, sums] : llvm::enumerate(rows)) {
    Value factor = ofAll;
    if (all.total) {
      Value two =
          loadTwo(all.total, constantIndex(0),
                  add(channel, static_cast<int64_t>(tile) * kTileColumns));
      factor = twice(vector::ExtractOp::create(b, two, 0),
                     vector::ExtractOp::create(b, two, 1));
    }
    if (factor)
      sums = arith::MulFOp::create(b, sums, factor);
  }
  for (auto [value, key, scale] :
       llvm::zip(op.getValues(), all.keys, all.scales)) {
    FailureOr<Components> values = rowsOfStack(value);
    if (failed(values))
      return failure();
    willRead(key.memory);
    if (scale)
      willRead(scale->memory);
    Components weighted(*values);
    for (auto [tile, sums] : llvm::enumerate(weighted)) {
      int64_t at = static_cast<int64_t>(tile);
      Value weight;
      if (all.after) {
        Stack after;
        after.memory = all.after;
        weight = numbersOfTile(after, at);
      }
      if (scale) {
        Value mine = numbersOfTile(*scale, at);
        weight = weight ? Value(arith::MulFOp::create(b, weight, mine)) : mine;
      }
      if (weight)
        sums = arith::MulFOp::create(b, sums, weight);
    }
    if (isBF16(key.memory)) {
      int64_t most = mostOrder(kParts, key.parts, isShortState(op.getState()));
      if (matrices.contains(key.memory)) {
        StackProduct product{key.memory, key.parts, most, rows};
        multiplyStacks(weighted, /*isFold=*/true, product);
        continue;
      }
      for (size_t k = 0; k < weighted.size(); k += 2) {
        Components parts = halvesOf(weighted[k], weighted[k + 1], most + 1);
        for (size_t first = 0; first < rows.size(); first += kAtOnce) {
          size_t end = std::min(rows.size(), first + kAtOnce);
          SmallVector<Components> tiles(static_cast<size_t>(key.parts));
          for (auto [part, ofPart] : llvm::enumerate(tiles))
            for (size_t n = first; n < end; n += 2)
              ofPart.push_back(loadTiles(
                  key.memory,
                  constantIndex(rowOfPart(static_cast<int64_t>(part)) +
                                static_cast<int64_t>(k) * kTileColumns),
                  add(firstKey(), static_cast<int64_t>(n) * kTileColumns),
                  /*isAcross=*/true, /*isTransposed=*/true));
          for (int64_t order = most; order >= 0; --order)
            for (int64_t j = 0; j <= std::min(order, key.parts - 1); ++j)
              for (size_t n = first; n < end; ++n)
                rows[n] = multiplyTiles(
                    parts[static_cast<size_t>(order - j)],
                    sliceOf(b, tiles[static_cast<size_t>(j)][(n - first) / 2],
                            static_cast<int64_t>(n % 2) * 4, 4),
                    rows[n]);
        }
      }
      continue;
    }
    if (matrices.contains(key.memory)) {
      multiplyMatrix(weighted, key.memory, /*column=*/0, rows);
      continue;
    }
    for (auto [k, sums] : llvm::enumerate(weighted)) {
      auto left = termsOfSums(sums);
      SmallVector<SplitProduct> products;
      for (auto [n, into] : llvm::enumerate(rows))
        products.push_back(
            {left,
             keysOfFold(key, static_cast<int64_t>(k) * kTileColumns,
                        static_cast<int64_t>(n) * kTileColumns),
             &into});
      multiplySplit(products);
    }
  }
  return success();
}
