//===- AttentionBranches.cpp - sequences with a prefix in common ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keys and values of a full page change no more: any number of slots may hold
// it. The page that the next token goes to is its slot's alone, so that kernels
// need not know of branches: a fork copies a page that is not full, and so does
// a cut to the middle of one that others hold as well.
//
//===----------------------------------------------------------------------===//

#include "runtime/Arguments.h"
#include "runtime/AttentionPool.h"
#include "runtime/cuda/DeviceAttention.h"

#include <cstring>
#include <fmt/format.h>
#include <map>

using namespace ladle;

//===----------------------------------------------------------------------===//
// Pages
//===----------------------------------------------------------------------===//

void AttentionPoolImpl::takePage(int32_t slot) {
  int32_t page = freePages.back();
  freePages.pop_back();
  holders[static_cast<size_t>(page)] = 1;
  tableOf(slot)[cursors[slot].pages++] = page;
}

void AttentionPoolImpl::givePage(int32_t page) {
  if (--holders[static_cast<size_t>(page)] == 0)
    freePages.push_back(page);
}

void AttentionPoolImpl::keepPages(int32_t slot, int64_t count) {
  for (int64_t &pages = cursors[slot].pages; pages > count;)
    givePage(tableOf(slot)[--pages]);
}

/// Pages that nobody holds any more when these slots keep the first so many.
int64_t AttentionPoolImpl::pagesGiven(std::span<const int32_t> ofSlots,
                                      int64_t kept) {
  std::map<int32_t, int32_t> given;
  int64_t count = 0;
  for (int32_t slot : ofSlots)
    for (int64_t i = kept; i < cursors[slot].pages; ++i) {
      int32_t page = tableOf(slot)[i];
      count += ++given[page] == holders[static_cast<size_t>(page)];
    }
  return count;
}

Status AttentionPoolImpl::checkFree(int64_t wanted, int64_t given) const {
  auto free = static_cast<int64_t>(freePages.size()) + given;
  if (wanted <= free)
    return Status();
  return Status(
      ErrorCode::ResourceExhausted,
      fmt::format("the call needs {} pages, {} are free", wanted, free));
}

/// A slot of a device may be longer than its pages (takeFault).
bool AttentionPoolImpl::isShared(int32_t slot, int64_t page) {
  return page < cursors[slot].pages &&
         holders[static_cast<size_t>(tableOf(slot)[page])] > 1;
}

void AttentionPoolImpl::Array::copy(int64_t from, int64_t to) {
  auto *bytes = static_cast<std::byte *>(memory.data());
  std::memcpy(bytes + to * outerBytes, bytes + from * outerBytes,
              static_cast<size_t>(outerBytes));
}

/// Keys and values of a page, or of a slot of a bounded cache.
Status AttentionPoolImpl::copyPage(int32_t from, int32_t to) {
  if (device)
    return device->copyPage(from, to);
  keys.copy(from, to);
  values.copy(from, to);
  return Status();
}

/// Of the first page that the slot shares and that is to be its own.
Status AttentionPoolImpl::takeCopy(int32_t slot, int64_t page) {
  int32_t &entry = tableOf(slot)[page];
  int32_t copy = freePages.back();
  if (Status status = copyPage(entry, copy); !status)
    return status;
  freePages.pop_back();
  holders[static_cast<size_t>(copy)] = 1;
  givePage(entry);
  entry = copy;
  return Status();
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

/// What a slot has besides pages: rings, or a bounded cache.
Status AttentionPoolImpl::copySlot(int32_t from, int32_t to) {
  if (device)
    return device->copySlot(from, to);
  for (std::vector<Array> *arrays : {&rings, &bounded})
    for (Array &array : *arrays)
      array.copy(from, to);
  return program.bounded ? copyPage(from, to) : Status();
}

/// Of a slot without pages: it holds what another holds.
Status AttentionPoolImpl::sharePages(int32_t from, int32_t to, int64_t length) {
  int64_t full = length / program.pageSize;
  for (int64_t i = 0; i < full; ++i) {
    int32_t page = tableOf(from)[i];
    ++holders[static_cast<size_t>(page)];
    tableOf(to)[i] = page;
  }
  cursors[to].pages = full;
  if (length % program.pageSize == 0)
    return Status();
  takePage(to);
  return copyPage(tableOf(from)[full], tableOf(to)[full]);
}

Status AttentionPool::fork(std::span<const int32_t> from,
                           std::span<const int32_t> to) {
  if (Status status = checkBranches(
          from, to, [&](int32_t slot) { return impl->checkSlot(slot); });
      !status)
    return status;
  if (Status status = impl->takeFault(); !status)
    return status;
  std::vector<AttentionPoolImpl::Cursor> found;
  int64_t copies = 0;
  bool hasPages = !impl->program.bounded;
  for (int32_t slot : from) {
    Result<AttentionPoolImpl::Cursor> cursor = impl->read(slot);
    if (!cursor)
      return cursor.status();
    found.push_back(*cursor);
    copies += hasPages && cursor->length % impl->program.pageSize != 0;
  }
  if (hasPages) {
    if (Status status = impl->checkFree(copies, impl->pagesGiven(to, 0));
        !status)
      return status;
    for (int32_t slot : to)
      impl->keepPages(slot, 0);
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (hasPages) {
      if (Status status = impl->sharePages(from[i], to[i], found[i].length);
          !status)
        return status;
      found[i].pages = impl->cursors[to[i]].pages;
    }
    if (Status status = impl->copySlot(from[i], to[i]); !status)
      return status;
    if (!hasPages)
      impl->cursors[to[i]] = found[i];
    else if (Status status = impl->write(to[i], found[i]); !status)
      return status;
  }
  return Status();
}
