//===- VerifyHeld.cpp - what a warp adds up for its rows in registers -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where a warp has the rows of its threads, what is read of them are sums of
// tensor cores: of 32 rows, thread 4 g + t has rows 4 g to 4 g + 3 of what
// products take, so that one store has what they give for four rows.
//
// Values of entries for these rows are in registers, too, four rows of entries
// 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of each 16, and take no shared memory. What
// they add, weighed by the products of keys and queries, is added by tensor
// cores to what was read of the state: those products are f32, and multiplied
// in three parts of bf16 that add up to them. A row that folds weighs the same
// values.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// The two sides of a product of tiles.
static constexpr int64_t kLong = 16, kShort = 8;
/// Rows of a lane, and entries of each 16.
static constexpr int64_t kRows = 4, kOfTile = 4;
/// Elements between the products of two vectors, more than rows of a warp.
static constexpr int64_t kPadding = 4;
/// Parts of bf16 that an f32 is the sum of.
static constexpr int64_t kParts = 3;
/// Of which a row is a multiple where tensor cores multiply.
static constexpr int64_t kSlab = 16;

void GpuVerifyKernel::warpBarrier() {
  gpu::BarrierOp::create(b)->setAttr(kOfWarpAttr, b.getUnitAttr());
}

/// Whether a warp reads the rows that its threads have.
bool GpuVerifyKernel::hasRowsOfThreads() const {
  return keySize % kSlab == 0 && schedule.threads == schedule.tileRows &&
         schedule.tileRows % kWarp == 0 &&
         rowsPerThread * (kWarp / lanes) == kWarp;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Of a lane: which of a warp's groups of four it is in, and where in it.
std::pair<Value, Value> GpuVerifyKernel::groupOfLane() {
  Value four = constantIndex(4);
  return {arith::DivUIOp::create(b, warpLane, four),
          arith::RemUIOp::create(b, warpLane, four)};
}

/// The first of the four rows of a lane, in the tile.
Value GpuVerifyKernel::firstHeldRow() {
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  return arith::AddIOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(kWarp)),
      arith::MulIOp::create(b, groupOfLane().first, constantIndex(kRows)));
}

/// The rows of a tile times vectors, as tensor cores have them.
GpuVerifyKernel::TileSums GpuVerifyKernel::sumTile(ArrayRef<Stack> stacks,
                                                   Value tile) {
  Type element = cast<MemRefType>(tile.getType()).getElementType();
  auto load = [&](Value row, Value from, int64_t count) -> Value {
    return vector::LoadOp::create(b, VectorType::get({count}, element), tile,
                                  ValueRange{row, from});
  };
  Matrix matrix{constantIndex(schedule.tileRows), schedule.tileRows, element,
                load};
  int64_t tiles = llvm::divideCeil(countVectors(stacks),
                                   areTokens(stacks, element) ? kLong : kShort);
  Value ofGroup = groupOfLane().first;
  SmallVector<Value> rows, vectorRows;
  for (int64_t i = 0; i < kRows; ++i)
    rows.push_back(add(firstHeldRow(), i));
  if (areTokens(stacks, element)) {
    for (int64_t j = 0; j < 2 * tiles; ++j)
      vectorRows.push_back(vectorRow(add(ofGroup, j * kShort), stacks));
    return {sumTokens(vectorRows, matrix, rows), /*areOfTokens=*/true};
  }
  for (int64_t j = 0; j < tiles; ++j)
    vectorRows.push_back(vectorRow(add(ofGroup, j * kShort), stacks));
  return {sumFloats(stacks.front().memory, vectorRows, matrix, rows),
          /*areOfTokens=*/false};
}

/// The same, but for rows that fold, whose tile is not yet what is read.
GpuVerifyKernel::TileSums GpuVerifyKernel::sumTileEarly(ArrayRef<Stack> stacks,
                                                        Value tile) {
  Value reads = doesNotFold();
  if (!reads) {
    waitForStates();
    return sumTile(stacks, tile);
  }
  Type element = cast<MemRefType>(tile.getType()).getElementType();
  bool areOfTokens = areTokens(stacks, element);
  int64_t count = countVectors(stacks);
  int64_t fours = areOfTokens ? kRows * llvm::divideCeil(count, kLong)
                              : kRows / 2 * llvm::divideCeil(count, kShort);
  auto four = VectorType::get({kRows}, b.getF32Type());
  SmallVector<Type> types(fours, four);
  auto branch = scf::IfOp::create(b, types, reads, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(four));
  scf::YieldOp::create(b, SmallVector<Value>(fours, zero));
  b.setInsertionPointToStart(branch.thenBlock());
  waitForStates();
  scf::YieldOp::create(b, sumTile(stacks, tile).sums);
  return {Components(branch.getResults()), areOfTokens};
}

/// Where the products of a vector with the rows of a warp are, from row
/// `inWarp` on.
SmallVector<Value> GpuVerifyKernel::placeOfProducts(Value column,
                                                    Value inWarp) {
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  Value first =
      arith::MulIOp::create(b, column, constantIndex(kWarp + kPadding));
  return {warp, arith::AddIOp::create(b, first, inWarp)};
}

/// Puts sums where a thread finds its row of them, and loads that.
GpuKernel::Components GpuVerifyKernel::exchangeSums(ArrayRef<Stack> stacks,
                                                    const TileSums &of,
                                                    Value products) {
  const Components &sums = of.sums;
  int64_t count = countVectors(stacks);
  auto [ofGroup, inGroup] = groupOfLane();
  auto at = [&](Value sum, int64_t i) -> Value {
    return vector::ExtractOp::create(b, sum, i);
  };
  auto store = [&](Value column, int64_t most, Value row, ArrayRef<Value> its) {
    Value four = vector::FromElementsOp::create(
        b, VectorType::get({kRows}, b.getF32Type()), its);
    guarded(most <= count ? Value() : isBelow(column, count), [&] {
      vector::StoreOp::create(b, four, products, placeOfProducts(column, row));
    });
  };
  Value two = constantIndex(2);
  // Of rows that the warp has read.
  warpBarrier();
  if (of.areOfTokens) {
    int64_t tiles = static_cast<int64_t>(sums.size()) / kRows;
    Value first = arith::MulIOp::create(b, inGroup, constantIndex(2 * kRows));
    for (int64_t j = 0; j < 2 * tiles; ++j)
      for (int64_t side = 0; side < 2 && j * kShort < count; ++side) {
        SmallVector<Value> rows;
        for (int64_t i = 0; i < kRows; ++i)
          rows.push_back(at(sums[i * tiles + j / 2], j % 2 * 2 + side));
        store(add(ofGroup, j * kShort), (j + 1) * kShort,
              add(first, side * kRows), rows);
      }
  } else {
    int64_t tiles = static_cast<int64_t>(sums.size()) / 2;
    Value first = arith::MulIOp::create(b, ofGroup, constantIndex(kRows));
    for (int64_t j = 0; j < tiles; ++j)
      for (int64_t side = 0; side < 2; ++side) {
        SmallVector<Value> rows;
        for (int64_t i = 0; i < kRows; ++i)
          rows.push_back(at(sums[i / 2 * tiles + j], i % 2 * 2 + side));
        store(add(arith::MulIOp::create(b, inGroup, two), j * kShort + side),
              (j + 1) * kShort, first, rows);
      }
  }
  warpBarrier();
  Value own = arith::RemUIOp::create(b, ownRow, constantIndex(kWarp));
  Components all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back(memref::LoadOp::create(
        b, products, placeOfProducts(constantIndex(i), own)));
  return all;
}

//===----------------------------------------------------------------------===//
// Values of entries
//===----------------------------------------------------------------------===//

/// The only read of entries, if it adds to the only read of states what is read
/// with the same vectors, but for numbers that all drafts have in common.
ReadBufferOp GpuVerifyKernel::entriesOfState() {
  Block &body = step.getBody().front();
  auto ofEntries = body.getOps<ReadBufferOp>();
  auto ofStates = body.getOps<ReadOp>();
  if (!llvm::hasSingleElement(ofEntries) || ofStates.empty())
    return {};
  ReadBufferOp entries = *ofEntries.begin();
  ReadOp first = *ofStates.begin();
  if (!isa_and_present<LoadStateOp>(first.getState().getDefiningOp()))
    return {};
  std::optional<SmallVector<Value>> ofAll;
  size_t added = 0;
  for (ReadOp read : ofStates) {
    Value pair = pairs.lookup(read.getResult());
    if (read.getState() != first.getState() || !pair ||
        pair.getDefiningOp() != entries)
      return {};
    ++added;
    Query query = queryOf(read.getQuery(), read.getResult());
    Query other = queryOf(queryOfEntries(entries, pair), pair);
    SmallVector<Value> common, ofDrafts;
    for (Value factor : query.factors)
      (factor.getDefiningOp<DecayProductOp>() ? common : ofDrafts)
          .push_back(factor);
    bool isSame = ofDrafts == other.factors &&
                  ofAll.value_or(common) == common &&
                  query.terms.size() == other.terms.size();
    for (auto [mine, theirs] : llvm::zip(query.terms, other.terms))
      isSame &= mine.stack.first == theirs.stack.first &&
                mine.stack.memory == theirs.stack.memory &&
                mine.stack.components == theirs.stack.components &&
                mine.scale == theirs.scale;
    if (!isSame)
      return {};
    ofAll = common;
  }
  return added == entries.getNumResults() ? entries : ReadBufferOp();
}

/// The query that a result is read with.
Value GpuVerifyKernel::queryOfEntries(ReadBufferOp op, Value result) {
  return op.getQueries()[cast<OpResult>(result).getResultNumber()];
}

/// Whether threads have the values of entries, which then take no shared
/// memory, and tensor cores add them up.
bool GpuVerifyKernel::mayHoldValues() {
  constexpr int64_t most = 48;
  if (turns > 1 || !entryPlaces || mostEntries() > most || !hasRowsOfThreads())
    return false;
  ReadBufferOp read = entriesOfState();
  if (!read)
    return false;
  // What is read has room where the rows were.
  ReadOp ofState = *step.getBody().front().getOps<ReadOp>().begin();
  auto load = ofState.getState().getDefiningOp<LoadStateOp>();
  Value tile =
      stagedStates.lookup(cast<BlockArgument>(load.getPool()).getArgNumber());
  int64_t columns = countVectors(stacksOf(queriesOfState(ofState)));
  if (!tile || !productsInTile(ofState, tile, columns))
    return false;
  FieldAttr value = read.getBuffer().getType().getField(read.getValue()),
            key = read.getBuffer().getType().getField(read.getKey());
  if (!value.getElementType().isBF16() || value.getShape().size() != 2 ||
      key.getShape().size() != 2)
    return false;
  bool isSimple = true;
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      isSimple &= !isa<TransportOp, ReplayOp, WriteOp>(op);
      if (auto each = dyn_cast<FoldBufferOp>(op))
        isSimple &=
            form == fold && multipliesFolds &&
            argumentOf(each.getBuffer()) == argumentOf(read.getBuffer()) &&
            each.getBuffer().getType().getField(each.getValue()) == value;
    });
  return isSimple;
}

/// Loads the values of entries for the rows of a lane, all at once. Of fewer
/// entries the last stands for the others.
void GpuVerifyKernel::holdValues() {
  if (!holdsValues)
    return;
  ReadBufferOp read = entriesOfState();
  Value buffer = read.getBuffer();
  FieldAttr field = read.getBuffer().getType().getField(read.getValue());
  Value last = arith::MaxSIOp::create(
      b, arith::SubIOp::create(b, length, constantIndex(1)), constantIndex(0));
  Value row = arith::AddIOp::create(b, tileStart, firstHeldRow());
  auto type = VectorType::get({kRows}, field.getElementType());
  heldValues.clear();
  int64_t tilesOfEntries = (mostEntries() + kLong - 1) / kLong;
  for (int64_t i = 0; i < kOfTile * tilesOfEntries; ++i) {
    Value entry =
        arith::MinSIOp::create(b, entryOfTile(i / kOfTile, i % kOfTile), last);
    auto [from, at] = entryMemory(buffer, field, 0, entry);
    int64_t &bytes = alignments[cast<BlockArgument>(from).getArgNumber()];
    bytes = std::max<int64_t>(bytes, kRows * 2);
    at.push_back(row);
    heldValues.push_back(vector::LoadOp::create(b, type, from, at));
  }
}

/// The value of an entry for a row of a fold, which goes through two of the
/// four rows of a lane at a time.
Value GpuVerifyKernel::heldValue(int64_t entry, Value offset, int64_t row) {
  auto at = [&](int64_t i) -> Value {
    return vector::ExtractOp::create(b, heldValues[entry], i);
  };
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, offset,
                                        constantIndex(0));
  return toF32(arith::SelectOp::create(b, isFirst, at(row), at(row + 2)));
}

/// Floats of eight entries, where products with keys are that weigh held
/// values: those of a vector lie side by side.
int64_t GpuVerifyKernel::floatsOfEight(ArrayRef<Stack> stacks) const {
  return kShort *
         static_cast<int64_t>(llvm::alignTo(countVectors(stacks), kShort));
}

Value GpuVerifyKernel::placeOfDot(Value entry, Value column) {
  Value eight = constantIndex(kShort);
  Value of = arith::MulIOp::create(b, arith::DivUIOp::create(b, entry, eight),
                                   constantIndex(heldDots.pitch));
  Value in = arith::AddIOp::create(b, arith::MulIOp::create(b, column, eight),
                                   arith::RemUIOp::create(b, entry, eight));
  return arith::AddIOp::create(b, of, in);
}

/// What 16 entries weigh, for vector `column`: f32 of the four entries of a
/// lane, zero for entries that are not there.
GpuKernel::Components GpuVerifyKernel::loadDots(Value column, int64_t tile) {
  Value inGroup = groupOfLane().second;
  auto two = VectorType::get({2}, b.getF32Type());
  Components all;
  for (int64_t half = 0; half < 2; ++half) {
    int64_t first = tile * kLong + half * kShort;
    if (first >= mostEntries()) {
      all.append(2, constantFloat(0));
      continue;
    }
    Value entry =
        add(arith::MulIOp::create(b, inGroup, constantIndex(2)), first);
    auto load = [&](Value memory, Value at) -> Value {
      return vector::LoadOp::create(b, two, memory, ValueRange{at});
    };
    Value pair = load(heldDots.memory, placeOfDot(entry, column));
    for (int64_t i = 0; i < 2; ++i) {
      Value isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                            add(entry, i), length);
      all.push_back(arith::SelectOp::create(
          b, isThere, vector::ExtractOp::create(b, pair, i), constantFloat(0)));
    }
  }
  return all;
}

/// Adds what 16 entries give.
GpuKernel::Components GpuVerifyKernel::addHeldTile(ArrayRef<Stack> stacks,
                                                   const TileSums &before,
                                                   int64_t tile) {
  Components sums = before.sums;
  bool areOfTokens = before.areOfTokens;
  int64_t count = countVectors(stacks);
  Value ofGroup = groupOfLane().first;
  auto value = [&](int64_t entry, int64_t row) -> Value {
    return vector::ExtractOp::create(b, heldValues[tile * kOfTile + entry],
                                     row);
  };
  auto tileOf = [&](ArrayRef<Value> elements, Type type) -> Value {
    return vector::FromElementsOp::create(
        b, VectorType::get({static_cast<int64_t>(elements.size())}, type),
        elements);
  };
  Type bf16 = b.getBF16Type(), f32 = b.getF32Type();
  SmallVector<Value, kRows> values;
  if (areOfTokens)
    for (int64_t i = 0; i < kRows; ++i)
      values.push_back(
          tileOf({value(0, i), value(1, i), value(2, i), value(3, i)}, bf16));
  else
    for (int64_t i = 0; i < kRows; i += 2)
      values.push_back(
          tileOf({value(0, i), value(1, i), value(0, i + 1), value(1, i + 1),
                  value(2, i), value(3, i), value(2, i + 1), value(3, i + 1)},
                 bf16));
  auto tiles = static_cast<int64_t>(sums.size() / values.size());
  for (int64_t j = 0; j < tiles; ++j) {
    Components dotsOf =
        loadDots(add(ofGroup, j * (areOfTokens ? kLong : kShort)), tile);
    if (areOfTokens) {
      Components lower(kOfTile, constantFloat(0));
      if (j * kLong + kShort < count)
        lower = loadDots(add(ofGroup, j * kLong + kShort), tile);
      dotsOf = {dotsOf[0], dotsOf[1], lower[0], lower[1],
                dotsOf[2], dotsOf[3], lower[2], lower[3]};
    }
    // The smallest come first.
    for (Value part : llvm::reverse(partsOf(tileOf(dotsOf, f32), kParts)))
      for (auto [i, rows] : llvm::enumerate(values)) {
        Value &sum = sums[static_cast<int64_t>(i) * tiles + j];
        sum = areOfTokens ? multiplyTiles(part, rows, sum)
                          : multiplyTiles(rows, part, sum);
      }
  }
  return sums;
}

/// What was read of a state, times the numbers that all drafts have in common,
/// and what entries add.
GpuVerifyKernel::TileSums GpuVerifyKernel::addHeldValues(ArrayRef<Stack> stacks,
                                                         const Query &query,
                                                         TileSums all) {
  Components &sums = all.sums;
  for (Value factor : query.factors)
    if (factor.getDefiningOp<DecayProductOp>()) {
      Value number = splat(numberOf(factor, 0), kRows);
      for (Value &sum : sums)
        sum = arith::MulFOp::create(b, sum, number);
    }
  SmallVector<Type> types(sums.size(), sums.front().getType());
  for (int64_t tile = 0; tile * kLong < mostEntries(); ++tile) {
    Value isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                          constantIndex(tile * kLong), length);
    auto branch = scf::IfOp::create(b, types, isThere, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, sums);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, addHeldTile(stacks, all, tile));
    sums = Components(branch.getResults());
  }
  return all;
}
