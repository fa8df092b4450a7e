//===- VerifySides.cpp - where the stacks of a verify kernel are needed ---===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// From what is stored and multiplied back to the tokens. What rows need of a
// number, or of a vector that only a team computes, crosses over in shared
// memory.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/OperationSupport.h"
#include "passes/gpu/VerifyKernel.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// What rows are needed for, and what both forms have
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::findRowValues(StepOp of) {
  auto depends = [&](Value value) { return rowValues.contains(value); };
  for (Operation &op : of.getBody().front()) {
    if (auto region = dyn_cast<EachDraftOp>(op)) {
      Block &body = region.getBody().front();
      for (auto [stack, argument] :
           llvm::zip(region.getStacks(), body.getArguments()))
        if (depends(stack))
          rowValues.insert(argument);
      for (Operation &each : body.without_terminator()) {
        findRowValuesOf(&each);
        // All threads get a sum over rows, but of drafts whose rows are there.
        if (isa<SumOp>(each) && depends(each.getOperand(0)))
          rowValues.insert(each.getResult(0));
      }
      for (auto [result, value] :
           llvm::zip(region.getResults(), region.getYield().getValues()))
        if (depends(value))
          rowValues.insert(result);
      continue;
    }
    if (isa<PathSolveOp, PathProductOp>(op)) {
      if (llvm::any_of(op.getOperands(), depends))
        rowValues.insert(op.result_begin(), op.result_end());
      continue;
    }
    if (!isa<AppendDraftsOp, YieldOp>(op))
      findRowValuesOf(&op);
  }
}

/// Finds the values of the fold that the step computes, too: all that neither
/// reads nor writes a state.
void GpuVerifyKernel::findSameValues() {
  if (!fold)
    return;
  for (auto [mine, other] :
       llvm::zip(fold.getBody().getArguments(), step.getBody().getArguments()))
    sameValues[mine] = other;
  auto isShared = [](Operation &op) {
    return isa<EachDraftOp, PathDecayOp, PathGramOp, PathSolveOp, PathProductOp,
               DecayProductOp, arith::ConstantOp>(op);
  };
  for (Operation &op : fold.getBody().front()) {
    if (!isShared(op))
      continue;
    for (Operation &other : step.getBody().front()) {
      if (other.getName() != op.getName())
        continue;
      DenseMap<Value, Value> inside;
      auto same = [&](Value value) {
        if (Value found = inside.lookup(value))
          return found;
        return canonical(value);
      };
      if (!OperationEquivalence::isEquivalentTo(
              &op, &other,
              [&](Value mine, Value theirs) {
                return success(same(mine) == theirs);
              },
              [&](Value mine, Value theirs) { inside[mine] = theirs; },
              OperationEquivalence::IgnoreLocations))
        continue;
      for (auto [mine, theirs] : llvm::zip(op.getResults(), other.getResults()))
        sameValues[mine] = theirs;
      break;
    }
  }
}

Value GpuVerifyKernel::canonical(Value value) const {
  auto found = sameValues.find(value);
  return found == sameValues.end() ? value : found->second;
}

void GpuVerifyKernel::chooseSizes() {
  for (StepOp form : forms())
    for (auto &[stack, sum] : separateScales(form))
      terms[stack] = sum;
  for (StepOp form : forms())
    findPairs(form);
  GpuKernel::chooseSizes();
  // Drafts keep their carries in versions of their own, so that the heads of a
  // carry and the tiles of a head need not wait for each other.
  headGroup = 1;
  ownsAllRows = false;
  rowValues.clear();
  for (StepOp form : forms())
    findRowValues(form);
  for (StepOp form : forms())
    findScaled(form);
  findTerms();
  if (fold)
    findSides(fold);
  findSides(step);
  layOutStacks();
}

int64_t GpuVerifyKernel::costOfKeyValues() {
  // A warp takes a draft.
  return 1 << 20;
}

/// All of a head of 128 × 128: what drafts have in common is computed once for
/// all of its rows. Vectors of decays are more of it: of larger heads, blocks
/// have more rows.
int64_t GpuVerifyKernel::tileBytes() {
  constexpr int64_t most = 64 << 10;
  return stateBits == 16 && decayedKeys.empty() ? most / 2 : most;
}

/// A warp for each draft. A thread has what was read of its row, and what is
/// appended, of all drafts: where that is much, there are fewer threads.
int64_t GpuVerifyKernel::fewestThreads(int64_t rows, bool areMany) {
  if (hasShapeOfOther)
    return 0;
  constexpr int64_t mostOfRow = 24, fewWarps = 4, manyRanks = 4;
  int64_t ofDraft = 0, ranks = 0;
  step.walk([&](ReadOp read) {
    int64_t ofRead = componentCount(unstackType(read.getQuery().getType()));
    ofDraft += ofRead;
    ranks = std::max(ranks, ofRead);
  });
  step.walk([&](AppendDraftsOp append) {
    for (FieldAttr field : append.getBuffer().getType().getFields())
      if (field.getSide() == Side::Value)
        ofDraft += componentCount(field);
  });
  int64_t warps = static_cast<int64_t>(llvm::PowerOf2Ceil(most()));
  if (most() * ofDraft > mostOfRow)
    warps = std::min(warps, fewWarps);
  // Threads without rows of their own idle wherever rows are the work, and many
  // blocks wait for them; keys that decay outweigh that, and many
  // vectors of a draft.
  if (areMany && decayedKeys.empty() && ranks < manyRanks)
    warps = std::clamp<int64_t>(rows / 32, 1, warps);
  return 32 * warps;
}

/// As many as find shared memory, and 102 registers a thread. Rows without a
/// state wait for little memory, one load after the other: of few drafts and
/// short vectors, 73 registers leave room for more of them.
int64_t GpuVerifyKernel::blocksAtOnce() {
  constexpr int64_t fewDrafts = 4, shortKeys = 128;
  bool isShort = isStateless() && most() <= fewDrafts && keySize <= shortKeys;
  int64_t threads = isShort ? 896 : 640;
  return std::max<int64_t>(
      1, std::min(blocksInShared(), threads / schedule.threads));
}

//===----------------------------------------------------------------------===//
// Reads that are added up
//===----------------------------------------------------------------------===//

/// Finds what is read of a state and only added to what is read of entries: the
/// sum takes the place of the first, and need be multiplied with numbers once.
void GpuVerifyKernel::findPairs(StepOp form) {
  /// In the region that alone takes what was read.
  auto argumentOf = [](Value read) -> BlockArgument {
    if (!read.hasOneUse())
      return {};
    auto region = dyn_cast<EachDraftOp>(*read.user_begin());
    if (!region)
      return {};
    BlockArgument argument = region.getBody().front().getArgument(
        read.use_begin()->getOperandNumber() -
        region.getStacks().getBeginOperandIndex());
    return argument.hasOneUse() ? argument : BlockArgument();
  };
  llvm::DenseMap<BlockArgument, Value> ofEntries;
  for (auto read : form.getBody().front().getOps<ReadBufferOp>())
    for (Value result : read.getResults())
      if (BlockArgument argument = argumentOf(result))
        ofEntries[argument] = result;
  for (auto read : form.getBody().front().getOps<ReadOp>()) {
    BlockArgument argument = argumentOf(read.getResult());
    auto sum = argument ? dyn_cast<arith::AddFOp>(*argument.user_begin())
                        : arith::AddFOp();
    if (!sum)
      continue;
    Value other = sum.getLhs() == argument ? sum.getRhs() : sum.getLhs();
    auto found = ofEntries.find(dyn_cast<BlockArgument>(other));
    if (found == ofEntries.end())
      continue;
    pairs[read.getResult()] = found->second;
    sum.getResult().replaceAllUsesWith(argument);
    sum.erase();
  }
}

//===----------------------------------------------------------------------===//
// Vectors times numbers
//===----------------------------------------------------------------------===//

/// Finds vectors that are read with after each was multiplied by a number: the
/// number can as well be multiplied to what was read, and the vector itself is
/// there for other products.
void GpuVerifyKernel::findScaled(StepOp form) {
  for (auto op : form.getBody().front().getOps<EachDraftOp>()) {
    Block &body = op.getBody().front();
    for (auto [result, yielded] :
         llvm::zip(op.getResults(), op.getYield().getValues())) {
      Scaled found;
      Value value = yielded;
      while (Operation *def = value.getDefiningOp()) {
        if (auto broadcast = dyn_cast<BroadcastOp>(def);
            broadcast && broadcast.getInput().getType().getRank() ==
                             broadcast.getResult().getType().getRank()) {
          value = broadcast.getInput();
          continue;
        }
        auto product = dyn_cast<arith::MulFOp>(def);
        if (!product)
          break;
        auto numberOf = [](Value operand) -> Value {
          auto broadcast = operand.getDefiningOp<BroadcastOp>();
          return broadcast && broadcast.getInput().getType().getRank() == 1
                     ? Value(broadcast.getInput())
                     : Value();
        };
        Value number = numberOf(product.getRhs());
        Value rest = product.getLhs();
        if (!number) {
          number = numberOf(product.getLhs());
          rest = product.getRhs();
        }
        if (!number)
          break;
        auto argument = dyn_cast<BlockArgument>(number);
        // Behind the stacks are carries.
        if (argument && argument.getOwner() == &body &&
            argument.getArgNumber() < op.getNumStacks())
          number = op.getStacks()[argument.getArgNumber()];
        else if (!number.getDefiningOp<DecayProductOp>())
          break;
        found.factors.push_back(number);
        value = rest;
      }
      auto argument = dyn_cast<BlockArgument>(value);
      if (found.factors.empty() || !argument || argument.getOwner() != &body ||
          argument.getArgNumber() >= op.getNumStacks() ||
          typeOf(argument).getRank() == 1 || dependsOnRows(argument) ||
          llvm::any_of(result.getUsers(), [](Operation *user) {
            return !isa<ReadOp, ReadBufferOp>(user);
          }))
        continue;
      found.stack = op.getStacks()[argument.getArgNumber()];
      if (componentCount(typeOf(found.stack)) != componentCount(typeOf(result)))
        continue;
      scaled[result] = found;
    }
  }
}

/// Vectors are multiplied as they came if all are, and of one type.
void GpuVerifyKernel::findTerms() {
  bool may = keySize % 16 == 0 && decayedKeys.empty();
  auto check = [&](Value vector) {
    auto found = terms.find(canonical(vector));
    may &= found != terms.end();
    if (!may)
      return;
    for (const ChunkTerm &term : found->second) {
      auto result = cast<OpResult>(canonical(term.base));
      auto region = cast<EachDraftOp>(result.getOwner());
      auto extend = region.getYield()
                        .getValues()[result.getResultNumber()]
                        .getDefiningOp<arith::ExtFOp>();
      may &= extend && typeOf(extend.getIn()).getElementType().isBF16();
    }
  };
  for (StepOp form : forms())
    for (Operation &op : form.getBody().front()) {
      if (isa<TransportOp>(op))
        may = false;
      else if (auto read = dyn_cast<ReadOp>(op))
        check(vectorOf(read.getQuery()));
      else if (auto read = dyn_cast<ReadBufferOp>(op))
        for (Value query : read.getQueries())
          check(vectorOf(query));
      else if (auto gram = dyn_cast<PathGramOp>(op))
        for (Value operand : {gram.getQueries(), gram.getKeys()})
          check(operand);
    }
  if (!may)
    terms.clear();
}

//===----------------------------------------------------------------------===//
// Demand
//===----------------------------------------------------------------------===//

bool GpuVerifyKernel::demand(Value value, unsigned side) {
  unsigned &known = sides[canonical(value)];
  unsigned before = known;
  known |= side;
  return known != before;
}

/// Where a value is stored from, if nobody else asks for it.
unsigned GpuVerifyKernel::naturalSide(RankedTensorType type,
                                      Value value) const {
  if (dependsOnRows(value))
    return Rows;
  return type.getRank() > 1 && type.getShape().back() == valueSize ? Rows
                                                                   : Teams;
}

/// Asks the operands of an operation of drafts for what its result is asked
/// for. True if that was news.
bool GpuVerifyKernel::findSidesOf(Operation *op, EachDraftOp region) {
  Value result = op->getResult(0);
  bool isNews = false;
  unsigned side = sides.lookup(result);
  if (!side)
    return false;
  auto ask = [&](Value operand, unsigned of) {
    Operation *def = operand.getDefiningOp();
    auto argument = dyn_cast<BlockArgument>(operand);
    bool isInside =
        (def && def->getParentOp() == region) ||
        (argument && argument.getOwner() == &region.getBody().front());
    if (!isInside)
      return;
    if (typeOf(operand).getRank() > 1) {
      isNews |= demand(operand, of);
      return;
    }
    if (dependsOnRows(operand)) {
      isNews |= demand(operand, Rows);
      return;
    }
    isNews |= demand(operand, Teams);
    if ((of & Rows) && def)
      isNews |= crossing.insert(operand);
  };
  auto cross = [&] {
    if (!(side & Rows))
      return;
    isNews |= crossing.insert(result);
    isNews |= demand(result, Teams);
    side = Teams;
  };
  if (isa<RotateOp>(op)) {
    cross();
  } else if (auto sum = dyn_cast<SumOp>(op)) {
    if (int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank()) {
      if (dependsOnRows(sum.getInput())) {
        side = Rows;
      } else {
        if (typeOf(result).getRank() > 1)
          cross();
        side = Teams;
      }
    }
  } else if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    int64_t from = broadcast.getInput().getType().getRank();
    int64_t to = broadcast.getResult().getType().getRank();
    if (from != to && from > 1 && broadcast.getDims().back() + 1 != to) {
      Value input = broadcast.getInput();
      if (dependsOnRows(input)) {
        side = Rows;
      } else {
        if ((side & Rows) && input.getDefiningOp())
          isNews |= crossing.insert(input);
        side = Teams;
      }
    }
  }
  for (Value operand : op->getOperands())
    ask(operand, side);
  return isNews;
}

void GpuVerifyKernel::findSidesOf(EachDraftOp op) {
  Block &body = op.getBody().front();
  OperandRange yielded = op.getYield().getValues();
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  for (auto [i, result] : llvm::enumerate(op.getResults())) {
    if (i >= carriesFrom)
      break;
    unsigned side = sides.lookup(result);
    if (side & Tokens)
      side = (side & ~Tokens) | Teams;
    if (appended.contains(result))
      side |= Teams;
    if (scaled.contains(result))
      continue;
    if (typeOf(yielded[i]).getRank() == 1)
      side = !side ? 0 : dependsOnRows(yielded[i]) ? Rows : Teams;
    if (side)
      demand(yielded[i], side);
  }
  bool isNews = true;
  while (std::exchange(isNews, false)) {
    for (size_t i = carriesFrom; i < yielded.size(); ++i) {
      BlockArgument before =
          body.getArgument(op.getNumStacks() + (i - carriesFrom));
      unsigned side = sides.lookup(before);
      if (!side)
        side = naturalSide(typeOf(yielded[i]), yielded[i]);
      isNews |= demand(before, side);
      isNews |= demand(yielded[i], side);
    }
    for (Operation &each : llvm::reverse(body.without_terminator()))
      isNews |= findSidesOf(&each, op);
  }
  for (auto [stack, argument] : llvm::zip(op.getStacks(), body.getArguments()))
    if (unsigned side = sides.lookup(argument))
      demand(stack, side);
}

void GpuVerifyKernel::findSides(StepOp form) {
  auto askVector = [&](Value vector) {
    auto found = terms.find(canonical(vector));
    if (found == terms.end()) {
      demand(vector, Teams);
      return;
    }
    for (const ChunkTerm &term : found->second) {
      demand(term.base, Tokens);
      if (term.scale)
        demand(term.scale, Teams);
    }
  };
  auto askQuery = [&](Value query) {
    askVector(vectorOf(query));
    if (auto found = scaled.find(canonical(query)); found != scaled.end())
      for (Value factor : found->second.factors)
        if (!factor.getDefiningOp<DecayProductOp>())
          demand(factor, Teams);
  };
  for (Value value : form.getYieldedOutputs())
    demand(value, naturalSide(unstackType(typeOf(value)), value));
  for (Operation &each : llvm::reverse(form.getBody().front())) {
    Operation *op = &each;
    if (op->getNumResults() && sameValues.contains(op->getResult(0)))
      continue;
    TypeSwitch<Operation *>(op)
        .Case([&](AppendDraftsOp append) {
          unsigned argument =
              cast<BlockArgument>(append.getBuffer()).getArgNumber();
          for (auto [i, value] : llvm::enumerate(append.getValues())) {
            FieldAttr field = append.getBuffer().getType().getFields()[i];
            if (field.getSide() == Side::Value)
              demand(value, Rows);
            else if (form == step)
              appended[value].push_back({field, argument, i});
          }
        })
        .Case([&](ReadOp read) { askQuery(read.getQuery()); })
        .Case<ReadBufferOp>(
            [&](auto read) { llvm::for_each(read.getQueries(), askQuery); })
        .Case([&](TransportOp transport) {
          for (Value query : transport.getQueries())
            demand(query, Teams);
        })
        .Case([&](PathDecayOp path) { demand(path.getDecays(), Teams); })
        .Case([&](PathGramOp gram) {
          for (Value operand : {gram.getQueries(), gram.getKeys()})
            askVector(operand);
          if (gram.getDecays())
            demand(gram.getDecays(), Teams);
        })
        .Case([&](PathSolveOp solve) {
          unsigned all = 0;
          for (Value result : solve.getResults())
            all |= sides.lookup(result);
          for (Value rhs : solve.getRhs())
            demand(rhs, all);
          for (Value scale : solve.getScales())
            demand(scale, all);
          for (Value result : solve.getResults())
            demand(result, all);
        })
        .Case([&](PathProductOp product) {
          for (Value value : product.getValues())
            demand(value, sides.lookup(product.getResult()));
        })
        .Case([&](EachDraftOp region) { findSidesOf(region); });
  }
}
