//===- ReferenceTest.cpp - what holds for every reference -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/TestInputs.h"

using namespace ladle::reference;

/// Every size parameter of any model.
static const ReferenceShape everything{{{"H", 4},
                                        {"Hk", 2},
                                        {"Hv", 4},
                                        {"D", 20},
                                        {"G", 2},
                                        {"R", 3},
                                        {"Dk", 6},
                                        {"Dv", 5},
                                        {"N", 6},
                                        {"P", 5},
                                        {"A", 2},
                                        {"W", 3}},
                                       {}};

TEST_CASE("every model starts from a zero state and has input ranges") {
  for (const std::string &model : modelNames()) {
    INFO(model);
    std::unique_ptr<Reference> reference = makeReference(model, everything);
    REQUIRE(reference);
    CHECK_FALSE(inputRanges(model, everything).empty());
    std::vector<double> state =
        reference->state(model == "coupled" ? "Slow" : "S");
    CHECK(state == std::vector<double>(4 * 6 * 5));
    CHECK_THROWS_AS(reference->state("T"), std::out_of_range);
  }
}

TEST_CASE("an unknown model is null and has no ranges") {
  CHECK_FALSE(makeReference("mamba1", everything));
  CHECK(inputRanges("mamba1", everything).empty());
}

TEST_CASE("a missing token is an error") {
  auto reference = makeReference("retnet", everything);
  CHECK_THROWS_AS(reference->step({}, {}), std::out_of_range);
}

TEST_CASE("linear attention averages the values") {
  Inputs inputs("linear_attention", everything);
  auto reference = makeReference("linear_attention", everything);
  for (int t = 0; t < 10; ++t) {
    Tensors token = inputs.draw({{"q", 24}, {"k", 24}});
    token["v"] = std::vector<double>(20, 3);
    // The weights sum to one up to eps in the denominator.
    CHECK(relativeError(reference->step({}, token).at("y"), token["v"]) < 1e-5);
  }
}

TEST_CASE("lightning is retention of the activated inputs") {
  Inputs inputs("lightning", everything);
  auto lightning = makeReference("lightning", everything);
  auto retnet = makeReference("retnet", everything);
  Tensors params = inputs.draw({{"slope", 4}});
  for (double slope : params["slope"])
    params["gamma"].push_back(std::exp(-slope));
  for (int t = 0; t < 10; ++t) {
    Tensors token = inputs.draw({{"q", 24}, {"k", 24}, {"v", 20}});
    Tensors activated = token;
    for (auto &[name, values] : activated)
      for (double &x : values)
        x *= 1 / (1 + std::exp(-x));
    auto y = lightning->step(params, token).at("y");
    auto o = retnet->step(params, activated).at("y");
    CHECK(relativeError(y, times(o, std::sqrt(6))) < 1e-14);
  }
  CHECK(relativeError(lightning->state("S"),
                      times(retnet->state("S"), std::sqrt(6))) < 1e-14);
}

TEST_CASE("gla with open gates is retention without decay") {
  Inputs inputs("gla", everything);
  auto gla = makeReference("gla", everything);
  auto retnet = makeReference("retnet", everything);
  Tensors params{{"gamma", {1, 1, 1, 1}}};
  for (int t = 0; t < 10; ++t) {
    Tensors token = inputs.draw({{"q", 24}, {"k", 24}, {"v", 20}});
    token["g"] = std::vector<double>(24, 100);
    CHECK(relativeError(gla->step({}, token).at("y"),
                        retnet->step(params, token).at("y")) < 1e-14);
  }
}
