//===- DevicePoolTest.cpp - pools in the memory of a GPU ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DevicePool.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

namespace {

/// Decodes `count` tokens of sequences 1, 2, ... in slots 0, 1, ...
void decodeTokens(const Program &program, Pool &pool, int32_t rows,
                  int32_t first, int32_t count) {
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, rows);
  std::vector<int32_t> sequences;
  for (int32_t row = 0; row < rows; ++row)
    sequences.push_back(row + 1);
  for (int32_t i = 0; i < count; ++i) {
    tensors.fill(sequences, std::vector<int32_t>(rows, first + i));
    need(decoder.step(tensors.arguments));
  }
  need(synchronize(program.device()));
}

std::vector<float> stateOf(const Pool &pool, int64_t slot) {
  return need(toFloats(need(pool.state("S"))[slot]));
}

bool areClose(const std::vector<float> &a, const std::vector<float> &b) {
  float largest = 1e-3f, error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  return a.size() == b.size() && error <= 2e-5f * largest;
}

} // namespace

TEST_CASE("a pool is where its program runs") {
  if (!hasGpu())
    return;
  Program program = tinyProgram();
  CHECK(program.device() == gpu);
  Pool pool = makePool(program, 3);
  CHECK(pool.device() == gpu);
  CHECK(need(pool.state("S")).device == gpu);
  CHECK(stateOf(pool, 2) ==
        std::vector<float>(need(pool.state("S"))[2].count(), 0.0f));
  CHECK(pool.foldThreshold() == 4);
  Result<Decoder> other = Decoder::create(tinyProgram("inner", "cpu"), pool);
  CHECK(other.message() == "the pool of 'gated_delta_rule' is in memory of "
                           "cuda:0, the program runs on cpu");
}

TEST_CASE("cursors of the device move as those of the CPU") {
  if (!hasGpu())
    return;
  for (const char *target : {"cpu", "cuda"}) {
    CAPTURE(target);
    Program program = tinyProgram("inner", target);
    Pool pool = makePool(program, 2);
    need(pool.setFoldThreshold(3));
    decodeTokens(program, pool, 2, 0, 2);
    CHECK(need(pool.cursor(0)).length == 2);
    CHECK(need(pool.cursor(0)).base == 0);
    decodeTokens(program, pool, 1, 2, 1);
    CHECK(need(pool.cursor(0)).length == 0);
    CHECK(need(pool.cursor(0)).base == 2);
    CHECK(need(pool.cursor(1)).length == 2);
    // The threshold is data of the device.
    need(pool.setFoldThreshold(1));
    decodeTokens(program, pool, 2, 3, 1);
    CHECK(need(pool.cursor(1)).length == 0);
  }
}

TEST_CASE("slot 0 as padding is never touched, however many rows name it") {
  if (!hasGpu())
    return;
  Program program = tinyProgram();
  PoolOptions options;
  options.padSlot = 0;
  Pool pool = makePool(program, 2, options);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 3);
  tensors.fill({1, 2, 3}, {0, 0, 0});
  tensors.setSlots({0, 1, 0});
  need(decoder.step(tensors.arguments));
  CHECK(need(pool.cursor(1)).length == 1);
  CHECK(tensors.output(2) == std::vector<float>(tensors.output(2).size(), 0));
  // No call tells of slot 0.
  int32_t cursor[2] = {-1, -1};
  need(static_cast<DevicePool &>(pool.getImpl())
           .positions()
           .positions.read(cursor, sizeof(cursor)));
  CHECK(cursor[0] == 0);
  CHECK(cursor[1] == 0);
}

TEST_CASE("a reset leaves the other slots") {
  if (!hasGpu())
    return;
  Program program = tinyProgram();
  Pool pool = makePool(program, 2);
  decodeTokens(program, pool, 2, 0, 6);
  std::vector<float> other = stateOf(pool, 1);
  need(pool.reset(std::vector<int32_t>{0, -1, 0}));
  CHECK(need(pool.cursor(0)).length == 0);
  CHECK(need(pool.cursor(1)).length == 2);
  CHECK(stateOf(pool, 0) == std::vector<float>(other.size(), 0.0f));
  CHECK(stateOf(pool, 1) == other);
}

TEST_CASE("a flush folds what the slots hold and no more") {
  if (!hasGpu())
    return;
  Program program = tinyProgram(), host = tinyProgram("inner", "cpu");
  Pool pool = makePool(program, 3), expected = makePool(host, 3);
  decodeTokens(program, pool, 3, 0, 2);
  decodeTokens(host, expected, 3, 0, 2);
  std::vector<int32_t> slots{2, 0, -1, 2};
  need(pool.flush(program, slots));
  need(expected.flush(host, slots));
  for (int32_t slot : {0, 1, 2}) {
    CAPTURE(slot);
    CHECK(need(pool.cursor(slot)).length == (slot == 1 ? 2 : 0));
    CHECK(need(pool.cursor(slot)).base == need(expected.cursor(slot)).base);
    CHECK(areClose(stateOf(pool, slot), stateOf(expected, slot)));
  }
}

TEST_CASE("a fork that no buffer takes part in leaves an empty ring") {
  if (!hasGpu())
    return;
  for (const char *target : {"cpu", "cuda"}) {
    CAPTURE(target);
    Program program = tinyProgram("inner", target);
    Program recurrent = need(program.withRoute(RouteKind::Recurrent));
    Pool pool = makePool(program, 3);
    decodeTokens(program, pool, 2, 0, 2);
    need(pool.flush(program, std::vector<int32_t>{0}));
    Decoder decoder = need(Decoder::create(recurrent, pool));
    Tensors tensors(recurrent, 3);
    tensors.fill({1, 1, 1}, {2, 2, 2});
    // Two rows read one slot, and any number are padding.
    tensors.setSlots({0, 0, -1}, {1, 2, -1});
    need(decoder.step(tensors.arguments));
    for (int32_t slot : {1, 2}) {
      CHECK(need(pool.cursor(slot)).length == 0);
      CHECK(need(pool.cursor(slot)).base == 0);
    }
    CHECK(need(pool.cursor(0)).base == 2);
    CHECK(stateOf(pool, 1) == stateOf(pool, 2));
    CHECK(stateOf(pool, 1) != stateOf(pool, 0));
  }
}

TEST_CASE("sequences move between the pools of a GPU and the CPU") {
  if (!hasGpu())
    return;
  Program program = tinyProgram(), host = tinyProgram("inner", "cpu");
  Pool pool = makePool(program, 2), other = makePool(host, 1);
  decodeTokens(program, pool, 1, 0, 3);
  SlotContents contents = need(pool.exportSlot(program, 0));
  need(other.importSlot(0, contents));
  CHECK(stateOf(other, 0) == stateOf(pool, 0));
  decodeTokens(host, other, 1, 3, 2);
  decodeTokens(program, pool, 1, 3, 2);
  SlotContents back = need(other.exportSlot(host, 0));
  need(pool.importSlot(1, back));
  need(pool.flush(program, std::vector<int32_t>{0}));
  CHECK(areClose(stateOf(pool, 1), stateOf(pool, 0)));
  CHECK(need(pool.cursor(1)).length == 0);
}

TEST_CASE("states may lie in memory of the caller") {
  if (!hasGpu())
    return;
  Program program = tinyProgram();
  const StateSpec &spec = program.signature().states[0];
  int64_t stride = spec.heads * spec.keySize * spec.valueSize + 64;
  DeviceTensor memory =
      need(DeviceTensor::allocate(gpu, DType::F32, {2, stride}));
  PoolOptions options;
  options.slotStrides = {stride};
  options.stateMemory = {memory.view().data};
  Pool pool = makePool(program, 2, options);
  decodeTokens(program, pool, 2, 0, 4);
  std::vector<float> all = need(toFloats(memory.view()));
  std::vector<float> first = stateOf(pool, 0);
  CHECK(std::equal(first.begin(), first.end(), all.begin()));
  CHECK(first != std::vector<float>(first.size(), 0.0f));
  for (int64_t i = stride - 64; i < stride; ++i)
    REQUIRE(all[i] == 0);
}

TEST_CASE("options that do not fit a device are named") {
  if (!hasGpu())
    return;
  Program program = tinyProgram();
  PoolOptions options;
  options.slots = 2;
  alignas(64) static float host[4096];
  options.stateMemory = {host};
  CHECK_THAT(Pool::create(program, options).message(),
             Contains("memory of 'S' at") &&
                 Contains("is not memory of cuda:0"));
  options.stateMemory.clear();
  options.slotStrides = {961};
  CHECK(Pool::create(program, options).message() ==
        "'S' has the slot stride 961, wanted a multiple of 4 on cuda:0");
  options.slotStrides = {int64_t(1) << 31};
  CHECK(Pool::create(program, options).message() ==
        "'S' has the slot stride 2147483648, wanted at most 2147483647 on "
        "cuda:0");
  options.slotStrides.clear();
  options.slots = INT32_MAX;
  CHECK(Pool::create(program, options).status().code() ==
        ErrorCode::ResourceExhausted);
}
