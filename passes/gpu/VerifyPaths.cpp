//===- VerifyPaths.cpp - sums along ancestors in a GPU kernel -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Ancestors come before their descendants, so that whoever goes from a draft
// backwards meets them in the order of the path. Those that are none are left
// out by a selection: what a sibling has of them may be no number.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

Value GpuVerifyKernel::parentOf(Value draft) {
  return arith::IndexCastOp::create(
      b, b.getIndexType(),
      memref::LoadOp::create(b, parents, ValueRange{draft}));
}

Value GpuVerifyKernel::maskOf(Value draft) {
  return memref::LoadOp::create(b, ancestors, ValueRange{draft});
}

Value GpuVerifyKernel::isAncestor(Value mask, Value ancestor) {
  Value bit = arith::ShLIOp::create(
      b, constantInt(1),
      arith::IndexCastOp::create(b, b.getI32Type(), ancestor));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                               arith::AndIOp::create(b, mask, bit),
                               constantInt(0));
}

//===----------------------------------------------------------------------===//
// Decays and Gram products
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::emitPathDecay(PathDecayOp op) {
  Stack decays = teamOf(op.getDecays()), path = teamOf(op.getResult());
  sync({decays.memory});
  written.insert(path.memory);
  Value one = constantFloat(1);
  OpBuilder::InsertionGuard guard(b);
  if (path.size == 1) {
    // A thread has a draft, and multiplies what it finds on its path.
    auto branch = scf::IfOp::create(b, isBelow(thread, most()));
    b.setInsertionPointToStart(branch.thenBlock());
    Value product = multiplyAlong(maskOf(thread), decays, most() - 1);
    memref::StoreOp::create(
        b, product ? product : one, path.memory,
        ValueRange{add(thread, path.first), constantIndex(0)});
    return;
  }
  auto columns = scf::ForOp::create(b, thread, constantIndex(path.size),
                                    constantIndex(schedule.threads));
  b.setInsertionPointToStart(columns.getBody());
  Value column = columns.getInductionVar();
  // The product of the parent is there.
  auto loop =
      scf::ForOp::create(b, constantIndex(0), draftCount, constantIndex(1));
  b.setInsertionPointToStart(loop.getBody());
  Value draft = loop.getInductionVar(), parent = parentOf(draft);
  Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, parent,
                                       constantIndex(0));
  Value held = arith::MaxSIOp::create(b, parent, constantIndex(0));
  auto load = [&](const Stack &stack) -> Value {
    return memref::LoadOp::create(b, stack.memory,
                                  ValueRange{add(held, stack.first), column});
  };
  Value product = arith::MulFOp::create(b, load(path), load(decays));
  memref::StoreOp::create(b, arith::SelectOp::create(b, exists, product, one),
                          path.memory,
                          ValueRange{add(draft, path.first), column});
}

/// The product of the numbers of those among the first `count` drafts that a
/// mask names. Null if there are none.
Value GpuVerifyKernel::multiplyAlong(Value mask, const Stack &numbers,
                                     int64_t count) {
  Value product, one = constantFloat(1);
  for (int64_t draft = 0; draft < count; ++draft) {
    Value isMine = isAncestor(mask, constantIndex(draft));
    Value number = memref::LoadOp::create(
        b, numbers.memory,
        ValueRange{constantIndex(numbers.first + draft), constantIndex(0)});
    Value factor = arith::SelectOp::create(b, isMine, number, one);
    product =
        product ? Value(arith::MulFOp::create(b, product, factor)) : factor;
  }
  return product;
}

LogicalResult GpuVerifyKernel::emitPathGram(PathGramOp op) {
  Stack queries = teamOf(op.getQueries()), keys = teamOf(op.getKeys());
  std::optional<Stack> decays;
  SmallVector<Value> operands{queries.memory, keys.memory};
  if (op.getDecays()) {
    decays = teamOf(op.getDecays());
    operands.push_back(decays->memory);
  }
  sync(operands);
  int64_t columns = llvm::alignTo(most() * keys.components, 4);
  Value gram = grams[op.getResult()] =
      shared({most() * queries.components, columns}, "gram");
  if (most() == 1)
    return success();
  OpBuilder::InsertionGuard guard(b);
  if (decays && decays->size > 1)
    emitDecayedGram(queries, keys, *decays, gram);
  else
    emitGram(queries, keys, decays, gram);
  written.insert(gram);
  return success();
}

/// A group of lanes takes a draft and one before it.
void GpuVerifyKernel::emitGram(const Stack &queries, const Stack &keys,
                               std::optional<Stack> decays, Value gram) {
  // Half a square, as a rectangle: what is above the diagonal of the left half
  // stands for the pairs of later drafts.
  int64_t half = llvm::divideCeil(most(), 2), last = 2 * half - 1;
  int64_t ranks = queries.components, rankKeys = keys.components;
  int64_t dots = last * half * ranks * rankKeys;
  int64_t groups = schedule.threads / lanes;
  int64_t rounds = llvm::divideCeil(dots, groups);
  Value mine = group;
  if (rounds > 1) {
    auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(rounds),
                                   constantIndex(1));
    loop->setAttr("ladle.rolled", b.getUnitAttr());
    b.setInsertionPointToStart(loop.getBody());
    mine =
        arith::AddIOp::create(b, group,
                              arith::MulIOp::create(b, loop.getInductionVar(),
                                                    constantIndex(groups)));
  }
  // A dot is of a pair of drafts, a query of the one and a key of the other.
  auto divide = [&](Value value, int64_t by) -> std::pair<Value, Value> {
    if (by == 1)
      return {value, constantIndex(0)};
    return {arith::DivUIOp::create(b, value, constantIndex(by)),
            arith::RemUIOp::create(b, value, constantIndex(by))};
  };
  auto [ofQuery, rankKey] = divide(mine, rankKeys);
  auto [pair, rank] = divide(ofQuery, ranks);
  Value y = arith::DivUIOp::create(b, pair, constantIndex(half));
  Value x = arith::RemUIOp::create(b, pair, constantIndex(half));
  Value isLeft = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, x, y);
  auto mirrored = [&](Value value) -> Value {
    return arith::SubIOp::create(b, constantIndex(last), value);
  };
  Value draft = arith::SelectOp::create(b, isLeft, add(y, 1), mirrored(y));
  Value ancestor = arith::SelectOp::create(b, isLeft, x, mirrored(x));
  Value valid = both(
      isBelow(mine, dots),
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, draft, draftCount));
  // Shuffles are those of a warp: all take part.
  draft = arith::SelectOp::create(b, valid, draft, constantIndex(1));
  ancestor = arith::SelectOp::create(b, valid, ancestor, constantIndex(0));
  Value mask = maskOf(draft);
  Value isMine = isAncestor(mask, ancestor);
  Value weight;
  if (decays) {
    // All ancestors after this one.
    Value later = arith::AndIOp::create(
        b, mask,
        arith::ShLIOp::create(
            b, constantInt(-2),
            arith::IndexCastOp::create(b, b.getI32Type(), ancestor)));
    weight = multiplyAlong(later, *decays, most() - 1);
  }
  Place place = keyPlace(keySize);
  auto row = [&](Value of, int64_t components, Value rankOf) -> Value {
    if (components == 1)
      return of;
    return arith::AddIOp::create(
        b, arith::MulIOp::create(b, of, constantIndex(components)), rankOf);
  };
  Value to = row(draft, ranks, rank), from = row(ancestor, rankKeys, rankKey);
  Components query =
      loadVector(queries.memory, {add(to, queries.first)}, place);
  Components key = loadVector(keys.memory, {add(from, keys.first)}, place);
  Value dot = sumOverLanes(dotChunks(query, key), place.lanes);
  if (weight)
    dot = arith::MulFOp::create(b, dot, weight);
  dot = arith::SelectOp::create(b, isMine, dot, constantFloat(0));
  guarded(both(valid, isBelow(lane, 1)),
          [&] { memref::StoreOp::create(b, dot, gram, ValueRange{to, from}); });
}

/// Where decays are vectors, a team takes a draft's query and walks back.
void GpuVerifyKernel::emitDecayedGram(const Stack &queries, const Stack &keys,
                                      const Stack &decays, Value gram) {
  int64_t ranks = queries.components, rankKeys = keys.components;
  Place place = valuePlace(keySize);
  int64_t rounds = llvm::divideCeil(most() * ranks, teams());
  auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(rounds),
                                 constantIndex(1));
  loop->setAttr("ladle.rolled", b.getUnitAttr());
  b.setInsertionPointToStart(loop.getBody());
  Value row = arith::AddIOp::create(
      b, team,
      arith::MulIOp::create(b, loop.getInductionVar(), constantIndex(teams())));
  Value rows = arith::MulIOp::create(b, draftCount, constantIndex(ranks));
  Value valid = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, rows);
  row = arith::MinSIOp::create(
      b, row, arith::SubIOp::create(b, rows, constantIndex(1)));
  Value draft =
      ranks == 1 ? row
                 : Value(arith::DivUIOp::create(b, row, constantIndex(ranks)));
  Value mask = maskOf(draft);
  Components query =
      loadVector(queries.memory, {add(row, queries.first)}, place);
  // Smaller teams stay together: their shuffles are those of a warp.
  bool isWarp = place.lanes == 32;
  Value end = isWarp ? draft : draftCount;
  auto walk =
      scf::ForOp::create(b, constantIndex(0), end, constantIndex(1), query);
  b.setInsertionPointToStart(walk.getBody());
  Value ancestor =
      arith::SubIOp::create(b, arith::SubIOp::create(b, end, constantIndex(1)),
                            walk.getInductionVar());
  Value isMine = isAncestor(mask, ancestor);
  Components decayed(walk.getRegionIterArgs());
  for (int64_t k = 0; k < rankKeys; ++k) {
    Value at = ancestor;
    if (rankKeys > 1)
      at = add(arith::MulIOp::create(b, ancestor, constantIndex(rankKeys)), k);
    Components key = loadVector(keys.memory, {add(at, keys.first)}, place);
    Value dot = sumOverLanes(dotChunks(decayed, key), place.lanes);
    dot = arith::SelectOp::create(b, isMine, dot, constantFloat(0));
    guarded(both(valid, isBelow(teamLane, 1)), [&] {
      memref::StoreOp::create(b, dot, gram, ValueRange{row, at});
    });
  }
  SmallVector<Value> next;
  Components factor =
      loadVector(decays.memory, {add(ancestor, decays.first)}, place);
  for (auto [part, each] : llvm::zip(decayed, factor))
    next.push_back(arith::SelectOp::create(
        b, isMine, arith::MulFOp::create(b, part, each), part));
  scf::YieldOp::create(b, next);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

GpuVerifyKernel::Weighed GpuVerifyKernel::weigh(Value gram, Value values) {
  ArrayRef<int64_t> shape = typeOf(gram).getShape();
  return {grams.lookup(canonical(gram)), values, shape[2], shape[4]};
}

/// Row `row` of Gram products times the values of the ancestors.
Value GpuVerifyKernel::addPath(int64_t row, Value initial,
                               ArrayRef<Weighed> terms,
                               function_ref<Value(Value, int64_t)> at) {
  Value sum = initial;
  int64_t draft = row / terms.front().ranks;
  if (draft == 0)
    return sum;
  Value mask = maskOf(constantIndex(draft));
  SmallVector<Value> isMine;
  for (int64_t ancestor = 0; ancestor < draft; ++ancestor)
    isMine.push_back(isAncestor(mask, constantIndex(ancestor)));
  for (const Weighed &term : terms) {
    Value some;
    for (int64_t i = 0; i < draft * term.keys; ++i) {
      // Four at a time, as they lie.
      if (i % 4 == 0)
        some = vector::LoadOp::create(
            b, VectorType::get({4}, b.getF32Type()), term.gram,
            ValueRange{constantIndex(row), constantIndex(i)});
      Value weight = vector::ExtractOp::create(b, some, i % 4);
      Value more = math::FmaOp::create(b, weight, at(term.values, i), sum);
      sum = arith::SelectOp::create(b, isMine[i / term.keys], more, sum);
    }
  }
  return sum;
}

/// The same along dk: a thread takes columns, and each draft its ancestors'.
void GpuVerifyKernel::addPathOfTeam(ArrayRef<Weighed> terms,
                                    const Stack *initial, const Stack &into) {
  written.insert(into.memory);
  auto columns = scf::ForOp::create(b, thread, constantIndex(into.size),
                                    constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(columns.getBody());
  Value column = columns.getInductionVar();
  auto loop =
      scf::ForOp::create(b, constantIndex(0), draftCount, constantIndex(1));
  b.setInsertionPointToStart(loop.getBody());
  Value draft = loop.getInductionVar(), mask = maskOf(draft);
  int64_t ranks = into.components;
  Value first = arith::MulIOp::create(b, draft, constantIndex(ranks));
  SmallVector<Value> sums;
  for (int64_t r = 0; r < ranks; ++r)
    sums.push_back(
        initial ? Value(memref::LoadOp::create(
                      b, initial->memory,
                      ValueRange{add(first, initial->first + r), column}))
                : constantFloat(0));
  auto walk =
      scf::ForOp::create(b, constantIndex(0), draft, constantIndex(1), sums);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(walk.getBody());
    Value ancestor = walk.getInductionVar();
    Value isMine = isAncestor(mask, ancestor);
    SmallVector<Value> next(walk.getRegionIterArgs());
    for (const Weighed &term : terms) {
      Stack values = teamOf(term.values);
      for (int64_t k = 0; k < term.keys; ++k) {
        Value at = add(
            arith::MulIOp::create(b, ancestor, constantIndex(term.keys)), k);
        Value value = memref::LoadOp::create(
            b, values.memory, ValueRange{add(at, values.first), column});
        for (int64_t r = 0; r < ranks; ++r) {
          Value weight = memref::LoadOp::create(b, term.gram,
                                                ValueRange{add(first, r), at});
          Value more = math::FmaOp::create(b, weight, value, next[r]);
          next[r] = arith::SelectOp::create(b, isMine, more, next[r]);
        }
      }
    }
    scf::YieldOp::create(b, next);
  }
  for (int64_t r = 0; r < ranks; ++r)
    memref::StoreOp::create(b, walk.getResult(r), into.memory,
                            ValueRange{add(first, into.first + r), column});
}

LogicalResult GpuVerifyKernel::emitPathSolve(PathSolveOp op, bool ofRows) {
  SmallVector<SmallVector<Weighed>> terms(op.getRhs().size());
  for (auto [g, row] : llvm::enumerate(op.getRows())) {
    if (!grams.contains(canonical(op.getGrams()[g])))
      return op.emitError("cannot be lowered for GPUs: its Gram products are "
                          "not those of drafts");
    terms[row].push_back(
        weigh(op.getGrams()[g], op.getResult(op.getColumns()[g])));
  }
  if (!ofRows) {
    sync();
    if (op.getNumResults() != 1)
      return op.emitError("cannot be lowered for GPUs: several vectors along "
                          "dk depend on each other");
    Stack initial = teamOf(op.getRhs()[0]);
    addPathOfTeam(terms[0], &initial, teamOf(op.getResult(0)));
    return success();
  }
  SmallVector<Components> known;
  for (Value rhs : op.getRhs()) {
    FailureOr<Components> all = rowsOf(rhs);
    if (failed(all))
      return failure();
    known.push_back(*all);
  }
  sync();
  DenseMap<Value, Components> solved;
  for (auto [result, all] : llvm::zip(op.getResults(), known))
    solved[result] = all;
  for (int64_t draft = 0; draft < most(); ++draft)
    for (auto [result, mine] : llvm::zip(op.getResults(), terms)) {
      if (mine.empty())
        continue;
      Components &all = solved[result];
      int64_t ranks = static_cast<int64_t>(all.size()) / most();
      for (int64_t r = draft * ranks; r < (draft + 1) * ranks; ++r)
        all[r] = addPath(r, all[r], mine, [&](Value values, int64_t i) {
          return solved[values][i];
        });
    }
  for (auto &[result, all] : solved)
    rowStacks[canonical(result)] = all;
  return success();
}

LogicalResult GpuVerifyKernel::emitPathProduct(PathProductOp op, bool ofRows) {
  SmallVector<Weighed> terms;
  for (auto [gram, values] : llvm::zip(op.getGrams(), op.getValues())) {
    if (!grams.contains(canonical(gram)))
      return op.emitError("cannot be lowered for GPUs: its Gram products are "
                          "not those of drafts");
    terms.push_back(weigh(gram, values));
  }
  if (!ofRows) {
    sync();
    addPathOfTeam(terms, nullptr, teamOf(op.getResult()));
    return success();
  }
  DenseMap<Value, Components> known;
  for (Value values : op.getValues()) {
    FailureOr<Components> all = rowsOf(values);
    if (failed(all))
      return failure();
    known[values] = *all;
  }
  sync();
  Components result;
  int64_t rows = most() * componentCount(unstackType(typeOf(op.getResult())));
  for (int64_t row = 0; row < rows; ++row)
    result.push_back(
        addPath(row, constantFloat(0), terms,
                [&](Value values, int64_t i) { return known[values][i]; }));
  rowStacks[canonical(op.getResult())] = result;
  return success();
}
