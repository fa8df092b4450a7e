//===- ChunkKernel.cpp - a prefill step as a GPU kernel -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/ChunkKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static InFlightDiagnostic refuse(Operation *op) {
  return op->emitError("cannot be lowered for GPUs: ");
}

//===----------------------------------------------------------------------===//
// What can be lowered
//===----------------------------------------------------------------------===//

/// That an operation for all tokens takes stacks that others have made.
static LogicalResult checkStacks(Operation &op) {
  for (Value operand : op.getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()))
      continue;
    auto each = dyn_cast<EachDraftOp>(op);
    if (each && isa<BlockArgument>(operand)) {
      if (!llvm::is_contained(each.getCarries(), operand))
        return refuse(&op) << "nothing makes this stack before it is used";
      continue;
    }
    Operation *def = operand.getDefiningOp();
    if (!isa_and_present<EachDraftOp, PathDecayOp, PathGramOp, PathSolveOp,
                         PathProductOp, ReadOp>(def))
      return refuse(&op) << "nothing makes this stack before it is used";
    auto region = dyn_cast<EachDraftOp>(def);
    if (region && llvm::is_contained(region.getNextCarries(), operand))
      return refuse(&op) << "what a token leaves behind is for the next alone";
  }
  return success();
}

/// Whether a state is decayed by all entries, which follow as they are folded.
static bool isDecayOfEntries(Operation *op) {
  auto decay = dyn_cast_if_present<DecayOp>(op);
  return decay && decay.getFactor().getDefiningOp<DecayProductOp>() &&
         llvm::all_of(decay->getUsers(), [&](Operation *user) {
           auto fold = dyn_cast<FoldBufferOp>(user);
           auto product = decay.getFactor().getDefiningOp<DecayProductOp>();
           return fold && fold.getBuffer() == product.getBuffer() &&
                  fold.getDecay() == product.getDecay();
         });
}

/// What a state is rebuilt of: of a pool, or of nothing. Null for neither.
static Operation *rootOf(Value state) {
  Operation *op = state.getDefiningOp();
  while (isa_and_present<FoldBufferOp, ReplayOp>(op) || isDecayOfEntries(op))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_present<LoadStateOp, ZeroStateOp>(op) ? op : nullptr;
}

static LogicalResult checkOp(Operation &op) {
  if (auto region = dyn_cast<EachDraftOp>(op)) {
    for (Operation &each : region.getBody().front().without_terminator())
      if (each.getNumResults() != 1 ||
          !isa<RankedTensorType>(each.getResult(0).getType()))
        return refuse(&each)
               << "'" << each.getName() << "' has no token value as its result";
    for (Value carry : region.getCarries())
      if (!isa<BlockArgument>(carry))
        return refuse(&op) << "a carry is none of the step";
    return checkStacks(op);
  }
  if (isa<LoadStateOp, ZeroStateOp, FoldBufferOp, ReplayOp, DecayProductOp,
          YieldOp, arith::ConstantOp>(op) ||
      isDecayOfEntries(&op))
    return success();
  if (auto append = dyn_cast<AppendDraftsOp>(op)) {
    for (Value value : append.getValues())
      if (!value.getDefiningOp<EachDraftOp>())
        return refuse(&op) << "appends what is no value of each token";
    return success();
  }
  if (auto read = dyn_cast<ReadOp>(op); read && !rootOf(read.getState()))
    return refuse(&op) << "a chunk reads states as they were before it";
  if (auto fold = dyn_cast<FoldDraftsOp>(op); fold && !rootOf(fold.getState()))
    return refuse(&op) << "folds a state that does not come from a pool";
  if (auto store = dyn_cast<StoreStateOp>(op)) {
    auto fold = store.getState().getDefiningOp<FoldDraftsOp>();
    Operation *root = fold ? rootOf(fold.getState()) : nullptr;
    auto load = dyn_cast_if_present<LoadStateOp>(root);
    if (!root || (load && load.getPool() != store.getPool()))
      return refuse(&op) << "stores a state that is not that of its pool with "
                            "a chunk folded";
    return success();
  }
  if (!isa<PathDecayOp, PathGramOp, PathSolveOp, PathProductOp, ReadOp,
           FoldDraftsOp>(op))
    return refuse(&op) << "'" << op.getName()
                       << "' is not for all tokens of a chunk";
  OperandRange all = op.getOperands();
  if (auto solve = dyn_cast<PathSolveOp>(op))
    all = solve.getGrams();
  else if (auto product = dyn_cast<PathProductOp>(op))
    all = product.getGrams();
  else
    return checkStacks(op);
  for (Value gram : all)
    if (!gram.getDefiningOp<PathGramOp>())
      return refuse(&op) << "its Gram products are not those of tokens";
  return checkStacks(op);
}

/// That a state which is rebuilt is that of the chunks that are folded.
static LogicalResult checkRebuilt(Operation &op, Value state) {
  if (state.getDefiningOp<LoadStateOp>())
    return success();
  bool isStored =
      llvm::any_of(op.getBlock()->getOps<StoreStateOp>(), [&](StoreStateOp to) {
        auto fold = to.getState().getDefiningOp<FoldDraftsOp>();
        return fold && fold.getState() == state;
      });
  if (!isStored)
    return refuse(&op) << "takes a state that no chunk is folded into";
  auto last = state.getDefiningOp<FoldBufferOp>();
  for (auto each = last; each;
       each = each.getState().getDefiningOp<FoldBufferOp>())
    if (each.getBuffer() != last.getBuffer() ||
        each.getDecay() != last.getDecay())
      return refuse(each) << "entries of a state decay together";
  return success();
}

LogicalResult GpuChunkKernel::check() {
  if (failed(checkStates(step)))
    return failure();
  for (BlockArgument argument : step.getArgumentsOfKind(ArgumentKind::State))
    if (cast<PoolType>(argument.getType()).getValueSize() == 1) {
      InFlightDiagnostic error = refuse(step)
                                 << "values of prompts are of one element";
      error.attachNote() << "decode the prompt token by token, or on the CPU";
      return error;
    }
  for (Operation &op : step.getBody().front()) {
    if (failed(checkOp(op)))
      return failure();
    auto read = dyn_cast<ReadOp>(op);
    auto fold = dyn_cast<FoldDraftsOp>(op);
    if ((read && failed(checkRebuilt(op, read.getState()))) ||
        (fold && failed(checkRebuilt(op, fold.getState()))))
      return failure();
  }
  for (Value value : step.getYieldedOutputs())
    if (!value.getDefiningOp<EachDraftOp>())
      return refuse(step) << "an output is none of ladle.each_draft";
  for (Value carry : step.getYieldedCarries())
    if (!carry.getDefiningOp<EachDraftOp>())
      return refuse(step)
             << "a carry is none that ladle.each_draft leaves behind";
  // What is asked of tokens may come from rows by a detour.
  findRowValues(step);
  for (Operation &op : step.getBody().front()) {
    SmallVector<Value> alongKeys;
    if (auto fold = dyn_cast<FoldDraftsOp>(op)) {
      llvm::append_range(alongKeys, fold.getKeys());
      if (fold.getDecays())
        alongKeys.push_back(fold.getDecays());
    } else if (isa<PathDecayOp, PathGramOp, ReadOp>(op)) {
      llvm::append_range(alongKeys, op.getOperands());
    }
    if (llvm::any_of(alongKeys,
                     [&](Value value) { return dependsOnRows(value); }))
      return refuse(&op) << "what is read of a state is needed along dk";
  }
  rowValues.clear();
  ownsAllRows = false;
  return success();
}

/// Finds values along dv that are summed, so that a block has to hold all rows.
void GpuChunkKernel::findRowValues(StepOp of) {
  auto depends = [&](Value value) { return rowValues.contains(value); };
  for (Operation &op : of.getBody().front()) {
    if (auto region = dyn_cast<EachDraftOp>(op)) {
      Block &body = region.getBody().front();
      for (auto [stack, argument] :
           llvm::zip(region.getStacks(), body.getArguments()))
        if (depends(stack))
          rowValues.insert(argument);
      for (Operation &each : body.without_terminator()) {
        findRowValuesOf(&each);
        if (isa<SumOp>(each) && depends(each.getOperand(0)))
          rowValues.insert(each.getResult(0));
      }
      for (auto [result, value] :
           llvm::zip(region.getResults(), region.getYield().getValues()))
        if (depends(value))
          rowValues.insert(result);
    } else if (isa<PathSolveOp, PathProductOp>(op)) {
      if (llvm::any_of(op.getOperands(), depends))
        rowValues.insert(op.result_begin(), op.result_end());
    } else if (isa<ReadOp>(op)) {
      rowValues.insert(op.getResult(0));
    }
  }
}

//===----------------------------------------------------------------------===//
// Geometry
//===----------------------------------------------------------------------===//

void GpuChunkKernel::chooseSizes() {
  GpuKernel::chooseSizes();
  // Next carries go to memory of their own, so that the heads of a carry and
  // the tiles of a head need not wait for each other.
  headGroup = 1;
  ownsAllRows = false;
  rowValues.clear();
  findRowValues(step);
  step.walk([&](Operation *op) {
    auto gram = dyn_cast<PathGramOp>(op);
    hasBlocks |=
        isa<PathSolveOp>(op) ||
        (gram && gram.getDecays() && gram.getDecays().getType().getRank() > 2);
  });
  // All values are with teams.
  rowValues.clear();
}

void GpuChunkKernel::chooseLanes() {
  width = 1;
  lanes = 1;
  if (holdsRows && keySize % 32 == 0) {
    // Sums of vectors are butterflies of few lanes, if no thread is without.
    lanes = 8;
    width = 4;
    while (2 * lanes * shape.tokens <= shape.threadsOfCrew() &&
           keySize % (2 * lanes * width) == 0)
      lanes *= 2;
  } else if (keySize % 32 == 0) {
    lanes = 32;
    while (width < 4 && keySize % (width * 2 * lanes) == 0)
      width *= 2;
  } else {
    while (width < 4 && keySize % (width * 2) == 0)
      width *= 2;
    while (lanes < 32 && keySize % (width * lanes * 2) == 0)
      lanes *= 2;
  }
  chunks = keySize / (width * lanes);
  rowsPerThread = 1;
  copiesInBulk = stagesEntries = false;
}

FailureOr<gpu::GPUFuncOp> GpuChunkKernel::buildPrefill() {
  chooseSizes();
  chunk = cast<DraftsType>(step.getDrafts().getType()).getMost();
  schedule.tileRows = shape.rows;
  tiles = valueSize / shape.rows;
  constexpr int64_t fewElements = 2048, manyThreads = 256, fewThreads = 64;
  int64_t ofRows = shape.threadsOfBlock();
  holdsRows =
      (!schedule.threads || schedule.threads == ofRows) && mayHoldRows(shape);
  if (holdsRows)
    schedule.threads = ofRows;
  else if (!schedule.threads)
    schedule.threads =
        keySize * shape.rows >= fewElements ? manyThreads : fewThreads;
  chooseLanes();
  findDemands();
  findParts();
  createFunction();
  for (BlockArgument carry : step.getArgumentsOfKind(ArgumentKind::Carry)) {
    // After all others, what the prompt leaves behind.
    std::string name =
        ("next_" + step.getArgumentName(carry.getArgNumber())).str();
    (void)function.insertArgument(
        function.getNumArguments(), memoryTypesOf(step, carry).front(),
        b.getDictionaryAttr(b.getNamedAttr(kNameAttr, b.getStringAttr(name))),
        b.getLoc());
    nextCarries.push_back(function.getArguments().back());
  }
  emitTask();
  LogicalResult result = success();
  Value padded = emitSlots();
  emitActive(padded, /*storesZeros=*/true, [&] { return emitRow(); }, result);
  if (endOfTokenLoads)
    endOfTokenLoads->erase();
  for (Operation *each : anchors)
    each->erase();
  if (failed(result)) {
    function.erase();
    return failure();
  }
  for (auto [argument, bytes] : alignments)
    function.setArgAttr(argument, kAlignmentAttr, b.getIndexAttr(bytes));
  function->setAttr(kBlocksAttr, b.getIndexAttr(blocksOfShape()));
  if (int64_t bytes = bytesToSpill())
    function->setAttr(kSpillsAttr, b.getIndexAttr(bytes));
  if (holdsRows)
    function->setAttr(kOneArrayAttr, b.getUnitAttr());
  if (shape.cluster > 1)
    function->setAttr(kClusterAttr, b.getIndexAttr(shape.cluster));
  b.setLoc(unnamed(step.getLoc()));
  b.setInsertionPointToEnd(&function.getBody().front());
  gpu::ReturnOp::create(b);
  if (shape.prepared)
    takeApart();
  return function;
}

//===----------------------------------------------------------------------===//
// Arguments and the task of a block
//===----------------------------------------------------------------------===//

void GpuChunkKernel::addArguments(SmallVectorImpl<Type> &types,
                                  SmallVectorImpl<std::string> &names) {
  GpuKernel::addArguments(types, names);
  types.push_back(MemRefType::get({ShapedType::kDynamic}, b.getI32Type()));
  names.push_back("cu_seqlens");
  if (foldsByChunk) {
    types.push_back(b.getI32Type());
    names.push_back("part");
  }
  if (shape.prepared)
    GpuPreparedSteps::addArguments(b, types, names);
}

void GpuChunkKernel::takeArguments(unsigned &next) {
  GpuKernel::takeArguments(next);
  cuSeqlens = function.getBody().front().getArgument(next++);
  if (foldsByChunk)
    part = function.getBody().front().getArgument(next++);
  if (shape.prepared)
    for (Value *each : {&prepared.memory, &prepared.ready, &prepared.firstRun,
                        &prepared.rowCount, &prepared.headCount})
      *each = function.getBody().front().getArgument(next++);
}

void GpuChunkKernel::emitRowStart() {
  team = group;
  firstToken = loadNumber(cuSeqlens, {row}, "first_token");
  Value end = loadNumber(cuSeqlens, {add(row, 1)}, "end_of_tokens");
  tokenCount = arith::SubIOp::create(b, end, firstToken);
  if (decaysChannels())
    anyCount = tokenCount;
}

void GpuChunkKernel::emitPaddedRow() {
  auto loop =
      scf::ForOp::create(b, constantIndex(0), tokenCount, constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  zeroOutputs(arith::AddIOp::create(b, firstToken, loop.getInductionVar()));
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

/// What is between the elements of stacks and the ends of tiles is zero from
/// the beginning and stays so.
void GpuChunkKernel::clearShared() {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(endOfClearing);
  clearMemories(function, schedule.threads, [](Value) { return true; });
}

void GpuChunkKernel::clearMemories(gpu::GPUFuncOp of, int64_t threads,
                                   function_ref<bool(Value)> isCleared) {
  for (Value memory : of.getWorkgroupAttributions()) {
    auto type = cast<MemRefType>(memory.getType());
    // Places of entries are no numbers of a stack.
    if (type.getRank() < 2 || memory.use_empty() || !isCleared(memory))
      continue;
    Value zero = convertTo(constantFloat(0), type.getElementType());
    auto loop =
        scf::ForOp::create(b, thread, constantIndex(type.getNumElements()),
                           constantIndex(threads));
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    int64_t columns = type.getDimSize(1);
    memref::StoreOp::create(
        b, zero, memory,
        ValueRange{over(loop.getInductionVar(), columns),
                   arith::RemUIOp::create(b, loop.getInductionVar(),
                                          constantIndex(columns))});
  }
  barrier();
}

LogicalResult GpuChunkKernel::emitRow() {
  if (slots.keepStates() || (drafts && !nextCarries.empty()))
    takeVersions();
  anchors.push_back(endOfClearing = anchor());
  anchors.push_back(anchor());
  endOfSlotLoads = anchors.back();
  loadRow();
  for (EachDraftOp op : step.getBody().front().getOps<EachDraftOp>())
    makeVersions(op);
  loadCarries();
  if (shape.ahead) {
    syncAll();
    return emitParts();
  }
  for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
    if (holdsRows)
      loadStateRows(pool);
    else
      beginState(pool);
  syncAll();
  findDividedStacks();
  if (failed(emitRounds([&] { return emitChunk(); })))
    return failure();
  b.setLoc(unnamed(step.getLoc()));
  if (!foldsByChunk)
    storeStates();
  storeCarries();
  clearShared();
  return success();
}

/// Parts of a chunk, and then those of what is less than one.
Value GpuChunkKernel::countRounds() {
  int64_t parts = llvm::divideCeil(chunk, tokensAtOnce());
  if (chunk % tokensAtOnce() == 0)
    return over(add(tokenCount, tokensAtOnce() - 1), tokensAtOnce());
  return arith::AddIOp::create(
      b, times(over(tokenCount, chunk), parts),
      over(add(arith::RemUIOp::create(b, tokenCount, constantIndex(chunk)),
               tokensAtOnce() - 1),
           tokensAtOnce()));
}

/// Which tokens are those of a round.
void GpuChunkKernel::beginRound(Value round) {
  int64_t parts = llvm::divideCeil(chunk, tokensAtOnce());
  Value most = constantIndex(tokensAtOnce());
  if (chunk % tokensAtOnce() == 0) {
    firstInChunk = times(round, tokensAtOnce());
  } else {
    Value part = arith::RemUIOp::create(b, round, constantIndex(parts));
    Value inside = times(part, tokensAtOnce());
    firstInChunk =
        arith::AddIOp::create(b, times(over(round, parts), chunk), inside);
    most = arith::MinSIOp::create(
        b, most, arith::SubIOp::create(b, constantIndex(chunk), inside));
  }
  inChunk = arith::MinSIOp::create(
      b, most, arith::SubIOp::create(b, tokenCount, firstInChunk));
  anchors.push_back(startOfChunk = anchor());
}

/// Goes through the prompt, with the rows of states that warps hold.
FailureOr<scf::ForOp>
GpuChunkKernel::emitRounds(function_ref<LogicalResult()> body, Value first,
                           int64_t stride) {
  rounds = countRounds();
  SmallVector<Value> held;
  for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
    llvm::append_range(held, heldRows[pool.getArgNumber()]);
  auto loop = scf::ForOp::create(b, first ? first : constantIndex(0),
                                 endOfRounds(), constantIndex(stride), held);
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  auto takeRows = [&](ValueRange all) {
    for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
      for (Value &rows : heldRows[pool.getArgNumber()]) {
        rows = all.front();
        all = all.drop_front();
      }
  };
  takeRows(loop.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    round = loop.getInductionVar();
    beginRound(round);
    if (failed(body()))
      return failure();
    if (!held.empty()) {
      held.clear();
      for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
        llvm::append_range(held, heldRows[pool.getArgNumber()]);
      scf::YieldOp::create(b, held);
    }
  }
  takeRows(loop.getResults());
  return loop;
}

/// Reads, and Gram products, whose vectors are there.
void GpuChunkKernel::beginReads() {
  beginOp();
  for (auto gram : step.getBody().front().getOps<PathGramOp>()) {
    bool isBegun = llvm::any_of(begunGrams, [&](const BegunGrams &each) {
      return llvm::is_contained(each.ops, gram);
    });
    bool isVector =
        gram.getDecays() &&
        cast<RankedTensorType>(gram.getDecays().getType()).getRank() > 2;
    if (!isBegun && !isVector && hasStack(gram.getQueries()) &&
        hasStack(gram.getKeys()) && !find(gram.getResult(), false))
      beginGrams(gramsBeside(gram));
  }
  if (blockPart == Part::Ahead)
    return;
  for (auto read : step.getBody().front().getOps<ReadOp>())
    if (hasStack(read.getQuery()))
      emitRowRead(read);
}

LogicalResult GpuChunkKernel::emitChunk() {
  bool areRowsStaged = !holdsRows;
  SmallVector<std::function<void()>> rowStores;
  if (holdsRows)
    prefetchTokens();
  for (Operation &op : step.getBody().front().without_terminator()) {
    b.setLoc(unnamed(op.getLoc()));
    beginOp();
    // Tokens of a region are loaded before the last product ahead of it.
    if (isa<PathProductOp>(op) ||
        (isa<ReadOp>(op) && !find(op.getResult(0), tiles > 1))) {
      Operation *next = op.getNextNode();
      while (next && !isa<EachDraftOp>(next))
        next = next->getNextNode();
      if (next) {
        anchors.push_back(anchor());
        earlyLoads[next] = anchors.back();
      }
    }
    bool isLater = blockPart == Part::Ahead && isRowOp(&op);
    if (!isBesideGrams(&op) && failed(isLater ? emitAheadOf(&op) : emitOp(&op)))
      return failure();
    if (auto gram = dyn_cast<PathGramOp>(op);
        gram && blockPart == Part::Ahead) {
      beginOp();
      for (FoldDraftsOp fold : foldsBeside(gram))
        (void)emitAheadOf(fold);
    }
    // What is along dv is on its way while the operation after the reads is.
    if (!rowStores.empty()) {
      beginOp();
      for (auto &store : std::exchange(rowStores, {}))
        store();
    }
    // Warps read their rows while few threads compute numbers of tokens.
    if (holdsRows && isa<EachDraftOp>(op)) {
      beginReads();
      if (!std::exchange(areRowsStaged, true) && !shape.prepared)
        rowStores = stageRows();
    }
    releaseAfter(&op);
  }
  b.setLoc(unnamed(step.getLoc()));
  if (blockPart == Part::Ahead) {
    // Then all meet, for whom nothing is written and nothing read any more.
    if (!versions.empty())
      syncAll();
    keepCarries();
    if (shape.cluster == 1)
      meetAll(crew);
    return success();
  }
  // The next chunk begins with nothing written and nothing read.
  syncAll();
  keepCarries();
  if (foldsByChunk)
    storeFolded();
  syncAll();
  return success();
}

LogicalResult GpuChunkKernel::emitOp(Operation *op) {
  if (holdsRows && isRowOp(op))
    return emitRowOp(op);
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](EachDraftOp each) { return emitDrafts(each); })
      .Case([&](PathDecayOp each) {
        emitPathDecay(each);
        return success();
      })
      .Case([&](PathGramOp each) { return emitPathGram(each); })
      .Case([&](PathSolveOp each) { return emitPathSolve(each); })
      .Case([&](PathProductOp each) { return emitPathProduct(each); })
      .Case([&](ReadOp each) {
        emitRead(each);
        return success();
      })
      .Case([&](FoldDraftsOp each) {
        emitFold(each);
        return success();
      })
      .Default([](Operation *) { return success(); });
}
