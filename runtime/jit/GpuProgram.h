//===- GpuProgram.h - a recurrence as CUDA text -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_GPUPROGRAM_H
#define LADLE_RUNTIME_JIT_GPUPROGRAM_H

#include "frontend/Options.h"
#include "ladle/types.h"
#include "runtime/cuda/KernelInfo.h"
#include "runtime/jit/GpuLayout.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ladle::jit {

struct GpuRequest {
  std::string path;
  frontend::ElaborationOptions elaboration; ///< without types
  std::string route;                        ///< empty: all, for their text
  std::string stateType, entryType = "f32", stateLayout = "dv_dk";
  int64_t capacity = 4;
  int64_t drafts = 0; ///< the most of a row
  int64_t chunk = 0;  ///< tokens of a prompt at once; 0 takes none
  GpuLayout layout;
  int64_t page = 0; ///< entries of a page; 0 for none
  /// Whether the kernel that verifies answers rows of kv_only as well, in
  /// pages.
  bool answersShortRows = false;
};

using GpuArgument = cuda::Argument;
using GpuKernelInfo = cuda::KernelInfo;

struct GpuProgram {
  Signature signature;
  std::vector<TensorSpec> fields;
  std::vector<GpuArgument> arguments;
  GpuKernelInfo decode;
  /// Whether rows fold by themselves, and the kernel that folds on demand.
  bool folds = false;
  std::optional<GpuKernelInfo> fold;
  /// Of all drafts of a row at once. Nothing without drafts, or where they wait
  /// for their parents.
  std::optional<GpuKernelInfo> verify;
  /// Otherwise of one draft of each row, and what folds before the first.
  std::optional<GpuKernelInfo> draft, draftFold;
  /// Of all tokens of each prompt. Nothing without prompts, or where tokens
  /// wait for those before them.
  std::optional<GpuKernelInfo> prefill;
  /// Then of what needs no state, many steps ahead. Nothing where the others
  /// make it themselves.
  std::optional<GpuKernelInfo> prepare;
  std::string text;

  /// Ranges of heads that can be computed alone are multiples of it; all heads
  /// if none can.
  int64_t headGroup() const;
};

/// Compiles as far as CUDA C++. Nothing, and the diagnostics in `messages`, on
/// an error.
std::optional<GpuProgram> compileForGpu(const GpuRequest &request,
                                        std::string &messages);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_GPUPROGRAM_H
