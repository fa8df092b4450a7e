//===- DeviceDraftsTest.cpp - drafts on a GPU against the oracle ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains and trees, rows with different numbers of drafts, at different fills,
// padding, resets, tokens between them; any path is accepted.
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;

static const char *const moving =
    ",drafts=4,rows=3,tokens=9,staggered=1,pads=1,resets=1,seed=3";

TEST_CASE("drafts of a delta rule, by every route that verifies") {
  if (!hasGpu())
    return;
  auto route =
      GENERATE(as<std::string>(), "outer", "inner", "adjoint", "kv_only");
  for (const char *trees : {"0", "1"})
    checkOnGpu("gated_delta_rule",
               "route=" + route + ",L=12,m=6,trees=" + trees + moving);
}

TEST_CASE("drafts with carries, along dk, along dv, of heads that share") {
  if (!hasGpu())
    return;
  auto model = GENERATE(as<std::string>(), "linear_attention", "mamba3",
                        "short_conv", "mamba3_mimo");
  checkOnGpu(model, std::string("route=inner,L=12,m=6,trees=1") + moving);
}

// Numbers that wait in shared memory, which other threads write next to.
TEST_CASE(
    "drafts whose numbers are stored last, beside a state that is stored") {
  if (!hasGpu())
    return;
  auto drafts = GENERATE(as<std::string>(), "2", "4");
  checkOnGpu("retnet",
             "route=adjoint,L=16,m=8,page=16,rows=3,drafts=" + drafts);
  checkOnGpu("retnet", "route=adjoint,L=16,m=8,rows=3,drafts=" + drafts);
}

TEST_CASE("drafts with decays a channel, two writes a token, two states") {
  if (!hasGpu())
    return;
  auto model = GENERATE(as<std::string>(), "kda", "rwkv7", "coupled");
  checkOnGpu(model, std::string("route=inner,L=12,m=6,trees=1") + moving);
}

// Of what is tiny, tensor cores and bulk copies take no part in.
TEST_CASE("drafts of sizes that tensor cores multiply") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule",
       "route=inner,size.Hk=1,size.Hv=2,size.Dk=64,size.Dv=64,L=12,m=7"},
      {"gated_delta_rule",
       "route=inner,state=bf16,entries=bf16,size.Hk=1,size.Hv=2,size.Dk=64,"
       "size.Dv=32,L=12,m=7,trees=1"},
      {"gated_delta_rule",
       "route=outer,state=f16,entries=f16,size.Hk=1,size.Hv=2,size.Dk=32,"
       "size.Dv=48,L=12,m=7,trees=1"},
      {"gated_delta_net",
       "route=adjoint,size.Hk=1,size.Hv=2,size.Dk=96,size.Dv=48,L=12,m=7"},
      {"gated_delta_rule",
       "route=kv_only,size.Hk=1,size.Hv=1,size.Dk=64,size.Dv=32,L=16,m=12"},
      {"kda", "route=inner,size.H=2,size.Dk=64,size.Dv=32,L=12,m=6,trees=1"},
      {"mamba2", "route=inner,state=bf16,size.H=4,size.G=2,size.N=64,"
                 "size.P=32,L=12,m=6"},
      {"rwkv7", "route=inner,size.H=1,size.Dk=64,size.Dv=64,L=12,m=6,trees=1"},
      {"short_conv", "route=inner,size.Hk=1,size.Hv=2,size.Dk=64,size.Dv=64,"
                     "L=12,m=6,trees=1"},
      {"mamba3_mimo", "route=inner,size.H=2,size.G=1,size.N=64,size.P=32,"
                      "L=12,m=6,trees=1"},
  }));
  checkOnGpu(model, text + moving);
}

// Teams go back from their drafts, and threads that share entries divide them.
TEST_CASE("drafts with decays a channel, of sizes that tensor cores multiply") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      // States of 16 bits, folded by tensor cores: keys are split into parts.
      {"kda", "route=inner,state=bf16,entries=bf16,size.H=1,size.Dk=128,"
              "size.Dv=128,L=20,m=16,drafts=4"},
      {"rwkv7_core", "route=inner,state=bf16,entries=bf16,size.H=1,size.Dk=64,"
                     "size.Dv=64,L=20,m=16,drafts=4"},
      {"rwkv7_core", "route=inner,entries=bf16,size.H=1,size.Dk=64,"
                     "size.Dv=64,L=20,m=16,drafts=4"},
      {"gla", "route=inner,state=bf16,entries=bf16,size.H=1,size.Dk=256,"
              "size.Dv=64,L=20,m=16,drafts=4"},
      // A team that never has a draft; vectors in rows that teams have left.
      {"kda", "route=inner,state=bf16,entries=bf16,size.H=1,size.Dk=128,"
              "size.Dv=32,L=18,m=12,drafts=3"},
      {"gdn2", "route=inner,state=f16,size.Hk=1,size.Hv=1,size.Dk=128,"
               "size.Dv=32,L=24,m=12,drafts=6"},
      // Vectors of one element.
      {"kda", "route=inner,size.H=1,size.Dk=1,size.Dv=16,L=12,m=6,drafts=4"},
      // More drafts than teams, and more ancestors than are added together.
      {"kda", "route=inner,size.H=1,size.Dk=64,size.Dv=64,L=24,m=16,drafts=8"},
      {"kda", "route=inner,size.H=1,size.Dk=64,size.Dv=32,L=32,m=16,drafts=16"},
      // More entries than threads have registers for.
      {"kda", "route=inner,size.H=1,size.Dk=128,size.Dv=32,L=44,m=40,drafts=4"},
      {"rwkv7_core", "route=adjoint,size.H=1,size.Dk=64,size.Dv=32,L=16,m=12,"
                     "drafts=4"},
      {"rwkv6", "route=kv_only,size.H=1,size.Dk=64,size.Dv=64,L=16,m=12,"
                "page=16,crossover=12,drafts=4"},
  }));
  checkOnGpu(model, text + ",trees=1,rows=3,tokens=60,staggered=1,pads=1,"
                           "resets=1,seed=3");
}

// Four heads that share their keys are a block's, one after the other.
TEST_CASE("drafts of heads that take turns") {
  if (!hasGpu())
    return;
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"mamba2",
       "route=inner,size.H=8,size.G=2,size.N=64,size.P=32,L=12,m=6,trees=1"},
      {"mamba2", "route=inner,state=bf16,entries=bf16,size.H=4,size.G=1,"
                 "size.N=32,size.P=48,L=12,m=6"},
      {"mamba2", "route=outer,size.H=4,size.G=1,size.N=32,size.P=32,L=12,m=6"},
      {"gated_delta_rule", "route=inner,size.Hk=1,size.Hv=4,size.Dk=64,size.Dv="
                           "32,L=12,m=7,trees=1"},
      {"gated_delta_rule",
       "route=inner,state=bf16,size.Hk=1,size.Hv=4,size.Dk=32,size.Dv=32,"
       "page=8,L=16,m=7,trees=1"},
  }));
  checkOnGpu(model, text + moving);
}

TEST_CASE("one draft a row, and sixteen") {
  if (!hasGpu())
    return;
  checkOnGpu("gated_delta_rule",
             "route=inner,L=3,m=2,drafts=1,rows=2,tokens=7");
  checkOnGpu("gated_delta_rule",
             "route=inner,L=36,m=20,drafts=16,trees=1,rows=2,tokens=5,seed=5");
  checkOnGpu("gated_delta_rule",
             "route=inner,size.Hk=1,size.Hv=1,size.Dk=32,size.Dv=32,L=40,m=24,"
             "drafts=16,trees=1,rows=2,tokens=5,seed=5");
}

TEST_CASE("drafts that have a state each") {
  if (!hasGpu())
    return;
  for (const char *model : {"gated_delta_net", "mamba3", "rwkv7"})
    checkOnGpu(model, std::string("route=recurrent,L=12,m=6,trees=1") + moving);
  checkOnGpu("gated_delta_net", "route=recurrent,L=12,m=6,state=bf16,drafts=3,"
                                "prompts=40,chunk=16,tokens=9,"
                                "rows=2,seed=3");
}

// With five warps, each of 16 rows, a tile is folded where it is read.
TEST_CASE("drafts of heads of 80 values") {
  if (!hasGpu())
    return;
  auto text = GENERATE("", ",state=bf16,entries=bf16", ",batch=1");
  checkOnGpu("mamba2", "route=inner,L=12,m=6,trees=1,size.H=2,size.G=1,"
                       "size.N=128,size.P=80" +
                           std::string(text) + moving);
}

TEST_CASE("drafts of all examples by all their routes") {
  // On an emulated device it takes minutes.
  if (!hasGpu() || (emulatedGpu() && !isFull()))
    return;
  auto model = GENERATE(
      as<std::string>(), "linear_attention", "retnet", "lightning", "mamba",
      "mamba2", "gla", "delta_net", "gated_delta_rule", "gated_delta_net",
      "kda", "kda_lower_bound", "gdn2", "rwkv6", "rwkv7", "rwkv7_core",
      "mamba3", "mamba3_mimo", "short_conv", "coupled");
  for (RouteKind route : routesOf(requestOf(model)))
    for (const char *trees : {"0", "1"})
      checkOnGpu(model, "route=" + std::string(toString(route)) +
                            ",L=12,m=6,trees=" + trees + moving);
}
