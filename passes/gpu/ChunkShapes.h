//===- ChunkShapes.h - what a block of a prefill takes at once --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CHUNKSHAPES_H
#define LADLE_PASSES_GPU_CHUNKSHAPES_H

#include <cstdint>

namespace ladle {

/// What a block of a prefill has of a prompt at a time, and of dv; threads
/// besides those with rows, which are a step ahead of them, of all crews that
/// take steps in turn; how many warps have the same 16 rows, with a part of dk
/// each; how many blocks, of tiles of one head, make steps for one another; and
/// of those with threads ahead, how many a multiprocessor is to hold.
struct GpuChunkShape {
  /// Threads that copy what is prepared, of a block that takes it.
  static constexpr int64_t kCopying = 32;
  /// Threads that registers are given to together.
  static constexpr int64_t kRegisterGroup = 128;
  /// Warps that multiply together.
  static constexpr int64_t kWarpsOfGroup = 4;
  int64_t tokens = 0, rows = 0, ahead = 0, crews = 1, keyParts = 1;
  int64_t cluster = 1, blocks = 1;
  bool splits = false; ///< keeps stacks of f32 as parts of bf16
  bool rests = false;  ///< keeps what products cut off of f32 beside them
  /// Four warps with rows multiply together, `splits` or `rests`.
  bool warpgroups = false;
  bool prepared = false; ///< those ahead are a kernel of their own
  /// It inverts for all of few tokens at once, and passes more on.
  bool invertsAll = false;
  int64_t threadsOfRows() const { return rows / 16 * keyParts * 32; }
  int64_t threadsOfCrew() const { return ahead / crews; }
  int64_t threadsOfBlock() const {
    return threadsOfRows() + (prepared ? kCopying : ahead);
  }
  /// Whether those with rows take registers of two crews beside them.
  bool takesFromCrews() const {
    return crews > 1 && threadsOfRows() > kRegisterGroup;
  }
  bool operator==(const GpuChunkShape &) const = default;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_CHUNKSHAPES_H
