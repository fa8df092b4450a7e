//===- ChunkNumbers.cpp - numbers of tokens in a GPU's prefill ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A team has the elements of a vector, and would compute a gate in all of its
// lanes. So it leaves sums behind, and then a thread takes the numbers of a
// token.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// The sums over vectors that numbers of a region are made of.
static void findSums(Value value, EachDraftOp region,
                     llvm::SetVector<Value> &sums) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getParentOp() != region)
    return;
  if (isa<SumOp>(op)) {
    sums.insert(value);
    return;
  }
  for (Value operand : op->getOperands())
    findSums(operand, region, sums);
}

/// A thread a token. What it loads is under way while teams are at work.
GpuChunkKernel::Current GpuChunkKernel::beginNumbers(EachDraftOp op) {
  Value token =
      arith::MinUIOp::create(b, thread, constantIndex(tokensAtOnce() - 1));
  Operation *loads = anchor();
  anchors.push_back(loads);
  int64_t pass = ++scopes;
  return {op, token, {}, {}, ++scopes, pass, loads, loads};
}

/// Numbers are for a thread a token, and not for a team that all has the same.
LogicalResult GpuChunkKernel::emitNumbers(const Current &ofNumbers,
                                          ArrayRef<Sink> sinks) {
  Current outer = current;
  llvm::scope_exit restore([&] { current = outer; });
  LogicalResult result = success();
  current = ofNumbers;
  guarded(isBelow(thread, tokensAtOnce()), [&] {
    Value token = current.token;
    Value valid = compare(arith::CmpIPredicate::slt, token, inChunk);
    for (const Sink &sink : sinks) {
      FailureOr<Components> all = get(sink.value, Place());
      if (failed(all)) {
        result = failure();
        return;
      }
      Value number =
          arith::SelectOp::create(b, valid, all->front(), fillOf(sink));
      memref::StoreOp::create(
          b, number, sink.stack->memory,
          ValueRange{add(token, sink.stack->first), constantIndex(0)});
    }
  });
  return result;
}

/// Puts what waits for no carry where it belongs.
LogicalResult GpuChunkKernel::emitEarly(EachDraftOp op,
                                        SmallVector<Sink> early) {
  // Numbers follow the sums that they are made of.
  SmallVector<Sink> numbers, ofWarps;
  if (op.getCarries().empty()) {
    llvm::copy_if(early, std::back_inserter(numbers), [](const Sink &sink) {
      return sink.stack && typeOf(sink.value).getRank() == 1;
    });
    llvm::erase_if(early, [](const Sink &sink) {
      return sink.stack && typeOf(sink.value).getRank() == 1;
    });
    if (auto ofRows = rowNumbers.find(op); ofRows != rowNumbers.end())
      for (Value number : ofRows->second) {
        if (find(number, false))
          continue;
        Stack stack = makeStack(typeOf(number), /*isTile=*/false);
        numbers.push_back({number, stack, {}, false, {}});
        ofWarps.push_back(numbers.back());
      }
    llvm::SetVector<Value> sums;
    for (const Sink &number : numbers)
      findSums(number.value, op, sums);
    for (Value sum : sums) {
      Stack stack = makeStack(typeOf(sum), /*isTile=*/false);
      willWrite(stack.memory);
      early.push_back({sum, stack, {}, false, {}});
    }
  }
  Current ofNumbers;
  if (!numbers.empty())
    ofNumbers = beginNumbers(op);
  if (failed(emitPass(op, early)))
    return failure();
  if (!numbers.empty()) {
    for (const Sink &sink : early)
      if (sink.stack && typeOf(sink.value).getRank() == 1)
        fullStacks[sink.value] = *sink.stack;
    if (!early.empty())
      syncAll();
    for (const Sink &number : numbers)
      willWrite(number.stack->memory);
    if (failed(emitNumbers(ofNumbers, numbers)))
      return failure();
    for (const Sink &number : ofWarps)
      fullStacks[number.value] = *number.stack;
  }
  return success();
}

/// Whether a value along dv is finite where all of its numbers are 0, as those
/// of tokens that do not exist are.
bool GpuChunkKernel::isFiniteOfZero(Value value, EachDraftOp region) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getParentOp() != region || typeOf(value).getRank() == 1)
    return true;
  return !isa<arith::DivFOp, arith::RemFOp, math::LogOp, math::Log2Op,
              math::Log10Op, math::Log1pOp, math::RsqrtOp, math::PowFOp>(op) &&
         llvm::all_of(op->getOperands(),
                      [&](Value each) { return isFiniteOfZero(each, region); });
}

/// The same with 0 for tokens that do not exist.
GpuKernel::Components GpuChunkKernel::withoutMissing(ArrayRef<Value> tiles) {
  Components result;
  for (auto [tile, all] : llvm::enumerate(tiles)) {
    SmallVector<Value> elements;
    Value first = arith::AddIOp::create(
        b, pairOfLane(), tokenOfTile(static_cast<int64_t>(tile)));
    for (int64_t i = 0; i < 4; ++i) {
      Value token = add(first, i % 2);
      elements.push_back(arith::SelectOp::create(
          b, compare(arith::CmpIPredicate::slt, token, inChunk),
          vector::ExtractOp::create(b, all, i), constantFloat(0)));
    }
    result.push_back(vector::FromElementsOp::create(
        b, cast<VectorType>(all.getType()), elements));
  }
  return result;
}
