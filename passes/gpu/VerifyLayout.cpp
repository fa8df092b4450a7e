//===- VerifyLayout.cpp - where vectors of drafts lie in a verify kernel --===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Stacks of vectors over dk have rows of one matrix in shared memory, so that
// any of them can stand beside each other in a product. Where decays are
// vectors there are many, and of large heads they decide how many blocks a
// multiprocessor has. So a stack may take the rows of another: of one that
// nobody but the team of a draft reads, as soon as the team has read it; and
// when the forms part, of any that they no longer need.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

/// Of so long heads and of states of 16 bits, rows are what keeps a block from
/// a multiprocessor: vectors that are stored as entries wait in registers.
static constexpr int64_t kLongKeys = 128;
static constexpr int64_t kWarp = 32;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool hasVectorDecays(PathGramOp gram) {
  return gram.getDecays() && typeOf(gram.getDecays()).getRank() > 2;
}

/// Whether each team computes its draft alone.
static bool worksByTeams(EachDraftOp region) {
  return region.getCarries().empty() &&
         llvm::all_of(region.getBody().front().without_terminator(),
                      [](Operation &op) {
                        return isa<arith::ArithDialect>(op.getDialect());
                      });
}

/// Moves Gram products to the decays of the paths that they walk along: what
/// they take is then free.
static void hoistGrams(StepOp form) {
  Block &body = form.getBody().front();
  for (auto path : body.getOps<PathDecayOp>()) {
    auto isBefore = [&](Value operand) {
      Operation *def = operand.getDefiningOp();
      return !def || def->isBeforeInBlock(path);
    };
    for (auto gram : llvm::make_early_inc_range(body.getOps<PathGramOp>()))
      if (hasVectorDecays(gram) && path.getDecays() == gram.getDecays() &&
          path->isBeforeInBlock(gram) &&
          llvm::all_of(gram->getOperands(), isBefore))
        gram->moveAfter(path);
  }
}

//===----------------------------------------------------------------------===//
// Who takes a stack
//===----------------------------------------------------------------------===//

namespace {
/// Who takes the stacks of a step and of its fold.
class StackUses {
public:
  /// `sameValues` are those of the fold that the step has, `vectorOf` the stack
  /// of vectors that a query is but for its factors.
  StackUses(ArrayRef<StepOp> forms,
            const llvm::DenseMap<Value, Value> &sameValues,
            llvm::function_ref<Value(Value)> vectorOf)
      : haveParted(forms.size() > 1) {
    auto canonical = [&](Value value) {
      auto found = sameValues.find(value);
      return found == sameValues.end() ? value : found->second;
    };
    for (auto &[mine, other] : sameValues)
      common.insert(other.getDefiningOp());
    for (StepOp form : forms)
      for (Operation &op : form.getBody().front()) {
        if (op.getNumResults() && sameValues.contains(op.getResult(0)))
          continue;
        for (OpOperand &operand : op.getOpOperands()) {
          Value stack = canonical(operand.get());
          uses[stack].push_back({&op, isOfOwnDraft(operand)});
          if (Value vector = canonical(vectorOf(stack)); vector != stack)
            uses[vector].push_back({&op, /*ofOwnDraft=*/false});
        }
      }
  }

  /// Whether it comes before the forms part.
  bool isCommon(Operation *op) const {
    return !haveParted || common.contains(op);
  }

  /// Whether, once `region` has taken a stack, nobody does, and before it teams
  /// did only, of their own drafts.
  bool isLeftBy(EachDraftOp region, Value stack) const {
    return llvm::all_of(uses.lookup(stack), [&](const Use &use) {
      bool isBeside = use.op->getBlock() == region->getBlock();
      // What both forms have comes before all that one has alone.
      bool isBefore = isCommon(use.op) || !isCommon(region);
      isBefore &= isBeside ? use.op->isBeforeInBlock(region) : isCommon(use.op);
      // A row is of one form.
      bool isElsewhere = !isBeside && !isCommon(use.op) && !isCommon(region);
      return use.op == region || isElsewhere || (isBefore && use.ofOwnDraft);
    });
  }

  /// Whether nobody takes a stack when the forms have parted, but to store it.
  bool isLeftByBoth(Value stack) const {
    Operation *def = stack.getDefiningOp();
    return haveParted && def && isCommon(def) &&
           llvm::all_of(uses.lookup(stack), [&](const Use &use) {
             return isCommon(use.op) || isa<AppendDraftsOp>(use.op);
           });
  }

  /// Whether teams alone take a stack, each of its own draft, and before the
  /// forms part.
  bool staysWithTeams(Value stack) const {
    return isCommon(stack.getDefiningOp()) &&
           llvm::all_of(uses.lookup(stack), [&](const Use &use) {
             return isa<EachDraftOp>(use.op) && use.ofOwnDraft &&
                    isCommon(use.op);
           });
  }

private:
  struct Use {
    Operation *op;
    bool ofOwnDraft; ///< by the team of the draft
  };

  static bool isOfOwnDraft(OpOperand &operand) {
    Operation *op = operand.getOwner();
    if (auto region = dyn_cast<EachDraftOp>(op))
      return worksByTeams(region);
    auto gram = dyn_cast<PathGramOp>(op);
    return gram && hasVectorDecays(gram) && operand == gram.getQueriesMutable();
  }

  bool haveParted;
  llvm::DenseSet<Operation *> common;
  llvm::DenseMap<Value, SmallVector<Use>> uses;
};
} // namespace

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Gives every stack of vectors over dk its rows of one matrix. Those that are
/// multiplied as they came have a matrix of their own.
void GpuVerifyKernel::layOutStacks() {
  vectorRows.clear();
  tokenRows.clear();
  heldPaths.clear();
  takenStacks.clear();
  fillsFreed.clear();
  vectorCount = tokenCount = 0;
  if (!decayedKeys.empty())
    for (StepOp form : forms())
      hoistGrams(form);
  StackUses uses(forms(), sameValues,
                 [&](Value query) { return vectorOf(query); });
  auto place = [&](Value value, RankedTensorType ofOneDraft) {
    if (ofOneDraft.getRank() == 1 || ofOneDraft.getShape().back() != keySize ||
        !vectorRows.insert({value, vectorCount}).second)
      return;
    vectorCount += most() * componentCount(ofOneDraft);
  };
  bool storesFromRegisters = keySize >= kLongKeys && stateBits == 16;
  // Where the rows of a result may be another's. Null if nowhere.
  auto rowsFor = [&](Value result, EachDraftOp region) -> Value {
    if (!terms.empty() || !worksByTeams(region))
      return {};
    auto mayTake = [&](Value stack) {
      return stack.getType() == result.getType() &&
             vectorRows.contains(stack) && !takenStacks.contains(stack) &&
             typeOf(stack).getRank() == 3;
    };
    for (Value each : region.getStacks())
      if (Value stack = canonical(each); mayTake(stack) &&
                                         !appended.contains(stack) &&
                                         uses.isLeftBy(region, stack))
        return stack;
    if (uses.isCommon(region))
      return {};
    for (bool isStored : {false, true})
      for (Value stack : llvm::make_first_range(vectorRows))
        if (mayTake(stack) && appended.contains(stack) == isStored &&
            (!isStored || storesFromRegisters) && uses.isLeftByBoth(stack)) {
          fillsFreed.insert(region);
          return stack;
        }
    return {};
  };
  // Whether every draft has a team, however few threads there will be.
  bool haveTeams =
      (schedule.threads ? schedule.threads : fewestThreads(valueSize, true)) >=
      kWarp * most();
  for (StepOp form : forms())
    for (Operation &op : form.getBody().front()) {
      if (op.getNumResults() && sameValues.contains(op.getResult(0)))
        continue;
      if (!isa<EachDraftOp, PathDecayOp, PathSolveOp, PathProductOp,
               TransportOp>(op))
        continue;
      auto region = dyn_cast<EachDraftOp>(op);
      for (Value result : op.getResults()) {
        bool ofTeams =
            (sides.lookup(result) & Teams) && !scaled.contains(result);
        Value taken = ofTeams && region ? rowsFor(result, region) : Value();
        if (taken) {
          int64_t row = vectorRows.lookup(taken);
          vectorRows.insert({result, row});
          takenStacks.insert(taken);
          continue;
        }
        if ((sides.lookup(result) & Tokens) &&
            tokenRows.insert({result, tokenCount}).second)
          tokenCount += most();
        if (isa<PathDecayOp>(op) && typeOf(result).getRank() > 2 && haveTeams &&
            uses.staysWithTeams(result)) {
          heldPaths.insert(result);
          continue;
        }
        bool isOrigin = false;
        if (auto transport = dyn_cast<TransportOp>(op))
          isOrigin = llvm::is_contained(transport.getOrigins(), result);
        if (ofTeams && (isOrigin || !isa<TransportOp>(op)))
          place(result, unstackType(typeOf(result)));
      }
      if (region)
        for (Operation &each : region.getBody().front().without_terminator())
          if (crossing.contains(each.getResult(0)))
            place(each.getResult(0), typeOf(each.getResult(0)));
    }
  // Rows of a product lie in different banks.
  vectorPitch = keySize % 32 == 0 ? keySize + 16 : llvm::alignTo(keySize, 4);
  // Lanes load 8 bytes of them for products with floats, else 16.
  tokenPitch = keySize + (stateBits == 32 ? 16 : 32);
}

/// Of fewer teams than drafts, none has the path of each of its drafts at hand.
void GpuVerifyKernel::placeHeldPaths() {
  for (StepOp form : forms())
    for (auto path : form.getBody().front().getOps<PathDecayOp>())
      if (heldPaths.erase(path.getResult())) {
        vectorRows.insert({path.getResult(), vectorCount});
        vectorCount += most();
      }
}

/// The vector of a team's own draft in rows that others are put into. A team
/// that has none reads its own rows, too, if there are as many: others may be
/// storing in theirs.
GpuKernel::Components GpuVerifyKernel::loadTaken(const Stack &stack,
                                                 Value draft, Value isThere,
                                                 const Place &place) {
  if (most() % teams() == 0)
    return loadStack(stack, draft, place);
  auto type = VectorType::get({place.width}, b.getF32Type());
  SmallVector<Type> types(place.chunks, type);
  auto branch = scf::IfOp::create(b, types, isThere, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  scf::YieldOp::create(b, Components(place.chunks, zero));
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loadStack(stack, draft, place));
  return Components(branch.getResults());
}

int64_t GpuVerifyKernel::sharedBytes(int64_t rows) {
  int64_t reads = 0;
  for (StepOp form : forms()) {
    int64_t mine = 0;
    for (auto read : form.getBody().front().getOps<ReadOp>())
      mine += componentCount(read.getQuery().getType());
    reads = std::max(reads, mine);
  }
  int64_t bytes = GpuKernel::sharedBytes(rows) + vectorCount * vectorPitch * 4 +
                  tokenCount * tokenPitch * 2 + reads * (rows + 4) * 4;
  for (StepOp form : forms())
    form.walk([&](ReadOp read) {
      // What is rebuilt, or stored but not where it was, is apart.
      if (!isa_and_present<LoadStateOp>(read.getState().getDefiningOp()))
        bytes += rows * keySize * 4;
    });
  return bytes;
}
