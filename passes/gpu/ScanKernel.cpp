//===- ScanKernel.cpp - prompts token by token as a GPU kernel ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/ScanKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "passes/build/Components.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace ladle;

/// Tokens that are asked for ahead of the one at hand, and the bytes of a
/// thread that they may take; of blocks that have a multiprocessor's registers
/// for themselves, more.
static constexpr int64_t kMostAhead = 4, kBytesAhead = 176, kMostOfFew = 6,
                         kBytesOfFew = 264;

//===----------------------------------------------------------------------===//
// What can be lowered, and how it is spread
//===----------------------------------------------------------------------===//

/// What the first token finds of a state that is stored; null for nothing.
static LoadStateOp loadOf(StoreStateOp store) {
  for (Operation *user : store.getPool().getUsers())
    if (auto load = dyn_cast<LoadStateOp>(user))
      return load;
  return {};
}

/// What the token leaves behind of a carry.
Value GpuScanKernel::nextOf(BlockArgument carry) {
  auto carries = step.getArgumentsOfKind(ArgumentKind::Carry);
  return step.getYieldedCarries()[llvm::find(carries, carry) - carries.begin()];
}

/// Where it is stored from.
Place GpuScanKernel::storedPlace(BlockArgument carry) {
  Value next = nextOf(carry);
  return placeOf(cast<RankedTensorType>(next.getType()), dependsOnRows(next));
}

LogicalResult GpuScanKernel::check() {
  if (failed(GpuKernel::check()))
    return failure();
  for (StoreStateOp store : step.getBody().front().getOps<StoreStateOp>())
    if (!loadOf(store))
      return store.emitError("cannot be lowered for GPUs: a prompt stores a "
                             "state that it has not loaded");
  return success();
}

void GpuScanKernel::chooseSizes() {
  GpuKernel::chooseSizes();
  // Registers hold f32, whatever memory does.
  stateBits = 32;
  // Carries are a block's own until the prompt has ended, so that heads and
  // tiles need not wait for each other; but those that come from rows are
  // asked for by all of a head.
  headGroup = 1;
  ownsAllRows = false;
  findRowValues(step);
  for (Value next : step.getYieldedCarries())
    ownsAllRows |= dependsOnRows(next);
}

/// Where heads share a block, what a token gives is computed by all lanes of a
/// row: they are as few as there are registers for, or as many as keep a large
/// GPU busy.
int64_t GpuScanKernel::fewestLanes() {
  constexpr int64_t elements = 16, most = 2, threadsToFill = 32 << 10;
  int64_t fewest = std::max<int64_t>(1, keySize / elements);
  while (fewest < most && schedule.batch &&
         schedule.batch * heads * valueSize * fewest * 2 <= threadsToFill)
    fewest *= 2;
  return fewest;
}

/// Many rows of few registers wait for one another's instructions.
int64_t GpuScanKernel::blocksAtOnce() {
  constexpr int64_t threads = 512;
  return packed > 1 && !areFew()
             ? std::max<int64_t>(1, threads / schedule.threads)
             : 0;
}

/// Whether each block has the registers of a multiprocessor for itself.
bool GpuScanKernel::areFew() const {
  return schedule.batch &&
         schedule.batch * heads / packed * tiles <= kBlocksToFill;
}

//===----------------------------------------------------------------------===//
// Arguments and the task of a block
//===----------------------------------------------------------------------===//

void GpuScanKernel::addArguments(SmallVectorImpl<Type> &types,
                                 SmallVectorImpl<std::string> &names) {
  GpuKernel::addArguments(types, names);
  types.push_back(MemRefType::get({ShapedType::kDynamic}, b.getI32Type()));
  names.push_back("cu_seqlens");
}

void GpuScanKernel::takeArguments(unsigned &next) {
  GpuKernel::takeArguments(next);
  cuSeqlens = function.getBody().front().getArgument(next++);
}

void GpuScanKernel::emitRowStart() {
  firstToken = loadNumber(cuSeqlens, {row}, "first_token");
  Value end = loadNumber(cuSeqlens, {add(row, 1)}, "end_of_tokens");
  tokenCount = arith::SubIOp::create(b, end, firstToken);
}

void GpuScanKernel::emitPaddedRow() {
  auto loop =
      scf::ForOp::create(b, constantIndex(0), tokenCount, constantIndex(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  zeroOutputs(arith::AddIOp::create(b, firstToken, loop.getInductionVar()));
}

/// The token at hand, or one ahead of it: behind the last there is none to
/// load, and an empty prompt has none at all.
Value GpuScanKernel::tokenRow() {
  Value at = arith::AddIOp::create(b, firstToken, token);
  if (!loadsToken)
    return at;
  Value last = arith::AddIOp::create(b, firstToken, add(tokenCount, -1));
  return arith::MaxSIOp::create(b, arith::MinSIOp::create(b, at, last),
                                constantIndex(0));
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

GpuKernel::Components GpuScanKernel::loadArgument(BlockArgument argument,
                                                  const Place &place) {
  ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
  if (kind == ArgumentKind::Token) {
    llvm::SaveAndRestore loads(loadsToken, true);
    return GpuKernel::loadArgument(argument, place);
  }
  if (kind != ArgumentKind::Carry)
    return GpuKernel::loadArgument(argument, place);
  for (const Carried &each : carried)
    if (each.argument == argument && each.place.key() == place.key())
      return each.current;
  Carried &mine = carried.emplace_back(
      Carried{argument, place, GpuKernel::loadArgument(argument, place), {}});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(startOfToken);
  for (Value initial : mine.initial)
    mine.current.push_back(
        UnrealizedConversionCastOp::create(b, initial.getType(), initial)
            .getResult(0));
  return mine.current;
}

/// Answers the token of the loop, which yields rows of states.
LogicalResult GpuScanKernel::emitToken(const Sheet &sheet) {
  if (failed(emitOutputs(step)))
    return failure();
  SmallVector<Value> rows;
  for (StoreStateOp store : step.getBody().front().getOps<StoreStateOp>()) {
    b.setLoc(store.getLoc());
    FailureOr<Components> all = stateRows(store.getState(), sheet, 0);
    if (failed(all))
      return failure();
    llvm::append_range(rows, *all);
  }
  scf::YieldOp::create(b, rows);
  return success();
}

/// What tokens leave of carries becomes values of the loop, as a step that
/// decodes would have stored and loaded them.
FailureOr<scf::ForOp> GpuScanKernel::carryAlong(scf::ForOp loop) {
  b.setInsertionPoint(loop.getBody()->getTerminator());
  for (BlockArgument carry : step.getArgumentsOfKind(ArgumentKind::Carry))
    loadArgument(carry, storedPlace(carry));
  SmallVector<Value> initial, current, next;
  // What comes from carries at a place may ask for others.
  for (size_t i = 0; i < carried.size(); ++i) {
    BlockArgument argument = carried[i].argument;
    Place place = carried[i].place;
    FailureOr<Components> all = get(nextOf(argument), place);
    if (failed(all))
      return failure();
    Type element = cast<RankedTensorType>(argument.getType()).getElementType();
    for (Value part : *all)
      next.push_back(element.isF32() ? part : toF32(convertTo(part, element)));
    llvm::append_range(initial, carried[i].initial);
    llvm::append_range(current, carried[i].current);
  }
  // What is in shared memory is written for the next token when all have read
  // it for this one.
  if (loop.getBody()
          ->walk([](gpu::BarrierOp) { return WalkResult::interrupt(); })
          .wasInterrupted())
    barrier();
  IRRewriter rewriter(b);
  auto yields = [&](OpBuilder &, Location, ArrayRef<BlockArgument> arguments) {
    for (auto [from, to] : llvm::zip(current, arguments))
      from.replaceAllUsesWith(to);
    for (Value &each : next)
      if (auto found = llvm::find(current, each); found != current.end())
        each = arguments[found - current.begin()];
    return SmallVector<Value>(next);
  };
  FailureOr<LoopLikeOpInterface> changed = loop.replaceWithAdditionalYields(
      rewriter, initial, /*replaceInitOperandUsesInLoop=*/false, yields);
  if (failed(changed))
    return failure();
  for (Value each : current)
    each.getDefiningOp()->erase();
  return cast<scf::ForOp>(changed->getOperation());
}

/// e^(a x) = 2^((a log2 e) x): a factor that no token changes has the logarithm
/// once, where a power may be approximate.
static void usePowersOfTwo(scf::ForOp loop, OpBuilder &b) {
  OpBuilder::InsertionGuard guard(b);
  loop.getBody()->walk([&](math::ExpOp exponential) {
    auto product = exponential.getOperand().getDefiningOp<arith::MulFOp>();
    if (!product || !arith::bitEnumContainsAll(exponential.getFastmath(),
                                               arith::FastMathFlags::afn))
      return;
    Value factor = product.getLhs(), other = product.getRhs();
    if (!loop.isDefinedOutsideOfLoop(factor))
      std::swap(factor, other);
    if (!loop.isDefinedOutsideOfLoop(factor))
      return;
    Location loc = exponential.getLoc();
    Type type = exponential.getType();
    b.setInsertionPoint(loop);
    auto logarithm =
        b.getFloatAttr(getElementTypeOrSelf(type), llvm::numbers::log2e);
    TypedAttr value = logarithm;
    if (auto vector = dyn_cast<VectorType>(type))
      value = DenseElementsAttr::get(vector, logarithm);
    factor = arith::MulFOp::create(b, loc, factor,
                                   arith::ConstantOp::create(b, loc, value));
    b.setInsertionPoint(exponential);
    Value power = arith::MulFOp::create(b, loc, factor, other);
    exponential.replaceAllUsesWith(
        math::Exp2Op::create(b, loc, power, exponential.getFastmath())
            .getResult());
    exponential.erase();
    if (product.use_empty())
      product.erase();
  });
}

/// Tokens are loaded some rounds ahead of the one that takes them.
FailureOr<scf::ForOp> GpuScanKernel::loadAhead(scf::ForOp loop) {
  moveLoopInvariantCode(loop);
  usePowersOfTwo(loop, b);
  Block *body = loop.getBody();
  DenseSet<Value> ofTokens;
  for (BlockArgument each : step.getArgumentsOfKind(ArgumentKind::Token))
    ofTokens.insert(memory[each.getArgNumber()]);
  // With what says where they are.
  llvm::SetVector<Operation *> early;
  int64_t bytes = 0;
  for (Operation &op : body->without_terminator()) {
    if (!isa<memref::LoadOp, vector::LoadOp>(op) ||
        !ofTokens.contains(op.getOperand(0)))
      continue;
    early.insert(&op);
    Type type = op.getResult(0).getType();
    int64_t bits = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    if (auto vector = dyn_cast<VectorType>(type))
      bits *= vector.getNumElements();
    bytes += llvm::divideCeil(bits, 32) * 4;
  }
  if (early.empty())
    return loop;
  for (size_t i = 0; i < early.size(); ++i)
    for (Value operand : early[i]->getOperands())
      if (Operation *def = operand.getDefiningOp();
          def && def->getBlock() == body)
        early.insert(def);
  // Values that a token hands on as they came are none of the loop's own.
  auto yield = cast<scf::YieldOp>(body->getTerminator());
  b.setInsertionPoint(yield);
  for (OpOperand &each : yield->getOpOperands())
    if (Operation *def = each.get().getDefiningOp();
        !def || def->getBlock() != body)
      each.set(arith::BitcastOp::create(b, each.get().getType(), each.get()));
  scf::PipeliningOption options;
  options.peelEpilogue = false;
  options.supportDynamicLoops = true;
  // Whatever is loaded behind the last token is there.
  options.predicateFn = [](RewriterBase &, Operation *op, Value) { return op; };
  auto stages = static_cast<unsigned>(
      areFew() ? std::clamp<int64_t>(kBytesOfFew / bytes, 1, kMostOfFew)
               : std::clamp<int64_t>(kBytesAhead / bytes, 1, kMostAhead));
  options.getScheduleFn = [&](scf::ForOp of, auto &schedule) {
    for (bool isEarly : {true, false})
      for (Operation &op : of.getBody()->without_terminator())
        if (early.contains(&op) == isEarly)
          schedule.emplace_back(&op, isEarly ? 0 : stages);
  };
  IRRewriter rewriter(b);
  rewriter.setInsertionPoint(loop);
  FailureOr<scf::ForOp> result = scf::pipelineForLoop(rewriter, loop, options);
  // What is loaded is not moved from one register to the next, which would wait
  // for it: so many rounds have a register each.
  if (succeeded(result))
    (*result)->setAttr("ladle.unroll",
                       b.getIndexAttr(std::max<int64_t>(2, stages)));
  return result;
}

FailureOr<scf::ForOp> GpuScanKernel::emitTokens() {
  Sheet sheet = readSheet();
  SmallVector<Value> loads, initial;
  for (StoreStateOp store : step.getBody().front().getOps<StoreStateOp>()) {
    loads.push_back(loadOf(store).getState());
    FailureOr<Components> rows = stateRows(loads.back(), sheet, 0);
    if (failed(rows))
      return failure();
    llvm::append_range(initial, *rows);
  }
  auto loop = scf::ForOp::create(b, constantIndex(0), tokenCount,
                                 constantIndex(1), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  token = loop.getInductionVar();
  startOfToken = anchor();
  ValueRange rows = loop.getRegionIterArgs();
  for (Value load : loads) {
    Components &mine = states[load];
    mine = Components(rows.take_front(mine.size()));
    rows = rows.drop_front(mine.size());
  }
  if (failed(emitToken(sheet)))
    return failure();
  FailureOr<scf::ForOp> carrying = carryAlong(loop);
  if (failed(carrying))
    return failure();
  startOfToken->erase();
  return loadAhead(*carrying);
}

/// What the last token has left behind. Carries go where no other block looks
/// for them.
LogicalResult GpuScanKernel::storeResults(ValueRange results) {
  for (StoreStateOp store : step.getBody().front().getOps<StoreStateOp>()) {
    Components &mine = states[store.getState()];
    mine = Components(results.take_front(mine.size()));
    results = results.drop_front(mine.size());
  }
  for (const Carried &each : carried) {
    remember(nextOf(each.argument), each.place,
             Components(results.take_front(each.initial.size())));
    results = results.drop_front(each.initial.size());
  }
  LogicalResult result = success();
  guarded(mayFold, [&] {
    for (StoreStateOp store : step.getBody().front().getOps<StoreStateOp>()) {
      b.setLoc(store.getLoc());
      if (failed(emitStore(targetOf(store))))
        result = failure();
    }
  });
  b.setLoc(unnamed(step.getLoc()));
  for (auto [carry, next] :
       llvm::zip(step.getArgumentsOfKind(ArgumentKind::Carry), nextCarries))
    if (failed(storeValue(nextOf(carry), next, {writeSlot}, {},
                          dependsOnRows(nextOf(carry)))))
      result = failure();
  return result;
}

LogicalResult GpuScanKernel::emitRow() {
  for (BlockArgument carry : step.getArgumentsOfKind(ArgumentKind::Carry)) {
    std::string name =
        ("next_" + step.getArgumentName(carry.getArgNumber())).str();
    // After all others, but ahead of what is in shared memory.
    unsigned last = function.getNumArguments();
    (void)function.insertArgument(
        last, memoryTypesOf(step, carry).front(),
        b.getDictionaryAttr(b.getNamedAttr(kNameAttr, b.getStringAttr(name))),
        b.getLoc());
    nextCarries.push_back(function.getArgument(last));
  }
  if (slots.keepStates() || (drafts && !nextCarries.empty()))
    takeVersions();
  length = base = constantIndex(0);
  stageStates();
  endOfTokenLoads = anchor();
  endOfSlotLoads = anchor();
  waitForEntries();
  waitForStates();
  auto before = values;
  FailureOr<scf::ForOp> loop = emitTokens();
  if (failed(loop))
    return failure();
  // Nothing of a token is there behind the last one.
  values = std::move(before);
  return storeResults(loop->getResults());
}
