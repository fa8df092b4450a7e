//===- ConvertLadleToGPU.cpp - steps to kernels ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/Passes.h"
#include "passes/gpu/VerifyKernel.h"

namespace ladle {
#define GEN_PASS_DEF_CONVERTLADLETOGPU
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct ConvertLadleToGPU
    : ladle::impl::ConvertLadleToGPUBase<ConvertLadleToGPU> {
  using ConvertLadleToGPUBase::ConvertLadleToGPUBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (threads < 0 || threads > 512 || threads % 32) {
      module.emitError("threads must be a multiple of 32 up to 512, got ")
          << threads.getValue();
      return signalPassFailure();
    }
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(module.getBody());
    auto kernels =
        gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
    builder.setInsertionPointToStart(kernels.getBody());
    // Rows that fold are a branch of the kernel of those that do not.
    auto find = [&](StepOp step, Form form) {
      for (StepOp other : module.getOps<StepOp>())
        if (other.getForm() == form &&
            other.getRecurrence() == step.getRecurrence() &&
            other.getRoute() == step.getRoute())
          return other;
      return StepOp();
    };
    for (StepOp step : module.getOps<StepOp>()) {
      if (step.getForm() == Form::DecodeFold ||
          step.getForm() == Form::VerifyFold)
        continue;
      GpuSchedule schedule;
      schedule.threads = threads;
      schedule.tileRows = tileRows;
      schedule.batch = batch;
      OpBuilder::InsertionGuard guard(builder);
      std::unique_ptr<GpuKernel> kernel;
      if (step.verifies()) {
        kernel = std::make_unique<GpuVerifyKernel>(
            step, find(step, Form::VerifyFold), schedule, builder);
      } else {
        // Slots of a route that verifies keep what drafts need.
        int64_t drafts = 0;
        if (StepOp verify = find(step, Form::Verify))
          drafts = cast<DraftsType>(verify.getDrafts().getType()).getMost();
        StepOp fold;
        if (step.getForm() == Form::Decode)
          fold = find(step, Form::DecodeFold);
        kernel =
            std::make_unique<GpuKernel>(step, fold, schedule, drafts, builder);
      }
      if (failed(kernel->build()))
        return signalPassFailure();
    }
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<StepOp, RecurrenceOp>(op))
        op.erase();
  }
};
} // namespace
