//===- States.cpp - rows of a state in a GPU kernel -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// The i-th row of this thread's group, counted from the start of the tile. A
/// warp has consecutive rows.
Value GpuKernel::rowOf(int64_t i) { return add(firstRow, i * (32 / lanes)); }

Value GpuKernel::clampedRow(Value local) {
  int64_t rows = schedule.tileRows;
  return schedule.threads / lanes * rowsPerThread > rows
             ? Value(arith::MinUIOp::create(b, local, constantIndex(rows - 1)))
             : local;
}

Value GpuKernel::dotChunks(ArrayRef<Value> lhs, ArrayRef<Value> rhs) {
  Value sum = arith::MulFOp::create(b, lhs[0], rhs[0]);
  for (size_t c = 1; c < lhs.size(); ++c)
    sum = vector::FMAOp::create(b, lhs[c], rhs[c], sum);
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, sum);
}

FailureOr<GpuKernel::Components>
GpuKernel::stateRows(Value state, int64_t first, int64_t count) {
  bool isAll = count == rowsPerThread;
  if (auto found = states.find(state); isAll && found != states.end())
    return found->second;
  FailureOr<Components> result = emitRows(state, first, count);
  // Registers are for what is computed; shared memory keeps the rest.
  bool isLoaded = isa_and_present<LoadStateOp>(state.getDefiningOp());
  if (succeeded(result) && isAll && !isLoaded)
    states[state] = *result;
  return result;
}

FailureOr<GpuKernel::Components>
GpuKernel::emitRows(Value state, int64_t first, int64_t count) {
  Operation *op = state.getDefiningOp();
  Place place = keyPlace(keySize);
  if (isa_and_present<ZeroStateOp>(op)) {
    Value zero = arith::ConstantOp::create(
        b, b.getZeroAttr(VectorType::get({width}, b.getF32Type())));
    return Components(count * chunks, zero);
  }
  if (auto load = dyn_cast_if_present<LoadStateOp>(op)) {
    Value tile =
        stagedStates[cast<BlockArgument>(load.getPool()).getArgNumber()];
    Components result;
    for (int64_t i = 0; i < count; ++i)
      llvm::append_range(
          result, loadVector(tile, {clampedRow(rowOf(first + i))}, place));
    return result;
  }
  if (auto each = dyn_cast_if_present<FoldBufferOp>(op))
    return emitFold(each, first, count);
  if (auto replay = dyn_cast_if_present<ReplayOp>(op))
    return emitReplay(replay, first, count);
  if (!isa_and_present<DecayOp, WriteOp>(op))
    return mlir::emitError(state.getLoc(), "state does not come from a pool");

  FailureOr<Components> previous =
      stateRows(op->getOperand(0), first, count);
  if (failed(previous))
    return failure();
  Components result = *previous;
  if (auto decay = dyn_cast<DecayOp>(op)) {
    FailureOr<Components> factors = get(decay.getFactor(), place);
    if (failed(factors))
      return failure();
    if (decay.getFactor().getType().getRank() == 1)
      factors->assign(chunks, splat(factors->front(), width));
    for (auto [i, part] : llvm::enumerate(result))
      part = arith::MulFOp::create(b, part, (*factors)[i % chunks]);
    return result;
  }
  auto write = cast<WriteOp>(op);
  FailureOr<Components> written = get(write.getValue(), rowPlace());
  FailureOr<Components> keys = get(write.getKey(), place);
  if (failed(written) || failed(keys))
    return failure();
  for (auto [r, value] : llvm::enumerate(*written)) {
    ArrayRef<Value> key =
        ArrayRef(*keys).slice(static_cast<int64_t>(r) * chunks, chunks);
    for (int64_t i = 0; i < count; ++i) {
      // Lane i has row i.
      Value mine = lanes == 1
                       ? value
                       : shuffle(value, constantInt(first + i), lanes,
                                 gpu::ShuffleMode::IDX);
      for (int64_t c = 0; c < chunks; ++c) {
        Value &part = result[i * chunks + c];
        part = vector::FMAOp::create(b, key[c], splat(mine, width), part);
      }
    }
  }
  return result;
}

/// A read, and all others of the same state that could be next to it: rows are
/// gone through once.
LogicalResult GpuKernel::emitReads(ReadOp wanted) {
  Value state = wanted.getState();
  SmallVector<ReadOp> reads{wanted};
  SmallVector<Components> queries;
  Place place = keyPlace(keySize);
  for (Operation *user : state.getUsers()) {
    auto read = dyn_cast<ReadOp>(user);
    if (!read || read == wanted || dependsOnRows(read.getQuery()))
      continue;
    ValueKey key{read.getResult().getAsOpaquePointer(), rowPlace().key()};
    if (!values.count(key))
      reads.push_back(read);
  }
  SmallVector<int64_t> counts;
  for (ReadOp read : reads) {
    FailureOr<Components> query = get(read.getQuery(), place);
    if (failed(query))
      return failure();
    counts.push_back(static_cast<int64_t>(query->size()) / chunks);
    for (int64_t r = 0; r < counts.back(); ++r)
      queries.emplace_back(ArrayRef(*query).slice(r * chunks, chunks));
  }
  SmallVector<Components> dots(queries.size());
  for (int64_t first = 0; first < rowsPerThread; first += rowsAtOnce) {
    FailureOr<Components> rows = stateRows(state, first, rowsAtOnce);
    if (failed(rows))
      return failure();
    for (int64_t i = 0; i < rowsAtOnce; ++i)
      for (auto [q, query] : llvm::enumerate(queries))
        dots[q].push_back(
            dotChunks(ArrayRef(*rows).slice(i * chunks, chunks), query));
  }
  size_t next = 0;
  for (auto [read, count] : llvm::zip(reads, counts)) {
    Components result;
    for (int64_t r = 0; r < count; ++r)
      result.push_back(sumOverRows(dots[next++]));
    remember(read.getResult(), rowPlace(), result);
  }
  return success();
}

LogicalResult GpuKernel::emitStore(StoreStateOp op) {
  Value pool =
      memory[cast<BlockArgument>(op.getPool()).getArgNumber()];
  Type element = cast<MemRefType>(pool.getType()).getElementType();
  Place place = keyPlace(keySize);
  bool hasSpare =
      schedule.threads / lanes * rowsPerThread > schedule.tileRows;
  for (int64_t first = 0; first < rowsPerThread; first += rowsAtOnce) {
    FailureOr<Components> rows = stateRows(op.getState(), first, rowsAtOnce);
    if (failed(rows))
      return failure();
    for (int64_t i = 0; i < rowsAtOnce; ++i) {
      Value local = rowOf(first + i), inside;
      // Threads without a row of their own have repeated the last one.
      if (hasSpare)
        inside = isBelow(local, schedule.tileRows);
      guarded(inside, [&] {
        Value at = arith::AddIOp::create(b, tileStart, local);
        for (int64_t c = 0; c < chunks; ++c) {
          auto store = vector::StoreOp::create(
              b, convertTo((*rows)[i * chunks + c], element), pool,
              ArrayRef<Value>{writeSlot, head, at, chunkStart(place, c)});
          store.setNontemporal(true);
        }
      });
    }
  }
  return success();
}
