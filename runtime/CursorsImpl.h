//===- CursorsImpl.h - the cursors of one or several pools ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CURSORSIMPL_H
#define LADLE_RUNTIME_CURSORSIMPL_H

#include "ladle/pool.h"
#include "runtime/Kernels.h"

#include <algorithm>

namespace ladle {

/// Rows whose cursors move. Slots are memory of the device.
struct CursorMove {
  enum Kind {
    Append,   ///< by an entry, or by a fold where the buffer is full
    Ignore,   ///< the same, of a route that reads no state
    Rewrite,  ///< the state was written, no entry is kept
    FoldOnly, ///< what there are of entries have become state
  };
  Kind kind = Append;
  int64_t rows = 0;
  const int32_t *reads = nullptr, *writes = nullptr;

  /// Of the rows of a step.
  static Kind kindOf(const RouteKernels &route) {
    return !route.usesBuffer                  ? Rewrite
           : route.route == RouteKind::KvOnly ? Ignore
                                              : Append;
  }
};

/// HostCursors and DeviceCursors are those of the two kinds of memory.
/// Arguments of the virtual functions have been checked.
struct Cursors::Impl {
  DeviceId device;
  int64_t slots = 0, capacity = 0, threshold = 0;
  int64_t drafts = 0;         ///< the most of a row
  int64_t fixedThreshold = 0; ///< of a program that folds by chunks; or 0
  int32_t padSlot = -1;
  /// Whether Cursors::advance moves them, and not the steps of the one pool.
  bool isShared = false;
  std::vector<Pool::Impl *> pools;

  virtual ~Impl() = default;
  virtual Status begin() = 0;
  /// Slots that were never written to count as written from now on.
  virtual Status markWritten() = 0;
  virtual Result<Cursor> read(int32_t slot) const = 0;
  /// Of an empty ring.
  virtual Status write(int32_t slot, const Cursor &cursor, void *stream) = 0;
  /// `threshold` has changed.
  virtual Status moveThreshold(void *stream) = 0;
  virtual Status move(const CursorMove &move, void *stream) = 0;
  /// Slots that the host names, as memory of the device: until the next call.
  virtual Result<const int32_t *> stage(std::span<const int32_t> slots,
                                        void *stream) = 0;
  /// InvalidArgument if a slot has drafts that are not committed.
  virtual Status checkCommitted(int32_t slot) const {
    (void)slot;
    return Status();
  }
  /// InvalidArgument if a slot has drafts that not all pools have verified.
  virtual Status checkVerified(int32_t slot) const {
    (void)slot;
    return Status();
  }
  /// Makes the first versions of a slot, in all pools, those that count; an
  /// error if there are drafts.
  virtual Status settle(int32_t slot) {
    (void)slot;
    return Status();
  }
  virtual Status accept(std::span<const int32_t> slots,
                        std::span<const int32_t> numAccepted,
                        std::span<const int32_t> accepted, void *stream) = 0;
  /// What has gone wrong on the device since somebody looked.
  virtual Status takeFault() { return Status(); }

  bool isPadding(int32_t slot) const {
    return padSlot < 0 ? slot < 0 : slot == 0;
  }
  /// A slot that is in range and no padding.
  bool isUsable(int32_t slot) const {
    return slot >= 0 && slot < slots && !isPadding(slot);
  }
  /// InvalidArgument unless `slot` is usable.
  Status checkSlot(int32_t slot) const;
  /// InvalidArgument unless all are usable or padding.
  Status checkSlots(std::span<const int32_t> slots) const;
  /// The largest threshold: the drafts of the next step have to find room.
  int64_t mostEntries() const {
    return std::max<int64_t>(capacity - drafts, 0);
  }
  Status setThreshold(int64_t m, void *stream);

  /// A layer is about to decode by a route: InvalidArgument if another has
  /// decoded by one of the other kind since the cursors moved. Prompts leave no
  /// entries, whatever the route.
  Status takeStep(const RouteKernels &route, bool prefills = false);
  /// What all layers have done since then, or, if there was no call of a step,
  /// did before: a graph may have been captured long ago.
  CursorMove::Kind endStep();

  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted, void *stream);
  Status reset(std::span<const int32_t> slots, void *stream);
  /// `program` is for `pool`; other pools take their own. Null for all.
  Status flush(std::span<const int32_t> slots, const Pool::Impl *pool,
               const Program *program, void *stream);
  /// The same of slots in memory of the device, without looking at them.
  Status flushRows(std::span<const int32_t> slots, const Pool::Impl *pool,
                   const Program *program, void *stream);

  /// Of the device of a program, without memory yet.
  static Result<std::shared_ptr<Impl>> make(const Program &program,
                                            const CursorOptions &options);
  /// Takes the memory, which is zero; the threshold 0 is the largest.
  Status start(int64_t foldThreshold);

private:
  std::optional<RouteKind> decodedBy; ///< since the cursors moved
  CursorMove::Kind kind = CursorMove::Append;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CURSORSIMPL_H
