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
    Prompt,   ///< a prompt has become entries, or state, or both
  };
  Kind kind = Append;
  int64_t rows = 0;
  const int32_t *reads = nullptr, *writes = nullptr;

  /// Of the rows of a step.
  static Kind kindOf(const RouteKernels &route, bool prefills = false,
                     bool byChunk = false) {
    if (prefills)
      return byChunk || (route.usesBuffer && route.route == RouteKind::KvOnly)
                 ? Prompt
                 : Rewrite;
    return !route.usesBuffer                  ? Rewrite
           : route.route == RouteKind::KvOnly ? Ignore
                                              : Append;
  }
};

/// HostCursors and DeviceCursors are those of the two kinds of memory.
/// Arguments of the virtual functions have been checked.
struct Cursors::Impl {
  DeviceId device;
  std::string name; ///< of the program
  int64_t slots = 0, capacity = 0, threshold = 0;
  int64_t crossover = 0;       ///< 0 is the threshold
  int64_t bestCrossover = 0;   ///< of the cost model, where rows cross over
  int64_t page = 0, pages = 0; ///< entries of a page, and how many there are
  /// How many there are if slots take them when they need one.
  std::optional<int64_t> states = std::nullopt;
  /// Whether sequences begin without a state.
  bool startsEmpty = false;
  int64_t drafts = 0;         ///< the most of a row
  int64_t fixedThreshold = 0; ///< of a program that folds by chunks; or 0
  int32_t padSlot = -1;
  /// Whether rows of kv_only go on by a route that keeps no entries.
  bool rewritesLong = false;
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
  /// Unsupported while a graph is captured, whose host cannot wait.
  virtual Status checkWaits(void *stream, std::string_view call) const {
    (void)stream, (void)call;
    return Status();
  }
  /// What has gone wrong on the device since somebody looked.
  virtual Status takeFault() { return Status(); }

  /// The index of a slot's state; -1: it has none.
  virtual int32_t stateOf(int32_t slot) const { return slot; }
  virtual BlockCount pageCount() const { return {}; }
  virtual BlockCount stateCount() const { return {slots, 0}; }
  /// A call is about to append entries to a slot, or to read or write its
  /// state.
  struct Claim {
    int32_t slot = 0;
    int64_t entries = 0;
    bool readsState = false, writesState = false;
  };
  /// Takes what slots need for that, and copies of what others hold as well.
  /// ResourceExhausted, and nothing has changed, if there is not so much.
  virtual Status claim(std::span<const Claim> claims) {
    (void)claims;
    return Status();
  }
  /// Has slots keep what they have claimed until so much was appended.
  virtual void keepClaimed(std::span<const Claim> claims) { (void)claims; }
  /// As `claim`, of slots whose entries are about to be folded.
  virtual Status claimFolds(std::span<const int32_t> slots) {
    (void)slots;
    return Status();
  }
  /// Takes back states that kernels have taken from slots: those that others
  /// hold as well. Waits for the device.
  virtual Status hearResets() { return Status(); }
  /// Gives back what a slot has taken, whose cursor is reset after.
  virtual Status release(int32_t slot, void *stream) {
    (void)slot, (void)stream;
    return Status();
  }
  /// InvalidArgument if the cursor of a slot has yet to move on.
  virtual Status checkMoved(int32_t slot) const {
    (void)slot;
    return Status();
  }
  /// InvalidArgument, where the host knows, unless all layers have decoded what
  /// these rows of a step are to be moved on by.
  virtual Status checkAdvance(std::span<const int32_t> reads,
                              std::span<const int32_t> writes) {
    (void)reads, (void)writes;
    return Status();
  }
  /// InvalidArgument if the cursor of any slot has yet to move on.
  virtual Status checkIdle() const { return Status(); }
  /// Tokens that wait will not be counted.
  virtual void forget() {}
  /// Makes slots `to` what `from` are; without states they keep their own.
  virtual Status branchOff(std::span<const int32_t> from,
                           std::span<const int32_t> to, bool withStates) = 0;
  /// Leaves a slot its first entries, which follow what `checkpoint` has, if
  /// one is given.
  virtual Status cut(int32_t slot, int64_t entries,
                     std::optional<int32_t> checkpoint) = 0;

  //===--- Branches.cpp ---------------------------------------------------===//
  Status fork(std::span<const int32_t> from, std::span<const int32_t> to);
  Status rebuild(int32_t from, int64_t entries, int32_t to,
                 std::optional<int32_t> checkpoint);
  Status checkFork(std::span<const int32_t> from,
                   std::span<const int32_t> to) const;
  Status checkPrefix(int32_t from, int64_t entries,
                     std::optional<int32_t> checkpoint) const;

  /// m of a row: that of one with a state, or with none yet.
  int64_t limitOf(const Cursor &cursor) const {
    return cursor.epoch > 0 || !crossover ? threshold : crossover;
  }
  /// Without states nothing folds, and all of a buffer can be filled.
  bool hasStates() const { return stateSlots() > 0; }
  /// Whether a row folds with its next token.
  bool foldsWithToken(const Cursor &cursor) const {
    return hasStates() ? cursor.length + 1 >= limitOf(cursor)
                       : cursor.length >= capacity;
  }
  /// Whether so many more entries may make it fold.
  bool foldsSoon(const Cursor &cursor, int64_t entries) const {
    return hasStates() && cursor.length + entries >= limitOf(cursor);
  }
  /// Whether it folds what is committed before it takes so many drafts.
  bool foldsBeforeDrafts(const Cursor &cursor, int64_t count) const {
    return cursor.committed > 0 &&
           cursor.committed + count >
               (hasStates() ? limitOf(cursor) : capacity);
  }
  /// Whether a prompt of kv_only can stay entries.
  bool keepsPrompt(const Cursor &cursor, int64_t tokens) const {
    return hasStates() ? cursor.committed + tokens < limitOf(cursor)
                       : cursor.committed + tokens <= capacity;
  }
  int64_t stateSlots() const { return states.value_or(slots); }
  /// Pages of a slot, the last of which may hold fewer entries.
  int64_t tableSize() const { return page ? (capacity + page - 1) / page : 0; }
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
  /// Entries that a row may have after a step, if it could not fold.
  int64_t room() const { return hasStates() ? mostEntries() : capacity; }
  /// ResourceExhausted: so many more pages, or states, were wanted.
  Status noPages(int64_t wanted) const;
  Status noStates(int64_t wanted) const;
  /// InvalidArgument while a step of layers waits for its cursors to move.
  Status checkAdvanced(std::string_view what) const;
  Status setThreshold(int64_t m, void *stream);
  Status setCrossover(int64_t entries);

  /// A layer is about to decode by a route: InvalidArgument if another has
  /// decoded by one of the other kind since the cursors moved. Prompts leave no
  /// entries, whatever the route.
  Status takeStep(const RouteKernels &route, bool prefills = false);
  Status checkStep(const RouteKernels &route, bool prefills = false) const;
  /// What all layers have done since then, or, if there was no call of a step,
  /// did before: a graph may have been captured long ago.
  CursorMove::Kind endStep();
  CursorMove::Kind kindOf(const RouteKernels &route, bool prefills) const;

  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted, void *stream);
  Status reset(std::span<const int32_t> slots, void *stream);
  /// The same of slots in memory of the device.
  virtual Status resetRows(std::span<const int32_t> slots, void *stream) {
    return reset(slots, stream);
  }
  /// `program` is for `pool`; other pools take their own. Null for all.
  Status flush(std::span<const int32_t> slots, const Pool::Impl *pool,
               const Program *program, void *stream);
  /// The same of slots in memory of the device, without looking at them.
  Status flushRows(std::span<const int32_t> slots, const Pool::Impl *pool,
                   const Program *program, void *stream);

  /// Of the device of a program, without memory yet.
  static Result<std::shared_ptr<Impl>> make(const Program &program,
                                            const CursorOptions &options);
  /// Takes the memory, which is zero; the threshold 0 is the largest, and the
  /// crossover 0 the cost model's, or the threshold.
  Status start(int64_t foldThreshold, int64_t crossover);

private:
  std::optional<RouteKind> decodedBy; ///< since the cursors moved
  CursorMove::Kind kind = CursorMove::Append;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CURSORSIMPL_H
