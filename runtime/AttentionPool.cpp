//===- AttentionPool.cpp - pages and rings of slots -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionPool.h"
#include "runtime/EvictingSlots.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceAttention.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// AttentionProgram
//===----------------------------------------------------------------------===//

AttentionProgram::AttentionProgram(AttentionProgramImpl made)
    : impl(std::make_shared<const AttentionProgramImpl>(std::move(made))) {}

const Signature &AttentionProgram::signature() const { return impl->signature; }
const AttentionSettings &AttentionProgram::settings() const {
  return impl->settings;
}
int64_t AttentionProgram::cacheHeads() const { return impl->cacheHeads; }
int64_t AttentionProgram::pageSize() const { return impl->pageSize; }
bool AttentionProgram::isBounded() const { return impl->bounded.has_value(); }
int64_t AttentionProgram::capacity() const {
  return impl->bounded ? impl->bounded->capacity : 0;
}
bool AttentionProgram::reuses() const { return impl->hasRing; }
bool AttentionProgram::hasDrift() const { return impl->isRotated; }
bool AttentionProgram::hasWideBand() const { return impl->parts == 2; }
DeviceId AttentionProgram::device() const { return impl->device; }
const std::string &AttentionProgram::warnings() const { return impl->warnings; }
const std::string &AttentionProgram::manifest() const { return impl->manifest; }

static int64_t countOf(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                         std::multiplies<>());
}

std::vector<RingArray> ladle::ringArrays(const AttentionProgramImpl &program,
                                         int64_t window) {
  if (!program.hasRing)
    return {};
  int64_t heads = program.signature.heads;
  std::vector<int64_t> queries{heads, window, program.keySize};
  int64_t queryBytes = sizeInBytes(program.queryType);
  std::vector<RingArray> arrays{{queryBytes, queries}};
  if (program.isRotated)
    arrays.push_back({queryBytes, queries});
  arrays.push_back({sizeInBytes(program.summaryType),
                    {heads, program.parts, window, program.valueSize}});
  arrays.push_back({sizeof(float), {heads, program.parts, window}});
  arrays.push_back({sizeof(int32_t), {heads, window}});
  if (program.parts == 2)
    arrays.push_back({sizeof(int64_t), {heads, window}});
  if (program.estimates)
    arrays.push_back({sizeof(float), {heads, 2}});
  return arrays;
}

std::vector<RingArray>
ladle::boundedArrays(const AttentionProgramImpl &program) {
  const BoundedProgram &bounded = *program.bounded;
  int64_t heads = program.cacheHeads, size = bounded.memoryKeySize;
  int64_t f32 = sizeof(float), i64 = sizeof(int64_t);
  std::vector<RingArray> arrays;
  if (bounded.memory != BoundedMemory::None) {
    arrays.push_back(
        {sizeInBytes(bounded.memoryType), {heads, size, program.valueSize}});
    arrays.push_back({f32, {heads, size}});
  }
  if (bounded.memory == BoundedMemory::Taylor) {
    arrays.push_back({f32, {heads, program.valueSize}});
    arrays.push_back({f32, {heads, 2}});
  }
  if (bounded.kind == BoundedKind::Segmented)
    return arrays;
  arrays.push_back({i64, {heads}});
  arrays.push_back({sizeof(int32_t), {heads, bounded.capacity}});
  arrays.push_back({i64, {heads, bounded.capacity}});
  if (bounded.observes && bounded.queries) {
    arrays.push_back({f32, {heads, bounded.queries, bounded.capacity}});
    arrays.push_back({i64, {heads}});
  } else if (bounded.observes) {
    arrays.push_back({f32, {heads, bounded.capacity}});
  }
  return arrays;
}

SegmentSettings AttentionProgram::segments() const {
  if (!impl->bounded || impl->bounded->kind != BoundedKind::Segmented)
    return {};
  return {impl->bounded->sinks, impl->bounded->window, impl->bounded->segment};
}
DType AttentionProgram::memoryType() const {
  return impl->bounded ? impl->bounded->memoryType : DType::F32;
}

int64_t AttentionProgram::slotBytes() const {
  if (!impl->bounded)
    return 0;
  int64_t bytes = impl->cacheHeads * impl->bounded->capacity *
                  (impl->keySize * sizeInBytes(impl->keyType) +
                   impl->valueSize * sizeInBytes(impl->valueType));
  for (const RingArray &array : boundedArrays(*impl))
    bytes += array.elementBytes * countOf(array.shape);
  return bytes;
}

int64_t AttentionProgram::ringBytes(int64_t window) const {
  int64_t bytes = 0;
  for (const RingArray &array : ringArrays(*impl, window))
    bytes += array.elementBytes * countOf(array.shape);
  return bytes;
}

//===----------------------------------------------------------------------===//
// AttentionPool
//===----------------------------------------------------------------------===//

static void describe(AttentionPoolImpl::Array &array, int64_t outer,
                     const std::vector<int64_t> &shape) {
  std::vector<int64_t> sizes{outer};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  array.descriptor.allocated = array.descriptor.aligned = array.memory.data();
  std::vector<int64_t> strides = denseStrides(sizes);
  std::copy(sizes.begin(), sizes.end(), array.descriptor.sizesAndStrides);
  std::copy(strides.begin(), strides.end(),
            array.descriptor.sizesAndStrides + sizes.size());
}

static Status allocate(AttentionPoolImpl::Array &array, int64_t outer,
                       const std::vector<int64_t> &shape,
                       int64_t elementBytes) {
  int64_t bytes = outer;
  for (int64_t factor : shape)
    if (__builtin_mul_overflow(bytes, factor, &bytes))
      bytes = INT64_MAX;
  if (__builtin_mul_overflow(bytes, elementBytes, &bytes) ||
      !array.memory.allocate(bytes))
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("no memory for {} times {} of {} bytes", outer,
                              shapeText(shape), elementBytes));
  array.elementBytes = elementBytes;
  array.outerBytes = bytes / outer;
  describe(array, outer, shape);
  return Status();
}

/// Takes memory for so many elements, if there is any: vectors throw, and
/// nothing here does.
template <typename T> static bool canHold(std::vector<T> &list, int64_t count) {
  constexpr auto most =
      static_cast<int64_t>(PTRDIFF_MAX / static_cast<ptrdiff_t>(sizeof(T)));
  if (count > most)
    return false;
  try {
    list.reserve(static_cast<size_t>(count));
  } catch (const std::bad_alloc &) {
    return false;
  }
  return true;
}

/// Slots that hold all they ever will.
static Result<std::unique_ptr<AttentionPoolImpl>>
makeBounded(const AttentionProgramImpl &made,
            const AttentionPoolOptions &options) {
  for (auto [name, value] :
       {std::pair{"pages", options.pages}, {"window", options.window}})
    if (value)
      return invalid(fmt::format("{} is {}, wanted 0: the cache of '{}' is "
                                 "bounded",
                                 name, value, made.signature.name));
  if (options.maxTokens < 0)
    return invalid(
        fmt::format("maxTokens is {}, wanted 0 at least", options.maxTokens));
  const BoundedProgram &bounded = *made.bounded;
  auto impl = std::make_unique<AttentionPoolImpl>();
  impl->program = made;
  impl->slots = options.slots;
  impl->mostTokens = options.maxTokens ? options.maxTokens : INT64_MAX;
  AttentionPoolImpl::Cursor empty;
  empty.budget = bounded.budget;
  if (!canHold(impl->cursors, options.slots))
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("no memory for {} slots", options.slots));
  impl->cursors.assign(static_cast<size_t>(options.slots), empty);
  if (made.gpu) {
    Result<std::unique_ptr<DeviceAttentionPool>> device =
        DeviceAttentionPool::create(*impl);
    if (!device)
      return device.status();
    impl->device = std::move(*device);
    return impl;
  }
  int64_t heads = made.cacheHeads, capacity = bounded.capacity;
  if (Status status =
          allocate(impl->keys, options.slots, {heads, capacity, made.keySize},
                   sizeInBytes(made.keyType));
      !status)
    return status;
  if (Status status = allocate(impl->values, options.slots,
                               {heads, capacity, made.valueSize},
                               sizeInBytes(made.valueType));
      !status)
    return status;
  for (const RingArray &array : boundedArrays(made))
    if (Status status = allocate(impl->bounded.emplace_back(), options.slots,
                                 array.shape, array.elementBytes);
        !status)
      return status;
  return impl;
}

Result<AttentionPool>
AttentionPool::create(const AttentionProgram &program,
                      const AttentionPoolOptions &options) {
  const AttentionProgramImpl &made = program.getImpl();
  if (options.slots < 1 || options.slots > INT32_MAX)
    return invalid(
        fmt::format("slots is {}, wanted 1 to {}", options.slots, INT32_MAX));
  if (made.bounded) {
    auto bounded = makeBounded(made, options);
    if (!bounded)
      return bounded.status();
    return AttentionPool(std::move(*bounded));
  }
  if (options.pages < 1 || options.pages > INT32_MAX)
    return invalid(
        fmt::format("pages is {}, wanted 1 to {}", options.pages, INT32_MAX));
  for (auto [name, count] :
       {std::pair{"maxTokens", options.maxTokens}, {"window", options.window}})
    if (count < 0)
      return invalid(fmt::format("{} is {}, wanted 0 at least", name, count));
  auto impl = std::make_unique<AttentionPoolImpl>();
  impl->program = made;
  impl->slots = options.slots;
  impl->pages = options.pages;
  impl->window = options.window ? options.window : made.settings.window;
  int64_t room = options.pages * made.pageSize;
  impl->mostTokens =
      options.maxTokens ? std::min(options.maxTokens, room) : room;
  impl->pagesOfSlot = impl->pagesFor(impl->mostTokens);
  int64_t places = 0;
  if (__builtin_mul_overflow(options.slots, impl->pagesOfSlot, &places) ||
      !canHold(impl->cursors, options.slots) || !canHold(impl->table, places) ||
      !canHold(impl->freePages, options.pages) ||
      !canHold(impl->holders, options.pages))
    return Status(ErrorCode::ResourceExhausted,
                  fmt::format("no memory for the tables of {} slots of {} "
                              "pages, of {} in all; set maxTokens",
                              options.slots, impl->pagesOfSlot, options.pages));
  impl->cursors.resize(static_cast<size_t>(options.slots));
  impl->table.resize(static_cast<size_t>(places));
  impl->holders.resize(static_cast<size_t>(options.pages));
  // The first pages are taken first.
  for (int64_t page = options.pages; page-- > 0;)
    impl->freePages.push_back(static_cast<int32_t>(page));
  if (made.gpu) {
    Result<std::unique_ptr<DeviceAttentionPool>> device =
        DeviceAttentionPool::create(*impl);
    if (!device)
      return device.status();
    impl->device = std::move(*device);
    return AttentionPool(std::move(impl));
  }
  MemoryDescriptor &table = impl->tableDescriptor;
  table.allocated = table.aligned = impl->table.data();
  const int64_t sizes[] = {options.slots, impl->pagesOfSlot, impl->pagesOfSlot,
                           1};
  std::copy(std::begin(sizes), std::end(sizes), table.sizesAndStrides);
  if (Status status = allocate(impl->keys, options.pages,
                               {made.cacheHeads, made.pageSize, made.keySize},
                               sizeInBytes(made.keyType));
      !status)
    return status;
  if (Status status = allocate(impl->values, options.pages,
                               {made.cacheHeads, made.pageSize, made.valueSize},
                               sizeInBytes(made.valueType));
      !status)
    return status;
  for (const RingArray &ring : ringArrays(made, impl->window))
    if (Status status = allocate(impl->rings.emplace_back(), options.slots,
                                 ring.shape, ring.elementBytes);
        !status)
      return status;
  return AttentionPool(std::move(impl));
}

AttentionPool::AttentionPool(std::unique_ptr<AttentionPoolImpl> impl)
    : impl(std::move(impl)) {}
AttentionPool::AttentionPool(AttentionPool &&) noexcept = default;
AttentionPool &AttentionPool::operator=(AttentionPool &&) noexcept = default;
AttentionPool::~AttentionPool() = default;

int64_t AttentionPool::slots() const { return impl->slots; }
int64_t AttentionPool::freePages() const {
  return static_cast<int64_t>(impl->freePages.size());
}
AttentionPoolImpl::AttentionPoolImpl() = default;
AttentionPoolImpl::~AttentionPoolImpl() = default;

int64_t AttentionPool::length(int32_t slot) const {
  Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
  return cursor ? cursor->length : 0;
}
int64_t AttentionPool::keptTokens(int32_t slot) const {
  Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
  if (!cursor || !impl->program.bounded)
    return cursor ? cursor->length : 0;
  const BoundedProgram &bounded = *impl->program.bounded;
  if (bounded.kind == BoundedKind::Evicting)
    return static_cast<int64_t>(keptPositions(slot, 0).size());
  return cursor->length - cursor->segments * bounded.segment;
}
int64_t AttentionPool::budget(int32_t slot) const {
  Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
  return cursor ? cursor->budget : 0;
}
std::vector<int64_t> AttentionPool::keptPositions(int32_t slot,
                                                  int64_t head) const {
  const AttentionProgramImpl &made = impl->program;
  if (!impl->checkSlot(slot) || head < 0 || head >= made.cacheHeads ||
      !made.bounded || made.bounded->kind != BoundedKind::Evicting)
    return {};
  if (impl->device)
    return impl->device->keptPositions(slot, head);
  if (impl->cursors[slot].length == 0)
    return {};
  return EvictingSlots(*impl)
      .candidates(slot, head, impl->cursors[slot].length)
      .positions;
}
int64_t AttentionPool::ringEntries(int32_t slot) const {
  Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
  return cursor ? cursor->entries : 0;
}

Status AttentionPoolImpl::checkSlot(int32_t slot) const {
  if (slot >= 0 && slot < slots)
    return Status();
  return invalid(
      fmt::format("slot {} is out of range, wanted 0 to {}", slot, slots - 1));
}

Result<AttentionPoolImpl::Cursor> AttentionPoolImpl::read(int32_t slot) const {
  if (Status status = checkSlot(slot); !status)
    return status;
  return device ? device->read(slot, cursors[slot]) : cursors[slot];
}

Status AttentionPoolImpl::write(int32_t slot, const Cursor &cursor) {
  cursors[slot] = cursor;
  return device ? device->write(slot, cursor, tableOf(slot)) : Status();
}

Status AttentionPool::reset(std::span<const int32_t> slots) {
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i] >= 0)
      if (Status status = impl->checkSlot(slots[i]); !status)
        return invalid(fmt::format("slots[{}]: {}", i, status.message()));
  for (int32_t slot : slots) {
    if (slot < 0)
      continue;
    impl->keepPages(slot, 0);
    AttentionPoolImpl::Cursor empty;
    if (impl->program.bounded)
      empty.budget = impl->program.bounded->budget;
    if (Status status = impl->write(slot, empty); !status)
      return status;
  }
  return Status();
}

Status AttentionPool::truncate(int32_t slot, int64_t length) {
  Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
  if (!cursor)
    return cursor.status();
  int64_t most = cursor->length;
  if (length < 0 || length > most)
    return invalid(fmt::format("length is {}, wanted 0 to the {} tokens of "
                               "slot {}",
                               length, most, slot));
  if (impl->program.bounded) {
    if (Status status = impl->checkTruncation(slot, *cursor, length); !status)
      return status;
    cursor->length = length;
    return impl->write(slot, *cursor);
  }
  return impl->cut(slot, *cursor, length);
}

/// What the ring holds of tokens that stay, stays; without any it begins anew.
Status AttentionPoolImpl::cut(int32_t slot, Cursor cursor, int64_t length) {
  int64_t dropped = cursor.length - length;
  // The page of the next token is to be the slot's own.
  int64_t last = length / program.pageSize, kept = pagesFor(length);
  bool copies = length % program.pageSize != 0 && isShared(slot, last);
  if (copies)
    if (Status status = checkFree(1, pagesGiven({&slot, 1}, kept)); !status)
      return status;
  bool isLeft = dropped == 0 || dropped < cursor.entries;
  if (dropped > 0 && isLeft && program.estimates)
    if (Status status = dropMoments(slot, cursor, length); !status)
      return status;
  keepPages(slot, kept);
  if (copies)
    if (Status status = takeCopy(slot, last); !status)
      return status;
  cursor.entries = isLeft ? cursor.entries - dropped : 0;
  cursor.amended = isLeft ? cursor.amended - dropped : 0;
  cursor.length = length;
  cursor.pages = cursors[slot].pages;
  return write(slot, cursor);
}

/// Tokens that came without a page are nowhere, and nor is what came later.
Result<std::vector<std::string>> AttentionPoolImpl::cutLost() {
  std::vector<std::string> lost;
  for (int32_t slot = 0; slot < slots; ++slot) {
    Result<Cursor> cursor = read(slot);
    if (!cursor)
      return cursor.status();
    int64_t room = cursors[slot].pages * program.pageSize;
    if (cursor->length <= room)
      continue;
    lost.push_back(fmt::format("slot {} to {}", slot, room));
    if (Status status = cut(slot, *cursor, room); !status)
      return status;
  }
  return lost;
}

Status AttentionPoolImpl::takeFault() {
  int32_t found = device ? device->fault.take() : 0;
  if (found == 0)
    return Status();
  Result<std::vector<std::string>> lost = cutLost();
  if (!lost) {
    // Nobody can look while a graph is captured, say: the next one does.
    device->fault.put(found);
    return lost.status();
  }
  if (lost->empty()) // Whoever lost something has been reset since.
    return Status();
  return Status(
      ErrorCode::ResourceExhausted,
      fmt::format("earlier steps answered tokens that had no page; what has a "
                  "page is left: {} tokens; take pages before "
                  "(AttentionPool::reserve)",
                  fmt::join(*lost, ", ")));
}

Result<AttentionPoolImpl::Cursor> AttentionPoolImpl::settle(int32_t slot) {
  Status status = takeFault();
  return status ? read(slot) : status;
}

/// What has left a cache does not come back, and what tokens have noted of
/// those that a cache may evict is not taken back.
Status AttentionPoolImpl::checkTruncation(int32_t slot, const Cursor &cursor,
                                          int64_t length) const {
  const BoundedProgram &bounded = *program.bounded;
  if (length == cursor.length)
    return Status();
  bool evicts = bounded.kind == BoundedKind::Evicting;
  int64_t least = evicts ? cursor.length
                  : cursor.segments
                      ? bounded.sinks + cursor.segments * bounded.segment
                      : 0;
  if (length >= least)
    return Status();
  return invalid(fmt::format("length is {}, wanted {} to the {} tokens of slot "
                             "{}: {}",
                             length, least, cursor.length, slot,
                             evicts ? "tokens have noted weights in a cache "
                                      "that evicts; reset the slot"
                                    : "what has left the cache does not come "
                                      "back"));
}

Status AttentionPool::invalidateRings(std::span<const int32_t> slots) {
  for (int32_t slot : slots)
    if (Status status = impl->checkSlot(slot); !status)
      return status;
  for (int32_t slot : slots) {
    Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
    if (!cursor)
      return cursor.status();
    cursor->entries = cursor->amended = 0;
    if (Status status = impl->write(slot, *cursor); !status)
      return status;
  }
  return Status();
}

Status AttentionPool::reserve(std::span<const int32_t> slots, int64_t tokens) {
  if (tokens < 0)
    return invalid(fmt::format("tokens is {}, wanted 0 at least", tokens));
  if (Status status = impl->takeFault(); !status)
    return status;
  std::vector<AttentionPoolImpl::Cursor> found;
  std::vector<bool> seen(static_cast<size_t>(impl->slots));
  int64_t more = 0;
  for (int32_t slot : slots) {
    Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
    if (!cursor)
      return cursor.status();
    if (seen[slot])
      return invalid(fmt::format("slot {} is named twice, wanted each slot "
                                 "once",
                                 slot));
    seen[slot] = true;
    if (tokens > impl->maxTokens() - cursor->length)
      return invalid(fmt::format("slot {} holds {} tokens and gets {}, wanted "
                                 "{} at most",
                                 slot, cursor->length, tokens,
                                 impl->maxTokens()));
    if (impl->program.bounded)
      continue;
    more += std::max<int64_t>(0, impl->pagesFor(cursor->length + tokens) -
                                     cursor->pages);
    found.push_back(*cursor);
  }
  if (Status status = impl->checkFree(more, 0); !status)
    return status;
  for (size_t i = 0; i < found.size(); ++i) {
    bool isMore = false;
    while (impl->cursors[slots[i]].pages <
           impl->pagesFor(found[i].length + tokens)) {
      impl->takePage(slots[i]);
      isMore = true;
    }
    found[i].pages = impl->cursors[slots[i]].pages;
    if (isMore)
      if (Status status = impl->write(slots[i], found[i]); !status)
        return status;
  }
  return Status();
}
