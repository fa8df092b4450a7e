//===- Shape.h - named dimensions ---------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_SHAPE_H
#define LADLE_FRONTEND_SHAPE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <string>

namespace ladle::frontend {

enum class ElementType { F32, BF16, F16 };

/// "f32", "bf16" or "f16"; nothing for another name.
std::optional<ElementType> parseElementType(llvm::StringRef name);

struct Dim {
  std::string name;
  int64_t size = 1;

  /// Dimensions are compared by name: Dk and Dv differ even when both are 128.
  bool operator==(const Dim &other) const { return name == other.name; }
};

/// The shape of a value: heads, then features.
struct Shape {
  /// Nothing: the value is shared by all heads.
  std::optional<Dim> head;
  llvm::SmallVector<Dim, 3> features;

  int64_t getNumHeads() const { return head ? head->size : 1; }
  /// Sizes, heads first: the shape of the tensor that holds the value.
  llvm::SmallVector<int64_t> getSizes() const;
  /// Without the last dimension, of which there has to be one.
  Shape dropLastFeature() const;
  /// As a person reads it: `[Hv, Dk]`, or `one number` without dimensions.
  std::string str() const;
};

/// `[R, Dk]`.
std::string formatDims(llvm::ArrayRef<Dim> dims);

/// Where the dimensions of `part` stand in `whole`, if they occur there in the
/// same order, perhaps with others between them.
std::optional<llvm::SmallVector<int64_t>>
matchSubsequence(llvm::ArrayRef<Dim> part, llvm::ArrayRef<Dim> whole);

/// True if one of the counts is a multiple of the other.
bool headsDivide(const Shape &a, const Shape &b);

/// The shape of an elementwise operation: the larger head count, and the
/// longer features if the shorter are a subsequence of them. Nothing if the
/// features do not match or the head counts do not divide.
std::optional<Shape> broadcastShapes(const Shape &a, const Shape &b);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_SHAPE_H
