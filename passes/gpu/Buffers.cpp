//===- Buffers.cpp - entries of a buffer in a GPU kernel ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Entries are numbered from the oldest.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// All buffers of a row share its cursor: any of them. Null for none.
static BufferType anyBuffer(StepOp step) {
  for (Type type : step.getBody().getArgumentTypes())
    if (auto buffer = dyn_cast<BufferType>(type))
      return buffer;
  return {};
}

int64_t GpuKernel::capacity() {
  BufferType any = anyBuffer(step);
  return any ? any.getCapacity() : 0;
}

int64_t GpuKernel::page() {
  BufferType any = anyBuffer(step);
  return any ? any.getPage() : 0;
}

/// Of a slot.
int64_t GpuKernel::countPages() {
  BufferType any = anyBuffer(step);
  return any ? any.countPages() : 0;
}

Value GpuKernel::ringSlot(Value position) {
  // A slot that has folded begins anew at the first of its pages.
  if (page() && !entryPlaces)
    return position;
  if (entryPlaces)
    return arith::IndexCastOp::create(
        b, b.getIndexType(),
        memref::LoadOp::create(b, entryPlaces, ValueRange{position}));
  return arith::RemUIOp::create(b, arith::AddIOp::create(b, base, position),
                                constantIndex(capacity()));
}

Value GpuKernel::rowOfEntry(Value position, int64_t rank, int64_t ranks) {
  if (ranks == 1)
    return position;
  return add(arith::MulIOp::create(b, position, constantIndex(ranks)), rank);
}

/// The newest entry, or 0 if there is none.
Value GpuKernel::lastEntry() {
  return arith::SubIOp::create(
      b, arith::MaxSIOp::create(b, length, constantIndex(1)), constantIndex(1));
}

//===----------------------------------------------------------------------===//
// One entry
//===----------------------------------------------------------------------===//

/// Where a field of an entry is, but for the element.
std::pair<Value, SmallVector<Value>> GpuKernel::entryMemory(Value buffer,
                                                            FieldAttr field,
                                                            int64_t rank,
                                                            Value position) {
  unsigned argument = cast<BlockArgument>(buffer).getArgNumber();
  int64_t ranks = componentCount(field);
  if (auto found = stagedFields.find({argument, field.getName().str()});
      found != stagedFields.end())
    return {found->second, {rowOfEntry(position, rank, ranks)}};
  ArrayRef<FieldAttr> all = cast<BufferType>(buffer.getType()).getFields();
  EntryPlace place = placeOf(position);
  SmallVector<Value> at{place.outer, headIndex(field.getShape().front()),
                        place.entry};
  if (field.getShape().size() == 3)
    at.push_back(constantIndex(rank));
  return {fields[argument][llvm::find(all, field) - all.begin()], at};
}

GpuKernel::Components GpuKernel::loadEntry(Value buffer, StringRef name,
                                           int64_t rank, Value position,
                                           const Place &place) {
  FieldAttr field = cast<BufferType>(buffer.getType()).getField(name);
  auto [from, at] = entryMemory(buffer, field, rank, position);
  return loadVector(from, at, place);
}

/// Element `local` of a field: of the tile if it is along dv.
Value GpuKernel::loadEntryRow(Value buffer, StringRef name, int64_t rank,
                              Value position, Value local) {
  FieldAttr field = cast<BufferType>(buffer.getType()).getField(name);
  auto [from, at] = entryMemory(buffer, field, rank, position);
  bool isTile = cast<MemRefType>(from.getType()).getRank() == 2;
  at.push_back(!isTile && field.getSide() == Side::Value
                   ? Value(arith::AddIOp::create(b, tileStart, local))
                   : local);
  return loadElement(from, at);
}

//===----------------------------------------------------------------------===//
// All entries
//===----------------------------------------------------------------------===//

/// The sums of values times `weights` [L, accumulators × values an entry], and
/// times `scales` [L] if there are any.
GpuKernel::Components GpuKernel::sumWeightedValues(
    Value buffer, ArrayRef<std::pair<StringRef, int64_t>> names, Value weights,
    int64_t accumulators, Value scales) {
  int64_t perEntry = 0;
  for (auto [name, ranks] : names)
    perEntry += ranks;
  int64_t columns = accumulators * perEntry;
  Components sums(accumulators, constantFloat(0));
  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), sums);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  // A row of weights is a load or two where it is not too wide for registers.
  SmallVector<Value> row;
  if (int64_t wide = std::min<int64_t>(columns, 4);
      columns <= 8 && wide % 2 == 0 && columns % wide == 0) {
    for (int64_t first = 0; first < columns; first += wide) {
      Value some = vector::LoadOp::create(
          b, VectorType::get({wide}, b.getF32Type()), weights,
          ValueRange{position, constantIndex(first)});
      for (int64_t i = 0; i < wide; ++i)
        row.push_back(vector::ExtractOp::create(b, some, i));
    }
  } else {
    for (int64_t i = 0; i < columns; ++i)
      row.push_back(memref::LoadOp::create(
          b, weights, ValueRange{position, constantIndex(i)}));
  }
  SmallVector<Value> next(loop.getRegionIterArgs());
  int64_t r = 0;
  for (auto [name, ranks] : names)
    for (int64_t k = 0; k < ranks; ++k, ++r) {
      Value value = loadEntryRow(buffer, name, k, position, ownRow);
      if (scales)
        value = arith::MulFOp::create(
            b, value, memref::LoadOp::create(b, scales, ValueRange{position}));
      for (int64_t i = 0; i < accumulators; ++i)
        next[i] = math::FmaOp::create(b, row[i * perEntry + r], value, next[i]);
    }
  scf::YieldOp::create(b, next);
  return Components(loop.getResults());
}

LogicalResult GpuKernel::emitReadBuffer(ReadBufferOp op) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr keyField = type.getField(op.getKey());
  Place place = entryPlace();
  if (op.getDecay())
    decaysOf(buffer, *op.getDecay());
  bool isDecayed = decayedKey(buffer, op.getKey(), op.getDecay());
  Components weights = weightsOfUse(buffer, op.getKey(), op.getDecay(),
                                    {op.getKeyScale(), op.getValueScale()});

  SmallVector<Components> queries;
  SmallVector<int64_t> counts;
  for (Value query : op.getQueries()) {
    FailureOr<Components> all = get(query, place);
    if (failed(all))
      return failure();
    int64_t each = place.chunks;
    counts.push_back(static_cast<int64_t>(all->size()) / each);
    for (int64_t r = 0; r < counts.back(); ++r)
      queries.emplace_back(ArrayRef(*all).slice(r * each, each));
  }
  int64_t ranks = componentCount(keyField);
  int64_t columns = static_cast<int64_t>(queries.size()) * ranks;
  Value scratch = shared({type.getCapacity(), columns}, "entry_dots");
  auto sumValues = [&] {
    barrier();
    Components sums = sumWeightedValues(buffer, {{op.getValue(), ranks}},
                                        scratch, queries.size());
    ArrayRef<Value> rest = sums;
    for (auto [result, count] : llvm::zip(op.getResults(), counts)) {
      remember(result, rowPlace(), Components(rest.take_front(count)));
      rest = rest.drop_front(count);
    }
    return success();
  };
  if (multipliesReads && !isDecayed && isStaged(argumentOf(buffer), keyField) &&
      keyField.getElementType().isBF16()) {
    if (failed(multiplyEntries(op, scratch, weights)))
      return failure();
    return sumValues();
  }
  // Every group takes an entry a turn, or two, which do not wait for each
  // other; all take part in every turn.
  int64_t groups = schedule.threads / place.lanes;
  int64_t together = type.getCapacity() > groups ? 2 : 1;
  auto loop = scf::ForOp::create(b, constantIndex(0), length,
                                 constantIndex(groups * together));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value mine = place.lanes == lanes
                     ? group
                     : Value(arith::DivUIOp::create(
                           b, thread, constantIndex(place.lanes)));
    SmallVector<Value> positions, clamped;
    SmallVector<Components> dots(together);
    for (int64_t k = 0; k < together; ++k) {
      positions.push_back(arith::AddIOp::create(b, loop.getInductionVar(),
                                                add(mine, k * groups)));
      clamped.push_back(arith::MinSIOp::create(b, positions[k], lastEntry()));
    }
    for (int64_t k = 0; k < together; ++k)
      for (int64_t r = 0; r < ranks; ++r) {
        Components key =
            loadKey(buffer, op.getKey(), op.getDecay(), r, clamped[k], place);
        for (const Components &query : queries)
          dots[k].push_back(dotChunks(key, query));
      }
    for (int64_t k = 0; k < together; ++k) {
      Value weight = weights.empty() ? Value() : numberAt(weights, clamped[k]);
      for (Value &dot : dots[k]) {
        dot = sumOverLanes(dot, place.lanes);
        if (weight)
          dot = arith::MulFOp::create(b, dot, weight);
      }
      Value valid = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                          positions[k], length);
      guarded(both(valid, isBelow(laneOf(place), 1)), [&] {
        for (auto [i, dot] : llvm::enumerate(dots[k])) {
          int64_t r = i / queries.size(), q = i % queries.size();
          memref::StoreOp::create(
              b, dot, scratch,
              ValueRange{positions[k], constantIndex(q * ranks + r)});
        }
      });
    }
  }
  return sumValues();
}
