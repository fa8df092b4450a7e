//===- BoundedAttend.cpp - the softmax over what is kept ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Utils/Utils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/analysis/AttentionPlan.h"
#include "passes/cpu/BoundedKernel.h"
#include "passes/cpu/Dots.h"

using namespace mlir;
using namespace ladle;

FailureOr<Value> BoundedKernel::gatherQueries(Value query, double scale) {
  int64_t width = cast<RankedTensorType>(query.getType()).getDimSize(1);
  Value gathered = scratch({heads / cacheHeads, width});
  scf::ForOp loop = openGroup();
  Scope scope(*this);
  FailureOr<Value> vector = element(query);
  if (failed(vector))
    return failure();
  Value scaled = scale == 1 ? *vector
                            : Value(arith::MulFOp::create(
                                  b, *vector, splat(number(scale), width)));
  store(scaled, gathered, {group, index(0)});
  closeGroup(loop);
  return gathered;
}

/// Of a segmented cache they are the caller's; one that evicts has its entries
/// side by side.
Value BoundedKernel::keptRuns() {
  SmallVector<Value> bounds(kept);
  if (isEvicting)
    bounds = {index(0), loadIndex(counts, {slot, head})};
  size_t count = bounds.size() / 2;
  Value runs = scratch({static_cast<int64_t>(count), 3}, b.getIndexType());
  // Behind the last entry of a head is the first of the next, which is mostly
  // what comes next.
  Value next = index(capacity);
  for (size_t i = count; i-- > 0;) {
    Value begin = bounds[2 * i], end = bounds[2 * i + 1];
    for (auto [which, value] :
         llvm::enumerate(SmallVector<Value>{begin, end, next}))
      memref::StoreOp::create(b, value, runs,
                              ValueRange{index(i), index(which)});
    next = arith::SelectOp::create(b, isLess(begin, end), begin, next);
  }
  return runs;
}

Value BoundedKernel::firstKept() {
  if (isEvicting)
    return index(0);
  Value first = kept[kept.size() - 2];
  for (size_t i = kept.size() - 2; i > 0; i -= 2)
    first = arith::SelectOp::create(b, isLess(kept[i - 2], kept[i - 1]),
                                    kept[i - 2], first);
  return first;
}

LogicalResult BoundedKernel::emitAttend(AttendOp op) {
  int64_t size = heads / cacheHeads;
  double scale = op.getScale().convertToDouble();
  auto typeOf = [](Value memory) {
    return cast<MemRefType>(memory.getType()).getElementType();
  };
  Running running = startBlocks(size, typeOf(keys), typeOf(values),
                                isExactQuery(op.getQuery()), scale);
  scf::ForOp loop = openGroup();
  {
    Scope scope(*this);
    FailureOr<Value> query = element(op.getQuery());
    if (failed(query))
      return failure();
    putQuery(running, group, *query);
  }
  closeGroup(loop);

  Found &result = found[op.getResult()];
  result.sums = scratch({size, 2});
  result.values = scratch({size, valueSize});
  if (isPrompt)
    result.scores = promptScores;
  else if (notesWeights)
    result.scores = scratch({size, int64_t(llvm::alignTo(capacity, kBlock))});
  running.noted = result.scores;

  auto place = [&](Value at) { return SmallVector<Value>{slot, head, at}; };
  Value runs = keptRuns();
  int64_t count = cast<MemRefType>(runs.getType()).getDimSize(0);
  auto bound = [&](Value run, int64_t which) -> Value {
    return memref::LoadOp::create(b, runs, ValueRange{run, index(which)});
  };
  bool isAsked = llvm::any_of(found, [](const auto &each) {
    return isa_and_nonnull<RecallOp>(each.first.getDefiningOp());
  });
  if (!isAsked)
    prefetchFirst({keys, values, place, {}}, firstKept());
  auto each = scf::ForOp::create(b, index(0), index(count), index(1));
  b.setInsertionPointToStart(each.getBody());
  Value run = each.getInductionVar();
  addTokens(running, bound(run, 0), bound(run, 1),
            {keys, values, place, bound(run, 2)});
  b.setInsertionPointAfter(each);
  if (failed(outline(each, "_tokens")))
    return failure();
  finishBlocks(running, result.sums, result.values);
  if (!isPrompt)
    return success();
  FailureOr<Value> gathered = gatherQueries(op.getQuery(), scale);
  if (failed(gathered))
    return failure();
  return emitPromptTokens(op, *gathered, result);
}

/// The body of a loop becomes a function of its own: registers are found for
/// it alone then, where sums that should stay in them gave way to what the rest
/// of the step holds.
LogicalResult BoundedKernel::outline(scf::ForOp loop, StringRef suffix) {
  std::string name = (function.getSymName() + suffix).str();
  auto module = function->getParentOfType<ModuleOp>();
  for (int i = 2; module.lookupSymbol(name); ++i)
    name = (function.getSymName() + suffix + Twine(i)).str();
  IRRewriter rewriter(b.getContext());
  FailureOr<func::FuncOp> outlined =
      outlineSingleBlockRegion(rewriter, loop.getLoc(), loop.getRegion(), name);
  if (failed(outlined))
    return failure();
  outlined->setPrivate();
  outlined->getOperation()->setAttr("passthrough",
                                    b.getStrArrayAttr({"noinline"}));
  b.setInsertionPointAfter(loop);
  return success();
}

/// Whether a query is a token of bf16, as it came.
bool BoundedKernel::isExactQuery(Value query) const {
  auto argument = dyn_cast<BlockArgument>(unwidened(query));
  return argument &&
         cast<RankedTensorType>(argument.getType()).getElementType().isBF16();
}

/// Adds a block to the summary of a head of the group.
void BoundedKernel::addBlock(Value block, Value end, Value queries,
                             Value keyScratch, Value valueScratch,
                             const Found &result) {
  Value query = load(queries, {group, index(0)}, keySize);
  SmallVector<Value> products;
  for (int64_t j = 0; j < kBlock; ++j) {
    Value key = load(keyScratch, {index(j), index(0)}, keySize);
    products.push_back(keySize % kBlock ? dot(query, key)
                                        : partialDot(b, query, key));
  }
  auto lanes = VectorType::get({kBlock}, b.getF32Type());
  Value scores = keySize % kBlock
                     ? Value(vector::FromElementsOp::create(b, lanes, products))
                     : sumLanes(b, products);
  SmallVector<int32_t> numbers(kBlock);
  for (int32_t j = 0; j < kBlock; ++j)
    numbers[j] = j;
  Value lane = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  Value left = minimum(arith::SubIOp::create(b, end, block), index(kBlock));
  Value isValid = arith::CmpIOp::create(
      b, arith::CmpIPredicate::slt, lane,
      splat(arith::IndexCastOp::create(b, b.getI32Type(), left), kBlock));
  scores = arith::SelectOp::create(b, isValid, scores,
                                   splat(number(-INFINITY), kBlock));
  if (result.scores)
    store(scores, result.scores, {group, block});

  auto loadSum = [&](int64_t which) -> Value {
    return memref::LoadOp::create(b, result.sums,
                                  ValueRange{group, index(which)});
  };
  Value before = loadSum(0);
  Value most =
      vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF, scores);
  most = arith::MaximumFOp::create(b, before, most);
  Value base = finite(most);
  Value weights = exp(arith::SubFOp::create(b, scores, splat(base, kBlock)));
  weights =
      arith::SelectOp::create(b, isValid, weights, splat(number(0), kBlock));
  Value stays = exp(arith::SubFOp::create(b, before, base));
  Value sum = arith::AddFOp::create(
      b, arith::MulFOp::create(b, loadSum(1), stays),
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, weights,
                                  arith::FastMathFlags::reassoc));
  Value total = arith::MulFOp::create(
      b, load(result.values, {group, index(0)}, valueSize),
      splat(stays, valueSize));
  for (int64_t j = 0; j < kBlock; ++j) {
    Value weight = vector::ExtractOp::create(b, weights, j);
    total = vector::FMAOp::create(
        b, splat(weight, valueSize),
        load(valueScratch, {index(j), index(0)}, valueSize), total);
  }
  store(total, result.values, {group, index(0)});
  memref::StoreOp::create(b, most, result.sums, ValueRange{group, index(0)});
  memref::StoreOp::create(b, sum, result.sums, ValueRange{group, index(1)});
}

//===----------------------------------------------------------------------===//
// Summaries of a head of the group
//===----------------------------------------------------------------------===//

BoundedKernel::Summary BoundedKernel::loadSummary(const Found &result) {
  auto sum = [&](int64_t which) -> Value {
    return memref::LoadOp::create(b, result.sums,
                                  ValueRange{group, index(which)});
  };
  return {sum(0), sum(1), load(result.values, {group, index(0)}, valueSize)};
}

FailureOr<BoundedKernel::Summary> BoundedKernel::summaryOf(Value value) {
  if (auto known = found.find(value); known != found.end())
    return loadSummary(known->second);
  if (auto merged = value.getDefiningOp<MergeOp>()) {
    FailureOr<Summary> lhs = summaryOf(merged.getLhs());
    FailureOr<Summary> rhs = summaryOf(merged.getRhs());
    if (failed(lhs) || failed(rhs))
      return failure();
    return merge(*lhs, *rhs);
  }
  return mlir::emitError(value.getLoc(),
                         "cannot be lowered for the CPU: this summary is not "
                         "of the cache or its memory");
}
