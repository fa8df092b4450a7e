//===- DeviceResetTest.cpp - slots that the device names begin anew -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Drafts.h"

using namespace ladle;
using namespace ladle::test;

static Program compile(const std::string &model, const std::string &target,
                       const std::string &route, int64_t page) {
  CompileOptions options;
  options.preset = "tiny";
  options.target = target;
  options.route = route;
  options.capacity = 16;
  options.drafts = mostDrafts;
  options.page = page;
  return need(compileFile(examplePath(model), options));
}

static void checkSame(const SlotContents &one, const SlotContents &other) {
  for (size_t i = 0; i < one.states.size(); ++i)
    CHECK(one.states[i].data == other.states[i].data);
  for (size_t i = 0; i < one.carries.size(); ++i)
    CHECK(one.carries[i].data == other.carries[i].data);
}

TEST_CASE("a graph verifies, commits and resets slots that change") {
  if (!hasGpu())
    return;
  int64_t page = GENERATE(0, 8);
  std::string model = GENERATE("gated_delta_rule", "short_conv");
  CAPTURE(page, model);
  PoolOptions options;
  options.foldThreshold = 6;
  if (page)
    options.states = slotCount;
  Program program = compile(model, "cuda", "inner", page);
  Layer layer(program, options), reference(program, options);
  Numbers resets(program, 2);
  cuda::Device device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(device, [&]() -> Status {
    Status status = layer.verifyAndCommit(device.stream());
    return status ? layer.pool.resetRows(resets.all(), device.stream())
                  : status;
  }));
  const std::vector<Step> steps{{{0, 1, 2},
                                 {4, 2, 3},
                                 {-1, 0, 0, 2, -1, 0, -1, -1, 0},
                                 {3, 2, 1},
                                 {0, 2, 3, 0, 1, 1}},
                                {{2, 0, -1},
                                 {3, 4, 0},
                                 {-1, -1, 1, -1, 0, 1, 2},
                                 {2, 4, 0},
                                 {1, 2, 0, 1, 2, 3}},
                                {{3, 0, 1},
                                 {4, 4, 4},
                                 {-1, 0, 1, 2, -1, -1, 0, 1, -1, 0, 1, 2},
                                 {4, 2, 3},
                                 {0, 1, 2, 3, 0, 2, 0, 1, 2}}};
  const std::vector<std::vector<int32_t>> lists{
      {-1, -1}, {1, -1}, {-1, -3}, {0, 3}, {2, -1}, {-1, 1}, {3, 2}};
  std::vector<int32_t> all{0, 1, 2, 3}, room(slotCount, mostDrafts);
  for (int32_t token = 0; token < 21; ++token) {
    CAPTURE(token);
    const Step &step = steps[token % steps.size()];
    const std::vector<int32_t> &list = lists[token % lists.size()];
    for (Layer *each : {&layer, &reference}) {
      step.fill(*each, token);
      need(each->pool.cursors().reserve(all, room));
    }
    resets.set(list);
    need(graph.replay());
    need(device.synchronize());
    need(reference.verifyAndCommit(nullptr));
    need(reference.pool.reset(list));
    need(device.synchronize());
    int32_t drafts = 0;
    for (int32_t count : step.counts)
      drafts += count;
    for (int32_t draft = 0; draft < drafts; ++draft)
      REQUIRE(layer.tensors.output(draft) == reference.tensors.output(draft));
    for (int32_t slot : all) {
      Cursor mine = need(layer.pool.cursor(slot)),
             other = need(reference.pool.cursor(slot));
      REQUIRE(mine.length == other.length);
      REQUIRE(mine.epoch == other.epoch);
    }
  }
  CHECK(need(layer.pool.cursor(0)).epoch > 0);
  for (int32_t slot : all)
    checkSame(need(layer.pool.exportSlot(program, slot)),
              need(reference.pool.exportSlot(program, slot)));
}

namespace {
/// Slots of a GPU that take states, and the same on the CPU.
struct Followed {
  Followed(const std::string &route, int64_t slots, int64_t rows,
           const PoolOptions &options)
      : program(compile("gated_delta_rule", "cuda", route, 8)),
        onCpu(compile("gated_delta_rule", "cpu", route, 8)),
        pool(makePool(program, slots, options)),
        other(makePool(onCpu, slots, options)),
        decoder(need(Decoder::create(program, pool))),
        follower(need(Decoder::create(onCpu, other))), got(program, rows),
        wanted(onCpu, rows) {}

  /// A token of sequence r + 1 in row r, of these slots.
  void decode(int32_t position, const std::vector<int32_t> &slots) {
    std::vector<int32_t> sequences, positions(slots.size(), position);
    for (size_t row = 0; row < slots.size(); ++row)
      sequences.push_back(static_cast<int32_t>(row) + 1);
    for (Tensors *each : {&got, &wanted}) {
      each->fill(sequences, positions);
      each->setSlots(slots);
    }
    need(decoder.step(got.arguments));
    need(follower.step(wanted.arguments));
    for (size_t row = 0; row < slots.size(); ++row) {
      std::vector<float> mine = got.output(static_cast<int64_t>(row)),
                         theirs = wanted.output(static_cast<int64_t>(row));
      for (size_t i = 0; i < mine.size(); ++i)
        REQUIRE(mine[i] == Approx(theirs[i]).margin(1e-5));
    }
  }

  Program program, onCpu;
  Pool pool, other;
  Decoder decoder, follower;
  Tensors got, wanted;
};
} // namespace

TEST_CASE("what a slot that the device resets shared is the others' alone") {
  if (!hasGpu())
    return;
  PoolOptions options;
  options.states = 3;
  options.pages = 8;
  options.foldThreshold = options.crossover = 5;
  Followed both("kv_only", 3, 2, options);
  Pool &pool = both.pool, &other = both.other;
  Cursors cursors = pool.cursors();
  std::vector<int32_t> slots{0, 1}, one{1, 1};
  auto decode = [&](int32_t position, const std::vector<int32_t> &rows) {
    need(cursors.reserve(slots, one));
    both.decode(position, rows);
  };
  for (int32_t position = 0; position < 7; ++position)
    decode(position, {0, -1});
  CHECK(need(pool.cursor(0)).epoch == 1);
  std::vector<int32_t> from{0}, to{1};
  for (Pool *each : {&pool, &other})
    need(each->fork(from, to));
  CHECK(cursors.stateOf(1) == cursors.stateOf(0));
  Numbers list(both.program, 1);
  list.set({1});
  need(pool.resetRows(list.all()));
  need(other.reset(to));
  CHECK(need(pool.cursor(1)).epoch == 0);
  // The host hears of it when it looks.
  need(cursors.reserve(slots, one));
  CHECK(cursors.stateOf(1) == -1);
  CHECK(cursors.states().free == 2);
  for (int32_t position = 7; position < 20; ++position)
    decode(position, {0, 1});
  CHECK(need(pool.cursor(1)).epoch == 2);
  // What it had to itself stays for the next, who begins without it.
  list.set({0});
  need(pool.resetRows(list.all()));
  need(other.reset(from));
  CHECK(cursors.stateOf(0) >= 0);
  for (int32_t position = 20; position < 28; ++position)
    decode(position, {0, 1});
  need(pool.reset(slots));
  CHECK(cursors.states().free == 3);
  CHECK(cursors.pages().free == 8);
}

TEST_CASE("a slot that the device has reset has no state when others are") {
  if (!hasGpu())
    return;
  PoolOptions options;
  options.states = 2;
  options.pages = 8;
  options.foldThreshold = 3;
  Followed both("inner", 2, 1, options);
  Pool &pool = both.pool, &other = both.other;
  Cursors cursors = pool.cursors();
  auto decode = [&](int32_t position, int32_t slot) {
    need(cursors.reserve(std::vector{slot}, std::vector{2}));
    both.decode(position, {slot});
  };
  for (int32_t position = 0; position < 7; ++position)
    decode(position, 0);
  std::vector<int32_t> zero{0}, one{1};
  for (Pool *each : {&pool, &other})
    need(each->fork(zero, one));
  Numbers list(both.program, 1);
  list.set({1});
  need(pool.resetRows(list.all()));
  need(other.reset(one));
  for (Pool *each : {&pool, &other})
    need(each->reset(zero));
  CHECK(cursors.stateOf(1) == -1);
  CHECK(cursors.states().free == 2);
  for (int32_t position = 0; position < 7; ++position)
    decode(position, 1);
}

TEST_CASE("a slot without a buffer is reset by the device") {
  if (!hasGpu())
    return;
  Program program = tinyProgram("recurrent");
  Pool pool = makePool(program, 2), fresh = makePool(program, 2);
  Decoder decoder = need(Decoder::create(program, pool)),
          other = need(Decoder::create(program, fresh));
  Tensors tensors(program, 2), expected(program, 2);
  tensors.fill({1, 2}, {0, 0});
  need(decoder.step(tensors.arguments));
  Numbers list(program, 3);
  list.set({-1, 1, 0});
  need(pool.resetRows(list.all()));
  need(pool.resetRows({}));
  for (Tensors *each : {&tensors, &expected})
    each->fill({3, 4}, {0, 0});
  need(decoder.step(tensors.arguments));
  need(other.step(expected.arguments));
  need(synchronize(gpu));
  for (int64_t row : {0, 1})
    CHECK(tensors.output(row) == expected.output(row));
}
