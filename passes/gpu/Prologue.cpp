//===- Prologue.cpp - what a GPU kernel does before its forms part --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The order is what hides the memory: copies are started, then comes whatever
// needs tokens alone, then what needs entries, and last what needs states.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/Kernel.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace ladle;

/// Vectors over dk that are computed by the lanes of a warp, for the groups:
/// one barrier for all.
LogicalResult GpuKernel::handToGroups(ArrayRef<Value> roots,
                                      const Place &place) {
  SmallVector<std::pair<Value, Value>> written;
  for (Value root : roots) {
    FailureOr<Value> scratch = putWhole(root, *warpPlace(keySize));
    if (failed(scratch))
      return failure();
    written.emplace_back(root, *scratch);
  }
  if (!written.empty())
    barrier();
  for (auto [root, scratch] : written) {
    Components all;
    int64_t count = cast<MemRefType>(scratch.getType()).getDimSize(0);
    for (int64_t i = 0; i < count; ++i)
      llvm::append_range(all, loadVector(scratch, {constantIndex(i)}, place));
    remember(root, place, all);
  }
  return success();
}

/// What comes through entries, and cannot be computed before they have arrived.
static DenseSet<Value> valuesAfterEntries(StepOp form) {
  DenseSet<Value> result;
  form.walk([&](Operation *op) {
    if (isa<TransportOp, DecayProductOp>(op) ||
        llvm::any_of(op->getOperands(),
                     [&](Value operand) { return result.contains(operand); }))
      result.insert(op->result_begin(), op->result_end());
  });
  return result;
}

/// The vectors over dk that meet states and entries, as far as these are not
/// needed for them.
LogicalResult GpuKernel::emitKeyValues() {
  // Tensor cores take those of `tiles`, groups of lanes the others.
  llvm::SetVector<Value> tiles, roots;
  for (StepOp form : forms()) {
    DenseSet<Value> late = valuesAfterEntries(form);
    form.walk([&](Operation *op) {
      auto want = [&](llvm::SetVector<Value> &set, Value value) {
        if (late.contains(value) || dependsOnRows(value))
          return;
        auto same = sameValues.find(value);
        set.insert(same == sameValues.end() ? value : same->second);
      };
      if (auto read = dyn_cast<ReadOp>(op))
        want(multipliesReads ? tiles : roots, read.getQuery());
      else if (auto read = dyn_cast<ReadBufferOp>(op))
        for (Value query : read.getQueries())
          want(multipliesReads && !decayedKey(read.getBuffer(), read.getKey(),
                                              read.getDecay())
                   ? tiles
                   : roots,
               query);
      else if (auto transport = dyn_cast<TransportOp>(op))
        for (Value query : transport.getQueries())
          want(roots, query);
    });
  }
  if (!tiles.empty() && failed(putQueries(tiles.getArrayRef())))
    return failure();
  if (hasWarpValues && !roots.empty())
    return handToGroups(roots.getArrayRef(), entryPlace());
  if (areQueriesPending)
    barrier();
  for (Value root : roots)
    if (failed(get(root, keyPlace(keySize))))
      return failure();
  return success();
}

/// Queries that decay with the entries. A barrier is the caller's.
LogicalResult GpuKernel::emitLateQueries() {
  if (!multipliesReads)
    return success();
  llvm::SetVector<Value> queries;
  for (StepOp form : forms()) {
    DenseSet<Value> late = valuesAfterEntries(form);
    form.walk([&](ReadOp read) {
      if (late.contains(read.getQuery()) && !dependsOnRows(read.getQuery()))
        queries.insert(read.getQuery());
    });
  }
  return putQueries(queries.getArrayRef());
}

/// Numbers that neither entries nor states are needed for: what takes long is
/// over when these arrive.
LogicalResult GpuKernel::emitNumbers() {
  for (StepOp form : forms()) {
    DenseSet<Value> late;
    for (Operation &op : form.getBody().front()) {
      auto isLate = [&](Value value) { return late.contains(value); };
      if (isa<ReadOp, ReadBufferOp, TransportOp, DecayProductOp>(op) ||
          llvm::any_of(op.getOperands(), isLate)) {
        late.insert(op.result_begin(), op.result_end());
        continue;
      }
      for (Value result : op.getResults())
        if (auto type = dyn_cast<RankedTensorType>(result.getType());
            type && type.getRank() == 1 && failed(get(result, Place())))
          return failure();
    }
  }
  return success();
}

/// What both forms read of entries, or of a state as it was loaded: once, and
/// of entries before the states have arrived.
LogicalResult GpuKernel::emitSharedReads(bool ofStates) {
  for (Operation &op : step.getBody().front()) {
    bool wanted =
        ofStates ? isa<ReadOp>(op) : isa<ReadBufferOp, TransportOp>(op);
    if (!wanted || llvm::any_of(op.getOperands(), [&](Value operand) {
          return dependsOnRows(operand);
        }))
      continue;
    if (auto read = dyn_cast<ReadOp>(op);
        read && !isa_and_present<LoadStateOp>(read.getState().getDefiningOp()))
      continue;
    bool isShared = false;
    for (auto [other, mine] : sameValues)
      isShared |= mine == op.getResult(0);
    if (!isShared)
      continue;
    Place place = isa<TransportOp>(op) && !dependsOnRows(op.getResult(0))
                      ? keyPlace(keySize)
                      : rowPlace();
    if (failed(get(op.getResult(0), place)))
      return failure();
  }
  return success();
}

/// What all forms need: copies are started, then loads, then whatever does not
/// wait for copies; then what entries give, then what states do.
LogicalResult GpuKernel::emitPrologue() {
  stageEntries();
  loadDecayedEntries();
  endOfEntryNumbers = anchor();
  if (failed(emitKeyValues()))
    return failure();
  for (StepOp form : forms())
    emitWeights(form, /*vectors=*/false);
  // Where heads take turns, carries take the registers for what is early; where
  // no state is waited for, nothing is gained.
  bool isEarly = headGroup == 1 && !stagedStates.empty();
  if (isEarly && failed(emitNumbers()))
    return failure();
  waitForEntries();
  for (StepOp form : forms())
    emitWeights(form, /*vectors=*/true);
  if (failed(emitLateQueries()) ||
      (isEarly && failed(emitSharedReads(/*ofStates=*/false))))
    return failure();
  if (areQueriesPending)
    barrier();
  waitForStates();
  return isEarly ? emitSharedReads(/*ofStates=*/true) : success();
}
