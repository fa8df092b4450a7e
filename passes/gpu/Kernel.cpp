//===- Kernel.cpp - arguments, task and forms of a GPU kernel -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Conditional.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;

SmallVector<StepOp, 2> GpuKernel::forms() {
  return fold ? SmallVector<StepOp, 2>{step, fold}
              : SmallVector<StepOp, 2>{step};
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

void GpuKernel::createFunction() {
  Type i32 = b.getI32Type();
  auto flat = MemRefType::get({ShapedType::kDynamic}, i32);
  SmallVector<Type> types{
      flat, flat, MemRefType::get({ShapedType::kDynamic, 2}, i32),
      MemRefType::get({slots.arePaged() ? 2 : 1}, i32), i32};
  SmallVector<std::string> names{"read_slots", "write_slots", "cursors",
                                 "fold_threshold", "pad_slot"};
  addArguments(types, names);
  firstStepArgument = types.size();
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Drafts)
      continue;
    SmallVector<MemRefType> memories = memoryTypesOf(step, argument);
    std::string name = step.getArgumentName(argument.getArgNumber()).str();
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (auto [i, type] : llvm::enumerate(memories)) {
      types.push_back(type);
      names.push_back(
          buffer ? name + "_" + buffer.getFields()[i].getName().str() : name);
    }
  }
  for (auto [name, type] :
       llvm::zip(step.getOutputNames().getAsValueRange<StringAttr>(),
                 step.getOutputTypes().getAsValueRange<TypeAttr>())) {
    types.push_back(memoryTypeOfOutput(cast<RankedTensorType>(type)));
    names.push_back(name.str());
  }

  function = gpu::GPUFuncOp::create(b, step.getSymName(),
                                    b.getFunctionType(types, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(schedule.threads), 1, 1}));
  function->setAttr(kGridBlocksAttr,
                    b.getIndexAttr(heads / headGroup / turns / packed * tiles));
  function->setAttr(kCommonArgumentsAttr, b.getIndexAttr(firstStepArgument));
  function->setAttr(kWideProductsAttr, b.getUnitAttr());
  if (startsEarly())
    function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  Block &entry = function.getBody().front();
  for (auto [i, name] : llvm::enumerate(names))
    function.setArgAttr(i, kNameAttr, b.getStringAttr(name));
  b.setInsertionPointToStart(&entry);

  unsigned next = 0;
  for (Value *each : {&readSlots, &writeSlots, &cursors, &threshold, &padSlot})
    *each = entry.getArgument(next++);
  takeArguments(next);
  for (BlockArgument argument : step.getBody().getArguments()) {
    Value &first = memory.emplace_back();
    if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Drafts)
      continue;
    if (auto buffer = dyn_cast<BufferType>(argument.getType()))
      for (size_t i = 0; i < buffer.getFields().size(); ++i)
        fields[argument.getArgNumber()].push_back(entry.getArgument(next++));
    else
      first = entry.getArgument(next++);
  }
  for (size_t i = 0; i < step.getOutputTypes().size(); ++i)
    outputs.push_back(entry.getArgument(next++));
  if (copiesInBulk && !isStateless()) {
    copies = shared({schedule.pieces * schedule.stages * turns}, "copies",
                    b.getI64Type());
    // Entries that can lie anywhere are copied by threads.
    if (!fields.empty() && drafts == 0)
      entryCopies = shared({1}, "entry_copies", b.getI64Type());
  }
}

void GpuKernel::addArguments(SmallVectorImpl<Type> &types,
                             SmallVectorImpl<std::string> &names) {
  Type i32 = b.getI32Type();
  auto flat = MemRefType::get({ShapedType::kDynamic}, i32);
  int64_t all = slots.entries ? slots.entries.getCapacity() : 1;
  if (drafts) {
    llvm::append_range(
        types, ArrayRef<Type>{MemRefType::get({ShapedType::kDynamic, all}, i32),
                              flat, flat});
    for (const char *name : {"entry_order", "carry_versions", "waiting"})
      names.push_back(name);
  }
  if (slots.arePaged()) {
    // The last of a slot is the spare page.
    int64_t pages = slots.entries.countPages() + 1;
    llvm::append_range(
        types,
        ArrayRef<Type>{MemRefType::get({ShapedType::kDynamic, pages}, i32),
                       flat, flat, i32});
    for (const char *name : {"page_table", "state_table", "epochs", "row_kind"})
      names.push_back(name);
  }
}

void GpuKernel::takeArguments(unsigned &next) {
  auto take = [&](ArrayRef<Value *> values) {
    for (Value *each : values)
      *each = function.getBody().front().getArgument(next++);
  };
  if (drafts)
    take({&entryOrder, &carryVersions, &waiting});
  if (slots.arePaged())
    take({&pageTable, &stateTable, &epochs, &rowKind});
}

//===----------------------------------------------------------------------===//
// The task of a block
//===----------------------------------------------------------------------===//

/// A place that later operations go before; erased in the end.
Operation *GpuKernel::anchor() {
  return arith::ConstantIndexOp::create(b, 0).getOperation();
}

/// What a block and its threads do of each row.
void GpuKernel::emitTask() {
  auto divided = [&](Value value, int64_t by, StringRef name) {
    return named(arith::DivUIOp::create(b, value, constantIndex(by)), name);
  };
  auto rest = [&](Value value, int64_t by, StringRef name) {
    return named(arith::RemUIOp::create(b, value, constantIndex(by)), name);
  };
  if (startsEarly())
    letNextStart();
  thread = named(gpu::ThreadIdOp::create(b, gpu::Dimension::x), "thread");
  row = named(gpu::BlockIdOp::create(b, gpu::Dimension::y), "row");
  Value block = named(gpu::BlockIdOp::create(b, gpu::Dimension::x),
                      tiles * turns * packed > 1 ? "block" : "head");
  head = block;
  tileStart = constantIndex(0);
  if (tiles > 1) {
    head = divided(block, tiles, "head");
    Value tile = rest(block, tiles, "tile");
    tileStart =
        named(arith::MulIOp::create(b, tile, constantIndex(schedule.tileRows)),
              "first_row");
    isFirstTile = isBelow(tile, 1);
  }
  if (turns * packed > 1)
    head = named(arith::MulIOp::create(b, head, constantIndex(turns * packed)),
                 "first_head");
  firstHead = head;

  // Which rows a thread reads, and which one it owns.
  lane = rest(thread, lanes, "lane");
  group = divided(thread, lanes, "group");
  warpLane = rest(thread, 32, "warp_lane");
  int64_t inWarp = 32 / lanes;
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(32));
  warpRow =
      arith::MulIOp::create(b, warp, constantIndex(rowsPerThread * inWarp));
  firstRow = arith::AddIOp::create(
      b, warpRow, arith::RemUIOp::create(b, group, constantIndex(inWarp)));
  Value own = rowsPerThread == lanes
                  ? lane
                  : Value(arith::RemUIOp::create(b, lane,
                                                 constantIndex(rowsPerThread)));
  own = arith::AddIOp::create(
      b, firstRow, arith::MulIOp::create(b, own, constantIndex(inWarp)));
  if (rowsPerThread < lanes)
    ownsRow = isBelow(lane, rowsPerThread);
  if (schedule.threads / lanes * rowsPerThread > schedule.tileRows)
    ownsRow = both(ownsRow, isBelow(own, schedule.tileRows));
  ownRow = named(clampedRow(own), "own_row");
  if (packed == 1)
    return;
  head =
      named(arith::AddIOp::create(b, head, divided(own, valueSize, "passed")),
            "head");
  ownRow = rest(own, valueSize, "own_row");
}

/// Loads the slots of the row, and returns whether it is padding.
Value GpuKernel::emitSlots() {
  emitRowStart();
  // Tokens need no slot. Where heads take turns, they wait for their turn.
  if (headGroup == 1 && !findsTokens())
    endOfTokenLoads = anchor();
  Value slot =
      named(memref::LoadOp::create(b, readSlots, ValueRange{row}), "read_slot");
  Value other = named(memref::LoadOp::create(b, writeSlots, ValueRange{row}),
                      "write_slot");
  // Copies are counted from here on.
  if (copies)
    barrier();
  Value negative =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, slot, constantInt(0));
  Value isPad =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, slot, padSlot);
  Value padded = named(arith::OrIOp::create(b, negative, isPad), "is_padding");
  readSlot = arith::IndexCastOp::create(b, b.getIndexType(), slot);
  writeSlot = arith::IndexCastOp::create(b, b.getIndexType(), other);
  readCarry = readState = readSlot;
  writeCarry = writeState = writeSlot;
  return padded;
}

/// Emits `body` for the rows that are no padding and for this kernel; padded
/// ones get zeros.
void GpuKernel::emitActive(Value padded, bool storesZeros,
                           function_ref<LogicalResult()> body,
                           LogicalResult &result) {
  Value active = arith::XOrIOp::create(
      b, padded, arith::ConstantOp::create(b, b.getBoolAttr(true)));
  auto branch = scf::IfOp::create(b, active, storesZeros);
  OpBuilder::InsertionGuard guard(b);
  if (storesZeros) {
    b.setInsertionPointToStart(branch.elseBlock());
    if (startsEarly())
      waitForPrevious();
    emitPaddedRow();
  }
  b.setInsertionPointToStart(branch.thenBlock());
  ownRows = branch;
  if (Value isOwn = emitBlocks()) {
    auto own = scf::IfOp::create(b, isOwn);
    b.setInsertionPointToStart(own.thenBlock());
    ownRows = own;
  }
  result = body();
}

void GpuKernel::zeroOutputs(Value tokenRow) {
  for (Value output : outputs) {
    auto type = cast<MemRefType>(output.getType());
    Value zero =
        arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
    int64_t count = type.getDimSize(1), inner = 1;
    for (int64_t dim = 2; dim < type.getRank(); ++dim)
      inner *= type.getDimSize(dim);
    // A block writes its own heads, the first of the tiles of a head; of heads
    // that share an output, all write the same.
    int64_t of = heads / count;
    Value first = arith::MulIOp::create(b, packed > 1 ? firstHead : head,
                                        constantIndex(headGroup));
    Value begin = arith::DivUIOp::create(b, first, constantIndex(of));
    Value end = add(
        arith::DivUIOp::create(b, add(first, headGroup * turns * packed - 1),
                               constantIndex(of)),
        1);
    if (tiles > 1)
      end = arith::SelectOp::create(b, isFirstTile, end, begin);
    auto loop = scf::ForOp::create(b, begin, end, constantIndex(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    auto elements = scf::ForOp::create(b, thread, constantIndex(inner),
                                       constantIndex(schedule.threads));
    b.setInsertionPointToStart(elements.getBody());
    SmallVector<Value> indices{tokenRow, loop.getInductionVar()};
    Value rest = elements.getInductionVar();
    if (type.getRank() == 4) {
      Value last = constantIndex(type.getDimSize(3));
      indices.push_back(arith::DivUIOp::create(b, rest, last));
      rest = arith::RemUIOp::create(b, rest, last);
    }
    if (type.getRank() > 2)
      indices.push_back(rest);
    memref::StoreOp::create(b, zero, output, indices);
  }
}

Value GpuKernel::loadRaw(Value table, ArrayRef<Value> at, StringRef name) {
  return named(memref::LoadOp::create(b, table, at), name);
}

Value GpuKernel::loadNumber(Value from, ArrayRef<Value> at, StringRef name) {
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    loadRaw(from, at, name));
}

/// Where the row stands, and which versions of its carries are its own.
/// Returns the threshold.
Value GpuKernel::loadCursor() {
  base = loadNumber(cursors, {readSlot, constantIndex(0)}, "base");
  length = loadNumber(cursors, {readSlot, constantIndex(1)}, "length");
  if (!fold)
    return {};
  Value m = loadNumber(threshold, {constantIndex(0)}, "m");
  if (!hasNoState)
    return m;
  // Both, so that none waits for the other.
  Value crossover = loadNumber(threshold, {constantIndex(1)}, "crossover");
  return arith::SelectOp::create(b, hasNoState, crossover, m);
}

/// Loads the row's cursor. Returns whether this kernel is for the row: null
/// for always.
Value GpuKernel::emitCursor() {
  length = base = constantIndex(0);
  folds = {};
  if (fields.empty())
    return {};
  Value m = loadCursor();
  if (step.getForm() == Form::Fold) {
    if (drafts) {
      // The fold that drafts came with has been done, and is not committed.
      Value number = loadNumber(waiting, {readSlot}, "drafts");
      Value isOver = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, number,
                                           constantIndex(kFolded));
      length = arith::SelectOp::create(b, isOver, constantIndex(0), length);
    }
    return both(arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, length,
                                      constantIndex(0)),
                mayFold);
  }
  if (!fold)
    return {};
  Value isFull =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, add(length, 1), m);
  Value goes = moves ? moves
                     : arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                             readSlot, writeSlot);
  folds = named(both(arith::OrIOp::create(b, isFull, goes), mayFold), "folds");
  return {};
}

int64_t GpuKernel::knownPlaces() {
  if (page())
    return llvm::alignTo(capacity() + drafts + 1, 32);
  // Lanes ask for all that there may be, drafts for where they go.
  return std::max<int64_t>(llvm::alignTo(mostEntries(), 32), capacity());
}

/// Looks up where the entries of a slot lie that can be anywhere. A barrier
/// follows.
void GpuKernel::emitPlaces() {
  if (drafts == 0 || fields.empty())
    return;
  int64_t all = capacity(), count = knownPlaces();
  entryPlaces = shared({count}, "entry_places", b.getI32Type());
  // The whole ring is loaded, before it is known where it starts, and with it
  // the pages, so that entries are found without another trip to memory.
  SmallVector<std::pair<Value, Value>> ring, pages;
  int64_t pageCount = page() ? countPages() + 1 : 0;
  // Each warp holds them all, if it can.
  bool inLanes = pageCount > 0 && pageCount <= kWarp;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(endOfSlotLoads);
    for (int64_t first = 0; first < pageCount; first += schedule.threads) {
      Value at = inLanes ? warpLane : add(thread, first);
      Value held = arith::MinUIOp::create(b, at, constantIndex(pageCount - 1));
      pages.emplace_back(
          at, memref::LoadOp::create(b, pageTable, ValueRange{readSlot, held}));
    }
    for (int64_t first = 0; first < (page() ? count : all);
         first += schedule.threads) {
      Value at = add(thread, first), held = at;
      if (first + schedule.threads > all)
        held = arith::MinUIOp::create(b, at, constantIndex(all - 1));
      ring.emplace_back(at, memref::LoadOp::create(b, entryOrder,
                                                   ValueRange{readSlot, held}));
    }
  }
  if (pageCount)
    ownPages = shared({pageCount}, "own_pages", b.getI32Type());
  for (auto &[at, held] : pages) {
    Value index = inLanes ? thread : at;
    guarded(isBelow(index, pageCount), [&, held = held] {
      memref::StoreOp::create(b, held, ownPages, ValueRange{index});
    });
  }
  if (inLanes)
    entryRows = shared({count}, "entry_rows", b.getI32Type());
  for (auto &[at, place] : ring) {
    Value row = inLanes ? rowOfPlace(place, pages.front().second) : Value();
    Value entry = arith::RemUIOp::create(
        b, arith::SubIOp::create(b, add(at, all), base), constantIndex(all));
    // Nobody asks for more than the ring has, but lanes that are over look.
    Value isThere = isBelow(at, all);
    entry = arith::SelectOp::create(b, isThere, entry, at);
    // What does not fit is put where no page is.
    if (page())
      place = arith::SelectOp::create(b, isThere, place,
                                      constantInt(placeOfNone()));
    guarded(isBelow(at, count), [&, place = place] {
      memref::StoreOp::create(b, place, entryPlaces, ValueRange{entry});
      if (row)
        memref::StoreOp::create(b, row, entryRows, ValueRange{entry});
    });
  }
  barrier();
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

LogicalResult GpuKernel::emitForm(StepOp form) {
  // Branches see what came before them, not each other.
  auto before = values;
  auto queriesBefore = writtenQueries;
  int64_t waitedBefore = stagesWaited;
  states.clear();
  weightedValues.clear();
  wholeValues.clear();
  LogicalResult result = emitSinks(form);
  values = std::move(before);
  writtenQueries = std::move(queriesBefore);
  stagesWaited = waitedBefore;
  return result;
}

/// Carries of slots for drafts have versions; so do states, if there are no
/// entries for drafts.
void GpuKernel::takeVersions() {
  auto version = [&](Value slot) -> Value {
    Value first = arith::MulIOp::create(b, slot, constantIndex(drafts + 1));
    return arith::AddIOp::create(b, first,
                                 loadNumber(carryVersions, {slot}, "version"));
  };
  readCarry = version(readSlot);
  writeCarry = version(writeSlot);
  if (slots.keepStates())
    readState = readCarry, writeState = writeCarry;
}

LogicalResult GpuKernel::emitRow() {
  std::optional<OpBuilder::InsertionGuard> groupGuard;
  if (headGroup > 1) {
    // Heads that share a carry take turns, and the last one replaces it.
    auto loop = scf::ForOp::create(b, constantIndex(0),
                                   constantIndex(headGroup), constantIndex(1));
    groupGuard.emplace(b);
    b.setInsertionPointToStart(loop.getBody());
    head = arith::AddIOp::create(
        b, arith::MulIOp::create(b, head, constantIndex(headGroup)),
        loop.getInductionVar());
  }
  // Copies that are started are waited for, so that those that
  // may have nothing to do look first. Where other blocks keep the memory busy,
  // the L2 cache is to know whether a state is written; for a small tile, which
  // is there before its cursor, that takes longer than it gains, and states
  // that threads hold leave no registers for what is then computed beside it.
  folds = {};
  constexpr int64_t smallTile = 4096;
  bool looksFirst =
      !startsEarly() || (fold && !hasPieces() && !materialises &&
                         schedule.tileRows * keySize > smallTile &&
                         hasManyBlocks(schedule.tileRows));
  if (slots.keepStates())
    takeVersions();
  if (!looksFirst)
    stageStates();
  if (headGroup > 1)
    endOfTokenLoads = anchor();
  if (drafts && !slots.keepStates() &&
      !step.getArgumentsOfKind(ArgumentKind::Carry).empty())
    takeVersions();
  endOfSlotLoads = anchor();
  std::optional<OpBuilder::InsertionGuard> wantedGuard;
  if (Value wanted = emitCursor()) {
    auto branch = scf::IfOp::create(b, wanted);
    wantedGuard.emplace(b);
    b.setInsertionPointToStart(branch.thenBlock());
  }
  if (looksFirst)
    stageStates();
  emitPlaces();
  if (failed(emitPrologue()))
    return failure();
  if (startsEarly())
    waitForPrevious();
  if (folds) {
    auto branch = scf::IfOp::create(b, folds, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    if (failed(emitForm(fold)))
      return failure();
    b.setInsertionPointToStart(branch.elseBlock());
    if (failed(emitForm(step)))
      return failure();
  } else if (failed(emitForm(step))) {
    return failure();
  }
  b.setLoc(unnamed(step.getLoc()));
  if (headGroup > 1)
    barrier();
  return success();
}

int64_t GpuKernel::bytesOfShared() {
  int64_t bytes = 0;
  for (auto [i, each] : llvm::enumerate(function.getWorkgroupAttributions())) {
    if (function.getWorkgroupAttributionAttr(i, kSharesAttr))
      continue;
    auto type = cast<MemRefType>(each.getType());
    bytes += llvm::alignTo(
        type.getNumElements() * type.getElementTypeBitWidth() / 8, 16);
  }
  return bytes;
}

int64_t GpuKernel::blocksInShared() {
  constexpr int64_t memory = 228 << 10, ofBlock = 1 << 10, unit = 128;
  int64_t bytes = llvm::alignTo(bytesOfShared(), unit);
  return std::max<int64_t>(1, memory / (ofBlock + bytes));
}

/// 0 for as many as there is room for with what registers threads take.
int64_t GpuKernel::blocksAtOnce() {
  constexpr int64_t mostStatic = 48 << 10, registers = 64 << 10, most = 256;
  // Where shared memory alone decides, threads may have all registers.
  int64_t blocks = blocksInShared();
  if (blocks * schedule.threads * most <= registers)
    return bytesOfShared() > mostStatic ? blocks : 0;
  // Decayed keys that are split for tensor cores wait for one another: so many
  // threads, of 102 registers, that others go on meanwhile.
  constexpr int64_t threads = 640;
  if (stateBits == 16 && !decayedKeys.empty())
    return std::clamp<int64_t>(threads / schedule.threads, 1, blocks);
  return 0;
}

FailureOr<gpu::GPUFuncOp> GpuKernel::build() {
  if (fold &&
      fold.getBody().getArgumentTypes() != step.getBody().getArgumentTypes())
    return fold.emitError("its arguments are not those of '")
           << step.getSymName() << "'";
  if (failed(checkStates(step)) || failed(check()) || failed(chooseGeometry()))
    return failure();
  createFunction();
  emitTask();
  LogicalResult result = success();
  Value padded = emitSlots();
  emitActive(padded, storesZeros(), [&] { return emitRow(); }, result);
  for (Operation *each : {endOfTokenLoads, endOfSlotLoads, endOfEntryNumbers})
    if (each)
      each->erase();
  if (failed(result)) {
    function.erase();
    return failure();
  }
  sinkConditional(function);
  // Views are loaded as vectors.
  for (auto [argument, bytes] : alignments)
    function.setArgAttr(argument, kAlignmentAttr, b.getIndexAttr(bytes));
  int64_t blocks = blocksAtOnce();
  if (blocks)
    function->setAttr(kBlocksAttr, b.getIndexAttr(blocks));
  if (int64_t bytes = bytesToSpill(); blocks && bytes)
    function->setAttr(kSpillsAttr, b.getIndexAttr(bytes));
  b.setLoc(unnamed(step.getLoc()));
  b.setInsertionPointToEnd(&function.getBody().front());
  // That a kernel has ended says that those ahead of it have, even if all of
  // its rows are another's: one block waits for that. The others leave at once,
  // so that those with rows take their place.
  if (startsEarly() && slots.arePaged()) {
    Value isFirst = isBelow(row, 1);
    Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
    guarded(both(isFirst, isBelow(block, 1)), [&] { waitForPrevious(); });
  }
  gpu::ReturnOp::create(b);
  return function;
}
