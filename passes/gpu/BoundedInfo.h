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
// - key_pages [slots, cache heads, C, dk], value_pages [slots, cache heads, C,
//   dv]
// - starts_early: not 0 if what is ahead writes nothing that is read here
// - slot_count: of the pool, by value
// - window: of a segmented cache, by value
// - sequence [slots, cache heads, C']: entries in the order of their tokens;
//   token_positions [slots, cache heads, C'], by entry; weights f16 [slots,
//   cache heads, Q, C'], and of the last Q of a token that are in them the
//   sums, window_sums int32, and those of their squares, window_squares int64
//   [slots, cache heads, C'], of units of windowBits; or for Q = 0 weight_sums
//   f32 [slots, cache heads, C']
// - memory [slots, cache heads, dk, dv]; f32 memory_keys [slots, cache heads,
//   dk]: z, or the sum of keys; f32 memory_values [slots, cache heads, dv] and
//   memory_spread [slots, cache heads] of a Taylor memory
// - tensors as of other attentions
// - of prompts of a cache that evicts, what its kernels leave for one another
//   (passes/gpu/BoundedPrompts.h). A candidate is a token that a head holds, or
//   one of the prompt; candidate i of row r is number r C' + cu_seqlens[r] + i.
//   f32 query_sums [tokens, heads], logarithms to the base 2; f32 salience,
//   ranks and leaving [cache heads, candidates], with the number `candidates`
//   of all by value; kept_tokens and kept_entries [rows, cache heads, C'];
//   head_plans [rows, cache heads, 8]: slot, first token, length before,
//   tokens, those held, those that stay, those in the memory before; f32
//   spread_parts [rows, cache heads, kSpreadParts]
// - of budgets that are lowered: budgets [rows]
// - of preferences (LayerPreference of ladle/budgets.h): preference_budget and
//   preference_queries; preference_of_exact, not 0 for the entropy of exact
//   weights; preference_exponent, f32; preference_blocks, those of `_prefer` of
//   a head of a row, each with preferenceTokens of the last queries;
//   f32 preference_spread [rows, cache heads]; f32 preference_parts [rows,
//   cache heads, preference_blocks, kPreferenceNumbers]: sums of disturbance
//   and of entropy, and the number of queries
// - of prompts of a segmented cache (passes/gpu/SegmentPrompts.h): tokens of
//   the call from round_begin to round_end, by value, are answered; f32
//   segment_memory [memories, cache heads, dk, dv] and segment_keys [memories,
//   cache heads, dk]; prompt_plans [rows, 8]: slot, first token, length
//   before, tokens, segments in the memory after
//
// The grid of a step has the blocks of a cluster along x, a power of two of
// them between kLeastBlocksAttr of the kernel and what the card has, and any
// number of clusters along y: each takes heads of the cache of rows in turn.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_BOUNDEDINFO_H
#define LADLE_PASSES_GPU_BOUNDEDINFO_H

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cstdint>

namespace ladle {

/// What a cursor holds.
enum class BoundedNumber : uint8_t {
  Length,  ///< tokens of the sequence
  Count,   ///< tokens that a cache that evicts holds
  Place,   ///< of who leaves, in the sequence
  Victim,  ///< the entry that leaves before the next token is answered, or −1
  Seen,    ///< queries whose weights were noted
  Evicted, ///< tokens in a Taylor memory
  Folds,   ///< segments in a linear memory
  Budget,  ///< of the slot; 0: the program's
};
inline constexpr int64_t kBoundedNumbers = 8;
/// Candidates of a block that scores or keeps them.
inline constexpr int64_t kPromptTileKeys = 64;
/// Rows of a memory that a block folds into, and what is left of these at most.
inline constexpr int64_t kFoldRows = 16, kSpreadParts = 16;
/// Queries of a product of tiles; what is left of those of a block that judges
/// a cut.
inline constexpr int64_t kPromptTileQueries = 16, kPreferenceNumbers = 3;
/// Tokens of a tile of queries, each with all heads of a group, padded.
constexpr int64_t preferenceTokens(int64_t group) {
  int64_t padded = 1;
  while (padded < group)
    padded *= 2;
  return kPromptTileQueries / std::min(padded, kPromptTileQueries);
}
/// Weights whose distance ½ Σ |Ã − A| is no more are equal
/// (runtime/Eviction.h).
inline constexpr double kNegligibleDistance = 1e-6;
/// Of prompts by segments: rows of a memory that a warp folds into; elements
/// that a block sums up, and those of a thread.
inline constexpr int64_t kSegmentRows = 16;
inline constexpr int64_t kScanElements = 1024, kScanWidth = 4;
/// On a kernel: blocks that a cluster has at the least, for what each holds.
inline constexpr llvm::StringLiteral kLeastBlocksAttr = "ladle.least_blocks";
/// Blocks of a cluster at the most, where there are any: of every card.
inline constexpr int64_t kMostBlocks = 8;
/// Sums over a window are exact: a weight of so many heads at the most is so
/// many units of 2^-bits, all those of f16 if there is room for them. Beside a
/// sum of squares there is room for the number of queries.
constexpr int64_t windowBits(int64_t heads, int64_t queries) {
  int64_t ofHeads = 0, ofQueries = 0;
  while ((int64_t(1) << ofHeads) < heads)
    ++ofHeads;
  while ((int64_t(1) << ofQueries) < queries + 1)
    ++ofQueries;
  constexpr int64_t all = 24, sums = 32, squares = 64;
  int64_t bits = std::min(all, sums - ofHeads - ofQueries);
  return std::min(bits, (squares - 2 * (ofHeads + ofQueries)) / 2);
}
/// Numbers of a row with one for each entry.
constexpr int64_t boundedStride(int64_t capacity) {
  constexpr int64_t width = 8;
  return (capacity + width - 1) / width * width;
}

} // namespace ladle

#endif // LADLE_PASSES_GPU_BOUNDEDINFO_H
