//===- DeviceMemory.h - tensors between host and device ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEMEMORY_H
#define LADLE_RUNTIME_CUDA_DEVICEMEMORY_H

#include "ladle/tensor.h"

namespace ladle {

inline uint64_t addressOf(const void *pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}
inline void *pointerTo(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver tells addresses.
  return reinterpret_cast<void *>(address);
}

/// Elements between neighbours along a dimension: kernels are told in 32 bits.
inline constexpr int64_t kMaxStride = INT32_MAX;

/// copy() of views of which one or both are on a device: by way of host memory.
Status copyByHost(const TensorView &from, const TensorView &to);

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEMEMORY_H
