//===- ExpandFunctions.cpp - functions into arith and math ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"

namespace ladle {
#define GEN_PASS_DEF_EXPANDFUNCTIONS
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {

/// Builds elementwise f32 arithmetic at one location.
class Arithmetic {
public:
  Arithmetic(OpBuilder &builder, Location loc) : builder(builder), loc(loc) {}

  Value constant(Type type, double value) {
    auto tensor = cast<RankedTensorType>(type);
    return arith::ConstantOp::create(
        builder, loc,
        DenseElementsAttr::get(tensor, static_cast<float>(value)));
  }
  template <typename OpT> Value apply(Value x) {
    return OpT::create(builder, loc, x);
  }
  template <typename OpT> Value apply(Value x, Value y) {
    return OpT::create(builder, loc, x, y);
  }
  template <typename OpT> Value apply(Value x, double y) {
    return apply<OpT>(x, constant(x.getType(), y));
  }
  Value fma(Value x, Value y, Value z) {
    return math::FmaOp::create(builder, loc, x, y, z);
  }
  Value equal(Value x, Value y) {
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, x, y);
  }
  Value equal(Value x, double y) { return equal(x, constant(x.getType(), y)); }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(builder, loc, condition, x, y);
  }

private:
  OpBuilder &builder;
  Location loc;
};

/// Of functions of exp(-x) + 1, which overflows to infinity only where
/// sigmoid(x) underflows.
template <typename OpT> struct ExpandLogistic : OpRewritePattern<OpT> {
  ExpandLogistic(MLIRContext *context, bool approximates)
      : OpRewritePattern<OpT>(context), approximates(approximates) {}

  Value onePlusExpNegated(Arithmetic &a, Value x) const {
    Value e = a.apply<math::ExpOp>(a.apply<arith::NegFOp>(x));
    // A number is computed by few, and costs nothing.
    if (approximates && cast<RankedTensorType>(x.getType()).getRank() > 1)
      e.getDefiningOp<math::ExpOp>().setFastmath(arith::FastMathFlags::afn);
    return a.apply<arith::AddFOp>(e, 1.0);
  }

private:
  bool approximates;
};

struct ExpandSigmoid : ExpandLogistic<SigmoidOp> {
  using ExpandLogistic::ExpandLogistic;
  LogicalResult matchAndRewrite(SigmoidOp op,
                                PatternRewriter &rewriter) const override {
    Arithmetic a(rewriter, op.getLoc());
    Value x = op.getInput();
    rewriter.replaceOp(op, a.apply<arith::DivFOp>(a.constant(x.getType(), 1.0),
                                                  onePlusExpNegated(a, x)));
    return success();
  }
};

struct ExpandSilu : ExpandLogistic<SiluOp> {
  using ExpandLogistic::ExpandLogistic;
  LogicalResult matchAndRewrite(SiluOp op,
                                PatternRewriter &rewriter) const override {
    Arithmetic a(rewriter, op.getLoc());
    Value x = op.getInput();
    rewriter.replaceOp(op, a.apply<arith::DivFOp>(x, onePlusExpNegated(a, x)));
    return success();
  }
};

/// max(x, 0) + log1p(e) with e = exp(-|x|), which is never more than 1. There
/// log1p(e) = 2 artanh(s) with s = e / (2 + e), whose series in s^2, at most
/// 1/9, takes no logarithm and has the digits of e where e is small. The
/// coefficients beyond 2 are of least relative error, 1e-8 with their rounding.
struct ExpandSoftplus : OpRewritePattern<SoftplusOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SoftplusOp op,
                                PatternRewriter &rewriter) const override {
    constexpr double coefficients[] = {0.28178334236, 0.27960601449,
                                       0.40024909377, 0.66666316986};
    Arithmetic a(rewriter, op.getLoc());
    Value x = op.getInput();
    Value e =
        a.apply<math::ExpOp>(a.apply<arith::NegFOp>(a.apply<math::AbsFOp>(x)));
    Value s = a.apply<arith::DivFOp>(e, a.apply<arith::AddFOp>(e, 2.0));
    Value square = a.apply<arith::MulFOp>(s, s);
    Value series = a.constant(x.getType(), coefficients[0]);
    for (double coefficient : ArrayRef(coefficients).drop_front())
      series = a.fma(series, square, a.constant(x.getType(), coefficient));
    Value tail = a.fma(a.apply<arith::MulFOp>(s, square), series,
                       a.apply<arith::AddFOp>(s, s));
    rewriter.replaceOp(
        op, a.apply<arith::AddFOp>(a.apply<arith::MaximumFOp>(x, 0.0), tail));
    return success();
  }
};

/// max(x, 0) + expm1(min(x, 0)): one of the terms is always 0. Of elu(x) + 1,
/// which is a feature of linear attentions, the 1 takes away that of expm1.
struct ExpandElu : OpRewritePattern<EluOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(EluOp op,
                                PatternRewriter &rewriter) const override {
    auto isOne = [](Value value) { return matchPattern(value, m_OneFloat()); };
    auto plusOne = op->hasOneUse() ? dyn_cast<arith::AddFOp>(*op->user_begin())
                                   : arith::AddFOp();
    if (plusOne && !isOne(plusOne.getLhs()) && !isOne(plusOne.getRhs()))
      plusOne = {};
    if (plusOne)
      rewriter.setInsertionPoint(plusOne);
    Arithmetic a(rewriter, op.getLoc());
    Value x = op.getInput(), least = a.apply<arith::MinimumFOp>(x, 0.0);
    Value negative =
        plusOne ? a.apply<math::ExpOp>(least) : a.apply<math::ExpM1Op>(least);
    Value all =
        a.apply<arith::AddFOp>(a.apply<arith::MaximumFOp>(x, 0.0), negative);
    if (plusOne)
      rewriter.replaceOp(plusOne, all);
    else
      rewriter.replaceOp(op, all);
    if (plusOne)
      rewriter.eraseOp(op);
    return success();
  }
};

struct ExpandL2Norm : OpRewritePattern<L2NormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(L2NormOp op,
                                PatternRewriter &rewriter) const override {
    Arithmetic a(rewriter, op.getLoc());
    Value x = op.getInput();
    RankedTensorType type = op.getInput().getType();
    int64_t last = type.getRank() - 1;
    auto reduced = RankedTensorType::get(type.getShape().drop_back(),
                                         type.getElementType());
    Value sum = SumOp::create(rewriter, op.getLoc(), reduced,
                              a.apply<arith::MulFOp>(x, x), last);
    Value scale = a.apply<math::RsqrtOp>(
        a.apply<arith::AddFOp>(sum, op.getEps().convertToDouble()));
    SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, last));
    Value spread =
        BroadcastOp::create(rewriter, op.getLoc(), type, scale, dims);
    rewriter.replaceOp(op, a.apply<arith::MulFOp>(x, spread));
    return success();
  }
};

bool isF32Tensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && type.getElementType().isF32();
}

/// Kahan: with u = fl(1 + x), log(u) · x / (u - 1) has full precision because
/// the rounding errors of numerator and denominator cancel.
struct ExpandLog1p : OpRewritePattern<math::Log1pOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::Log1pOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getOperand();
    if (!isF32Tensor(x))
      return failure();
    Arithmetic a(rewriter, op.getLoc());
    Value u = a.apply<arith::AddFOp>(x, 1.0);
    Value logU = a.apply<math::LogOp>(u);
    Value ratio = a.apply<arith::DivFOp>(x, a.apply<arith::SubFOp>(u, 1.0));
    // x is exact where 1 + x rounds to 1, and for infinity, where log(u) = u.
    Value exact = a.apply<arith::OrIOp>(a.equal(u, 1.0), a.equal(logU, u));
    rewriter.replaceOp(op,
                       a.select(exact, x, a.apply<arith::MulFOp>(logU, ratio)));
    return success();
  }
};

/// Kahan: with u = fl(exp(x)), (u - 1) · x / log(u).
struct ExpandExpM1 : OpRewritePattern<math::ExpM1Op> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpM1Op op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getOperand();
    if (!isF32Tensor(x))
      return failure();
    Arithmetic a(rewriter, op.getLoc());
    Value u = a.apply<math::ExpOp>(x);
    Value minusOne = a.apply<arith::SubFOp>(u, 1.0);
    Value logU = a.apply<math::LogOp>(u);
    Value product =
        a.apply<arith::MulFOp>(minusOne, a.apply<arith::DivFOp>(x, logU));
    // u = 0 gives -1 and u = infinity gives infinity, where log(u) is useless.
    Value extreme =
        a.apply<arith::OrIOp>(a.equal(minusOne, -1.0), a.equal(logU, u));
    Value result = a.select(extreme, minusOne, product);
    rewriter.replaceOp(op, a.select(a.equal(u, 1.0), x, result));
    return success();
  }
};

struct ExpandFunctions : ladle::impl::ExpandFunctionsBase<ExpandFunctions> {
  using ExpandFunctionsBase::ExpandFunctionsBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns
        .add<ExpandElu, ExpandExpM1, ExpandL2Norm, ExpandLog1p, ExpandSoftplus>(
            &getContext());
    patterns.add<ExpandSigmoid, ExpandSilu>(&getContext(), approximate);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
