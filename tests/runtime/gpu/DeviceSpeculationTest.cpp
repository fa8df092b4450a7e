//===- DeviceSpeculationTest.cpp - verify, commit and graphs on a GPU -----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Requests.h"
#include "tests/numerics/Speculation.h"
#include "tests/runtime/gpu/Drafts.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

static void speculate(const std::string &model, std::vector<std::string> routes,
                      int64_t steps) {
  INFO(model);
  SpeculationOptions options;
  options.source = readExample(model);
  options.sizes = tinySizes(model);
  options.routes = std::move(routes);
  options.target = "cuda";
  Speculation run(options);
  // The emulator takes milliseconds where a card takes microseconds.
  for (int64_t step = 0; step < (emulatedGpu() ? steps : 20 * steps); ++step)
    run.act();
  run.compareSlots();
  CHECK(run.worst < check::Bound::exact);
  CHECK(run.accepted > steps / 4);
  CHECK(run.rejected > steps / 4);
  CHECK(run.folds > steps / 32);
}

TEST_CASE("random drafts, commits, resets, flushes and moves of slots") {
  if (!hasGpu())
    return;
  speculate("gated_delta_rule", {"inner", "outer"}, 500);
  speculate("gated_delta_rule", {"adjoint"}, 80);
  speculate("mamba3", {"inner"}, 120);
  speculate("short_conv", {"inner"}, 80);
  speculate("kda", {"inner"}, 80);
}

namespace {

Program draftProgram(const std::string &target,
                     const std::string &route = "inner") {
  CompileOptions options;
  options.preset = "tiny";
  options.target = target;
  options.route = route;
  options.capacity = 12;
  options.drafts = mostDrafts;
  return need(compileFile(examplePath("gated_delta_rule"), options));
}

static void speculateInPages(const std::string &model,
                             std::vector<std::string> routes, int64_t states,
                             int64_t steps, int64_t capacity = 32) {
  INFO(model << ' ' << routes.front());
  SpeculationOptions options;
  options.source = readExample(model);
  options.sizes = tinySizes(model);
  options.routes = std::move(routes);
  options.target = "cuda";
  options.capacity = capacity;
  options.page = 8;
  options.pages = 12;
  options.states = states;
  Speculation run(options);
  for (int64_t step = 0; step < (emulatedGpu() ? steps : 20 * steps); ++step)
    run.act();
  run.compareSlots();
  CHECK(run.worst < check::Bound::exact);
  CHECK(run.accepted > steps / 4);
  CHECK(run.folds > 0);
  CHECK(run.prompts > 0);
  CHECK(run.forks > 0);
  CHECK(run.prefixes > 0);
}

TEST_CASE("random drafts, forks, prefixes and prompts in pages of a GPU") {
  if (!hasGpu())
    return;
  speculateInPages("gated_delta_rule", {"kv_only"}, 4, 300);
  // The last page of a slot has fewer entries.
  speculateInPages("gated_delta_rule", {"inner", "outer"}, 5, 200, 27);
  speculateInPages("gated_delta_rule", {"adjoint"}, 5, 150);
  speculateInPages("short_conv", {"inner"}, 5, 150, 28);
}

static const std::vector<Step> steps{
    {{0, 1, 2},
     {4, 2, 3},
     {-1, 0, 0, 2, -1, 0, -1, -1, 0},
     {3, 1, 0},
     {0, 2, 3, 0}},
    {{2, 0, -1}, {1, 4, 2}, {-1, -1, 0, 1, 2, -1, 0}, {1, 2, 5}, {0, 0, 1}},
    {{3, 0, 1},
     {4, 4, 4},
     {-1, 0, 1, 2, -1, -1, 0, 1, -1, 0, 1, 2},
     {4, 2, 4},
     {0, 1, 2, 3, 0, 2, 0, 1, 2, 3}},
};

} // namespace

static void compareLayers(const Layer &got, const Layer &wanted,
                          const Step &step) {
  int32_t draft = 0;
  for (size_t row = 0; row < step.slots.size(); ++row)
    for (int32_t i = 0; i < step.counts[row]; ++i, ++draft) {
      CAPTURE(row, i);
      std::vector<float> mine = got.tensors.output(draft),
                         other = wanted.tensors.output(draft);
      for (size_t k = 0; k < mine.size(); ++k)
        REQUIRE(mine[k] == Approx(other[k]).margin(1e-5));
    }
  for (int32_t slot = 0; slot < slotCount; ++slot) {
    CAPTURE(slot);
    Cursor mine = need(got.pool.cursor(slot)),
           other = need(wanted.pool.cursor(slot));
    CHECK(mine.base == other.base);
    CHECK(mine.length == other.length);
    CHECK(mine.committed == other.committed);
    CHECK(mine.epoch == other.epoch);
  }
}

TEST_CASE("a graph verifies and commits while cursors move and trees change") {
  if (!hasGpu())
    return;
  Layer layer(draftProgram("cuda")), reference(draftProgram("cpu"));
  steps[0].fill(layer, 0);
  auto device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(
      device, [&] { return layer.verifyAndCommit(device.stream()); }));
  CHECK(need(layer.pool.cursor(0)).length == 0);
  for (int32_t token = 0; token < 12; ++token) {
    CAPTURE(token);
    const Step &step = steps[token % steps.size()];
    step.fill(layer, token);
    step.fill(reference, token);
    need(graph.replay());
    need(device.synchronize());
    step.follow(reference);
    compareLayers(layer, reference, step);
  }
  CHECK(need(layer.pool.cursor(0)).epoch > 1);
}

TEST_CASE("layers that share cursors verify alike, and one commit is for all") {
  if (!hasGpu())
    return;
  Program program = draftProgram("cuda");
  CursorOptions made;
  made.slots = slotCount;
  PoolOptions sharing;
  sharing.cursors = need(Cursors::create(program, made));
  Layer first(program, sharing), second(program, sharing);
  Layer alone[] = {Layer(draftProgram("cpu")), Layer(draftProgram("cpu"))};
  auto device = need(cuda::Device::shared());
  for (int32_t token = 0; token < 7; ++token) {
    CAPTURE(token);
    const Step &step = steps[token % steps.size()];
    step.fill(first, token);
    step.fill(second, token, 9);
    step.fill(alone[0], token);
    step.fill(alone[1], token, 9);
    // The second reads nothing that the first writes.
    if (emulatedGpu())
      emulatedGpu()->takeLaunches();
    need(first.decoder.verify(first.arguments(), device.stream()));
    need(second.decoder.verify(second.arguments(), device.stream(),
                               Start::Early));
    if (emulatedGpu()) {
      std::vector<EmulatedGpu::Launch> launches = emulatedGpu()->takeLaunches();
      REQUIRE(launches.size() == 2);
      CHECK_FALSE(launches[0].isProgrammatic);
      CHECK(launches[1].isProgrammatic);
    }
    need(sharing.cursors->commit(first.slots.all(), first.numAccepted.all(),
                                 first.accepted.all(), device.stream()));
    need(device.synchronize());
    for (Layer &each : alone)
      step.follow(each);
    compareLayers(first, alone[0], step);
    compareLayers(second, alone[1], step);
  }
}

TEST_CASE("verifying drafts on a GPU says what is wrong") {
  if (!hasGpu())
    return;
  Layer layer(draftProgram("cuda"));
  steps[0].fill(layer, 0);
  VerifyArguments arguments = layer.arguments();
  arguments.drafts = 0;
  CHECK(layer.decoder.verify(arguments).message() ==
        "drafts is 0, wanted 1 to 12, the rows of the tensors: cuSeqlens is "
        "read on the device");
  arguments = layer.arguments();
  arguments.parents = arguments.parents.first(3);
  CHECK(layer.decoder.verify(arguments).message() ==
        "parents has 3 numbers, wanted 12 or none");
  arguments = layer.arguments();
  arguments.cuSeqlens = arguments.cuSeqlens.first(2);
  CHECK(layer.decoder.verify(arguments).message() ==
        "cuSeqlens has 2 numbers, wanted 4");
  CHECK(need(layer.pool.cursor(0)).length == 0);

  need(layer.decoder.verify(layer.arguments()));
  CHECK(layer.pool.exportSlot(layer.program, 0).status().message() ==
        "slot 0 has 4 drafts that are not committed; commit them first, 0 to "
        "reject all");

  Layer plain(tinyProgram());
  CHECK_THAT(plain.decoder.verify(plain.arguments()).message(),
             Contains("was compiled without drafts"));
  CompileOptions serial;
  serial.preset = "tiny";
  serial.target = "cuda";
  serial.route = "recurrent";
  serial.extraRoutes = {"inner"};
  serial.drafts = 2;
  CHECK_THAT(
      compileFile(examplePath("gated_delta_rule"), serial).status().message(),
      Contains("drafts is 2, expected 0: 'recurrent' keeps a state for each "
               "draft, and on a GPU other routes do not know of them"));
}
