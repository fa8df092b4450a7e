//===- FuseMatchAmendComplete.cpp - steps of an attention -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Passes.h"

namespace ladle {
#define GEN_PASS_DEF_FUSEMATCHAMENDCOMPLETE
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {

/// An attention taken apart: [truncf] normalize(softmax), with complete and
/// match between the last two or without.
struct Parts {
  CacheTokenOp append;
  SoftmaxOp softmax;
  CompleteOp complete;
  MatchOp match;
  NormalizeOp normalize;
};

FailureOr<Parts> takeApart(AttentionOp attention) {
  Parts parts;
  auto fail = [&](Operation *at, const Twine &what) -> FailureOr<Parts> {
    at->emitError("no plan for this attention: ") << what;
    return failure();
  };
  OperandRange yielded = attention.getYield().getValues();
  if (attention.getOutputNames().size() != 1)
    return fail(attention, "it has " +
                               Twine(attention.getOutputNames().size()) +
                               " outputs, expected one");
  Value output = yielded.front();
  if (auto rounded = output.getDefiningOp<arith::TruncFOp>())
    output = rounded.getIn();
  parts.normalize = output.getDefiningOp<NormalizeOp>();
  if (!parts.normalize)
    return fail(attention.getYield(), "its output is no ladle.normalize");
  Value summary = parts.normalize.getSummary();
  parts.complete = summary.getDefiningOp<CompleteOp>();
  if (parts.complete) {
    parts.match = parts.complete.getPrefix().getDefiningOp<MatchOp>();
    if (!parts.match)
      return fail(parts.complete, "the prefix is no ladle.match");
    summary = parts.complete.getAll();
  }
  parts.softmax = summary.getDefiningOp<SoftmaxOp>();
  if (!parts.softmax)
    return fail(parts.normalize, "its summary is no ladle.softmax");
  parts.append = parts.softmax.getCache().getDefiningOp<CacheTokenOp>();
  if (!parts.append || parts.append.getCache() != attention.getCache() ||
      yielded.back() != parts.append.getResult())
    return fail(parts.softmax, "it does not read the cache with this token");
  if (parts.match &&
      parts.match.getQuery().getType() != parts.softmax.getQuery().getType())
    return fail(parts.match, "the query that is matched has another shape "
                             "than the one that is attended with");
  return parts;
}

/// The type in which the argument behind a widened value is stored.
Type storedType(Value value) {
  if (auto extended = value.getDefiningOp<arith::ExtFOp>())
    value = extended.getIn();
  return cast<RankedTensorType>(value.getType()).getElementType();
}

class PlanBuilder {
public:
  PlanBuilder(AttentionOp attention, Parts given, Type valueType, OpBuilder &b)
      : attention(attention), parts(given), valueType(valueType), b(b) {
    // A query that is never near enough looks for nothing.
    reuses = parts.match && parts.match.getTau().convertToDouble() < 1.0;
  }

  bool isFused() const { return reuses; }
  /// Pieces of the history that are attended to.
  int64_t pieces() {
    return !reuses ? 1 : 2 + (sinks() > 0) + (wide() ? 1 : 0);
  }
  AttentionStepOp build(AttentionForm form);

private:
  int64_t sinks() { return static_cast<int64_t>(parts.complete.getSinks()); }
  std::optional<uint64_t> wide() { return parts.complete.getWideBand(); }
  RingType ringType();
  AttentionStepOp createStep(AttentionForm form);
  /// The step's copy of a value of the attention.
  Value use(Value value);
  Value attend(Bound begin, Bound end, Value after = {});
  Value merge(Value lhs, Value rhs) {
    return MergeOp::create(b, parts.complete.getLoc(), lhs, rhs);
  }
  Value find();
  Value reuse(Value match, int64_t part);
  Value buildReuse(AttentionForm form);

  AttentionOp attention;
  Parts parts;
  Type valueType;
  OpBuilder &b;
  bool reuses = false;
  IRMapping mapping;
  Value cache, ring;
};

} // namespace

RingType PlanBuilder::ringType() {
  auto query = cast<RankedTensorType>(parts.match.getQuery().getType());
  SummaryType summary = parts.softmax.getResult().getType();
  return RingType::get(
      attention.getContext(), query.getDimSize(0), query.getDimSize(1),
      storedType(parts.match.getQuery()), summary.getSize(), valueType,
      static_cast<int64_t>(parts.match.getWindow()), wide() ? 2 : 1,
      parts.match.getDrift().has_value(), !parts.match.getMoment());
}

AttentionStepOp PlanBuilder::createStep(AttentionForm form) {
  SmallVector<Attribute> kinds(attention.getArgumentKinds().getValue());
  SmallVector<Attribute> names(attention.getArgumentNames().getValue());
  Block &from = attention.getBody().front();
  SmallVector<Type> types(from.getArgumentTypes());
  SmallVector<Location> locations;
  for (BlockArgument argument : from.getArguments())
    locations.push_back(argument.getLoc());
  if (reuses) {
    kinds.push_back(ArgumentKindAttr::get(b.getContext(), ArgumentKind::Ring));
    names.push_back(b.getStringAttr("ring"));
    types.push_back(ringType());
    locations.push_back(parts.match.getLoc());
  }
  auto number = [&](std::optional<int64_t> value) {
    return value && reuses ? b.getI64IntegerAttr(*value) : IntegerAttr();
  };
  std::optional<int64_t> band, sinkCount;
  if (reuses) {
    band = parts.complete.getBand();
    sinkCount = sinks();
  }
  auto step = AttentionStepOp::create(
      b, attention.getLoc(),
      (attention.getSymName() + "_" + stringifyAttentionForm(form)).str(),
      attention.getSymName(), form, attention.getPageSize(),
      b.getArrayAttr(names), b.getArrayAttr(kinds), attention.getOutputNames(),
      attention.getOutputTypes(), number(band), number(sinkCount),
      number(reuses ? wide() : std::nullopt),
      number(reuses ? parts.complete.getWideGap() : std::nullopt));
  Block &block = step.getBody().emplaceBlock();
  block.addArguments(types, locations);
  b.setInsertionPointToStart(&block);
  for (auto [old, argument] :
       llvm::zip(from.getArguments(), block.getArguments()))
    mapping.map(old, argument);
  cache = step.getCache();
  ring = step.getRing();
  return step;
}

Value PlanBuilder::use(Value value) {
  if (!mapping.contains(value)) {
    Operation *op = value.getDefiningOp();
    for (Value operand : op->getOperands())
      use(operand);
    b.clone(*op, mapping);
  }
  return mapping.lookup(value);
}

Value PlanBuilder::attend(Bound begin, Bound end, Value after) {
  return AttendOp::create(
      b, parts.softmax.getLoc(), parts.softmax.getResult().getType(),
      use(parts.softmax.getQuery()), cache,
      BoundAttr::get(b.getContext(), begin),
      BoundAttr::get(b.getContext(), end), after, parts.softmax.getScaleAttr());
}

Value PlanBuilder::find() {
  MatchOp match = parts.match;
  Value rotated = match.getDrift() ? use(parts.softmax.getQuery()) : Value();
  Value moment = match.getMoment() ? use(match.getMoment()) : Value();
  return FindOp::create(
      b, match.getLoc(), MatchType::get(b.getContext(), ringType().getHeads()),
      use(match.getQuery()), ring, rotated, moment, match.getWindowAttr(),
      match.getTauAttr(), match.getMaxGapAttr(), match.getMaxChainAttr(),
      match.getSkipAttr(), match.getDriftAttr());
}

Value PlanBuilder::reuse(Value match, int64_t part) {
  return ReuseOp::create(b, parts.match.getLoc(),
                         parts.softmax.getResult().getType(), ring, match,
                         b.getI64IntegerAttr(part));
}

/// What is attended to anew is split where the summaries for later tokens end,
/// so that these are sums of pieces and nothing is ever subtracted. The pieces
/// that wait for no match come first.
Value PlanBuilder::buildReuse(AttentionForm form) {
  bool decodes = form == AttentionForm::Decode;
  Value newest = attend(Bound::Band, Bound::End);
  Value front = sinks() ? attend(Bound::Start, Bound::Sinks) : Value();
  Value match = decodes ? find() : Value();
  auto piece = [&](Bound begin, Bound end, int64_t part) {
    if (!decodes)
      return attend(begin, end);
    Value reused = reuse(match, part);
    return merge(reused, attend(begin, end, match));
  };
  SmallVector<Value> stored;
  if (wide()) {
    stored.push_back(piece(Bound::Sinks, Bound::Wide, 0));
    stored.push_back(piece(Bound::Wide, Bound::Band, 1));
  } else {
    stored.push_back(piece(Bound::Sinks, Bound::Band, 0));
  }
  StoreSummaryOp::create(
      b, parts.complete.getLoc(), use(parts.match.getQuery()), stored, ring,
      parts.match.getDrift() ? use(parts.softmax.getQuery()) : Value(), match);
  Value all = front;
  stored.push_back(newest);
  for (Value next : stored)
    all = all ? merge(all, next) : next;
  return all;
}

AttentionStepOp PlanBuilder::build(AttentionForm form) {
  mapping.clear();
  OpBuilder::InsertionGuard guard(b);
  AttentionStepOp step = createStep(form);
  SmallVector<Value> cached;
  for (Value value : parts.append.getValues())
    cached.push_back(use(value));
  AppendOp::create(b, parts.append.getLoc(), cache, cached);
  Value all = reuses ? buildReuse(form) : attend(Bound::Start, Bound::End);
  mapping.map(parts.normalize.getSummary(), all);
  Value result = use(attention.getYield().getValues().front());
  YieldOp::create(b, attention.getLoc(), ValueRange{result});
  return step;
}

namespace {
struct FuseMatchAmendComplete
    : ladle::impl::FuseMatchAmendCompleteBase<FuseMatchAmendComplete> {
  using FuseMatchAmendCompleteBase::FuseMatchAmendCompleteBase;

  void explain(AttentionOp attention, Parts parts, PlanBuilder &plan) {
    if (plan.isFused())
      mlir::emitRemark(parts.complete.getLoc())
          << "fused: match, reuse up to p - " << parts.complete.getBand()
          << ", attention to " << plan.pieces()
          << " pieces, merges and the summary for later tokens are one plan";
    else if (parts.match)
      mlir::emitRemark(parts.match.getLoc())
          << "not fused: tau is 1, at which no query matches; the plan is "
             "exact attention, without a ring";
    else
      mlir::emitRemark(attention.getLoc())
          << "not fused: the attention reuses nothing; the plan is exact "
             "attention";
  }

  void runOnOperation() override {
    OpBuilder b(&getContext());
    Type valueType = llvm::StringSwitch<Type>(summaryType)
                         .Case("f32", b.getF32Type())
                         .Case("bf16", b.getBF16Type())
                         .Case("f16", b.getF16Type())
                         .Default({});
    if (!valueType) {
      getOperation().emitError("summary-type must be f32, bf16 or f16, got '")
          << summaryType << "'";
      return signalPassFailure();
    }
    for (AttentionOp attention : getOperation().getOps<AttentionOp>()) {
      if (attention.isBounded())
        continue;
      FailureOr<Parts> parts = takeApart(attention);
      if (failed(parts))
        return signalPassFailure();
      PlanBuilder plan(attention, *parts, valueType, b);
      explain(attention, *parts, plan);
      Operation *last = attention;
      for (AttentionForm form :
           {AttentionForm::Decode, AttentionForm::PrefillAmend}) {
        if (form == AttentionForm::PrefillAmend && !plan.isFused())
          continue;
        b.setInsertionPointAfter(last);
        last = plan.build(form);
      }
    }
  }
};
} // namespace
