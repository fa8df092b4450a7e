//===- VerifyDecays.cpp - decays by elements along paths on a GPU ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where decays are vectors over dk, a team goes back from its draft through all
// before it, and has the product of the decays between in registers. Keys of
// ancestors times that product meet the draft's queries, and the product of all
// is the decay of the draft's path: one walk gives both, of all queries and
// keys. Nobody waits for a sum before the next is begun: those of several
// ancestors are added over lanes together.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

/// Ancestors whose sums are added together.
static constexpr int64_t kAncestorsAtOnce = 7;

/// Gram products that a walk along the paths of `op` may give: those of the
/// same decays whose vectors are there.
SmallVector<PathGramOp> GpuVerifyKernel::gramsAlong(Operation *op,
                                                    Value decays) {
  SmallVector<PathGramOp> all;
  auto isThere = [&](Value operand) {
    Operation *def = canonical(operand).getDefiningOp();
    // What one form alone computes comes when the forms have parted.
    if (isa_and_present<EachDraftOp>(def) && !emittedDrafts.contains(def))
      return false;
    return !def || def->getBlock() != op->getBlock() ||
           def->isBeforeInBlock(op);
  };
  auto shape = [&](PathGramOp gram) {
    return std::pair(teamOf(gram.getQueries()).components,
                     teamOf(gram.getKeys()).components);
  };
  for (auto gram : op->getBlock()->getOps<PathGramOp>()) {
    if (op != gram && !op->isBeforeInBlock(gram))
      continue;
    if (!gram.getDecays() || canonical(gram.getDecays()) != canonical(decays) ||
        grams.contains(gram.getResult()) ||
        sameValues.contains(gram.getResult()) ||
        (op != gram && !llvm::all_of(gram->getOperands(), isThere)))
      continue;
    // A team has a draft, of which all have as many vectors.
    if (all.empty() ? isa<PathDecayOp>(op) && shape(gram).first != 1
                    : shape(gram) != shape(all.front()))
      continue;
    all.push_back(gram);
  }
  return all;
}

/// The Gram products `ops`, and the decays of paths `path`, if that is not
/// null.
void GpuVerifyKernel::walkPaths(PathDecayOp path, ArrayRef<PathGramOp> ops) {
  PathGramOp gram = ops.empty() ? PathGramOp() : ops.front();
  Stack decays = teamOf(path ? path.getDecays() : gram.getDecays());
  SmallVector<Value> operands{decays.memory};
  SmallVector<Stack> queries, keys;
  for (PathGramOp each : ops) {
    queries.push_back(teamOf(each.getQueries()));
    keys.push_back(teamOf(each.getKeys()));
    operands.append({queries.back().memory, keys.back().memory});
  }
  sync(operands);
  readByOthers = b.getInsertionBlock();
  int64_t ranks = ops.empty() ? 1 : queries.front().components;
  int64_t rankKeys = ops.empty() ? 1 : keys.front().components;
  int64_t rowsOfAll = most() * ranks;
  int64_t columns = llvm::alignTo(most() * rankKeys, 4);
  auto count = static_cast<int64_t>(ops.size());
  Value all;
  if (!ops.empty())
    all = shared({count * rowsOfAll, columns}, "gram");
  for (auto [i, each] : llvm::enumerate(ops)) {
    Value first = constantIndex(static_cast<int64_t>(i) * rowsOfAll);
    Value memory = count == 1 ? all : rowsFrom(all, first, rowsOfAll);
    grams[PathGramOp(each).getResult()] = memory;
    if (most() > 1)
      written.insert(memory);
  }
  if (most() == 1 && !path)
    return;

  Place place = valuePlace(keySize);
  int64_t rounds = llvm::divideCeil(rowsOfAll, teams());
  Value row = team;
  OpBuilder::InsertionGuard guard(b);
  if (rounds > 1) {
    auto loop = scf::ForOp::create(b, constantIndex(0), constantIndex(rounds),
                                   constantIndex(1));
    loop->setAttr("ladle.rolled", b.getUnitAttr());
    b.setInsertionPointToStart(loop.getBody());
    row = arith::AddIOp::create(b, team,
                                arith::MulIOp::create(b, loop.getInductionVar(),
                                                      constantIndex(teams())));
  }
  Value rows = arith::MulIOp::create(b, draftCount, constantIndex(ranks));
  Value valid = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, rows);
  Value own = row;
  row = arith::MinSIOp::create(
      b, row, arith::SubIOp::create(b, rows, constantIndex(1)));
  // Lengths are read on the device, where nobody refuses 0.
  row = arith::MaxSIOp::create(b, row, constantIndex(0));
  Value draft =
      ranks == 1 ? row
                 : Value(arith::DivUIOp::create(b, row, constantIndex(ranks)));
  Value mask = maskOf(draft);
  // Those of one vector share it.
  std::map<std::pair<void *, int64_t>, Components> loaded;
  auto load = [&](const Stack &stack, Value at) -> const Components & {
    Components &vector =
        loaded[{stack.memory.getAsOpaquePointer(), stack.first}];
    if (vector.empty())
      vector = loadVector(stack.memory, {add(at, stack.first)}, place);
    return vector;
  };
  SmallVector<Components> ofQueries;
  for (auto [each, query] : llvm::zip(ops, queries))
    ofQueries.push_back(
        takenStacks.contains(canonical(PathGramOp(each).getQueries()))
            ? loadTaken(query, own, valid, place)
            : load(query, row));

  Components product;
  auto one = VectorType::get({place.width}, b.getF32Type());
  product.assign(place.chunks,
                 arith::ConstantOp::create(
                     b, SplatElementsAttr::get(one, b.getF32FloatAttr(1))));
  int64_t before = most() - 1;
  int64_t steps = llvm::divideCeil(before, kAncestorsAtOnce);
  int64_t atOnce = steps ? llvm::divideCeil(before, steps) : 0;
  Value step;
  scf::ForOp walk;
  if (steps > 1) {
    walk = scf::ForOp::create(b, constantIndex(0), constantIndex(steps),
                              constantIndex(1), product);
    walk->setAttr("ladle.rolled", b.getUnitAttr());
    b.setInsertionPointToStart(walk.getBody());
    step =
        arith::MulIOp::create(b, walk.getInductionVar(), constantIndex(atOnce));
    product.assign(walk.getRegionIterArgs().begin(),
                   walk.getRegionIterArgs().end());
  }
  // The newest of a step; the last step may go beyond the first draft.
  Value newest = constantIndex(before - 1);
  if (step)
    newest = arith::SubIOp::create(b, newest, step);
  auto held = [&](Value ancestor) -> Value {
    return steps > 1
               ? Value(arith::MaxSIOp::create(b, ancestor, constantIndex(0)))
               : ancestor;
  };
  auto isOf = [&](Value ancestor) -> Value {
    Value isMine = isAncestor(mask, held(ancestor));
    if (steps > 1)
      isMine = both(isMine, arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                                  ancestor, constantIndex(0)));
    return isMine;
  };
  SmallVector<Value> dots;
  for (int64_t i = 0; i < atOnce; ++i) {
    Value ancestor = add(newest, -i);
    Value at = held(ancestor);
    loaded.clear();
    for (int64_t k = 0; k < rankKeys; ++k)
      for (auto [query, key] : llvm::zip(ofQueries, keys)) {
        Value from = at;
        if (rankKeys > 1)
          from = add(arith::MulIOp::create(b, at, constantIndex(rankKeys)), k);
        Stack ofRank = key;
        ofRank.first += k; // Another vector, for those that share them.
        bool isNew =
            !loaded.contains({key.memory.getAsOpaquePointer(), ofRank.first});
        Components &vector =
            loaded[{key.memory.getAsOpaquePointer(), ofRank.first}];
        if (isNew) {
          vector = loadVector(key.memory, {add(from, key.first)}, place);
          // The draft ahead has nothing between.
          for (auto [part, passed] : llvm::zip(vector, product))
            part = arith::MulFOp::create(b, part, passed);
        }
        dots.push_back(dotChunks(query, vector));
      }
    Value isMine = isOf(ancestor);
    Components factor =
        loadVector(decays.memory, {add(at, decays.first)}, place);
    for (auto [passed, each] : llvm::zip(product, factor))
      passed = arith::SelectOp::create(
          b, isMine, arith::MulFOp::create(b, passed, each), passed);
  }
  int64_t ofOne = count * rankKeys;
  for (size_t from = 0; from < dots.size(); from += place.lanes) {
    auto some = ArrayRef(dots).slice(
        from, std::min<size_t>(place.lanes, dots.size() - from));
    Value mine = laneOf(place);
    auto [sum, number] =
        sumsOverLanes(SmallVector<Value>(some), place.lanes, mine);
    Value isMine = isBelow(number, static_cast<int64_t>(some.size()));
    number = add(number, static_cast<int64_t>(from));
    // Keys and Gram products of an ancestor come one after the other.
    Value of = arith::DivUIOp::create(b, number, constantIndex(ofOne));
    Value which = arith::RemUIOp::create(b, number, constantIndex(ofOne));
    Value rank = arith::DivUIOp::create(b, which, constantIndex(count));
    Value ofGram = arith::RemUIOp::create(b, which, constantIndex(count));
    Value ancestor = arith::SubIOp::create(b, newest, of);
    Value at = held(ancestor);
    Value dot =
        arith::SelectOp::create(b, isOf(ancestor), sum, constantFloat(0));
    // One of the lanes that have it.
    int64_t apart =
        place.lanes / static_cast<int64_t>(llvm::PowerOf2Ceil(some.size()));
    if (apart > 1)
      isMine = both(isMine,
                    arith::CmpIOp::create(
                        b, arith::CmpIPredicate::eq,
                        arith::RemUIOp::create(b, mine, constantIndex(apart)),
                        constantIndex(0)));
    if (place.lanes < teamLanes())
      isMine = both(isMine, isBelow(teamLane, place.lanes));
    if (steps > 1)
      isMine = both(isMine, arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                                  ancestor, constantIndex(0)));
    guarded(both(valid, isMine), [&] {
      Value to = arith::AddIOp::create(
          b, row, arith::MulIOp::create(b, ofGram, constantIndex(rowsOfAll)));
      Value column = arith::AddIOp::create(
          b, arith::MulIOp::create(b, at, constantIndex(rankKeys)), rank);
      memref::StoreOp::create(b, dot, all, ValueRange{to, column});
    });
  }
  if (walk) {
    scf::YieldOp::create(b, product);
    b.setInsertionPointAfter(walk);
    product.assign(walk.getResults().begin(), walk.getResults().end());
  }
  if (!path)
    return;
  if (rounds == 1)
    pathsOfTeams[canonical(path.getResult())] = product;
  if (heldPaths.contains(path.getResult()))
    return;
  Stack stack = teamOf(path.getResult());
  Value first = add(draft, stack.first);
  storeKept(Kept{
      product, place, valid, {}, [=, this](int64_t, Value at, Value part) {
        vector::StoreOp::create(b, part, stack.memory, ValueRange{first, at});
      }});
  // A team needs what it has itself, and others wait.
  written.insert(path.getResult());
  if (rounds > 1)
    written.insert(stack.memory);
}
