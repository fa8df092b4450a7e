//===- BoundStepTest.cpp - steps that are bound once, and graphs ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/runtime/gpu/Gpu.h"
#include <array>
#include <functional>

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

namespace {
/// A program on the device with tensors, and the CPU's answers beside it.
struct Fixture {
  Program program = tinyProgram(), host = tinyProgram("inner", "cpu");
  Pool pool = makePool(program, 4), hostPool = makePool(host, 4);
  Decoder decoder = need(Decoder::create(program, pool));
  Decoder reference = need(Decoder::create(host, hostPool));
  Tensors tensors{program, 3}, expected{host, 3};

  void fill(int32_t token) {
    for (Tensors *each : {&tensors, &expected})
      each->fill({1, 2, 3}, {token, token + 5, token + 9});
  }
  void setSlots(const std::vector<int32_t> &reads,
                const std::vector<int32_t> &writes = {}) {
    for (Tensors *each : {&tensors, &expected})
      each->setSlots(reads, writes);
  }
  void compare(int64_t rows = 3) {
    need(reference.step(expected.arguments));
    for (int64_t row = 0; row < rows; ++row) {
      CAPTURE(row);
      std::vector<float> got = tensors.output(row),
                         wanted = expected.output(row);
      for (size_t i = 0; i < got.size(); ++i)
        REQUIRE(got[i] == Approx(wanted[i]).margin(1e-5));
    }
  }
};
} // namespace

TEST_CASE("a bound step reads slots and tensors when it runs") {
  if (!hasGpu())
    return;
  Fixture f;
  f.fill(0);
  BoundStep step = need(f.decoder.bind(f.tensors.arguments));
  for (int32_t token = 0; token < 6; ++token) {
    CAPTURE(token);
    f.fill(token);
    f.setSlots(token % 2 ? std::vector<int32_t>{1, -1, 0}
                         : std::vector<int32_t>{0, 1, 2});
    need(step.launch());
    f.compare();
  }
  CHECK(step.rows() == 3);
}

TEST_CASE("arguments that have changed are checked, wherever they differ") {
  if (!hasGpu())
    return;
  Fixture f;
  Tensors others(f.program, 3);
  auto step = [&](Tensors &tensors, int32_t token) {
    CAPTURE(token);
    tensors.fill({1, 2, 3}, {token, token + 5, token + 9});
    f.expected.fill({1, 2, 3}, {token, token + 5, token + 9});
    need(f.decoder.step(tensors.arguments));
    need(f.reference.step(f.expected.arguments));
    for (int64_t row = 0; row < 3; ++row) {
      std::vector<float> got = tensors.output(row),
                         wanted = f.expected.output(row);
      for (size_t i = 0; i < got.size(); ++i)
        REQUIRE(got[i] == Approx(wanted[i]).margin(1e-5));
    }
  };
  auto refuse = [&](const std::function<void(StepArguments &)> &change,
                    const std::string &message) {
    StepArguments bad = f.tensors.arguments;
    change(bad);
    CHECK_THAT(f.decoder.step(bad).message(), Contains(message));
  };
  step(f.tensors, 0);
  step(f.tensors, 1);
  // The same but for their addresses.
  step(others, 2);
  refuse([](StepArguments &bad) { bad.tensors["q"].data = nullptr; },
         "argument 'q' is null");
  refuse(
      [](StepArguments &bad) {
        auto &data = bad.tensors["k"].data;
        data = static_cast<std::byte *>(data) + 1;
      },
      "argument 'k' is at");
  step(others, 3);
  refuse([](StepArguments &bad) { bad.tensors["v"].shape[0] = 2; },
         "argument 'v' is");
  refuse([](StepArguments &bad) { bad.tensors["v"].dtype = DType::F16; },
         "argument 'v' is");
  refuse([](StepArguments &bad) { bad.tensors.erase("k"); },
         "argument 'k' is missing");
  refuse([](StepArguments &bad) { bad.tensors["w"] = bad.tensors["k"]; },
         "unknown argument 'w'");
  step(f.tensors, 4);
}

TEST_CASE("a bound step decodes its first rows alone") {
  if (!hasGpu())
    return;
  Fixture f;
  for (Decoder *decoder : {&f.decoder, &f.reference}) {
    Tensors &tensors = decoder == &f.decoder ? f.tensors : f.expected;
    f.fill(0);
    BoundStep step = need(decoder->bind(tensors.arguments));
    need(step.launchRows(2));
    need(step.launchRows(0));
    CHECK(tensors.output(1) !=
          std::vector<float>(tensors.output(1).size(), 99));
    CHECK(tensors.output(2) ==
          std::vector<float>(tensors.output(2).size(), 99));
    Pool &pool = decoder == &f.decoder ? f.pool : f.hostPool;
    CHECK(need(pool.cursor(1)).length == 1);
    CHECK(need(pool.cursor(2)).length == 0);
    CHECK(step.launchRows(4).message() ==
          "rows is 4, wanted 0 to 3, the rows that the step was bound to");
  }
}

TEST_CASE("a bound step takes other memory") {
  if (!hasGpu())
    return;
  Fixture f;
  f.fill(0);
  BoundStep step = need(f.decoder.bind(f.tensors.arguments));
  Tensors other(f.program, 3);
  other.fill({1, 2, 3}, {0, 5, 9});
  other.setSlots({3, 2, 1});
  for (const auto &[name, view] : other.arguments.tensors)
    need(step.setMemory(name, view.data));
  need(step.setSlots(other.arguments.readSlots.data(), nullptr));
  need(step.launch());
  need(synchronize(gpu));
  CHECK(need(f.pool.cursor(3)).length == 1);
  CHECK(need(f.pool.cursor(0)).length == 0);
  CHECK(f.tensors.output(0) ==
        std::vector<float>(f.tensors.output(0).size(), 99));
  CHECK(other.output(0) != f.tensors.output(0));
  CHECK(step.setMemory("x", other.arguments.tensors["q"].data).message() ==
        "'gated_delta_rule' has no argument 'x'");
  CHECK(step.setMemory("q", nullptr).message() == "argument 'q' is null");
  CHECK_THAT(
      step.setMemory("q",
                     static_cast<char *>(other.arguments.tensors["q"].data) + 1)
          .message(),
      Contains("argument 'q' is at") && Contains("which is not a multiple of"));
}

TEST_CASE("a graph replays steps while slots change and cursors move") {
  if (!hasGpu())
    return;
  Fixture f;
  f.setSlots({0, 1, 2}, {0, 1, 2});
  f.fill(0);
  BoundStep step = need(f.decoder.bind(f.tensors.arguments));
  auto device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(
      device, [&] { return step.launch(device.stream()); }));
  CHECK(need(f.pool.cursor(0)).length == 0);
  const std::vector<std::vector<int32_t>> reads{
      {0, 1, 2}, {0, 2, -1}, {0, 1, 2}, {0, -1, -1}, {1, 0, 3}, {3, 1, 0}};
  for (int32_t token = 0; token < 12; ++token) {
    CAPTURE(token);
    f.fill(token);
    const std::vector<int32_t> &slots = reads[token % reads.size()];
    std::vector<int32_t> writes = slots;
    if (token == 7)
      writes[1] = 3; // {0, 2, -1} writes {0, 3, -1}
    f.setSlots(slots, writes);
    need(graph.replay());
    need(device.synchronize());
    f.compare();
    for (int32_t slot = 0; slot < 4; ++slot) {
      CAPTURE(slot);
      CHECK(need(f.pool.cursor(slot)).length ==
            need(f.hostPool.cursor(slot)).length);
      CHECK(need(f.pool.cursor(slot)).base ==
            need(f.hostPool.cursor(slot)).base);
    }
  }
}

TEST_CASE("a step is launches alone, and does not wait for them") {
  if (!hasGpu() || !emulatedGpu())
    return;
  Fixture f;
  f.fill(0);
  BoundStep step = need(f.decoder.bind(f.tensors.arguments));
  auto device = need(cuda::Device::shared());
  emulatedGpu()->takeCalls();
  emulatedGpu()->takeLaunches();
  need(step.launch(device.stream()));
  for (const std::string &call : emulatedGpu()->takeCalls())
    CHECK_THAT(call, Catch::StartsWith("cuLaunchKernel"));
  std::vector<EmulatedGpu::Launch> launches = emulatedGpu()->takeLaunches();
  REQUIRE(launches.size() >= 2);
  for (const EmulatedGpu::Launch &launch : launches)
    CHECK(launch.stream == device.stream());
  CHECK_THAT(launches.front().kernel, Contains("inner_decode"));
  CHECK(launches.front().grid[1] == 3);
  CHECK(launches.back().kernel == "ladle_advance_cursors");
  CHECK(launches.back().isProgrammatic);
  CHECK(launches.back().grid[0] == 1);
  // An ordinary step does the same.
  need(f.decoder.step(f.tensors.arguments, device.stream()));
  for (const std::string &call : emulatedGpu()->takeCalls())
    CHECK_THAT(call, Catch::StartsWith("cuLaunchKernel"));
  CHECK(emulatedGpu()->takeLaunches().size() == launches.size());
}

TEST_CASE("steps of other layers start early") {
  if (!hasGpu())
    return;
  auto device = need(cuda::Device::shared());
  std::array<Fixture, 3> layers;
  std::vector<BoundStep> steps;
  for (Fixture &layer : layers) {
    layer.fill(0);
    steps.push_back(need(layer.decoder.bind(layer.tensors.arguments)));
  }
  // The first follows what has moved its own cursors.
  auto launch = [&] {
    for (BoundStep &step : steps)
      need(step.launch(device.stream(), &step == &steps.front()
                                            ? Start::InOrder
                                            : Start::Early));
    return Status();
  };
  cuda::Graph graph = need(cuda::Graph::record(device, launch));
  if (emulatedGpu()) {
    emulatedGpu()->takeLaunches();
    need(launch());
    std::vector<bool> early;
    for (const EmulatedGpu::Launch &each : emulatedGpu()->takeLaunches())
      if (each.kernel.find("decode") != std::string::npos)
        early.push_back(each.isProgrammatic);
    CHECK(early == std::vector{false, true, true});
  } else {
    need(launch());
  }
  need(device.synchronize());
  for (Fixture &layer : layers)
    layer.compare();
  for (int32_t token = 1; token < 12; ++token) {
    CAPTURE(token);
    for (size_t i = 0; i < layers.size(); ++i)
      layers[i].fill(token + 20 * static_cast<int32_t>(i));
    need(graph.replay());
    need(device.synchronize());
    for (Fixture &layer : layers)
      layer.compare();
  }
}
