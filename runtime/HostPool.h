//===- HostPool.h - a pool in the memory of the host ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_HOSTPOOL_H
#define LADLE_RUNTIME_HOSTPOOL_H

#include "runtime/HostCursors.h"
#include "runtime/PoolImpl.h"

namespace ladle {

struct HostPool final : Pool::Impl {
  /// [slots]: the rounds of drafts that this layer verified last.
  std::vector<int64_t> verified;
  /// [slots]: the rounds of the tokens and prompts that it took last.
  std::vector<int64_t> taken;

  bool hasTaken(int32_t slot, int64_t round) const {
    return !taken.empty() && taken[slot] == round;
  }
  void take(int32_t slot, int64_t round) {
    taken.resize(static_cast<size_t>(slots));
    taken[slot] = round;
  }

  /// Whether the drafts of a slot that has some are verified here.
  bool hasVerified(int32_t slot) const {
    return !verified.empty() &&
           verified[slot] == positions().branch(slot).round;
  }
  /// The indices that kernels know a slot's state and carries by.
  /// A slot that has no state yet is one of kernels that touch none.
  int64_t stateIndex(int32_t slot, int64_t version) const {
    int64_t state = std::max(positions().stateOf(slot), 0);
    return state * (states.empty() ? 1 : states.front().versions) + version;
  }
  int64_t carryIndex(int64_t slot, int64_t version) const {
    return slot * (drafts + 1) + version;
  }

  Result<std::shared_ptr<void>> allocate(int64_t bytes) override;
  Status checkArray(const Array &array) const override;
  Status clear(const Array &array, int32_t slot, void *) override;
  Result<bool> canFold(const Program &program,
                       std::span<const int32_t> slots) const override;
  Status fold(const Program &program, std::span<const int32_t> slots,
              void *) override;
  Status read(const Array &array, int32_t slot, void *to,
              void *) const override;
  Status write(const Array &array, int32_t slot, const void *from,
               void *) override;

  HostCursors &positions() const {
    return static_cast<HostCursors &>(shared());
  }
};

} // namespace ladle

#endif // LADLE_RUNTIME_HOSTPOOL_H
