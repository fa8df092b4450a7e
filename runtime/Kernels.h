//===- Kernels.h - what a compiler hands to the runtime ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface between compiled code and who calls it.
//
// A kernel computes a range of heads for one row. It takes an array of
// pointers, in this order:
//
// - eleven int64_t: row, read slot and write slot of the states, base and
//   length of the ring, first head, head after the last, read slot and write
//   slot of the carries, slot of the ring, number of drafts
// - a MemoryDescriptor for each parameter [heads, dims...], token
//   [rows, heads, dims...], carry [slots, heads, dims...], state
//   [slots, heads, dv, dk] or [slots, heads, dk, dv], field of the entries
//   [slots, heads, L, dims...] and output [rows, heads, dims...], in the order
//   of the signature
//
// Kernels without a buffer get no fields. A fold gets null descriptors for
// parameters, tokens and outputs. Carries, states and fields are dense within
// a slot. Kernels write carries, states and entries to the write slot; cursors
// are the runtime's, and move when all heads of the row are done.
//
// If entries lie in pages of P, fields are [pages, heads, P, dims...], and
// before them (after the order, if there is one) kernels get the page table of
// the slot [L / P] of int32: what the slot of the ring has at place i is entry
// i mod P of page table[i / P].
//
// Programs that verify drafts have, before the fields, the order of the slot's
// entries [L] of int32: entry j of the history lies at order[(base + j) mod L].
// Their verify kernels have, after the fields, the parents [most drafts] of
// int32. There the row is that of the first draft; carries have a version for
// each draft besides that of the history: with V = most drafts + 1 and v = read
// slot - write slot of the carries, draft d keeps its own at write slot +
// (v + 1 + d) mod V.
//
// Prefill kernels have, after the fields, a workspace [bytes] of u8, aligned to
// 64: RouteKernels says how large. There the row is that of the first token of
// the prompt, and the number of drafts that of its tokens. A kernel that folds
// a prompt gets no fields.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_KERNELS_H
#define LADLE_RUNTIME_KERNELS_H

#include "ladle/program.h"

namespace ladle {

using KernelFunction = void (*)(void **arguments);

/// The largest rank of a value, heads counted.
inline constexpr int64_t maxValueRank = 5;
/// The largest rank of an argument: a value of each row, which exceeds
/// [slots, heads, L, R, D] of a buffer.
inline constexpr int64_t maxArgumentRank = 1 + maxValueRank;
/// The most drafts of a row.
inline constexpr int64_t maxDrafts = 16;
/// The most tokens of a chunk.
inline constexpr int64_t maxChunk = 256;
inline constexpr size_t taskIntegers = 11;

/// Memory as compiled code takes it (a strided memref of MLIR). The strides
/// follow right after `rank` sizes, so that the arrays are one.
struct MemoryDescriptor {
  void *allocated = nullptr;
  void *aligned = nullptr;
  int64_t offset = 0;
  int64_t sizesAndStrides[2 * maxArgumentRank] = {};
};

struct GpuRoute;
struct GpuCode;

struct RouteKernels {
  RouteKind route;
  /// Null for a form that the route lacks.
  KernelFunction decode = nullptr, decodeFold = nullptr, fold = nullptr;
  /// Whether the kernels take the fields of the entries.
  bool usesBuffer = false;
  /// Instead of the functions, if the program is for a GPU.
  std::shared_ptr<const GpuRoute> gpu = nullptr;
  /// Null if drafts are decoded one after another.
  KernelFunction verify = nullptr, verifyFold = nullptr;
  /// Null if prompts are decoded one token after another; of kv_only, whose
  /// prompts are folded by the other, the first is null.
  KernelFunction prefillFold = nullptr, prefillEntries = nullptr;
  /// Bytes that a prefill kernel works in, and of those besides for each head
  /// of its task.
  int64_t workspaceBytes = 0, workspacePerHead = 0;
};

struct ProgramImpl {
  Signature signature;
  RouteKind route = RouteKind::Recurrent; ///< the one that decodes
  int64_t capacity = 0;                   ///< L, 0 without a buffer
  int64_t page = 0;   ///< entries of a page, 0 if there are none
  int64_t drafts = 0; ///< the most of a row; 0 if none are verified
  int64_t chunk = 0;  ///< tokens of a chunk; 0 if no prompts are taken
  /// Whether entries are folded where a chunk ends, and nowhere else.
  bool foldsByChunk = false;
  /// Heads that a task covers together; divides the heads of the signature.
  int64_t headGroup = 1;
  /// Of the buffers of all states: [heads], [heads, D] or [heads, R, D],
  /// without L. Shared by all routes that use a buffer.
  std::vector<TensorSpec> fields;
  /// kv_only hands rows over to another once they have folded, so needs both.
  std::vector<RouteKernels> routes;
  RouteKind longRoute = RouteKind::Inner;
  int64_t crossover = 0;      ///< by the cost model
  std::shared_ptr<void> code; ///< keeps the kernels in memory
  /// The device and what its routes share; null for the CPU.
  std::shared_ptr<const GpuCode> gpu;
  std::string manifest; ///< JSON
  /// A command that runs the kernels of a GPU alone, for who reports a failure.
  /// Empty if there is none.
  std::string reproducer;

  /// Those that decode a row: of kv_only, which would ignore a state, those of
  /// the other route once there is one.
  const RouteKernels &kernelsOf(RouteKind chosen, int64_t epoch) const {
    const RouteKernels &kernels = *find(chosen);
    return chosen == RouteKind::KvOnly && kernels.usesBuffer && epoch > 0
               ? *find(longRoute)
               : kernels;
  }
  /// Those that answer drafts at once, of rows with a state and without: where
  /// entries of kv_only lie in pages on a GPU, those of the other route, which
  /// are compiled with a way for rows without.
  const RouteKernels &verifier(RouteKind chosen) const;
  /// Whether rows of kv_only go on by a route that keeps no entries.
  bool rewritesLong() const {
    const RouteKernels *next = find(longRoute);
    return next && !next->usesBuffer;
  }
  const RouteKernels *find(RouteKind route) const {
    for (const RouteKernels &kernels : routes)
      if (kernels.route == route)
        return &kernels;
    return nullptr;
  }
};

} // namespace ladle

#endif // LADLE_RUNTIME_KERNELS_H
