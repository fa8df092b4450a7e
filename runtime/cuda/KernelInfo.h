//===- KernelInfo.h - what a launcher knows of a GPU kernel -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface between generated kernels and who launches them.
//
// A kernel's grid is (gridBlocks, rows), its block (threads). It takes
//
// - const int *read_slots, *write_slots [rows]
// - int *cursors [slots, 2]: base and length of each slot's ring
// - const int *fold_threshold, int pad_slot; in pages two numbers, of rows with
//   a state and of those without
// - if the program verifies drafts: const int *entry_order [slots, L], where
// the
//   entries of a slot lie; const int *carry_versions [slots]; int *waiting
//   [slots], the drafts that wait there, and 256 if they came with a fold
// - if entries lie in pages of P: const int *page_table [slots, L / P + 1],
//   which pages those of a slot are, and last the spare one; fields are [pages,
//   heads, P, dims...]; const int *state_table [slots], which state a slot has,
//   negative for none; to both, 1 << 30 is added where others hold the block;
//   const int *epochs [slots], 0 for a slot whose state was never written; int
//   row_kind, 1 for the rows without a state, 2 for those with one, 0 for all.
//   One that verifies takes all rows: where both kinds are its own, 2 says that
//   there may be some without, and the way of kv_only ignores it
// - the kernel that verifies: const int *cu_seqlens [rows + 1], *parents, and
//   int has_parents, 0 for chains; its tokens and outputs are those of drafts
//   A kernel of one draft of each row: int draft and rows_of besides, which of
//   the drafts, and 1 for the rows without a state, 2 for those that have one
//   or fold before their drafts, 0 for all
// - the kernel of prompts: const int *cu_seqlens [rows + 1]; where they fold by
//   chunks, int part, 0 for what fills up the chunk that a slot has begun and 1
//   for the rest; where another kernel prepares its steps, both of them take
//   void *prepared, what passes from one to the other, int *ready [runs,
//   heads], 0 ahead of a launch and behind it, int first_run, the first of
//   those that a launch takes, row_count and head_count; after all others a
//   pointer and the stride of slots of each carry, for what prompts leave
//   behind
// - for each Argument a pointer, then int64 strides in elements: of a parameter
//   [heads, dims...], token or output [rows, heads, dims...] all but the
//   last of [.., D]; of a carry, state or field the one of its slots
//
// It leaves the cursors as they are; they move in a kernel of the runtime.
//
// Blocks of a row take heads in their order, each as many, or of some that
// would be in turn the first. If the program allows ranges of heads, a block
// touches nothing of other heads, padded rows included: a launch of fewer
// blocks with the addresses of later heads computes those.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_KERNELINFO_H
#define LADLE_RUNTIME_CUDA_KERNELINFO_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace ladle::cuda {

/// A tensor argument of the kernels.
struct Argument {
  enum class Kind { Param, Token, Carry, State, Field, Output } kind;
  size_t index; ///< among those of its kind
  /// Bytes that the address of a parameter, token or output, and each of its
  /// strides, is a multiple of; 0 is the size of an element.
  int64_t alignment = 0;
};

struct KernelInfo {
  std::string name;
  unsigned gridBlocks = 1, threads = 1;
  /// Of dynamic shared memory a block.
  unsigned sharedBytes = 0;
  /// May start before the kernels ahead of it have ended, for whose end it
  /// waits itself (griddepcontrol.wait, sm_90 on).
  bool programmatic = false;
  /// Blocks side by side along x that are a cluster (sm_90 on).
  unsigned cluster = 1;
  /// Of the kernel that prepares steps of prompts: how many runs of these a
  /// launch takes, tokens of a run, and bytes of it for all heads; and blocks
  /// that a multiprocessor is to have beside one that takes them. gridBlocks
  /// are heads.
  unsigned runs = 0, runTokens = 1, runBytes = 0, blocksBeside = 1;
};

} // namespace ladle::cuda

#endif // LADLE_RUNTIME_CUDA_KERNELINFO_H
