//===- HostPool.h - a pool in the memory of the host ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_HOSTPOOL_H
#define LADLE_RUNTIME_HOSTPOOL_H

#include "runtime/PoolImpl.h"

namespace ladle {

struct HostPool final : Pool::Impl {
  std::vector<Cursor> cursors;

  /// What a slot of a pool for drafts has besides its cursor. With V = most
  /// drafts + 1, draft d keeps its carries, and its states if no entry can hold
  /// it, in version (v + 1 + d) mod V, where v is that of the history.
  struct Branches {
    int32_t carryVersion = 0, stateVersion = 0;
    bool inStates = false; ///< whether the drafts are states
  };
  std::vector<Branches> branches;
  /// [slots, L]: a permutation of each slot's entries. Entry j of the history
  /// lies at order[(base + j) mod L], and those after it are free.
  std::vector<int32_t> order;
  /// [slots, most drafts]: of the drafts that are not committed.
  std::vector<int32_t> parents;

  int64_t pending(int64_t slot) const {
    return cursors[slot].length - cursors[slot].committed;
  }
  /// InvalidArgument if a slot has drafts.
  Status checkCommitted(int32_t slot) const;
  int64_t versionOf(int64_t draft, int32_t current) const {
    return (current + 1 + draft) % (drafts + 1);
  }
  /// The indices that kernels know a slot's state and carries by.
  int64_t stateIndex(int64_t slot, int64_t version) const {
    return slot * (states.empty() ? 1 : states.front().versions) + version;
  }
  int64_t carryIndex(int64_t slot, int64_t version) const {
    return slot * (drafts + 1) + version;
  }

  /// Which row of which step wrote a slot last, to find rows that collide
  /// without clearing or sorting anything.
  struct Writer {
    int64_t step = 0, row = 0;
  };
  std::vector<Writer> writers;
  int64_t steps = 0;

  Result<std::shared_ptr<void>> allocate(int64_t bytes) override;
  Status checkArray(const Array &array) const override;
  Status begin(const Cursor &initial) override;
  Result<Cursor> readCursor(int32_t slot) const override;
  Status writeCursor(int32_t slot, const Cursor &cursor, void *) override;
  Status moveThreshold(void *) override { return Status(); }
  Status settle(int32_t slot) override;
  Status commit(std::span<const int32_t> slots,
                std::span<const int32_t> numAccepted,
                std::span<const int32_t> accepted, void *) override;
  Status clear(const Array &array, int32_t slot, void *) override;
  Status flush(const Program &program, std::span<const int32_t> slots,
               void *) override;
  Status read(const Array &array, int32_t slot, void *to,
              void *) const override;
  Status write(const Array &array, int32_t slot, const void *from,
               void *) override;
};

} // namespace ladle

#endif // LADLE_RUNTIME_HOSTPOOL_H
