//===- Compiler.cpp - from a recurrence to instructions -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/Compiler.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;
using namespace ladle::interpreter;

FailureOr<SpecInterpreter> SpecInterpreter::create(RecurrenceOp op,
                                                   InterpreterOptions options) {
  SpecInterpreter interpreter;
  if (failed(Compiler(op, std::move(options), interpreter).run()))
    return failure();
  return interpreter;
}

LogicalResult Compiler::run() {
  declareArguments();
  findAnswers();
  findSums();
  for (Operation &nested : op.getBody().front().without_terminator())
    if (failed(compile(nested)))
      return failure();
  return compileYield(op.getYield());
}

void Compiler::declareArguments() {
  auto declare = [&](ArgumentKind kind, std::vector<ValueInfo> &infos,
                     std::vector<size_t> &offsets) {
    for (BlockArgument argument : op.getArgumentsOfKind(kind)) {
      infos.push_back(describe(op.getArgumentName(argument.getArgNumber()),
                               argument.getType()));
      offsets.push_back(allocate(argument).offset);
    }
  };
  declare(ArgumentKind::Param, program.params, program.paramOffsets);
  declare(ArgumentKind::Token, program.tokens, program.tokenOffsets);
  declare(ArgumentKind::Carry, program.carries, program.carryOffsets);
  for (BlockArgument argument : op.getArgumentsOfKind(ArgumentKind::State)) {
    auto type = cast<StateType>(argument.getType());
    buffers[argument] = {program.states.size(), size_t(type.getHeads()),
                         size_t(type.getKeySize()),
                         size_t(type.getValueSize())};
    program.states.push_back(
        describe(op.getArgumentName(argument.getArgNumber()), type));
  }
}

void Compiler::findAnswers() {
  SmallVector<Value> pending(op.getYieldedOutputs());
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (isa<StateType>(value.getType()) || !answers.insert(value).second)
      continue;
    if (Operation *made = value.getDefiningOp())
      llvm::append_range(pending, made->getOperands());
  }
}

/// States that no write corrects by what it has read of one.
void Compiler::findSums() {
  program.isSum.assign(program.states.size(), true);
  llvm::DenseSet<Value> read;
  llvm::DenseMap<Value, size_t> roots;
  for (auto [value, buffer] : buffers)
    roots[value] = buffer.index;
  for (Operation &nested : op.getBody().front().without_terminator()) {
    auto comesFromRead = [&](Value value) { return read.contains(value); };
    if (isa<ReadOp>(nested) ||
        llvm::any_of(nested.getOperands(), comesFromRead))
      for (Value result : nested.getResults())
        if (!isa<StateType>(result.getType()))
          read.insert(result);
    if (auto decay = dyn_cast<DecayOp>(nested))
      roots[decay.getResult()] = roots.at(decay.getState());
    auto write = dyn_cast<WriteOp>(nested);
    if (!write)
      continue;
    size_t root = roots[write.getResult()] = roots.at(write.getState());
    if (llvm::any_of(write->getOperands(), comesFromRead))
      program.isSum[root] = false;
  }
  // What a carry brings of a read comes back with the next token.
  if (llvm::any_of(op.getYieldedCarries(),
                   [&](Value value) { return read.contains(value); }))
    program.isSum.assign(program.states.size(), false);
  for (auto [index, value] : llvm::enumerate(op.getYieldedStates()))
    if (size_t root = roots.at(value); root != index)
      program.isSum[root] = program.isSum[index] = false;
}

LogicalResult Compiler::compile(Operation &nested) {
  if (FailureOr<bool> isToken = compileToken(nested);
      failed(isToken) || *isToken)
    return isToken;
  return llvm::TypeSwitch<Operation *, LogicalResult>(&nested)
      .Case([&](DecayOp o) { return compileDecay(o), success(); })
      .Case([&](WriteOp o) { return compileWrite(o), success(); })
      .Case([&](ReadOp o) { return compileRead(o), success(); })
      .Default([](Operation *o) {
        return o->emitError("the interpreter does not know '")
               << o->getName() << "'";
      });
}

LogicalResult Compiler::compileYield(YieldOp yield) {
  for (auto [index, value] : llvm::enumerate(op.getYieldedOutputs())) {
    auto name = cast<StringAttr>(op.getOutputNames()[index]).getValue();
    auto type = cast<TypeAttr>(op.getOutputTypes()[index]).getValue();
    program.outputs.push_back(describe(name, type));
    program.outputOffsets.push_back(get(value).offset);
    program.termOffsets.push_back(termsOf(value));
  }
  for (Value value : op.getYieldedCarries())
    program.nextCarryOffsets.push_back(get(value).offset);

  // A state that is yielded in another's place is saved before any is
  // replaced: two states may change places.
  SmallVector<std::pair<Buffer, Buffer>> moves;
  for (auto [index, value] : llvm::enumerate(op.getYieldedStates())) {
    Buffer source = buffers.at(value), target = source;
    target.index = index;
    if (source.index == index)
      continue;
    moves.emplace_back(source.index < program.states.size() ? copyState(source)
                                                            : source,
                       target);
  }
  for (auto [source, target] : moves)
    program.instructions.push_back([source = source,
                                    target = target](Row &row) {
      std::copy_n(getData(row, source), source.size(), getData(row, target));
    });
  return success();
}

//===----------------------------------------------------------------------===//
// States: head h of H uses head h / (H / n) of an operand with n heads
//===----------------------------------------------------------------------===//

double *Compiler::getData(Row &row, const Buffer &buffer) {
  return buffer.index < row.states.size()
             ? row.states[buffer.index].data()
             : row.spares[buffer.index - row.states.size()].data();
}

double *Compiler::getSquares(Row &row, const Buffer &buffer) {
  if (!row.keepsTerms || row.squares[buffer.index].empty())
    return nullptr;
  return row.squares[buffer.index].data();
}

Compiler::Buffer Compiler::copyState(Buffer source) {
  Buffer target = source;
  target.index = program.states.size() + program.spareSizes.size();
  program.spareSizes.push_back(source.size());
  program.isSum.push_back(program.isSum[source.index]);
  program.instructions.push_back([source, target](Row &row) {
    std::copy_n(getData(row, source), source.size(), getData(row, target));
    if (const double *squares = getSquares(row, source))
      std::copy_n(squares, source.size(), getSquares(row, target));
  });
  return target;
}

Compiler::Buffer Compiler::takeState(Value value, Operation *user) {
  bool isLastUse = llvm::all_of(value.getUsers(), [&](Operation *other) {
    return other == user || other->isBeforeInBlock(user);
  });
  Buffer buffer = buffers.at(value);
  return isLastUse ? buffer : copyState(buffer);
}

void Compiler::compileDecay(DecayOp decay) {
  Buffer state = takeState(decay.getState(), decay);
  buffers[decay.getResult()] = state;
  RankedTensorType type = decay.getFactor().getType();
  size_t offset = get(decay.getFactor()).offset;
  size_t group = state.heads / type.getDimSize(0);
  bool isScalar = decay.isScalar();
  program.instructions.push_back([=](Row &row) {
    const double *factors = row.values.data() + offset;
    double *data = getData(row, state), *squares = getSquares(row, state);
    for (size_t h = 0; h < state.heads; ++h)
      for (size_t c = 0; c < state.dk; ++c) {
        double factor =
            isScalar ? factors[h / group] : factors[h / group * state.dk + c];
        size_t at = (h * state.dk + c) * state.dv;
        for (size_t v = 0; v < state.dv; ++v)
          data[at + v] *= factor;
        for (size_t v = 0; squares && v < state.dv; ++v)
          squares[at + v] *= factor * factor;
      }
  });
}

/// The rank R of keys, values and queries: 1 unless they are [heads, R, d].
static size_t rankOf(RankedTensorType type) {
  return type.getRank() == 3 ? type.getDimSize(1) : 1;
}

/// To the nearest, or to the other one where that is nearly a tie.
static void roundEntry(llvm::ArrayRef<double> from, double *to, double tieSlack,
                       Precision precision) {
  double largest = 0;
  for (double value : from)
    largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < from.size(); ++i) {
    auto [low, high] = findNeighbours(from[i], tieSlack * largest, precision);
    to[i] = from[i] - low > high - from[i] ? low : high;
  }
}

void Compiler::compileWrite(WriteOp write) {
  Buffer state = takeState(write.getState(), write);
  buffers[write.getResult()] = state;
  RankedTensorType type = write.getKey().getType();
  size_t ranks = rankOf(type);
  size_t keyGroup = state.heads / type.getDimSize(0);
  size_t valueGroup = state.heads / write.getValue().getType().getDimSize(0);
  size_t keyOffset = get(write.getKey()).offset;
  Slice value = get(write.getValue());

  bool isRounded = options.entryPrecision != Precision::Float64 &&
                   (!options.roundsWrite || options.roundsWrite(write));
  if (isRounded) {
    // Into a place of its own: others may use the value unrounded.
    Slice source = value;
    value.offset = program.initialValues.size();
    program.initialValues.resize(value.offset + value.size);
    program.hasRoundedEntries = true;
    program.instructions.push_back(
        [source, value, precision = options.entryPrecision](Row &row) {
          roundEntry(
              llvm::ArrayRef(row.values).slice(source.offset, source.size),
              row.values.data() + value.offset, row.tieSlack,
              row.keepsEntry ? precision : Precision::Float64);
        });
  }

  program.instructions.push_back([=](Row &row) {
    const double *keys = row.values.data() + keyOffset;
    const double *inputs = row.values.data() + value.offset;
    double *data = getData(row, state), *squares = getSquares(row, state);
    for (size_t h = 0; h < state.heads; ++h)
      for (size_t r = 0; r < ranks; ++r) {
        const double *key = keys + (h / keyGroup * ranks + r) * state.dk;
        const double *input = inputs + (h / valueGroup * ranks + r) * state.dv;
        for (size_t c = 0; c < state.dk; ++c)
          for (size_t v = 0; v < state.dv; ++v) {
            double term = key[c] * input[v];
            size_t at = (h * state.dk + c) * state.dv + v;
            data[at] += term;
            if (squares)
              squares[at] += term * term;
          }
      }
  });
}

void Compiler::compileRead(ReadOp read) {
  Buffer state = buffers.at(read.getState());
  RankedTensorType type = read.getQuery().getType();
  size_t ranks = rankOf(type);
  size_t group = state.heads / type.getDimSize(0);
  size_t queryOffset = get(read.getQuery()).offset;
  Slice result = allocate(read.getResult());
  program.instructions.push_back([=](Row &row) {
    const double *queries = row.values.data() + queryOffset;
    const double *data = getData(row, state);
    double *sum = row.values.data() + result.offset;
    std::fill_n(sum, result.size, 0.0);
    for (size_t h = 0; h < state.heads; ++h, data += state.dk * state.dv)
      for (size_t r = 0; r < ranks; ++r, sum += state.dv) {
        const double *query = queries + (h / group * ranks + r) * state.dk;
        for (size_t c = 0; c < state.dk; ++c)
          for (size_t v = 0; v < state.dv; ++v)
            sum[v] += query[c] * data[c * state.dv + v];
      }
  });
  if (!answers.contains(read.getResult()))
    return;
  size_t queryTerms = termsOf(read.getQuery());
  size_t terms = allocateTerms(read.getResult()).offset;
  program.instructions.push_back([=](Row &row) {
    if (!row.keepsTerms)
      return;
    const double *queries = row.values.data() + queryTerms;
    const double *data = getData(row, state);
    const double *squares = getSquares(row, state);
    double *sum = row.values.data() + terms;
    std::fill_n(sum, result.size, 0.0);
    for (size_t h = 0; h < state.heads; ++h)
      for (size_t r = 0; r < ranks; ++r, sum += state.dv) {
        const double *query = queries + (h / group * ranks + r) * state.dk;
        for (size_t c = 0; c < state.dk; ++c)
          for (size_t v = 0; v < state.dv; ++v) {
            size_t at = (h * state.dk + c) * state.dv + v;
            double square = data[at] * data[at];
            if (squares)
              square = std::max(square, squares[at]);
            sum[v] += query[c] * query[c] * square;
          }
      }
    for (size_t i = 0; i < result.size; ++i)
      row.values[terms + i] = std::max(std::abs(row.values[result.offset + i]),
                                       std::sqrt(row.values[terms + i]));
  });
}
