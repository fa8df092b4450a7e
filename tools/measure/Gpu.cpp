//===- Gpu.cpp - a device, and the compiler for it ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/Gpu.h"
#include "codegen/cuda/RegisterBounds.h"

#include <fmt/format.h>
#include <fstream>

using namespace ladle;
using namespace ladle::measure;

/// The kernel module says its version in a line of prose:
/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Wed ...".
static std::string readDriverVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos)
      return word;
  return "unknown";
}

Gpu::Gpu(cuda::Device device, Nvrtc nvrtc)
    : held(std::move(device)), nvrtc(std::move(nvrtc)),
      driverText(readDriverVersion()) {}

Result<Gpu> Gpu::open() {
  Result<cuda::Device> device = cuda::Device::open();
  if (!device)
    return device.status();
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc)
    return Status(ErrorCode::NotFound, llvm::toString(nvrtc.takeError()));
  return Gpu(std::move(*device), std::move(*nvrtc));
}

std::string Gpu::cudaVersion() const {
  int version = held.driverVersion();
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<LoadedKernels> Gpu::load(const std::string &text) const {
  llvm::Expected<Cubin> cubin =
      compileWithinRegisters(nvrtc, text, "kernels.cu", {held.arch(), {}});
  if (!cubin)
    return Status(ErrorCode::Internal, llvm::toString(cubin.takeError()));
  Result<cuda::Module> module = cuda::Module::load(held, cubin->image);
  if (!module)
    return module.status();
  return LoadedKernels{std::move(*module), std::move(cubin->kernels)};
}

std::string
measure::describeSpills(const std::vector<KernelResources> &resources) {
  for (const KernelResources &kernel : resources) {
    int bytes =
        std::max(kernel.spillStores + kernel.spillLoads, kernel.stackBytes);
    if (kernel.spills())
      return fmt::format("{} does not fit into registers: {} bytes a thread "
                         "spill, with {} registers",
                         kernel.name, bytes, kernel.registers);
  }
  return "";
}
