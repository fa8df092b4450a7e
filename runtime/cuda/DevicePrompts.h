//===- DevicePrompts.h - prompts of an attention on a GPU -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A call is three launches (passes/gpu/AttentionPrompts.h), up to five for a
// cache that evicts (passes/gpu/BoundedPrompts.h), and four a round of a
// segmented one (passes/gpu/SegmentPrompts.h). How many tokens a row has is
// read on the device: grids are for as many as there is room for.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEPROMPTS_H
#define LADLE_RUNTIME_CUDA_DEVICEPROMPTS_H

#include "runtime/cuda/DeviceAttention.h"

namespace ladle {

/// Blocks of the three kernels, for prompts of so many rows with room for so
/// many tokens, one at least.
std::vector<cuda::Kernel::Extent> promptGrids(const AttentionProgramImpl &made,
                                              const GpuAttentionForm &form,
                                              int64_t rows, int64_t tokens);

/// Those of prompts of a cache that evicts, of the kernels that there are.
/// `queries` is of preferences, 0 if nobody asks for them.
std::vector<const GpuAttentionKernel *>
selectKernels(const GpuAttentionForm &form, int64_t queries);
std::vector<cuda::Kernel::Extent> selectGrids(const AttentionProgramImpl &made,
                                              const GpuAttentionForm &form,
                                              int64_t rows, int64_t tokens,
                                              int64_t queries);
/// Those that lower budgets.
std::vector<const GpuAttentionKernel *>
budgetKernels(const GpuAttentionForm &form);
std::vector<cuda::Kernel::Extent> budgetGrids(const AttentionProgramImpl &made,
                                              const GpuAttentionForm &form,
                                              int64_t rows);
/// What all of them leave for one another, in numbers of 32 bits.
std::map<std::string, int64_t> selectWorkspace(const AttentionProgramImpl &made,
                                               int64_t rows, int64_t tokens,
                                               int64_t queries);
/// Blocks of a head that say what a cut would cost so many queries.
int64_t preferenceBlocks(const AttentionProgramImpl &made, int64_t queries);
/// Numbers of all rows in an array of candidates.
int64_t candidatesOf(const AttentionProgramImpl &made, int64_t rows,
                     int64_t tokens);

/// Those of prompts of a segmented cache, for a round of so many tokens.
std::vector<const GpuAttentionKernel *>
segmentKernels(const GpuAttentionForm &form);
std::vector<cuda::Kernel::Extent> segmentGrids(const AttentionProgramImpl &made,
                                               const GpuAttentionForm &form,
                                               int64_t rows, int64_t tokens);
/// As many as are asked for, unless their memories were too large.
int64_t tokensOfRound(const AttentionProgramImpl &made, int64_t tokens);
std::map<std::string, int64_t>
segmentWorkspace(const AttentionProgramImpl &made, int64_t rows,
                 int64_t tokens);

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEPROMPTS_H
