//===- DeviceCursors.cpp - cursors in the memory of a GPU -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceCursors.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/DevicePool.h"
#include "runtime/cuda/Range.h"

#include <algorithm>

using namespace ladle;

static constexpr int64_t number = sizeof(int32_t);
static constexpr int64_t cursorBytes = 2 * number;

namespace {
/// An array with so many bytes a slot.
struct SlotArray {
  cuda::Memory DeviceCursors::*memory;
  int64_t bytes;
};
} // namespace

static std::vector<SlotArray> slotArrays(int64_t capacity, int64_t drafts,
                                         int64_t table, bool byChunk) {
  std::vector<SlotArray> arrays{{&DeviceCursors::positions, cursorBytes},
                                {&DeviceCursors::epochs, number},
                                {&DeviceCursors::staged, number}};
  if (drafts) {
    arrays.push_back({&DeviceCursors::order, capacity * number});
    arrays.push_back({&DeviceCursors::versions, number});
    arrays.push_back({&DeviceCursors::waiting, number});
  }
  if (table) {
    arrays.push_back({&DeviceCursors::pageTable, (table + 1) * number});
    arrays.push_back({&DeviceCursors::stateTable, number});
  }
  if (table || byChunk)
    arrays.push_back({&DeviceCursors::prompts, number});
  return arrays;
}

int64_t DeviceCursors::slotBytes(int64_t capacity, int64_t drafts) {
  int64_t bytes = 0;
  for (const SlotArray &array :
       slotArrays(capacity, drafts, /*table=*/0, /*byChunk=*/false))
    bytes += array.bytes;
  return bytes;
}

Result<uint64_t> DeviceCursors::reserve(MemoryOfHeads &all, int64_t firstHead,
                                        int64_t bytes) {
  auto [begin, end] = all.equal_range(firstHead);
  for (auto each = begin; each != end; ++each)
    if (each->second.bytes() >= bytes)
      return each->second.address();
  Result<cuda::Memory> made = cuda::Memory::allocate(code->device, bytes);
  if (!made)
    return made.status();
  if (Status status = made->fill(0); !status)
    return status;
  return all.emplace(firstHead, std::move(*made))->second.address();
}

Status DeviceCursors::begin() {
  auto allocate = [&](cuda::Memory &memory, int64_t bytes) {
    Result<cuda::Memory> made = cuda::Memory::allocate(code->device, bytes);
    if (!made)
      return made.status();
    memory = std::move(*made);
    return memory.fill(0);
  };
  if (Status status = allocate(thresholds, 2 * number); !status)
    return status;
  for (const SlotArray &array :
       slotArrays(capacity, drafts, page ? tableSize() : 0, fixedThreshold > 0))
    if (Status status = allocate(this->*array.memory, slots * array.bytes);
        !status)
      return status;
  Result<cuda::HostWord> word = cuda::HostWord::allocate(code->device);
  if (!word)
    return word.status();
  fault = std::move(*word);
  if (page) {
    freePages = Blocks(pages);
    pagesOfSlots.assign(static_cast<size_t>(slots * tableSize()), -1);
    if (states) {
      freeStates = Blocks(*states);
      statesOfSlots.assign(static_cast<size_t>(slots), -1);
    }
    if (Status status = uploadBlocks(0, slots, nullptr); !status)
      return status;
  }
  if (!drafts)
    return Status();
  std::vector<int32_t> places(static_cast<size_t>(slots * capacity));
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int32_t>(i % static_cast<size_t>(capacity));
  if (Status status = code->device.upload(
          order.address(), places.data(),
          static_cast<int64_t>(places.size()) * number, nullptr);
      !status)
    return status;
  return code->device.synchronize(nullptr);
}

Status DeviceCursors::markWritten() {
  if (Status status = code->device.fillInt(epochs.address(), 1, slots, nullptr);
      !status)
    return status;
  return code->device.synchronize(nullptr);
}

Result<Cursor> DeviceCursors::read(int32_t slot) const {
  if (Status status = code->device.synchronize(); !status)
    return status;
  int32_t numbers[2], epoch;
  if (Status status = positions.read(numbers, cursorBytes, slot * cursorBytes);
      !status)
    return status;
  if (Status status = epochs.read(&epoch, sizeof(epoch),
                                  slot * static_cast<int64_t>(sizeof(epoch)));
      !status)
    return status;
  Cursor cursor{numbers[0], numbers[1], numbers[1], epoch};
  if (!drafts)
    return cursor;
  Result<int32_t> left = readNumber(waiting, slot);
  if (!left)
    return left.status();
  // A cursor that layers share hears of the fold at the commit.
  if (*left >= folded && !isShared)
    cursor = {(cursor.base + cursor.length) % capacity, 0, 0, cursor.epoch + 1};
  cursor.length += *left % folded;
  return cursor;
}

Result<int32_t> DeviceCursors::readNumber(const cuda::Memory &memory,
                                          int32_t slot) const {
  int32_t number = 0;
  if (Status status = memory.read(&number, sizeof(number),
                                  slot * static_cast<int64_t>(sizeof(number)));
      !status)
    return status;
  return number;
}

Status DeviceCursors::checkCommitted(int32_t slot) const {
  if (!drafts)
    return Status();
  if (Status status = code->device.synchronize(); !status)
    return status;
  Result<int32_t> left = readNumber(waiting, slot);
  if (!left)
    return left.status();
  if (*left == 0)
    return Status();
  return Status(ErrorCode::InvalidArgument,
                fmt::format("slot {} has {} drafts that are not committed; "
                            "commit them first, 0 to reject all",
                            slot, *left % folded));
}

Status DeviceCursors::settle(int32_t slot) {
  if (Status status = checkCommitted(slot); !status || !drafts)
    return status;
  Result<int32_t> version = readNumber(versions, slot);
  if (!version || *version == 0)
    return version ? Status() : version.status();
  std::vector<std::byte> bytes;
  for (const Pool::Impl *pool : pools) {
    std::vector<Pool::Impl::Array> arrays = pool->carries;
    std::copy_if(
        pool->states.begin(), pool->states.end(), std::back_inserter(arrays),
        [](const Pool::Impl::Array &array) { return array.versions > 1; });
    for (const Pool::Impl::Array &array : arrays) {
      const auto &memory = static_cast<const DevicePool &>(*pool);
      bytes.resize(static_cast<size_t>(array.slotBytes()));
      if (Status status = memory.code->device.download(
              bytes.data(), addressOf(array.slot(slot, *version)),
              array.slotBytes(), nullptr);
          !status)
        return status;
      if (Status status = memory.code->device.upload(
              addressOf(array.slot(slot)), bytes.data(), array.slotBytes(),
              nullptr);
          !status)
        return status;
      if (Status status = memory.code->device.synchronize(nullptr); !status)
        return status;
    }
  }
  if (Status status = code->device.fillInt(
          versions.address() + slot * sizeof(int32_t), 0, 1, nullptr);
      !status)
    return status;
  return code->device.synchronize(nullptr);
}

Status DeviceCursors::write(int32_t slot, const Cursor &cursor, void *stream) {
  assert(cursor.base == 0 && cursor.length == 0 && "only empty rings are set");
  if (Status status = code->device.fillInt(
          positions.address() + slot * cursorBytes, 0, 2, stream);
      !status)
    return status;
  if (drafts)
    for (const cuda::Memory *memory : {&versions, &waiting})
      if (Status status = code->device.fillInt(
              memory->address() + slot * sizeof(int32_t), 0, 1, stream);
          !status)
        return status;
  return code->device.fillInt(epochs.address() + slot * sizeof(int32_t),
                              static_cast<int32_t>(cursor.epoch), 1, stream);
}

Status DeviceCursors::resetRows(std::span<const int32_t> list, void *stream) {
  if (list.empty())
    return Status();
  cuda::CurrentContext current(*code->device.context());
  cuda::Range range("ladle reset");
  uint64_t rows = addressOf(list.data());
  int32_t pad = padSlot;
  auto count = static_cast<int32_t>(list.size());
  uint64_t table = page ? stateTable.address() : 0;
  auto clear = [&](const Pool::Impl::Array &array, bool isState) {
    constexpr int64_t part = sizeof(uint16_t);
    uint64_t held = isState ? table : 0, to = addressOf(array.data);
    int64_t stride =
        array.stride * array.versions * sizeInBytes(array.spec.dtype) / part;
    int64_t size = array.slotBytes() / part;
    const cuda::Kernel &kernel = code->clearRows;
    unsigned threads = kernel.info().threads;
    // 32 stores of a thread.
    int64_t most = 1024, each = 256 * threads;
    auto parts = static_cast<int32_t>(std::min(most, (size + each - 1) / each));
    void *values[] = {&rows, &held, &to, &stride, &size, &pad, &parts};
    return kernel.launch(
        {static_cast<unsigned>(count), static_cast<unsigned>(parts), 1},
        {threads, 1, 1}, values, stream);
  };
  for (const Pool::Impl *pool : pools) {
    for (const Pool::Impl::Array &array : pool->states)
      if (Status status = array.count ? clear(array, true) : Status(); !status)
        return status;
    for (const Pool::Impl::Array &array : pool->carries)
      if (Status status = clear(array, false); !status)
        return status;
  }
  uint64_t addresses[] = {rows,
                          positions.address(),
                          epochs.address(),
                          drafts ? versions.address() : 0,
                          drafts ? waiting.address() : 0,
                          table,
                          page || fixedThreshold ? prompts.address() : 0};
  void *values[std::size(addresses) + 2];
  void **next = values;
  for (uint64_t &address : addresses)
    *next++ = &address;
  *next++ = &pad;
  *next++ = &count;
  const cuda::Kernel &kernel = code->resetCursors;
  unsigned threads = kernel.info().threads;
  return kernel.launch(
      {(static_cast<unsigned>(count) + threads - 1) / threads, 1, 1},
      {threads, 1, 1}, values, stream);
}

/// Without a stream to order it: between the steps before and those after.
Status DeviceCursors::moveThreshold(void *stream) {
  Cursor empty, written{0, 0, 0, 1};
  if (!stream)
    if (Status status = code->device.synchronize(); !status)
      return status;
  for (int64_t i : {0, 1}) {
    // Without states nothing folds.
    int64_t limit = hasStates() ? limitOf(i ? empty : written) : INT32_MAX;
    if (Status status =
            code->device.fillInt(thresholds.address() + i * sizeof(int32_t),
                                 static_cast<int32_t>(limit), 1, stream);
        !status)
      return status;
  }
  return stream ? Status() : code->device.synchronize(nullptr);
}

Result<const int32_t *> DeviceCursors::stage(std::span<const int32_t> slots,
                                             void *stream) {
  const cuda::Device &device = code->device;
  Result<bool> isCapturing = device.isCapturing(stream);
  if (!isCapturing)
    return isCapturing.status();
  Status status;
  if (!*isCapturing)
    status = device.upload(staged.address(), slots.data(),
                           static_cast<int64_t>(slots.size_bytes()), stream);
  // A graph would read the list when the caller's is long gone; what memory is
  // filled with is part of it.
  for (size_t i = 0; *isCapturing && status && i < slots.size(); ++i)
    status = device.fillInt(staged.address() + i * sizeof(int32_t), slots[i], 1,
                            stream);
  if (!status)
    return status;
  return static_cast<const int32_t *>(pointerTo(staged.address()));
}

Status DeviceCursors::move(const CursorMove &move, void *stream) {
  // Without a buffer all cursors stay at nothing.
  if (capacity == 0)
    return Status();
  uint64_t addresses[] = {addressOf(move.reads),
                          addressOf(move.writes),
                          positions.address(),
                          epochs.address(),
                          thresholds.address(),
                          fault.address(),
                          drafts ? waiting.address() : 0,
                          drafts ? order.address() : 0,
                          page ? pageTable.address() : 0,
                          page ? stateTable.address() : 0,
                          page || fixedThreshold ? prompts.address() : 0};
  int32_t numbers[] = {padSlot,
                       static_cast<int32_t>(move.rows),
                       static_cast<int32_t>(capacity),
                       static_cast<int32_t>(move.kind),
                       static_cast<int32_t>(page),
                       static_cast<int32_t>(room())};
  void *values[std::size(addresses) + std::size(numbers)];
  void **next = values;
  for (uint64_t &address : addresses)
    *next++ = &address;
  for (int32_t &number : numbers)
    *next++ = &number;
  cuda::CurrentContext current(*code->device.context());
  cuda::Range range("ladle cursors");
  const cuda::Kernel &advance = code->advanceCursors;
  unsigned threads = advance.info().threads;
  return advance.launch(
      {(static_cast<unsigned>(move.rows) + threads - 1) / threads, 1, 1},
      {threads, 1, 1}, values, stream, /*early=*/true);
}

Status DeviceCursors::accept(std::span<const int32_t> list,
                             std::span<const int32_t> numAccepted,
                             std::span<const int32_t> accepted, void *stream) {
  if (drafts == 0)
    return Status(ErrorCode::InvalidArgument,
                  "the program was compiled without drafts; set "
                  "CompileOptions::drafts to the most of a row");
  if (Status status = takeFault(); !status)
    return status;
  if (list.empty())
    return Status();
  CursorMove::Kind kind = isShared ? endStep() : verifiedBy;
  uint64_t addresses[] = {addressOf(list.data()),
                          addressOf(numAccepted.data()),
                          accepted.empty() ? 0 : addressOf(accepted.data()),
                          positions.address(),
                          epochs.address(),
                          order.address(),
                          versions.address(),
                          waiting.address(),
                          fault.address(),
                          page ? pageTable.address() : 0,
                          page ? stateTable.address() : 0};
  int32_t numbers[] = {padSlot,
                       static_cast<int32_t>(list.size()),
                       static_cast<int32_t>(capacity),
                       static_cast<int32_t>(drafts),
                       static_cast<int32_t>(kind),
                       static_cast<int32_t>(page),
                       static_cast<int32_t>(room())};
  void *values[std::size(addresses) + std::size(numbers)];
  void **next = values;
  for (uint64_t &address : addresses)
    *next++ = &address;
  for (int32_t &number : numbers)
    *next++ = &number;
  cuda::CurrentContext current(*code->device.context());
  cuda::Range range("ladle commit");
  const cuda::Kernel &commit = code->commitDrafts;
  unsigned threads = commit.info().threads, rows = threads / 32;
  return commit.launch(
      {(static_cast<unsigned>(list.size()) + rows - 1) / rows, 1, 1},
      {threads, 1, 1}, values, stream, /*early=*/true);
}

Status DeviceCursors::checkWaits(void *stream, std::string_view call) const {
  Result<bool> isCapturing = code->device.isCapturing(stream);
  if (!isCapturing)
    return isCapturing.status();
  if (!*isCapturing)
    return Status();
  return Status(ErrorCode::Unsupported,
                fmt::format("{} is captured, and has to wait for the device to "
                            "know what slots hold: reserve before, and capture "
                            "{}Rows",
                            call, call));
}

Status DeviceCursors::takeFault() {
  int32_t found = fault.take();
  if (found == 0)
    return Status();
  int32_t slot = found / 4;
  switch (found % 4) {
  case NoPage:
    return Status(
        ErrorCode::ResourceExhausted,
        fmt::format("an earlier step appended an entry to slot {}, which had "
                    "no page for it: the entry is not there, nor may those of "
                    "other slots be; take pages before (Cursors::reserve)",
                    slot));
  case NoState:
    return Status(
        ErrorCode::ResourceExhausted,
        fmt::format("an earlier step wanted a state for slot {}, which had "
                    "none of its own{}: take states before (Cursors::reserve)",
                    slot, hasStates() ? "" : " (CursorOptions::states is 0)"));
  default:
    return Status(
        ErrorCode::InvalidArgument,
        fmt::format("an earlier step decoded slot {} by route 'kv_only' after "
                    "its entries had been folded, and its answer ignores the "
                    "state: once a row has folded, decode by withRoute(Inner)",
                    slot));
  }
}
