//===- RunTarget.h - what a run decodes on ----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_RUNTARGET_H
#define LADLE_TOOLS_LADLE_RUNTARGET_H

#include "tools/ladle/Host.h"
#include "tools/measure/Gpu.h"

#include <optional>

namespace ladle::tool {

/// What a report says of it.
struct RunMachine {
  Host host;       ///< the CPU, or the GPU in the same words
  int threads = 1; ///< of the CPU
  /// Of a GPU, otherwise empty: "sm_90a".
  std::string arch;
  /// Why this is not a GPU although there is one, or why the memory was not
  /// measured.
  std::string note;
};

struct RunTarget {
  std::optional<measure::Gpu> gpu;  ///< none: the CPU
  std::optional<DeviceInfo> device; ///< that `gpu` is
  RunMachine machine;

  /// For "cuda" a GPU, for "cpu" the CPU, for "auto" a GPU that can be used, if
  /// there is one. `threads` of the CPU are as many as it has cores, if none
  /// are given.
  static Result<RunTarget> choose(const std::string &target,
                                  std::optional<int64_t> threads);
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_RUNTARGET_H
