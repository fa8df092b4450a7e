//===- tensor.h - views of strided memory -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors belong to the caller; Ladle looks at them through views and never
// copies an input.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TENSOR_H
#define LADLE_TENSOR_H

#include "ladle/status.h"
#include "ladle/types.h"

#include <span>

namespace ladle {

/// Memory of the caller. Strides count elements, not bytes.
struct TensorView {
  void *data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape, strides;
  /// Where `data` can be read and written.
  DeviceId device = {};

  /// A view of contiguous memory, last dimension fastest.
  static TensorView dense(void *data, DType dtype, std::vector<int64_t> shape,
                          DeviceId device = {});
  template <typename T>
  static TensorView dense(std::vector<T> &values, DType dtype,
                          std::vector<int64_t> shape) {
    return dense(static_cast<void *>(values.data()), dtype, std::move(shape));
  }

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  /// Elements, 1 for rank 0.
  int64_t count() const;
  bool isDense() const;
  /// Part [begin, end) of a dimension, for instance the tokens of one step.
  /// Asserts that the part lies in the view.
  TensorView slice(int64_t dimension, int64_t begin, int64_t end) const;
  /// Element `index` of the first dimension, which is dropped.
  TensorView operator[](int64_t index) const;
};

/// Strides of contiguous memory, last dimension fastest.
std::vector<int64_t> denseStrides(std::span<const int64_t> shape);

/// Copies elements, converting between float types (to nearest, ties to even)
/// and between host and device. Fails if shapes differ, or if one type is a
/// float and the other is not the same type. With a view on a device it waits
/// for all work of that device first.
Status copy(const TensorView &from, const TensorView &to);

/// The elements of a float tensor in the order of its dimensions.
Result<std::vector<float>> toFloats(const TensorView &tensor);

/// "bf16 [8, 32, 128]".
std::string toString(const TensorView &tensor);

} // namespace ladle

#endif // LADLE_TENSOR_H
