//===- LadleBoundedOps.cpp - caches that forget, memories -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"

using namespace mlir;
using namespace ladle;

/// A cache that forgets, with keys and values of a memory, if there is one.
static LogicalResult verifyCache(Operation *op, BufferType cache,
                                 MemoryType memory) {
  ArrayRef<FieldAttr> fields = cache.getFields();
  if (cache.getOrder() != BufferOrder::Bounded || fields.size() != 2 ||
      fields[0].getShape().size() != 2 || fields[1].getShape().size() != 2)
    return op->emitOpError("cache must be bounded and hold keys and values, "
                           "got ")
           << cache;
  if (memory && (memory.getHeads() != fields[0].getShape().front() ||
                 memory.getValueSize() != fields[1].getShape().back()))
    return op->emitOpError("memory must have the ")
           << fields[0].getShape().front() << " heads and values of "
           << fields[1].getShape().back() << " of the cache, got " << memory;
  return success();
}

//===----------------------------------------------------------------------===//
// Eviction
//===----------------------------------------------------------------------===//

template <typename OpT> static LogicalResult verifyEviction(OpT op) {
  auto cache = cast<BufferType>(op.getCache().getType());
  MemoryType memory =
      op.getMemory() ? cast<MemoryType>(op.getMemory().getType()) : nullptr;
  if (failed(verifyCache(op, cache, memory)))
    return failure();
  if (memory && (memory.getKind() != MemoryKind::Taylor ||
                 memory.getKeySize() != cache.getFields()[0].getShape().back()))
    return op.emitOpError("needs a taylor memory of its keys, got ") << memory;
  auto budget = static_cast<int64_t>(op.getBudget());
  auto sinks = static_cast<int64_t>(op.getSinks());
  auto recent = static_cast<int64_t>(op.getRecent());
  auto queries = static_cast<int64_t>(op.getQueries());
  auto pool = static_cast<int64_t>(op.getPool());
  double variance = op.getVariance().convertToDouble();
  if (sinks < 0 || recent < 1 || budget < sinks + recent)
    return op.emitOpError("budget must hold the sinks, 0 at least, and the "
                          "recent tokens, 1 at least; got ")
           << budget << " for " << sinks << " and " << recent;
  if (cache.getCapacity() <= budget)
    return op.emitOpError("cache must have room for a token more than the "
                          "budget of ")
           << budget << ", got " << cache.getCapacity();
  if (queries < 0 || !(variance >= 0) || (!queries && variance > 0))
    return op.emitOpError("queries and variance must not be negative, and "
                          "there is no variance without a count of queries; "
                          "got ")
           << queries << " and " << variance;
  if (pool < 1 || pool % 2 == 0)
    return op.emitOpError("pool must be odd, got ") << pool;
  return success();
}

LogicalResult EvictOp::verify() {
  if (bool(getMemory()) != bool(getFolded()) ||
      (getMemory() && getMemory().getType() != getFolded().getType()))
    return emitOpError("gives back the memory that it is given");
  return verifyEviction(*this);
}

LogicalResult EvictFromOp::verify() { return verifyEviction(*this); }

template <typename OpT> static LogicalResult verifyObservation(OpT op) {
  auto cache = cast<BufferType>(op.getCache().getType());
  if (failed(verifyCache(op, cache, {})))
    return failure();
  ArrayRef<int64_t> key = cache.getFields()[0].getShape();
  RankedTensorType query = op.getQuery().getType();
  if (query.getRank() == 2 && query.getDimSize(1) == key.back() &&
      query.getDimSize(0) % key.front() == 0)
    return success();
  return op.emitOpError("query must be [heads, ")
         << key.back() << "] with a multiple of " << key.front()
         << " heads, got " << query;
}

LogicalResult ObserveOp::verify() { return verifyObservation(*this); }
LogicalResult NoteWeightsOp::verify() { return verifyObservation(*this); }

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

template <typename OpT> static LogicalResult verifySegment(OpT op) {
  auto cache = cast<BufferType>(op.getCache().getType());
  auto memory = cast<MemoryType>(op.getMemory().getType());
  if (failed(verifyCache(op, cache, memory)))
    return failure();
  if (memory.getKind() != MemoryKind::Linear)
    return op.emitOpError("needs a linear memory, got ") << memory;
  auto sinks = static_cast<int64_t>(op.getSinks());
  auto window = static_cast<int64_t>(op.getWindow());
  auto segment = static_cast<int64_t>(op.getSegment());
  if (sinks < 0 || window < 0 || segment < 1)
    return op.emitOpError("sinks and window must not be negative and a segment "
                          "must be positive, got ")
           << sinks << ", " << window << " and " << segment;
  // A prompt keeps one token beside a full segment.
  int64_t wanted = sinks + std::max<int64_t>(window, 1) + segment;
  if (cache.getCapacity() < wanted)
    return op.emitOpError("cache must have room for ")
           << wanted << " tokens, got " << cache.getCapacity();
  double decay = op.getDecay().convertToDouble();
  if (!(decay > 0 && decay <= 1))
    return op.emitOpError("decay must be above 0 and at most 1, got ") << decay;
  Block &block = op.getFeature().front();
  auto f32 = Float32Type::get(op.getContext());
  auto key = RankedTensorType::get(cache.getFields()[0].getShape(), f32);
  if (block.getNumArguments() != 1 || block.getArgument(0).getType() != key)
    return op.emitOpError("features must be of a key ") << key;
  auto yield = dyn_cast<YieldOp>(block.back());
  auto feature =
      RankedTensorType::get({memory.getHeads(), memory.getKeySize()}, f32);
  if (!yield || yield.getNumOperands() != 1 ||
      yield.getOperand(0).getType() != feature)
    return op.emitOpError("must yield the features of a key, ") << feature;
  return success();
}

bool AttentionOp::setSegments(int64_t sinks, int64_t window, int64_t segment) {
  bool isSegmented = false;
  walk([&](FoldSegmentOp fold) {
    isSegmented = true;
    fold.setSinks(static_cast<uint64_t>(sinks));
    fold.setWindow(static_cast<uint64_t>(window));
    fold.setSegment(static_cast<uint64_t>(segment));
  });
  if (!isSegmented)
    return false;
  auto cache = cast<BufferType>(getCache().getType());
  auto resized = BufferType::get(getContext(), cache.getFields(),
                                 sinks + std::max<int64_t>(window, 1) + segment,
                                 cache.getOrder(), cache.getWeight());
  auto resize = [&](Value value) {
    if (value.getType() == cache)
      value.setType(resized);
  };
  for (BlockArgument argument : getBody().getArguments())
    resize(argument);
  walk([&](Operation *op) {
    for (Value result : op->getResults())
      resize(result);
  });
  return true;
}

LogicalResult FoldSegmentOp::verifyRegions() { return verifySegment(*this); }
LogicalResult FoldFromOp::verifyRegions() { return verifySegment(*this); }

//===----------------------------------------------------------------------===//
// Reads of a memory
//===----------------------------------------------------------------------===//

static LogicalResult verifyMemoryQuery(Operation *op, RankedTensorType query,
                                       MemoryType memory, MemoryKind kind) {
  if (memory.getKind() != kind)
    return op->emitOpError("needs a ")
           << stringifyMemoryKind(kind) << " memory, got " << memory;
  if (query.getRank() != 2 || query.getDimSize(1) != memory.getKeySize() ||
      query.getDimSize(0) % memory.getHeads())
    return op->emitOpError("query must be [heads, ")
           << memory.getKeySize() << "] with a multiple of "
           << memory.getHeads() << " heads, got " << query;
  return success();
}

LogicalResult RecallOp::verify() {
  RankedTensorType query = getQuery().getType();
  if (failed(verifyMemoryQuery(*this, query, getMemory().getType(),
                               MemoryKind::Linear)))
    return failure();
  if (getResult().getType().getShape() !=
      ArrayRef{query.getDimSize(0), getMemory().getType().getValueSize()})
    return emitOpError("result must be ")
           << query.getDimSize(0) << "x" << getMemory().getType().getValueSize()
           << ", got " << getResult().getType();
  return success();
}

LogicalResult TaylorOp::verify() {
  RankedTensorType query = getQuery().getType();
  MemoryType memory = getMemory().getType();
  if (failed(verifyMemoryQuery(*this, query, memory, MemoryKind::Taylor)))
    return failure();
  if (!(getLimit().convertToDouble() >= 0))
    return emitOpError("limit must not be negative, got ")
           << getLimit().convertToDouble();
  SummaryType summary = getResult().getType();
  if (summary.getHeads() != query.getDimSize(0) ||
      summary.getSize() != memory.getValueSize())
    return emitOpError("result must be a summary of ")
           << query.getDimSize(0) << "x" << memory.getValueSize() << ", got "
           << summary;
  return success();
}
