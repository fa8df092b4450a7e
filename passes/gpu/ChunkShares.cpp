//===- ChunkShares.cpp - what warps with the same rows divide -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A step takes as long as the warps with rows, one instruction after the other.
// Where a block has room for more of them, several have the same rows of a
// state and a part of dk each: they split, read and fold that part alone. What
// is read is a sum over all parts, which they pass to each other through shared
// memory. From there all of them solve, as each needs what is solved to fold
// it; outputs depend on nothing but what is known by then, and each warp
// computes those of a part of the tokens.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Barriers.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32, kTileRows = 16, kTileColumns = 8;
/// Elements of a tile that a lane has.
static constexpr int64_t kOfLane = 4;
/// Barrier of the first warps with the same rows, behind those of
/// ChunkAhead.cpp.
static constexpr int64_t kBarrierOfRows = 5;

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

/// Warps with the same part of dk that are beside each other: those that
/// multiply together.
int64_t GpuChunkKernel::warpsBeside() const {
  return shape.warpgroups ? Shape::kWarpsOfGroup : 1;
}

/// Which part of dk a warp has.
Value GpuChunkKernel::keyPart() {
  return arith::RemUIOp::create(b, over(thread, kWarp * warpsBeside()),
                                constantIndex(shape.keyParts));
}

/// Which of the tiles of rows.
Value GpuChunkKernel::rowTileOfWarp() {
  Value tile = over(thread, kWarp * shape.keyParts * warpsBeside());
  if (warpsBeside() == 1)
    return tile;
  Value beside = arith::RemUIOp::create(b, over(thread, kWarp),
                                        constantIndex(warpsBeside()));
  return arith::AddIOp::create(b, times(tile, warpsBeside()), beside);
}

/// Which part of the tokens: where these have fewer parts than dk, several
/// warps have the same.
Value GpuChunkKernel::tokenPart() {
  return shape.keyParts == tokenParts()
             ? keyPart()
             : Value(arith::RemUIOp::create(b, keyPart(),
                                            constantIndex(tokenParts())));
}

/// Whether a warp is the first of those with its part of the tokens.
Value GpuChunkKernel::isFirstOfTokens() {
  return shape.keyParts == tokenParts() ? Value()
                                        : isBelow(keyPart(), tokenParts());
}

/// Where its part of dk begins.
Value GpuChunkKernel::firstKey() {
  return shape.keyParts == 1 ? constantIndex(0)
                             : times(keyPart(), keysOfWarp());
}

/// In the tile of the block.
Value GpuChunkKernel::firstRowOfWarp() {
  return times(rowTileOfWarp(), kTileRows);
}

/// The first token of a tile of those at hand.
Value GpuChunkKernel::tokenOfTile(int64_t tile) {
  if (!isDivided)
    return constantIndex(tile * kTileColumns);
  return add(times(tokenPart(), tilesAtHand() * kTileColumns),
             tile * kTileColumns);
}

/// Finds stacks along dv that only outputs are made of.
void GpuChunkKernel::findDividedStacks() {
  dividedStacks.clear();
  if (shape.keyParts == 1 || tokenTiles() % tokenParts() != 0)
    return;
  Block &body = step.getBody().front();
  auto isForOutputs = [&](Operation *user) {
    return user == body.getTerminator() ||
           (isa<EachDraftOp>(user) && isRowOp(user) &&
            dividedStacks.contains(user->getResult(0)));
  };
  for (Operation &op : llvm::reverse(body.without_terminator()))
    if (isRowOp(&op) && isa<ReadOp, PathProductOp, EachDraftOp>(op) &&
        llvm::all_of(op.getUsers(), isForOutputs))
      dividedStacks.insert(op.result_begin(), op.result_end());
}

/// A warp's part of all tiles.
GpuKernel::Components GpuChunkKernel::ownTilesOf(ArrayRef<Value> all) {
  size_t count = all.size() / static_cast<size_t>(tokenParts());
  Components own(all.take_front(count));
  Value part = tokenPart();
  for (int64_t other = 1; other < tokenParts(); ++other) {
    Value isOther =
        compare(arith::CmpIPredicate::eq, part, constantIndex(other));
    ArrayRef<Value> tiles =
        all.slice(static_cast<size_t>(other) * count, count);
    for (auto [mine, tile] : llvm::zip(own, tiles))
      mine = arith::SelectOp::create(b, isOther, tile, mine);
  }
  return own;
}

/// The rows of a stack, or of a value of a region, if they are known.
const GpuKernel::Components *GpuChunkKernel::rowsAtHand(Value value) {
  auto found = rowsOfStacks[isDivided].find(value);
  if (found != rowsOfStacks[isDivided].end())
    return &found->second;
  auto whole = rowsOfStacks[false].find(value);
  if (whole == rowsOfStacks[false].end())
    return nullptr;
  return &(rowsOfStacks[true][value] = ownTilesOf(whole->second));
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Of a block's warps those that have the same rows, and no others.
void GpuChunkKernel::meetWithSameRows() {
  meetAt(b, add(rowTileOfWarp(), kBarrierOfRows), kWarp * shape.keyParts);
}

/// Warps with the same rows have sums over their parts of dk, and need those
/// over all: of all tokens, or of their own.
void GpuChunkKernel::sumOverKeyParts(MutableArrayRef<Components> sums,
                                     const llvm::SmallBitVector &areDivided) {
  if (shape.keyParts == 1)
    return;
  int64_t tiles = static_cast<int64_t>(sums.size()) * tokenTiles();
  // Of its own: another's reads may come before the slowest has read these.
  Value memory =
      shared({shape.threadsOfRows() / kWarp * tiles, kWarp * kOfLane},
             "sums_of_parts", b.getF32Type());
  Value column = times(warpLane, kOfLane), firstPart = keyPart();
  auto four = VectorType::get({kOfLane}, b.getF32Type());
  auto placeOf = [&](Value part) {
    return times(
        arith::AddIOp::create(b, times(rowTileOfWarp(), shape.keyParts), part),
        tiles);
  };
  Value own = placeOf(firstPart);
  int64_t at = 0;
  for (Components &of : sums)
    for (Value sum : of)
      vector::StoreOp::create(b, sum, memory,
                              ValueRange{add(own, at++), column});
  for (auto [i, of] : llvm::enumerate(sums))
    if (areDivided[static_cast<unsigned>(i)])
      of = ownTilesOf(of);
  meetWithSameRows();
  Value firstOwn = times(tokenPart(), tokenTiles() / tokenParts());
  // Parts two by two, and then these: whose part is its own adds the same.
  SmallVector<Value> firsts{Value()};
  for (int64_t other = 1; other < shape.keyParts; ++other) {
    firsts.push_back(
        placeOf(arith::XOrIOp::create(b, firstPart, constantIndex(other))));
  }
  for (auto [i, of] : llvm::enumerate(sums))
    for (auto [tile, sum] : llvm::enumerate(of)) {
      SmallVector<Value> parts{sum};
      for (Value first : ArrayRef(firsts).drop_front()) {
        Value from = add(first, static_cast<int64_t>(i) * tokenTiles());
        if (areDivided[static_cast<unsigned>(i)])
          from = arith::AddIOp::create(b, from, firstOwn);
        parts.push_back(vector::LoadOp::create(
            b, four, memory,
            ValueRange{add(from, static_cast<int64_t>(tile)), column}));
      }
      while (parts.size() > 1) {
        SmallVector<Value> pairs;
        for (size_t at = 0; at < parts.size(); at += 2)
          pairs.push_back(arith::AddFOp::create(b, parts[at], parts[at + 1]));
        parts = std::move(pairs);
      }
      sum = parts.front();
    }
}

/// What multiplyTriangle adds, to the tiles of a warp's part of the tokens: of
/// earlier parts it takes all, of its own the tokens up to each.
void GpuChunkKernel::multiplyDividedTriangle(ArrayRef<Value> values,
                                             Value memory, const Split &split,
                                             MutableArrayRef<Value> sums) {
  willRead(memory);
  int64_t count = tilesAtHand();
  Value part = tokenPart();
  Value zero = arith::ConstantOp::create(
      b, b.getZeroAttr(VectorType::get({kOfLane}, b.getF32Type())));
  auto multiply = [&](const Split &lefts, Value firstTerm, bool isTriangle,
                      MutableArrayRef<Value> into) {
    Components small(into.size(), zero);
    for (int64_t k = 0; k < count; ++k) {
      SmallVector<SplitProduct> products;
      for (int64_t n = isTriangle ? k : 0; n < count; ++n) {
        Value token =
            arith::AddIOp::create(b, over(warpLane, 4), tokenOfTile(n));
        Value term = arith::AddIOp::create(b, pairOfLane(),
                                           add(firstTerm, k * kTileColumns));
        products.push_back({lefts[static_cast<size_t>(k)],
                            splitRight(loadTwo(memory, token, term), false),
                            &into[static_cast<size_t>(n)],
                            &small[static_cast<size_t>(n)]});
      }
      multiplySplit(products);
    }
    for (auto [sum, rest] : llvm::zip(into, small))
      sum = arith::AddFOp::create(b, sum, rest);
  };
  Split own;
  for (Value tile : ownTilesOf(values))
    own.push_back(termsOfSums(tile));
  multiply(own, tokenOfTile(0), /*isTriangle=*/true, sums);
  for (int64_t of = 0; of + 1 < tokenParts(); ++of) {
    Value isBehind =
        compare(arith::CmpIPredicate::ugt, part, constantIndex(of));
    SmallVector<Type> types(sums.size(), zero.getType());
    auto branch = scf::IfOp::create(b, types, isBehind, /*withElse=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, sums);
    b.setInsertionPointToStart(branch.thenBlock());
    Split lefts;
    Components into(sums.begin(), sums.end());
    for (int64_t k = of * count; k < (of + 1) * count; ++k)
      lefts.push_back(split.size() == values.size()
                          ? split[static_cast<size_t>(k)]
                          : termsOfSums(values[static_cast<size_t>(k)]));
    multiply(lefts, constantIndex(of * count * kTileColumns),
             /*isTriangle=*/false, into);
    scf::YieldOp::create(b, into);
    llvm::copy(branch.getResults(), sums.begin());
  }
}
