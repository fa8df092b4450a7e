//===- Geometry.cpp - how a step is spread over a grid --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

/// Registers of a thread that may hold a state.
static constexpr int64_t kStateRegisters = 64;
/// Those while entries are added to it: more would take blocks from the
/// multiprocessor.
static constexpr int64_t kFoldRegisters = 32;
/// Those for a vector that rows meet.
static constexpr int64_t kKeyRegisters = 16;
/// Where rows cannot be parted, a thread may have to hold more.
static constexpr int64_t kMostStateRegisters = 128;
static constexpr int64_t kMaxThreads = 512;
/// Where heads share a block, bytes of a row that a lane asks for, until so
/// many lanes do.
static constexpr int64_t kPackedBytes = 32, kPackedLanes = 4;
/// Bytes of a state in a block, unless a schedule says otherwise: with several
/// blocks a multiprocessor, enough is in flight and blocks start and end at
/// different times.
static constexpr int64_t kTileBytes = 32 << 10;
/// From so many instructions an element on, groups of lanes do not all compute
/// the same: an exchange through shared memory takes less.
static constexpr int64_t kDearKeyValues = 30;
/// Shared memory of a block that every architecture from sm_80 on has.
static constexpr int64_t kSharedBytes = 96 << 10;
/// What Hopper has.
static constexpr int64_t kMostSharedBytes = 226 << 10;

/// Finds the values that depend on rows of a state, and whether one of them is
/// reduced over dv or used along dk: then a block has to hold all of dv.
void GpuKernel::findRowValues(StepOp of) {
  of.walk([&](Operation *op) { findRowValuesOf(op); });
}

void GpuKernel::findRowValuesOf(Operation *op) {
  if (isa<ReadOp, ReadBufferOp>(op)) {
    rowValues.insert(op->result_begin(), op->result_end());
  } else if (auto transport = dyn_cast<TransportOp>(op)) {
    rowValues.insert(transport.getPartials().begin(),
                     transport.getPartials().end());
  }
  auto depends = [&](Value value) { return rowValues.contains(value); };
  if (llvm::none_of(op->getOperands(), depends))
    return;
  if (isa<RotateOp, DecayOp, ReadOp, ReadBufferOp, TransportOp>(op))
    ownsAllRows = true;
  if (auto write = dyn_cast<WriteOp>(op); write && depends(write.getKey()))
    ownsAllRows = true;
  if (auto sum = dyn_cast<SumOp>(op);
      sum && int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank()) {
    // Every thread gets the sum.
    ownsAllRows = true;
    return;
  }
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    int64_t from = broadcast.getInput().getType().getRank();
    int64_t to = broadcast.getResult().getType().getRank();
    if (from != to && from > 1 && broadcast.getDims().back() + 1 != to)
      ownsAllRows = true;
  }
  if (isa<WriteOp, AppendOp, YieldOp, StoreStateOp, ReadOp, ReadBufferOp,
          TransportOp>(op))
    return;
  for (Value result : op->getResults())
    if (isa<RankedTensorType>(result.getType()))
      rowValues.insert(result);
}

/// A thread computes the channel of its row, so that what comes from the rows
/// of a state may not have more channels than these.
static LogicalResult checkRows(StepOp form,
                               function_ref<bool(Value)> dependsOnRows) {
  auto sizeOf = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getShape().back();
  };
  int64_t rows = INT64_MAX;
  form.walk([&](Operation *op) {
    if (isa<ReadOp, ReadBufferOp>(op))
      rows = sizeOf(op->getResult(0));
    else if (auto transport = dyn_cast<TransportOp>(op))
      rows = sizeOf(transport.getPartials().front());
  });
  WalkResult walked = form.walk([&](Operation *op) {
    for (Value result : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type || type.getRank() == 1 || sizeOf(result) <= rows ||
          !dependsOnRows(result))
        continue;
      InFlightDiagnostic error =
          op->emitError("cannot be lowered for GPUs: ")
          << sizeOf(result)
          << " channels come from what is read of a state, whose values have "
          << rows;
      error.attachNote() << "give out what they are computed from, or decode "
                            "on the CPU";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

LogicalResult GpuKernel::check() {
  for (StepOp form : forms()) {
    rowValues.clear();
    findRowValues(form);
    if (failed(
            checkRows(form, [&](Value value) { return dependsOnRows(value); })))
      return failure();
  }
  rowValues.clear();
  ownsAllRows = false;
  return success();
}

/// Finds the values of the fold that the step computes, too.
void GpuKernel::findSameValues() {
  if (!fold)
    return;
  for (auto [mine, other] :
       llvm::zip(fold.getBody().getArguments(), step.getBody().getArguments()))
    sameValues[mine] = other;
  // Entries and states are read before anything is stored. What numbers make of
  // a product is cheaper than the registers that would keep it.
  auto isPure = [&](Operation &op) {
    if (isa<LoadStateOp, ReadOp, ReadBufferOp, TransportOp>(op) ||
        (isa<DecayProductOp>(op) && !decayedKeys.empty()))
      return true;
    return op.getNumResults() == 1 && op.getNumRegions() == 0 &&
           isa<RankedTensorType>(op.getResult(0).getType()) &&
           isMemoryEffectFree(&op);
  };
  llvm::StringMap<SmallVector<Operation *>> known;
  for (Operation &op : step.getBody().front())
    if (isPure(op))
      known[op.getName().getStringRef()].push_back(&op);
  auto same = [&](Value value) {
    auto found = sameValues.find(value);
    return found == sameValues.end() ? value : found->second;
  };
  for (Operation &op : fold.getBody().front()) {
    if (!isPure(op))
      continue;
    for (Operation *other : known[op.getName().getStringRef()])
      if (op.getResultTypes() == other->getResultTypes() &&
          op.getPropertiesAsAttribute() == other->getPropertiesAsAttribute() &&
          op.getDiscardableAttrDictionary() ==
              other->getDiscardableAttrDictionary() &&
          llvm::equal(llvm::map_range(op.getOperands(), same),
                      other->getOperands())) {
        for (auto [result, same] :
             llvm::zip(op.getResults(), other->getResults()))
          sameValues[result] = same;
        break;
      }
  }
}

/// True if a state is read that is not as it was loaded: it is then stored from
/// the same registers, so that these hold all rows of a thread.
bool GpuKernel::readsMaterialisedState() {
  bool result = false;
  for (StepOp form : forms())
    form.walk([&](ReadOp read) {
      result |= !isa_and_present<LoadStateOp>(read.getState().getDefiningOp());
    });
  return result;
}

/// Instructions for an element of all vectors over dk, roughly.
int64_t GpuKernel::costOfKeyValues() {
  int64_t cost = 0;
  step.walk([&](Operation *op) {
    auto type = op->getNumResults() == 1
                    ? dyn_cast<RankedTensorType>(op->getResult(0).getType())
                    : RankedTensorType();
    if (!type || type.getRank() < 2 || dependsOnRows(op->getResult(0)) ||
        type.getShape().back() != keySize)
      return;
    bool isLong = isa<arith::DivFOp, RotateOp>(op) ||
                  isa_and_present<math::MathDialect>(op->getDialect());
    int64_t each = isLong ? 8 : isa<ConvOp>(op) ? 4 : 1;
    if (!isa<arith::ConstantOp, BroadcastOp, arith::ExtFOp, arith::TruncFOp>(
            op))
      cost += each * componentCount(type);
  });
  return cost;
}

int64_t GpuKernel::fewestThreads(int64_t /*rows*/, bool /*areMany*/) {
  return 32;
}

void GpuKernel::chooseSizes() {
  auto count = [&](int64_t value) { heads = std::max(heads, value); };
  int64_t fewest = 0;
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (auto pool = dyn_cast<PoolType>(argument.getType())) {
      count(pool.getHeads());
      keySize = pool.getKeySize();
      valueSize = pool.getValueSize();
      stateBits = pool.getElementType().getIntOrFloatBitWidth();
    }
    if (auto tensor = dyn_cast<RankedTensorType>(argument.getType())) {
      count(tensor.getDimSize(0));
      if (step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Carry)
        fewest = fewest ? std::min(fewest, tensor.getDimSize(0))
                        : tensor.getDimSize(0);
    }
  }
  headGroup = fewest ? heads / fewest : 1;
  // Carries are read by all blocks of a head and written by one.
  ownsAllRows |= fewest != 0;
  for (StepOp form : forms())
    findRowValues(form);
  findDecayedKeys();
  findSameValues();
}

/// Shared memory of a block with so many rows, but for what is a few hundred
/// bytes.
int64_t GpuKernel::sharedBytes(int64_t rows) {
  auto bytesOf = [](Type type) { return type.getIntOrFloatBitWidth() / 8; };
  int64_t bytes = 0;
  for (BlockArgument argument : step.getBody().getArguments()) {
    if (auto pool = dyn_cast<PoolType>(argument.getType()))
      bytes += (pool.getLayout() == PoolLayout::DkDv
                    ? llvm::PowerOf2Ceil(rows) * (keySize + width)
                    : rows * keySize) *
               bytesOf(pool.getElementType());
    auto buffer = dyn_cast<BufferType>(argument.getType());
    for (FieldAttr field : buffer ? buffer.getFields() : ArrayRef<FieldAttr>())
      if (isStaged(argument.getArgNumber(), field))
        bytes +=
            mostEntries() * componentCount(field) *
            (field.getSide() == Side::Value ? rows : field.getShape().back()) *
            bytesOf(field.getElementType());
  }
  int64_t weighted = 0, dots = 0;
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      if (auto each = dyn_cast<FoldBufferOp>(op)) {
        BufferType buffer = each.getBuffer().getType();
        if (weighsValues(each))
          weighted += buffer.getCapacity() * rows * 4 *
                      componentCount(buffer.getField(each.getValue()));
      } else if (auto read = dyn_cast<ReadBufferOp>(op)) {
        BufferType buffer = read.getBuffer().getType();
        int64_t queries = 0;
        for (Value query : read.getQueries())
          queries += componentCount(cast<RankedTensorType>(query.getType()));
        dots += buffer.getCapacity() * queries * 4 *
                componentCount(buffer.getField(read.getKey()));
      }
    });
  return bytes + weighted + dots + decayedKeyBytes() + queryPartBytes();
}

int64_t GpuKernel::mostShared() const {
  return schedule.shared ? schedule.shared : kMostSharedBytes;
}

int64_t GpuKernel::wantedShared() const {
  return std::min(kSharedBytes, mostShared());
}

/// What does not fit stays in global memory, or is computed where it is used.
LogicalResult GpuKernel::chooseShared(int64_t rows) {
  stagesEntries = true;
  stagesWeights = !multipliesFolds;
  stagesEntries = sharedBytes(rows) <= wantedShared();
  stagesWeights = !multipliesFolds && sharedBytes(rows) <= wantedShared();
  int64_t bytes = sharedBytes(rows);
  if (bytes <= mostShared())
    return success();
  InFlightDiagnostic diag = step.emitError("its entries need ")
                            << bytes << " bytes of shared memory in a block, "
                            << "but there are " << mostShared();
  diag.attachNote() << "a ring of fewer entries needs less (--capacity), the "
                       "route recurrent none";
  return failure();
}

int64_t GpuKernel::tileBytes() {
  // Where tensor cores read, less is left to hide behind other blocks; but keys
  // that decay are not decayed twice.
  return multipliesReads && decayedKeys.empty() ? kTileBytes / 2 : kTileBytes;
}

/// Of each vector that rows meet at a time, a lane holds a part.
int64_t GpuKernel::countRanks() {
  int64_t ranks = 1;
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      if (auto read = dyn_cast<ReadOp>(op))
        ranks = std::max(ranks, componentCount(read.getQuery().getType()));
      else if (auto write = dyn_cast<WriteOp>(op))
        ranks = std::max(ranks, componentCount(write.getKey().getType()));
    });
  return ranks;
}

LogicalResult ladle::checkStates(StepOp step) {
  PoolType first;
  for (BlockArgument argument : step.getArgumentsOfKind(ArgumentKind::State)) {
    auto pool = cast<PoolType>(argument.getType());
    if (!first)
      first = pool;
    if (pool.getKeySize() == first.getKeySize() &&
        pool.getValueSize() == first.getValueSize())
      continue;
    InFlightDiagnostic error =
        step.emitError("cannot be lowered for GPUs: its states are of "
                       "different sizes, ")
        << first.getKeySize() << " x " << first.getValueSize() << " and "
        << pool.getKeySize() << " x " << pool.getValueSize();
    if (std::min(first.getValueSize(), pool.getValueSize()) == 1)
      error.attachNote() << "make what has one channel a carry, z = f * z + k "
                            "say, and its read a product, dot(q, z)";
    else
      error.attachNote()
          << "decode on the CPU, or make the smaller one as large";
    return error;
  }
  return success();
}

/// Of a row, where heads share a block.
int64_t GpuKernel::fewestLanes() {
  return std::min(kPackedLanes, keySize * stateBits / 8 / kPackedBytes);
}

LogicalResult GpuKernel::chooseGeometry() {
  chooseSizes();
  // A lane loads 16 bytes at a time if a row divides so.
  int64_t widest = 128 / stateBits;
  width = 1;
  while (width < widest && keySize % (width * 2) == 0)
    width *= 2;
  int64_t ranks = countRanks();
  auto mayDouble = [&] { return keySize % (width * lanes * 2) == 0; };
  auto chooseLanes = [&](int64_t fewest) {
    lanes = 1;
    while (mayDouble() &&
           (lanes < fewest || (!multipliesReads && lanes < 32 &&
                               keySize / lanes * ranks > kKeyRegisters)))
      lanes *= 2;
  };
  chooseLanes(fewestLanes());
  packed = headsToPack();
  if (packed == 1) {
    multipliesReads = mayMultiplyReads();
    multipliesFolds = mayMultiplyFolds();
    chooseLanes(multipliesReads ? 4 : 8);
  }
  // Of wide loads all lanes of a warp may still hold too much.
  bool hasState = step.getRoute() != Route::KvOnly;
  while (hasState && packed == 1 && !multipliesReads && ranks > 1 &&
         lanes < 32 && width > 4 && keySize / lanes * ranks > kKeyRegisters) {
    width /= 2;
    lanes *= 2;
  }
  chunks = keySize / (width * lanes);
  hasWarpValues = multipliesReads || (lanes < 32 && warpPlace(keySize) &&
                                      costOfKeyValues() >= kDearKeyValues);
  int64_t perRow = width * chunks;

  int64_t rows = valueSize;
  if (packed > 1) {
    rows *= packed;
    hasWarpValues = false;
  } else if (schedule.tileRows) {
    rows = std::min(schedule.tileRows, valueSize);
    if (ownsAllRows || valueSize % rows != 0)
      rows = valueSize;
  } else {
    // Few rows of a batch are spread over all of a GPU.
    auto isLarge = [&] {
      int64_t blocks = schedule.batch * heads * (valueSize / rows);
      return rows * keySize * stateBits / 8 > tileBytes() ||
             (schedule.batch && blocks < kBlocksToFill);
    };
    while (!ownsAllRows && rows % 2 == 0 && rows > 16 && isLarge())
      rows /= 2;
  }
  stagesWeights = !multipliesFolds;
  // A block that has no room for its entries may have it for fewer rows. Where
  // these have none either, all would do again what the others do.
  if (!schedule.tileRows && packed == 1 && !ownsAllRows) {
    auto rowsWithin = [&](int64_t most) {
      int64_t fewer = rows;
      while (fewer % 2 == 0 && fewer > 16 && sharedBytes(fewer) > most)
        fewer /= 2;
      return fewer;
    };
    int64_t fewer = rowsWithin(wantedShared());
    if (sharedBytes(fewer) > wantedShared()) {
      stagesEntries = false;
      fewer = rowsWithin(mostShared());
      stagesEntries = true;
    }
    rows = fewer;
  }
  materialises = readsMaterialisedState();
  if (failed(chooseTurns(rows)))
    return failure();
  // Vectors of several ranks take their part of the registers.
  auto mostRows = [&](int64_t registers) {
    int64_t most =
        std::max<int64_t>(1, registers / perRow / (ranks > 1 ? 2 : 1));
    return std::min<int64_t>(
        lanes, materialises ? llvm::bit_floor<uint64_t>(most) : lanes);
  };
  auto threadsFor = [&](int64_t most) {
    if (packed > 1)
      return uint64_t(rows * lanes);
    return llvm::alignTo(llvm::divideCeil(rows, most) * lanes, 32);
  };
  int64_t threads = threadsFor(mostRows(kStateRegisters));
  if (packed == 1)
    threads = std::max<int64_t>(schedule.threads, threads);
  int64_t blocks = schedule.batch * heads / turns * (valueSize / rows);
  bool areMany = !schedule.batch || blocks > 2 * kBlocksToFill;
  threads = std::max(threads, fewestThreads(rows, areMany));
  // Keys that decay are loaded two elements a thread.
  if (!decayedKeys.empty())
    threads = std::max(threads, int64_t(llvm::alignTo(keySize / 2, 32)));
  while (threads > kMaxThreads && !ownsAllRows && rows % 2 == 0) {
    rows /= 2;
    threads = threadsFor(mostRows(kStateRegisters));
  }
  if (threads > kMaxThreads)
    threads = threadsFor(mostRows(kMostStateRegisters));
  if (threads > kMaxThreads) {
    InFlightDiagnostic diag = step.emitError("a head of the state has ")
                              << valueSize << " × " << keySize
                              << " elements that one block must hold, but "
                              << kMaxThreads << " threads hold "
                              << kMostStateRegisters << " each";
    diag.attachNote() << "what is summed over dv, or goes from dv to dk, keeps "
                         "rows together";
    return failure();
  }
  // With threads for more rows than there are, a tile cannot be read where it
  // has been written.
  auto rowsOfThreads = [&](int64_t count) {
    int64_t groups = count / lanes;
    return groups * int64_t(llvm::PowerOf2Ceil(llvm::divideCeil(rows, groups)));
  };
  int64_t most = std::min<int64_t>(2 * threads, kMaxThreads);
  for (int64_t count = threads;
       !schedule.threads && step.verifies() && count <= most; count += 32)
    if (rowsOfThreads(count) == rows) {
      threads = count;
      break;
    }
  schedule.threads = threads;
  schedule.tileRows = rows;
  tiles = packed > 1 ? 1 : valueSize / rows;
  rowsPerThread = llvm::PowerOf2Ceil(llvm::divideCeil(rows, threads / lanes));

  // A warp has whole tiles of rows.
  multipliesFolds &= headGroup == 1 && rowsPerThread * (32 / lanes) % 16 == 0;
  if (failed(chooseShared(rows)))
    return failure();
  if (multipliesFolds && !stagesEntries) {
    multipliesFolds = false;
    return chooseShared(rows);
  }
  copiesInBulk = headGroup == 1;
  return checkPieces();
}

GpuKernel::Sheet GpuKernel::readSheet() {
  Sheet sheet{keyPlace(keySize), firstRow,      {},
              32 / lanes,        rowsPerThread, rowsPerThread};
  while (!materialises && sheet.atOnce > 1 &&
         sheet.atOnce * width * chunks > kStateRegisters)
    sheet.atOnce /= 2;
  return sheet;
}

GpuKernel::Sheet GpuKernel::storeSheet() {
  std::optional<Place> place = warpPlace(keySize);
  // A replay reads rows while it writes them.
  bool replays = false;
  for (StepOp form : forms())
    form.walk([&](ReplayOp) { replays = true; });
  if (materialises || replays || !place || packed > 1)
    return readSheet();
  int64_t rows = rowsPerThread * (32 / lanes);
  Sheet sheet{*place, warpRow, {}, 1, rows, rows};
  while (sheet.atOnce > 1 &&
         sheet.atOnce * place->width * place->chunks >
             (decayedKeys.empty() ? kStateRegisters : kFoldRegisters))
    sheet.atOnce /= 2;
  return sheet;
}
