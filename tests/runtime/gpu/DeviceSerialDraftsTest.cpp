//===- DeviceSerialDraftsTest.cpp - drafts that wait, on a GPU ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Drafts whose parents have to be answered first are a launch each, behind the
// calls that other recurrences have.
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Comparison.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/SerialRecurrences.h"
#include "tests/numerics/Speculation.h"
#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;

namespace {

void speculate(const std::string &source, std::vector<std::string> routes,
               int64_t steps) {
  SpeculationOptions options;
  options.source = source;
  bool isRecurrent = routes.front() == "recurrent"; // there is nothing to fold
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
  CHECK((run.folds > steps / 32 || isRecurrent));
}

} // namespace

TEST_CASE("a value that is not affine in a read, drafted on a GPU") {
  if (!hasGpu())
    return;
  speculate(saturating, {"inner", "outer"}, 300);
}

TEST_CASE("a carry that depends on a read, drafted on a GPU") {
  if (!hasGpu())
    return;
  speculate(feedback, {"inner"}, 200);
}

TEST_CASE("a decay that comes from a read, drafted on a GPU") {
  if (!hasGpu())
    return;
  speculate(gatedByState, {"recurrent"}, 300);
}

TEST_CASE("a state for each draft, with a carry and where entries would do") {
  if (!hasGpu())
    return;
  speculate(feedback, {"recurrent"}, 100);
  speculate(saturating, {"recurrent"}, 100);
}

namespace {

constexpr int64_t mostDrafts = 4, rows = 3, slotCount = 4, room = 8;

Program compile(const std::string &target, const std::string &route = "inner",
                int64_t page = 0, const char *source = saturating) {
  CompileOptions options;
  options.preset = "tiny";
  options.target = target;
  options.route = route;
  options.capacity = 16;
  options.drafts = mostDrafts;
  options.page = page;
  return need(compileSource(source, "serial.ladle", options));
}

/// A pool with everything that a step of drafts takes, wherever it is.
struct Layer {
  explicit Layer(const Program &program, const PoolOptions &options = {})
      : program(program), pool(makePool(program, slotCount, options)),
        decoder(need(Decoder::create(program, pool))), tensors(program, room),
        numbers(need(
            DeviceTensor::allocate(program.device(), DType::I32, {5, room}))) {}

  std::span<const int32_t> list(int64_t which, int64_t count) const {
    return {numbers.as<int32_t>() + which * room, static_cast<size_t>(count)};
  }
  /// A step's slots, starts, parents, numbers of accepted drafts and paths.
  void set(const std::vector<std::vector<int32_t>> &lists, int32_t token) {
    std::vector<int32_t> all;
    for (std::vector<int32_t> one : lists) {
      one.resize(room);
      all.insert(all.end(), one.begin(), one.end());
    }
    need(copy(TensorView::dense(all, DType::I32, {5, room}), numbers.view()));
    std::vector<int32_t> sequences, positions;
    for (int32_t i = 0; i < room; ++i) {
      sequences.push_back(i % 5);
      positions.push_back(token + i);
    }
    tensors.fill(sequences, positions);
  }
  VerifyArguments arguments(int64_t drafts) const {
    VerifyArguments result;
    result.rows = rows;
    result.slots = list(0, rows);
    result.cuSeqlens = list(1, rows + 1);
    result.parents = list(2, drafts);
    result.drafts = drafts;
    result.tensors = tensors.arguments.tensors;
    for (auto &[name, view] : result.tensors)
      if (view.shape[0] == room)
        view = view.slice(0, 0, drafts);
    return result;
  }
  Status run(int64_t drafts, int64_t paths, void *stream = nullptr) {
    if (Status status = decoder.verify(arguments(drafts), stream); !status)
      return status;
    return pool.commit(list(0, rows), list(3, rows), list(4, paths), stream);
  }

  Program program;
  Pool pool;
  Decoder decoder;
  Tensors tensors;
  DeviceTensor numbers;
};

/// Slots, starts, parents, numAccepted, accepted.
const std::vector<std::vector<std::vector<int32_t>>> steps{
    {{0, 1, 2},
     {0, 4, 5, 8},
     {-1, 0, 0, 2, -1, -1, 0, 1},
     {3, 1, 0},
     {0, 2, 3, 0}},
    {{2, 0, -1}, {0, 1, 5, 7}, {-1, -1, 0, 1, 2, -1, 0}, {1, 2, 0}, {0, 0, 1}},
    {{3, 0, 1},
     {0, 2, 4, 8},
     {-1, -1, -1, 0, -1, 0, 0, 1},
     {1, 2, 3},
     {1, 0, 1, 0, 1, 3}},
};

void compareLayers(const Layer &got, const Layer &wanted, int32_t drafts) {
  for (int32_t draft = 0; draft < drafts; ++draft) {
    CAPTURE(draft);
    std::vector<float> mine = got.tensors.output(draft),
                       other = wanted.tensors.output(draft);
    for (size_t k = 0; k < mine.size(); ++k)
      REQUIRE(mine[k] == Approx(other[k]).margin(1e-5));
  }
  for (int32_t slot = 0; slot < slotCount; ++slot) {
    CAPTURE(slot);
    Cursor mine = need(got.pool.cursor(slot)),
           other = need(wanted.pool.cursor(slot));
    CHECK(mine.length == other.length);
    CHECK(mine.committed == other.committed);
    CHECK(mine.epoch == other.epoch);
  }
}

} // namespace

TEST_CASE("a graph of drafts that wait for their parents is replayed") {
  if (!hasGpu())
    return;
  bool isRecurrent = GENERATE(false, true);
  auto compileFor = [&](const std::string &target) {
    return isRecurrent ? compile(target, "auto", 0, gatedByState)
                       : compile(target);
  };
  Layer layer(compileFor("cuda")), reference(compileFor("cpu"));
  CHECK((layer.program.route() == RouteKind::Recurrent) == isRecurrent);
  CHECK_FALSE(layer.program.verifiesAtOnce());
  layer.set(steps[0], 0);
  cuda::Device device = need(cuda::Device::shared());
  cuda::Graph graph = need(cuda::Graph::record(
      device, [&] { return layer.run(room, room, device.stream()); }));
  CHECK(need(layer.pool.cursor(0)).length == 0);
  for (int32_t token = 0; token < 12; ++token) {
    CAPTURE(token);
    const auto &step = steps[static_cast<size_t>(token) % steps.size()];
    layer.set(step, token);
    reference.set(step, token);
    need(graph.replay());
    need(device.synchronize());
    int32_t drafts = step[1][rows];
    need(reference.run(drafts, static_cast<int64_t>(step[4].size())));
    compareLayers(layer, reference, drafts);
  }
  CHECK(need(layer.pool.cursor(0)).epoch > 0);
}

TEST_CASE("what was rejected leaves a slot as it was on a GPU") {
  if (!hasGpu())
    return;
  Layer layer(compile("cuda")), untouched(compile("cuda"));
  for (Layer *each : {&layer, &untouched}) {
    each->set(steps[0], 0);
    need(each->run(room, 4));
  }
  // Other drafts, in between, of which none is accepted.
  layer.set({steps[0][0], steps[0][1], {}, {0, 0, 0}, {}}, 40);
  layer.tensors.fill({7, 7, 7, 7, 7, 7, 7, 7}, {1, 2, 3, 4, 5, 6, 7, 8});
  VerifyArguments chains = layer.arguments(room);
  chains.parents = {};
  need(layer.decoder.verify(chains));
  need(layer.pool.commit(layer.list(0, rows), layer.list(3, rows)));
  for (Layer *each : {&layer, &untouched}) {
    each->set(steps[2], 9);
    need(each->run(room, 6));
  }
  need(synchronize(gpu));
  for (int32_t draft = 0; draft < room; ++draft)
    CHECK(layer.tensors.output(draft) == untouched.tensors.output(draft));
}

TEST_CASE("layers that share cursors draft one after another alike") {
  if (!hasGpu())
    return;
  Program program = compile("cuda");
  PoolOptions sharing;
  sharing.cursors = need(Cursors::create(program, {.slots = slotCount}));
  Layer first(program, sharing), second(program, sharing),
      alone(compile("cuda"));
  for (int32_t token = 0; token < 7; ++token) {
    CAPTURE(token);
    const auto &step = steps[static_cast<size_t>(token) % steps.size()];
    for (Layer *each : {&first, &second, &alone})
      each->set(step, token);
    int64_t drafts = step[1][rows],
            paths = static_cast<int64_t>(step[4].size());
    need(first.decoder.verify(first.arguments(drafts)));
    need(second.decoder.verify(second.arguments(drafts)));
    need(sharing.cursors->commit(first.list(0, rows), first.list(3, rows),
                                 first.list(4, paths)));
    need(alone.run(drafts, paths));
    need(synchronize(gpu));
    compareLayers(first, alone, static_cast<int32_t>(drafts));
    compareLayers(second, alone, static_cast<int32_t>(drafts));
  }
}

TEST_CASE("rows of kv_only that fold before their drafts have a state") {
  if (!hasGpu())
    return;
  int64_t page = GENERATE(0, 8);
  CAPTURE(page);
  PoolOptions options;
  if (page) {
    options.pages = 3 * slotCount;
    options.states = slotCount;
  }
  // The cost models of the two differ, and rings of a GPU have no crossover.
  Program program = compile("cuda", "kv_only", page);
  PoolOptions ofReference = options;
  ofReference.crossover = program.capacity() - program.drafts();
  if (page)
    options = ofReference;
  Layer layer(program, options),
      reference(compile("cpu", "kv_only", page), ofReference);
  std::vector<int32_t> all{0, 1, 2, 3};
  for (int32_t token = 0; token < (page ? 12 : 5); ++token) {
    CAPTURE(token);
    const auto &step = steps[static_cast<size_t>(token) % steps.size()];
    for (Layer *each : {&layer, &reference})
      each->set(step, token);
    int64_t drafts = step[1][rows],
            paths = static_cast<int64_t>(step[4].size());
    if (page)
      need(layer.pool.cursors().reserve(
          all, std::vector<int32_t>(all.size(), mostDrafts)));
    need(layer.run(drafts, paths));
    need(synchronize(gpu));
    need(reference.run(drafts, paths));
    compareLayers(layer, reference, static_cast<int32_t>(drafts));
  }
  CHECK(need(layer.pool.cursor(0)).epoch > 0);
}
