//===- ConvertLadleAttentionToGPU.cpp - attentions to kernels -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/Passes.h"
#include "passes/gpu/AttentionPrompts.h"
#include "passes/gpu/BoundedKernels.h"
#include "passes/gpu/BoundedPrompts.h"
#include "passes/gpu/SegmentPrompts.h"

namespace ladle {
#define GEN_PASS_DEF_CONVERTLADLEATTENTIONTOGPU
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct ConvertLadleAttentionToGPU
    : ladle::impl::ConvertLadleAttentionToGPUBase<ConvertLadleAttentionToGPU> {
  using ConvertLadleAttentionToGPUBase::ConvertLadleAttentionToGPUBase;

  /// One that evicts has a step of prompts. The step of a segmented cache says
  /// how its prompts are answered; where no kernels know it, they are decoded.
  LogicalResult lowerBounded(AttentionStepOp step, OpBuilder &builder,
                             gpu::GPUModuleOp kernels) {
    builder.setInsertionPointToEnd(kernels.getBody());
    if (auto prompts = BoundedPromptPlan::of(step))
      return GpuBoundedPrompts(step, *prompts, shared, builder).build();
    if (step.getForm() != AttentionForm::Decode)
      return success();
    if (failed(GpuBounded(step, AttentionForm::Decode, shared, cluster, builder)
                   .build()))
      return failure();
    bool folds = false;
    step.walk([&](FoldFromOp) { folds = true; });
    if (!folds)
      return success();
    builder.setInsertionPointToEnd(kernels.getBody());
    if (auto prompts = SegmentPromptPlan::of(step))
      return GpuSegmentPrompts(step, *prompts, shared, builder).build();
    return GpuBounded(step, AttentionForm::PrefillAmend, shared, cluster,
                      builder)
        .build();
  }

  /// Without summaries a step that decodes says how prompts are answered, too.
  LogicalResult lowerPaged(AttentionStepOp step, OpBuilder &builder,
                           gpu::GPUModuleOp kernels) {
    builder.setInsertionPointToEnd(kernels.getBody());
    bool decodes = step.getForm() == AttentionForm::Decode;
    if (decodes && failed(GpuAttention(step, AttentionForm::Decode, shared,
                                       cluster, builder)
                              .build()))
      return failure();
    if (decodes && step.getRing())
      return success();
    builder.setInsertionPointToEnd(kernels.getBody());
    return GpuPrompts(step, shared, builder).build();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(module.getBody());
    auto kernels =
        gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
    for (AttentionStepOp step :
         llvm::make_early_inc_range(module.getOps<AttentionStepOp>())) {
      if (step.isBounded()) {
        if (failed(lowerBounded(step, builder, kernels)))
          return signalPassFailure();
        step.erase();
        continue;
      }
      if (failed(lowerPaged(step, builder, kernels)))
        return signalPassFailure();
      step.erase();
    }
    for (AttentionOp attention :
         llvm::make_early_inc_range(module.getOps<AttentionOp>()))
      attention.erase();
  }
};
} // namespace
