//===- Products.cpp - what the tensor cores of a GPU give -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/Products.h"
#include "tools/measure/Statistics.h"

using namespace ladle;
using namespace ladle::measure;

// Sums do not wait for one another, and no operand is all zeros, which would
// take less power.
static const char *const productsText = R"cuda(
#include "ladle_prelude.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
    products(int steps, float *sink) {
  Vec<bf16, 8> a;
  Vec<bf16, 4> b;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    a[i] = from_float<bf16>(1e-3f * (threadIdx.x % 32 + i));
#pragma unroll
  for (int i = 0; i < 4; ++i)
    b[i] = from_float<bf16>(1e-3f * (threadIdx.x % 32 - i));
  Vec<float, 4> sums[8] = {};
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sums[i] = multiply_tiles(a, b, sums[i]);
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  // Never true, but the compiler does not know.
  if (all == -1.25e-30f)
    *sink = all;
}
)cuda";

Result<double> measure::measureProducts(const Gpu &gpu) {
  constexpr int count = 20, samples = 5;
  constexpr unsigned threads = 256, blocksAtOnce = 2;
  const cuda::Device &device = gpu.device();
  Result<LoadedKernels> loaded = gpu.load(productsText);
  if (!loaded)
    return loaded.status();
  Result<cuda::Kernel> kernel = loaded->module.kernel("products");
  if (!kernel)
    return kernel.status();
  Result<cuda::Memory> sink = cuda::Memory::allocate(device, 16);
  if (!sink)
    return sink.status();
  int steps = 128;
  uint64_t address = sink->address();
  void *arguments[] = {&steps, &address};
  unsigned blocks =
      blocksAtOnce * static_cast<unsigned>(device.multiprocessors());
  Result<cuda::Graph> graph = cuda::Graph::record(device, [&] {
    return kernel->launch({blocks, 1, 1}, {threads, 1, 1}, arguments);
  });
  if (!graph)
    return graph.status();
  if (Status status = graph->replay(); !status)
    return status;
  constexpr double flopsOfProduct = 2.0 * 16 * 8 * 16, sums = 8;
  double flops = flopsOfProduct * sums * steps * (threads / 32.0) * blocks;
  std::vector<double> rates;
  for (int i = 0; i < samples; ++i) {
    Result<double> seconds = graph->time(count);
    if (!seconds)
      return seconds.status();
    rates.push_back(flops * count / *seconds);
  }
  return median(rates);
}
