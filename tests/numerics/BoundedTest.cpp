//===- BoundedTest.cpp - attentions over caches that fold -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/safetensors.h"
#include "runtime/check/BoundedCheck.h"
#include "runtime/check/Comparison.h"
#include "tests/models/EdgeInfiniteReference.h"
#include "tests/numerics/Requests.h"

#include <random>

using namespace ladle;
using namespace ladle::check;
using reference::EdgeInfinite;

static constexpr const char *edgeInfinite = "edge_infinite/edge_infinite";

static AttentionRequest requestOf(const std::string &text) {
  AttentionRequest request;
  request.path = "attention.ladle";
  request.source = text;
  return request;
}

static int64_t passes(const AttentionRequest &request,
                      const BoundedCase &config) {
  CAPTURE(config.str());
  Result<BoundedResult> result = checkBounded(request, config);
  INFO(result.message());
  REQUIRE(result.ok());
  CHECK(result->failure == "");
  return result->folds;
}

static AttentionDecoderOptions withThreads(int threads) {
  AttentionDecoderOptions options;
  options.threads = threads;
  return options;
}

TEST_CASE("segments, sinks and windows of every kind, against the oracle") {
  AttentionRequest request = requestOf(test::readExample(edgeInfinite));
  request.elaboration.preset = "small";
  int64_t folds = 0;
  for (const BoundedCase &one : planSegments({4, 8, 16}, 7))
    folds += passes(request, one);
  CHECK(folds > 100);
}

TEST_CASE("heads, head sizes and hidden sizes of every kind") {
  struct Shape {
    int64_t heads, cacheHeads, size, hidden;
    const char *type;
  };
  // MHA, one head for all, sizes that are no multiple of a vector.
  for (Shape shape : {Shape{8, 1, 64, 16, "bf16"}, Shape{4, 4, 96, 5, "f16"},
                      Shape{4, 2, 128, 64, "f32"}, Shape{6, 2, 20, 12, "f32"},
                      Shape{2, 1, 256, 8, "bf16"},
                      // Heads that fill no tile, or two, or one by themselves.
                      Shape{6, 2, 64, 4, "bf16"}, Shape{5, 1, 32, 4, "bf16"},
                      Shape{16, 1, 32, 4, "bf16"}, Shape{2, 2, 96, 4, "bf16"},
                      Shape{11, 1, 48, 4, "bf16"}}) {
    BoundedCase config;
    config.type = shape.type;
    config.prompt = 30;
    config.tokens = 24;
    config.segments = {3, 4, 8};
    config.sizes = {{"Hq", shape.heads},
                    {"Hkv", shape.cacheHeads},
                    {"D", shape.size},
                    {"R", shape.hidden}};
    config.threads = 2;
    CHECK(passes(requestOf(test::readExample(edgeInfinite)), config) > 0);
  }
}

TEST_CASE("prompts of every length") {
  AttentionRequest request = requestOf(test::readExample(edgeInfinite));
  request.elaboration.preset = "small";
  for (int64_t prompt = 1; prompt < 24; ++prompt) {
    BoundedCase config;
    config.type = "f32";
    config.prompt = prompt;
    config.tokens = 9;
    config.later = prompt % 4;
    config.segments = {2, 3, 7};
    config.sizes = {{"Hq", 2}, {"Hkv", 1}, {"D", 16}, {"R", 4}};
    passes(request, config);
  }
}

/// Another memory and other arithmetic: a decay, features by exp, a memory of
/// 16 bits, numbers of heads of the cache and of the query, norms, and a token
/// of as many dimensions as there may be.
static const char *const other = R"(
attention other(Hq, Hkv, A, B, C, D) {
  preset "p" { Hq = 4, Hkv = 2, A = 2, B = 3, C = 2, D = 32 }
  param gain[Hq, D], weight[Hkv] : f32
  token q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  token x[Hq, A, B, C, D] : f32
  cache KV[k, v] segmented(2, 4, 8)
  memory M[KV] = linear(exp(0.5 * k), decay = 0.75) : bf16
  let exact = softmax(q, KV, scale = rsqrt(D))
  let recalled = recall(exp(0.5 * q), M)
  let shift = mean(sum(sum(sum(x, C), B), A))
  let level = sigmoid(dot(q, exact) * weight + shift)
  out o[Hq, D] : bf16 = once(M, level * l2norm(recalled) * gain + exact, exact)
}
)";

TEST_CASE("other memories and arithmetic") {
  for (const char *type : {"f32", "bf16"}) {
    BoundedCase config;
    config.type = type;
    config.prompt = 27;
    config.later = 11;
    config.segments = {2, 4, 8};
    CHECK(passes(requestOf(other), config) > 0);
  }
}

//===----------------------------------------------------------------------===//
// Features that change sign, whose sums with a query may nearly vanish
//===----------------------------------------------------------------------===//

static std::string withFeature(const std::string &name) {
  auto of = [&](const char *x) {
    return name.empty() ? x : name + "(" + x + ")";
  };
  return R"(
attention signed(Hq, Hkv, D) {
  preset "p" { Hq = 4, Hkv = 2, D = 32 }
  param g[Hq, D] : f32
  token q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  cache KV[k, v] segmented(2, 4, 8)
  memory M[KV] = linear()" +
         of("k") + R"() : f32
  let exact = softmax(q, KV, scale = rsqrt(D))
  let share = sigmoid(g)
  out o[Hq, D] : bf16 =
    once(M, share * recall()" +
         of("q") + R"(, M) + (1 - share) * exact, exact)
}
)";
}

TEST_CASE("memories whose features change sign") {
  for (const char *feature : {"", "silu", "elu", "l2norm"})
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(feature);
      BoundedCase config;
      config.type = seed == 1 ? "bf16" : "f32";
      config.tokens = 100;
      config.prompt = 40;
      config.segments = {2, 4, 8};
      config.seed = seed;
      CHECK(passes(requestOf(withFeature(feature)), config) > 0);
    }
}

TEST_CASE("what does not cancel has no room for errors") {
  AttentionRequest request = requestOf(withFeature("silu"));
  std::string messages;
  auto oracle = compileBoundedOracle(request.path, request.source,
                                     request.elaboration, messages);
  INFO(messages);
  REQUIRE(oracle);
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  auto draw = [&](llvm::ArrayRef<interpreter::ValueInfo> infos) {
    interpreter::BoundedInterpreter::Arrays arrays;
    for (const interpreter::ValueInfo &info : infos)
      for (double &value : arrays.emplace_back(info.size()))
        value = normal(random);
    return arrays;
  };
  auto row = oracle->makeRow();
  auto params = draw(oracle->getParams());
  interpreter::BoundedInterpreter::Arrays outputs;
  int well = 0, ill = 0; // of 800
  for (int token = 0; token < 200; ++token) {
    oracle->step(row, params, draw(oracle->getTokens()), outputs);
    for (size_t head = 0; head < 4; ++head) {
      auto expected =
          std::span(std::as_const(outputs[0])).subspan(head * 32, 32);
      auto terms =
          std::span(std::as_const(row.terms[0])).subspan(head * 32, 32);
      double largest = 0, most = 0;
      for (size_t i = 0; i < 32; ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        most = std::max(most, terms[i]);
        REQUIRE(terms[i] >= 0.99 * std::abs(expected[i]));
      }
      std::vector<double> actual(expected.begin(), expected.end());
      for (double &element : actual)
        element *= 1 + 1e-3;
      double error = relativeError(actual, expected, terms);
      bool cancels = most > mostCancellation * largest;
      ++(cancels ? ill : well);
      CHECK(error ==
            Approx(cancels ? 1e-3 * mostCancellation * largest / most : 1e-3));
    }
  }
  CHECK(ill > 0);
  CHECK(well > 700);
}

//===----------------------------------------------------------------------===//
// Algorithm 1, written down another time
//===----------------------------------------------------------------------===//

namespace {
/// One slot of a decoder, and the reference.
struct Sequence {
  Sequence(const SegmentSettings &segments, int64_t hidden, uint64_t seed,
           bool isWide = false)
      : reference{4,
                  2,
                  64,
                  size_t(hidden),
                  size_t(segments.sinks),
                  size_t(segments.window),
                  size_t(segments.segment),
                  {},
                  {},
                  {},
                  {},
                  {},
                  {}},
        isWide(isWide) {
    AttentionCompileOptions options;
    options.preset = "small";
    options.sizes = {{"R", hidden}};
    options.tokenTypes = {{"o", "f32"}};
    if (isWide)
      options.tokenTypes["q"] = "f32";
    options.segments = segments;
    Result<AttentionProgram> compiled =
        compileAttention(test::readExample(edgeInfinite), "edge", options);
    INFO(compiled.message());
    REQUIRE(compiled.ok());
    program = std::make_unique<AttentionProgram>(*compiled);
    pool = std::make_unique<AttentionPool>(
        std::move(*AttentionPool::create(*program, {.slots = 2})));
    decoder = std::make_unique<AttentionDecoder>(
        std::move(*AttentionDecoder::create(*program, *pool, withThreads(2))));
    reference.clear();
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    auto draw = [&](std::vector<float> &into, std::vector<double> &copy,
                    size_t count) {
      for (size_t i = 0; i < count; ++i)
        into.push_back(0.3F * normal(random));
      copy.assign(into.begin(), into.end());
    };
    auto rows = static_cast<size_t>(hidden);
    draw(w1, reference.w1, rows * 64);
    draw(b1, reference.b1, rows);
    draw(w2, reference.w2, rows * 64);
    draw(b2, reference.b2, 64);
    draw(g, reference.g, 64);
    gate = {{"w1", TensorView::dense(w1, DType::F32, {1, hidden, 64})},
            {"b1", TensorView::dense(b1, DType::F32, {1, hidden})},
            {"w2", TensorView::dense(w2, DType::F32, {1, 64, hidden})},
            {"b2", TensorView::dense(b2, DType::F32, {1, 64})},
            {"g", TensorView::dense(g, DType::F32, {1, 64})}};

    Result<Safetensors> file = Safetensors::open(
        "examples/data/tinylm-softmax-doc0-layer1.safetensors");
    INFO(file.message());
    REQUIRE(file.ok());
    trace = std::make_unique<Safetensors>(*file);
    for (auto [name, into] :
         {std::pair{"q_post", &q}, {"k_post", &k}, {"v", &v}})
      for (int64_t t = 0; t < 512; ++t) {
        std::vector<float> token = *toFloats((*trace->view(name))[t]);
        into->emplace_back(token.begin(), token.end());
      }
  }

  /// Tokens [from, from + count) of the trace.
  std::map<std::string, TensorView, std::less<>> arguments(int64_t from,
                                                           int64_t count) {
    auto tensors = gate;
    for (auto [name, key] :
         {std::pair{"q", "q_post"}, {"k", "k_post"}, {"v", "v"}})
      tensors.emplace(name, trace->view(key)->slice(0, from, from + count));
    if (isWide) {
      wide.clear();
      for (int64_t t = from; t < from + count; ++t)
        wide.insert(wide.end(), q[t].begin(), q[t].end());
      tensors.at("q") = TensorView::dense(wide, DType::F32, {count, 4, 64});
    }
    o.assign(static_cast<size_t>(count) * 256, NAN);
    tensors.emplace("o", TensorView::dense(o, DType::F32, {count, 4, 64}));
    return tensors;
  }
  void prefill(int64_t count) {
    const int32_t slots[] = {0}, ends[] = {0, static_cast<int32_t>(count)};
    PrefillArguments given;
    given.rows = 1;
    given.slots = slots;
    given.cuSeqlens = ends;
    given.tensors = arguments(0, count);
    Status status = decoder->prefill(given);
    INFO(status.message());
    REQUIRE(status.ok());
    auto first = [&](const auto &all) {
      return std::vector(all.begin(), all.begin() + count);
    };
    auto expected = reference.prefill(first(q), first(k), first(v));
    for (int64_t t = 0; t < count; ++t)
      compare(t, expected[t]);
    position = count;
  }
  void step() {
    const int32_t slots[] = {0};
    Status status = decoder->step(
        {.rows = 1, .slots = slots, .tensors = arguments(position, 1)});
    INFO(status.message());
    REQUIRE(status.ok());
    compare(0, reference.decode(q[position], k[position], v[position]));
    ++position;
  }
  void compare(int64_t row, const std::vector<double> &expected) {
    std::vector<double> actual(o.begin() + row * 256,
                               o.begin() + row * 256 + 256);
    worst = std::max(worst, relativeError(actual, expected));
  }

  EdgeInfinite reference;
  bool isWide; ///< queries are f32, and the cache bf16
  std::vector<float> wide;
  std::vector<float> w1, b1, w2, b2, g, o;
  std::map<std::string, TensorView, std::less<>> gate;
  std::vector<std::vector<double>> q, k, v;
  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  std::unique_ptr<Safetensors> trace;
  int64_t position = 0;
  double worst = 0;
};
} // namespace

TEST_CASE("EdgeInfinite on real activations is Algorithm 1") {
  for (SegmentSettings segments :
       {SegmentSettings{4, 30, 64}, {0, 16, 32}, {7, 0, 50}, {0, 0, 1}})
    for (int64_t prompt : {0, 1, 5, 150, 151, 161, 200, 300}) {
      CAPTURE(segments.sinks, segments.window, segments.segment, prompt);
      Sequence sequence(segments, 16, 3);
      if (prompt)
        sequence.prefill(prompt);
      while (sequence.position < 360)
        sequence.step();
      CHECK(sequence.worst < 1e-5);
      CHECK(sequence.pool->length(0) == 360);
      CHECK(sequence.pool->keptTokens(0) <
            segments.sinks + std::max<int64_t>(segments.window, 1) +
                segments.segment);
    }
}

TEST_CASE("a memory that is asked before the first fold says nothing") {
  AttentionRequest request = requestOf(R"(
attention unguarded(Hq, Hkv, D) {
  preset "small" { Hq = 4, Hkv = 2, D = 32 }
  token q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  cache KV[k, v] segmented(sinks = 2, window = 4, segment = 8)
  memory M[KV] = linear(elu(k) + 1) : f32
  out o[Hq, D] : f32 =
    softmax(q, KV, scale = rsqrt(D)) + recall(elu(q) + 1, M)
}
)");
  request.elaboration.preset = "small";
  BoundedCase config;
  config.segments = {2, 4, 8};
  config.tokens = 30;
  for (int64_t prompt : {0, 5, 20}) {
    config.prompt = prompt;
    CHECK(passes(request, config) > 0);
  }
}

TEST_CASE("queries of f32 over a cache of bf16") {
  Sequence sequence({4, 30, 64}, 16, 3, /*isWide=*/true);
  sequence.prefill(150);
  while (sequence.position < 360)
    sequence.step();
  CHECK(sequence.worst < 1e-5);
}

namespace {

/// Attention over pages of the same heads.
struct ExactAttention {
  static AttentionProgram compile() {
    AttentionCompileOptions options;
    options.sizes = {{"Hq", 4}, {"Hkv", 2}, {"D", 64}};
    options.tokenTypes = {{"o", "f32"}};
    return *compileAttention(test::readExample("exact_attention"), "exact",
                             options);
  }

  AttentionProgram program = compile();
  AttentionPool pool =
      std::move(*AttentionPool::create(program, {.slots = 1, .pages = 64}));
  AttentionDecoder decoder =
      std::move(*AttentionDecoder::create(program, pool, withThreads(1)));
};

} // namespace

TEST_CASE("before the first fold it is plain attention, bit for bit") {
  Sequence folds({4, 30, 64}, 16, 5);
  ExactAttention exact;
  const int32_t slots[] = {0};
  int differ = 0;
  for (int64_t t = 0; t < 98; ++t) {
    folds.step();
    std::vector<float> ours = folds.o;
    auto tensors = folds.arguments(t, 1);
    for (const auto &[name, view] : folds.gate)
      tensors.erase(name);
    REQUIRE(exact.decoder.step({.rows = 1, .slots = slots, .tensors = tensors})
                .ok());
    if (t < 97)
      CHECK(ours == folds.o);
    else // 98 = 4 + 30 + 64: the first segment is folded
      CHECK(ours != folds.o);
    differ += ours != folds.o;
  }
  CHECK(differ == 1);
}

TEST_CASE("prompts before the first fold are plain attention, bit for bit") {
  Sequence folds({4, 30, 64}, 16, 5);
  ExactAttention exact;
  const int32_t slots[] = {0};
  // 98 = 4 + 30 + 64: of that prompt the first segment is folded, which the
  // tokens behind it see. Prompts go on with another, and with steps.
  for (int64_t first : {1, 2, 3, 15, 16, 17, 34, 68, 96, 97, 98}) {
    CAPTURE(first);
    folds.reference.clear();
    REQUIRE(folds.pool->reset(slots).ok());
    REQUIRE(exact.pool.reset(slots).ok());
    int64_t second = std::min<int64_t>(21, 97 - first), at = 0;
    for (int64_t count : {first, second, int64_t(1)}) {
      if (count <= 0 || at + count > 98)
        continue;
      const int32_t ends[] = {0, static_cast<int32_t>(count)};
      PrefillArguments given;
      given.rows = 1;
      given.slots = slots;
      given.cuSeqlens = ends;
      given.tensors = folds.arguments(at, count);
      REQUIRE(folds.decoder->prefill(given).ok());
      std::vector<float> ours = folds.o;
      given.tensors = folds.arguments(at, count);
      for (const auto &[name, view] : folds.gate)
        given.tensors.erase(name);
      REQUIRE(exact.decoder.prefill(given).ok());
      at += count;
      if (at < 98)
        CHECK(ours == folds.o);
      else
        CHECK(ours != folds.o);
      size_t plain = static_cast<size_t>(count == 98 ? 68 : 0) * 256;
      CHECK(std::equal(ours.begin(), ours.begin() + plain, folds.o.begin()));
    }
  }
}

TEST_CASE("dropping the tail and giving it again is the same") {
  Sequence sequence({4, 30, 64}, 16, 9);
  sequence.prefill(200); // two segments, and 68 tokens more
  while (sequence.position < 220)
    sequence.step();
  std::vector<float> before = sequence.o;
  REQUIRE(sequence.pool->truncate(0, 4 + 2 * 64).ok());
  CHECK(sequence.pool->length(0) == 132);
  const int32_t slots[] = {0};
  for (int64_t t = 132; t < 220; ++t)
    REQUIRE(sequence.decoder
                ->step({.rows = 1,
                        .slots = slots,
                        .tensors = sequence.arguments(t, 1)})
                .ok());
  CHECK(sequence.o == before);
}

TEST_CASE("steps that are bound, padding and threads change no answer") {
  Sequence one({4, 8, 16}, 16, 11), two({4, 8, 16}, 16, 11);
  const int32_t slots[] = {-1, 1};
  std::vector<float> answers;
  for (int64_t t = 0; t < 60; ++t) {
    one.step();
    auto tensors = two.arguments(t, 2);
    // The second row is token t.
    for (const char *name : {"q", "k", "v"}) {
      const char *key = name[0] == 'q'   ? "q_post"
                        : name[0] == 'k' ? "k_post"
                                         : "v";
      int64_t from = std::max<int64_t>(t - 1, 0);
      tensors[name] = two.trace->view(key)->slice(0, from, from + 2);
    }
    if (t == 0)
      continue;
    Result<BoundStep> bound =
        two.decoder->bind({.rows = 2, .slots = slots, .tensors = tensors});
    INFO(bound.message());
    REQUIRE(bound.ok());
    REQUIRE(bound->launch().ok());
    CHECK(std::all_of(two.o.begin(), two.o.begin() + 256,
                      [](float value) { return value == 0; }));
  }
  CHECK(two.pool->length(0) == 0);
  CHECK(two.pool->length(1) == 59);
}

//===----------------------------------------------------------------------===//
// Errors, and what a pool takes
//===----------------------------------------------------------------------===//

static void says(const Status &status, const char *text) {
  CAPTURE(status.message());
  CHECK(!status.ok());
  CHECK(status.message().find(text) != std::string::npos);
}

TEST_CASE("memory does not depend on the length") {
  Sequence sequence({4, 8, 16}, 16, 1);
  // 29 tokens of 2 heads, keys and values of 64 bf16; M and z of f32.
  CHECK(sequence.program->capacity() == 28);
  CHECK(sequence.program->slotBytes() ==
        2 * (28 * 2 * 64 * 2 + 64 * 64 * 4 + 64 * 4));
  CHECK(sequence.program->isBounded());
  CHECK(sequence.program->segments() == SegmentSettings{4, 8, 16});
}

TEST_CASE("a call that is wrong says why, and changes nothing") {
  Sequence sequence({4, 8, 16}, 16, 1);
  sequence.prefill(60);
  says(sequence.pool->truncate(0, 30),
       "length is 30, wanted 52 to the 60 tokens of slot 0: what has left");
  says(AttentionPool::create(*sequence.program, {.slots = 1, .pages = 4})
           .status(),
       "pages is 4, wanted 0: the cache of 'edge_infinite' is bounded");
  const int32_t twice[] = {0, 0};
  says(sequence.decoder->step(
           {.rows = 2, .slots = twice, .tensors = sequence.arguments(0, 2)}),
       "slot 0 is named twice");
  auto missing = sequence.arguments(0, 1);
  missing.erase("w1");
  says(sequence.decoder->step(
           {.rows = 1, .slots = std::span(twice).first(1), .tensors = missing}),
       "argument 'w1' is missing");
  AttentionDecoderOptions watching;
  watching.diagnostics = true;
  says(AttentionDecoder::create(*sequence.program, *sequence.pool, watching)
           .status(),
       "that of 'edge_infinite' is bounded");
  Sequence longer({4, 8, 17}, 16, 1);
  says(AttentionDecoder::create(*sequence.program, *longer.pool).status(),
       "segments of 17");
  CHECK(sequence.pool->length(0) == 60);

  AttentionCompileOptions options;
  options.segments = SegmentSettings{0, 0, 0};
  says(compileAttention(test::readExample(edgeInfinite), "e", options).status(),
       "0, 0 and 0, wanted 0, 0 and 1 at least");
  options.segments = SegmentSettings{0, 0, 1};
  says(compileAttention(test::readExample("mac"), "m", options).status(),
       "the cache of 'mac' is not segmented");
  options.segments.reset();
  options.pageSize = 16;
  says(compileAttention(test::readExample(edgeInfinite), "e", options).status(),
       "the cache is bounded, and has no pages");

  Result<AttentionPool> limited =
      AttentionPool::create(*sequence.program, {.slots = 1, .maxTokens = 50});
  REQUIRE(limited.ok());
  AttentionDecoder decoder =
      std::move(*AttentionDecoder::create(*sequence.program, *limited));
  const int32_t slots[] = {0}, ends[] = {0, 51};
  PrefillArguments given;
  given.rows = 1;
  given.slots = slots;
  given.cuSeqlens = ends;
  given.tensors = sequence.arguments(0, 51);
  says(decoder.prefill(given), "slot 0 holds 0 tokens and gets 51, wanted 50");
  says(limited->reserve(slots, 51),
       "slot 0 holds 0 tokens and gets 51, wanted 50");
}
