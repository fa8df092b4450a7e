//===- pool.h - what a program keeps between tokens -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pool holds, for each slot, one sequence: its states, its carries, a ring of
// entries that are not folded into the states yet, and a cursor on that ring. A
// ring may lie in pages that all slots share, and slots may take states when
// they need one: ladle/cursors.h.
//
// The pool of a program for a GPU lies in its memory, cursors and threshold
// too. Calls that take a stream put their work on it (a CUstream; null is the
// default stream) and return before it is done, unless they bring something
// back; on the CPU the stream is ignored. Steps and calls are in order on one
// stream; on several, order is the caller's task.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_POOL_H
#define LADLE_POOL_H

#include "ladle/cursors.h"
#include "ladle/tensor.h"

#include <cstddef>

namespace ladle {

struct PoolOptions {
  /// 0 is those of `cursors`.
  int64_t slots = 0;
  /// Elements from one slot to the next, for each state of the signature; 0 or
  /// an absent element is dense (heads × valueSize × keySize), more is padding,
  /// on a GPU up to 2^31 − 1.
  /// A route without a buffer that takes drafts keeps a state for each of them
  /// so far apart.
  std::vector<int64_t> slotStrides;
  /// Memory of the caller for each state, [slots, heads, valueSize, keySize],
  /// or [slots, heads, keySize, valueSize] if the program has them dk_dv, with
  /// the stride above, aligned to 64 bytes, of the program's device; null or an
  /// absent element is owned by the pool and zero. The states in it count as
  /// histories that have begun; `reset` makes them empty. Not for a program
  /// that takes drafts and has a route without a buffer.
  std::vector<void *> stateMemory;
  /// As of CursorOptions.
  int32_t padSlot = -1;
  int64_t foldThreshold = 0, crossover = 0, pages = 0;
  std::optional<int64_t> states = std::nullopt;
  /// Cursors that the pools of a model's layers share: Cursors::advance and
  /// Cursors::commit move them, and not the steps. Slots, padding and
  /// thresholds other than 0 have to be theirs, pages and states are. Without
  /// them the pool has its own, which its steps move.
  std::optional<Cursors> cursors;
};

/// A copy of one sequence, for another pool or another machine.
struct SlotContents {
  struct Item {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape; ///< without the dimension of the slots
    std::vector<std::byte> data;

    TensorView view() const;
  };
  /// [heads, valueSize, keySize], however the pool has them.
  std::vector<Item> states;
  /// [heads, ...]
  std::vector<Item> carries;
};

class Pool {
public:
  /// Allocates what `program` needs. Memory is zero and only taken when it is
  /// first touched.
  static Result<Pool> create(const Program &program,
                             const PoolOptions &options);
  Pool(Pool &&) noexcept;
  Pool &operator=(Pool &&) noexcept;
  ~Pool();

  int64_t slots() const;
  bool isPadding(int32_t slot) const;
  DeviceId device() const;
  /// On a GPU it waits for all work of the device.
  Result<Cursor> cursor(int32_t slot) const;

  /// The calls below are for all pools that share the cursors, because a
  /// sequence stands alike in all of them: one call is enough. Only what is
  /// exported and imported is of this pool alone.
  Cursors cursors() const;
  int64_t foldThreshold() const;
  /// 1 to the capacity without the program's drafts, so that those of the next
  /// step find room; from the next step on. Longer buffers fold with their next
  /// token.
  Status setFoldThreshold(int64_t m, void *stream = nullptr);

  /// Makes sequences empty: states and carries zero, no entries. Padding is
  /// skipped, here and in flush. On a GPU whose entries lie in pages it waits
  /// for the stream, and where slots take states for all work of the device,
  /// and is Unsupported while the stream is captured: resetRows.
  Status reset(std::span<const int32_t> slots, void *stream = nullptr);
  /// The same of slots in memory of the pool's device, which are read when the
  /// work runs: launches alone, which a graph can capture, as many as pools
  /// have arrays. Drafts that wait are forgotten. Fails as `reset` on the CPU;
  /// on a GPU a slot out of range is the caller's to avoid.
  ///
  /// There the host does not hear which slots begin anew. Pages and a state
  /// that a slot had to itself stay with it, empty, and the next sequence may
  /// fill them at once; what it held with others is the others' alone, and to
  /// append there, or to read or write a state, it wants `reserve`. That also
  /// takes back what is left over, as do `reset` and a fork to the slot: until
  /// then Cursors::pages, states and stateOf count what the slot had.
  Status resetRows(std::span<const int32_t> slots, void *stream = nullptr);

  /// Decides on the drafts that Decoder::verify left in each of `slots`: the
  /// first `numAccepted` of a slot's become part of its sequence, the others
  /// are forgotten. With `accepted`, which holds numAccepted[i] drafts of
  /// slots[i] one slot after another, these are a path of its tree: the first
  /// without a parent, each of the others a child of the one before. Moves
  /// cursors and indices alone. A padding slot is skipped, its number too.
  ///
  /// Pools that share cursors are committed once, by any of them, after all
  /// their layers have verified.
  ///
  /// InvalidArgument, and nothing has changed, if a slot is named twice, has
  /// not so many drafts, some that a pool has not verified, or the accepted
  /// ones are no path.
  ///
  /// On a GPU all numbers are memory of the device, which is read when the work
  /// runs: one launch, which a graph captures with those of a verify. What they
  /// hold is the caller's to get right.
  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted = {}, void *stream = nullptr);

  /// Folds all entries of these slots, which the host names, into their states;
  /// drafts that are not committed stay drafts. A graph that captures it folds
  /// the same slots in every replay. InvalidArgument if a pool that shares the
  /// cursors has not verified the drafts of a slot.
  Status flush(const Program &program, std::span<const int32_t> slots,
               void *stream = nullptr);
  /// The same of slots in memory of the pool's device, which are read when the
  /// work runs: launches alone, which a graph can capture. On a GPU no slot may
  /// be named twice, and none but padding may be out of range.
  Status flushRows(const Program &program, std::span<const int32_t> slots,
                   void *stream = nullptr);

  /// Copies a sequence to the host after folding its entries. Waits for the
  /// stream. InvalidArgument if it has drafts that are not committed.
  Result<SlotContents> exportSlot(const Program &program, int32_t slot,
                                  void *stream = nullptr);
  /// Replaces a sequence. Names and shapes must be those of the pool; float
  /// types are converted. Entries of other pools that share the cursors become
  /// part of their states. Waits for the stream. InvalidArgument if the slot
  /// has drafts that are not committed.
  Status importSlot(int32_t slot, const SlotContents &contents,
                    void *stream = nullptr);

  /// Cursors::fork and Cursors::rebuild.
  Status fork(std::span<const int32_t> from, std::span<const int32_t> to);
  Status rebuild(int32_t from, int64_t entries, int32_t to,
                 std::optional<int32_t> checkpoint = {});

  /// The memory of a state as it lies, [slots, heads, valueSize, keySize] or
  /// with the last two the other way round (StateSpec::layout), or of a carry,
  /// [slots, heads, ...]; Cursors::stateOf tells which state is whose.
  /// Without the entries that are not folded yet. In a
  /// pool for drafts it is right until the next verify, and InvalidArgument
  /// while a slot has drafts that are not committed.
  Result<TensorView> state(std::string_view name) const;
  Result<TensorView> carry(std::string_view name) const;

  struct Impl;
  Impl &getImpl() const { return *impl; }

private:
  explicit Pool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ladle

#endif // LADLE_POOL_H
