//===- DevicePromptsTest.cpp - prompts of attentions on a GPU -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Convert.h"
#include "runtime/check/AttentionCheck.h"
#include "runtime/check/Comparison.h"
#include "runtime/check/DeviceCopies.h"
#include "runtime/cuda/DeviceAttention.h"
#include "runtime/cuda/Driver.h"
#include "tests/numerics/Examples.h"
#include "tests/runtime/gpu/Gpu.h"

#include <cmath>
#include <random>

using namespace ladle;
using namespace ladle::check;
using namespace ladle::test;
using interpreter::AttentionInterpreter;
using interpreter::Precision;

namespace {

struct Shape {
  int64_t heads, cacheHeads, size, page = 16;
  std::string type = "bf16";
  int64_t valueSize = 0;
};

/// A prompt of a row: tokens for a slot, or of padding.
struct Prompt {
  int32_t slot;
  int64_t tokens;
};

/// Sequences of a pool, each beside the float64 interpreter of its own.
class Sequences {
public:
  static constexpr int64_t slots = 4, window = 24;
  using Arrays = AttentionInterpreter::Arrays;

  Sequences(const std::string &text, const Shape &shape,
            const AttentionSettings &settings = {
                .tau = 0.3, .window = window, .band = 5}) {
    frontend::ElaborationOptions elaboration;
    elaboration.sizes = {
        {"Hq", shape.heads}, {"Hkv", shape.cacheHeads}, {"D", shape.size}};
    if (shape.valueSize)
      elaboration.sizes["Dv"] = shape.valueSize;
    elaboration.tokenTypes["*"] = shape.type;
    std::string messages;
    oracle = compileAttentionOracle("attention.ladle", text, elaboration,
                                    messages, Precision::Float32);
    INFO(messages);
    REQUIRE(oracle);
    AttentionCompileOptions options;
    options.sizes = elaboration.sizes;
    options.tokenTypes = {{"*", shape.type}, {"o", "f32"}};
    options.pageSize = shape.page;
    options.target = "cuda";
    program = std::make_unique<AttentionProgram>(
        need(compileAttention(text, "attention.ladle", options)));
    constexpr int64_t most = 320;
    pool = std::make_unique<AttentionPool>(need(
        AttentionPool::create(*program, {.slots = slots,
                                         .pages = slots * (most / shape.page),
                                         .maxTokens = most,
                                         .window = window})));
    choose(settings);
    rows.assign(slots, oracle->makeRow());
    params = draw(oracle->getParams());
    for (std::vector<double> &values : params)
      std::fill(values.begin(), values.end(), static_cast<double>(shape.size));
  }

  /// A decoder and an interpreter with other numbers.
  void choose(const AttentionSettings &settings) {
    AttentionDecoderOptions decoding;
    interpreter::AttentionNumbers &numbers = oracle->numbers;
    if (oracle->reuses()) {
      decoding.settings = settings;
      numbers.tau = settings.tau;
      numbers.window = settings.window;
      numbers.band = settings.band;
      numbers.sinks = settings.sinks;
      if (numbers.wideBand) {
        numbers.wideBand = settings.wideBand;
        numbers.wideGap = settings.wideGap;
      }
      if (numbers.drift)
        numbers.drift = settings.drift;
    }
    decoder = std::make_unique<AttentionDecoder>(
        need(AttentionDecoder::create(*program, *pool, decoding)));
  }
  void reset(int32_t slot) {
    need(pool->reset({&slot, 1}));
    rows[slot] = oracle->makeRow();
  }

  /// All prompts at once, with room for so many tokens more.
  void prefill(const std::vector<Prompt> &prompts, int64_t room = 0) {
    std::vector<int32_t> named, starts{0};
    std::vector<Arrays> tokens;
    for (const Prompt &prompt : prompts) {
      named.push_back(prompt.slot);
      if (prompt.slot >= 0)
        need(pool->reserve({&prompt.slot, 1}, prompt.tokens));
      for (int64_t i = 0; i < prompt.tokens; ++i)
        tokens.push_back(draw(oracle->getTokens()));
      starts.push_back(static_cast<int32_t>(tokens.size()));
    }
    for (int64_t i = 0; i < room; ++i)
      tokens.push_back(draw(oracle->getTokens()));
    PrefillArguments arguments;
    arguments.rows = static_cast<int64_t>(prompts.size());
    arguments.tokens = static_cast<int64_t>(tokens.size());
    DeviceCopies copies(program->device());
    arguments.tensors = pack(tokens, copies);
    if (isCaptured) {
      replay(arguments, named, starts);
    } else {
      arguments.slots = need(copies.upload(named));
      arguments.cuSeqlens = need(copies.upload(starts));
      need(decoder->prefill(arguments));
    }
    need(copies.download(arguments.tensors.at("o"), outputs));
    size_t at = 0;
    for (const Prompt &prompt : prompts) {
      AttentionInterpreter::Row padding = oracle->makeRow();
      auto &row = prompt.slot < 0 ? padding : rows[prompt.slot];
      if (prompt.tokens >= window)
        row.restart();
      for (int64_t i = 0; i < prompt.tokens; ++i, ++at) {
        CAPTURE(prompt.slot, prompt.tokens, i);
        std::vector<double> expected(oracle->getOutput().size());
        if (prompt.slot >= 0)
          oracle->step(row, params, tokens[at], expected, std::nullopt,
                       /*isPrompt=*/true, prompt.tokens - i <= window);
        compare(at, expected);
      }
    }
    // Nobody asked for what there is room for.
    for (size_t i = at * oracle->getOutput().size(); i < outputs.size(); ++i)
      REQUIRE(std::isnan(outputs[i]));
  }

  /// Nothing is reserved for it, and nothing compared.
  Status promptWithoutPages(int32_t slot, int64_t count) {
    std::vector<Arrays> tokens;
    for (int64_t i = 0; i < count; ++i)
      tokens.push_back(draw(oracle->getTokens()));
    const std::vector<int32_t> named{slot},
        starts{0, static_cast<int32_t>(count)};
    PrefillArguments arguments;
    arguments.rows = 1;
    arguments.tokens = count;
    DeviceCopies copies(program->device());
    arguments.slots = need(copies.upload(named));
    arguments.cuSeqlens = need(copies.upload(starts));
    arguments.tensors = pack(tokens, copies);
    Status status = decoder->prefill(arguments);
    need(synchronize(program->device()));
    return status;
  }

  /// A token of each slot. What it matches is compared with what the
  /// interpreter matches, unless they are as near.
  void step(const std::vector<int32_t> &named) {
    std::vector<Arrays> tokens;
    for (int32_t slot : named) {
      need(pool->reserve({&slot, 1}, 1));
      tokens.push_back(draw(oracle->getTokens()));
    }
    AttentionArguments arguments;
    arguments.rows = static_cast<int64_t>(named.size());
    DeviceCopies copies(program->device());
    arguments.slots = need(copies.upload(named));
    arguments.tensors = pack(tokens, copies);
    need(decoder->step(arguments));
    need(copies.download(arguments.tensors.at("o"), outputs));
    auto heads = static_cast<size_t>(oracle->getHeads());
    std::span<const int64_t> matches = decoder->matches();
    for (size_t i = 0; i < named.size(); ++i) {
      CAPTURE(named[i], rows[named[i]].keys.size());
      std::vector<double> expected(oracle->getOutput().size());
      std::span<const int64_t> mine = matches.subspan(i * heads, heads);
      auto found =
          oracle->step(rows[named[i]], params, tokens[i], expected,
                       llvm::ArrayRef<int64_t>(mine.data(), mine.size()));
      for (size_t head = 0; head < heads && oracle->reuses(); ++head) {
        double nearest = found[head].limit;
        for (double square : found[head].squares)
          nearest = std::min(nearest, square);
        if (std::abs(nearest - found[head].limit) > 1e-4)
          CHECK(mine[head] == found[head].position);
        hits += mine[head] >= 0;
      }
      compare(i, expected);
    }
  }

  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  std::vector<AttentionInterpreter::Row> rows;
  std::vector<float> outputs; ///< of the last call
  int64_t hits = 0;
  bool isCaptured = false; ///< prompts are replays of a graph

private:
  /// Numbers of rows come to the device when the launches are recorded already.
  void replay(PrefillArguments arguments, std::vector<int32_t> &named,
              std::vector<int32_t> &starts) {
    auto reserve = [&](const std::vector<int32_t> &numbers) {
      return need(
          DeviceTensor::allocate(program->device(), DType::I32,
                                 {static_cast<int64_t>(numbers.size())}));
    };
    DeviceTensor slotMemory = reserve(named), startMemory = reserve(starts);
    arguments.slots = {slotMemory.as<int32_t>(), named.size()};
    arguments.cuSeqlens = {startMemory.as<int32_t>(), starts.size()};
    cuda::Device device = need(cuda::Device::shared());
    auto graph = need(cuda::Graph::record(
        device, [&] { return decoder->prefill(arguments, device.stream()); }));
    for (auto [from, to] :
         {std::pair(&named, &slotMemory), std::pair(&starts, &startMemory)})
      need(copy(TensorView::dense(from->data(), DType::I32,
                                  {static_cast<int64_t>(from->size())}),
                to->view()));
    need(synchronize(program->device()));
    need(graph.replay());
    need(synchronize(program->device()));
  }

  /// Vectors near some that come again and again; values are anything.
  Arrays draw(llvm::ArrayRef<interpreter::ValueInfo> infos) {
    Arrays arrays;
    for (const interpreter::ValueInfo &info : infos) {
      std::vector<double> &values = arrays.emplace_back(info.size());
      size_t width = info.shape.back();
      std::normal_distribution<double> normal;
      for (size_t at = 0; at < values.size(); at += width) {
        std::mt19937 again(static_cast<unsigned>(random() % 5 + 10 * at));
        for (size_t i = at; i < at + width; ++i)
          values[i] =
              roundTo(normal(again) + 0.1 * normal(random), info.precision);
      }
    }
    return arrays;
  }

  std::map<std::string, TensorView, std::less<>>
  pack(const std::vector<Arrays> &tokens, DeviceCopies &copies) {
    std::map<std::string, TensorView, std::less<>> tensors;
    memory.clear();
    auto add = [&](const interpreter::ValueInfo &info,
                   const std::vector<Arrays> &all, size_t which) {
      DType type = info.precision == Precision::Bfloat16  ? DType::BF16
                   : info.precision == Precision::Float16 ? DType::F16
                                                          : DType::F32;
      auto bytes = static_cast<size_t>(sizeInBytes(type));
      std::vector<std::byte> &into = memory.emplace_back();
      for (const Arrays &arrays : all)
        for (double value : arrays[which]) {
          into.resize(into.size() + bytes);
          storeFloat(type, static_cast<float>(value),
                     into.data() + into.size() - bytes);
        }
      std::vector<int64_t> shape{static_cast<int64_t>(all.size())};
      shape.insert(shape.end(), info.shape.begin(), info.shape.end());
      return TensorView::dense(into.data(), type, shape);
    };
    for (size_t i = 0; i < oracle->getTokens().size(); ++i)
      tensors.emplace(oracle->getTokens()[i].name,
                      add(oracle->getTokens()[i], tokens, i));
    for (size_t i = 0; i < oracle->getParams().size(); ++i)
      tensors.emplace(oracle->getParams()[i].name,
                      add(oracle->getParams()[i], {params}, i)[0]);
    const interpreter::ValueInfo &output = oracle->getOutput();
    outputs.assign(tokens.size() * output.size(), NAN);
    std::vector<int64_t> shape{static_cast<int64_t>(tokens.size())};
    shape.insert(shape.end(), output.shape.begin(), output.shape.end());
    tensors.emplace("o", TensorView::dense(outputs, DType::F32, shape));
    need(copies.upload(tensors));
    return tensors;
  }

  /// Each head by itself.
  void compare(size_t token, const std::vector<double> &expected) {
    auto width = static_cast<size_t>(oracle->getOutput().shape.back());
    auto first =
        outputs.begin() + static_cast<std::ptrdiff_t>(token * expected.size());
    std::vector<double> actual(
        first, first + static_cast<std::ptrdiff_t>(expected.size()));
    for (size_t at = 0; at < expected.size(); at += width) {
      CAPTURE(at / width);
      REQUIRE(relativeError(std::span(actual).subspan(at, width),
                            std::span(expected).subspan(at, width)) <=
              Bound::exact);
    }
  }

  std::optional<AttentionInterpreter> oracle;
  Arrays params;
  std::mt19937 random{1};
  std::vector<std::vector<std::byte>> memory;
};

} // namespace

//===----------------------------------------------------------------------===//
// Exact attention
//===----------------------------------------------------------------------===//

TEST_CASE("prompts of all lengths are answered as float64 does") {
  if (!hasGpu())
    return;
  Sequences sequences(readExample("exact_attention"), {2, 1, 64});
  // Tiles that are full, nearly, and just not.
  for (int64_t length : {1, 15, 16, 17, 63, 64, 65, 130}) {
    sequences.reset(0);
    sequences.prefill({{0, length}});
    CHECK(sequences.pool->length(0) == length);
  }
  sequences.step({0});
}

TEST_CASE("prompts of heads, sizes, pages and types of every kind") {
  if (!hasGpu())
    return;
  auto shape =
      GENERATE(Shape{4, 4, 64, 1, "bf16"}, Shape{4, 1, 96, 16, "f16"},
               Shape{8, 1, 128, 64, "bf16"}, Shape{6, 2, 64, 16, "f32"},
               Shape{2, 1, 256, 16, "f16"}, Shape{3, 1, 32, 16, "bf16"},
               Shape{2, 1, 256, 16, "f32"});
  CAPTURE(shape.heads, shape.cacheHeads, shape.size, shape.page, shape.type);
  Sequences sequences(readExample("exact_attention"), shape);
  sequences.prefill({{1, 37}, {-1, 3}, {0, 5}, {3, 20}}, /*room=*/9);
  CHECK(sequences.pool->length(3) == 20);
  CHECK(sequences.pool->length(2) == 0);
  sequences.step({3, 0, 1});
}

TEST_CASE("a prompt goes on with what a slot holds") {
  if (!hasGpu())
    return;
  auto shape = GENERATE(Shape{4, 1, 64}, Shape{2, 2, 128, 64, "f32"});
  Sequences sequences(readExample("exact_attention"), shape);
  sequences.prefill({{0, 70}, {1, 1}, {2, 18}});
  sequences.step({2, 0});
  sequences.prefill({{2, 40}, {-1, 0}, {0, 15}, {1, 80}}, 1);
  sequences.prefill({{1, 1}});
  sequences.step({0, 1, 2});
  CHECK(sequences.pool->length(1) == 83);
}

TEST_CASE("a graph answers prompts whose lengths it does not know") {
  if (!hasGpu())
    return;
  Sequences sequences(readExample("mac"), {4, 2, 64});
  sequences.isCaptured = true;
  sequences.prefill({{0, 33}, {-1, 2}, {2, 70}}, /*room=*/20);
  sequences.prefill({{2, 5}, {1, 30}});
  sequences.step({0, 1, 2});
}

TEST_CASE("a prompt without pages is told of by the next call") {
  if (!hasGpu())
    return;
  Sequences sequences(readExample("exact_attention"), {2, 1, 64});
  sequences.prefill({{0, 20}});
  // Two pages have room for 12 tokens more.
  need(sequences.promptWithoutPages(0, 12));
  need(synchronize(gpu));
  need(sequences.promptWithoutPages(0, 1));
  need(synchronize(gpu));
  Status lost = sequences.promptWithoutPages(0, 1);
  CHECK(lost.code() == ErrorCode::ResourceExhausted);
  CHECK_THAT(lost.message(), Catch::Contains("slot 0"));
}

TEST_CASE("more rows than a warp looks at") {
  if (!hasGpu())
    return;
  Sequences sequences(readExample("exact_attention"), {2, 1, 64});
  std::vector<Prompt> prompts(40, Prompt{-1, 1});
  prompts[7] = {0, 66};
  prompts[33] = {1, 40};
  prompts[39] = {2, 3};
  // A decoder has memory for so many rows.
  AttentionDecoderOptions options;
  options.rows = 40;
  sequences.decoder = std::make_unique<AttentionDecoder>(need(
      AttentionDecoder::create(*sequences.program, *sequences.pool, options)));
  sequences.prefill(prompts);
  sequences.step({2, 1, 0});
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

static const std::string everything =
    everythingOfMatches("Hq = 4, Hkv = 2, D = 64, Dv = 32", /*window=*/24);

TEST_CASE("tokens match what prompts leave in rings") {
  if (!hasGpu())
    return;
  auto shape = GENERATE(Shape{4, 2, 64}, Shape{4, 1, 128, 64, "f16"},
                        Shape{2, 1, 96, 1, "f32"});
  CAPTURE(shape.type, shape.size);
  Sequences sequences(readExample("mac"), shape);
  // Shorter than a ring, as long, longer; then on top of what there is.
  sequences.prefill({{0, 9}, {1, 24}, {-1, 2}, {2, 75}}, 3);
  CHECK(sequences.pool->ringEntries(0) == 9);
  CHECK(sequences.pool->ringEntries(2) == 24);
  for (int i = 0; i < 6; ++i)
    sequences.step({0, 1, 2});
  sequences.prefill({{0, 17}, {2, 26}, {1, 1}});
  CHECK(sequences.pool->ringEntries(0) == 24);
  for (int i = 0; i < 6; ++i)
    sequences.step({2, 1, 0});
  CHECK(sequences.hits > 30);
}

TEST_CASE("prompts leave both parts of a summary, and its ends") {
  if (!hasGpu())
    return;
  Sequences sequences(everything, {4, 2, 64, 16, "bf16", 32},
                      {.tau = 0.4,
                       .window = 24,
                       .band = 4,
                       .sinks = 2,
                       .drift = 0.1,
                       .wideBand = 10,
                       .wideGap = 3});
  sequences.prefill({{0, 1}, {1, 90}, {2, 13}});
  for (int i = 0; i < 4; ++i)
    sequences.step({0, 1, 2});
  sequences.prefill({{0, 30}, {2, 8}});
  for (int i = 0; i < 6; ++i)
    sequences.step({0, 1, 2});
  CHECK(sequences.hits > 20);
}

/// Floats of slot 0 in an array of a pool, which may be stored as integers.
template <typename T>
static std::vector<T> ofSlot(Sequences &sequences, const std::string &name) {
  const cuda::Memory &memory = sequences.pool->getImpl().device->rings.at(name);
  std::vector<T> values(static_cast<size_t>(memory.bytes() / Sequences::slots) /
                        sizeof(T));
  need(memory.read(values.data(),
                   static_cast<int64_t>(values.size() * sizeof(T))));
  return values;
}

TEST_CASE("a prompt leaves what its tokens leave one by one") {
  if (!hasGpu())
    return;
  // Nothing matches at first, so that all summaries are exact.
  AttentionSettings settings{.tau = 1,
                             .window = Sequences::window,
                             .band = 4,
                             .sinks = 2,
                             .drift = 0.1,
                             .wideBand = 10,
                             .wideGap = 3};
  Shape shape{4, 2, 64, 16, "bf16", 32};
  auto length = GENERATE(7, 24);
  Sequences whole(everything, shape, settings);
  Sequences apart(everything, shape, settings);
  whole.prefill({{0, length}});
  for (int64_t i = 0; i < length; ++i)
    apart.step({0});
  auto isAlike = [&](const std::string &name) {
    CAPTURE(name);
    auto got = ofSlot<float>(whole, name), wanted = ofSlot<float>(apart, name);
    for (size_t i = 0; i < got.size(); ++i)
      if (got[i] != wanted[i])
        REQUIRE(got[i] == Approx(wanted[i]).epsilon(1e-5).margin(1e-5));
  };
  isAlike("ring_values");
  isAlike("ring_sums");
  for (const char *name : {"ring_queries", "ring_rotated"})
    CHECK(ofSlot<uint16_t>(whole, name) == ofSlot<uint16_t>(apart, name));
  for (const char *name : {"ring_depths", "ring_ends"})
    CHECK(ofSlot<int32_t>(whole, name) == ofSlot<int32_t>(apart, name));
  auto cursorOf = [](Sequences &of) {
    std::vector<int32_t> numbers(6);
    need(of.pool->getImpl().device->cursors.read(
        numbers.data(), static_cast<int64_t>(numbers.size()) * 4));
    return numbers;
  };
  CHECK(cursorOf(whole) == cursorOf(apart));
  // Tokens after them are answered alike.
  settings.tau = 0.4;
  for (Sequences *each : {&whole, &apart})
    each->choose(settings);
  for (int i = 0; i < 3; ++i) {
    whole.step({0});
    apart.step({0});
    for (size_t at = 0; at < whole.outputs.size(); ++at)
      REQUIRE(whole.outputs[at] ==
              Approx(apart.outputs[at]).epsilon(1e-5).margin(1e-5));
  }
  CHECK(whole.hits == apart.hits);
  CHECK(whole.hits > 0);
}

TEST_CASE("moments are those of tokens one by one") {
  if (!hasGpu())
    return;
  AttentionSettings settings{.tau = 1, .window = Sequences::window, .band = 4};
  Sequences whole(readExample("mac"), {2, 1, 64}, settings);
  Sequences apart(readExample("mac"), {2, 1, 64}, settings);
  whole.prefill({{0, 5}});
  whole.prefill({{0, 14}});
  for (int64_t i = 0; i < 19; ++i)
    apart.step({0});
  auto got = ofSlot<float>(whole, "ring_moments");
  auto wanted = ofSlot<float>(apart, "ring_moments");
  REQUIRE(got.size() == 4);
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(wanted[i]).epsilon(1e-5));
}

TEST_CASE("a ring of another band is not gone on with by a prompt") {
  if (!hasGpu())
    return;
  Sequences sequences(readExample("mac"), {2, 1, 64});
  sequences.prefill({{0, 10}});
  CHECK(sequences.pool->ringEntries(0) == 10);
  sequences.choose({.tau = 0.3, .window = Sequences::window, .band = 7});
  sequences.prefill({{0, 3}});
  CHECK(sequences.pool->ringEntries(0) == 3);
}
