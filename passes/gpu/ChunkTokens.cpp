//===- ChunkTokens.cpp - the arithmetic of tokens in a GPU's prefill ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A pass goes over the tokens of a chunk, a team of lanes a token, and puts
// what is wanted of them into stacks. What lanes of a team have to exchange
// through memory (angles, values of ranks) is a stack of its own, which a pass
// before fills.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/build/Components.h"
#include "passes/gpu/ChunkKernel.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle;

/// Tokens of a team whose loads are under way at the same time.
static constexpr int64_t kTokensAtOnce = 4;
/// With more vectors than these, registers are for one.
static constexpr int64_t kFewValues = 6;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool isOfToken(Value value) {
  return isa_and_present<EachDraftOp>(value.getParentBlock()->getParentOp());
}

//===----------------------------------------------------------------------===//
// The token at hand
//===----------------------------------------------------------------------===//

int64_t GpuChunkKernel::scopeOf(Value value) const {
  if (!current.region)
    return 0;
  auto argument = dyn_cast<BlockArgument>(value);
  bool isOfPass = argument && !isOfToken(value) &&
                  const_cast<StepOp &>(step).getArgumentKind(
                      argument.getArgNumber()) != ArgumentKind::Token;
  return isOfPass ? current.pass : current.scope;
}

Value GpuChunkKernel::tokenRow() {
  // There may be none as far as this.
  Value last = arith::SubIOp::create(b, inChunk, constantIndex(1));
  Value mine = arith::MinSIOp::create(b, current.token, last);
  return arith::AddIOp::create(
      b, arith::AddIOp::create(b, firstToken, firstInChunk), mine);
}

/// One head of those that share a value stores it. Null for all.
Value GpuChunkKernel::sharesHead(int64_t count) {
  if (count == heads)
    return {};
  return compare(arith::CmpIPredicate::eq,
                 arith::RemUIOp::create(b, head, constantIndex(heads / count)),
                 constantIndex(heads / count - 1));
}

/// The block's tile of a vector along dv.
GpuKernel::Components GpuChunkKernel::loadTile(Value memory,
                                               ArrayRef<Value> outer,
                                               const Place &place) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  Components result;
  for (int64_t c = 0; c < place.chunks; ++c) {
    SmallVector<Value> at(outer);
    at.push_back(arith::AddIOp::create(b, tileStart, chunkStart(place, c)));
    result.push_back(toF32(vector::LoadOp::create(
        b, VectorType::get({place.width}, element), memory, at)));
  }
  return result;
}

/// The elements of a token, or zeros where there is none, so that these need
/// not be put in their place.
GpuKernel::Components GpuChunkKernel::loadValid(Value memory,
                                                ArrayRef<Value> outer,
                                                const Place &place) {
  auto type = VectorType::get(
      {place.width}, cast<MemRefType>(memory.getType()).getElementType());
  Value wanted = splat(current.valid, place.width);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  // What a lane has of a row is at constant distances from where it begins.
  SmallVector<OpFoldResult> first(outer.begin(), outer.end());
  first.push_back(chunkStart(place, 0));
  SmallVector<OpFoldResult> sizes(first.size(), b.getIndexAttr(1)),
      strides(first.size(), b.getIndexAttr(1));
  int64_t apart = place.lanes * place.width;
  sizes.back() = b.getIndexAttr((place.chunks - 1) * apart + place.width);
  Value row = memref::SubViewOp::create(b, memory, first, sizes, strides);
  SmallVector<Value> at(first.size(), constantIndex(0));
  Components result;
  for (int64_t c = 0; c < place.chunks; ++c) {
    at.back() = constantIndex(c * apart);
    if (isPartial(place, c))
      at.back() =
          arith::SubIOp::create(b, chunkStart(place, c), chunkStart(place, 0));
    auto load = vector::MaskedLoadOp::create(b, type, row, at, wanted, zero);
    load->setAttr(kConstantAttr, b.getUnitAttr());
    result.push_back(load);
  }
  for (Value &chunk : result)
    chunk = toF32(chunk);
  return result;
}

/// What was loaded as it is stored, and is zero without a token; or null.
static Value loadedAs(Value part, Value memory) {
  Type element = cast<MemRefType>(memory.getType()).getElementType();
  if (auto extend = part.getDefiningOp<arith::ExtFOp>())
    part = extend.getIn();
  auto vector = dyn_cast<VectorType>(part.getType());
  return vector && vector.getElementType() == element &&
                 part.getDefiningOp<vector::MaskedLoadOp>()
             ? part
             : Value();
}

GpuKernel::Components GpuChunkKernel::loadStack(const Stack &stack, Value token,
                                                const Place &place,
                                                bool isTile) {
  Components result;
  Value first = times(token, stack.step);
  for (int64_t i = 0; i < stack.components; ++i) {
    Value at = add(first, stack.first + i);
    if (stack.size == 1 && place.size == 1)
      result.push_back(memref::LoadOp::create(
          b, stack.memory, ValueRange{at, constantIndex(0)}));
    else if (isTile && !stack.isTile)
      llvm::append_range(result, loadTile(stack.memory, {at}, place));
    else
      llvm::append_range(result, loadVector(stack.memory, {at}, place));
  }
  return result;
}

GpuKernel::Components GpuChunkKernel::loadArgument(BlockArgument argument,
                                                   const Place &place) {
  RankedTensorType type = typeOf(argument);
  bool isTile = isTileOf(type, place);
  Place wanted = type.getRank() == 1 ? Place() : place;
  if (auto region = dyn_cast<EachDraftOp>(argument.getOwner()->getParentOp())) {
    unsigned index = argument.getArgNumber(), count = region.getNumStacks();
    Stack stack;
    if (index < count) {
      Value value = region.getStacks()[index];
      const Stack *tile = isTile ? find(value, true) : nullptr;
      stack = tile ? *tile : stackOf(value);
    } else {
      auto carry = cast<BlockArgument>(region.getCarries()[index - count]);
      stack = versions.at(carry.getArgNumber());
    }
    return loadStack(stack, current.token, wanted, isTile);
  }
  ArgumentKind kind = step.getArgumentKind(argument.getArgNumber());
  auto key =
      std::tuple(argument.getArgNumber(), wanted.key(), scopeOf(argument));
  if (auto found = loadedArguments.find(key); found != loadedArguments.end())
    return found->second;
  Components &result = loadedArguments[key];
  OpBuilder::InsertionGuard guard(b);
  if (Operation *loads = tokenLoads())
    b.setInsertionPoint(loads);
  Value from = memory[argument.getArgNumber()];
  SmallVector<Value> indices;
  if (kind == ArgumentKind::Token)
    indices.push_back(tokenRow());
  indices.push_back(headIndex(type.getDimSize(0)));
  if (type.getRank() == 1)
    return result = {loadElement(from, indices)};
  int64_t bits = type.getElementType().getIntOrFloatBitWidth();
  int64_t &bytes = alignments[cast<BlockArgument>(from).getArgNumber()];
  bytes = std::max(bytes, std::min<int64_t>(place.width * bits / 8, 16));
  for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
    SmallVector<Value> at(indices);
    if (type.getRank() == 3)
      at.push_back(constantIndex(i));
    if (kind == ArgumentKind::Token && holdsRows && current.valid && !isTile &&
        place.width > 1)
      llvm::append_range(result, loadValid(from, at, place));
    else
      llvm::append_range(result, isTile ? loadTile(from, at, place)
                                        : loadVector(from, at, place));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

FailureOr<GpuKernel::Components> GpuChunkKernel::emit(Value value,
                                                      const Place &place) {
  Operation *op = value.getDefiningOp();
  if (!op || !isOfToken(value))
    return GpuKernel::emit(value, place);
  RankedTensorType type = typeOf(value);
  bool isTile = isTileOf(type, place);
  auto load = [&](Value of) -> FailureOr<Components> {
    FailureOr<Stack> stack = materialise(of);
    if (failed(stack))
      return failure();
    return loadStack(*stack, current.token,
                     typeOf(of).getRank() == 1 ? Place() : place, isTile);
  };
  // A scan takes what does not wait for it from a stack.
  if (scanned.any() && !isa<arith::ConstantOp>(op) &&
      !carriesOf(value, current.region).anyCommon(scanned))
    return load(value);
  if (auto found = find(value, false); found && !isa<arith::ConstantOp>(op))
    return loadStack(*found, current.token,
                     type.getRank() == 1 ? Place() : place, isTile);
  auto sum = dyn_cast<SumOp>(op);
  bool isRanked =
      sum && type.getRank() > 1 &&
      int64_t(sum.getDim()) + 1 == sum.getInput().getType().getRank();
  if (isTile && (isRanked || isa<RotateOp>(op)))
    return load(value);
  if (auto rotate = dyn_cast<RotateOp>(op))
    return emitTurned(rotate, place);
  if (auto broadcast = dyn_cast<BroadcastOp>(op);
      broadcast && broadcast.getInput().getType().getRank() > 1 &&
      !keepsLastDimension(broadcast)) {
    FailureOr<Stack> stack = materialise(broadcast.getInput());
    if (failed(stack))
      return failure();
    Value first = add(times(current.token, stack->step), stack->first);
    Components result;
    for (int64_t i = 0, e = componentCount(type); i < e; ++i) {
      BroadcastSource source = sourceOf(broadcast, i);
      Value number =
          memref::LoadOp::create(b, stack->memory,
                                 ValueRange{add(first, source.component),
                                            constantIndex(source.element)});
      result.append(place.chunks, splat(number, place.width));
    }
    return result;
  }
  return GpuKernel::emit(value, place);
}

/// A value of the region at hand as a stack, filled by a pass of its own before
/// the one at hand.
FailureOr<GpuChunkKernel::Stack> GpuChunkKernel::materialise(Value value) {
  if (const Stack *known = find(value, false))
    return *known;
  EachDraftOp op = current.region;
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && argument.getOwner() == &op.getBody().front() &&
      argument.getArgNumber() < op.getNumStacks())
    return stackOf(op.getStacks()[argument.getArgNumber()]);
  OperandRange yielded = op.getYield().getValues();
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  for (size_t i = carriesFrom; i < yielded.size(); ++i) {
    unsigned carry =
        cast<BlockArgument>(op.getCarries()[i - carriesFrom]).getArgNumber();
    // What a token leaves behind is the version after it.
    if (yielded[i] != value || !knownCarries.contains(carry) ||
        !typeOf(op.getCarries()[i - carriesFrom]).getElementType().isF32())
      continue;
    Stack next = versions[carry];
    next.first += next.step;
    fullStacks[value] = next;
    return next;
  }
  Stack stack = makeStack(typeOf(value), /*isTile=*/false);
  Current outer = current;
  llvm::SmallBitVector outerScan = scanned;
  auto read = isRead, written = isWritten;
  OpBuilder::InsertionGuard guard(b);
  llvm::scope_exit restore([&] {
    current = outer;
    scanned = outerScan;
  });
  b.setInsertionPoint(current.start);
  scanned.reset();
  barrier();
  if (failed(emitPass(op, Sink{value, stack, {}, false, {}})))
    return failure();
  barrier();
  isRead = std::move(read);
  isWritten = std::move(written);
  isRead.insert(stack.memory);
  fullStacks[value] = stack;
  return stack;
}

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

/// Calls `store` for what this lane has of a value: with the component, the
/// first element and the part.
void GpuChunkKernel::storeParts(
    ArrayRef<Value> components, const Place &place, Value guard,
    function_ref<void(int64_t, Value, Value)> store) {
  bool isVector = isa<VectorType>(components.front().getType());
  int64_t among = isVector ? place.lanes : 1;
  if (among < lanes)
    guard = both(guard, isBelow(lane, among));
  guarded(guard, [&] {
    for (auto [i, part] : llvm::enumerate(components)) {
      if (!isVector) {
        store(static_cast<int64_t>(i), {}, part);
        continue;
      }
      int64_t c = static_cast<int64_t>(i) % place.chunks;
      Value inside;
      if (isPartial(place, c))
        inside = isBelow(add(laneOf(place), c * place.lanes), place.size);
      guarded(inside, [&, part = part] {
        store(static_cast<int64_t>(i) / place.chunks, chunkStart(place, c),
              part);
      });
    }
  });
}

bool GpuChunkKernel::isDecay(const Sink &sink) {
  return llvm::any_of(current.region.getResults(), [&](OpResult result) {
    return decayStacks.contains(result) &&
           current.region.getYield().getValues()[result.getResultNumber()] ==
               sink.value;
  });
}

/// What rows have without a token, so that they change nothing.
Value GpuChunkKernel::fillOf(const Sink &sink) {
  return constantFloat(isDecay(sink) ? 1 : 0);
}

/// Puts a value of the current token where it belongs.
LogicalResult GpuChunkKernel::emitSink(const Sink &sink, Value valid) {
  RankedTensorType type = typeOf(sink.value);
  Place place = type.getRank() == 1 ? Place()
                : sink.isTile       ? tilePlace()
                                    : keyPlace(type.getShape().back());
  FailureOr<Components> all = get(sink.value, place);
  if (failed(all))
    return failure();
  auto put = [&](Value part, Value memory, ArrayRef<Value> outer, Value at) {
    Type element = cast<MemRefType>(memory.getType()).getElementType();
    SmallVector<Value> indices(outer);
    if (at)
      indices.push_back(at);
    bool isOne = at && cast<VectorType>(part.getType()).getNumElements() == 1;
    if (isOne)
      part = vector::ExtractOp::create(b, part, 0);
    part = convertTo(part, element);
    if (matrices.contains(memory))
      llvm::copy(placeIn(memory, indices[0], at), indices.begin());
    if (at && !isOne)
      vector::StoreOp::create(b, part, memory, indices);
    else
      memref::StoreOp::create(b, part, memory, indices);
  };
  if (sink.stack) {
    Value token = current.token;
    storeParts(*all, place, current.isInside,
               [&](int64_t i, Value at, Value part) {
                 Value fill = fillOf(sink);
                 if (auto vector = dyn_cast<VectorType>(part.getType()))
                   fill = splat(fill, vector.getNumElements());
                 if (sink.rounded)
                   part = toF32(convertTo(part, sink.rounded));
                 // What was loaded where there is no token is 0.
                 if (Value raw = loadedAs(part, sink.stack->memory);
                     raw && !isDecay(sink))
                   part = raw;
                 else
                   part = arith::SelectOp::create(b, valid, part, fill);
                 Value row =
                     add(times(token, sink.stack->step), sink.stack->first + i);
                 if (sink.stack->parts > 1) {
                   for (auto [j, one] :
                        llvm::enumerate(partsOf(part, sink.stack->parts)))
                     put(one, sink.stack->memory,
                         {add(row, rowOfPart(static_cast<int64_t>(j)))}, at);
                   return;
                 }
                 put(part, sink.stack->memory,
                     at ? SmallVector<Value>{row}
                        : SmallVector<Value>{row, constantIndex(0)},
                     at);
               });
    return success();
  }
  Value mine = both(valid, sharesHead(type.getDimSize(0)));
  if (tiles > 1 && !sink.isTile)
    mine = both(mine, isFirstTile);
  if (sink.isEntry)
    mine = both(mine, foldsByChunk ? isKept(current.token) : keepsPrompt);
  if (type.getRank() > 1 && !sink.isEntry) {
    int64_t bits =
        cast<MemRefType>(sink.output.getType()).getElementTypeBitWidth();
    int64_t &bytes =
        alignments[cast<BlockArgument>(sink.output).getArgNumber()];
    bytes = std::max(bytes, std::min<int64_t>(place.width * bits / 8, 16));
  }
  Value row, entry;
  if (sink.isEntry) {
    Value position = arith::AddIOp::create(
        b, arith::AddIOp::create(b, length, firstInChunk), current.token);
    if (foldsByChunk) {
      position = arith::SubIOp::create(b, position, endOfFold);
      // Of tokens that are not kept, nothing is stored.
      position = arith::MaxSIOp::create(b, position, constantIndex(0));
    }
    EntryPlace found = placeToWrite(
        arith::MinSIOp::create(b, position, constantIndex(capacity())));
    row = found.outer;
    entry = found.entry;
  } else {
    row = tokenRow();
  }
  storeParts(*all, place, mine, [&](int64_t i, Value at, Value part) {
    SmallVector<Value> outer{row, headIndex(type.getDimSize(0))};
    if (entry)
      outer.push_back(entry);
    if (type.getRank() == 3)
      outer.push_back(constantIndex(i));
    if (at && sink.isTile)
      at = arith::AddIOp::create(b, tileStart, at);
    put(part, sink.output, outer, at);
  });
  return success();
}

LogicalResult GpuChunkKernel::emitPass(EachDraftOp op, ArrayRef<Sink> sinks) {
  if (sinks.empty())
    return success();
  int64_t teams = schedule.threads / lanes;
  int64_t rounds = llvm::divideCeil(tokensAtOnce(), teams);
  int64_t vectors = llvm::count_if(
      sinks, [](const Sink &sink) { return typeOf(sink.value).getRank() > 1; });
  // With more vectors along dv as well, registers of rows are for one, unless
  // there are no other blocks.
  bool isOne = vectors > kFewValues ||
               (holdsRows && rowTokens.size() > 1 && !isIdle(tiles));
  int64_t each = isOne ? 1 : std::min(rounds, kTokensAtOnce);
  Current outer = current;
  llvm::scope_exit restore([&] { current = outer; });
  Operation *start = anchor();
  anchors.push_back(start);
  // What tokens give is loaded while the operation before is at work.
  std::optional<OpBuilder::InsertionGuard> early;
  if (auto found = earlyLoads.find(op);
      found != earlyLoads.end() && rounds <= each) {
    early.emplace(b);
    b.setInsertionPoint(found->second);
  }
  Value first = team;
  std::optional<OpBuilder::InsertionGuard> guard;
  if (rounds > each) {
    auto loop = scf::ForOp::create(
        b, constantIndex(0), constantIndex(llvm::divideCeil(rounds, each)),
        constantIndex(1));
    loop->setAttr("ladle.rolled", b.getUnitAttr());
    guard.emplace(b);
    b.setInsertionPointToStart(loop.getBody());
    first = arith::AddIOp::create(b, team,
                                  times(loop.getInductionVar(), each * teams));
  }
  SmallVector<Value> tokens, valid, inside;
  for (int64_t i = 0; i < each; ++i) {
    tokens.push_back(add(first, i * teams));
    valid.push_back(compare(arith::CmpIPredicate::slt, tokens.back(), inChunk));
    inside.push_back(Value());
    // Rows of stacks end there.
    if (int64_t(llvm::divideCeil(rounds, each)) * each * teams <=
        tokensAtOnce())
      continue;
    inside.back() = isBelow(tokens.back(), tokensAtOnce());
    tokens.back() = arith::MinSIOp::create(b, tokens.back(),
                                           constantIndex(tokensAtOnce() - 1));
  }
  Operation *loads = anchor();
  anchors.push_back(loads);
  early.reset();
  int64_t pass = ++scopes;
  // A pass may make stacks that later ones take.
  for (int64_t i = 0; i < each; ++i) {
    current = {op,       tokens[i], inside[i], valid[i],
               ++scopes, pass,      loads,     start};
    for (const Sink &sink : sinks)
      if (failed(emitSink(sink, valid[i])))
        return failure();
  }
  return success();
}

LogicalResult GpuChunkKernel::emitDrafts(EachDraftOp op) {
  OperandRange yielded = op.getYield().getValues();
  size_t carriesFrom = op.getNumResults() - op.getCarries().size();
  SmallVector<Sink> early, late;
  SmallVector<std::pair<Value, Stack>> made;
  auto isYielded = [&](Value value) {
    return llvm::is_contained(step.getYieldedOutputs(), value);
  };
  for (size_t i = 0; i < carriesFrom; ++i) {
    Value result = op.getResult(i), value = yielded[i];
    unsigned form = demands.lookup(result);
    if (typeOf(value).getRank() == 1 ||
        typeOf(value).getShape().back() != valueSize || tiles == 1)
      form = form ? Full : 0;
    bool isLate = carriesOf(value, op).any();
    SmallVector<Sink> &sinks = isLate ? late : early;
    auto extend = value.getDefiningOp<arith::ExtFOp>();
    bool isShort = extend && isa<BlockArgument>(extend.getIn());
    bool isInside = llvm::any_of(result.getUsers(), [](Operation *user) {
      return !isa<YieldOp, AppendDraftsOp>(user);
    });
    isInside |= isTerm(result);
    for (unsigned each : {Full, Tile}) {
      if (!(form & each) || !isInside)
        continue;
      Stack stack =
          each == Tile
              ? makeStack(typeOf(value), /*isTile=*/true,
                          shortElementOf(cast<OpResult>(result)))
              : makeProductStack(typeOf(value), cast<OpResult>(result));
      stack.isShort = isShort;
      sinks.push_back({value, stack, {}, each == Tile, {}});
      made.emplace_back(result, stack);
    }
    addEntrySinks(op->getResult(static_cast<unsigned>(i)), value, sinks);
    if (!isYielded(result))
      continue;
    for (auto [output, memory] : llvm::zip(step.getYieldedOutputs(), outputs))
      if (output == result)
        sinks.push_back({value,
                         std::nullopt,
                         memory,
                         tiles > 1 && typeOf(value).getRank() > 1 &&
                             typeOf(value).getShape().back() == valueSize,
                         {}});
  }
  // Stacks that are read, and those that are written.
  for (Value stack : op.getStacks())
    for (bool isTile : {false, true})
      if (const Stack *known = find(stack, isTile))
        willRead(known->memory);
  for (auto &[result, stack] : made)
    willWrite(stack.memory);
  if (failed(emitEarly(op, std::move(early))))
    return failure();
  for (auto &[result, stack] : made) {
    (stack.isTile ? tileStacks : fullStacks)[result] = stack;
    // Others of the region take it from there.
    size_t i = cast<OpResult>(result).getResultNumber();
    if (!stack.isTile && !carriesOf(yielded[i], op).any() &&
        isOfToken(yielded[i]) && !op.getCarries().empty() && stack.parts == 1 &&
        !matrices.contains(stack.memory))
      fullStacks[yielded[i]] = stack;
  }
  if (op.getCarries().empty())
    return success();
  if (failed(emitCarries(op)))
    return failure();
  syncAll();
  for (auto &[result, stack] : made)
    willWrite(stack.memory);
  return emitPass(op, late);
}
