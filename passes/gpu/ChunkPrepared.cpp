//===- ChunkPrepared.cpp - steps that a kernel of their own prepares ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Of few prompts, blocks with rows are few, and each waits for what needs no
// state. That needs no step before it, either: a kernel of its own makes it of
// many steps at once, and leaves it in memory; what all tiles of a head have in
// common is made once. In blocks with rows, a warp copies it to one of several
// places in shared memory, some steps ahead of those with rows.
//
// Both kernels are made as one whose threads part, as in ChunkAhead.cpp, and
// then taken apart. Runs of steps of all prompts are numbered one after the
// other: those of a row begin at the tokens before it over those of a run, and
// one more for each row before. A launch takes as many as there is memory for.
//
// The second starts as soon as all blocks of the first have: these are as many
// as leave room for it, and go through all runs of all heads. Who has prepared
// a run of a head adds the blocks that take it to its counter, and each of them
// takes one away, so that all counters are 0 in the end, as they were.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/gpu/ChunkKernel.h"

using namespace mlir;
using namespace ladle;

/// Steps of a run: of few heads several, so that who takes them asks less often
/// whether they are there.
static constexpr int64_t kMostOfRun = 4, kFewHeads = 16;
/// Tokens of prompts whose steps are prepared at once, if memory of so many
/// bytes is enough, and runs beside them, as rows end where they do.
static constexpr int64_t kTokensAtOnce = 2048, kRunsBeside = 2;
static constexpr int64_t kMostBytes = 128 << 20;

static int64_t bytesOf(Value memory) {
  auto type = cast<MemRefType>(memory.getType());
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

std::string ladle::prepareNameOf(StepOp step) {
  return (step.getSymName() + "_prepare").str();
}

void GpuPreparedSteps::addArguments(OpBuilder &b, SmallVectorImpl<Type> &types,
                                    SmallVectorImpl<std::string> &names) {
  types.push_back(MemRefType::get({ShapedType::kDynamic}, b.getI8Type()));
  names.push_back("prepared");
  types.push_back(MemRefType::get({ShapedType::kDynamic}, b.getI32Type()));
  names.push_back("ready");
  for (const char *name : {"first_run", "row_count", "head_count"}) {
    types.push_back(b.getI32Type());
    names.push_back(name);
  }
}

//===----------------------------------------------------------------------===//
// What passes from one kernel to the other
//===----------------------------------------------------------------------===//

/// Finds the memory that one writes and the other reads, and where it lies
/// among what is prepared of a step.
void GpuChunkKernel::findPassed() {
  isRefused |= dependsOnTile(prepared.ahead);
  for (BlockArgument memory : function.getWorkgroupAttributions()) {
    auto isUsedIn = [&](scf::ForOp loop) {
      return llvm::any_of(memory.getUsers(), [&](Operation *user) {
        return loop->isProperAncestor(user);
      });
    };
    if (!isUsedIn(prepared.ahead) || !isUsedIn(prepared.ofRows))
      continue;
    isRefused |= llvm::any_of(memory.getUsers(), [&](Operation *user) {
      return !prepared.ahead->isProperAncestor(user) &&
             !prepared.ofRows->isProperAncestor(user);
    });
    isRefused |= bytesOf(memory) % GpuPreparedSteps::kCopyBytes != 0;
    prepared.passed.emplace_back(memory, prepared.bytesOfStep);
    prepared.bytesOfStep += bytesOf(memory);
  }
}

int64_t GpuChunkKernel::stepsOfRun() const {
  return std::clamp<int64_t>(kFewHeads / heads, 1, kMostOfRun);
}

/// Runs that are prepared at once.
int64_t GpuChunkKernel::runsAtOnce() const {
  return std::clamp<int64_t>(
      kMostBytes /
          std::max<int64_t>(1, stepsOfRun() * heads * prepared.bytesOfStep),
      1, kTokensAtOnce / (stepsOfRun() * tokensAtOnce()) + kRunsBeside);
}

/// The number of the first step of a row, that of a run.
Value GpuChunkKernel::firstStepOf(Value ofRow) {
  Value none = constantIndex(0);
  Value before =
      arith::SubIOp::create(b, loadNumber(cuSeqlens, {ofRow}, "first_token"),
                            loadNumber(cuSeqlens, {none}, "first_of_all"));
  return times(arith::AddIOp::create(
                   b, over(before, stepsOfRun() * tokensAtOnce()), ofRow),
               stepsOfRun());
}

/// The counter of the run of a step, of those of the launch.
Value GpuChunkKernel::counterOf(Value ofStep) {
  return arith::AddIOp::create(b, times(over(ofStep, stepsOfRun()), heads),
                               head);
}

/// A place of a memory in shared memory, all its elements in a row.
static Value flat(OpBuilder &b, Location loc, Value memory) {
  SmallVector<ReassociationIndices> all{{0, 1}};
  return memref::CollapseShapeOp::create(b, loc, memory, all);
}

/// Calls `copy` for the parts of 16 bytes of what passes that are a thread's,
/// with the memory, that of all blocks, and the first element in both.
void GpuChunkKernel::forPassed(Value ofStep, int64_t threads,
                               ArrayRef<Value> places, CopyPart copy) {
  Value first = times(arith::AddIOp::create(b, times(ofStep, heads), head),
                      prepared.bytesOfStep);
  for (auto [each, place] : llvm::zip(prepared.passed, places)) {
    auto type = cast<MemRefType>(each.first.getType());
    int64_t wide =
        GpuPreparedSteps::kCopyBytes * 8 / type.getElementTypeBitWidth();
    int64_t parts = bytesOf(place) / GpuPreparedSteps::kCopyBytes;
    auto all = MemRefType::get({parts * wide}, type.getElementType());
    Value ofAll = memref::ViewOp::create(b, all, prepared.memory,
                                         add(first, each.second), ValueRange());
    Value held = flat(b, b.getLoc(), place);
    for (int64_t i = 0; i < parts; i += threads) {
      Value part = add(thread, i);
      Value isPart = i + threads > parts ? isBelow(part, parts) : Value();
      guarded(isPart, [&] { copy(held, ofAll, times(part, wide), wide); });
    }
  }
}

void ladle::eraseUnusedShared(gpu::GPUFuncOp of) {
  unsigned first = of.getFunctionType().getNumInputs();
  for (unsigned i = of.getNumWorkgroupAttributions(); i-- > 0;) {
    if (!of.getWorkgroupAttributions()[i].use_empty())
      continue;
    of.getBody().front().eraseArgument(first + i);
    of->setAttr(gpu::GPUFuncOp::getNumWorkgroupAttributionsAttrName(),
                IntegerAttr::get(IntegerType::get(of.getContext(), 64),
                                 of.getNumWorkgroupAttributions() - 1));
  }
}

void GpuChunkKernel::takeApart() {
  findPassed();
  IRMapping mapping;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(function);
    prepared.kernel = cast<gpu::GPUFuncOp>(b.clone(*function, mapping));
  }
  makePreparing(mapping);
  makeTaking();
}
