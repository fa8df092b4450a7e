//===- HeadRangesTest.cpp - a part of the heads ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/GpuProgram.h"
#include "tests/runtime/gpu/Gpu.h"

#include <numeric>

using namespace ladle;
using namespace ladle::test;

namespace {

std::vector<float> stateOf(const Pool &pool, int64_t slot) {
  return need(toFloats(need(pool.state("S"))[slot]));
}

/// Heads [begin, end) of values [4, size].
std::vector<float> part(const std::vector<float> &values, size_t begin,
                        size_t end) {
  size_t size = values.size() / 4;
  return {values.begin() + begin * size, values.begin() + end * size};
}

} // namespace

TEST_CASE("ranges of heads decode what all heads do") {
  if (!hasGpu())
    return;
  const char *route = GENERATE("inner", "recurrent");
  // A head is a block, or it is split over two.
  int64_t rows = GENERATE(20, 1024);
  CAPTURE(route, rows);
  Program program = tinyProgram(route, "cuda", 4, {{"Dv", rows}});
  REQUIRE(program.headGroup() == 2); // two value heads share a key
  PoolOptions options;
  if (program.capacity() > 0)
    options.cursors = need(Cursors::create(program, {.slots = 3}));
  Pool pool = makePool(program, 3, options), expected = makePool(program, 3);
  std::vector<Decoder> ranges;
  for (int64_t begin : {0, 2}) {
    DecoderOptions range;
    range.headBegin = begin;
    range.headEnd = begin + 2;
    ranges.push_back(need(Decoder::create(program, pool, range)));
  }
  Decoder whole = need(Decoder::create(program, expected));
  Tensors tensors(program, 3), all(program, 3);
  for (Tensors *each : {&tensors, &all})
    each->setSlots({2, -1, 0});
  for (int32_t token = 0; token < 6; ++token) {
    CAPTURE(token);
    for (Tensors *each : {&tensors, &all})
      each->fill({1, 2, 3}, {token, token, token});
    need(ranges[1].step(tensors.arguments));
    // The other heads are left alone, those of padding, too.
    for (int64_t row : {0, 1}) {
      std::vector<float> left = part(tensors.output(row), 0, 2);
      CHECK(left == std::vector<float>(left.size(), 99));
    }
    need(ranges[0].step(tensors.arguments));
    if (options.cursors)
      need(options.cursors->advance(tensors.arguments.readSlots));
    need(whole.step(all.arguments));
    for (int64_t row = 0; row < 3; ++row)
      CHECK(tensors.output(row) == all.output(row));
    for (int64_t slot = 0; slot < 3; ++slot)
      CHECK(stateOf(pool, slot) == stateOf(expected, slot));
  }
}

// Each range has the steps of its heads prepared, in the same memory.
TEST_CASE("ranges of heads take prompts as all heads do") {
  if (!hasGpu())
    return;
  CompileOptions compile;
  compile.preset = "tiny";
  compile.sizes = {{"Dk", 64}, {"Dv", 256}};
  compile.target = "cuda";
  compile.route = "inner";
  compile.capacity = 4;
  compile.prefill = true;
  compile.batch = 1;
  Program program =
      need(compileFile("examples/gated_delta_rule.ladle", compile));
  PoolOptions options;
  options.cursors = need(Cursors::create(program, {.slots = 3}));
  Pool pool = makePool(program, 3, options), expected = makePool(program, 3);
  constexpr int32_t count = 90;
  Tensors tensors(program, count), all(program, count);
  DeviceTensor numbers =
      need(DeviceTensor::allocate(program.device(), DType::I32, {5}));
  std::vector<int32_t> values{0, 40, count, 2, 0};
  need(copy(TensorView::dense(values, DType::I32, {5}), numbers.view()));
  auto prefill = [&](Decoder &decoder, Tensors &given) {
    PrefillArguments arguments;
    arguments.tensors = given.arguments.tensors;
    const auto *first = static_cast<const int32_t *>(numbers.view().data);
    arguments.rows = 2;
    arguments.tokens = count;
    arguments.cuSeqlens = {first, 3};
    arguments.slots = {first + 3, 2};
    need(decoder.prefill(arguments));
  };
  std::vector<int32_t> sequences(count, 1), positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  for (Tensors *each : {&tensors, &all})
    each->fill(sequences, positions);
  for (int64_t begin : {2, 0}) {
    DecoderOptions range;
    range.headBegin = begin;
    range.headEnd = begin + 2;
    Decoder decoder = need(Decoder::create(program, pool, range));
    prefill(decoder, tensors);
  }
  Decoder whole = need(Decoder::create(program, expected));
  prefill(whole, all);
  for (int64_t token = 0; token < count; ++token)
    CHECK(tensors.output(token) == all.output(token));
  for (int64_t slot : {0, 2})
    CHECK(stateOf(pool, slot) == stateOf(expected, slot));
}

TEST_CASE("a bound range takes other memory") {
  if (!hasGpu())
    return;
  Program program = tinyProgram();
  Pool pool = makePool(program, 2), expected = makePool(program, 2);
  DecoderOptions range;
  range.headBegin = 2;
  Decoder decoder = need(Decoder::create(program, pool, range));
  Decoder whole = need(Decoder::create(program, expected));
  Tensors bound(program, 2), other(program, 2), all(program, 2);
  bound.fill({3, 4}, {0, 0});
  BoundStep step = need(decoder.bind(bound.arguments));
  for (Tensors *each : {&other, &all})
    each->fill({1, 2}, {0, 0});
  for (const auto &[name, view] : other.arguments.tensors)
    need(step.setMemory(name, view.data));
  need(step.launch());
  need(whole.step(all.arguments));
  CHECK(part(other.output(1), 2, 4) == part(all.output(1), 2, 4));
  CHECK(part(other.output(1), 0, 2) ==
        std::vector<float>(part(all.output(1), 0, 2).size(), 99));
  CHECK(part(stateOf(pool, 1), 0, 2) ==
        part(std::vector<float>(stateOf(pool, 1).size(), 0), 0, 2));
}
