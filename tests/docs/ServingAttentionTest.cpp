//===- ServingAttentionTest.cpp - docs/serving.md, of attentions ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The document shows the lines between two marks of the same name. A sequence
// is served by them in several ways, and says the same in all.
//
//===----------------------------------------------------------------------===//

#include "ladle/attention.h"
#include "ladle/device.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>

using namespace ladle;

/// Ends the test with the message of a failure.
static void need(const Status &status) {
  if (!status)
    FAIL(status.message());
}
template <typename T> static T need(Result<T> result) {
  need(result.status());
  return std::move(*result);
}

namespace {

constexpr int64_t layerCount = 2, slotCount = 4, pageCount = 24, longest = 128,
                  mostTokens = 96;

// [kv-engine]
struct Engine {
  AttentionProgram program;
  std::vector<AttentionPool> pools; // one a layer
  std::vector<AttentionDecoder> decoders;
  /// Of each layer: tokens and outputs of the largest call, [most, heads, ...],
  /// and what the model has learned.
  std::vector<std::map<std::string, DeviceTensor>> memory, params;
};

Engine makeEngine(const std::string &text,
                  const AttentionCompileOptions &options) {
  Engine engine{
      need(compileAttention(text, "attention", options)), {}, {}, {}, {}};
  const Signature &signature = engine.program.signature();
  AttentionPoolOptions room;
  room.slots = slotCount;
  // Of all slots together; a bounded cache has none, and needs no numbers.
  room.pages = engine.program.isBounded() ? 0 : pageCount;
  room.maxTokens = engine.program.isBounded() ? 0 : longest;
  engine.pools.reserve(layerCount); // decoders keep where they are
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    engine.pools.push_back(need(AttentionPool::create(engine.program, room)));
    engine.decoders.push_back(
        need(AttentionDecoder::create(engine.program, engine.pools.back())));
    auto &memory = engine.memory.emplace_back();
    auto &params = engine.params.emplace_back();
    for (const TensorSpec &spec : signature.params)
      params.emplace(spec.name,
                     need(DeviceTensor::allocate(engine.program.device(),
                                                 spec.dtype, spec.shape)));
    for (const auto *specs : {&signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs) {
        std::vector<int64_t> shape{mostTokens};
        shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
        memory.emplace(spec.name,
                       need(DeviceTensor::allocate(engine.program.device(),
                                                   spec.dtype, shape)));
      }
  }
  return engine;
}
// [kv-engine]

/// Token `position` of sequence `sequence`.
struct Place {
  int64_t sequence, position;
};

void fill(Engine &engine, int64_t layer, const std::vector<Place> &places) {
  for (const TensorSpec &spec : engine.program.signature().tokens) {
    TensorView view =
        engine.memory[static_cast<size_t>(layer)].at(spec.name).view().slice(
            0, 0, static_cast<int64_t>(places.size()));
    int64_t size = view.count() / static_cast<int64_t>(places.size());
    std::vector<float> values;
    for (const Place &place : places)
      for (int64_t i = 0; i < size; ++i)
        values.push_back(static_cast<float>(
            std::sin(0.7 * static_cast<double>(i + layer) +
                     1.3 * static_cast<double>(place.sequence) +
                     0.31 * static_cast<double>(place.position * (1 + i % 5)) +
                     static_cast<double>(spec.name.size()))));
    need(copy(TensorView::dense(values, DType::F32, view.shape), view));
  }
}

std::map<std::string, TensorView, std::less<>>
views(const Engine &engine, int64_t layer, int64_t rows) {
  std::map<std::string, TensorView, std::less<>> result;
  for (const auto &[name, tensor] : engine.memory[static_cast<size_t>(layer)])
    result.emplace(name, tensor.view().slice(0, 0, rows));
  for (const auto &[name, tensor] : engine.params[static_cast<size_t>(layer)])
    result.emplace(name, tensor.view());
  return result;
}

// [kv-prompt]
/// Prompts of any lengths, a row each: tokens of row r are starts[r] to
/// starts[r + 1] - 1. A slot may hold a sequence already.
void prefill(Engine &engine, const std::vector<int32_t> &slots,
             const std::vector<int32_t> &starts,
             const std::vector<Place> &places) {
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    fill(engine, layer, places);
    PrefillArguments arguments;
    arguments.rows = static_cast<int64_t>(slots.size());
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tokens = starts.back(); // what a GPU is told of them
    arguments.tensors = views(engine, layer, starts.back());
    need(engine.decoders[layer].prefill(arguments));
  }
}
// [kv-prompt]

// [kv-step]
/// One token of each row.
void step(Engine &engine, const std::vector<int32_t> &slots,
          const std::vector<Place> &places) {
  auto rows = static_cast<int64_t>(slots.size());
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    fill(engine, layer, places); // the model's projections
    AttentionArguments arguments;
    arguments.rows = rows;
    arguments.slots = slots;
    arguments.tensors = views(engine, layer, rows);
    need(engine.decoders[layer].step(arguments));
  }
}
// [kv-step]

// [kv-room]
/// Whether the sequences have room for so many tokens more, in all layers. On a
/// GPU that is how they get it; on the CPU steps take what is free themselves.
bool reserve(Engine &engine, const std::vector<int32_t> &slots,
             int64_t tokens) {
  for (AttentionPool &pool : engine.pools) {
    Status status = pool.reserve(slots, tokens);
    if (!status && status.code() == ErrorCode::ResourceExhausted)
      return false; // one of them has to go first
    need(status);
  }
  return true;
}
// [kv-room]

// [kv-release]
/// The sequence of a slot ends, or waits: its pages are free at once.
void release(Engine &engine, int32_t slot) {
  for (AttentionPool &pool : engine.pools)
    need(pool.reset(std::vector{slot}));
}
// [kv-release]

// [kv-preempt]
/// What a slot holds, in the memory of the host.
std::vector<AttentionContents> takeOut(Engine &engine, int32_t slot) {
  std::vector<AttentionContents> contents;
  for (AttentionPool &pool : engine.pools)
    contents.push_back(need(pool.exportSlot(slot)));
  release(engine, slot);
  return contents;
}

void bringBack(Engine &engine, int32_t slot,
               const std::vector<AttentionContents> &contents) {
  for (size_t layer = 0; layer < contents.size(); ++layer)
    need(engine.pools[layer].importSlot(slot, contents[layer]));
}
// [kv-preempt]

// [kv-cut]
/// Keeps the first `length` tokens of a slot, of which the others are dropped:
/// the end of a turn, a prefix that the next prompt shares, or guesses that
/// were wrong.
void cut(Engine &engine, int32_t slot, int64_t length) {
  for (AttentionPool &pool : engine.pools)
    need(pool.truncate(slot, length));
}
// [kv-cut]

// [kv-fork]
/// Sequences that go on from that of a slot, each in its own way: several
/// answers to a prompt, a beam, prompts that begin alike.
void fork(Engine &engine, int32_t from, const std::vector<int32_t> &to) {
  std::vector<int32_t> same(to.size(), from);
  for (AttentionPool &pool : engine.pools)
    need(pool.fork(same, to));
}
// [kv-fork]

std::vector<float> answers(const Engine &engine, int64_t rows) {
  std::vector<float> all;
  for (int64_t layer = 0; layer < layerCount; ++layer) {
    auto tensors = views(engine, layer, rows);
    for (float value :
         need(toFloats(tensors.at(engine.program.signature().outputs[0].name))))
      all.push_back(value);
  }
  return all;
}

std::string read(const std::string &name) {
  std::ifstream file("examples/" + name + ".ladle");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Place> range(int64_t sequence, int64_t first, int64_t last) {
  std::vector<Place> places;
  for (int64_t i = first; i < last; ++i)
    places.push_back({sequence, i});
  return places;
}

void compare(const std::vector<float> &got, const std::vector<float> &wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(wanted[i]).margin(1e-5));
}

AttentionCompileOptions small() {
  AttentionCompileOptions options;
  // [kv-options]
  options.preset = "small";
  options.pageSize = 16; // tokens; left out: as the file says
  // [kv-options]
  options.tokenTypes["*"] = "f32";
  return options;
}

} // namespace

TEST_CASE("a sequence that waited, or shares a prefix, says the same") {
  Engine engine = makeEngine(read("exact_attention"), small()),
         plain = makeEngine(read("exact_attention"), small());
  // Sequences 3 and 5 in slots 0 and 2, of 40 and 20 tokens.
  std::vector<Place> both = range(3, 0, 40);
  for (const Place &place : range(5, 0, 20))
    both.push_back(place);
  for (Engine *each : {&engine, &plain})
    prefill(*each, {0, 2}, {0, 40, 60}, both);
  compare(answers(engine, 60), answers(plain, 60));

  // The second gives up its slot, and comes back in another.
  int64_t before = engine.pools[0].freePages();
  release(engine, 2);
  CHECK(engine.pools[0].freePages() == before + 2);
  step(engine, {0}, {{3, 40}});
  CHECK(reserve(engine, {3}, 20));
  prefill(engine, {3}, {0, 20}, range(5, 0, 20));
  step(engine, {3, 0}, {{5, 20}, {3, 41}});
  step(plain, {0}, {{3, 40}});
  step(plain, {2, 0}, {{5, 20}, {3, 41}});
  compare(answers(engine, 2), answers(plain, 2));

  // A prompt that begins like the first reads what follows alone.
  cut(engine, 0, 32);
  std::vector<Place> rest = range(7, 32, 38), whole = range(3, 0, 32);
  for (const Place &place : rest)
    whole.push_back(place);
  prefill(engine, {0}, {0, 6}, rest);
  prefill(plain, {1}, {0, 38}, whole);
  std::vector<float> mine = answers(engine, 6), all = answers(plain, 38);
  size_t size = mine.size() / 12; // of a token and layer
  for (size_t layer = 0; layer < layerCount; ++layer)
    compare({mine.begin() + layer * 6 * size,
             mine.begin() + (layer + 1) * 6 * size},
            {all.begin() + (layer * 38 + 32) * size,
             all.begin() + (layer + 1) * 38 * size});
}

TEST_CASE("guesses that were wrong are cut off again") {
  Engine engine = makeEngine(read("exact_attention"), small()),
         plain = makeEngine(read("exact_attention"), small());
  for (Engine *each : {&engine, &plain})
    prefill(*each, {1}, {0, 30}, range(2, 0, 30));
  // [kv-guess]
  // A known token and three guesses of what follows, of which one is right.
  prefill(engine, {1}, {0, 4}, {{2, 30}, {2, 31}, {8, 32}, {8, 33}});
  cut(engine, 1, 32);
  // [kv-guess]
  for (int64_t i : {30, 31})
    step(plain, {1}, {{2, i}});
  for (Engine *each : {&engine, &plain})
    step(*each, {1}, {{2, 32}});
  compare(answers(engine, 1), answers(plain, 1));
}

TEST_CASE("branches share what they have in common, and go on alone") {
  for (const char *name : {"exact_attention", "mac"}) {
    CAPTURE(name);
    Engine engine = makeEngine(read(name), small()),
           plain = makeEngine(read(name), small());
    auto free = [&] { return engine.pools[0].freePages(); };
    prefill(engine, {0}, {0, 40}, range(3, 0, 40)); // two pages and a half
    fork(engine, 0, {1, 3});
    CHECK(free() == pageCount - 5);
    for (int32_t slot : {0, 1, 3})
      prefill(plain, {slot}, {0, 40}, range(3, 0, 40));
    CHECK(plain.pools[0].freePages() == pageCount - 9);
    auto compareSteps = [&](const std::vector<int32_t> &slots,
                            const std::vector<Place> &places) {
      for (Engine *each : {&engine, &plain}) {
        CHECK(reserve(*each, slots, 1));
        step(*each, slots, places);
      }
      compare(answers(engine, static_cast<int64_t>(slots.size())),
              answers(plain, static_cast<int64_t>(slots.size())));
    };
    for (int64_t i : {40, 41})
      compareSteps({0, 1, 3}, {{3, i}, {4, i}, {5, i}});

    // Who goes leaves the others what they share.
    for (Engine *each : {&engine, &plain})
      release(*each, 0);
    CHECK(free() == pageCount - 4);
    compareSteps({1, 3}, {{4, 42}, {5, 42}});
    // What is cut to the middle of a page gets one of its own.
    for (Engine *each : {&engine, &plain})
      cut(*each, 1, 20);
    CHECK(free() == pageCount - 4);
    for (int64_t i : {20, 21})
      compareSteps({3, 1}, {{5, 23 + i}, {6, i}});
    CHECK(engine.pools[0].ringEntries(3) == plain.pools[0].ringEntries(3));
    // A branch of a branch, where another sequence was.
    fork(engine, 1, {3});
    prefill(plain, {0}, {0, 20}, range(3, 0, 20));
    for (int64_t i : {20, 21}) // as slot 1 has it
      step(plain, {0}, {{6, i}});
    for (int32_t slot : {1, 3}) {
      step(engine, {slot}, {{7, 22}});
      step(plain, {slot == 3 ? 0 : slot}, {{7, 22}});
      compare(answers(engine, 1), answers(plain, 1));
    }
    CHECK(engine.pools[0].length(3) == 23);
    for (int32_t slot : {1, 3})
      release(engine, slot);
    CHECK(free() == pageCount);
  }
}

TEST_CASE("a sequence goes through the memory of the host") {
  for (const char *name : {"exact_attention", "mac", "slake"}) {
    CAPTURE(name);
    bool isBounded = std::string_view(name) == "slake";
    AttentionCompileOptions options = small(), other = small();
    options.pageSize = isBounded ? 0 : 16;
    other.pageSize = isBounded ? 0 : 4;
    Engine plain = makeEngine(read(name), options),
           engine = makeEngine(read(name), options),
           from = makeEngine(read(name), other);
    for (Engine *each : {&plain, &engine, &from})
      prefill(*each, {1}, {0, 37}, range(3, 0, 37));
    // Within a pool, and from one of other pages to another.
    std::vector<AttentionContents> contents = takeOut(engine, 1);
    CHECK(contents[0].length == 37);
    CHECK(engine.pools[0].length(1) == 0);
    CHECK(engine.pools[0].freePages() == (isBounded ? 0 : pageCount));
    bringBack(engine, 2, contents);
    bringBack(engine, 0, takeOut(from, 1));
    CHECK(engine.pools[0].freePages() == (isBounded ? 0 : pageCount - 6));
    for (int64_t i = 37; i < 60; ++i) {
      step(plain, {1}, {{3, i}});
      for (int32_t slot : {2, 0}) {
        step(engine, {slot}, {{3, i}});
        compare(answers(engine, 1), answers(plain, 1));
      }
    }

    // What cannot be is said, and nothing has changed.
    auto refuses = [&](const AttentionContents &wrong, const char *text) {
      Status status = engine.pools[0].importSlot(2, wrong);
      CAPTURE(status.message());
      CHECK(!status.ok());
      CHECK(status.message().find(text) != std::string::npos);
      CHECK(engine.pools[0].length(2) == 60);
    };
    AttentionContents wrong = contents[0];
    wrong.layout = "7 heads";
    refuses(wrong, "contents have 7 heads, wanted ");
    wrong = contents[0];
    wrong.data.pop_back();
    refuses(wrong, " bytes, wanted 7 and ");
    wrong = contents[0];
    wrong.length = -1;
    refuses(wrong, "contents have -1 tokens, wanted 0 to ");
    wrong = contents[0];
    wrong.numbers[0] = 38;
    refuses(wrong, "contents have numbers 38, ");
    wrong.numbers[0] = -1;
    refuses(wrong, ", which no slot of 37 tokens has");
    if (isBounded)
      continue;
    CHECK(reserve(engine, {1}, 128));
    CHECK(reserve(engine, {3}, 128));
    CHECK(engine.pools[0].freePages() == 0);
    release(engine, 2);
    CHECK(reserve(engine, {0}, 60)); // takes what is free
    Status status = engine.pools[0].importSlot(2, contents[0]);
    CHECK(status.code() == ErrorCode::ResourceExhausted);
    CHECK(engine.pools[0].length(2) == 0);
  }
}

TEST_CASE("too few pages are said before a step needs them") {
  Engine engine = makeEngine(read("exact_attention"), small());
  std::vector<int32_t> all{0, 1, 2, 3};
  CHECK(reserve(engine, all, 96)); // all 24 pages
  CHECK_FALSE(reserve(engine, all, 128));
  release(engine, 2);
  CHECK(reserve(engine, {0, 1}, 128));
}

TEST_CASE("a bounded cache is served by the same calls") {
  for (const char *name : {"edge_infinite/edge_infinite", "slake"}) {
    CAPTURE(name);
    AttentionCompileOptions options;
    options.preset = "small";
    Engine engine = makeEngine(read(name), options);
    for (auto &params : engine.params)
      for (const auto &[param, tensor] : params) {
        std::vector<float> values(static_cast<size_t>(tensor.view().count()));
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = 0.1F * std::sin(static_cast<float>(i));
        need(copy(TensorView::dense(values, DType::F32, tensor.view().shape),
                  tensor.view()));
      }
    auto serve = [&] {
      prefill(engine, {1}, {0, 70}, range(3, 0, 70));
      step(engine, {1}, {{3, 70}});
      return answers(engine, 1);
    };
    std::vector<float> first = serve();
    CHECK(engine.pools[0].length(1) == 71);
    CHECK(engine.pools[0].keptTokens(1) < 71);
    CHECK(reserve(engine, {1}, 1000));
    release(engine, 1);
    CHECK(engine.pools[0].length(1) == 0);
    CHECK(serve() == first);
  }
}
