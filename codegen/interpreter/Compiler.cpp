//===- Compiler.cpp - from a recurrence to instructions -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/Compiler.h"

#include "codegen/interpreter/ScalarFunctions.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace ladle;
using namespace ladle::interpreter;

static Precision precisionOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (element.isBF16())
    return Precision::Bfloat16;
  if (element.isF16())
    return Precision::Float16;
  return element.isF64() ? Precision::Float64 : Precision::Float32;
}

static ValueInfo describe(StringRef name, Type type) {
  if (auto state = dyn_cast<StateType>(type))
    return {name.str(),
            {state.getHeads(), state.getKeySize(), state.getValueSize()},
            precisionOf(state.getElementType())};
  return {name.str(), cast<RankedTensorType>(type).getShape().vec(),
          precisionOf(type)};
}

FailureOr<SpecInterpreter> SpecInterpreter::create(RecurrenceOp op,
                                                   InterpreterOptions options) {
  SpecInterpreter interpreter;
  if (failed(Compiler(op, std::move(options), interpreter).run()))
    return failure();
  return interpreter;
}

LogicalResult Compiler::run() {
  declareArguments();
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

Compiler::Slice Compiler::allocate(Value value) {
  size_t size = cast<RankedTensorType>(value.getType()).getNumElements();
  Slice slice{program.initialValues.size(), size};
  program.initialValues.resize(slice.offset + size);
  slices[value] = slice;
  return slice;
}

template <typename Body> void Compiler::emit(Body body) {
  program.instructions.push_back(
      [body = std::move(body)](Row &row) { body(row.values.data()); });
}

LogicalResult Compiler::compile(Operation &nested) {
  // The oracle does not round: a conversion is another name for its operand.
  if (isa<arith::ExtFOp, arith::TruncFOp>(nested)) {
    Slice operand = get(nested.getOperand(0));
    slices[nested.getResult(0)] = operand;
    return success();
  }
  if (compileElementwise(nested))
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(&nested)
      .Case([&](arith::ConstantOp o) { return compileConstant(o); })
      .Case([&](DecayOp o) { return compileDecay(o), success(); })
      .Case([&](WriteOp o) { return compileWrite(o), success(); })
      .Case([&](ReadOp o) { return compileRead(o), success(); })
      .Case([&](BroadcastOp o) { return compileBroadcast(o), success(); })
      .Case([&](SumOp o) { return compileSum(o), success(); })
      .Case([&](L2NormOp o) { return compileL2Norm(o), success(); })
      .Case([&](RotateOp o) { return compileRotate(o), success(); })
      .Case([&](ShiftOp o) { return compileShift(o), success(); })
      .Case([&](ConvOp o) { return compileConv(o), success(); })
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

Compiler::Buffer Compiler::copyState(Buffer source) {
  Buffer target = source;
  target.index = program.states.size() + program.spareSizes.size();
  program.spareSizes.push_back(source.size());
  program.instructions.push_back([source, target](Row &row) {
    std::copy_n(getData(row, source), source.size(), getData(row, target));
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
    double *data = getData(row, state);
    for (size_t h = 0; h < state.heads; ++h)
      for (size_t c = 0; c < state.dk; ++c, data += state.dv) {
        double factor =
            isScalar ? factors[h / group] : factors[h / group * state.dk + c];
        for (size_t v = 0; v < state.dv; ++v)
          data[v] *= factor;
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
    double *data = getData(row, state);
    for (size_t h = 0; h < state.heads; ++h, data += state.dk * state.dv)
      for (size_t r = 0; r < ranks; ++r) {
        const double *key = keys + (h / keyGroup * ranks + r) * state.dk;
        const double *input = inputs + (h / valueGroup * ranks + r) * state.dv;
        for (size_t c = 0; c < state.dk; ++c)
          for (size_t v = 0; v < state.dv; ++v)
            data[c * state.dv + v] += key[c] * input[v];
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
}

//===----------------------------------------------------------------------===//
// Token values
//===----------------------------------------------------------------------===//

bool Compiler::compileElementwise(Operation &nested) {
  if (nested.getNumResults() != 1 ||
      !isa<RankedTensorType>(nested.getResult(0).getType()))
    return false;
  StringRef name = nested.getName().getStringRef();
  auto operand = [&](unsigned index) {
    return get(nested.getOperand(index)).offset;
  };
  if (Unary function = getUnary(name)) {
    size_t x = operand(0);
    Slice result = allocate(nested.getResult(0));
    emit([=](double *values) {
      for (size_t i = 0; i < result.size; ++i)
        values[result.offset + i] = function(values[x + i]);
    });
    return true;
  }
  auto compare = dyn_cast<arith::CmpFOp>(nested);
  if (Binary function =
          compare ? getComparison(compare.getPredicate()) : getBinary(name)) {
    size_t x = operand(0), y = operand(1);
    Slice result = allocate(nested.getResult(0));
    emit([=](double *values) {
      for (size_t i = 0; i < result.size; ++i)
        values[result.offset + i] = function(values[x + i], values[y + i]);
    });
    return true;
  }
  if (Ternary function = getTernary(name)) {
    // A select with one condition for all elements is not elementwise.
    if (!isa<RankedTensorType>(nested.getOperand(0).getType()))
      return false;
    size_t x = operand(0), y = operand(1), z = operand(2);
    Slice result = allocate(nested.getResult(0));
    emit([=](double *values) {
      for (size_t i = 0; i < result.size; ++i)
        values[result.offset + i] =
            function(values[x + i], values[y + i], values[z + i]);
    });
    return true;
  }
  return false;
}

LogicalResult Compiler::compileConstant(arith::ConstantOp constant) {
  auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!elements || !isa<FloatType>(elements.getElementType()))
    return constant.emitError("the interpreter knows dense float constants "
                              "only, got ")
           << constant.getValue();
  size_t offset = allocate(constant.getResult()).offset;
  for (APFloat value : elements.getValues<APFloat>())
    program.initialValues[offset++] = value.convertToDouble();
  return success();
}

void Compiler::compileBroadcast(BroadcastOp broadcast) {
  ArrayRef<int64_t> from = broadcast.getInput().getType().getShape();
  ArrayRef<int64_t> to = broadcast.getResult().getType().getShape();
  ArrayRef<int64_t> dims = broadcast.getDims();
  int64_t group = to[0] / from[0];
  Slice input = get(broadcast.getInput());
  Slice result = allocate(broadcast.getResult());

  // One table of where each element comes from.
  std::vector<size_t> sources(result.size);
  SmallVector<int64_t> index(to.size(), 0);
  for (size_t &source : sources) {
    source = index[0] / group;
    for (size_t i = 1; i < from.size(); ++i)
      source = source * from[i] + index[dims[i]];
    for (size_t i = to.size(); i > 0; --i) {
      ++index[i - 1];
      if (index[i - 1] < to[i - 1])
        break;
      index[i - 1] = 0;
    }
  }
  emit([=, sources = std::move(sources)](double *values) {
    for (size_t i = 0; i < result.size; ++i)
      values[result.offset + i] = values[input.offset + sources[i]];
  });
}

void Compiler::compileSum(SumOp sum) {
  ArrayRef<int64_t> shape = sum.getInput().getType().getShape();
  size_t count = shape[sum.getDim()], stride = 1;
  for (int64_t size : shape.drop_front(sum.getDim() + 1))
    stride *= size;
  size_t input = get(sum.getInput()).offset;
  Slice result = allocate(sum.getResult());
  emit([=](double *values) {
    for (size_t i = 0; i < result.size; ++i) {
      const double *first =
          values + input + i / stride * count * stride + i % stride;
      double total = 0;
      for (size_t j = 0; j < count; ++j)
        total += first[j * stride];
      values[result.offset + i] = total;
    }
  });
}

void Compiler::compileL2Norm(L2NormOp norm) {
  size_t length = norm.getInput().getType().getShape().back();
  double eps = norm.getEps().convertToDouble();
  size_t input = get(norm.getInput()).offset;
  Slice result = allocate(norm.getResult());
  emit([=](double *values) {
    for (size_t i = 0; i < result.size; i += length) {
      const double *x = values + input + i;
      double squares = 0;
      for (size_t j = 0; j < length; ++j)
        squares += x[j] * x[j];
      double scale = 1 / std::sqrt(squares + eps);
      for (size_t j = 0; j < length; ++j)
        values[result.offset + i + j] = x[j] * scale;
    }
  });
}

void Compiler::compileRotate(RotateOp rotate) {
  size_t length = rotate.getInput().getType().getShape().back();
  size_t angles = rotate.getAngle().getType().getShape().back();
  size_t input = get(rotate.getInput()).offset;
  size_t angle = get(rotate.getAngle()).offset;
  Slice result = allocate(rotate.getResult());
  emit([=](double *values) {
    for (size_t row = 0; row < result.size / length; ++row) {
      const double *from = values + input + row * length;
      double *to = values + result.offset + row * length;
      std::copy_n(from, length, to);
      for (size_t i = 0; i < angles; ++i) {
        double phi = values[angle + row * angles + i];
        double x = from[2 * i], y = from[2 * i + 1];
        to[2 * i] = x * std::cos(phi) - y * std::sin(phi);
        to[2 * i + 1] = x * std::sin(phi) + y * std::cos(phi);
      }
    }
  });
}

void Compiler::compileShift(ShiftOp shift) {
  ArrayRef<int64_t> shape = shift.getWindow().getType().getShape();
  size_t heads = shape[0], width = shape[1], length = shape[2];
  size_t window = get(shift.getWindow()).offset;
  size_t input = get(shift.getInput()).offset;
  Slice result = allocate(shift.getResult());
  emit([=](double *values) {
    for (size_t h = 0; h < heads; ++h) {
      const double *oldest = values + window + h * width * length;
      double *to = values + result.offset + h * width * length;
      to = std::copy_n(oldest + length, (width - 1) * length, to);
      std::copy_n(values + input + h * length, length, to);
    }
  });
}

void Compiler::compileConv(ConvOp conv) {
  ArrayRef<int64_t> shape = conv.getWindow().getType().getShape();
  size_t heads = shape[0], width = shape[1], length = shape[2];
  size_t window = get(conv.getWindow()).offset;
  size_t input = get(conv.getInput()).offset;
  size_t weight = get(conv.getWeight()).offset;
  Slice result = allocate(conv.getResult());
  emit([=](double *values) {
    for (size_t h = 0; h < heads; ++h)
      for (size_t d = 0; d < length; ++d) {
        const double *past = values + window + h * width * length + d;
        const double *taps = values + weight + h * (width + 1) * length + d;
        double sum = taps[width * length] * values[input + h * length + d];
        for (size_t w = 0; w < width; ++w)
          sum += taps[w * length] * past[w * length];
        values[result.offset + h * length + d] = sum;
      }
  });
}
