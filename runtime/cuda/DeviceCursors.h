//===- DeviceCursors.h - cursors in the memory of a GPU ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICECURSORS_H
#define LADLE_RUNTIME_CUDA_DEVICECURSORS_H

#include "runtime/Blocks.h"
#include "runtime/CursorsImpl.h"
#include "runtime/cuda/GpuCode.h"

#include <map>

namespace ladle {

struct DeviceCursors final : Cursors::Impl {
  explicit DeviceCursors(std::shared_ptr<const GpuCode> code)
      : code(std::move(code)) {}

  std::shared_ptr<const GpuCode> code;
  /// Four times a slot, and what has gone wrong with it. Set by the kernels
  /// that move cursors, looked at by the next call. Freed last: freeing memory
  /// of the device waits for these kernels.
  cuda::HostWord fault;
  enum Fault : int32_t { IgnoresState = 1, NoPage, NoState };
  /// int32: [slots, 2] base and length, [slots] how often states were written,
  /// [2] m of a row with a state and of one without, and [slots] for a flush.
  cuda::Memory positions, epochs, thresholds, staged;
  /// If there can be drafts, int32: [slots, L] where entries lie, and [slots]
  /// which version of the carries is that of the history, and how many drafts
  /// wait, with `folded` if they came with a fold that the cursor does not know
  /// of yet.
  cuda::Memory order, versions, waiting;
  static constexpr int32_t folded = 256;
  /// If entries lie in pages, int32 [slots, L / P + 1], of which the last is
  /// the spare page, behind all others, for who has none; and [slots] which
  /// state a slot has, or -1. What others hold as well is marked.
  cuda::Memory pageTable, stateTable;
  /// Likewise, [slots] the tokens of the prompts that were taken last.
  cuda::Memory prompts;
  /// What kernels of prompts prepare for others, by the first of their heads:
  /// of all layers, which come one after the other, but ranges of heads may be
  /// computed at once. Counters are 0 between them. What was given out stays
  /// where it is.
  using MemoryOfHeads = std::multimap<int64_t, cuda::Memory>;
  MemoryOfHeads prepared, preparedCounters;
  /// Memory of so many bytes, which are 0 at first.
  Result<uint64_t> reserve(MemoryOfHeads &all, int64_t firstHead,
                           int64_t bytes);
  static constexpr int32_t sharedBlock = 1 << 30;
  /// Bytes of a slot without pages.
  static int64_t slotBytes(int64_t capacity, int64_t drafts);
  /// How the drafts that wait were verified, if cursors are of one pool.
  CursorMove::Kind verifiedBy = CursorMove::Append;

  int32_t stateOf(int32_t slot) const override {
    return states ? statesOfSlots[slot] : slot;
  }
  BlockCount pageCount() const override {
    return {freePages.count(), freePages.free()};
  }
  BlockCount stateCount() const override {
    return states ? BlockCount{freeStates.count(), freeStates.free()}
                  : BlockCount{slots, 0};
  }
  /// Waits for the device: the host does not know how many entries there are.
  /// Takes back what slots no longer need, besides.
  Status claim(std::span<const Claim> claims) override;
  Status claimFolds(std::span<const int32_t> slots) override;
  Status hearResets() override;
  Status release(int32_t slot, void *stream) override;
  Status branchOff(std::span<const int32_t> from, std::span<const int32_t> to,
                   bool withStates) override;
  Status cut(int32_t slot, int64_t entries,
             std::optional<int32_t> checkpoint) override;
  Status resetRows(std::span<const int32_t> slots, void *stream) override;
  Status begin() override;
  Status markWritten() override;
  Result<Cursor> read(int32_t slot) const override;
  Status write(int32_t slot, const Cursor &cursor, void *stream) override;
  Status moveThreshold(void *stream) override;
  Status move(const CursorMove &move, void *stream) override;
  Status accept(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted, void *stream) override;
  Status checkCommitted(int32_t slot) const override;
  Status settle(int32_t slot) override;
  Result<const int32_t *> stage(std::span<const int32_t> slots,
                                void *stream) override;
  Status checkWaits(void *stream, std::string_view call) const override;
  Status takeFault() override;

private:
  //===--- DeviceBlocks.cpp -----------------------------------------------===//
  int32_t *pagesOf(int32_t slot) {
    return pagesOfSlots.data() + slot * tableSize();
  }
  /// What cursors and kernels keep in the memory of the device, of all slots.
  struct Snapshot {
    std::vector<int32_t> positions, epochs, waiting, order;
  };
  Result<Snapshot> look();
  /// Where a slot stands, its drafts among its entries.
  Cursor cursorIn(const Snapshot &now, int32_t slot) const;
  /// What a slot does with each of its pages, [L / P].
  enum class Use : uint8_t { None, Read, Write };
  std::vector<Use> usesOf(const Snapshot &now, const Claim &claim) const;
  /// Pages and states as they are to be, and what makes them so.
  struct Change;
  void changePages(const Snapshot &now, const Claim &claim, bool givesBack,
                   Change &change) const;
  void changeState(const Snapshot &now, const Claim &claim,
                   Change &change) const;
  Status take(const Snapshot &now, std::span<const Claim> claims,
              bool givesBack);
  Status startAnew(const Snapshot &now, int32_t slot);
  void giveBack(int32_t slot);
  /// How often it was written with it.
  Status shareState(int32_t from, int32_t to);
  Status copySlot(const cuda::Memory &memory, int64_t bytes, int32_t from,
                  int32_t to) const;
  /// The rows of slots in the tables of the device, or of all.
  Status uploadBlocks(int32_t first, int64_t count, void *stream) const;
  std::vector<int32_t> pagesOfSlots;  // [slots, L / P], -1 for none
  std::vector<int32_t> statesOfSlots; // [slots] if they take states
  Blocks freePages, freeStates;

  Result<int32_t> readNumber(const cuda::Memory &memory, int32_t slot) const;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICECURSORS_H
