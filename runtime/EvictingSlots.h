//===- EvictingSlots.h - what heads of a cache hold -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_EVICTINGSLOTS_H
#define LADLE_RUNTIME_EVICTINGSLOTS_H

#include "runtime/AttentionPool.h"
#include "runtime/Eviction.h"

namespace ladle {

/// The arrays of a pool whose cache evicts, in memory of the host: what
/// runtime/BoundedKernels.h says, of one head of a slot.
class EvictingSlots {
public:
  explicit EvictingSlots(AttentionPoolImpl &pool);

  struct Head {
    int64_t *held = nullptr;
    int32_t *order = nullptr;     ///< [C]
    int64_t *positions = nullptr; ///< [C], by entry
    /// [rows, C], by entry; a single row of sums if there is no count of
    /// queries, null if nobody notes weights.
    float *weights = nullptr;
    int64_t *seen = nullptr; ///< null if there is no count of queries
  };
  Head head(int32_t slot, int64_t head) const;

  /// What a slot remembers of tokens that were there before it was reset.
  void clear(int32_t slot);

  /// What a head holds, in the order of the sequence, for a choice after
  /// `length` tokens.
  Candidates candidates(int32_t slot, int64_t head, int64_t length) const;

  /// Keeps those of the first `held` candidates that are in `kept`, in entries
  /// [0, kept.size()), and says which entry each of `kept` has; those of other
  /// candidates are free. Weights and positions are the caller's to write.
  std::vector<int32_t> compact(int32_t slot, int64_t head,
                               std::span<const int32_t> kept);

  EvictionNumbers numbers() const;

private:
  AttentionPoolImpl &pool;
  const BoundedProgram &bounded;
  size_t first; ///< of its arrays among those of a bounded pool
};

} // namespace ladle

#endif // LADLE_RUNTIME_EVICTINGSLOTS_H
