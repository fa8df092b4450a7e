//===- GpuCycle.cpp - steps of a cycle, replayed --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/GpuCycle.h"

#include <cmath>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::measure;
using Kind = jit::GpuArgument::Kind;

static constexpr int64_t kMostLaunches = 2000;

// What states and entries hold is no matter for the time, as long as it is not
// all the same and stays finite.
static const char *const fillText = R"cuda(
#include "ladle_prelude.cuh"

__device__ float draw(unsigned long long i, unsigned seed) {
  unsigned long long x = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  // Below 0: cached decays are logarithms.
  return -0.05f * static_cast<float>(x >> 40) * 0x1p-24f;
}

template <class T> __device__ void fill(T *to, long long size, unsigned seed) {
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < size)
    to[i] = from_float<T>(draw(i, seed));
}
extern "C" __global__ void fill_f32(float *to, long long size, unsigned seed) {
  fill(to, size, seed);
}
extern "C" __global__ void fill_bf16(bf16 *to, long long size, unsigned seed) {
  fill(to, size, seed);
}
extern "C" __global__ void fill_f16(half *to, long long size, unsigned seed) {
  fill(to, size, seed);
}
)cuda";

const char *GpuLayers::kernels() { return fillText; }

static Status fillRandom(const cuda::Module &module, GpuTensor &tensor,
                         uint32_t seed) {
  Result<cuda::Kernel> kernel =
      module.kernel(fmt::format("fill_{}", toString(tensor.dtype)));
  if (!kernel)
    return kernel.status();
  long long size = tensor.memory.bytes() / sizeInBytes(tensor.dtype);
  void *arguments[] = {&tensor.address, &size, &seed};
  return kernel->launch({static_cast<unsigned>((size + 255) / 256), 1, 1},
                        {256, 1, 1}, arguments);
}

/// Rows take the inputs of the reference in turn.
static Status writeInputs(GpuTensor &tensor, const GpuReference &inputs,
                          int64_t rows, int64_t layer) {
  size_t index = tensor.argument.index;
  if (tensor.argument.kind == Kind::Param)
    return tensor.write(0, inputs.params()[index]);
  std::vector<std::vector<double>> drawn;
  for (int64_t row = 0; row < std::min<int64_t>(rows, 4); ++row)
    drawn.push_back(inputs.tokens(row, layer)[index]);
  for (int64_t row = 0; row < rows; ++row)
    if (Status status = tensor.write(row, drawn[row % 4]); !status)
      return status;
  return Status();
}

Result<std::shared_ptr<GpuLayers>>
GpuLayers::allocate(const Gpu &gpu, const jit::GpuProgram &program,
                    const CycleShape &shape, const GpuReference &inputs) {
  auto layers = std::make_shared<GpuLayers>();
  auto cache = static_cast<double>(gpu.device().cacheBytes());
  double bytes = shape.rowBytes * static_cast<double>(shape.rows);
  // Half as much again as has to be, and so many that most steps follow one of
  // another layer.
  auto count =
      std::max<int64_t>(static_cast<int64_t>(3 * cache / bytes) + 2, 8);
  layers->bytes = bytes * static_cast<double>(count);
  if (layers->bytes <= 2 * cache)
    return Status(ErrorCode::Internal,
                  fmt::format("{:.0f} bytes of layers would stay in the L2 of "
                              "{:.0f} bytes",
                              layers->bytes, cache));
  Result<LoadedKernels> fill = gpu.load(fillText);
  if (!fill)
    return fill.status();
  for (int64_t index = 0; index < count; ++index) {
    Result<GpuLayer> layer =
        GpuLayer::allocate(gpu.device(), program, shape.rows, shape.threshold,
                           index == 0 ? nullptr : &layers->all.front());
    if (!layer)
      return layer.status();
    for (GpuTensor &tensor : layer->tensors) {
      Status status;
      switch (tensor.argument.kind) {
      case Kind::Token:
        if (index > 0)
          break;
        [[fallthrough]];
      case Kind::Param:
        status = writeInputs(tensor, inputs, shape.rows, index % 4);
        break;
      case Kind::Output:
        break;
      case Kind::State:
      case Kind::Field:
      case Kind::Carry:
        status = fillRandom(
            fill->module, tensor,
            static_cast<uint32_t>(index * 64 + tensor.argument.index));
        break;
      }
      if (!status)
        return status;
    }
    layers->all.push_back(std::move(*layer));
  }
  if (Status status = gpu.device().synchronize(); !status)
    return status;
  return layers;
}

Status GpuCycle::record() {
  double once = std::max(shape.leastSeconds, 1.5e-6);
  // All layers of the model, and all that take turns.
  int64_t least = std::max<int64_t>({shape.modelLayers, layerCount(), 1});
  steps = std::clamp<int64_t>(std::llround(shape.replaySeconds / once), least,
                              std::max(least, kMostLaunches));
  if (shape.modelLayers > 0)
    steps -= steps % shape.modelLayers;
  auto launch = [&](const cuda::Memory &at) -> Status {
    for (int64_t i = 0; i < steps; ++i) {
      // In order where a layer comes again, and after cursors have moved.
      bool early = shape.startsEarly && i % layerCount() != 0 &&
                   (shape.modelLayers == 0 || i % shape.modelLayers != 0);
      if (Status status =
              step->launch(layers->all[i % layerCount()], at, early);
          !status)
        return status;
      if (moving && (i + 1) % shape.modelLayers == 0)
        if (Status status =
                moving->advance(step->slotsOfRows(), {}, device.stream());
            !status)
          return status;
    }
    return Status();
  };
  for (int64_t fill = 0; fill < shape.fills; ++fill) {
    Result<cuda::Memory> made = GpuStep::makeCursors(device, shape.rows, fill);
    if (!made)
      return made.status();
    cursors.push_back(std::move(*made));
    if (shape.isEager)
      continue;
    Result<cuda::Graph> graph =
        cuda::Graph::record(device, [&] { return launch(cursors.back()); });
    if (!graph)
      return graph.status();
    graphs.push_back(std::move(*graph));
    // The first replay uploads the graph.
    if (Status status = graphs.back().replay(); !status)
      return status;
  }
  return device.synchronize();
}

Result<std::unique_ptr<GpuCycle>>
GpuCycle::create(const Gpu &gpu, const jit::GpuProgram &program,
                 const LoadedKernels &kernels, const std::string &route,
                 const CycleShape &shape, std::shared_ptr<GpuLayers> layers) {
  std::unique_ptr<GpuCycle> cycle(new GpuCycle(gpu.device(), shape));
  cycle->layers = std::move(layers);
  Result<GpuStep> step = GpuStep::create(
      gpu.device(), program, kernels, shape.rows,
      static_cast<int32_t>(shape.threshold + (shape.grows ? 1 : 0)));
  if (!step)
    return step.status();
  cycle->step = std::move(*step);
  if (shape.modelLayers > 0 && !program.fields.empty()) {
    Result<Program> made =
        makeRuntimeProgram(gpu, program, kernels, route, shape.threshold);
    if (!made)
      return made.status();
    Result<Cursors> cursors = Cursors::create(*made, {.slots = shape.rows});
    if (!cursors)
      return cursors.status();
    cycle->moving = std::move(*cursors);
  }
  if (Status status = cycle->record(); !status)
    return status;
  return cycle;
}

Result<double> GpuCycle::sample(int64_t fill) const {
  Result<double> seconds = graphs[fill].time(1);
  if (!seconds)
    return seconds.status();
  return *seconds / static_cast<double>(steps);
}

Status GpuCycle::launchOnce(int64_t fill) {
  for (GpuLayer &layer : layers->all)
    if (Status status = step->launch(layer, cursors[fill]); !status)
      return status;
  return device.synchronize();
}

Status GpuCycle::sampleAll(std::vector<std::vector<double>> &byFill) const {
  byFill.resize(shape.fills);
  for (int64_t fill = 0; fill < shape.fills; ++fill) {
    Result<double> seconds = sample(fill);
    if (!seconds)
      return seconds.status();
    byFill[fill].push_back(*seconds);
  }
  return Status();
}

Result<double> GpuCycle::sampleCycle() const {
  double sum = 0;
  for (int64_t fill = 0; fill < shape.fills; ++fill) {
    Result<double> seconds = sample(fill);
    if (!seconds)
      return seconds;
    sum += *seconds;
  }
  return sum / static_cast<double>(shape.fills);
}
