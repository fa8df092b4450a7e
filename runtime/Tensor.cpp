//===- Tensor.cpp - views of strided memory -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/tensor.h"
#include "runtime/Convert.h"
#include "runtime/Text.h"
#include "runtime/cuda/DeviceMemory.h"

using namespace ladle;

std::vector<int64_t> ladle::denseStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

TensorView TensorView::dense(void *data, DType dtype,
                             std::vector<int64_t> shape, DeviceId device) {
  TensorView view{data, dtype, std::move(shape), {}, device};
  view.strides = denseStrides(view.shape);
  return view;
}

int64_t TensorView::count() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

bool TensorView::isDense() const {
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != stride)
      return false;
    stride *= shape[i];
  }
  return true;
}

/// The address `elements` after `data`.
static void *advance(void *data, DType dtype, int64_t elements) {
  return static_cast<char *>(data) + elements * sizeInBytes(dtype);
}

TensorView TensorView::slice(int64_t dimension, int64_t begin,
                             int64_t end) const {
  assert(dimension >= 0 && dimension < rank() && "no such dimension");
  assert(begin >= 0 && begin <= end && end <= shape[dimension] &&
         "slice outside the tensor");
  TensorView part = *this;
  part.data = advance(data, dtype, begin * strides[dimension]);
  part.shape[dimension] = end - begin;
  return part;
}

TensorView TensorView::operator[](int64_t index) const {
  TensorView part = slice(0, index, index + 1);
  part.shape.erase(part.shape.begin());
  part.strides.erase(part.strides.begin());
  return part;
}

std::string ladle::toString(const TensorView &tensor) {
  return fmt::format("{} {}", toString(tensor.dtype), shapeText(tensor.shape));
}

/// Calls `body(from, to)` with the addresses of each pair of elements.
template <typename Body>
static void forEachPair(const TensorView &from, const TensorView &to,
                        const Body &body) {
  int64_t rank = from.rank();
  int64_t inner = rank ? from.shape.back() : 1;
  int64_t fromStep = rank ? from.strides.back() : 1;
  int64_t toStep = rank ? to.strides.back() : 1;
  std::vector<int64_t> index(rank, 0);
  if (from.count() == 0)
    return;
  while (true) {
    int64_t source = 0, target = 0;
    for (int64_t i = 0; i + 1 < rank; ++i) {
      source += index[i] * from.strides[i];
      target += index[i] * to.strides[i];
    }
    for (int64_t i = 0; i < inner; ++i)
      body(advance(from.data, from.dtype, source + i * fromStep),
           advance(to.data, to.dtype, target + i * toStep));
    // Count up the outer dimensions, last one fastest.
    int64_t dimension = rank - 2;
    while (dimension >= 0 && ++index[dimension] == from.shape[dimension])
      index[dimension--] = 0;
    if (dimension < 0)
      return;
  }
}

Status ladle::copy(const TensorView &from, const TensorView &to) {
  if (from.shape != to.shape)
    return Status(ErrorCode::InvalidArgument,
                  fmt::format("cannot copy {} to {}: shapes differ",
                              toString(from), toString(to)));
  if (from.device != DeviceId() || to.device != DeviceId())
    return copyByHost(from, to);
  if (from.dtype == to.dtype) {
    size_t bytes = static_cast<size_t>(sizeInBytes(from.dtype));
    if (from.isDense() && to.isDense()) {
      if (from.count() > 0)
        std::memcpy(to.data, from.data, bytes * from.count());
    } else {
      forEachPair(from, to, [&](const void *source, void *target) {
        std::memcpy(target, source, bytes);
      });
    }
    return Status();
  }
  if (!isFloat(from.dtype) || !isFloat(to.dtype))
    return Status(ErrorCode::Unsupported,
                  fmt::format("cannot convert {} to {}: only float types "
                              "convert to one another",
                              toString(from.dtype), toString(to.dtype)));
  forEachPair(from, to, [&](const void *source, void *target) {
    storeFloat(to.dtype, loadFloat(from.dtype, source), target);
  });
  return Status();
}

Result<std::vector<float>> ladle::toFloats(const TensorView &tensor) {
  std::vector<float> values(tensor.count());
  Status status =
      copy(tensor, TensorView::dense(values, DType::F32, tensor.shape));
  if (!status)
    return status;
  return values;
}
