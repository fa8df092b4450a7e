//===- Weights.cpp - what entries weigh in a GPU kernel -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Numbers of entries are spread over the lanes of a warp, the same in every
// warp, so that the products of later decays are a scan by shuffles. Vectors of
// decays are in DecayedKeys.cpp.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/gpu/Kernel.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;

GpuKernel::Components GpuKernel::numbersOf(Value buffer, StringRef name) {
  unsigned argument = cast<BlockArgument>(buffer).getArgNumber();
  Components &result = numbers[{argument, name.str()}];
  if (!result.empty())
    return result;
  Location outer = b.getLoc();
  b.setLoc(NameLoc::get(b.getStringAttr("entry_" + name), unnamed(outer)));
  auto type = cast<BufferType>(buffer.getType());
  FieldAttr field = type.getField(name);
  size_t index = llvm::find(type.getFields(), field) - type.getFields().begin();
  Value from = fields[argument][index];
  // The whole ring is loaded, before it is known where it starts.
  Components ring;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(endOfSlotLoads);
    for (int64_t i = 0; i < capacity(); i += kWarp) {
      Value slot = add(warpLane, i);
      if (i + kWarp > capacity())
        slot = arith::MinUIOp::create(b, slot, constantIndex(capacity() - 1));
      EntryPlace place = placeAt(slot);
      ring.push_back(
          loadElement(from, {place.outer, headIndex(field.getShape().front()),
                             place.entry}));
    }
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(endOfEntryNumbers);
  Value one = constantFloat(1);
  for (int64_t i = 0; i < mostEntries(); i += kWarp) {
    Value position = add(warpLane, i);
    Value number = numberAt(ring, ringSlot(position));
    // Entries that are not there weigh as if nothing had happened.
    Value valid =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, position, length);
    result.push_back(arith::SelectOp::create(b, valid, number, one));
  }
  b.setLoc(outer);
  return result;
}

/// The number of an entry that all threads of a warp ask for, or of one each.
Value GpuKernel::numberAt(ArrayRef<Value> parts, Value position) {
  Value at = arith::IndexCastOp::create(b, b.getI32Type(), position);
  Value result;
  for (auto [p, part] : llvm::enumerate(parts)) {
    // An index counts within the warp.
    Value number = shuffle(part, at, kWarp, gpu::ShuffleMode::IDX);
    if (!result) {
      result = number;
      continue;
    }
    Value isLater =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, position,
                              constantIndex(static_cast<int64_t>(p) * kWarp));
    result = arith::SelectOp::create(b, isLater, number, result);
  }
  return result;
}

void GpuKernel::emitNumberDecays(Value buffer, StringRef name, Decays &result) {
  Components each = numbersOf(buffer, name);
  Value one = constantFloat(1);
  auto from = [&](Value value, int64_t distance) -> Value {
    Value other = shuffle(value, constantInt(static_cast<int32_t>(distance)),
                          kWarp, gpu::ShuffleMode::DOWN);
    Value exists = isBelow(warpLane, kWarp - distance);
    return arith::SelectOp::create(b, exists, other, one);
  };
  Value later = one;
  result.numbers.resize(each.size());
  for (size_t p = each.size(); p-- > 0;) {
    Value sum = each[p]; // The product from an entry to the end of its part.
    for (int64_t distance = 1; distance < std::min(kWarp, capacity());
         distance *= 2)
      sum = arith::MulFOp::create(b, sum, from(sum, distance));
    Value after = from(sum, 1);
    Value all = shuffle(sum, constantInt(0), kWarp, gpu::ShuffleMode::IDX);
    bool isLast = p + 1 == each.size();
    result.numbers[p] =
        isLast ? after : Value(arith::MulFOp::create(b, after, later));
    later = isLast ? all : Value(arith::MulFOp::create(b, all, later));
  }
  result.product = later;
}

const GpuKernel::Decays &GpuKernel::decaysOf(Value buffer, StringRef name) {
  unsigned argument = cast<BlockArgument>(buffer).getArgNumber();
  auto [found, isNew] = decays.try_emplace({argument, name.str()});
  if (!isNew)
    return found->second;
  Location outer = b.getLoc();
  b.setLoc(NameLoc::get(b.getStringAttr("weight"), unnamed(outer)));
  bool isVector =
      cast<BufferType>(buffer.getType()).getField(name).getShape().size() > 1;
  if (isVector)
    emitVectorDecays(buffer, name, found->second);
  else
    emitNumberDecays(buffer, name, found->second);
  b.setLoc(outer);
  return found->second;
}

GpuKernel::Components
GpuKernel::weightsOf(Value buffer, std::optional<StringRef> decay,
                     ArrayRef<std::optional<StringRef>> scales) {
  Components result;
  auto multiply = [&](ArrayRef<Value> factors) {
    if (result.empty())
      result.assign(factors.begin(), factors.end());
    else
      for (auto [weight, factor] : llvm::zip(result, factors))
        weight = arith::MulFOp::create(b, weight, factor);
  };
  if (decay)
    if (const Decays &all = decaysOf(buffer, *decay); !all.numbers.empty())
      multiply(all.numbers);
  for (std::optional<StringRef> scale : scales)
    if (scale)
      multiply(numbersOf(buffer, *scale));
  return result;
}

/// Emits what the forms of a kernel share of weights, before they part.
void GpuKernel::emitWeights(StepOp form, bool vectors) {
  form.walk([&](Operation *op) {
    auto prepare = [&](Value buffer, std::optional<StringRef> name) {
      if (!name)
        return;
      FieldAttr field = cast<BufferType>(buffer.getType()).getField(*name);
      if ((field.getShape().size() > 1) == vectors)
        decaysOf(buffer, *name);
    };
    if (auto read = dyn_cast<ReadBufferOp>(op))
      prepare(read.getBuffer(), read.getDecay());
    else if (auto each = dyn_cast<FoldBufferOp>(op))
      prepare(each.getBuffer(), each.getDecay());
    else if (auto product = dyn_cast<DecayProductOp>(op))
      prepare(product.getBuffer(), product.getDecay());
  });
}
