//===- ChunkKernel.cpp - a prefill step as a function ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/cpu/ChunkKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/cpu/ScheduleInfo.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// The workspace
//===----------------------------------------------------------------------===//

static constexpr int64_t kLineBytes = 64;

/// Elements from one row of a matrix to the next. Rows that lie a power of two
/// apart would share a few sets of the nearest cache, which a column of a
/// product then falls out of.
static int64_t rowStride(int64_t width) {
  constexpr int64_t line = kLineBytes / 4;
  return width >= 2 * line && width % line == 0 ? width + line : width;
}

static int64_t matrixBytes(int64_t rows, int64_t width) {
  return llvm::alignTo(rows * rowStride(width) * 4, kLineBytes);
}

/// A matrix of f32 in the workspace, `offset` bytes from its start.
Value ChunkKernel::viewWorkspace(Value offset, int64_t rows, int64_t width) {
  int64_t stride = rowStride(width);
  Value view =
      memref::ViewOp::create(b, MemRefType::get({rows, stride}, b.getF32Type()),
                             workspace, offset, ValueRange());
  if (stride == width)
    return view;
  auto size = [&](int64_t value) { return b.getIndexAttr(value); };
  return memref::SubViewOp::create(
      b, view, ArrayRef<OpFoldResult>{size(0), size(0)},
      ArrayRef<OpFoldResult>{size(rows), size(width)},
      ArrayRef<OpFoldResult>{size(1), size(1)});
}

/// Scratch memory of a chunk is too much for a stack.
Value ChunkKernel::allocateScratch(ArrayRef<int64_t> shape, Type element) {
  assert((!element || element.isF32()) && "a workspace is of f32");
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(scratchSize);
  auto offset = arith::ConstantIndexOp::create(b, scratchBytes);
  scratchBytes += matrixBytes(shape[0], shape[1]);
  return viewWorkspace(offset, shape[0], shape[1]);
}

/// Zeroes the rows of a stack that have no token.
void ChunkKernel::clearRest(Value stack) {
  Value scratch = stacks.lookup(stack);
  int64_t rows = rowsOf(stack.getType());
  int64_t width = cast<MemRefType>(scratch.getType()).getDimSize(1);
  OpBuilder::InsertionGuard guard(b);
  Value row = openLoop(times(draftCount, rows),
                       times(roundUp(draftCount, kStackRows), rows));
  vector::StoreOp::create(b, zeros(width), scratch,
                          ArrayRef<Value>{row, constantIndex(0)});
}

//===----------------------------------------------------------------------===//
// Carries: version 0 is that before the chunk, d + 1 that of draft d. They are
// rounded like those that a decode step leaves in memory.
//===----------------------------------------------------------------------===//

Components ChunkKernel::loadCarryOfParent(BlockArgument carry, Value draft) {
  return loadRows(carryVersions[carry], typeOf(carry), draft);
}

/// Puts a version of a carry into the scratch.
static void storeVersion(ImplicitLocOpBuilder &b, Value scratch,
                         ArrayRef<Value> rows, const Components &components,
                         Value zero) {
  for (auto [row, component] : llvm::zip(rows, components)) {
    SmallVector<Value> at{row, zero};
    if (isa<VectorType>(component.getType()))
      vector::StoreOp::create(b, component, scratch, at);
    else
      memref::StoreOp::create(b, component, scratch, at);
  }
}

void ChunkKernel::storeCarry(BlockArgument carry, Value draft,
                             const Components &components) {
  RankedTensorType type = typeOf(carry);
  SmallVector<Value> rows;
  Components rounded;
  for (auto [i, component] : llvm::enumerate(components)) {
    rows.push_back(rowOf(plus(draft, 1), componentCount(type), i));
    rounded.push_back(toF32(convertTo(component, type.getElementType())));
  }
  storeVersion(b, carryVersions[carry], rows, rounded, constantIndex(0));
}

void ChunkKernel::beginCarries(EachDraftOp op, unsigned level) {
  int64_t most = op.getDrafts().getType().getMost();
  for (Value value : op.getCarries()) {
    auto carry = cast<BlockArgument>(value);
    RankedTensorType type = typeOf(carry);
    if (levelOf(type) != level)
      continue;
    Value &versions = carryVersions[carry];
    if (!versions)
      versions =
          allocateScratch({(most + 1) * componentCount(type),
                           type.getRank() > 1 ? type.getShape().back() : 1});
    Value from = arith::SelectOp::create(b, isFirst, readCarry, writeCarry);
    Components components = loadArgument(carry, from);
    SmallVector<Value> rows;
    for (size_t i = 0; i < components.size(); ++i)
      rows.push_back(constantIndex(static_cast<int64_t>(i)));
    storeVersion(b, versions, rows, components, constantIndex(0));
  }
}

void ChunkKernel::endCarries(EachDraftOp op, unsigned level) {
  for (Value value : op.getCarries()) {
    auto carry = cast<BlockArgument>(value);
    RankedTensorType type = typeOf(carry);
    if (levelOf(type) == level)
      storeTo(memory[carry], {writeCarry, headIndex(type.getDimSize(0))},
              loadRows(carryVersions[carry], type, draftCount),
              constantIndex(0));
  }
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

bool ChunkKernel::foldsState() { return step.getForm() == Form::PrefillFold; }

/// Whether a state is that of the workspace.
bool ChunkKernel::isHeldHere(Value state) {
  return foldsState() && state.getDefiningOp<LoadStateOp>();
}

Value ChunkKernel::heldState(Value pool) {
  auto type = cast<PoolType>(pool.getType());
  // Heads of the task, and those of the pool that they are.
  int64_t ratio = levels.back() / type.getHeads();
  Value first = arith::DivUIOp::create(b, headBegin, constantIndex(ratio));
  Value head = arith::SubIOp::create(b, headIndex(type.getHeads()), first);
  Value offset = plus(times(head, stateBytes), stateOffsets.lookup(pool));
  offset = arith::AddIOp::create(b, offset, scratchSize->getResult(0));
  return viewWorkspace(offset, type.getKeySize(), type.getValueSize());
}

/// Between the pool, [dv, dk], and the workspace.
void ChunkKernel::moveState(Value pool, bool isLoad) {
  auto type = cast<PoolType>(pool.getType());
  Value held = heldState(pool), zero = constantIndex(0);
  int64_t keySize = type.getKeySize();
  bool isAsHeld = type.getLayout() == PoolLayout::DkDv;
  Value row = isAsHeld ? Value() : allocateScratch({1, keySize});
  auto only = scf::IfOp::create(b, isLoad ? isFirst : isLast, false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&only.getThenRegion().front());
  if (isAsHeld) {
    int64_t valueSize = type.getValueSize();
    Value c = openLoop(zero, constantIndex(keySize));
    SmallVector<Value> inPool{isLoad ? readSlot : writeSlot,
                              headIndex(type.getHeads()), c, zero};
    SmallVector<Value> inHeld{c, zero};
    Value from = isLoad ? memory[pool] : held;
    storeVector(loadVector(from, isLoad ? inPool : inHeld, valueSize),
                isLoad ? held : memory[pool], isLoad ? inHeld : inPool);
    return;
  }
  Value v = openLoop(zero, constantIndex(type.getValueSize()));
  SmallVector<Value> at{isLoad ? readSlot : writeSlot,
                        headIndex(type.getHeads()), v, zero};
  if (isLoad)
    vector::StoreOp::create(b, loadVector(memory[pool], at, keySize), row,
                            ArrayRef<Value>{zero, zero});
  {
    OpBuilder::InsertionGuard inner(b);
    Value c = openLoop(zero, constantIndex(keySize));
    SmallVector<Value> inRow{zero, c}, inHeld{c, v};
    Value element =
        memref::LoadOp::create(b, isLoad ? row : held, isLoad ? inRow : inHeld);
    memref::StoreOp::create(b, element, isLoad ? held : row,
                            isLoad ? inHeld : inRow);
  }
  if (!isLoad)
    storeVector(loadVector(row, {zero, zero}, keySize), memory[pool], at);
}

LogicalResult ChunkKernel::emitFoldDrafts(FoldDraftsOp op) {
  auto load = op.getState().getDefiningOp<LoadStateOp>();
  if (!load)
    return op.emitError("cannot be lowered for the CPU: folds a state that "
                        "does not come from a pool");
  Value held = heldState(load.getPool()), zero = constantIndex(0);
  int64_t keySize = op.getState().getType().getKeySize();
  int64_t most = op.getDrafts().getType().getMost();
  Value decays;
  if (op.getDecays()) {
    FailureOr<Value> found = findStack(op.getDecays());
    if (failed(found))
      return failure();
    decays = *found;
  }
  bool isVector = decays && typeOf(op.getDecays()).getRank() > 2;
  int64_t decaySize = isVector ? keySize : 1;

  // Keys times the decays of the tokens after them, from the last one back.
  SmallVector<Value> keys, scaled;
  SmallVector<int64_t> ranks;
  for (Value key : op.getKeys()) {
    FailureOr<Value> found = findStack(key);
    if (failed(found))
      return failure();
    keys.push_back(*found);
    ranks.push_back(rowsOf(key.getType()));
    scaled.push_back(decays ? allocateScratch({most * ranks.back(), keySize})
                            : *found);
  }
  Value total;
  if (decays) {
    Value ones = arith::ConstantOp::create(
        b, DenseElementsAttr::get(VectorType::get({decaySize}, b.getF32Type()),
                                  1.0f));
    auto loop = scf::ForOp::create(b, zero, draftCount, constantIndex(1), ones);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value last = arith::SubIOp::create(b, draftCount, constantIndex(1));
      Value draft = arith::SubIOp::create(b, last, loop.getInductionVar());
      Value after = loop.getRegionIterArg(0);
      Value factor =
          isVector ? after
                   : splat(vector::ExtractOp::create(b, after, 0), keySize);
      for (auto [from, into, rank] : llvm::zip(keys, scaled, ranks))
        for (int64_t r = 0; r < rank; ++r) {
          SmallVector<Value> at{rowOf(draft, rank, r), zero};
          Value key = loadVector(from, at, keySize);
          vector::StoreOp::create(b, arith::MulFOp::create(b, key, factor),
                                  into, at);
        }
      Value decay = loadVector(decays, {draft, zero}, decaySize);
      scf::YieldOp::create(b, Value(arith::MulFOp::create(b, after, decay)));
    }
    total = allocateScratch({1, decaySize});
    vector::StoreOp::create(b, loop.getResult(0), total,
                            ArrayRef<Value>{zero, zero});
  }

  Product product;
  product.firstRow = zero;
  product.endRow = constantIndex(keySize);
  for (product.blockRows = kBlockRows; keySize % product.blockRows;)
    --product.blockRows;
  product.width = op.getState().getType().getValueSize();
  product.start = [&](Value c, Value n, int64_t width) -> Value {
    Value before = loadVector(held, {c, n}, width);
    if (!decays)
      return before;
    Value decay =
        memref::LoadOp::create(b, total, ValueRange{zero, isVector ? c : zero});
    return arith::MulFOp::create(b, before, splat(decay, width));
  };
  SmallVector<Factor> factors;
  for (auto [i, value] : llvm::enumerate(op.getValues())) {
    FailureOr<Value> values = findStack(value);
    if (failed(values))
      return failure();
    Value key = scaled[i];
    factors.push_back({[this, key](Value c, Value k) -> Value {
                         return memref::LoadOp::create(b, key,
                                                       ValueRange{k, c});
                       },
                       *values, times(draftCount, ranks[i])});
  }
  product.factors = [&](Value) { return factors; };
  product.finish = storesInto(held);
  emitProduct(product);
  return success();
}

LogicalResult ChunkKernel::emitStateOp(Operation *op) {
  b.setLoc(op->getLoc());
  if (auto load = dyn_cast<LoadStateOp>(op)) {
    moveState(load.getPool(), /*isLoad=*/true);
    return success();
  }
  if (auto fold = dyn_cast<FoldDraftsOp>(op))
    return emitFoldDrafts(fold);
  auto store = cast<StoreStateOp>(op);
  auto fold = store.getState().getDefiningOp<FoldDraftsOp>();
  if (!fold || findLoadedPool(fold.getState()) != store.getPool())
    return op->emitError("cannot be lowered for the CPU: stores a state that "
                         "is not that of its pool with a chunk folded");
  moveState(store.getPool(), /*isLoad=*/false);
  return success();
}

LogicalResult ChunkKernel::emitRead(ReadOp op) {
  if (!isHeldHere(op.getState()))
    return VerifyKernel::emitRead(op);
  FailureOr<Value> queries = findStack(op.getQuery());
  if (failed(queries))
    return failure();
  Value held = heldState(op.getState().getDefiningOp<LoadStateOp>().getPool());
  StateType state = op.getState().getType();
  Product product;
  product.firstRow = constantIndex(0);
  product.endRow = rowsOfTokens(rowsOf(op.getQuery().getType()));
  product.width = state.getValueSize();
  product.factors = [&](Value) -> SmallVector<Factor> {
    return {{elementsOf(*queries), held, constantIndex(state.getKeySize())}};
  };
  product.finish = storesInto(scratchOf(op.getResult()));
  emitProduct(product);
  return success();
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

LogicalResult ChunkKernel::emitOp(Operation *op, unsigned level) {
  b.setLoc(op->getLoc());
  if (foldsState() && isa<LoadStateOp, FoldDraftsOp, StoreStateOp>(op)) {
    // Once a head of the state, whatever has more heads besides.
    auto type =
        cast<StateType>(isa<StoreStateOp>(op) ? op->getOperand(0).getType()
                                              : op->getResult(0).getType());
    bool isHere = levels[level] == type.getHeads();
    return isHere ? emitStateOp(op) : success();
  }
  auto each = dyn_cast<EachDraftOp>(op);
  if (each)
    beginCarries(each, level);
  if (failed(VerifyKernel::emitOp(op, level)))
    return failure();
  b.setLoc(op->getLoc());
  if (each)
    endCarries(each, level);
  ResultRange results =
      each ? each.getResults().drop_back(each.getCarries().size())
           : op->getResults();
  for (Value result : results)
    if (auto type = dyn_cast<RankedTensorType>(result.getType());
        type && levelOf(type) == level && stacks.count(result) &&
        !isa<PathGramOp>(op))
      clearRest(result);
  return success();
}

FailureOr<func::FuncOp> ChunkKernel::buildPrefill() {
  if (failed(checkSchedule()))
    return failure();
  for (Value carry : step.getYieldedCarries())
    if (!carry.getDefiningOp<EachDraftOp>()) {
      step.emitError("cannot be lowered for the CPU: a carry is none that "
                     "ladle.each_draft leaves behind");
      return failure();
    }
  createFunction();
  b.setInsertionPointToStart(&function.getBody().front());
  scratchSize = arith::ConstantIndexOp::create(b, 0);
  for (BlockArgument pool : step.getArgumentsOfKind(ArgumentKind::State)) {
    auto type = cast<PoolType>(pool.getType());
    stateOffsets[pool] = stateBytes;
    stateBytes += matrixBytes(type.getKeySize(), type.getValueSize());
  }

  b.setInsertionPoint(scratchEnd);
  int64_t most = cast<DraftsType>(step.getDrafts().getType()).getMost();
  Value all = draftCount, firstToken = row, before = length;
  OpBuilder::InsertionGuard guard(b);
  chunkStart = openLoop(constantIndex(0), all, most);
  Value left = arith::SubIOp::create(b, all, chunkStart);
  auto compare = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) {
    return arith::CmpIOp::create(b, predicate, lhs, rhs);
  };
  isFirst = compare(arith::CmpIPredicate::eq, chunkStart, constantIndex(0));
  isLast = compare(arith::CmpIPredicate::ule, left, constantIndex(most));
  draftCount = smaller(left, constantIndex(most));
  row = arith::AddIOp::create(b, firstToken, chunkStart);
  length = arith::AddIOp::create(b, before, chunkStart);
  if (failed(emitLevels(0))) {
    function.erase();
    return failure();
  }
  cast<arith::ConstantIndexOp>(scratchSize)
      ->setAttr("value", b.getIndexAttr(scratchBytes));
  function->setAttr(kWorkspaceAttr, b.getIndexAttr(scratchBytes));
  function->setAttr(kWorkspacePerHeadAttr,
                    b.getIndexAttr(foldsState() ? stateBytes : 0));
  return function;
}
