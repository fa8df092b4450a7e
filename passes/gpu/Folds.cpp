//===- Folds.cpp - entries that become state in a GPU kernel --------------===//
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

/// Whether the values of entries, not their keys, are weighed, and where there
/// is room for it.
bool GpuKernel::weighsValues(FoldBufferOp op) {
  const DecayedKey *key =
      decayedKey(op.getBuffer(), op.getKey(), op.getDecay());
  return stagesWeights && !(key && key->isScaled);
}

/// The values of entries times their weights, [L·ranks, rows of the tile]:
/// every thread computes those of its row, so that a fold only multiplies and
/// adds.
Value GpuKernel::weightedValuesOf(FoldBufferOp op) {
  Value &result = weightedValues[op];
  if (result)
    return result;
  Value buffer = op.getBuffer();
  int64_t ranks =
      componentCount(op.getBuffer().getType().getField(op.getValue()));
  result = shared({capacity() * ranks, schedule.tileRows}, "weighted_values");
  Components weights =
      weightsOf(buffer, op.getDecay(), {op.getKeyScale(), op.getValueScale()});
  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value position = loop.getInductionVar();
    Value weight = weights.empty() ? Value() : numberAt(weights, position);
    for (int64_t r = 0; r < ranks; ++r) {
      Value value = loadEntryRow(buffer, op.getValue(), r, position, ownRow);
      if (weight)
        value = arith::MulFOp::create(b, value, weight);
      Value at = position;
      if (ranks > 1)
        at = add(arith::MulIOp::create(b, position, constantIndex(ranks)), r);
      guarded(ownsRow, [&] {
        memref::StoreOp::create(b, value, result, ValueRange{at, ownRow});
      });
    }
  }
  barrier();
  return result;
}

FailureOr<GpuKernel::Components>
GpuKernel::emitFold(FoldBufferOp op, const Sheet &sheet, int64_t first) {
  FailureOr<Components> state = stateRows(op.getState(), sheet, first);
  if (failed(state))
    return failure();
  if (sheet.place.start) {
    Components sums = multiplyFold(op, sheet);
    for (auto [part, sum] : llvm::zip(*state, sums))
      part = arith::AddFOp::create(b, part, sum);
    return state;
  }
  Value buffer = op.getBuffer();
  const Place &place = sheet.place;
  // Without room for them, values are weighed where they are used.
  Value values = weighsValues(op) ? weightedValuesOf(op) : Value();
  Components weights;
  if (!values)
    weights = weightsOfUse(buffer, op.getKey(), op.getDecay(),
                           {op.getKeyScale(), op.getValueScale()});
  FieldAttr field = op.getBuffer().getType().getField(op.getValue());
  int64_t ranks = componentCount(field);

  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), *state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  Components next(loop.getRegionIterArgs());
  Value weight = weights.empty() ? Value() : numberAt(weights, position);
  for (int64_t r = 0; r < ranks; ++r) {
    Components key =
        loadKey(buffer, op.getKey(), op.getDecay(), r, position, place);
    Value from = values;
    SmallVector<Value> at{rowOfEntry(position, r, ranks)};
    if (!values)
      std::tie(from, at) = entryMemory(buffer, field, r, position);
    auto type = cast<MemRefType>(from.getType());
    bool isTile = type.getRank() == 2;
    // Values of neighbouring rows are loaded together where they lie so.
    int64_t together = 128 / type.getElementTypeBitWidth();
    while (together > 1 &&
           (!isTile || sheet.step > 1 || hasSpareRows() ||
            sheet.atOnce % together != 0 || sheet.rows % together != 0 ||
            schedule.tileRows % together != 0))
      together /= 2;
    SmallVector<Value> mine;
    for (int64_t i = 0; i < sheet.atOnce; i += together) {
      Value local = clampedRow(rowOf(sheet, first + i));
      if (!isTile)
        local = arith::AddIOp::create(b, tileStart, local);
      SmallVector<Value> indices(at);
      indices.push_back(local);
      if (together == 1) {
        mine.push_back(loadElement(from, indices));
        continue;
      }
      Value some = toF32(vector::LoadOp::create(
          b, VectorType::get({together}, type.getElementType()), from,
          indices));
      for (int64_t k = 0; k < together; ++k)
        mine.push_back(vector::ExtractOp::create(b, some, k));
    }
    if (weight)
      for (Value &value : mine)
        value = arith::MulFOp::create(b, value, weight);
    for (auto [i, value] : llvm::enumerate(mine))
      for (int64_t c = 0; c < place.chunks; ++c) {
        Value &part = next[i * place.chunks + c];
        part =
            vector::FMAOp::create(b, key[c], splat(value, place.width), part);
      }
  }
  scf::YieldOp::create(b, next);
  return Components(loop.getResults());
}

GpuKernel::Transition GpuKernel::loadTransition(Value buffer,
                                                TransitionAttr transition,
                                                Value position) {
  BufferType type = cast<BufferType>(buffer.getType());
  Place place = keyPlace(keySize);
  auto vectors = [&](StringAttr name, StringAttr scale) {
    SmallVector<Components> result;
    int64_t ranks = componentCount(type.getField(name.getValue()));
    for (int64_t r = 0; r < ranks; ++r) {
      Components parts = loadEntry(buffer, name.getValue(), r, position, place);
      if (!scale.empty()) {
        Value factor = splat(
            numberAt(numbersOf(buffer, scale.getValue()), position), width);
        for (Value &part : parts)
          part = arith::MulFOp::create(b, part, factor);
      }
      result.push_back(parts);
    }
    return result;
  };
  Transition result;
  if (StringRef name = transition.getDecay(); !name.empty()) {
    if (type.getField(name).getShape().size() == 1)
      result.decay.assign(
          chunks, splat(numberAt(numbersOf(buffer, name), position), width));
    else
      result.decay = loadEntry(buffer, name, 0, position, place);
  }
  for (auto [name, scale] :
       llvm::zip(transition.getKeys(), transition.getKeyScales()))
    result.keys.push_back(vectors(name, scale));
  for (auto [name, scale] :
       llvm::zip(transition.getVectors(), transition.getVectorScales()))
    result.reads.push_back(vectors(name, scale));
  for (StringAttr name : transition.getCoefficients())
    result.coefficients.push_back(
        numberAt(numbersOf(buffer, name.getValue()), position));
  return result;
}

FailureOr<GpuKernel::Components>
GpuKernel::emitReplay(ReplayOp op, const Sheet &sheet, int64_t first) {
  FailureOr<Components> state = stateRows(op.getState(), sheet, first);
  if (failed(state))
    return failure();
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), *state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  Transition entry = loadTransition(buffer, transition, position);

  Components next(loop.getRegionIterArgs());
  for (int64_t i = 0; i < sheet.atOnce; ++i) {
    MutableArrayRef<Value> mine =
        MutableArrayRef<Value>(next).slice(i * chunks, chunks);
    SmallVector<Value> old(mine.begin(), mine.end());
    if (!entry.decay.empty())
      for (auto [part, factor] : llvm::zip(mine, entry.decay))
        part = arith::MulFOp::create(b, part, factor);
    SmallVector<Value> decayed(mine.begin(), mine.end());
    Value local = clampedRow(rowOf(sheet, first + i));
    SmallVector<SmallVector<Value>> inputs;
    for (auto [name, scale, ofWrite] : llvm::zip(
             transition.getValues(), transition.getValueScales(), entry.keys)) {
      auto &list = inputs.emplace_back(ofWrite.size(), constantFloat(0));
      if (name.empty())
        continue;
      int64_t ranks = componentCount(type.getField(name.getValue()));
      for (int64_t r = 0; r < ranks; ++r) {
        list[r] = loadEntryRow(buffer, name.getValue(), r, position, local);
        if (!scale.empty())
          list[r] = arith::MulFOp::create(
              b, list[r],
              numberAt(numbersOf(buffer, scale.getValue()), position));
      }
    }
    for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
      for (auto [r, vector] : llvm::enumerate(entry.reads[m])) {
        Value read = sumOverGroup(
            dotChunks(transition.getAfterDecay()[m] ? decayed : old, vector));
        inputs[owner][r] = arith::AddFOp::create(
            b, inputs[owner][r],
            arith::MulFOp::create(b, entry.coefficients[m], read));
      }
    for (auto [list, ofWrite] : llvm::zip(inputs, entry.keys))
      for (auto [value, key] : llvm::zip(list, ofWrite))
        for (auto [part, k] : llvm::zip(mine, key))
          part = vector::FMAOp::create(b, k, splat(value, width), part);
  }
  scf::YieldOp::create(b, next);
  return Components(loop.getResults());
}
