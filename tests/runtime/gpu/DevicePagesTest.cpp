//===- DevicePagesTest.cpp - entries in pages of a GPU's memory -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;

static CompileOptions pagedOptions(const std::string &target) {
  CompileOptions options;
  options.preset = "tiny";
  options.target = target;
  options.route = "inner";
  options.capacity = 24;
  options.page = 8;
  return options;
}

static Program pagedProgram(const std::string &target) {
  return need(
      compileFile(examplePath("gated_delta_rule"), pagedOptions(target)));
}

/// One token of sequences 1, 2 in slots 0, 1.
static void decode(Decoder &decoder, Tensors &tensors, int32_t position) {
  tensors.fill({1, 2}, {position, position});
  need(decoder.step(tensors.arguments));
}

TEST_CASE("the host takes pages between steps, and gives back what is left") {
  if (!hasGpu())
    return;
  Program program = pagedProgram("cuda"), onCpu = pagedProgram("cpu");
  PoolOptions options;
  options.slots = 2;
  options.pages = 4;
  options.foldThreshold = 20;
  Pool pool = need(Pool::create(program, options)),
       reference = need(Pool::create(onCpu, options));
  Decoder decoder = need(Decoder::create(program, pool)),
          other = need(Decoder::create(onCpu, reference));
  Tensors tensors(program, 2), expected(onCpu, 2);
  Cursors cursors = pool.cursors();
  std::vector<int32_t> slots{0, 1}, eight{8, 8}, nine{9, 9};
  auto decodeBoth = [&](int32_t position) {
    decode(decoder, tensors, position);
    decode(other, expected, position);
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<float> got = tensors.output(row),
                         wanted = expected.output(row);
      for (size_t i = 0; i < got.size(); ++i)
        REQUIRE(got[i] == Approx(wanted[i]).margin(1e-5));
    }
  };
  need(cursors.reserve(slots, eight));
  CHECK(cursors.pages().free == 2);
  for (int32_t position = 0; position < 8; ++position)
    decodeBoth(position);
  Status status = cursors.reserve(slots, nine);
  CHECK(status.code() == ErrorCode::ResourceExhausted);
  CHECK(status.message() ==
        "the pages of 'gated_delta_rule' do not suffice: wanted 4 of 8 "
        "entries, 2 of 4 are free; reset or flush slots, or make more "
        "(CursorOptions::pages)");
  CHECK(cursors.pages().free == 2);
  need(cursors.reserve(slots, eight));
  CHECK(cursors.pages().free == 0);
  for (int32_t position = 8; position < 16; ++position)
    decodeBoth(position);
  // A flush leaves pages, which the host takes back when it looks.
  need(pool.flush(program, slots));
  need(reference.flush(onCpu, slots));
  CHECK(need(pool.cursor(0)).base == 0);
  need(cursors.reserve(slots, std::vector<int32_t>{1, 0}));
  CHECK(cursors.pages().free == 3);
  need(cursors.reserve(slots, eight));
  for (int32_t position = 16; position < 20; ++position)
    decodeBoth(position);
  need(cursors.reset(slots));
  CHECK(cursors.pages().free == 4);
}

TEST_CASE("who appends without a page is told") {
  if (!hasGpu())
    return;
  Program program = pagedProgram("cuda");
  Pool pool = makePool(program, 2);
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 2);
  std::vector<int32_t> slot{0}, one{1};
  need(pool.cursors().reserve(slot, one));
  decode(decoder, tensors, 0);
  need(synchronize(program.device()));
  auto isTold = [](const Status &status) {
    CHECK(status.code() == ErrorCode::ResourceExhausted);
    CHECK(status.message() ==
          "an earlier step appended an entry to slot 1, which had no page for "
          "it: the entry is not there, nor may those of other slots be; take "
          "pages before (Cursors::reserve)");
  };
  tensors.fill({1, 2}, {1, 1});
  isTold(decoder.step(tensors.arguments));
  CHECK(need(pool.cursor(0)).length == 1);
  CHECK(need(pool.cursor(1)).length == 0);
  // Between graphs that the host replays, these are the calls that there are.
  for (int call = 0; call < 2; ++call) {
    decode(decoder, tensors, 1 + call);
    need(synchronize(program.device()));
    isTold(call ? pool.cursors().fork(slot, std::vector{1})
                : pool.cursors().reserve(slot, one));
  }
  CHECK(need(pool.cursor(1)).length == 0);
}

namespace {
/// Two slots that take states and pages.
struct TakingStates {
  static PoolOptions options() {
    PoolOptions options;
    options.slots = 2;
    options.pages = 6;
    options.states = 2;
    return options;
  }
  Program program = pagedProgram("cuda");
  Pool pool = need(Pool::create(program, options()));
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors{program, 2};
};
} // namespace

TEST_CASE("who is left of two branches may write what both held") {
  if (!hasGpu())
    return;
  TakingStates taking;
  Tensors &tensors = taking.tensors;
  Decoder &decoder = taking.decoder;
  Cursors cursors = taking.pool.cursors();
  std::vector<int32_t> first{0}, second{1};
  need(cursors.reserve(first, std::vector<int32_t>{8}));
  tensors.setSlots({0, -1});
  for (int32_t token = 0; token < 2; ++token)
    decode(decoder, tensors, token);
  need(cursors.fork(first, second));
  need(cursors.reset(second));
  for (int32_t token = 2; token < 8; ++token)
    decode(decoder, tensors, token);
  need(synchronize(taking.program.device()));
  CHECK(need(cursors.cursor(0)).length == 8);
  need(cursors.reserve(first, std::vector<int32_t>{1}));
}

TEST_CASE("what waits for the device says that it cannot be captured") {
  if (!hasGpu())
    return;
  TakingStates taking;
  Pool &pool = taking.pool;
  std::vector<int32_t> slots{0, 1};
  need(pool.cursors().reserve(slots, std::vector<int32_t>{2, 2}));
  decode(taking.decoder, taking.tensors, 0);
  cuda::Device device = need(cuda::Device::shared());
  std::vector<std::string> said;
  auto graph = cuda::Graph::record(device, [&] {
    for (const Status &status : {pool.cursors().flush(slots, device.stream()),
                                 pool.cursors().reset(slots, device.stream())})
      said.push_back(status.message());
    return Status();
  });
  CHECK(said == std::vector<std::string>{
                    "flush is captured, and has to wait for the device to know "
                    "what slots hold: reserve before, and capture flushRows",
                    "reset is captured, and has to wait for the device to know "
                    "what slots hold: reserve before, and capture resetRows"});
  need(pool.cursors().flush(slots));
  CHECK(need(pool.cursor(0)).length == 0);
}

TEST_CASE("what is an error on a GPU changes nothing") {
  if (!hasGpu())
    return;
  Program program = pagedProgram("cuda");
  Pool pool = makePool(program, 2);
  Cursors cursors = pool.cursors();
  Decoder decoder = need(Decoder::create(program, pool));
  Tensors tensors(program, 2);
  std::vector<int32_t> slots{0, 1};
  SECTION("a flush by a program of other pages") {
    CompileOptions options = pagedOptions("cuda");
    options.route = "recurrent";
    options.extraRoutes = {"inner"};
    options.page = 0;
    Program flat = need(compileFile(examplePath("gated_delta_rule"), options));
    need(cursors.reserve(slots, std::vector<int32_t>{3, 3}));
    decode(decoder, tensors, 0);
    CHECK(pool.flush(flat, slots).message() ==
          "slot 0 holds 1 entries, which no route of 'gated_delta_rule' folds");
    CHECK(pool.flushRows(flat, slots).message() ==
          "no route of 'gated_delta_rule' folds the entries of the pool");
    need(synchronize(gpu));
    CHECK(need(cursors.cursor(0)).length == 1);
  }
  SECTION("a prefix when another slot has lost an entry") {
    need(cursors.reserve(std::vector<int32_t>{0}, std::vector<int32_t>{5}));
    tensors.setSlots({0, -1});
    for (int32_t position = 0; position < 5; ++position)
      decode(decoder, tensors, position);
    tensors.setSlots({-1, 1});
    decode(decoder, tensors, 0);
    Status status = cursors.rebuild(0, 2, 0);
    CHECK(status.code() == ErrorCode::ResourceExhausted);
    CHECK(need(cursors.cursor(0)).length == 5);
    need(cursors.rebuild(0, 2, 0));
    CHECK(need(cursors.cursor(0)).length == 2);
  }
  SECTION("a threshold while the host cannot wait") {
    int64_t before = cursors.foldThreshold(), crossover = cursors.crossover();
    cuda::Device device = need(cuda::Device::shared());
    std::vector<Status> said;
    auto graph = cuda::Graph::record(device, [&] {
      said = {cursors.setFoldThreshold(5), cursors.setCrossover(6)};
      return Status();
    });
    for (const Status &status : said)
      CHECK(!status.ok());
    CHECK(cursors.foldThreshold() == before);
    CHECK(cursors.crossover() == crossover);
  }
}

TEST_CASE("what pages of a GPU cannot do is an error") {
  if (!hasGpu())
    return;
  CompileOptions options = pagedOptions("cuda");
  options.route = "kv_only";
  options.longRoute = "recurrent";
  CHECK(compileFile(examplePath("gated_delta_rule"), options).message() ==
        "longRoute is 'recurrent', expected inner or outer: on a GPU rows go "
        "on in the pages that they have");
  Program ring = tinyProgram();
  CHECK(Cursors::create(ring, {.slots = 2, .states = 1}).message() ==
        "states is 1, wanted none: on a GPU slots take states where entries "
        "lie in pages (CompileOptions::page)");
  CHECK(Cursors::create(ring, {.slots = 2, .crossover = 3}).message() ==
        "crossover is 3, wanted 0: on a GPU rows cross over where entries lie "
        "in pages (CompileOptions::page)");
  options = pagedOptions("cuda");
  options.extraRoutes = {"recurrent"};
  Program both = need(compileFile(examplePath("gated_delta_rule"), options));
  PoolOptions taking;
  taking.states = 1;
  Pool pool = makePool(both, 2, taking);
  CHECK(Decoder::create(need(both.withRoute(RouteKind::Recurrent)), pool)
            .message() ==
        "route 'recurrent' has no buffer, and knows each slot's own state "
        "alone: make the pool without CursorOptions::states, or decode by "
        "another");
}
