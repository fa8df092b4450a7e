//===- Cursors.cuh - the cursors of a pool move on a GPU --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launched after the kernels of a step, which all read the cursors as they
// were. Moving them in a kernel makes steps replayable: a graph holds no fill.
//
//===----------------------------------------------------------------------===//

#include "ladle_prelude.cuh"

// What rows have done, as CursorMove::Kind has it.
enum { kAppend, kIgnore, kRewrite, kFoldOnly, kPrompt };
// On the number of the drafts that wait in a slot: they came with a fold.
enum { kFolded = 256 };
// On a page or a state in a table: other slots hold it as well, so that it is
// read and not written. A state that a slot does not have is negative.
enum { kSharedBlock = 1 << 30 };
// What `fault` is told of a slot, which stands four times beside it.
enum { kIgnoresState = 1, kNoPage, kNoState };

LADLE_INLINE bool is_own(int block) {
  return block >= 0 && block < kSharedBlock;
}

// Whether place `place` of a slot lies in a page that it may write. Behind the
// pages of a slot stands the spare one.
LADLE_INLINE bool has_page(const int *pages, int slot, int place, int page,
                                int capacity) {
  const int count = (capacity + page - 1) / page;
  const int *const mine = pages + slot * (count + 1LL);
  return is_own(mine[place / page]) && mine[place / page] != mine[count];
}

// A thread takes a row. `cursors` [slots, 2] holds base and length of each
// slot's ring of `capacity` entries, `epochs` [slots] how often its state was
// written. A row that folds leaves an empty ring, which begins where the last
// one ended, or at 0 in another slot than it read. Where rows do not append,
// all fold. No two rows write one slot, but any number may be padding.
// `fault` is told of a slot with a state that the route has ignored. `waiting`,
// null without drafts, says of each slot how many drafts wait in it, and that
// they came with a fold which its cursor has not heard of: flushing is no more
// than telling it; `order` [slots, capacity] is where its entries lie then.
//
// If entries lie in pages, `pages` [slots, pages of a slot + 1] are those of
// each slot, `states` [slots] its state, and `fold_threshold` has a second
// number, for rows without a state. A row that has none of its own to write
// stays entries for as long as there is room, as its kernel does; `fault` is
// told of what has found no page and no state, which is not counted, nor what
// comes behind it. A slot that has folded begins
// anew at its first page, if there are no drafts. `prompts` [slots] are the
// tokens that rows of kPrompt have had: without a state they stay entries, as
// long as they are fewer than the second number. Without pages a row of kPrompt
// has folded where its ring was full, as chunks are, and nowhere else. `room`
// are the entries that a row may have after a step: fewer than the capacity
// where drafts come and find room, and the row folds before.
extern "C" __global__ void __launch_bounds__(128) ladle_advance_cursors(
    const int *read_slots, const int *write_slots, int *cursors, int *epochs,
    const int *fold_threshold, int *fault, int *waiting, const int *order,
    const int *pages, const int *states, const int *prompts, int pad_slot,
    int rows, int capacity, int kind, int page, int room) {
  // It may have started before the kernels of the step have ended, and the
  // next may start now, which wait in turn.
  wait_for_previous();
  let_next_start();
  const int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows)
    return;
  const int read_slot = read_slots[row];
  if (read_slot < 0 || read_slot == pad_slot)
    return;
  const int write_slot = write_slots[row];
  Vec<int, 2> cursor = load_vector<2>(cursors + read_slot * 2LL);
  const bool moves = read_slot != write_slot;
  const bool appends = kind == kAppend || kind == kIgnore;
  const bool is_fresh = epochs[read_slot] == 0;
  if (kind == kIgnore && !pages && !is_fresh)
    fault[0] = 4 * read_slot + kIgnoresState;
  if (kind == kAppend && pages && states[read_slot] < 0)
    fault[0] = 4 * read_slot + kNoState;
  auto place_of = [&](int position) {
    return order ? order[read_slot * static_cast<long long>(capacity) +
                         (cursor[0] + position) % capacity]
                 : position;
  };
  if (kind == kPrompt && !pages) {
    const int end = cursor[1] + prompts[read_slot];
    epochs[read_slot] += end >= capacity;
    cursor[1] = end % capacity;
    store_vector(cursors + read_slot * 2LL, cursor);
    return;
  }
  if (kind == kPrompt && is_fresh) {
    const int end = cursor[1] + prompts[read_slot];
    if (end < fold_threshold[1] || !is_own(states[read_slot])) {
      if (end > room) {
        fault[0] = 4 * read_slot + kNoState;
        return;
      }
      int kept = cursor[1];
      while (kept < end &&
             has_page(pages, read_slot, place_of(kept), page, capacity))
        ++kept;
      if (kept < end)
        fault[0] = 4 * read_slot + kNoPage;
      cursor[1] = kept;
      store_vector(cursors + read_slot * 2LL, cursor);
      return;
    }
  }
  bool folds = !appends || moves ||
               cursor[1] + 1 >= fold_threshold[pages && is_fresh ? 1 : 0];
  if (pages && !is_own(states[write_slot])) {
    if (kind == kFoldOnly && cursor[1] == 0)
      return;
    // Nothing has been written, and nothing moves.
    if (!appends || moves || cursor[1] >= room) {
      fault[0] = 4 * write_slot + kNoState;
      return;
    }
    folds = false;
  }
  if (!folds) {
    if (pages &&
        !has_page(pages, read_slot, place_of(cursor[1]), page, capacity)) {
      fault[0] = 4 * read_slot + kNoPage;
      return;
    }
    cursor[1] += 1;
  } else {
    if (kind != kFoldOnly || cursor[1] > 0)
      epochs[write_slot] += 1;
    cursor[0] =
        moves || (pages && !order) ? 0 : (cursor[0] + cursor[1]) % capacity;
    cursor[1] = 0;
    if (kind == kFoldOnly && waiting)
      waiting[read_slot] %= kFolded;
  }
  store_vector(cursors + write_slot * 2LL, cursor);
}

// A warp takes a row: of the drafts that wait in its slot it accepts
// num_accepted, the first or those of `accepted`, which holds the paths of all
// rows one after the other. Their places go first in the slot's `order`
// [slots, capacity] behind the history, those of the others after them; the
// version of the carries becomes that of the last one. In pages, drafts that
// have found no room or no page are not accepted, and `fault` is told of them;
// nor are those of a slot without a state that were verified as if it had one,
// or that would leave a row that could not fold more than `room` entries.
// Without entries the drafts are states, which have the versions of carries.
extern "C" __global__ void __launch_bounds__(128) ladle_commit_drafts(
    const int *slots, const int *num_accepted, const int *accepted,
    int *cursors, int *epochs, int *order, int *versions, int *waiting,
    int *fault, const int *pages, const int *states, int pad_slot, int rows,
    int capacity, int drafts, int kind, int page, int room) {
  wait_for_previous();
  let_next_start();
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows)
    return;
  const int slot = slots[row];
  if (slot < 0 || slot == pad_slot)
    return;
  const int left = waiting[slot];
  Vec<int, 2> cursor = load_vector<2>(cursors + slot * 2LL);
  if (left >= kFolded) {
    cursor[0] = (cursor[0] + cursor[1]) % capacity;
    cursor[1] = 0;
  }
  // Those behind the end of the ring are nowhere.
  const int count = min(left % kFolded, capacity - cursor[1]);
  int taken = min(max(num_accepted[row], 0), left % kFolded);

  int path = lane; // The draft that is accepted as the lane-th.
  if (accepted) {
    int before = 0;
    for (int i = lane; i < row; i += 32)
      if (slots[i] >= 0 && slots[i] != pad_slot)
        before += num_accepted[i];
    for (int mask = 1; mask < 32; mask *= 2)
      before += shuffle_xor(before, mask);
    path = lane < taken ? min(max(accepted[before + lane], 0), drafts - 1) : 0;
  }
  // Ancestors come first among the drafts, so that a path is in their order.
  int *const places = order + static_cast<long long>(slot) * capacity;
  const int first = cursor[0] + cursor[1];
  const int place = lane < count ? places[(first + lane) % capacity] : 0;
  if (pages && kind == kAppend && states[slot] < 0) {
    if (taken > 0 && lane == 0)
      fault[0] = 4 * slot + kNoState;
    taken = 0;
  }
  if (pages) {
    const int at = shuffle_index(place, path);
    const bool is_lost =
        lane < taken &&
        (path >= count || !has_page(pages, slot, at, page, capacity));
    int lost = is_lost ? lane : 32;
    for (int mask = 1; mask < 32; mask *= 2)
      lost = min(lost, shuffle_xor(lost, mask));
    if (lost < taken && lane == 0)
      fault[0] = 4 * slot + kNoPage;
    taken = min(taken, lost);
    if (cursor[1] + taken > room) {
      if (lane == 0)
        fault[0] = 4 * slot + kNoState;
      taken = max(room - cursor[1], 0);
    }
  }
  int chosen = lane < taken ? 1 << path : 0;
  for (int mask = 1; mask < 32; mask *= 2)
    chosen |= shuffle_xor(chosen, mask);
  const int last = shuffle_index(path, max(taken - 1, 0));

  const int epoch = epochs[slot];
  const bool is_chosen = (chosen >> lane & 1) != 0;
  int next = is_chosen ? 0 : taken;
  for (int i = 0; i < lane && i < count; ++i)
    next += (chosen >> i & 1) == is_chosen;
  const int version = versions[slot];
  // All have read before any writes.
  shuffle_index(place, 0);
  if (lane < count)
    places[(first + next) % capacity] = place;
  if (lane == 0) {
    if (kind == kIgnore && !pages && epoch > 0)
      fault[0] = 4 * slot + kIgnoresState;
    if (left >= kFolded || (capacity == 0 && taken > 0))
      epochs[slot] = epoch + 1;
    if (taken > 0)
      versions[slot] = (version + 1 + last) % (drafts + 1);
    waiting[slot] = 0;
    cursor[1] += capacity == 0 ? 0 : taken;
    store_vector(cursors + slot * 2LL, cursor);
  }
}

// A block takes a row: what its prompt has left behind goes from the slot of
// `next` to that of `carries`, `count` 16-bit parts. Blocks of a prompt cannot
// do that themselves: others may not have read the carry yet. Strides are from
// slot to slot and from version to version; `versions`, null without drafts,
// says which of drafts + 1 is that of the history.
extern "C" __global__ void __launch_bounds__(128) ladle_keep_carries(
    const int *__restrict__ slots, const int *__restrict__ versions,
    const unsigned short *__restrict__ next, unsigned short *carries,
    long long next_stride, long long stride, int pad_slot, int drafts,
    int count) {
  const int slot = slots[blockIdx.x];
  if (slot < 0 || slot == pad_slot)
    return;
  const int version = versions ? versions[slot] : 0;
  const unsigned short *const from = next + slot * next_stride;
  unsigned short *const to =
      carries + (slot * (drafts + 1LL) + version) * stride;
  for (int i = threadIdx.x; i < count; i += 128)
    to[i] = from[i];
}

// A thread takes a row: how many tokens its prompt has. Layers that share
// cursors all say the same, before these move.
extern "C" __global__ void __launch_bounds__(128)
    ladle_note_prompts(const int *__restrict__ slots,
                       const int *__restrict__ cu_seqlens, int *prompts,
                       int pad_slot, int rows) {
  const int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows)
    return;
  const int slot = slots[row];
  if (slot >= 0 && slot != pad_slot)
    prompts[slot] = cu_seqlens[row + 1] - cu_seqlens[row];
}

// Blocks (row, part) clear what slots have of an array, whose slots lie `stride`
// 16-bit parts apart and have `count` of them each; `states`, null for arrays of
// slots, are the states of the slots, of which those that others hold stay.
extern "C" __global__ void __launch_bounds__(128) ladle_clear_rows(
    const int *__restrict__ slots, const int *__restrict__ states,
    unsigned short *array, long long stride, long long count, int pad_slot,
    int parts) {
  const int slot = slots[blockIdx.x];
  if (slot < 0 || slot == pad_slot)
    return;
  const int index = states ? states[slot] : slot;
  if (!is_own(index))
    return;
  unsigned short *const to = array + index * stride;
  const long long first = blockIdx.y * 128LL + threadIdx.x;
  if ((count | stride) % 8 == 0) {
    const Vec<int, 4> zero = {};
    for (long long i = first; i < count / 8; i += parts * 128LL)
      store_vector(reinterpret_cast<int *>(to + 8 * i), zero);
    return;
  }
  for (long long i = first; i < count; i += parts * 128LL)
    to[i] = 0;
}

// A thread takes a row, whose slot begins anew. In pages its ring stays where it
// is, because the pages that it has are those there; a state that others hold as
// well is no longer its own. What there is none of is null.
extern "C" __global__ void __launch_bounds__(128) ladle_reset_cursors(
    const int *__restrict__ slots, int *cursors, int *epochs, int *versions,
    int *waiting, int *states, int *prompts, int pad_slot, int rows) {
  const int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows)
    return;
  const int slot = slots[row];
  if (slot < 0 || slot == pad_slot)
    return;
  if (!states)
    cursors[2 * slot] = 0;
  cursors[2 * slot + 1] = 0;
  epochs[slot] = 0;
  if (waiting)
    versions[slot] = waiting[slot] = 0;
  if (prompts)
    prompts[slot] = 0;
  if (states && states[slot] >= kSharedBlock)
    states[slot] = -1;
}
