//===- MambaIdentitiesTest.cpp - Mamba beside its relatives -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/TestInputs.h"

#include <numbers>

using namespace ladle::reference;

static const ReferenceShape shape{
    {{"H", 4}, {"G", 2}, {"R", 1}, {"N", 6}, {"P", 5}, {"A", 2}}, {}};
static constexpr int64_t heads = 4, keys = 2 * 6, values = 4 * 5;

static double softplus(double x) { return std::log1p(std::exp(x)); }

static Tensors mamba3Params(Inputs &inputs) {
  return inputs.draw({{"dt_bias", heads},
                      {"D", heads},
                      {"B_norm", 6},
                      {"C_norm", 6},
                      {"B_bias", heads * 6},
                      {"C_bias", heads * 6}});
}

static Tensors mamba3Token(Inputs &inputs) {
  return inputs.draw({{"x", values},
                      {"z", values},
                      {"B", keys},
                      {"C", keys},
                      {"dt", heads},
                      {"da", heads},
                      {"trap", heads},
                      {"theta", 2}});
}

/// B or C of mamba3 after norm and bias, [heads, N].
static std::vector<double> normed(const Tensors &params, const Tensors &token,
                                  const std::string &name) {
  std::vector<double> result;
  for (int64_t head = 0; head < heads; ++head) {
    const double *row = &token.at(name)[head / 2 * 6];
    double squares = 0;
    for (int64_t n = 0; n < 6; ++n)
      squares += row[n] * row[n] / 6;
    for (int64_t n = 0; n < 6; ++n)
      result.push_back(row[n] / std::sqrt(squares + 1e-5) *
                           params.at(name + "_norm")[n] +
                       params.at(name + "_bias")[head * 6 + n]);
  }
  return result;
}

TEST_CASE("mamba2 with a constant step is retention") {
  Inputs inputs("mamba2", shape);
  auto mamba = makeReference("mamba2", shape);
  ReferenceShape same{{{"H", 4}, {"Dk", 6}, {"Dv", 5}}, {}};
  auto retnet = makeReference("retnet", same);
  Tensors params = inputs.draw({{"A_log", heads}, {"dt_bias", heads}});
  params["D"] = std::vector<double>(heads);
  for (int64_t head = 0; head < heads; ++head)
    params["gamma"].push_back(std::exp(-std::exp(params["A_log"][head]) *
                                       softplus(params["dt_bias"][head])));
  for (int t = 0; t < 10; ++t) {
    Tensors token = inputs.draw({{"x", values}, {"B", keys}, {"C", keys}});
    token["dt"] = std::vector<double>(heads);
    token["z"] = std::vector<double>(values, 40); // silu(40) = 40
    token["q"] = token["C"], token["k"] = token["B"];
    for (int64_t i = 0; i < values; ++i)
      token["v"].push_back(token["x"][i] * std::sqrt(6) *
                           softplus(params["dt_bias"][i / 5]));
    CHECK(relativeError(mamba->step(params, token).at("y"),
                        times(retnet->step(params, token).at("y"), 40)) <
          1e-13);
  }
  CHECK(relativeError(mamba->state("S"), retnet->state("S")) < 1e-13);
}

// Channels of a head have its step and its decay.
TEST_CASE("mamba with one number for A is mamba2, head by head") {
  Inputs inputs("mamba2", shape);
  ReferenceShape shared = shape;
  shared.sizes["G"] = 1;
  auto mamba2 = makeReference("mamba2", shared);
  auto mamba = makeReference("mamba", {{{"D", values}, {"N", 6}}, {}});
  Tensors params =
      inputs.draw({{"A_log", heads}, {"dt_bias", heads}, {"D", heads}});
  Tensors wide;
  for (int64_t channel = 0; channel < values; ++channel) {
    wide["dt_bias"].push_back(params["dt_bias"][channel / 5]);
    wide["skip"].push_back(params["D"][channel / 5]);
    wide["A_log"].insert(wide["A_log"].end(), 6, params["A_log"][channel / 5]);
  }
  for (int t = 0; t < 10; ++t) {
    Tensors token = inputs.draw(
        {{"x", values}, {"z", values}, {"B", 6}, {"C", 6}, {"dt", heads}});
    Tensors spread = token;
    spread["dt"].clear();
    for (int64_t channel = 0; channel < values; ++channel)
      spread["dt"].push_back(token["dt"][channel / 5]);
    CHECK(relativeError(mamba->step(wide, spread).at("y"),
                        mamba2->step(params, token).at("y")) < 1e-13);
  }
}

TEST_CASE("mamba3 without trapezoid and rotation is mamba2") {
  Inputs inputs("mamba3", shape);
  auto mamba3 = makeReference("mamba3", shape);
  ReferenceShape wide = shape;
  wide.sizes["G"] = heads; // the biases differ by head
  auto mamba2 = makeReference("mamba2", wide);
  Tensors params = mamba3Params(inputs);
  Tensors token = mamba3Token(inputs);
  for (int64_t head = 0; head < heads; ++head)
    params["A_log"].push_back(std::log(softplus(token["da"][head])));
  for (int t = 0; t < 10; ++t) {
    Tensors next = mamba3Token(inputs);
    next["da"] = token["da"];
    next["trap"] = std::vector<double>(heads, 100);
    next["theta"] = std::vector<double>(2);
    Tensors projected = next;
    projected["B"] = normed(params, next, "B");
    projected["C"] = normed(params, next, "C");
    CHECK(relativeError(mamba3->step(params, next).at("y"),
                        mamba2->step(params, projected).at("y")) < 1e-13);
  }
  CHECK(relativeError(mamba3->state("S"), mamba2->state("S")) < 1e-13);
}

// The published step: B and C turn by the cumulative angle, the state does not.
TEST_CASE("mamba3 with a complex state is the model with rotated B and C") {
  Inputs inputs("mamba3", shape);
  auto mamba = makeReference("mamba3", shape);
  Tensors params = mamba3Params(inputs);
  std::vector<double> state(heads * 6 * 5), oldB(heads * 6), oldX(values);
  std::vector<double> angles(heads * 2);
  for (int t = 0; t < 12; ++t) {
    Tensors token = mamba3Token(inputs);
    std::vector<double> b = normed(params, token, "B"),
                        c = normed(params, token, "C"), y(values);
    for (int64_t head = 0; head < heads; ++head) {
      double dt = softplus(token["dt"][head] + params["dt_bias"][head]);
      double alpha = std::exp(-softplus(token["da"][head]) * dt);
      double lambda = 1 / (1 + std::exp(-token["trap"][head]));
      for (int64_t i = 0; i < 2; ++i) {
        double &angle = angles[head * 2 + i];
        angle += std::numbers::pi * std::tanh(token["theta"][i]) * dt;
        for (std::vector<double> *x : {&b, &c}) {
          double &even = (*x)[head * 6 + 2 * i];
          double &odd = (*x)[head * 6 + 2 * i + 1];
          double turned = even * std::cos(angle) - odd * std::sin(angle);
          odd = even * std::sin(angle) + odd * std::cos(angle);
          even = turned;
        }
      }
      for (int64_t p = 0; p < 5; ++p) {
        double x = token["x"][head * 5 + p], z = token["z"][head * 5 + p];
        double &out = y[head * 5 + p];
        for (int64_t n = 0; n < 6; ++n) {
          double &h = state[(head * 6 + n) * 5 + p];
          h = alpha * h +
              (1 - lambda) * dt * alpha * oldB[head * 6 + n] *
                  oldX[head * 5 + p] +
              lambda * dt * b[head * 6 + n] * x;
          out += c[head * 6 + n] * h;
        }
        out = (out + params["D"][head] * x) * z / (1 + std::exp(-z));
      }
    }
    oldB = b;
    oldX = token["x"];
    CHECK(relativeError(mamba->step(params, token).at("y"), y) < 1e-13);
    CHECK(relativeError(mamba->state("S"), state) < 1e-13);
  }
}

TEST_CASE("mamba3 of rank 1 with weights of 1 has one input and output") {
  Inputs inputs("mamba3", shape);
  auto mimo = makeReference("mamba3_mimo", shape);
  auto siso = makeReference("mamba3", shape);
  Tensors params = mamba3Params(inputs);
  params["mimo_x"] = params["mimo_z"] = params["mimo_o"] =
      std::vector<double>(values, 1);
  for (int t = 0; t < 5; ++t) {
    Tensors token = mamba3Token(inputs);
    CHECK(mimo->step(params, token) == siso->step(params, token));
  }
}

TEST_CASE("mamba3 of rank 2 sums its ranks into one state") {
  ReferenceShape two = shape;
  two.sizes["R"] = 2;
  Inputs inputs("mamba3_mimo", two);
  auto mimo = makeReference("mamba3_mimo", two);
  auto siso = makeReference("mamba3", shape);
  Tensors params = mamba3Params(inputs);
  params["D"] = std::vector<double>(heads);
  Tensors wide = params;
  auto twice = [](const std::vector<double> &x, int64_t width) {
    std::vector<double> result;
    for (size_t row = 0; row < x.size() / width; ++row)
      for (int copy = 0; copy < 2; ++copy)
        result.insert(result.end(), x.begin() + row * width,
                      x.begin() + (row + 1) * width);
    return result;
  };
  for (const char *name : {"B_bias", "C_bias"})
    wide[name] = twice(params[name], 6);
  wide["mimo_x"] = wide["mimo_z"] = wide["mimo_o"] =
      std::vector<double>(2 * values, 1);
  for (int t = 0; t < 5; ++t) {
    Tensors token = mamba3Token(inputs), wideToken = token;
    wideToken["B"] = twice(token["B"], 6);
    wideToken["C"] = twice(token["C"], 6);
    // Twice the drive read twice.
    CHECK(relativeError(mimo->step(wide, wideToken).at("y"),
                        times(siso->step(params, token).at("y"), 4)) < 1e-13);
  }
  CHECK(relativeError(mimo->state("S"), times(siso->state("S"), 2)) < 1e-13);
}
