//===- DriverTest.cpp - kernels as their descriptions say -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/runtime/gpu/Gpu.h"

#include <algorithm>

using namespace ladle;
using namespace ladle::test;

static const char *text = R"(#include "ladle_prelude.cuh"
extern "C" __global__ void count(int *at) {
  at[blockIdx.y * gridDim.x + blockIdx.x] = threadIdx.x + 1;
}
)";

/// The device, if it takes a text for a cubin.
static std::optional<cuda::Device> textDevice() {
  if (!hasGpu() || !emulatedGpu())
    return std::nullopt;
  return need(cuda::Device::shared());
}

TEST_CASE("a launch has the grid and the options of its kernel") {
  auto device = textDevice();
  if (!device)
    return;
  auto module = need(cuda::Module::load(*device, text));
  auto memory = need(cuda::Memory::allocate(*device, 6 * sizeof(int)));
  uint64_t address = memory.address();
  void *arguments[] = {&address};
  // Early is what can be, if it is asked for.
  for (auto [isProgrammatic, early] :
       {std::pair(false, true), std::pair(true, false), std::pair(true, true)})
    for (unsigned bytes : {0u, 200u << 10}) {
      CAPTURE(isProgrammatic, early, bytes);
      auto kernel = need(module.kernel({"count", 3, 1, bytes, isProgrammatic}));
      emulatedGpu()->takeLaunches();
      need(memory.fill(0));
      need(kernel.launchRows(2, arguments, device->stream(), /*blocks=*/0,
                             early));
      int values[6];
      need(memory.read(values, sizeof(values)));
      CHECK(std::count(std::begin(values), std::end(values), 1) == 6);
      auto launches = emulatedGpu()->takeLaunches();
      REQUIRE(launches.size() == 1);
      CHECK(launches[0].sharedBytes == bytes);
      CHECK(launches[0].isProgrammatic == (isProgrammatic && early));
      CHECK(launches[0].grid[0] == 3);
      CHECK(launches[0].grid[1] == 2);
    }
}

TEST_CASE("a kernel that wants what the device lacks is refused") {
  auto device = textDevice();
  if (!device)
    return;
  auto module = need(cuda::Module::load(*device, text));
  CHECK(module.kernel({"count", 1, 1, 300 << 10}).message() ==
        "kernel 'count' wants 307200 bytes of shared memory a block, which the "
        "device does not have");
  CHECK(module.kernel("sum").message() == "the module has no kernel 'sum'");
}
