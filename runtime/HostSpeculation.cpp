//===- HostSpeculation.cpp - drafts become history, or nothing ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Drafts lie behind the committed entries of their slot. To accept some of them
// is to put their places first in the slot's order, and to count them; to
// reject the others is nothing.
//
//===----------------------------------------------------------------------===//

#include "runtime/HostPool.h"
#include "runtime/Text.h"

#include <algorithm>
#include <array>
#include <cstring>

using namespace ladle;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

//===----------------------------------------------------------------------===//
// Drafts of a slot
//===----------------------------------------------------------------------===//

Status HostCursors::checkCommitted(int32_t slot) const {
  if (pending(slot) == 0)
    return Status();
  return invalid(fmt::format("slot {} has {} drafts that are not committed; "
                             "commit them first, 0 to reject all",
                             slot, pending(slot)));
}

Status HostCursors::checkVerified(int32_t slot) const {
  if (Status status = checkMoved(slot); !status)
    return status;
  if (pending(slot) == 0)
    return Status();
  for (const Pool::Impl *pool : pools)
    if (!static_cast<const HostPool *>(pool)->hasVerified(slot))
      return invalid(fmt::format(
          "slot {} has {} drafts that the layer of a pool of '{}' has not "
          "verified; all pools that share cursors verify them first",
          slot, pending(slot), pool->signature.name));
  return Status();
}

Status HostCursors::checkSame(int32_t slot, const Drafts &given) const {
  const Branches &branch = branches[slot];
  if (pending(slot) != given.count)
    return invalid(fmt::format(
        "slot {} gets {} drafts, and {} by another layer that shares its "
        "cursor; commit those first, 0 to reject all",
        slot, given.count, pending(slot)));
  for (int32_t draft = 0; draft < given.count; ++draft)
    if (int32_t parent = parentsOf(slot)[draft];
        parent != given.parentOf(draft))
      return invalid(fmt::format(
          "draft {} of slot {} has the parent {}, and {} by another layer that "
          "shares its cursor",
          draft, slot, given.parentOf(draft), parent));
  if (branch.inStates != given.inStates)
    return invalid(fmt::format(
        "the drafts of slot {} are {}, and {} by another layer that shares its "
        "cursor; verify by routes of one kind",
        slot, given.inStates ? "states" : "entries",
        branch.inStates ? "states" : "entries"));
  return Status();
}

void HostCursors::append(int32_t slot, const Drafts &given) {
  if (pending(slot))
    return;
  for (int64_t draft = 0; draft < given.count; ++draft)
    parents[slot * drafts + draft] = given.parentOf(draft);
  all[slot].length += given.count;
  branches[slot].inStates = given.inStates;
  branches[slot].folds = given.folds;
  branches[slot].round = ++rounds;
}

void HostCursors::land(int32_t slot) {
  if (!branches[slot].folds)
    return;
  branches[slot].folds = false;
  Cursor &cursor = all[slot];
  cursor = {(cursor.base + cursor.committed) % capacity, pending(slot), 0,
            cursor.epoch + 1};
  spendReserved(slot, capacity);
  trimPages(slot);
}

Status HostCursors::settle(int32_t slot) {
  if (Status status = checkCommitted(slot); !status)
    return status;
  if (Status status = checkMoved(slot); !status)
    return status;
  Branches &branch = branches[slot];
  auto move = [&](const std::vector<Pool::Impl::Array> &arrays, int32_t index,
                  int32_t version) {
    for (const Pool::Impl::Array &array : arrays)
      if (version != 0)
        std::memcpy(array.slot(index), array.slot(index, version),
                    static_cast<size_t>(array.slotBytes()));
  };
  for (const Pool::Impl *pool : pools) {
    move(pool->carries, slot, branch.carryVersion);
    move(pool->states, stateOf(slot), branch.stateVersion);
  }
  branch = {};
  return Status();
}

//===----------------------------------------------------------------------===//
// Commit
//===----------------------------------------------------------------------===//

/// That `path` goes from the root of a slot's tree to one of its drafts.
static Status checkPath(std::span<const int32_t> path, size_t offset,
                        std::span<const int32_t> parents, int32_t slot) {
  int32_t before = -1;
  for (size_t i = 0; i < path.size(); ++i) {
    int32_t draft = path[i];
    auto name = [&] { return fmt::format("accepted[{}]", offset + i); };
    if (draft < 0 || draft >= static_cast<int32_t>(parents.size()))
      return invalid(fmt::format("{} is {}, wanted one of the {} drafts of "
                                 "slot {}",
                                 name(), draft, parents.size(), slot));
    if (parents[draft] != before)
      return invalid(fmt::format(
          "{} is draft {} of slot {}, whose parent is {}, wanted {}", name(),
          draft, slot, parents[draft],
          before < 0 ? "one without a parent"
                     : fmt::format("a child of draft {}", before)));
    before = draft;
  }
  return Status();
}

Status HostCursors::accept(std::span<const int32_t> named,
                           std::span<const int32_t> numAccepted,
                           std::span<const int32_t> accepted, void *) {
  static constexpr auto first = [] {
    std::array<int32_t, maxDrafts> all{};
    for (int32_t i = 0; i < maxDrafts; ++i)
      all[i] = i;
    return all;
  }();
  auto pathOf = [&](size_t i, size_t offset) {
    auto count = static_cast<size_t>(numAccepted[i]);
    return accepted.empty() ? std::span(first).first(count)
                            : accepted.subspan(offset, count);
  };
  int64_t call = ++calls;
  size_t offset = 0;
  for (size_t i = 0; i < named.size(); ++i) {
    int32_t slot = named[i], count = numAccepted[i];
    if (isPadding(slot))
      continue;
    if (writers[slot].call == call)
      return invalid(fmt::format("slots[{}] and slots[{}] are both {}, wanted "
                                 "each slot once",
                                 writers[slot].row, i, slot));
    writers[slot] = {call, static_cast<int64_t>(i)};
    if (count < 0 || count > pending(slot))
      return invalid(fmt::format("numAccepted[{}] is {}, wanted 0 to {}, the "
                                 "drafts of slot {}",
                                 i, count, pending(slot), slot));
    if (!accepted.empty() && offset + count > accepted.size())
      return invalid(fmt::format("accepted has {} drafts, wanted as many as "
                                 "numAccepted says, {} up to slots[{}]",
                                 accepted.size(), offset + count, i));
    if (Status status = checkPath(
            pathOf(i, offset), offset,
            std::span(parentsOf(slot), drafts ? pending(slot) : 0), slot);
        !status)
      return status;
    if (Status status = checkVerified(slot); !status)
      return invalid(fmt::format("slots[{}]: {}", i, status.message()));
    offset += count;
  }
  if (!accepted.empty() && offset != accepted.size())
    return invalid(fmt::format("accepted has {} drafts, wanted as many as "
                               "numAccepted says, {}",
                               accepted.size(), offset));

  offset = 0;
  for (size_t i = 0; i < named.size(); ++i) {
    int32_t slot = named[i];
    if (isPadding(slot) || pending(slot) == 0)
      continue;
    std::span<const int32_t> path = pathOf(i, offset);
    offset += path.size();
    acceptRow(slot, path);
  }
  return Status();
}

void HostCursors::acceptRow(int32_t slot, std::span<const int32_t> path) {
  land(slot);
  Cursor &cursor = all[slot];
  Branches &branch = branches[slot];
  if (!branch.inStates) {
    auto place = [&](int64_t draft) -> int32_t & {
      return order[slot * capacity +
                   (cursor.base + cursor.committed + draft) % capacity];
    };
    std::array<int32_t, maxDrafts> places{};
    int64_t count = pending(slot), next = 0;
    for (int32_t draft : path)
      places[next++] = place(draft);
    for (int32_t draft = 0; draft < count; ++draft)
      if (!std::binary_search(path.begin(), path.end(), draft))
        places[next++] = place(draft);
    for (int64_t draft = 0; draft < count; ++draft)
      place(draft) = places[draft];
    cursor.committed += static_cast<int64_t>(path.size());
  } else if (!path.empty()) {
    branch.stateVersion =
        static_cast<int32_t>(versionOf(path.back(), branch.stateVersion));
    ++cursor.epoch;
  }
  cursor.length = cursor.committed;
  spendReserved(slot, static_cast<int64_t>(path.size()));
  trimPages(slot);
  if (!path.empty())
    branch.carryVersion =
        static_cast<int32_t>(versionOf(path.back(), branch.carryVersion));
  branch.inStates = false;
}
