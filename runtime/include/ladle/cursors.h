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
// What sequences take and give back is the cursors' too: pages of entries, if
// the program has any, and states, if there are fewer than slots. A page or a
// state has a number, by which it is found in the pools of all layers.
// Sequences may hold one together: who writes what others hold takes a copy.
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

/// Pages or states of the pools: all of them, and those that nobody holds.
struct BlockCount {
  int64_t all = 0, free = 0;
};

struct CursorOptions {
  int64_t slots = 0;
  /// Pages that all slots share; 0 is as many as they can fill. Of a program
  /// with pages (CompileOptions::page).
  int64_t pages = 0;
  /// States that a pool has, which slots then take when they need one, and give
  /// back with a reset: by kv_only when they first fold, by other routes with
  /// their first token. 0: there are none, for a program that decodes by
  /// kv_only alone. Left out: each slot has its own. On a GPU for programs with
  /// pages, and `reserve` takes them.
  std::optional<int64_t> states = std::nullopt;
  /// What marks a row of a batch as padding: any negative slot if this is
  /// negative, slot 0 if this is 0 (slot 0 is then never used).
  int32_t padSlot = -1;
  /// m: a row folds when its token would be the m-th entry, or when its drafts
  /// would make it more than m; 0 is the capacity of the program without its
  /// drafts, 1 folds with every token. A program without a buffer takes any,
  /// and has none.
  int64_t foldThreshold = 0;
  /// What m is for a row that has no state yet, so that short sequences can
  /// stay entries for longer than entries pay beside a state. 0 is what the
  /// cost model says (Program::crossover), as far as entries find room, of a
  /// program that decodes by kv_only; of others, or with numerics = chunk, it
  /// is `foldThreshold`. On a GPU for programs with pages.
  int64_t crossover = 0;
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

  /// The index of a slot's state in the pools: the slot itself, unless slots
  /// take states when they need them; -1 if it has none.
  int32_t stateOf(int32_t slot) const;
  BlockCount pages() const;
  BlockCount states() const;
  /// Takes the pages that the next `entries[i]` entries of slots[i] need, so
  /// that nothing that appends so many can fail for want of pages.
  /// ResourceExhausted, and nothing has changed, if there are not so many.
  ///
  /// On the CPU who appends takes pages, too, and who folds gives them back, so
  /// that nobody has to call it who can do without a row in want of them. On a
  /// GPU it is a call between steps, for which the host waits: it also takes
  /// back what the entries of these slots have left. Who appends without a page
  /// loses the entry, which is not counted, and is told by the next reserve,
  /// fork or step that comes after it has run.
  ///
  /// Where slots take states, it takes one for each of `slots` that gets
  /// entries, or, of a program that decodes by kv_only, that so many entries
  /// may make fold, and for each of `writeSlots`: those of rows that
  /// write another slot than they read, and those with a state whose prompts
  /// are next. Who has none when it is due takes one on the CPU, where a step
  /// for which there is none is ResourceExhausted; on a GPU it stays entries
  /// for as long as there is room: for those of the capacity, of a program with
  /// drafts for as many less as a row has drafts at the most.
  Status reserve(std::span<const int32_t> slots,
                 std::span<const int32_t> entries,
                 std::span<const int32_t> writeSlots = {});

  /// Makes slots to[i] what from[i] are: a second branch of each sequence. The
  /// two share the state, if slots take states, and the pages of their entries;
  /// otherwise these are copied, as carries are. What was in `to` is forgotten.
  /// On a GPU the host waits; until `reserve` has taken copies, kernels append
  /// to no page and fold into no state that others hold.
  ///
  /// InvalidArgument if a slot of either is named twice in `to`, or drafts of
  /// one are not committed; ResourceExhausted if there is no free state for a
  /// copy. Nothing has changed then.
  Status fork(std::span<const int32_t> from, std::span<const int32_t> to);
  /// Makes `to` what `from` was when it held its first `entries` entries: a
  /// prefix of the history that is not folded yet. With `checkpoint`, these
  /// follow the history of that slot instead of the one that they followed,
  /// which only raw entries can, those of route adjoint; the slot holds no
  /// entries of its own. `to` may be `from`, and `checkpoint` either of them.
  /// As `fork` otherwise.
  ///
  /// InvalidArgument also if the slot holds fewer entries, or the program has
  /// carries, which are known of the newest entry alone, and `entries` leaves
  /// some out, or they are to follow a checkpoint.
  Status rebuild(int32_t from, int64_t entries, int32_t to,
                 std::optional<int32_t> checkpoint = {});

  int64_t foldThreshold() const;
  int64_t crossover() const;
  /// 1 to the capacity without the program's drafts; from the next step on.
  /// InvalidArgument while a step of layers that share the cursors waits for
  /// `advance` or `commit`.
  Status setCrossover(int64_t entries);
  /// 1 to the capacity without the program's drafts, so that those of the next
  /// step find room; from the next step on. Longer buffers fold with their next
  /// token. InvalidArgument as setCrossover.
  Status setFoldThreshold(int64_t m, void *stream = nullptr);

  /// Moves the cursors on by the token that all layers have decoded, with the
  /// slots of their steps: [rows], of the device, `writeSlots` empty for the
  /// read slots. Between two calls all layers decode by routes that append
  /// entries, or all by routes that do not; a step of another kind is an error.
  ///
  /// On the CPU, so is a slot whose drafts are not committed, or of which not
  /// all layers have decoded a token since its cursor moved; nothing has
  /// changed then. On a GPU a graph may have been captured long ago: without a
  /// step since the last call, cursors move as they did then.
  Status advance(std::span<const int32_t> readSlots,
                 std::span<const int32_t> writeSlots = {},
                 void *stream = nullptr);

  /// Ends a step, prompts or drafts whose cursors will not move: a layer has
  /// failed, or the slots were reset meanwhile. Slots that took part are to be
  /// reset, since some layers have written their states, others have not.
  Status abandon();

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
  /// Pool::resetRows: the slots lie in memory of the device.
  Status resetRows(std::span<const int32_t> slots, void *stream = nullptr);
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
