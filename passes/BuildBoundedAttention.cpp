//===- BuildBoundedAttention.cpp - steps over a cache that forgets --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace ladle {
#define GEN_PASS_DEF_BUILDBOUNDEDATTENTION
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {

/// Values of the spec stage become stores, and what made the next value an
/// effect on its store.
class StepBuilder {
public:
  StepBuilder(AttentionOp attention, OpBuilder &b)
      : attention(attention), b(b) {}

  /// Whether all operations are known, and caches and memories go from one to
  /// the next, so that effects in their order mean the same.
  LogicalResult check();
  AttentionStepOp build(AttentionForm form);

private:
  AttentionStepOp createStep(AttentionForm form);
  void add(Operation *op, bool isPrompt);

  AttentionOp attention;
  OpBuilder &b;
  IRMapping mapping;
  Value cache, memory;
};

} // namespace

/// What an operation makes of its cache and memory, if it does.
static std::pair<Value, Value> nextOf(Operation *op) {
  return TypeSwitch<Operation *, std::pair<Value, Value>>(op)
      .Case([](CacheTokenOp op) {
        return std::pair<Value, Value>(op.getResult(), {});
      })
      .Case([](ObserveOp op) {
        return std::pair<Value, Value>(op.getResult(), {});
      })
      .Case<EvictOp, FoldSegmentOp>([](auto op) {
        return std::pair<Value, Value>(op.getKept(), op.getFolded());
      })
      .Default([](Operation *) { return std::pair<Value, Value>(); });
}

LogicalResult StepBuilder::check() {
  Value latest = attention.getCache();
  Value remembered = attention.getMemory();
  bool forgets = false;
  for (Operation &op : attention.getBody().front()) {
    for (Value operand : op.getOperands()) {
      Value current = isa<BufferType>(operand.getType())   ? latest
                      : isa<MemoryType>(operand.getType()) ? remembered
                                                           : operand;
      if (operand == current)
        continue;
      op.emitError("no step for this attention: the operation does not take "
                   "the ")
          << (isa<BufferType>(operand.getType()) ? "cache" : "memory")
          << " as the operation before has left it";
      return failure();
    }
    auto [nextCache, nextMemory] = nextOf(&op);
    if (nextCache)
      latest = nextCache;
    if (nextMemory)
      remembered = nextMemory;
    forgets |= isa<EvictOp, FoldSegmentOp>(op);
    if (isa<MatchOp, CompleteOp>(op)) {
      op.emitError("no step for this attention: a match needs a cache that "
                   "keeps all tokens");
      return failure();
    }
  }
  if (forgets)
    return success();
  attention.emitError("no step for this attention: its cache is bounded, but "
                      "nothing leaves it");
  return failure();
}

AttentionStepOp StepBuilder::createStep(AttentionForm form) {
  Block &from = attention.getBody().front();
  SmallVector<Location> locations;
  for (BlockArgument argument : from.getArguments())
    locations.push_back(argument.getLoc());
  auto step = AttentionStepOp::create(
      b, attention.getLoc(),
      (attention.getSymName() + "_" + stringifyAttentionForm(form)).str(),
      attention.getSymName(), form, attention.getPageSize(),
      attention.getArgumentNames(), attention.getArgumentKinds(),
      attention.getOutputNames(), attention.getOutputTypes(), IntegerAttr(),
      IntegerAttr(), IntegerAttr(), IntegerAttr());
  Block &block = step.getBody().emplaceBlock();
  block.addArguments(SmallVector<Type>(from.getArgumentTypes()), locations);
  b.setInsertionPointToStart(&block);
  for (auto [old, argument] :
       llvm::zip(from.getArguments(), block.getArguments()))
    mapping.map(old, argument);
  cache = step.getCache();
  memory = step.getMemory();
  return step;
}

void StepBuilder::add(Operation *op, bool isPrompt) {
  auto use = [&](Value value) { return mapping.lookupOrDefault(value); };
  Location loc = op->getLoc();
  TypeSwitch<Operation *>(op)
      .Case([&](CacheTokenOp token) {
        SmallVector<Value> values;
        for (Value value : token.getValues())
          values.push_back(use(value));
        AppendOp::create(b, loc, cache, values);
      })
      .Case([&](EvictOp evict) {
        // Of a prompt, the tokens that are kept are chosen after its last.
        if (!isPrompt)
          EvictFromOp::create(b, loc, cache, memory, evict.getBudgetAttr(),
                              evict.getSinksAttr(), evict.getRecentAttr(),
                              evict.getQueriesAttr(), evict.getVarianceAttr(),
                              evict.getPoolAttr());
      })
      .Case([&](FoldSegmentOp fold) {
        auto effect = FoldFromOp::create(
            b, loc, cache, memory, fold.getSinksAttr(), fold.getWindowAttr(),
            fold.getSegmentAttr(), fold.getDecayAttr());
        IRMapping inside;
        fold.getFeature().cloneInto(&effect.getFeature(), inside);
      })
      .Case([&](ObserveOp observe) {
        if (!isPrompt)
          NoteWeightsOp::create(b, loc, use(observe.getQuery()), cache,
                                observe.getScaleAttr());
      })
      .Case([&](SoftmaxOp softmax) {
        auto bound = [&](Bound where) {
          return BoundAttr::get(b.getContext(), where);
        };
        Value summary = AttendOp::create(b, loc, softmax.getResult().getType(),
                                         use(softmax.getQuery()), cache,
                                         bound(Bound::Start), bound(Bound::End),
                                         Value(), softmax.getScaleAttr());
        mapping.map(softmax.getResult(), summary);
      })
      .Case([&](YieldOp yield) {
        SmallVector<Value> outputs;
        for (Value value : yield.getValues())
          if (!isa<BufferType, MemoryType>(value.getType()))
            outputs.push_back(use(value));
        YieldOp::create(b, loc, outputs);
      })
      .Default([&](Operation *other) { b.clone(*other, mapping); });
  auto [nextCache, nextMemory] = nextOf(op);
  if (nextCache)
    mapping.map(nextCache, cache);
  if (nextMemory)
    mapping.map(nextMemory, memory);
}

AttentionStepOp StepBuilder::build(AttentionForm form) {
  mapping.clear();
  OpBuilder::InsertionGuard guard(b);
  AttentionStepOp step = createStep(form);
  for (Operation &op : attention.getBody().front())
    add(&op, form == AttentionForm::PrefillSelect);
  return step;
}

namespace {
struct BuildBoundedAttention
    : ladle::impl::BuildBoundedAttentionBase<BuildBoundedAttention> {
  using BuildBoundedAttentionBase::BuildBoundedAttentionBase;

  void runOnOperation() override {
    OpBuilder b(&getContext());
    for (AttentionOp attention : getOperation().getOps<AttentionOp>()) {
      if (!attention.isBounded())
        continue;
      StepBuilder steps(attention, b);
      if (failed(steps.check()))
        return signalPassFailure();
      bool evicts = false;
      attention.walk([&](EvictOp) { evicts = true; });
      b.setInsertionPointAfter(attention);
      AttentionStepOp decode = steps.build(AttentionForm::Decode);
      if (!evicts)
        continue;
      b.setInsertionPointAfter(decode);
      steps.build(AttentionForm::PrefillSelect);
    }
  }
};
} // namespace
