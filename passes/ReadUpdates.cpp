//===- ReadUpdates.cpp - reads of what a token has written ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/Passes.h"

namespace ladle {
#define GEN_PASS_DEF_READUPDATES
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

static int64_t rankOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

/// A value before it was repeated over heads.
static Value withFewestHeads(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
    if (rankOf(broadcast.getInput()) != rankOf(value))
      break;
    value = broadcast.getInput();
  }
  return value;
}

/// The other factor of a product, one of which is `factor` or as many heads of
/// it. Null of anything else.
static Value otherFactor(Value product, Value factor) {
  auto multiplication = withFewestHeads(product).getDefiningOp<arith::MulFOp>();
  if (!multiplication)
    return {};
  Value lhs = withFewestHeads(multiplication.getLhs()),
        rhs = withFewestHeads(multiplication.getRhs());
  if (lhs == withFewestHeads(factor))
    return rhs;
  return rhs == withFewestHeads(factor) ? lhs : Value();
}

/// Whether `value` is (k · q) v.
static bool isAnswerOfWrite(Value value, WriteOp write, Value query) {
  Value weight = otherFactor(value, write.getValue());
  // A number a head, repeated over dv.
  if (auto broadcast = weight ? weight.getDefiningOp<BroadcastOp>() : nullptr)
    weight = withFewestHeads(broadcast.getInput());
  auto sum = weight ? weight.getDefiningOp<SumOp>() : nullptr;
  return sum && otherFactor(sum.getInput(), write.getKey()) == query;
}

/// The sum of what `read` finds and of what `write` leaves for its query, or
/// null. `decay` may be null.
static arith::AddFOp findAnswer(ReadOp read, DecayOp decay, WriteOp write,
                                Value &query) {
  query = decay ? otherFactor(read.getQuery(), decay.getFactor())
                : withFewestHeads(read.getQuery());
  if (!query || rankOf(query) != 2 || !read->hasOneUse())
    return {};
  auto sum = dyn_cast<arith::AddFOp>(*read->user_begin());
  if (!sum)
    return {};
  Value other = sum.getLhs() == read.getResult() ? sum.getRhs() : sum.getLhs();
  // All that is written is part of the answer, and so does not wait for it.
  return isAnswerOfWrite(other, write, query) ? sum : arith::AddFOp();
}

/// Channels of a batch from which on instructions bound a step of a form, as
/// measured on an H100. Tokens of a prompt wait for one another, too.
static int64_t manyChannels(Form form) {
  return form == Form::PrefillScan ? 1 << 15 : 1 << 19;
}

/// Whether a head is a channel, of many, and its state in registers from what
/// it was to what it is.
static bool isOfChannels(StepOp step, int64_t batch) {
  bool holdsStates =
      step.getForm() == Form::PrefillScan ||
      (step.getForm() == Form::Decode && step.getRoute() == Route::Recurrent);
  return holdsStates &&
         llvm::all_of(step.getBody().getArgumentTypes(), [&](Type type) {
           auto pool = dyn_cast<PoolType>(type);
           return !pool || (pool.getValueSize() == 1 &&
                            (batch == 0 || batch * pool.getHeads() >=
                                               manyChannels(step.getForm())));
         });
}

namespace {
struct ReadUpdates : ladle::impl::ReadUpdatesBase<ReadUpdates> {
  using ReadUpdatesBase::ReadUpdatesBase;

  void runOnOperation() override;
};
} // namespace

void ReadUpdates::runOnOperation() {
  Block &body = getOperation().getBody().front();
  if (!isOfChannels(getOperation(), batch))
    return;
  bool isChanged = false;
  for (WriteOp write : llvm::make_early_inc_range(body.getOps<WriteOp>())) {
    auto decay = write.getState().getDefiningOp<DecayOp>();
    Value found = decay ? decay.getState() : write.getState();
    bool isStored =
        llvm::any_of(write->getUsers(), llvm::IsaPred<StoreStateOp>);
    if (!found.getDefiningOp<LoadStateOp>() || !isStored)
      continue;
    for (Operation *user : llvm::make_early_inc_range(found.getUsers())) {
      auto read = dyn_cast<ReadOp>(user);
      Value query;
      arith::AddFOp answer =
          read ? findAnswer(read, decay, write, query) : arith::AddFOp();
      if (!answer)
        continue;
      OpBuilder b(&body, std::next(Block::iterator(write)));
      auto after = ReadOp::create(b, read.getLoc(), read.getType(),
                                  write.getResult(), query);
      after->setDiscardableAttrs(read->getDiscardableAttrDictionary());
      answer.replaceAllUsesWith(after.getResult());
      answer.erase();
      read.erase();
      isChanged = true;
    }
  }
  if (!isChanged)
    return;
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
  sortTopologically(&body);
}
