//===- HostBlocks.cpp - pages and states that slots take ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A page or a state has one number in the pools of all layers, so that one
// table serves them all. What several slots hold is copied, in all pools at
// once, before any of them writes it: layers that share the cursors then find a
// copy that is as good as what they had. States that nobody holds are zero.
//
//===----------------------------------------------------------------------===//

#include "runtime/HostPool.h"
#include "runtime/Text.h"

#include <algorithm>
#include <cstring>

using namespace ladle;

static void copyBlock(const std::vector<Pool::Impl::Array> &arrays,
                      int64_t from, int64_t to) {
  for (const Pool::Impl::Array &array : arrays)
    for (int64_t version = 0; version < array.versions; ++version)
      std::memcpy(array.slot(to, version), array.slot(from, version),
                  static_cast<size_t>(array.slotBytes()));
}

static void clearBlock(const std::vector<Pool::Impl::Array> &arrays,
                       int64_t block) {
  for (const Pool::Impl::Array &array : arrays)
    for (int64_t version = 0; version < array.versions; ++version)
      std::memset(array.slot(block, version), 0,
                  static_cast<size_t>(array.slotBytes()));
}

BlockCount HostCursors::pageCount() const {
  return {freePages.count(), freePages.free()};
}

BlockCount HostCursors::stateCount() const {
  return states ? BlockCount{freeStates.count(), freeStates.free()}
                : BlockCount{slots, 0};
}

//===----------------------------------------------------------------------===//
// Taking
//===----------------------------------------------------------------------===//

void HostCursors::findPages(int32_t slot, int64_t first, int64_t last,
                            std::vector<int32_t> &found) const {
  found.clear();
  for (int64_t position = first; position < last; ++position)
    found.push_back(static_cast<int32_t>(placeOf(slot, position) / page));
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
}

bool HostCursors::needsState(const Claim &claim) const {
  if (!states || !(claim.readsState || claim.writesState))
    return false;
  int32_t state = stateTable[claim.slot];
  return state < 0 || (claim.writesState && freeStates.isShared(state));
}

Status HostCursors::claim(std::span<const Claim> claims) {
  if (!page && !states)
    return Status();
  Blocks::Demand pageDemand(freePages), stateDemand(freeStates);
  ++claimCalls;
  for (const Claim &claim : claims) {
    // Several rows may read one slot.
    if (needsState(claim) &&
        std::exchange(counted[claim.slot], claimCalls) != claimCalls)
      stateDemand.add(stateTable[claim.slot]);
    if (!page || claim.entries == 0)
      continue;
    const int32_t *table = pagesOf(claim.slot);
    int64_t held = all[claim.slot].committed;
    findPages(claim.slot, held, held + claim.entries, wanted);
    for (int32_t index : wanted)
      pageDemand.add(table[index]);
  }
  int64_t pagesWanted = pageDemand.count();
  int64_t statesWanted = stateDemand.count();
  if (pagesWanted > freePages.free())
    return noPages(pagesWanted);
  if (statesWanted > freeStates.free())
    return noStates(statesWanted);
  for (const Claim &claim : claims) {
    if (needsState(claim))
      takeState(claim);
    if (!page || claim.entries == 0)
      continue;
    int64_t held = all[claim.slot].committed;
    findPages(claim.slot, held, held + claim.entries, wanted);
    for (int32_t index : wanted)
      takePage(claim.slot, index);
  }
  return Status();
}

Status HostCursors::claimFolds(std::span<const int32_t> list) {
  std::vector<Claim> claims;
  for (int32_t slot : list)
    if (all[slot].committed > 0 && !branches[slot].folds)
      claims.push_back({slot, 0, /*readsState=*/true, /*writesState=*/true});
  return claim(claims);
}

void HostCursors::takeState(const Claim &claim) {
  int32_t &state = stateTable[claim.slot], old = state;
  // Others may have taken copies before in this call.
  if (old >= 0 && !freeStates.isShared(old))
    return;
  state = freeStates.take();
  if (old < 0)
    return;
  for (const Pool::Impl *pool : pools)
    copyBlock(pool->states, old, state);
  freeStates.release(old); // others hold it
}

void HostCursors::takePage(int32_t slot, int32_t index) {
  int32_t &entry = pageTable[slot * tableSize() + index], old = entry;
  if (old >= 0 && !freePages.isShared(old))
    return;
  entry = freePages.take();
  if (old < 0)
    return;
  for (const Pool::Impl *pool : pools)
    copyBlock(pool->fields, old, entry);
  freePages.release(old); // others hold it
}

//===----------------------------------------------------------------------===//
// Giving back
//===----------------------------------------------------------------------===//

void HostCursors::keepClaimed(std::span<const Claim> claims) {
  for (const Claim &claim : claims)
    if (page)
      reserved[claim.slot] = std::max(reserved[claim.slot], claim.entries);
}

void HostCursors::spendReserved(int32_t slot, int64_t entries) {
  if (page)
    reserved[slot] = std::max<int64_t>(0, reserved[slot] - entries);
}

/// Rejected drafts leave what was reserved for those to come.
void HostCursors::trimPages(int32_t slot) {
  if (!page)
    return;
  Cursor &cursor = all[slot];
  findPages(slot, 0, std::min(cursor.length + reserved[slot], capacity),
            wanted);
  int32_t *table = pageTable.data() + slot * tableSize();
  for (int32_t index = 0; index < tableSize(); ++index)
    if (table[index] >= 0 &&
        !std::binary_search(wanted.begin(), wanted.end(), index)) {
      freePages.release(table[index]);
      table[index] = -1;
    }
  if (cursor.length > 0 || reserved[slot] > 0)
    return;
  cursor.base = 0;
  for (int64_t place = 0; !order.empty() && place < capacity; ++place)
    order[slot * capacity + place] = static_cast<int32_t>(place);
}

void HostCursors::releaseState(int32_t slot) {
  if (!states || stateTable[slot] < 0)
    return;
  int32_t state = std::exchange(stateTable[slot], -1);
  if (freeStates.release(state))
    for (const Pool::Impl *pool : pools)
      clearBlock(pool->states, state);
}

Status HostCursors::release(int32_t slot, void *) {
  releaseState(slot);
  all[slot].length = all[slot].committed = 0;
  spendReserved(slot, capacity);
  trimPages(slot);
  return Status();
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

void HostCursors::shareState(int32_t from, int32_t to) {
  all[to].epoch = all[from].epoch;
  branches[to].stateVersion = branches[from].stateVersion;
  if (states) {
    releaseState(to);
    stateTable[to] = stateTable[from];
    if (stateTable[to] >= 0)
      freeStates.share(stateTable[to]);
    return;
  }
  for (const Pool::Impl *pool : pools)
    copyBlock(pool->states, from, to);
}

void HostCursors::branchOff(int32_t from, int32_t to) {
  for (const Pool::Impl *pool : pools) {
    copyBlock(pool->carries, from, to);
    if (!page)
      copyBlock(pool->fields, from, to);
  }
  const int64_t epoch = all[to].epoch;
  const int32_t version = branches[to].stateVersion;
  all[to] = all[from];
  branches[to] = branches[from];
  // These are of the state, which is another matter.
  all[to].epoch = epoch;
  branches[to].stateVersion = version;
  if (!order.empty())
    std::copy_n(order.data() + from * capacity, capacity,
                order.data() + to * capacity);
  for (int64_t i = 0; i < tableSize(); ++i) {
    int32_t &mine = pageTable[to * tableSize() + i];
    int32_t theirs = pageTable[from * tableSize() + i];
    if (mine >= 0)
      freePages.release(mine);
    if (theirs >= 0)
      freePages.share(theirs);
    mine = theirs;
  }
  // What was reserved is for the one branch.
  spendReserved(to, capacity);
  trimPages(to);
}

Status HostCursors::branchOff(std::span<const int32_t> from,
                              std::span<const int32_t> to, bool withStates) {
  for (size_t i = 0; i < from.size(); ++i) {
    branchOff(from[i], to[i]);
    if (withStates)
      shareState(from[i], to[i]);
  }
  return Status();
}

Status HostCursors::cut(int32_t slot, int64_t entries,
                        std::optional<int32_t> checkpoint) {
  all[slot].length = all[slot].committed = entries;
  spendReserved(slot, capacity);
  trimPages(slot);
  if (checkpoint && *checkpoint != slot)
    shareState(*checkpoint, slot);
  return Status();
}
