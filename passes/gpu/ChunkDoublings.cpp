//===- ChunkDoublings.cpp - decays of channels where warps hold rows ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

namespace {

/// Rows of a memory from one on.
struct Rows {
  Value memory;
  int64_t first = 0;
};

} // namespace

static constexpr int64_t kPart = 8, kWarp = 32;
/// Of blocks of one token to one of all of a step, and products of one at once.
static constexpr int64_t kDoublings = 4, kTurns = 4;
/// Tokens of first blocks, and of second ones.
static constexpr int64_t kHalf = GpuChunkKernel::kMostVectorTokens / 2;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Finds the regions that only multiply queries of Gram products by the decays
/// from the beginning of the step on, `op`: who takes a channel apart for the
/// doublings has all that is needed. Returns whether nobody else needs these.
bool GpuChunkKernel::findDecayedQueries(PathDecayOp op) {
  if (typeOf(op.getDecays()).getRank() < 3 || op.getResult().use_empty() ||
      tokensAtOnce() != kMostVectorTokens)
    return false;
  auto gramOf = [&](Value query) -> PathGramOp {
    for (Operation *user : query.getUsers())
      if (auto gram = dyn_cast<PathGramOp>(user);
          gram && gram.getQueries() == query &&
          gram.getDecays() == op.getDecays() && op->isBeforeInBlock(gram))
        return gram;
    return {};
  };
  DenseMap<Value, Value> found;
  for (Operation *user : op.getResult().getUsers()) {
    auto region = dyn_cast<EachDraftOp>(user);
    if (!region || !region.getCarries().empty())
      return false;
    Block &body = region.getBody().front();
    for (auto [result, yielded] :
         llvm::zip(region.getResults(), region.getYield().getValues())) {
      auto product = yielded.getDefiningOp<arith::MulFOp>();
      if (!product)
        return false;
      auto stackOfSide = [&](Value side) -> Value {
        auto argument = dyn_cast<BlockArgument>(side);
        return argument && argument.getOwner() == &body
                   ? region.getStacks()[argument.getArgNumber()]
                   : Value();
      };
      Value query = stackOfSide(product.getLhs());
      Value decay = stackOfSide(product.getRhs());
      if (query == op.getResult())
        std::swap(query, decay);
      if (!query || decay != op.getResult() || !hasStack(query) ||
          stackOf(query).components > 1 || found.contains(query))
        return false;
      PathGramOp gram = gramOf(query);
      if (!gram || find(gram.getResult(), false) ||
          gramsBeside(gram).size() > 2)
        return false;
      found[query] = result;
    }
  }
  for (auto [query, result] : found)
    decayedQueries[query] = result;
  return true;
}

/// Whether keys and queries of doublings are for different threads.
bool GpuChunkKernel::areApart() const {
  return schedule.threads >= 2 * keySize && keySize % kWarp == 0;
}

/// Whether a stack gives way to what doublings multiply, which has twice its
/// rows.
bool GpuChunkKernel::givesWay(Value stack) {
  if (blockPart != Part::Ahead || areApart() ||
      tokensAtOnce() != kMostVectorTokens ||
      componentCount(unstackType(typeOf(stack))) > 1)
    return false;
  auto grams =
      llvm::make_filter_range(stack.getUsers(), llvm::IsaPred<PathGramOp>);
  if (!llvm::hasSingleElement(grams))
    return false;
  auto gram = cast<PathGramOp>(*grams.begin());
  return gram.getDecays() && typeOf(gram.getDecays()).getRank() > 2 &&
         gram.getKeys() != stack &&
         llvm::count_if(gram.getDecays().getUsers(),
                        llvm::IsaPred<PathGramOp>) == 1 &&
         (gram.getQueries() == stack) != (gram.getDecays() == stack);
}

/// Whether all that it gives is made beside Gram products.
bool GpuChunkKernel::isBesideGrams(Operation *op) {
  if (blockPart != Part::Ahead)
    return false;
  if (auto path = dyn_cast<PathDecayOp>(op))
    return findDecayedQueries(path);
  auto isDecayed = [&](Value result) {
    return llvm::is_contained(llvm::make_second_range(decayedQueries), result);
  };
  return isa<EachDraftOp>(op) && op->getNumResults() > 0 &&
         llvm::all_of(op->getResults(), isDecayed);
}

/// emitVectorGrams where warps hold rows: of all four doublings at once. A
/// thread takes a channel, whose tokens it has in registers, and leaves what
/// each doubling multiplies: the queries of second blocks times what follows
/// the boundary, and the keys of first blocks times what precedes it. These are
/// eight tokens each, so that two queries are a tile of rows, and the keys one
/// of columns; a warp takes a doubling.
void GpuChunkKernel::multiplyDoublings(ArrayRef<PathGramOp> ops) {
  PathGramOp first = ops.front();
  Stack decays = stackOf(first.getDecays()), keys = stackOf(first.getKeys());
  // Of the first doubling, whose blocks are a token, all is there. Only where
  // memory is enough it comes to the others, so that all warps do the same.
  bool areAlike = blockPart == Part::Ahead;
  int64_t sides = static_cast<int64_t>(ops.size());
  // A thread that has a channel to itself decays its keys, too, and leaves what
  // it multiplies where the channel was.
  SmallVector<std::function<void(Value)>> folds;
  bool takesAll = areAlike && !areApart();
  if (takesAll)
    for (FoldDraftsOp fold : foldsBeside(first, ops))
      foldKeys[fold] = foldKeysOf(fold, &folds.emplace_back());
  auto isOver = [&](Value stack, Value memory) {
    return takesAll && hasRoom.contains(memory) &&
           llvm::all_of(stack.getUsers(), [&](Operation *user) {
             return llvm::is_contained(ops, user) || foldKeys.contains(user) ||
                    user->isBeforeInBlock(first);
           });
  };
  SmallVector<Rows> lefts(kDoublings), rights(kDoublings);
  Value left, right;
  for (int64_t level = areAlike ? 0 : 1; level < kDoublings; ++level) {
    if (areAlike && level == 0) {
      Value query = first.getQueries(), decay = first.getDecays();
      left = sides == 1 && isOver(query, stackOf(query).memory)
                 ? stackOf(query).memory
                 : allocate(sides * kDoublings * kHalf, keySize);
      right = isOver(decay, decays.memory)
                  ? decays.memory
                  : allocate(kDoublings * kHalf, keySize);
    } else if (!areAlike) {
      left = allocate(sides * kHalf, keySize);
      if (level % 2)
        right = allocate(2 * kHalf, keySize);
    }
    size_t at = static_cast<size_t>(level);
    lefts[at] = {left, areAlike ? sides * level * kHalf : 0};
    rights[at] = {right, areAlike ? level * kHalf : (level - 1) % 2 * kHalf};
  }
  SmallVector<Stack> queries;
  SmallVector<std::optional<Stack>> decayed;
  SmallVector<Value> grams;
  willRead(decays.memory);
  willRead(keys.memory);
  auto isForReads = [](Value result) {
    return llvm::all_of(result.getUsers(), llvm::IsaPred<ReadOp>);
  };
  auto missing = [&](PathGramOp op) {
    Value result = decayedQueries.lookup(op.getQueries());
    return result && !find(result, false) ? result : Value();
  };
  // Warps that multiply together do so for all of them at once.
  int64_t columns = 0, column = 0;
  for (PathGramOp op : ops)
    if (Value result = missing(op); result && isForReads(result))
      columns += rowsOf(1);
  Value matrix;
  if (columns && keepsRests() && shape.warpgroups)
    matrix = allocateMatrix(keySize, columns);
  for (PathGramOp op : ops) {
    queries.push_back(stackOf(op.getQueries()));
    willRead(queries.back().memory);
    std::optional<Stack> &into = decayed.emplace_back();
    if (Value result = missing(op)) {
      into.emplace().size = keySize;
      if (matrix && isForReads(result)) {
        into->memory = matrix;
        into->first = std::exchange(column, column + rowsOf(1));
      } else {
        into->memory = isForReads(result) ? allocateForReads()
                                          : allocate(rowsOf(1), keySize);
      }
      fullStacks[result] = *into;
      willWrite(into->memory);
    }
    // What is no pair is zero from the beginning and stays so.
    Value &gram = pairGrams[op];
    if (!gram)
      gram = shared({kMostVectorTokens, pitchOf(kMostVectorTokens)}, "pairs");
    grams.push_back(gram);
    fullStacks[op.getResult()].memory = gram;
  }
  llvm::SetVector<Value> memories;
  for (auto *all : {&lefts, &rights})
    for (const Rows &each : *all)
      if (each.memory)
        memories.insert(each.memory);
  for (Value memory : memories)
    willWrite(memory);
  // Queries and keys are for different threads, where there are enough.
  bool isApart = areApart();
  auto takeChannel = [&](Value channel, bool ofLefts, bool ofRights) {
    auto load = [&](const Stack &stack) {
      SmallVector<Value> all;
      for (int64_t i = 0; i < kMostVectorTokens; ++i)
        all.push_back(memref::LoadOp::create(
            b, stack.memory,
            ValueRange{constantIndex(stack.first + i), channel}));
      return all;
    };
    SmallVector<Value> decay = load(decays), key;
    SmallVector<SmallVector<Value>> query;
    if (ofRights)
      key = load(keys);
    for (auto [stack, into] : llvm::zip(queries, decayed))
      query.push_back(ofLefts || into ? load(stack) : SmallVector<Value>());
    for (const auto &decayKeysOf : folds)
      decayKeysOf(channel);
    auto put = [&](Value memory, int64_t row, Value value, Value factor) {
      if (factor)
        value = arith::MulFOp::create(b, value, factor);
      storeForReads(value, memory, row, channel);
    };
    // Fewer rows are of keys.
    Value path;
    for (int64_t i = 0; ofRights && i < kMostVectorTokens; ++i) {
      auto token = static_cast<size_t>(i);
      for (auto [into, all] : llvm::zip(decayed, query))
        if (into)
          put(into->memory, into->first + i, all[token], path);
      path = path ? Value(arith::MulFOp::create(b, path, decay[token]))
                  : decay[token];
    }
    for (int64_t level = 0; level < kDoublings; ++level) {
      int64_t size = int64_t(1) << level;
      auto [ofLeft, firstOfLeft] = lefts[static_cast<size_t>(level)];
      auto [ofRight, firstOfRight] = rights[static_cast<size_t>(level)];
      if (!ofLeft)
        continue;
      for (int64_t start = 0; start < kHalf; start += size) {
        size_t boundary = static_cast<size_t>(2 * start + size);
        Value after, before;
        for (int64_t i = 0; i < size; ++i) {
          size_t next = boundary + static_cast<size_t>(i);
          size_t last = boundary - 1 - static_cast<size_t>(i);
          for (size_t side = 0; ofLefts && side < query.size(); ++side)
            put(ofLeft,
                firstOfLeft + static_cast<int64_t>(side) * kHalf + start + i,
                query[side][next], after);
          if (ofLefts)
            after = after ? Value(arith::MulFOp::create(b, after, decay[next]))
                          : decay[next];
          if (!ofRights)
            continue;
          put(ofRight, firstOfRight + start + size - 1 - i, key[last], before);
          before = before ? Value(arith::MulFOp::create(b, before, decay[last]))
                          : decay[last];
        }
      }
    }
  };
  forThreads(constantIndex(keySize),
             [&](Value channel) { takeChannel(channel, true, !isApart); });
  if (isApart)
    forThreads(
        constantIndex(keySize),
        [&](Value channel) { takeChannel(channel, false, true); },
        keySize / kWarp);
  beginOp();
  for (Value memory : memories)
    willRead(memory);
  if (!areAlike) { // The first doubling is of the stacks themselves.
    willRead(keys.memory);
    for (const Stack &query : queries)
      willRead(query.memory);
  }
  for (Value gram : grams)
    willWrite(gram);
  int64_t last = sides - 1;
  Value lane = over(warpLane, 4);
  int64_t warps = schedule.threads / kWarp;
  for (int64_t level = 0; areAlike && level < kDoublings; level += warps) {
    Value mine = add(over(thread, kWarp), level);
    guarded(isBelow(mine, kDoublings), [&] {
      Value row = arith::AddIOp::create(b, times(mine, kHalf), lane);
      Value upper = arith::AddIOp::create(b, times(mine, sides * kHalf), lane);
      multiplyPairs(mine, {{{left, upper}, {left, add(upper, last * kHalf)}}},
                    {right, row}, grams);
    });
  }
  for (int64_t level = 0; !areAlike && level < kDoublings; ++level)
    inWarp(level, [&] {
      size_t at = static_cast<size_t>(level);
      auto upper = [&](int64_t half) -> std::pair<Value, Value> {
        half = std::min(half, last);
        if (level)
          return {lefts[at].memory, add(lane, half * kHalf)};
        const Stack &query = queries[static_cast<size_t>(half)];
        return {query.memory, add(times(lane, 2), query.first + 1)};
      };
      std::pair<Value, Value> of{keys.memory, add(times(lane, 2), keys.first)};
      if (level)
        of = {rights[at].memory, add(lane, rights[at].first)};
      multiplyPairs(constantIndex(level), {upper(0), upper(1)}, of, grams);
    });
  for (Value memory : memories)
    if (!hasRoom.contains(memory))
      unused[sizes.lookup(memory)].push_back(memory);
}

/// The pairs of one doubling: of rows of a lane, of which those of a second
/// side follow those of the first.
void GpuChunkKernel::multiplyPairs(Value level,
                                   std::array<std::pair<Value, Value>, 2> lefts,
                                   const std::pair<Value, Value> &right,
                                   ArrayRef<Value> grams) {
  auto four = VectorType::get({4}, b.getF32Type());
  Value lane = over(warpLane, 4);
  // Terms in turns, so that a sum need not wait for the one before.
  SmallVector<Value> sums(kTurns,
                          arith::ConstantOp::create(b, b.getZeroAttr(four)));
  for (int64_t k = 0; k < keySize; k += kPart * kTurns) {
    SmallVector<SplitProduct> products;
    for (int64_t turn = 0; turn < kTurns && k + turn * kPart < keySize;
         ++turn) {
      Value at = add(pairOfLane(), k + turn * kPart);
      SmallVector<Value> elements;
      for (int64_t i = 0; i < 2; ++i)
        for (auto &[memory, row] : lefts)
          elements.push_back(
              memref::LoadOp::create(b, memory, ValueRange{row, add(at, i)}));
      products.push_back(
          {splitTerms(vector::FromElementsOp::create(b, four, elements)),
           splitRight(loadTwo(right.first, right.second, at), false),
           &sums[static_cast<size_t>(turn)]});
    }
    multiplySplit(products);
  }
  Value sum = sums.front();
  for (Value other : ArrayRef(sums).drop_front())
    sum = arith::AddFOp::create(b, sum, other);
  // The blocks of a pair are the same, and a token is behind those of first
  // blocks up to its own.
  auto blockOf = [&](Value index) -> Value {
    return arith::ShRUIOp::create(b, index, level);
  };
  auto tokenOf = [&](Value index) -> Value {
    return arith::AddIOp::create(
        b, index, arith::ShLIOp::create(b, blockOf(index), level));
  };
  Value token = arith::AddIOp::create(
      b, tokenOf(lane), arith::ShLIOp::create(b, constantIndex(1), level));
  for (int64_t i = 0; i < 2; ++i) {
    Value other = add(pairOfLane(), i);
    guarded(compare(arith::CmpIPredicate::eq, blockOf(lane), blockOf(other)),
            [&] {
              Value ancestor = tokenOf(other);
              for (auto [side, gram] : llvm::enumerate(grams))
                memref::StoreOp::create(
                    b,
                    vector::ExtractOp::create(
                        b, sum, 2 * static_cast<int64_t>(side) + i),
                    gram, ValueRange{token, ancestor});
            });
  }
}
