//===- VerifyReads.cpp - states read by drafts on a GPU -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// One pass over the rows of a state for all vectors of all drafts. What comes
// out is in shared memory once, from where a thread takes its row of dv.
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
/// Elements between the products of two vectors.
static constexpr int64_t kPadding = 4;

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

LogicalResult GpuVerifyKernel::storeState(StoreStateOp op) {
  if (!std::exchange(waited, true))
    waitForStates();
  Target target = targetOf(op);
  if (!target.inPlace)
    allowWrites();
  unsigned argument = cast<BlockArgument>(op.getPool()).getArgNumber();
  bool isRead = llvm::any_of(op.getPool().getUsers(), [&](Operation *user) {
    return isa<LoadStateOp>(user) && op->isBeforeInBlock(user) &&
           !user->use_empty();
  });
  if (!target.inPlace && isRead) {
    // Who stores a row is the one that has read it.
    auto staged = stagedStates.find(argument);
    target.tile =
        staged != stagedStates.end() && keepsRows()
            ? staged->second
            : shared({schedule.tileRows, keySize},
                     (step.getArgumentName(argument) + "_stored").str(),
                     cast<PoolType>(op.getPool().getType()).getElementType());
  }
  if (failed(emitStore(target)))
    return failure();
  storedTiles[argument] = target.tile;
  // A tile that leaves in one piece is there.
  if (target.inPlace)
    written.clear();
  else if (target.tile)
    written.insert(target.tile);
  return success();
}

/// Where the rows of a state were copied to that it is rebuilt of, if they are
/// f32 and nobody else reads them. Null for nothing.
Value GpuVerifyKernel::rebuiltInPlace(Value state) {
  Value first = state;
  while (Operation *op = first.getDefiningOp()) {
    if (!isa<DecayOp, FoldBufferOp, ReplayOp>(op))
      break;
    first = op->getOperand(0);
  }
  auto load = first.getDefiningOp<LoadStateOp>();
  if (!load || !load->hasOneUse() || !keepsRows() || stateBits != 32)
    return {};
  return stagedStates.lookup(
      cast<BlockArgument>(load.getPool()).getArgNumber());
}

/// The rows of a state, [rows of the tile, dk].
FailureOr<Value> GpuVerifyKernel::tileOf(Value state) {
  if (!std::exchange(waited, true))
    waitForStates();
  if (auto load = state.getDefiningOp<LoadStateOp>()) {
    unsigned argument = cast<BlockArgument>(load.getPool()).getArgNumber();
    if (Value stored = storedTiles.lookup(argument))
      return stored;
    return stagedStates[argument];
  }
  Value &tile = rebuiltTiles[state];
  if (tile)
    return tile;
  tile = rebuiltInPlace(state);
  if (!tile)
    tile = shared({schedule.tileRows, keySize}, "rebuilt_tile");
  Value made = tile;
  if (failed(emitStore(Target{state, {}, made, /*inPlace=*/false})))
    return failure();
  written.insert(made);
  return made;
}

/// What all reads of a state multiply.
SmallVector<GpuVerifyKernel::Query>
GpuVerifyKernel::queriesOfState(ReadOp wanted) {
  SmallVector<Query> queries;
  for (Operation &op : wanted->getBlock()->getOperations())
    if (auto read = dyn_cast<ReadOp>(op);
        read && read.getState() == wanted.getState())
      queries.push_back(queryOf(read.getQuery(), read.getResult()));
  return queries;
}

void GpuVerifyKernel::multiplyTile(ArrayRef<Stack> stacks, Value tile,
                                   bool isOverwritten, StoreProduct store) {
  Type element = cast<MemRefType>(tile.getType()).getElementType();
  auto load = [&](Value row, Value from, int64_t count) -> Value {
    return vector::LoadOp::create(b, VectorType::get({count}, element), tile,
                                  ValueRange{row, from});
  };
  multiply(stacks,
           {constantIndex(schedule.tileRows), schedule.tileRows, element, load,
            isOverwritten},
           store);
}

/// Tokens that neither states nor entries are read with were multiplied before
/// the first turn, and leave their rows.
Value GpuVerifyKernel::placeOfEarlyReads(ArrayRef<Stack> stacks) {
  SmallVector<int64_t> shape{countVectors(stacks),
                             schedule.tileRows + kPadding};
  int64_t rows = stacks.front().first;
  for (auto read : step.getBody().front().getOps<ReadBufferOp>())
    for (auto [query, result] : llvm::zip(read.getQueries(), read.getResults()))
      for (const Term &term : queryOf(query, result).terms)
        rows = std::min(rows, term.stack.first);
  bool isRoom = stacks.front().memory == tokens &&
                rows * tokenPitch * 2 >= shape[0] * shape[1] * 4;
  return isRoom ? sharedIn(tokens, shape, "state_products")
                : shared(shape, "state_products");
}

/// A tile is multiplied while entries are on their way, or, if it came while
/// another head was computed, first of all: what a turn loads arrives
/// meanwhile. Rows that fold multiply what they store.
void GpuVerifyKernel::emitEarlyReads() {
  earlyReads.clear();
  auto reads = step.getBody().front().getOps<ReadOp>();
  if (reads.empty())
    return;
  // Other vectors than tokens may be of this form alone, and come later. And of
  // many drafts, Gram products take their warp longer than entries take.
  constexpr int64_t fewDrafts = 4;
  if (turns == 1 && (!tokens || most() > fewDrafts ||
                     step.getBody().front().getOps<ReadBufferOp>().empty()))
    return;
  // Regions of this form alone come later, in its branch.
  for (auto &[stack, sum] : terms)
    for (const ChunkTerm &term : sum)
      if (Operation *region = canonical(term.base).getDefiningOp();
          turns == 1 && region->getParentOp() == step &&
          !emittedDrafts.contains(region))
        return;
  ReadOp first = *reads.begin();
  auto load = first.getState().getDefiningOp<LoadStateOp>();
  if (!load)
    return;
  Value tile = stagedStates[cast<BlockArgument>(load.getPool()).getArgNumber()];
  SmallVector<Stack> stacks = stacksOf(queriesOfState(first));
  if (turns == 1) {
    Value products = productsInTile(first, tile, countVectors(stacks));
    if (!products)
      return;
    sync({tokens});
    earlyReads[first.getState()] = {products, sumTileEarly(stacks, tile)};
    return;
  }
  Value products = placeOfEarlyReads(stacks);
  stateProducts.push_back(products);
  earlyReads[first.getState()] = {products, {}};
  guarded(doesNotFold(), [&] {
    waitForStates();
    multiplyTile(stacks, tile, /*isOverwritten=*/false,
                 [&](Value row, Value column, Value value) {
                   memref::StoreOp::create(b, value, products,
                                           ValueRange{column, row});
                 });
    releaseTile(/*isStored=*/false);
  });
}

/// What tensor cores have of a tile, and what entries add to it.
void GpuVerifyKernel::keepSums(ReadOp wanted, Read read, TileSums sums,
                               Value products) {
  ReadBufferOp entries;
  if (holdsValues && wanted->getParentOp() == step)
    entries = entriesOfState();
  if (entries)
    sums = addHeldValues(read.stacks, read.queries.front(), std::move(sums));
  read.components = exchangeSums(read.stacks, sums, products);
  if (!entries)
    return keepRead(read);
  for (const Query &query : read.queries) {
    Value pair = pairs.lookup(query.result);
    rowStacks[canonical(query.result)] =
        scaleRead(read, queryOf(queryOfEntries(entries, pair), pair));
  }
}

/// A read, and all others of the same state.
LogicalResult GpuVerifyKernel::emitStackReads(ReadOp wanted) {
  SmallVector<Query> queries = queriesOfState(wanted);
  SmallVector<Stack> stacks = stacksOf(queries);
  int64_t columns = countVectors(stacks);
  if (auto early = earlyReads.find(wanted.getState());
      early != earlyReads.end()) {
    auto &[products, sums] = early->second;
    if (!sums.sums.empty()) {
      keepSums(wanted, {queries, stacks, {}}, sums, products);
      return success();
    }
    Components all;
    for (int64_t i = 0; i < columns; ++i)
      all.push_back(memref::LoadOp::create(
          b, products, ValueRange{constantIndex(i), ownRow}));
    keepRead({queries, stacks, all});
    return success();
  }
  FailureOr<Value> tile = tileOf(wanted.getState());
  if (failed(tile))
    return failure();
  sync();
  if (Value products = productsInTile(wanted, *tile, columns)) {
    // Nobody copies from it any more.
    if (llvm::is_contained(llvm::make_second_range(storedTiles), *tile))
      barrier();
    keepSums(wanted, {queries, stacks, {}}, sumTile(stacks, *tile), products);
    return success();
  }
  Components all;
  // A row takes one of the forms, and they the same memory.
  Value scratch;
  for (Value known : stateProducts)
    if (cast<MemRefType>(known.getType()).getDimSize(0) == columns &&
        usedProducts.insert(known).second) {
      scratch = known;
      break;
    }
  if (!scratch) {
    scratch = placeOfStateProducts(columns);
    stateProducts.push_back(scratch);
    usedProducts.insert(scratch);
  }
  multiplyTile(stacks, *tile, /*isOverwritten=*/false,
               [&](Value row, Value column, Value value) {
                 memref::StoreOp::create(b, value, scratch,
                                         ValueRange{column, row});
               });
  if (!releaseStoredTile(wanted, *tile))
    barrier();
  if (turns == 1 &&
      !llvm::is_contained(llvm::make_second_range(storedTiles), *tile))
    readTiles.insert(*tile);
  for (int64_t i = 0; i < columns; ++i)
    all.push_back(memref::LoadOp::create(b, scratch,
                                         ValueRange{constantIndex(i), ownRow}));
  keepRead({queries, stacks, all});
  return success();
}

/// Memory for what is read of a state: where keys lie that have decayed, if
/// there is room. Entries have been read, or folded, by then, where there is no
/// other state that they may be folded into.
Value GpuVerifyKernel::placeOfStateProducts(int64_t columns) {
  SmallVector<int64_t> shape{columns, schedule.tileRows + kPadding};
  bool isOnly = llvm::count_if(step.getBody().getArgumentTypes(),
                               llvm::IsaPred<PoolType>) == 1;
  for (const auto &[at, keys] : decayedKeys)
    for (const DecayedKey &key : keys)
      if (turns == 1 && isOnly && key.memory &&
          32 * shape[0] * shape[1] <= bitsOf(key.memory)) {
        barrier();
        return sharedIn(key.memory, shape, "state_products");
      }
  return shared(shape, "state_products");
}

/// Where a warp has the rows of its threads, what it reads of them can lie
/// where they did: nobody else has read them, and nobody will. Null if not.
Value GpuVerifyKernel::productsInTile(ReadOp wanted, Value tile,
                                      int64_t columns) {
  auto type = cast<MemRefType>(tile.getType());
  int64_t bits = type.getElementTypeBitWidth();
  int64_t ofWarp = kWarp * keySize * bits / 32;
  bool may = turns == 1 && hasRowsOfThreads() &&
             type.getShape() == ArrayRef<int64_t>{schedule.tileRows, keySize} &&
             columns * (kWarp + kPadding) <= ofWarp;
  for (auto read : wanted->getBlock()->getOps<ReadOp>()) {
    may &= read.getState() == wanted.getState();
    for (auto store : read->getBlock()->getOps<StoreStateOp>())
      may &= store->isBeforeInBlock(read);
  }
  if (!may)
    return {};
  Value &products = productsInTiles[tile];
  if (!products)
    products =
        sharedIn(tile, {schedule.threads / kWarp, ofWarp}, "state_products");
  return products;
}
