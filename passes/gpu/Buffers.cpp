//===- Buffers.cpp - entries of a buffer in a GPU kernel ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// An entry that is not there yet is read as another one and weighs nothing, so
// that loads need no branches. Entries are numbered from the oldest.
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

/// If the values of a ring are not more than these, they are held in registers,
/// an element of each a thread, from before the first barrier.
static constexpr int64_t kPreloadedValues = 32;
/// Registers of a thread for the queries of a buffer.
static constexpr int64_t kQueryRegisters = 48;
/// Keys that are folded from shared memory at a time.
static constexpr int64_t kSliceKeys = 8;

static int64_t capacityOf(Value buffer) {
  return cast<BufferType>(buffer.getType()).getCapacity();
}

Value GpuKernel::ringSlot(Value position) {
  // All buffers of a row share its cursor; any of them knows the capacity.
  return arith::RemUIOp::create(
      b, arith::AddIOp::create(b, base, position),
      constantIndex(capacityOf(fields.front().first)));
}

/// The slot of an entry, or of the newest one if there are fewer.
Value GpuKernel::clampedEntry(Value position) {
  Value last = arith::SubIOp::create(
      b, arith::MaxSIOp::create(b, length, constantIndex(1)), constantIndex(1));
  return ringSlot(arith::MinSIOp::create(b, position, last));
}

Value GpuKernel::fieldMemory(Value buffer, StringRef name) {
  ArrayRef<FieldAttr> all = cast<BufferType>(buffer.getType()).getFields();
  auto found = llvm::find_if(
      all, [&](FieldAttr field) { return field.getName() == name; });
  return fields[buffer][found - all.begin()];
}

SmallVector<Value> GpuKernel::fieldIndices(FieldAttr field, Value entry) {
  return {readSlot, headIndex(field.getShape().front()), entry};
}

static Value isValid(ImplicitLocOpBuilder &b, Value position, Value length) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, position, length);
}

//===----------------------------------------------------------------------===//
// Weights of the entries
//===----------------------------------------------------------------------===//

GpuKernel::EntryWeights GpuKernel::weightsOf(Value buffer,
                                             std::optional<StringRef> decay,
                                             ArrayRef<StringRef> scales) {
  auto type = cast<BufferType>(buffer.getType());
  std::string key = std::to_string(cast<BlockArgument>(buffer).getArgNumber()) +
                    "/" + decay.value_or("").str();
  for (StringRef scale : scales)
    key += "/" + scale.str();
  if (auto found = weights.find(key); found != weights.end())
    return found->second;

  EntryWeights result;
  int64_t capacity = type.getCapacity();
  auto load = [&](StringRef name, Value entry, Value element) -> Value {
    FieldAttr field = type.getField(name);
    SmallVector<Value> at = fieldIndices(field, entry);
    if (element)
      at.push_back(element);
    return loadElement(fieldMemory(buffer, name), at);
  };
  auto scaleOf = [&](Value entry) -> Value {
    Value product = constantFloat(1);
    for (StringRef name : scales)
      product = arith::MulFOp::create(b, product, load(name, entry, {}));
    return product;
  };
  Value one = constantFloat(1);
  if (decay && type.getField(*decay).getShape().size() > 1) {
    // A thread follows its element from the newest entry to the oldest.
    int64_t size = type.getField(*decay).getShape().back();
    result.isVector = true;
    result.each = shared({capacity, size}, "entry_decays");
    Value element = clampedThread(size);
    auto loop =
        scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), one);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value passed = loop.getRegionIterArg(0);
      Value position = arith::SubIOp::create(
          b, arith::SubIOp::create(b, length, constantIndex(1)),
          loop.getInductionVar());
      Value entry = ringSlot(position);
      Value weight = arith::MulFOp::create(b, passed, scaleOf(entry));
      ifThread(size, [&] {
        memref::StoreOp::create(b, weight, result.each,
                                ValueRange{position, thread});
      });
      Value next =
          arith::MulFOp::create(b, passed, load(*decay, entry, element));
      scf::YieldOp::create(b, next);
    }
    result.product = loop.getResult(0);
    barrier();
    weights[key] = result;
    return result;
  }

  result.each = shared({capacity}, "entry_weights");
  Value decays;
  if (decay) {
    decays = shared({capacity}, "entry_decays");
    auto loop =
        scf::ForOp::create(b, thread, length, constantIndex(schedule.threads));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value position = loop.getInductionVar();
      memref::StoreOp::create(b, load(*decay, ringSlot(position), {}), decays,
                              ValueRange{position});
    }
    barrier();
    auto all =
        scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), one);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(all.getBody());
    Value each =
        memref::LoadOp::create(b, decays, ValueRange{all.getInductionVar()});
    Value next = arith::MulFOp::create(b, all.getRegionIterArg(0), each);
    scf::YieldOp::create(b, next);
    result.product = all.getResult(0);
  }
  auto loop =
      scf::ForOp::create(b, thread, length, constantIndex(schedule.threads));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value position = loop.getInductionVar();
    Value weight = scaleOf(ringSlot(position));
    if (decay) {
      auto newer = scf::ForOp::create(b, add(position, 1), length,
                                      constantIndex(1), weight);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(newer.getBody());
      Value each = memref::LoadOp::create(b, decays,
                                          ValueRange{newer.getInductionVar()});
      Value next = arith::MulFOp::create(b, newer.getRegionIterArg(0), each);
      scf::YieldOp::create(b, next);
      weight = newer.getResult(0);
      b.setInsertionPointAfter(newer);
      memref::StoreOp::create(b, weight, result.each, ValueRange{position});
    } else {
      memref::StoreOp::create(b, weight, result.each, ValueRange{position});
    }
  }
  barrier();
  weights[key] = result;
  return result;
}

//===----------------------------------------------------------------------===//
// Values of the entries
//===----------------------------------------------------------------------===//

/// Loads this thread's element of the values of every entry.
void GpuKernel::preloadValues(Operation *op, Value buffer,
                              ArrayRef<StringRef> names) {
  auto type = cast<BufferType>(buffer.getType());
  int64_t perEntry = 0;
  for (StringRef name : names)
    perEntry += componentCount(type.getField(name));
  if (type.getCapacity() * perEntry > kPreloadedValues)
    return;
  Components all;
  Value element =
      arith::AddIOp::create(b, tileStart, clampedThread(schedule.tileRows));
  for (int64_t j = 0; j < type.getCapacity(); ++j) {
    Value entry = clampedEntry(constantIndex(j));
    for (StringRef name : names) {
      FieldAttr field = type.getField(name);
      for (int64_t r = 0; r < componentCount(field); ++r) {
        SmallVector<Value> at = fieldIndices(field, entry);
        if (field.getShape().size() == 3)
          at.push_back(constantIndex(r));
        at.push_back(element);
        all.push_back(memref::LoadOp::create(b, fieldMemory(buffer, name), at));
      }
    }
  }
  preloaded[op] = all;
}

/// The sums of values times `weights` [accumulators × values an entry, L].
GpuKernel::Components GpuKernel::sumWeightedValues(Operation *op, Value weights,
                                                   int64_t accumulators) {
  Value buffer = op->getOperand(0);
  auto type = cast<BufferType>(buffer.getType());
  auto weightsType = cast<MemRefType>(weights.getType());
  int64_t perEntry = weightsType.getDimSize(0) / accumulators;
  Components sums(accumulators, constantFloat(0));
  Value zero = constantFloat(0);
  if (auto found = preloaded.find(op); found != preloaded.end()) {
    for (int64_t j = 0; j < type.getCapacity(); ++j) {
      Value valid = isValid(b, constantIndex(j), length);
      for (int64_t r = 0; r < perEntry; ++r) {
        Value value = arith::SelectOp::create(
            b, valid, toF32(found->second[j * perEntry + r]), zero);
        for (int64_t i = 0; i < accumulators; ++i) {
          Value weight = memref::LoadOp::create(
              b, weights,
              ValueRange{constantIndex(i * perEntry + r), constantIndex(j)});
          weight = arith::SelectOp::create(b, valid, weight, zero);
          sums[i] = math::FmaOp::create(b, weight, value, sums[i]);
        }
      }
    }
    return sums;
  }
  SmallVector<std::pair<StringRef, int64_t>> names;
  if (auto read = dyn_cast<ReadBufferOp>(op))
    names.emplace_back(read.getValue(),
                       componentCount(type.getField(read.getValue())));
  else
    for (StringAttr name : cast<TransportOp>(op).getTransition().getValues())
      if (!name.empty())
        names.emplace_back(name.getValue(),
                           componentCount(type.getField(name.getValue())));
  Value element =
      arith::AddIOp::create(b, tileStart, clampedThread(schedule.tileRows));
  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), sums);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  Value entry = ringSlot(position);
  SmallVector<Value> next(loop.getRegionIterArgs());
  int64_t r = 0;
  for (auto [name, ranks] : names)
    for (int64_t k = 0; k < ranks; ++k, ++r) {
      FieldAttr field = type.getField(name);
      SmallVector<Value> at = fieldIndices(field, entry);
      if (field.getShape().size() == 3)
        at.push_back(constantIndex(k));
      at.push_back(element);
      Value value = loadElement(fieldMemory(buffer, name), at);
      for (int64_t i = 0; i < accumulators; ++i) {
        Value weight = memref::LoadOp::create(
            b, weights, ValueRange{constantIndex(i * perEntry + r), position});
        next[i] = math::FmaOp::create(b, weight, value, next[i]);
      }
    }
  scf::YieldOp::create(b, next);
  return Components(loop.getResults());
}

LogicalResult GpuKernel::emitReadBuffer(ReadBufferOp op) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr keyField = type.getField(op.getKey());
  SmallVector<StringRef> scales;
  for (std::optional<StringRef> name : {op.getKeyScale(), op.getValueScale()})
    if (name)
      scales.push_back(*name);
  EntryWeights entryWeights = weightsOf(buffer, op.getDecay(), scales);

  SmallVector<std::pair<Value, int64_t>> queries; // memory and component
  SmallVector<int64_t> counts;
  for (Value query : op.getQueries()) {
    FailureOr<Value> all = whole(query, Side::Key);
    if (failed(all))
      return failure();
    counts.push_back(cast<MemRefType>(all->getType()).getDimSize(0));
    for (int64_t i = 0; i < counts.back(); ++i)
      queries.emplace_back(*all, i);
  }
  // Few queries stay in registers.
  auto load = [&](std::pair<Value, int64_t> query) {
    return fragmentOf(query.first, {constantIndex(query.second)});
  };
  bool areFew = int64_t(queries.size()) * chunks * width <= kQueryRegisters;
  SmallVector<Components> held;
  if (areFew)
    held = llvm::map_to_vector(queries, load);
  int64_t ranks = componentCount(keyField);
  Value scratch =
      shared({static_cast<int64_t>(queries.size()) * ranks, type.getCapacity()},
             "entry_dots");
  Value isFirstLane = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                            laneOfGroup, constantIndex(0));
  // Every group takes one entry a turn; all take part in every turn.
  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(groups));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value position = arith::AddIOp::create(b, loop.getInductionVar(), group);
    Value valid = isValid(b, position, length);
    Value entry = clampedEntry(position);
    Value clamped = arith::MinSIOp::create(
        b, position, arith::SubIOp::create(b, length, constantIndex(1)));
    SmallVector<Value> dots;
    for (int64_t r = 0; r < ranks; ++r) {
      SmallVector<Value> at = fieldIndices(keyField, entry);
      if (keyField.getShape().size() == 3)
        at.push_back(constantIndex(r));
      Components key = fragmentOf(fieldMemory(buffer, op.getKey()), at);
      if (entryWeights.isVector) {
        Components decays = fragmentOf(entryWeights.each, {clamped});
        for (auto [part, decay] : llvm::zip(key, decays))
          part = arith::MulFOp::create(b, part, decay);
      }
      for (auto [i, query] : llvm::enumerate(queries))
        dots.push_back(
            sumOverGroup(dotChunks(key, areFew ? held[i] : load(query))));
    }
    Value mine = arith::AndIOp::create(b, valid, isFirstLane);
    auto guarded = scf::IfOp::create(b, mine);
    b.setInsertionPointToStart(guarded.thenBlock());
    Value weight;
    if (!entryWeights.isVector)
      weight =
          memref::LoadOp::create(b, entryWeights.each, ValueRange{position});
    for (auto [i, dot] : llvm::enumerate(dots)) {
      if (weight)
        dot = arith::MulFOp::create(b, dot, weight);
      int64_t r = i / queries.size(), q = i % queries.size();
      memref::StoreOp::create(
          b, dot, scratch, ValueRange{constantIndex(q * ranks + r), position});
    }
  }
  barrier();
  Components sums = sumWeightedValues(op, scratch, queries.size());
  ArrayRef<Value> rest = sums;
  for (auto [result, count] : llvm::zip(op.getResults(), counts)) {
    Components mine(rest.take_front(count));
    values[{result, static_cast<int>(tiles > 1 ? Side::Row : Side::Key)}] =
        mine;
    rest = rest.drop_front(count);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

FailureOr<GpuKernel::Components> GpuKernel::emitFold(FoldBufferOp op) {
  FailureOr<Components> state = stateOf(op.getState());
  if (failed(state))
    return failure();
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr keyField = type.getField(op.getKey());
  FieldAttr valueField = type.getField(op.getValue());
  SmallVector<StringRef> scales;
  for (std::optional<StringRef> name : {op.getKeyScale(), op.getValueScale()})
    if (name)
      scales.push_back(*name);
  EntryWeights entryWeights = weightsOf(buffer, op.getDecay(), scales);
  int64_t ranks = componentCount(keyField);
  int64_t slice = std::max<int64_t>(1, kSliceKeys / ranks);
  Value keys = shared({slice * ranks, keySize}, "slice_keys");
  Value inputs = shared({slice * ranks, schedule.tileRows}, "slice_values");
  Value zero = constantFloat(0);

  auto loop = scf::ForOp::create(b, constantIndex(0), length,
                                 constantIndex(slice), *state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  // The slice before has been used by all.
  barrier();
  Value last = arith::SubIOp::create(b, length, constantIndex(1));
  for (int64_t e = 0; e < slice; ++e) {
    Value position = add(loop.getInductionVar(), e);
    Value valid = isValid(b, position, length);
    Value clamped = arith::MinSIOp::create(b, position, last);
    Value entry = ringSlot(clamped);
    for (int64_t r = 0; r < ranks; ++r) {
      auto indices = [&](FieldAttr field, Value element) {
        SmallVector<Value> at = fieldIndices(field, entry);
        if (field.getShape().size() == 3)
          at.push_back(constantIndex(r));
        at.push_back(element);
        return at;
      };
      SmallVector<Value> to{constantIndex(e * ranks + r), thread};
      ifThread(keySize, [&] {
        Value key = loadElement(fieldMemory(buffer, op.getKey()),
                                indices(keyField, thread));
        Value weight = memref::LoadOp::create(b, entryWeights.each,
                                              entryWeights.isVector
                                                  ? ValueRange{clamped, thread}
                                                  : ValueRange{clamped});
        key = arith::MulFOp::create(b, key, weight);
        memref::StoreOp::create(b, arith::SelectOp::create(b, valid, key, zero),
                                keys, to);
      });
      ifThread(schedule.tileRows, [&] {
        Value value = loadElement(
            fieldMemory(buffer, op.getValue()),
            indices(valueField, arith::AddIOp::create(b, tileStart, thread)));
        memref::StoreOp::create(
            b, arith::SelectOp::create(b, valid, value, zero), inputs, to);
      });
    }
  }
  barrier();
  auto inner =
      scf::ForOp::create(b, constantIndex(0), constantIndex(slice * ranks),
                         constantIndex(1), loop.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard innerGuard(b);
    b.setInsertionPointToStart(inner.getBody());
    Components next(inner.getRegionIterArgs());
    Value at = inner.getInductionVar();
    Components key = fragmentOf(keys, {at});
    for (int64_t i = 0; i < rowsPerThread; ++i) {
      Value value =
          splat(memref::LoadOp::create(b, inputs, ValueRange{at, rowOf(i)}));
      for (int64_t c = 0; c < chunks; ++c) {
        Value &part = next[i * chunks + c];
        part = vector::FMAOp::create(b, key[c], value, part);
      }
    }
    scf::YieldOp::create(b, next);
  }
  scf::YieldOp::create(b, inner.getResults());
  return Components(loop.getResults());
}

FailureOr<GpuKernel::Components> GpuKernel::emitReplay(ReplayOp op) {
  FailureOr<Components> state = stateOf(op.getState());
  if (failed(state))
    return failure();
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), *state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value entry = ringSlot(loop.getInductionVar());
  auto scalar = [&](StringAttr name) -> Value {
    return loadElement(fieldMemory(buffer, name.getValue()),
                       fieldIndices(type.getField(name.getValue()), entry));
  };
  /// Fragments of the vectors of a field, scaled.
  auto vectors = [&](StringAttr name, StringAttr scale) {
    FieldAttr field = type.getField(name.getValue());
    SmallVector<Components> result;
    for (int64_t r = 0; r < componentCount(field); ++r) {
      SmallVector<Value> at = fieldIndices(field, entry);
      if (field.getShape().size() == 3)
        at.push_back(constantIndex(r));
      Components parts = fragmentOf(fieldMemory(buffer, name.getValue()), at);
      if (!scale.empty()) {
        Value factor = splat(scalar(scale));
        for (Value &part : parts)
          part = arith::MulFOp::create(b, part, factor);
      }
      result.push_back(parts);
    }
    return result;
  };
  Components decay;
  if (!transition.getDecay().empty()) {
    FieldAttr field = type.getField(transition.getDecay());
    StringAttr name = b.getStringAttr(transition.getDecay());
    decay = field.getShape().size() == 1
                ? Components(chunks, splat(scalar(name)))
                : vectors(name, b.getStringAttr("")).front();
  }
  SmallVector<SmallVector<Components>> keys, reads;
  for (auto [name, scale] :
       llvm::zip(transition.getKeys(), transition.getKeyScales()))
    keys.push_back(vectors(name, scale));
  for (auto [name, scale] :
       llvm::zip(transition.getVectors(), transition.getVectorScales()))
    reads.push_back(vectors(name, scale));
  SmallVector<Value> coefficients;
  for (StringAttr name : transition.getCoefficients())
    coefficients.push_back(scalar(name));

  Components next(loop.getRegionIterArgs());
  for (int64_t i = 0; i < rowsPerThread; ++i) {
    MutableArrayRef<Value> mine =
        MutableArrayRef<Value>(next).slice(i * chunks, chunks);
    SmallVector<Value> old(mine.begin(), mine.end());
    if (!decay.empty())
      for (auto [part, factor] : llvm::zip(mine, decay))
        part = arith::MulFOp::create(b, part, factor);
    SmallVector<Value> decayed(mine.begin(), mine.end());
    Value rowIndex = arith::AddIOp::create(b, tileStart, rowOf(i));
    SmallVector<SmallVector<Value>> inputs;
    for (auto [name, scale, ofWrite] :
         llvm::zip(transition.getValues(), transition.getValueScales(), keys)) {
      auto &list = inputs.emplace_back(ofWrite.size(), constantFloat(0));
      if (name.empty())
        continue;
      FieldAttr field = type.getField(name.getValue());
      for (int64_t r = 0; r < componentCount(field); ++r) {
        SmallVector<Value> at = fieldIndices(field, entry);
        if (field.getShape().size() == 3)
          at.push_back(constantIndex(r));
        at.push_back(rowIndex);
        list[r] = loadElement(fieldMemory(buffer, name.getValue()), at);
        if (!scale.empty())
          list[r] = arith::MulFOp::create(b, list[r], scalar(scale));
      }
    }
    for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
      for (auto [r, vector] : llvm::enumerate(reads[m])) {
        Value read = sumOverGroup(
            dotChunks(transition.getAfterDecay()[m] ? decayed : old, vector));
        inputs[owner][r] = arith::AddFOp::create(
            b, inputs[owner][r],
            arith::MulFOp::create(b, coefficients[m], read));
      }
    for (auto [list, ofWrite] : llvm::zip(inputs, keys))
      for (auto [value, key] : llvm::zip(list, ofWrite))
        for (auto [part, k] : llvm::zip(mine, key))
          part = vector::FMAOp::create(b, k, splat(value), part);
  }
  scf::YieldOp::create(b, next);
  return Components(loop.getResults());
}
