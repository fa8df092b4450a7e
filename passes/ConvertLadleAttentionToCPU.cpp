//===- ConvertLadleAttentionToCPU.cpp - attentions to functions ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "passes/Passes.h"
#include "passes/cpu/AttentionKernel.h"
#include "passes/cpu/BoundedKernel.h"

namespace ladle {
#define GEN_PASS_DEF_CONVERTLADLEATTENTIONTOCPU
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct ConvertLadleAttentionToCPU
    : ladle::impl::ConvertLadleAttentionToCPUBase<ConvertLadleAttentionToCPU> {
  using ConvertLadleAttentionToCPUBase::ConvertLadleAttentionToCPUBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    // A prompt's step asks the other what is evicted.
    SmallVector<AttentionStepOp> steps(module.getOps<AttentionStepOp>());
    CpuVectors vectors{lanes, dotsBF16, asksAgain};
    for (AttentionStepOp step : steps)
      if (failed(step.isBounded()
                     ? BoundedKernel(step, builder, vectors).build()
                     : AttentionKernel(step, builder, vectors).build()))
        return signalPassFailure();
    for (AttentionStepOp step : steps)
      step.erase();
    for (AttentionOp attention :
         llvm::make_early_inc_range(module.getOps<AttentionOp>()))
      attention.erase();
  }
};
} // namespace
