//===- Sinks.cpp - what a GPU kernel stores -------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

/// Stores a value at [outer..., head, (entry,) ...] of memory.
LogicalResult GpuKernel::storeValue(Value value, Value target,
                                    ArrayRef<Value> outer, Value entry,
                                    bool alongRows) {
  auto type = cast<RankedTensorType>(value.getType());
  Type element = cast<MemRefType>(target.getType()).getElementType();
  int64_t count = type.getDimSize(0);
  Place place = placeOf(type, alongRows);
  FailureOr<Components> components = get(value, place);
  if (failed(components))
    return failure();
  SmallVector<Value> indices(outer);
  indices.push_back(headIndex(count));
  if (entry)
    indices.push_back(entry);

  // One head of those that share the value stores it, and one tile.
  Value mine;
  if (count < heads)
    mine = both(
        mine, arith::CmpIOp::create(
                  b, arith::CmpIPredicate::eq,
                  arith::RemUIOp::create(b, head, constantIndex(heads / count)),
                  constantIndex(heads / count - 1)));
  if (!place.isRow) {
    if (tiles > 1)
      mine = both(mine, isFirstTile);
    Value ofHead = thread;
    if (packed > 1)
      ofHead =
          arith::RemUIOp::create(b, thread, constantIndex(lanes * valueSize));
    mine = both(mine, isBelow(ofHead, place.lanes));
  } else {
    mine = both(mine, ownsRowIn(type.getShape().back()));
  }
  // Outputs are what the next kernel reads, of much that streams by.
  bool isKept = llvm::is_contained(outputs, target);
  auto keep = [&](Operation *store) {
    if (isKept)
      store->setAttr(kKeptAttr, b.getUnitAttr());
  };
  guarded(mine, [&] {
    int64_t each = place.isRow ? 1 : place.chunks;
    for (auto [i, component] : llvm::enumerate(*components)) {
      SmallVector<Value> at(indices);
      int64_t c = static_cast<int64_t>(i) % each;
      if (type.getRank() == 3)
        at.push_back(constantIndex(static_cast<int64_t>(i) / each));
      Value stored = convertTo(component, element);
      if (type.getRank() == 1) {
        keep(memref::StoreOp::create(b, stored, target, at));
      } else if (place.isRow) {
        at.push_back(rowIn(type.getShape().back()));
        keep(memref::StoreOp::create(b, stored, target, at));
      } else {
        Value inside;
        if (isPartial(place, c))
          inside = isBelow(add(lane, c * place.lanes), place.size);
        guarded(inside, [&] {
          at.push_back(chunkStart(place, c));
          keep(vector::StoreOp::create(b, stored, target, at));
        });
      }
    }
  });
  return success();
}

LogicalResult GpuKernel::emitOutputs(StepOp form) {
  for (auto [value, output] : llvm::zip(form.getYieldedOutputs(), outputs)) {
    b.setLoc(value.getLoc());
    // dk = dv leaves open which it is; along rows all threads store.
    int64_t size = cast<RankedTensorType>(value.getType()).getShape().back();
    if (failed(storeValue(value, output, {tokenRow()}, {},
                          dependsOnRows(value) || size == valueSize)))
      return failure();
  }
  return success();
}

LogicalResult GpuKernel::emitSinks(StepOp form) {
  if (failed(emitOutputs(form)))
    return failure();
  LogicalResult result = success();
  form.walk([&](AppendOp append) {
    b.setLoc(append.getLoc());
    // A row that appends writes the slot that it reads.
    EntryPlace place = placeToWrite(length);
    unsigned argument = cast<BlockArgument>(append.getBuffer()).getArgNumber();
    for (auto [value, field, memory] :
         llvm::zip(append.getValues(), append.getBuffer().getType().getFields(),
                   fields[argument]))
      if (failed(storeValue(value, memory, {place.outer}, place.entry,
                            field.getSide() == Side::Value)))
        result = failure();
  });
  form.walk([&](StoreStateOp store) {
    b.setLoc(store.getLoc());
    if (failed(emitStore(targetOf(store))))
      result = failure();
  });
  auto carries = form.getArgumentsOfKind(ArgumentKind::Carry);
  for (auto [value, carry] : llvm::zip(form.getYieldedCarries(), carries)) {
    // Others of the block may not have read the carry yet.
    barrier();
    if (failed(storeValue(value, memory[carry.getArgNumber()], {writeCarry}, {},
                          dependsOnRows(value))))
      result = failure();
  }
  return result;
}
