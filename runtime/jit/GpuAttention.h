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
    std::string suffix; ///< what it is called, behind the name of the step
    cuda::KernelInfo info;
    std::vector<std::string> arguments;
  };
  bool decodes = true, finds = false;
  /// If the kernel is one alone: blocks of a cluster at the least, and those
  /// that fit into a multiprocessor.
  int64_t leastBlocks = 1, blocksAtOnce = 1;
  std::vector<Kernel> kernels;

  const Kernel *find(llvm::StringRef suffix) const;
};

/// Lowers a module of steps as far as CUDA C++ for an architecture, for
/// instance "sm_90a". Emits what cannot be lowered.
Result<std::string> buildGpuAttention(mlir::ModuleOp module,
                                      llvm::StringRef arch,
                                      std::vector<GpuAttentionStep> &steps);

/// The kernels of a cubin on a device.
Result<std::shared_ptr<GpuAttentionCode>>
loadGpuAttention(const cuda::Device &device, const std::string &image,
                 const std::vector<GpuAttentionStep> &steps,
                 const AttentionProgramImpl &made);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_GPUATTENTION_H
