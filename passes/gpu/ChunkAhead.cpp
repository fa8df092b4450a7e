//===- ChunkAhead.cpp - what needs no state, a step ahead -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where warps hold rows of a state, only these warps wait for it. All else, the
// numbers of tokens, products of their decays, Gram products, inverses and
// decayed keys, is made by other warps of the block, a step ahead: while some
// read a state and fold one step into it, the others make the next. If one crew
// of them is slower than those with rows, two take the steps in turn. What
// passes from one to the other is in shared memory once more than there are
// crews. A crew and those with rows meet once a step of its own.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Barriers.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Barriers of the block: those of each crew alone, and with those who have
/// rows. block_barrier has the first.
static constexpr int64_t kBarrierOfAhead = 1;

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Of each crew one, from `first` on.
Value GpuChunkKernel::barrierOf(Value ofCrew, int64_t first) {
  return shape.crews == 1 ? constantIndex(first) : add(ofCrew, first);
}

void GpuChunkKernel::barrier() {
  assert(blockPart != Part::Rows && "warps with rows do not meet all");
  if (blockPart == Part::Ahead && !shape.prepared)
    return meetAt(b, barrierOf(crew, kBarrierOfAhead), schedule.threads);
  GpuKernel::barrier();
}

/// The end of a step of those who are ahead, and the beginning of it for those
/// who take it.
void GpuChunkKernel::meetAll(Value ofCrew) {
  if (shape.warpgroups && blockPart == Part::Ahead)
    NVVM::FenceProxyOp::create(
        b,
        NVVM::ProxyKindAttr::get(b.getContext(), NVVM::ProxyKind::async_shared),
        NVVM::SharedSpaceAttr::get(b.getContext(),
                                   NVVM::SharedSpace::shared_cta));
  if (shape.prepared && blockPart == Part::Ahead)
    barrier();
  else if (shape.cluster > 1)
    meetCluster();
  else
    meetAt(b, barrierOf(ofCrew, kBarrierOfAll),
           shape.prepared ? shape.threadsOfBlock()
                          : shape.threadsOfRows() + shape.threadsOfCrew());
  isRead.clear();
  isWritten.clear();
  beginOp();
}

//===----------------------------------------------------------------------===//
// Parts of a block
//===----------------------------------------------------------------------===//

/// The threads of a part count from 0.
void GpuChunkKernel::enterPart(bool ofAhead) {
  int64_t ofRows = shape.threadsOfRows();
  blockPart = ofAhead ? Part::Ahead : Part::Rows;
  schedule.threads = ofAhead ? shape.threadsOfCrew() : ofRows;
  thread = blockThread;
  if (ofAhead) {
    if (!shape.prepared)
      thread = arith::SubIOp::create(b, thread, constantIndex(ofRows));
    crew = constantIndex(0);
  }
  if (ofAhead && shape.crews > 1) {
    crew = over(thread, schedule.threads);
    thread = arith::RemUIOp::create(b, thread, constantIndex(schedule.threads));
  }
  group = team = over(thread, lanes);
  shareRegisters(ofAhead);
}

/// Those with rows wait until the others have given up theirs.
void GpuChunkKernel::shareRegisters(bool ofAhead) {
  if (std::optional<int64_t> count = registersOfPart(ofAhead))
    NVVM::SetMaxRegisterOp::create(b, static_cast<int32_t>(*count),
                                   ofAhead
                                       ? NVVM::SetMaxRegisterAction::decrease
                                       : NVVM::SetMaxRegisterAction::increase);
}

LogicalResult GpuChunkKernel::emitParts() {
  int64_t all = schedule.threads;
  blockThread = thread;
  // What others write is behind what is cleared.
  if (shape.cluster > 1)
    meetCluster();
  auto branch = scf::IfOp::create(b, isBelow(thread, shape.threadsOfRows()),
                                  /*else=*/true);
  FailureOr<scf::ForOp> ahead = failure(), ofRows = failure();
  {
    OpBuilder::InsertionGuard guard(b);
    // Those who take need to know where all is.
    b.setInsertionPointToStart(branch.elseBlock());
    enterPart(/*ofAhead=*/true);
    ahead = shape.cluster > 1
                ? emitRounds([&] { return emitRoundOfCluster(); },
                             rankInCluster(), shape.cluster)
                : emitRounds([&] { return emitChunk(); }, crew, shape.crews);
    if (failed(ahead))
      return failure();
    b.setLoc(unnamed(step.getLoc()));
    storeCarries();

    b.setInsertionPointToStart(branch.thenBlock());
    enterPart(/*ofAhead=*/false);
    if (shape.prepared)
      for (BlockArgument argument : rowTokens) {
        Value from = memory[argument.getArgNumber()];
        alignments[cast<BlockArgument>(from).getArgNumber()] =
            GpuPreparedSteps::kCopyBytes;
        stagedRows[argument] =
            shared({tokensAtOnce(), pitchOf(schedule.tileRows)}, "rows",
                   cast<RankedTensorType>(argument.getType()).getElementType());
      }
    findDividedStacks();
    for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
      loadStateRows(pool);
    ofRows = emitRounds([&] { return emitRowsOfChunk(); });
    if (failed(ofRows))
      return failure();
    b.setLoc(unnamed(step.getLoc()));
    storeStates();
  }
  blockPart = Part::All;
  schedule.threads = all;
  thread = blockThread;
  if (shape.prepared) {
    std::tie(prepared.parts, prepared.ahead, prepared.ofRows) =
        std::tie(branch, *ahead, *ofRows);
    return success();
  }
  takeTurns(*ahead, *ofRows);
  clearShared();
  return success();
}

/// What an operation on rows takes that needs no state.
LogicalResult GpuChunkKernel::emitAheadOf(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](EachDraftOp region) { return emitEarly(region, {}); })
      .Case([&](PathSolveOp solve) {
        for (auto [gram, column] :
             llvm::zip(solve.getGrams(), solve.getColumns()))
          if (column == solve.getRows().front())
            inverses[op] = invertBlocks(stackOf(gram).memory);
        return success();
      })
      .Case([&](FoldDraftsOp fold) {
        if (foldKeys.contains(op))
          return success();
        FoldKeys keys = foldKeysOf(fold);
        foldKeys[op] = std::move(keys);
        return success();
      })
      .Default([](Operation *) { return success(); });
}

/// The folds whose keys may decay beside Gram products: nobody takes them as
/// they were any more, when `over` have been emitted.
SmallVector<FoldDraftsOp>
GpuChunkKernel::foldsBeside(PathGramOp op, ArrayRef<PathGramOp> over) {
  auto isOver = [&](Operation *user) {
    auto gram = dyn_cast<PathGramOp>(user);
    return (gram && (find(gram.getResult(), false) ||
                     llvm::is_contained(over, gram))) ||
           isRowOp(user) || user->isBeforeInBlock(op);
  };
  SmallVector<FoldDraftsOp> folds;
  for (auto fold : op->getBlock()->getOps<FoldDraftsOp>())
    if (!foldKeys.contains(fold) && fold.getDecays() &&
        fold.getDecays() == op.getDecays() &&
        typeOf(fold.getDecays()).getRank() > 2 &&
        llvm::all_of(fold.getKeys(), [&](Value key) {
          return hasStack(key) && llvm::all_of(key.getUsers(), isOver);
        }))
      folds.push_back(fold);
  return folds;
}

LogicalResult GpuChunkKernel::emitRowsOfChunk() {
  if (shape.cluster > 1)
    beginRowsOfCluster();
  else
    meetAll(shape.crews == 1 ? constantIndex(0)
                             : Value(arith::RemUIOp::create(
                                   b, round, constantIndex(shape.crews))));
  for (Operation &op : step.getBody().front().without_terminator()) {
    b.setLoc(unnamed(op.getLoc()));
    beginOp();
    if (isRowOp(&op) && failed(emitRowOp(&op)))
      return failure();
  }
  b.setLoc(unnamed(step.getLoc()));
  return success();
}

/// Whether warps with rows may still need a stack when all operations that take
/// it have been emitted for the others.
bool GpuChunkKernel::isForRows(Value stack) const {
  return blockPart != Part::All &&
         llvm::any_of(stack.getUsers(), [&](Operation *user) {
           return isRowOp(user) ||
                  llvm::any_of(user->getResults(), [&](Value result) {
                    return lazyStacks.contains(result);
                  });
         });
}

//===----------------------------------------------------------------------===//
// What passes from one part to the other
//===----------------------------------------------------------------------===//

/// Memory that both have is there once for each crew and once more, and a step
/// has one of these: a crew begins a step when those with rows have begun the
/// one that it has made before. What crews alone have is there once for each.
/// Blocks of a cluster have what they make together, and what they make next.
void GpuChunkKernel::takeTurns(scf::ForOp ahead, scf::ForOp ofRows) {
  OpBuilder::InsertionGuard guard(b);
  scf::ForOp loops[] = {ahead, ofRows};
  Value turns[2];
  isRefused |= shape.cluster > 1 && dependsOnTile(ahead);
  int64_t turnCount = shape.cluster > 1 ? 2 * shape.cluster : shape.crews + 1;
  for (auto [loop, turn] : llvm::zip(loops, turns)) {
    b.setInsertionPointToStart(loop.getBody());
    turn = arith::RemUIOp::create(b, loop.getInductionVar(),
                                  constantIndex(turnCount));
  }
  for (BlockArgument memory : function.getWorkgroupAttributions()) {
    auto isIn = [&](OpOperand &use, scf::ForOp loop) {
      return loop->isProperAncestor(use.getOwner());
    };
    auto isUsedIn = [&](scf::ForOp loop) {
      return llvm::any_of(memory.getUses(),
                          [&](OpOperand &use) { return isIn(use, loop); });
    };
    bool isShared = llvm::all_of(loops, isUsedIn);
    bool isInTurn = shape.crews * shape.cluster > 1 && isUsedIn(ahead);
    if (!isShared && !isInTurn)
      continue;
    // What passes from step to step as well has one place.
    isRefused |= llvm::any_of(memory.getUses(), [&](OpOperand &use) {
      return !isIn(use, ahead) && !isIn(use, ofRows);
    });
    if (!isShared && shape.crews == 1)
      continue;
    auto type = cast<MemRefType>(memory.getType());
    int64_t rows = type.getDimSize(0), rank = type.getRank();
    SmallVector<int64_t> dims(type.getShape());
    dims.front() *= isShared ? turnCount : shape.crews;
    memory.setType(MemRefType::get(dims, type.getElementType(),
                                   type.getLayout(), type.getMemorySpace()));
    for (auto [loop, turn] : llvm::zip(loops, turns)) {
      if (!isUsedIn(loop))
        continue;
      b.setInsertionPointAfterValue(turn);
      SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), sizes,
          strides(rank, b.getIndexAttr(1));
      offsets.front() = times(isShared ? turn : crew, rows);
      for (int64_t size : type.getShape())
        sizes.push_back(b.getIndexAttr(size));
      Value mine =
          memref::SubViewOp::create(b, memory, offsets, sizes, strides);
      memory.replaceUsesWithIf(mine, [&, loop = loop](OpOperand &use) {
        return isIn(use, loop) && use.getOwner() != mine.getDefiningOp();
      });
      if (shape.cluster > 1 && loop == ahead)
        storeForOthers(memory, mine, ahead);
    }
  }
}
