//===- Transport.cpp - queries through the entries in a GPU kernel --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The adjoint route meets one entry after the other, and each changes the
// query. Every warp does all of it, a query spread over its lanes, so that no
// step waits for a barrier.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;

LogicalResult GpuKernel::emitTransport(TransportOp op) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  Value lane = arith::RemUIOp::create(b, thread, constantIndex(kWarp));
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  int64_t parts = llvm::divideCeil(keySize, kWarp);

  // Elements lane, lane + 32, ... of a vector; those beyond its end are zero.
  auto spread = [&](function_ref<Value(Value)> load) {
    Components result;
    for (int64_t i = 0; i < parts; ++i) {
      Value element = add(lane, i * kWarp);
      if ((i + 1) * kWarp <= keySize) {
        result.push_back(load(element));
        continue;
      }
      Value valid = isBelow(element, keySize);
      element = arith::MinUIOp::create(b, element, constantIndex(keySize - 1));
      result.push_back(
          arith::SelectOp::create(b, valid, load(element), constantFloat(0)));
    }
    return result;
  };
  auto dotOverWarp = [&](ArrayRef<Value> lhs, ArrayRef<Value> rhs) {
    Value sum = arith::MulFOp::create(b, lhs[0], rhs[0]);
    for (size_t i = 1; i < lhs.size(); ++i)
      sum = arith::AddFOp::create(b, sum,
                                  arith::MulFOp::create(b, lhs[i], rhs[i]));
    for (int64_t mask = 1; mask < kWarp; mask *= 2)
      sum = arith::AddFOp::create(b, sum, shuffleXor(sum, mask));
    return sum;
  };

  SmallVector<Value> initial;
  SmallVector<int64_t> counts;
  int64_t queries = 0;
  for (Value query : op.getQueries()) {
    FailureOr<Value> all = whole(query, Side::Key);
    if (failed(all))
      return failure();
    counts.push_back(cast<MemRefType>(all->getType()).getDimSize(0));
    queries += counts.back();
    for (int64_t r = 0; r < counts.back(); ++r)
      llvm::append_range(initial, spread([&](Value element) -> Value {
                           return memref::LoadOp::create(
                               b, *all, ValueRange{constantIndex(r), element});
                         }));
  }
  int64_t products = 0;
  for (StringAttr value : transition.getValues())
    if (!value.empty())
      products += componentCount(type.getField(value.getValue()));
  Value scratch =
      shared({std::max<int64_t>(1, products * queries), type.getCapacity()},
             "entry_dots");
  Value isFirstThread = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                              thread, constantIndex(0));

  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1),
                                 initial);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value position = arith::SubIOp::create(
        b, arith::SubIOp::create(b, length, constantIndex(1)),
        loop.getInductionVar());
    Value entry = ringSlot(position);
    auto scalar = [&](StringAttr name) -> Value {
      return loadElement(fieldMemory(buffer, name.getValue()),
                         fieldIndices(type.getField(name.getValue()), entry));
    };
    auto vectors = [&](StringAttr name, StringAttr scale) {
      FieldAttr field = type.getField(name.getValue());
      SmallVector<Components> result;
      for (int64_t r = 0; r < componentCount(field); ++r) {
        Components vector = spread([&](Value element) -> Value {
          SmallVector<Value> at = fieldIndices(field, entry);
          if (field.getShape().size() == 3)
            at.push_back(constantIndex(r));
          at.push_back(element);
          return loadElement(fieldMemory(buffer, name.getValue()), at);
        });
        if (!scale.empty()) {
          Value factor = scalar(scale);
          for (Value &part : vector)
            part = arith::MulFOp::create(b, part, factor);
        }
        result.push_back(vector);
      }
      return result;
    };
    Components decay;
    if (!transition.getDecay().empty()) {
      StringAttr name = b.getStringAttr(transition.getDecay());
      decay = type.getField(transition.getDecay()).getShape().size() == 1
                  ? Components(parts, scalar(name))
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

    SmallVector<Value> next, weights;
    for (int64_t q = 0; q < queries; ++q) {
      SmallVector<Value> query(
          loop.getRegionIterArgs().slice(q * parts, parts));
      SmallVector<SmallVector<Value>> dots;
      for (auto [ofWrite, name, scale] : llvm::zip(
               keys, transition.getValues(), transition.getValueScales())) {
        auto &list = dots.emplace_back();
        for (const Components &key : ofWrite) {
          list.push_back(dotOverWarp(query, key));
          if (name.empty())
            continue;
          weights.push_back(scale.empty()
                                ? list.back()
                                : Value(arith::MulFOp::create(b, list.back(),
                                                              scalar(scale))));
        }
      }
      // Reads taken after the decay go through it like the query itself.
      Components before(parts), after(query.begin(), query.end());
      for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
        for (auto [r, vector] : llvm::enumerate(reads[m])) {
          Value weight =
              arith::MulFOp::create(b, dots[owner][r], coefficients[m]);
          for (int64_t i = 0; i < parts; ++i) {
            Value term = arith::MulFOp::create(b, weight, vector[i]);
            Value &sum = transition.getAfterDecay()[m] ? after[i] : before[i];
            sum = sum ? Value(arith::AddFOp::create(b, sum, term)) : term;
          }
        }
      for (int64_t i = 0; i < parts; ++i) {
        Value part = after[i];
        if (!decay.empty())
          part = arith::MulFOp::create(b, part, decay[i]);
        if (before[i])
          part = arith::AddFOp::create(b, part, before[i]);
        next.push_back(part);
      }
    }
    {
      auto guarded = scf::IfOp::create(b, isFirstThread);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      for (auto [i, weight] : llvm::enumerate(weights))
        memref::StoreOp::create(b, weight, scratch,
                                ValueRange{constantIndex(i), position});
    }
    scf::YieldOp::create(b, next);
  }
  barrier();
  Components partials;
  if (products == 0)
    partials.assign(queries, constantFloat(0));
  else
    partials = sumWeightedValues(op, scratch, queries);

  // Warp i keeps elements 32 i to 32 i + 31.
  Components origins;
  for (int64_t q = 0; q < queries; ++q) {
    Value mine = loop.getResult(q * parts);
    for (int64_t i = 1; i < parts; ++i) {
      Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warp,
                                           constantIndex(i));
      mine = arith::SelectOp::create(b, isMine, loop.getResult(q * parts + i),
                                     mine);
    }
    origins.push_back(mine);
  }
  ArrayRef<Value> restOrigins = origins, restPartials = partials;
  int rowSide = static_cast<int>(tiles > 1 ? Side::Row : Side::Key);
  for (auto [i, count] : llvm::enumerate(counts)) {
    values[{op.getOrigins()[i], static_cast<int>(Side::Key)}] =
        Components(restOrigins.take_front(count));
    values[{op.getPartials()[i], rowSide}] =
        Components(restPartials.take_front(count));
    restOrigins = restOrigins.drop_front(count);
    restPartials = restPartials.drop_front(count);
  }
  return success();
}
