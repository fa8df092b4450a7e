//===- Conditional.cpp - what only some rows compute ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A kernel has instructions for the most drafts of a row, straight through,
// drafts beside one another. Rows with one leave out those of the others, in
// one branch for all of them: the whole block takes it.
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/Conditional.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/ControlFlowSinkUtils.h"

using namespace mlir;
using namespace ladle;

/// On a branch: what only it needs goes into it.
static constexpr llvm::StringLiteral kSinksAttr = "ladle.sinks";

void ladle::computeIf(ImplicitLocOpBuilder &b, Value condition,
                      ArrayRef<Value *> values) {
  if (values.empty())
    return;
  SmallVector<Value> computed =
      llvm::map_to_vector(values, [](Value *value) { return *value; });
  auto branch = scf::IfOp::create(b, TypeRange(ValueRange(computed)), condition,
                                  /*withElseRegion=*/true);
  branch->setAttr(kSinksAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, computed);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, llvm::map_to_vector(computed, [&](Value value) {
                         return Value(arith::ConstantOp::create(
                             b, b.getZeroAttr(value.getType())));
                       }));
  for (auto [value, result] : llvm::zip(values, branch.getResults()))
    *value = result;
}

static bool isLoad(Operation *op) {
  return isa<memref::LoadOp, vector::LoadOp>(op);
}

/// Loads ahead of a branch with no write and no barrier between.
static llvm::DenseSet<Operation *> findLoadsAt(Operation *branch) {
  llvm::DenseSet<Operation *> loads;
  for (Operation *op = branch->getPrevNode(); op; op = op->getPrevNode()) {
    bool isHarmless =
        !op->walk([](Operation *each) {
             bool may = isLoad(each) || isMemoryEffectFree(each) ||
                        each->hasTrait<OpTrait::HasRecursiveMemoryEffects>();
             return may ? WalkResult::advance() : WalkResult::interrupt();
           }).wasInterrupted();
    if (!isHarmless)
      break;
    if (isLoad(op))
      loads.insert(op);
  }
  return loads;
}

void ladle::sinkConditional(gpu::GPUFuncOp function) {
  SmallVector<scf::IfOp> branches;
  function.walk([&](scf::IfOp branch) {
    if (branch->removeAttr(kSinksAttr))
      branches.push_back(branch);
  });
  DominanceInfo dominance(function);
  for (scf::IfOp branch : branches) {
    llvm::DenseSet<Operation *> loads = findLoadsAt(branch);
    Region *region = &branch.getThenRegion();
    controlFlowSink(
        region, dominance,
        [&](Operation *op, Region *) {
          return isMemoryEffectFree(op) || loads.contains(op);
        },
        [](Operation *op, Region *to) {
          op->moveBefore(&to->front(), to->front().begin());
        });
  }
}
