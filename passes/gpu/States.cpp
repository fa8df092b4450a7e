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

/// The i-th row of a thread, counted from the start of the tile.
Value GpuKernel::rowOf(const Sheet &sheet, int64_t i) {
  Value row = add(sheet.first, i * sheet.step);
  if (!sheet.offset)
    return row;
  return arith::AddIOp::create(
      b, row,
      arith::MulIOp::create(b, sheet.offset, constantIndex(sheet.step)));
}

Value GpuKernel::clampedRow(Value local) {
  int64_t rows = schedule.tileRows;
  return hasSpareRows()
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
GpuKernel::stateRows(Value state, const Sheet &sheet, int64_t first) {
  // What a thread has all of is computed once.
  bool isKept = materialises && sheet.atOnce == sheet.rows;
  if (auto found = states.find(state); isKept && found != states.end())
    return found->second;
  FailureOr<Components> result = emitRows(state, sheet, first);
  if (succeeded(result) && isKept)
    states[state] = *result;
  return result;
}

FailureOr<GpuKernel::Components>
GpuKernel::emitRows(Value state, const Sheet &sheet, int64_t first) {
  Operation *op = state.getDefiningOp();
  const Place &place = sheet.place;
  if (isa_and_present<ZeroStateOp>(op)) {
    Value zero = arith::ConstantOp::create(
        b, b.getZeroAttr(VectorType::get({place.width}, b.getF32Type())));
    return Components(sheet.atOnce * place.chunks, zero);
  }
  if (auto load = dyn_cast_if_present<LoadStateOp>(op)) {
    unsigned argument = cast<BlockArgument>(load.getPool()).getArgNumber();
    Value tile = stagedStates[argument];
    Components result;
    for (int64_t i = 0; i < sheet.atOnce; ++i) {
      waitForRow(sheet, first + i);
      Value row = rowOf(sheet, first + i);
      llvm::append_range(
          result,
          loadVector(tile, {isTransposed(argument) ? row : clampedRow(row)},
                     place));
    }
    if (auto decayed = sheet.prepared.find(op); decayed != sheet.prepared.end())
      for (Value &part : result)
        part = arith::MulFOp::create(
            b, part, splat(decayed->second.front(), place.width));
    if (place.start && tileChain.product) {
      Components factors = loadVector(tileChain.product, {}, place);
      for (auto [i, part] : llvm::enumerate(result))
        part = arith::MulFOp::create(b, part, factors[i % place.chunks]);
    }
    return result;
  }
  if (auto each = dyn_cast_if_present<FoldBufferOp>(op))
    return emitFold(each, sheet, first);
  if (auto replay = dyn_cast_if_present<ReplayOp>(op))
    return emitReplay(replay, sheet, first);
  if (!isa_and_present<DecayOp, WriteOp>(op))
    return mlir::emitError(state.getLoc(), "state does not come from a pool");

  FailureOr<Components> previous = stateRows(op->getOperand(0), sheet, first);
  if (failed(previous))
    return failure();
  Components result = *previous;
  // What tiles are loaded from, or added to, has it already.
  if (place.start && tileChain.absorbed.contains(op))
    return result;
  if (auto decay = dyn_cast<DecayOp>(op)) {
    FailureOr<Components> factors = get(decay.getFactor(), place);
    if (failed(factors))
      return failure();
    if (decay.getFactor().getType().getRank() == 1)
      factors->assign(place.chunks, splat(factors->front(), place.width));
    for (auto [i, part] : llvm::enumerate(result))
      part = arith::MulFOp::create(b, part, (*factors)[i % place.chunks]);
    return result;
  }
  auto write = cast<WriteOp>(op);
  FailureOr<Components> written = get(write.getValue(), rowPlace());
  FailureOr<Components> keys = get(write.getKey(), place);
  if (failed(written) || failed(keys))
    return failure();
  auto prepared = sheet.prepared.find(op);
  for (auto [r, value] : llvm::enumerate(*written)) {
    ArrayRef<Value> key = ArrayRef(*keys).slice(
        static_cast<int64_t>(r) * place.chunks, place.chunks);
    for (int64_t i = 0; i < sheet.atOnce; ++i) {
      Value ofRow = prepared == sheet.prepared.end()
                        ? valueOfRow(value, sheet, first + i)
                        : prepared->second[r * sheet.atOnce + i];
      Value mine = splat(ofRow, place.width);
      for (int64_t c = 0; c < place.chunks; ++c) {
        Value &part = result[i * place.chunks + c];
        part = vector::FMAOp::create(b, key[c], mine, part);
      }
    }
  }
  return result;
}

/// The i-th row of a thread, counted from the first of its warp.
Value GpuKernel::rowInWarp(const Sheet &sheet, int64_t i) {
  Value at = constantIndex(i * sheet.step);
  if (sheet.offset)
    at = add(arith::MulIOp::create(b, sheet.offset, constantIndex(sheet.step)),
             i * sheet.step);
  if (sheet.first == warpRow)
    return at;
  return arith::AddIOp::create(
      b, at,
      arith::DivUIOp::create(b, warpLane, constantIndex(sheet.place.lanes)));
}

/// What the owner of the i-th row has: lane k of group g owns row k·groups + g
/// of a warp.
Value GpuKernel::valueOfRow(Value value, const Sheet &sheet, int64_t i) {
  int64_t inWarp = 32 / lanes;
  bool isGroup = sheet.place.lanes == lanes && sheet.step == inWarp;
  if (isGroup && lanes == 1)
    return value;
  Value at = constantIndex(i);
  if (sheet.offset)
    at = add(sheet.offset, i);
  int64_t among = lanes;
  if (!isGroup) {
    at = rowInWarp(sheet, i);
    Value ofGroup = arith::RemUIOp::create(b, at, constantIndex(inWarp));
    Value ofLane = arith::DivUIOp::create(b, at, constantIndex(inWarp));
    at = arith::AddIOp::create(
        b, arith::MulIOp::create(b, ofGroup, constantIndex(lanes)), ofLane);
    among = 32;
  }
  return shuffle(value, arith::IndexCastOp::create(b, b.getI32Type(), at),
                 among, gpu::ShuffleMode::IDX);
}

/// Emits what rows are computed of, so that it is there before a loop.
LogicalResult GpuKernel::prepareRows(Value state, const Place &place) {
  Operation *op = state.getDefiningOp();
  if (auto each = dyn_cast_if_present<FoldBufferOp>(op)) {
    if (weighsValues(each))
      weightedValuesOf(each);
    return prepareRows(each.getState(), place);
  }
  if (auto decay = dyn_cast_if_present<DecayOp>(op))
    return failed(get(decay.getFactor(), place))
               ? failure()
               : prepareRows(decay.getState(), place);
  if (auto write = dyn_cast_if_present<WriteOp>(op))
    return failed(get(write.getValue(), rowPlace())) ||
                   failed(get(write.getKey(), place))
               ? failure()
               : prepareRows(write.getState(), place);
  return success();
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
    ValueKey key{read.getResult().getAsOpaquePointer(), rowPlace().key(),
                 scopeOf(read.getResult())};
    if (!values.count(key))
      reads.push_back(read);
  }
  if (multipliesReads)
    return multiplyReads(reads);
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
  Sheet sheet = readSheet();
  for (int64_t first = 0; first < sheet.rows; first += sheet.atOnce) {
    FailureOr<Components> rows = stateRows(state, sheet, first);
    if (failed(rows))
      return failure();
    for (int64_t i = 0; i < sheet.atOnce; ++i)
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

GpuKernel::Target GpuKernel::targetOf(StoreStateOp op) {
  Target target{
      op.getState(), op.getPool(), {}, storesInPlace(op), isTransposed(op)};
  if (target.inPlace || target.isTransposed)
    target.tile =
        stagedStates[cast<BlockArgument>(op.getPool()).getArgNumber()];
  return target;
}

LogicalResult GpuKernel::storeRows(const Target &target, const Sheet &sheet,
                                   int64_t first) {
  const Place &place = sheet.place;
  FailureOr<Components> rows = stateRows(target.state, sheet, first);
  if (failed(rows))
    return failure();
  auto typeOf = [](Value memory) {
    return cast<MemRefType>(memory.getType()).getElementType();
  };
  if (target.inPlace || target.isTransposed) {
    for (int64_t i = 0; i < sheet.atOnce; ++i)
      for (int64_t c = 0; c < place.chunks; ++c)
        vector::StoreOp::create(
            b, convertTo((*rows)[i * place.chunks + c], typeOf(target.tile)),
            target.tile,
            ValueRange{rowOf(sheet, first + i), chunkStart(place, c)});
    return success();
  }
  Value pool;
  if (target.pool)
    pool = memory[cast<BlockArgument>(target.pool).getArgNumber()];
  for (int64_t i = 0; i < sheet.atOnce; ++i) {
    Value local = rowOf(sheet, first + i), inside;
    // Threads without a row of their own have repeated the last one.
    if (hasSpareRows())
      inside = isBelow(local, schedule.tileRows);
    guarded(inside, [&] {
      Value at = packed > 1 ? ownRow
                            : Value(arith::AddIOp::create(b, tileStart, local));
      for (int64_t c = 0; c < place.chunks; ++c) {
        Value part = (*rows)[i * place.chunks + c];
        if (target.tile)
          vector::StoreOp::create(b, convertTo(part, typeOf(target.tile)),
                                  target.tile,
                                  ValueRange{local, chunkStart(place, c)});
        if (!pool)
          continue;
        auto store = vector::StoreOp::create(
            b, convertTo(part, typeOf(pool)), pool,
            ArrayRef<Value>{writeState, head, at, chunkStart(place, c)});
        store.setNontemporal(true);
      }
    });
  }
  return success();
}

LogicalResult GpuKernel::emitStore(const Target &target) {
  waitForStages(schedule.stages);
  // Others may still read what is stored in its place.
  if (target.isTransposed && !multipliesFolds)
    barrier();
  if (failed(multipliesFolds ? storeTiles(target) : storeSheets(target)))
    return failure();
  if (target.isTransposed)
    storeTransposed(cast<BlockArgument>(target.pool).getArgNumber());
  return success();
}

LogicalResult GpuKernel::storeSheets(const Target &target) {
  Sheet sheet = storeSheet();
  if (sheet.atOnce == sheet.rows && !target.inPlace)
    return storeRows(target, sheet, 0);
  // Rows that were read are loaded anew rather than kept in registers.
  if (failed(prepareRows(target.state, sheet.place)))
    return failure();
  if (sheet.place.lanes == lanes || target.inPlace)
    barrier();
  if (failed(storeInTurns(target, sheet)))
    return failure();
  if (target.inPlace)
    copyTileBack(target);
  return success();
}

LogicalResult GpuKernel::storeInTurns(const Target &target, const Sheet &all) {
  Sheet sheet = all;
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(sheet.rows),
                                 constantIndex(sheet.atOnce));
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  sheet.offset = loop.getInductionVar();
  return storeRows(target, sheet, 0);
}
