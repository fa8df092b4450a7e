//===- ChunkShapes.cpp - what a block of a prefill takes at once ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kMostTokens = 64;
/// Fewer blocks than these leave multiprocessors of a large GPU idle.
static constexpr int64_t kFewBlocks = 128;
/// Threads of a crew that is a step ahead of others; with decays of channels,
/// which take more arithmetic, twice as many. And crews that take turns.
static constexpr int64_t kAhead = 128, kMostCrews = 2;
/// Warps with the same rows, and less of dk than they are worth it for; where
/// that makes a block for each multiprocessor, more with fewer rows, unless
/// each would have less than so many keys.
static constexpr int64_t kFewKeyParts = 2, kFewKeys = 64;
static constexpr int64_t kManyKeyParts = 4, kFewKeysOfWarp = 32;
/// Rows of a tile of which four warps have 16 each.
static constexpr int64_t kTileOfFour = 64;
static_assert(kAhead == GpuChunkShape::kRegisterGroup);
/// Blocks that make steps for one another: where there are two, warps with rows
/// are as slow as those ahead.
static constexpr int64_t kCluster = 2;
/// Tiles of a head for which a kernel of its own is worth to make what they
/// have in common, of decays of channels; of numbers, twice as many.
static constexpr int64_t kManyTiles = 4;
/// Of a block; and those with rows for which others are worth to be ahead with
/// many prompts, too: the block has a multiprocessor then, as it would if each
/// of two such blocks made for itself what they have in common.
static constexpr int64_t kMostThreads = 1024, kWideRows = 256;

SmallVector<GpuChunkKernel::Shape>
GpuChunkKernel::shapesOf(StepOp step, const GpuSchedule &schedule,
                         bool ownsAllRows) {
  int64_t chunk = cast<DraftsType>(step.getDrafts().getType()).getMost();
  int64_t most = kMostTokens, fewest = 8, valueSize = 1, heads = 1;
  if (!step.getBody().front().getOps<PathSolveOp>().empty())
    fewest = 16;
  step.walk([&](FoldDraftsOp fold) {
    valueSize = fold.getState().getType().getValueSize();
    heads = std::max(heads, fold.getState().getType().getHeads());
    if (fold.getDecays() &&
        cast<RankedTensorType>(fold.getDecays().getType()).getRank() > 2)
      most = fewest = kMostVectorTokens;
  });
  SmallVector<int64_t> tokens, rows;
  if (chunk <= most)
    tokens.push_back(chunk);
  for (int64_t each : {64, 32, 16, 8})
    if (each <= most && each >= fewest && each < chunk)
      tokens.push_back(each);
  if (schedule.tileRows && valueSize % schedule.tileRows == 0 && !ownsAllRows)
    rows.push_back(schedule.tileRows);
  for (int64_t each : {64, 32, 16})
    if (rows.empty() && ownsAllRows)
      break;
    else if (!schedule.tileRows && valueSize % each == 0)
      rows.push_back(each);
  if (rows.empty())
    rows.push_back(valueSize);
  SmallVector<Shape> shapes;
  for (int64_t t : tokens)
    for (int64_t r : rows)
      shapes.push_back({t, r});
  auto isIdle = [&](const Shape &shape) {
    return schedule.batch &&
           schedule.batch * heads * (valueSize / shape.rows) < kFewBlocks;
  };
  // Square ones do least twice; with few prompts more blocks are better.
  llvm::sort(shapes, [&](const Shape &a, const Shape &b) {
    if (isIdle(a) != isIdle(b))
      return isIdle(b);
    auto key = [](const Shape &shape) {
      return std::tuple(std::min(shape.tokens, shape.rows),
                        shape.tokens * shape.rows, shape.rows);
    };
    return key(a) > key(b);
  });
  return shapes;
}

/// Whether a large GPU has hardly a block for each multiprocessor.
bool GpuChunkKernel::isIdle(int64_t ofTiles) const {
  return schedule.batch && schedule.batch * heads * ofTiles <= kFewBlocks;
}

/// Whether keys or queries are functions of tokens, or turned: element by
/// element that takes more than all else that needs no state.
static bool computesKeys(StepOp step) {
  SetVector<Value> needed;
  for (Operation &op : step.getBody().front()) {
    if (auto read = dyn_cast<ReadOp>(op))
      needed.insert(read.getQuery());
    else if (auto fold = dyn_cast<FoldDraftsOp>(op))
      needed.insert_range(fold.getKeys());
  }
  for (size_t i = 0; i < needed.size(); ++i) {
    Operation *op = needed[i].getDefiningOp();
    if (auto argument = dyn_cast<BlockArgument>(needed[i])) {
      auto region = dyn_cast<EachDraftOp>(argument.getOwner()->getParentOp());
      if (region && argument.getArgNumber() < region.getNumStacks())
        needed.insert(region.getStacks()[argument.getArgNumber()]);
      continue;
    }
    if (auto region = dyn_cast<EachDraftOp>(op)) {
      needed.insert(
          region.getYield()
              .getValues()[cast<OpResult>(needed[i]).getResultNumber()]);
      continue;
    }
    if (!op->getParentOfType<EachDraftOp>() ||
        cast<RankedTensorType>(op->getResult(0).getType()).getRank() < 2)
      continue;
    if (isa<RotateOp>(op) ||
        isa_and_present<math::MathDialect>(op->getDialect()))
      return true;
    needed.insert_range(op->getOperands());
  }
  return false;
}

/// Whether a kernel of its own can make what needs no state: a step needs none
/// before it, and the device can start both together.
bool GpuChunkKernel::mayPrepare(const Shape &of) {
  int64_t most = cast<DraftsType>(step.getDrafts().getType()).getMost();
  return step.getArgumentsOfKind(ArgumentKind::Carry).empty() &&
         most % of.tokens == 0 && schedule.cluster != 1;
}

bool GpuChunkKernel::decaysChannels() {
  return step
      .walk([](FoldDraftsOp fold) {
        auto decays = fold.getDecays();
        return decays && cast<RankedTensorType>(decays.getType()).getRank() > 2
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Shapes in which warps hold rows of the state, the best first.
SmallVector<GpuChunkKernel::Shape> GpuChunkKernel::shapesOfRows() {
  int64_t most = cast<DraftsType>(step.getDrafts().getType()).getMost();
  int64_t mostCrews = kMostCrews, mostBlocks = 1;
  bool ofChannels = decaysChannels(), areComputed = computesKeys(step);
  if (ofChannels)
    most = std::min(most, kMostVectorTokens);
  int64_t keys =
      keySize *
      static_cast<int64_t>(step.getArgumentsOfKind(ArgumentKind::State).size());
  int64_t keyParts = keys > kMostKeys ? kFewKeyParts : 1;
  if (ofChannels || areComputed) {
    mostCrews = 1;
    mostBlocks = schedule.cluster ? schedule.cluster : kCluster;
  }
  auto aheadOf = [&](int64_t cluster) {
    return ofChannels || (areComputed && cluster == 1) ? 2 * kAhead : kAhead;
  };
  SmallVector<Shape> shapes;
  auto consider = [&](const Shape &shape) {
    int64_t threads = shape.threadsOfBlock();
    if ((schedule.tileRows && shape.rows != schedule.tileRows) ||
        valueSize % shape.rows != 0 || threads > kMostThreads ||
        (schedule.threads && schedule.threads != threads) ||
        valueSize / shape.rows % shape.cluster != 0 ||
        mostBlocks < shape.cluster ||
        (shape.blocks > 1 && shape.threadsOfRows() != Shape::kRegisterGroup) ||
        (shape.takesFromCrews() &&
         (schedule.cluster == 1 || keys / shape.keyParts > kMostKeys / 2)) ||
        (shape.prepared && !mayPrepare(shape)) ||
        (shape.ahead && shape.blocks == 1 &&
         shape.threadsOfRows() < kWideRows && !isIdle(valueSize / shape.rows)))
      return;
    if (shape.tokens > most || !mayHoldRows(shape) ||
        llvm::is_contained(shapes, shape))
      return;
    // Parts take more memory than what they add up to. With decays of channels
    // they gain nothing: what decays is multiplied once. What products cut off
    // of it does, where shared memory is not all that blocks are short of.
    bool areTogether = mayMultiplyTogether(shape, ofChannels);
    if (!ofChannels) {
      if (areTogether) {
        shapes.push_back(shape);
        shapes.back().splits = shapes.back().warpgroups = true;
      }
      shapes.push_back(shape);
      shapes.back().splits = true;
    } else if (shape.ahead && shape.cluster == 1 && !shape.prepared) {
      if (areTogether) {
        shapes.push_back(shape);
        shapes.back().rests = shapes.back().warpgroups = true;
      }
      shapes.push_back(shape);
      shapes.back().rests = true;
    } else if (shape.prepared) {
      shapes.push_back(shape);
      shapes.back().invertsAll = true;
    }
    shapes.push_back(shape);
  };
  constexpr int64_t allTokens[] = {32, 16};
  // Where even narrow tiles leave a block its multiprocessor, several warps
  // have the same rows. Those ahead are to keep up: blocks with tiles of one
  // head divide what channels that decay take; or they are two crews, unless
  // what passes from step to step, or shared memory, leaves one.
  struct Narrow {
    int64_t rows, parts;
  };
  SmallVector<Narrow> narrow{{32, kFewKeyParts}, {16, kFewKeyParts}};
  if (isIdle(valueSize / 16) && keySize >= kManyKeyParts * kFewKeysOfWarp)
    narrow.insert(narrow.begin(), {16, kManyKeyParts});
  // What many tiles of a head have in common, a kernel of its own makes once.
  int64_t manyTiles = ofChannels ? kManyTiles : 2 * kManyTiles;
  auto *first = llvm::find_if(narrow, [&](const Narrow &each) {
    return valueSize % each.rows == 0 && isIdle(valueSize / each.rows);
  });
  if (first != narrow.end() && keySize >= kFewKeys &&
      valueSize / first->rows >= manyTiles)
    for (int64_t tokens : allTokens) {
      Shape shape{tokens, first->rows, aheadOf(/*cluster=*/1), /*crews=*/1,
                  first->parts};
      shape.prepared = true;
      consider(shape);
    }
  // Where tiles of 64 do as well, and warps with rows are the slower ones.
  bool solves = !step.getBody().front().getOps<PathSolveOp>().empty();
  bool mayHaveFour = isIdle(valueSize / kTileOfFour);
  if (mayHaveFour && !ofChannels && (solves || areComputed))
    narrow.push_back({kTileOfFour, kFewKeyParts});
  for (int64_t cluster : {kCluster, int64_t(1)})
    for (int64_t tokens : allTokens)
      for (auto [rows, parts] : narrow)
        for (int64_t crews = cluster > 1 ? 1 : mostCrews;
             crews > 0 && keySize >= kFewKeys; --crews)
          consider(
              {tokens, rows, crews * aheadOf(cluster), crews, parts, cluster});
  auto considerAll = [&](std::initializer_list<int64_t> allRows, int64_t ahead,
                         int64_t cluster, int64_t blocks, int64_t crews = 1) {
    for (int64_t tokens : allTokens)
      for (int64_t rows : allRows)
        consider({tokens, schedule.tileRows ? schedule.tileRows : rows, ahead,
                  crews, keyParts, cluster, blocks});
  };
  for (int64_t cluster : {kCluster, int64_t(1)}) {
    // One crew is slower than warps with rows that solve nothing.
    if (cluster == 1 && mayHaveFour && !solves && mostCrews > 1)
      considerAll({kTileOfFour}, mostCrews * kAhead, cluster, /*blocks=*/1,
                  mostCrews);
    considerAll({64, 32, 16}, aheadOf(cluster), cluster, /*blocks=*/1);
  }
  // With many prompts, what those ahead make is to serve many rows. Of narrow
  // heads two blocks find room, where threads can be given registers; with
  // decays that are numbers, those ahead would take too many.
  considerAll({kWideRows / 2 / keyParts}, ofChannels ? 2 * kAhead : kAhead,
              /*cluster=*/1, /*blocks=*/1);
  if (ofChannels && mostBlocks > 1 && keyParts == 1)
    considerAll({64}, kAhead, /*cluster=*/1, /*blocks=*/2);
  // Else other blocks are at work while one waits.
  considerAll({64, 32, 16}, /*ahead=*/0, /*cluster=*/1, /*blocks=*/1);
  return shapes;
}
