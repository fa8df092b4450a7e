//===- VerifySums.cpp - sums that drafts take together on a GPU -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A sum over lanes is five exchanges one after the other, and one over a block
// a barrier besides. Several sums are made by fewer exchanges, of which none
// waits for another's, and by one barrier. Each is added in the same order
// however many there are.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// Sums that a thread loads at once.
static constexpr int64_t kTogether = 4;

/// The sums of values over so many neighbours, at most as many, each in the
/// lanes that have its number: exchanges halve what a lane has still to add.
/// Numbers without a value are no less than their count.
std::pair<Value, Value>
GpuVerifyKernel::sumsOverLanes(SmallVector<Value> values, int64_t count,
                               Value of) {
  Value number;
  int64_t mask = count;
  for (int64_t bit = 1; mask > 1; bit *= 2) {
    mask /= 2;
    if (values.size() == 1) {
      values[0] =
          arith::AddFOp::create(b, values[0], shuffleXor(values[0], mask));
      continue;
    }
    Value upper = arith::RemUIOp::create(
        b, arith::DivUIOp::create(b, of, constantIndex(mask)),
        constantIndex(2));
    Value isUpper = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, upper,
                                          constantIndex(0));
    Value part = arith::MulIOp::create(b, upper, constantIndex(bit));
    number = number ? Value(arith::AddIOp::create(b, number, part)) : part;
    SmallVector<Value> halves;
    for (size_t i = 0; i < values.size(); i += 2) {
      if (i + 1 == values.size()) {
        halves.push_back(
            arith::AddFOp::create(b, values[i], shuffleXor(values[i], mask)));
        continue;
      }
      Value keep =
          arith::SelectOp::create(b, isUpper, values[i + 1], values[i]);
      Value give =
          arith::SelectOp::create(b, isUpper, values[i], values[i + 1]);
      halves.push_back(arith::AddFOp::create(b, keep, shuffleXor(give, mask)));
    }
    values = halves;
  }
  return {values[0], number ? number : constantIndex(0)};
}

/// Whether a number of the draft at hand is a sum over its rows, which no draft
/// waits for another to have.
bool GpuVerifyKernel::isSumOfRows(Value value) const {
  auto sum = value.getDefiningOp<SumOp>();
  EachDraftOp region = current.region;
  if (!sum || !current.ofRows || !region.getCarries().empty() ||
      value.getParentBlock() != &region.getBody().front() ||
      schedule.threads == kWarp)
    return false;
  RankedTensorType from = sum.getInput().getType();
  return sum.getResult().getType().getRank() == 1 &&
         static_cast<int64_t>(sum.getDim()) == from.getRank() - 1 &&
         dependsOnRows(sum.getInput());
}

/// A sum over the rows of a draft, and of all others: what norms divide by.
FailureOr<GpuKernel::Components> GpuVerifyKernel::sumRowsOfDrafts(SumOp op) {
  RankedTensorType type = op.getInput().getType();
  Current mine = current;
  SmallVector<Value> values;
  llvm::scope_exit restore([&] { current = mine; });
  for (int64_t draft = 0; draft < most(); ++draft) {
    current.number = draft;
    current.scope = draft + 1;
    FailureOr<Components> input = get(op.getInput(), rowPlace());
    if (failed(input))
      return failure();
    for (Value component : *input) {
      if (Value owned = ownsRowIn(type.getShape().back()))
        component =
            arith::SelectOp::create(b, owned, component, constantFloat(0));
      values.push_back(component);
    }
  }
  auto count = static_cast<int64_t>(values.size());
  int64_t warps = schedule.threads / kWarp;
  Value partial =
      shared({warps, static_cast<int64_t>(llvm::alignTo(count, kTogether))},
             "row_sums");
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  for (int64_t from = 0; from < count; from += kWarp) {
    auto some = ArrayRef(values).slice(from, std::min(kWarp, count - from));
    auto [sum, number] =
        sumsOverLanes(SmallVector<Value>(some), kWarp, warpLane);
    auto size = static_cast<int64_t>(some.size());
    int64_t apart = kWarp / static_cast<int64_t>(llvm::PowerOf2Ceil(size));
    Value isFirst = arith::CmpIOp::create(
        b, arith::CmpIPredicate::eq,
        arith::RemUIOp::create(b, warpLane, constantIndex(apart)),
        constantIndex(0));
    guarded(both(isFirst, isBelow(number, size)), [&] {
      memref::StoreOp::create(b, sum, partial,
                              ValueRange{warp, add(number, from)});
    });
  }
  barrier();
  auto four = VectorType::get({kTogether}, b.getF32Type());
  Components totals;
  for (int64_t from = 0; from < count; from += kTogether) {
    Value total;
    for (int64_t w = 0; w < warps; ++w) {
      Value part = vector::LoadOp::create(
          b, four, partial, ValueRange{constantIndex(w), constantIndex(from)});
      total = total ? Value(arith::AddFOp::create(b, total, part)) : part;
    }
    for (int64_t i = 0; i < std::min(kTogether, count - from); ++i)
      totals.push_back(vector::ExtractOp::create(b, total, i));
  }
  int64_t each = count / most();
  for (int64_t draft = 0; draft < most(); ++draft)
    this->values[{op.getResult().getAsOpaquePointer(), Place().key(),
                  draft + 1}] =
        Components(ArrayRef(totals).slice(draft * each, each));
  return Components(ArrayRef(totals).slice(mine.number * each, each));
}
