//===- ChunkProducts.h - products of a GPU's prefill ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_GPU_CHUNKPRODUCTS_H
#define LADLE_PASSES_GPU_CHUNKPRODUCTS_H

#include "mlir/IR/ValueRange.h"
#include "llvm/ADT/SmallVector.h"
#include <functional>

namespace ladle {

/// A side of a product; the index that is summed runs along its rows, or
/// along its columns.
struct GpuChunkOperand {
  mlir::Value memory;
  bool alongRows = false, isShort = false;
  /// What element (row of a token, column) is multiplied by; null for 1.
  std::function<mlir::Value(mlir::Value)> scale = nullptr;
  bool isRounded = false; ///< what it gives is rounded to 16 bits
  int64_t parts = 1;      ///< of its stack
  int64_t first = 0;      ///< column of a matrix of several stacks
};

struct GpuChunkFactor {
  /// Of the same right side, each a sum.
  llvm::SmallVector<GpuChunkOperand, 2> lefts;
  GpuChunkOperand right;
  /// Terms for a tile that begins at a row, a multiple of 8.
  std::function<mlir::Value(mlir::Value)> depth;
  bool isTriangular = false; ///< the depth is the row's
};

struct GpuChunkProduct {
  int64_t rows = 0, columns = 0;                ///< multiples of 16 and 8
  mlir::Value firstRow = nullptr;               ///< of `rows`; null for 0
  llvm::SmallVector<GpuChunkFactor, 2> factors; ///< of as many left sides each
  /// Columns of a tile that begins at a row; null for all.
  std::function<mlir::Value(mlir::Value)> width = nullptr;
  /// Two elements beside each other, before the product; null for zero.
  std::function<mlir::Value(mlir::Value, mlir::Value)> start = nullptr;
  /// With two elements beside each other of each sum.
  std::function<void(mlir::Value, mlir::Value, mlir::ValueRange)> finish;
};

/// Tiles that a warp has at a time, of each left side.
struct GpuChunkTogether {
  int64_t rows = 1, columns = 1;
};

/// Of warps' rows with a stack of so many parts, of which those count whose
/// numbers add up to an order at the most.
struct GpuChunkStackProduct {
  mlir::Value memory;
  int64_t parts, order;
  llvm::MutableArrayRef<mlir::Value> sums;
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_CHUNKPRODUCTS_H
