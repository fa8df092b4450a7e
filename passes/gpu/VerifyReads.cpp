//===- VerifyReads.cpp - states and entries read by drafts on a GPU -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// One pass over the rows of a state, and one over the entries, for all vectors
// of all drafts. What comes out is in shared memory once, from where a thread
// takes its row of dv.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
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
/// Of which a row is a multiple where tensor cores multiply.
static constexpr int64_t kSlab = 16;

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

LogicalResult GpuVerifyKernel::storeState(StoreStateOp op) {
  if (!std::exchange(waited, true))
    waitForStates();
  Target target = targetOf(op);
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

/// Where the product of a warp's row and a vector lies.
Value GpuVerifyKernel::placeOfProduct(Value row, Value column) {
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  Value first = arith::MulIOp::create(b, warp, constantIndex(kWarp));
  return arith::AddIOp::create(
      b, arith::MulIOp::create(b, column, constantIndex(kWarp + kPadding)),
      arith::SubIOp::create(b, row, first));
}

/// Products of a warp lie where its rows were.
void GpuVerifyKernel::multiplyInTile(ArrayRef<Stack> stacks, Value tile,
                                     Value products) {
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  multiplyTile(stacks, tile, /*isOverwritten=*/true,
               [&](Value row, Value column, Value value) {
                 memref::StoreOp::create(
                     b, value, products,
                     ValueRange{warp, placeOfProduct(row, column)});
               });
  gpu::BarrierOp::create(b)->setAttr(kOfWarpAttr, b.getUnitAttr());
}

GpuKernel::Components GpuVerifyKernel::loadProducts(Value products,
                                                    int64_t columns) {
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  Components all;
  for (int64_t i = 0; i < columns; ++i)
    all.push_back(memref::LoadOp::create(
        b, products,
        ValueRange{warp, placeOfProduct(ownRow, constantIndex(i))}));
  return all;
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
  earlyProducts.clear();
  auto reads = step.getBody().front().getOps<ReadOp>();
  if (reads.empty())
    return;
  // Other vectors than tokens may be of this form alone, and come later. And of
  // many drafts, Gram products take their warp longer than entries take.
  constexpr int64_t fewDrafts = 4;
  if (turns == 1 && (!tokens || most() > fewDrafts ||
                     step.getBody().front().getOps<ReadBufferOp>().empty()))
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
    guarded(doesNotFold(), [&] {
      waitForStates();
      multiplyInTile(stacks, tile, products);
    });
    earlyProducts[first.getState()] = products;
    return;
  }
  Value products = placeOfEarlyReads(stacks);
  stateProducts.push_back(products);
  guarded(doesNotFold(), [&] {
    waitForStates();
    multiplyTile(stacks, tile, /*isOverwritten=*/false,
                 [&](Value row, Value column, Value value) {
                   memref::StoreOp::create(b, value, products,
                                           ValueRange{column, row});
                 });
    releaseTile(/*isStored=*/false);
  });
  earlyProducts[first.getState()] = products;
}

/// A read, and all others of the same state.
LogicalResult GpuVerifyKernel::emitStackReads(ReadOp wanted) {
  SmallVector<Query> queries = queriesOfState(wanted);
  SmallVector<Stack> stacks = stacksOf(queries);
  int64_t columns = countVectors(stacks);
  if (Value early = earlyProducts.lookup(wanted.getState())) {
    Components all;
    if (turns == 1)
      all = loadProducts(early, columns);
    for (int64_t i = 0; turns > 1 && i < columns; ++i)
      all.push_back(memref::LoadOp::create(
          b, early, ValueRange{constantIndex(i), ownRow}));
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
    multiplyInTile(stacks, *tile, products);
    keepRead({queries, stacks, loadProducts(products, columns)});
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
    scratch = shared({columns, schedule.tileRows + kPadding}, "state_products");
    stateProducts.push_back(scratch);
    usedProducts.insert(scratch);
  }
  multiplyTile(stacks, *tile, /*isOverwritten=*/false,
               [&](Value row, Value column, Value value) {
                 memref::StoreOp::create(b, value, scratch,
                                         ValueRange{column, row});
               });
  barrier();
  for (int64_t i = 0; i < columns; ++i)
    all.push_back(memref::LoadOp::create(b, scratch,
                                         ValueRange{constantIndex(i), ownRow}));
  keepRead({queries, stacks, all});
  return success();
}

/// Where a warp has the rows of its threads, what it reads of them can lie
/// where they did: nobody else has read them, and nobody will. Null if not.
Value GpuVerifyKernel::productsInTile(ReadOp wanted, Value tile,
                                      int64_t columns) {
  auto type = cast<MemRefType>(tile.getType());
  int64_t bits = type.getElementTypeBitWidth();
  int64_t ofWarp = kWarp * keySize * bits / 32;
  bool may = turns == 1 && keySize % kSlab == 0 &&
             schedule.threads == schedule.tileRows &&
             schedule.tileRows % kWarp == 0 &&
             rowsPerThread * (kWarp / lanes) == kWarp &&
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

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

/// Numbers of entries are with the lanes of a warp; products want them one by
/// one. Null if they weigh nothing.
Value GpuVerifyKernel::entryWeightsOf(ReadBufferOp op) {
  auto nameOf = [](std::optional<StringRef> name) {
    return name.value_or("").str();
  };
  auto [found, isNew] = entryWeights.try_emplace(
      {argumentOf(op.getBuffer()), op.getKey().str(), nameOf(op.getDecay()),
       nameOf(op.getKeyScale()), nameOf(op.getValueScale())});
  if (!isNew)
    return found->second;
  Components weights = weightsOfUse(op.getBuffer(), op.getKey(), op.getDecay(),
                                    {op.getKeyScale(), op.getValueScale()});
  if (weights.empty())
    return {};
  Value memory =
      shared({static_cast<int64_t>(weights.size()) * kWarp}, "entry_weights");
  guarded(isBelow(thread, kWarp), [&] {
    for (auto [i, part] : llvm::enumerate(weights))
      memref::StoreOp::create(
          b, part, memory,
          ValueRange{add(warpLane, static_cast<int64_t>(i) * kWarp)});
  });
  written.insert(memory);
  return found->second = memory;
}

/// A warp that multiplies keys as they came has read them when it stores what
/// comes out: it can lie where they did, if nobody else wants them. Null if
/// not.
Value GpuVerifyKernel::dotsInKeys(ReadBufferOp op, ArrayRef<Stack> stacks) {
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  auto found =
      stagedFields.find({argumentOf(op.getBuffer()), op.getKey().str()});
  if (!tokens || stacks.front().memory != tokens || keySize % kSlab != 0 ||
      componentCount(field) != 1 || !field.getElementType().isBF16() ||
      found == stagedFields.end() || countVectors(stacks) > keySize / 2)
    return {};
  for (Operation &other : *op->getBlock())
    if (&other != op &&
        isa<ReadBufferOp, FoldBufferOp, ReplayOp, TransportOp>(other) &&
        llvm::is_contained(other.getOperands(), op.getBuffer()))
      return {};
  return sharedIn(found->second, {mostEntries(), keySize / 2}, "entry_dots");
}

/// Products of tokens with the keys of entries, which heads that take turns
/// have in common.
void GpuVerifyKernel::emitEntryDots(ReadBufferOp op) {
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  if (componentCount(field) != 1 || isOfTurn(field.getShape().front()))
    return;
  SmallVector<Query> queries;
  for (auto [query, result] : llvm::zip(op.getQueries(), op.getResults()))
    queries.push_back(queryOf(query, result));
  SmallVector<Stack> stacks = stacksOf(queries);
  Value &dots = entryDots[op.getResult(0)];
  dots = shared({mostEntries(), countVectors(stacks)}, "entry_dots");
  multiplyEntries(op, stacks, dots, /*weightOf=*/{}, /*isInKeys=*/false);
  written.insert(dots);
}

/// Whether a multiprocessor has room for one more block if values of entries
/// take none. A thread then has its row, of as many entries as there can be.
bool GpuVerifyKernel::mayHoldValues() {
  constexpr int64_t memory = 228 << 10, ofBlock = 1 << 10, most = 16;
  // Of each draft; and where entries are and what they weigh.
  constexpr int64_t numbers = 10, ofEntries = 304;
  if (turns > 1 || !entryPlaces || page() || !tokens || mostEntries() > most ||
      schedule.threads != schedule.tileRows)
    return false;
  int64_t bytes = ofEntries + schedule.tileRows * keySize * stateBits / 8 +
                  tokenCount * tokenPitch * 2 + numbers * this->most() * 4 +
                  4 * this->most() * llvm::alignTo(this->most(), 4) * 4;
  int64_t ofValues = 0;
  for (BlockArgument argument : step.getBody().getArguments()) {
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (FieldAttr field :
         buffer ? buffer.getFields() : ArrayRef<FieldAttr>()) {
      if (field.getShape().size() != 2)
        continue;
      bool isValue = field.getSide() == Side::Value;
      (isValue ? ofValues : bytes) +=
          mostEntries() *
          (isValue ? schedule.tileRows : field.getShape().back()) *
          field.getElementType().getIntOrFloatBitWidth() / 8;
    }
  }
  bool isSimple = true;
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      isSimple &= !isa<TransportOp, ReplayOp>(op);
      if (auto read = dyn_cast<ReadBufferOp>(op))
        isSimple &= componentCount(read.getBuffer().getType().getField(
                        read.getValue())) == 1;
    });
  return isSimple &&
         memory / (ofBlock + bytes) > memory / (ofBlock + bytes + ofValues);
}

/// Loads the values of entries for the rows of threads, all at once. What folds
/// finds them in the first cache.
void GpuVerifyKernel::holdValues() {
  if (!holdsValues)
    return;
  for (auto read : step.getBody().front().getOps<ReadBufferOp>()) {
    Value buffer = read.getBuffer();
    FieldAttr field = read.getBuffer().getType().getField(read.getValue());
    SmallVector<Value> &held = heldValues[read];
    // Of fewer entries the last stands for the others: addresses that depend on
    // a branch would be computed in it, each anew.
    Value last = arith::MaxSIOp::create(
        b, arith::SubIOp::create(b, length, constantIndex(1)),
        constantIndex(0));
    for (int64_t i = 0; i < mostEntries(); ++i) {
      Value entry = arith::MinSIOp::create(b, constantIndex(i), last);
      auto [from, at] = entryMemory(buffer, field, 0, entry);
      at.push_back(arith::AddIOp::create(b, tileStart, ownRow));
      held.push_back(memref::LoadOp::create(b, from, at));
    }
  }
}

/// The sums of values that threads have, times `dots` [L, count].
GpuKernel::Components GpuVerifyKernel::sumHeldValues(ArrayRef<Value> held,
                                                     Value dots,
                                                     int64_t count) {
  Components sums(count, constantFloat(0));
  SmallVector<Type> types(count, b.getF32Type());
  for (auto [i, each] : llvm::enumerate(held)) {
    Value entry = constantIndex(static_cast<int64_t>(i));
    Value isThere =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, entry, length);
    auto branch = scf::IfOp::create(b, types, isThere, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, sums);
    b.setInsertionPointToStart(branch.thenBlock());
    Value value = toF32(each);
    SmallVector<Value> next;
    for (int64_t first = 0; first < count; first += 4) {
      int64_t wide = std::min<int64_t>(4, count - first);
      Value weights =
          vector::LoadOp::create(b, VectorType::get({wide}, b.getF32Type()),
                                 dots, ValueRange{entry, constantIndex(first)});
      for (int64_t j = 0; j < wide; ++j)
        next.push_back(
            math::FmaOp::create(b, vector::ExtractOp::create(b, weights, j),
                                value, sums[first + j]));
    }
    scf::YieldOp::create(b, next);
    sums = Components(branch.getResults());
  }
  return sums;
}

LogicalResult GpuVerifyKernel::emitStackEntries(ReadBufferOp op) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  int64_t ranks = componentCount(field);
  SmallVector<Query> queries;
  for (auto [query, result] : llvm::zip(op.getQueries(), op.getResults()))
    queries.push_back(queryOf(query, result));
  SmallVector<Stack> stacks = stacksOf(queries);
  int64_t count = countVectors(stacks);
  if (op.getDecay())
    decaysOf(buffer, *op.getDecay());
  Value weightOf = entryWeightsOf(op);
  sync();
  if (Value dots = entryDots.lookup(op.getResult(0))) {
    keepRead({queries, stacks,
              sumWeightedValues(buffer, {{op.getValue(), ranks}}, dots, count,
                                weightOf)});
    return success();
  }
  Value scratch = dotsInKeys(op, stacks);
  bool isInKeys = bool(scratch);
  if (!isInKeys)
    scratch = shared({mostEntries(), count * ranks}, "entry_dots");
  multiplyEntries(op, stacks, scratch, weightOf, isInKeys);
  barrier();
  if (auto held = heldValues.find(op); held != heldValues.end()) {
    keepRead({queries, stacks, sumHeldValues(held->second, scratch, count)});
    return success();
  }
  keepRead(
      {queries, stacks,
       sumWeightedValues(buffer, {{op.getValue(), ranks}}, scratch, count)});
  return success();
}

void GpuVerifyKernel::multiplyEntries(ReadBufferOp op, ArrayRef<Stack> stacks,
                                      Value scratch, Value weightOf,
                                      bool isInKeys) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  int64_t ranks = componentCount(field);
  const DecayedKey *decayed = decayedKey(buffer, op.getKey(), op.getDecay());
  auto entryOf = [&](Value row) -> Value {
    return ranks == 1
               ? row
               : Value(arith::DivUIOp::create(b, row, constantIndex(ranks)));
  };
  auto load = [&](Value row, Value from, int64_t width) -> Value {
    auto loadOf = [&](Value memory, ArrayRef<Value> outer) -> Value {
      SmallVector<Value> at(outer);
      at.push_back(from);
      Type each = cast<MemRefType>(memory.getType()).getElementType();
      return vector::LoadOp::create(b, VectorType::get({width}, each), memory,
                                    at);
    };
    if (decayed)
      return loadOf(decayed->memory, {row});
    if (isStaged(argumentOf(buffer), field)) {
      auto [memory, at] = entryMemory(buffer, field, 0, constantIndex(0));
      return loadOf(memory, {row});
    }
    auto [memory, at] = entryMemory(buffer, field, 0, entryOf(row));
    if (ranks > 1)
      at.back() = arith::RemUIOp::create(b, row, constantIndex(ranks));
    return loadOf(memory, at);
  };
  Type element = decayed ? Type(b.getF32Type()) : field.getElementType();
  multiply(stacks,
           {arith::MulIOp::create(b, length, constantIndex(ranks)),
            mostEntries() * ranks, element, load, isInKeys},
           [&](Value row, Value column, Value value) {
             Value entry = entryOf(row);
             if (weightOf)
               value = arith::MulFOp::create(
                   b, value,
                   memref::LoadOp::create(b, weightOf, ValueRange{entry}));
             Value at = column;
             if (ranks > 1)
               at = arith::AddIOp::create(
                   b, arith::MulIOp::create(b, column, constantIndex(ranks)),
                   arith::RemUIOp::create(b, row, constantIndex(ranks)));
             memref::StoreOp::create(b, value, scratch, ValueRange{entry, at});
           });
}

/// Vectors that go back through raw entries: a group of lanes takes a vector.
LogicalResult GpuVerifyKernel::emitStackTransport(TransportOp op) {
  sync();
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  Place place = keyPlace(keySize);
  SmallVector<Query> queries;
  SmallVector<Stack> stacks, origins;
  for (auto [query, origin, partial] :
       llvm::zip(op.getQueries(), op.getOrigins(), op.getPartials())) {
    stacks.push_back(teamOf(query));
    queries.push_back({partial, {{stacks.back(), {}}}, {}});
    origins.push_back(teamOf(origin));
  }
  int64_t count = countVectors(stacks);
  SmallVector<std::pair<StringRef, int64_t>> names;
  int64_t products = 0;
  for (StringAttr value : transition.getValues())
    if (!value.empty()) {
      names.emplace_back(value.getValue(),
                         componentCount(type.getField(value.getValue())));
      products += names.back().second;
    }
  Value scratch =
      shared({type.getCapacity(), std::max<int64_t>(1, products * count)},
             "entry_dots");
  int64_t groups = schedule.threads / lanes;
  auto rounds = scf::ForOp::create(
      b, constantIndex(0), constantIndex(llvm::divideCeil(count, groups)),
      constantIndex(1));
  rounds->setAttr("ladle.rolled", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard outer(b);
    b.setInsertionPointToStart(rounds.getBody());
    Value column =
        arith::AddIOp::create(b, group,
                              arith::MulIOp::create(b, rounds.getInductionVar(),
                                                    constantIndex(groups)));
    Value valid = isBelow(column, count);
    column = arith::MinSIOp::create(b, column, constantIndex(count - 1));
    Components initial =
        loadVector(vectors, {vectorRow(column, stacks)}, place);
    auto loop = scf::ForOp::create(b, constantIndex(0), length,
                                   constantIndex(1), initial);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value position =
          arith::SubIOp::create(b, lastEntry(), loop.getInductionVar());
      Transition entry = loadTransition(buffer, transition, position);
      Components weights;
      Components next = passBack(entry, transition, buffer, position,
                                 Components(loop.getRegionIterArgs()), weights);
      guarded(both(valid, isBelow(lane, 1)), [&] {
        for (auto [i, weight] : llvm::enumerate(weights))
          memref::StoreOp::create(
              b, weight, scratch,
              ValueRange{position, add(arith::MulIOp::create(
                                           b, column, constantIndex(products)),
                                       static_cast<int64_t>(i))});
      });
      scf::YieldOp::create(b, next);
    }
    Value row = vectorRow(column, origins);
    guarded(valid, [&] {
      for (auto [c, part] : llvm::enumerate(loop.getResults()))
        vector::StoreOp::create(
            b, part, vectors,
            ValueRange{row, chunkStart(place, static_cast<int64_t>(c))});
    });
  }
  written.insert(vectors);
  if (products == 0) {
    keepRead({queries, stacks, Components(count, constantFloat(0))});
    return success();
  }
  sync();
  keepRead({queries, stacks, sumWeightedValues(buffer, names, scratch, count)});
  return success();
}
