//===- Gpu.h - a device, and the compiler for it ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_GPU_H
#define LADLE_TOOLS_MEASURE_GPU_H

#include "codegen/cuda/Nvrtc.h"
#include "runtime/cuda/Driver.h"
#include "runtime/jit/GpuProgram.h"

#include <string>
#include <vector>

namespace ladle::measure {

/// Kernels that are loaded.
struct LoadedKernels {
  cuda::Module module;
  std::vector<KernelResources> resources;
};

class Gpu {
public:
  /// NotFound if there is no device or no NVRTC.
  static Result<Gpu> open();

  const cuda::Device &device() const { return held; }
  /// "580.159.04", or what the system says of it.
  const std::string &driver() const { return driverText; }
  /// "13.0": the newest CUDA of the driver.
  std::string cudaVersion() const;

  Result<LoadedKernels> load(const std::string &text) const;

private:
  Gpu(cuda::Device device, Nvrtc nvrtc);

  cuda::Device held;
  Nvrtc nvrtc;
  std::string driverText;
};

/// What does not fit: "step_inner_decode spills 24 bytes a thread". Empty if
/// all is in registers.
std::string describeSpills(const std::vector<KernelResources> &resources);

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_GPU_H
