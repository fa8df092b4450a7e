//===- BufferEmission.cpp - entries of a buffer in a kernel ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Entries are walked from the newest to the oldest with the product of the
// decays passed so far: one multiplication an entry, no logarithm, no
// division, and a decay of 0 needs no special case.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

Kernel::EntryPlace Kernel::placeOf(Value position) {
  // All buffers of a row share its cursor; any of them knows the capacity.
  auto buffer = cast<BufferType>(fields.begin()->first.getType());
  auto load = [&](Value table, Value at) -> Value {
    return arith::IndexCastUIOp::create(b, b.getIndexType(),
                                        memref::LoadOp::create(b, table, at));
  };
  Value place =
      arith::RemUIOp::create(b, arith::AddIOp::create(b, base, position),
                             constantIndex(buffer.getCapacity()));
  if (entryOrder)
    place = load(entryOrder, place);
  if (!pageTable)
    return {entrySlot, place};
  Value page = constantIndex(buffer.getPage());
  return {load(pageTable, arith::DivUIOp::create(b, place, page)),
          arith::RemUIOp::create(b, place, page)};
}

Value Kernel::fieldMemory(Value buffer, StringRef name) {
  ArrayRef<FieldAttr> all = cast<BufferType>(buffer.getType()).getFields();
  auto found = llvm::find_if(
      all, [&](FieldAttr field) { return field.getName() == name; });
  return fields[buffer][found - all.begin()];
}

Components Kernel::loadField(Value buffer, StringRef name, EntryPlace place) {
  FieldAttr field = cast<BufferType>(buffer.getType()).getField(name);
  Value source = fieldMemory(buffer, name);
  ArrayRef<int64_t> shape = field.getShape();
  SmallVector<Value> indices{place.outer, headIndex(shape[0]), place.entry};
  if (shape.size() == 1)
    return {toF32(memref::LoadOp::create(b, source, indices))};
  Components result;
  for (int64_t i = 0, e = shape.size() == 3 ? shape[1] : 1; i < e; ++i) {
    SmallVector<Value> at(indices);
    if (shape.size() == 3)
      at.push_back(constantIndex(i));
    at.push_back(constantIndex(0));
    result.push_back(loadVector(source, at, shape.back()));
  }
  return result;
}

/// Asks for a share of the entries of the next head while rows of this one
/// stream: the one that falls to the tile at `tileStart` of `extent` rows.
/// Entries are short pieces, too short for the processor to see where they
/// lead, and asking for all of them at once would hold up the rows.
void Kernel::prefetchEntries(int64_t extent) {
  if (fields.empty())
    return;
  int64_t capacity =
      cast<BufferType>(fields.begin()->first.getType()).getCapacity();
  // Entries a row, times the rows before this tile.
  int64_t share = llvm::divideCeil(capacity * tileWidth, extent);
  Value first = arith::DivUIOp::create(
      b, arith::MulIOp::create(b, tileStart, constantIndex(capacity)),
      constantIndex(extent));
  Value last = arith::MinUIOp::create(
      b, length, arith::AddIOp::create(b, first, constantIndex(share)));
  auto loop = scf::ForOp::create(b, first, last, constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  EntryPlace place = placeOf(loop.getInductionVar());
  for (auto &[buffer, memories] : fields)
    for (auto [field, source] :
         llvm::zip(cast<BufferType>(buffer.getType()).getFields(), memories)) {
      ArrayRef<int64_t> shape = field.getShape();
      Value head =
          arith::AddIOp::create(b, headIndex(shape[0]), constantIndex(1));
      if (shape.size() == 1) {
        prefetch(source, {place.outer, head, place.entry}, 0,
                 /*isWrite=*/false);
        continue;
      }
      for (int64_t i = 0, e = shape.size() == 3 ? shape[1] : 1; i < e; ++i) {
        SmallVector<Value> indices{place.outer, head, place.entry};
        if (shape.size() == 3)
          indices.push_back(constantIndex(i));
        prefetch(source, indices, shape.back(), /*isWrite=*/false);
      }
    }
}

/// `value` times a number, which may be absent.
static Value scaled(ImplicitLocOpBuilder &b, Value value, Value scale) {
  if (!scale)
    return value;
  if (auto type = dyn_cast<VectorType>(value.getType());
      type && !isa<VectorType>(scale.getType()))
    scale = vector::BroadcastOp::create(b, type, scale);
  return arith::MulFOp::create(b, value, scale);
}

static Value one(ImplicitLocOpBuilder &b, FieldAttr field) {
  Type type = b.getF32Type();
  if (field.getShape().size() == 1)
    return arith::ConstantOp::create(b, b.getFloatAttr(type, 1.0));
  auto vector = VectorType::get({field.getShape().back()}, type);
  return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, 1.0f));
}

//===----------------------------------------------------------------------===//
// Reads of the buffer
//===----------------------------------------------------------------------===//

LogicalResult Kernel::emitDecayProduct(DecayProductOp op) {
  FieldAttr field = op.getBuffer().getType().getField(op.getDecay());
  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1),
                                 one(b, field));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value decay = loadField(op.getBuffer(), op.getDecay(),
                            placeOf(loop.getInductionVar()))
                      .front();
    scf::YieldOp::create(
        b, Value(arith::MulFOp::create(b, loop.getRegionIterArg(0), decay)));
  }
  setHeadValue(op.getResult(), {loop.getResult(0)});
  return success();
}

/// Adds up the values of all entries times their weights, which lie in
/// `weights` as [accumulators × values of an entry, entries]. Nothing in this
/// loop waits for anything but memory, so that many entries are on their way
/// at once. Returns `accumulators` sums.
SmallVector<Value> Kernel::sumWeightedValues(
    Value weights, ArrayRef<Value> initial,
    function_ref<SmallVector<Value>(EntryPlace)> loadValues) {
  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1),
                                 initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  SmallVector<Value> values = loadValues(placeOf(position));
  SmallVector<Value> next(loop.getRegionIterArgs());
  int64_t at = 0;
  for (Value &sum : next)
    for (Value value : values) {
      Value weight = memref::LoadOp::create(
          b, weights, ValueRange{constantIndex(at++), position});
      int64_t width = cast<VectorType>(value.getType()).getShape().back();
      sum = vector::FMAOp::create(b, splat(weight, width), value, sum);
    }
  scf::YieldOp::create(b, next);
  return loop.getResults();
}

LogicalResult Kernel::emitReadBuffer(ReadBufferOp op) {
  BufferType buffer = op.getBuffer().getType();
  SmallVector<Components> queries;
  SmallVector<Value> passed, sums;
  if (op.getDecay())
    passed.push_back(one(b, buffer.getField(*op.getDecay())));
  FieldAttr valueField = buffer.getField(op.getValue());
  for (Value query : op.getQueries()) {
    FailureOr<Components> components = headOperand(query);
    if (failed(components))
      return failure();
    queries.push_back(*components);
    sums.append(components->size(), zeros(valueField.getShape().back()));
  }
  Value weights = allocateScratch(
      {static_cast<int64_t>(sums.size()) * componentCount(valueField),
       buffer.getCapacity()});

  auto loop =
      scf::ForOp::create(b, constantIndex(0), length, constantIndex(1), passed);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value newest = arith::SubIOp::create(b, length, constantIndex(1));
    Value position = arith::SubIOp::create(b, newest, loop.getInductionVar());
    EntryPlace entry = placeOf(position);
    Components keys = loadField(op.getBuffer(), op.getKey(), entry);
    Value scale;
    for (std::optional<StringRef> name : {op.getKeyScale(), op.getValueScale()})
      if (name) {
        Value factor = loadField(op.getBuffer(), *name, entry).front();
        scale = scale ? scaled(b, scale, factor) : factor;
      }
    SmallVector<Value> next(loop.getRegionIterArgs());
    if (op.getDecay()) {
      if (isa<VectorType>(next[0].getType()))
        for (Value &key : keys)
          key = scaled(b, key, next[0]);
      else
        scale = scale ? scaled(b, scale, next[0]) : next[0];
      Value decay = loadField(op.getBuffer(), *op.getDecay(), entry).front();
      next[0] = arith::MulFOp::create(b, next[0], decay);
    }
    int64_t at = 0;
    for (const Components &query : queries)
      for (Value component : query)
        for (Value key : keys)
          memref::StoreOp::create(b, scaled(b, dot(key, component), scale),
                                  weights,
                                  ValueRange{constantIndex(at++), position});
    if (!next.empty())
      scf::YieldOp::create(b, next);
  }
  SmallVector<Value> results =
      sumWeightedValues(weights, sums, [&](EntryPlace entry) {
        return loadField(op.getBuffer(), op.getValue(), entry);
      });
  ArrayRef<Value> rest = results;
  for (auto [result, query] : llvm::zip(op.getResults(), queries)) {
    setHeadValue(result, Components(rest.take_front(query.size())));
    rest = rest.drop_front(query.size());
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Raw entries
//===----------------------------------------------------------------------===//

/// One raw entry, scaled.
struct Kernel::Entry {
  Value decay; // null without a decay
  SmallVector<Components> keys, vectors;
  SmallVector<Value> valueScales; // null without a scale
  SmallVector<Value> coefficients;

  Entry(Kernel &kernel, Value buffer, TransitionAttr transition,
        EntryPlace place) {
    ImplicitLocOpBuilder &b = kernel.b;
    auto load = [&](StringRef name, StringRef scaleName) {
      Components components = kernel.loadField(buffer, name, place);
      if (!scaleName.empty()) {
        Value scale = kernel.loadField(buffer, scaleName, place).front();
        for (Value &component : components)
          component = scaled(b, component, scale);
      }
      return components;
    };
    if (!transition.getDecay().empty())
      decay = kernel.loadField(buffer, transition.getDecay(), place).front();
    for (auto [name, scale] :
         llvm::zip(transition.getKeys(), transition.getKeyScales()))
      keys.push_back(load(name.getValue(), scale.getValue()));
    for (StringAttr scale : transition.getValueScales())
      valueScales.push_back(
          scale.empty()
              ? Value()
              : kernel.loadField(buffer, scale.getValue(), place).front());
    for (auto [name, scale] :
         llvm::zip(transition.getVectors(), transition.getVectorScales()))
      vectors.push_back(load(name.getValue(), scale.getValue()));
    for (StringAttr name : transition.getCoefficients())
      coefficients.push_back(
          kernel.loadField(buffer, name.getValue(), place).front());
  }
};

LogicalResult Kernel::emitTransport(TransportOp op) {
  TransitionAttr transition = op.getTransition();
  BufferType buffer = op.getBuffer().getType();
  SmallVector<Value> initial, sums;
  SmallVector<size_t> ranks;
  for (auto [query, partial] : llvm::zip(op.getQueries(), op.getPartials())) {
    FailureOr<Components> components = headOperand(query);
    if (failed(components))
      return failure();
    ranks.push_back(components->size());
    llvm::append_range(initial, *components);
    sums.append(
        components->size(),
        zeros(cast<RankedTensorType>(partial.getType()).getShape().back()));
  }
  int64_t products = 0;
  for (StringAttr value : transition.getValues())
    if (!value.empty())
      products += componentCount(buffer.getField(value));
  Value weights = allocateScratch(
      {std::max<int64_t>(1, products * static_cast<int64_t>(sums.size())),
       buffer.getCapacity()});

  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1),
                                 initial);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value newest = arith::SubIOp::create(b, length, constantIndex(1));
    Value position = arith::SubIOp::create(b, newest, loop.getInductionVar());
    Entry entry(*this, op.getBuffer(), transition, placeOf(position));
    SmallVector<Value> next;
    int64_t at = 0;
    for (Value query : loop.getRegionIterArgs()) {
      int64_t keySize = cast<VectorType>(query.getType()).getShape().back();
      SmallVector<Components> products;
      for (auto [keys, name, scale] :
           llvm::zip(entry.keys, transition.getValues(), entry.valueScales)) {
        Components &product = products.emplace_back();
        for (Value key : keys) {
          product.push_back(dot(query, key));
          if (!name.empty())
            memref::StoreOp::create(b, scaled(b, product.back(), scale),
                                    weights,
                                    ValueRange{constantIndex(at++), position});
        }
      }
      // Reads taken after the decay go through it like the query itself.
      Value before = zeros(keySize), after = query;
      for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
        for (auto [r, vector] : llvm::enumerate(entry.vectors[m])) {
          Value weight = scaled(b, products[owner][r], entry.coefficients[m]);
          Value &sum = transition.getAfterDecay()[m] ? after : before;
          sum = vector::FMAOp::create(b, splat(weight, keySize), vector, sum);
        }
      next.push_back(
          arith::AddFOp::create(b, scaled(b, after, entry.decay), before));
    }
    scf::YieldOp::create(b, next);
  }
  SmallVector<Value> partials =
      sumWeightedValues(weights, sums, [&](EntryPlace entry) {
        SmallVector<Value> values;
        for (StringAttr name : transition.getValues())
          if (!name.empty())
            llvm::append_range(values, loadField(op.getBuffer(), name, entry));
        return values;
      });
  size_t next = 0;
  for (auto [i, rank] : llvm::enumerate(ranks)) {
    Components origins, ofQuery;
    for (size_t r = 0; r < rank; ++r, ++next) {
      origins.push_back(loop.getResult(next));
      ofQuery.push_back(partials[next]);
    }
    setHeadValue(op.getOrigins()[i], origins);
    setHeadValue(op.getPartials()[i], ofQuery);
  }
  return success();
}

/// The vector of a stack after the walk from the newest entry to the oldest,
/// and what the entries answer it.
LogicalResult VerifyKernel::emitStackedTransport(TransportOp op) {
  TransitionAttr transition = op.getTransition();
  Value zero = constantIndex(0), one = constantIndex(1);
  for (auto [query, origin, partial] :
       llvm::zip(op.getQueries(), op.getOrigins(), op.getPartials())) {
    FailureOr<Value> queries = findStack(query);
    if (failed(queries))
      return failure();
    Value origins = scratchOf(origin), partials = scratchOf(partial);
    auto width = [](Value scratch) {
      return cast<MemRefType>(scratch.getType()).getDimSize(1);
    };
    OpBuilder::InsertionGuard guard(b);
    auto each = scf::ForOp::create(
        b, zero, rowOf(draftCount, rowsOf(query.getType()), 0), one);
    b.setInsertionPointToStart(each.getBody());
    SmallVector<Value, 2> at{each.getInductionVar(), zero};
    Value start = loadVector(*queries, at, width(origins));
    auto walk = scf::ForOp::create(b, zero, length, one,
                                   ValueRange{start, zeros(width(partials))});
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(walk.getBody());
      Value newest = arith::SubIOp::create(b, length, one);
      EntryPlace place =
          placeOf(arith::SubIOp::create(b, newest, walk.getInductionVar()));
      Entry entry(*this, op.getBuffer(), transition, place);
      Value answer = walk.getRegionIterArg(1);
      Value vector =
          passEntry(entry, op.getBuffer(), transition, place,
                    walk.getRegionIterArg(0), [&](Value weight, Value value) {
                      answer = vector::FMAOp::create(
                          b, splat(weight, width(partials)), value, answer);
                    });
      scf::YieldOp::create(b, ValueRange{vector, answer});
    }
    vector::StoreOp::create(b, walk.getResult(0), origins, at);
    vector::StoreOp::create(b, walk.getResult(1), partials, at);
  }
  return success();
}

/// Carries a query back through one entry; `answer` gets the weight of each of
/// its values.
Value VerifyKernel::passEntry(const Entry &entry, Value buffer,
                              TransitionAttr transition, EntryPlace place,
                              Value query,
                              function_ref<void(Value, Value)> answer) {
  int64_t keySize = cast<VectorType>(query.getType()).getShape().back();
  SmallVector<Components> products;
  for (auto [keys, name, scale] :
       llvm::zip(entry.keys, transition.getValues(), entry.valueScales)) {
    Components values;
    if (!name.empty())
      values = loadField(buffer, name, place);
    Components &product = products.emplace_back();
    for (auto [r, key] : llvm::enumerate(keys)) {
      product.push_back(dot(query, key));
      if (!name.empty())
        answer(scaled(b, product.back(), scale), values[r]);
    }
  }
  // Reads taken after the decay go through it like the query itself.
  Value before = zeros(keySize), after = query;
  for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
    for (auto [r, vector] : llvm::enumerate(entry.vectors[m])) {
      Value weight = scaled(b, products[owner][r], entry.coefficients[m]);
      Value &sum = transition.getAfterDecay()[m] ? after : before;
      sum = vector::FMAOp::create(b, splat(weight, keySize), vector, sum);
    }
  return arith::AddFOp::create(b, scaled(b, after, entry.decay), before);
}

//===----------------------------------------------------------------------===//
// Entries for a fold, brought together once a head
//===----------------------------------------------------------------------===//

template <typename OpT> Kernel::Gathered Kernel::gatherEntries(OpT op) {
  BufferType buffer = op.getBuffer().getType();
  FieldAttr key = buffer.getField(op.getKey());
  FieldAttr value = buffer.getField(op.getValue());
  int64_t rank = componentCount(key);
  Gathered all;
  all.keys =
      allocateScratch({buffer.getCapacity() * rank, key.getShape().back()});
  all.values =
      allocateScratch({buffer.getCapacity() * rank, value.getShape().back()});
  all.count = arith::MulIOp::create(b, length, constantIndex(rank));

  SmallVector<Value> initial;
  if (op.getDecay())
    initial.push_back(one(b, buffer.getField(*op.getDecay())));
  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1),
                                 initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value newest = arith::SubIOp::create(b, length, constantIndex(1));
  EntryPlace entry =
      placeOf(arith::SubIOp::create(b, newest, loop.getInductionVar()));
  Value scale = op.getDecay() ? loop.getRegionIterArg(0) : Value();
  for (std::optional<StringRef> name : {op.getKeyScale(), op.getValueScale()})
    if (name) {
      Value factor = loadField(op.getBuffer(), *name, entry).front();
      scale = scale ? scaled(b, scale, factor) : factor;
    }
  Value first =
      arith::MulIOp::create(b, loop.getInductionVar(), constantIndex(rank));
  Components keys = loadField(op.getBuffer(), op.getKey(), entry);
  Components values = loadField(op.getBuffer(), op.getValue(), entry);
  for (auto [r, pair] : llvm::enumerate(llvm::zip(keys, values))) {
    Value at = arith::AddIOp::create(b, first, constantIndex(r));
    vector::StoreOp::create(b, scaled(b, std::get<0>(pair), scale), all.keys,
                            ArrayRef<Value>{at, constantIndex(0)});
    vector::StoreOp::create(b, std::get<1>(pair), all.values,
                            ArrayRef<Value>{at, constantIndex(0)});
  }
  if (op.getDecay()) {
    Value decay = loadField(op.getBuffer(), *op.getDecay(), entry).front();
    scf::YieldOp::create(
        b, Value(arith::MulFOp::create(b, loop.getRegionIterArg(0), decay)));
  }
  return all;
}

void Kernel::gatherFold(FoldBufferOp op) { gathered[op] = gatherEntries(op); }
template Kernel::Gathered Kernel::gatherEntries(ReadBufferOp op);

void Kernel::gatherReplay(ReplayOp op) {
  BufferType buffer = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  StateType state = op.getState().getType();
  int64_t capacity = buffer.getCapacity();
  int64_t writes = 0, reads = 0;
  for (StringAttr key : transition.getKeys())
    writes += componentCount(buffer.getField(key));
  for (StringAttr vector : transition.getVectors())
    reads += componentCount(buffer.getField(vector));

  Gathered &all = gathered[op];
  all.keys = allocateScratch({capacity * writes, state.getKeySize()});
  all.values = allocateScratch({capacity * writes, state.getValueSize()});
  if (!transition.getDecay().empty()) {
    FieldAttr decay = buffer.getField(transition.getDecay());
    all.decays = allocateScratch(
        {capacity, decay.getShape().size() == 1 ? 1 : state.getKeySize()});
  }
  if (reads) {
    all.vectors = allocateScratch({capacity * reads, state.getKeySize()});
    all.coefficients = allocateScratch({capacity * reads, 1});
  }

  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value position = loop.getInductionVar();
  Entry entry(*this, op.getBuffer(), transition, placeOf(position));
  auto store = [&](Value vector, Value into, int64_t count, int64_t offset) {
    if (!isa<VectorType>(vector.getType()))
      vector = splat(vector, 1);
    Value at = arith::AddIOp::create(
        b, arith::MulIOp::create(b, position, constantIndex(count)),
        constantIndex(offset));
    vector::StoreOp::create(b, vector, into,
                            ArrayRef<Value>{at, constantIndex(0)});
  };
  int64_t offset = 0;
  for (auto [keys, name, scale] :
       llvm::zip(entry.keys, transition.getValues(), entry.valueScales)) {
    Components values(keys.size(), zeros(state.getValueSize()));
    if (!name.empty())
      values = loadField(op.getBuffer(), name, placeOf(position));
    for (auto [key, value] : llvm::zip(keys, values)) {
      store(key, all.keys, writes, offset);
      store(scaled(b, value, scale), all.values, writes, offset++);
    }
  }
  if (entry.decay)
    store(entry.decay, all.decays, 1, 0);
  offset = 0;
  for (auto [vectors, coefficient] :
       llvm::zip(entry.vectors, entry.coefficients))
    for (Value vector : vectors) {
      store(vector, all.vectors, reads, offset);
      store(coefficient, all.coefficients, reads, offset++);
    }
}
