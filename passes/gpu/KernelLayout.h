//===- KernelLayout.h - how a GPU kernel is laid out ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_KERNELLAYOUT_H
#define LADLE_PASSES_GPU_KERNELLAYOUT_H

#include "dialect/LadleOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include <tuple>

namespace ladle {

/// Where an entry lies: of a slot, or of a page.
struct EntryPlace {
  mlir::Value outer, entry;
};

/// How a step is spread over a grid; see Geometry.cpp for how it is chosen.
struct GpuSchedule {
  int64_t threads = 0;  ///< of a block; 0: as many as rows need
  int64_t tileRows = 0; ///< rows of dv in a block; 0: about 32 KiB of state
  int64_t batch = 0;    ///< rows that blocks are for; 0: many
  int64_t pieces = 1;   ///< of a tile, each copied for the warps that read it
  int64_t stages = 1;   ///< in which rows of a warp are copied and read
  int64_t shared = 0;   ///< bytes that a block may have; 0: as on Hopper
  int64_t cluster = 0;  ///< blocks of a cluster at the most; 0: likewise
  int64_t productWarps = 0; ///< that multiply together; 0: likewise
  /// Heads that a block verifies one after the other; 0: as many as leave
  /// blocks enough.
  int64_t heads = 0;
};

/// Fewer blocks than these leave multiprocessors of a large GPU idle.
inline constexpr int64_t kBlocksToFill = 256;

/// What the slots of a pool have besides what a step takes.
struct GpuSlots {
  int64_t drafts = 0;      ///< the most of a row, 0 for none
  BufferType entries = {}; ///< null without a buffer

  bool arePaged() const { return entries && entries.isPaged(); }
  /// Whether they keep a state for each draft, for want of entries.
  bool keepStates() const { return drafts && !entries; }
};

/// Where a vector of `size` elements is: element c·lanes·width + lane·width + i
/// is element i of chunk c, or a thread's own row is the only one.
struct Place {
  bool isRow = false;
  int64_t size = 1, lanes = 1, width = 1, chunks = 1;
  /// Where the first chunk starts, if a loop goes over them.
  mlir::Value start = {};

  using Key = std::tuple<bool, int64_t, int64_t, int64_t>;
  Key key() const { return {isRow, size, lanes, width}; }
};

/// A field of entries that lie anywhere, to be copied to rows of shared memory:
/// `size` elements of an entry, from element `first` on.
struct Gather {
  mlir::Value from, to;
  FieldAttr field;
  mlir::Value first;
  int64_t size;
  int64_t turn = 0; ///< of the heads that a block takes one after the other
};

/// Fields with numbers that a key and its value are multiplied with.
using Scales = std::array<std::optional<llvm::StringRef>, 2>;
/// A key field that is used with vectors of decays.
struct DecayedKey {
  std::string name;
  Scales scales;
  bool isScaled;      ///< by `scales`, in `memory`
  mlir::Value memory; ///< [entries·ranks, dk + padding]
  mlir::Value parts;  ///< the same as bf16 that add up, for tensor cores
};
/// Elements of dk that a thread takes of entries: `wide` from `element` on,
/// if they are `inside`.
struct Columns {
  int64_t size, wide;
  bool isAll; ///< a thread has no more than these
  mlir::Value element, inside;
  /// Threads that are as many times too many share entries, the newest first.
  int64_t parts = 1;
  mlir::Value part{};
};

/// What a thread has of entries in these columns.
struct EntryColumns {
  llvm::SmallVector<mlir::Value> decays; ///< by entry
  /// By entry: keys, rank after rank.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> keys;
};

/// Operations of a stored state that tiles need not go through one by one; see
/// TileChains.cpp.
struct TileChain {
  /// Decays, and writes that are an entry of a fold.
  llvm::DenseSet<mlir::Operation *> absorbed;
  /// Vectors of decays after a fold, by which its keys are multiplied.
  llvm::MapVector<mlir::Operation *, llvm::SmallVector<mlir::Value>> later;
  /// What the token adds, by the fold that takes it along.
  llvm::DenseMap<mlir::Operation *, WriteOp> own;
  /// All vectors of decays, and their product [dk], shared.
  llvm::SmallVector<mlir::Value> decays;
  mlir::Value product;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_KERNELLAYOUT_H
