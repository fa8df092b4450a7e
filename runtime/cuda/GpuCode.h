//===- GpuCode.h - loaded kernels of a program ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_GPUCODE_H
#define LADLE_RUNTIME_CUDA_GPUCODE_H

#include "runtime/cuda/Driver.h"

#include <optional>
#include <vector>

namespace ladle {

/// The kernels of one route.
struct GpuRoute {
  std::vector<cuda::Argument> arguments;
  /// Launched one after the other, they are a step; each leaves the rows of the
  /// others alone.
  std::vector<cuda::Kernel> step;
  /// Folds the rows that have entries. Nothing without a buffer.
  std::optional<cuda::Kernel> fold;
  /// Answers the drafts of each row, and folds before where that is due.
  /// Nothing if the program takes none, or they wait for their parents.
  std::optional<cuda::Kernel> verify;
  /// Then one answers a draft of each row, and the other folds before the
  /// first.
  std::optional<cuda::Kernel> draft, draftFold;
  /// Folds the prompt of each row; that of kv_only leaves entries while they
  /// are few. Nothing if the program takes none, and of kv_only without pages.
  std::optional<cuda::Kernel> prefill;
  /// Prepares what these take of some steps. Nothing where they do so
  /// themselves.
  std::optional<cuda::Kernel> prepare;
};

/// What the routes of a program share.
struct GpuCode {
  cuda::Device device;
  /// Of runtime/jit/Cursors.cuh; one thread a row.
  cuda::Kernel advanceCursors;
  /// Of the same; a warp a row.
  cuda::Kernel commitDrafts;
  /// Of the same; a block a row.
  cuda::Kernel keepCarries;
  /// Of the same; a thread a row.
  cuda::Kernel notePrompts;
  /// Of the same: a block for each row and part of an array, and a thread a
  /// row.
  cuda::Kernel clearRows, resetCursors;
};

/// Rows of one launch: blocks along y.
inline constexpr int64_t maxGpuRows = 65535;

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_GPUCODE_H
