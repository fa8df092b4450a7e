//===- AttentionPool.h - pages and rings of slots ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_ATTENTIONPOOL_H
#define LADLE_RUNTIME_ATTENTIONPOOL_H

#include "runtime/AttentionKernels.h"
#include "runtime/Memory.h"

namespace ladle {

struct DeviceAttentionPool;

struct AttentionPoolImpl {
  /// Where a slot stands. The ring holds the tokens before `length`, without a
  /// gap, the token at position p in entry p mod window.
  struct Cursor {
    int64_t length = 0, entries = 0, amended = 0;
    int64_t pages = 0; ///< that the slot has
    int64_t band = 0, sinks = 0,
            wideBand = 0; ///< that the ring was filled with
    int64_t segments = 0; ///< that a segmented cache has folded
    int64_t budget = 0;   ///< of a cache that evicts
  };
  /// Memory of [first, ...] with its descriptor.
  struct Array {
    Memory memory;
    MemoryDescriptor descriptor;
    int64_t elementBytes = 0;
    int64_t outerBytes = 0; ///< of a slot, or a page

    void copy(int64_t from, int64_t to); ///< of these
  };

  AttentionProgramImpl program; ///< what it was made for
  int64_t slots = 0, pages = 0, pagesOfSlot = 0, window = 0;
  int64_t mostTokens = 0; ///< of a slot
  std::vector<Cursor> cursors;
  std::vector<int32_t> table; ///< [slots, pagesOfSlot]
  std::vector<int32_t> freePages;
  std::vector<int32_t> holders; ///< [pages]: slots whose page it is
  MemoryDescriptor tableDescriptor;
  Array keys, values;
  /// Queries, rotated ones, summaries, log sums, depths, ends, moments; those
  /// that the program has not are empty.
  std::vector<Array> rings;
  /// Of a bounded cache: its memory, and what tells which token is evicted.
  std::vector<Array> bounded;

  int64_t maxTokens() const { return mostTokens; }
  int64_t pagesFor(int64_t tokens) const {
    return (tokens + program.pageSize - 1) / program.pageSize;
  }
  Status checkSlot(int32_t slot) const;
  /// Drops what comes behind `length`, which is at most that of the slot.
  Status cut(int32_t slot, Cursor cursor, int64_t length);
  /// Says, once, that steps on a device had no pages, and drops their tokens.
  Status takeFault();
  /// Cuts slots that are longer than their pages, and says to what.
  Result<std::vector<std::string>> cutLost();
  /// Both: of a slot that is about to move as it is.
  Result<Cursor> settle(int32_t slot);
  /// Of a bounded cache; `length` is at most that of the slot.
  Status checkTruncation(int32_t slot, const Cursor &cursor,
                         int64_t length) const;
  /// Of a ring that holds more tokens than come after `length`, which are
  /// dropped: estimates are of the others from now on.
  Status dropMoments(int32_t slot, const Cursor &before, int64_t length);
  int32_t *tableOf(int32_t slot) { return table.data() + slot * pagesOfSlot; }

  // AttentionBranches.cpp
  /// There is a free one.
  void takePage(int32_t slot);
  void givePage(int32_t page);
  /// Gives back the pages behind the first so many.
  void keepPages(int32_t slot, int64_t count);
  int64_t pagesGiven(std::span<const int32_t> ofSlots, int64_t kept);
  /// Whether so many pages are free, or will be.
  Status checkFree(int64_t wanted, int64_t given) const;
  /// Whether other slots hold this page, too, counted in the slot.
  bool isShared(int32_t slot, int64_t page);
  Status copyPage(int32_t from, int32_t to);
  Status takeCopy(int32_t slot, int64_t page);
  Status copySlot(int32_t from, int32_t to);
  Status sharePages(int32_t from, int32_t to, int64_t length);

  /// Where a slot stands, on a device, too.
  Result<Cursor> read(int32_t slot) const;
  Status write(int32_t slot, const Cursor &cursor);

  /// On a device, which has the cursors but for the pages of slots; null on the
  /// host.
  std::unique_ptr<DeviceAttentionPool> device;

  AttentionPoolImpl();
  ~AttentionPoolImpl();
};

/// Bytes of each array of the rings of a slot, in the order of the kernels'
/// arguments, with the shape of one slot.
struct RingArray {
  int64_t elementBytes = 0;
  std::vector<int64_t> shape;
};
std::vector<RingArray> ringArrays(const AttentionProgramImpl &program,
                                  int64_t window);
/// The same of a bounded cache, behind its keys and values.
std::vector<RingArray> boundedArrays(const AttentionProgramImpl &program);

} // namespace ladle

#endif // LADLE_RUNTIME_ATTENTIONPOOL_H
