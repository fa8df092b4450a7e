//===- SharedCursorsTest.cpp - cursors that layers share ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A model of two layers whose pools share cursors has to answer as two pools
// with their own do, on the CPU and on a GPU.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

namespace {

/// Two layers that share, and two that do not, on one target.
struct Model {
  explicit Model(const std::string &target, const char *route = "inner")
      : program(tinyProgram(route, target)) {
    PoolOptions sharing;
    sharing.cursors = cursors;
    for (int layer : {0, 1}) {
      pools.push_back(makePool(program, 4, sharing));
      own.push_back(makePool(program, 4));
      tensors.emplace_back(program, 3);
      expected.emplace_back(program, 3);
      (void)layer;
    }
    for (int layer : {0, 1}) {
      decoders.push_back(need(Decoder::create(program, pools[layer])));
      references.push_back(need(Decoder::create(program, own[layer])));
    }
  }

  void fill(int32_t token) {
    for (int layer : {0, 1})
      for (Tensors *each : {&tensors[layer], &expected[layer]})
        each->fill({1 + layer, 2 + layer, 3 + layer},
                   {token, token + 5, token + 9});
  }
  void setSlots(const std::vector<int32_t> &reads,
                const std::vector<int32_t> &writes = {}) {
    for (int layer : {0, 1})
      for (Tensors *each : {&tensors[layer], &expected[layer]})
        each->setSlots(reads, writes);
  }
  Status advance(void *stream = nullptr) {
    const StepArguments &last = tensors[1].arguments;
    return cursors.advance(last.readSlots, last.writeSlots, stream);
  }
  void compareAnswers() {
    for (int layer : {0, 1}) {
      need(references[layer].step(expected[layer].arguments));
      for (int64_t row = 0; row < 3; ++row)
        REQUIRE(tensors[layer].output(row) == expected[layer].output(row));
    }
  }
  void step(int32_t token) {
    fill(token);
    for (int layer : {0, 1})
      need(decoders[layer].step(tensors[layer].arguments));
    need(advance());
    compareAnswers();
  }
  void compareSlots() {
    for (int32_t slot = 0; slot < 4; ++slot)
      for (int layer : {0, 1}) {
        CAPTURE(slot, layer);
        Cursor got = need(pools[layer].cursor(slot)),
               wanted = need(own[layer].cursor(slot));
        CHECK(got.base == wanted.base);
        CHECK(got.length == wanted.length);
        CHECK(got.epoch == wanted.epoch);
        CHECK(stateOf(pools[layer], slot) == stateOf(own[layer], slot));
      }
  }
  static std::vector<float> stateOf(const Pool &pool, int64_t slot) {
    return need(toFloats(need(pool.state("S"))[slot]));
  }

  Program program;
  Cursors cursors = need(Cursors::create(program, {.slots = 4}));
  std::vector<Pool> pools, own;
  std::vector<Decoder> decoders, references;
  std::vector<Tensors> tensors, expected;
};

std::vector<std::string> targets() {
  return hasGpu() ? std::vector<std::string>{"cpu", "cuda"}
                  : std::vector<std::string>{"cpu"};
}

} // namespace

TEST_CASE("layers that share cursors answer as if each had its own") {
  // Those without entries share cursors too, which hardly move.
  const char *route = GENERATE("inner", "recurrent");
  for (const std::string &target : targets()) {
    CAPTURE(target, route);
    Model model(target, route);
    const std::vector<std::vector<int32_t>> reads{
        {0, 1, 2}, {0, 2, -1}, {1, 0, 3}, {0, -1, -1}, {0, 1, 2}};
    for (int32_t token = 0; token < 11; ++token) {
      const auto &slots = reads[token % reads.size()];
      model.setSlots(slots);
      if (token == 6) // {0, 2, -1} writes {0, 3, -1}
        model.setSlots(slots, {0, 3, -1});
      model.step(token);
    }
    model.compareSlots();
  }
}

TEST_CASE("all layers of a token see the same cursors") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    Model model(target);
    model.fill(0);
    for (int layer : {0, 1}) {
      need(model.decoders[layer].step(model.tensors[layer].arguments));
      CHECK(need(model.cursors.cursor(0)).length == 0);
    }
    need(model.advance());
    CHECK(need(model.cursors.cursor(0)).length == 1);
    CHECK(need(model.pools[1].cursor(0)).length == 1);
  }
}

TEST_CASE("a flush, a reset and a threshold are for all that share") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    Model model(target);
    for (int32_t token = 0; token < 2; ++token)
      model.step(token);
    std::vector<int32_t> some{2, 0, -1, 2};
    need(model.pools[0].flush(model.program, some));
    for (Pool &pool : model.own)
      need(pool.flush(model.program, some));
    model.compareSlots();
    need(model.cursors.flush(some)); // nothing is left to fold
    model.compareSlots();

    need(model.pools[1].setFoldThreshold(2));
    CHECK(model.pools[0].foldThreshold() == 2);
    for (Pool &pool : model.own)
      need(pool.setFoldThreshold(2));
    for (int32_t token = 2; token < 5; ++token)
      model.step(token);

    need(model.cursors.reset(std::vector<int32_t>{1, -1}));
    for (Pool &pool : model.own)
      need(pool.reset(std::vector<int32_t>{1}));
    model.step(5);
    model.compareSlots();
  }
}

TEST_CASE("sequences leave and enter one layer, and the others keep theirs") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    Model model(target);
    for (int32_t token = 0; token < 3; ++token)
      model.step(token);
    SlotContents contents = need(model.pools[1].exportSlot(model.program, 0));
    for (Pool &pool : model.own)
      need(pool.flush(model.program, std::vector<int32_t>{0}));
    model.compareSlots();
    // Slot 1 has entries, which the first layer must not lose.
    need(model.pools[1].importSlot(1, contents));
    need(model.own[0].flush(model.program, std::vector<int32_t>{1}));
    CHECK(Model::stateOf(model.pools[0], 1) == Model::stateOf(model.own[0], 1));
    CHECK(Model::stateOf(model.pools[1], 1) ==
          Model::stateOf(model.pools[1], 0));
    CHECK(need(model.cursors.cursor(1)).length == 0);
  }
}

TEST_CASE("a graph holds all layers and one move of the cursors") {
  if (!hasGpu())
    return;
  Model model("cuda");
  model.setSlots({0, 1, 2}, {0, 1, 2});
  model.fill(0);
  std::vector<BoundStep> steps;
  for (int layer : {0, 1})
    steps.push_back(
        need(model.decoders[layer].bind(model.tensors[layer].arguments)));
  auto device = need(cuda::Device::shared());
  if (EmulatedGpu *emulated = emulatedGpu())
    emulated->takeLaunches();
  auto graph = need(cuda::Graph::record(device, [&]() -> Status {
    for (BoundStep &step : steps)
      if (Status status = step.launch(device.stream()); !status)
        return status;
    return model.advance(device.stream());
  }));
  if (EmulatedGpu *emulated = emulatedGpu()) {
    auto launches = emulated->takeLaunches();
    CHECK(std::count_if(launches.begin(), launches.end(), [](const auto &each) {
            return each.kernel == "ladle_advance_cursors";
          }) == 1);
    CHECK(launches.back().kernel == "ladle_advance_cursors");
  }
  for (int32_t token = 0; token < 9; ++token) {
    model.fill(token);
    model.setSlots(token % 2 ? std::vector<int32_t>{1, -1, 0}
                             : std::vector<int32_t>{0, 1, 2},
                   token % 2 ? std::vector<int32_t>{1, -1, 0}
                             : std::vector<int32_t>{0, 1, 2});
    need(graph.replay());
    need(device.synchronize());
    model.compareAnswers();
  }
  model.compareSlots();
}

TEST_CASE("what does not go with the cursors is named") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    Model model(target);
    PoolOptions options;
    options.cursors = model.cursors;
    Program longer = tinyProgram("inner", target, 8);
    CHECK(Pool::create(longer, options).message() ==
          "the pool of 'gated_delta_rule' has the capacity 8, the cursors that "
          "it would share have 4");
    options.slots = 5;
    CHECK_THAT(Pool::create(model.program, options).message(),
               Contains("has slots 5, the cursors that it would share have 4"));
    options.slots = 0;
    options.padSlot = 0;
    CHECK_THAT(Pool::create(model.program, options).message(),
               Contains("has padSlot 0, the cursors that it would share have "
                        "-1"));
    options.padSlot = -1;
    options.foldThreshold = 3;
    CHECK_THAT(Pool::create(model.program, options).message(),
               Contains("has foldThreshold 3, the cursors that it would share "
                        "have 4"));
    options.cursors = model.own[0].cursors();
    CHECK_THAT(Pool::create(model.program, options).message(),
               Contains("are another pool's own"));
    CHECK_THAT(model.own[0].cursors().advance({}).message(),
               Contains("belong to one pool, whose steps move them"));
  }
}

TEST_CASE("layers that decode by other kinds of routes are refused") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    Model model(target);
    Program recurrent = need(model.program.withRoute(RouteKind::Recurrent));
    Decoder first = need(Decoder::create(recurrent, model.pools[0]));
    Decoder other = need(Decoder::create(recurrent, model.pools[1]));
    model.fill(0);
    need(model.decoders[0].step(model.tensors[0].arguments));
    CHECK(other.step(model.tensors[1].arguments).message() ==
          "a layer decodes by route 'recurrent', which appends no entries, and "
          "another has decoded by 'inner' since the cursors that they share "
          "moved: advance, commit or abandon them between");
    need(model.decoders[1].step(model.tensors[1].arguments));
    need(model.advance());
    need(model.cursors.flush(std::vector<int32_t>{0, 1, 2}));
    need(first.step(model.tensors[0].arguments));
    need(other.step(model.tensors[1].arguments));
    need(model.advance());
    CHECK(need(model.cursors.cursor(0)).length == 0);
  }
}

TEST_CASE("cursors outlive the pools that shared them, and the other way") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    std::optional<Cursors> cursors;
    Program program = tinyProgram("inner", target);
    PoolOptions options;
    {
      options.cursors = need(Cursors::create(program, {.slots = 2}));
      Pool pool = makePool(program, 2, options);
      Pool moved = std::move(pool);
      cursors = moved.cursors();
      options.cursors.reset();
      CHECK(moved.slots() == 2);
    }
    need(cursors->reset(std::vector<int32_t>{0, 1}));
    need(cursors->flush(std::vector<int32_t>{0, 1}));
    CHECK(need(cursors->cursor(1)).length == 0);
  }
}

TEST_CASE("what a step has left half done is abandoned, or moves on first") {
  for (const std::string &target : targets()) {
    CAPTURE(target);
    Model model(target);
    model.step(0);
    model.fill(1);
    need(model.decoders[0].step(model.tensors[0].arguments));
    for (const auto &[status, name] :
         {std::pair(model.cursors.setFoldThreshold(2), "foldThreshold"),
          std::pair(model.cursors.setCrossover(2), "crossover")})
      if (target == "cpu" || std::string(name) == "foldThreshold")
        CHECK(status.message() ==
              std::string(name) +
                  " is set after a layer has decoded by 'inner' and before the "
                  "cursors have moved: advance, commit or abandon them "
                  "between");
    // The other layer has failed, so that the sequences are over.
    need(model.cursors.abandon());
    std::vector<int32_t> slots{0, 1, 2};
    need(model.cursors.reset(slots));
    for (Pool &own : model.own)
      need(own.reset(slots));
    need(model.cursors.setFoldThreshold(3));
    for (Pool &own : model.own)
      need(own.setFoldThreshold(3));
    for (int32_t token = 0; token < 5; ++token)
      model.step(token);
    model.compareSlots();
  }
  Program program = tinyProgram("inner", "cpu");
  CHECK(makePool(program, 2).cursors().abandon().message() ==
        "these cursors belong to one pool, whose steps move them");
}
