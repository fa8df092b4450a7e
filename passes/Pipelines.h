//===- Pipelines.h - stages of the compiler ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_PIPELINES_H
#define LADLE_PASSES_PIPELINES_H

#include "dialect/LadleAttributes.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"

namespace ladle {

struct DecodePipelineOptions {
  /// Routes to build; empty stands for every legal route.
  llvm::SmallVector<Route> routes;
  /// Entries that the ring of a slot holds (L).
  int64_t capacity = 16;
  /// Entries of a page; 0: those of a slot lie side by side.
  int64_t page = 0;
  /// "f32", "bf16" or "f16": the type of cached values that depend on a state.
  std::string entryType = "f32";
  /// "dv_dk" or "dk_dv": how a head of a state lies in memory.
  std::string stateLayout = "dv_dk";
  /// The most drafts of a row; 0 for programs that never verify.
  int64_t drafts = 0;
  /// Tokens of a chunk; 0 for programs that never prefill.
  int64_t chunk = 0;
  /// Whether prompts of kv_only carry their state along: for GPUs.
  bool carriesState = false;
  /// Whether those of the other routes do, and fold where chunks end: likewise.
  bool foldsByChunk = false;
  /// Whether prompts whose tokens wait for one another have a form, too:
  /// likewise.
  bool scansPrompts = false;
  /// Whether exponentials of decays, sigmoid and silu may be approximate:
  /// likewise.
  bool approximates = false;
  /// Rows of the state in a tile of the CPU schedule.
  int64_t tileRows = 16;
};

/// Step stage of a GPU, whose kernels go through a prompt at once.
void buildGPUStepPipeline(mlir::OpPassManager &pm,
                          const DecodePipelineOptions &options);

/// Spec stage: normal form and history, as attributes and remarks.
void buildSpecPipeline(mlir::OpPassManager &pm);

/// Spec to step stage: the steps of the chosen routes, functions expanded.
void buildStepPipeline(mlir::OpPassManager &pm,
                       const DecodePipelineOptions &options);

struct AttentionPipelineOptions {
  /// "f32", "bf16" or "f16": how A / Z of a summary is stored.
  std::string summaryType = "f32";
};

/// Spec to step stage of attentions.
void buildAttentionPipeline(mlir::OpPassManager &pm,
                            const AttentionPipelineOptions &options);

/// Step to kernel stage of attentions on the CPU.
void buildAttentionKernelPipeline(
    mlir::OpPassManager &pm, const ConvertLadleAttentionToCPUOptions &lowering);

/// Step to kernel stage of attentions on the GPU: kernels in a gpu.module.
void buildAttentionGPUPipeline(
    mlir::OpPassManager &pm,
    const ConvertLadleAttentionToGPUOptions &lowering = {});

/// Step to kernel stage on the CPU: functions over memrefs.
void buildKernelPipeline(mlir::OpPassManager &pm,
                         const DecodePipelineOptions &options);

/// Spec to kernel stage on the CPU.
void buildCPUPipeline(mlir::OpPassManager &pm,
                      const DecodePipelineOptions &options);

/// Steps to kernels of a GPU, in a gpu.module.
void buildGPUKernelPipeline(mlir::OpPassManager &pm,
                            const ConvertLadleToGPUOptions &lowering);

/// Spec to kernel stage on the GPU: kernels in a gpu.module.
void buildGPUPipeline(mlir::OpPassManager &pm,
                      const DecodePipelineOptions &options,
                      const ConvertLadleToGPUOptions &lowering = {});

/// The pipelines as `ladle-to-history`, `ladle-to-steps`, `ladle-to-cpu` and
/// `ladle-to-gpu` for ladle-opt.
void registerLadlePipelines();

} // namespace ladle

#endif // LADLE_PASSES_PIPELINES_H
