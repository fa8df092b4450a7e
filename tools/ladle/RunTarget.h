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

/// A GPU, or the CPU.
struct RunTarget {
  std::optional<measure::Gpu> gpu;
  std::optional<DeviceInfo> device; ///< that `gpu` is
  Host host;                        ///< either of them
  int cores = 1;                    ///< of the CPU
  /// Why the GPU that there is is not used; otherwise empty.
  std::string note;

  /// For "cuda" a GPU, for "cpu" the CPU, for "auto" a GPU that can be used, if
  /// there is one.
  static Result<RunTarget> choose(const std::string &target);
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_RUNTARGET_H
