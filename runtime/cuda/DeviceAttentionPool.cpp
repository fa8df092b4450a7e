//===- DeviceAttentionPool.cpp - pages and rings on a GPU -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Text.h"
#include "runtime/cuda/DeviceAttention.h"

#include <algorithm>
#include <array>
#include <numeric>

using namespace ladle;

static constexpr int64_t number = sizeof(int32_t);

/// The cursor of a head of an empty bounded cache.
static constexpr auto emptyHead = [] {
  std::array<int32_t, DeviceAttentionPool::cursorNumbers> numbers{};
  numbers[BoundedCursor::victim] = -1;
  return numbers;
}();

/// What kernels of a bounded cache call its arrays, with the elements of a
/// slot.
static std::map<std::string, int64_t>
boundedSizes(const AttentionProgramImpl &made) {
  const BoundedProgram &bounded = *made.bounded;
  int64_t heads = made.cacheHeads, stride = made.gpu->stride;
  std::map<std::string, int64_t> sizes;
  if (bounded.memory != BoundedMemory::None) {
    sizes["memory"] = heads * bounded.memoryKeySize * made.valueSize;
    sizes["memory_keys"] = heads * bounded.memoryKeySize;
  }
  if (bounded.memory == BoundedMemory::Taylor) {
    sizes["memory_values"] = heads * made.valueSize;
    sizes["memory_spread"] = heads;
  }
  if (bounded.kind == BoundedKind::Segmented)
    return sizes;
  sizes["sequence"] = sizes["token_positions"] = heads * stride;
  if (bounded.observes && bounded.queries) {
    sizes["weights"] = heads * bounded.queries * stride;
    sizes["window_sums"] = sizes["window_squares"] = heads * stride;
  } else if (bounded.observes)
    sizes["weight_sums"] = heads * stride;
  return sizes;
}

static int64_t elementBytes(const AttentionProgramImpl &made,
                            const std::string &name) {
  if (name == "memory")
    return sizeInBytes(made.bounded->memoryType);
  if (name == "weights")
    return sizeInBytes(DType::F16);
  return name == "window_squares" ? 2 * number : number;
}

std::vector<std::string> ladle::ringNames(const AttentionProgramImpl &program) {
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
  memory->slots = pool.slots;
  memory->isBounded = made.bounded.has_value();
  memory->headsOfSlot = made.bounded ? made.cacheHeads : 1;
  if (made.bounded && made.bounded->kind == BoundedKind::Segmented) {
    memory->segment = made.bounded->segment;
    memory->behindSegments = made.bounded->sinks + made.bounded->window;
    memory->firstEntries = made.bounded->sinks;
  }
  if (made.bounded) {
    memory->entries = made.bounded->capacity;
    memory->valueBytes = made.valueSize * sizeInBytes(made.valueType);
  }
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
  if (made.bounded) {
    int64_t rows = pool.slots * made.cacheHeads;
    allocate(memory->cursors, {rows, cursorNumbers, number});
    allocate(memory->keys, {rows, made.bounded->capacity, made.keySize,
                            sizeInBytes(made.keyType)});
    allocate(memory->values, {rows, made.bounded->capacity, made.valueSize,
                              sizeInBytes(made.valueType)});
    for (const auto &[name, size] : boundedSizes(made))
      allocate(memory->rings[name],
               {pool.slots, size, elementBytes(made, name)});
  } else {
    allocate(memory->cursors, {pool.slots, cursorNumbers, number});
    allocate(memory->table, {pool.slots, pool.pagesOfSlot + 1, number});
    allocate(memory->keys, {pool.pages + 1, made.cacheHeads, made.pageSize,
                            made.keySize, sizeInBytes(made.keyType)});
    allocate(memory->values, {pool.pages + 1, made.cacheHeads, made.pageSize,
                              made.valueSize, sizeInBytes(made.valueType)});
  }
  std::vector<RingArray> arrays =
      made.bounded ? std::vector<RingArray>() : ringArrays(made, pool.window);
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
  if (made.bounded) {
    // Nothing is about to leave an empty cache.
    std::vector<int32_t> all;
    for (int64_t row = 0; row < pool.slots * made.cacheHeads; ++row)
      all.insert(all.end(), emptyHead.begin(), emptyHead.end());
    if (Status filled = memory->cursors.write(
            all.data(), static_cast<int64_t>(all.size()) * number);
        !filled)
      return filled;
  } else if (Status filled =
                 device.fillInt(memory->table.address(),
                                static_cast<int32_t>(memory->sparePage),
                                pool.slots * (pool.pagesOfSlot + 1), nullptr);
             !filled) {
    return filled;
  }
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
          cursors.read(numbers, sizeof numbers,
                       slot * headsOfSlot * int64_t(sizeof numbers));
      !status)
    return status;
  Cursor cursor = host;
  cursor.length = numbers[0];
  if (isBounded) {
    // What a prompt has filled is folded by the step after it.
    int64_t full = segment ? (cursor.length - behindSegments) / segment : 0;
    cursor.segments = std::max<int64_t>(numbers[BoundedCursor::folds], full);
    if (numbers[BoundedCursor::budget])
      cursor.budget = numbers[BoundedCursor::budget];
    return cursor;
  }
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
  if (isBounded)
    return writeHeads(slot, cursor);
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

/// Heads of a cache that evicts stand each for itself: all that is written is
/// an empty slot, or one that is shorter by tokens that had not left.
Status DeviceAttentionPool::writeHeads(int32_t slot, const Cursor &cursor) {
  int64_t bytes = headsOfSlot * cursorNumbers * number, at = slot * bytes;
  std::vector<int32_t> heads(static_cast<size_t>(headsOfSlot * cursorNumbers));
  if (Status status = cursors.read(heads.data(), bytes, at); !status)
    return status;
  if (Status status =
          clearValues(slot, cursor.length, heads[BoundedCursor::length]);
      !status)
    return status;
  for (int64_t head = 0; head < headsOfSlot; ++head) {
    int32_t *numbers = heads.data() + head * cursorNumbers;
    if (cursor.length == 0)
      std::copy(emptyHead.begin(), emptyHead.end(), numbers);
    numbers[BoundedCursor::length] = static_cast<int32_t>(cursor.length);
  }
  if (Status status = cursors.write(heads.data(), bytes, at); !status)
    return status;
  return code->device.synchronize();
}

/// Kernels multiply what lies behind the last token by 0: it has to be a
/// number, whatever the sequence before had there.
Status DeviceAttentionPool::clearValues(int32_t slot, int64_t from,
                                        int64_t to) {
  if (from == 0)
    to = to > 0 ? entries : 0;
  while (from < to) {
    int64_t ring = entries - firstEntries;
    int64_t entry = from < firstEntries
                        ? from
                        : firstEntries + (from - firstEntries) % ring;
    int64_t count = std::min(to - from, entries - entry);
    for (int64_t head = 0; head < headsOfSlot; ++head) {
      int64_t at = (slot * headsOfSlot + head) * entries + entry;
      if (Status status = code->device.fill(values.address() + at * valueBytes,
                                            0, count * valueBytes, nullptr);
          !status)
        return status;
    }
    from += count;
  }
  return Status();
}

/// Of `count` parts of each memory, one to the place of another.
Status DeviceAttentionPool::copyParts(
    std::initializer_list<const cuda::Memory *> memories, int64_t count,
    int32_t from, int32_t to) const {
  for (const cuda::Memory *memory : memories) {
    int64_t bytes = memory->bytes() / count;
    if (Status status =
            code->device.copy(memory->address() + to * bytes,
                              memory->address() + from * bytes, bytes, nullptr);
        !status)
      return status;
  }
  return Status();
}

Status DeviceAttentionPool::copyPage(int32_t from, int32_t to) const {
  Status status = copyParts({&keys, &values}, sparePage + 1, from, to);
  return status ? code->device.synchronize() : status;
}

Status DeviceAttentionPool::copySlot(int32_t from, int32_t to) const {
  if (isBounded)
    if (Status status = copyParts({&cursors, &keys, &values}, slots, from, to);
        !status)
      return status;
  for (const auto &[name, ring] : rings)
    if (Status status = copyParts({&ring}, slots, from, to); !status)
      return status;
  return code->device.synchronize();
}

std::vector<int64_t> DeviceAttentionPool::keptPositions(int32_t slot,
                                                        int64_t head) const {
  int64_t row = slot * headsOfSlot + head, stride = code->stride;
  int32_t numbers[cursorNumbers];
  std::vector<int32_t> order(static_cast<size_t>(stride)), places(order);
  int64_t bytes = stride * number;
  if (Status status = code->device.synchronize(); !status)
    return {};
  for (const Status &status :
       {cursors.read(numbers, sizeof numbers, row * int64_t(sizeof numbers)),
        rings.at("sequence").read(order.data(), bytes, row * bytes),
        rings.at("token_positions").read(places.data(), bytes, row * bytes)})
    if (!status)
      return {};
  std::vector<int64_t> positions;
  for (int32_t i = 0; i < numbers[BoundedCursor::count]; ++i)
    positions.push_back(places[static_cast<size_t>(order[i])]);
  return positions;
}
