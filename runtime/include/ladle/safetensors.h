//===- safetensors.h - tensors in a file ------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes the safetensors format
// (https://github.com/huggingface/safetensors): eight bytes with the length of
// a JSON header, the header, then the bytes of the tensors without holes.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_SAFETENSORS_H
#define LADLE_SAFETENSORS_H

#include "ladle/tensor.h"

#include <map>

namespace ladle {

/// A file that has been checked as a whole and is mapped into memory. Copies
/// share the mapping. A view lives as long as one of them and is for reading
/// only: writing through it ends the process.
class Safetensors {
public:
  /// What the header says of a tensor. `type` is the format's own name, "F32"
  /// or "BF16"; files may hold types that Ladle does not compute with.
  struct Entry {
    std::string name, type;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0; ///< bytes, from the start of the tensor data
  };

  /// NotFound if the file cannot be read; InvalidData if it is truncated, its
  /// header is not what the format asks for, a size does not match a shape, or
  /// tensors overlap, leave holes or lie outside the file.
  static Result<Safetensors> open(const std::string &path);

  /// In the order of their data.
  std::span<const Entry> entries() const;
  bool contains(std::string_view name) const;
  /// NotFound names the tensors that there are; Unsupported is a type that is
  /// none of ours, or data at an address that does not suit its type.
  Result<TensorView> view(std::string_view name) const;
  const std::map<std::string, std::string> &metadata() const;

  /// Writes dense copies of the tensors, replacing the file when it is
  /// complete.
  static Status write(const std::string &path,
                      const std::map<std::string, TensorView> &tensors,
                      const std::map<std::string, std::string> &metadata = {});

private:
  struct Impl;
  explicit Safetensors(std::shared_ptr<const Impl> impl)
      : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

} // namespace ladle

#endif // LADLE_SAFETENSORS_H
