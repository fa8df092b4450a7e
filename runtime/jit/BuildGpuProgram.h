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

/// Lowers an elaborated module as far as CUDA C++. Of several routes the
/// kernels are those of the first; drafts of rows that are another's go a way
/// of their own there. Emits what is wrong.
llvm::LogicalResult buildGpuProgram(mlir::ModuleOp module,
                                    const DecodePipelineOptions &options,
                                    const ConvertLadleToGPUOptions &lowering,
                                    GpuProgram &program);

} // namespace ladle::jit

#endif // LADLE_RUNTIME_JIT_BUILDGPUPROGRAM_H
