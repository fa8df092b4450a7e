//===- cursors.h - where sequences stand on their rings ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pool has cursors of its own, which its steps move: who has one layer need
// not know of them. The layers of a model decode the same tokens, so that their
// sequences stand alike: their pools can share one set of cursors, which then
// moves once a token instead of once a layer.
//
//   Cursors cursors = *Cursors::create(program, {.slots = 8});
//   PoolOptions options;
//   options.slots = 8;
//   options.cursors = cursors;          // for the pool of every layer
//   ...
//   for (Decoder &layer : layers)       // every token
//     layer.step(arguments[...], stream);
//   cursors.advance(readSlots, {}, stream);
//
// All layers of a token see the same cursors. Whoever calls the last layer
// calls `advance` after it, with the slots of the steps; on a GPU it is one
// launch, which a CUDA graph captures with them. Drafts are the same: all
// layers verify them, and one `commit` after the last decides on them for all.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_CURSORS_H
#define LADLE_CURSORS_H

#include "ladle/program.h"

namespace ladle {

/// Where a slot stands on its ring.
struct Cursor {
  int64_t base = 0;      ///< ring index of the oldest entry
  int64_t length = 0;    ///< entries that are not folded yet
  int64_t committed = 0; ///< of these, those that are no drafts: a row's
                         ///< drafts are the others until they are committed
  int64_t epoch = 0;     ///< how often the states were written; 0 is never
};

struct CursorOptions {
  int64_t slots = 0;
  /// What marks a row of a batch as padding: any negative slot if this is
  /// negative, slot 0 if this is 0 (slot 0 is then never used).
  int32_t padSlot = -1;
  /// m: a row folds when its token would be the m-th entry, or when its drafts
  /// would make it more than m; 0 is the capacity of the program without its
  /// drafts, 1 folds with every token.
  int64_t foldThreshold = 0;
};

/// Copies are the same cursors. They last as long as a pool that shares them.
class Cursors {
public:
  /// For pools of programs of the same device, capacity and drafts. Those of a
  /// program without a buffer have little to move; who calls them need not know
  /// by which route the program decodes.
  static Result<Cursors> create(const Program &program,
                                const CursorOptions &options);

  int64_t slots() const;
  int64_t capacity() const;
  DeviceId device() const;
  /// On a GPU it waits for all work of the device.
  Result<Cursor> cursor(int32_t slot) const;

  int64_t foldThreshold() const;
  /// 1 to the capacity without the program's drafts, so that those of the next
  /// step find room; from the next step on. Longer buffers fold with their next
  /// token.
  Status setFoldThreshold(int64_t m, void *stream = nullptr);

  /// Moves the cursors on by the token that all layers have decoded, with the
  /// slots of their steps: [rows], of the device, `writeSlots` empty for the
  /// read slots. Between two calls all layers decode by routes that append
  /// entries, or all by routes that do not; a step of another kind is an error.
  /// On the CPU, so is a slot whose drafts are not committed.
  Status advance(std::span<const int32_t> readSlots,
                 std::span<const int32_t> writeSlots = {},
                 void *stream = nullptr);

  /// Pool::commit of the drafts that all layers have verified, alike: the same
  /// of each slot, with the same parents, all as entries or all as states.
  /// Until then the cursors stand where they stood before the drafts, even if
  /// these came with a fold.
  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted = {}, void *stream = nullptr);

  /// Pool::reset and Pool::flush of all pools that share the cursors, each with
  /// the program that it was made for. The host names the slots.
  Status reset(std::span<const int32_t> slots, void *stream = nullptr);
  Status flush(std::span<const int32_t> slots, void *stream = nullptr);

  struct Impl;
  explicit Cursors(std::shared_ptr<Impl> impl) : impl(std::move(impl)) {}
  Impl &getImpl() const { return *impl; }
  const std::shared_ptr<Impl> &shared() const { return impl; }

private:
  std::shared_ptr<Impl> impl;
};

} // namespace ladle

#endif // LADLE_CURSORS_H
