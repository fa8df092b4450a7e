//===- AttentionKernels.h - what attention kernels take ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface between compiled attentions and who calls them. A step has
// three kernels: `find` for a row and heads of the query, `attend` for a row, a
// head of the cache and a piece of its tokens, `finish` for a row and a head of
// the cache. All take the same array of pointers:
//
// - an int64_t for each member of AttentionTask, in that order
// - two floats: 2 (1 − tau)², and 2 (1 − drift)²
// - a MemoryDescriptor for each parameter, token and output, in the order of
//   the signature
// - the pages of keys [pages, cache heads, page, dk] and of values, the block
//   table [slots, pages of a slot] of int32
// - what pieces leave: A [pieces, group, dv] and (m, Z) [pieces, group, 2], of
//   f32
// - with a ring of K entries: hits [rows, heads] of int32, how many entries
//   before the newest, or −1; starts [rows, heads] of int64, from where what is
//   attended to anew; queries [slots, heads, K, dk]; with a drift the same
//   after rotation; summaries [slots, heads, parts, K, dv]; their log-sum-exp
//   [slots, heads, parts, K] of f32; depths [slots, heads, K] of int32; with
//   two parts, the ends of the first [slots, heads, K] of int64; where the
//   moment is estimated, [slots, heads, 2] of f32: the mean of the squares, and
//   of how many tokens.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_ATTENTIONKERNELS_H
#define LADLE_RUNTIME_ATTENTIONKERNELS_H

#include "ladle/attention.h"
#include "runtime/BoundedKernels.h"

#include <optional>

namespace ladle {

/// The most pieces of a history that are attended to apart (ladle.attend).
inline constexpr size_t mostAttends = 4;

struct AttentionTask {
  int64_t row = 0, slot = 0;
  /// Of the query for `find`; the first is the head of the cache for others.
  int64_t headBegin = 0, headEnd = 0;
  int64_t position = 0;          ///< of the token in its sequence
  int64_t count = 0, newest = 0; ///< ring entries to look at, and the last
  int64_t begin = 0, end = 0;    ///< the tokens of a piece
  int64_t piece = 0;             ///< where it leaves its summaries
  int64_t usesStarts = 0;        ///< whether it begins after a match
  int64_t stores = 0, entry = 0; ///< whether to leave a summary, and where
  int64_t amended = 0;           ///< tokens that left one, this one among them
  int64_t band = 0, sinks = 0, wide = 0, wideGap = 0, maxChain = 0;
  /// The pieces of attend i: bounds[i] to bounds[i + 1].
  int64_t bounds[mostAttends + 1] = {};
};
inline constexpr size_t attentionTaskIntegers =
    sizeof(AttentionTask) / sizeof(int64_t);

/// The places between tokens of the dialect's Bound.
enum class BoundKind : uint8_t { Start, Sinks, Wide, Band, End };

struct AttentionFormKernels {
  struct Piece {
    BoundKind begin = BoundKind::Start, end = BoundKind::End;
    bool afterMatch = false;
  };
  KernelFunction find = nullptr; ///< null if it looks for nothing
  KernelFunction attend = nullptr, finish = nullptr;
  std::vector<Piece> pieces;
};

struct GpuAttentionCode;

struct AttentionProgramImpl {
  Signature signature;
  AttentionSettings settings;
  std::string keyName, valueName; ///< the tokens that are cached
  DType keyType = DType::F32, valueType = DType::F32;
  int64_t cacheHeads = 0, keySize = 0, valueSize = 0, pageSize = 0;
  bool hasRing = false, isRotated = false, estimates = false;
  int64_t parts = 1;
  DType queryType = DType::F32, summaryType = DType::F32;
  AttentionFormKernels decode, prefill;  ///< the same without a ring
  std::optional<BoundedProgram> bounded; ///< instead of the two above
  std::string warnings, manifest;
  std::shared_ptr<void> code;
  DeviceId device;
  /// Of a device (runtime/cuda/DeviceAttention.h); without kernels of the host.
  std::shared_ptr<const GpuAttentionCode> gpu;
};

} // namespace ladle

#endif // LADLE_RUNTIME_ATTENTIONKERNELS_H
