//===- GpuLayout.h - how kernels of a GPU are laid out ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This header knows nothing of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_GPULAYOUT_H
#define LADLE_RUNTIME_JIT_GPULAYOUT_H

#include "ladle/status.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ladle::jit {

/// Parameters of the kernel generator by name. What is absent or 0 is left to
/// it.
using GpuLayout = std::map<std::string, int64_t>;

struct GpuParameter {
  std::string name;
  std::string text;           ///< what it is, for --help
  std::vector<int64_t> tried; ///< by the tuner, the simplest first
  bool verifies = false;      ///< of kernels that verify drafts, not of others

  std::string flag() const; ///< "--tile-rows"
};

/// All that there are. Commands take them as --name and in --schedule, the
/// tuner varies those that have values to try.
const std::vector<GpuParameter> &gpuParameters();

/// The value of the parameter "shared" for an architecture, for instance
/// "sm_120"; 0 for one that has as much as Hopper, or that is not known.
int64_t sharedBytesOf(llvm::StringRef arch);
/// Blocks of a cluster at the most: 1 before sm_90.
int64_t clusterBlocksOf(llvm::StringRef arch);

/// With what an architecture has of these, and of warps that multiply together,
/// where the layout leaves it open.
GpuLayout fittingLayout(GpuLayout layout, llvm::StringRef arch);

/// The value of the parameter "forms" for these: decode, decode_fold, fold,
/// prefill_fold, prefill_scan and prefill_entries, which are one number.
Result<int64_t> formsOf(const std::vector<std::string> &names);

/// Empty, or which name is none of a parameter and which there are.
std::string checkLayout(const GpuLayout &layout);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_GPULAYOUT_H
