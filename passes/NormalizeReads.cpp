//===- NormalizeReads.cpp - reads at the start of the token ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rewrite moves a read, or a decay, one step towards the start of the
// token, and none makes a read or a decay that was not there, so that rewriting
// ends.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "passes/analysis/HistoryForm.h"
#include "passes/build/Locations.h"
#include <numeric>

namespace ladle {
#define GEN_PASS_DEF_NORMALIZEREADS
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Arithmetic on values with different numbers of heads
//===----------------------------------------------------------------------===//

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// The smallest number of heads that both values can be repeated to. It
/// divides the heads of the state, since both of theirs do.
static int64_t commonHeads(Value lhs, Value rhs) {
  return std::lcm(typeOf(lhs).getDimSize(0), typeOf(rhs).getDimSize(0));
}

/// `value` before it was repeated over heads: what has fewer heads is computed
/// fewer times.
static Value withFewestHeads(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
    if (typeOf(broadcast.getInput()).getRank() != typeOf(value).getRank())
      break;
    value = broadcast.getInput();
  }
  return value;
}

static Value broadcast(OpBuilder &builder, Location loc, Value value,
                       ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  if (typeOf(value).getShape() == shape)
    return value;
  auto type = RankedTensorType::get(shape, builder.getF32Type());
  return BroadcastOp::create(builder, loc, type, value, dims);
}

static Value sum(OpBuilder &builder, Location loc, Value value, int64_t dim) {
  SmallVector<int64_t> shape(typeOf(value).getShape());
  shape.erase(shape.begin() + dim);
  auto type = RankedTensorType::get(shape, builder.getF32Type());
  return SumOp::create(builder, loc, type, value, dim);
}

/// a ∘ x, for a decay factor `a` ([heads] or [heads, dk]) and a key, a query or
/// another factor `x`. The result has the shape of `x` but for its heads,
/// unless `x` is a number a head and `a` is not.
static Value scale(OpBuilder &builder, Location loc, Value factor, Value x) {
  factor = withFewestHeads(factor);
  x = withFewestHeads(x);
  if (typeOf(x).getRank() < typeOf(factor).getRank())
    std::swap(factor, x);
  SmallVector<int64_t> shape(typeOf(x).getShape());
  shape.front() = commonHeads(factor, x);
  SmallVector<int64_t> ownDims =
      llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  SmallVector<int64_t> factorDims = {0};
  if (typeOf(factor).getRank() == 2)
    factorDims.push_back(shape.size() - 1);
  return arith::MulFOp::create(
      builder, loc, broadcast(builder, loc, factor, shape, factorDims),
      broadcast(builder, loc, x, shape, ownDims));
}

/// Σ_r (k_r · q) u_r for each query: what a write adds to a read.
///
/// Everything is [heads, ranks of the query, ranks of the write, channels],
/// where a rank that the operands do not have is left out.
static Value readOfEntry(OpBuilder &builder, Location loc, Value key,
                         Value value, Value query, RankedTensorType type) {
  key = withFewestHeads(key);
  query = withFewestHeads(query);
  bool hasQueryRank = typeOf(query).getRank() == 3;
  bool hasWriteRank = typeOf(key).getRank() == 3;
  SmallVector<int64_t> shape = {commonHeads(key, query)};
  SmallVector<int64_t> queryDims = {0}, writeDims = {0};
  if (hasQueryRank) {
    queryDims.push_back(shape.size());
    shape.push_back(typeOf(query).getDimSize(1));
  }
  if (hasWriteRank) {
    writeDims.push_back(shape.size());
    shape.push_back(typeOf(key).getDimSize(1));
  }
  int64_t last = shape.size();
  SmallVector<int64_t> dotDims = llvm::to_vector(llvm::seq<int64_t>(0, last));
  queryDims.push_back(last);
  writeDims.push_back(last);

  shape.push_back(typeOf(key).getShape().back());
  Value product = arith::MulFOp::create(
      builder, loc, broadcast(builder, loc, key, shape, writeDims),
      broadcast(builder, loc, query, shape, queryDims));
  Value dot = sum(builder, loc, product, last);

  shape.front() = commonHeads(dot, value);
  shape.back() = type.getShape().back();
  Value term = arith::MulFOp::create(
      builder, loc, broadcast(builder, loc, dot, shape, dotDims),
      broadcast(builder, loc, value, shape, writeDims));
  if (hasWriteRank)
    term = sum(builder, loc, term, last - 1);
  SmallVector<int64_t> allDims =
      llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  return broadcast(builder, loc, term, type.getShape(), allDims);
}

//===----------------------------------------------------------------------===//
// Rewrites
//===----------------------------------------------------------------------===//

namespace {

/// read(decay(S, a), q) = a read(S, q), or read(S, a ∘ q) for a vector a.
struct ReadOfDecay : OpRewritePattern<ReadOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReadOp op,
                                PatternRewriter &rewriter) const override {
    auto decay = op.getState().getDefiningOp<DecayOp>();
    if (!decay)
      return failure();
    Location loc = unnamed(op.getLoc());
    if (!decay.isScalar()) {
      Value query = scale(rewriter, loc, decay.getFactor(), op.getQuery());
      rewriter.replaceOpWithNewOp<ReadOp>(op, op.getType(), decay.getState(),
                                          query);
      return success();
    }
    Value factor = broadcast(rewriter, loc, decay.getFactor(),
                             op.getType().getShape(), {0});
    Value read = ReadOp::create(rewriter, loc, op.getType(), decay.getState(),
                                op.getQuery());
    rewriter.replaceOpWithNewOp<arith::MulFOp>(op, factor, read);
    return success();
  }
};

/// read(write(S, k, u), q) = read(S, q) + Σ_r (k_r · q) u_r.
struct ReadOfWrite : OpRewritePattern<ReadOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReadOp op,
                                PatternRewriter &rewriter) const override {
    auto write = op.getState().getDefiningOp<WriteOp>();
    if (!write)
      return failure();
    Location loc = unnamed(op.getLoc());
    Value read = ReadOp::create(rewriter, loc, op.getType(), write.getState(),
                                op.getQuery());
    Value entry = readOfEntry(rewriter, loc, write.getKey(), write.getValue(),
                              op.getQuery(), op.getType());
    rewriter.replaceOpWithNewOp<arith::AddFOp>(op, read, entry);
    return success();
  }
};

/// decay(decay(S, a), b) = decay(S, a ∘ b).
struct DecayOfDecay : OpRewritePattern<DecayOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DecayOp op,
                                PatternRewriter &rewriter) const override {
    auto inner = op.getState().getDefiningOp<DecayOp>();
    if (!inner)
      return failure();
    Value factor = scale(rewriter, unnamed(op.getLoc()), inner.getFactor(),
                         op.getFactor());
    rewriter.replaceOpWithNewOp<DecayOp>(op, inner.getState(), factor);
    return success();
  }
};

/// decay(write(S, k, u), a) = write(decay(S, a), a ∘ k, u).
struct DecayOfWrite : OpRewritePattern<DecayOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DecayOp op,
                                PatternRewriter &rewriter) const override {
    auto write = op.getState().getDefiningOp<WriteOp>();
    if (!write)
      return failure();
    Value key =
        scale(rewriter, unnamed(op.getLoc()), op.getFactor(), write.getKey());
    Value decayed = DecayOp::create(rewriter, op.getLoc(), write.getState(),
                                    op.getFactor());
    auto moved = WriteOp::create(rewriter, write.getLoc(), decayed, key,
                                 write.getValue());
    rewriter.replaceOp(op, moved);
    return success();
  }
};

struct NormalizeReads : ladle::impl::NormalizeReadsBase<NormalizeReads> {
  void runOnOperation() override {
    RecurrenceOp recurrence = getOperation();
    if (failed(verifyStateUses(recurrence)))
      return signalPassFailure();
    // Reads first: afterwards the only user of a version is the next one.
    if (failed(rewrite<ReadOfDecay, ReadOfWrite>(recurrence)) ||
        failed(rewrite<DecayOfDecay, DecayOfWrite>(recurrence)))
      return signalPassFailure();
    // Reads of different versions with one query have become the same read.
    IRRewriter rewriter(&getContext());
    DominanceInfo dominance(recurrence);
    eliminateCommonSubExpressions(rewriter, dominance, recurrence);
  }

  template <typename... Patterns>
  LogicalResult rewrite(RecurrenceOp recurrence) {
    RewritePatternSet patterns(&getContext());
    patterns.add<Patterns...>(&getContext());
    GreedyRewriteConfig config;
    config.setMaxIterations(GreedyRewriteConfig::kNoLimit);
    return applyPatternsGreedily(recurrence, std::move(patterns), config);
  }
};

} // namespace
