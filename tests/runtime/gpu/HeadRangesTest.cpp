//===- HeadRangesTest.cpp - a part of the heads ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/GpuProgram.h"
#include "tests/runtime/gpu/Gpu.h"

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

/// Heads of 32 values, which few rows of a batch split over two blocks.
Program splitProgram(const std::string &route) {
  CompileOptions options;
  options.sizes = {{"Hk", 2}, {"Hv", 4}, {"Dk", 16}, {"Dv", 32}};
  options.batch = 1;
  options.target = "cuda";
  options.route = route;
  options.capacity = 4;
  return need(compileFile("examples/gated_delta_rule.ladle", options));
}

} // namespace

TEST_CASE("ranges of heads decode what all heads do") {
  if (!hasGpu())
    return;
  const char *route = GENERATE("inner", "recurrent");
  bool isSplit = GENERATE(false, true);
  CAPTURE(route, isSplit);
  Program program = isSplit ? splitProgram(route) : tinyProgram(route);
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

TEST_CASE("a head that is split over blocks can be computed alone") {
  jit::GpuRequest request;
  request.path = "examples/gated_delta_rule.ladle";
  request.preset = "tiny"; // 4 heads of 20 values, 2 of keys
  request.route = "inner";
  for (auto [rows, blocks] : {std::pair<int64_t, unsigned>{20, 4}, {4, 20}}) {
    CAPTURE(rows);
    request.layout = {{"tile_rows", rows}};
    std::string messages;
    auto program = jit::compileForGpu(request, messages);
    INFO(messages);
    REQUIRE(program);
    CHECK(program->decode.gridBlocks == blocks);
    CHECK(program->headGroup() == 2);
  }
  // As the program above is laid out.
  request.preset = "";
  request.sizes = {{"Hk", 2}, {"Hv", 4}, {"Dk", 16}, {"Dv", 32}};
  request.layout = {{"batch", 1}};
  std::string messages;
  auto program = jit::compileForGpu(request, messages);
  INFO(messages);
  REQUIRE(program);
  CHECK(program->decode.gridBlocks == 8);
}
