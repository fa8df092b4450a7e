//===- ChunkFolds.cpp - reads and folds of a GPU's prefill ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kPart = 8;
/// Reads of a state at a time, with sums in registers.
static constexpr size_t kReads = 2;
/// Which warp begins with decayed keys.
static constexpr int64_t kDecayWarp = 4;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

void GpuChunkKernel::emitRead(ReadOp op) {
  auto &all = tiles > 1 ? tileStacks : fullStacks;
  if (find(op.getResult(), tiles > 1))
    return;
  // All reads of a state at the same time, if their queries are there.
  SmallVector<Value> queries, results;
  for (auto other : op->getBlock()->getOps<ReadOp>())
    if (other.getState() == op.getState() && hasStack(other.getQuery()) &&
        other.getQuery().getType() == op.getQuery().getType() &&
        !find(other.getResult(), tiles > 1) && queries.size() < kReads) {
      queries.push_back(other.getQuery());
      Stack result =
          makeStack(unstackType(typeOf(other.getResult())), tiles > 1);
      all[other.getResult()] = result;
      results.push_back(result.memory);
    }
  Value held = heldStates[poolOf(op.getState())];
  Sides sides = sidesOf(queries);
  willRead(held);
  for (Value result : results)
    willWrite(result);
  int64_t components = componentCount(unstackType(typeOf(op.getQuery())));
  int64_t depth = depthOfKeys();
  Product product;
  product.rows = rowsOf(components);
  product.columns = llvm::alignTo(schedule.tileRows, kPart);
  product.factors.push_back({sides.lefts, {held, false, false}, [&](Value) {
                               return constantIndex(depth);
                             }});
  product.finish = [&](Value row, Value column, ValueRange sums) {
    for (auto [at, result] : llvm::enumerate(results))
      storeTwo(result, row, column,
               sumOf(sides, at, over(row, components), sums));
  };
  emitProduct(product);
}

/// A channel of the keys of few tokens, all of them in registers.
void GpuChunkKernel::decayKeys(ArrayRef<std::pair<Stack, Stack>> keys,
                               const Stack &decays, Value total,
                               Value channel) {
  auto load = [&](const Stack &stack) {
    SmallVector<Value> all;
    for (int64_t token = 0; token < tokensAtOnce(); ++token)
      all.push_back(memref::LoadOp::create(
          b, stack.memory,
          ValueRange{constantIndex(stack.first + token), channel}));
    return all;
  };
  SmallVector<Value> decay = load(decays), after(decay.size());
  SmallVector<SmallVector<Value>> loaded;
  for (auto &[from, into] : keys)
    loaded.push_back(load(from));
  Value product = constantFloat(1);
  for (size_t token = decay.size(); token-- > 0;) {
    after[token] = product;
    product = arith::MulFOp::create(b, product, decay[token]);
  }
  for (auto [all, pair] : llvm::zip(loaded, keys)) {
    for (auto [key, factor] : llvm::zip(all, after))
      key = arith::MulFOp::create(b, key, factor);
    storeForFold(all, pair.second.memory, channel);
  }
  memref::StoreOp::create(b, product, total,
                          ValueRange{constantIndex(0), channel});
}

/// The keys that a fold multiplies. The caller has them decay, as part of its
/// operation, if it asks for what decays those of a channel.
GpuChunkKernel::FoldKeys
GpuChunkKernel::foldKeysOf(FoldDraftsOp op,
                           std::function<void(Value)> *ofChannel) {
  bool isVector = op.getDecays() && typeOf(op.getDecays()).getRank() > 2;
  FoldKeys result;
  auto &[keys, scales, after, total] = result;
  for (Value key : op.getKeys()) {
    Term term = termsOf(key).front();
    keys.push_back(term.base);
    scales.push_back(term.scale);
  }
  if (isVector) {
    // Keys times the decays of the tokens after them, from the last one back.
    Stack decays = stackOf(op.getDecays());
    total = allocate(1, keySize);
    SmallVector<std::pair<Stack, Stack>> scaled;
    for (auto [key, stack] : llvm::zip(op.getKeys(), keys)) {
      Stack from = stack;
      bool isLast = llvm::none_of(key.getUsers(), [&](Operation *user) {
        return user != op && (op->isBeforeInBlock(user) ||
                              (blockPart == Part::Ahead && isRowOp(user)));
      });
      if (!isLast || llvm::count(op.getKeys(), key) > 1 || keepsRests())
        stack.memory = allocateForFold(rowsOf(stack.components));
      else
        takeAgain(stack.memory);
      stack.isShort = false;
      scaled.emplace_back(from, stack);
    }
    // Others may still read what keys are written over.
    willWrite(total);
    for (auto &[from, into] : scaled)
      willWrite(into.memory);
    willRead(decays.memory);
    for (auto &[from, into] : scaled)
      willRead(from.memory);
    if (ofChannel)
      *ofChannel = [this, scaled, decays, total](Value channel) {
        decayKeys(scaled, decays, total, channel);
      };
    auto decayColumn = [&](Value column) {
      if (holdsRows)
        return decayKeys(scaled, decays, total, column);
      auto loop =
          scf::ForOp::create(b, constantIndex(0), constantIndex(tokensAtOnce()),
                             constantIndex(1), ValueRange{constantFloat(1)});
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(loop.getBody());
        Value token = arith::SubIOp::create(
            b, constantIndex(tokensAtOnce() - 1), loop.getInductionVar());
        Value product = loop.getRegionIterArg(0);
        for (auto &[from, into] : scaled)
          for (int64_t r = 0; r < from.components; ++r) {
            Value row = add(times(token, from.components), r);
            Value key = memref::LoadOp::create(
                b, from.memory, ValueRange{add(row, from.first), column});
            memref::StoreOp::create(b, arith::MulFOp::create(b, key, product),
                                    into.memory, ValueRange{row, column});
          }
        Value decay = memref::LoadOp::create(
            b, decays.memory, ValueRange{add(token, decays.first), column});
        scf::YieldOp::create(b,
                             Value(arith::MulFOp::create(b, product, decay)));
      }
      memref::StoreOp::create(b, loop.getResult(0), total,
                              ValueRange{constantIndex(0), column});
    };
    // Of those who are ahead, the first warps are at Gram products.
    if (!ofChannel)
      forThreads(constantIndex(keySize), decayColumn,
                 blockPart == Part::Ahead ? kDecayWarp : 0);
    for (auto [stack, pair] : llvm::zip(keys, scaled))
      stack = pair.second;
    if (!ofChannel)
      beginOp();
  } else if (op.getDecays()) {
    after = weightsOf(op.getDecays()).after;
  }
  return result;
}

void GpuChunkKernel::emitFold(FoldDraftsOp op) {
  Value held = heldStates[poolOf(op.getState())];
  int64_t tokens = rowsFor(tokensAtOnce());
  FoldKeys all = foldKeysOf(op);
  Value after = all.after, total = all.total;
  for (Value memory : {after, total})
    if (memory)
      willRead(memory);
  Product product;
  product.rows = rowsFor(schedule.tileRows);
  product.columns = llvm::alignTo(keySize, kPart);
  for (auto [value, key, scale] :
       llvm::zip(op.getValues(), all.keys, all.scales)) {
    const Stack &values = stackOf(value, true);
    willRead(values.memory);
    willRead(key.memory);
    int64_t ranks = key.components;
    Operand left{values.memory, true, values.isShort && !after && !scale};
    if (scale)
      willRead(scale->memory);
    if (after || scale)
      left.scale = [this, after, ranks, scale](Value row) -> Value {
        Value token = over(row, ranks), weight;
        if (after)
          weight = memref::LoadOp::create(b, after,
                                          ValueRange{token, constantIndex(0)});
        if (!scale)
          return weight;
        Value mine = scaleAt(*scale, token);
        return weight ? Value(arith::MulFOp::create(b, weight, mine)) : mine;
      };
    product.factors.push_back(
        {{left}, {key.memory, true, key.isShort}, [this, ranks](Value) {
           return constantIndex(rowsOf(ranks));
         }});
  }
  willWrite(held);
  product.start = [&](Value row, Value column) -> Value {
    Value before = loadTwo(held, row, column);
    if (total)
      return arith::MulFOp::create(b, before,
                                   loadTwo(total, constantIndex(0), column));
    if (!after)
      return before;
    Value ofAll = memref::LoadOp::create(
        b, after, ValueRange{constantIndex(tokens), constantIndex(0)});
    return arith::MulFOp::create(b, before, splat(ofAll, 2));
  };
  product.finish = [&](Value row, Value column, ValueRange sums) {
    storeTwo(held, row, column, sums.front());
  };
  emitProduct(product);
}
