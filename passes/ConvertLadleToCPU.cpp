//===- ConvertLadleToCPU.cpp - steps to functions over memrefs ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/Passes.h"
#include "passes/cpu/ChunkKernel.h"

namespace ladle {
#define GEN_PASS_DEF_CONVERTLADLETOCPU
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct ConvertLadleToCPU
    : ladle::impl::ConvertLadleToCPUBase<ConvertLadleToCPU> {
  using ConvertLadleToCPUBase::ConvertLadleToCPUBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    for (StepOp step : llvm::make_early_inc_range(module.getOps<StepOp>())) {
      if (failed(step.prefills()   ? ChunkKernel(step, builder).buildPrefill()
                 : step.verifies() ? VerifyKernel(step, builder).buildVerify()
                                   : Kernel(step, builder).build()))
        return signalPassFailure();
      step.erase();
    }
    // What the kernels were derived from has served its purpose.
    for (RecurrenceOp recurrence :
         llvm::make_early_inc_range(module.getOps<RecurrenceOp>()))
      recurrence.erase();
  }
};
} // namespace
