//===- InterpreterTest.cpp - the oracle, operation by operation -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Oracle.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace ladle;
using interpreter::Precision;
using interpreter::SpecInterpreter;

using Arrays = SpecInterpreter::Arrays;

static SpecInterpreter parse(const std::string &ir,
                             Precision precision = Precision::Float64) {
  std::string messages;
  std::optional<SpecInterpreter> oracle =
      check::parseOracle(ir, messages, precision);
  INFO(messages);
  REQUIRE(oracle.has_value());
  return std::move(*oracle);
}

static Arrays step(const SpecInterpreter &oracle, SpecInterpreter::Row &row,
                   const Arrays &tokens, const Arrays &params = {}) {
  Arrays outputs;
  oracle.step(row, params, tokens, outputs);
  return outputs;
}

/// The outputs of one token of a recurrence without a history.
static Arrays evaluate(const std::string &ir, const Arrays &tokens,
                       const Arrays &params = {}) {
  SpecInterpreter oracle = parse(ir);
  SpecInterpreter::Row row = oracle.makeRow();
  return step(oracle, row, tokens, params);
}

static void requireClose(const std::vector<double> &actual,
                         const std::vector<double> &expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO("element " << i);
    REQUIRE(actual[i] == Approx(expected[i]).epsilon(1e-14).margin(1e-300));
  }
}

TEST_CASE("elementwise operations are those of float64") {
  double x = -1.75, y = 0.5;
  Arrays outputs = evaluate(R"mlir(
    ladle.recurrence @f(token %x: tensor<1xf32>, token %y: tensor<1xf32>)
        -> (a: tensor<1xf32>, b: tensor<1xf32>, c: tensor<1xf32>,
            d: tensor<1xf32>, e: tensor<1xf32>) {
      %third = arith.constant dense<0.333333333> : tensor<1xf32>
      %0 = arith.mulf %x, %third : tensor<1xf32>
      %a = math.exp %0 : tensor<1xf32>
      %b = ladle.softplus %x : tensor<1xf32>
      %c = ladle.silu %x : tensor<1xf32>
      %1 = arith.divf %x, %y : tensor<1xf32>
      %d = ladle.elu %1 : tensor<1xf32>
      %2 = arith.cmpf olt, %x, %y : tensor<1xf32>
      %e = arith.select %2, %y, %x : tensor<1xi1>, tensor<1xf32>
      ladle.yield %a, %b, %c, %d, %e : tensor<1xf32>, tensor<1xf32>,
                  tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
    })mlir",
                            {{x}, {y}});
  requireClose(outputs[0], {std::exp(x * double(0.333333333f))});
  requireClose(outputs[1], {std::log1p(std::exp(x))});
  requireClose(outputs[2], {x / (1 + std::exp(-x))});
  requireClose(outputs[3], {std::expm1(x / y)});
  requireClose(outputs[4], {y});
}

// What ladle-expand-functions makes of softplus, to which expand-functions.mlir
// holds it.
TEST_CASE("the series of softplus has the digits of float32") {
  std::string expanded = R"mlir(
    ladle.recurrence @f(token %x: tensor<1xf32>) -> (y: tensor<1xf32>) {
      %zero = arith.constant dense<0.000000e+00> : tensor<1xf32>
      %c0 = arith.constant dense<0.66666317> : tensor<1xf32>
      %c1 = arith.constant dense<0.400249094> : tensor<1xf32>
      %c2 = arith.constant dense<2.796060e-01> : tensor<1xf32>
      %c3 = arith.constant dense<0.281783342> : tensor<1xf32>
      %two = arith.constant dense<2.000000e+00> : tensor<1xf32>
      %0 = math.absf %x : tensor<1xf32>
      %1 = arith.negf %0 : tensor<1xf32>
      %e = math.exp %1 : tensor<1xf32>
      %2 = arith.addf %e, %two : tensor<1xf32>
      %s = arith.divf %e, %2 : tensor<1xf32>
      %z = arith.mulf %s, %s : tensor<1xf32>
      %3 = math.fma %c3, %z, %c2 : tensor<1xf32>
      %4 = math.fma %3, %z, %c1 : tensor<1xf32>
      %5 = math.fma %4, %z, %c0 : tensor<1xf32>
      %6 = arith.mulf %s, %z : tensor<1xf32>
      %7 = arith.addf %s, %s : tensor<1xf32>
      %tail = math.fma %6, %5, %7 : tensor<1xf32>
      %8 = arith.maximumf %x, %zero : tensor<1xf32>
      %y = arith.addf %8, %tail : tensor<1xf32>
      ladle.yield %y : tensor<1xf32>
    })mlir";
  SpecInterpreter oracle = parse(expanded);
  for (int i = -1280; i <= 1280; ++i) {
    double x = i / 32.0;
    CAPTURE(x);
    SpecInterpreter::Row row = oracle.makeRow();
    double exact = std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    REQUIRE(step(oracle, row, {{x}})[0][0] == Approx(exact).epsilon(1e-8));
  }
}

TEST_CASE("conversions do not round") {
  Arrays outputs = evaluate(R"mlir(
    ladle.recurrence @f(token %x: tensor<1xbf16>) -> (y: tensor<1xf16>) {
      %0 = arith.extf %x : tensor<1xbf16> to tensor<1xf32>
      %y = arith.truncf %0 : tensor<1xf32> to tensor<1xf16>
      ladle.yield %y : tensor<1xf16>
    })mlir",
                            {{0.1}});
  REQUIRE(outputs[0][0] == 0.1);
}

TEST_CASE("a broadcast repeats heads in groups") {
  Arrays outputs = evaluate(R"mlir(
    ladle.recurrence @f(token %x: tensor<2x2xf32>) -> (y: tensor<4x3x2xf32>) {
      %y = ladle.broadcast %x dims [0, 2]
         : tensor<2x2xf32> to tensor<4x3x2xf32>
      ladle.yield %y : tensor<4x3x2xf32>
    })mlir",
                            {{1, 2, 3, 4}});
  requireClose(outputs[0], {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2,
                            3, 4, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4});
}

TEST_CASE("a sum drops any dimension but heads") {
  Arrays outputs = evaluate(R"mlir(
    ladle.recurrence @f(token %x: tensor<1x2x3xf32>)
        -> (a: tensor<1x3xf32>, b: tensor<1x2xf32>) {
      %a = ladle.sum %x dim 1 : tensor<1x2x3xf32> to tensor<1x3xf32>
      %b = ladle.sum %x dim 2 : tensor<1x2x3xf32> to tensor<1x2xf32>
      ladle.yield %a, %b : tensor<1x3xf32>, tensor<1x2xf32>
    })mlir",
                            {{1, 2, 3, 4, 5, 6}});
  requireClose(outputs[0], {5, 7, 9});
  requireClose(outputs[1], {6, 15});
}

TEST_CASE("l2norm and rotate work along the last dimension") {
  Arrays outputs = evaluate(R"mlir(
    ladle.recurrence @f(token %x: tensor<1x3xf32>, token %phi: tensor<1x1xf32>)
        -> (a: tensor<1x3xf32>, b: tensor<1x3xf32>) {
      %a = ladle.l2norm %x eps 0.25 : tensor<1x3xf32>
      %b = ladle.rotate %x, %phi : tensor<1x3xf32>, tensor<1x1xf32>
      ladle.yield %a, %b : tensor<1x3xf32>, tensor<1x3xf32>
    })mlir",
                            {{1, 2, 3}, {0.5}});
  double scale = 1 / std::sqrt(14.25), c = std::cos(0.5), s = std::sin(0.5);
  requireClose(outputs[0], {scale, 2 * scale, 3 * scale});
  requireClose(outputs[1], {c - 2 * s, s + 2 * c, 3});
}

TEST_CASE("a window shifts and convolves, and a carry keeps it") {
  SpecInterpreter oracle = parse(R"mlir(
    ladle.recurrence @f(param %w: tensor<1x3x1xf32>, token %x: tensor<1x1xf32>,
                        carry %window: tensor<1x2x1xf32>)
        -> (y: tensor<1x1xf32>) {
      %y = ladle.conv %window, %x, %w
         : tensor<1x2x1xf32>, tensor<1x1xf32>, tensor<1x3x1xf32>
      %next = ladle.shift %window, %x : tensor<1x2x1xf32>, tensor<1x1xf32>
      ladle.yield %y, %next : tensor<1x1xf32>, tensor<1x2x1xf32>
    })mlir");
  SpecInterpreter::Row row = oracle.makeRow();
  Arrays weights = {{100, 10, 1}};
  requireClose(step(oracle, row, {{1}}, weights)[0], {1});
  requireClose(step(oracle, row, {{2}}, weights)[0], {12});
  requireClose(step(oracle, row, {{3}}, weights)[0], {123});
  requireClose(row.carries[0], {2, 3});
}

TEST_CASE("terms of an answer are what cancels in it") {
  // y = (x − Sᵀq) · 2, of S = [3, 4, -5]ᵀ with dv = 1.
  SpecInterpreter oracle = parse(R"mlir(
    ladle.recurrence @f(token %x: tensor<1x1xf32>, token %q: tensor<1x3xf32>,
        token %w: tensor<1x1xf32>,
        state %S: !ladle.state<1x3x1xf32>) -> (y: tensor<1x1xf32>,
                                               z: tensor<1x1xf32>) {
      %0 = ladle.read %S, %q
         : !ladle.state<1x3x1xf32>, tensor<1x3xf32> -> tensor<1x1xf32>
      %1 = arith.subf %x, %0 : tensor<1x1xf32>
      %2 = arith.mulf %1, %w : tensor<1x1xf32>
      ladle.yield %2, %x, %S : tensor<1x1xf32>, tensor<1x1xf32>,
                               !ladle.state<1x3x1xf32>
    })mlir");
  SpecInterpreter::Row row = oracle.makeRow();
  row.states[0] = {3, 4, -5};
  REQUIRE(step(oracle, row, {{1}, {1, 1, 1.4}, {2}}).size() == 2);
  REQUIRE(row.terms.empty());
  row.keepsTerms = true;
  // 3 + 4 − 7 leaves nothing: what is rounded is √74.
  requireClose(step(oracle, row, {{1}, {1, 1, 1.4}, {2}})[0], {2});
  requireClose(row.terms[0], {2 * std::sqrt(75)});
  requireClose(row.terms[1], {1});
  // Terms are no less than their sum.
  requireClose(step(oracle, row, {{1}, {1, 1, 0}, {2}})[0], {-12});
  requireClose(row.terms[0], {2 * std::sqrt(50)});
}

TEST_CASE("terms of a state are what it is the sum of") {
  auto termsAfter = [](const char *value, double first, double second) {
    SpecInterpreter oracle = parse(std::string(R"mlir(
      ladle.recurrence @f(token %v: tensor<1x1xf32>, token %k: tensor<1x1xf32>,
          token %g: tensor<1xf32>,
          state %S: !ladle.state<1x1x1xf32>) -> (y: tensor<1x1xf32>) {
        %r = ladle.read %S, %k
           : !ladle.state<1x1x1xf32>, tensor<1x1xf32> -> tensor<1x1xf32>
        %u = )mlir") + value + R"mlir( : tensor<1x1xf32>
        %D = ladle.decay %S, %g : !ladle.state<1x1x1xf32>, tensor<1xf32>
        %T = ladle.write %D, %k, %u
           : !ladle.state<1x1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>
        %y = ladle.read %T, %k
           : !ladle.state<1x1x1xf32>, tensor<1x1xf32> -> tensor<1x1xf32>
        ladle.yield %y, %T : tensor<1x1xf32>, !ladle.state<1x1x1xf32>
      })mlir");
    SpecInterpreter::Row row = oracle.makeRow();
    row.keepsTerms = true;
    step(oracle, row, {{first}, {1}, {1}});
    requireClose(step(oracle, row, {{second}, {1}, {0.5}})[0], {0});
    return row.terms[0];
  };
  // 6 / 2 − 3 leaves nothing: what is rounded is √(3² + 3²).
  requireClose(termsAfter("arith.negf %v", -6, 3), {std::sqrt(18)});
  // A write that is told what there is corrects what was rounded before.
  requireClose(termsAfter("arith.subf %v, %r", 6, 3), {0});
}

TEST_CASE("a state decays, takes writes of a rank, and is read by groups") {
  // One key head, two state heads, two ranks; dk = 2, dv = 1.
  SpecInterpreter oracle = parse(R"mlir(
    ladle.recurrence @f(token %a: tensor<1x2xf32>, token %k: tensor<1x2x2xf32>,
        token %u: tensor<2x2x1xf32>, token %q: tensor<1x2xf32>,
        state %S: !ladle.state<2x2x1xf32>) -> (y: tensor<2x1xf32>) {
      %0 = ladle.decay %S, %a : !ladle.state<2x2x1xf32>, tensor<1x2xf32>
      %1 = ladle.write %0, %k, %u
         : !ladle.state<2x2x1xf32>, tensor<1x2x2xf32>, tensor<2x2x1xf32>
      %y = ladle.read %1, %q
         : !ladle.state<2x2x1xf32>, tensor<1x2xf32> -> tensor<2x1xf32>
      ladle.yield %y, %1 : tensor<2x1xf32>, !ladle.state<2x2x1xf32>
    })mlir");
  SpecInterpreter::Row row = oracle.makeRow();
  row.states[0] = {1, 2, 3, 4};
  Arrays outputs =
      step(oracle, row, {{0.5, 2}, {1, 2, 3, 4}, {1, 10, 100, 1000}, {1, -1}});
  requireClose(row.states[0],
               {0.5 + 1 + 30, 4 + 2 + 40, 1.5 + 100 + 3000, 8 + 200 + 4000});
  requireClose(outputs[0], {31.5 - 46, 3101.5 - 4208});
}

TEST_CASE("an older version of a state can still be read") {
  SpecInterpreter oracle = parse(R"mlir(
    ladle.recurrence @f(token %a: tensor<1xf32>, token %q: tensor<1x1xf32>,
        state %S: !ladle.state<1x1x1xf32>) -> (y: tensor<1x1xf32>) {
      %0 = ladle.decay %S, %a : !ladle.state<1x1x1xf32>, tensor<1xf32>
      %y = ladle.read %S, %q
         : !ladle.state<1x1x1xf32>, tensor<1x1xf32> -> tensor<1x1xf32>
      ladle.yield %y, %0 : tensor<1x1xf32>, !ladle.state<1x1x1xf32>
    })mlir");
  SpecInterpreter::Row row = oracle.makeRow();
  row.states[0] = {8};
  requireClose(step(oracle, row, {{0.25}, {1}})[0], {8});
  requireClose(row.states[0], {2});
  requireClose(step(oracle, row, {{0.25}, {1}})[0], {2});
}

TEST_CASE("two states can change places") {
  SpecInterpreter oracle = parse(R"mlir(
    ladle.recurrence @f(token %x: tensor<1xf32>,
        state %A: !ladle.state<1x1x1xf32>, state %B: !ladle.state<1x1x1xf32>)
        -> (y: tensor<1xf32>) {
      ladle.yield %x, %B, %A : tensor<1xf32>, !ladle.state<1x1x1xf32>,
                               !ladle.state<1x1x1xf32>
    })mlir");
  SpecInterpreter::Row row = oracle.makeRow();
  row.states = {{1}, {2}};
  step(oracle, row, {{0}});
  REQUIRE(row.states == Arrays{{2}, {1}});
}

TEST_CASE("an entry precision rounds what depends on the state, once written") {
  SpecInterpreter oracle = parse(R"mlir(
    ladle.recurrence @f(token %k: tensor<1x1xf32>, token %v: tensor<1x1xf32>,
        state %S: !ladle.state<1x1x1xf32>, state %T: !ladle.state<1x1x1xf32>)
        -> (y: tensor<1x1xf32>) {
      %p = ladle.read %S, %k
         : !ladle.state<1x1x1xf32>, tensor<1x1xf32> -> tensor<1x1xf32>
      %u = arith.addf %p, %v : tensor<1x1xf32>
      %0 = ladle.write %S, %k, %v
         : !ladle.state<1x1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>
      %1 = ladle.write %T, %k, %u
         : !ladle.state<1x1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>
      ladle.yield %u, %0, %1 : tensor<1x1xf32>, !ladle.state<1x1x1xf32>,
                               !ladle.state<1x1x1xf32>
    })mlir",
                                 Precision::Bfloat16);
  SpecInterpreter::Row row = oracle.makeRow();
  double value = 1 + 0x1p-9;
  Arrays outputs = step(oracle, row, {{1}, {value}});
  REQUIRE(row.states == Arrays{{value}, {1}});
  REQUIRE(outputs[0][0] == value);
}

TEST_CASE("rounding is to nearest even, with subnormals and infinities") {
  auto bf16 = [](double x) {
    return interpreter::roundTo(x, Precision::Bfloat16);
  };
  auto f16 = [](double x) {
    return interpreter::roundTo(x, Precision::Float16);
  };
  REQUIRE(bf16(1 + 0x1p-8) == 1);
  REQUIRE(bf16(1 + 0x3p-8) == 1 + 0x1p-6);
  REQUIRE(bf16(-0.1) == -0.10009765625);
  REQUIRE(bf16(0) == 0);
  REQUIRE(f16(65519) == 65504);
  REQUIRE(f16(-65520) == -std::numeric_limits<double>::infinity());
  REQUIRE(f16(0x1.8p-24) == 0x1p-23);
  REQUIRE(f16(0x1p-25) == 0);
  REQUIRE(interpreter::roundTo(0.1, Precision::Float32) == double(0.1f));
  REQUIRE(std::isnan(bf16(std::nan(""))));
  for (float x : {3.14159f, -1e-3f, 1e30f, 1e-40f})
    REQUIRE(interpreter::roundTo(double(x) * (1 + 1e-9), Precision::Float32) ==
            double(float(double(x) * (1 + 1e-9))));
}

TEST_CASE("an operation that the oracle does not know is named") {
  std::string messages;
  REQUIRE_FALSE(check::parseOracle(R"mlir(
    ladle.recurrence @f(token %x: tensor<1xf32>) -> (y: tensor<1xf32>) {
      %y = math.cbrt %x : tensor<1xf32>
      ladle.yield %y : tensor<1xf32>
    })mlir",
                                   messages)
                    .has_value());
  REQUIRE_THAT(messages,
               Catch::Contains("oracle.mlir:3:12: error: the interpreter does "
                               "not know 'math.cbrt'"));
}
