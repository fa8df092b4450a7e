//===- DevicePool.h - a pool in the memory of a GPU -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEPOOL_H
#define LADLE_RUNTIME_CUDA_DEVICEPOOL_H

#include "runtime/PoolImpl.h"
#include "runtime/cuda/DeviceCursors.h"

namespace ladle {

struct DevicePool final : Pool::Impl {
  explicit DevicePool(std::shared_ptr<const GpuCode> code)
      : code(std::move(code)) {}

  std::shared_ptr<const GpuCode> code;

  Result<std::shared_ptr<void>> allocate(int64_t bytes) override;
  Status checkArray(const Array &array) const override;
  Status clear(const Array &array, int32_t slot, void *stream) override;
  Result<bool> canFold(const Program &program,
                       std::span<const int32_t> slots) const override;
  Status fold(const Program &program, std::span<const int32_t> slots,
              void *stream) override;
  Status read(const Array &array, int32_t slot, void *to,
              void *stream) const override;
  Status write(const Array &array, int32_t slot, const void *from,
               void *stream) override;

  DeviceCursors &positions() const {
    return static_cast<DeviceCursors &>(shared());
  }
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEPOOL_H
