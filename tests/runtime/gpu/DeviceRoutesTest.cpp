//===- DeviceRoutesTest.cpp - routes on a GPU against the oracle ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole sequences through Program, Pool and Decoder, as on the CPU: rows at
// different fills, padding, resets, slots that are read and others written.
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;

TEST_CASE("recurrent, with everything that moves") {
  if (hasGpu())
    checkOnGpu("gated_delta_rule",
               "route=recurrent,rows=3,tokens=8,staggered=1,"
               "moves=1,pads=1,resets=1,padding=32,seed=3");
}

TEST_CASE("inner, with everything that moves") {
  if (!hasGpu())
    return;
  // Slot 0 marks padding with even seeds, any negative one with odd ones.
  for (const char *seed : {"2", "3"})
    checkOnGpu("gated_delta_rule",
               std::string("route=inner,L=4,m=3,rows=3,tokens=14,staggered=1,"
                           "moves=1,pads=1,resets=1,padding=32,seed=") +
                   seed);
}

TEST_CASE("a fold with every token, and one when the buffer is full") {
  if (!hasGpu())
    return;
  checkOnGpu("gated_delta_rule", "route=inner,L=4,m=1,rows=2,tokens=5");
  checkOnGpu("gated_delta_rule",
             "route=inner,L=4,m=4,rows=2,tokens=11,packed=1");
}

TEST_CASE("entries in pages") {
  if (!hasGpu())
    return;
  checkOnGpu("gated_delta_net", "route=inner,L=16,m=11,page=8,rows=2,tokens=13,"
                                "moves=1,pads=1,resets=1,seed=3");
  checkOnGpu("gla",
             "route=adjoint,state=bf16,L=16,m=16,page=8,rows=2,tokens=17");
  checkOnGpu("rwkv7_core", "route=kv_only,entries=bf16,L=32,m=32,page=8,rows=2,"
                           "tokens=12,staggered=1,resets=1");
  // Of elements of dk, a thread has several.
  checkOnGpu("kda", "route=outer,L=8,m=8,page=8,rows=2,tokens=13,size.H=2,"
                    "size.Dk=64,size.Dv=32");
}

TEST_CASE("narrow states and entries") {
  if (hasGpu())
    checkOnGpu("gated_delta_net", "route=inner,state=bf16,entries=bf16,L=4,m=4,"
                                  "rows=2,tokens=10,staggered=1,pads=1");
}

TEST_CASE("tensor cores fold keys that decay by elements") {
  if (!hasGpu())
    return;
  auto model = GENERATE(as<std::string>(), "kda", "gdn2", "rwkv7_core", "gla");
  auto state = GENERATE(as<std::string>(), "bf16", "f16");
  checkOnGpu(model, "route=inner,L=8,m=5,rows=3,tokens=14,staggered=1,moves=1,"
                    "pads=1,resets=1,size.Dk=64,size.Dv=64,state=" +
                        state);
  // The token is the sixteenth entry of a tile, or the first of another.
  checkOnGpu(model, "route=inner,L=20,m=20,rows=2,tokens=22,staggered=1,"
                    "size.Dk=32,size.Dv=32,state=" +
                        state);
}

TEST_CASE("carries and routes other than inner") {
  if (!hasGpu())
    return;
  checkOnGpu("mamba3",
             "route=outer,L=4,m=3,rows=2,tokens=8,staggered=1,moves=1,"
             "resets=1,seed=5");
  checkOnGpu("gla", "route=adjoint,L=4,m=3,rows=2,tokens=8,staggered=1,pads=1");
}

TEST_CASE("kv_only, as long as nothing folds") {
  if (hasGpu())
    checkOnGpu("gated_delta_rule",
               "route=kv_only,L=16,m=16,rows=2,tokens=9,staggered=1,resets=1");
}

TEST_CASE("all examples by all their routes") {
  // On an emulated device it takes minutes.
  if (!hasGpu() || (emulatedGpu() && !isFull()))
    return;
  auto model = GENERATE(as<std::string>(), "linear_attention", "retnet",
                        "lightning", "lightning_core", "mamba", "mamba2", "gla",
                        "delta_net", "gated_delta_rule", "gated_delta_net",
                        "kda", "kda_lower_bound", "gdn2", "rwkv6", "rwkv7",
                        "rwkv7_core", "mamba3", "mamba3_mimo", "short_conv");
  CAPTURE(model);
  for (RouteKind route : routesOf(requestOf(model)))
    checkOnGpu(
        model,
        "route=" + std::string(toString(route)) +
            (route == RouteKind::KvOnly
                 ? ",L=16,m=16,rows=3,tokens=9,staggered=1,resets=1"
                 : ",L=4,m=3,rows=3,tokens=12,staggered=1,moves=1,pads=1,"
                   "resets=1,packed=1,seed=3"));
}

// Of what is tiny, rows are no multiple of what warps and bulk copies move.
TEST_CASE("sizes, groups of heads, types and long rings") {
  if (!hasGpu())
    return;
  const char *moving = ",rows=2,staggered=1,pads=1,moves=1,packed=1,seed=3";
  auto [model, text] = GENERATE(table<std::string, std::string>({
      {"gated_delta_rule", "route=inner,size.Hk=1,size.Hv=3,size.Dk=64,"
                           "size.Dv=32,L=8,m=5,tokens=13"},
      {"gated_delta_rule", "route=inner,state=bf16,entries=bf16,size.Hk=1,"
                           "size.Hv=2,size.Dk=64,size.Dv=64,L=4,m=4,tokens=9"},
      {"gated_delta_rule", "route=outer,state=f16,entries=f16,size.Hk=1,"
                           "size.Hv=2,size.Dk=32,size.Dv=48,L=4,m=3,tokens=9"},
      {"gated_delta_rule", "route=inner,size.Hk=1,size.Hv=1,size.Dk=32,"
                           "size.Dv=32,L=40,m=37,tokens=48"},
      {"gated_delta_net", "route=recurrent,state=bf16,size.Hk=1,size.Hv=2,"
                          "size.Dk=128,size.Dv=64,tokens=5"},
      {"gated_delta_net", "route=adjoint,size.Hk=1,size.Hv=2,size.Dk=96,"
                          "size.Dv=48,L=4,m=3,tokens=9"},
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=1,size.Dk=256,"
                          "size.Dv=32,L=4,m=3,tokens=9"},
      {"gated_delta_net", "route=inner,size.Hk=1,size.Hv=1,size.Dk=40,"
                          "size.Dv=80,L=4,m=3,tokens=9"},
      {"kda", "route=inner,size.H=2,size.Dk=64,size.Dv=32,L=10,m=9,tokens=21"},
      {"kda", "route=outer,state=bf16,entries=bf16,size.H=1,size.Dk=128,"
              "size.Dv=32,L=4,m=3,tokens=8"},
      {"kda", "route=adjoint,size.H=1,size.Dk=64,size.Dv=64,L=4,m=3,tokens=8"},
      {"mamba2", "route=inner,size.H=4,size.G=2,size.N=64,size.P=32,L=6,m=4,"
                 "tokens=11"},
      // Tiles that tensor cores multiply: reads of bf16, folds of all.
      {"gated_delta_net", "route=inner,state=bf16,entries=bf16,size.Hk=1,"
                          "size.Hv=2,size.Dk=128,size.Dv=64,L=20,m=18,"
                          "tokens=40"},
      {"gated_delta_net", "route=inner,state=bf16,entries=bf16,size.Hk=1,"
                          "size.Hv=2,size.Dk=96,size.Dv=40,L=4,m=3,tokens=9"},
      {"mamba2", "route=inner,state=bf16,entries=bf16,size.H=2,size.G=1,"
                 "size.N=128,size.P=64,L=6,m=4,tokens=11"},
      {"kda", "route=inner,state=bf16,entries=bf16,size.H=1,size.Dk=128,"
              "size.Dv=64,L=6,m=4,tokens=11"},
      {"gla", "route=inner,state=bf16,entries=f32,size.H=1,size.Dk=64,"
              "size.Dv=64,L=6,m=4,tokens=11"},
      {"rwkv7", "route=inner,state=bf16,entries=bf16,size.H=1,size.Dk=64,"
                "size.Dv=64,L=6,m=4,tokens=11"},
      {"mamba3_mimo", "route=inner,state=bf16,entries=bf16,size.H=2,size.G=1,"
                      "size.N=64,size.P=32,L=6,m=6,tokens=15"},
      {"gated_delta_rule", "route=inner,state=f16,entries=f16,size.Hk=1,"
                           "size.Hv=2,size.Dk=64,size.Dv=48,L=4,m=3,tokens=9"},
      {"rwkv7", "route=inner,size.H=1,size.Dk=64,size.Dv=64,L=4,m=3,tokens=8"},
      {"gla",
       "route=kv_only,size.H=2,size.Dk=64,size.Dv=32,L=16,m=16,tokens=9"},
      {"short_conv", "route=inner,size.Hk=1,size.Hv=2,size.Dk=64,size.Dv=64,"
                     "L=4,m=3,tokens=7"},
      {"mamba3_mimo", "route=outer,L=4,m=3,tokens=7"},
      // States of which dv is contiguous.
      {"gated_delta_rule", "route=inner,layout=dk_dv,size.Hk=1,size.Hv=3,"
                           "size.Dk=64,size.Dv=32,L=8,m=5,tokens=13"},
      {"kda", "route=inner,layout=dk_dv,state=bf16,entries=bf16,size.H=1,"
              "size.Dk=128,size.Dv=64,L=6,m=4,tokens=11"},
      // Where a block has no room, entries stay in global memory, and values
      // are weighed where they are used.
      {"rwkv7", "route=inner,size.H=1,size.Dk=64,size.Dv=64,L=64,m=7,tokens=9"},
      {"gated_delta_rule", "route=inner,size.Hk=1,size.Hv=1,size.Dk=32,"
                           "size.Dv=64,L=512,m=5,tokens=9"},
  }));
  CAPTURE(model);
  bool grows = text.find("kv_only") != std::string::npos;
  checkOnGpu(model, text + (grows ? ",rows=2,staggered=1,seed=3" : moving));
}

TEST_CASE("the host hands rows from kv_only to inner, and from there on") {
  if (!hasGpu())
    return;
  Program kvOnly = tinyProgram("kv_only"),
          cpuInner = tinyProgram("inner", "cpu");
  Program inner = need(kvOnly.withRoute(RouteKind::Inner));
  Program recurrent = need(kvOnly.withRoute(RouteKind::Recurrent));
  Pool pool = makePool(kvOnly, 2), expected = makePool(cpuInner, 2);
  Decoder decoders[3] = {need(Decoder::create(kvOnly, pool)),
                         need(Decoder::create(inner, pool)),
                         need(Decoder::create(recurrent, pool))};
  Decoder reference = need(Decoder::create(cpuInner, expected));
  Tensors tensors(kvOnly, 2), host(cpuInner, 2);
  for (int32_t token = 0; token < 12; ++token) {
    CAPTURE(token);
    tensors.fill({1, 2}, {token, token});
    host.fill({1, 2}, {token, token});
    // The fourth token folds, by kv_only itself; the tenth comes after a flush.
    if (token == 9)
      need(pool.flush(inner, std::vector<int32_t>{0, 1}));
    need(decoders[token < 4 ? 0 : token < 9 ? 1 : 2].step(tensors.arguments));
    need(reference.step(host.arguments));
    for (int64_t row : {0, 1}) {
      std::vector<float> got = tensors.output(row), wanted = host.output(row);
      for (size_t i = 0; i < got.size(); ++i)
        REQUIRE(got[i] == Approx(wanted[i]).margin(1e-5));
    }
  }
}
