//===- ChunkWarpgroups.cpp - four warps that multiply together ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What a warp's rows of a state are multiplied by is the same for all warps,
// and each loads it, a tile for each product. Hopper has products of four warps
// that take left sides from registers, as warps have them, and right sides from
// shared memory: one instruction is as many as there are tiles of columns, and
// loads none of them.
//
// They ask for right sides in pieces of 8 columns and 16 bytes. Stacks of bf16
// are such pieces, 8 channels of 8 tokens, one token after the other: reads sum
// over channels, folds, which take them transposed, over tokens.
//
// Of f32 a piece has 4 terms. Two terms that a lane has beside each other are
// terms k and k + 4 of a product: those of 8 channels, or tokens, lie with the
// even ones first. What products cut off of all lies behind all.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kTileRows = 16, kTileColumns = 8, kTerms = 8;
/// Terms of a piece of f32, and of bf16.
static constexpr int64_t kOfPiece = 4, kOfHalves = 8;
static constexpr int64_t kMostGroups = 2;
/// Terms at a time, in products: a lane has all parts of theirs in registers.
static constexpr size_t kAtOnce = 2;

/// Whether tiles are enough for four warps with the same part of dk, and few
/// enough for two such groups, which have registers for it. Of f32 they have
/// all of dk.
bool GpuChunkKernel::mayMultiplyTogether(const Shape &of,
                                         bool ofChannels) const {
  int64_t most = schedule.productWarps;
  return (!most || most >= Shape::kWarpsOfGroup) && of.cluster == 1 &&
         of.ahead && !of.prepared &&
         of.rows % (Shape::kWarpsOfGroup * kTileRows) == 0 &&
         of.threadsOfRows() <= kMostGroups * Shape::kRegisterGroup &&
         llvm::isPowerOf2_64(keySize) &&
         (!ofChannels || (of.keyParts == 1 && of.tokens == kMostVectorTokens));
}

/// Whether all that is multiplied with rows, or in Gram products, is bf16.
bool GpuChunkKernel::multipliesHalvesAlone() {
  auto isHalf = [&](Value base) {
    auto result = dyn_cast<OpResult>(base);
    Type element = result ? shortElementOf(result) : Type();
    return partCounts.contains(base) || (element && element.isBF16());
  };
  auto areHalves = [&](ValueRange values) {
    return llvm::all_of(values, [&](Value value) {
      auto found = forms.find(value);
      return found == forms.end()
                 ? isHalf(value)
                 : llvm::all_of(found->second, [&](const ChunkTerm &term) {
                     return isHalf(term.base);
                   });
    });
  };
  return llvm::all_of(step.getBody().front(), [&](Operation &op) {
    if (auto read = dyn_cast<ReadOp>(op))
      return areHalves(read.getQuery());
    if (auto gram = dyn_cast<PathGramOp>(op))
      return areHalves({gram.getQueries(), gram.getKeys()});
    auto fold = dyn_cast<FoldDraftsOp>(op);
    return !fold || areHalves(fold.getKeys());
  });
}

//===----------------------------------------------------------------------===//
// Stacks of bf16
//===----------------------------------------------------------------------===//

/// Rows of dk, in pieces.
Value GpuChunkKernel::allocateHalves(int64_t rows) {
  // Lanes that store pieces of one token meet no bank twice.
  return allocateMarked({keySize / kOfHalves, (rows + 1) * kOfHalves, 3 * 16},
                        matrices, b.getBF16Type());
}

/// Where an element of a row lies, the first of a piece or of a part of one.
std::array<Value, 2> GpuChunkKernel::placeIn(Value memory, Value row,
                                             Value column) {
  if (!matrices.contains(memory))
    return {row, column};
  Value inPiece = arith::RemUIOp::create(b, column, constantIndex(kOfHalves));
  return {over(column, kOfHalves),
          arith::AddIOp::create(b, times(row, kOfHalves), inPiece)};
}

/// A warp's part of dk.
Value GpuChunkKernel::keysInPieces(Value memory) {
  if (shape.keyParts == 1)
    return memory;
  OpFoldResult first(over(firstKey(), kOfHalves));
  OpFoldResult zero(b.getIndexAttr(0)), one(b.getIndexAttr(1));
  int64_t pitch = cast<MemRefType>(memory.getType()).getDimSize(1);
  return memref::SubViewOp::create(
      b, memory, ArrayRef<OpFoldResult>{first, zero},
      ArrayRef<OpFoldResult>{b.getIndexAttr(keysOfWarp() / kOfHalves),
                             b.getIndexAttr(pitch)},
      ArrayRef<OpFoldResult>{one, one});
}

/// Adds products of tiles of sums, as they lie, with stacks, of which parts
/// count up to an order: of reads with tokens as columns, of folds with a
/// warp's part of the channels.
void GpuChunkKernel::multiplyStacks(ArrayRef<Value> lefts, bool isFold,
                                    MutableArrayRef<StackProduct> products) {
  int64_t most = 0;
  for (const StackProduct &each : products)
    most = std::max(most, each.order);
  constexpr size_t atOnce = 2 * kAtOnce;
  for (size_t from = 0; from < lefts.size(); from += atOnce) {
    size_t end = std::min(lefts.size(), from + atOnce);
    // Of all stacks before the next, so that parts need not stay.
    SmallVector<Components> parts;
    for (size_t k = from; k < end; k += 2)
      parts.push_back(halvesOf(lefts[k], lefts[k + 1], most + 1));
    for (StackProduct &each : products) {
      auto type = cast<MemRefType>(each.memory.getType());
      int64_t pitch = type.getDimSize(1), ofTile = kTileColumns * kOfHalves;
      SmallVector<Value> sides;
      SmallVector<int64_t> rights;
      for (size_t k = from; k < end; k += 2)
        for (int64_t order = each.order; order >= 0; --order)
          for (int64_t j = 0; j <= std::min(order, each.parts - 1); ++j) {
            sides.push_back(
                parts[(k - from) / 2][static_cast<size_t>(order - j)]);
            rights.push_back(static_cast<int64_t>(k) *
                                 (isFold ? ofTile : pitch) +
                             rowOfPart(j) * kOfHalves);
          }
      SmallVector<Type> types(each.sums.size(), each.sums.front().getType());
      auto product = WarpgroupProductOp::create(
          b, types, sides, keysInPieces(each.memory), rights,
          /*across=*/isFold ? ofTile : pitch,
          /*along=*/isFold ? pitch : ofTile, /*transposed=*/isFold, each.sums);
      llvm::copy(product.getResults(), each.sums.begin());
    }
  }
}

//===----------------------------------------------------------------------===//
// Matrices of f32
//===----------------------------------------------------------------------===//

/// Of right sides, with so many terms for each column.
Value GpuChunkKernel::allocateMatrix(int64_t terms, int64_t columns) {
  // Lanes that store terms of one column meet no bank twice.
  int64_t pitch = (columns + 1) * kOfPiece;
  return allocateMarked({2 * terms / kOfPiece, pitch, 4 * 32}, matrices);
}

/// Terms of a column from one on, each two behind the one before.
void GpuChunkKernel::storeInMatrix(Value terms, Value memory, Value term,
                                   Value column) {
  int64_t rests = cast<MemRefType>(memory.getType()).getDimSize(0) / 2;
  Value inTile = arith::RemUIOp::create(b, term, constantIndex(kTerms));
  Value row = arith::AddIOp::create(
      b, times(over(term, kTerms), 2),
      arith::RemUIOp::create(b, inTile, constantIndex(2)));
  Value at = arith::AddIOp::create(b, times(column, kOfPiece), over(inTile, 2));
  vector::StoreOp::create(b, terms, memory, ValueRange{row, at});
  vector::StoreOp::create(b, splitTerms(terms).second, memory,
                          ValueRange{add(row, rests), at});
}

/// All terms of a column.
void GpuChunkKernel::storeTermsInMatrix(ArrayRef<Value> terms, Value memory,
                                        Value column) {
  for (size_t first = 0; first < terms.size(); first += kTerms)
    for (size_t odd : {0, 1}) {
      SmallVector<Value> piece;
      for (size_t i = 0; i < kOfPiece; ++i)
        piece.push_back(terms[first + odd + 2 * i]);
      storeInMatrix(vector::FromElementsOp::create(
                        b, VectorType::get({kOfPiece}, b.getF32Type()), piece),
                    memory, constantIndex(static_cast<int64_t>(first + odd)),
                    column);
    }
}

/// Adds products of tiles of sums, as they lie, with the columns of a matrix
/// from one on.
void GpuChunkKernel::multiplyMatrix(ArrayRef<Value> lefts, Value memory,
                                    int64_t column,
                                    MutableArrayRef<Value> sums) {
  auto type = cast<MemRefType>(memory.getType());
  int64_t pitch = type.getDimSize(1), rests = type.getDimSize(0) / 2 * pitch;
  for (size_t first = 0; first < lefts.size(); first += kAtOnce) {
    size_t end = std::min(lefts.size(), first + kAtOnce);
    SmallVector<Value> sides;
    SmallVector<int64_t> rights;
    for (size_t k = first; k < end; ++k) {
      auto [most, rest] = termsOfSums(lefts[k]);
      int64_t right = 2 * static_cast<int64_t>(k) * pitch + column * kOfPiece;
      sides.append({rest, most, most});
      rights.append({right, right + rests, right});
    }
    SmallVector<Type> types(sums.size(), sums.front().getType());
    auto product = WarpgroupProductOp::create(
        b, types, sides, memory, rights, /*across=*/pitch,
        /*along=*/kTileColumns * kOfPiece, /*transposed=*/false, sums);
    llvm::copy(product.getResults(), sums.begin());
  }
}

/// The products of a warp's rows of a state with those of the stacks that are
/// columns of matrices: of neighbours at once.
void GpuChunkKernel::multiplyMatrices(ArrayRef<Value> rows,
                                      ArrayRef<Operand> stacks,
                                      MutableArrayRef<Components> sums) {
  SmallVector<size_t> order;
  for (auto [i, stack] : llvm::enumerate(stacks))
    if (matrices.contains(stack.memory))
      order.push_back(i);
  llvm::sort(order, [&](size_t a, size_t b) {
    return stacks[a].first < stacks[b].first;
  });
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    const Operand &first = stacks[order[begin]];
    Components all;
    for (end = begin; end < order.size(); ++end) {
      const Operand &next = stacks[order[end]];
      if (next.memory != first.memory ||
          next.first !=
              first.first + static_cast<int64_t>(all.size()) * kTileColumns)
        break;
      llvm::append_range(all, sums[order[end]]);
    }
    multiplyMatrix(rows, first.memory, first.first, all);
    ArrayRef<Value> rest(all);
    for (size_t i = begin; i < end; ++i) {
      Components &mine = sums[order[i]];
      mine.assign(rest.begin(), rest.begin() + mine.size());
      rest = rest.drop_front(mine.size());
    }
  }
}
