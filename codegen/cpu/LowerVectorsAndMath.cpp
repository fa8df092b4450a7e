//===- LowerVectorsAndMath.cpp - vectors of one dimension, polynomials ----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LowerToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/StringSwitch.h"

namespace ladle {
#define GEN_PASS_DEF_LOWERVECTORSANDMATH
#include "codegen/cpu/Passes.h.inc"
} // namespace ladle

using namespace mlir;

namespace {

void populateVectorPatterns(RewritePatternSet &patterns) {
  vector::populateVectorMultiReductionLoweringPatterns(
      patterns, vector::VectorMultiReductionLowering::InnerReduction);
  vector::populateVectorContractLoweringPatterns(
      patterns, vector::VectorContractLowering::OuterProduct);
  vector::populateVectorOuterProductLoweringPatterns(patterns);
  vector::populateVectorTransposeLoweringPatterns(
      patterns, vector::VectorTransposeLowering::Shuffle1D);
  vector::populateVectorBroadcastLoweringPatterns(patterns);
  vector::populateVectorShapeCastLoweringPatterns(patterns);
  vector::populateVectorInterleaveLoweringPatterns(patterns);
  vector::populateVectorBitCastLoweringPatterns(patterns);
  vector::populateVectorGatherLoweringPatterns(patterns);
  vector::populateVectorMaskOpLoweringPatterns(patterns);
  vector::populateVectorMaskMaterializationPatterns(
      patterns, /*force32BitVectorIndices=*/false);
  vector::populateVectorStepLoweringPatterns(patterns);
  vector::populateVectorRankReducingFMAPattern(patterns);
  vector::populateVectorInsertExtractStridedSliceTransforms(patterns);
  vector::populateVectorFromElementsUnrollPatterns(patterns);
  vector::populateVectorToElementsUnrollPatterns(patterns);
  vector::populateVectorTransferPermutationMapLoweringPatterns(patterns);
  vector::populateVectorTransferLoweringPatterns(patterns,
                                                 /*maxTransferRank=*/1);
}

/// The functions whose polynomials are good to 3e-7 everywhere.
bool hasAccuratePolynomial(StringRef operation) {
  return llvm::StringSwitch<bool>(operation)
      .Cases({"math.exp", "math.log", "math.log1p", "math.expm1", "math.tanh",
              "math.erf"},
             true)
      .Default(false);
}

/// LLVM 22 takes a conversion of <33 x bfloat> apart into pieces that it cannot
/// select, even where the processor converts bf16.
bool hasOddWidth(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector && !llvm::isPowerOf2_64(vector.getShape().back());
}

/// Without an instruction LLVM calls fmaf for every element of a vector.
void expandFMAs(Operation *root) {
  root->walk([](Operation *op) {
    if (!isa<vector::FMAOp, math::FmaOp>(op))
      return;
    OpBuilder b(op);
    Value product = arith::MulFOp::create(b, op->getLoc(), op->getOperand(0),
                                          op->getOperand(1));
    op->replaceAllUsesWith(
        arith::AddFOp::create(b, op->getLoc(), product, op->getOperand(2)));
    op->erase();
  });
}

struct LowerVectorsAndMath
    : public ladle::impl::LowerVectorsAndMathBase<LowerVectorsAndMath> {
  using LowerVectorsAndMathBase::LowerVectorsAndMathBase;

  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet set(context);
    populateVectorPatterns(set);
    populateMathPolynomialApproximationPatterns(set, hasAccuratePolynomial);
    arith::populateCeilFloorDivExpandOpsPatterns(set);
    patterns = FrozenRewritePatternSet(std::move(set));
    RewritePatternSet conversions(context);
    arith::populateExpandBFloat16Patterns(conversions);
    bf16Patterns = FrozenRewritePatternSet(std::move(conversions));
    return success();
  }

  void runOnOperation() override {
    // Folding constants out of loops and merging blocks is LLVM's work.
    GreedyRewriteConfig config;
    config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
    if (failed(applyPatternsGreedily(getOperation(), patterns, config)))
      return signalPassFailure();
    if (expandFMA)
      expandFMAs(getOperation());

    SmallVector<Operation *> conversions;
    getOperation()->walk([&](Operation *op) {
      if (isa<arith::ExtFOp, arith::TruncFOp>(op) &&
          (expandBF16 || hasOddWidth(op->getResult(0).getType())))
        conversions.push_back(op);
    });
    // Patterns for bf16 leave other types as they are.
    (void)applyOpPatternsGreedily(
        conversions, bf16Patterns,
        GreedyRewriteConfig().setStrictness(
            GreedyRewriteStrictness::ExistingAndNewOps));
  }

  FrozenRewritePatternSet patterns, bf16Patterns;
};

} // namespace
