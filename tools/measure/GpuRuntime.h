//===- GpuRuntime.h - measured kernels in the runtime -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_GPURUNTIME_H
#define LADLE_TOOLS_MEASURE_GPURUNTIME_H

#include "ladle/decode.h"
#include "tools/measure/Gpu.h"

namespace ladle::measure {

/// The kernels of a benchmark as a program of the runtime, of one route.
Result<Program> makeRuntimeProgram(const Gpu &gpu,
                                   const jit::GpuProgram &program,
                                   const LoadedKernels &kernels,
                                   const std::string &route, int64_t capacity);

/// What a call takes on the host, outside of a graph, seconds: the work itself
/// is the device's, and not waited for.
struct HostCosts {
  double launch = 0;  ///< BoundStep::launch of a layer that shares its cursors
  double advance = 0; ///< Cursors::advance; 0 without a buffer
};
Result<HostCosts> measureHost(const Gpu &gpu, const Program &program);

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_GPURUNTIME_H
