//===- DeviceSegmentsTest.cpp - prompts by segments, on a GPU -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionPool.h"
#include "runtime/cuda/DeviceAttention.h"
#include "tests/runtime/gpu/PromptPair.h"

using namespace ladle;
using namespace ladle::test;

static const std::string edgeInfinite = "edge_infinite/edge_infinite";

static Shape narrow(const std::string &type = "f32") {
  return {2, 1, 32, type, {{"R", 8}}};
}

static Options segments(double sinks, double window, double segment) {
  return {{"sinks", sinks}, {"window", window}, {"segment", segment}};
}

static bool goesBySegments(Pair &pair) {
  return pair.there.program->getImpl().gpu->prefill.scans();
}

TEST_CASE("prompts by segments end anywhere and go on anywhere") {
  if (!hasGpu())
    return;
  Pair pair(edgeInfinite, narrow(), segments(2, 3, 6));
  CHECK(goesBySegments(pair));
  // Each residue of the segment, from before the sinks to some folds.
  for (int64_t length = 1; length <= 24; length += 4) {
    CAPTURE(length);
    pair.prefill({{0, length},
                  {3, length + 1},
                  {-1, 2},
                  {1, length + 2},
                  {2, length + 3}},
                 /*room=*/length % 3);
    pair.step({0, 1, 2, 3});
    pair.prefill({{2, 5}, {0, 0}, {1, 7}, {3, 13}});
    pair.step({3, -1, 1, 0});
    for (int32_t slot = 0; slot < 4; ++slot)
      pair.reset(slot);
  }
}

TEST_CASE("prompts by segments: no sinks, no window, one token, long windows") {
  if (!hasGpu())
    return;
  auto options =
      GENERATE(segments(0, 4, 5), segments(3, 0, 5), segments(0, 0, 7),
               segments(0, 0, 1), segments(2, 3, 1), segments(1, 17, 5),
               segments(0, 9, 3), segments(4, 2, 200));
  CAPTURE(options);
  Pair pair(edgeInfinite, narrow(), options);
  pair.prefill({{0, 20}, {1, 21}, {2, 22}, {3, 3}});
  for (int i = 0; i < 3; ++i)
    pair.step({0, 1, 2, 3});
  pair.prefill({{3, 18}, {2, 1}, {0, 9}, {1, 6}});
  for (int i = 0; i < 3; ++i)
    pair.step({3, 2, 1, 0});
}

TEST_CASE("prompts by segments of several tiles, and of more rows than lanes") {
  if (!hasGpu())
    return;
  // Tiles of queries begin and end within segments, and sinks are two tiles.
  Pair pair(edgeInfinite, narrow("bf16"), segments(70, 30, 40));
  std::vector<Prompt> rows(36, Prompt{-1, 1});
  rows[3] = {0, 330};
  rows[20] = {1, 69};
  rows[35] = {2, 141};
  pair.prefill(rows);
  pair.step({0, 1, 2});
  pair.prefill({{1, 200}, {2, 40}, {0, 1}});
  pair.step({2, 1, 0});
}

TEST_CASE("prompts by segments in rounds") {
  if (!hasGpu())
    return;
  // Rounds begin in the middle of rows and of segments, and of windows that
  // hold several of these.
  auto options = GENERATE(segments(2, 3, 6), segments(0, 17, 4));
  Pair pair(edgeInfinite, narrow(), options, /*promptTokens=*/7);
  pair.prefill({{0, 40}, {-1, 3}, {1, 12}, {2, 2}}, /*room=*/9);
  pair.step({0, 1, 2});
  pair.prefill({{2, 23}, {0, 8}, {1, 1}});
  pair.step({0, 1, 2});
}

TEST_CASE("shapes and types of prompts by segments") {
  if (!hasGpu())
    return;
  auto shape = GENERATE(Shape{4, 2, 64, "bf16", {{"R", 24}}},
                        Shape{3, 3, 96, "f16", {{"R", 4}}},
                        Shape{8, 1, 128, "bf16", {{"R", 64}}},
                        Shape{10, 2, 64, "f32", {{"R", 32}}},
                        Shape{2, 1, 256, "bf16", {{"R", 8}}});
  CAPTURE(shape.heads, shape.cacheHeads, shape.size, shape.type);
  Pair pair(edgeInfinite, shape, segments(3, 5, 9));
  CHECK(goesBySegments(pair));
  pair.prefill({{0, 31}, {1, 8}});
  pair.step({0, 1});
  pair.prefill({{1, 21}, {0, 3}});
  pair.step({1, 0});
}

TEST_CASE("memories of prompts that decay and have 16 bits") {
  if (!hasGpu())
    return;
  const std::string text = R"(
attention decayed(Hq, Hkv, D) {
  token q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  param g[Hq, D] : f32
  cache KV[k, v] segmented(sinks = 2, window = 4, segment = 8)
  memory M[KV] = linear(exp(0.5 * k), decay = 0.75) : bf16
  let exact = softmax(q, KV, scale = rsqrt(D))
  out o[Hq, D] : f32 =
    once(M, exact + sigmoid(g) * recall(exp(0.5 * q), M), exact)
}
)";
  Pair pair(text, {4, 2, 32, "bf16", {}}, {});
  // What is rounded once a fold may be rounded the other way.
  pair.margin = 8e-3;
  CHECK(goesBySegments(pair));
  pair.prefill({{0, 50}, {1, 7}, {2, 14}});
  pair.step({0, 1, 2});
  pair.prefill({{1, 30}, {2, 1}});
  pair.step({0, 1, 2});
}

TEST_CASE("a graph answers prompts by segments that it does not know") {
  if (!hasGpu())
    return;
  Pair pair(edgeInfinite, narrow(), segments(2, 3, 6), /*promptTokens=*/50);
  pair.replayOthers();
}

TEST_CASE("prompts by segments of an answer without kernels are decoded") {
  if (!hasGpu())
    return;
  const std::string text = R"(
attention normalized(Hq, Hkv, D) {
  token q[Hq, D], k[Hkv, D], v[Hkv, D] : bf16
  cache KV[k, v] segmented(sinks = 2, window = 4, segment = 8)
  memory M[KV] = linear(elu(k) + 1) : f32
  let exact = softmax(q, KV, scale = rsqrt(D))
  out o[Hq, D] : f32 =
    once(M, exact + l2norm(recall(elu(q) + 1, M)), exact)
}
)";
  Pair pair(text, {2, 1, 32, "bf16", {}}, {});
  CHECK(!goesBySegments(pair));
  pair.prefill({{0, 23}, {1, 7}});
  pair.step({0, 1});
}

TEST_CASE(
    "until the first fold answers are those of segments that never fill") {
  if (!hasGpu())
    return;
  // To the bit, of prompts as of steps, up to the 51st token, which folds.
  auto shape = GENERATE(narrow("bf16"), Shape{4, 1, 32, "f32", {{"R", 4}}});
  CAPTURE(shape.heads);
  AttentionDecoderOptions decoding;
  decoding.rows = 4;
  Side folding(edgeInfinite, "cuda", shape, segments(2, 9, 40), decoding);
  Side filling(edgeInfinite, "cuda", shape, segments(2, 9, 400), decoding);
  unsigned seed = 30;
  auto prefill = [&](const std::vector<Prompt> &rows) {
    ++seed;
    PrefillArguments one = folding.prompts(rows, 0, seed),
                     two = filling.prompts(rows, 0, seed);
    need(folding.decoder->prefill(one));
    need(filling.decoder->prefill(two));
    return folding.answers(one.tensors.at("o")) ==
           filling.answers(two.tensors.at("o"));
  };
  auto step = [&](const std::vector<int32_t> &slots) {
    ++seed;
    std::vector<float> answers[2];
    for (Side *side : {&folding, &filling}) {
      AttentionArguments arguments;
      arguments.rows = static_cast<int64_t>(slots.size());
      arguments.tensors = side->tensors(arguments.rows, seed);
      arguments.slots = need(side->copies->upload(slots));
      need(side->decoder->step(arguments));
      answers[side == &filling] = side->answers(arguments.tensors.at("o"));
    }
    return answers[0] == answers[1];
  };
  CHECK(prefill({{0, 1}, {1, 17}, {2, 33}, {3, 40}}));
  CHECK(prefill({{1, 20}, {0, 3}}));
  for (int i = 0; i < 10; ++i)
    CHECK(step({0, 1, 2, 3}));
  CHECK(folding.pool->keptTokens(3) == 50);
  CHECK(step({1, 0, 2}));
  CHECK(!step({3}));
  CHECK(folding.pool->keptTokens(3) < 51);
  CHECK(filling.pool->keptTokens(3) == 51);
}

TEST_CASE("before the first fold nothing of memory and gate is in an answer") {
  if (!hasGpu())
    return;
  // 2 + 9 + 40 = 51 tokens fold: what is there before is a short sequence. Of
  // one the gate is not a number, which any use of it would show. Attention
  // over pages cuts its sums in other places: it is the same to rounding.
  Shape shape = narrow("bf16"), plain = shape;
  plain.others.clear();
  AttentionDecoderOptions decoding;
  decoding.rows = 4;
  Side gated(edgeInfinite, "cuda", shape, segments(2, 9, 40), decoding);
  Side broken(edgeInfinite, "cuda", shape, segments(2, 9, 40), decoding);
  Side exact("exact_attention", "cuda", plain, {}, decoding);
  const std::vector<int32_t> used{0, 1, 2, 3};
  need(exact.pool->reserve(used, 51));
  auto breakGate = [&](DeviceCopies::Tensors &tensors) {
    for (const TensorSpec &spec : broken.program->signature().params) {
      TensorView &view = tensors.at(spec.name);
      std::vector<float> nans(static_cast<size_t>(view.count()), NAN);
      need(copy(TensorView::dense(nans, DType::F32, view.shape), view));
    }
  };
  auto compare = [&](const DeviceCopies::Tensors &one,
                     const DeviceCopies::Tensors &two,
                     const DeviceCopies::Tensors &three) {
    std::vector<float> ours = gated.answers(one.at("o")),
                       theirs = exact.answers(three.at("o"));
    REQUIRE(ours == broken.answers(two.at("o")));
    REQUIRE(ours.size() == theirs.size());
    for (size_t i = 0; i < ours.size(); ++i)
      REQUIRE(ours[i] == Approx(theirs[i]).margin(1e-5));
  };
  unsigned seed = 7;
  for (const std::vector<Prompt> &rows :
       {std::vector<Prompt>{{0, 1}, {1, 17}, {2, 33}, {3, 40}},
        std::vector<Prompt>{{1, 20}, {0, 3}}}) {
    ++seed;
    PrefillArguments one = gated.prompts(rows, 0, seed),
                     two = broken.prompts(rows, 0, seed),
                     three = exact.prompts(rows, 0, seed);
    breakGate(two.tensors);
    need(gated.decoder->prefill(one));
    need(broken.decoder->prefill(two));
    need(exact.decoder->prefill(three));
    compare(one.tensors, two.tensors, three.tensors);
  }
  for (int i = 0; i < 10; ++i) {
    AttentionArguments given[3];
    Side *sides[] = {&gated, &broken, &exact};
    ++seed;
    for (int side = 0; side < 3; ++side) {
      given[side].rows = 4;
      given[side].tensors = sides[side]->tensors(4, seed);
      given[side].slots = need(sides[side]->copies->upload(used));
      if (sides[side] == &broken)
        breakGate(given[side].tensors);
      need(sides[side]->decoder->step(given[side]));
    }
    compare(given[0].tensors, given[1].tensors, given[2].tensors);
  }
  for (int32_t slot : used)
    CHECK(gated.pool->keptTokens(slot) == gated.pool->length(slot));
  // With the 51st token the gate is used.
  AttentionArguments last;
  last.rows = 4;
  last.tensors = broken.tensors(4, ++seed);
  last.slots = need(broken.copies->upload(used));
  breakGate(last.tensors);
  need(broken.decoder->step(last));
  std::vector<float> answers = broken.answers(last.tensors.at("o"));
  CHECK(broken.pool->length(3) == 51);
  CHECK(std::isnan(answers.back()));
  CHECK(!std::isnan(answers.front()));
}
