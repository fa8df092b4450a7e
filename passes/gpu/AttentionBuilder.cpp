//===- AttentionBuilder.cpp - small things of attention kernels -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"
#include "passes/gpu/Barriers.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value GpuAttention::index(int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

Value GpuAttention::number(double value) {
  return arith::ConstantOp::create(
      b, b.getF32FloatAttr(static_cast<float>(value)));
}

Value GpuAttention::named(StringRef name, Value value) {
  value.setLoc(NameLoc::get(b.getStringAttr(name), value.getLoc()));
  return value;
}

Value GpuAttention::splat(Value scalar, int64_t width) {
  return vector::BroadcastOp::create(
      b, VectorType::get({width}, scalar.getType()), scalar);
}

Value GpuAttention::add(Value lhs, Value rhs) {
  return arith::AddIOp::create(b, lhs, rhs);
}
Value GpuAttention::add(Value lhs, int64_t rhs) {
  return rhs ? add(lhs, index(rhs)) : lhs;
}
Value GpuAttention::sub(Value lhs, Value rhs) {
  return arith::SubIOp::create(b, lhs, rhs);
}
Value GpuAttention::mul(Value lhs, int64_t rhs) {
  return rhs == 1 ? lhs : mul(lhs, index(rhs));
}
Value GpuAttention::mul(Value lhs, Value rhs) {
  return arith::MulIOp::create(b, lhs, rhs);
}
Value GpuAttention::div(Value lhs, int64_t rhs) {
  return rhs == 1 ? lhs : div(lhs, index(rhs));
}
Value GpuAttention::div(Value lhs, Value rhs) {
  return arith::DivUIOp::create(b, lhs, rhs);
}
Value GpuAttention::rem(Value lhs, int64_t rhs) { return rem(lhs, index(rhs)); }
Value GpuAttention::rem(Value lhs, Value rhs) {
  return arith::RemUIOp::create(b, lhs, rhs);
}
Value GpuAttention::maximum(Value lhs, Value rhs) {
  return arith::MaxSIOp::create(b, lhs, rhs);
}
Value GpuAttention::minimum(Value lhs, Value rhs) {
  return arith::MinSIOp::create(b, lhs, rhs);
}
Value GpuAttention::select(Value condition, Value yes, Value no) {
  return arith::SelectOp::create(b, condition, yes, no);
}
Value GpuAttention::less(Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, lhs, rhs);
}
Value GpuAttention::notLess(Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::sge, lhs, rhs);
}
Value GpuAttention::equal(Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, lhs, rhs);
}
Value GpuAttention::both(Value lhs, Value rhs) {
  return arith::AndIOp::create(b, lhs, rhs);
}
Value GpuAttention::either(Value lhs, Value rhs) {
  return arith::OrIOp::create(b, lhs, rhs);
}
Value GpuAttention::negate(Value condition) {
  Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
  return arith::XOrIOp::create(b, condition, yes);
}

Value GpuAttention::exp(Value value) { return math::ExpOp::create(b, value); }
Value GpuAttention::larger(Value lhs, Value rhs) {
  return arith::MaxNumFOp::create(b, lhs, rhs);
}
Value GpuAttention::sum(Value lhs, Value rhs) {
  return arith::AddFOp::create(b, lhs, rhs);
}
Value GpuAttention::product(Value lhs, Value rhs) {
  return arith::MulFOp::create(b, lhs, rhs);
}

Value GpuAttention::finite(Value most) {
  Value isEmpty = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, most,
                                        number(-INFINITY));
  return select(isEmpty, number(0), most);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value GpuAttention::load(Value memory, ValueRange indices) {
  return arith::IndexCastOp::create(b, b.getIndexType(),
                                    memref::LoadOp::create(b, memory, indices));
}

void GpuAttention::store(Value value, Value memory, ValueRange indices) {
  if (value.getType().isIndex())
    value = arith::IndexCastOp::create(b, b.getI32Type(), value);
  memref::StoreOp::create(b, value, memory, indices);
}

Value GpuAttention::loadFloat(Value memory, ValueRange indices) {
  Value value = memref::LoadOp::create(b, memory, indices);
  if (value.getType().isF32())
    return value;
  return arith::ExtFOp::create(b, b.getF32Type(), value);
}

Value GpuAttention::loadVector(Value memory, ValueRange indices,
                               int64_t width) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  return vector::LoadOp::create(b, VectorType::get({width}, element), memory,
                                indices);
}

Value GpuAttention::loadVectorAhead(Value memory, ValueRange indices,
                                    int64_t width) {
  Value loaded = loadVector(memory, indices, width);
  loaded.getDefiningOp()->setAttr("ladle.ahead", b.getUnitAttr());
  return loaded;
}

Value GpuAttention::widen(Value vector) {
  auto type = cast<VectorType>(vector.getType());
  if (type.getElementType().isF32())
    return vector;
  return arith::ExtFOp::create(b, type.clone(b.getF32Type()), vector);
}

void GpuAttention::storeVector(Value vector, Value memory, ValueRange indices) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  auto type = cast<VectorType>(vector.getType());
  if (element != type.getElementType())
    vector = arith::TruncFOp::create(b, type.clone(element), vector);
  vector::StoreOp::create(b, vector, memory, indices);
}

Value GpuAttention::extract(Value vector, int64_t at) {
  return vector::ExtractOp::create(b, vector, at);
}

Value GpuAttention::pick(Value from, Value other, ArrayRef<int64_t> places) {
  return vector::ShuffleOp::create(b, from, other, places);
}

Value GpuAttention::fromElements(ValueRange elements) {
  auto type = VectorType::get({static_cast<int64_t>(elements.size())},
                              elements.front().getType());
  return vector::FromElementsOp::create(b, type, elements);
}

//===----------------------------------------------------------------------===//
// Threads and control flow
//===----------------------------------------------------------------------===//

Value GpuAttention::shuffle(Value value, Value lane, gpu::ShuffleMode mode) {
  Value offset = arith::IndexCastOp::create(b, b.getI32Type(), lane);
  Value width = arith::ConstantIntOp::create(b, kWarp, /*width=*/32);
  return gpu::ShuffleOp::create(b, value, offset, width, mode)
      .getShuffleResult();
}

Value GpuAttention::exchange(Value value, int64_t mask) {
  if (!value.getType().isIndex())
    return shuffle(value, index(mask), gpu::ShuffleMode::XOR);
  Value integer = arith::IndexCastOp::create(b, b.getI32Type(), value);
  return arith::IndexCastOp::create(
      b, b.getIndexType(),
      shuffle(integer, index(mask), gpu::ShuffleMode::XOR));
}

Value GpuAttention::ofLane(Value value, Value which) {
  Value integer = arith::IndexCastOp::create(b, b.getI32Type(), value);
  return arith::IndexCastOp::create(
      b, b.getIndexType(), shuffle(integer, which, gpu::ShuffleMode::IDX));
}

void GpuAttention::meet(int64_t which, int64_t count) {
  meetAt(b, which, count);
}

void GpuAttention::barrier() {
  if (part)
    meet(part, threads);
  else
    gpu::BarrierOp::create(b);
}

void GpuAttention::warpBarrier() {
  gpu::BarrierOp::create(b)->setAttr(kOfWarpAttr, b.getUnitAttr());
}

void GpuAttention::clusterArrive(bool publishes) {
  if (publishes)
    NVVM::ClusterArriveOp::create(b, b.getUnitAttr());
  else
    NVVM::ClusterArriveRelaxedOp::create(b, b.getUnitAttr());
}

void GpuAttention::clusterWait() {
  NVVM::ClusterWaitOp::create(b, b.getUnitAttr());
}

void GpuAttention::clusterBarrier() {
  clusterArrive();
  clusterWait();
}

void GpuAttention::prefetch(Value memory, ValueRange indices) {
  constexpr uint32_t mostLocal = 3;
  memref::PrefetchOp::create(b, memory, indices, /*isWrite=*/false, mostLocal,
                             /*isDataCache=*/true);
}

Value GpuAttention::memoryOf(Value rank, Value memory) {
  return UnrealizedConversionCastOp::create(b, memory.getType(),
                                            ValueRange{memory, rank})
      .getResult(0);
}

void GpuAttention::ifThen(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(b, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body();
}

GpuAttention::Values GpuAttention::ifElse(Value condition,
                                          llvm::function_ref<Values()> yes,
                                          llvm::function_ref<Values()> no) {
  return ifElse(condition, yes, [&](TypeRange) { return no(); });
}

GpuAttention::Values
GpuAttention::ifElse(Value condition, llvm::function_ref<Values()> yes,
                     llvm::function_ref<Values(TypeRange)> no) {
  // The types are known when one side is there.
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/true);
  Values results;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    results = yes();
  }
  auto typed = scf::IfOp::create(b, TypeRange(ValueRange(results)), condition,
                                 /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  typed.thenBlock()->getOperations().splice(
      typed.thenBlock()->begin(), branch.thenBlock()->getOperations(),
      branch.thenBlock()->begin(), std::prev(branch.thenBlock()->end()));
  branch.erase();
  b.setInsertionPointToEnd(typed.thenBlock());
  scf::YieldOp::create(b, results);
  b.setInsertionPointToStart(typed.elseBlock());
  scf::YieldOp::create(b, no(TypeRange(ValueRange(results))));
  return Values(typed.getResults());
}

GpuAttention::Values
GpuAttention::loop(Value begin, Value end, Value stride, ValueRange inits,
                   llvm::function_ref<Values(Value, ValueRange)> body,
                   bool unrolls) {
  auto loop = scf::ForOp::create(b, begin, end, stride, inits);
  if (unrolls)
    loop->setAttr("ladle.unroll", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Values next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  // Where nothing is carried, there is a yield.
  if (!inits.empty())
    scf::YieldOp::create(b, next);
  return Values(loop.getResults());
}

void GpuAttention::loop(Value begin, Value end, Value stride,
                        llvm::function_ref<void(Value)> body, bool unrolls) {
  auto loop = scf::ForOp::create(b, begin, end, stride);
  if (unrolls)
    loop->setAttr("ladle.unroll", b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

/// What has nothing to do loads what the first one does.
GpuAttention::Ahead GpuAttention::startLoop(Value begin, Value end,
                                            Value stride, int64_t together,
                                            std::function<Values(Value)> load) {
  Ahead ahead{begin, end, stride, together, std::move(load), {}};
  ahead.first = ahead.loadAll(*this, begin);
  return ahead;
}

GpuAttention::Values GpuAttention::Ahead::loadAll(GpuAttention &kernel,
                                                  Value from) const {
  Values all;
  for (int64_t i = 0; i < together; ++i) {
    Value at = i ? kernel.add(from, kernel.mul(stride, i)) : from;
    all.append(load(kernel.select(kernel.less(at, end), at, kernel.index(0))));
  }
  return all;
}

GpuAttention::Values GpuAttention::finishLoop(
    const Ahead &ahead, ValueRange inits,
    llvm::function_ref<Values(Value, ValueRange, ValueRange)> body) {
  Values all(inits);
  all.append(ahead.first);
  Value stride = mul(ahead.stride, ahead.together);
  Values results =
      loop(ahead.begin, ahead.end, stride, all,
           [&](Value at, ValueRange carried) -> Values {
             Values loaded(carried.drop_front(inits.size()));
             Values done(carried.take_front(inits.size()));
             Value later = add(at, stride);
             auto load = [&] { return ahead.loadAll(*this, later); };
             auto same = [&] { return loaded; };
             Values next = loaded.empty()
                               ? loaded
                               : ifElse(less(later, ahead.end), load, same);
             size_t each = loaded.size() / ahead.together;
             for (int64_t i = 0; i < ahead.together; ++i) {
               ValueRange mine = ValueRange(loaded).slice(i * each, each);
               if (i == 0) {
                 done = body(at, mine, done);
                 continue;
               }
               Value place = add(at, mul(ahead.stride, i));
               Values before = done;
               if (done.empty())
                 ifThen(less(place, ahead.end),
                        [&] { (void)body(place, mine, before); });
               else
                 done = ifElse(
                     less(place, ahead.end),
                     [&] { return body(place, mine, before); },
                     [&] { return before; });
             }
             done.append(next);
             return done;
           });
  results.truncate(inits.size());
  return results;
}
