//===- EvictingSlots.cpp - what heads of a cache hold ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/EvictingSlots.h"

#include <algorithm>
#include <cstring>

using namespace ladle;

EvictingSlots::EvictingSlots(AttentionPoolImpl &pool)
    : pool(pool), bounded(*pool.program.bounded),
      first(bounded.memory == BoundedMemory::None ? 0 : 4) {}

EvictionNumbers EvictingSlots::numbers() const {
  return {bounded.sinks, bounded.recent, bounded.queries, bounded.variance,
          bounded.pool};
}

EvictingSlots::Head EvictingSlots::head(int32_t slot, int64_t head) const {
  int64_t at = slot * pool.program.cacheHeads + head, room = bounded.capacity;
  auto memory = [&](size_t which) {
    return pool.bounded[first + which].memory.data();
  };
  Head result;
  result.held = static_cast<int64_t *>(memory(0)) + at;
  result.order = static_cast<int32_t *>(memory(1)) + at * room;
  result.positions = static_cast<int64_t *>(memory(2)) + at * room;
  if (!bounded.observes)
    return result;
  int64_t rows = std::max<int64_t>(bounded.queries, 1);
  result.weights = static_cast<float *>(memory(3)) + at * rows * room;
  if (bounded.queries)
    result.seen = static_cast<int64_t *>(memory(4)) + at;
  return result;
}

void EvictingSlots::clear(int32_t slot) {
  std::vector<RingArray> shapes = boundedArrays(pool.program);
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t bytes = shapes[i].elementBytes;
    for (int64_t size : shapes[i].shape)
      bytes *= size;
    std::memset(static_cast<char *>(pool.bounded[i].memory.data()) +
                    slot * bytes,
                0, static_cast<size_t>(bytes));
  }
}

Candidates EvictingSlots::candidates(int32_t slot, int64_t which,
                                     int64_t length) const {
  Head head = this->head(slot, which);
  Candidates result;
  int64_t rows = head.weights ? 1 : 0;
  if (head.seen)
    rows = std::min(*head.seen, bounded.queries);
  for (int64_t i = 0; i < *head.held; ++i) {
    int64_t position = head.positions[head.order[i]];
    result.positions.push_back(position);
    result.seen.push_back(std::min(rows, length - position));
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < *head.held; ++i)
      result.weights.push_back(
          head.weights[row * bounded.capacity + head.order[i]]);
  return result;
}

std::vector<int32_t> EvictingSlots::compact(int32_t slot, int64_t which,
                                            std::span<const int32_t> kept) {
  Head head = this->head(slot, which);
  auto count = static_cast<int32_t>(kept.size());
  std::vector<int32_t> entries(kept.size(), -1);
  std::vector<bool> isTaken(kept.size(), false);
  for (int32_t i = 0; i < count; ++i)
    if (kept[i] < *head.held && head.order[kept[i]] < count) {
      entries[i] = head.order[kept[i]];
      isTaken[entries[i]] = true;
    }
  int32_t free = 0;
  int64_t at = slot * pool.program.cacheHeads + which;
  for (int32_t i = 0; i < count; ++i) {
    if (entries[i] >= 0)
      continue;
    while (isTaken[free])
      ++free;
    entries[i] = free++;
    if (kept[i] >= *head.held)
      continue;
    for (auto [array, size] :
         {std::pair{&pool.keys, pool.program.keySize},
          std::pair{&pool.values, pool.program.valueSize}}) {
      int64_t bytes = size * array->elementBytes;
      char *memory = static_cast<char *>(array->memory.data()) +
                     at * bounded.capacity * bytes;
      std::memcpy(memory + entries[i] * bytes,
                  memory + head.order[kept[i]] * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  std::copy(entries.begin(), entries.end(), head.order);
  *head.held = count;
  return entries;
}
