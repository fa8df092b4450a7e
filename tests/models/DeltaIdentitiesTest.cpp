//===- DeltaIdentitiesTest.cpp - where delta models coincide ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/TestInputs.h"

using namespace ladle::reference;

static const ReferenceShape shape{
    {{"H", 3}, {"Hk", 3}, {"Hv", 3}, {"Dk", 6}, {"Dv", 5}, {"W", 3}}, {}};
static constexpr int64_t heads = 3, keys = 3 * 6, values = 3 * 5;

static std::vector<double> repeated(const std::vector<double> &x, int count) {
  std::vector<double> result;
  for (double value : x)
    result.insert(result.end(), count, value);
  return result;
}

static double logit(double p) { return std::log(p / (1 - p)); }

TEST_CASE("kda with equal channels is gated delta net") {
  Inputs inputs("kda", shape);
  auto kda = makeReference("kda", shape);
  auto gdn = makeReference("gated_delta_net", shape);
  Tensors params = inputs.draw({{"A_log", heads}, {"dt_bias", heads}});
  Tensors wide = params;
  wide["dt_bias"] = repeated(params["dt_bias"], 6);
  for (int t = 0; t < 12; ++t) {
    Tensors token = inputs.draw(
        {{"q", keys}, {"k", keys}, {"v", values}, {"a", heads}, {"b", heads}});
    Tensors wideToken = token;
    wideToken["a"] = repeated(token["a"], 6);
    CHECK(relativeError(kda->step(wide, wideToken).at("y"),
                        gdn->step(params, token).at("y")) < 1e-13);
  }
  CHECK(relativeError(kda->state("S"), gdn->state("S")) < 1e-13);
}

TEST_CASE("gdn2 with one gate for both is kda") {
  Inputs inputs("kda", shape);
  auto kda = makeReference("kda", shape);
  auto gdn2 = makeReference("gdn2", shape);
  Tensors params = inputs.draw({{"A_log", heads}, {"dt_bias", keys}});
  for (int t = 0; t < 12; ++t) {
    Tensors token = inputs.draw(
        {{"q", keys}, {"k", keys}, {"v", values}, {"a", keys}, {"b", heads}});
    Tensors wide = token;
    wide["b"] = repeated(token["b"], 6);
    wide["w"] = repeated(token["b"], 5);
    CHECK(relativeError(gdn2->step(params, wide).at("y"),
                        kda->step(params, token).at("y")) < 1e-13);
  }
  CHECK(relativeError(gdn2->state("S"), kda->state("S")) < 1e-13);
}

TEST_CASE("the bounded gate of kda never forgets faster than its bound") {
  auto kda = makeReference("kda_lower_bound", shape);
  Tensors params{{"A_log", std::vector<double>(heads, 2)},
                 {"dt_bias", std::vector<double>(keys)}};
  Inputs inputs("kda_lower_bound", shape);
  Tensors token = inputs.draw(
      {{"q", keys}, {"k", keys}, {"v", values}, {"a", keys}, {"b", heads}});
  kda->step(params, token);
  std::vector<double> before = kda->state("S");
  token["a"] = std::vector<double>(keys, 100);   // the gate is at its bound
  token["b"] = std::vector<double>(heads, -100); // and nothing is written
  kda->step(params, token);
  CHECK(relativeError(kda->state("S"), times(before, std::exp(-5))) < 1e-12);
}

TEST_CASE("the gated delta rule with beta 0 only decays") {
  Inputs inputs("gated_delta_rule", shape);
  auto rule = makeReference("gated_delta_rule", shape);
  Sizes sizes{
      {"q", keys}, {"k", keys}, {"v", values}, {"g", heads}, {"beta", heads}};
  rule->step({}, inputs.draw(sizes));
  std::vector<double> before = rule->state("S");
  Tensors token = inputs.draw(sizes);
  token["g"] = {-0.5, -0.5, -0.5};
  token["beta"] = {0, 0, 0};
  rule->step({}, token);
  CHECK(relativeError(rule->state("S"), times(before, std::exp(-0.5))) < 1e-14);
}

TEST_CASE("delta net recalls what it wrote under orthogonal keys") {
  auto net = makeReference("delta_net", shape);
  Inputs inputs("delta_net", shape);
  auto unit = [](int axis) {
    std::vector<double> row(keys);
    for (int64_t head = 0; head < heads; ++head)
      row[head * 6 + axis] = 2; // normalised by the model
    return row;
  };
  std::vector<std::vector<double>> written;
  std::vector<double> open(heads, 100);
  // The second round replaces what the first wrote.
  for (int t = 0; t < 12; ++t) {
    written.push_back(inputs.draw({{"v", values}}).at("v"));
    net->step({}, {{"q", unit(t % 6)},
                   {"k", unit(t % 6)},
                   {"v", written.back()},
                   {"b", open}});
  }
  std::vector<double> closed(heads, -100), zero(values);
  for (int axis = 0; axis < 6; ++axis) {
    Tensors y = net->step(
        {}, {{"q", unit(axis)}, {"k", unit(0)}, {"v", zero}, {"b", closed}});
    // Up to the eps of the norm.
    CHECK(relativeError(times(y.at("y"), std::sqrt(6)), written[6 + axis]) <
          1e-6);
  }
}

TEST_CASE("grouped key heads are repeated key heads") {
  ReferenceShape grouped = shape;
  grouped.sizes["Hk"] = 1;
  Inputs inputs("gated_delta_rule", shape);
  auto shared = makeReference("gated_delta_rule", grouped);
  auto full = makeReference("gated_delta_rule", shape);
  for (int t = 0; t < 5; ++t) {
    Tensors token = inputs.draw(
        {{"q", 6}, {"k", 6}, {"v", values}, {"g", heads}, {"beta", heads}});
    Tensors wide = token;
    for (const char *name : {"q", "k"})
      for (int copy = 1; copy < heads; ++copy)
        wide[name].insert(wide[name].end(), token[name].begin(),
                          token[name].end());
    CHECK(shared->step({}, token).at("o") == full->step({}, wide).at("o"));
  }
}

TEST_CASE("a convolution that keeps the newest input is no convolution") {
  Inputs inputs("short_conv", shape);
  auto mixer = makeReference("short_conv", shape);
  auto net = makeReference("gated_delta_net", shape);
  Tensors params =
      inputs.draw({{"A_log", heads}, {"dt_bias", heads}, {"norm", 5}});
  for (const char *name : {"q", "k", "v"}) {
    int64_t width = *name == 'v' ? 5 : 6;
    std::vector<double> &weight = params["conv_" + std::string(name)];
    weight.assign(heads * 4 * width, 0);
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t c = 0; c < width; ++c)
        weight[(head * 4 + 3) * width + c] = 1;
  }
  for (int t = 0; t < 8; ++t) {
    Tensors token = inputs.draw({{"q", keys},
                                 {"k", keys},
                                 {"v", values},
                                 {"z", values},
                                 {"a", heads},
                                 {"b", heads}});
    mixer->step(params, token);
    for (const char *name : {"q", "k", "v"})
      for (double &x : token[name])
        x *= 1 / (1 + std::exp(-x));
    net->step(params, token);
  }
  CHECK(relativeError(mixer->state("S"), net->state("S")) < 1e-14);
}

TEST_CASE("a convolution of the oldest tap delays by the window") {
  Inputs inputs("short_conv", shape);
  auto mixer = makeReference("short_conv", shape);
  Tensors params = inputs.draw({{"A_log", heads},
                                {"dt_bias", heads},
                                {"norm", 5},
                                {"conv_q", 4 * keys},
                                {"conv_k", 4 * keys},
                                {"conv_v", 4 * values}});
  std::vector<double> &weight = params["conv_v"];
  for (int64_t i = 0; i < 4 * values; ++i)
    if (i / 5 % 4 != 0)
      weight[i] = 0;
  Sizes sizes{{"q", keys},   {"k", keys},  {"v", values},
              {"z", values}, {"a", heads}, {"b", heads}};
  for (int t = 0; t < 3; ++t) {
    mixer->step(params, inputs.draw(sizes));
    CHECK(mixer->state("S") == std::vector<double>(3 * 6 * 5));
  }
  mixer->step(params, inputs.draw(sizes));
  CHECK(mixer->state("S") != std::vector<double>(3 * 6 * 5));
}

TEST_CASE("coupled memories fall apart into delta rules") {
  Inputs inputs("coupled", shape);
  Sizes sizes{
      {"q", keys}, {"k", keys}, {"v", values}, {"a", heads}, {"b", heads}};

  SECTION("the slow one alone is delta net with a constant rate") {
    auto coupled = makeReference("coupled", shape);
    auto net = makeReference("delta_net", shape);
    for (int t = 0; t < 8; ++t) {
      Tensors token = inputs.draw(sizes);
      token["b"] = std::vector<double>(heads, -100);
      Tensors constant = token;
      constant["b"] = std::vector<double>(heads, logit(0.1));
      CHECK(relativeError(coupled->step({}, token).at("y"),
                          net->step({}, constant).at("y")) < 1e-12);
    }
    CHECK(relativeError(coupled->state("Slow"), net->state("S")) < 1e-12);
  }

  SECTION("the fast one alone is gated delta net") {
    ReferenceShape still = shape;
    still.options["rate"] = 0;
    auto coupled = makeReference("coupled", still);
    auto net = makeReference("gated_delta_net", shape);
    // exp(-softplus(-a)) = sigmoid(a)
    Tensors params{{"A_log", {0, 0, 0}}, {"dt_bias", {0, 0, 0}}};
    for (int t = 0; t < 8; ++t) {
      Tensors token = inputs.draw(sizes);
      Tensors negated = token;
      negated["a"] = times(token["a"], -1);
      CHECK(relativeError(coupled->step({}, token).at("y"),
                          net->step(params, negated).at("y")) < 1e-12);
    }
    CHECK(relativeError(coupled->state("Fast"), net->state("S")) < 1e-12);
  }
}
