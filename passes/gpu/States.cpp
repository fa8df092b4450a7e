//===- States.cpp - rows of a state in a GPU kernel -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// The i-th row of this thread, counted from the start of the tile.
Value GpuKernel::rowOf(int64_t i) {
  Value local = add(group, i * groups);
  int64_t rows = schedule.tileRows;
  return (i + 1) * groups > rows
             ? Value(arith::MinUIOp::create(b, local, constantIndex(rows - 1)))
             : local;
}

Value GpuKernel::dotChunks(ArrayRef<Value> lhs, ArrayRef<Value> rhs) {
  Value sum = arith::MulFOp::create(b, lhs[0], rhs[0]);
  for (size_t c = 1; c < lhs.size(); ++c)
    sum = vector::FMAOp::create(b, lhs[c], rhs[c], sum);
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, sum);
}

GpuKernel::Components GpuKernel::loadState(LoadStateOp op) {
  Value pool = memory[op.getPool()];
  Type element = cast<MemRefType>(pool.getType()).getElementType();
  Components result;
  for (int64_t i = 0; i < rowsPerThread; ++i) {
    Value at = arith::AddIOp::create(b, tileStart, rowOf(i));
    Value first = arith::MulIOp::create(b, laneOfGroup, constantIndex(width));
    for (int64_t c = 0; c < chunks; ++c) {
      auto load = vector::LoadOp::create(
          b, VectorType::get({width}, element), pool,
          ValueRange{readSlot, head, at, add(first, c * lanes * width)});
      // A state is read once a step.
      load.setNontemporal(true);
      result.push_back(load);
    }
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::stateOf(Value state) {
  if (auto found = states.find(state); found != states.end())
    return found->second;
  FailureOr<Components> result = emitState(state);
  if (succeeded(result))
    states[state] = *result;
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emitState(Value state) {
  Operation *op = state.getDefiningOp();
  if (isa_and_present<ZeroStateOp>(op)) {
    Value zero = arith::ConstantOp::create(
        b, b.getZeroAttr(VectorType::get({width}, b.getF32Type())));
    return Components(rowsPerThread * chunks, zero);
  }
  if (auto load = dyn_cast_if_present<LoadStateOp>(op)) {
    Components result = preloaded[op];
    for (Value &part : result)
      part = toF32(part);
    return result;
  }
  if (auto fold = dyn_cast_if_present<FoldBufferOp>(op))
    return emitFold(fold);
  if (auto replay = dyn_cast_if_present<ReplayOp>(op))
    return emitReplay(replay);
  if (!isa_and_present<DecayOp, WriteOp>(op))
    return mlir::emitError(state.getLoc(), "state does not come from a pool");

  FailureOr<Components> previous = stateOf(op->getOperand(0));
  if (failed(previous))
    return failure();
  Components result = *previous;
  if (auto decay = dyn_cast<DecayOp>(op)) {
    SmallVector<Value> factors;
    if (decay.getFactor().getType().getRank() == 1) {
      FailureOr<Components> factor = get(decay.getFactor(), Side::Key);
      if (failed(factor))
        return failure();
      factors.assign(chunks, splat(factor->front()));
    } else {
      FailureOr<Components> factor = fragment(decay.getFactor(), 0);
      if (failed(factor))
        return failure();
      factors = *factor;
    }
    for (auto [i, part] : llvm::enumerate(result))
      part = arith::MulFOp::create(b, part, factors[i % chunks]);
    return result;
  }
  auto write = cast<WriteOp>(op);
  FailureOr<Value> written = whole(write.getValue(), Side::Row);
  FailureOr<Value> keys = whole(write.getKey(), Side::Key);
  if (failed(written) || failed(keys))
    return failure();
  int64_t ranks = cast<MemRefType>(keys->getType()).getDimSize(0);
  for (int64_t r = 0; r < ranks; ++r) {
    Components key = fragmentOf(*keys, {constantIndex(r)});
    for (int64_t i = 0; i < rowsPerThread; ++i) {
      Value value = splat(memref::LoadOp::create(
          b, *written, ValueRange{constantIndex(r), rowOf(i)}));
      for (int64_t c = 0; c < chunks; ++c) {
        Value &part = result[i * chunks + c];
        part = vector::FMAOp::create(b, key[c], value, part);
      }
    }
  }
  return result;
}

FailureOr<GpuKernel::Components> GpuKernel::emitRead(ReadOp op) {
  FailureOr<Components> rows = stateOf(op.getState());
  FailureOr<Value> queries = whole(op.getQuery(), Side::Key);
  if (failed(rows) || failed(queries))
    return failure();
  int64_t components = cast<MemRefType>(queries->getType()).getDimSize(0);
  Value scratch = shared({components, schedule.tileRows}, "reads");
  Value isFirstLane = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                            laneOfGroup, constantIndex(0));
  for (int64_t r = 0; r < components; ++r) {
    Components query = fragmentOf(*queries, {constantIndex(r)});
    SmallVector<Value> dots;
    for (int64_t i = 0; i < rowsPerThread; ++i)
      dots.push_back(sumOverGroup(
          dotChunks(ArrayRef(*rows).slice(i * chunks, chunks), query)));
    for (auto [i, dot] : llvm::enumerate(dots)) {
      // Threads without a row of their own have repeated the last one.
      Value local = add(group, static_cast<int64_t>(i) * groups);
      Value stores = isFirstLane;
      if (static_cast<int64_t>(i + 1) * groups > schedule.tileRows)
        stores =
            arith::AndIOp::create(b, stores, isBelow(local, schedule.tileRows));
      auto guarded = scf::IfOp::create(b, stores);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      memref::StoreOp::create(b, dot, scratch,
                              ValueRange{constantIndex(r), local});
    }
  }
  barrier();
  Components result;
  Value mine = clampedThread(schedule.tileRows);
  for (int64_t r = 0; r < components; ++r)
    result.push_back(
        memref::LoadOp::create(b, scratch, ValueRange{constantIndex(r), mine}));
  return result;
}

LogicalResult GpuKernel::emitStore(StoreStateOp op) {
  FailureOr<Components> rows = stateOf(op.getState());
  if (failed(rows))
    return failure();
  Value pool = memory[op.getPool()];
  Type element = cast<MemRefType>(pool.getType()).getElementType();
  for (int64_t i = 0; i < rowsPerThread; ++i) {
    // Threads without a row of their own stay out.
    std::optional<OpBuilder::InsertionGuard> guard;
    if ((i + 1) * groups > schedule.tileRows) {
      auto guarded = scf::IfOp::create(
          b, isBelow(add(group, i * groups), schedule.tileRows));
      guard.emplace(b);
      b.setInsertionPointToStart(guarded.thenBlock());
    }
    Value at = arith::AddIOp::create(b, tileStart, add(group, i * groups));
    Value first = arith::MulIOp::create(b, laneOfGroup, constantIndex(width));
    for (int64_t c = 0; c < chunks; ++c) {
      auto store = vector::StoreOp::create(
          b, convertTo((*rows)[i * chunks + c], element), pool,
          ArrayRef<Value>{writeSlot, head, at, add(first, c * lanes * width)});
      store.setNontemporal(true);
    }
  }
  return success();
}
