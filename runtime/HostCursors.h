//===- HostCursors.h - cursors in the memory of the host --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_HOSTCURSORS_H
#define LADLE_RUNTIME_HOSTCURSORS_H

#include "runtime/Blocks.h"
#include "runtime/CursorsImpl.h"

namespace ladle {

/// The drafts of a row, as Decoder::verify is given them.
struct Drafts {
  int64_t count = 0;
  std::span<const int32_t> parents; ///< none: a chain
  bool inStates = false;            ///< no entry can hold them
  bool folds = false;               ///< what was committed, before or with them

  int32_t parentOf(int64_t draft) const {
    return parents.empty() ? static_cast<int32_t>(draft - 1) : parents[draft];
  }
};

struct HostCursors final : Cursors::Impl {
  /// What a slot has besides its cursor if there can be drafts. With V = most
  /// drafts + 1, draft d keeps its carries, and its states if no entry can hold
  /// it, in version (v + 1 + d) mod V, where v is that of the history.
  struct Branches {
    int32_t carryVersion = 0, stateVersion = 0;
    bool inStates = false; ///< whether the drafts are states
    /// Whether the drafts came with a fold that the cursor does not know of
    /// yet: layers that share it verify as the first of them did.
    bool folds = false;
    int64_t round = 0; ///< a number of its own for the drafts of every verify
  };

  const Cursor &operator[](int32_t slot) const { return all[slot]; }
  const Branches &branch(int32_t slot) const { return branches[slot]; }
  /// [L]: a permutation of a slot's entries. Entry j of the history lies at
  /// order[(base + j) mod L], and those after it are free. Null if no drafts
  /// are verified.
  const int32_t *orderOf(int32_t slot) const {
    return order.empty() ? nullptr : order.data() + slot * capacity;
  }
  /// [most drafts]: of the drafts that are not committed.
  const int32_t *parentsOf(int32_t slot) const {
    return parents.data() + slot * drafts;
  }
  /// [L / P]: where the pages of a slot are, -1 for one that it does not have.
  /// Null if there are none.
  const int32_t *pagesOf(int32_t slot) const {
    return page ? pageTable.data() + slot * tableSize() : nullptr;
  }
  int64_t pending(int32_t slot) const {
    return all[slot].length - all[slot].committed;
  }
  int64_t versionOf(int64_t draft, int32_t current) const {
    return (current + 1 + draft) % (drafts + 1);
  }

  /// Moves one of them as a row of a step or of a flush does.
  void moveRow(CursorMove::Kind kind, int32_t readSlot, int32_t writeSlot);
  /// InvalidArgument unless another layer has left the same drafts in a slot.
  Status checkSame(int32_t slot, const Drafts &given) const;
  /// Puts drafts that have been checked behind the history of a slot, unless
  /// another layer has.
  void append(int32_t slot, const Drafts &given);
  /// The cursor of a slot learns of the fold that its drafts came with.
  void land(int32_t slot);

  /// A prompt that a layer has taken, and where it leaves the cursor: other
  /// layers that share it still see where it stood before.
  struct Prompt {
    int64_t tokens = 0; ///< 0: there is none
    Cursor after;
    std::vector<const void *> takenBy; ///< decoders
    int64_t round = 0;                 ///< as that of a token
  };
  /// A token that a layer has decoded into a slot that shares its cursor, which
  /// has yet to move.
  struct Token {
    bool waits = false;
    int32_t read = 0;  ///< the slot that it goes on from
    int64_t round = 0; ///< a number of its own, which layers that took it know
  };
  /// InvalidArgument if a slot has a prompt, or a token, that the cursor has
  /// yet to move on.
  Status checkMoved(int32_t slot) const override;
  /// The same of a prompt alone.
  Status checkPrompted(int32_t slot) const;
  /// InvalidArgument unless a row that reads `read` and writes `write` can be
  /// of the token that waits there, if one does; `seen` are the rounds of the
  /// tokens that its decoder has decoded.
  Status checkToken(int32_t read, int32_t write,
                    std::span<const int64_t> seen) const;
  /// Returns the round of the token.
  int64_t takeToken(int32_t read, int32_t write);
  /// InvalidArgument unless all layers have decoded the token, or prompt, that
  /// is to be counted.
  Status checkTaken(int32_t read, int32_t write) const;
  Status checkAdvance(std::span<const int32_t> reads,
                      std::span<const int32_t> writes) override;
  Status checkIdle() const override;
  void forget() override;
  /// InvalidArgument unless `by` can take a prompt of `tokens` that leaves a
  /// slot's cursor at `after`.
  Status checkPrompt(int32_t slot, int64_t tokens, const Cursor &after,
                     const void *by) const;
  void take(int32_t slot, int64_t tokens, const Cursor &after, const void *by);
  int64_t promptRound(int32_t slot) const { return prompts[slot].round; }

  int32_t stateOf(int32_t slot) const override {
    return states ? stateTable[slot] : slot;
  }
  BlockCount pageCount() const override;
  BlockCount stateCount() const override;
  Status claim(std::span<const Claim> claims) override;
  Status claimFolds(std::span<const int32_t> slots) override;
  void keepClaimed(std::span<const Claim> claims) override;
  Status release(int32_t slot, void *) override;
  Status branchOff(std::span<const int32_t> from, std::span<const int32_t> to,
                   bool withStates) override;
  Status cut(int32_t slot, int64_t entries,
             std::optional<int32_t> checkpoint) override;

  Status begin() override;
  Status markWritten() override;
  Result<Cursor> read(int32_t slot) const override { return all[slot]; }
  Status write(int32_t slot, const Cursor &cursor, void *) override;
  Status moveThreshold(void *) override { return Status(); }
  Status move(const CursorMove &move, void *) override;
  Result<const int32_t *> stage(std::span<const int32_t> slots,
                                void *) override;
  Status checkCommitted(int32_t slot) const override;
  Status checkVerified(int32_t slot) const override;
  Status settle(int32_t slot) override;
  Status accept(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted, void *) override;

  /// Which row of which call wrote a slot last, to find rows that collide
  /// without clearing or sorting anything.
  struct Writer {
    int64_t call = 0, row = 0;
  };
  std::vector<Writer> writers;
  int64_t calls = 0;

private:
  Status makeTables();
  void acceptRow(int32_t slot, std::span<const int32_t> path);

  //===--- HostBlocks.cpp -------------------------------------------------===//
  /// Where entry `position` of a slot's history lies among its L.
  int64_t placeOf(int32_t slot, int64_t position) const {
    int64_t place = (all[slot].base + position) % capacity;
    return order.empty() ? place : order[slot * capacity + place];
  }
  /// Which pages of a slot's table hold entries first to last - 1: sorted.
  void findPages(int32_t slot, int64_t first, int64_t last,
                 std::vector<int32_t> &found) const;
  bool needsState(const Claim &claim) const;
  void takeState(const Claim &claim);
  void takePage(int32_t slot, int32_t index);
  /// Gives back the pages without entries. A slot that has none left starts
  /// anew at the beginning of a page.
  void trimPages(int32_t slot);
  void spendReserved(int32_t slot, int64_t entries);
  void releaseState(int32_t slot);
  void branchOff(int32_t from, int32_t to);
  /// How often it was written, and which version counts, with it.
  void shareState(int32_t from, int32_t to);

  std::vector<Cursor> all;
  std::vector<Branches> branches;
  std::vector<Prompt> prompts;     // [slots] if any was taken
  std::vector<Token> tokens;       // [slots] if layers share the cursors
  std::vector<int32_t> order;      // [slots, L]
  std::vector<int32_t> parents;    // [slots, most drafts]
  std::vector<int32_t> pageTable;  // [slots, L / P]
  std::vector<int64_t> reserved;   // [slots]: entries to come, in pages
  std::vector<int32_t> stateTable; // [slots] if they take states
  Blocks freePages, freeStates;
  std::vector<int32_t> wanted;  // of a claim
  std::vector<int64_t> counted; // [slots] if they take states: by which claim
  int64_t claimCalls = 0;
  int64_t rounds = 0;
  std::vector<int32_t> staged;
};

} // namespace ladle

#endif // LADLE_RUNTIME_HOSTCURSORS_H
