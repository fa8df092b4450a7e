//===- StateBytesTest.cpp - how often states are read and written ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// States are most of what a step moves. Emulated kernels count the bytes that
// they touch of them: drafts read each state once, however many they are, and
// write it only to fold; a prompt reads and writes it once, however long it is.

#include "tests/numerics/Requests.h"
#include "tests/runtime/gpu/Drafts.h"
#include "tests/runtime/gpu/Prompts.h"

using namespace ladle;
using namespace ladle::test;

namespace {

Program stateProgram(const std::string &model, CompileOptions options,
                     const std::map<std::string, int64_t> &sizes) {
  options.target = "cuda";
  options.sizes = sizes;
  return need(compileFile(examplePath(model), options));
}

/// Watches the states of a pool; the bytes of one.
int64_t watchStates(const Pool &pool, int64_t slots) {
  TensorView states = need(pool.state("S"));
  int64_t bytes = states.count() * sizeInBytes(states.dtype);
  emulatedGpu()->watch(states.data, static_cast<size_t>(bytes));
  return bytes / slots;
}

using Sizes = std::map<std::string, int64_t>;

} // namespace

TEST_CASE("drafts read each state once, and write it to fold") {
  if (!hasGpu() || !emulatedGpu())
    return;
  auto [model, route, sizes] = GENERATE(table<std::string, std::string, Sizes>({
      {"gated_delta_net",
       "inner",
       {{"Hk", 1}, {"Hv", 2}, {"Dk", 64}, {"Dv", 64}}},
      {"gated_delta_net",
       "outer",
       {{"Hk", 1}, {"Hv", 2}, {"Dk", 64}, {"Dv", 64}}},
      {"mamba2", "inner", {{"H", 4}, {"G", 1}, {"N", 64}, {"P", 64}}},
      {"kda", "inner", {{"H", 2}, {"Dk", 64}, {"Dv", 32}}},
      {"gla", "adjoint", {{"H", 2}, {"Dk", 32}, {"Dv", 32}}},
  }));
  auto state = GENERATE(as<std::string>(), "f32", "bf16");
  CAPTURE(model, route, state);
  CompileOptions options;
  options.route = route;
  options.capacity = 16;
  options.drafts = mostDrafts;
  options.stateType = state;
  Layer layer(stateProgram(model, options, sizes));
  int64_t bytes = watchStates(layer.pool, slotCount);
  int64_t folds = 0;
  for (int32_t token = 0; token < 40; token += 4) {
    Step step{{2, 0, 3},
              {4, 3, 4},
              {-1, 0, 1, 2, -1, 0, 0, -1, 0, 1, 1},
              {3, 2, 3},
              {0, 1, 2, 0, 0, 2, 0, 0, 1, 3, 0}};
    step.fill(layer, token);
    int64_t folding = 0;
    for (int32_t slot : step.slots)
      folding += need(layer.pool.cursor(slot)).length + 2 * mostDrafts >
                 options.capacity;
    folds += folding;
    need(layer.decoder.verify(layer.arguments()));
    need(synchronize(gpu));
    auto [read, written] = emulatedGpu()->takeTouched();
    CAPTURE(token, folding);
    CHECK(read == rows * bytes);
    CHECK(written == folding * bytes);
    need(layer.pool.commit(layer.slots.all(), layer.numAccepted.all(),
                           layer.accepted.all()));
    need(synchronize(gpu));
    auto [readByCommit, writtenByCommit] = emulatedGpu()->takeTouched();
    CHECK(readByCommit + writtenByCommit == 0);
  }
  CHECK(folds > rows);
}

TEST_CASE("a prompt reads a state once, and writes it once") {
  if (!hasGpu() || !emulatedGpu())
    return;
  auto [model, batch, sizes] = GENERATE(table<std::string, int64_t, Sizes>({
      {"gated_delta_net", 256, {{"Hk", 1}, {"Hv", 2}, {"Dk", 64}, {"Dv", 64}}},
      {"gated_delta_net", 1, {{"Hk", 1}, {"Hv", 2}, {"Dk", 64}, {"Dv", 64}}},
      {"kda", 256, {{"H", 1}, {"Dk", 64}, {"Dv", 128}}},
      {"kda", 1, {{"H", 1}, {"Dk", 64}, {"Dv", 128}}},
      {"mamba2", 256, {{"H", 2}, {"G", 1}, {"N", 12}, {"P", 20}}},
  }));
  auto state = GENERATE(as<std::string>(), "f32", "bf16");
  CAPTURE(model, batch, state);
  CompileOptions options;
  options.route = "inner";
  options.capacity = 4;
  options.prefill = true;
  options.chunk = 64;
  options.batch = batch;
  options.stateType = state;
  Program program = stateProgram(model, options, sizes);
  constexpr int32_t tokens = 200;
  Prompt prompt(program, {}, tokens);
  int64_t bytes = 2 * watchStates(prompt.pool, 3);
  for (int32_t end : {90, tokens}) {
    prompt.set({2, 1}, {0, 35, end});
    need(prompt.decoder.prefill(prompt.arguments()));
    need(synchronize(gpu));
    auto [read, written] = emulatedGpu()->takeTouched();
    CAPTURE(end);
    CHECK(read == bytes);
    CHECK(written == bytes);
  }
}
