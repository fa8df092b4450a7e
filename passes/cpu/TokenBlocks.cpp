//===- TokenBlocks.cpp - attention to a block of tokens -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/TokenBlocks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace ladle;

int64_t TokenBlocks::headsTogether(int64_t count) {
  int64_t together = std::min(count, kTogether);
  while (count % together)
    --together;
  return together;
}

Value TokenBlocks::plus(Value base, int64_t offset) {
  return offset ? Value(arith::AddIOp::create(b, base, index(offset))) : base;
}

Value TokenBlocks::scratch(ArrayRef<int64_t> shape, Type element) {
  OpBuilder::InsertionGuard guard(b);
  Operation *parent = b.getInsertionBlock()->getParentOp();
  auto function = dyn_cast<func::FuncOp>(parent);
  if (!function)
    function = parent->getParentOfType<func::FuncOp>();
  b.setInsertionPointToStart(&function.getBody().front());
  return memref::AllocaOp::create(
      b, MemRefType::get(shape, element ? element : b.getF32Type()),
      b.getI64IntegerAttr(64));
}

//===----------------------------------------------------------------------===//
// Rows by registers
//===----------------------------------------------------------------------===//

SmallVector<TokenBlocks::Chunk> TokenBlocks::chunksOf(int64_t size,
                                                      bool isSplit) {
  SmallVector<Chunk> chunks;
  int64_t step = isSplit ? 2 * kBlock : kBlock;
  for (int64_t column = 0; column < size; column += step)
    chunks.push_back({column, std::min(step, size - column), isSplit});
  return chunks;
}

/// A register with zeros behind what there is.
static Value fillUp(ImplicitLocOpBuilder &b, Value vector, int64_t lanes) {
  auto type = cast<VectorType>(vector.getType());
  int64_t size = type.getDimSize(0);
  if (size == lanes)
    return vector;
  auto full = VectorType::get({lanes}, type.getElementType());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(full));
  return vector::InsertStridedSliceOp::create(
      b, vector, zeros, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{1});
}

SmallVector<Value> TokenBlocks::loadChunk(Value memory, ArrayRef<Value> place,
                                          const Chunk &chunk, Value column) {
  SmallVector<Value> indices(place);
  indices.push_back(column ? column : index(chunk.column));
  if (!chunk.isSplit)
    return {fillUp(b, load(memory, indices, chunk.width), kBlock)};
  // A bf16 number is the upper half of an f32.
  Value pairs = vector::LoadOp::create(
      b, VectorType::get({chunk.width}, b.getBF16Type()), memory, indices);
  auto words = VectorType::get({kBlock}, b.getI32Type());
  auto floats = VectorType::get({kBlock}, b.getF32Type());
  pairs = vector::BitCastOp::create(b, words, pairs);
  auto word = [&](int32_t value) -> Value {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(words, value));
  };
  Value even = arith::ShLIOp::create(b, pairs, word(16));
  Value odd = arith::AndIOp::create(b, pairs, word(int32_t(0xffff0000)));
  return {arith::BitcastOp::create(b, floats, even),
          arith::BitcastOp::create(b, floats, odd)};
}

/// The registers that a chunk of a vector in memory would be.
SmallVector<Value> TokenBlocks::splitChunk(Value vector, const Chunk &chunk) {
  Value slice = vector;
  if (cast<VectorType>(vector.getType()).getDimSize(0) != chunk.width)
    slice = vector::ExtractStridedSliceOp::create(
        b, vector, ArrayRef<int64_t>{chunk.column},
        ArrayRef<int64_t>{chunk.width}, ArrayRef<int64_t>{1});
  if (!chunk.isSplit)
    return {fillUp(b, slice, kBlock)};
  SmallVector<Value> halves;
  for (int64_t first : {0, 1}) {
    SmallVector<int64_t> lanes;
    for (int64_t lane = 0; lane < kBlock; ++lane)
      lanes.push_back(2 * lane + first);
    halves.push_back(vector::ShuffleOp::create(b, slice, slice, lanes));
  }
  return halves;
}

void TokenBlocks::storeChunk(ArrayRef<Value> registers, Value memory,
                             ArrayRef<Value> place, const Chunk &chunk) {
  SmallVector<Value> indices(place);
  indices.push_back(index(chunk.column));
  Value vector = registers[0];
  if (chunk.isSplit) {
    SmallVector<int64_t> lanes;
    for (int64_t lane = 0; lane < 2 * kBlock; ++lane)
      lanes.push_back(lane / 2 + lane % 2 * kBlock);
    vector = vector::ShuffleOp::create(b, registers[0], registers[1], lanes);
  } else if (chunk.width != kBlock) {
    vector = vector::ExtractStridedSliceOp::create(
        b, vector, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{chunk.width},
        ArrayRef<int64_t>{1});
  }
  store(vector, memory, indices);
}

//===----------------------------------------------------------------------===//
// Rows that are asked for ahead
//===----------------------------------------------------------------------===//

int64_t TokenBlocks::lineOf(Value memory) {
  constexpr int64_t lineBits = 64 * 8;
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  return lineBits / element.getIntOrFloatBitWidth();
}

/// Into the second cache: there is room for many lines that are on their way,
/// and the first has none for them beside those that are used.
void TokenBlocks::prefetch(Value memory, ValueRange from, int64_t width,
                           bool isSoon) {
  SmallVector<Value> place(from);
  for (int64_t at = 0; at < width; at += lineOf(memory)) {
    place.back() = plus(from.back(), at);
    memref::PrefetchOp::create(b, memory, place, /*isWrite=*/false,
                               /*localityHint=*/isSoon ? 3 : 2,
                               /*isDataCache=*/true);
  }
}

/// The row, a block ahead, that is asked for beside a pair of keys or of values
/// of the block, of which there are as many as it has rows. Memory is quickest
/// where it is asked evenly, whatever the work is at the time, and at several
/// places at once: beside each pair for a key and its value, of both halves of
/// the block in turns.
SmallVector<Value> TokenBlocks::placeAhead(const Tokens &block,
                                           const TokenRows &rows, Value pair) {
  Value two = index(2);
  Value offset = arith::AddIOp::create(
      b, arith::DivUIOp::create(b, pair, two),
      arith::MulIOp::create(b, arith::RemUIOp::create(b, pair, two),
                            block.half));
  Value row = plus(arith::AddIOp::create(b, block.first, offset), kTokens);
  Value beyond =
      rows.next ? Value(arith::AddIOp::create(
                      b, rows.next, arith::SubIOp::create(b, row, block.end)))
                : Value(arith::SubIOp::create(b, block.end, index(1)));
  return rows.place(
      arith::SelectOp::create(b, isLess(row, block.end), row, beyond));
}

/// The row of a tile, or of the last, that comes two tiles or more behind. A
/// request into the second cache may be forgotten where many are on their way
/// already; then the second one, into the first, brings it before it is waited
/// for. Null where that is not so.
Value TokenBlocks::rowSoon(const Running &running, const Tokens &block,
                           Value tile) {
  constexpr int64_t some = 8;
  if (!vectors.asksAgain || !block.isWhole)
    return {};
  int64_t keys = running.tileKeys;
  Value row = arith::AddIOp::create(
      b, block.first, arith::MulIOp::create(b, tile, index(keys)));
  return minimum(plus(row, std::max(some, keys)),
                 arith::SubIOp::create(b, block.end, index(keys)));
}

void TokenBlocks::prefetchSoon(Value memory, ArrayRef<Value> place,
                               Value column, int64_t width) {
  SmallVector<Value> at(place);
  at.push_back(column);
  prefetch(memory, at, width, /*isSoon=*/true);
}

/// Asks for `width` columns of `size` of a key and of a value.
void TokenBlocks::prefetchColumns(const TokenRows &rows, ArrayRef<Value> place,
                                  Value column, int64_t width, int64_t size) {
  for (auto [memory, its] :
       {std::pair(rows.keys, keySize), {rows.values, valueSize}}) {
    SmallVector<Value> at(place);
    at.push_back(its == size
                     ? column
                     : Value(arith::DivUIOp::create(
                           b, arith::MulIOp::create(b, column, index(its)),
                           index(size))));
    prefetch(memory, at, width * its / size);
  }
}

void TokenBlocks::prefetchFirst(const TokenRows &rows, Value begin) {
  auto loop = scf::ForOp::create(b, index(0), index(kTokens), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value row = arith::AddIOp::create(b, begin, loop.getInductionVar());
  prefetchColumns(rows, rows.place(row), index(0), keySize, keySize);
}

void TokenBlocks::prefetchFirst(const TokenRows &rows, Value begin, Value share,
                                int64_t shares) {
  int64_t lines = llvm::divideCeil(keySize, lineOf(rows.keys));
  int64_t parts = std::clamp<int64_t>(shares / kTokens, 1, lines);
  Value row = arith::AddIOp::create(
      b, begin, arith::DivUIOp::create(b, share, index(parts)));
  Value part = arith::RemUIOp::create(b, share, index(parts));
  for (auto [memory, width] :
       {std::pair(rows.keys, keySize), {rows.values, valueSize}}) {
    SmallVector<Value> place = rows.place(row);
    place.push_back(arith::MulIOp::create(b, part, index(width / parts)));
    prefetch(memory, place, llvm::divideCeil(width, parts));
  }
}

//===----------------------------------------------------------------------===//
// The beginning and the end
//===----------------------------------------------------------------------===//

TokenBlocks::Running TokenBlocks::startBlocks(int64_t size, Type keyType,
                                              Type valueType, bool isExact,
                                              double scale) {
  Running running;
  running.size = size;
  running.together = headsTogether(size);
  running.tileKeys =
      kBlock / static_cast<int64_t>(llvm::PowerOf2Ceil(running.together));
  running.scale = scale;
  auto isWhole = [](int64_t width) { return width % (2 * kBlock) == 0; };
  bool pairs = keyType.isBF16() && isWhole(keySize);
  running.usesDots = vectors.dotsBF16 && pairs && isExact;
  running.splitKeys = pairs && !running.usesDots;
  running.splitValues = valueType.isBF16() && isWhole(valueSize);

  auto whole = [](int64_t width) {
    return static_cast<int64_t>(llvm::alignTo(width, kBlock));
  };
  int64_t parts = size / running.together;
  running.queries =
      scratch({size, whole(keySize)},
              running.usesDots ? Type(b.getBF16Type()) : b.getF32Type());
  running.scores = scratch({kTokens / running.tileKeys, kBlock});
  running.most = scratch({parts, kBlock});
  running.sums = scratch({parts, kBlock});
  running.stays = scratch({parts, kBlock});
  running.values = scratch({size, whole(valueSize)});

  auto clear = [&](int64_t count, Value memory, double value) {
    auto loop = scf::ForOp::create(b, index(0), index(count), index(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    int64_t width = cast<MemRefType>(memory.getType()).getDimSize(1);
    store(splat(number(value), width), memory,
          {loop.getInductionVar(), index(0)});
  };
  clear(parts, running.most, -INFINITY);
  clear(parts, running.sums, 0);
  clear(size, running.values, 0);
  return running;
}

void TokenBlocks::putQuery(const Running &running, Value g, Value query) {
  if (running.usesDots)
    return store(query, running.queries, {g, index(0)});
  int64_t lane = 0;
  for (const Chunk &chunk : chunksOf(keySize, running.splitKeys))
    for (Value each : splitChunk(query, chunk)) {
      store(each, running.queries, {g, index(lane)});
      lane += kBlock;
    }
}

void TokenBlocks::putLower(Running &running, Value g, Value offset) {
  if (!running.lower)
    running.lower =
        scratch({running.size / running.together, kBlock}, b.getI32Type());
  Value together = index(running.together);
  Value lane = arith::MulIOp::create(b, arith::RemUIOp::create(b, g, together),
                                     index(running.tileKeys));
  Value value = arith::IndexCastOp::create(b, b.getI32Type(), offset);
  vector::StoreOp::create(
      b, splat(value, running.tileKeys), running.lower,
      ValueRange{arith::DivUIOp::create(b, g, together), lane});
}

void TokenBlocks::finishBlocks(const Running &running, Value sums, Value values,
                               ValueRange outer) {
  auto parts = scf::ForOp::create(
      b, index(0), index(running.size / running.together), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parts.getBody());
  Value part = parts.getInductionVar();
  Value most = load(running.most, {part, index(0)}, kBlock);
  Value sum = overKeys(running, load(running.sums, {part, index(0)}, kBlock),
                       [&](Value lhs, Value rhs) -> Value {
                         return arith::AddFOp::create(b, lhs, rhs);
                       });
  Value first = arith::MulIOp::create(b, part, index(running.together));
  for (int64_t i = 0; i < running.together; ++i) {
    SmallVector<Value> place(outer);
    place.push_back(plus(first, i));
    for (auto [which, lanes] : {std::pair(0, most), {1, sum}}) {
      SmallVector<Value> at(place);
      at.push_back(index(which));
      memref::StoreOp::create(
          b, vector::ExtractOp::create(b, lanes, i * running.tileKeys), sums,
          at);
    }
    int64_t lane = 0;
    for (const Chunk &chunk : chunksOf(valueSize, running.splitValues)) {
      SmallVector<Value> registers;
      for (int64_t j = 0; j < chunk.registers(); ++j, lane += kBlock)
        registers.push_back(
            load(running.values, {place.back(), index(lane)}, kBlock));
      storeChunk(registers, values, place, chunk);
    }
  }
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

void TokenBlocks::addTokens(const Running &running, Value begin, Value end,
                            const TokenRows &rows) {
  // Most blocks are whole, and need not look where tokens end.
  Tokens block;
  block.begin = begin;
  block.end = end;
  Value rest = arith::RemSIOp::create(b, arith::SubIOp::create(b, end, begin),
                                      index(kTokens));
  Value whole = arith::SubIOp::create(b, end, rest);
  block.isWhole = true;
  addBlocks(running, block, begin, whole, rows);
  block.isWhole = false;
  addBlocks(running, block, whole, end, rows);
}

void TokenBlocks::addBlocks(const Running &running, Tokens block, Value from,
                            Value to, const TokenRows &rows) {
  auto blocks = scf::ForOp::create(b, from, to, index(kTokens));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(blocks.getBody());
  block.first = blocks.getInductionVar();
  block.tiles = index(kTokens / running.tileKeys);
  block.half = index(kTokens / 2);
  if (!block.isWhole) {
    Value left = arith::SubIOp::create(b, block.end, block.first);
    block.tiles = arith::DivUIOp::create(b, plus(left, running.tileKeys - 1),
                                         index(running.tileKeys));
    block.half = arith::DivUIOp::create(
        b, arith::MulIOp::create(b, block.tiles, index(running.tileKeys)),
        index(2));
  }
  auto parts = scf::ForOp::create(
      b, index(0), index(running.size / running.together), index(1));
  b.setInsertionPointToStart(parts.getBody());
  block.part = parts.getInductionVar();
  block.head = arith::MulIOp::create(b, block.part, index(running.together));
  Value base = moveMost(running, block, scoreTiles(running, block, rows));
  addValues(running, block, rows, base);
}
