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

namespace ladle {

struct DeviceCursors final : Cursors::Impl {
  explicit DeviceCursors(std::shared_ptr<const GpuCode> code)
      : code(std::move(code)) {}

  std::shared_ptr<const GpuCode> code;
  /// A slot whose state kv_only has ignored, and 1. Set by the kernel that
  /// moves cursors, looked at by the next call. Freed last: freeing memory of
  /// the device waits for that kernel.
  cuda::HostWord fault;
  /// int32: [slots, 2] base and length, [slots] how often states were written,
  /// [1], and [slots] for a flush.
  cuda::Memory positions, epochs, thresholds, staged;
  /// If there can be drafts, int32: [slots, L] where entries lie, and [slots]
  /// which version of the carries is that of the history, and how many drafts
  /// wait, with `folded` if they came with a fold that the cursor does not know
  /// of yet.
  cuda::Memory order, versions, waiting;
  static constexpr int32_t folded = 256;
  /// If entries lie in pages, int32 [slots, L / P], and what the host knows of
  /// them. Who has no page has the spare one, which is behind the others.
  cuda::Memory pageTable;
  std::vector<int32_t> pagesOfSlots;
  Blocks freePages;
  /// Bytes of a slot without pages.
  static int64_t slotBytes(int64_t capacity, int64_t drafts);
  /// How the drafts that wait were verified, if cursors are of one pool.
  CursorMove::Kind verifiedBy = CursorMove::Append;

  /// Waits for the device: the host does not know how many entries there are.
  Status claim(std::span<const Claim> claims) override;
  Status release(int32_t slot, void *stream) override;
  BlockCount pageCount() const override {
    return {freePages.count(), freePages.free()};
  }
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
  Status takeFault() override;

private:
  int64_t tableSize() const { return page ? capacity / page : 0; }
  Status uploadPages(int32_t slot, void *stream);
  Result<int32_t> readNumber(const cuda::Memory &memory, int32_t slot) const;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICECURSORS_H
