//===- DeviceGuardsTest.cpp - what used to be the caller's to avoid -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "runtime/cuda/GpuCode.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

namespace {
std::vector<float> stateOf(const Pool &pool, int64_t slot) {
  return need(toFloats(need(pool.state("S"))[slot]));
}
} // namespace

TEST_CASE("kv_only after a fold is told of by the next call") {
  if (!hasGpu())
    return;
  Program program = tinyProgram("kv_only");
  Pool pool = makePool(program, 3);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 2);
  tensors.setSlots({1, 2});
  // The fourth token folds, which kv_only does itself.
  for (int32_t token = 0; token < 4; ++token) {
    tensors.fill({1, 2}, {token, token});
    need(decoder.step(tensors.arguments));
  }
  need(synchronize(gpu));
  need(pool.reset(std::vector<int32_t>{2}));
  CHECK(need(pool.cursor(1)).epoch == 1);
  CHECK(need(pool.cursor(2)).epoch == 0);
  need(decoder.step(tensors.arguments)); // slot 1 has a state
  need(synchronize(gpu));
  const char *message = "decoded slot 1 by route 'kv_only' after its entries "
                        "had been folded";
  SECTION("a step") {
    CHECK_THAT(decoder.step(tensors.arguments).message(), Contains(message));
  }
  SECTION("a bound step") {
    BoundStep step = need(decoder.bind(tensors.arguments));
    CHECK_THAT(step.launch().message(), Contains(message));
  }
  SECTION("a flush") {
    CHECK_THAT(pool.flush(program, std::vector<int32_t>{0}).message(),
               Contains(message));
  }
  // Told once: the program can go on.
  Program inner = need(program.withRoute(RouteKind::Inner));
  Decoder right = need(Decoder::create(inner, pool));
  need(right.step(tensors.arguments));
  need(synchronize(gpu));
  need(right.step(tensors.arguments));
}

TEST_CASE("states that a pool is given or imports are not for kv_only") {
  if (!hasGpu())
    return;
  Program program = tinyProgram("kv_only");
  Pool pool = makePool(program, 2);
  SlotContents contents = need(pool.exportSlot(program, 0));
  CHECK(need(pool.cursor(0)).epoch == 0);
  need(pool.importSlot(1, contents));
  CHECK(need(pool.cursor(1)).epoch == 1);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 1);
  tensors.fill({1}, {0});
  tensors.setSlots({1});
  need(decoder.step(tensors.arguments));
  need(synchronize(gpu));
  CHECK_THAT(decoder.step(tensors.arguments).message(),
             Contains("decoded slot 1 by route 'kv_only'"));
}

TEST_CASE("a flush can be captured, of slots of the host or of the device") {
  if (!hasGpu())
    return;
  bool isDevice = GENERATE(false, true);
  CAPTURE(isDevice);
  Program program = tinyProgram();
  Pool pool = makePool(program, 4), expected = makePool(program, 4);
  Decoder decoder = need(Decoder::create(program, pool));
  Decoder reference = need(Decoder::create(program, expected));
  Tensors tensors(program, 3), slots(program, 3);
  slots.setSlots({2, -1, 0});
  auto device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(device, [&] {
    // The list is gone when the graph runs.
    std::vector<int32_t> named{2, 0, -1, 2};
    return isDevice ? pool.flushRows(program, slots.arguments.readSlots,
                                     device.stream())
                    : pool.flush(program, named, device.stream());
  }));
  for (int32_t token = 0; token < 5; ++token) {
    tensors.fill({1, 2, 3}, {token, token, token});
    need(decoder.step(tensors.arguments));
    need(reference.step(tensors.arguments));
    need(synchronize(gpu));
    if (token % 2 == 0)
      continue;
    std::vector<int32_t> folded{0, 2};
    if (isDevice && token == 3) {
      folded = {1};
      slots.setSlots({-1, 1, -1});
    }
    need(graph.replay());
    need(device.synchronize());
    need(expected.flush(program, folded));
    for (int32_t slot = 0; slot < 4; ++slot) {
      CAPTURE(token, slot);
      CHECK(need(pool.cursor(slot)).length ==
            need(expected.cursor(slot)).length);
      CHECK(stateOf(pool, slot) == stateOf(expected, slot));
    }
  }
}

TEST_CASE("slots of a flush that nothing folds are an error") {
  if (!hasGpu())
    return;
  Program program = tinyProgram(), recurrent = tinyProgram("recurrent");
  Pool pool = makePool(program, 2);
  Tensors tensors(program, 2);
  CHECK(pool.flushRows(recurrent, tensors.arguments.readSlots).message() ==
        "no route of 'gated_delta_rule' folds the entries of the pool");
}

TEST_CASE("a step of more rows than a grid has is several launches") {
  if (!hasGpu())
    return;
  int64_t rows = maxGpuRows + 3;
  // Few threads a row: an emulator takes each in turn.
  CompileOptions options;
  options.preset = "tiny";
  options.sizes = {{"Hk", 1}, {"Hv", 1}, {"Dv", 4}};
  options.target = "cuda";
  options.route = "inner";
  options.capacity = 4;
  Program program =
      need(compileFile("examples/gated_delta_rule.ladle", options));
  Pool pool = makePool(program, 4), expected = makePool(program, 4);
  Decoder decoder = need(Decoder::create(program, pool));
  Decoder reference = need(Decoder::create(program, expected));
  Tensors tensors(program, rows), few(program, 4);
  std::vector<int32_t> slots(rows, -1), sequences(rows, 0), positions(rows, 0);
  const std::vector<int64_t> used{0, maxGpuRows - 1, maxGpuRows, rows - 1};
  for (size_t i = 0; i < used.size(); ++i) {
    slots[used[i]] = static_cast<int32_t>(i);
    sequences[used[i]] = static_cast<int32_t>(i) + 1;
  }
  tensors.fill(sequences, positions);
  few.fill({1, 2, 3, 4}, {0, 0, 0, 0});
  tensors.setSlots(slots);
  // Rows are the same again when a launch has failed.
  if (EmulatedGpu *emulated = emulatedGpu()) {
    emulated->failNext("cuLaunchKernel", 1);
    CHECK(!decoder.step(tensors.arguments).ok());
  }
  for (int step : {0, 1}) {
    CAPTURE(step);
    need(decoder.step(tensors.arguments));
    need(reference.step(few.arguments));
    for (size_t i = 0; i < used.size(); ++i)
      CHECK(tensors.output(used[i]) == few.output(static_cast<int64_t>(i)));
    std::vector<float> padded = tensors.output(maxGpuRows + 1);
    CHECK(padded == std::vector<float>(padded.size(), 0));
    for (int32_t slot = 0; slot < 4; ++slot)
      CHECK(need(pool.cursor(slot)).length == step + 1);
  }
}
