//===- ScalarFunctions.cpp - elementwise operations by name ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/ScalarFunctions.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

using namespace ladle::interpreter;
using llvm::StringSwitch;

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

static double softplus(double x) {
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// arith.maximumf and minimumf hand a NaN on, unlike fmax and fmin.
static double maximum(double x, double y) {
  return std::isnan(x) ? x : x > y ? x : y;
}
static double minimum(double x, double y) {
  return std::isnan(x) ? x : x < y ? x : y;
}

Unary ladle::interpreter::getUnary(llvm::StringRef operation) {
  return StringSwitch<Unary>(operation)
      .Case("arith.negf", [](double x) { return -x; })
      .Case("math.absf", [](double x) { return std::fabs(x); })
      .Case("math.ceil", [](double x) { return std::ceil(x); })
      .Case("math.cos", [](double x) { return std::cos(x); })
      .Case("math.erf", [](double x) { return std::erf(x); })
      .Case("math.exp", [](double x) { return std::exp(x); })
      .Case("math.exp2", [](double x) { return std::exp2(x); })
      .Case("math.expm1", [](double x) { return std::expm1(x); })
      .Case("math.floor", [](double x) { return std::floor(x); })
      .Case("math.log", [](double x) { return std::log(x); })
      .Case("math.log1p", [](double x) { return std::log1p(x); })
      .Case("math.log2", [](double x) { return std::log2(x); })
      .Case("math.rsqrt", [](double x) { return 1 / std::sqrt(x); })
      .Case("math.sin", [](double x) { return std::sin(x); })
      .Case("math.sqrt", [](double x) { return std::sqrt(x); })
      .Case("math.tan", [](double x) { return std::tan(x); })
      .Case("math.tanh", [](double x) { return std::tanh(x); })
      .Case("ladle.elu", [](double x) { return x > 0 ? x : std::expm1(x); })
      .Case("ladle.sigmoid", sigmoid)
      .Case("ladle.silu", [](double x) { return x * sigmoid(x); })
      .Case("ladle.softplus", softplus)
      .Default(nullptr);
}

Binary ladle::interpreter::getBinary(llvm::StringRef operation) {
  return StringSwitch<Binary>(operation)
      .Case("arith.addf", [](double x, double y) { return x + y; })
      .Case("arith.subf", [](double x, double y) { return x - y; })
      .Case("arith.mulf", [](double x, double y) { return x * y; })
      .Case("arith.divf", [](double x, double y) { return x / y; })
      .Case("arith.remf", [](double x, double y) { return std::fmod(x, y); })
      .Case("arith.maximumf", maximum)
      .Case("arith.minimumf", minimum)
      .Case("arith.maxnumf", [](double x, double y) { return std::fmax(x, y); })
      .Case("arith.minnumf", [](double x, double y) { return std::fmin(x, y); })
      .Case("math.atan2", [](double x, double y) { return std::atan2(x, y); })
      .Case("math.copysign",
            [](double x, double y) { return std::copysign(x, y); })
      .Case("math.powf", [](double x, double y) { return std::pow(x, y); })
      .Default(nullptr);
}

Ternary ladle::interpreter::getTernary(llvm::StringRef operation) {
  return StringSwitch<Ternary>(operation)
      .Case("arith.select",
            [](double c, double x, double y) { return c != 0 ? x : y; })
      .Case("math.clampf",
            [](double x, double lo, double hi) {
              return minimum(maximum(x, lo), hi);
            })
      .Case("math.fma",
            [](double x, double y, double z) { return std::fma(x, y, z); })
      .Default(nullptr);
}

Binary ladle::interpreter::getComparison(mlir::arith::CmpFPredicate predicate) {
  using P = mlir::arith::CmpFPredicate;
  // Bool results convert to 0 and 1. The unordered forms are true on a NaN.
  switch (predicate) {
  case P::AlwaysFalse:
    return [](double, double) { return 0.0; };
  case P::OEQ:
    return [](double x, double y) -> double { return x == y; };
  case P::OGT:
    return [](double x, double y) -> double { return x > y; };
  case P::OGE:
    return [](double x, double y) -> double { return x >= y; };
  case P::OLT:
    return [](double x, double y) -> double { return x < y; };
  case P::OLE:
    return [](double x, double y) -> double { return x <= y; };
  case P::ONE:
    return [](double x, double y) -> double { return x < y || x > y; };
  case P::ORD:
    return [](double x, double y) -> double { return !std::isunordered(x, y); };
  case P::UEQ:
    return [](double x, double y) -> double { return !(x < y || x > y); };
  case P::UGT:
    return [](double x, double y) -> double { return !(x <= y); };
  case P::UGE:
    return [](double x, double y) -> double { return !(x < y); };
  case P::ULT:
    return [](double x, double y) -> double { return !(x >= y); };
  case P::ULE:
    return [](double x, double y) -> double { return !(x > y); };
  case P::UNE:
    return [](double x, double y) -> double { return x != y; };
  case P::UNO:
    return [](double x, double y) -> double { return std::isunordered(x, y); };
  case P::AlwaysTrue:
    break;
  }
  return [](double, double) { return 1.0; };
}
