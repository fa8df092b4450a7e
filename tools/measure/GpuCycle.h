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

#include <memory>

namespace ladle::measure {

/// Graphs of steps over layers that take turns, so that none is found in the
/// L2 cache: one graph for each fill of the buffer, whose cursors do not move.
/// A cycle is the mean over its fills, of which the last folds.
class GpuCycle {
public:
  struct Shape {
    int64_t rows = 1;
    /// m: the capacity of the buffer and the threshold of a fold.
    int64_t threshold = 1;
    /// Never folds: the buffer is all there is.
    bool grows = false;
    int64_t fills = 1;
    /// Bytes of a row that a step cannot do without, as a mean over the fills,
    /// and what a step takes at the least: how many layers there have to be,
    /// and how often they take turns in a graph.
    double rowBytes = 0, leastSeconds = 0;
  };

  static Result<std::unique_ptr<GpuCycle>>
  create(const Gpu &gpu, const jit::GpuProgram &program,
         const LoadedKernels &kernels, const Shape &shape,
         const GpuReference &inputs);

  int64_t fills() const { return shape.fills; }
  int64_t layerCount() const { return static_cast<int64_t>(layers.size()); }
  /// What takes turns; more than twice the L2.
  double rotatedBytes() const {
    return shape.rowBytes * static_cast<double>(shape.rows * layerCount());
  }
  /// Seconds of a layer-step at a fill.
  Result<double> sample(int64_t fill) const;
  /// A value for every fill, in turn.
  Status sampleAll(std::vector<std::vector<double>> &byFill) const;

private:
  explicit GpuCycle(const Shape &shape) : shape(shape) {}
  Status allocate(const Gpu &gpu, const jit::GpuProgram &program,
                  const GpuReference &inputs);
  Status record(const cuda::Device &device, const GpuStep &step);

  Shape shape;
  std::optional<GpuStep> step;
  std::vector<GpuLayer> layers;
  std::vector<cuda::Memory> cursors; ///< one a fill
  std::vector<cuda::Graph> graphs;
  int64_t turns = 1; ///< of all layers in a graph
};

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_GPUCYCLE_H
