//===- AttentionKernel.cpp - matches and pieces of an attention -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/AttentionKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/analysis/AttentionPlan.h"
#include "passes/build/MemoryLayout.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Small things
//===----------------------------------------------------------------------===//

/// The entry so many tokens before the newest.
Value AttentionKernel::ringEntry(Value offset) {
  Value place = arith::SubIOp::create(b, newest, offset);
  Value capacity = memref::DimOp::create(b, ringQueries, 2);
  Value wrapped = arith::AddIOp::create(b, place, capacity);
  return arith::SelectOp::create(b, isLess(place, index(0)), wrapped, place);
}

Value AttentionKernel::memoryOf(Value value) const {
  return memory.lookup(unwidened(value));
}

//===----------------------------------------------------------------------===//
// The step and its functions
//===----------------------------------------------------------------------===//

void AttentionKernel::createFunction(StringRef suffix) {
  Type indexType = b.getIndexType(), f32 = b.getF32Type();
  constexpr int64_t dynamic = ShapedType::kDynamic;
  auto dense = [&](ArrayRef<int64_t> shape, Type element) {
    return MemRefType::get(shape, element);
  };
  auto cache = cast<BufferType>(step.getCache().getType());
  auto page = static_cast<int64_t>(step.getPageSize());
  SmallVector<Type> types;
  SmallVector<Value *> places;
  auto add = [&](Value &place, Type type) {
    types.push_back(type);
    places.push_back(&place);
  };
  for (Value *integer :
       {&row, &slot, &headBegin, &headEnd, &position, &count, &newest, &begin,
        &end, &piece, &usesStarts, &storesEntry, &entry, &amended, &band,
        &sinks, &wide, &wideGap, &maxChain})
    add(*integer, indexType);
  bounds.assign(5, {});
  for (Value &bound : bounds)
    add(bound, indexType);
  add(limit, f32);
  add(driftLimit, f32);
  SmallVector<std::pair<Value, Value>> arguments;
  for (BlockArgument argument : step.getBody().getArguments())
    if (isa<RankedTensorType>(argument.getType()))
      arguments.emplace_back(argument, Value());
  for (auto &[argument, place] : arguments) {
    auto type = cast<RankedTensorType>(argument.getType());
    bool isToken =
        step.getArgumentKind(cast<BlockArgument>(argument).getArgNumber()) ==
        ArgumentKind::Token;
    add(place, memoryType(type.getShape(), type.getElementType(),
                          /*denseWithinOuter=*/false, /*hasOuter=*/isToken));
  }
  auto outputType = cast<RankedTensorType>(
      cast<TypeAttr>(step.getOutputTypes()[0]).getValue());
  add(output, memoryTypeOfOutput(outputType));
  add(keyPages, dense({dynamic, cacheHeads, page, keySize},
                      cache.getFields()[0].getElementType()));
  add(valuePages, dense({dynamic, cacheHeads, page, valueSize},
                        cache.getFields()[1].getElementType()));
  add(table, dense({dynamic, dynamic}, b.getI32Type()));
  int64_t group = heads / cacheHeads;
  add(pieceValues, dense({dynamic, group, valueSize}, f32));
  add(pieceSums, dense({dynamic, group, 2}, f32));
  if (ring) {
    int64_t parts = ring.getParts();
    add(hits, dense({dynamic, heads}, b.getI32Type()));
    add(starts, dense({dynamic, heads}, b.getI64Type()));
    add(ringQueries,
        dense({dynamic, heads, dynamic, keySize}, ring.getQueryType()));
    if (ring.getRotated())
      add(ringRotated,
          dense({dynamic, heads, dynamic, keySize}, ring.getQueryType()));
    add(ringValues, dense({dynamic, heads, parts, dynamic, valueSize},
                          ring.getValueType()));
    add(ringSums, dense({dynamic, heads, parts, dynamic}, f32));
    add(ringDepths, dense({dynamic, heads, dynamic}, b.getI32Type()));
    if (parts == 2)
      add(ringEnds, dense({dynamic, heads, dynamic}, b.getI64Type()));
    if (ring.getEstimates())
      add(ringMoments, dense({dynamic, heads, 2}, f32));
  }
  b.setInsertionPoint(step);
  function = func::FuncOp::create(b, (step.getSymName() + suffix).str(),
                                  b.getFunctionType(types, {}));
  function->setAttr("llvm.emit_c_interface", b.getUnitAttr());
  Block *block = function.addEntryBlock();
  for (auto [place, argument] : llvm::zip_equal(places, block->getArguments()))
    *place = argument;
  memory.clear();
  for (auto [argument, place] : arguments)
    memory[argument] = place;
  b.setInsertionPointToStart(block);
  func::ReturnOp::create(b);
  b.setInsertionPointToStart(block);
}

LogicalResult AttentionKernel::build() {
  FailureOr<AttentionPlan> plan = AttentionPlan::of(step);
  if (failed(plan))
    return failure();
  attends = plan->attends;
  heads = plan->heads;
  cacheHeads = plan->cacheHeads;
  keySize = plan->keySize;
  valueSize = plan->valueSize;
  ring = plan->ring;
  if (plan->find) {
    createFunction("_find");
    buildFind(plan->find);
  }
  createFunction("_attend");
  buildAttend(attends.front());
  createFunction("_finish");
  buildFinish();
  return success();
}

//===----------------------------------------------------------------------===//
// Matches
//===----------------------------------------------------------------------===//

void AttentionKernel::buildFind(FindOp find) {
  auto loop = scf::ForOp::create(b, headBegin, headEnd, index(1));
  b.setInsertionPointToStart(loop.getBody());
  Value h = loop.getInductionVar();
  Value query = load(memoryOf(find.getQuery()), {row, h, index(0)}, keySize);
  Value moment = find.getMoment() ? load(memoryOf(find.getMoment()), {h}, 1)
                                  : load(ringMoments, {slot, h, index(0)}, 1);
  moment = vector::ExtractOp::create(b, moment, 0);
  auto distance = [&](Value from, Value memory, Value at) {
    Value other = load(memory, {slot, h, at, index(0)}, keySize);
    Value difference = arith::SubFOp::create(b, from, other);
    return dot(difference, difference);
  };

  // From the newest on, so that it stays where others are as near. What is not
  // less, NaN among it, is no match.
  Value most = arith::MulFOp::create(b, limit, moment);
  auto scan = scf::ForOp::create(b, index(0), count, index(1),
                                 ValueRange{most, index(-1)});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scan.getBody());
    Value offset = scan.getInductionVar();
    Value squared = distance(query, ringQueries, ringEntry(offset));
    Value isNearer = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                           squared, scan.getRegionIterArg(0));
    auto choose = [&](Value yes, Value no) {
      return arith::SelectOp::create(b, isNearer, yes, no);
    };
    scf::YieldOp::create(b,
                         ValueRange{choose(squared, scan.getRegionIterArg(0)),
                                    choose(offset, scan.getRegionIterArg(1))});
  }
  Value nearest = scan.getResult(1);
  Value isFound =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, nearest, index(0));
  auto accept = scf::IfOp::create(
      b, TypeRange{b.getIndexType(), b.getIndexType()}, isFound,
      /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(accept.elseBlock());
    scf::YieldOp::create(b, ValueRange{index(-1), index(0)});
    b.setInsertionPointToStart(accept.thenBlock());
    Value at = ringEntry(nearest);
    // A chain that is as long as it may be is refreshed by exact attention.
    Value depth = loadIndex(ringDepths, {slot, h, at});
    Value isLimited = isLess(index(0), maxChain);
    Value isLong =
        arith::XOrIOp::create(b, isLess(depth, maxChain),
                              arith::ConstantIntOp::create(b, 1, /*width=*/1));
    Value refused = arith::AndIOp::create(b, isLimited, isLong);
    if (find.getRotated()) {
      Value rotated =
          load(memoryOf(find.getRotated()), {row, h, index(0)}, keySize);
      Value allowed = arith::MulFOp::create(b, driftLimit, moment);
      Value drifted =
          arith::CmpFOp::create(b, arith::CmpFPredicate::UGE,
                                distance(rotated, ringRotated, at), allowed);
      refused = arith::OrIOp::create(b, refused, drifted);
    }
    Value after = arith::SubIOp::create(b, position, nearest);
    Value start = maximum(arith::SubIOp::create(b, after, band), sinks);
    if (ringEnds) {
      Value gap = arith::AddIOp::create(b, nearest, index(1));
      start = arith::SelectOp::create(
          b, isLess(wideGap, gap), loadIndex(ringEnds, {slot, h, at}), start);
    }
    scf::YieldOp::create(
        b, ValueRange{arith::SelectOp::create(b, refused, index(-1), nearest),
                      arith::SelectOp::create(b, refused, index(0), start)});
  }
  auto keep = [&](Value value, Type type, Value memory) {
    memref::StoreOp::create(b, arith::IndexCastOp::create(b, type, value),
                            memory, ValueRange{row, h});
  };
  keep(accept.getResult(0), b.getI32Type(), hits);
  keep(accept.getResult(1), b.getI64Type(), starts);
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

/// The first token of the piece that the head attends to.
Value AttentionKernel::firstOf(Value h) {
  // A prompt has no matches, and no memory for them.
  auto choice = scf::IfOp::create(b, TypeRange{b.getIndexType()},
                                  isLess(index(0), usesStarts),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  Value first = maximum(loadIndex(starts, {row, h}), begin);
  scf::YieldOp::create(b, minimum(first, end));
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, begin);
  return choice.getResult(0);
}

void AttentionKernel::buildAttend(AttendOp attend) {
  int64_t group = heads / cacheHeads;
  auto typeOf = [](Value memory) {
    return cast<MemRefType>(memory.getType()).getElementType();
  };
  Value query = memoryOf(attend.getQuery());
  Running running =
      startBlocks(group, typeOf(keyPages), typeOf(valuePages),
                  typeOf(query).isBF16(), attend.getScale().convertToDouble());
  auto loop = scf::ForOp::create(b, index(0), index(group), index(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value g = loop.getInductionVar();
    Value h = arith::AddIOp::create(
        b, arith::MulIOp::create(b, headBegin, index(group)), g);
    putQuery(running, g, load(query, {row, h, index(0)}, keySize));
    if (starts)
      putLower(running, g, arith::SubIOp::create(b, firstOf(h), begin));
  }
  Value size = index(static_cast<int64_t>(step.getPageSize()));
  auto place = [&](Value at) {
    Value page = loadIndex(table, {slot, arith::DivUIOp::create(b, at, size)});
    return SmallVector<Value>{page, headBegin,
                              arith::RemUIOp::create(b, at, size)};
  };
  addTokens(running, begin, end, {keyPages, valuePages, place, {}});
  finishBlocks(running, pieceSums, pieceValues, {piece});
}
