//===- AttentionTest.cpp - attentions of every shape ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/AttentionCheck.h"
#include "tests/numerics/Examples.h"
#include "tests/numerics/Requests.h"

#include <set>

using namespace ladle;
using namespace ladle::check;

static AttentionRequest requestOf(const std::string &text) {
  AttentionRequest request;
  request.path = "attention.ladle";
  request.source = text;
  return request;
}

static void passes(const AttentionRequest &request, const AttentionCase &config,
                   bool hits = true) {
  CAPTURE(config.str());
  Result<AttentionResult> result = checkAttention(request, config);
  REQUIRE(result.ok());
  CHECK(result->failure == "");
  CHECK((result->hits > 0) == hits);
  CHECK(result->misses > 0);
}

TEST_CASE("heads and head sizes of every kind") {
  struct Shape {
    int64_t heads, cacheHeads, size, page;
    const char *type, *summaries;
  };
  // GQA 1 to 8 and MHA, pages of 1, 16 and 64; 20 is no multiple of a vector.
  for (Shape shape :
       {Shape{8, 1, 64, 1, "bf16", "f32"}, Shape{4, 4, 96, 16, "f16", "f32"},
        Shape{4, 2, 128, 64, "f32", "bf16"},
        Shape{2, 1, 256, 16, "bf16", "f16"},
        Shape{6, 2, 20, 16, "f32", "f32"}}) {
    AttentionCase config;
    config.type = shape.type;
    config.summaryType = shape.summaries;
    config.pageSize = shape.page;
    config.tokens = 30;
    config.prompt = 21;
    config.settings.tau = 0.3;
    config.settings.window = 12;
    config.settings.band = 3;
    config.sizes = {
        {"Hq", shape.heads}, {"Hkv", shape.cacheHeads}, {"D", shape.size}};
    config.threads = 2;
    passes(requestOf(test::readExample("mac")), config);
  }
}

TEST_CASE("sinks, two bands, a gate and a moment that is given") {
  AttentionRequest request =
      requestOf(test::everythingOfMatches("Hq = 4, Hkv = 2, D = 64, Dv = 64"));
  for (int64_t gap : {0, 3, 100})
    for (int64_t prompt : {0, 19}) {
      AttentionCase config;
      config.tokens = 60;
      config.prompt = prompt;
      config.settings = {.tau = 0.4,
                         .window = 16,
                         .band = 4,
                         .sinks = 2,
                         .drift = 0.1,
                         .wideBand = 10,
                         .wideGap = gap};
      config.sizes = {{"Dv", 48}};
      passes(request, config);
    }
}

TEST_CASE("the matrix of shapes has all that it is of") {
  std::vector<AttentionCase> six =
      planAttention(/*reuses=*/true, /*hasWideBand=*/false, /*seed=*/1);
  std::vector<AttentionCase> all =
      multiplyShapes(six, {"Hq", "Hkv", "D", "D"}, /*seed=*/7);
  CHECK(all.size() == 4 * 9 * 3 * 2);
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, std::string>> shapes;
  std::set<std::pair<std::string, int64_t>> bands;
  for (AttentionCase &one : all) {
    shapes.emplace(one.sizes["D"], one.sizes["Hq"], one.sizes["Hkv"],
                   one.pageSize, one.type);
    bands.emplace(one.type, one.settings.band);
  }
  CHECK(shapes.size() == all.size());
  CHECK(bands.size() >= 2 * 4); // no shape has its numbers for itself
  // What a file says in numbers stays.
  CHECK(multiplyShapes(six, {}, 7).front().sizes.empty());
}

TEST_CASE("heads of one element, whose sums may nearly vanish") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    AttentionCase config;
    config.type = seed % 2 ? "f32" : "f16";
    config.prompt = 70;
    config.seed = seed;
    config.sizes = {{"D", 1}};
    AttentionRequest request = requestOf(test::readExample("exact_attention"));
    request.elaboration.preset = "small";
    Result<AttentionResult> result = checkAttention(request, config);
    REQUIRE(result.ok());
    CHECK(result->failure == "");
  }
}

TEST_CASE("the first case has the numbers of the file") {
  AttentionRequest request = requestOf(test::readExample("mac"));
  request.elaboration.preset = "small";
  request.elaboration.options = {
      {"tau", 0.4}, {"window", 30}, {"band", 5}, {"sinks", 3}};
  Result<AttentionReport> report = checkAttention(request);
  INFO(report.message());
  REQUIRE(report.ok());
  CHECK(report->passed());
  CHECK(report->cases.size() == 7);
  const AttentionResult &own = report->cases.front();
  CHECK(own.config.settings ==
        AttentionSettings{.tau = 0.4, .window = 30, .band = 5, .sinks = 3});
  CHECK(own.config.pageSize == 16);
  CHECK(own.config.prompt > 5 + 3);
  CHECK(own.hits > 20);
}

TEST_CASE("tau = 1 never matches, and is exact") {
  AttentionCase config;
  config.settings = {.tau = 1, .window = 16, .band = 4};
  passes(requestOf(test::readExample("mac")), config, /*hits=*/false);
}

TEST_CASE("long sequences are spread over pieces") {
  // 2100 tokens are two pieces of the cache, and wrap the ring.
  AttentionCase config;
  config.tokens = 12;
  config.prompt = 2100;
  config.settings = {.tau = 0.3, .window = 32, .band = 8};
  config.sizes = {{"Hq", 1}, {"Hkv", 1}, {"D", 16}};
  config.threads = 2;
  passes(requestOf(test::readExample("mac")), config);
}

TEST_CASE("an attention without a match is exact") {
  AttentionRequest request = requestOf(test::readExample("exact_attention"));
  request.elaboration.preset = "small";
  Result<AttentionReport> report = checkAttention(request);
  REQUIRE(report.ok());
  CHECK(report->passed());
  for (const AttentionResult &one : report->cases)
    CHECK(one.hits == 0);
}

//===----------------------------------------------------------------------===//
// Single tokens, by hand
//===----------------------------------------------------------------------===//

namespace {
/// One head of size 16, a token at a time.
struct OneHead {
  OneHead(AttentionSettings settings, int64_t tokens = 64) {
    AttentionCompileOptions options;
    options.sizes = {{"Hq", 1}, {"Hkv", 1}, {"D", 16}};
    options.tokenTypes = {{"*", "f32"}};
    program = std::make_unique<AttentionProgram>(
        *compileAttention(test::readExample("mac"), "mac", options));
    pool = std::make_unique<AttentionPool>(
        std::move(*AttentionPool::create(*program, {.slots = 2,
                                                    .pages = (tokens + 15) / 16,
                                                    .maxTokens = tokens,
                                                    .window = 4})));
    decoder = std::make_unique<AttentionDecoder>(decoderOf(settings));
  }
  AttentionDecoder decoderOf(AttentionSettings settings) {
    return std::move(*AttentionDecoder::create(
        *program, *pool,
        {.threads = 1, .settings = settings, .preference = {}}));
  }
  Status tryStep(AttentionDecoder &by, float query, int32_t slot = 0) {
    std::vector<float> q(16, query), kv(16, 1);
    o.assign(16, 0);
    const int32_t slots[] = {slot};
    AttentionArguments arguments{.rows = 1, .slots = slots, .tensors = {}};
    for (auto [name, values] :
         {std::pair{"q_pre", &q}, {"q", &q}, {"k", &kv}, {"v", &kv}, {"o", &o}})
      arguments.tensors.emplace(
          name, TensorView::dense(*values, DType::F32, {1, 1, 16}));
    return by.step(arguments);
  }
  /// The token that is matched, or −1.
  int64_t step(float query, int32_t slot = 0) {
    REQUIRE(tryStep(*decoder, query, slot).ok());
    return decoder->matches()[0];
  }
  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  std::vector<float> o;
};
constexpr AttentionSettings near{.tau = 0.5, .window = 4, .band = 1};
} // namespace

TEST_CASE("the nearest matches, ties go to the newest, NaN never matches") {
  OneHead head(near);
  CHECK(head.step(1) == -1);
  CHECK(head.step(1) == 0);
  CHECK(head.step(1) == 1); // 0 and 1 are as near
  CHECK(head.step(1.25F) == 2);
  CHECK(head.step(1.2F) == 3); // nearer than the three before
  CHECK(head.step(NAN) == -1);
  CHECK(head.step(1.2F) == 4);           // and spoils nothing
  CHECK(head.step(1, /*slot=*/1) == -1); // but others are untouched
  CHECK(head.step(1, /*slot=*/1) == 0);
}

TEST_CASE("the oracle leaves out queries whose squares are no numbers") {
  frontend::ElaborationOptions elaboration;
  elaboration.sizes = {{"Hq", 2}, {"Hkv", 1}, {"D", 16}};
  elaboration.options = {{"tau", 0.5}, {"window", 4}, {"band", 1}};
  std::string messages;
  auto oracle = compileAttentionOracle("mac.ladle", test::readExample("mac"),
                                       elaboration, messages);
  INFO(messages);
  REQUIRE(oracle);
  for (double bad : {double(NAN), double(INFINITY), 1e20}) {
    CAPTURE(bad);
    interpreter::AttentionInterpreter::Row row = oracle->makeRow();
    auto step = [&](double first, double second) {
      std::vector<double> queries(16, first), ones(16, 1), output;
      queries.insert(queries.end(), 16, second);
      auto found =
          oracle->step(row, {}, {queries, queries, ones, ones}, output);
      return std::pair(found[0].position, found[1].position);
    };
    using Found = std::pair<int64_t, int64_t>;
    CHECK(step(bad, 1) == Found(-1, -1));
    CHECK(step(1, bad) == Found(-1, -1));
    CHECK(step(1.6, 1.6) == Found(1, 0)); // each head has one that counts
    CHECK(step(bad, bad) == Found(-1, -1));
    CHECK(step(-50, 1.6) == Found(-1, 2));
    row.restart();
    CHECK(step(1, 1) == Found(-1, -1));
    CHECK(step(1, 1) == Found(5, 5));
  }
}

TEST_CASE("rings wrap around, and are dropped where they do not hold") {
  OneHead head(near);
  head.step(5);
  for (int i = 0; i < 4; ++i)
    head.step(0.25F);
  // The 5 has left the ring of four.
  CHECK(head.step(5) == -1);
  CHECK(head.pool->ringEntries(0) == 4);
  CHECK(head.step(5) == 5);

  SECTION("another band means something else") {
    AttentionSettings other = near;
    other.band = 2;
    AttentionDecoder decoder = head.decoderOf(other);
    REQUIRE(head.tryStep(decoder, 5).ok());
    CHECK(decoder.matches()[0] == -1);
    CHECK(head.pool->ringEntries(0) == 1);
  }
  SECTION("tokens that are dropped are not matched") {
    REQUIRE(head.pool->truncate(0, 5).ok());
    CHECK(head.pool->ringEntries(0) == 2);
    CHECK(head.step(5) == -1);
  }
  SECTION("rings that are not valid") {
    const int32_t slots[] = {0};
    REQUIRE(head.pool->invalidateRings(slots).ok());
    CHECK(head.step(5) == -1);
  }
  SECTION("slots that are reset") {
    const int32_t slots[] = {0};
    REQUIRE(head.pool->reset(slots).ok());
    CHECK(head.pool->freePages() == 4);
    CHECK(head.step(5) == -1);
    CHECK(head.pool->length(0) == 1);
  }
}

TEST_CASE("a chain that is as long as it may be is refreshed") {
  AttentionSettings settings = near;
  settings.maxChain = 2;
  OneHead head(settings);
  std::vector<int64_t> matches;
  for (int i = 0; i < 7; ++i)
    matches.push_back(head.step(1));
  CHECK(matches == std::vector<int64_t>{-1, 0, 1, -1, 3, 4, -1});
}

TEST_CASE("a call that is wrong says why, and changes nothing") {
  OneHead head(near);
  auto says = [](const Status &status, const char *text) {
    CAPTURE(status.message());
    CHECK(!status.ok());
    CHECK(status.message().find(text) != std::string::npos);
  };
  says(head.tryStep(*head.decoder, 1, 2), "slot 2 is out of range");
  const int32_t slots[] = {0, 0};
  AttentionArguments twice{.rows = 2, .slots = slots, .tensors = {}};
  says(head.decoder->step(twice), "slot 0 is named twice");
  AttentionArguments missing{
      .rows = 1, .slots = std::span(slots).first(1), .tensors = {}};
  says(head.decoder->step(missing), "argument 'q_pre' is missing");
  says(head.pool->truncate(0, 3), "length is 3, wanted 0 to the 0 tokens");
  AttentionArguments negative{.rows = -1, .slots = {}, .tensors = {}};
  says(head.decoder->step(negative), "rows is -1, wanted 0 at least");
  auto refusesStarts = [&](const std::vector<int32_t> &starts,
                           const char *text) {
    PrefillArguments prompts;
    prompts.rows = 2;
    prompts.slots = slots;
    prompts.cuSeqlens = starts;
    says(head.decoder->prefill(prompts), text);
  };
  refusesStarts({0, 1}, "cuSeqlens has 2 numbers, wanted 3");
  refusesStarts({1, 2, 3}, "cuSeqlens[0] is 1, wanted 0");
  refusesStarts({0, 5, 3},
                "cuSeqlens[2] gives row 1 -2 tokens, wanted 0 at least");
  says(head.pool->reset(std::vector<int32_t>{0, 2}),
       "slots[1]: slot 2 is out of range");
  CHECK(head.pool->reset(std::vector<int32_t>{-1, 0}).ok());
  auto refusesFork = [&](const std::vector<int32_t> &from,
                         const std::vector<int32_t> &to, const char *text) {
    says(head.pool->fork(from, to), text);
  };
  refusesFork({0}, {}, "to has 0 slots, wanted 1, one for each of from");
  refusesFork({0}, {2}, "to[0]: slot 2 is out of range");
  refusesFork({-1}, {1}, "from[0]: slot -1 is out of range");
  refusesFork({0, 0}, {1, 1}, "to[1] is 1, which is to[0]");
  refusesFork({0, 1}, {1, 0}, "to[0] is 1, which is from[1]");
  auto refuses = [&](const AttentionSettings &wrong, const char *text) {
    says(AttentionDecoder::create(*head.program, *head.pool,
                                  {.settings = wrong, .preference = {}})
             .status(),
         text);
  };
  AttentionSettings wrong = near;
  wrong.window = 5;
  refuses(wrong, "window is 5, wanted 1 to the 4 entries");
  wrong = near;
  wrong.sinks = 1;
  refuses(wrong, "sinks is 1, wanted 0: 'mac' is compiled without");
  wrong = near;
  wrong.drift = 0.2;
  refuses(wrong,
          "drift is 0.2, wanted 0: 'mac' is compiled without a gate on it");
  wrong = near;
  wrong.wideBand = 8;
  refuses(wrong, "wideBand and wideGap are 8 and 0, wanted 0: 'mac' is "
                 "compiled with one band");
  CHECK(head.pool->length(0) == 0);

  OneHead small(near, /*tokens=*/16); // one page
  for (int i = 0; i < 16; ++i)
    small.step(1);
  says(small.tryStep(*small.decoder, 1, 1), "needs 1 pages, 0 are free");
  // Two slots hold the page: none may write it.
  const std::vector<int32_t> first{0}, second{1};
  CHECK(small.pool->fork(first, second).ok());
  says(small.pool->truncate(1, 8), "needs 1 pages, 0 are free");
  CHECK(small.pool->length(1) == 16);
  CHECK(small.pool->truncate(1, 0).ok());
  CHECK(small.pool->truncate(0, 8).ok()); // its own now
  says(small.pool->fork(first, second), "needs 1 pages, 0 are free");
  CHECK(small.pool->length(1) == 0);
  OneHead odd(near, /*tokens=*/21); // not all of its second page
  for (int i = 0; i < 21; ++i)
    odd.step(1);
  says(odd.tryStep(*odd.decoder, 1, 0), "wanted 21 at most");

  // Nothing throws, whatever is asked for.
  constexpr int64_t many = INT32_MAX;
  says(AttentionPool::create(*head.program, {.slots = many, .pages = many})
           .status(),
       "no memory for the tables of 2147483647 slots");
  AttentionPool pool = std::move(*AttentionPool::create(
      *head.program, {.slots = 1, .pages = 3, .maxTokens = INT64_MAX}));
  says(pool.reserve(std::vector<int32_t>{0}, 49), "wanted 48 at most");
}
