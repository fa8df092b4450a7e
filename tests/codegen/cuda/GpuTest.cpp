//===- GpuTest.cpp - generated kernels on a GPU ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/RegisterBounds.h"
#include "runtime/cuda/Driver.h"
#include "tests/codegen/cuda/Decoding.h"
#include "tests/numerics/Examples.h"

using namespace ladle;
using namespace ladle::jit;
using namespace ladle::test;

namespace {

/// Runs on a device. Memory is copied there and back for every launch: what
/// this tests is the kernels.
class DeviceExecutor : public Executor {
public:
  DeviceExecutor(cuda::Device device, Nvrtc nvrtc)
      : device(std::move(device)), nvrtc(std::move(nvrtc)) {}

  std::string load(const GpuProgram &program) override {
    auto cubin = compileWithinRegisters(nvrtc, program.text, "kernels.cu",
                                        {device.arch(), {}});
    if (!cubin)
      return llvm::toString(cubin.takeError());
    auto loaded = cuda::Module::load(device, cubin->image);
    if (!loaded)
      return loaded.message();
    module = std::move(*loaded);
    return "";
  }

  std::string run(const Launch &launch) override {
    buffers.clear();
    addresses.clear();
    std::vector<void *> arguments;
    auto upload = [&](void *host, size_t bytes) {
      auto memory = cuda::Memory::allocate(device, static_cast<int64_t>(bytes));
      REQUIRE(memory);
      REQUIRE(memory->write(host, static_cast<int64_t>(bytes)));
      buffers.push_back(std::move(*memory));
      addresses.push_back(buffers.back().address());
    };
    int32_t threshold = launch.threshold, pad = launch.padSlot;
    for (std::vector<int32_t> *each :
         {&launch.readSlots, &launch.writeSlots, &launch.cursors})
      upload(each->data(), each->size() * sizeof(int32_t));
    upload(&threshold, sizeof(threshold));
    for (Tensor &tensor : launch.tensors)
      upload(tensor.pointer, sizeOf(tensor));
    for (size_t i = 0; i < 4; ++i)
      arguments.push_back(&addresses[i]);
    arguments.push_back(&pad);
    for (auto [i, tensor] : llvm::enumerate(launch.tensors)) {
      arguments.push_back(&addresses[4 + i]);
      for (size_t k = 0; k < tensor.dynamic; ++k)
        arguments.push_back(&tensor.strides[k]);
    }
    auto kernel = module->kernel(launch.kernel.name);
    if (!kernel)
      return kernel.message();
    for (const Status &status :
         {kernel->launch(
              {launch.kernel.gridBlocks, static_cast<unsigned>(launch.rows), 1},
              {launch.kernel.threads, 1, 1}, arguments.data()),
          device.synchronize()})
      if (!status)
        return status.message();
    for (auto [i, tensor] : llvm::enumerate(launch.tensors))
      REQUIRE(buffers[4 + i].read(tensor.pointer,
                                  static_cast<int64_t>(sizeOf(tensor))));
    return "";
  }

private:
  static size_t sizeOf(const Tensor &tensor) {
    return tensor.bytes.size() -
           (static_cast<std::byte *>(tensor.pointer) - tensor.bytes.data());
  }

  cuda::Device device;
  Nvrtc nvrtc;
  std::optional<cuda::Module> module;
  std::vector<cuda::Memory> buffers;
  std::vector<uint64_t> addresses;
};

/// Nothing, and a warning, without a GPU.
std::optional<DeviceExecutor> openDevice() {
  auto device = cuda::Device::open();
  if (!device) {
    WARN("skipped: " << device.message());
    return std::nullopt;
  }
  auto nvrtc = Nvrtc::open();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return std::nullopt;
  }
  return DeviceExecutor(std::move(*device), std::move(*nvrtc));
}

} // namespace

TEST_CASE("kernels agree with the oracle on a GPU", "[gpu]") {
  auto device = openDevice();
  if (!device)
    return;
  auto model = GENERATE(as<std::string>(), "linear_attention", "retnet",
                        "lightning", "lightning_core", "mamba", "mamba2", "gla",
                        "delta_net", "gated_delta_rule", "gated_delta_net",
                        "kda", "kda_lower_bound", "gdn2", "rwkv6", "rwkv7",
                        "rwkv7_core", "mamba3", "mamba3_mimo", "short_conv");
  auto route = GENERATE(as<std::string>(), "recurrent", "outer", "inner",
                        "adjoint", "kv_only");
  CAPTURE(model, route);
  GpuRequest request;
  request.path = examplePath(model);
  request.elaboration.preset = "tiny";
  request.route = route;
  int threshold = route == "kv_only" ? 100 : 3;
  request.capacity = route == "kv_only" ? 8 : 4;
  CHECK(decode(request, threshold, 6, *device) <= 1);
}
