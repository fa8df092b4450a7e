//===- DeviceBlocks.cpp - pages and states that slots of a GPU take -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host takes and gives back between steps, and waits for the device to see
// where slots stand. Kernels write no page and no state that others hold as
// well, which the tables tell them: whoever is about to gets a copy before.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceCursors.h"
#include "runtime/cuda/DeviceMemory.h"
#include "runtime/cuda/DevicePool.h"

#include <algorithm>

using namespace ladle;

static constexpr auto number = static_cast<int64_t>(sizeof(int32_t));

/// All versions of a state, a page or the carries of a slot.
static Status copyBlocks(const cuda::Device &device,
                         const std::vector<Pool::Impl::Array> &arrays,
                         int64_t from, int64_t to) {
  for (const Pool::Impl::Array &array : arrays)
    for (int64_t version = 0; version < array.versions; ++version)
      if (Status status = device.copy(addressOf(array.slot(to, version)),
                                      addressOf(array.slot(from, version)),
                                      array.slotBytes(), nullptr);
          !status)
        return status;
  return Status();
}

//===----------------------------------------------------------------------===//
// Where slots stand
//===----------------------------------------------------------------------===//

Status DeviceCursors::hearResets() {
  if (Status status = code->device.synchronize(); !status || !states)
    return status;
  std::vector<int32_t> held(static_cast<size_t>(slots));
  if (Status status = stateTable.read(held.data(), slots * number); !status)
    return status;
  for (int64_t slot = 0; slot < slots; ++slot)
    if (int32_t &state = statesOfSlots[slot]; state >= 0 && held[slot] < 0)
      freeStates.release(std::exchange(state, -1));
  return Status();
}

Result<DeviceCursors::Snapshot> DeviceCursors::look() {
  if (Status status = hearResets(); !status)
    return status;
  Snapshot now;
  auto read = [&](const cuda::Memory &memory, int64_t count,
                  std::vector<int32_t> &to) {
    to.resize(static_cast<size_t>(count));
    return memory.read(to.data(), count * number);
  };
  Status status = read(positions, 2 * slots, now.positions);
  if (status)
    status = read(epochs, slots, now.epochs);
  if (status && drafts)
    status = read(waiting, slots, now.waiting);
  if (status && drafts)
    status = read(order, slots * capacity, now.order);
  if (!status)
    return status;
  return now;
}

Cursor DeviceCursors::cursorIn(const Snapshot &now, int32_t slot) const {
  int32_t base = now.positions[2 * slot], length = now.positions[2 * slot + 1];
  Cursor cursor{base, length, length, now.epochs[slot]};
  if (!drafts)
    return cursor;
  int32_t left = now.waiting[slot];
  if (left >= folded && !isShared)
    cursor = {(cursor.base + cursor.length) % capacity, 0, 0, cursor.epoch + 1};
  cursor.length += left % folded;
  return cursor;
}

std::vector<DeviceCursors::Use>
DeviceCursors::usesOf(const Snapshot &now, const Claim &claim) const {
  std::vector<Use> uses(static_cast<size_t>(tableSize()), Use::None);
  Cursor cursor = cursorIn(now, claim.slot);
  auto use = [&](int64_t position, Use what) {
    int64_t place = position;
    if (drafts) {
      place = (cursor.base + position) % capacity;
      place = now.order[claim.slot * capacity + place];
    }
    Use &known = uses[static_cast<size_t>(place / page)];
    known = std::max(known, what);
  };
  for (int64_t i = 0; i < cursor.length; ++i)
    use(i, Use::Read);
  int64_t most = std::min(claim.entries, capacity);
  if (drafts) {
    // A fold leaves the ring where it stands.
    for (int64_t i = 0; i < most; ++i)
      use((cursor.length + i) % capacity, Use::Write);
    return uses;
  }
  for (int64_t i = cursor.length; i < cursor.length + most && i < capacity; ++i)
    use(i, Use::Write);
  // After a fold the first page is the next again.
  for (int64_t i = 0; most && foldsSoon(cursor, most) && i < most; ++i)
    use(i, Use::Write);
  return uses;
}

//===----------------------------------------------------------------------===//
// Taking
//===----------------------------------------------------------------------===//

struct DeviceCursors::Change {
  explicit Change(const DeviceCursors &cursors)
      : pages(cursors.freePages), states(cursors.freeStates),
        pagesOfSlots(cursors.pagesOfSlots),
        statesOfSlots(cursors.statesOfSlots) {}

  Blocks pages, states;
  std::vector<int32_t> pagesOfSlots, statesOfSlots;
  std::vector<std::pair<int32_t, int32_t>> pageCopies, stateCopies;
  std::vector<int32_t> freshStates;
  int64_t pagesWanted = 0, statesWanted = 0;
  bool isShort = false; ///< of either

  /// Has `entry` be a block of its own; `copies` are from what it was.
  void own(Blocks &blocks, int32_t &entry, int64_t &wanted,
           std::vector<std::pair<int32_t, int32_t>> &copies) {
    if (entry >= 0 && !blocks.isShared(entry))
      return;
    ++wanted;
    if (blocks.free() == 0) {
      isShort = true;
      return;
    }
    int32_t old = std::exchange(entry, blocks.take());
    if (old < 0)
      return;
    blocks.release(old); // others hold it
    copies.emplace_back(old, entry);
  }
};

void DeviceCursors::changePages(const Snapshot &now, const Claim &claim,
                                bool givesBack, Change &change) const {
  std::vector<Use> uses = usesOf(now, claim);
  int32_t *table = change.pagesOfSlots.data() + claim.slot * tableSize();
  for (size_t index = 0; index < uses.size(); ++index) {
    int32_t &entry = table[index];
    if (givesBack) {
      if (uses[index] == Use::None && entry >= 0)
        change.pages.release(std::exchange(entry, -1));
    } else if (uses[index] == Use::Write) {
      change.own(change.pages, entry, change.pagesWanted, change.pageCopies);
    }
  }
}

void DeviceCursors::changeState(const Snapshot &now, const Claim &claim,
                                Change &change) const {
  if (!states)
    return;
  Cursor cursor = cursorIn(now, claim.slot);
  bool folds = claim.entries > 0 && foldsSoon(cursor, claim.entries);
  bool needs = claim.readsState || claim.writesState || folds ||
               (claim.entries > 0 && !startsEmpty);
  int32_t &entry = change.statesOfSlots[claim.slot];
  if (!needs || (entry >= 0 && !folds && !claim.writesState))
    return;
  bool isFresh = entry < 0;
  change.own(change.states, entry, change.statesWanted, change.stateCopies);
  if (isFresh && entry >= 0)
    change.freshStates.push_back(entry);
}

Status DeviceCursors::take(const Snapshot &now, std::span<const Claim> claims,
                           bool givesBack) {
  Change change(*this);
  for (bool gives : {true, false})
    for (const Claim &claim : claims)
      if (!gives || givesBack)
        changePages(now, claim, gives, change);
  if (change.isShort)
    return noPages(change.pagesWanted);
  for (const Claim &claim : claims)
    changeState(now, claim, change);
  if (change.isShort)
    return noStates(change.statesWanted);
  freePages = std::move(change.pages);
  freeStates = std::move(change.states);
  pagesOfSlots = std::move(change.pagesOfSlots);
  statesOfSlots = std::move(change.statesOfSlots);
  for (const Pool::Impl *pool : pools) {
    for (auto [from, to] : change.pageCopies)
      if (Status status = copyBlocks(code->device, pool->fields, from, to);
          !status)
        return status;
    for (auto [from, to] : change.stateCopies)
      if (Status status = copyBlocks(code->device, pool->states, from, to);
          !status)
        return status;
    for (int32_t state : change.freshStates)
      for (const Pool::Impl::Array &array : pool->states)
        if (Status status = code->device.fill(addressOf(array.slot(state)), 0,
                                              array.slotBytes(), nullptr);
            !status)
          return status;
  }
  return uploadBlocks(0, slots, nullptr);
}

/// A slot without entries begins at its first page again.
Status DeviceCursors::startAnew(const Snapshot &now, int32_t slot) {
  const int32_t *held = now.order.data() + slot * capacity;
  std::vector<int32_t> places(static_cast<size_t>(capacity));
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int32_t>(i);
  if (now.positions[2 * slot] == 0 &&
      std::equal(places.begin(), places.end(), held))
    return Status();
  if (Status status = code->device.fillInt(
          positions.address() + 2 * slot * sizeof(int32_t), 0, 1, nullptr);
      !status)
    return status;
  return code->device.upload(order.address() +
                                 slot * capacity * sizeof(int32_t),
                             places.data(), capacity * number, nullptr);
}

Status DeviceCursors::claim(std::span<const Claim> claims) {
  if (!page)
    return Status();
  Result<Snapshot> now = look();
  if (!now)
    return now.status();
  if (Status status = takeFault(); !status)
    return status;
  for (const Claim &claim : claims)
    if (drafts && now->positions[2 * claim.slot + 1] == 0 &&
        now->waiting[claim.slot] == 0) {
      if (Status status = startAnew(*now, claim.slot); !status)
        return status;
      now->positions[2 * claim.slot] = 0;
      for (int64_t i = 0; i < capacity; ++i)
        now->order[claim.slot * capacity + i] = static_cast<int32_t>(i);
    }
  return take(*now, claims, /*givesBack=*/true);
}

Status DeviceCursors::claimFolds(std::span<const int32_t> list) {
  if (!states)
    return Status();
  Result<Snapshot> now = look();
  if (!now)
    return now.status();
  std::vector<Claim> claims;
  for (int32_t slot : list)
    if (cursorIn(*now, slot).committed > 0)
      claims.push_back({slot, 0, /*readsState=*/true, /*writesState=*/true});
  return take(*now, claims, /*givesBack=*/false);
}

//===----------------------------------------------------------------------===//
// Giving back
//===----------------------------------------------------------------------===//

void DeviceCursors::giveBack(int32_t slot) {
  for (int64_t index = 0; index < tableSize(); ++index)
    if (int32_t &entry = pagesOf(slot)[index]; entry >= 0)
      freePages.release(std::exchange(entry, -1));
  if (states && statesOfSlots[slot] >= 0)
    freeStates.release(std::exchange(statesOfSlots[slot], -1));
}

Status DeviceCursors::release(int32_t slot, void *stream) {
  if (!page)
    return Status();
  // Who is left as the only holder of a block may write it from now on.
  bool hasShared = states && statesOfSlots[slot] >= 0 &&
                   freeStates.isShared(statesOfSlots[slot]);
  for (int64_t index = 0; index < tableSize(); ++index)
    if (int32_t entry = pagesOf(slot)[index]; entry >= 0)
      hasShared |= freePages.isShared(entry);
  giveBack(slot);
  return hasShared ? uploadBlocks(0, slots, stream)
                   : uploadBlocks(slot, 1, stream);
}

Status DeviceCursors::uploadBlocks(int32_t first, int64_t count,
                                   void *stream) const {
  int64_t width = tableSize() + 1;
  std::vector<int32_t> table(static_cast<size_t>(count * width)),
      held(static_cast<size_t>(count));
  auto marked = [](const Blocks &blocks, int32_t block) {
    return blocks.isShared(block) ? block + sharedBlock : block;
  };
  for (int64_t i = 0; i < count; ++i) {
    int64_t slot = first + i;
    std::fill_n(table.begin() + i * width, width, static_cast<int32_t>(pages));
    for (int64_t index = 0; index < tableSize(); ++index)
      if (int32_t entry = pagesOfSlots[slot * tableSize() + index]; entry >= 0)
        table[i * width + index] = marked(freePages, entry);
    int32_t state = stateOf(static_cast<int32_t>(slot));
    held[i] = states && state >= 0 ? marked(freeStates, state) : state;
  }
  Status status =
      code->device.upload(pageTable.address() + first * width * sizeof(int32_t),
                          table.data(), count * width * number, stream);
  if (status)
    status = code->device.upload(stateTable.address() + first * sizeof(int32_t),
                                 held.data(), count * number, stream);
  return status ? code->device.synchronize(stream) : status;
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

Status DeviceCursors::copySlot(const cuda::Memory &memory, int64_t bytes,
                               int32_t from, int32_t to) const {
  if (bytes == 0)
    return Status();
  return code->device.copy(memory.address() + to * bytes,
                           memory.address() + from * bytes, bytes, nullptr);
}

Status DeviceCursors::shareState(int32_t from, int32_t to) {
  if (Status status = copySlot(epochs, number, from, to); !status)
    return status;
  if (states) {
    if (statesOfSlots[to] >= 0)
      freeStates.release(statesOfSlots[to]);
    statesOfSlots[to] = statesOfSlots[from];
    if (statesOfSlots[to] >= 0)
      freeStates.share(statesOfSlots[to]);
    return Status();
  }
  for (const Pool::Impl *pool : pools)
    if (Status status = copyBlocks(code->device, pool->states, from, to);
        !status)
      return status;
  return Status();
}

Status DeviceCursors::branchOff(std::span<const int32_t> from,
                                std::span<const int32_t> to, bool withStates) {
  if (Status status = hearResets(); !status)
    return status;
  if (Status status = takeFault(); !status)
    return status;
  for (size_t i = 0; i < from.size(); ++i) {
    Status status = withStates ? shareState(from[i], to[i]) : Status();
    for (const Pool::Impl *pool : pools) {
      if (status)
        status = copyBlocks(code->device, pool->carries, from[i], to[i]);
      if (status && !page)
        status = copyBlocks(code->device, pool->fields, from[i], to[i]);
    }
    std::vector<std::pair<const cuda::Memory *, int64_t>> arrays{
        {&positions, 2 * number}};
    if (drafts)
      arrays.insert(arrays.end(), {{&order, capacity * number},
                                   {&versions, number},
                                   {&waiting, number}});
    for (auto [memory, bytes] : arrays)
      if (status)
        status = copySlot(*memory, bytes, from[i], to[i]);
    if (!status)
      return status;
    for (int64_t index = 0; index < tableSize(); ++index) {
      int32_t &mine = pagesOf(to[i])[index], theirs = pagesOf(from[i])[index];
      if (mine >= 0)
        freePages.release(mine);
      if (theirs >= 0)
        freePages.share(theirs);
      mine = theirs;
    }
  }
  return page ? uploadBlocks(0, slots, nullptr)
              : code->device.synchronize(nullptr);
}

Status DeviceCursors::cut(int32_t slot, int64_t entries,
                          std::optional<int32_t> checkpoint) {
  if (Status status = hearResets(); !status)
    return status;
  if (Status status = takeFault(); !status)
    return status;
  Status status = code->device.fillInt(
      positions.address() + (2 * slot + 1) * sizeof(int32_t),
      static_cast<int32_t>(entries), 1, nullptr);
  if (status && checkpoint && *checkpoint != slot)
    status = shareState(*checkpoint, slot);
  if (!status)
    return status;
  if (!page)
    return code->device.synchronize(nullptr);
  Claim none{slot};
  return claim({&none, 1});
}
