//===- KernelCaller.h - kernels over rows and heads -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Holds the argument lists of kernels, so that a step only fills in what has
// changed and allocates nothing.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_KERNELCALLER_H
#define LADLE_RUNTIME_KERNELCALLER_H

#include "runtime/Memory.h"
#include "runtime/PoolImpl.h"
#include "runtime/ThreadPool.h"

namespace ladle {

struct HostPool;

/// What a kernel does for one row. States, carries and entries have indices of
/// their own: slots hold several versions of the first two.
struct RowTask {
  KernelFunction kernel = nullptr;
  bool usesBuffer = false;
  int64_t row = 0, readSlot = 0, writeSlot = 0, base = 0, length = 0;
  int64_t readCarry = 0, writeCarry = 0;
  int32_t entrySlot = 0;
  int64_t drafts = 0;               ///< of a verify kernel
  const int32_t *order = nullptr;   ///< if the program verifies
  const int32_t *pages = nullptr;   ///< if entries lie in pages
  const int32_t *parents = nullptr; ///< of a verify kernel
  bool prefills = false;            ///< takes a workspace
};

/// The task of a slot's committed history, in place.
RowTask taskOf(const HostPool &pool, KernelFunction kernel, bool usesBuffer,
               int32_t slot);

struct HeadRange {
  int64_t begin = 0, end = 0;
};

class KernelCaller {
public:
  /// Parameters, tokens and outputs are null until they are described. `pool`
  /// must outlive this.
  KernelCaller(const Program &program, const Pool::Impl &pool, int workers);
  KernelCaller(const KernelCaller &) = delete;

  std::span<MemoryDescriptor> params() {
    return {descriptors.data(), paramCount};
  }
  std::span<MemoryDescriptor> tokens() {
    return {descriptors.data() + paramCount, tokenCount};
  }
  std::span<MemoryDescriptor> outputs() {
    return std::span(descriptors).last(outputCount);
  }

  /// Makes room for the workspaces of prefill kernels. ResourceExhausted if
  /// there is not so much memory.
  Status reserveWorkspace(const RouteKernels &kernels);

  /// Runs `tasks` over a range of heads, split so that all threads are busy.
  /// Prefill kernels get as few heads at a time as go together, whose states
  /// then stay in the nearest cache.
  void run(ThreadPool &threads, std::span<const RowTask> tasks,
           HeadRange heads);

private:
  /// The arguments of one worker. On a cache line of its own, since they are
  /// written for every task.
  struct alignas(64) Worker {
    int64_t integers[taskIntegers];
    MemoryDescriptor order, pages, parents, workspace;
    Memory workspaceMemory;
    /// Arguments of decode kernels without and with fields, of verify kernels,
    /// and of prefill kernels that fold and that append.
    std::vector<void *> withoutFields, withFields, withParents, folds, appends;
  };

  int64_t headGroup;
  size_t paramCount, tokenCount, outputCount;
  std::vector<MemoryDescriptor> descriptors;
  std::vector<Worker> workers;
  int64_t workspaceBytes = 0;
};

} // namespace ladle

#endif // LADLE_RUNTIME_KERNELCALLER_H
