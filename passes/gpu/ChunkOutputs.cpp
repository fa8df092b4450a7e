//===- ChunkOutputs.cpp - outputs of warps that hold rows -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A lane has two rows of two tokens of a tile of sums, memory the rows of a
// token side by side.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
static constexpr int64_t kTileRows = 16;
static constexpr int64_t kTileColumns = 8;

/// Of warps with the same rows each stores its part of the tokens.
void GpuChunkKernel::storeOutputRows(ArrayRef<Value> all, Value memory,
                                     int64_t count) {
  bool hasParts = shape.keyParts > 1;
  Components own(all);
  if (hasParts && !isDivided)
    own = ownTilesOf(all);
  llvm::SaveAndRestore divided(isDivided, hasParts);
  guarded(hasParts ? isFirstOfTokens() : Value(),
          [&] { storeOwnRows(own, memory, count); });
}

void GpuChunkKernel::storeOwnRows(ArrayRef<Value> all, Value memory,
                                  int64_t count) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  if (element.getIntOrFloatBitWidth() == 16)
    return packOutputRows(all, memory, count);
  Value row = arith::AddIOp::create(b, tileStart, rowOfLane());
  Value pair = pairOfLane(), at = headIndex(count), mine = sharesHead(count);
  Value first = arith::AddIOp::create(b, firstToken, firstInChunk);
  pair = arith::AddIOp::create(b, pair, tokenOfTile(0));
  for (auto [tile, value] : llvm::enumerate(all)) {
    Value rounded = convertTo(value, element);
    for (int64_t i = 0; i < 2; ++i) {
      Value token = add(pair, static_cast<int64_t>(tile) * kTileColumns + i);
      Value valid = compare(arith::CmpIPredicate::slt, token, inChunk);
      guarded(both(valid, mine), [&, value = rounded] {
        Value where = arith::AddIOp::create(b, first, token);
        for (int64_t half : {0, 1})
          memref::StoreOp::create(
              b, vector::ExtractOp::create(b, value, 2 * half + i), memory,
              ValueRange{where, at, add(row, half * 8)});
      });
    }
  }
}

/// Two bytes each go through shared memory of the warp, and a lane stores some
/// rows of one token.
void GpuChunkKernel::packOutputRows(ArrayRef<Value> all, Value memory,
                                    int64_t count) {
  constexpr int64_t together = 4, padding = 8;
  int64_t tokens = tokenTiles() * kTileColumns;
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  Value &packed = packedOutputs[memory];
  if (!packed)
    packed =
        shared({tokens, schedule.tileRows + padding}, "output_rows", element);
  Value row = rowOfLane(), firstOfWarp = tokenOfTile(0);
  Value pair = arith::AddIOp::create(b, firstOfWarp, pairOfLane());
  for (auto [tile, value] : llvm::enumerate(all)) {
    Value rounded = convertTo(value, element);
    for (int64_t i = 0; i < 4; ++i)
      memref::StoreOp::create(
          b, vector::ExtractOp::create(b, rounded, i), packed,
          ValueRange{
              add(pair, static_cast<int64_t>(tile) * kTileColumns + i % 2),
              add(row, i / 2 * 8)});
  }
  gpu::BarrierOp::create(b)->setAttr(kOfWarpAttr, b.getUnitAttr());
  Value at = headIndex(count), mine = sharesHead(count);
  Value first = arith::AddIOp::create(b, firstToken, firstInChunk);
  Value firstRow = firstRowOfWarp();
  int64_t &bytes = alignments[cast<BlockArgument>(memory).getArgNumber()];
  bytes = std::max<int64_t>(bytes, together * 2);
  constexpr int64_t parts = kTileRows / together;
  int64_t pieces = tilesAtHand() * kTileColumns * parts;
  for (int64_t start = 0; start < pieces; start += kWarp) {
    Value number = add(warpLane, start);
    Value token = arith::AddIOp::create(b, firstOfWarp, over(number, parts));
    Value column = arith::AddIOp::create(
        b, firstRow,
        times(arith::RemUIOp::create(b, number, constantIndex(parts)),
              together));
    Value valid = compare(arith::CmpIPredicate::slt, token, inChunk);
    guarded(both(valid, mine), [&] {
      Value rows =
          vector::LoadOp::create(b, VectorType::get({together}, element),
                                 packed, ValueRange{token, column});
      vector::StoreOp::create(
          b, rows, memory,
          ValueRange{arith::AddIOp::create(b, first, token), at,
                     arith::AddIOp::create(b, tileStart, column)});
    });
  }
}
