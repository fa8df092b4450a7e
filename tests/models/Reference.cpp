//===- Reference.cpp - the reference models by name -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/Reference.h"
#include "tests/models/Families.h"

#include <cmath>

using namespace ladle::reference;

Reference::~Reference() = default;

std::unique_ptr<Reference>
ladle::reference::makeReference(const std::string &model,
                                const ReferenceShape &shape) {
  for (Family *family :
       {makeAdditive, makeDelta, makeComposite, makeRwkv7, makeMamba3})
    if (std::unique_ptr<Reference> reference = family(model, shape))
      return reference;
  return nullptr;
}

std::vector<std::string> ladle::reference::modelNames() {
  return {"coupled",
          "delta_net",
          "gated_delta_net",
          "gated_delta_rule",
          "gdn2",
          "gla",
          "kda",
          "kda_lower_bound",
          "lightning",
          "linear_attention",
          "mamba",
          "mamba2",
          "mamba3",
          "mamba3_mimo",
          "retnet",
          "rwkv6",
          "rwkv7",
          "short_conv"};
}

//===----------------------------------------------------------------------===//
// Input ranges
//===----------------------------------------------------------------------===//

using Ranges = std::map<std::string, InputRange>;

/// All of `names` standard normal.
static Ranges normal(std::initializer_list<const char *> names) {
  Ranges ranges;
  for (const char *name : names)
    ranges[name] = {0, 1, /*normal=*/true};
  return ranges;
}

static InputRange uniform(double low, double high) {
  return {low, high, /*normal=*/false};
}

/// `ranges` with those of the gate -exp(A_log) softplus(a + dt_bias), whose
/// published initialisation is A in [1, 16] and a step of 0.001 to 0.1; the
/// biases of trained layers are wider.
static Ranges withGate(Ranges ranges) {
  ranges["A_log"] = uniform(0, 2.7);
  ranges["dt_bias"] = uniform(-4, 1);
  return ranges;
}

static Ranges mamba3Ranges() {
  Ranges ranges = normal({"x", "z", "B", "C", "dt", "da", "trap", "theta"});
  ranges["dt_bias"] = uniform(-5, -1);
  ranges["D"] = uniform(0.5, 1.5);
  for (const char *name : {"B_norm", "C_norm", "B_bias", "C_bias"})
    ranges[name] = uniform(0.5, 1.5);
  return ranges;
}

std::map<std::string, InputRange>
ladle::reference::inputRanges(const std::string &model,
                              const ReferenceShape &shape) {
  if (model == "linear_attention" || model == "delta_net")
    return model == "delta_net" ? normal({"q", "k", "v", "b"})
                                : normal({"q", "k", "v"});
  if (model == "retnet") {
    Ranges ranges = normal({"q", "k", "v"});
    ranges["gamma"] = uniform(0.9, 0.999);
    return ranges;
  }
  if (model == "lightning") {
    Ranges ranges = normal({"q", "k", "v"});
    ranges["slope"] = uniform(0.004, 0.9);
    return ranges;
  }
  if (model == "gla")
    return normal({"q", "k", "g", "v"});
  if (model == "mamba") {
    Ranges ranges = withGate(normal({"x", "z", "B", "C", "dt"}));
    ranges["skip"] = uniform(0.5, 1.5);
    return ranges;
  }
  if (model == "mamba2") {
    Ranges ranges = withGate(normal({"x", "z", "B", "C", "dt"}));
    ranges["D"] = uniform(0.5, 1.5);
    return ranges;
  }
  if (model == "gated_delta_rule") {
    // Keys this long keep beta |k|^2 below 1.5, so that the rule contracts.
    double bound = std::sqrt(1.5 / shape.size("Dk"));
    Ranges ranges = normal({"v"});
    ranges["q"] = ranges["k"] = uniform(-bound, bound);
    ranges["g"] = uniform(-3, 0);
    ranges["beta"] = uniform(0, 1);
    return ranges;
  }
  if (model == "gated_delta_net" || model == "kda" ||
      model == "kda_lower_bound")
    return withGate(normal({"q", "k", "v", "a", "b"}));
  if (model == "gdn2")
    return withGate(normal({"q", "k", "v", "a", "b", "w"}));
  if (model == "short_conv") {
    Ranges ranges = withGate(normal({"q", "k", "v", "z", "a", "b"}));
    ranges["norm"] = uniform(0.5, 1.5);
    for (const char *name : {"conv_q", "conv_k", "conv_v"})
      ranges[name] = uniform(-0.5, 0.5);
    return ranges;
  }
  if (model == "coupled")
    return normal({"q", "k", "v", "a", "b"});
  if (model == "rwkv6") {
    Ranges ranges = normal({"u", "r", "k", "v"});
    ranges["w"] = uniform(-6, 1);
    return ranges;
  }
  if (model == "rwkv7") {
    Ranges ranges = normal({"r", "k", "w", "a", "v", "g"});
    ranges["k_k"] = uniform(0.5, 1);
    ranges["k_a"] = uniform(0, 1.1);
    ranges["r_k"] = uniform(-0.5, 0.5);
    ranges["norm_w"] = uniform(0.5, 1.5);
    ranges["norm_b"] = uniform(-0.2, 0.2);
    return ranges;
  }
  if (model == "mamba3")
    return mamba3Ranges();
  if (model == "mamba3_mimo") {
    Ranges ranges = mamba3Ranges();
    for (const char *name : {"mimo_x", "mimo_z", "mimo_o"})
      ranges[name] = uniform(-1, 1);
    return ranges;
  }
  return {};
}
