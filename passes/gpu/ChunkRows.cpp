//===- ChunkRows.cpp - rows of states that stay with warps ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where sizes are multiples of tiles, a warp has 16 rows of a state in its
// registers from the first token to the last, as sums of products, and of every
// value along dv the same rows: a tile of 16 rows and 8 tokens after the other.
// What a product leaves behind is laid out as a product takes it, so that
// reads, what is solved and what is folded never leave the registers of a warp,
// and no warp waits for another, but for those that have the same rows: see
// ChunkShares.cpp. Keys, queries and Gram products are for all warps, in shared
// memory.
//
// Thread 4 g + t has rows g and g + 8, at tokens 2 t and 2 t + 1 of a tile.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
static constexpr int64_t kTileRows = 16;
static constexpr int64_t kTileColumns = 8;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Whether they can
//===----------------------------------------------------------------------===//

/// Whether a value of a region is elementwise, of what a warp has and of
/// numbers.
static bool isOfRow(Value value, EachDraftOp region) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getParentOp() != region)
    return typeOf(value).getRank() <= 2;
  if (typeOf(value).getRank() > 2)
    return false;
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    RankedTensorType from = broadcast.getInput().getType();
    if (from.getRank() == 1)
      return true;
    return keepsLastDimension(broadcast) && from.getRank() == 2 &&
           isOfRow(broadcast.getInput(), region);
  }
  return op->hasTrait<OpTrait::Elementwise>() &&
         llvm::all_of(op->getOperands(),
                      [&](Value operand) { return isOfRow(operand, region); });
}

/// Finds what depends on reads; false if a warp cannot have all of it.
bool GpuChunkKernel::findRowStacks() {
  rowStacks.clear();
  auto isOne = [](Value stack) {
    return componentCount(unstackType(typeOf(stack))) == 1;
  };
  for (Operation &op : step.getBody().front()) {
    if (auto region = dyn_cast<EachDraftOp>(op)) {
      if (llvm::none_of(region.getStacks(),
                        [&](Value stack) { return isRowStack(stack); }))
        continue;
      if (!region.getCarries().empty())
        return false;
      for (auto [value, result] :
           llvm::zip(region.getYield().getValues(), region.getResults())) {
        if (typeOf(value).getRank() != 2 ||
            typeOf(value).getShape().back() != valueSize ||
            !isOfRow(value, region))
          return false;
        rowStacks.insert(result);
      }
      continue;
    }
    if (auto read = dyn_cast<ReadOp>(op)) {
      if (!read.getState().getDefiningOp<LoadStateOp>() ||
          !isOne(read.getQuery()))
        return false;
    } else if (auto fold = dyn_cast<FoldDraftsOp>(op)) {
      if (!fold.getState().getDefiningOp<LoadStateOp>() ||
          !llvm::all_of(fold.getKeys(), isOne) ||
          !llvm::all_of(fold.getValues(), isOne))
        return false;
      continue;
    } else if (auto gram = dyn_cast<PathGramOp>(op)) {
      if (!isOne(gram.getQueries()) || !isOne(gram.getKeys()))
        return false;
      continue;
    } else if (auto solve = dyn_cast<PathSolveOp>(op)) {
      // One vector a token is unknown; others may be beside it. An inverse is
      // one for all channels.
      llvm::SmallDenseSet<int64_t> open(solve.getRows().begin(),
                                        solve.getRows().end());
      if (open.size() != 1 || !solve.getScales().empty() ||
          !llvm::all_of(solve.getRhs(), isOne))
        return false;
    } else if (!isa<PathProductOp>(op)) {
      if (isa<AppendDraftsOp>(op))
        return false;
      continue;
    }
    if (!llvm::all_of(op.getResults(), isOne))
      return false;
    rowStacks.insert(op.result_begin(), op.result_end());
  }
  return true;
}

bool GpuChunkKernel::mayHoldRows(const Shape &of) {
  auto states = step.getArgumentsOfKind(ArgumentKind::State);
  return step.getForm() == Form::PrefillFold && !ownsAllRows &&
         of.tokens % kTileRows == 0 && of.tokens <= kWarp &&
         of.rows % kTileRows == 0 && keySize % (kTileRows * of.keyParts) == 0 &&
         keySize / of.keyParts * static_cast<int64_t>(states.size()) <=
             kMostKeys &&
         findRowStacks();
}

//===----------------------------------------------------------------------===//
// Demands
//===----------------------------------------------------------------------===//

/// A stack along dv that warps take their rows of. What only warps ask for is
/// no stack at all, but computed where it is needed.
void GpuChunkKernel::demandRows(Value stack) {
  if (isRowStack(stack) || lazyStacks.contains(stack))
    return;
  auto region = stack.getDefiningOp<EachDraftOp>();
  Value value =
      region ? Value(region.getYield()
                         .getValues()[cast<OpResult>(stack).getResultNumber()])
             : Value();
  if (!region || !region.getCarries().empty() || !isOfRow(value, region)) {
    demand(stack, Tile);
    return;
  }
  lazyStacks.insert(stack);
  demandRowsOf(value, region);
}

void GpuChunkKernel::demandRowsOf(Value value, EachDraftOp region) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() != &region.getBody().front()) {
      // Threads share the copy evenly, of a tile that is theirs.
      if (shape.cluster == 1 &&
          step.getArgumentKind(argument.getArgNumber()) ==
              ArgumentKind::Token &&
          typeOf(value).getRank() == 2 &&
          typeOf(value).getElementTypeBitWidth() == 16 &&
          (shape.prepared ||
           tokensAtOnce() * schedule.tileRows / 4 % schedule.threads == 0))
        rowTokens.insert(argument);
      return;
    }
    Value stack = region.getStacks()[argument.getArgNumber()];
    if (typeOf(value).getRank() == 1)
      demand(stack, Full);
    else
      demandRows(stack);
    return;
  }
  Operation *op = value.getDefiningOp();
  if (op->getParentOp() != region || isa<arith::ConstantOp>(op))
    return;
  if (typeOf(value).getRank() == 1) {
    rowNumbers[region].insert(value);
    demand(value, Full);
    return;
  }
  for (Value operand : op->getOperands())
    demandRowsOf(operand, region);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

int64_t GpuChunkKernel::tokenTiles() const {
  return rowsFor(tokensAtOnce()) / kTileColumns;
}

/// The first of the two rows of a lane, in the tile of the block.
Value GpuChunkKernel::rowOfLane() {
  return arith::AddIOp::create(b, firstRowOfWarp(), over(warpLane, 4));
}

/// The first of the two tokens of a lane, or columns, of a tile.
Value GpuChunkKernel::pairOfLane() {
  return times(arith::RemUIOp::create(b, warpLane, constantIndex(4)), 2);
}

/// Two elements, as a tile of both rows has them.
Value GpuChunkKernel::twice(Value first, Value second) {
  return vector::FromElementsOp::create(
      b, VectorType::get({4}, first.getType()),
      ValueRange{first, second, first, second});
}

/// The numbers of the tokens of a tile.
Value GpuChunkKernel::numbersOfTile(const Stack &stack, int64_t tile) {
  Value token = add(arith::AddIOp::create(b, pairOfLane(), tokenOfTile(tile)),
                    stack.first);
  auto load = [&](int64_t i) -> Value {
    return memref::LoadOp::create(b, stack.memory,
                                  ValueRange{add(token, i), constantIndex(0)});
  };
  Value first = load(0);
  return twice(first, load(1));
}

/// Asks for the tokens that a crew takes next, which the L2 cache then has when
/// they are loaded; where steps divide chunks unevenly, for some beside them.
void GpuChunkKernel::prefetchTokens() {
  constexpr int64_t lineBits = 128 * 8;
  Value next = add(firstInChunk, tokensAtOnce() * shape.crews);
  for (BlockArgument token : step.getArgumentsOfKind(ArgumentKind::Token)) {
    RankedTensorType type = typeOf(token);
    bool isNumber = type.getRank() == 1;
    if (type.getRank() > 2 || token.use_empty())
      continue;
    // Where steps are prepared, who has rows copies them.
    if (shape.prepared && rowTokens.contains(token))
      continue;
    bool isTile = tiles > 1 && rowTokens.contains(token);
    int64_t size = isTile     ? schedule.tileRows
                   : isNumber ? 1
                              : type.getDimSize(1);
    int64_t line = lineBits / type.getElementTypeBitWidth();
    int64_t lines = llvm::divideCeil(size, line);
    int64_t count = tokensAtOnce() * lines;
    for (int64_t i = 0; i < count; i += schedule.threads) {
      Value task = add(thread, i);
      Value mine = arith::AddIOp::create(b, next, over(task, lines));
      Value isToken = compare(arith::CmpIPredicate::slt, mine, tokenCount);
      if (i + schedule.threads > count)
        isToken = both(isToken, isBelow(task, count));
      guarded(isToken, [&] {
        SmallVector<Value> at{arith::AddIOp::create(b, firstToken, mine),
                              headIndex(type.getDimSize(0))};
        if (!isNumber)
          at.push_back(times(
              arith::RemUIOp::create(b, task, constantIndex(lines)), line));
        if (isTile)
          at.back() = arith::AddIOp::create(b, tileStart, at.back());
        memref::PrefetchOp::create(b, memory[token.getArgNumber()], at,
                                   /*isWrite=*/false, /*localityHint=*/2,
                                   /*isDataCache=*/true);
      });
    }
  }
}

/// Tokens of 16 bits that only warps take rows of: all threads copy them to
/// shared memory, a part of each from global memory now and to its place later.
SmallVector<std::function<void()>> GpuChunkKernel::stageRows() {
  constexpr int64_t kWide = 4;
  SmallVector<std::function<void()>> stores;
  int64_t parts = schedule.tileRows / kWide;
  int64_t rounds = llvm::divideCeil(tokensAtOnce() * parts, schedule.threads);
  Value last = arith::SubIOp::create(b, inChunk, constantIndex(1));
  Value first = arith::AddIOp::create(b, firstToken, firstInChunk);
  for (BlockArgument argument : rowTokens) {
    RankedTensorType type = typeOf(argument);
    Value from = memory[argument.getArgNumber()];
    int64_t &bytes = alignments[cast<BlockArgument>(from).getArgNumber()];
    bytes = std::max<int64_t>(bytes, kWide * 2);
    Value staged =
        allocate(tokensAtOnce(), schedule.tileRows, type.getElementType());
    stagedRows[argument] = staged;
    for (int64_t i = 0; i < rounds; ++i) {
      Value task = add(thread, i * schedule.threads);
      Value token = over(task, parts);
      Value column =
          times(arith::RemUIOp::create(b, task, constantIndex(parts)), kWide);
      Value row = arith::AddIOp::create(b, first,
                                        arith::MinSIOp::create(b, token, last));
      Value some = vector::LoadOp::create(
          b, VectorType::get({kWide}, type.getElementType()), from,
          ValueRange{row, headIndex(type.getDimSize(0)),
                     arith::AddIOp::create(b, tileStart, column)});
      stores.push_back([=, this] {
        willWrite(staged);
        vector::StoreOp::create(b, some, staged, ValueRange{token, column});
      });
    }
  }
  return stores;
}

/// Loads what tokens give of rows before anything else of a chunk, so that it
/// is on its way meanwhile.
GpuKernel::Components GpuChunkKernel::loadRowsOf(BlockArgument argument) {
  Components &known = loadedRows[isDivided][argument];
  if (!known.empty())
    return known;
  // Tiles are loaded two at a time.
  if (isDivided &&
      (loadedRows[false].contains(argument) ||
       (stagedRows.contains(argument) && tilesAtHand() % 2 != 0))) {
    Components all;
    {
      llvm::SaveAndRestore whole(isDivided, false);
      all = loadRowsOf(argument);
    }
    return loadedRows[true][argument] = ownTilesOf(all);
  }
  OpBuilder::InsertionGuard guard(b);
  OpBuilder::InsertPoint here = b.saveInsertionPoint();
  b.setInsertionPoint(startOfChunk);
  Value from = memory[argument.getArgNumber()];
  RankedTensorType type = typeOf(argument);
  Value mine = arith::AddIOp::create(b, tileStart, rowOfLane());
  Value at = headIndex(type.getDimSize(0)), pair = pairOfLane();
  bool isToken =
      step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Token;
  auto load = [&](ArrayRef<Value> outer, int64_t row) -> Value {
    SmallVector<Value> indices(outer);
    indices.push_back(at);
    if (type.getRank() > 1)
      indices.push_back(add(mine, row));
    return memref::LoadOp::create(b, from, indices);
  };
  auto four = VectorType::get({4}, type.getElementType());
  if (!isToken) {
    Value upper = load({}, 0), lower = type.getRank() > 1 ? load({}, 8) : upper;
    Value all = toF32(vector::FromElementsOp::create(
        b, four, ValueRange{upper, upper, lower, lower}));
    return known = Components(tilesAtHand(), all);
  }
  Value last = arith::SubIOp::create(b, inChunk, constantIndex(1));
  Value first = arith::AddIOp::create(b, firstToken, firstInChunk);
  Components tiles;
  if (Value staged = stagedRows.lookup(argument)) {
    // Transposed as they are loaded; where they are asked for first.
    b.restoreInsertionPoint(here);
    willRead(staged);
    Value column = firstRowOfWarp();
    for (int64_t tile = 0; tile < tilesAtHand(); tile += 2) {
      Value both = loadTiles(staged, tokenOfTile(tile), column,
                             /*isAcross=*/false, /*isTransposed=*/true);
      for (int64_t i : {0, 4})
        tiles.push_back(
            vector::ExtractStridedSliceOp::create(b, both, {i}, {4}, {1}));
    }
    return known = tiles;
  }
  for (int64_t tile = 0; tile < tilesAtHand(); ++tile) {
    SmallVector<Value> elements;
    Value ofTile = arith::AddIOp::create(b, pair, tokenOfTile(tile));
    for (int64_t i = 0; i < 2; ++i) {
      Value token = arith::MinSIOp::create(b, add(ofTile, i), last);
      token = arith::AddIOp::create(b, first, token);
      for (int64_t row : {0, 8})
        elements.push_back(load({token}, type.getRank() > 1 ? row : 0));
    }
    tiles.push_back(vector::FromElementsOp::create(
        b, four,
        ValueRange{elements[0], elements[2], elements[1], elements[3]}));
  }
  return known = tiles;
}

/// Sums of the stacks that states were read with become what was asked for, all
/// at once: sums of several reads are more than these.
void GpuChunkKernel::combineReads() {
  for (auto &[result, parts] : rowReads) {
    llvm::SaveAndRestore divided(isDivided, dividedStacks.contains(result));
    if (rowsOfStacks[isDivided].contains(result))
      continue;
    Components all;
    for (auto &[sums, scale] : parts) {
      if (scale)
        willRead(scale->memory);
      for (auto [tile, sum] : llvm::enumerate(sums)) {
        Value part = sum;
        if (scale)
          part = arith::MulFOp::create(
              b, part, numbersOfTile(*scale, static_cast<int64_t>(tile)));
        if (tile == all.size())
          all.push_back(part);
        else
          all[tile] = arith::AddFOp::create(b, all[tile], part);
      }
    }
    rowsOfStacks[isDivided][result] = all;
  }
}

/// The rows of this warp of a stack along dv.
FailureOr<GpuKernel::Components> GpuChunkKernel::rowsOfStack(Value stack) {
  if (const Components *known = rowsAtHand(stack))
    return *known;
  if (rowReads.contains(stack)) {
    combineReads();
    return *rowsAtHand(stack);
  }
  if (lazyStacks.contains(stack) || isRowStack(stack)) {
    auto region = stack.getDefiningOp<EachDraftOp>();
    Value value =
        region.getYield().getValues()[cast<OpResult>(stack).getResultNumber()];
    FailureOr<Components> all = rowsOfValue(value, region);
    if (failed(all))
      return failure();
    return rowsOfStacks[isDivided][stack] =
               isFiniteOfZero(value, region) ? *all : withoutMissing(*all);
  }
  const Stack &from = stackOf(stack, /*isTile=*/true);
  willRead(from.memory);
  Value row = rowOfLane(), pair = pairOfLane();
  if (!from.isTile)
    row = arith::AddIOp::create(b, tileStart, row);
  Components result;
  for (int64_t tile = 0; tile < tilesAtHand(); ++tile) {
    SmallVector<Value> elements;
    Value token = arith::AddIOp::create(b, pair, tokenOfTile(tile));
    for (int64_t i = 0; i < 4; ++i)
      elements.push_back(loadElement(
          from.memory, {add(token, from.first + i % 2), add(row, i / 2 * 8)}));
    result.push_back(vector::FromElementsOp::create(
        b, VectorType::get({4}, b.getF32Type()), elements));
  }
  return rowsOfStacks[isDivided][stack] = result;
}

/// The same of a value of a region; numbers are those of the tokens.
FailureOr<GpuKernel::Components>
GpuChunkKernel::rowsOfValue(Value value, EachDraftOp region) {
  if (const Components *known = rowsAtHand(value))
    return *known;
  int64_t count = tilesAtHand();
  auto ofNumbers = [&](const Stack &stack) {
    willRead(stack.memory);
    Components result;
    for (int64_t tile = 0; tile < count; ++tile)
      result.push_back(numbersOfTile(stack, tile));
    return result;
  };
  auto emitAll = [&]() -> FailureOr<Components> {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (argument.getOwner() != &region.getBody().front()) {
        Components result(loadRowsOf(argument));
        for (Value &tile : result)
          tile = toF32(tile);
        return result;
      }
      Value stack = region.getStacks()[argument.getArgNumber()];
      if (typeOf(value).getRank() == 1)
        return ofNumbers(stackOf(stack));
      return rowsOfStack(stack);
    }
    if (const Stack *stack = find(value, false);
        stack && typeOf(value).getRank() == 1)
      return ofNumbers(*stack);
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      TypedAttr one = cast<SplatElementsAttr>(constant.getValue())
                          .getSplatValue<TypedAttr>();
      auto four = VectorType::get({4}, one.getType());
      return Components(count, arith::ConstantOp::create(
                                   b, cast<TypedAttr>(SplatElementsAttr::get(
                                          cast<ShapedType>(four), one))));
    }
    if (isa<BroadcastOp, arith::ExtFOp, arith::TruncFOp>(op))
      return rowsOfValue(op->getOperand(0), region);
    SmallVector<Components> operands;
    for (Value operand : op->getOperands()) {
      FailureOr<Components> all = rowsOfValue(operand, region);
      if (failed(all))
        return failure();
      operands.push_back(*all);
    }
    auto four = VectorType::get({4}, typeOf(value).getElementType());
    Components result;
    for (int64_t tile = 0; tile < count; ++tile) {
      SmallVector<Value> mine;
      for (const Components &operand : operands)
        mine.push_back(operand[static_cast<size_t>(tile)]);
      result.push_back(repeatElementwise(b, op, mine, four));
    }
    return result;
  };
  FailureOr<Components> result = emitAll();
  if (succeeded(result))
    rowsOfStacks[isDivided][value] = *result;
  return result;
}

bool GpuChunkKernel::isRowOp(Operation *op) const {
  return isa<ReadOp, PathSolveOp, PathProductOp, FoldDraftsOp>(op) ||
         (isa<EachDraftOp>(op) && isRowStack(op->getResult(0)));
}

LogicalResult GpuChunkKernel::emitRowOp(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ReadOp read) {
        emitRowRead(read);
        return success();
      })
      .Case([&](PathSolveOp solve) { return emitRowSolve(solve); })
      .Case([&](PathProductOp product) { return emitRowProduct(product); })
      .Case([&](FoldDraftsOp fold) { return emitRowFold(fold); })
      .Case([&](EachDraftOp region) { return emitRowDrafts(region); })
      .Default([](Operation *) { return success(); });
}

/// A region of what depends on reads: nothing but outputs leaves registers.
LogicalResult GpuChunkKernel::emitRowDrafts(EachDraftOp op) {
  if (blockPart == Part::All && failed(emitEarly(op, {})))
    return failure();
  llvm::SaveAndRestore divided(isDivided,
                               dividedStacks.contains(op.getResult(0)));
  for (auto [result, value] :
       llvm::zip(op.getResults(), op.getYield().getValues())) {
    FailureOr<Components> all = rowsOfValue(value, op);
    if (failed(all))
      return failure();
    rowsOfStacks[isDivided][result] = *all;
    for (auto [output, memory] : llvm::zip(step.getYieldedOutputs(), outputs))
      if (output == result)
        storeOutputRows(*all, memory, typeOf(value).getDimSize(0));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// Between the pool and registers.
void GpuChunkKernel::loadStateRows(BlockArgument pool) {
  unsigned argument = pool.getArgNumber();
  Value at = headIndex(cast<PoolType>(pool.getType()).getHeads());
  Value row = arith::AddIOp::create(b, tileStart, rowOfLane());
  Value column = arith::AddIOp::create(b, firstKey(), pairOfLane());
  Components &rows = heldRows[argument];
  rows.clear();
  for (int64_t first = 0; first < keysOfWarp(); first += kTileColumns) {
    SmallVector<Value> elements;
    for (int64_t half : {0, 1})
      for (int64_t i : {0, 1}) {
        Value v = add(row, 8 * half), c = add(column, first + i);
        if (isTransposed(argument))
          std::swap(v, c);
        elements.push_back(
            loadElement(memory[argument], {readState, at, v, c}));
      }
    rows.push_back(vector::FromElementsOp::create(
        b, VectorType::get({4}, b.getF32Type()), elements));
  }
}

void GpuChunkKernel::storeStateRows(BlockArgument pool) {
  unsigned argument = pool.getArgNumber();
  auto type = cast<PoolType>(pool.getType());
  Value at = headIndex(type.getHeads());
  Value row = arith::AddIOp::create(b, tileStart, rowOfLane());
  Value column = arith::AddIOp::create(b, firstKey(), pairOfLane());
  for (auto [tile, rows] : llvm::enumerate(heldRows[argument])) {
    Value stored = convertTo(rows, type.getElementType());
    for (int64_t half : {0, 1})
      for (int64_t i : {0, 1}) {
        Value v = add(row, 8 * half);
        Value c = add(column, static_cast<int64_t>(tile) * kTileColumns + i);
        if (isTransposed(argument))
          std::swap(v, c);
        memref::StoreOp::create(
            b, vector::ExtractOp::create(b, stored, 2 * half + i),
            memory[argument], ValueRange{writeState, at, v, c});
      }
  }
}
