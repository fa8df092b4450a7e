//===- CostModelTest.cpp - closed forms of the cost model -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The cost model counts bytes on the steps; for the cases that papers give in
// closed form it must give the same numbers.
//
//===----------------------------------------------------------------------===//

#include "tests/analysis/LinearAttention.h"

#include <cmath>

using namespace ladle;
using Compiled = test::LinearAttention;

TEST_CASE("recurrent moves the state twice and four vectors") {
  for (int d : {64, 128}) {
    Compiled compiled(d);
    REQUIRE(compiled.route(Route::Recurrent).cycleBytes(1) ==
            Approx(8.0 * d * (d + 1)));
  }
}

TEST_CASE("a cycle with a fold of its own has the published speed-up") {
  for (int d : {64, 128})
    for (double m : {4.0, 16.0, 32.0}) {
      Compiled compiled(d);
      double recurrent = compiled.route(Route::Recurrent).cycleBytes(1);
      double buffered = compiled.route(Route::Inner).separateCycleBytes(m);
      // KVBuffer: Speedup_chunk(m).
      REQUIRE(recurrent / buffered ==
              Approx(4.0 * (d + 1) / (2 * d + 4 * d / m + m + 7)));
    }
}

TEST_CASE("the best buffer of that cycle is 2 sqrt(d)") {
  for (int d : {64, 256}) {
    Compiled compiled(d);
    REQUIRE(compiled.route(Route::Inner).bestSeparateThreshold(512) ==
            std::lround(2 * std::sqrt(d)));
  }
}

TEST_CASE("kv_only against a buffered state has the published ratio") {
  int d = 128;
  double m = 16;
  Compiled compiled(d);
  double buffered = compiled.route(Route::Inner).separateCycleBytes(m);
  for (double context : {8.0, 32.0, 100.0})
    REQUIRE(buffered / compiled.route(Route::KvOnly).cycleBytes(context) ==
            Approx((d + 2 * d / m + m / 2 + 3.5) / (context + 2)));
}

TEST_CASE("verification of m drafts has the published ratio") {
  // A state a draft against one read, a fold, and entries appended and folded.
  int d = 128;
  Compiled compiled(d);
  const RouteCost &recurrent = compiled.route(Route::Recurrent);
  const RouteCost &inner = compiled.route(Route::Inner);
  for (double m : {2.0, 4.0, 8.0}) {
    double io = recurrent.decode.inputRead + recurrent.decode.outputWritten;
    double eachState =
        recurrent.decode.stateRead + m * recurrent.decode.stateWritten + m * io;
    double buffered = inner.verifyBytes(m, 0) + inner.fold->bytes(m);
    REQUIRE(eachState / buffered ==
            Approx(((m + 1) * d + 2 * m) / (3 * d + 4 * m)));
  }
}

TEST_CASE("bytes of Mamba-2 follow from sizes alone") {
  // d x n state; x, B, C and dt in bf16; entries x, B, dt (design of the
  // published replay kernels, outputs not counted).
  double d = 64, n = 128, h = 8;
  StepCost recurrent, buffered;
  recurrent.stateRead = recurrent.stateWritten = 4 * d * n;
  recurrent.inputRead = buffered.inputRead = 2 * (d + 2 * n + 1);
  buffered.stateRead = 4 * d * n;
  buffered.entryRead = buffered.entryWritten = 2 * (d + n + 1);
  REQUIRE(recurrent.bytes(0) == 8 * d * n + 2 * (d + 2 * n + 1));
  REQUIRE(buffered.bytes(h) == 4 * d * n + 2 * h * (d + n + 1) +
                                   2 * (d + 2 * n + 1) + 2 * (d + n + 1));
}

TEST_CASE("a fused fold pays for one more write of the state a cycle") {
  int d = 128;
  double m = 16;
  Compiled compiled(d);
  const RouteCost &inner = compiled.route(Route::Inner);
  double state = 4.0 * d * d, entry = 4.0 * d, io = 8.0 * d;
  REQUIRE(inner.cycleBytes(m) ==
          Approx(state + state / m + io + entry * (m - 1) / m +
                 entry * (m - 1) / 2));
}

TEST_CASE("a small batch is bound by the launch, a large one by bytes") {
  Compiled compiled(128);
  Machine machine = Machine::h200();
  const RouteCost &inner = compiled.route(Route::Inner);
  // All steps of a cycle but the first have entries.
  REQUIRE(
      inner.seconds(machine, 1, 16) ==
      Approx(machine.launch + machine.entryLatency * 15 / 16).epsilon(0.05));
  auto choice = chooseRoute(compiled.costs, machine, 8192, 0, 16);
  REQUIRE(choice);
  // Inner and adjoint move the same bytes for an additive recurrence.
  REQUIRE(compiled.costs[choice->index].decodeFold);
}

TEST_CASE("of routes that take the same time the simplest is chosen") {
  Compiled compiled(128);
  std::vector<RouteCost> costs{compiled.route(Route::Adjoint),
                               compiled.route(Route::Outer),
                               compiled.route(Route::Inner)};
  for (RouteCost &cost : costs) {
    cost.decode = costs.back().decode;
    cost.decodeFold = costs.back().decodeFold;
  }
  auto choose = [&](double batch, int64_t threshold) {
    auto choice = chooseRoute(costs, Machine::h200(), batch, /*context=*/0,
                              /*capacity=*/16, threshold);
    REQUIRE(choice);
    return costs[choice->index].route;
  };
  REQUIRE(choose(8192, 0) == Route::Inner);
  // Half a percent decides nothing, a tenth does.
  costs[1].decode.stateRead *= 0.995;
  REQUIRE(choose(8192, 0) == Route::Inner);
  costs[1].decode.stateRead *= 0.9;
  REQUIRE(choose(8192, 0) == Route::Outer);
  // Nothing is gained by a buffer that folds at every token.
  costs.push_back(compiled.route(Route::Recurrent));
  REQUIRE(choose(8192, 0) == Route::Outer);
  REQUIRE(choose(8192, 1) == Route::Recurrent);
  for (RouteCost &cost : costs)
    if (cost.decodeFold)
      cost.decodeFold->stateWritten = 0;
  REQUIRE(choose(8192, 1) == Route::Recurrent);
}

TEST_CASE("a verify step moves what its closed form says") {
  Compiled model(64, 128, /*decays=*/true);
  for (Route each : {Route::Inner, Route::Outer, Route::KvOnly}) {
    const RouteCost &cost = model.route(each);
    REQUIRE(cost.verify);
    for (int h : {0, 7})
      CHECK(cost.verify->bytes(h) == cost.verifyBytes(Compiled::drafts, h));
    // The same, and the state stored: it is read once.
    CHECK(cost.verifyFold->bytes(7) ==
          cost.verify->bytes(7) + cost.fold->stateWritten);
  }
}

TEST_CASE("a route that does not verify at once takes a step for each draft") {
  Compiled compiled(128);
  RouteCost cost = compiled.route(Route::Inner);
  Machine machine = Machine::h200();
  double atOnce = cost.draftSeconds(machine, 4096, 16, 4);
  CHECK(cost.verify->verifies);
  CHECK_FALSE(cost.decode.verifies);
  cost.verify.reset();
  cost.verifyFold.reset();
  CHECK(cost.draftSeconds(machine, 4096, 16, 4) ==
        Approx(4 * cost.seconds(machine, 4096, 16)));
  CHECK(cost.draftSeconds(machine, 4096, 16, 4) > 2 * atOnce);
  CHECK(cost.bestThreshold(machine, 4096, 64, 4) ==
        cost.bestThreshold(machine, 4096, 64));
}

TEST_CASE(
    "arithmetic of drafts that are several vectors has a rate of its own") {
  Compiled compiled(128);
  StepCost cost = *compiled.route(Route::Inner).verify;
  Machine machine = Machine::h200();
  CHECK_FALSE(cost.areRanked);
  cost.flops = 1e9;
  CHECK(cost.seconds(machine, 256, 0) ==
        Approx(machine.drafts.launch + 256e9 / machine.drafts.flopRate));
  cost.areRanked = true;
  CHECK(cost.seconds(machine, 256, 0) ==
        Approx(machine.drafts.launch + 256e9 / machine.drafts.rankedFlopRate));
  // A processor has no tensor cores to leave anything to.
  Machine cpu = Machine::cpu(2);
  CHECK(cost.seconds(cpu, 256, 0) == Approx(cpu.launch + 256e9 / cpu.flopRate));
}

TEST_CASE("with drafts, m is what steps that verify want") {
  Compiled compiled(128);
  const RouteCost &inner = compiled.route(Route::Inner);
  Machine machine = Machine::h200();
  // Each step appends two tokens instead of one: folds are twice as dear.
  int64_t best = inner.bestThreshold(machine, 4096, 64, /*drafts=*/4);
  CHECK(best > inner.bestThreshold(machine, 4096, 64));
  // A fold a cycle against entries that are half of m in the mean: m is the
  // root of twice what a fold costs, times the two drafts that are accepted,
  // over what an entry does.
  double step = inner.verify->seconds(machine, 4096, 0);
  double fold = inner.verifyFold->seconds(machine, 4096, 0) - step;
  double entry = (inner.verify->seconds(machine, 4096, 65) -
                  inner.verify->seconds(machine, 4096, 1)) /
                 64;
  CHECK(double(best) == Approx(std::sqrt(2 * fold * 2 / entry) + 2).margin(6));
  auto choice = chooseRoute(compiled.costs, machine, 4096, /*context=*/0,
                            /*capacity=*/64, /*threshold=*/0, /*drafts=*/4);
  REQUIRE(choice);
  CHECK(choice->seconds <= 1.01 * inner.draftSeconds(machine, 4096, best, 4));
  // With 16 drafts and room for as many, all m fold in the same steps.
  CHECK(inner.bestThreshold(machine, 4096, 16, /*drafts=*/16) == 16);
  choice = chooseRoute(compiled.costs, machine, 4096, /*context=*/0,
                       /*capacity=*/16, /*threshold=*/0, /*drafts=*/16);
  REQUIRE(choice);
  CHECK(compiled.costs[choice->index].route != Route::Recurrent);
  // A route without a buffer takes a launch for each draft.
  CHECK(compiled.route(Route::Recurrent).draftSeconds(machine, 4096, 1, 4) ==
        Approx(4 * compiled.route(Route::Recurrent).seconds(machine, 4096, 1)));
}
