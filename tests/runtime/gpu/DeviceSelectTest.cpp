//===- DeviceSelectTest.cpp - prompts of caches that evict, on a GPU ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A GPU and the CPU get the same prompts and tokens, answer the same, and keep
// the same.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceAttention.h"
#include "tests/runtime/gpu/PromptPair.h"

using namespace ladle;
using namespace ladle::check;
using namespace ladle::test;
using Catch::Contains;

TEST_CASE("prompts of every length choose what they keep as the CPU does") {
  if (!hasGpu())
    return;
  Pair pair("slake", {}, small);
  // Shorter than the window, as the budget, longer, of several tiles.
  pair.prefill({{0, 3}, {1, 24}, {-1, 4}, {2, 25}}, /*room=*/3);
  pair.prefill({{3, 150}, {0, 1}});
  for (int i = 0; i < 4; ++i)
    pair.step({0, 1, i % 2 ? -1 : 2, 3});
  // On top of what is held, and of a memory.
  pair.prefill({{1, 40}, {-1, 1}, {3, 2}, {0, 21}}, /*room=*/1);
  pair.prefill({{1, 0}, {2, 66}});
  for (int i = 0; i < 6; ++i)
    pair.step({3, 2, 1, 0});
}

TEST_CASE("long prompts, and more rows than a warp looks at") {
  if (!hasGpu())
    return;
  Options options{{"budget", 700}, {"recent", 40}, {"queries", 9}};
  Pair pair("slake", {2, 1, 32, "bf16"}, options);
  // Threads list several candidates each, of which a block scores 64.
  std::vector<Prompt> rows(40, Prompt{-1, 1});
  rows[3] = {0, 1300};
  rows[33] = {1, 650};
  rows[39] = {2, 701};
  pair.prefill(rows);
  pair.step({0, 1, 2});
  pair.prefill({{1, 90}, {0, 130}});
  pair.step({2, 1, 0});
}

TEST_CASE("slots whose prompts have ended are prompted again") {
  if (!hasGpu())
    return;
  Pair pair("slake", {}, small);
  pair.prefill({{2, 70}});
  pair.step({2});
  pair.reset(2);
  pair.prefill({{2, 30}});
  pair.step({2});
  pair.reset(2);
  pair.step({2});
  pair.prefill({{2, 9}});
  pair.step({2});
}

TEST_CASE("heads, sizes and types of prompts that choose") {
  if (!hasGpu())
    return;
  auto shape = GENERATE(Shape{4, 1, 64, "bf16"}, Shape{3, 3, 96, "f16"},
                        Shape{6, 2, 128, "bf16"}, Shape{10, 1, 64, "f16"},
                        Shape{20, 1, 32, "bf16"}, Shape{12, 1, 32, "f32"},
                        Shape{2, 1, 256, "bf16"});
  CAPTURE(shape.heads, shape.cacheHeads, shape.size, shape.type);
  Pair pair("slake", shape, small);
  pair.prefill({{0, 40}, {1, 90}});
  pair.step({0, 1});
  pair.prefill({{1, 9}});
  pair.step({1, 0});
}

TEST_CASE("policies that prompts are chosen by on a GPU") {
  if (!hasGpu())
    return;
  struct Policy {
    const char *name;
    Options options;
  };
  auto policy = GENERATE(
      Policy{"h2o", {{"budget", 20}, {"recent", 4}}},
      Policy{"streaming_llm", {{"budget", 20}, {"sinks", 3}}},
      Policy{"snapkv", {{"budget", 20}, {"recent", 4}, {"queries", 4}}},
      Policy{"slake",
             {{"budget", 20},
              {"recent", 4},
              {"queries", 70},
              {"sinks", 2},
              {"limit", 6},
              {"pool", 1},
              {"variance", 3}}},
      Policy{"slake", {{"budget", 8}, {"recent", 8}, {"queries", 4}}});
  CAPTURE(policy.name);
  Pair pair(policy.name, {}, policy.options);
  pair.prefill({{0, 80}, {1, 15}});
  for (int i = 0; i < 3; ++i)
    pair.step({0, 1});
  pair.prefill({{1, 33}, {0, 8}});
  for (int i = 0; i < 3; ++i)
    pair.step({1, 0});
}

TEST_CASE("of tokens that are as salient the newest stay") {
  if (!hasGpu())
    return;
  // No query gives any of them a weight that another does not get, too.
  Pair pair("snapkv", {},
            {{"budget", 10}, {"recent", 2}, {"queries", 2}, {"pool", 1}});
  for (Side *side : {&pair.there, &pair.host}) {
    PrefillArguments arguments = side->prompts({{0, 40}}, 0, 7);
    std::vector<float> zeros(40 * 2 * 64, 0);
    for (auto &[name, view] : arguments.tensors)
      if (name == "k")
        need(copy(TensorView::dense(zeros, DType::F32, view.shape), view));
    need(side->decoder->prefill(arguments));
    CHECK(side->pool->keptPositions(0, 1) ==
          std::vector<int64_t>{30, 31, 32, 33, 34, 35, 36, 37, 38, 39});
  }
}

TEST_CASE("a graph chooses what it keeps of prompts that it does not know") {
  if (!hasGpu())
    return;
  Pair pair("slake", {}, small);
  pair.replayOthers();
}

TEST_CASE("prompts of an answer that has no kernel go token by token") {
  if (!hasGpu())
    return;
  const std::string text = R"(
attention doubled(Hq, Hkv, D) {
  preset "small" { Hq = 2, Hkv = 1, D = 32 }
  token q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  cache KV[k, v] evicting(budget = 16, recent = 4)
  out o[Hq, D] : f32 = softmax(q, KV, scale = rsqrt(D)) * 2
}
)";
  AttentionCompileOptions compile;
  compile.target = "cuda";
  AttentionProgram program =
      need(compileAttention(text, "doubled.ladle", compile));
  AttentionPool pool = need(AttentionPool::create(program, {.slots = 1}));
  AttentionDecoder decoder = need(AttentionDecoder::create(program, pool));
  const int32_t slots[] = {0}, starts[] = {0, 3};
  PrefillArguments arguments;
  arguments.rows = 1;
  arguments.slots = slots;
  arguments.cuSeqlens = starts;
  arguments.tokens = 3;
  Status status = decoder.prefill(arguments);
  CHECK(status.code() == ErrorCode::Unsupported);
  CHECK_THAT(status.message(),
             Contains("prompts of 'doubled' choose the tokens that they keep"));
}

TEST_CASE("what prompts that choose refuse on a GPU") {
  if (!hasGpu())
    return;
  Pair pair("slake", {}, small, /*promptTokens=*/32);
  PrefillArguments arguments = pair.there.prompts({{0, 33}}, 0, 1);
  Status status = pair.there.decoder->prefill(arguments);
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_THAT(
      status.message(),
      Contains("tokens is 33, wanted the 32 at most that the decoder "
               "has memory for (AttentionDecoderOptions::promptTokens)"));
  AttentionDecoderOptions options;
  options.promptTokens = -1;
  auto decoder =
      AttentionDecoder::create(*pair.there.program, *pair.there.pool, options);
  REQUIRE(!decoder.ok());
  CHECK_THAT(decoder.message(),
             Contains("promptTokens is -1, wanted 1 to 16777216"));
}
