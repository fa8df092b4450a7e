//===- GpuLayer.h - the memory that kernels take ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_GPULAYER_H
#define LADLE_TOOLS_MEASURE_GPULAYER_H

#include "runtime/cuda/Driver.h"
#include "runtime/jit/GpuProgram.h"
#include "tools/measure/Gpu.h"

#include <span>

namespace ladle::measure {

/// One argument of the kernels.
struct GpuTensor {
  jit::GpuArgument argument{};
  DType dtype = DType::F32;
  std::vector<int64_t> shape; ///< with the rows, where there are any
  std::vector<int64_t> told;  ///< strides that the kernel is told, in elements
  cuda::Memory memory;
  uint64_t address = 0;

  bool hasRows() const {
    return argument.kind != jit::GpuArgument::Kind::Param;
  }
  int64_t elements() const;
  /// `values` of one row, or of a parameter, as the tensor's type.
  Status write(int64_t row, const std::vector<double> &values);
  Result<std::vector<double>> read(int64_t row) const;
};

/// The memory of one layer for as many slots as rows.
class GpuLayer {
public:
  /// Tokens and outputs are those of `activations`, if it is there: a model has
  /// one set of them for all of its layers.
  static Result<GpuLayer> allocate(const cuda::Device &device,
                                   const jit::GpuProgram &program, int64_t rows,
                                   int64_t capacity,
                                   const GpuLayer *activations = nullptr);
  std::vector<GpuTensor> tensors; ///< as program.arguments
};

/// The kernels of a step, and what they take besides a layer. Row r is slot r.
class GpuStep {
public:
  static Result<GpuStep> create(const cuda::Device &device,
                                const jit::GpuProgram &program,
                                const LoadedKernels &kernels, int64_t rows,
                                int32_t threshold);
  /// Launches the kernels of a route, as decoding does: where there are two,
  /// each leaves the rows of the other alone.
  /// `early` is before the steps ahead of it have ended.
  Status launch(GpuLayer &layer, const cuda::Memory &cursors,
                bool early = false) const;
  /// [rows], in memory of the device.
  std::span<const int32_t> slotsOfRows() const;
  /// Cursors that start at 0, all with `fill` entries.
  static Result<cuda::Memory> makeCursors(const cuda::Device &device,
                                          int64_t rows, int64_t fill);

private:
  int64_t rows = 0;
  void *stream = nullptr;
  std::vector<cuda::Kernel> forms;
  cuda::Memory slots, threshold;
};

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_GPULAYER_H
