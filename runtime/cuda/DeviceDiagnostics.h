//===- DeviceDiagnostics.h - what attentions do on a GPU --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_DEVICEDIAGNOSTICS_H
#define LADLE_RUNTIME_CUDA_DEVICEDIAGNOSTICS_H

#include "runtime/cuda/DeviceAttention.h"

namespace ladle {

/// The kernel of runtime/jit/AttentionDiagnostics.cuh, which follows those of a
/// step, and what it has counted, in memory of the device.
class DeviceDiagnostics {
public:
  /// Compiles the kernel if nobody has before. The program is no bounded one.
  static Result<DeviceDiagnostics> create(const AttentionProgramImpl &made);

  const GpuAttentionKernel &kernel() const { return watching; }
  /// A block for each head of the query and of the cache.
  cuda::Kernel::Extent grid() const;
  /// Its arguments that the kernels of a step have not, by name.
  std::map<std::string, uint64_t> arguments() const;
  /// Waits for the device; empty if that has failed.
  std::vector<AttentionHeadDiagnostics> report() const;

private:
  explicit DeviceDiagnostics(const AttentionProgramImpl &made) : made(made) {}

  const AttentionProgramImpl &made;
  GpuAttentionKernel watching;
  cuda::Memory counts, sums, bins;
};

} // namespace ladle

#endif // LADLE_RUNTIME_CUDA_DEVICEDIAGNOSTICS_H
