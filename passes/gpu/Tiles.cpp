//===- Tiles.cpp - products of tiles in a GPU kernel ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Tensor cores multiply tiles of bf16 and add in f32. What is not bf16 is split
// into parts that are, each what the ones before it lack: three have all bits
// of an f32.
//
// Rows that are read: a tile is 16 rows, as they are stored, times 8 columns,
// which are the parts of two vectors: column 2 p + v is part p of vector v.
// Thread 4 g + t loads 16 bytes of rows g and g + 8; the columns are loaded
// from shared memory in the same order, so that it does not matter which 16
// elements of a row a product takes. Thread t of a group gets what part t adds
// to the reads of the group's rows: sums over four lanes are left.
//
// Folds: a tile is 16 rows of values, weighed, times the keys of 16 entries. A
// thread has the same 16 bytes of a row as of the state: of the 8 columns of a
// product, 2 t is one of the first half of its elements, 2 t + 1 one of the
// second half.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// Lanes that have parts of one row.
static constexpr int64_t kTileLanes = 4;
/// Of a vector that is read, in a lane.
static constexpr int64_t kMostElements = 64;
static constexpr int64_t kTileRows = 16;
/// Parts of an f32.
static constexpr int64_t kParts = 3;
/// Elements between rows of parts, so that they are in different banks.
static constexpr int64_t kPadding = 8;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// c + a·b; fragments as nvgpu.mma.sync has them, flattened.
Value GpuKernel::multiplyTiles(Value a, Value b, Value c) {
  auto shaped = [&](Value value, int64_t rows) -> Value {
    Type element = cast<VectorType>(value.getType()).getElementType();
    return vector::ShapeCastOp::create(
        this->b, VectorType::get({rows, 2}, element), value);
  };
  Value product = nvgpu::MmaSyncOp::create(
      this->b, shaped(a, 4), shaped(b, 2), shaped(c, 2),
      this->b.getI64ArrayAttr({16, 8, 16}));
  return vector::ShapeCastOp::create(this->b, c.getType(), product);
}

/// c + a·b of tiles of which products take 11 significant bits.
Value GpuKernel::multiplyShortTiles(Value a, Value b, Value c) {
  auto shaped = [&](Value value, int64_t rows, int64_t columns) -> Value {
    return vector::ShapeCastOp::create(
        this->b, VectorType::get({rows, columns}, this->b.getF32Type()), value);
  };
  Value product = nvgpu::MmaSyncOp::create(
      this->b, shaped(a, 4, 1), shaped(b, 2, 1), shaped(c, 2, 2),
      ArrayRef<int64_t>{16, 8, 8}, /*tf32Enabled=*/true);
  return vector::ShapeCastOp::create(this->b, c.getType(), product);
}

/// A value of f32 as the sum of so many of bf16.
GpuKernel::Components GpuKernel::partsOf(Value value, int64_t count) {
  Components parts;
  for (int64_t i = 0; i < count; ++i) {
    Value part = convertTo(value, b.getBF16Type());
    parts.push_back(part);
    if (i + 1 < count)
      value = arith::SubFOp::create(b, value, toF32(part));
  }
  return parts;
}

/// The bits of an f32 that a product of short tiles takes. An assembler that
/// knows which they are gives a product the whole f32, whose other bits do no
/// harm, and moves it to where that product wants it, for each product anew.
/// What it does not know, it computes, where it is wanted, once.
Value GpuKernel::upperBits() {
  Value bits = constantInt(static_cast<int32_t>(0xffffe000u));
  if (!anyCount)
    return bits;
  Value count = anyCount;
  if (isa<IndexType>(count.getType()))
    count = arith::IndexCastOp::create(b, b.getI32Type(), count);
  Value zero = arith::ShRUIOp::create(b, count, constantInt(31));
  return arith::OrIOp::create(b, bits, zero);
}

/// The upper bits of a vector of f32, and the others.
std::pair<Value, Value> GpuKernel::splitTerms(Value value) {
  auto type = cast<VectorType>(value.getType());
  auto bits = VectorType::get(type.getShape(), b.getI32Type());
  Value cut = vector::BroadcastOp::create(b, bits, upperBits());
  Value upper = arith::BitcastOp::create(
      b, type,
      arith::AndIOp::create(b, arith::BitcastOp::create(b, bits, value), cut));
  return {upper, arith::SubFOp::create(b, value, upper)};
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

bool GpuKernel::mayMultiplyReads() {
  bool hasReads = false, may = keySize % (kTileLanes * 8) == 0;
  // Lanes hold a vector of all ranks.
  may &= keySize / kTileLanes * countRanks() <= kMostElements;
  for (BlockArgument argument : step.getBody().getArguments())
    if (auto pool = dyn_cast<PoolType>(argument.getType()))
      may &= pool.getElementType().isBF16();
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      hasReads |= isa<ReadOp>(op);
      // These take queries from a group's registers.
      may &= !isa<TransportOp, ReplayOp>(op);
    });
  return may && hasReads && !readsMaterialisedState();
}

/// Gives every query of a read a number, and returns how many there are.
int64_t GpuKernel::numberQueries() {
  int64_t count = 0;
  queryNumbers.clear();
  auto number = [&](Value query) {
    auto same = sameValues.find(query);
    if (queryNumbers
            .insert({same == sameValues.end() ? query : same->second, count})
            .second)
      count += componentCount(cast<RankedTensorType>(query.getType()));
  };
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      if (auto read = dyn_cast<ReadOp>(op))
        number(read.getQuery());
      else if (auto read = dyn_cast<ReadBufferOp>(op);
               read &&
               !decayedKey(read.getBuffer(), read.getKey(), read.getDecay()))
        llvm::for_each(read.getQueries(), number);
    });
  return count;
}

int64_t GpuKernel::queryPartBytes() {
  if (!multipliesReads)
    return 0;
  return (kParts * numberQueries() + 1) * (keySize + kPadding) * 2;
}

/// Writes the parts of queries to shared memory, each by one warp. A barrier is
/// the caller's.
LogicalResult GpuKernel::putQueries(ArrayRef<Value> queries) {
  int64_t columns = keySize + kPadding;
  Place place = *warpPlace(keySize);
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  auto byWarp = [&](int64_t number, function_ref<void()> body) {
    int64_t warps = schedule.threads / kWarp;
    guarded(warps == 1
                ? Value()
                : Value(arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warp,
                                              constantIndex(number % warps))),
            body);
  };
  if (!queryParts) {
    int64_t count = numberQueries();
    queryParts =
        shared({kParts * count + 1, columns}, "query_parts", b.getBF16Type());
    byWarp(count, [&] {
      Value zero = arith::ConstantOp::create(
          b, b.getZeroAttr(VectorType::get({place.width}, b.getBF16Type())));
      for (int64_t c = 0; c < place.chunks; ++c)
        vector::StoreOp::create(
            b, zero, queryParts,
            ValueRange{constantIndex(kParts * count), chunkStart(place, c)});
    });
  }
  for (Value query : queries) {
    if (auto same = sameValues.find(query); same != sameValues.end())
      query = same->second;
    if (!writtenQueries.insert(query).second)
      continue;
    areQueriesPending = true;
    FailureOr<Components> all = get(query, place);
    if (failed(all))
      return failure();
    int64_t first = queryNumbers.lookup(query);
    int64_t count = static_cast<int64_t>(all->size()) / place.chunks;
    for (int64_t r = 0; r < count; ++r)
      byWarp(first + r, [&] {
        for (int64_t c = 0; c < place.chunks; ++c)
          for (auto [p, part] :
               llvm::enumerate(partsOf((*all)[r * place.chunks + c], kParts)))
            vector::StoreOp::create(
                b, part, queryParts,
                ValueRange{constantIndex(kParts * (first + r) +
                                         static_cast<int64_t>(p)),
                           chunkStart(place, c)});
      });
  }
  return success();
}

/// The numbers of queries, which are in shared memory then.
FailureOr<SmallVector<int64_t>> GpuKernel::queriesOf(ArrayRef<Value> queries) {
  if (failed(putQueries(queries)))
    return failure();
  if (areQueriesPending)
    barrier();
  SmallVector<int64_t> result;
  for (Value query : queries) {
    auto same = sameValues.find(query);
    int64_t first =
        queryNumbers.lookup(same == sameValues.end() ? query : same->second);
    int64_t count = componentCount(cast<RankedTensorType>(query.getType()));
    for (int64_t r = 0; r < count; ++r)
      result.push_back(first + r);
  }
  return result;
}

/// What thread t of a group adds to the products of rows with queries: rows g
/// and g + 8 of tile i times query q are components 2 i + {0, 1} of all that
/// belong to q, one query after the other. `load` gives 8 elements of a row,
/// numbered like that, from a column on.
FailureOr<GpuKernel::Components>
GpuKernel::multiplyQueries(ArrayRef<int64_t> queries, int64_t tileCount,
                           function_ref<Value(int64_t, Value)> load) {
  int64_t pairs = llvm::divideCeil(queries.size(), 2);
  // Which row of parts is a thread's column.
  Value column = arith::DivUIOp::create(b, warpLane, constantIndex(kTileLanes));
  Value isSecond = arith::CmpIOp::create(
      b, arith::CmpIPredicate::ne,
      arith::RemUIOp::create(b, column, constantIndex(2)), constantIndex(0));
  Value part = arith::DivUIOp::create(b, column, constantIndex(2));
  int64_t zeroRow = cast<MemRefType>(queryParts.getType()).getDimSize(0) - 1;
  SmallVector<Value> rows;
  for (int64_t j = 0; j < pairs; ++j) {
    bool isSingle = 2 * j + 1 == static_cast<int64_t>(queries.size());
    Value first = constantIndex(kParts * queries[2 * j]);
    if (!isSingle)
      first = arith::SelectOp::create(
          b, isSecond, constantIndex(kParts * queries[2 * j + 1]), first);
    Value isPart = isBelow(part, kParts);
    Value row = arith::AddIOp::create(b, first, part);
    row = arith::SelectOp::create(b, isPart, row, constantIndex(zeroRow));
    if (isSingle)
      row = arith::SelectOp::create(b, isSecond, constantIndex(zeroRow), row);
    rows.push_back(row);
  }

  auto accumulator = VectorType::get({4}, b.getF32Type());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(accumulator));
  Components sums(tileCount * pairs, zero);
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                 constantIndex(kTileLanes * 8), sums);
  loop->setAttr("ladle.unroll", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Place slab{false, keySize, kTileLanes, 8, 1, loop.getInductionVar()};
    Value from = chunkStart(slab, 0);
    auto type = VectorType::get({8}, b.getBF16Type());
    SmallVector<std::pair<Value, Value>> factors;
    auto half = [&](Value all, int64_t first) -> Value {
      return vector::ExtractStridedSliceOp::create(b, all, {first}, {4}, {1});
    };
    for (Value row : rows) {
      Value all =
          vector::LoadOp::create(b, type, queryParts, ValueRange{row, from});
      factors.emplace_back(half(all, 0), half(all, 4));
    }
    Components next(loop.getRegionIterArgs());
    for (int64_t i = 0; i < tileCount; ++i) {
      Value upper = load(2 * i, from), lower = load(2 * i + 1, from);
      Value first = vector::ShuffleOp::create(
          b, upper, lower, ArrayRef<int64_t>{0, 1, 8, 9, 2, 3, 10, 11});
      Value second = vector::ShuffleOp::create(
          b, upper, lower, ArrayRef<int64_t>{4, 5, 12, 13, 6, 7, 14, 15});
      for (int64_t j = 0; j < pairs; ++j) {
        Value &sum = next[i * pairs + j];
        sum = multiplyTiles(first, factors[j].first, sum);
        sum = multiplyTiles(second, factors[j].second, sum);
      }
    }
    scf::YieldOp::create(b, next);
  }
  Components result;
  for (int64_t q = 0; q < static_cast<int64_t>(queries.size()); ++q)
    for (int64_t i = 0; i < tileCount; ++i)
      for (int64_t half : {0, 1})
        result.push_back(vector::ExtractOp::create(
            b, loop.getResult(i * pairs + q / 2), 2 * half + q % 2));
  return result;
}

LogicalResult GpuKernel::multiplyReads(ArrayRef<ReadOp> reads) {
  SmallVector<Value> wanted;
  for (ReadOp read : reads)
    wanted.push_back(read.getQuery());
  FailureOr<SmallVector<int64_t>> queries = queriesOf(wanted);
  if (failed(queries))
    return failure();
  auto load = ReadOp(reads.front()).getState().getDefiningOp<LoadStateOp>();
  Value tile = stagedStates[cast<BlockArgument>(load.getPool()).getArgNumber()];
  Sheet sheet = readSheet();
  auto type = VectorType::get({8}, b.getBF16Type());
  SmallVector<Value> rows;
  for (int64_t i = 0; i < sheet.rows; ++i)
    rows.push_back(clampedRow(rowOf(sheet, i)));
  int64_t tileCount = llvm::divideCeil(sheet.rows, 2);
  int64_t each = tileCount / schedule.stages;
  Components products(queries->size() * 2 * tileCount);
  for (int64_t stage = 0; stage < schedule.stages; ++stage) {
    waitForStages(stage + 1);
    FailureOr<Components> some =
        multiplyQueries(*queries, each, [&](int64_t i, Value from) -> Value {
          Value row = rows[std::min(2 * stage * each + i, sheet.rows - 1)];
          return vector::LoadOp::create(b, type, tile, ValueRange{row, from});
        });
    if (failed(some))
      return failure();
    // Rows of a query lie beside each other, stage after stage.
    for (auto [i, product] : llvm::enumerate(*some)) {
      auto at = static_cast<int64_t>(i);
      products[at / (2 * each) * 2 * tileCount + stage * 2 * each +
               at % (2 * each)] = product;
    }
  }
  MutableArrayRef<Value> rest(products);
  for (ReadOp read : reads) {
    Components result;
    for (int64_t r = 0; r < componentCount(read.getQuery().getType()); ++r) {
      result.push_back(sumOverRows(rest.take_front(sheet.rows)));
      rest = rest.drop_front(2 * tileCount);
    }
    remember(read.getResult(), rowPlace(), result);
  }
  return success();
}

/// The products of all entries' keys with the queries of a read, weighed, to
/// `scratch`; a warp takes 16 entries.
LogicalResult GpuKernel::multiplyEntries(ReadBufferOp op, Value scratch,
                                         ArrayRef<Value> weights) {
  FailureOr<SmallVector<int64_t>> queries =
      queriesOf(llvm::to_vector(op.getQueries()));
  if (failed(queries))
    return failure();
  FieldAttr field = op.getBuffer().getType().getField(op.getKey());
  int64_t ranks = componentCount(field);
  Value keys = entryMemory(op.getBuffer(), field, 0, constantIndex(0)).first;
  Value count = arith::MulIOp::create(b, length, constantIndex(ranks));
  Value last = arith::SubIOp::create(b, count, constantIndex(1));
  int64_t warps = schedule.threads / kWarp;
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  auto type = VectorType::get({8}, b.getBF16Type());
  // Every warp goes through its tiles alone.
  auto loop = scf::ForOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(kTileRows)), count,
      constantIndex(warps * kTileRows));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  auto entry = [&](Value half) -> Value {
    Value row = arith::DivUIOp::create(b, warpLane, constantIndex(kTileLanes));
    row = arith::AddIOp::create(
        b, row, arith::MulIOp::create(b, half, constantIndex(8)));
    return arith::AddIOp::create(b, loop.getInductionVar(), row);
  };
  SmallVector<Value> rows;
  for (int64_t half : {0, 1})
    rows.push_back(arith::MinSIOp::create(b, entry(constantIndex(half)), last));
  FailureOr<Components> products =
      multiplyQueries(*queries, 1, [&](int64_t i, Value from) -> Value {
        return vector::LoadOp::create(b, type, keys, ValueRange{rows[i], from});
      });
  if (failed(products))
    return failure();
  Value mine = entry(arith::RemUIOp::create(b, lane, constantIndex(2)));
  Value valid =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, mine, count);
  Value position = arith::DivUIOp::create(b, mine, constantIndex(ranks));
  Value rank = arith::RemUIOp::create(b, mine, constantIndex(ranks));
  Value weight =
      weights.empty()
          ? Value()
          : numberAt(weights, arith::MinSIOp::create(b, position, lastEntry()));
  Components dots;
  for (size_t q = 0; q < queries->size(); ++q) {
    Value dot = sumOverRows(MutableArrayRef(*products).slice(2 * q, 2));
    dots.push_back(weight ? Value(arith::MulFOp::create(b, dot, weight)) : dot);
  }
  guarded(both(valid, isBelow(lane, 2)), [&] {
    for (auto [q, dot] : llvm::enumerate(dots))
      memref::StoreOp::create(
          b, dot, scratch,
          ValueRange{position, add(rank, static_cast<int64_t>(q) * ranks)});
  });
  return success();
}
