//===- TokenCompiler.cpp - token values into instructions -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/TokenCompiler.h"

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

ValueInfo ladle::interpreter::describe(StringRef name, Type type) {
  if (auto state = dyn_cast<StateType>(type))
    return {name.str(),
            {state.getHeads(), state.getKeySize(), state.getValueSize()},
            precisionOf(state.getElementType())};
  return {name.str(), cast<RankedTensorType>(type).getShape().vec(),
          precisionOf(type)};
}

TokenCompiler::Slice TokenCompiler::allocate(Value value) {
  return slices[value] = reserve(value.getType());
}

TokenCompiler::Slice TokenCompiler::allocateTerms(Value value) {
  return terms[value] = reserve(value.getType());
}

/// Room for the elements of a tensor.
TokenCompiler::Slice TokenCompiler::reserve(Type type) {
  size_t size = cast<RankedTensorType>(type).getNumElements();
  Slice slice{initialValues.size(), size};
  initialValues.resize(slice.offset + size);
  return slice;
}

FailureOr<bool> TokenCompiler::compileToken(Operation &nested) {
  // The oracle does not round: a conversion is another name for its operand.
  if (isa<arith::ExtFOp, arith::TruncFOp>(nested)) {
    Slice operand = get(nested.getOperand(0));
    slices[nested.getResult(0)] = operand;
    if (hasTerms(nested.getOperand(0))) {
      Slice its = terms.at(nested.getOperand(0));
      terms[nested.getResult(0)] = its;
    }
    return true;
  }
  if (compileElementwise(nested))
    return true;
  return llvm::TypeSwitch<Operation *, FailureOr<bool>>(&nested)
      .Case([&](arith::ConstantOp o) -> FailureOr<bool> {
        if (failed(compileConstant(o)))
          return failure();
        return true;
      })
      .Case([&](BroadcastOp o) { return compileBroadcast(o), true; })
      .Case([&](SumOp o) { return compileSum(o), true; })
      .Case([&](L2NormOp o) { return compileL2Norm(o), true; })
      .Case([&](RotateOp o) { return compileRotate(o), true; })
      .Case([&](ShiftOp o) { return compileShift(o), true; })
      .Case([&](ConvOp o) { return compileConv(o), true; })
      .Default([](Operation *) { return false; });
}

/// By how much f changes with its operand, by a difference.
template <typename Function, size_t Count>
static double slopeOf(Function function, std::array<double, Count> x,
                      size_t index) {
  double at = x[index], h = 1e-6 * std::max(std::abs(at), 1e-3);
  x[index] = at + h;
  double above = std::apply(function, x);
  x[index] = at - h;
  double slope = std::abs(above - std::apply(function, x)) / (2 * h);
  return std::isfinite(slope) ? slope : 0;
}

/// |f(x)| and, for each operand, |∂f/∂x| of what its terms are more than it.
/// Sums are what adds terms up.
template <typename Function, size_t Count>
void TokenCompiler::compileTerms(Operation &nested, Function function,
                                 std::array<size_t, Count> operands) {
  if (llvm::none_of(nested.getOperands(),
                    [&](Value value) { return hasTerms(value); }))
    return;
  std::array<size_t, Count> its;
  for (size_t i = 0; i < Count; ++i)
    its[i] = termsOf(nested.getOperand(i));
  Slice result = allocateTerms(nested.getResult(0));
  // What there is most of, in loops that are vectors.
  if (isa<arith::AddFOp, arith::SubFOp>(nested)) {
    emit([=, sum = get(nested.getResult(0)).offset](double *values) {
      const double *a = values + its.front(), *b = values + its.back();
      for (size_t i = 0; i < result.size; ++i)
        values[result.offset + i] = std::max(
            std::abs(values[sum + i]), std::sqrt(a[i] * a[i] + b[i] * b[i]));
    });
    return;
  }
  if (isa<arith::MulFOp>(nested)) {
    emit([=](double *values) {
      const double *x = values + operands.front(),
                   *y = values + operands.back();
      const double *a = values + its.front(), *b = values + its.back();
      // |a| |y| + |x| |b| − |x y|
      for (size_t i = 0; i < result.size; ++i)
        values[result.offset + i] =
            std::abs(a[i] * y[i]) +
            std::abs(x[i]) * (std::abs(b[i]) - std::abs(y[i]));
    });
    return;
  }
  emit([=](double *values) {
    for (size_t i = 0; i < result.size; ++i) {
      std::array<double, Count> x;
      for (size_t j = 0; j < Count; ++j)
        x[j] = values[operands[j] + i];
      double terms = std::abs(std::apply(function, x));
      for (size_t j = 0; j < Count; ++j)
        if (double more = std::abs(values[its[j] + i]) - std::abs(x[j]);
            more > 0)
          terms += more * slopeOf(function, x, j);
      values[result.offset + i] = terms;
    }
  });
}

bool TokenCompiler::compileElementwise(Operation &nested) {
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
    compileTerms(nested, function, std::array{x});
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
    compileTerms(nested, function, std::array{x, y});
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
    compileTerms(nested, function, std::array{x, y, z});
    return true;
  }
  return false;
}

LogicalResult TokenCompiler::compileConstant(arith::ConstantOp constant) {
  auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!elements || !isa<FloatType>(elements.getElementType()))
    return constant.emitError("the interpreter knows dense float constants "
                              "only, got ")
           << constant.getValue();
  size_t offset = allocate(constant.getResult()).offset;
  for (APFloat value : elements.getValues<APFloat>())
    initialValues[offset++] = value.convertToDouble();
  return success();
}

void TokenCompiler::compileBroadcast(BroadcastOp broadcast) {
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
  auto copy = [&](size_t from, size_t to) {
    emit([=, size = result.size](double *values) {
      for (size_t i = 0; i < size; ++i)
        values[to + i] = values[from + sources[i]];
    });
  };
  copy(input.offset, result.offset);
  if (hasTerms(broadcast.getInput()))
    copy(termsOf(broadcast.getInput()),
         allocateTerms(broadcast.getResult()).offset);
}

void TokenCompiler::compileSum(SumOp sum) {
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
  if (!hasTerms(sum.getInput()))
    return;
  size_t inputTerms = termsOf(sum.getInput());
  size_t terms = allocateTerms(sum.getResult()).offset;
  emit([=](double *values) {
    for (size_t i = 0; i < result.size; ++i) {
      const double *first =
          values + inputTerms + i / stride * count * stride + i % stride;
      double squares = 0;
      for (size_t j = 0; j < count; ++j)
        squares += first[j * stride] * first[j * stride];
      values[terms + i] =
          std::max(std::abs(values[result.offset + i]), std::sqrt(squares));
    }
  });
}

void TokenCompiler::compileL2Norm(L2NormOp norm) {
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
  if (!hasTerms(norm.getInput()))
    return;
  size_t inputTerms = termsOf(norm.getInput());
  size_t terms = allocateTerms(norm.getResult()).offset;
  emit([=](double *values) {
    for (size_t i = 0; i < result.size; i += length) {
      const double *x = values + input + i, *its = values + inputTerms + i;
      double squares = 0, more = 0;
      for (size_t j = 0; j < length; ++j) {
        squares += x[j] * x[j];
        more += std::abs(x[j]) * (its[j] - std::abs(x[j]));
      }
      double scale = 1 / std::sqrt(squares + eps);
      for (size_t j = 0; j < length; ++j)
        values[terms + i + j] =
            scale * (its[j] + std::abs(x[j]) * scale * scale * more);
    }
  });
}

void TokenCompiler::compileRotate(RotateOp rotate) {
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

void TokenCompiler::compileShift(ShiftOp shift) {
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

void TokenCompiler::compileConv(ConvOp conv) {
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
