//===- Ceilings.cpp - what the memory of a GPU gives ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/Ceilings.h"
#include "tools/measure/Statistics.h"

#include <algorithm>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::measure;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

// A block walks a piece of memory that no other touches, as a block of a decode
// step walks a tile of a state.
static const char *const streamingText = R"cuda(
#include "ladle_prelude.cuh"

using Word = Vec<float, 4>;

struct Plain {
  static __device__ Word load(const float *p) { return load_vector<4>(p); }
  static __device__ void store(float *p, const Word &v) { store_vector(p, v); }
};
struct Streaming {
  static __device__ Word load(const float *p) {
    return load_vector_streaming<4>(p);
  }
  static __device__ void store(float *p, const Word &v) {
    store_vector_streaming(p, v);
  }
};
/// Past the first cache; the second fetches more than was asked for.
struct Prefetching {
  static __device__ Word load(const float *p) {
#ifdef LADLE_EMULATION
    return load_vector<4>(p);
#else
    Word v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "l"(p));
    return v;
#endif
  }
  static __device__ void store(float *p, const Word &v) { store_vector(p, v); }
};

template <class Policy, int Loads, bool Updates>
__device__ void stream(float *memory, long long steps, float *sink) {
  const long long stride = 4ll * Loads * blockDim.x;
  float *at = memory + blockIdx.x * steps * stride + 4ll * threadIdx.x;
  float sum = 0;
  for (long long step = 0; step < steps; ++step, at += stride) {
    Word words[Loads];
#pragma unroll
    for (int i = 0; i < Loads; ++i)
      words[i] = Policy::load(at + 4ll * i * blockDim.x);
#pragma unroll
    for (int i = 0; i < Loads; ++i) {
      if (Updates) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          words[i][k] = words[i][k] * 0.999f + 1e-3f;
        Policy::store(at + 4ll * i * blockDim.x, words[i]);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          sum += words[i][k];
      }
    }
  }
  // Never true of what is read, but the compiler does not know.
  if (!Updates && sum == -1.25e-30f)
    *sink = sum;
}

extern "C" __global__ void nothing() {}
)cuda";

static const char *const kPolicies[] = {"Plain", "Streaming", "Prefetching"};
static constexpr unsigned kLoads[] = {1, 2, 4, 8};

std::string Ceilings::kernels() {
  std::string text = streamingText;
  for (const char *policy : kPolicies)
    for (unsigned loads : kLoads)
      for (bool updates : {false, true})
        text += fmt::format(
            "extern \"C\" __global__ void __launch_bounds__(512)\n"
            "    {0}_{1}_{2}(float *memory, long long steps, float *sink) {{\n"
            "  stream<{1}, {2}, {3}>(memory, steps, sink);\n}}\n",
            updates ? "update" : "read", policy, loads, updates);
  return text;
}

std::string Ceilings::Variant::kernel() const {
  return fmt::format("{}_{}_{}", updates ? "update" : "read", policy, loads);
}

std::string Ceilings::Variant::str() const {
  return fmt::format("{}, {} loads of 16 bytes in flight, {} threads, {} KiB a "
                     "block",
                     policy, loads, threads, blockBytes() >> 10);
}

double Ceiling::bytesPerSecond() const { return median(samples); }

//===----------------------------------------------------------------------===//
// Measuring
//===----------------------------------------------------------------------===//

Result<double> Ceilings::sample(const Variant &variant, int count) {
  Result<cuda::Kernel> kernel = module->kernel(variant.kernel());
  if (!kernel)
    return kernel.status();
  uint64_t address = memory.address(), sinkAddress = sink.address();
  long long steps = variant.steps;
  void *arguments[] = {&address, &steps, &sinkAddress};
  auto blocks = static_cast<unsigned>(memory.bytes() / variant.blockBytes());
  Result<cuda::Graph> graph = cuda::Graph::record(device, [&] {
    return kernel->launch({blocks, 1, 1}, {variant.threads, 1, 1}, arguments);
  });
  if (!graph)
    return graph.status();
  if (Status status = graph->replay(); !status)
    return status;
  Result<double> seconds = graph->time(count);
  if (!seconds)
    return seconds.status();
  double moved = static_cast<double>(memory.bytes()) * count;
  return (variant.updates ? 2 : 1) * moved / *seconds;
}

/// A quick look at all variants, then a longer one at the best few.
Status Ceilings::search() {
  for (int updates = 0; updates < 2; ++updates) {
    std::vector<std::pair<double, Variant>> ranked;
    for (const char *policy : kPolicies)
      for (unsigned loads : kLoads)
        for (unsigned threads : {128u, 256u, 512u})
          for (unsigned steps : {1u, 2u, 4u, 16u}) {
            Variant variant{updates != 0, policy, loads, threads, steps};
            Result<double> rate = sample(variant, 1);
            if (!rate)
              return rate.status();
            ranked.emplace_back(*rate, variant);
          }
    std::sort(ranked.begin(), ranked.end(),
              [](const auto &a, const auto &b) { return a.first > b.first; });
    ranked.resize(6);
    for (const auto &[rate, variant] : ranked) {
      Ceiling ceiling{variant.str(), {}};
      for (int i = 0; i < 5; ++i) {
        Result<double> again = sample(variant, 3);
        if (!again)
          return again.status();
        ceiling.samples.push_back(*again);
      }
      if (ceiling.bytesPerSecond() > best[updates].bytesPerSecond()) {
        best[updates] = std::move(ceiling);
        chosen[updates] = variant;
      }
    }
  }
  return Status();
}

/// What a kernel takes that does nothing, one after the other in a graph.
Status Ceilings::measureLaunch() {
  constexpr int count = 1000;
  Result<cuda::Kernel> kernel = module->kernel("nothing");
  if (!kernel)
    return kernel.status();
  Result<cuda::Graph> graph = cuda::Graph::record(device, [&] {
    Status status;
    for (int i = 0; i < count && status; ++i)
      status = kernel->launch({132, 1, 1}, {128, 1, 1}, nullptr);
    return status;
  });
  if (!graph)
    return graph.status();
  if (Status status = graph->replay(); !status)
    return status;
  for (int i = 0; i < 5; ++i) {
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    launches.push_back(*seconds / count);
  }
  return Status();
}

double Ceilings::launchSeconds() const { return median(launches); }

Status Ceilings::again() {
  for (int i = 0; i < 2; ++i) {
    Result<double> rate = sample(chosen[i], 3);
    if (!rate)
      return rate.status();
    best[i].samples.push_back(*rate);
  }
  return Status();
}

Result<Ceilings> Ceilings::measure(const Gpu &gpu, int64_t bytes) {
  Ceilings ceilings(gpu.device());
  Result<LoadedKernels> loaded = gpu.load(kernels());
  if (!loaded)
    return loaded.status();
  ceilings.module = std::move(loaded->module);
  // Whole blocks of every variant, and larger than the cache.
  constexpr int64_t grain = int64_t(4) << 20;
  for (bytes -= bytes % grain;; bytes = bytes / 2 / grain * grain) {
    if (bytes <= 2 * gpu.device().cacheBytes())
      return Status(ErrorCode::ResourceExhausted,
                    fmt::format("ceilings need more memory than twice the L2 "
                                "of {} MiB, and there is not so much free\n"
                                "note: end other programs that use the device",
                                gpu.device().cacheBytes() >> 20));
    Result<cuda::Memory> memory = cuda::Memory::allocate(gpu.device(), bytes);
    if (!memory)
      continue;
    ceilings.memory = std::move(*memory);
    break;
  }
  Result<cuda::Memory> sink = cuda::Memory::allocate(gpu.device(), 16);
  if (!sink)
    return sink.status();
  ceilings.sink = std::move(*sink);
  if (Status status = ceilings.memory.fill(0x3c); !status)
    return status;
  for (const Status &status : {ceilings.search(), ceilings.measureLaunch()})
    if (!status)
      return status;
  return ceilings;
}
