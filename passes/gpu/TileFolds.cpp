//===- TileFolds.cpp - folds by tensor cores in a GPU kernel --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A warp stores 16 rows at a time, and of each 64 bytes at a time: what it has
// in registers are the values of entries for these rows, as parts. Tiles.cpp
// says where elements are.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kTileLanes = 4;
/// Entries that one product takes.
static constexpr int64_t kTileEntries = 16;
/// Tiles of entries whose values a thread has registers for.
static constexpr int64_t kMostTiles = 4;

int64_t GpuKernel::tilesOfEntries(FoldBufferOp op) {
  BufferType type = op.getBuffer().getType();
  int64_t ranks = componentCount(type.getField(op.getKey()));
  return llvm::divideCeil(mostEntries() * ranks, kTileEntries);
}

bool GpuKernel::mayMultiplyFolds() {
  bool hasFolds = false;
  bool may = !readsMaterialisedState() && width == 128 / stateBits &&
             keySize % (kTileLanes * width) == 0;
  for (StepOp form : forms()) {
    // States that tiles are made of: those that are stored, and, of drafts,
    // those that are read as they were not loaded.
    llvm::SmallDenseSet<Value, 2> states;
    form.walk([&](Operation *op) {
      if (auto store = dyn_cast<StoreStateOp>(op))
        states.insert(store.getState());
      else if (auto read = dyn_cast<ReadOp>(op);
               read &&
               !isa_and_present<LoadStateOp>(read.getState().getDefiningOp()))
        states.insert(read.getState());
    });
    bool isOnlyState = states.size() <= 1;
    form.walk([&](Operation *op) {
      may &= !isa<ReplayOp>(op);
      if (auto each = dyn_cast<FoldBufferOp>(op)) {
        hasFolds = true;
        BufferType type = each.getBuffer().getType();
        may &= tilesOfEntries(each) <= kMostTiles;
        // Keys that decay by elements are multiplied with what else decays
        // where they lie, and nobody else may need them.
        if (decayedKey(each.getBuffer(), each.getKey(), each.getDecay()))
          may &= isOnlyState && (stateBits == 16 || step.verifies());
        for (StringRef name : {each.getKey(), each.getValue()})
          may &= type.getField(name).getShape().size() > 1;
      }
    });
  }
  return may && hasFolds;
}

/// How many bf16 add up to a value of this type; a state of 16 bits has no use
/// for more than two.
int64_t GpuKernel::partCount(Type type) const {
  if (type.isBF16())
    return 1;
  return type.isF16() || stateBits == 16 ? 2 : 3;
}

GpuKernel::Sheet GpuKernel::tileSheet() {
  Value inTile = arith::DivUIOp::create(b, warpLane, constantIndex(kTileLanes));
  int64_t rows = rowsPerThread * (32 / lanes) / 8, step = 8;
  // Of which a lane has the values of entries: they lie side by side.
  if (holdsRows()) {
    inTile = arith::MulIOp::create(b, inTile, constantIndex(rows));
    step = 1;
  }
  return {{false, keySize, kTileLanes, width, 1},
          arith::AddIOp::create(b, warpRow, inTile),
          {},
          step,
          rows,
          2};
}

/// Puts what rows meet along dk into shared memory. A barrier is the caller's.
LogicalResult GpuKernel::putRowOperands(Value state) {
  Operation *op = state.getDefiningOp();
  auto put = [&](Value value) -> LogicalResult {
    bool isOnlyDecay =
        tileChain.decays.size() == 1 && tileChain.decays.front() == value;
    if (auto same = sameValues.find(value); same != sameValues.end())
      value = same->second;
    if (cast<RankedTensorType>(value.getType()).getRank() == 1)
      return LogicalResult(get(value, Place()));
    // What entries decay by is there already.
    if (auto product = value.getDefiningOp<DecayProductOp>();
        product && isOnlyDecay) {
      tileChain.product =
          decaysOf(product.getBuffer(), product.getDecay()).productMemory;
      return success();
    }
    if (wholeValues.contains(value))
      return success();
    FailureOr<Value> memory = putWhole(value, valuePlace(keySize));
    if (succeeded(memory))
      wholeValues[value] = *memory;
    return LogicalResult(memory);
  };
  if (auto decay = dyn_cast_if_present<DecayOp>(op))
    return success(succeeded(put(decay.getFactor())) &&
                   succeeded(putRowOperands(decay.getState())));
  if (auto write = dyn_cast_if_present<WriteOp>(op))
    return success(succeeded(put(write.getKey())) &&
                   succeeded(get(write.getValue(), rowPlace())) &&
                   succeeded(putRowOperands(write.getState())));
  if (auto each = dyn_cast_if_present<FoldBufferOp>(op))
    return putRowOperands(each.getState());
  return success();
}

/// What a thread has of a tile of rows before it goes through their chunks.
/// Numbers that decay the state after it was loaded or added to, `later`, are
/// multiplied into what is loaded and added: elements then take one product.
LogicalResult GpuKernel::prepareTile(Value state, Sheet &sheet, Value later) {
  Operation *op = state.getDefiningOp();
  auto weighed = [&](Value value) -> Value {
    return later ? Value(arith::MulFOp::create(b, value, later)) : value;
  };
  if (auto load = dyn_cast_if_present<LoadStateOp>(op)) {
    if (later)
      sheet.prepared[op] = {later};
    return success();
  }
  if (auto decay = dyn_cast_if_present<DecayOp>(op)) {
    if (decay.getFactor().getType().getRank() == 1) {
      FailureOr<Components> factor = get(decay.getFactor(), Place());
      if (failed(factor))
        return failure();
      later = weighed(factor->front());
    }
    return prepareTile(decay.getState(), sheet, later);
  }
  if (auto each = dyn_cast_if_present<FoldBufferOp>(op)) {
    sheet.prepared[op] = weightedTiles(each, sheet, later);
    return prepareTile(each.getState(), sheet, later);
  }
  auto write = dyn_cast_if_present<WriteOp>(op);
  if (!write)
    return success();
  FailureOr<Components> written = get(write.getValue(), rowPlace());
  if (failed(written))
    return failure();
  Components ofRows;
  for (Value value : *written)
    for (int64_t i = 0; i < sheet.atOnce; ++i)
      ofRows.push_back(weighed(valueOfRow(value, sheet, i)));
  sheet.prepared[op] = std::move(ofRows);
  return prepareTile(write.getState(), sheet, later);
}

/// True if rows are stored where they were copied to, and leave in one piece.
bool GpuKernel::storesInPlace(StoreStateOp op) {
  Type element = cast<PoolType>(op.getPool().getType()).getElementType();
  int64_t bytes =
      schedule.tileRows * keySize * element.getIntOrFloatBitWidth() / 8;
  // Whoever stores a row has to be the one that has loaded it.
  bool isOwn = multipliesFolds ||
               (!materialises && storeSheet().place.lanes == 32 && lanes < 32);
  return isOwn && copiesInBulk && !hasSpareRows() && bytes % 16 == 0 &&
         !isTransposed(op) &&
         stagedStates.contains(
             cast<BlockArgument>(op.getPool()).getArgNumber());
}

LogicalResult GpuKernel::storeTiles(const Target &target) {
  Sheet sheet = tileSheet();
  planTile(target.state);
  if (failed(putRowOperands(target.state)))
    return failure();
  // Shuffles of weights are for all of a warp.
  Block *block = target.state.getDefiningOp()->getBlock();
  for (auto each : block->getOps<FoldBufferOp>())
    weightsOfUse(each.getBuffer(), each.getKey(), each.getDecay(),
                 {each.getKeyScale(), each.getValueScale()});
  splitDecayedKeys();
  barrier();
  if (failed(emitTileRows(target, sheet)))
    return failure();
  if (target.inPlace)
    copyTileBack(target);
  return success();
}

/// A tile goes back as it came.
void GpuKernel::copyTileBack(const Target &target) {
  allowWrites();
  unsigned argument = cast<BlockArgument>(target.pool).getArgNumber();
  auto copy = memref::DmaStartOp::create(
      b, target.tile, ValueRange{constantIndex(0), constantIndex(0)},
      memory[argument],
      ValueRange{writeState, head, tileStart, constantIndex(0)},
      constantIndex(schedule.tileRows * keySize), copies,
      ValueRange{constantIndex(0)});
  // Whoever takes the tile for the next head waits for it.
  if (turns > 1)
    copy->setAttr(kGoesOnAttr, b.getUnitAttr());
}

/// Chunks of rows that are stored together. Each product of a sum waits for the
/// one before it, and of f32 a chunk has two sums: few to take in turns.
static int64_t chunksAtOnce(const Place &place) {
  bool hasTwoSums = place.width == 4;
  return hasTwoSums && place.size % (2 * place.lanes * place.width) == 0 ? 2
                                                                         : 1;
}

LogicalResult GpuKernel::emitTileRows(const Target &target, const Sheet &all) {
  Sheet sheet = all;
  auto tiles = scf::ForOp::create(b, constantIndex(0),
                                  constantIndex(sheet.rows), constantIndex(2));
  tiles->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(tiles.getBody());
  sheet.offset = tiles.getInductionVar();
  if (failed(prepareTile(target.state, sheet, /*later=*/{})))
    return failure();
  // Keys that decay have two sums for each as it is.
  if (llvm::none_of(
          target.state.getDefiningOp()->getBlock()->getOps<FoldBufferOp>(),
          [&](FoldBufferOp each) { return takesShortTiles(each); }))
    sheet.place.chunks = chunksAtOnce(sheet.place);
  auto chunks = scf::ForOp::create(
      b, constantIndex(0), constantIndex(keySize),
      constantIndex(sheet.place.chunks * kTileLanes * sheet.place.width));
  b.setInsertionPointToStart(chunks.getBody());
  sheet.place.start = chunks.getInductionVar();
  return storeRows(target, sheet, 0);
}

/// The i-th of the four entries of a tile whose products a thread has, counted
/// with all ranks.
Value GpuKernel::entryOfTile(int64_t tile, int64_t i) {
  Value lane = arith::RemUIOp::create(b, warpLane, constantIndex(kTileLanes));
  Value first = arith::MulIOp::create(b, lane, constantIndex(2));
  return add(first, tile * kTileEntries + i / 2 * 8 + i % 2);
}

/// The values of entries for the rows of a thread times their weights, and what
/// they decay by later, tile after tile of entries, each as parts.
GpuKernel::Components
GpuKernel::weightedTiles(FoldBufferOp op, const Sheet &sheet, Value later) {
  Value buffer = op.getBuffer();
  FieldAttr field = op.getBuffer().getType().getField(op.getValue());
  int64_t ranks = componentCount(field);
  Components weights = weightsOfUse(buffer, op.getKey(), op.getDecay(),
                                    {op.getKeyScale(), op.getValueScale()});
  Value memory = entryMemory(buffer, field, 0, constantIndex(0)).first;
  bool isStaged = cast<MemRefType>(memory.getType()).getRank() == 2;
  auto load = [&](int64_t number, int64_t row, Value entry) -> Value {
    if (holdsRows())
      return heldValue(number, sheet.offset, row);
    Value local = clampedRow(rowOf(sheet, row));
    return isStaged ? loadElement(memory, {entry, local})
                    : loadEntryRow(buffer, op.getValue(), 0, entry, local);
  };
  assert((isStaged || ranks == 1) && "rows of entries are not their positions");
  Value count = arith::MulIOp::create(b, length, constantIndex(ranks));
  Value last = add(arith::MulIOp::create(b, lastEntry(), constantIndex(ranks)),
                   ranks - 1);
  Value zero = constantFloat(0);
  // What the token adds is one entry more.
  WriteOp own = tileChain.own.lookup(op);
  bool isWeighed = !weights.empty() || later || own;
  Type stored = isWeighed ? Type(b.getF32Type()) : field.getElementType();
  bool isShort = takesShortTiles(op);
  Components result;
  for (int64_t tile = 0; tile < tilesOfEntries(op); ++tile) {
    // Elements 4 (i / 2) + 2 row + i % 2.
    SmallVector<Value> elements(8);
    for (int64_t i = 0; i < 4; ++i) {
      Value entry = entryOfTile(tile, i);
      Value valid =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, entry, count);
      Value clamped = arith::MinSIOp::create(b, entry, last);
      Value weight = later;
      if (!weights.empty()) {
        weight = numberAt(
            weights, arith::DivUIOp::create(b, clamped, constantIndex(ranks)));
        if (later)
          weight = arith::MulFOp::create(b, weight, later);
      }
      for (int64_t row = 0; row < 2; ++row) {
        Value value = load(4 * tile + i, row, clamped);
        if (weight)
          value = arith::MulFOp::create(b, value, weight);
        Value &element = elements[i / 2 * 4 + row * 2 + i % 2];
        element = arith::SelectOp::create(b, valid, value, zero);
        if (own)
          element = arith::SelectOp::create(
              b,
              arith::CmpIOp::create(b, arith::CmpIPredicate::eq, entry, count),
              sheet.prepared.find(own)->second[row], element);
      }
    }
    Value all = vector::FromElementsOp::create(
        b, VectorType::get({8}, b.getF32Type()), elements);
    if (!isShort) {
      llvm::append_range(result, partsOf(all, partCount(stored)));
      continue;
    }
    // A short tile has rows beside one another, not entries.
    all = vector::ShuffleOp::create(b, all, all,
                                    ArrayRef<int64_t>{0, 2, 1, 3, 4, 6, 5, 7});
    if (!stored.isF32()) {
      result.push_back(all);
      continue;
    }
    auto [most, rest] = splitTerms(all);
    result.append({most, rest});
  }
  return result;
}

/// Keys that decay by elements are f32 that change with every entry: for a
/// state that keeps their bits, products take 11 of them at a time, of 8
/// entries, and values of 16 bits as they are.
bool GpuKernel::takesShortTiles(FoldBufferOp op) {
  return stateBits != 16 &&
         decayedKey(op.getBuffer(), op.getKey(), op.getDecay());
}

/// Adds what the four entries that a lane has of a tile, `keys`, add to
/// columns: sums of the first two of each column, then those of the others.
void GpuKernel::multiplyShortFold(ArrayRef<Value> values,
                                  ArrayRef<Components> keys,
                                  MutableArrayRef<Value> sums) {
  auto half = static_cast<int64_t>(sums.size()) / 2;
  for (int64_t pair = 0; pair < 2; ++pair) {
    SmallVector<Value, 2> left;
    for (Value part : values)
      left.push_back(vector::ExtractStridedSliceOp::create(
          b, part, ArrayRef<int64_t>{4 * pair}, ArrayRef<int64_t>{4},
          ArrayRef<int64_t>{1}));
    for (int64_t e = 0; e < half; ++e) {
      SmallVector<Value> elements;
      for (const Components &key : keys.slice(2 * pair, 2))
        elements.push_back(vector::ExtractOp::create(b, key.front(), e));
      auto [most, rest] = splitTerms(vector::FromElementsOp::create(
          b, VectorType::get({2}, b.getF32Type()), elements));
      Value &sum = sums[pair * half + e];
      if (left.size() > 1)
        sum = multiplyShortTiles(left[1], most, sum);
      sum = multiplyShortTiles(left[0], rest, sum);
      sum = multiplyShortTiles(left[0], most, sum);
    }
  }
}

/// What entries add to chunks of two rows: a vector each, of the first row
/// first.
GpuKernel::Components GpuKernel::multiplyFold(FoldBufferOp op,
                                              const Sheet &sheet) {
  Value buffer = op.getBuffer();
  FieldAttr field = op.getBuffer().getType().getField(op.getKey());
  int64_t ranks = componentCount(field), half = sheet.place.width / 2;
  const Components &values = sheet.prepared.find(op)->second;
  int64_t tiles = tilesOfEntries(op);
  int64_t valueParts = static_cast<int64_t>(values.size()) / tiles;
  DecayedKey *decayed = decayedKey(buffer, op.getKey(), op.getDecay());
  bool isShort = takesShortTiles(op);
  int64_t keyParts = decayed ? kKeyParts : partCount(field.getElementType());
  Value memory = isShort ? decayed->memory
                 : decayed
                     ? decayed->parts
                     : entryMemory(buffer, field, 0, constantIndex(0)).first;
  Value count = arith::MulIOp::create(b, length, constantIndex(ranks));
  if (tileChain.own.contains(op))
    count = add(count, 1);
  Value last = arith::SubIOp::create(b, count, constantIndex(1));
  int64_t chunks = sheet.place.chunks;
  Value firstColumn = arith::AddIOp::create(
      b, sheet.place.start,
      arith::MulIOp::create(
          b, arith::DivUIOp::create(b, warpLane, constantIndex(kTileLanes)),
          constantIndex(half)));
  // Of a row of the keys, what a thread has of all parts.
  auto load = [&](Value row, int64_t chunk) -> Components {
    Value column = add(firstColumn, chunk * kTileLanes * sheet.place.width);
    Type element = cast<MemRefType>(memory.getType()).getElementType();
    if (!decayed || isShort) {
      Value whole =
          toF32(vector::LoadOp::create(b, VectorType::get({half}, element),
                                       memory, ValueRange{row, column}));
      return isShort ? Components{whole} : partsOf(whole, keyParts);
    }
    Value all = vector::LoadOp::create(
        b, VectorType::get({kKeyParts * half}, element), memory,
        ValueRange{row,
                   arith::MulIOp::create(b, column, constantIndex(kKeyParts))});
    Components parts;
    for (int64_t i = 0; i < kKeyParts; ++i)
      parts.push_back(vector::ExtractStridedSliceOp::create(b, all, {i * half},
                                                            {half}, {1}));
    return parts;
  };

  auto accumulator = VectorType::get({4}, b.getF32Type());
  int64_t sumCount = isShort ? 2 * half : half;
  // Of 16 entries at once, for keys that are parts of bf16.
  auto multiplyLongFold = [&](ArrayRef<Value> ofTile, ArrayRef<Components> keys,
                              MutableArrayRef<Value> ofChunk) {
    // What is beyond the last part of either is beyond that of the product.
    int64_t most = std::max(valueParts, keyParts);
    for (int64_t part = 0; part < keyParts; ++part)
      for (int64_t e = 0; e < half; ++e) {
        SmallVector<Value> elements;
        for (const Components &key : keys)
          elements.push_back(vector::ExtractOp::create(b, key[part], e));
        Value factor = vector::FromElementsOp::create(
            b, VectorType::get({4}, b.getBF16Type()), elements);
        for (int64_t other = 0; other < valueParts && part + other < most;
             ++other)
          ofChunk[e] = multiplyTiles(ofTile[other], factor, ofChunk[e]);
      }
  };
  // Chunk after chunk: products of one need not wait for those of another.
  Components sums(chunks * sumCount,
                  arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
  for (int64_t tile = 0; tile < tiles; ++tile) {
    // There may be no entry, and what is not there may be no number.
    Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, count,
                                         constantIndex(tile * kTileEntries));
    SmallVector<Type> types(sums.size(), accumulator);
    auto branch = scf::IfOp::create(b, types, exists, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, sums);
    b.setInsertionPointToStart(branch.thenBlock());
    SmallVector<Value, 4> entries;
    for (int64_t i = 0; i < 4; ++i)
      entries.push_back(arith::MinSIOp::create(b, entryOfTile(tile, i), last));
    auto ofTile = ArrayRef(values).slice(tile * valueParts, valueParts);
    Components next(sums);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      SmallVector<Components> keys; // by entry, parts of `half` elements
      for (Value entry : entries)
        keys.push_back(load(entry, chunk));
      auto mine =
          MutableArrayRef<Value>(next).slice(chunk * sumCount, sumCount);
      if (isShort)
        multiplyShortFold(ofTile, keys, mine);
      else
        multiplyLongFold(ofTile, keys, mine);
    }
    scf::YieldOp::create(b, next);
    sums.assign(branch.result_begin(), branch.result_end());
  }
  assert((!isShort || chunks == 1) && "these have sums enough in one");
  for (int64_t e = half; e < sumCount; ++e)
    sums[e - half] = arith::AddFOp::create(b, sums[e - half], sums[e]);
  Components result;
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      SmallVector<Value> elements;
      for (int64_t side = 0; side < 2; ++side)
        for (int64_t e = 0; e < half; ++e)
          elements.push_back(vector::ExtractOp::create(
              b, sums[chunk * sumCount + e], row * 2 + side));
      result.push_back(vector::FromElementsOp::create(
          b, VectorType::get({sheet.place.width}, b.getF32Type()), elements));
    }
  return result;
}
