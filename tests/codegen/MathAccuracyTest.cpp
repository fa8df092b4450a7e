//===- MathAccuracyTest.cpp - functions against double --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/JitSupport.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

using namespace ladle::test;

namespace {

constexpr int64_t width = 16;

std::string kernelOf(const std::string &function) {
  return "func.func @" + function +
         R"((%n: index, %x: memref<?xf32>, %y: memref<?xf32>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  scf.for %i = %c0 to %n step %c16 {
    %v = vector.load %x[%i] : memref<?xf32>, vector<16xf32>
    %w = math.)" +
         function + R"( %v : vector<16xf32>
    vector.store %w, %y[%i] : memref<?xf32>, vector<16xf32>
  }
  return
}
)";
}

struct Function {
  std::string name;
  double (*exact)(double);
  double limit; ///< of the relative error
};

double exactRsqrt(double x) { return 1 / std::sqrt(x); }

const std::vector<Function> functions{
    {"exp", std::exp, 1e-7},     {"log", std::log, 1e-7},
    {"log1p", std::log1p, 3e-7}, {"expm1", std::expm1, 3e-7},
    {"tanh", std::tanh, 3e-7},   {"erf", std::erf, 3e-7},
    {"sin", std::sin, 1e-7},     {"cos", std::cos, 1e-7},
    {"sqrt", std::sqrt, 6e-8},   {"rsqrt", exactRsqrt, 1.2e-7},
};

class Functions {
public:
  Functions() {
    std::string text;
    std::vector<std::string> names;
    for (const Function &function : functions) {
      text += kernelOf(function.name);
      names.push_back(function.name);
    }
    compiled = jit(text, names);
  }

  std::vector<float> evaluate(size_t function, std::vector<float> x) const {
    std::vector<float> y(x.size());
    int64_t n = static_cast<int64_t>(x.size());
    Descriptor<1> dx = describe(x), dy = describe(y);
    void *arguments[] = {&n, &dx, &dy};
    compiled.kernels[function](arguments);
    return y;
  }

  Jit compiled;
};

const Functions &compiledFunctions() {
  static const Functions functions;
  return functions;
}

/// The largest relative error where the exact value is a normal number.
double largestError(size_t function, const std::vector<float> &x) {
  std::vector<float> y = compiledFunctions().evaluate(function, x);
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double exact = functions[function].exact(x[i]);
    if (std::abs(exact) < 1.2e-38 || std::abs(exact) > 3.4e38)
      continue;
    double error = std::abs((y[i] - exact) / exact);
    largest = error <= largest ? largest : error; // NaN is an error
  }
  return largest;
}

std::vector<float> evenly(double low, double high, int64_t count = 20000) {
  std::vector<float> x(count - count % width);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(low + (high - low) * i / x.size());
  return x;
}

std::vector<float> logarithmically(double low, double high) {
  std::vector<float> x = evenly(std::log(low), std::log(high));
  for (float &value : x)
    value = std::exp(value);
  return x;
}

/// The arguments on which a function is used.
const std::map<std::string, std::vector<std::vector<float>>> ranges{
    {"exp", {evenly(-87, 88), evenly(-1, 1)}},
    {"log", {logarithmically(1e-37, 1e37), evenly(0.9, 1.1)}},
    {"log1p", {logarithmically(1e-10, 100), evenly(-0.5, 0.5)}},
    {"expm1", {logarithmically(1e-8, 1), evenly(-10, 10)}},
    {"tanh", {logarithmically(1e-8, 1), evenly(-10, 10)}},
    {"erf", {logarithmically(1e-8, 1), evenly(-5, 5)}},
    {"sin", {evenly(-3, 3), evenly(-1e5, 1e5)}},
    {"cos", {evenly(-3, 3), evenly(-1e5, 1e5)}},
    {"sqrt", {logarithmically(1e-37, 1e37)}},
    {"rsqrt", {logarithmically(1e-37, 1e37)}},
};

} // namespace

TEST_CASE("vector functions are close to the exact value") {
  REQUIRE(compiledFunctions().compiled.error == "");
  for (size_t i = 0; i < functions.size(); ++i)
    for (const std::vector<float> &x : ranges.at(functions[i].name)) {
      INFO(functions[i].name << " on [" << x.front() << ", " << x.back()
                             << "]");
      CHECK(largestError(i, x) <= functions[i].limit);
    }
}

TEST_CASE("vector functions saturate and propagate NaN") {
  REQUIRE(compiledFunctions().compiled.error == "");
  std::vector<float> x(width, 0.0f);
  x[0] = INFINITY, x[1] = -INFINITY, x[2] = NAN, x[3] = 100, x[4] = -200;
  std::vector<float> exp = compiledFunctions().evaluate(0, x);
  CHECK(exp[0] == INFINITY);
  CHECK(exp[1] == 0.0f);
  CHECK(std::isnan(exp[2]));
  CHECK(exp[3] == INFINITY);
  CHECK(exp[4] == 0.0f);
  CHECK(exp[5] == 1.0f);

  std::vector<float> log = compiledFunctions().evaluate(1, x);
  CHECK(log[0] == INFINITY);
  CHECK(std::isnan(log[1]));
  CHECK(std::isnan(log[2]));
  CHECK(log[5] == -INFINITY);

  std::vector<float> tanh = compiledFunctions().evaluate(4, x);
  CHECK(tanh[0] == 1.0f);
  CHECK(tanh[1] == -1.0f);
  CHECK(std::isnan(tanh[2]));
  CHECK(tanh[5] == 0.0f);
}
