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
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/Passes.h"
#include "passes/gpu/Kernel.h"

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
    if (threads < 32 || threads > 512 || threads % 32) {
      module.emitError("threads must be a multiple of 32 from 32 to 512, got ")
          << threads.getValue();
      return signalPassFailure();
    }
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(module.getBody());
    auto kernels =
        gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
    builder.setInsertionPointToStart(kernels.getBody());
    // A route that folds splits the rows of a batch between two kernels.
    auto hasFold = [&](StepOp step) {
      return llvm::any_of(module.getOps<StepOp>(), [&](StepOp other) {
        return other.getRecurrence() == step.getRecurrence() &&
               other.getRoute() == step.getRoute() &&
               other.getForm() == Form::DecodeFold;
      });
    };
    for (StepOp step : module.getOps<StepOp>()) {
      GpuSchedule schedule;
      schedule.threads = threads;
      schedule.tileRows = tileRows;
      OpBuilder::InsertionGuard guard(builder);
      if (failed(GpuKernel(step, hasFold(step), schedule, builder).build()))
        return signalPassFailure();
    }
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<StepOp, RecurrenceOp>(op))
        op.erase();
  }
};
} // namespace
