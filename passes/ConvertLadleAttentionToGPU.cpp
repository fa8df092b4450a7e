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
#include "passes/gpu/BoundedKernels.h"

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

  /// A segmented cache answers prompts as it decodes, but for the window.
  LogicalResult lowerBounded(AttentionStepOp step, OpBuilder &builder,
                             gpu::GPUModuleOp kernels) {
    if (step.getForm() != AttentionForm::Decode)
      return success();
    bool folds = false;
    step.walk([&](FoldFromOp) { folds = true; });
    for (AttentionForm form :
         {AttentionForm::Decode, AttentionForm::PrefillAmend}) {
      builder.setInsertionPointToEnd(kernels.getBody());
      if (form != AttentionForm::Decode && !folds)
        continue;
      if (failed(GpuBounded(step, form, shared, builder).build()))
        return failure();
    }
    return success();
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
      SmallVector<AttentionForm> forms{step.getForm()};
      if (!step.getRing())
        forms = {AttentionForm::Decode, AttentionForm::PrefillAmend};
      for (AttentionForm form : forms) {
        builder.setInsertionPointToEnd(kernels.getBody());
        if (failed(GpuAttention(step, form, shared, builder).build()))
          return signalPassFailure();
      }
      step.erase();
    }
    for (AttentionOp attention :
         llvm::make_early_inc_range(module.getOps<AttentionOp>()))
      attention.erase();
  }
};
} // namespace
