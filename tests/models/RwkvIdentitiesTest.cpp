//===- RwkvIdentitiesTest.cpp - RWKV beside its relatives -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/TestInputs.h"

using namespace ladle::reference;

static const ReferenceShape shape{{{"H", 3}, {"Dk", 6}, {"Dv", 5}}, {}};
static constexpr int64_t heads = 3, keys = 3 * 6, values = 3 * 5;

TEST_CASE("rwkv6 without decay and with bonus 1 is linear attention") {
  Inputs inputs("rwkv6", shape);
  auto rwkv = makeReference("rwkv6", shape);
  auto retnet = makeReference("retnet", shape);
  Tensors params{{"u", std::vector<double>(keys, 1)}, {"gamma", {1, 1, 1}}};
  for (int t = 0; t < 10; ++t) {
    Tensors token = inputs.draw({{"r", keys}, {"k", keys}, {"v", values}});
    token["w"] = std::vector<double>(keys, -100);
    token["q"] = token["r"];
    CHECK(relativeError(rwkv->step(params, token).at("y"),
                        times(retnet->step(params, token).at("y"),
                              std::sqrt(6))) < 1e-13);
  }
}

TEST_CASE("rwkv6 reads before it decays and writes") {
  auto rwkv = makeReference("rwkv6", shape);
  Tensors params{{"u", std::vector<double>(keys)}};
  Tensors token{{"r", std::vector<double>(keys, 1)},
                {"k", std::vector<double>(keys, 1)},
                {"v", std::vector<double>(values, 1)},
                {"w", std::vector<double>(keys, 0)}};
  double decay = std::exp(-1);
  CHECK(rwkv->step(params, token).at("y")[0] == 0);
  CHECK(rwkv->step(params, token).at("y")[0] == Approx(6));
  CHECK(rwkv->step(params, token).at("y")[0] == Approx(6 * (1 + decay)));
  CHECK(rwkv->state("S")[0] == Approx(1 + decay + decay * decay));
}

TEST_CASE("rwkv7 without decay and with a full rate is delta net") {
  Inputs inputs("rwkv7", shape);
  auto rwkv = makeReference("rwkv7", shape);
  auto net = makeReference("delta_net", shape);
  Tensors params = inputs.draw({{"r_k", keys}, {"norm_w", values}});
  params["norm_b"] = std::vector<double>(values);
  params["k_k"] = params["k_a"] = std::vector<double>(keys, 1);
  for (int t = 0; t < 10; ++t) {
    Tensors token =
        inputs.draw({{"r", keys}, {"k", keys}, {"v", values}, {"g", values}});
    // Keys of unit length: RWKV-7 writes with the key as it is.
    for (int64_t head = 0; head < heads; ++head) {
      double squares = 0;
      for (int64_t i = 0; i < 6; ++i)
        squares += std::pow(token["k"][head * 6 + i], 2);
      for (int64_t i = 0; i < 6; ++i)
        token["k"][head * 6 + i] /= std::sqrt(squares);
    }
    token["w"] = std::vector<double>(keys, -100);
    token["a"] = std::vector<double>(keys, 100);
    rwkv->step(params, token);
    net->step({}, {{"q", token["r"]},
                   {"k", token["k"]},
                   {"v", token["v"]},
                   {"b", std::vector<double>(heads, 100)}});
  }
  // Up to the eps of the norms.
  CHECK(relativeError(rwkv->state("S"), net->state("S")) < 1e-5);
}

TEST_CASE("rwkv7 normalises every head on its own and adds the bonus") {
  Inputs inputs("rwkv7", shape);
  auto rwkv = makeReference("rwkv7", shape);
  Tensors params = inputs.draw({{"k_k", keys}, {"k_a", keys}});
  params["norm_w"] = std::vector<double>(values, 1);
  params["norm_b"] = std::vector<double>(values, 0.25);
  params["r_k"] = std::vector<double>(keys);
  Tensors token = inputs.draw(
      {{"r", keys}, {"k", keys}, {"w", keys}, {"a", keys}, {"v", values}});
  token["g"] = std::vector<double>(values, 2);
  std::vector<double> y = rwkv->step(params, token).at("y");
  for (int64_t head = 0; head < heads; ++head) {
    double sum = 0;
    for (int64_t j = 0; j < 5; ++j)
      sum += y[head * 5 + j];
    CHECK(sum == Approx(5 * 2 * 0.25));
  }

  // The bonus alone: with k_a = 0 the key stays what it is.
  params["k_a"] = params["norm_w"] = std::vector<double>(keys);
  params["norm_b"] = std::vector<double>(values);
  params["r_k"] = std::vector<double>(keys, 1);
  y = rwkv->step(params, token).at("y");
  double dot = 0;
  for (int64_t i = 0; i < 6; ++i)
    dot += token["r"][i] * token["k"][i];
  CHECK(y[0] == Approx(2 * dot * token["v"][0]));
}
