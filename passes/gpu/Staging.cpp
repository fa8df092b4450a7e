//===- Staging.cpp - copies to the shared memory of a GPU kernel ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Bulk copies move multiples of 16 bytes. What does not divide so is copied by
// the threads, an element each.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kCopyBytes = 16;
/// So many blocks that the last to end are few of them.
static constexpr int64_t kManyBlocks = 4096;
/// Of all banks.
static constexpr int64_t kLineBytes = 128;

static int64_t bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

bool GpuKernel::isStaged(unsigned argument, FieldAttr field) const {
  return stagesEntries && field.getShape().size() > 1 &&
         !isLoadedByColumns(argument, field);
}

/// Starts a bulk copy of `count` elements to the start of row `toRow`; with a
/// stride, of `each` elements that lie so far apart.
memref::DmaStartOp GpuKernel::startCopy(Value from, ArrayRef<Value> at,
                                        Value to, Value toRow, Value count,
                                        Value counter, int64_t stride,
                                        int64_t each) {
  Value zero = constantIndex(0);
  Value farther, few;
  if (stride != each) {
    farther = constantIndex(stride);
    few = constantIndex(each);
  }
  auto copy = memref::DmaStartOp::create(
      b, from, at, to, ValueRange{toRow, zero}, count, counter,
      ValueRange{zero}, farther, few);
  // Threads that start copies take turns: one needs a while for each.
  if (int64_t warp = copyCount++ % (schedule.threads / 32))
    copy->setAttr("ladle.warp", b.getI32IntegerAttr(warp));
  return copy;
}

/// Calls `copy` for every element of `count` rows of `each`, with the row and
/// the element.
void GpuKernel::copyByThreads(Value count, int64_t each,
                              function_ref<void(Value, Value)> copy) {
  Value total = arith::MulIOp::create(b, count, constantIndex(each));
  auto loop =
      scf::ForOp::create(b, thread, total, constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value i = loop.getInductionVar();
  copy(arith::DivUIOp::create(b, i, constantIndex(each)),
       arith::RemUIOp::create(b, i, constantIndex(each)));
}

/// Whether blocks of so many rows of dv keep the memory busy whatever one of
/// them waits for; so it is where nothing is known of the batch.
bool GpuKernel::hasManyBlocks(int64_t rows) const {
  return !schedule.batch ||
         schedule.batch * heads * valueSize >= rows * kManyBlocks;
}

void GpuKernel::stageStates() {
  llvm::SmallSetVector<unsigned, 2> wanted;
  for (StepOp form : forms())
    form.walk([&](LoadStateOp load) {
      // What is loaded again after it was stored is there.
      if (load->getBlock() == &form.getBody().front() &&
          llvm::none_of(load.getPool().getUsers(), [&](Operation *user) {
            return isa<StoreStateOp>(user) && user->isBeforeInBlock(load);
          }))
        wanted.insert(cast<BlockArgument>(load.getPool()).getArgNumber());
    });
  for (StepOp form : forms())
    form.walk([&](StoreStateOp store) {
      unsigned argument = cast<BlockArgument>(store.getPool()).getArgNumber();
      // What is only stored goes through shared memory, too.
      if (isTransposed(argument) && !wanted.contains(argument) &&
          !stagedStates.contains(argument))
        stageTransposed(argument, /*isLoaded=*/false);
    });
  for (unsigned argument : wanted) {
    if (isTransposed(argument)) {
      stageTransposed(argument, /*isLoaded=*/true);
      continue;
    }
    Value pool = memory[argument];
    Type element = cast<MemRefType>(pool.getType()).getElementType();
    Value tile = stagedStates[argument] =
        shared({schedule.tileRows, keySize},
               (step.getArgumentName(argument) + "_tile").str(), element);
    if (hasPieces()) {
      stagePieces(pool, tile);
      continue;
    }
    int64_t size = schedule.tileRows * keySize;
    if (copiesInBulk && size * bytesOf(element) % kCopyBytes == 0) {
      Value first = packed > 1 ? firstHead : head;
      Operation *copy =
          startCopy(pool, {readState, first, tileStart, constantIndex(0)}, tile,
                    constantIndex(0), constantIndex(size), copies, 0, 0);
      // A state is read once a step, and written where it was if it folds.
      auto isStored = [&](StepOp form) {
        return llvm::any_of(
            form.getBody().front().getOps<StoreStateOp>(),
            [&](StoreStateOp store) {
              return cast<BlockArgument>(store.getPool()).getArgNumber() ==
                     argument;
            });
      };
      if (llvm::all_of(forms(), isStored)) {
        copy->setAttr(kKeptAttr, b.getUnitAttr());
        continue;
      }
      if (!folds) {
        copy->setAttr("nontemporal", b.getUnitAttr());
        continue;
      }
      // Beside rows that write theirs, the others' are not dropped first
      // either: what is written would go to memory among what is read.
      auto branch = scf::IfOp::create(b, folds, /*withElseRegion=*/true);
      copy->moveBefore(branch.elseBlock()->getTerminator());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      b.clone(*copy)->setAttr(kKeptAttr, b.getUnitAttr());
      continue;
    }
    lateCopies.push_back([=, this] {
      copyByThreads(constantIndex(schedule.tileRows), keySize,
                    [&](Value i, Value c) {
                      Value from = arith::AddIOp::create(b, tileStart, i);
                      Value value = memref::LoadOp::create(
                          b, pool, ValueRange{readState, head, from, c});
                      memref::StoreOp::create(b, value, tile, ValueRange{i, c});
                    });
    });
  }
}

/// Copies entries that lie anywhere, 16 bytes a thread. Fields of as many bytes
/// go together: what finds an entry finds all of it.
void GpuKernel::gatherFields() {
  auto partOf = [](const Gather &gather) {
    return kCopyBytes / bytesOf(gather.field.getElementType());
  };
  llvm::MapVector<std::pair<int64_t, int64_t>, SmallVector<Gather>> groups;
  for (const Gather &each : std::exchange(waitingGathers, {}))
    groups[{each.size / partOf(each), componentCount(each.field)}].push_back(
        each);
  for (auto &[shape, group] : groups) {
    auto [parts, ranks] = shape;
    Value count = arith::MulIOp::create(b, length, constantIndex(ranks));
    copyByThreads(
        count, parts, [&, ranks = ranks, &group = group](Value i, Value c) {
          Value position =
              ranks > 1
                  ? Value(arith::DivUIOp::create(b, i, constantIndex(ranks)))
                  : i;
          EntryPlace place = placeOf(position);
          for (const Gather &each : group) {
            int64_t part = partOf(each);
            Value first = std::exchange(head, add(head, each.turn));
            SmallVector<Value> at{place.outer,
                                  headIndex(each.field.getShape().front()),
                                  place.entry};
            head = first;
            Value row = add(i, each.turn * mostEntries() * ranks);
            Value element = arith::MulIOp::create(b, c, constantIndex(part));
            if (each.field.getShape().size() == 3)
              at.push_back(arith::RemUIOp::create(b, i, constantIndex(ranks)));
            at.push_back(arith::AddIOp::create(b, each.first, element));
            nvgpu::DeviceAsyncCopyOp::create(
                b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), each.to,
                ValueRange{row, element}, each.from, at, b.getIndexAttr(part),
                /*srcElements=*/Value(), /*bypassL1=*/b.getUnitAttr());
          }
        });
    // A thread has a round or two.
    std::prev(b.getInsertionPoint())->setAttr("ladle.rolled", b.getUnitAttr());
    gathers = true;
  }
}

/// Entries become rows of shared memory, the oldest first; of a field along dv
/// the rows of the tile.
void GpuKernel::stageField(Value buffer, size_t index) {
  auto type = cast<BufferType>(buffer.getType());
  unsigned argument = cast<BlockArgument>(buffer).getArgNumber();
  FieldAttr field = type.getFields()[index];
  if (!isStaged(argument, field) || !isStagedNow(field))
    return;
  Value from = fields[argument][index];
  int64_t size = field.getShape().back(), ranks = componentCount(field);
  bool isTiled = field.getSide() == Side::Value && tiles > 1;
  int64_t each = isTiled ? schedule.tileRows : size;
  int64_t bytes = bytesOf(field.getElementType());
  bool divides = (isTiled ? each : each * ranks) * bytes % kCopyBytes == 0 &&
                 (!isTiled || size * bytes % kCopyBytes == 0);
  // What lies anywhere is copied a row of a rank at a time.
  bool rowsDivide =
      each * bytes % kCopyBytes == 0 && size * bytes % kCopyBytes == 0;
  bool isGathered = copiesInBulk && rowsDivide && entryPlaces;
  // Tensor cores that fold take elements of four entries at a time, which lie
  // in different banks then. Heads in turn have no room where memory alone
  // bounds a fold, and of many rows it is more than a few hundred bytes.
  constexpr int64_t mostRows = 32;
  int64_t pitch = each;
  if (isGathered && multipliesFolds && (turns == 1 || stateBits == 16) &&
      mostEntries() * ranks <= mostRows && each * bytes % kLineBytes == 0)
    pitch += kCopyBytes / bytes;
  int64_t ofHeads = headsToStage(field);
  Value to = stagedFields[{argument, field.getName().str()}] =
      shared({ofHeads * mostEntries() * ranks, pitch},
             (step.getArgumentName(argument) + "_" + field.getName()).str(),
             field.getElementType());
  Value first = isTiled ? tileStart : constantIndex(0);
  auto indices = [=, this](EntryPlace place, Value rank, Value element) {
    SmallVector<Value> at{place.outer, headIndex(field.getShape().front()),
                          place.entry};
    if (field.getShape().size() == 3)
      at.push_back(rank);
    at.push_back(element);
    return at;
  };
  if (isGathered) {
    for (int64_t which = 0; which < ofHeads; ++which)
      waitingGathers.push_back({from, to, field, first, each, which});
    return;
  }
  Value zero = constantIndex(0);
  auto copy = [&](EntryPlace place, Value row, Value entries) {
    Value count =
        arith::MulIOp::create(b, entries, constantIndex(each * ranks));
    Value target = arith::MulIOp::create(b, row, constantIndex(ranks));
    auto copy = startCopy(from, indices(place, zero, first), to, target, count,
                          entryCopies, isTiled ? size : 0, isTiled ? each : 0);
    // What no other block needs is read once.
    if (field.getShape().front() == heads && tiles == 1)
      copy->setAttr("nontemporal", b.getUnitAttr());
  };
  if (copiesInBulk && divides && !entryPlaces && page()) {
    // A page at a time, the last as far as there are entries.
    auto loop = scf::ForOp::create(b, zero, length, constantIndex(page()));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value row = loop.getInductionVar();
    Value index = arith::DivUIOp::create(b, row, constantIndex(page()));
    Value left = arith::SubIOp::create(b, length, row);
    copy({pageAt(index, /*own=*/{}, /*isWritten=*/false), zero}, row,
         arith::MinSIOp::create(b, left, constantIndex(page())));
    return;
  }
  if (copiesInBulk && divides && !entryPlaces) {
    // The ring goes round once at most.
    Value untilEnd = arith::SubIOp::create(b, constantIndex(capacity()), base);
    Value before = arith::MinSIOp::create(b, length, untilEnd);
    Value after = arith::SubIOp::create(b, length, before);
    copy({readSlot, base}, zero, before);
    copy({readSlot, zero}, before, after);
    return;
  }
  lateCopies.push_back([=, this] {
    Value rows = arith::MulIOp::create(b, length, constantIndex(ranks));
    copyByThreads(rows, each, [&](Value i, Value c) {
      EntryPlace place =
          placeOf(arith::DivUIOp::create(b, i, constantIndex(ranks)));
      Value rank = arith::RemUIOp::create(b, i, constantIndex(ranks));
      Value element =
          isTiled ? Value(arith::AddIOp::create(b, tileStart, c)) : c;
      SmallVector<Value> at = indices(place, rank, element);
      memref::StoreOp::create(b, memref::LoadOp::create(b, from, at), to,
                              ValueRange{i, c});
    });
  });
}

/// The fields that some form reads, by argument.
void GpuKernel::stageEntries() {
  llvm::SmallSetVector<std::pair<unsigned, size_t>, 8> wanted;
  for (StepOp form : forms())
    form.walk([&](Operation *op) {
      Value buffer;
      SmallVector<StringRef> names;
      auto want = [&](std::optional<StringRef> name) {
        if (name && !name->empty())
          names.push_back(*name);
      };
      auto wantAll = [&](TransitionAttr transition) {
        want(transition.getDecay());
        for (ArrayRef<StringAttr> list :
             {transition.getKeys(), transition.getValues(),
              transition.getVectors()})
          for (StringAttr name : list)
            want(name.getValue());
      };
      if (auto read = dyn_cast<ReadBufferOp>(op)) {
        buffer = read.getBuffer();
        want(read.getKey());
        want(read.getValue());
        want(read.getDecay());
      } else if (auto each = dyn_cast<FoldBufferOp>(op)) {
        buffer = each.getBuffer();
        want(each.getKey());
        want(each.getValue());
        want(each.getDecay());
      } else if (auto product = dyn_cast<DecayProductOp>(op)) {
        buffer = product.getBuffer();
        want(product.getDecay());
      } else if (auto transport = dyn_cast<TransportOp>(op)) {
        buffer = transport.getBuffer();
        wantAll(transport.getTransition());
      } else if (auto replay = dyn_cast<ReplayOp>(op)) {
        buffer = replay.getBuffer();
        wantAll(replay.getTransition());
      }
      for (StringRef name : names) {
        auto type = cast<BufferType>(buffer.getType());
        size_t index = llvm::find_if(type.getFields(),
                                     [&](FieldAttr field) {
                                       return field.getName() == name;
                                     }) -
                       type.getFields().begin();
        wanted.insert({cast<BlockArgument>(buffer).getArgNumber(), index});
      }
    });
  for (auto [argument, index] : wanted)
    stageField(step.getBody().getArgument(argument), index);
  gatherFields();
}

static void waitFor(ImplicitLocOpBuilder &b, Value counter, Value zero) {
  if (!counter.use_empty())
    memref::DmaWaitOp::create(b, counter, ValueRange{zero}, zero);
}

/// Waits for entries, and for what threads copy themselves.
void GpuKernel::waitForEntries() {
  for (const std::function<void()> &copy : lateCopies)
    copy();
  if (gathers)
    nvgpu::DeviceAsyncWaitOp::create(
        b,
        nvgpu::DeviceAsyncCreateGroupOp::create(
            b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ValueRange()),
        IntegerAttr());
  else if (!lateCopies.empty())
    barrier();
  lateCopies.clear();
  if (entryCopies)
    waitFor(b, entryCopies, constantIndex(0));
}

void GpuKernel::waitForStates() {
  if (hasPieces())
    return waitForStages(1);
  if (copies)
    waitFor(b, copies, constantIndex(0));
}
