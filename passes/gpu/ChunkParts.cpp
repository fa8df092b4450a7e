//===- ChunkParts.cpp - stacks of f32 as sums of bf16 ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// An f32 within their range is the sum of three numbers of bf16. Keys and
// queries that are no tokens as they came (activations, decays, turns) are
// split where they are made, once for all warps that multiply them, and lie in
// shared memory as ldmatrix takes them. Of two sides with parts, products of
// which both are small are below the last bit: six are left of nine. Two parts
// are enough for what only elementwise operations lie between and an answer of
// 16 bits, and three products.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

/// Parts of what is rounded to 16 bits.
static constexpr int64_t kRoundedParts = 2;

static bool isVector(Value decays) {
  return decays && cast<RankedTensorType>(decays.getType()).getRank() > 2;
}

//===----------------------------------------------------------------------===//
// How many
//===----------------------------------------------------------------------===//

/// Whether elementwise arithmetic is all that a value goes through until it is
/// rounded to 16 bits. What is compared may turn out either way.
bool GpuChunkKernel::isRounded(Value value) {
  auto isShort = [](Value each) {
    return getElementTypeOrSelf(each.getType()).getIntOrFloatBitWidth() <= 16;
  };
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    unsigned at = use.getOperandNumber();
    if (isa<YieldOp>(user))
      return isShort(value);
    if (auto region = dyn_cast<EachDraftOp>(user))
      return isRounded(region.getBody().getArgument(at - 1));
    if (auto region = dyn_cast<EachDraftOp>(user->getParentOp());
        region && isa<YieldDraftOp>(user))
      return at < region.getNumResults() - region.getCarries().size() &&
             isRounded(region.getResult(at));
    return user->hasTrait<OpTrait::Elementwise>() &&
           isa<FloatType>(getElementTypeOrSelf(user->getResult(0))) &&
           (isShort(user->getResult(0)) || isRounded(user->getResult(0)));
  });
}

/// Whether a state is stored in 16 bits, and all that is answered has as many:
/// then what its third part adds is lost to one of these.
bool GpuChunkKernel::isShortState(Value state) {
  auto bitsOf = [](Type type) { return type.getIntOrFloatBitWidth(); };
  auto pool =
      cast<PoolType>(step.getBody().getArgument(poolOf(state)).getType());
  return bitsOf(pool.getElementType()) <= 16 &&
         llvm::all_of(step.getBody().front().getTerminator()->getOperands(),
                      [&](Value output) {
                        return bitsOf(getElementTypeOrSelf(output)) <= 16;
                      });
}

/// Whether that holds of all that a stack is multiplied for.
static bool isMultipliedRounded(Value stack,
                                function_ref<bool(Value)> isRounded) {
  return llvm::all_of(stack.getUsers(), [&](Operation *user) {
    if (auto read = dyn_cast<ReadOp>(user))
      return isRounded(read.getResult());
    auto gram = dyn_cast<PathGramOp>(user);
    return gram && llvm::all_of(gram.getResult().getUsers(), [&](auto *sum) {
             return isa<PathProductOp>(sum) && isRounded(sum->getResult(0));
           });
  });
}

/// Whether nothing but products with warps' rows, and Gram products without
/// decays of channels, takes a stack.
static bool isMultipliedAlone(Value stack) {
  return llvm::all_of(stack.getUsers(), [&](Operation *user) {
    if (auto gram = dyn_cast<PathGramOp>(user))
      return !isVector(gram.getDecays());
    if (auto fold = dyn_cast<FoldDraftsOp>(user))
      return !isVector(fold.getDecays()) &&
             !llvm::is_contained(fold.getValues(), stack);
    return isa<ReadOp>(user);
  });
}

/// Finds the stacks that are split, and into how many parts.
void GpuChunkKernel::findParts() {
  partCounts.clear();
  if (!holdsRows || !shape.splits)
    return;
  for (auto region : step.getBody().front().getOps<EachDraftOp>()) {
    for (auto [result, value] :
         llvm::zip(region.getResults(), region.getYield().getValues())) {
      auto type = cast<RankedTensorType>(value.getType());
      if (type.getRank() < 2 || type.getShape().back() != keySize ||
          componentCount(type) != 1 || demands.lookup(result) != Full ||
          isTerm(result) || forms.contains(result) ||
          !isMultipliedAlone(result))
        continue;
      auto extend = value.getDefiningOp<arith::ExtFOp>();
      bool isExact = extend && isa<BlockArgument>(extend.getIn()) &&
                     getElementTypeOrSelf(extend.getIn().getType()).isBF16();
      partCounts[result] = isExact ? 1
                           : isMultipliedRounded(result, isRounded)
                               ? kRoundedParts
                               : kParts;
    }
  }
  // All that is multiplied together is, or nothing.
  auto basesOf = [&](Value value) {
    SmallVector<Value> bases;
    auto found = forms.find(value);
    if (found == forms.end())
      return SmallVector<Value>{value};
    for (const ChunkTerm &term : found->second)
      bases.push_back(term.base);
    return bases;
  };
  auto isBF16 = [&](Value base) {
    auto result = dyn_cast<OpResult>(base);
    if (partCounts.contains(base))
      return true;
    Type element = result ? shortElementOf(result) : Type();
    return element && element.isBF16();
  };
  bool changes = true;
  auto keepTogether = [&](ArrayRef<Value> values) {
    SmallVector<Value> bases;
    for (Value value : values)
      llvm::append_range(bases, basesOf(value));
    if (llvm::all_of(bases, isBF16))
      return;
    for (Value base : bases)
      changes |= partCounts.erase(base);
  };
  while (std::exchange(changes, false))
    for (Operation &op : step.getBody().front())
      if (auto gram = dyn_cast<PathGramOp>(op)) {
        if (!isVector(gram.getDecays())) {
          // Those of the same keys are multiplied at the same time.
          SmallVector<Value> sides{gram.getKeys()};
          for (auto other : op.getBlock()->getOps<PathGramOp>())
            if (other.getKeys() == gram.getKeys())
              sides.push_back(other.getQueries());
          keepTogether(sides);
        }
      } else if (auto read = dyn_cast<ReadOp>(op)) {
        SmallVector<Value> queries;
        for (auto other : op.getBlock()->getOps<ReadOp>())
          if (other.getState() == read.getState())
            queries.push_back(other.getQuery());
        keepTogether(queries);
      }
  areHalvesInPieces = shape.warpgroups && multipliesHalvesAlone();
  isRefused |= shape.warpgroups && !areHalvesInPieces;
}

GpuChunkKernel::Stack
GpuChunkKernel::makeProductStack(RankedTensorType ofOneToken, OpResult of) {
  auto found = partCounts.find(of);
  Type element = shortElementOf(of);
  Stack stack;
  if (found == partCounts.end() && !element && givesWay(of)) {
    stack.size = keySize;
    stack.memory = allocate(2 * kMostVectorTokens, keySize);
    hasRoom.insert(stack.memory);
    return stack;
  }
  bool isWhole = found == partCounts.end();
  if (isWhole && (!areHalvesInPieces || !element))
    return makeStack(ofOneToken, /*isTile=*/false, element);
  stack.size = keySize;
  stack.parts = isWhole ? 1 : found->second;
  int64_t rows = rowOfPart(stack.parts);
  stack.memory = areHalvesInPieces ? allocateHalves(rows)
                                   : allocate(rows, keySize, b.getBF16Type());
  return stack;
}

//===----------------------------------------------------------------------===//
// What products cut off
//===----------------------------------------------------------------------===//

// A product of f32 takes the upper bits of an element, then the others. Who
// makes an element can split it once for all warps with rows. Two elements that
// a lane multiplies lie beside each other, and what is cut off of both behind
// them: a lane loads four at once, and eight lanes meet no bank twice.

/// Where reads multiply decayed keys or queries, a row a token.
Value GpuChunkKernel::allocateForReads() {
  if (!keepsRests())
    return allocate(rowsOf(1), keySize);
  constexpr int64_t banks = 32;
  return allocateMarked(
      {rowsOf(1), llvm::alignTo(2 * keySize, banks) + banks / 2, 2 * 32},
      withRests);
}

/// Where folds multiply decayed keys, a row a token, or two.
Value GpuChunkKernel::allocateForFold(int64_t rows) {
  if (!keepsRests())
    return allocate(rows, keySize);
  if (shape.warpgroups)
    return allocateMatrix(rows, keySize);
  Value memory = allocate(rows / 2, 2 * keySize);
  inPairs.insert(memory);
  return memory;
}

/// Memory of a size, as it is needed for the first time, or again.
Value GpuChunkKernel::allocateMarked(const Size &size, DenseSet<Value> &marked,
                                     Type element) {
  SmallVector<Value> &list = unused[size];
  Value memory;
  if (list.empty()) {
    memory = shared({std::get<0>(size), std::get<1>(size)}, "stack", element);
    sizes[memory] = size;
    marked.insert(memory);
  } else {
    takeAgain(memory = list.pop_back_val());
  }
  return memory;
}

/// Stores a channel of a token.
void GpuChunkKernel::storeForReads(Value value, Value memory, int64_t row,
                                   Value channel) {
  if (matrices.contains(memory))
    return storeInMatrix(splat(value, 1), memory, channel, constantIndex(row));
  if (!withRests.contains(memory)) {
    memref::StoreOp::create(b, value, memory,
                            ValueRange{constantIndex(row), channel});
    return;
  }
  Value rest = splitTerms(splat(value, 1)).second;
  Value at = arith::AddIOp::create(
      b, times(over(channel, 2), 4),
      arith::RemUIOp::create(b, channel, constantIndex(2)));
  memref::StoreOp::create(b, value, memory, ValueRange{constantIndex(row), at});
  memref::StoreOp::create(b, vector::ExtractOp::create(b, rest, 0), memory,
                          ValueRange{constantIndex(row), add(at, 2)});
}

/// Stores a channel of all tokens.
void GpuChunkKernel::storeForFold(ArrayRef<Value> values, Value memory,
                                  Value channel) {
  if (matrices.contains(memory))
    return storeTermsInMatrix(values, memory, channel);
  bool arePairs = inPairs.contains(memory);
  size_t atOnce = arePairs ? 2 : 1;
  Value column = times(channel, static_cast<int64_t>(atOnce));
  for (size_t token = 0; token < values.size(); token += atOnce) {
    Value row = constantIndex(static_cast<int64_t>(token / atOnce));
    if (arePairs)
      storeTwo(
          memory, row, column,
          vector::FromElementsOp::create(
              b, VectorType::get({2}, b.getF32Type()), values.slice(token, 2)));
    else
      memref::StoreOp::create(b, values[token], memory,
                              ValueRange{row, column});
  }
}

/// Two elements of a right side and what is cut off of them, from a place on.
GpuChunkKernel::Right GpuChunkKernel::loadWithRests(Value memory, Value at) {
  Value all = vector::LoadOp::create(b, VectorType::get({4}, b.getF32Type()),
                                     memory, ValueRange{constantIndex(0), at});
  auto half = [&](int64_t first) -> Value {
    return vector::ExtractStridedSliceOp::create(b, all, {first}, {2}, {1});
  };
  return {half(0), half(2)};
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The greatest sum of the numbers of two parts whose product counts.
int64_t GpuChunkKernel::mostOrder(int64_t left, int64_t right, bool isRounded) {
  if (left == 1 && right == 1)
    return 0;
  return isRounded || left == kRoundedParts || right == kRoundedParts
             ? kRoundedParts - 1
             : kParts - 1;
}
