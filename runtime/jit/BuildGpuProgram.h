//===- BuildGpuProgram.h - from a module to CUDA text -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_JIT_BUILDGPUPROGRAM_H
#define LADLE_RUNTIME_JIT_BUILDGPUPROGRAM_H

#include "passes/Passes.h"
#include "passes/Pipelines.h"
#include "runtime/jit/GpuLayout.h"
#include "runtime/jit/GpuProgram.h"

namespace ladle::jit {

/// The layout for the pass that lowers; its names have been checked.
ConvertLadleToGPUOptions optionsOf(const GpuLayout &layout);

/// A route and, in pages, kv_only, whose rows its verify kernel answers as
/// well, if that is legal for the recurrence of the module.
llvm::SmallVector<Route> routesOfKernels(mlir::ModuleOp module, Route route,
                                         const DecodePipelineOptions &options);

/// Lowers an elaborated module as far as CUDA C++. Of several routes the
/// kernels are those of the first. Emits what is wrong.
llvm::LogicalResult buildGpuProgram(mlir::ModuleOp module,
                                    const DecodePipelineOptions &options,
                                    const ConvertLadleToGPUOptions &lowering,
                                    GpuProgram &program);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_BUILDGPUPROGRAM_H
