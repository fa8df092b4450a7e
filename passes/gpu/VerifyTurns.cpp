//===- VerifyTurns.cpp - heads that a block verifies in turn --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Heads that share their keys and queries share most of what is computed before
// a state is read: where the row stands, its tree, the tokens, their products
// with each other and with entries. A block takes several of them, one after
// the other. Numbers of drafts are computed once for all of its heads, a thread
// a draft and a head. What remains for a turn is what a head weighs, its values
// and its rows.
//
// A turn reads its tile first, while its values are on their way; then the tile
// is free for that of the next head, which arrives while this one is computed.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/VerifyKernel.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle;

/// Heads of a block: of fewer, what they share is not worth the room for what
/// was read; with more, blocks end at more different times.
static constexpr int64_t kTurns = 4;
static constexpr int64_t kWarp = 32;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// How many heads a block takes
//===----------------------------------------------------------------------===//

/// Heads that share all tokens that are multiplied.
int64_t GpuVerifyKernel::headsOfGroup() {
  int64_t group = heads;
  for (auto &[stack, sum] : terms)
    for (const ChunkTerm &term : sum)
      group = std::min(group, heads / typeOf(term.base).getDimSize(0));
  for (BlockArgument argument : step.getBody().getArguments()) {
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (FieldAttr field : buffer ? buffer.getFields() : ArrayRef<FieldAttr>())
      if (field.getSide() == Side::Key)
        group = std::min(group, heads / field.getShape().front());
  }
  return group;
}

LogicalResult GpuVerifyKernel::chooseTurns(int64_t rows) {
  turns = 1;
  int64_t pools = 0;
  for (BlockArgument argument : step.getBody().getArguments()) {
    pools += isa<PoolType>(argument.getType());
    if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Carry)
      return success();
  }
  // A tile is read as one state, and then is the next head's.
  for (StepOp form : forms()) {
    llvm::SmallDenseSet<Value, 2> states;
    form.walk([&](ReadOp read) { states.insert(read.getState()); });
    if (states.size() > 1)
      return success();
  }
  constexpr int64_t smallTile = 20 << 10;
  int64_t bytes = rows * keySize * stateBits / 8;
  if (terms.empty() || pools != 1 || schedule.heads == 1 || bytes % 16 != 0)
    return success();
  int64_t group = headsOfGroup(), wanted = schedule.heads;
  if (!wanted) {
    // Earlier GPUs do not copy while they compute.
    if (schedule.shared)
      return success();
    // Of rows without a state, what heads have in common is most of the work.
    wanted = isStateless() ? std::min(group, kTurns) : kTurns;
    // What heads share is computed while a large tile is on its way, and a tile
    // that is folded has to leave before the next head's can come.
    if (!isStateless() && bytes > smallTile)
      return success();
    if (group % wanted != 0 || !hasManyBlocks(wanted * rows))
      return success();
  }
  while (2 * turns <= wanted && group % (2 * turns) == 0)
    turns *= 2;
  return success();
}

/// Whether what so many heads have is not the same in all turns.
bool GpuVerifyKernel::isOfTurn(int64_t count) const {
  return turns > 1 && heads / count % turns != 0;
}

bool GpuVerifyKernel::isOfTurn(Value value) const {
  return isOfTurn(typeOf(value).getDimSize(0));
}

bool GpuVerifyKernel::isStagedNow(FieldAttr field) const {
  if (holdsValues && field.getSide() == Side::Value)
    return false;
  if (stagesAllTurns)
    return !turn;
  return turns == 1 || isOfTurn(field.getShape().front()) == bool(turn);
}

int64_t GpuVerifyKernel::headsToStage(FieldAttr field) const {
  return stagesAllTurns && isOfTurn(field.getShape().front()) ? turns : 1;
}

/// Whether there is room for the entries of all heads of a block, which then
/// wait for memory once. Beside a tile there is none.
bool GpuVerifyKernel::mayStageAllTurns() {
  constexpr int64_t mostBytes = 16 << 10, ofCopy = 16;
  if (!isStateless() || turns == 1 || tiles > 1 || !copiesInBulk ||
      turns > schedule.threads / kWarp)
    return false;
  int64_t bytes = 0;
  for (BlockArgument argument : step.getBody().getArguments()) {
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (FieldAttr field :
         buffer ? buffer.getFields() : ArrayRef<FieldAttr>()) {
      if (!isStaged(argument.getArgNumber(), field) ||
          !isOfTurn(field.getShape().front()))
        continue;
      int64_t ofRow = field.getShape().back() *
                      field.getElementType().getIntOrFloatBitWidth() / 8;
      if (ofRow % ofCopy != 0)
        return false;
      bytes += turns * mostEntries() * componentCount(field) * ofRow;
    }
  }
  return bytes <= mostBytes;
}

/// Whether the values of drafts at hand are computed now.
bool GpuVerifyKernel::isNow(Value value) const {
  return phase == Phase::All || isOfTurn(value) == (phase == Phase::OfTurn);
}

//===----------------------------------------------------------------------===//
// The tile
//===----------------------------------------------------------------------===//

/// `rows` rows of shared memory from row `first` on.
Value GpuVerifyKernel::rowsFrom(Value memory, Value first, int64_t rows) {
  auto type = cast<MemRefType>(memory.getType());
  SmallVector<OpFoldResult> offsets{first, b.getIndexAttr(0)};
  SmallVector<OpFoldResult> sizes{b.getIndexAttr(rows),
                                  b.getIndexAttr(type.getDimSize(1))};
  SmallVector<OpFoldResult> strides(2, b.getIndexAttr(1));
  return memref::SubViewOp::create(b, memory, offsets, sizes, strides);
}

void GpuVerifyKernel::copyTileOfTurn(Value which, bool isWritten) {
  unsigned argument = cast<BlockArgument>(poolOfTurns).getArgNumber();
  Value zero = constantIndex(0);
  auto copy = memref::DmaStartOp::create(
      b, memory[argument],
      ValueRange{readState, arith::AddIOp::create(b, firstHead, which),
                 tileStart, zero},
      stagedStates[argument], ValueRange{zero, zero},
      constantIndex(schedule.tileRows * keySize), copies, ValueRange{which});
  if (isWritten)
    copy->setAttr(kKeptAttr, b.getUnitAttr());
}

void GpuVerifyKernel::stageStates() {
  if (turns == 1)
    return GpuKernel::stageStates();
  firstHead = head;
  // Nobody would wait for the copy of a state that no form reads.
  if (llvm::none_of(forms(), [](StepOp form) {
        return form.walk([](LoadStateOp) { return WalkResult::interrupt(); })
            .wasInterrupted();
      }))
    return;
  for (BlockArgument argument : step.getBody().getArguments())
    if (auto pool = dyn_cast<PoolType>(argument.getType())) {
      poolOfTurns = argument;
      stagedStates[argument.getArgNumber()] = shared(
          {schedule.tileRows, keySize},
          (step.getArgumentName(argument.getArgNumber()) + "_tile").str(),
          pool.getElementType());
    }
  // Whether a row folds is not known yet; of those that do not, a tile that is
  // kept takes as long.
  copyTileOfTurn(constantIndex(0), /*isWritten=*/fold != nullptr);
}

void GpuVerifyKernel::waitForStates() {
  if (turns == 1)
    return GpuKernel::waitForStates();
  memref::DmaWaitOp::create(b, copies, ValueRange{turn}, constantIndex(0));
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// What all heads of the block have in common, and their numbers.
LogicalResult GpuVerifyKernel::emitCommon(ArrayRef<Operation *> ops) {
  phase = Phase::Common;
  llvm::scope_exit restore([&] { phase = Phase::All; });
  for (Operation *op : ops) {
    bool isOfHead = llvm::any_of(op->getOperands(), [&](Value operand) {
      return isa<RankedTensorType>(operand.getType()) && isOfTurn(operand) &&
             !ofAllTurns.contains(canonical(operand));
    });
    auto region = dyn_cast<EachDraftOp>(op);
    if (!(region && region.getStacks().empty()) && failed(emitLateNumbers()))
      return failure();
    if (region) {
      commonDrafts.insert(region);
      if (failed(emitDrafts(region)))
        return failure();
    } else if (isa<PathGramOp>(op) || !isOfHead) {
      if (failed(emitTeamOp(op)))
        return failure();
    }
  }
  if (failed(emitLateNumbers()))
    return failure();
  if (stagesAllTurns)
    for (auto read : step.getBody().front().getOps<ReadBufferOp>())
      if (!decayedKey(read.getBuffer(), read.getKey(), read.getDecay()))
        (void)entryWeightsOf(read);
  storeLateEntries();
  commonEntries = std::exchange(lateEntries, {});
  waitForEntries();
  if (std::exchange(gathers, false))
    written.clear();
  sync();
  // Rows that fold read no entries, but multiply them.
  guarded(doesNotFold(), [&] {
    for (auto read : step.getBody().front().getOps<ReadBufferOp>())
      emitEntryDots(read);
  });
  return success();
}

/// Null for always.
Value GpuVerifyKernel::doesNotFold() {
  if (!folds)
    return {};
  return arith::XOrIOp::create(
      b, folds, arith::ConstantOp::create(b, b.getBoolAttr(true)));
}

/// Of the entries of all turns, those of this one.
void GpuVerifyKernel::takeEntriesOfTurn() {
  for (BlockArgument argument : step.getBody().getArguments()) {
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (FieldAttr field :
         buffer ? buffer.getFields() : ArrayRef<FieldAttr>()) {
      auto found =
          stagedFields.find({argument.getArgNumber(), field.getName().str()});
      if (found == stagedFields.end() || headsToStage(field) == 1)
        continue;
      int64_t rows = mostEntries() * componentCount(field);
      found->second =
          rowsFrom(found->second,
                   arith::MulIOp::create(b, turn, constantIndex(rows)), rows);
    }
  }
  for (auto &[use, weights] : entryWeights)
    if (weights) {
      int64_t count = cast<MemRefType>(weights.getType()).getDimSize(0) / turns;
      Value first = arith::MulIOp::create(b, turn, constantIndex(count));
      weights = memref::SubViewOp::create(b, weights, OpFoldResult(first),
                                          OpFoldResult(b.getIndexAttr(count)),
                                          OpFoldResult(b.getIndexAttr(1)));
    }
}

/// Whatever is emitted from here on is of the head of a turn.
void GpuVerifyKernel::beginTurn(Value which) {
  turn = which;
  head = arith::AddIOp::create(b, firstHead, turn);
  headScope = ++scopes;
  pastAnchors.append({endOfSlotLoads, endOfTokenLoads, endOfEntryNumbers});
  pastAnchors.push_back(startOfTokens);
  Value first = arith::MulIOp::create(b, turn, constantIndex(most()));
  for (Value value : ofAllTurns)
    stacks[value].memory = rowsFrom(stacks[value].memory, first, most());
  if (stagesAllTurns)
    takeEntriesOfTurn();
  endOfSlotLoads = anchor();
  endOfTokenLoads = anchor();
  phase = Phase::OfTurn;
  stageEntries();
  emitEarlyReads();
  endOfEntryNumbers = anchor();
  startOfTokens = anchor();
}

/// The tile is read, and free for that of the next head.
void GpuVerifyKernel::releaseTile(bool isStored) {
  if (!poolOfTurns)
    return;
  gpu::BarrierOp::create(b)->setAttr(kReleasesAttr, b.getUnitAttr());
  if (isStored)
    NVVM::CpAsyncBulkWaitGroupOp::create(b, b.getI32IntegerAttr(0),
                                         /*read=*/b.getUnitAttr());
  Value next = add(turn, 1);
  // A row that has stored one tile stores the others, too.
  guarded(isBelow(next, turns),
          [&] { copyTileOfTurn(next, isStored && !earlyReads.empty()); });
}

/// Releases the tile that a row has stored and read, if nobody reads it again
/// and rows that do not fold have released theirs. False if that is later.
bool GpuVerifyKernel::releaseStoredTile(ReadOp last, Value tile) {
  if (turns == 1 || earlyReads.empty() || !folds ||
      !llvm::is_contained(llvm::make_second_range(storedTiles), tile) ||
      llvm::any_of(last->getBlock()->getOps<ReadOp>(), [&](ReadOp other) {
        return other.getState() != last.getState();
      }))
    return false;
  releaseTile(/*isStored=*/true);
  written.clear();
  return isStoredReleased = true;
}

void GpuVerifyKernel::endTurn() {
  // Rows that do not fold have released it long ago.
  if (earlyReads.empty())
    releaseTile(/*isStored=*/folds != nullptr);
  else if (folds && !isStoredReleased)
    guarded(folds, [&] { releaseTile(/*isStored=*/true); });
  barrier();
}
