//===- Transport.cpp - queries through the entries in a GPU kernel --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The adjoint route meets one entry after the other, and each changes the
// query. Every group of lanes does all of it, so that no step waits for others.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// A query that meets one entry on the way back. `weights` gets what it takes
/// of the entry's values.
GpuKernel::Components GpuKernel::passBack(const Transition &entry,
                                          TransitionAttr transition,
                                          Value buffer, Value position,
                                          ArrayRef<Value> query,
                                          SmallVectorImpl<Value> &weights) {
  SmallVector<SmallVector<Value>> dots;
  for (auto [ofWrite, name, scale] : llvm::zip(
           entry.keys, transition.getValues(), transition.getValueScales())) {
    auto &list = dots.emplace_back();
    for (const Components &key : ofWrite) {
      list.push_back(sumOverGroup(dotChunks(query, key)));
      if (name.empty())
        continue;
      weights.push_back(
          scale.empty()
              ? list.back()
              : Value(arith::MulFOp::create(
                    b, list.back(),
                    numberAt(numbersOf(buffer, scale.getValue()), position))));
    }
  }
  // Reads taken after the decay go through it like the query itself.
  Components before(chunks), after(query.begin(), query.end()), next;
  for (auto [m, owner] : llvm::enumerate(transition.getReadOwners()))
    for (auto [r, vector] : llvm::enumerate(entry.reads[m])) {
      Value weight =
          splat(arith::MulFOp::create(b, dots[owner][r], entry.coefficients[m]),
                width);
      for (int64_t c = 0; c < chunks; ++c) {
        Value term = arith::MulFOp::create(b, weight, vector[c]);
        Value &sum = transition.getAfterDecay()[m] ? after[c] : before[c];
        sum = sum ? Value(arith::AddFOp::create(b, sum, term)) : term;
      }
    }
  for (int64_t c = 0; c < chunks; ++c) {
    Value part = after[c];
    if (!entry.decay.empty())
      part = arith::MulFOp::create(b, part, entry.decay[c]);
    if (before[c])
      part = arith::AddFOp::create(b, part, before[c]);
    next.push_back(part);
  }
  return next;
}

LogicalResult GpuKernel::emitTransport(TransportOp op) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  Place place = keyPlace(keySize);

  SmallVector<Value> initial;
  SmallVector<int64_t> counts;
  for (Value query : op.getQueries()) {
    FailureOr<Components> all = get(query, place);
    if (failed(all))
      return failure();
    counts.push_back(static_cast<int64_t>(all->size()) / chunks);
    llvm::append_range(initial, *all);
  }
  int64_t queries = static_cast<int64_t>(initial.size()) / chunks;
  SmallVector<std::pair<StringRef, int64_t>> names;
  int64_t products = 0;
  for (StringAttr value : transition.getValues())
    if (!value.empty()) {
      names.emplace_back(value.getValue(),
                         componentCount(type.getField(value.getValue())));
      products += names.back().second;
    }
  Value scratch =
      shared({type.getCapacity(), std::max<int64_t>(1, products * queries)},
             "entry_dots");
  Value isFirstThread = isBelow(thread, 1);

  auto loop = scf::ForOp::create(b, constantIndex(0), length, constantIndex(1),
                                 initial);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value position =
        arith::SubIOp::create(b, lastEntry(), loop.getInductionVar());
    Transition entry = loadTransition(buffer, transition, position);

    SmallVector<Value> next, weights;
    for (int64_t q = 0; q < queries; ++q) {
      SmallVector<Value> query(
          loop.getRegionIterArgs().slice(q * chunks, chunks));
      llvm::append_range(
          next, passBack(entry, transition, buffer, position, query, weights));
    }
    guarded(isFirstThread, [&] {
      for (auto [i, weight] : llvm::enumerate(weights))
        memref::StoreOp::create(b, weight, scratch,
                                ValueRange{position, constantIndex(i)});
    });
    scf::YieldOp::create(b, next);
  }
  Components partials(queries, constantFloat(0));
  if (products != 0) {
    barrier();
    partials = sumWeightedValues(buffer, names, scratch, queries);
  }
  Components origins(loop.getResults());
  ArrayRef<Value> restOrigins = origins, restPartials = partials;
  for (auto [i, count] : llvm::enumerate(counts)) {
    remember(op.getOrigins()[i], place,
             Components(restOrigins.take_front(count * chunks)));
    remember(op.getPartials()[i], rowPlace(),
             Components(restPartials.take_front(count)));
    restOrigins = restOrigins.drop_front(count * chunks);
    restPartials = restPartials.drop_front(count);
  }
  return success();
}
