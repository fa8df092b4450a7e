//===- ChunkStates.cpp - states and carries of a GPU's prefill ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

/// Calls `body` with (i, j) of `count` × `inner` elements that threads share.
void GpuChunkKernel::forElements(Value count, int64_t inner,
                                 function_ref<void(Value, Value)> body) {
  auto loop = scf::ForOp::create(b, thread, times(count, inner),
                                 constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value i = loop.getInductionVar();
  body(over(i, inner),
       inner == 1 ? constantIndex(0)
                  : Value(arith::RemUIOp::create(b, i, constantIndex(inner))));
}

/// The state of a block in shared memory.
Value GpuChunkKernel::heldState(unsigned argument) {
  Value &held = heldStates[argument];
  if (!held)
    held = shared({rowsFor(schedule.tileRows), pitchOf(keySize)},
                  (step.getArgumentName(argument) + "_tile").str());
  return held;
}

/// The pool whose state a chunk reads and folds into.
unsigned GpuChunkKernel::poolOf(Value state) {
  for (auto store : step.getBody().front().getOps<StoreStateOp>())
    if (store.getState().getDefiningOp<FoldDraftsOp>().getState() == state)
      return argumentOf(store.getPool());
  return argumentOf(state.getDefiningOp<LoadStateOp>().getPool());
}

/// Between the pool and shared memory, where a state is f32, [dv, dk].
void GpuChunkKernel::moveState(BlockArgument pool, bool isLoad) {
  unsigned argument = pool.getArgNumber();
  Value held = heldState(argument);
  auto type = cast<PoolType>(pool.getType());
  Type element = type.getElementType();
  Value slot = isLoad ? readState : writeState, at = headIndex(type.getHeads());
  if (isLoad)
    willWrite(held);
  else
    willRead(held);
  auto move = [&](ArrayRef<Value> inPool, ArrayRef<Value> inHeld,
                  int64_t count) {
    if (isLoad) {
      Value some = toF32(vector::LoadOp::create(
          b, VectorType::get({count}, element), memory[argument], inPool));
      vector::StoreOp::create(b, some, held, inHeld);
      return;
    }
    Value some = vector::LoadOp::create(
        b, VectorType::get({count}, b.getF32Type()), held, inHeld);
    vector::StoreOp::create(b, convertTo(some, element), memory[argument],
                            inPool);
  };
  if (isTransposed(argument)) {
    forElements(
        constantIndex(keySize), schedule.tileRows, [&](Value c, Value v) {
          SmallVector<Value> inPool{slot, at, c,
                                    arith::AddIOp::create(b, tileStart, v)};
          if (isLoad)
            memref::StoreOp::create(b, loadElement(memory[argument], inPool),
                                    held, ValueRange{v, c});
          else
            memref::StoreOp::create(
                b,
                convertTo(memref::LoadOp::create(b, held, ValueRange{v, c}),
                          element),
                memory[argument], inPool);
        });
    return;
  }
  int64_t wide = 4;
  while (keySize % wide)
    wide /= 2;
  forElements(
      constantIndex(schedule.tileRows), keySize / wide,
      [&](Value v, Value part) {
        Value c = times(part, wide);
        SmallVector<Value> inPool{slot, at,
                                  arith::AddIOp::create(b, tileStart, v), c};
        if (wide > 1)
          return move(inPool, {v, c}, wide);
        if (isLoad)
          memref::StoreOp::create(b, loadElement(memory[argument], inPool),
                                  held, ValueRange{v, c});
        else
          memref::StoreOp::create(
              b,
              convertTo(memref::LoadOp::create(b, held, ValueRange{v, c}),
                        element),
              memory[argument], inPool);
      });
}

/// What others hold as well is not written.
void GpuChunkKernel::storeStates() {
  Value stores = mayFold;
  if (keepsPrompt)
    stores = arith::XOrIOp::create(
        b, keepsPrompt, arith::ConstantOp::create(b, b.getBoolAttr(true)));
  guarded(stores, [&] {
    for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State))
      if (holdsRows)
        storeStateRows(pool);
      else
        moveState(pool, /*isLoad=*/false);
  });
}

//===----------------------------------------------------------------------===//
// Carries
//===----------------------------------------------------------------------===//

/// The carries of a slot become version 0.
void GpuChunkKernel::loadCarries() {
  for (BlockArgument carry : step.getArgumentsOfKind(ArgumentKind::Carry)) {
    unsigned argument = carry.getArgNumber();
    auto found = versions.find(argument);
    if (found == versions.end())
      continue;
    const Stack &stack = found->second;
    auto type = cast<RankedTensorType>(carry.getType());
    willWrite(stack.memory);
    forElements(constantIndex(stack.components), stack.size,
                [&](Value i, Value element) {
                  SmallVector<Value> at{readCarry,
                                        headIndex(type.getDimSize(0))};
                  if (type.getRank() == 3)
                    at.push_back(i);
                  if (type.getRank() > 1)
                    at.push_back(element);
                  memref::StoreOp::create(b, loadElement(memory[argument], at),
                                          stack.memory, ValueRange{i, element});
                });
  }
}

/// The last version of a chunk becomes the first of the next. A thread takes a
/// column, and rows from the first on.
void GpuChunkKernel::keepCarries() {
  for (BlockArgument carry : step.getArgumentsOfKind(ArgumentKind::Carry)) {
    auto found = versions.find(carry.getArgNumber());
    if (found == versions.end())
      continue;
    const Stack &stack = found->second;
    willWrite(stack.memory);
    Value last = times(inChunk, stack.step);
    forElements(constantIndex(1), stack.size, [&](Value, Value element) {
      for (int64_t i = 0; i < stack.components; ++i) {
        Value kept = memref::LoadOp::create(b, stack.memory,
                                            ValueRange{add(last, i), element});
        memref::StoreOp::create(b, kept, stack.memory,
                                ValueRange{constantIndex(i), element});
      }
    });
  }
}

/// What the prompt leaves behind goes where no other block looks for it.
void GpuChunkKernel::storeCarries() {
  for (auto [carry, next] :
       llvm::zip(step.getArgumentsOfKind(ArgumentKind::Carry), nextCarries)) {
    auto found = versions.find(carry.getArgNumber());
    if (found == versions.end())
      continue;
    const Stack &stack = found->second;
    auto type = cast<RankedTensorType>(carry.getType());
    willRead(stack.memory);
    Value mine = sharesHead(type.getDimSize(0));
    if (tiles > 1)
      mine = both(mine, isFirstTile);
    Value target = next;
    guarded(mine, [&] {
      forElements(
          constantIndex(stack.components), stack.size,
          [&](Value i, Value element) {
            SmallVector<Value> at{writeSlot, headIndex(type.getDimSize(0))};
            if (type.getRank() == 3)
              at.push_back(i);
            if (type.getRank() > 1)
              at.push_back(element);
            Value last =
                memref::LoadOp::create(b, stack.memory, ValueRange{i, element});
            memref::StoreOp::create(b, convertTo(last, type.getElementType()),
                                    target, at);
          });
    });
  }
}
