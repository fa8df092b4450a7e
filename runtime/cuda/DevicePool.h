//===- DevicePool.h - a pool in the memory of a GPU -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEPOOL_H
#define LADLE_RUNTIME_CUDA_DEVICEPOOL_H

#include "runtime/PoolImpl.h"
#include "runtime/cuda/GpuCode.h"

namespace ladle {

struct DevicePool final : Pool::Impl {
  explicit DevicePool(std::shared_ptr<const GpuCode> code)
      : code(std::move(code)) {}

  std::shared_ptr<const GpuCode> code;
  /// int32: [slots, 2] base and length, [1], and [slots] for a flush.
  cuda::Memory cursors, thresholds, flushed;

  Result<std::shared_ptr<void>> allocate(int64_t bytes) override;
  Status checkArray(const Array &array) const override;
  Status begin(const Cursor &initial) override;
  Result<Cursor> readCursor(int32_t slot) const override;
  Status writeCursor(int32_t slot, const Cursor &cursor, void *stream) override;
  Status moveThreshold(void *stream) override;
  Status commit(std::span<const int32_t>, std::span<const int32_t>,
                std::span<const int32_t>, void *) override {
    return Status(ErrorCode::Unsupported,
                  "drafts are not verified on a GPU yet");
  }
  Status clear(const Array &array, int32_t slot, void *stream) override;
  Status flush(const Program &program, std::span<const int32_t> slots,
               void *stream) override;
  Status read(const Array &array, int32_t slot, void *to,
              void *stream) const override;
  Status write(const Array &array, int32_t slot, const void *from,
               void *stream) override;

private:
  Status refuseEntries(const Program &program,
                       std::span<const int32_t> slots) const;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEPOOL_H
