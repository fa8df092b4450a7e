//===- ChunkStacks.cpp - stacks in shared memory, and who needs them ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// Elements from one row to the next. Where they leave 8 of 32, the 32 lanes of
/// a product meet 32 banks, along rows and along columns.
int64_t GpuChunkKernel::pitchOf(int64_t size) {
  constexpr int64_t banks = 32, part = 8;
  if (size == 1 || size == part)
    return size;
  size = std::max<int64_t>(size, 2 * part);
  return llvm::alignTo(llvm::alignTo(size, part) - part, banks) + part;
}

/// Memory of a stack that is no longer needed, or more.
Value GpuChunkKernel::allocate(int64_t rows, int64_t size, Type element) {
  Size key{rows, size, element ? element.getIntOrFloatBitWidth() : 32};
  SmallVector<Value> &list = unused[key];
  Value memory = list.empty() ? Value() : list.pop_back_val();
  if (!memory) {
    memory =
        shared({rows, pitchOf(size)}, size == 1 ? "numbers" : "stack", element);
    sizes[memory] = key;
  } else {
    takeAgain(memory);
  }
  return memory;
}

/// The memory of a stack can be another's of the same size, so that what is
/// between its elements and the end of a row stays zero.
void GpuChunkKernel::release(Value value) {
  // Others may be made of it.
  if (isTerm(value))
    return;
  for (auto *all : {&fullStacks, &tileStacks}) {
    auto found = all->find(value);
    if (found == all->end())
      continue;
    Value memory = found->second.memory;
    all->erase(found);
    auto isMine = [&](const auto &pair) {
      return pair.second.memory == memory;
    };
    bool isUsed = llvm::any_of(fullStacks, isMine) ||
                  llvm::any_of(tileStacks, isMine) ||
                  llvm::any_of(versions, isMine);
    if (auto known = sizes.find(memory); known != sizes.end() && !isUsed)
      unused[known->second].push_back(memory);
  }
}

/// Releases the stacks that no later operation takes.
void GpuChunkKernel::releaseAfter(Operation *op) {
  for (Value operand : op->getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()) || !operand.getDefiningOp())
      continue;
    bool isLast = !isForRows(operand) &&
                  llvm::none_of(operand.getUsers(), [&](Operation *user) {
                    return op->isBeforeInBlock(user);
                  });
    if (isLast)
      release(operand);
  }
  // Values inside of a region are no longer asked for.
  if (auto region = dyn_cast<EachDraftOp>(op)) {
    auto ofRows = rowNumbers.find(op);
    for (Operation &each : region.getBody().front().without_terminator())
      if (ofRows == rowNumbers.end() ||
          !ofRows->second.contains(each.getResult(0)))
        release(each.getResult(0));
  }
}

GpuChunkKernel::Stack GpuChunkKernel::makeStack(RankedTensorType ofOneToken,
                                                bool isTile, Type element) {
  Stack stack;
  stack.components = stack.step = componentCount(ofOneToken);
  if (ofOneToken.getRank() > 1)
    stack.size = isTile ? schedule.tileRows : ofOneToken.getShape().back();
  stack.isTile = isTile;
  stack.memory = allocate(rowsOf(stack.components), stack.size, element);
  return stack;
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// All that came before is over.
void GpuChunkKernel::syncAll() {
  if (!isRead.empty() || !isWritten.empty())
    barrier();
  isRead.clear();
  isWritten.clear();
  beginOp();
}

void GpuChunkKernel::beginOp() {
  readByOp.clear();
  writtenByOp.clear();
}

/// Before the operation at hand, whose accesses are still to come.
void GpuChunkKernel::syncBeforeOp() {
  barrier();
  isRead.clear();
  isWritten.clear();
  isRead.insert(readByOp.begin(), readByOp.end());
  isWritten.insert(writtenByOp.begin(), writtenByOp.end());
}

/// What others wrote is there before it is read.
void GpuChunkKernel::willRead(Value memory) {
  if (isWritten.contains(memory) && !writtenByOp.contains(memory))
    syncBeforeOp();
  isRead.insert(memory);
  readByOp.insert(memory);
}

/// Nobody reads any more what is written to. An operation may write elements
/// that the same thread has read.
void GpuChunkKernel::willWrite(Value memory) {
  if ((isWritten.contains(memory) && !writtenByOp.contains(memory)) ||
      (isRead.contains(memory) && !readByOp.contains(memory)))
    syncBeforeOp();
  isWritten.insert(memory);
  writtenByOp.insert(memory);
}

//===----------------------------------------------------------------------===//
// Demands
//===----------------------------------------------------------------------===//

bool GpuChunkKernel::isTileOf(RankedTensorType type, const Place &place) const {
  return tiles > 1 && type.getRank() > 1 &&
         type.getShape().back() == valueSize &&
         place.size == schedule.tileRows && place.size != valueSize;
}

const GpuChunkKernel::Stack *GpuChunkKernel::find(Value value,
                                                  bool isTile) const {
  const auto &all = isTile ? tileStacks : fullStacks;
  auto found = all.find(value);
  return found == all.end() ? nullptr : &found->second;
}

/// Of a value along dv, the tile of the block; of all others, all.
const GpuChunkKernel::Stack &GpuChunkKernel::stackOf(Value value,
                                                     bool isTile) const {
  const Stack *stack = find(value, isTile && tiles > 1);
  assert(stack && "a stack is made before it is used");
  return *stack;
}

bool GpuChunkKernel::demand(Value value, unsigned form) {
  RankedTensorType type = typeOf(value);
  bool isStack = isa_and_present<StepOp>(value.getParentBlock()->getParentOp());
  int64_t rank = type.getRank() - (isStack ? 1 : 0);
  if (rank == 1 || tiles == 1 || type.getShape().back() != valueSize)
    form = Full;
  unsigned &known = demands[value];
  bool isNews = (known | form) != known;
  known |= form;
  return isNews;
}

/// Of what is multiplied, the terms.
void GpuChunkKernel::demandTerms(Value value) {
  auto found = forms.find(value);
  if (found == forms.end()) {
    demand(value, Full);
    return;
  }
  for (const ChunkTerm &term : found->second) {
    demand(term.base, Full);
    if (term.scale)
      demand(term.scale, Full);
  }
}

SmallVector<GpuChunkKernel::Term, 2>
GpuChunkKernel::termsOf(Value value) const {
  auto found = forms.find(value);
  if (found == forms.end())
    return {{stackOf(value), {}}};
  SmallVector<Term, 2> terms;
  for (const ChunkTerm &term : found->second)
    terms.push_back(
        {stackOf(term.base),
         term.scale ? std::optional(stackOf(term.scale)) : std::nullopt});
  return terms;
}

/// Whether what is multiplied of a value is there.
bool GpuChunkKernel::hasStack(Value value) const {
  auto found = forms.find(value);
  if (found == forms.end())
    return find(value, false);
  return llvm::all_of(found->second, [&](const ChunkTerm &term) {
    return find(term.base, false);
  });
}

bool GpuChunkKernel::isTerm(Value value) const {
  return llvm::any_of(forms, [&](const auto &form) {
    return llvm::any_of(form.second, [&](const ChunkTerm &term) {
      return term.base == value || term.scale == value;
    });
  });
}

/// The type in which tokens came that are multiplied alone; or null.
Type GpuChunkKernel::shortElementOf(OpResult result) const {
  if (!isTerm(result) || typeOf(result).getRank() < 3 ||
      !llvm::all_of(result.getUsers(), [&](Operation *user) {
        return isa<ReadOp, PathGramOp, FoldDraftsOp>(user) &&
               forms.contains(result);
      }))
    return {};
  auto region = cast<EachDraftOp>(result.getOwner());
  auto extend = region.getYield()
                    .getValues()[result.getResultNumber()]
                    .getDefiningOp<arith::ExtFOp>();
  return typeOf(extend.getIn()).getElementType();
}

/// The number of a token that a product is multiplied by.
Value GpuChunkKernel::scaleAt(const Stack &scale, Value token) {
  return memref::LoadOp::create(
      b, scale.memory, ValueRange{add(token, scale.first), constantIndex(0)});
}

/// From what is multiplied and stored back to the tokens.
void GpuChunkKernel::findDemands() {
  // Who is ahead copies what warps take rows of.
  llvm::SaveAndRestore threads(schedule.threads);
  if (shape.ahead)
    schedule.threads = shape.threadsOfCrew();
  // Those of a state's step stand for all tokens.
  for (Value value : step.getYieldedOutputs())
    if (!holdsRows || !isRowStack(value))
      demand(value, Tile);
  auto demandValues = [&](ValueRange values) {
    for (Value value : values)
      if (holdsRows)
        demandRows(value);
      else
        demand(value, Tile);
  };
  for (Operation &op : llvm::reverse(step.getBody().front()))
    TypeSwitch<Operation *>(&op)
        .Case([&](ReadOp read) { demandTerms(read.getQuery()); })
        .Case([&](PathDecayOp path) {
          demand(path.getDecays(), Full);
          decayStacks.insert(path.getDecays());
        })
        .Case([&](PathGramOp gram) {
          for (Value operand : {gram.getQueries(), gram.getKeys()})
            demandTerms(operand);
          if (gram.getDecays()) {
            demand(gram.getDecays(), Full);
            decayStacks.insert(gram.getDecays());
          }
        })
        .Case([&](PathSolveOp solve) {
          demandValues(solve.getRhs());
          demandValues(solve.getScales());
        })
        .Case([&](PathProductOp product) { demandValues(product.getValues()); })
        .Case([&](FoldDraftsOp fold) {
          for (Value key : fold.getKeys())
            demandTerms(key);
          demandValues(fold.getValues());
          if (fold.getDecays()) {
            demand(fold.getDecays(), Full);
            decayStacks.insert(fold.getDecays());
          }
        })
        .Case([&](AppendDraftsOp append) {
          for (auto [value, field] :
               llvm::zip(append.getValues(),
                         append.getBuffer().getType().getFields()))
            demand(value, field.getSide() == Side::Value ? Tile : Full);
        })
        .Case([&](EachDraftOp region) {
          if (holdsRows && isRowOp(region))
            for (Value value : region.getYield().getValues())
              demandRowsOf(value, region);
          findDemandsOf(region);
        });
}

void GpuChunkKernel::findDemandsOf(EachDraftOp op) {
  Block &body = op.getBody().front();
  OperandRange yielded = op.getYield().getValues();
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  for (auto [i, value] : llvm::enumerate(yielded)) {
    if (i >= carriesFrom)
      demand(value, Full);
    else if (unsigned form = demands.lookup(op.getResult(i)))
      demand(value, form);
  }
  for (Operation &each : llvm::reverse(body.without_terminator())) {
    unsigned form = demands.lookup(each.getResult(0));
    if (!form)
      continue;
    // Turned, or summed, is a vector as a whole.
    if (isa<RotateOp>(each))
      form = Full;
    if (auto sum = dyn_cast<SumOp>(each);
        sum && int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank())
      form = Full;
    if (auto broadcast = dyn_cast<BroadcastOp>(each);
        broadcast && !keepsLastDimension(broadcast))
      form = Full;
    for (Value operand : each.getOperands())
      if (Operation *def = operand.getDefiningOp();
          isa<BlockArgument>(operand) || def->getParentOp() == op)
        demand(operand, form);
  }
  for (auto [stack, argument] : llvm::zip(op.getStacks(), body.getArguments()))
    if (unsigned form = demands.lookup(argument))
      demand(stack, form);
}
