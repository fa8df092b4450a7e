//===- ChunkClusters.cpp - blocks that make steps for one another ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What needs no state is the same for all tiles of a head. Blocks with tiles
// of one head form a cluster and take the steps in turn: each makes one step
// of so many, and stores what warps with rows will take of it in the shared
// memory of all. They meet once for as many steps as there are blocks: those
// that have been made are taken, while the next are made in other places.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace ladle;

/// Tiles of a head lie side by side along the grid, as blocks of a cluster do.
Value GpuChunkKernel::rankInCluster() {
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  return arith::RemUIOp::create(b, block, constantIndex(shape.cluster));
}

/// All threads of all its blocks. Those who have written nothing that others
/// read need not wait for what they have written.
void GpuChunkKernel::meetCluster(bool publishes) {
  if (publishes)
    NVVM::ClusterArriveOp::create(b, b.getUnitAttr());
  else
    NVVM::ClusterArriveRelaxedOp::create(b, b.getUnitAttr());
  NVVM::ClusterWaitOp::create(b, b.getUnitAttr());
}

/// Those with rows meet the others before the first of the steps that were made
/// together. Before others, warps with the same rows have read the sums that
/// they are to write again.
void GpuChunkKernel::beginRowsOfCluster() {
  Value place = arith::RemUIOp::create(b, round, constantIndex(shape.cluster));
  auto branch = scf::IfOp::create(b, isBelow(place, 1), /*else=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  meetCluster(/*publishes=*/false);
  b.setInsertionPointToStart(branch.elseBlock());
  if (shape.keyParts > 1)
    meetWithSameRows();
  isRead.clear();
  isWritten.clear();
  beginOp();
}

/// Blocks meet as often as one another: each goes through as many steps, of
/// which the last may be none.
Value GpuChunkKernel::endOfRounds() {
  if (shape.cluster == 1 || blockPart != Part::Ahead)
    return rounds;
  return times(over(add(rounds, shape.cluster - 1), shape.cluster),
               shape.cluster);
}

/// The step of this block, if the prompt has as many; then all meet.
LogicalResult GpuChunkKernel::emitRoundOfCluster() {
  LogicalResult result = success();
  guarded(compare(arith::CmpIPredicate::slt, round, rounds), [&] {
    beginRound(round);
    result = emitChunk();
  });
  meetAll(crew);
  return result;
}

/// From here on a memory has another stack.
void GpuChunkKernel::takeAgain(Value memory) {
  if (shape.cluster > 1)
    anchors.push_back(takenAgain[memory] = anchor());
}

/// Whether something in a loop depends on where in dv a block is.
bool GpuChunkKernel::dependsOnTile(scf::ForOp ahead) {
  if (tiles == 1)
    return false;
  SmallVector<Value> open{tileStart, isFirstTile};
  llvm::SmallDenseSet<Operation *> known;
  while (!open.empty())
    for (Operation *user : open.pop_back_val().getUsers()) {
      if (ahead->isProperAncestor(user))
        return true;
      if (known.insert(user).second)
        llvm::append_range(open, user->getResults());
    }
  return false;
}

/// What those ahead store in a place that warps with rows read, they store in
/// that of each other block, too. Stacks that were there before are theirs
/// alone.
void GpuChunkKernel::storeForOthers(Value memory, Value own, scf::ForOp ahead) {
  auto place = own.getDefiningOp<memref::SubViewOp>();
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Value> theirs;
  for (int64_t other = 1; other < shape.cluster; ++other) {
    b.setInsertionPoint(ahead);
    Value rank = arith::RemUIOp::create(b, add(rankInCluster(), other),
                                        constantIndex(shape.cluster));
    Value all = UnrealizedConversionCastOp::create(b, memory.getType(),
                                                   ValueRange{memory, rank})
                    .getResult(0);
    b.setInsertionPointAfter(place);
    theirs.push_back(memref::SubViewOp::create(b, all, place.getMixedOffsets(),
                                               place.getMixedSizes(),
                                               place.getMixedStrides()));
  }
  Operation *taken = takenAgain.lookup(memory);
  for (Operation *user : llvm::make_early_inc_range(own.getUsers())) {
    Operation *beside =
        taken ? taken->getBlock()->findAncestorOpInBlock(*user) : nullptr;
    if (beside && beside->isBeforeInBlock(taken))
      continue;
    if (isa<memref::LoadOp, vector::LoadOp, vector::MaskedLoadOp,
            nvgpu::LdMatrixOp>(user))
      continue;
    if (!isa<memref::StoreOp, vector::StoreOp>(user)) {
      isRefused = true;
      continue;
    }
    b.setInsertionPointAfter(user);
    for (Value other : theirs) {
      IRMapping mapping;
      mapping.map(own, other);
      b.clone(*user, mapping);
    }
  }
}
