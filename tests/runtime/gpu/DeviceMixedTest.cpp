//===- DeviceMixedTest.cpp - short and long rows of one call on a GPU -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using check::CheckCase;

static void checkOn(const std::string &model, const std::string &text) {
  CAPTURE(model, text);
  check::CheckRequest request = requestOf(model);
  request.target = "cuda";
  requirePassed(request, {need(CheckCase::parse(text))});
}

static const char *const moving =
    ",page=8,rows=3,staggered=1,pads=1,resets=1,forks=1,takes_states=1";

// Rows at different fills, without a state and with one, branches of others,
// slots that others have had, and padding.
TEST_CASE("short rows cross over beside long ones, and branch") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=kv_only,L=32,m=6,crossover=20,tokens=90"},
      {"gated_delta_rule", "route=kv_only,L=16,m=5,crossover=16,tokens=50,"
                           "moves=1,seed=4"},
      {"kda", "route=kv_only,L=32,m=8,crossover=18,tokens=50,seed=2"},
      {"rwkv7", "route=kv_only,L=16,m=8,crossover=12,tokens=40,seed=3"},
      {"mamba3", "route=kv_only,L=16,m=4,crossover=9,tokens=40,seed=5"},
      {"gated_delta_rule", "route=outer,L=16,m=9,tokens=30,seed=6"},
      {"gated_delta_rule", "route=adjoint,L=16,m=9,tokens=30,seed=7"},
  }));
  checkOn(model, text + moving);
}

TEST_CASE("trees of drafts in pages, of rows that cross over and branch") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=kv_only,L=32,m=7,crossover=19,drafts=4,"
                           "tokens=60"},
      {"gated_delta_rule", "route=inner,L=16,m=8,drafts=5,tokens=40,seed=2"},
      {"kda", "route=kv_only,L=16,m=6,crossover=12,drafts=3,tokens=30,seed=3"},
      {"mamba3", "route=inner,L=16,m=6,drafts=4,tokens=30,seed=4"},
      {"gated_delta_rule", "route=adjoint,L=16,m=6,drafts=4,tokens=24,seed=5"},
  }));
  checkOn(model, text + ",trees=1" + moving);
}
