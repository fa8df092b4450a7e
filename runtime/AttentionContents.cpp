//===- AttentionContents.cpp - sequences leave and enter a cache ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What leaves is one block of bytes: where the slot stands, its keys and
// values, [heads, tokens, ...] whatever the pages, and its rings. Kernels of a
// GPU lay a bounded cache out for themselves, and so is its block.
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionPool.h"
#include "runtime/cuda/DeviceAttention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/ranges.h>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

namespace {

/// Bytes of a slot that are copied as they are, from one place or to it.
class SlotBytes {
public:
  SlotBytes(AttentionPoolImpl &pool, int32_t slot) : pool(pool), slot(slot) {}

  std::string layout() const;
  int64_t count(int64_t length);
  /// Reads all that the slot has, or writes it; pages are there already.
  Status move(std::byte *data, int64_t length, bool isImport);

private:
  using Array = AttentionPoolImpl::Array;
  /// One slot of an array of the host, or of a device.
  struct Part {
    Array *host = nullptr;
    cuda::Memory *device = nullptr;
    int64_t bytes = 0;
    bool isNarrow = false; ///< 32 bits of the device are 64 of the block
  };

  const AttentionProgramImpl &made() const { return pool.program; }
  int64_t keyBytes() const {
    return made().keySize * sizeInBytes(made().keyType);
  }
  int64_t valueBytes() const {
    return made().valueSize * sizeInBytes(made().valueType);
  }
  std::vector<Part> parts();
  Status moveAt(const Part &part, int64_t at, std::byte *data, int64_t bytes,
                bool isImport);
  Status moveWide(const Part &part, std::byte *data, bool isImport);
  Status movePages(const Part &part, int64_t tokenBytes, std::byte *data,
                   int64_t length, bool isImport);

  AttentionPoolImpl &pool;
  int32_t slot;
};

} // namespace

/// What the slots of two pools have to agree in, for a person to read.
std::string SlotBytes::layout() const {
  std::string text =
      fmt::format("{} heads with keys of {} {} and values of {} {}",
                  made().cacheHeads, made().keySize, toString(made().keyType),
                  made().valueSize, toString(made().valueType));
  if (made().bounded) {
    text += fmt::format(", {} entries of {}", made().bounded->capacity,
                        pool.device ? "a GPU" : "the CPU");
    for (const RingArray &array : boundedArrays(made())) {
      text += fmt::format(", {} bytes", array.elementBytes);
      for (int64_t size : array.shape)
        text += fmt::format(" x {}", size);
    }
  } else if (made().hasRing) {
    text += fmt::format(
        ", rings of {} for {} heads with queries of {} and {} summaries of {}",
        pool.window, made().signature.heads, toString(made().queryType),
        made().parts, toString(made().summaryType));
    if (made().isRotated)
      text += ", rotated queries";
    if (made().estimates)
      text += ", moments";
  }
  return text;
}

/// All but pages.
std::vector<SlotBytes::Part> SlotBytes::parts() {
  std::vector<Part> result;
  if (made().bounded) {
    if (!pool.device) {
      for (Array *array : {&pool.keys, &pool.values})
        result.push_back({array, nullptr, array->outerBytes});
      for (Array &array : pool.bounded)
        result.push_back({&array, nullptr, array.outerBytes});
      return result;
    }
    DeviceAttentionPool &device = *pool.device;
    std::vector<cuda::Memory *> all{&device.cursors, &device.keys,
                                    &device.values};
    for (auto &[name, ring] : device.rings)
      all.push_back(&ring);
    for (cuda::Memory *memory : all)
      result.push_back({nullptr, memory, memory->bytes() / pool.slots});
    return result;
  }
  if (!pool.device) {
    for (Array &ring : pool.rings)
      result.push_back({&ring, nullptr, ring.outerBytes});
    return result;
  }
  for (const std::string &name : ringNames(made())) {
    cuda::Memory &memory = pool.device->rings.at(name);
    result.push_back(
        {nullptr, &memory, memory.bytes() / pool.slots, name == "ring_ends"});
  }
  return result;
}

int64_t SlotBytes::count(int64_t length) {
  int64_t bytes = 0;
  if (!made().bounded)
    bytes += made().cacheHeads * length * (keyBytes() + valueBytes());
  for (const Part &part : parts())
    bytes += part.isNarrow ? 2 * part.bytes : part.bytes;
  return bytes;
}

Status SlotBytes::moveAt(const Part &part, int64_t at, std::byte *data,
                         int64_t bytes, bool isImport) {
  if (part.device)
    return isImport ? part.device->write(data, bytes, at)
                    : part.device->read(data, bytes, at);
  std::byte *memory = static_cast<std::byte *>(part.host->memory.data()) + at;
  std::memcpy(isImport ? memory : data, isImport ? data : memory,
              static_cast<size_t>(bytes));
  return Status();
}

Status SlotBytes::moveWide(const Part &part, std::byte *data, bool isImport) {
  std::vector<int32_t> narrow(static_cast<size_t>(part.bytes) /
                              sizeof(int32_t));
  auto *bytes = reinterpret_cast<std::byte *>(narrow.data());
  for (size_t i = 0; isImport && i < narrow.size(); ++i) {
    int64_t number = 0;
    std::memcpy(&number, data + i * sizeof number, sizeof number);
    narrow[i] = static_cast<int32_t>(number);
  }
  if (Status status =
          moveAt(part, slot * part.bytes, bytes, part.bytes, isImport);
      !status || isImport)
    return status;
  for (size_t i = 0; i < narrow.size(); ++i) {
    int64_t number = narrow[i];
    std::memcpy(data + i * sizeof number, &number, sizeof number);
  }
  return Status();
}

/// Pages that lie side by side are read, or written, at once.
Status SlotBytes::movePages(const Part &part, int64_t tokenBytes,
                            std::byte *data, int64_t length, bool isImport) {
  constexpr int64_t mostPages = 256;
  int64_t heads = made().cacheHeads, page = made().pageSize;
  int64_t ofHead = page * tokenBytes, ofPage = heads * ofHead;
  int64_t count = pool.pagesFor(length);
  const int32_t *table = pool.tableOf(slot);
  std::vector<std::byte> run;
  for (int64_t first = 0, pages = 0; first < count; first += pages) {
    pages = 1;
    while (first + pages < count && pages < mostPages &&
           table[first + pages] == table[first] + pages)
      ++pages;
    run.assign(static_cast<size_t>(pages * ofPage), std::byte(0));
    auto spread = [&] {
      for (int64_t i = 0; i < pages; ++i)
        for (int64_t head = 0; head < heads; ++head) {
          int64_t begin = (first + i) * page;
          std::byte *inPage = run.data() + i * ofPage + head * ofHead;
          std::byte *inBlock = data + (head * length + begin) * tokenBytes;
          std::memcpy(
              isImport ? inPage : inBlock, isImport ? inBlock : inPage,
              static_cast<size_t>(std::min(page, length - begin) * tokenBytes));
        }
    };
    if (isImport)
      spread();
    if (Status status = moveAt(part, table[first] * ofPage, run.data(),
                               pages * ofPage, isImport);
        !status)
      return status;
    if (!isImport)
      spread();
  }
  return Status();
}

Status SlotBytes::move(std::byte *data, int64_t length, bool isImport) {
  if (!made().bounded)
    for (auto [host, device, tokenBytes] :
         {std::tuple(&pool.keys, pool.device ? &pool.device->keys : nullptr,
                     keyBytes()),
          {&pool.values, pool.device ? &pool.device->values : nullptr,
           valueBytes()}}) {
      if (Status status =
              movePages({host, device}, tokenBytes, data, length, isImport);
          !status)
        return status;
      data += made().cacheHeads * length * tokenBytes;
    }
  for (const Part &part : parts()) {
    Status status = part.isNarrow ? moveWide(part, data, isImport)
                                  : moveAt(part, slot * part.bytes, data,
                                           part.bytes, isImport);
    if (!status)
      return status;
    data += part.isNarrow ? 2 * part.bytes : part.bytes;
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// AttentionPool
//===----------------------------------------------------------------------===//

/// Where a slot stands, in the order of a block; its length is not in it.
static std::array<int64_t *, 7> numbersOf(AttentionPoolImpl::Cursor &cursor) {
  return {&cursor.entries,  &cursor.amended,  &cursor.band,  &cursor.sinks,
          &cursor.wideBand, &cursor.segments, &cursor.budget};
}

/// What no slot can have written. Bytes are trusted to be what they were.
static Status checkNumbers(const AttentionProgramImpl &made,
                           AttentionPoolImpl::Cursor &cursor) {
  bool isRight = true;
  for (const int64_t *number : numbersOf(cursor))
    isRight &= *number >= 0;
  isRight &= std::max(cursor.entries, cursor.amended) <= cursor.length;
  if (made.bounded)
    isRight &= cursor.budget <= made.bounded->budget &&
               cursor.segments <= cursor.length;
  if (isRight)
    return Status();
  return Status(
      ErrorCode::InvalidData,
      fmt::format(
          "contents have numbers {}, which no slot of {} "
          "tokens has",
          fmt::join({cursor.entries, cursor.amended, cursor.band, cursor.sinks,
                     cursor.wideBand, cursor.segments, cursor.budget},
                    ", "),
          cursor.length));
}

Result<AttentionContents> AttentionPool::exportSlot(int32_t slot) {
  Result<AttentionPoolImpl::Cursor> cursor = impl->settle(slot);
  if (!cursor)
    return cursor.status();
  SlotBytes bytes(*impl, slot);
  AttentionContents contents{bytes.layout(), cursor->length, {}, {}};
  for (int64_t *number : numbersOf(*cursor))
    contents.numbers.push_back(*number);
  contents.data.resize(static_cast<size_t>(bytes.count(cursor->length)));
  if (Status status = bytes.move(contents.data.data(), cursor->length,
                                 /*isImport=*/false);
      !status)
    return status;
  return contents;
}

Status AttentionPool::importSlot(int32_t slot,
                                 const AttentionContents &contents) {
  Result<AttentionPoolImpl::Cursor> cursor = impl->settle(slot);
  if (!cursor)
    return cursor.status();
  SlotBytes bytes(*impl, slot);
  if (std::string mine = bytes.layout(); contents.layout != mine)
    return invalid(
        fmt::format("contents have {}, wanted {}", contents.layout, mine));
  int64_t length = contents.length;
  if (length < 0 || length > impl->maxTokens())
    return invalid(fmt::format("contents have {} tokens, wanted 0 to {}",
                               length, impl->maxTokens()));
  auto numbers = numbersOf(*cursor);
  auto size = static_cast<int64_t>(contents.data.size());
  if (contents.numbers.size() != numbers.size() || size != bytes.count(length))
    return Status(ErrorCode::InvalidData,
                  fmt::format("contents are {} numbers and {} bytes, wanted {} "
                              "and {}",
                              contents.numbers.size(), size, numbers.size(),
                              bytes.count(length)));
  for (size_t i = 0; i < numbers.size(); ++i)
    *numbers[i] = contents.numbers[i];
  cursor->length = length;
  if (Status status = checkNumbers(impl->program, *cursor); !status)
    return status;
  bool hasPages = !impl->program.bounded;
  if (hasPages) {
    if (Status status = impl->checkFree(impl->pagesFor(length),
                                        impl->pagesGiven({&slot, 1}, 0));
        !status)
      return status;
    impl->keepPages(slot, 0);
    while (impl->cursors[slot].pages < impl->pagesFor(length))
      impl->takePage(slot);
  }
  cursor->pages = impl->cursors[slot].pages;
  // What is written is what was read.
  auto *data = const_cast<std::byte *>(contents.data.data());
  if (Status status = bytes.move(data, length, /*isImport=*/true); !status)
    return status;
  if (hasPages)
    return impl->write(slot, *cursor);
  impl->cursors[slot] = *cursor;
  return Status();
}
