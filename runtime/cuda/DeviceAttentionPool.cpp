//===- DeviceAttentionPool.cpp - pages and rings on a GPU -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Text.h"
#include "runtime/cuda/DeviceAttention.h"

#include <numeric>

using namespace ladle;

static constexpr int64_t number = sizeof(int32_t);

/// What kernels call the arrays of ringArrays.
static std::vector<std::string> ringNames(const AttentionProgramImpl &program) {
  if (!program.hasRing)
    return {};
  std::vector<std::string> names{"ring_queries"};
  if (program.isRotated)
    names.push_back("ring_rotated");
  names.insert(names.end(), {"ring_values", "ring_sums", "ring_depths"});
  if (program.parts == 2)
    names.push_back("ring_ends");
  if (program.estimates)
    names.push_back("ring_moments");
  return names;
}

Result<std::unique_ptr<DeviceAttentionPool>>
DeviceAttentionPool::create(const AttentionPoolImpl &pool) {
  const AttentionProgramImpl &made = pool.program;
  auto memory = std::make_unique<DeviceAttentionPool>();
  memory->code = made.gpu;
  memory->pagesOfSlot = pool.pagesOfSlot;
  memory->sparePage = pool.pages;
  const cuda::Device &device = made.gpu->device;
  Status status;
  auto allocate = [&](cuda::Memory &to, const std::vector<int64_t> &sizes) {
    int64_t bytes = 1;
    for (int64_t size : sizes)
      if (__builtin_mul_overflow(bytes, size, &bytes))
        bytes = INT64_MAX;
    if (!status)
      return;
    Result<cuda::Memory> result = cuda::Memory::allocate(device, bytes);
    if (result)
      to = std::move(*result);
    status = result.status();
  };
  allocate(memory->cursors, {pool.slots, cursorNumbers, number});
  allocate(memory->table, {pool.slots, pool.pagesOfSlot + 1, number});
  allocate(memory->keys, {pool.pages + 1, made.cacheHeads, made.pageSize,
                          made.keySize, sizeInBytes(made.keyType)});
  allocate(memory->values, {pool.pages + 1, made.cacheHeads, made.pageSize,
                            made.valueSize, sizeInBytes(made.valueType)});
  std::vector<RingArray> arrays = ringArrays(made, pool.window);
  std::vector<std::string> names = ringNames(made);
  for (size_t i = 0; i < arrays.size(); ++i) {
    std::vector<int64_t> sizes = arrays[i].shape;
    sizes.push_back(pool.slots);
    sizes.push_back(names[i] == "ring_ends" ? number : arrays[i].elementBytes);
    allocate(memory->rings[names[i]], sizes);
  }
  if (!status)
    return status;
  for (cuda::Memory *each : {&memory->cursors, &memory->keys, &memory->values})
    if (Status filled = each->fill(0); !filled)
      return filled;
  for (auto &[name, ring] : memory->rings)
    if (Status filled = ring.fill(0); !filled)
      return filled;
  if (Status filled = device.fillInt(
          memory->table.address(), static_cast<int32_t>(memory->sparePage),
          pool.slots * (pool.pagesOfSlot + 1), nullptr);
      !filled)
    return filled;
  Result<cuda::HostWord> word = cuda::HostWord::allocate(device);
  if (!word)
    return word.status();
  memory->fault = std::move(*word);
  if (Status done = device.synchronize(); !done)
    return done;
  return memory;
}

Result<AttentionPoolImpl::Cursor>
DeviceAttentionPool::read(int32_t slot, const Cursor &host) const {
  if (Status status = code->device.synchronize(); !status)
    return status;
  int32_t numbers[cursorNumbers];
  if (Status status =
          cursors.read(numbers, sizeof numbers, slot * int64_t(sizeof numbers));
      !status)
    return status;
  Cursor cursor = host;
  cursor.length = numbers[0];
  cursor.entries = numbers[1];
  cursor.amended = numbers[2];
  cursor.band = numbers[3];
  cursor.sinks = numbers[4];
  cursor.wideBand = numbers[5];
  return cursor;
}

Status DeviceAttentionPool::write(int32_t slot, const Cursor &cursor,
                                  const int32_t *pages) {
  if (Status status = code->device.synchronize(); !status)
    return status;
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  const int32_t numbers[cursorNumbers] = {
      narrow(cursor.length), narrow(cursor.entries), narrow(cursor.amended),
      narrow(cursor.band),   narrow(cursor.sinks),   narrow(cursor.wideBand)};
  if (Status status = cursors.write(numbers, sizeof numbers,
                                    slot * int64_t(sizeof numbers));
      !status)
    return status;
  std::vector<int32_t> row(static_cast<size_t>(pagesOfSlot + 1),
                           narrow(sparePage));
  std::copy_n(pages, cursor.pages, row.begin());
  int64_t bytes = (pagesOfSlot + 1) * number;
  if (Status status = table.write(row.data(), bytes, slot * bytes); !status)
    return status;
  return code->device.synchronize();
}

Status DeviceAttentionPool::takeFault() {
  int32_t found = fault.take();
  if (found == 0)
    return Status();
  return Status(
      ErrorCode::ResourceExhausted,
      fmt::format("an earlier step answered a token of slot {}, which had no "
                  "page for it: take pages before (AttentionPool::reserve)",
                  found - 1));
}
