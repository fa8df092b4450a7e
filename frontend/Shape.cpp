//===- Shape.cpp - named dimensions -----------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Shape.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace ladle::frontend;

std::optional<ElementType>
ladle::frontend::parseElementType(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<ElementType>>(name)
      .Case("f32", ElementType::F32)
      .Case("bf16", ElementType::BF16)
      .Case("f16", ElementType::F16)
      .Default(std::nullopt);
}

llvm::SmallVector<int64_t> Shape::getSizes() const {
  llvm::SmallVector<int64_t> sizes = {getNumHeads()};
  for (const Dim &dim : features)
    sizes.push_back(dim.size);
  return sizes;
}

Shape Shape::dropLastFeature() const {
  Shape result = *this;
  result.features.pop_back();
  return result;
}

std::string Shape::str() const {
  llvm::SmallVector<Dim> dims;
  if (head)
    dims.push_back(*head);
  llvm::append_range(dims, features);
  return dims.empty() ? "one number" : formatDims(dims);
}

std::string ladle::frontend::formatDims(llvm::ArrayRef<Dim> dims) {
  std::string result;
  llvm::raw_string_ostream os(result);
  os << '[';
  llvm::interleaveComma(dims, os, [&](const Dim &dim) { os << dim.name; });
  os << ']';
  return result;
}

std::optional<llvm::SmallVector<int64_t>>
ladle::frontend::matchSubsequence(llvm::ArrayRef<Dim> part,
                                  llvm::ArrayRef<Dim> whole) {
  llvm::SmallVector<int64_t> positions;
  size_t next = 0;
  for (const Dim &dim : part) {
    while (next < whole.size() && !(whole[next] == dim))
      ++next;
    if (next == whole.size())
      return std::nullopt;
    positions.push_back(next++);
  }
  return positions;
}

bool ladle::frontend::headsDivide(const Shape &a, const Shape &b) {
  int64_t large = std::max(a.getNumHeads(), b.getNumHeads());
  int64_t small = std::min(a.getNumHeads(), b.getNumHeads());
  return large % small == 0;
}

std::optional<Shape> ladle::frontend::broadcastShapes(const Shape &a,
                                                      const Shape &b) {
  if (!headsDivide(a, b))
    return std::nullopt;
  Shape result;
  if (matchSubsequence(b.features, a.features))
    result.features = a.features;
  else if (matchSubsequence(a.features, b.features))
    result.features = b.features;
  else
    return std::nullopt;
  // A shared value has no head dimension, whatever the counts.
  bool takeB = b.head && (!a.head || b.getNumHeads() > a.getNumHeads());
  result.head = takeB ? b.head : a.head;
  return result;
}
