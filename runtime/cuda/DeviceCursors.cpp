//===- DeviceCursors.cpp - cursors in the memory of a GPU -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceCursors.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/Range.h"

using namespace ladle;

static constexpr int64_t cursorBytes = 2 * sizeof(int32_t);

Status DeviceCursors::begin() {
  constexpr int64_t number = sizeof(int32_t);
  struct {
    cuda::Memory &memory;
    int64_t bytes;
  } wanted[] = {{positions, slots * cursorBytes},
                {epochs, slots * number},
                {thresholds, number},
                {staged, slots * number}};
  for (auto &[memory, bytes] : wanted) {
    Result<cuda::Memory> made = cuda::Memory::allocate(code->device, bytes);
    if (!made)
      return made.status();
    memory = std::move(*made);
    if (Status status = memory.fill(0); !status)
      return status;
  }
  Result<cuda::HostWord> word = cuda::HostWord::allocate(code->device);
  if (!word)
    return word.status();
  fault = std::move(*word);
  return Status();
}

Status DeviceCursors::markWritten() {
  return code->device.fillInt(epochs.address(), 1, slots, nullptr);
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
  return Cursor{numbers[0], numbers[1], numbers[1], epoch};
}

Status DeviceCursors::write(int32_t slot, const Cursor &cursor, void *stream) {
  assert(cursor.base == 0 && cursor.length == 0 && "only empty rings are set");
  if (Status status = code->device.fillInt(
          positions.address() + slot * cursorBytes, 0, 2, stream);
      !status)
    return status;
  return code->device.fillInt(epochs.address() + slot * sizeof(int32_t),
                              static_cast<int32_t>(cursor.epoch), 1, stream);
}

Status DeviceCursors::moveThreshold(void *stream) {
  return code->device.fillInt(thresholds.address(),
                              static_cast<int32_t>(threshold), 1, stream);
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
  uint64_t addresses[] = {addressOf(move.reads), addressOf(move.writes),
                          positions.address(),   epochs.address(),
                          thresholds.address(),  fault.address()};
  int32_t numbers[] = {padSlot, static_cast<int32_t>(move.rows),
                       static_cast<int32_t>(capacity),
                       static_cast<int32_t>(move.kind)};
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
      {threads, 1, 1}, values, stream);
}

Status DeviceCursors::takeFault() {
  int32_t found = fault.take();
  if (found == 0)
    return Status();
  return Status(
      ErrorCode::InvalidArgument,
      fmt::format("an earlier step decoded slot {} by route 'kv_only' after "
                  "its entries had been folded, and its answer ignores the "
                  "state: once a row has folded, decode by withRoute(Inner)",
                  found - 1));
}
