//===- GpuCycle.h - steps of a cycle, replayed ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_GPUCYCLE_H
#define LADLE_TOOLS_MEASURE_GPUCYCLE_H

#include "tools/measure/GpuLayer.h"
#include "tools/measure/GpuReference.h"
#include "tools/measure/GpuRuntime.h"

#include <memory>

namespace ladle::measure {

struct CycleShape {
  int64_t rows = 1;
  /// m: the capacity of the buffer and the threshold of a fold.
  int64_t threshold = 1;
  /// Never folds: the buffer is all there is.
  bool grows = false;
  int64_t fills = 1;
  /// Bytes of a row that a step cannot do without: how many layers there have
  /// to be.
  double rowBytes = 0;
  /// What a step takes at the least, and a replay should: how often layers take
  /// turns in a graph.
  double leastSeconds = 0, replaySeconds = 2e-3;
  /// Layers of a model, which share cursors: these move after so many steps of
  /// a layer. 0: they do not move, nor do they without a buffer.
  int64_t modelLayers = 0;
  /// Steps start before those of the layers ahead of them have ended, but for
  /// the first after cursors have moved.
  bool startsEarly = false;
  /// Without graphs: for `launchOnce`.
  bool isEager = false;
};

/// Layers that take turns, so that none is found in the L2 cache.
class GpuLayers {
public:
  /// More than twice the L2 of them. Inputs are those of the reference, states
  /// and entries small numbers.
  static Result<std::shared_ptr<GpuLayers>>
  allocate(const Gpu &gpu, const jit::GpuProgram &program,
           const CycleShape &shape, const GpuReference &inputs);

  /// The text of the kernels that fill memory.
  static const char *kernels();

  std::vector<GpuLayer> all;
  double bytes = 0; ///< what takes turns
};

/// Graphs of steps over layers in turn: one for each fill of the buffer, whose
/// cursors stay, while others move in their place. A cycle is the mean over its
/// fills, of which the last folds.
class GpuCycle {
public:
  static Result<std::unique_ptr<GpuCycle>>
  create(const Gpu &gpu, const jit::GpuProgram &program,
         const LoadedKernels &kernels, const std::string &route,
         const CycleShape &shape, std::shared_ptr<GpuLayers> layers);

  int64_t layerCount() const {
    return static_cast<int64_t>(layers->all.size());
  }
  double rotatedBytes() const { return layers->bytes; }
  /// Seconds of a layer-step at a fill.
  Result<double> sample(int64_t fill) const;
  /// A step of every layer at a fill, without a graph, and waits for them.
  Status launchOnce(int64_t fill);
  /// A value for every fill, in turn.
  Status sampleAll(std::vector<std::vector<double>> &byFill) const;
  /// One value for the cycle.
  Result<double> sampleCycle() const;

private:
  GpuCycle(cuda::Device device, const CycleShape &shape)
      : device(std::move(device)), shape(shape) {}
  Status record();

  cuda::Device device;
  CycleShape shape;
  std::optional<GpuStep> step;
  /// That move, so that the cost is there.
  std::optional<Cursors> moving;
  std::shared_ptr<GpuLayers> layers;
  std::vector<cuda::Memory> cursors; ///< one a fill
  std::vector<cuda::Graph> graphs;
  int64_t steps = 1; ///< of a layer, in a graph
};

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_GPUCYCLE_H
