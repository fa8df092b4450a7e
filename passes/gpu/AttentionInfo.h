//===- AttentionInfo.h - what a launcher knows of attention kernels -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface between generated kernels of attentions and who launches them.
// Each argument of a kernel has the attribute `ladle.argument`; arrays are
// dense, numbers int32, and those without dimensions are passed by value. K is
// the entries of a ring, `sections` K / attentionSection rounded up.
//
// - slots [rows]; cu_seqlens [rows + 1], of prompts alone, whose tokens follow
//   one another; prompt_step, of bounded caches: the kernels answer that token
//   of each prompt
// - rows, capacity (K), sections, rows_in_halves: the least of rows from which
//   rings are read in halves; spare_page, last_page; fault [1], told of a
//   slot + 1 that had no page for its token, which then went to spare_page
// - window, band, sinks, wide, wide_gap, max_gap, max_chain, skip, as
//   AttentionSettings has them; limit and drift_limit, f32: 2 (1 − tau)²
// - cursors [slots, 8]: length, entries, amended; band, sinks and wide that
//   the ring was filled with
// - page_table [slots, last_page + 1], with the stride of a slot
// - key_pages [pages, cache heads, page, dk], value_pages
// - ring_queries [slots, heads, K, dk], ring_rotated; ring_values [slots,
//   heads, parts, K, dv]; f32 ring_sums [slots, heads, parts, K]; ring_depths
//   and ring_ends [slots, heads, K]; f32 ring_moments [slots, heads, 2]:
//   the mean of the squares, and of how many tokens
// - nearest f32 and nearest_entry [rows, heads, sections]: what find leaves
// - hits, starts [rows, heads]; row_plans [rows, 8]: slot, token, position,
//   entry, stores, amended, entries; prompt_plans: slot, first token, position,
//   tokens, those stored, amended before, entries after; pieces [.., 4]: task,
//   begin, end, twice the slot, and one more after a match; piece_bounds
//   [tasks, attends, 2]: the first piece, and the one behind the last
// - portion_count: warps of attend; portions [portion_count, 8]: the first
//   piece of a warp, and the one behind its last; at 4, what that first one is.
//   If `even`, it takes all between, else every portion_count-th. ranges
//   [tasks, attends, 8]: what plan notes for itself, but for the first ones
// - few_rows: if it is not 0, there is no plan. With a match, few takes the
//   place of attend: it finds what its warps take, and leaves lists of pieces
//   in ranges; find lets what is nearest through the gates. Without one there
//   is no finish either: attend finds what its warps take, and answers;
//   slot_count; arrivals [1 + tasks]: blocks that know where rows stand, and
//   those that have left pieces of a task. finish_slices may take the place of
//   finish: as many blocks side by side along x as `ladle.cluster` says have a
//   head
// - starts_early: not 0 if what is ahead writes nothing that is read here
// - piece_values f32 [pieces, share, dv], piece_sums f32 [pieces, share, 2]
// - tensors by their names behind "tensor:", with the strides of rows and
//   heads, in elements
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_ATTENTIONINFO_H
#define LADLE_PASSES_GPU_ATTENTIONINFO_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace ladle {

/// On an argument: what it is.
inline constexpr llvm::StringLiteral kArgumentAttr = "ladle.argument";
/// Warps of a kernel that puts prompts into pages, a token each.
inline constexpr int64_t kAttentionAppendWarps = 4;
/// Queries of a warp that answers prompts.
inline constexpr int64_t kAttentionWarpQueries = 16;
/// Entries of a ring that a block looks at.
inline constexpr int64_t kAttentionSection = 128;
/// Sections are a multiple of these, which are looked at together.
inline constexpr int64_t kAttentionSections = 4;
/// Rows whose portions warps of attend find by themselves, at most: one a lane.
inline constexpr int64_t kAttentionFewRows = 32;
/// Heads of those rows at most, where these may have matches: blocks of `_few`
/// note something of each.
inline constexpr int64_t kAttentionFewHeads = 512;
/// Of blocks that look at a section, how many fit into a multiprocessor.
inline constexpr int64_t kAttentionFindBlocks = 6;
/// Heads of the query that attend together, of a group that shares keys: a
/// product of tiles has 8 columns, one for each.
constexpr int64_t attentionShare(int64_t group) {
  int64_t share = 8;
  while (group % share != 0)
    --share;
  return share;
}
/// Pieces of a task, beside one more of each attend: fewer for more heads, so
/// that one row gives every warp of a device some.
constexpr int64_t attentionPieces(int64_t tasksOfRow) {
  constexpr int64_t all = 1024, least = 64;
  return all / tasksOfRow > least ? all / tasksOfRow : least;
}

} // namespace ladle

#endif // LADLE_PASSES_GPU_ATTENTIONINFO_H
