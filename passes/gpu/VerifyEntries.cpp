//===- VerifyEntries.cpp - entries read by drafts on a GPU ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// One pass over the keys of entries for all vectors of all drafts; what comes
// out weighs the values of which a thread takes its row of dv.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32, kEight = 8;
/// Of which a row is a multiple where tensor cores multiply.
static constexpr int64_t kSlab = 16;

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Numbers of entries are with the lanes of a warp; products want them one by
/// one. Null if they weigh nothing.
Value GpuVerifyKernel::entryWeightsOf(ReadBufferOp op) {
  auto nameOf = [](std::optional<StringRef> name) {
    return name.value_or("").str();
  };
  auto [found, isNew] = entryWeights.try_emplace(
      {argumentOf(op.getBuffer()), op.getKey().str(), nameOf(op.getDecay()),
       nameOf(op.getKeyScale()), nameOf(op.getValueScale())});
  if (!isNew)
    return found->second;
  auto weigh = [&] {
    return weightsOfUse(op.getBuffer(), op.getKey(), op.getDecay(),
                        {op.getKeyScale(), op.getValueScale()});
  };
  if (stagesAllTurns)
    return found->second = weightsOfTurns(weigh);
  Components weights = weigh();
  if (weights.empty())
    return {};
  Value memory =
      shared({static_cast<int64_t>(weights.size()) * kWarp}, "entry_weights");
  guarded(isBelow(thread, kWarp), [&] {
    for (auto [i, part] : llvm::enumerate(weights))
      memref::StoreOp::create(
          b, part, memory,
          ValueRange{add(warpLane, static_cast<int64_t>(i) * kWarp)});
  });
  written.insert(memory);
  return found->second = memory;
}

/// The same for all heads of a block, a warp each, [turns · entries].
Value GpuVerifyKernel::weightsOfTurns(function_ref<Components()> weigh) {
  auto numbersBefore = std::exchange(numbers, {});
  auto decaysBefore = std::exchange(decays, {});
  Value headBefore = head, warp, ofWarp;
  int64_t scopeBefore = std::exchange(headScope, ++scopes);
  {
    // Where the numbers are loaded.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(endOfSlotLoads);
    warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
    ofWarp = arith::MinUIOp::create(b, warp, constantIndex(turns - 1));
    head = arith::AddIOp::create(b, firstHead, ofWarp);
  }
  Value memory;
  guarded(isBelow(warp, turns), [&] {
    Components weights = weigh();
    if (weights.empty())
      return;
    auto count = static_cast<int64_t>(weights.size()) * kWarp;
    memory = shared({turns * count}, "entry_weights");
    Value first = arith::AddIOp::create(
        b, warpLane, arith::MulIOp::create(b, ofWarp, constantIndex(count)));
    for (auto [i, part] : llvm::enumerate(weights))
      memref::StoreOp::create(
          b, part, memory,
          ValueRange{add(first, static_cast<int64_t>(i) * kWarp)});
    written.insert(memory);
  });
  numbers = std::move(numbersBefore);
  decays = std::move(decaysBefore);
  head = headBefore;
  headScope = scopeBefore;
  return memory;
}

/// A warp that multiplies keys as they came has read them when it stores what
/// comes out: it can lie where they did, if nobody else wants them. Null if
/// not.
Value GpuVerifyKernel::dotsInKeys(ReadBufferOp op, ArrayRef<Stack> stacks) {
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  auto found =
      stagedFields.find({argumentOf(op.getBuffer()), op.getKey().str()});
  if (!tokens || stacks.front().memory != tokens || keySize % kSlab != 0 ||
      componentCount(field) != 1 || !field.getElementType().isBF16() ||
      found == stagedFields.end() || countVectors(stacks) > keySize / 2)
    return {};
  for (Operation &other : *op->getBlock())
    if (&other != op &&
        isa<ReadBufferOp, FoldBufferOp, ReplayOp, TransportOp>(other) &&
        llvm::is_contained(other.getOperands(), op.getBuffer()))
      return {};
  int64_t ofRow =
      cast<MemRefType>(found->second.getType()).getShape().back() / 2;
  if (!holdsValues)
    return sharedIn(found->second, {mostEntries(), ofRow}, "entry_dots");
  // Those of eight entries lie where these did.
  int64_t floats = mostEntries() * ofRow, pitch = kEight * ofRow;
  if ((eightsOfEntries() - 1) * pitch + floatsOfEight(stacks) > floats)
    return {};
  heldDots = {sharedIn(found->second, {floats}, "entry_dots"), pitch};
  return heldDots.memory;
}

/// Memory for what is multiplied with entries.
Value GpuVerifyKernel::placeOfDots(ArrayRef<Stack> stacks, int64_t ranks) {
  if (holdsValues) {
    int64_t pitch = floatsOfEight(stacks);
    heldDots = {shared({eightsOfEntries() * pitch}, "entry_dots"), pitch};
    return heldDots.memory;
  }
  SmallVector<int64_t> shape{mostEntries(), countVectors(stacks) * ranks};
  if (partDecays && 32 * shape[0] * shape[1] <= bitsOf(partDecays))
    return sharedIn(std::exchange(partDecays, {}), shape, "entry_dots");
  return shared(shape, "entry_dots");
}

/// Products of tokens with the keys of entries, which heads that take turns
/// have in common.
void GpuVerifyKernel::emitEntryDots(ReadBufferOp op) {
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  if (componentCount(field) != 1 || isOfTurn(field.getShape().front()))
    return;
  SmallVector<Query> queries;
  for (auto [query, result] : llvm::zip(op.getQueries(), op.getResults()))
    queries.push_back(queryOf(query, result));
  SmallVector<Stack> stacks = stacksOf(queries);
  Value &dots = entryDots[op.getResult(0)];
  dots = shared({mostEntries(), countVectors(stacks)}, "entry_dots");
  multiplyEntries(op, stacks, dots, /*weightOf=*/{}, /*isInKeys=*/false);
  written.insert(dots);
}

/// Reads of entries that may be multiplied at the same time: what they are of
/// is there, and each has memory of its own.
SmallVector<ReadBufferOp> GpuVerifyKernel::readsBeside(ReadBufferOp op) {
  SmallVector<ReadBufferOp> all{op};
  if (holdsValues || tokens)
    return all;
  for (auto other : op->getBlock()->getOps<ReadBufferOp>())
    if (op->isBeforeInBlock(other) &&
        !sameValues.contains(other.getResult(0)) &&
        llvm::all_of(other.getQueries(), [&](Value query) {
          Operation *def = canonical(query).getDefiningOp();
          return def && (def->getBlock() != op->getBlock() ||
                         def->isBeforeInBlock(op));
        }))
      all.push_back(other);
  return all;
}

LogicalResult GpuVerifyKernel::emitStackEntries(ReadBufferOp op) {
  auto queriesOf = [&](ReadBufferOp read) {
    SmallVector<Query> queries;
    for (auto [query, result] : llvm::zip(read.getQueries(), read.getResults()))
      queries.push_back(queryOf(query, result));
    return queries;
  };
  auto ranksOf = [](ReadBufferOp read) {
    return componentCount(read.getBuffer().getType().getField(read.getKey()));
  };
  Value buffer = op.getBuffer();
  SmallVector<Query> queries = queriesOf(op);
  SmallVector<Stack> stacks = stacksOf(queries);
  int64_t count = countVectors(stacks);
  if (Value dots = dotsOfForm.lookup(op.getResult(0))) {
    keepRead({queries, stacks,
              sumWeightedValues(buffer, {{op.getValue(), ranksOf(op)}}, dots,
                                count)});
    return success();
  }
  SmallVector<ReadBufferOp> beside = readsBeside(op);
  for (ReadBufferOp each : beside)
    if (each.getDecay())
      decaysOf(each.getBuffer(), *each.getDecay());
  Value weightOf = entryWeightsOf(op);
  for (ReadBufferOp each : ArrayRef(beside).drop_front())
    (void)entryWeightsOf(each);
  // Gram products are not read before the barrier that comes below.
  if (!llvm::all_of(written, [&](Value memory) {
        return llvm::is_contained(llvm::make_second_range(grams), memory);
      }))
    sync();
  if (Value dots = entryDots.lookup(op.getResult(0))) {
    keepRead({queries, stacks,
              sumWeightedValues(buffer, {{op.getValue(), ranksOf(op)}}, dots,
                                count, weightOf)});
    return success();
  }
  int64_t firstWarp = 0;
  for (ReadBufferOp each : beside) {
    SmallVector<Stack> vectors = stacksOf(queriesOf(each));
    Value scratch = dotsInKeys(each, vectors);
    bool isInKeys = bool(scratch);
    if (!isInKeys)
      scratch = placeOfDots(vectors, ranksOf(each));
    multiplyEntries(each, vectors, scratch, entryWeightsOf(each), isInKeys,
                    firstWarp);
    dotsOfForm[each.getResult(0)] = scratch;
    ++firstWarp;
  }
  barrier();
  if (holdsValues)
    return success();
  keepRead({queries, stacks,
            sumWeightedValues(buffer, {{op.getValue(), ranksOf(op)}},
                              dotsOfForm.at(op.getResult(0)), count)});
  return success();
}

void GpuVerifyKernel::multiplyEntries(ReadBufferOp op, ArrayRef<Stack> stacks,
                                      Value scratch, Value weightOf,
                                      bool isInKeys, int64_t firstWarp) {
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  FieldAttr field = type.getField(op.getKey());
  int64_t ranks = componentCount(field);
  const DecayedKey *decayed = decayedKey(buffer, op.getKey(), op.getDecay());
  auto entryOf = [&](Value row) -> Value {
    return ranks == 1
               ? row
               : Value(arith::DivUIOp::create(b, row, constantIndex(ranks)));
  };
  auto load = [&](Value row, Value from, int64_t width) -> Value {
    auto loadOf = [&](Value memory, ArrayRef<Value> outer) -> Value {
      SmallVector<Value> at(outer);
      at.push_back(from);
      Type each = cast<MemRefType>(memory.getType()).getElementType();
      return vector::LoadOp::create(b, VectorType::get({width}, each), memory,
                                    at);
    };
    if (decayed)
      return loadOf(decayed->memory, {row});
    if (isStaged(argumentOf(buffer), field)) {
      auto [memory, at] = entryMemory(buffer, field, 0, constantIndex(0));
      return loadOf(memory, {row});
    }
    auto [memory, at] = entryMemory(buffer, field, 0, entryOf(row));
    if (ranks > 1)
      at.back() = arith::RemUIOp::create(b, row, constantIndex(ranks));
    return loadOf(memory, at);
  };
  Type element = decayed ? Type(b.getF32Type()) : field.getElementType();
  multiply(stacks,
           {arith::MulIOp::create(b, length, constantIndex(ranks)),
            mostEntries() * ranks, element, load, isInKeys, firstWarp},
           [&](Value row, Value column, Value value) {
             Value entry = entryOf(row);
             if (weightOf)
               value = arith::MulFOp::create(
                   b, value,
                   memref::LoadOp::create(b, weightOf, ValueRange{entry}));
             if (holdsValues) {
               Value at = placeOfDot(entry, column);
               memref::StoreOp::create(b, value, scratch, ValueRange{at});
               return;
             }
             Value at = column;
             if (ranks > 1)
               at = arith::AddIOp::create(
                   b, arith::MulIOp::create(b, column, constantIndex(ranks)),
                   arith::RemUIOp::create(b, row, constantIndex(ranks)));
             memref::StoreOp::create(b, value, scratch, ValueRange{entry, at});
           });
}

//===----------------------------------------------------------------------===//
// Raw entries
//===----------------------------------------------------------------------===//

/// Vectors that go back through raw entries: a group of lanes takes a vector.
LogicalResult GpuVerifyKernel::emitStackTransport(TransportOp op) {
  sync();
  Value buffer = op.getBuffer();
  BufferType type = op.getBuffer().getType();
  TransitionAttr transition = op.getTransition();
  Place place = keyPlace(keySize);
  SmallVector<Query> queries;
  SmallVector<Stack> stacks, origins;
  for (auto [query, origin, partial] :
       llvm::zip(op.getQueries(), op.getOrigins(), op.getPartials())) {
    stacks.push_back(teamOf(query));
    queries.push_back({partial, {{stacks.back(), {}}}, {}});
    origins.push_back(teamOf(origin));
  }
  int64_t count = countVectors(stacks);
  SmallVector<std::pair<StringRef, int64_t>> names;
  int64_t products = 0;
  for (StringAttr value : transition.getValues())
    if (!value.empty()) {
      names.emplace_back(value.getValue(),
                         componentCount(type.getField(value.getValue())));
      products += names.back().second;
    }
  Value scratch =
      shared({type.getCapacity(), std::max<int64_t>(1, products * count)},
             "entry_dots");
  int64_t groups = schedule.threads / lanes;
  auto rounds = scf::ForOp::create(
      b, constantIndex(0), constantIndex(llvm::divideCeil(count, groups)),
      constantIndex(1));
  rounds->setAttr("ladle.rolled", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard outer(b);
    b.setInsertionPointToStart(rounds.getBody());
    Value column =
        arith::AddIOp::create(b, group,
                              arith::MulIOp::create(b, rounds.getInductionVar(),
                                                    constantIndex(groups)));
    Value valid = isBelow(column, count);
    column = arith::MinSIOp::create(b, column, constantIndex(count - 1));
    Components initial =
        loadVector(vectors, {vectorRow(column, stacks)}, place);
    auto loop = scf::ForOp::create(b, constantIndex(0), length,
                                   constantIndex(1), initial);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value position =
          arith::SubIOp::create(b, lastEntry(), loop.getInductionVar());
      Transition entry = loadTransition(buffer, transition, position);
      Components weights;
      Components next = passBack(entry, transition, buffer, position,
                                 Components(loop.getRegionIterArgs()), weights);
      guarded(both(valid, isBelow(lane, 1)), [&] {
        for (auto [i, weight] : llvm::enumerate(weights))
          memref::StoreOp::create(
              b, weight, scratch,
              ValueRange{position, add(arith::MulIOp::create(
                                           b, column, constantIndex(products)),
                                       static_cast<int64_t>(i))});
      });
      scf::YieldOp::create(b, next);
    }
    Value row = vectorRow(column, origins);
    guarded(valid, [&] {
      for (auto [c, part] : llvm::enumerate(loop.getResults()))
        vector::StoreOp::create(
            b, part, vectors,
            ValueRange{row, chunkStart(place, static_cast<int64_t>(c))});
    });
  }
  written.insert(vectors);
  if (products == 0) {
    keepRead({queries, stacks, Components(count, constantFloat(0))});
    return success();
  }
  sync();
  keepRead({queries, stacks, sumWeightedValues(buffer, names, scratch, count)});
  return success();
}
