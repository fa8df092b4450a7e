//===- ApproximateDecays.cpp - exponentials of decays ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace ladle {
#define GEN_PASS_DEF_APPROXIMATEDECAYS
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct ApproximateDecays
    : ladle::impl::ApproximateDecaysBase<ApproximateDecays> {
  void runOnOperation() override {
    llvm::SetVector<Value> open;
    getOperation().walk([&](DecayOp decay) { open.insert(decay.getFactor()); });
    for (size_t i = 0; i < open.size(); ++i) {
      Operation *op = open[i].getDefiningOp();
      // A number is computed by few, and costs nothing.
      if (auto exponential = dyn_cast_if_present<math::ExpOp>(op);
          exponential &&
          cast<RankedTensorType>(exponential.getType()).getRank() > 1)
        exponential.setFastmath(exponential.getFastmath() |
                                arith::FastMathFlags::afn);
      // What adds or divides may have what is no decay beside it.
      if (isa_and_present<math::ExpOp, arith::MulFOp, arith::NegFOp,
                          arith::ExtFOp, arith::TruncFOp, BroadcastOp>(op))
        open.insert(op->operand_begin(), op->operand_end());
    }
  }
};
} // namespace
