//===- DeviceBoundedTest.cpp - bounded attentions on a GPU ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/device.h"
#include "runtime/check/BoundedCheck.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <random>

using namespace ladle;
using namespace ladle::check;
using namespace ladle::test;
using Catch::Contains;

static BoundedResult passes(const std::string &name, const BoundedCase &config,
                            std::map<std::string, double> options = {}) {
  CAPTURE(name, config.str());
  AttentionRequest request;
  request.path = name + ".ladle";
  request.source = readExample(name);
  request.elaboration.preset = "small";
  request.elaboration.options = std::move(options);
  request.target = "cuda";
  Result<BoundedResult> result = checkBounded(request, config);
  INFO(result.message());
  REQUIRE(result.ok());
  CHECK(result->failure == "");
  return *result;
}

//===----------------------------------------------------------------------===//
// Against float64
//===----------------------------------------------------------------------===//

TEST_CASE("caches that evict on a GPU: heads, sizes and types of every kind") {
  if (!hasGpu())
    return;
  struct Shape {
    int64_t heads, cacheHeads, size;
    const char *type;
  };
  auto shape = GENERATE(Shape{4, 2, 64, "bf16"}, Shape{8, 1, 32, "f16"},
                        Shape{3, 3, 96, "bf16"}, Shape{12, 1, 64, "f32"});
  BoundedCase config;
  config.type = shape.type;
  config.tokens = 64;
  config.forks = true;
  config.sizes = {
      {"Hq", shape.heads}, {"Hkv", shape.cacheHeads}, {"D", shape.size}};
  BoundedResult result =
      passes("slake", config, {{"budget", 20}, {"recent", 4}, {"queries", 6}});
  CHECK(result.evicted > 60);
}

TEST_CASE("policies on a GPU: sums of weights, sinks, no choice, a guard") {
  if (!hasGpu())
    return;
  BoundedCase config;
  config.tokens = 60;
  config.forks = true;
  CHECK(passes("h2o", config, {{"budget", 16}, {"recent", 4}}).evicted > 60);
  CHECK(
      passes("streaming_llm", config, {{"budget", 16}, {"sinks", 3}}).evicted >
      60);
  CHECK(passes("slake", config,
               {{"budget", 16},
                {"recent", 5},
                {"limit", 1},
                {"sinks", 2},
                {"pool", 1},
                {"queries", 11},
                {"variance", 3}})
            .evicted > 60);
}

TEST_CASE("caches of several pieces on a GPU") {
  if (!hasGpu())
    return;
  // A card gives each piece a block of its own, unless there are many heads:
  // then blocks take these in turn.
  bool isFast = describeDevice()->multiprocessors > 8, isMany = GENERATE(0, 1);
  int64_t heads = isMany ? (isFast ? 160 : 7) : 1;
  BoundedCase config;
  config.tokens = isFast ? 700 : isMany ? 80 : 330;
  config.sizes = {{"Hq", 2 * heads}, {"Hkv", heads}, {"D", 32}};
  double budget = isFast ? 590 : isMany ? 50 : 300;
  BoundedResult result = passes(
      "slake", config, {{"budget", budget}, {"recent", 32}, {"queries", 5}});
  CHECK(result.evicted > 20);
  config.segments = SegmentSettings{10, 250, 40};
  config.tokens = 420; // of which some are dropped again
  if (isMany && !isFast) {
    config.segments = SegmentSettings{3, 10, 8};
    config.tokens = 60;
  }
  config.sizes["R"] = 4;
  result = passes("edge_infinite/edge_infinite", config);
  CHECK(result.folds > 0);
}

TEST_CASE("segments on a GPU: prompts that end anywhere, every kind of bound") {
  if (!hasGpu())
    return;
  // An emulated card takes a second for each: those with the smallest segments.
  for (const BoundedCase &config : planSegments({3, 4, 7}, 3))
    if (!emulatedGpu() || config.segments->segment <= 7)
      passes("edge_infinite/edge_infinite", config);
  BoundedCase config;
  config.type = "bf16";
  config.segments = SegmentSettings{3, 4, 8};
  config.sizes = {{"Hq", 8}, {"Hkv", 1}, {"D", 32}, {"R", 8}};
  passes("edge_infinite/edge_infinite", config, {{"decay", 0.75}});
}

//===----------------------------------------------------------------------===//
// Steps, by hand
//===----------------------------------------------------------------------===//

namespace {
/// Rows of an example with the same inputs everywhere.
struct Bounded {
  Bounded(const std::string &name, const std::string &target,
          std::map<std::string, double> options) {
    AttentionCompileOptions compile;
    compile.preset = "small";
    compile.options = std::move(options);
    compile.target = target;
    compile.tokenTypes["*"] = "f32";
    program = need(compileAttention(readExample(name), name, compile));
    pool = std::make_unique<AttentionPool>(
        need(AttentionPool::create(*program, {.slots = 3})));
    AttentionDecoderOptions single;
    single.threads = 1;
    decoder = std::make_unique<AttentionDecoder>(
        need(AttentionDecoder::create(*program, *pool, single)));
    arguments.rows = 2;
    for (const TensorSpec &spec : program->signature().tokens)
      add(spec, true);
    for (const TensorSpec &spec : program->signature().params)
      add(spec, false);
    for (const TensorSpec &spec : program->signature().outputs)
      add(spec, true);
    memory["slots of rows"] =
        need(DeviceTensor::allocate(program->device(), DType::I32, {2}));
    arguments.slots = {memory["slots of rows"].as<int32_t>(), 2};
  }
  void add(const TensorSpec &spec, bool hasRows) {
    std::vector<int64_t> shape = spec.shape;
    if (hasRows)
      shape.insert(shape.begin(), 2);
    DeviceTensor made =
        need(DeviceTensor::allocate(program->device(), DType::F32, shape));
    arguments.tensors[spec.name] = made.view();
    memory[spec.name] = std::move(made);
  }
  /// Inputs of a step, which depend on it and on the slot alone.
  void fill(int64_t step, std::vector<int32_t> slots) {
    need(copy(TensorView::dense(slots, DType::I32, {2}),
              memory["slots of rows"].view()));
    for (const auto *specs :
         {&program->signature().tokens, &program->signature().params})
      for (const TensorSpec &spec : *specs) {
        TensorView view = arguments.tensors[spec.name];
        int64_t count = view.count();
        int64_t rows = view.rank() > int64_t(spec.shape.size()) ? 2 : 1;
        std::vector<float> values;
        for (int64_t row = 0; row < rows; ++row) {
          std::mt19937 random(static_cast<unsigned>(
              std::hash<std::string>()(spec.name) % 1000 +
              (rows == 2 ? 1000 * (step * 8 + slots[row] + 1) : 0)));
          std::normal_distribution<float> normal;
          for (int64_t i = 0; i < count / rows; ++i)
            values.push_back(normal(random));
        }
        need(copy(TensorView::dense(values, DType::F32, view.shape), view));
      }
  }
  std::vector<float> answer() {
    need(synchronize(program->device()));
    TensorView view = arguments.tensors["o"];
    std::vector<float> values(static_cast<size_t>(view.count()));
    need(copy(view, TensorView::dense(values, DType::F32, view.shape)));
    return values;
  }

  std::optional<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  std::map<std::string, DeviceTensor> memory;
  AttentionArguments arguments;
};
} // namespace

TEST_CASE("a graph of a bounded attention is replayed while tokens leave") {
  if (!hasGpu())
    return;
  auto name =
      GENERATE(as<std::string>(), "slake", "edge_infinite/edge_infinite");
  std::map<std::string, double> options{{"sinks", 2}};
  if (name == "slake")
    options.insert({{"budget", 12}, {"recent", 3}, {"queries", 4}});
  else
    options.insert({{"window", 3}, {"segment", 6}});
  Bounded there(name, "cuda", options), host(name, "cpu", options);
  BoundStep step = need(there.decoder->bind(there.arguments));
  cuda::Device device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(
      device, [&] { return step.launch(device.stream()); }));
  for (int64_t position = 0; position < 40; ++position) {
    CAPTURE(name, position);
    std::vector<int32_t> slots{0, position % 5 == 4 ? -1 : 2};
    there.fill(position, slots);
    host.fill(position, slots);
    need(synchronize(there.program->device()));
    need(graph.replay());
    need(host.decoder->step(host.arguments));
    std::vector<float> got = there.answer(), wanted = host.answer();
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(got[i] == Approx(wanted[i]).margin(2e-5));
  }
  CHECK(there.pool->length(0) == 40);
  CHECK(there.pool->length(2) == 32);
  CHECK(there.pool->keptTokens(0) == host.pool->keptTokens(0));
  const int32_t ended[] = {0};
  need(there.pool->reset(ended));
  CHECK(there.pool->length(0) == 0);
  CHECK(there.pool->keptTokens(0) == 0);
  CHECK(there.pool->length(2) == 32);
}

TEST_CASE("a row of a bounded attention does not depend on those around it") {
  if (!hasGpu())
    return;
  std::map<std::string, double> options{
      {"budget", 12}, {"recent", 3}, {"queries", 4}};
  Bounded both("slake", "cuda", options), alone("slake", "cuda", options);
  for (int64_t position = 0; position < 20; ++position) {
    both.fill(position, {0, 2});
    alone.fill(position, {-1, 2});
    need(both.decoder->step(both.arguments));
    need(alone.decoder->step(alone.arguments));
    std::vector<float> some = both.answer(), one = alone.answer();
    for (size_t i = 0; i < some.size() / 2; ++i) {
      REQUIRE(one[i] == 0);
      REQUIRE(some[some.size() / 2 + i] == one[some.size() / 2 + i]);
    }
  }
}

TEST_CASE("what a sequence has left in a slot is not in the next one") {
  if (!hasGpu())
    return;
  auto name =
      GENERATE(as<std::string>(), "cake", "edge_infinite/edge_infinite");
  CAPTURE(name);
  std::map<std::string, double> options;
  if (name == "cake")
    options = {{"budget", 40}, {"recent", 3}, {"queries", 4}};
  Bounded made(name, "cuda", options);
  for (int64_t position = 0; position < 24; ++position) {
    made.fill(position, {0, -1});
    std::vector<float> none(
        static_cast<size_t>(made.arguments.tensors["v"].count()), NAN);
    TensorView values = made.arguments.tensors["v"];
    need(copy(TensorView::dense(none, DType::F32, values.shape), values));
    need(made.decoder->step(made.arguments));
  }
  const int32_t ended[] = {0};
  need(made.pool->reset(ended));
  for (int64_t position = 0; position < 24; ++position) {
    made.fill(position, {0, -1});
    need(made.decoder->step(made.arguments));
    for (float value : made.answer())
      REQUIRE(std::isfinite(value));
  }
  // A truncation takes the newest away; caches that evict have none.
  if (name == "cake")
    return;
  need(made.pool->reset(ended));
  auto step = [&](int64_t position, float value) {
    made.fill(position, {0, -1});
    TensorView values = made.arguments.tensors["v"];
    std::vector<float> same(static_cast<size_t>(values.count()), value);
    need(copy(TensorView::dense(same, DType::F32, values.shape), values));
    need(made.decoder->step(made.arguments));
  };
  for (int64_t position = 0; position < 20; ++position)
    step(position, position < 9 ? 1 : INFINITY);
  need(made.pool->truncate(0, 9));
  for (int64_t position = 9; position < 14; ++position) {
    step(position, 2);
    for (float value : made.answer())
      REQUIRE(std::isfinite(value));
  }
}

TEST_CASE("what bounded attentions on a GPU refuse") {
  if (!hasGpu())
    return;
  Bounded there("slake", "cuda", {});
  Status status = there.decoder->setBudget(0, 4);
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_THAT(status.message(), Contains("budget is 4, wanted 8 to 48"));
  there.fill(0, {0, -1});
  need(there.decoder->step(there.arguments));
  CHECK_THAT(there.pool->truncate(0, 0).message(),
             Contains("length is 0, wanted 1 to the 1 tokens of slot 0: tokens "
                      "have noted weights in a cache that evicts; reset the "
                      "slot"));
  status = there.decoder->setBudget(7, 16);
  CHECK(status.code() == ErrorCode::InvalidArgument);
  Bounded segments("edge_infinite/edge_infinite", "cuda", {});
  status = segments.decoder->setBudget(0, 16);
  CHECK(status.code() == ErrorCode::Unsupported);
}
