//===- SpeculationTest.cpp - drafts are as good as tokens -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/numerics/Speculation.h"
#include "runtime/check/Comparison.h"
#include "tests/numerics/Examples.h"

using namespace ladle;
using namespace ladle::test;

/// Whatever is done to slots and drafts, they answer what float64 answers to
/// the accepted tokens one by one.
static void speculate(const std::string &model, std::vector<std::string> routes,
                      int64_t steps) {
  INFO(model);
  SpeculationOptions options;
  options.source = readExample(model);
  options.sizes = tinySizes(model);
  options.routes = std::move(routes);
  Speculation run(options);
  for (int64_t step = 0; step < steps; ++step)
    run.act();
  run.compareSlots();
  CHECK(run.worst < check::Bound::exact);
  CHECK(run.accepted > steps / 4);
  CHECK(run.rejected > steps / 4);
  CHECK(run.folds > steps / 32);
}

TEST_CASE("10,000 random steps of a gated delta rule, all routes in turn") {
  speculate("gated_delta_rule", {"inner", "outer", "kv_only", "recurrent"},
            10000);
}

TEST_CASE("random steps with raw entries") {
  speculate("gated_delta_rule", {"adjoint", "recurrent"}, 1500);
  speculate("rwkv7", {"adjoint"}, 500);
}

TEST_CASE("random steps with carries that follow the tree") {
  speculate("mamba3", {"inner", "recurrent"}, 1500);
  speculate("mamba3_mimo", {"kv_only", "outer"}, 500);
  speculate("short_conv", {"outer", "inner", "recurrent"}, 1000);
  speculate("linear_attention", {"inner", "recurrent"}, 500);
}

TEST_CASE("random steps with decays a channel, and two writes a token") {
  speculate("kda", {"inner", "outer"}, 1000);
  speculate("rwkv7", {"inner", "kv_only", "recurrent"}, 1000);
}

TEST_CASE("random steps of coupled states") {
  speculate("coupled", {"inner", "outer", "recurrent"}, 1000);
}

TEST_CASE("random steps whose reads are written with numbers of channels") {
  speculate("../tests/tools/Inputs/channel_strengths",
            {"inner", "kv_only", "recurrent"}, 1000);
}

TEST_CASE("random steps whose reads are written with numbers of ranks") {
  speculate("../tests/tools/Inputs/rank_strengths", {"inner", "outer"}, 500);
  speculate("../tests/tools/Inputs/rank_strengths", {"adjoint"}, 500);
}

/// The same in pages and states of which there are too few for all slots.
static void speculateInPages(const std::string &model,
                             std::vector<std::string> routes, int64_t steps,
                             int64_t states, int64_t capacity = 32) {
  INFO(model);
  SpeculationOptions options;
  options.source = readExample(model);
  options.sizes = tinySizes(model);
  options.routes = std::move(routes);
  options.capacity = capacity;
  options.page = 8;
  options.pages = 11;
  options.states = states;
  Speculation run(options);
  for (int64_t step = 0; step < steps; ++step)
    run.act();
  run.compareSlots();
  CHECK(run.worst < check::Bound::exact);
  CHECK(run.accepted > steps / 4);
  CHECK(run.folds > steps / 64);
  CHECK(run.exhausted > steps / 100);
  CHECK(run.prompts > steps / 50);
  CHECK(run.forks > steps / 50);
  CHECK(run.prefixes > steps / 50);
  if (options.routes.front() == "adjoint")
    CHECK(run.others > steps / 500);
}

TEST_CASE("10,000 random steps in pages: forks, prefixes, prompts, crossover") {
  speculateInPages("gated_delta_rule", {"kv_only", "inner", "outer"}, 10000, 3);
}

TEST_CASE("random steps in pages with raw entries, carries, and other decays") {
  speculateInPages("gated_delta_rule", {"adjoint", "recurrent"}, 2000, 4);
  // The last page of a slot has fewer entries.
  speculateInPages("gated_delta_rule", {"adjoint"}, 1000, 4, 27);
  speculateInPages("mamba3", {"kv_only", "inner"}, 1000, 3, 28);
  speculateInPages("kda", {"inner", "kv_only"}, 1000, 4);
}

TEST_CASE("a million accepted tokens on one slot do not drift") {
  SpeculationOptions options;
  options.source = readExample("gated_delta_rule");
  options.sizes = {{"Hk", 1}, {"Hv", 1}, {"Dk", 4}, {"Dv", 3}};
  options.routes = {"inner"};
  options.rows = options.slots = 1;
  Speculation run(options);
  // An output near zero has a large relative error, and of a million some are:
  // what counts is that the last are no worse than the first.
  double first = 0, last = 0;
  for (int64_t step = 0; run.accepted < 1'000'000; ++step) {
    run.extend(0, 4, step % 5);
    if (run.accepted < 100'000)
      first = run.worst;
    else if (run.accepted < 900'000)
      run.worst = 0;
  }
  last = run.worst;
  run.worst = 0;
  run.compareSlots();
  INFO("first " << first << ", last " << last << ", state " << run.worst);
  CHECK(last < 10 * first);
  CHECK(last < 1e-4);
  CHECK(run.worst < check::Bound::exact);
}
