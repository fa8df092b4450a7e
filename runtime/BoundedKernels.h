//===- BoundedKernels.h - what kernels of bounded caches take ---*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface between compiled attentions over bounded caches and who calls
// them. A cache is bounded, so nothing is cut into pieces: a kernel does the
// whole step for one row and one head of the cache. It takes an array of
// pointers, in this order:
//
// - an int64_t for each member of BoundedTask, in that order
// - a MemoryDescriptor for each parameter, token and output, in the order of
//   the signature
// - keys [slots, cache heads, C, dk] and values [slots, cache heads, C, dv]
// - with a linear memory: M [slots, cache heads, dk, dv], and of f32
//   z [slots, cache heads, dk]
// - with a Taylor memory: L [slots, cache heads, dk, dv], and of f32
//   sum of keys [slots, cache heads, dk], sum of values [slots, cache heads,
//   dv] and (n, sum of |k - mean|²) [slots, cache heads, 2]
// - of a cache that evicts: tokens held [slots, cache heads] of int64; entries
//   in the order of the sequence [slots, cache heads, C] of int32; positions of
//   the tokens of the entries [slots, cache heads, C] of int64; and if it
//   remembers weights, with a count Q of queries: weights [slots, cache heads,
//   Q, C] and the number of queries so far [slots, cache heads] of int64; with
//   a count of 0: sums of the weights [slots, cache heads, C] of f32.
// - of the prompt of a cache that evicts: scores [group, n] of f32, which
//   answering a token leaves, by entry, and then of the prompt up to it; sums
//   of the weights so far [n] of f32, with a count of 0; and for its fold a
//   list of int32, entries or ~i for the prompt's token i. n has room for 16
//   more.
//
// C is the capacity of the cache. A segmented cache holds position p < sinks in
// entry p, and later ones in a ring: entry sinks + (p − sinks) mod (C − sinks).
// In one that evicts, an entry is whatever was free.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_BOUNDEDKERNELS_H
#define LADLE_RUNTIME_BOUNDEDKERNELS_H

#include "runtime/Kernels.h"

namespace ladle {

/// The most runs of entries that lie side by side: the sinks, and two pieces of
/// a ring.
inline constexpr size_t mostRuns = 3;

struct BoundedTask {
  int64_t row = 0, slot = 0;
  int64_t head = 0;     ///< of the cache
  int64_t position = 0; ///< of the token in its sequence
  int64_t appends = 1;  ///< whether the token enters the cache
  int64_t answers = 1;  ///< whether there is an output

  // Of a segmented cache.
  int64_t entry = 0; ///< where the token goes
  int64_t holds = 0; ///< whether the memory holds something after the fold
  /// Entries that are attended to: kept[2 i] to kept[2 i + 1], in order.
  int64_t kept[2 * mostRuns] = {};
  /// Those that are folded before, in the same way; nothing is if the first run
  /// is empty.
  int64_t folded[4] = {};
  int64_t isFirst = 0; ///< whether the memory holds nothing before the fold

  // Of a cache that evicts.
  int64_t budget = 0; ///< tokens that the slot may keep
  int64_t first = 0;  ///< of a prompt: the row of its first token
  int64_t listed = 0; ///< of its fold: tokens of the list
};
inline constexpr size_t boundedTaskIntegers =
    sizeof(BoundedTask) / sizeof(int64_t);

enum class BoundedKind : uint8_t { Segmented, Evicting };
enum class BoundedMemory : uint8_t { None, Linear, Taylor };

/// What is bounded about a program.
struct BoundedProgram {
  BoundedKind kind = BoundedKind::Segmented;
  int64_t capacity = 0, sinks = 0;
  int64_t window = 0, segment = 0;             ///< segmented
  int64_t budget = 0, recent = 0, queries = 0; ///< evicting
  double variance = 0;
  int64_t pool = 1;
  bool observes = false; ///< whether tokens remember weights
  /// Of a Taylor memory: what it is asked with, the token that is its query or
  /// nothing, and the limit of first order.
  double scale = 1, limit = 0;
  std::string queryName;
  BoundedMemory memory = BoundedMemory::None;
  int64_t memoryKeySize = 0;
  DType memoryType = DType::F32; ///< of its matrix
  KernelFunction decode = nullptr;
  /// Of a cache that evicts: answers a token of a prompt, and folds what is not
  /// kept of it, if there is a memory.
  KernelFunction prefillSelect = nullptr, prefillFold = nullptr;
};

} // namespace ladle

#endif // LADLE_RUNTIME_BOUNDEDKERNELS_H
