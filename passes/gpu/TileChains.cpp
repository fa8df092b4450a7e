//===- TileChains.cpp - what tiles of a state are made of -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A state that folds is what was loaded, decayed; plus its entries, decayed by
// what came after them; plus what the token adds. Going from one to the next,
// every element of a row takes a product a decay. Instead, decays are
// multiplied into what is loaded and into keys, which are few, and the token is
// one entry more: then an element takes one product and one sum, whatever there
// is.
//
// Keys that decay by elements are split where they lie in shared memory, once
// for all warps: two bf16 take as much as the f32 they add up to.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/Kernel.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <numeric>

using namespace mlir;
using namespace ladle;

/// Finds what of a state that is stored by tiles can be taken together.
void GpuKernel::planTile(Value state) {
  tileChain = TileChain();
  SmallVector<FoldBufferOp> folds;
  SmallVector<WriteOp> writes;
  SmallVector<Value> later;
  SmallVector<Operation *> decays;
  // The token comes after all entries, and finds room beside them: rows whose
  // pages others share may have as many as there can be.
  bool mayScaleKeys = true, comesLast = !page();
  llvm::SmallPtrSet<DecayedKey *, 2> keys;
  for (Operation *op = state.getDefiningOp(); op && op->getNumOperands() > 0;
       op = op->getOperand(0).getDefiningOp()) {
    if (auto decay = dyn_cast<DecayOp>(op)) {
      // Numbers go into what is weighed anyway.
      if (decay.getFactor().getType().getRank() == 1) {
        tileChain.absorbed.insert(op);
        continue;
      }
      later.push_back(decay.getFactor());
      decays.push_back(op);
    } else if (auto write = dyn_cast<WriteOp>(op)) {
      writes.push_back(write);
      mayScaleKeys &= later.empty();
      comesLast &= folds.empty();
    } else if (auto fold = dyn_cast<FoldBufferOp>(op)) {
      folds.push_back(fold);
      tileChain.later[op] = later;
      DecayedKey *key =
          decayedKey(fold.getBuffer(), fold.getKey(), fold.getDecay());
      mayScaleKeys &= key && keys.insert(key).second;
    } else {
      break;
    }
  }
  if (!mayScaleKeys || folds.empty()) {
    for (auto &each : tileChain.later)
      each.second.clear();
    return;
  }
  tileChain.absorbed.insert(decays.begin(), decays.end());
  tileChain.decays = later;
  if (!comesLast || writes.size() != folds.size())
    return;
  auto ranksOf = [](FoldBufferOp fold) {
    BufferType type = fold.getBuffer().getType();
    return componentCount(type.getField(fold.getKey()));
  };
  auto ranksWritten = [](WriteOp write) {
    return componentCount(write.getKey().getType());
  };
  if (!llvm::all_of(folds, [&](auto each) { return ranksOf(each) == 1; }) ||
      !llvm::all_of(writes, [&](auto each) { return ranksWritten(each) == 1; }))
    return;
  for (auto [fold, write] : llvm::zip(folds, writes)) {
    tileChain.own[fold] = write;
    tileChain.absorbed.insert(write);
  }
}

/// Splits `count` rows of `from`, times the elements of all factors, into rows
/// of the parts of a key from `firstRow` on: a few elements of one part beside
/// those of the next.
void GpuKernel::splitRows(const DecayedKey &key, Value from, Value count,
                          Value firstRow, ArrayRef<Value> factors) {
  int64_t half = width / 2, inRow = keySize / half;
  auto loop = scf::ForOp::create(
      b, thread, arith::MulIOp::create(b, count, constantIndex(inRow)),
      constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value at = loop.getInductionVar();
  Value row = arith::DivUIOp::create(b, at, constantIndex(inRow));
  Value column = arith::MulIOp::create(
      b, arith::RemUIOp::create(b, at, constantIndex(inRow)),
      constantIndex(half));
  auto load = [&](Value memory, Value row) -> Value {
    return vector::LoadOp::create(b, VectorType::get({half}, b.getF32Type()),
                                  memory, ValueRange{row, column});
  };
  Value all = load(from, row);
  for (Value factor : factors)
    all = arith::MulFOp::create(b, all, load(factor, constantIndex(0)));
  if (firstRow)
    row = arith::AddIOp::create(b, firstRow, row);
  if (!key.parts) {
    vector::StoreOp::create(b, all, key.memory, ValueRange{row, column});
    return;
  }
  Components parts = partsOf(all, kKeyParts);
  SmallVector<int64_t> order(kKeyParts * half);
  std::iota(order.begin(), order.end(), 0);
  Value split = vector::ShuffleOp::create(b, parts[0], parts[1], order);
  vector::StoreOp::create(
      b, split, key.parts,
      ValueRange{row,
                 arith::MulIOp::create(b, column, constantIndex(kKeyParts))});
}

/// Splits keys that have been decayed, and the token's, into the parts of which
/// products are, and multiplies the decays of what is loaded. The barrier
/// before is for those who still read keys; that after is the caller's.
void GpuKernel::splitDecayedKeys() {
  auto wholeOf = [&](Value value) {
    auto same = sameValues.find(value);
    return wholeValues.at(same == sameValues.end() ? value : same->second);
  };
  bool isTogether = false;
  auto meet = [&] {
    if (!std::exchange(isTogether, true))
      barrier();
  };
  llvm::SmallPtrSet<DecayedKey *, 2> keys;
  for (auto &[op, later] : tileChain.later) {
    auto fold = cast<FoldBufferOp>(op);
    DecayedKey *key =
        decayedKey(fold.getBuffer(), fold.getKey(), fold.getDecay());
    if (!key || !keys.insert(key).second)
      continue;
    WriteOp write = tileChain.own.lookup(op);
    bool isShort = takesShortTiles(fold);
    if (isShort && later.empty() && !write)
      continue;
    meet();
    auto type = cast<MemRefType>(key->memory.getType());
    if (!isShort)
      key->parts = sharedIn(
          key->memory, {type.getDimSize(0), type.getDimSize(1) * kKeyParts},
          "parts_of_" + key->name, b.getBF16Type());
    int64_t ranks = type.getDimSize(0) / mostEntries();
    splitRows(*key, key->memory,
              arith::MulIOp::create(b, length, constantIndex(ranks)), {},
              llvm::to_vector(llvm::map_range(later, wholeOf)));
    if (write)
      splitRows(*key, wholeOf(write.getKey()), constantIndex(1), length, {});
  }
  if (tileChain.decays.empty() || tileChain.product)
    return;
  meet();
  // Where parts of a block have told each other of decays, if they have.
  tileChain.product = partDecays ? sharedIn(std::exchange(partDecays, {}),
                                            {keySize}, "decay_of_state")
                                 : shared({keySize}, "decay_of_state");
  auto loop = scf::ForOp::create(b, thread, constantIndex(keySize),
                                 constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value product;
  for (Value decay : tileChain.decays) {
    Value factor = memref::LoadOp::create(
        b, wholeOf(decay),
        ValueRange{constantIndex(0), loop.getInductionVar()});
    product =
        product ? Value(arith::MulFOp::create(b, product, factor)) : factor;
  }
  memref::StoreOp::create(b, product, tileChain.product,
                          ValueRange{loop.getInductionVar()});
}
