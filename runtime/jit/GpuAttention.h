//===- GpuAttention.h - an attention as CUDA text ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_GPUATTENTION_H
#define LADLE_RUNTIME_JIT_GPUATTENTION_H

#include "runtime/cuda/DeviceAttention.h"

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace ladle::jit {

/// What a launcher has to know of the kernels of a form.
struct GpuAttentionStep {
  struct Kernel {
    cuda::KernelInfo info;
    std::vector<std::string> arguments;
  };
  bool decodes = true, finds = false;
  Kernel first, plan, attend, finish;
};

/// Lowers a module of steps as far as CUDA C++, for blocks with so many bytes
/// of shared memory (0: as on Hopper). Emits what cannot be lowered.
Result<std::string> buildGpuAttention(mlir::ModuleOp module, int64_t shared,
                                      std::vector<GpuAttentionStep> &steps);

/// The kernels of a cubin on a device.
Result<std::shared_ptr<const GpuAttentionCode>>
loadGpuAttention(const cuda::Device &device, const std::string &image,
                 const std::vector<GpuAttentionStep> &steps,
                 const AttentionProgramImpl &made);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_GPUATTENTION_H
