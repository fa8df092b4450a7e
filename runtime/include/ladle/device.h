//===- device.h - memory on a GPU, for who has no CUDA ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enough to decode on a GPU without including CUDA: programs that have
// allocations and streams of their own need none of it. The driver is opened at
// run time; where there is none, these calls return NotFound.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DEVICE_H
#define LADLE_DEVICE_H

#include "ladle/tensor.h"

namespace ladle {

struct DeviceInfo {
  std::string name;
  std::string arch;        ///< "sm_90a"
  std::string driverPath;  ///< of libcuda
  int driverVersion = 0;   ///< 13000: the newest CUDA that the driver knows
  int64_t memoryBytes = 0; ///< of the device
  int64_t freeBytes = 0;
  int64_t cacheBytes = 0; ///< the second level
  int multiprocessors = 0;
};

/// NotFound says what is missing and where it comes from.
Result<DeviceInfo> describeDevice(int index = 0);

/// A dense tensor in memory of its own on a device, or in that of the host.
class DeviceTensor {
public:
  /// Zero. ResourceExhausted if there is not so much memory.
  static Result<DeviceTensor> allocate(DeviceId device, DType dtype,
                                       std::vector<int64_t> shape);
  /// A copy of a view, in its type.
  static Result<DeviceTensor> copyOf(DeviceId device, const TensorView &view);

  const TensorView &view() const { return tensor; }
  template <typename T> T *as() const { return static_cast<T *>(tensor.data); }

private:
  TensorView tensor;
  std::shared_ptr<void> memory;
};

/// Waits for all work of a device; what went wrong in a kernel shows here.
Status synchronize(DeviceId device);

} // namespace ladle

#endif // LADLE_DEVICE_H
