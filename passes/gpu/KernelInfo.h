//===- KernelInfo.h - what a launcher knows of a GPU kernel -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_KERNELINFO_H
#define LADLE_PASSES_GPU_KERNELINFO_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace ladle {

/// Forms that kernels may hold, as numbers that can be added.
inline constexpr int64_t kDecodeForm = 1, kDecodeFoldForm = 2, kFoldForm = 4,
                         kPrefillForm = 8, kVerifyForm = 16;
/// What waits in a slot: so many drafts, and this if they came with a fold that
/// its cursor does not know of yet.
inline constexpr int64_t kFolded = 256;
/// Of a row.
inline constexpr int64_t kMostDrafts = 16;
/// Added to a page or a state in a table if other slots hold it as well: it is
/// read, and not written.
inline constexpr int64_t kSharedBlock = int64_t(1) << 30;
/// On a kernel: its arguments before those of the step.
inline constexpr llvm::StringLiteral kCommonArgumentsAttr =
    "ladle.common_arguments";
/// On a kernel: blocks along x for a row of the batch; rows are blocks along y.
inline constexpr llvm::StringLiteral kGridBlocksAttr = "ladle.grid_blocks";
/// On a kernel that prepares steps of prompts: how many runs of these a launch
/// takes, tokens of a run, and bytes of it for all heads.
inline constexpr llvm::StringLiteral kRunsAttr = "ladle.runs",
                                     kTokensOfRunAttr = "ladle.run_tokens",
                                     kBytesOfRunAttr = "ladle.run_bytes";
/// Beside them: blocks of it that a multiprocessor has room for beside one of
/// the kernel that takes the steps.
inline constexpr llvm::StringLiteral kBlocksBesideAttr = "ladle.blocks_beside";
/// On a kernel: blocks side by side along x that meet, and may reach one
/// another's shared memory; those along x are a multiple.
inline constexpr llvm::StringLiteral kClusterAttr = "ladle.cluster";
/// On a kernel: blocks that a multiprocessor holds at once at the least. ptxas
/// takes as many registers as these leave.
inline constexpr llvm::StringLiteral kBlocksAttr = "ladle.blocks";
/// Beside it: bytes a thread that may be spilled to hold as many, for a kernel
/// that was measured to gain by it.
inline constexpr llvm::StringLiteral kSpillsAttr = "ladle.may_spill";
/// On a kernel, a unit: it may start before the kernels ahead of it have ended,
/// and waits for their end before it writes.
inline constexpr llvm::StringLiteral kStartsEarlyAttr = "ladle.starts_early";
/// On a barrier: it is one of a warp alone.
inline constexpr llvm::StringLiteral kOfWarpAttr = "ladle.of_warp";
/// On a store, a unit: the next kernel reads it. On a copy: it is written soon.
inline constexpr llvm::StringLiteral kKeptAttr = "ladle.kept";
/// On a masked load, a unit: nobody writes what it loads while the kernel runs.
inline constexpr llvm::StringLiteral kConstantAttr = "ladle.constant";
/// On a copy from shared memory: it goes on until it is waited for.
inline constexpr llvm::StringLiteral kGoesOnAttr = "ladle.goes_on";
/// On a barrier: bulk copies may overwrite what was read before it.
inline constexpr llvm::StringLiteral kReleasesAttr = "ladle.releases";
/// On shared memory: the number of that whose bytes it takes, which nobody
/// needs any more when it is written.
inline constexpr llvm::StringLiteral kSharesAttr = "ladle.shares";
/// On shared memory, a unit: no row that needs it needs that without it, so
/// that it lies where that does. Its kernel has one array.
inline constexpr llvm::StringLiteral kOtherRowsAttr = "ladle.other_rows";
/// On a kernel, a unit: its shared memory is one array, however small, so that
/// all of it is at constant distances from one address.
inline constexpr llvm::StringLiteral kOneArrayAttr = "ladle.one_array";
/// On a kernel, a unit: products of strides are instructions of their own, not
/// left to a compiler that widens their factors first, and apart.
inline constexpr llvm::StringLiteral kWideProductsAttr = "ladle.wide_products";
/// On an argument: its name in the source.
inline constexpr llvm::StringLiteral kNameAttr = "ladle.name";
/// On an argument: bytes that its address and its strides are multiples of.
inline constexpr llvm::StringLiteral kAlignmentAttr = "ladle.alignment";

} // namespace ladle

#endif // LADLE_PASSES_GPU_KERNELINFO_H
