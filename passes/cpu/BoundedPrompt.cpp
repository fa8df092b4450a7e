//===- BoundedPrompt.cpp - prompts of a cache that evicts -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token of a prompt is answered by what the cache holds and by the prompt up
// to it, where that lies among the arguments. What of both stays is chosen by
// the runtime between the two functions of a prompt, once for all its tokens;
// the second folds the others.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/BoundedKernel.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

/// A prompt's step has no eviction: the declaration has, and the other step.
LogicalResult BoundedKernel::findEviction() {
  auto learn = [&](Operation *of) {
    of->walk([&](Operation *op) {
      if (auto evict = dyn_cast<EvictOp>(op))
        queries = static_cast<int64_t>(evict.getQueries());
      else if (auto evict = dyn_cast<EvictFromOp>(op))
        queries = static_cast<int64_t>(evict.getQueries());
      isEvicting |= isa<EvictOp, EvictFromOp>(op);
      notesWeights |= isa<ObserveOp, NoteWeightsOp>(op);
    });
  };
  for (Operation &op : step->getParentRegion()->front())
    if (auto attention = dyn_cast<AttentionOp>(op)) {
      if (attention.getSymName() == step.getAttention())
        learn(attention);
    } else if (auto other = dyn_cast<AttentionStepOp>(op)) {
      if (other.getAttention() == step.getAttention())
        learn(other);
    }
  if (isEvicting)
    return success();
  step.emitError("cannot be lowered for the CPU: neither '@")
      << step.getAttention() << "' nor its decode step says what it evicts";
  return failure();
}

LogicalResult BoundedKernel::buildPrompt() {
  AppendOp append;
  int64_t attends = 0;
  for (Operation &op : step.getBody().front()) {
    if (auto each = dyn_cast<AppendOp>(op))
      append = each;
    attends += isa<AttendOp>(op);
  }
  if (!append || attends != 1)
    return step.emitError("cannot be lowered for the CPU: a prompt is "
                          "appended, and attended to once; got ")
           << attends << " attends";
  createFunction(step.getSymName());
  if (failed(emitAll()))
    return failure();
  if (!memoryType)
    return success();
  found.clear();
  isAnswering = false;
  createFunction((step.getSymName() + "_fold").str());
  Scope scope(*this);
  if (succeeded(emitFoldList(append)))
    return success();
  function.erase();
  return failure();
}

FailureOr<std::pair<Value, Value>> BoundedKernel::promptToken(AppendOp append,
                                                              Value which) {
  llvm::SaveAndRestore<Value> other(row, which);
  Scope scope(*this);
  FailureOr<Value> key = element(append.getValues()[0]);
  FailureOr<Value> value = element(append.getValues()[1]);
  if (failed(key) || failed(value))
    return failure();
  return std::pair(*key, *value);
}

/// Adds the tokens of the prompt up to this one to what the cache answered.
/// They stand as if they were entries behind the last.
LogicalResult BoundedKernel::emitPromptTokens(AttendOp op, Value queries,
                                              const Found &result) {
  AppendOp append = *step.getBody().front().getOps<AppendOp>().begin();
  int64_t size = heads / cacheHeads;
  Value keyScratch = scratch({kBlock, keySize});
  Value valueScratch = scratch({kBlock, valueSize});
  Value held = loadIndex(counts, {slot, head});
  Value count = arith::AddIOp::create(
      b, arith::SubIOp::create(b, row, firstRow), index(1));
  Value end = arith::AddIOp::create(b, held, count);
  auto blocks = scf::ForOp::create(b, held, end, index(kBlock));
  b.setInsertionPointToStart(blocks.getBody());
  Value block = blocks.getInductionVar();
  auto tokens = scf::ForOp::create(b, index(0), index(kBlock), index(1));
  b.setInsertionPointToStart(tokens.getBody());
  // Behind this token it is this one again, with a weight of 0.
  Value j = tokens.getInductionVar();
  Value from = arith::SubIOp::create(b, block, held);
  Value which =
      arith::AddIOp::create(b, firstRow, arith::AddIOp::create(b, from, j));
  FailureOr<std::pair<Value, Value>> token =
      promptToken(append, minimum(which, row));
  if (failed(token))
    return failure();
  store(token->first, keyScratch, {j, index(0)});
  store(token->second, valueScratch, {j, index(0)});
  b.setInsertionPointAfter(tokens);
  auto loop = scf::ForOp::create(b, index(0), index(size), index(1));
  b.setInsertionPointToStart(loop.getBody());
  group = loop.getInductionVar();
  addBlock(block, end, queries, keyScratch, valueScratch, result);
  group = {};
  b.setInsertionPointAfter(blocks);
  if (notesWeights && this->queries == 0)
    addPromptSums(result, end);
  return success();
}

/// What this token gives to each before it, where all are summed up. The tokens
/// of a head are answered one after another.
void BoundedKernel::addPromptSums(const Found &result, Value end) {
  auto blocks = scf::ForOp::create(b, index(0), end, index(kBlock));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(blocks.getBody());
  Value block = blocks.getInductionVar();
  Value weight = sharedWeights(result, block, kBlock);
  Value left = minimum(arith::SubIOp::create(b, end, block), index(kBlock));
  Value isThere = vector::CreateMaskOp::create(
      b, VectorType::get({kBlock}, b.getI1Type()), left);
  weight =
      arith::SelectOp::create(b, isThere, weight, splat(number(0), kBlock));
  store(arith::AddFOp::create(b, load(promptSums, {block}, kBlock), weight),
        promptSums, {block});
}
