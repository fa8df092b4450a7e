//===- ServingTest.cpp - what docs/serving.md shows -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The document shows the lines between two marks of the same name. A sequence
// is served by them in several ways, and says the same in all.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"
#include "ladle/device.h"

#include <catch2/catch.hpp>
#include <cmath>

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

constexpr int64_t layerCount = 2, slotCount = 6, mostRows = 4, mostDrafts = 4;

// [engine]
struct Layer {
  Pool pool;
  Decoder decoder;
  /// Tokens and outputs of the largest batch, [most, heads, ...].
  std::map<std::string, DeviceTensor> memory;
};

struct Engine {
  Program program;
  Cursors cursors;
  std::vector<Layer> layers;
};

Engine makeEngine(const CompileOptions &options,
                  const CursorOptions &slots = {.slots = slotCount}) {
  // One program for all layers alike, which differ in their inputs alone.
  Program program =
      need(compileFile("examples/gated_delta_rule.ladle", options));
  Cursors cursors = need(Cursors::create(program, slots));
  Engine engine{program, cursors, {}};
  const Signature &signature = program.signature();
  for (int64_t index = 0; index < layerCount; ++index) {
    PoolOptions memory;
    memory.cursors = cursors;
    Pool pool = need(Pool::create(program, memory));
    Decoder decoder = need(Decoder::create(program, pool));
    Layer &layer = engine.layers.emplace_back(
        Layer{std::move(pool), std::move(decoder), {}});
    for (const auto *specs : {&signature.tokens, &signature.outputs})
      for (const TensorSpec &spec : *specs) {
        std::vector<int64_t> shape{mostRows * mostDrafts};
        shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
        layer.memory.emplace(
            spec.name,
            need(DeviceTensor::allocate(program.device(), spec.dtype, shape)));
      }
  }
  return engine;
}
// [engine]

/// Of a sequence: its number, which tells its tokens, and how many it has.
struct Place {
  int64_t sequence, position;
};

float inputOf(char name, int64_t index) {
  float wave = std::sin(0.7f * static_cast<float>(index));
  if (name == 'g')
    return -0.1f * std::abs(wave);
  return name == 'b' ? 0.5f + 0.4f * wave : 0.2f * wave;
}

/// Stands for the rest of the model: tokens at `places` for a layer.
void fill(Engine &engine, Layer &layer, const std::vector<Place> &places) {
  for (const TensorSpec &spec : engine.program.signature().tokens) {
    TensorView to = layer.memory.at(spec.name).view();
    for (size_t i = 0; i < places.size(); ++i) {
      TensorView row = to[static_cast<int64_t>(i)];
      std::vector<float> values(row.count());
      for (size_t j = 0; j < values.size(); ++j)
        values[j] = inputOf(spec.name[0], static_cast<int64_t>(j) +
                                              31 * places[i].position +
                                              977 * places[i].sequence);
      need(copy(TensorView::dense(values, DType::F32, row.shape), row));
    }
  }
}

/// The first `count` rows of the memory.
std::map<std::string, TensorView, std::less<>> views(const Layer &layer,
                                                     int64_t count) {
  std::map<std::string, TensorView, std::less<>> all;
  for (const auto &[name, tensor] : layer.memory)
    all[name] = tensor.view().slice(0, 0, count);
  return all;
}

/// Of the last layer, which is the one that is compared.
std::vector<float> answer(const Engine &engine, int64_t row) {
  return need(toFloats(engine.layers.back().memory.at("o").view()[row]));
}

// [step]
/// One token of each row. `writes` empty: a sequence stays in its slot.
void step(Engine &engine, const std::vector<int32_t> &reads,
          const std::vector<int32_t> &writes,
          const std::vector<Place> &places) {
  auto rows = static_cast<int64_t>(reads.size());
  for (Layer &layer : engine.layers) {
    fill(engine, layer, places); // the model's projections
    StepArguments arguments;
    arguments.rows = rows;
    arguments.readSlots = reads;
    arguments.writeSlots = writes;
    arguments.tensors = views(layer, rows);
    need(layer.decoder.step(arguments));
  }
  need(engine.cursors.advance(reads, writes));
}
// [step]

// [verify]
/// `starts` {0, 3, 5}: three tokens of the first row, two of the second.
/// `parents` within the row, -1 for a token that follows the history.
void verify(Engine &engine, const std::vector<int32_t> &slots,
            const std::vector<int32_t> &starts,
            const std::vector<int32_t> &parents,
            const std::vector<Place> &places) {
  for (Layer &layer : engine.layers) {
    fill(engine, layer, places);
    VerifyArguments arguments;
    arguments.rows = static_cast<int64_t>(slots.size());
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.parents = parents;
    arguments.tensors = views(layer, starts.back());
    need(layer.decoder.verify(arguments));
  }
}
// [verify]

// [prompt]
/// A prompt is drafts that are all accepted.
void readPrompt(Engine &engine, int32_t slot, int64_t sequence,
                int64_t tokens) {
  for (int64_t begin = 0; begin < tokens; begin += mostDrafts) {
    auto count = static_cast<int32_t>(std::min(mostDrafts, tokens - begin));
    std::vector<Place> places;
    for (int32_t i = 0; i < count; ++i)
      places.push_back({sequence, begin + i});
    verify(engine, {slot}, {0, count}, /*parents=*/{}, places); // a chain
    need(engine.cursors.commit(std::vector{slot}, std::vector{count}));
  }
}
// [prompt]

// [prefill]
/// Prompts of any length, a row each, of a program with prompts.
void prefill(Engine &engine, const std::vector<int32_t> &slots,
             const std::vector<int32_t> &starts,
             const std::vector<Place> &places) {
  for (Layer &layer : engine.layers) {
    fill(engine, layer, places);
    PrefillArguments arguments;
    arguments.rows = static_cast<int64_t>(slots.size());
    arguments.slots = slots;
    arguments.cuSeqlens = starts;
    arguments.tokens = starts.back(); // what a GPU is told of them
    arguments.tensors = views(layer, starts.back());
    need(layer.decoder.prefill(arguments));
  }
  need(engine.cursors.advance(slots, slots));
}
// [prefill]

// [window]
/// A chain of tokens from `begin` on, of which the first `wanted` are accepted,
/// in windows as long as a program takes drafts. Returns how many are.
int64_t extend(Engine &engine, int32_t slot, int64_t sequence, int64_t begin,
               int64_t tokens, int64_t wanted) {
  int64_t start = begin / mostDrafts * mostDrafts;
  auto count =
      static_cast<int32_t>(std::min(mostDrafts, begin + tokens - start));
  std::vector<Place> places;
  for (int32_t i = 0; i < count; ++i)
    places.push_back({sequence, start + i});
  verify(engine, {slot}, {0, count}, /*parents=*/{}, places);
  int64_t end = std::min(begin + wanted, start + count);
  bool isFull = end == start + mostDrafts;
  std::vector<int32_t> slots{slot}, counts{isFull ? count : 0};
  need(engine.cursors.commit(slots, counts));
  if (isFull)
    need(engine.cursors.flush(slots));
  return end - begin;
}
// [window]

// [preempt]
std::vector<SlotContents> takeOut(Engine &engine, int32_t slot) {
  std::vector<SlotContents> contents;
  for (Layer &layer : engine.layers)
    contents.push_back(need(layer.pool.exportSlot(engine.program, slot)));
  return contents;
}

void bringBack(Engine &engine, int32_t slot,
               const std::vector<SlotContents> &contents) {
  for (size_t index = 0; index < contents.size(); ++index)
    need(engine.layers[index].pool.importSlot(slot, contents[index]));
}
// [preempt]

CompileOptions makeOptions(const std::string &route = "inner") {
  CompileOptions options;
  // [options]
  options.sizes = {{"Hk", 2}, {"Hv", 4}, {"Dk", 12}, {"Dv", 20}};
  options.drafts = mostDrafts; // 0 where nothing is speculated
  options.capacity = 16;       // entries of a slot, twice the drafts at least
  // [options]
  options.route = route;
  return options;
}

/// What a sequence is answered at each position, token by token in slot 0.
std::vector<std::vector<float>> referenceOf(int64_t sequence, int64_t tokens) {
  Engine engine = makeEngine(makeOptions());
  std::vector<std::vector<float>> answers;
  for (int64_t i = 0; i < tokens; ++i) {
    step(engine, {0}, {}, {{sequence, i}});
    answers.push_back(answer(engine, 0));
  }
  return answers;
}

void checkSame(const std::vector<float> &got,
               const std::vector<float> &wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (std::abs(got[i] - wanted[i]) > 1e-5f)
      FAIL("element " << i << " is " << got[i] << ", wanted " << wanted[i]);
}

} // namespace

TEST_CASE("rows of a batch come and go") {
  auto first = referenceOf(1, 30), second = referenceOf(2, 30);
  Engine engine = makeEngine(makeOptions());
  for (int64_t i = 0; i < 10; ++i) {
    step(engine, {4, 2}, {}, {{1, i}, {2, i}});
    checkSame(answer(engine, 0), first[i]);
    checkSame(answer(engine, 1), second[i]);
  }
  // The second waits, the first goes on beside a row of padding.
  step(engine, {-1, 4}, {}, {{9, 9}, {1, 10}});
  checkSame(answer(engine, 1), first[10]);
  CHECK(answer(engine, 0) == std::vector<float>(first[0].size(), 0.0f));
  step(engine, {2}, {}, {{2, 10}});
  checkSame(answer(engine, 0), second[10]);
  // [reuse]
  // The sequence in slot 4 has ended; another begins there.
  need(engine.cursors.reset(std::vector{4}));
  // [reuse]
  step(engine, {4}, {}, {{2, 0}});
  checkSame(answer(engine, 0), second[0]);
}

TEST_CASE("prompts, chains and trees") {
  auto first = referenceOf(1, 40), second = referenceOf(2, 40);
  for (const char *route : {"inner", "recurrent"}) {
    CAPTURE(route);
    Engine engine = makeEngine(makeOptions(route));
    readPrompt(engine, 0, 1, 11);
    checkSame(answer(engine, 2), first[10]);
    readPrompt(engine, 3, 2, 4);
    // [tree]
    // Row 0: the token at 11, which is known, and two guesses of the next one,
    // of which the second is right. Row 1: a chain of two, both right.
    std::vector<int32_t> slots{0, 3}, starts{0, 3, 5};
    verify(engine, slots, starts, /*parents=*/{-1, 0, 0, -1, 0},
           {{1, 11}, {8, 12}, {1, 12}, {2, 4}, {2, 5}});
    std::vector<int32_t> counts{2, 2}, path{/*row 0*/ 0, 2, /*row 1*/ 0, 1};
    need(engine.cursors.commit(slots, counts, path));
    // [tree]
    checkSame(answer(engine, 2), first[12]);
    checkSame(answer(engine, 4), second[5]);
    step(engine, {3, 0}, {}, {{2, 6}, {1, 13}});
    checkSame(answer(engine, 0), second[6]);
    checkSame(answer(engine, 1), first[13]);
  }
}

TEST_CASE("prompts are folded, and decoded from") {
  auto first = referenceOf(1, 20), second = referenceOf(2, 20);
  CompileOptions options = makeOptions();
  options.prefill = true;
  Engine engine = makeEngine(options);
  std::vector<Place> places;
  for (int64_t i = 0; i < 11; ++i)
    places.push_back({1, i});
  for (int64_t i = 0; i < 4; ++i)
    places.push_back({2, i});
  prefill(engine, {0, 3}, {0, 11, 15}, places);
  checkSame(answer(engine, 10), first[10]);
  checkSame(answer(engine, 14), second[3]);
  step(engine, {3, 0}, {}, {{2, 4}, {1, 11}});
  checkSame(answer(engine, 0), second[4]);
  checkSame(answer(engine, 1), first[11]);
}

TEST_CASE("a sequence that is taken out goes on in another slot") {
  auto first = referenceOf(1, 30);
  Engine engine = makeEngine(makeOptions()), other = makeEngine(makeOptions());
  readPrompt(engine, 5, 1, 13);
  std::vector<SlotContents> contents = takeOut(engine, 5);
  for (Engine *each : {&engine, &other}) {
    bringBack(*each, 1, contents);
    step(*each, {1}, {}, {{1, 13}});
    checkSame(answer(*each, 0), first[13]);
  }
}

TEST_CASE("in windows, all answers are the same to the bit") {
  auto decode = [](const std::vector<int64_t> &drafts, int64_t wanted) {
    Engine engine = makeEngine(makeOptions());
    std::vector<std::vector<float>> answers;
    for (size_t pass = 0; answers.size() < 20; ++pass) {
      auto begin = static_cast<int64_t>(answers.size());
      int64_t done =
          extend(engine, 0, 1, begin, drafts[pass % drafts.size()], wanted);
      for (int64_t i = 0; i < done; ++i)
        answers.push_back(answer(engine, begin % mostDrafts + i));
    }
    answers.resize(20);
    return answers;
  };
  auto plain = decode({1}, 1), first = referenceOf(1, 20);
  for (size_t i = 0; i < 20; ++i)
    checkSame(plain[i], first[i]);
  CHECK(decode({4}, 4) == plain);
  CHECK(decode({3, 1, 4, 2}, 1) == plain); // the others are rejected
}

TEST_CASE("sequences begin with a prefix that they share") {
  auto first = referenceOf(1, 30);
  Engine engine = makeEngine(makeOptions());
  readPrompt(engine, 0, 1, 7);
  // [prefix]
  // Slot 0 keeps the prefix. Two sequences go on from it in slots 1 and 2; the
  // first tokens after it may differ.
  step(engine, /*reads=*/{0, 0}, /*writes=*/{1, 2}, {{1, 7}, {5, 7}});
  // [prefix]
  checkSame(answer(engine, 0), first[7]);
  step(engine, {1, 2}, {}, {{1, 8}, {5, 8}});
  checkSame(answer(engine, 0), first[8]);
  step(engine, {0}, {3}, {{1, 7}}); // it is still there
  checkSame(answer(engine, 0), first[7]);
}

TEST_CASE("the threshold and the route may change between steps") {
  auto first = referenceOf(1, 30);
  CompileOptions options = makeOptions();
  // [routes]
  options.route = "inner";
  options.extraRoutes = {"kv_only", "recurrent"};
  // [routes]
  Engine engine = makeEngine(options);
  need(engine.cursors.setFoldThreshold(3));
  readPrompt(engine, 0, 1, 8);
  std::vector<int32_t> slots{0};
  need(engine.cursors.flush(slots)); // recurrent reads no entries
  Program recurrent = need(engine.program.withRoute(RouteKind::Recurrent));
  for (Layer &layer : engine.layers)
    layer.decoder = need(Decoder::create(recurrent, layer.pool));
  step(engine, slots, {}, {{1, 8}});
  checkSame(answer(engine, 0), first[8]);
}

TEST_CASE("short sequences are pages, long ones have a state, too") {
  auto first = referenceOf(1, 60), second = referenceOf(2, 60);
  CompileOptions options = makeOptions();
  options.drafts = 0;
  // [pages]
  options.route = "kv_only"; // until there is a state
  options.capacity = 512;    // entries of a sequence at most
  options.page = 16;         // entries
  // [pages]
  // [blocks]
  CursorOptions memory{.slots = slotCount};
  memory.pages = 8;          // for all sequences, each of all layers
  memory.states = 2;         // for those that become long
  memory.crossover = 40;     // entries, if not where the cost model sees it
  memory.foldThreshold = 16; // m, once it has one
  // [blocks]
  Engine engine = makeEngine(options, memory);
  for (int64_t i = 0; i < 30; ++i)
    step(engine, {4}, {}, {{1, i}});
  for (int64_t i = 0; i < 20; ++i) {
    step(engine, {4, 2}, {}, {{1, 30 + i}, {2, i}});
    checkSame(answer(engine, 0), first[30 + i]);
    checkSame(answer(engine, 1), second[i]);
  }
  CHECK(engine.cursors.states().free == 1);
  CHECK(engine.cursors.stateOf(2) == -1);
  // [fork]
  // Two more branches of the sequence in slot 2, as a beam search wants them.
  std::vector<int32_t> from{2, 2}, to{0, 1};
  need(engine.cursors.fork(from, to));
  // [fork]
  CHECK(engine.cursors.pages().free == 8 - 1 - 2);
  step(engine, {0, 1, 2}, {}, {{2, 20}, {5, 20}, {2, 20}});
  checkSame(answer(engine, 0), second[20]);
  checkSame(answer(engine, 2), second[20]);
  CHECK(engine.cursors.pages().free == 8 - 1 - 4);
  // [rebuild]
  // Slot 1 becomes what slot 2 was after its first 7 entries.
  need(engine.cursors.rebuild(/*from=*/2, /*entries=*/7, /*to=*/1));
  // [rebuild]
  step(engine, {1}, {}, {{2, 7}});
  checkSame(answer(engine, 0), second[7]);
}
