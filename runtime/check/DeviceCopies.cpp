//===- DeviceCopies.cpp - what a call gets on a device --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/DeviceCopies.h"

using namespace ladle;
using namespace ladle::check;

Result<std::span<const int32_t>>
DeviceCopies::upload(std::span<const int32_t> numbers) {
  if (!isOnDevice())
    return numbers;
  std::vector<int32_t> copied(numbers.begin(), numbers.end());
  Result<DeviceTensor> tensor = DeviceTensor::copyOf(
      device, TensorView::dense(copied.data(), DType::I32,
                                {static_cast<int64_t>(copied.size())}));
  if (!tensor)
    return tensor.status();
  held.push_back(std::move(*tensor));
  return std::span<const int32_t>(held.back().as<int32_t>(), numbers.size());
}

Status DeviceCopies::upload(Tensors &tensors) {
  if (!isOnDevice())
    return Status();
  for (auto &[name, view] : tensors) {
    Result<DeviceTensor> tensor = DeviceTensor::copyOf(device, view);
    if (!tensor)
      return tensor.status();
    held.push_back(std::move(*tensor));
    view = held.back().view();
  }
  return Status();
}

Status DeviceCopies::download(const TensorView &from,
                              std::span<float> to) const {
  if (!isOnDevice())
    return Status();
  if (Status status = synchronize(device); !status)
    return status;
  return copy(from, TensorView::dense(to.data(), DType::F32, from.shape));
}
