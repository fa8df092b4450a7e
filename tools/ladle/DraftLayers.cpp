//===- DraftLayers.cpp - Layers that verify in turns ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/DraftLayers.h"

#include <chrono>
#include <cmath>
#include <thread>

using namespace ladle;
using namespace ladle::tool;

static constexpr int64_t kMostLaunches = 512;

DraftLayers::DraftLayers(Program of, Cursors shared, DeviceInputs filled,
                         const measure::Gpu &device, const Options &given)
    : cursors(std::move(shared)), program(std::move(of)),
      inputs(std::move(filled)), gpu(&device), options(given) {}

Result<DraftLayers> DraftLayers::create(const SourceOptions &source,
                                        const CompileOptions &compile,
                                        const measure::Gpu &gpu,
                                        const Options &options) {
  Result<Program> made = compileFile(source.file, compile);
  if (!made)
    return made.status();
  Result<Cursors> shared = Cursors::create(*made, options.cursors);
  if (!shared)
    return shared.status();
  Result<DeviceInputs> filled =
      DeviceInputs::create(source, *made, options.drafts);
  if (!filled)
    return filled.status();
  DraftLayers result(std::move(*made), std::move(*shared), std::move(*filled),
                     gpu, options);
  auto cache = static_cast<double>(gpu.device().cacheBytes());
  // Most steps follow one of another layer, as in a model.
  auto count = std::max<int64_t>(
      static_cast<int64_t>(3 * cache / std::max(options.batchBytes, 1.0)) + 2,
      8);
  PoolOptions poolOptions;
  poolOptions.cursors = result.cursors;
  for (int64_t i = 0; i < count; ++i) {
    Result<Pool> pool = Pool::create(result.program, poolOptions);
    if (!pool)
      return pool.status();
    auto kept = std::make_unique<Pool>(std::move(*pool));
    Result<Decoder> decoder = Decoder::create(result.program, *kept);
    if (!decoder)
      return decoder.status();
    result.layers.push_back({std::move(kept), std::move(*decoder)});
  }
  return result;
}

Status DraftLayers::verify(VerifyArguments given, int64_t steps) {
  given.tensors = inputs.first(program.signature(), given.drafts);
  for (int64_t i = 0; i < steps; ++i) {
    int64_t layer = i % count();
    // In order where a layer comes again, and after a commit.
    Start start =
        options.startsEarly && layer > 0 ? Start::Early : Start::InOrder;
    if (Status status = layers[static_cast<size_t>(layer)].decoder.verify(
            given, gpu->device().stream(), start);
        !status)
      return status;
  }
  return Status();
}

Status DraftLayers::commit(std::span<const int32_t> slots,
                           std::span<const int32_t> numAccepted,
                           std::span<const int32_t> path) {
  return cursors.commit(slots, numAccepted, path, gpu->device().stream());
}

Status DraftLayers::flush(std::span<const int32_t> slots) {
  return cursors.flush(slots, gpu->device().stream());
}

int64_t DraftLayers::stepsOf(double leastSeconds, int64_t least) const {
  double once = std::max(leastSeconds, 1.5e-6);
  return std::clamp<int64_t>(std::llround(options.replaySeconds / once), least,
                             std::max(least, kMostLaunches));
}

void DraftLayers::rest() const {
  std::this_thread::sleep_for(
      std::chrono::duration<double>(options.restSeconds));
}

Result<std::vector<double>>
DraftLayers::time(const std::function<Status()> &launch, int64_t steps,
                  int64_t count) const {
  Result<cuda::Graph> graph = cuda::Graph::record(gpu->device(), launch);
  if (!graph)
    return graph.status();
  rest();
  // The first replay uploads the graph.
  if (Status status = graph->replay(); !status)
    return status;
  std::vector<double> samples;
  for (int64_t i = 0; i < count; ++i) {
    Result<double> seconds = graph->time(1);
    if (!seconds)
      return seconds.status();
    samples.push_back(*seconds / static_cast<double>(steps));
  }
  // What the graph reads may be freed from here on.
  if (Status status = gpu->device().synchronize(); !status)
    return status;
  return samples;
}
