//===- BoundedInfo.h - kernels of bounded attentions, launched --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface between generated kernels over bounded caches and who launches
// them. Each argument of a kernel has the attribute `ladle.argument`; arrays
// are dense, numbers int32. C is the capacity of the cache, C'
// boundedStride(C), Q the queries whose weights are kept.
//
// - slots [rows]; cu_seqlens [rows + 1] and prompt_step are of prompts
// - cursors [slots, cache heads, 8]: BoundedNumber
// - keys [slots, cache heads, C, dk], values [slots, cache heads, C, dv]
// - starts_early: not 0 if what is ahead writes nothing that `_attend` reads
// - window: of a segmented cache, by value
// - sequence [slots, cache heads, C']: entries in the order of their tokens;
//   token_positions [slots, cache heads, C'], by entry; weights f16 [slots,
//   cache heads, Q, C'], or for Q = 0 weight_sums f32 [slots, cache heads, C']
// - memory [slots, cache heads, dk, dv]; f32 memory_keys [slots, cache heads,
//   dk]: z, or the sum of keys; f32 memory_values [slots, cache heads, dv] and
//   memory_spread [slots, cache heads] of a Taylor memory
// - what kernels leave for one another: piece_values f32 [rows, tasks,
//   pieces_of_task, share, dv], piece_sums f32 [.., share, 2]; scores f32
//   [rows, heads, C']; memory_parts f32 [rows, cache heads, blocks, group * (dv
//   + 1)]
// - pieces_of_task, by value
// - tensors as of other attentions
//
// `_attend` has pieces along x, tasks of a row along y, rows along z; `_finish`
// has heads of the cache along x and rows along y.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BOUNDEDINFO_H
#define LADLE_PASSES_GPU_BOUNDEDINFO_H

#include <cstdint>

namespace ladle {

/// What a cursor holds.
enum class BoundedNumber : uint8_t {
  Length,  ///< tokens of the sequence
  Count,   ///< tokens that a cache that evicts holds
  Spare,   ///< the entry that is free once it is full
  Victim,  ///< the entry that leaves before the next token is answered, or −1
  Seen,    ///< queries whose weights were noted
  Evicted, ///< tokens in a Taylor memory
  Folds,   ///< segments in a linear memory
};
inline constexpr int64_t kBoundedNumbers = 8;
/// Keys of a piece.
inline constexpr int64_t kBoundedPiece = 256;
/// Threads of a block that finishes a head.
inline constexpr int64_t kBoundedThreads = 512;
/// Numbers of a row with one for each entry.
constexpr int64_t boundedStride(int64_t capacity) {
  constexpr int64_t width = 8;
  return (capacity + width - 1) / width * width;
}

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDINFO_H
