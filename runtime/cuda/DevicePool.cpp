//===- DevicePool.cpp - a pool in the memory of a GPU ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DevicePool.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/KernelArguments.h"

#include <algorithm>

using namespace ladle;

static constexpr int64_t cursorBytes = 2 * sizeof(int32_t);

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Result<std::shared_ptr<void>> DevicePool::allocate(int64_t bytes) {
  Result<cuda::Memory> memory = cuda::Memory::allocate(code->device, bytes);
  if (!memory)
    return memory.status();
  if (Status status = memory->fill(0); !status)
    return status;
  auto owner = std::make_shared<cuda::Memory>(std::move(*memory));
  return std::shared_ptr<void>(owner, pointerTo(owner->address()));
}

/// Kernels load up to 16 bytes at once, as far as a dense slot is a multiple of
/// them.
Status DevicePool::checkArray(const Array &array) const {
  constexpr int64_t widest = 16;
  int64_t dense = array.slotBytes(), element = sizeInBytes(array.spec.dtype);
  int64_t alignment = std::min(widest, dense & -dense);
  if (array.stride * element % alignment)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("'{}' has the slot stride {}, wanted a multiple "
                              "of {} on {}",
                              array.spec.name, array.stride,
                              alignment / element, toString(device)));
  if (array.data && !code->device.isReachable(array.data))
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("memory of '{}' at {} is not memory of {}",
                              array.spec.name, array.data, toString(device)));
  return Status();
}

Status DevicePool::begin(const Cursor &) {
  struct {
    cuda::Memory &memory;
    int64_t bytes;
  } wanted[] = {{cursors, slots * cursorBytes},
                {thresholds, sizeof(int32_t)},
                {flushed, slots * static_cast<int64_t>(sizeof(int32_t))}};
  for (auto &[memory, bytes] : wanted) {
    Result<cuda::Memory> made = cuda::Memory::allocate(code->device, bytes);
    if (!made)
      return made.status();
    memory = std::move(*made);
    if (Status status = memory.fill(0); !status)
      return status;
  }
  return Status();
}

Result<Cursor> DevicePool::readCursor(int32_t slot) const {
  if (Status status = code->device.synchronize(); !status)
    return status;
  int32_t numbers[2];
  if (Status status = cursors.read(numbers, cursorBytes, slot * cursorBytes);
      !status)
    return status;
  return Cursor{numbers[0], numbers[1], numbers[1], 0};
}

Status DevicePool::writeCursor(int32_t slot, const Cursor &cursor,
                               void *stream) {
  assert(cursor.base == 0 && cursor.length == 0 && "only empty rings are set");
  (void)cursor;
  return code->device.fillInt(cursors.address() + slot * cursorBytes, 0, 2,
                              stream);
}

Status DevicePool::moveThreshold(void *stream) {
  return code->device.fillInt(thresholds.address(),
                              static_cast<int32_t>(threshold), 1, stream);
}

Status DevicePool::clear(const Array &array, int32_t slot, void *stream) {
  return code->device.fill(addressOf(array.slot(slot)), 0, array.slotBytes(),
                           stream);
}

Status DevicePool::read(const Array &array, int32_t slot, void *to,
                        void *stream) const {
  return code->device.download(to, addressOf(array.slot(slot)),
                               array.slotBytes(), stream);
}

Status DevicePool::write(const Array &array, int32_t slot, const void *from,
                         void *stream) {
  if (Status status = code->device.upload(addressOf(array.slot(slot)), from,
                                          array.slotBytes(), stream);
      !status)
    return status;
  return code->device.synchronize(stream);
}

//===----------------------------------------------------------------------===//
// Flush
//===----------------------------------------------------------------------===//

/// The route whose kernel folds: the program's, or another that shares its
/// entries. That of kv_only would forget a state, and no host knows of which
/// slots; it comes last.
static const RouteKernels *findFold(const Program &program) {
  const ProgramImpl &impl = program.getImpl();
  const RouteKernels *found = nullptr;
  auto consider = [&](const RouteKernels &kernels) {
    if (kernels.usesBuffer && kernels.gpu->fold &&
        (!found || found->route == RouteKind::KvOnly))
      found = &kernels;
  };
  consider(*impl.find(program.route()));
  for (const RouteKernels &kernels : impl.routes)
    consider(kernels);
  return found;
}

Status DevicePool::refuseEntries(const Program &program,
                                 std::span<const int32_t> list) const {
  for (int32_t slot : list) {
    Result<Cursor> cursor = readCursor(slot);
    if (!cursor)
      return cursor.status();
    if (cursor->length > 0)
      return Status(
          ErrorCode::InvalidArgument,
          fmt::format("slot {} holds {} entries, which no route of '{}' folds",
                      slot, cursor->length, program.signature().name));
  }
  return Status();
}

Status DevicePool::flush(const Program &program,
                         std::span<const int32_t> wanted, void *stream) {
  if (capacity == 0)
    return Status();
  std::vector<int32_t> list;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(list),
               [&](int32_t slot) { return !isPadding(slot); });
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  if (list.empty())
    return Status();
  const RouteKernels *route = findFold(program);
  if (!route || program.getImpl().fields != fieldSpecs ||
      program.capacity() != capacity)
    return refuseEntries(program, list);

  if (Status status = code->device.upload(
          flushed.address(), list.data(),
          static_cast<int64_t>(list.size() * sizeof(int32_t)), stream);
      !status)
    return status;
  cuda::CurrentContext current(*code->device.context());
  KernelArguments arguments(*route, program.signature(), *this);
  for (size_t i = 0; i < list.size(); i += maxGpuRows) {
    uint64_t part = flushed.address() + i * sizeof(int32_t);
    arguments.setSlots(part, part);
    auto rows =
        std::min<int64_t>(maxGpuRows, static_cast<int64_t>(list.size() - i));
    if (Status status = arguments.launch(std::span(&*route->gpu->fold, 1),
                                         /*appends=*/false, rows, stream);
        !status)
      return status;
  }
  return Status();
}
