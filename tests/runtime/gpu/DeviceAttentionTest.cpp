//===- DeviceAttentionTest.cpp - attentions on a GPU ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/AttentionCheck.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <array>
#include <cstdlib>
#include <random>
#include <set>

using namespace ladle;
using namespace ladle::check;
using namespace ladle::test;
using Catch::Contains;

static void passes(const std::string &text, AttentionCase config, bool hits) {
  config.target = "cuda";
  CAPTURE(config.str());
  AttentionRequest request;
  request.path = "attention.ladle";
  request.source = text;
  Result<AttentionResult> result = checkAttention(request, config);
  INFO(result.message());
  REQUIRE(result.ok());
  CHECK(result->failure == "");
  CHECK((result->hits > 0) == hits);
  CHECK(result->misses > 0);
}

//===----------------------------------------------------------------------===//
// Against float64
//===----------------------------------------------------------------------===//

TEST_CASE("attentions on a GPU: heads, pages and types of every kind") {
  if (!hasGpu())
    return;
  struct Shape {
    int64_t heads, cacheHeads, size, page;
    const char *type, *summaries;
    int64_t prompt;
  };
  // Rings that wrap around, slots that are reset, and padding are of each case.
  auto shape = GENERATE(Shape{8, 1, 64, 1, "bf16", "f32", 11},
                        Shape{2, 2, 96, 16, "f16", "bf16", 0},
                        Shape{2, 1, 256, 64, "bf16", "f16", 5},
                        Shape{3, 1, 32, 16, "f32", "f32", 7});
  AttentionCase config;
  config.type = shape.type;
  config.summaryType = shape.summaries;
  config.pageSize = shape.page;
  config.tokens = 18;
  config.prompt = shape.prompt;
  config.forks = 4;
  config.settings = {.tau = 0.3, .window = 7, .band = 3};
  config.sizes = {
      {"Hq", shape.heads}, {"Hkv", shape.cacheHeads}, {"D", shape.size}};
  // Rings are read whole, or first halves first, as where there are many rows.
  bool inHalves = GENERATE(false, true);
  CAPTURE(inHalves);
  setenv("LADLE_ROWS_IN_HALVES", inHalves ? "1" : "1000", /*overwrite=*/1);
  passes(readExample("mac"), config, /*hits=*/true);
  unsetenv("LADLE_ROWS_IN_HALVES");
}

TEST_CASE("attentions on a GPU: more tasks than threads of a plan") {
  if (!hasGpu())
    return;
  AttentionCase config;
  config.tokens = 6;
  config.prompt = 70;
  config.settings = {.tau = 0.3, .window = 4, .band = 3};
  config.batchInvariant = GENERATE(false, true);
  config.sizes = {{"Hq", 200}, {"Hkv", 200}, {"D", 32}};
  passes(readExample("mac"), config, /*hits=*/true);
}

/// Sinks, a gate and chains of a declaration that has everything.
static AttentionCase caseOfEverything(int64_t maxChain) {
  AttentionCase config;
  config.tokens = 30;
  config.prompt = 19;
  config.settings = {.tau = 0.4,
                     .window = 16,
                     .band = 4,
                     .sinks = 2,
                     .maxChain = maxChain,
                     .drift = 0.1};
  return config;
}

TEST_CASE("attentions on a GPU: sinks, two bands, a gate, a given moment") {
  if (!hasGpu())
    return;
  AttentionCase config = caseOfEverything(/*maxChain=*/3);
  config.settings.wideBand = 10;
  config.settings.wideGap = 3;
  passes(everythingOfMatches(), config, /*hits=*/true);
}

// Of few rows blocks let entries through the gates where they find them, and
// attend to three ranges.
TEST_CASE("attentions on a GPU: sinks, a gate and short chains of one band") {
  if (!hasGpu())
    return;
  std::string text = everythingOfMatches();
  const std::string wide = ",\n             wide_band = 10, wide_gap = 3";
  REQUIRE(text.find(wide) != std::string::npos);
  text.erase(text.find(wide), wide.size());
  AttentionCase config = caseOfEverything(GENERATE(0, 3));
  // Three slices of a head, where a card has multiprocessors enough.
  config.sizes = {{"Dv", 96}};
  passes(text, config, /*hits=*/true);
}

TEST_CASE("attentions on a GPU: tau = 1 is exact") {
  if (!hasGpu())
    return;
  AttentionCase config;
  config.tokens = 12;
  config.settings = {.tau = 1, .window = 16, .band = 4};
  config.sizes = {{"Hq", 2}, {"Hkv", 1}, {"D", 64}};
  passes(readExample("mac"), config, /*hits=*/false);
}

// As many that, without a match, the first ones are copied before what is ahead
// has ended.
TEST_CASE("attentions on a GPU: portions of several tiles") {
  if (!hasGpu())
    return;
  auto name = GENERATE(as<std::string>(), "exact_attention", "mac");
  CAPTURE(name);
  AttentionCase config;
  config.target = "cuda";
  config.tokens = 3;
  config.prompt = 230;
  config.batchInvariant = GENERATE(false, true);
  config.sizes = {{"Hq", 16}, {"Hkv", 16}, {"D", 32}};
  if (name == "mac")
    config.settings = {.tau = 1, .window = 16, .band = 4};
  AttentionRequest request;
  request.path = name + ".ladle";
  request.source = readExample(name);
  Result<AttentionResult> result = checkAttention(request, config);
  INFO(result.message());
  REQUIRE(result.ok());
  CHECK(result->failure == "");
}

//===----------------------------------------------------------------------===//
// Steps, by hand
//===----------------------------------------------------------------------===//

namespace {
/// Two heads of 64, on the device or on the CPU, with the same inputs.
struct Attention {
  explicit Attention(const std::string &target,
                     AttentionDecoderOptions decoderOptions = {},
                     const std::string &name = "mac") {
    AttentionCompileOptions options;
    options.sizes = {{"Hq", 2}, {"Hkv", 1}, {"D", 64}};
    if (name == "mac")
      options.options = {{"window", 16.0}, {"band", 4.0}, {"tau", 0.3}};
    options.tokenTypes = {{"o", "f32"}};
    options.target = target;
    program = std::make_unique<AttentionProgram>(
        need(compileAttention(readExample(name), name + ".ladle", options)));
    pool = std::make_unique<AttentionPool>(
        need(AttentionPool::create(*program, {.slots = 3, .pages = 12})));
    decoder = std::make_unique<AttentionDecoder>(
        need(AttentionDecoder::create(*program, *pool, decoderOptions)));
    arguments.rows = 2;
    for (const auto *specs :
         {&program->signature().tokens, &program->signature().outputs})
      for (const TensorSpec &spec : *specs)
        memory[spec.name] = need(DeviceTensor::allocate(
            program->device(), spec.dtype, {2, spec.shape[0], 64}));
    for (const auto &[name, tensor] : memory)
      arguments.tensors[name] = tensor.view();
    memory["slots"] =
        need(DeviceTensor::allocate(program->device(), DType::I32, {2}));
    arguments.slots = {memory["slots"].as<int32_t>(), 2};
  }

  /// A token for each row: a few that come again and again.
  void fill(int64_t position, std::vector<int32_t> slots) {
    need(copy(TensorView::dense(slots.data(), DType::I32, {2}),
              memory["slots"].view()));
    for (auto &[name, tensor] : memory) {
      if (name == "slots" || name == "o")
        continue;
      std::vector<float> values(
          static_cast<size_t>(2 * tensor.view().shape[1] * 64));
      bool comesAgain = name == "q_pre";
      std::mt19937 random(
          static_cast<unsigned>(comesAgain ? position % 3 : 100 + position) +
          1000 * static_cast<unsigned>(name.size()));
      for (float &value : values)
        value = std::normal_distribution<float>()(random);
      need(copy(TensorView::dense(values, DType::F32,
                                  {2, tensor.view().shape[1], 64}),
                tensor.view()));
    }
  }
  std::vector<float> answer() {
    need(synchronize(program->device()));
    std::vector<float> values(2 * 2 * 64);
    need(copy(memory["o"].view(),
              TensorView::dense(values, DType::F32, {2, 2, 64})));
    return values;
  }

  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  std::map<std::string, DeviceTensor> memory;
  AttentionArguments arguments;
};
} // namespace

TEST_CASE("a graph of an attention is replayed while sequences grow") {
  if (!hasGpu())
    return;
  Attention gpuSide("cuda"), host("cpu");
  BoundStep step = need(gpuSide.decoder->bind(gpuSide.arguments));
  cuda::Device device = need(cuda::Device::shared());
  const std::vector<int32_t> all{0, 2};
  need(gpuSide.pool->reserve(all, 40));
  auto graph = need(cuda::Graph::record(
      device, [&] { return step.launch(device.stream()); }));
  int64_t hits = 0;
  for (int64_t position = 0; position < 24; ++position) {
    CAPTURE(position);
    // One of the rows pauses now and then.
    std::vector<int32_t> slots{0, position % 5 == 4 ? -1 : 2};
    gpuSide.fill(position, slots);
    host.fill(position, slots);
    need(synchronize(gpuSide.program->device()));
    need(graph.replay());
    need(host.decoder->step(host.arguments));
    std::vector<float> got = gpuSide.answer(), wanted = host.answer();
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(got[i] == Approx(wanted[i]).margin(2e-5));
    std::span<const int64_t> matches = gpuSide.decoder->matches();
    REQUIRE(matches.size() == 4);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(matches[i] == host.decoder->matches()[i]);
      hits += matches[i] >= 0;
    }
  }
  CHECK(hits > 20);
  CHECK(gpuSide.pool->length(0) == 24);
  CHECK(gpuSide.pool->length(2) == 20);
  CHECK(gpuSide.pool->ringEntries(2) == 16);
}

// The second one starts while the first one still runs, and finds its row where
// it was.
TEST_CASE("steps of a layer follow one another in a graph") {
  if (!hasGpu())
    return;
  auto name = GENERATE(as<std::string>(), "mac", "exact_attention");
  CAPTURE(name);
  Attention gpuSide("cuda", {}, name), host("cpu", {}, name);
  BoundStep step = need(gpuSide.decoder->bind(gpuSide.arguments));
  cuda::Device device = need(cuda::Device::shared());
  const std::vector<int32_t> all{0, 2};
  need(gpuSide.pool->reserve(all, 90));
  auto graph = need(cuda::Graph::record(device, [&]() -> Status {
    for (int64_t i = 0; i < 3; ++i)
      if (Status status = step.launch(device.stream()); !status)
        return status;
    return Status();
  }));
  for (int64_t position = 0; position < 30; ++position) {
    CAPTURE(position);
    gpuSide.fill(position, all);
    host.fill(position, all);
    need(synchronize(gpuSide.program->device()));
    need(graph.replay());
    for (int64_t i = 0; i < 3; ++i)
      need(host.decoder->step(host.arguments));
    std::vector<float> got = gpuSide.answer(), wanted = host.answer();
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(got[i] == Approx(wanted[i]).margin(2e-5));
  }
  CHECK(gpuSide.pool->length(2) == 90);
}

TEST_CASE("attentions of other layers start early") {
  if (!hasGpu())
    return;
  auto name = GENERATE(as<std::string>(), "mac", "exact_attention");
  CAPTURE(name);
  Attention first("cuda", {}, name), second("cuda", {}, name),
      third("cuda", {}, name), host("cpu", {}, name);
  std::array layers{&first, &second, &third};
  const std::vector<int32_t> all{0, 2};
  std::vector<BoundStep> steps;
  for (Attention *layer : layers) {
    steps.push_back(need(layer->decoder->bind(layer->arguments)));
    need(layer->pool->reserve(all, 30));
  }
  cuda::Device device = need(cuda::Device::shared());
  auto graph = need(cuda::Graph::record(device, [&]() -> Status {
    for (BoundStep &step : steps)
      if (Status status = step.launch(device.stream(), &step == &steps.front()
                                                           ? Start::InOrder
                                                           : Start::Early);
          !status)
        return status;
    return Status();
  }));
  for (int64_t position = 0; position < 30; ++position) {
    CAPTURE(position);
    for (Attention *layer : layers)
      layer->fill(position, all);
    host.fill(position, all);
    need(synchronize(first.program->device()));
    need(graph.replay());
    need(host.decoder->step(host.arguments));
    std::vector<float> wanted = host.answer();
    for (Attention *layer : layers) {
      std::vector<float> got = layer->answer();
      for (size_t i = 0; i < got.size(); ++i)
        REQUIRE(got[i] == Approx(wanted[i]).margin(2e-5));
    }
  }
}

/// The greatest difference that a row makes to the answer of another one, over
/// 76 tokens, and how many elements are not the same.
static std::pair<float, int> differenceByRows(bool batchInvariant) {
  AttentionDecoderOptions options;
  options.batchInvariant = batchInvariant;
  // Nothing matches, so that histories are longer than a piece.
  options.settings = {.tau = 1, .window = 16, .band = 4};
  Attention both("cuda", options), alone("cuda", options);
  const std::vector<int32_t> all{0, 2};
  constexpr int64_t tokens = 76;
  need(both.pool->reserve(all, tokens));
  need(alone.pool->reserve(all, tokens));
  float most = 0;
  int different = 0;
  for (int64_t position = 0; position < tokens; ++position) {
    both.fill(position, {0, 2});
    alone.fill(position, {-1, 2});
    need(both.decoder->step(both.arguments));
    need(alone.decoder->step(alone.arguments));
    std::vector<float> some = both.answer(), one = alone.answer();
    for (size_t i = 0; i < 128; ++i) {
      REQUIRE(one[i] == 0);
      most = std::max(most, std::abs(some[128 + i] - one[128 + i]));
      different += some[128 + i] != one[128 + i];
    }
  }
  return {most, different};
}

TEST_CASE("the answer of a row does not depend on the rows around it") {
  if (!hasGpu())
    return;
  CHECK(differenceByRows(/*batchInvariant=*/true).second == 0);
  // Otherwise the other row moves where its history is cut.
  auto [most, different] = differenceByRows(/*batchInvariant=*/false);
  CHECK(most < 1e-5F);
  CHECK(different > 0);
}

/// Answers of rows 0 to 2 of so many, others of which are padding: a token is
/// the same for all of them, but rows begin one after another.
static std::vector<float> answersOfThree(const std::string &name, int64_t rows,
                                         int64_t tokens, double window = 24,
                                         std::set<int64_t> *gaps = nullptr) {
  AttentionCompileOptions options;
  options.sizes = {{"Hq", 6}, {"Hkv", 2}, {"D", 64}};
  if (name == "mac")
    options.options = {{"window", window}, {"band", 5.0}, {"tau", 0.3}};
  options.tokenTypes = {{"o", "f32"}};
  options.target = "cuda";
  AttentionProgram program =
      need(compileAttention(readExample(name), name + ".ladle", options));
  AttentionPool pool =
      need(AttentionPool::create(program, {.slots = 3, .pages = 24}));
  const std::vector<int32_t> three{0, 1, 2};
  need(pool.reserve(three, tokens));
  AttentionDecoderOptions decoderOptions;
  decoderOptions.rows = rows;
  AttentionDecoder decoder =
      need(AttentionDecoder::create(program, pool, decoderOptions));
  AttentionArguments arguments;
  arguments.rows = rows;
  std::map<std::string, DeviceTensor> memory;
  std::vector<std::pair<std::string, int64_t>> inputs{
      {"q", 6}, {"k", 2}, {"v", 2}};
  // Queries that come again match.
  if (name == "mac")
    inputs.emplace_back("q_pre", 6);
  for (const auto &[input, heads] : inputs)
    memory[input] = need(DeviceTensor::allocate(program.device(), DType::BF16,
                                                {rows, heads, 64}));
  memory["o"] =
      need(DeviceTensor::allocate(program.device(), DType::F32, {rows, 6, 64}));
  for (const auto &[name, tensor] : memory)
    arguments.tensors[name] = tensor.view();
  DeviceTensor slotsThere =
      need(DeviceTensor::allocate(program.device(), DType::I32, {rows}));
  arguments.slots = {slotsThere.as<int32_t>(), static_cast<size_t>(rows)};
  std::vector<float> all;
  for (int64_t position = 0; position < tokens; ++position) {
    std::vector<int32_t> slots(static_cast<size_t>(rows), -1);
    for (int32_t row = 0; row < 3; ++row)
      if (position >= 9 * row)
        slots[static_cast<size_t>(row)] = 2 - row;
    need(copy(TensorView::dense(slots.data(), DType::I32, {rows}),
              slotsThere.view()));
    for (const auto &[input, heads] : inputs) {
      std::vector<float> values(static_cast<size_t>(rows * heads * 64));
      bool comesAgain = input == "q_pre" && position % 4 != 3;
      std::mt19937 random(
          static_cast<unsigned>(comesAgain ? position % 7 : 100 + position) +
          1000 * static_cast<unsigned>(input.size() + input[0]));
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < 3 * heads * 64; ++i)
        values[static_cast<size_t>(i)] = normal(random);
      need(copy(TensorView::dense(values, DType::F32, {rows, heads, 64}),
                memory[input].view()));
    }
    need(decoder.step(arguments));
    need(synchronize(program.device()));
    std::span<const int64_t> matches = decoder.matches();
    for (size_t i = 0; gaps && i < matches.size(); ++i)
      if (matches[i] >= 0)
        gaps->insert(position - 9 * static_cast<int64_t>(i / 6) - matches[i]);
    std::vector<float> values(static_cast<size_t>(rows * 6 * 64));
    need(copy(memory["o"].view(),
              TensorView::dense(values, DType::F32, {rows, 6, 64})));
    all.insert(all.end(), values.begin(), values.begin() + 3 * 6 * 64);
  }
  return all;
}

// Of few rows warps find their portions by themselves. Without matches the
// token itself is attended to apart.
TEST_CASE("few rows are answered as many are") {
  if (!hasGpu())
    return;
  constexpr int64_t tokens = 100;
  auto name = GENERATE(as<std::string>(), "exact_attention", "mac");
  CAPTURE(name);
  std::vector<float> few = answersOfThree(name, 3, tokens);
  std::vector<float> many = answersOfThree(name, 33, tokens);
  REQUIRE(few.size() == many.size());
  float most = 0;
  for (size_t i = 0; i < few.size(); ++i)
    most = std::max(most, std::abs(few[i] - many[i]));
  CHECK(most < 1e-5F);
  // The same pieces are merged in the same order, but for the token.
  if (name == "exact_attention")
    CHECK(most > 0);
  CHECK(few == answersOfThree(name, 3, tokens));
}

// Matches are with the entry that is replaced. A card with many
// multiprocessors has blocks for slices of heads, which read it as well.
TEST_CASE("few rows whose matches are about to leave the ring") {
  if (!hasGpu())
    return;
  constexpr int64_t tokens = 60;
  constexpr double window = 7;
  std::set<int64_t> gaps;
  std::vector<float> few = answersOfThree("mac", 3, tokens, window, &gaps);
  std::vector<float> many = answersOfThree("mac", 33, tokens, window);
  CHECK(gaps == std::set<int64_t>{7});
  REQUIRE(few.size() == many.size());
  for (size_t i = 0; i < few.size(); ++i)
    REQUIRE(std::abs(few[i] - many[i]) < 1e-5F);
}

TEST_CASE("matches are those of the last step, however it was launched") {
  if (!hasGpu())
    return;
  Attention a("cuda");
  auto step = [&](int64_t position) {
    a.fill(position, {0, 2});
    need(a.decoder->step(a.arguments));
    std::span<const int64_t> found = a.decoder->matches();
    return std::vector<int64_t>(found.begin(), found.end());
  };
  const std::vector<int32_t> all{0, 1, 2};
  need(a.pool->reserve(all, 16));
  std::vector<int64_t> before;
  for (int64_t position = 0; position < 8; ++position)
    before = step(position);
  CHECK(before == std::vector<int64_t>{4, 4, 4, 4});

  // A prompt of another slot changes nothing.
  const int32_t starts[] = {0, 2};
  DeviceTensor lengths = need(DeviceTensor::copyOf(
      a.program->device(),
      TensorView::dense(const_cast<int32_t *>(starts), DType::I32, {2})));
  a.fill(0, {1, 1});
  PrefillArguments prompt;
  prompt.rows = 1;
  prompt.slots = a.arguments.slots.first(1);
  prompt.cuSeqlens = {lengths.as<int32_t>(), 2};
  prompt.tokens = 2;
  prompt.tensors = a.arguments.tensors;
  need(a.decoder->prefill(prompt));
  std::span<const int64_t> after = a.decoder->matches();
  CHECK(std::vector<int64_t>(after.begin(), after.end()) == before);

  BoundStep bound = need(a.decoder->bind(a.arguments));
  a.fill(8, {0, 2});
  need(bound.launchRows(1));
  CHECK(a.decoder->matches().size() == 2);
  need(bound.launchRows(2));
  CHECK(a.decoder->matches().size() == 4);
}

TEST_CASE("sequences of a GPU are reserved for, cut and reset") {
  if (!hasGpu())
    return;
  Attention a("cuda");
  const std::vector<int32_t> all{0, 2}, one{2};
  CHECK(a.pool->freePages() == 12);
  need(a.pool->reserve(all, 17));
  CHECK(a.pool->freePages() == 8);
  a.fill(0, {0, 2});
  need(a.decoder->step(a.arguments));
  CHECK(a.pool->length(2) == 1);
  need(a.pool->reserve(one, 16)); // that it has already
  CHECK(a.pool->freePages() == 8);
  need(a.pool->invalidateRings(one));
  CHECK(a.pool->ringEntries(2) == 0);
  CHECK(a.pool->ringEntries(0) == 1);
  need(a.pool->truncate(0, 0));
  need(a.pool->reset(one));
  CHECK(a.pool->freePages() == 12);
  CHECK(a.pool->length(2) == 0);
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST_CASE("what attentions on a GPU refuse") {
  if (!hasGpu())
    return;
  Attention a("cuda");
  const std::vector<int32_t> twice{1, 1}, beyond{3}, all{0, 1, 2};
  CHECK_THAT(a.pool->reserve(twice, 1).message(),
             Contains("slot 1 is named twice"));
  CHECK_THAT(a.pool->reserve(beyond, 1).message(),
             Contains("slot 3 is out of range, wanted 0 to 2"));
  CHECK_THAT(a.pool->reserve(all, -1).message(), Contains("tokens is -1"));
  CHECK_THAT(a.pool->reserve(all, 193).message(),
             Contains("slot 0 holds 0 tokens and gets 193, wanted 192"));
  CHECK(a.pool->reserve(all, 100).code() == ErrorCode::ResourceExhausted);
  CHECK(a.pool->freePages() == 12);

  auto refuse = [&](auto change, const std::string &message) {
    AttentionArguments bad = a.arguments;
    change(bad);
    CHECK_THAT(a.decoder->step(bad).message(), Contains(message));
  };
  a.fill(0, {0, 1});
  refuse([](AttentionArguments &bad) { bad.rows = 1; },
         "slots has 2 elements, wanted the 1 rows");
  refuse(
      [](AttentionArguments &bad) {
        bad.rows = 4;
        bad.slots = {bad.slots.data(), 4};
      },
      "rows is 4, wanted the 3 at most that the decoder has memory for");
  refuse(
      [](AttentionArguments &bad) {
        void *&data = bad.tensors["q"].data;
        data = static_cast<std::byte *>(data) + 2;
      },
      "argument 'q' is at");
  refuse([](AttentionArguments &bad) { bad.tensors["k"].strides[0] = 65; },
         "argument 'k' has the stride 65, wanted a multiple of 8");
  refuse([](AttentionArguments &bad) { bad.tensors["v"].device = cpu; },
         "argument 'v' is in memory of cpu");
  refuse(
      [](AttentionArguments &bad) {
        bad.slots = {static_cast<const int32_t *>(nullptr), 2};
      },
      "slots is at");

  PrefillArguments prompts;
  prompts.rows = 2;
  prompts.slots = a.arguments.slots;
  prompts.tensors = a.arguments.tensors;
  CHECK_THAT(a.decoder->prefill(prompts).message(),
             Contains("cuSeqlens has 0 numbers, wanted 3"));
  prompts.cuSeqlens = {a.arguments.slots.data(), 3};
  CHECK_THAT(a.decoder->prefill(prompts).message(),
             Contains("tokens is 0, wanted the tokens that there is room for"));

  // Nobody took a page: the next call says so.
  need(a.decoder->step(a.arguments));
  need(synchronize(gpu));
  Status lost = a.decoder->step(a.arguments);
  CHECK(lost.code() == ErrorCode::ResourceExhausted);
  CHECK_THAT(lost.message(), Contains("AttentionPool::reserve"));

  Attention host("cpu");
  CHECK_THAT(AttentionDecoder::create(*host.program, *a.pool).message(),
             Contains("the pool is on cuda:0, the program is for cpu"));
  AttentionCompileOptions options;
  options.target = "tpu";
  CHECK_THAT(compileAttention(readExample("mac"), "mac", options).message(),
             Contains("target is 'tpu', expected cpu or cuda"));
}
