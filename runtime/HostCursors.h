//===- HostCursors.h - cursors in the memory of the host --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_HOSTCURSORS_H
#define LADLE_RUNTIME_HOSTCURSORS_H

#include "runtime/CursorsImpl.h"

namespace ladle {

struct HostCursors final : Cursors::Impl {
  const Cursor &operator[](int32_t slot) const { return all[slot]; }
  /// Moves one of them as a row of a step or of a flush does.
  void moveRow(CursorMove::Kind kind, int32_t readSlot, int32_t writeSlot);

  Status begin() override;
  Status markWritten() override;
  Result<Cursor> read(int32_t slot) const override { return all[slot]; }
  Status write(int32_t slot, const Cursor &cursor, void *) override;
  Status moveThreshold(void *) override { return Status(); }
  Status move(const CursorMove &move, void *) override;
  Result<const int32_t *> stage(std::span<const int32_t> slots,
                                void *) override;

private:
  std::vector<Cursor> all;
  std::vector<int32_t> staged;
};

} // namespace ladle

#endif // LADLE_RUNTIME_HOSTCURSORS_H
