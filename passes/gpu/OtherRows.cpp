//===- OtherRows.cpp - a kernel that answers rows of two routes -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// In pages, rows without a state are answered by kv_only and rows with one by
// another route. Two kernels would wait for one another, and every block of
// either would first find out whether its row is its own. Instead the blocks of
// one branch by what their row is: what kv_only does becomes the other branch,
// and takes over what both look up before they know, the row's slots and its
// cursor. A block goes one way alone, so that the shared memory of both lies in
// the same place.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/VerifyKernel.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle;

namespace {
/// Takes what a branch of one kernel needs over into another.
class Transplant {
public:
  Transplant(gpu::GPUFuncOp to, scf::IfOp branch, OpBuilder &builder)
      : to(to), branch(branch), b(builder) {
    // What dominates the branch, and what may be moved there.
    for (Operation *each = branch; each != to.getOperation();
         each = each->getParentOp())
      for (Operation &op : *each->getBlock()) {
        if (&op == each)
          break;
        if (op.getNumRegions() == 0 && op.getNumResults() == 1)
          known[op.getName()].push_back(&op);
      }
    for (Operation &op : *branch.thenBlock()) {
      if (!mayBePassed(op))
        break;
      if (op.getNumRegions() == 0 && op.getNumResults() == 1)
        known[op.getName()].push_back(&op);
    }
  }

  /// Whether others may go ahead of it that load and compute.
  static bool mayBePassed(Operation &op);
  void map(Value from, Value value) { mapping.map(from, value); }
  void mapMemories(gpu::GPUFuncOp from);
  void take(Operation &op, bool mayShare);

private:
  void require(Value value);
  Operation *findAlike(Operation &op);
  bool share(Operation &op);

  gpu::GPUFuncOp to;
  scf::IfOp branch;
  OpBuilder &b;
  IRMapping mapping;
  llvm::DenseMap<OperationName, SmallVector<Operation *>> known;
};
} // namespace

/// Shared memory of the other kernel, over that of this one.
void Transplant::mapMemories(gpu::GPUFuncOp from) {
  size_t before = to.getWorkgroupAttributions().size();
  for (auto [i, memory] : llvm::enumerate(from.getWorkgroupAttributions())) {
    map(memory, to.addWorkgroupAttribution(cast<MemRefType>(memory.getType()),
                                           memory.getLoc()));
    auto number = static_cast<int>(before + i);
    to.setWorkgroupAttributionAttr(number, kOtherRowsAttr, b.getUnitAttr());
    if (auto shares = dyn_cast_or_null<IntegerAttr>(
            from.getWorkgroupAttributionAttr(i, kSharesAttr)))
      to.setWorkgroupAttributionAttr(
          number, kSharesAttr,
          b.getIndexAttr(static_cast<int64_t>(before) + shares.getInt()));
  }
}

bool Transplant::mayBePassed(Operation &op) {
  return !op.walk([](Operation *each) {
              bool isHarmless =
                  isMemoryEffectFree(each) ||
                  isa<memref::LoadOp, scf::YieldOp>(each) ||
                  each->hasTrait<OpTrait::HasRecursiveMemoryEffects>();
              return isHarmless ? WalkResult::advance()
                                : WalkResult::interrupt();
            }).wasInterrupted();
}

/// The operation that computes or loads the same, ahead of the branch or where
/// this one begins: nothing is written there. Null if there is none.
Operation *Transplant::findAlike(Operation &op) {
  for (Operation *other : known[op.getName()])
    if (OperationEquivalence::isEquivalentTo(
            &op, other,
            [&](Value one, Value another) {
              return success(mapping.lookupOrNull(one) == another);
            },
            [](Value, Value) {}, OperationEquivalence::IgnoreLocations))
      return other;
  return nullptr;
}

/// Whether both ways have it: then it goes ahead of the branch.
bool Transplant::share(Operation &op) {
  Operation *alike = op.getNumResults() == 1 ? findAlike(op) : nullptr;
  if (!alike)
    return false;
  if (alike->getBlock() == branch.thenBlock())
    alike->moveBefore(branch);
  map(op.getResult(0), alike->getResult(0));
  return true;
}

/// What the branch has from ahead of it.
void Transplant::require(Value value) {
  if (mapping.contains(value))
    return;
  Operation &op = *value.getDefiningOp();
  for (Value operand : op.getOperands())
    require(operand);
  if (!share(op))
    b.clone(op, mapping);
}

void Transplant::take(Operation &op, bool mayShare) {
  for (Value operand : op.getOperands())
    require(operand);
  if (mayShare && share(op))
    return;
  llvm::SetVector<Value> above;
  getUsedValuesDefinedAbove(op.getRegions(), above);
  for (Value value : above)
    require(value);
  b.clone(op, mapping);
}

/// Answers the rows that are not its own as `other` does, whose function is
/// erased. Blocks of both have the same threads, and those of `other` take no
/// fewer heads.
void GpuVerifyKernel::takeRowsOf(GpuVerifyKernel &other) {
  assert(function.getFunctionType() == other.function.getFunctionType() &&
         schedule.threads == other.schedule.threads && tiles == other.tiles &&
         other.turns % turns == 0 && "kernels of different shapes");
  // As many blocks as find room whatever their rows are.
  if (auto blocks = function->getAttrOfType<IntegerAttr>(kBlocksAttr))
    function->setAttr(
        kBlocksAttr,
        b.getIndexAttr(std::min(blocks.getInt(), other.blocksInShared())));
  scf::IfOp branch = ownRows, from = other.ownRows;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch);
  Transplant transplant(function, branch, b);
  unsigned count = function.getFunctionType().getNumInputs();
  for (unsigned i = 0; i < count; ++i) {
    transplant.map(other.function.getArgument(i), function.getArgument(i));
    auto bytesOf = [&](gpu::GPUFuncOp of) {
      auto bytes = of.getArgAttrOfType<IntegerAttr>(i, kAlignmentAttr);
      return bytes ? bytes.getInt() : 0;
    };
    if (bytesOf(other.function) > bytesOf(function))
      function.setArgAttr(i, kAlignmentAttr,
                          b.getIndexAttr(bytesOf(other.function)));
  }
  transplant.mapMemories(other.function);
  function->setAttr(kOneArrayAttr, b.getUnitAttr());

  b.createBlock(&branch.getElseRegion());
  scf::YieldOp::create(b, branch.getLoc());
  b.setInsertionPointToStart(branch.elseBlock());
  // Of blocks that would take one head each, the first takes all of a turn.
  int64_t ratio = other.turns / turns;
  if (ratio > 1) {
    Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
    other.function.walk([&](gpu::BlockIdOp id) {
      if (id.getDimension() == gpu::Dimension::x)
        transplant.map(id,
                       arith::DivUIOp::create(b, block, constantIndex(ratio)));
    });
    Value rest = arith::RemUIOp::create(b, block, constantIndex(ratio));
    auto isFirst =
        scf::IfOp::create(b, arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                                   rest, constantIndex(0)));
    b.setInsertionPointToStart(isFirst.thenBlock());
  }
  bool isAhead = true;
  for (Operation &op : from.thenBlock()->without_terminator()) {
    isAhead &= Transplant::mayBePassed(op);
    transplant.take(op, /*mayShare=*/isAhead);
  }
  other.function.erase();
}

FailureOr<gpu::GPUFuncOp> GpuVerifyKernel::buildForAllRows(const Source &one,
                                                           const Source &other,
                                                           GpuSchedule schedule,
                                                           OpBuilder &builder) {
  GpuVerifyKernel kernel(one.step, one.fold, schedule, one.slots, builder);
  FailureOr<gpu::GPUFuncOp> function = kernel.build();
  if (failed(function))
    return failure();
  GpuSchedule like = kernel.schedule;
  // Heads that share their keys take turns, unless their entries would need
  // more room than a state.
  int64_t wanted = kernel.turns > 1 ? kernel.turns : schedule.heads;
  for (int64_t heads : {wanted, kernel.turns}) {
    like.heads = heads;
    // Building changes a step, which other kernels are made of, too.
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(other.step);
    auto step = cast<StepOp>(builder.clone(*StepOp(other.step)));
    llvm::scope_exit erase([&] { step.erase(); });
    builder.setInsertionPoint(*function);
    GpuVerifyKernel stateless(step, StepOp(), like, other.slots, builder);
    stateless.hasShapeOfOther = true;
    if (failed(stateless.build()))
      return failure();
    if (heads == kernel.turns ||
        stateless.bytesOfShared() <= kernel.bytesOfShared()) {
      kernel.takeRowsOf(stateless);
      return function;
    }
    stateless.function.erase();
  }
  llvm_unreachable("the last is taken");
}
