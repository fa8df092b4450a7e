//===- VerifyReads.cpp - states and entries read by drafts on a GPU -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A product of tiles takes 8 vectors, the upper parts of all above the lower
// parts, and 8 rows. Thread 4 g + t loads four elements at once of row g: which
// columns a product takes does not matter as long as rows and vectors agree. An
// f32 is the sum of what it is without its last 13 bits, its upper part, and of
// the rest, so that products of parts are as good as f32.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"
#include <array>

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// Of a product of tiles.
static constexpr int64_t kTileRows = 8, kTileVectors = 8;
/// Elements that a lane has of a row at a time.
static constexpr int64_t kPart = 4;
static constexpr int64_t kSlab = 4 * kPart;
/// Elements between the products of two vectors.
static constexpr int64_t kPadding = 4;

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

GpuVerifyKernel::Query GpuVerifyKernel::queryOf(Value query, Value result) {
  auto found = scaled.find(canonical(query));
  if (found == scaled.end())
    return {result, teamOf(query), {}};
  return {result, teamOf(found->second.stack), found->second.factors};
}

int64_t GpuVerifyKernel::countVectors(ArrayRef<Query> queries) const {
  int64_t count = 0;
  for (const Query &query : queries)
    count += drafts * query.stack.components;
  return count;
}

/// The row of `vectors` that a column of a product is for.
Value GpuVerifyKernel::vectorRow(Value column, ArrayRef<Query> queries) {
  Value row;
  int64_t begin = 0, shift = 0;
  for (const Query &query : queries) {
    int64_t mine = query.stack.first - begin;
    if (!row) {
      row = add(column, mine);
    } else if (mine != shift) {
      Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, column,
                                           constantIndex(begin));
      row = arith::SelectOp::create(b, isMine, add(column, mine), row);
    }
    shift = mine;
    begin += most() * query.stack.components;
  }
  // A tile of columns may be wider than there are vectors.
  if (begin % kTileVectors != 0 && keySize % kSlab == 0)
    row = arith::MinSIOp::create(b, row, constantIndex(vectorCount - 1));
  return row;
}

/// What was read, times the numbers that the vectors were not multiplied by.
void GpuVerifyKernel::keepRead(ArrayRef<Query> queries,
                               ArrayRef<Value> components) {
  for (const Query &query : queries) {
    int64_t each = query.stack.components;
    Components mine(components.take_front(most() * each));
    components = components.drop_front(most() * each);
    for (Value factor : query.factors)
      for (int64_t draft = 0; draft < most(); ++draft) {
        Value number;
        if (factor.getDefiningOp<DecayProductOp>()) {
          FailureOr<Components> product = get(factor, Place());
          number = product->front();
        } else {
          number =
              loadStack(teamOf(factor), constantIndex(draft), Place()).front();
        }
        for (int64_t i = 0; i < each; ++i) {
          Value &part = mine[draft * each + i];
          part = arith::MulFOp::create(b, part, number);
        }
      }
    rowStacks[canonical(query.result)] = mine;
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::multiply(ArrayRef<Query> queries, Value rows,
                               int64_t mostRows, bool isShort, LoadRow load,
                               StoreProduct store) {
  if (keySize % kSlab == 0)
    return multiplyByTiles(queries, rows, mostRows, isShort, load, store);
  // A thread takes a row and a vector.
  int64_t columns = countVectors(queries);
  Value all = arith::MulIOp::create(b, rows, constantIndex(columns));
  auto loop =
      scf::ForOp::create(b, thread, all, constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value i = loop.getInductionVar();
  Value row = arith::DivUIOp::create(b, i, constantIndex(columns));
  Value column = arith::RemUIOp::create(b, i, constantIndex(columns));
  Value vector = vectorRow(column, queries);
  auto sum = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                constantIndex(1), ValueRange{constantFloat(0)});
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(sum.getBody());
    Value at = sum.getInductionVar();
    Value mine = vector::ExtractOp::create(b, load(row, at, 1), 0);
    Value other = memref::LoadOp::create(b, vectors, ValueRange{vector, at});
    Value term = arith::MulFOp::create(b, mine, other);
    Value next = arith::AddFOp::create(b, sum.getRegionIterArg(0), term);
    scf::YieldOp::create(b, next);
  }
  store(row, column, sum.getResult(0));
}

/// Vectors are the rows of the left operand, upper parts above lower parts, and
/// the rows of a state the columns of the right one: what a lane loads of a row
/// lies in registers as products take it.
void GpuVerifyKernel::multiplyByTiles(ArrayRef<Query> queries, Value rows,
                                      int64_t mostRows, bool isShort,
                                      LoadRow load, StoreProduct store) {
  int64_t tilesOfVectors =
      llvm::divideCeil(countVectors(queries), kTileVectors);
  int64_t warps = schedule.threads / kWarp;
  // Tiles of rows share what is loaded of vectors, if a warp has so many.
  int64_t together = 1;
  while (together < 4 && mostRows >= 2 * together * kTileRows * warps)
    together *= 2;
  Type f32 = b.getF32Type();
  auto part = VectorType::get({kPart}, f32);
  auto bits = VectorType::get({kPart}, b.getI32Type());
  Value cut = arith::ConstantOp::create(
      b, DenseElementsAttr::get(bits, static_cast<int32_t>(0xffffe000u)));
  auto split = [&](Value value) -> std::pair<Value, Value> {
    Value upper = arith::BitcastOp::create(
        b, part,
        arith::AndIOp::create(b, arith::BitcastOp::create(b, bits, value),
                              cut));
    return {upper, arith::SubFOp::create(b, value, upper)};
  };
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = arith::DivUIOp::create(b, warpLane, constantIndex(4));
  SmallVector<Value> vectorRows;
  for (int64_t j = 0; j < tilesOfVectors; ++j)
    vectorRows.push_back(vectorRow(add(ofGroup, j * kTileVectors), queries));

  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  int64_t stride = kTileRows * together;
  auto loop = scf::ForOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(stride)), rows,
      constantIndex(warps * stride));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value last = arith::SubIOp::create(b, rows, constantIndex(1));
  SmallVector<Value> held;
  for (int64_t i = 0; i < together; ++i) {
    Value row = arith::AddIOp::create(b, loop.getInductionVar(), ofGroup);
    held.push_back(arith::MinSIOp::create(b, add(row, i * kTileRows), last));
  }
  auto accumulator = VectorType::get({4}, f32);
  // A product waits for the one that it is added to: with few tiles, those of
  // upper and lower parts of rows have sums of their own.
  int64_t tilesAtOnce = together * tilesOfVectors;
  int64_t sumsOfTile = isShort || tilesAtOnce > 2 ? 1 : 2;
  SmallVector<Value> zeros(
      tilesAtOnce * sumsOfTile,
      arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
  auto slabs = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                  constantIndex(kSlab), zeros);
  if (tilesAtOnce <= 8)
    slabs->setAttr("ladle.unroll", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(slabs.getBody());
    Value from = arith::AddIOp::create(
        b, slabs.getInductionVar(),
        arith::MulIOp::create(b, inGroup, constantIndex(kPart)));
    auto element = [&](Value value, int64_t i) -> Value {
      return vector::ExtractOp::create(b, value, i);
    };
    // Two products take a slab: each half of what a lane has of it.
    SmallVector<std::array<Value, 2>> ofVectors;
    for (Value row : vectorRows) {
      auto [upper, lower] = split(
          vector::LoadOp::create(b, part, vectors, ValueRange{row, from}));
      auto &halves = ofVectors.emplace_back();
      for (int64_t half = 0; half < 2; ++half)
        halves[half] = vector::FromElementsOp::create(
            b, VectorType::get({4}, f32),
            ValueRange{element(upper, 2 * half), element(lower, 2 * half),
                       element(upper, 2 * half + 1),
                       element(lower, 2 * half + 1)});
    }
    SmallVector<Value> next(slabs.getRegionIterArgs());
    for (auto [i, row] : llvm::enumerate(held)) {
      Value all = load(row, from, kPart);
      SmallVector<Value, 2> parts{all};
      if (!isShort) {
        auto [upper, lower] = split(all);
        parts = {upper, lower};
      }
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t j = 0; j < tilesOfVectors; ++j)
          // The smallest come first.
          for (size_t k = parts.size(); k-- > 0;) {
            Value ofRow = vector::FromElementsOp::create(
                b, VectorType::get({2}, f32),
                ValueRange{element(parts[k], 2 * half),
                           element(parts[k], 2 * half + 1)});
            int64_t tile = static_cast<int64_t>(i) * tilesOfVectors + j;
            Value &sum =
                next[tile * sumsOfTile + static_cast<int64_t>(k) % sumsOfTile];
            sum = multiplyShortTiles(ofVectors[j][half], ofRow, sum);
          }
    }
    scf::YieldOp::create(b, next);
  }
  Value column = arith::MulIOp::create(b, inGroup, constantIndex(2));
  for (int64_t i = 0; i < together; ++i)
    for (int64_t side = 0; side < 2; ++side) {
      Value row = arith::AddIOp::create(b, loop.getInductionVar(), column);
      row = add(row, i * kTileRows + side);
      Value isThere =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, rows);
      guarded(isThere, [&] {
        for (int64_t j = 0; j < tilesOfVectors; ++j) {
          Value sum;
          for (int64_t k = sumsOfTile; k-- > 0;)
            for (int64_t lower : {2, 0}) {
              Value term = vector::ExtractOp::create(
                  b, slabs.getResult((i * tilesOfVectors + j) * sumsOfTile + k),
                  lower + side);
              sum = sum ? Value(arith::AddFOp::create(b, sum, term)) : term;
            }
          store(row, add(ofGroup, j * kTileVectors), sum);
        }
      });
    }
}

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

/// A read, and all others of the same state.
LogicalResult GpuVerifyKernel::emitStackReads(ReadOp wanted) {
  SmallVector<Query> queries;
  for (Operation &op : wanted->getBlock()->getOperations())
    if (auto read = dyn_cast<ReadOp>(op);
        read && read.getState() == wanted.getState())
      queries.push_back(queryOf(read.getQuery(), read.getResult()));
  FailureOr<Value> tile = tileOf(wanted.getState());
  if (failed(tile))
    return failure();
  sync();
  int64_t columns = llvm::alignTo(countVectors(queries), kTileVectors);
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
  Type element = cast<MemRefType>(tile->getType()).getElementType();
  multiply(
      queries, constantIndex(schedule.tileRows), schedule.tileRows,
      element.isBF16() || element.isF16(),
      [&](Value row, Value from, int64_t count) {
        return toF32(vector::LoadOp::create(b,
                                            VectorType::get({count}, element),
                                            *tile, ValueRange{row, from}));
      },
      [&](Value row, Value column, Value value) {
        memref::StoreOp::create(b, value, scratch, ValueRange{column, row});
      });
  barrier();
  Components all;
  for (int64_t i = 0, e = countVectors(queries); i < e; ++i)
    all.push_back(memref::LoadOp::create(b, scratch,
                                         ValueRange{constantIndex(i), ownRow}));
  keepRead(queries, all);
  return success();
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

LogicalResult GpuVerifyKernel::emitStackEntries(ReadBufferOp op) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  int64_t ranks = componentCount(field);
  SmallVector<Query> queries;
  for (auto [query, result] : llvm::zip(op.getQueries(), op.getResults()))
    queries.push_back(queryOf(query, result));
  int64_t count = countVectors(queries);
  if (op.getDecay())
    decaysOf(buffer, *op.getDecay());
  const DecayedKey *decayed = decayedKey(buffer, op.getKey(), op.getDecay());
  Value weightOf = entryWeightsOf(op);
  sync();
  int64_t columns = count * ranks;
  Value scratch = shared({type.getCapacity(), columns}, "entry_dots");
  auto entryOf = [&](Value row) -> Value {
    return ranks == 1
               ? row
               : Value(arith::DivUIOp::create(b, row, constantIndex(ranks)));
  };
  Value rows = arith::MulIOp::create(b, length, constantIndex(ranks));
  Type element = field.getElementType();
  bool isShort = (element.isBF16() || element.isF16()) && !decayed;
  multiply(
      queries, rows, type.getCapacity() * ranks, isShort,
      [&](Value row, Value from, int64_t width) {
        auto load = [&](Value memory, ArrayRef<Value> outer) -> Value {
          SmallVector<Value> at(outer);
          at.push_back(from);
          Type each = cast<MemRefType>(memory.getType()).getElementType();
          return toF32(vector::LoadOp::create(b, VectorType::get({width}, each),
                                              memory, at));
        };
        if (decayed)
          return load(decayed->memory, {row});
        if (isStaged(argumentOf(buffer), field)) {
          auto [memory, at] = entryMemory(buffer, field, 0, constantIndex(0));
          return load(memory, {row});
        }
        auto [memory, at] = entryMemory(buffer, field, 0, entryOf(row));
        if (ranks > 1)
          at.back() = arith::RemUIOp::create(b, row, constantIndex(ranks));
        return load(memory, at);
      },
      [&](Value row, Value column, Value value) {
        Value entry = entryOf(row);
        if (weightOf)
          value = arith::MulFOp::create(
              b, value, memref::LoadOp::create(b, weightOf, ValueRange{entry}));
        Value at = column;
        if (ranks > 1)
          at = arith::AddIOp::create(
              b, arith::MulIOp::create(b, column, constantIndex(ranks)),
              arith::RemUIOp::create(b, row, constantIndex(ranks)));
        // The last tile of columns may be wider than there are vectors.
        Value isThere;
        if (count % kTileVectors != 0)
          isThere = isBelow(column, count);
        guarded(isThere, [&] {
          memref::StoreOp::create(b, value, scratch, ValueRange{entry, at});
        });
      });
  barrier();
  keepRead(queries,
           sumWeightedValues(buffer, {{op.getValue(), ranks}}, scratch, count));
  return success();
}

/// Vectors that go back through raw entries: a group of lanes takes a vector.
LogicalResult GpuVerifyKernel::emitStackTransport(TransportOp op) {
  sync();
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  Place place = keyPlace(keySize);
  SmallVector<Query> queries, origins;
  for (auto [query, origin, partial] :
       llvm::zip(op.getQueries(), op.getOrigins(), op.getPartials())) {
    queries.push_back({partial, teamOf(query), {}});
    origins.push_back({origin, teamOf(origin), {}});
  }
  int64_t count = countVectors(queries);
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
        loadVector(vectors, {vectorRow(column, queries)}, place);
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
    keepRead(queries, Components(count, constantFloat(0)));
    return success();
  }
  sync();
  keepRead(queries, sumWeightedValues(buffer, names, scratch, count));
  return success();
}
