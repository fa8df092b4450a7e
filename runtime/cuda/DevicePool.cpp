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
#include "runtime/cuda/Range.h"

#include <algorithm>

using namespace ladle;

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
  if (array.stride > kMaxStride)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("'{}' has the slot stride {}, wanted at most {} "
                              "on {}",
                              array.spec.name, array.stride, kMaxStride,
                              toString(device)));
  if (array.data && !code->device.isReachable(array.data))
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("memory of '{}' at {} is not memory of {}",
                              array.spec.name, array.data, toString(device)));
  return Status();
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

Result<bool> DevicePool::canFold(const Program &program,
                                 std::span<const int32_t> list) const {
  if (findFold(program) && program.getImpl().fields == fieldSpecs &&
      program.capacity() == capacity && program.page() == page)
    return true;
  for (int32_t slot : list) {
    Result<Cursor> cursor = positions().read(slot);
    if (!cursor)
      return cursor.status();
    if (cursor->length > 0)
      return Status(
          ErrorCode::InvalidArgument,
          fmt::format("slot {} holds {} entries, which no route of '{}' folds",
                      slot, cursor->length, program.signature().name));
  }
  return false;
}

Status DevicePool::fold(const Program &program, std::span<const int32_t> list,
                        void *stream) {
  const RouteKernels *route = findFold(program);
  cuda::CurrentContext current(*code->device.context());
  cuda::Range range(fmt::format("ladle {} {} flush", program.signature().name,
                                toString(route->route))
                        .c_str());
  KernelArguments arguments(*route, program.signature(), *this,
                            {0, program.signature().heads});
  arguments.setSlots(addressOf(list.data()), addressOf(list.data()));
  return arguments.launch(std::span(&*route->gpu->fold, 1),
                          static_cast<int64_t>(list.size()), stream);
}
